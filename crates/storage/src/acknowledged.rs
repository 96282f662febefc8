//! The file `acknowledged` beside the store: what a client may have been told is durable, and which journals there
//! were. Knows nothing of what was acknowledged.
//!
//! | bytes | number, its greatest byte first |
//! | --- | --- |
//! | 0 to 8 | the last record of the log |
//! | 8 to 16 | the last commit |
//! | 16 to 24 | one more than the id of the oldest journal; 0 if that was never noted |
//! | 24 to 32 | the XXH3 digest of the bytes before |
//!
//! It is written after every synced commit and never synced itself, but when it is made. So it may be old after a
//! loss of power, but is never too new. All of it is in one sector and is written at once, so that a digest that does
//! not fit is damage.

use crate::{journal, store::StoreError};
use parking_lot::Mutex;
use rustix::fs::{Access, AtFlags, CWD, StatxFlags, access, statx};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::{fd::AsFd, unix::fs::FileExt},
    path::{Path, PathBuf},
};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const NAME: &str = "acknowledged";
const LEN: usize = 32;
/// Up to format 3 there was no digest, and earlier there were fewer numbers.
const LEN_UNCHECKED: [usize; 3] = [8, 16, 24];

/// What the file says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// The last record of the log.
    pub(crate) record: u64,
    /// The last commit.
    pub(crate) commit: u64,
    /// The id of the oldest journal.
    pub(crate) oldest: Option<u64>,
    /// Whether a digest vouches for it.
    pub(crate) is_checked: bool,
}

impl Noted {
    /// Nothing if there is no file.
    pub(crate) fn read(directory: &Path) -> Result<Option<Noted>, StoreError> {
        match fs::read(directory.join(NAME)) {
            Ok(bytes) => Noted::from_bytes(bytes).map(Some).ok_or_else(damaged),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &error)),
        }
    }

    fn from_bytes(mut bytes: Vec<u8>) -> Option<Noted> {
        let is_checked = match bytes.len() {
            LEN => true,
            len if LEN_UNCHECKED.contains(&len) => false,
            _ => return None,
        };
        bytes.resize(LEN, 0);
        let numbers: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|chunk| u64::from_be_bytes(chunk.try_into().expect("8 bytes")))
            .collect();
        let noted =
            Noted { record: numbers[0], commit: numbers[1], oldest: numbers[2].checked_sub(1), is_checked };
        (!is_checked || noted.to_bytes()[..] == bytes[..]).then_some(noted)
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let oldest = self.oldest.map_or(0, |id| id + 1);
        let mut bytes = [self.record, self.commit, oldest].map(u64::to_be_bytes).concat();
        let digest = xxh3_64(&bytes);
        bytes.extend(digest.to_be_bytes());
        bytes
    }
}

/// The open file; the data directory it is in must stay where it is.
pub(crate) struct Acknowledged {
    file: File,
    path: PathBuf,
    identity: Identity,
    state: Mutex<State>,
}

/// The device and the inode of a file.
type Identity = (u32, u32, u64);

/// Asks for no times: a file whose times were looked at has to note the next write's exactly, which makes each commit
/// 40 us longer.
fn identity(at: impl AsFd, path: &Path) -> io::Result<Identity> {
    let found = statx(at, path, AtFlags::EMPTY_PATH, StatxFlags::INO)?;
    Ok((found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
}

struct State {
    /// What the file says.
    noted: Noted,
    /// The id of the newest journal; nothing until the journals were noted for the first time.
    newest: Option<u64>,
}

impl Acknowledged {
    /// Opens the file in `directory`, or makes it. Notes nothing: what it says of the last run must stay until that was
    /// compared with what is there, or the next start would find nothing wrong.
    pub(crate) fn open(directory: &Path) -> Result<Acknowledged, StoreError> {
        let noted = match Noted::read(directory)? {
            Some(noted) if noted.is_checked => noted,
            // An older format had no digest. It has one before the store says that it is of this format.
            found => make(directory, found.unwrap_or_default()).map_err(|error| failed("make", &error))?,
        };
        let path = directory.join(NAME);
        let open = || -> io::Result<(File, Identity)> {
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            let identity = identity(&file, Path::new(""))?;
            Ok((file, identity))
        };
        let (file, identity) = open().map_err(|error| failed("open", &error))?;
        Ok(Acknowledged { file, path, identity, state: Mutex::new(State { noted, newest: None }) })
    }

    /// Notes what may be acknowledged from now on: a commit, and the last record of the log in it.
    pub(crate) fn note(&self, record: Option<u64>, commit: u64) -> Result<(), StoreError> {
        let noted = &mut self.state.lock().noted;
        // A commit may write records anew that were there before.
        noted.record = noted.record.max(record.unwrap_or_default());
        noted.commit = commit;
        self.write(noted)
    }

    fn write(&self, noted: &Noted) -> Result<(), StoreError> {
        self.file.write_all_at(&noted.to_bytes(), 0).map_err(|error| failed("write", &error))
    }

    /// Whether the data directory is where it was, with this file and the newest journal in it.
    pub(crate) fn check_there(&self) -> Result<(), StoreError> {
        if identity(CWD, &self.path).map_err(|_| self.gone())? != self.identity {
            return Err(self.gone());
        }
        let newest = self.state.lock().newest.unwrap_or_default();
        if access(self.directory().join(format!("{newest}.jnl")), Access::EXISTS).is_ok() {
            return Ok(());
        }
        // It may have been flushed since, and others written.
        let newer = journal::list(self.directory())?.last().is_some_and(|(id, _)| *id > newest);
        if newer { self.note_journals() } else { Err(self.gone()) }
    }

    /// Notes which journals there are, if they are others than those that were noted.
    pub(crate) fn note_journals(&self) -> Result<(), StoreError> {
        let journals = journal::list(self.directory())?;
        let (Some((oldest, _)), Some((newest, _))) = (journals.first(), journals.last()) else {
            return Err(self.gone());
        };
        let state = &mut *self.state.lock();
        state.newest = Some(*newest);
        if state.noted.oldest == Some(*oldest) {
            return Ok(());
        }
        state.noted.oldest = Some(*oldest);
        self.write(&state.noted)
    }

    fn gone(&self) -> StoreError {
        StoreError::Gone { directory: self.directory().to_owned() }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.path.parent().expect("the file is in a directory")
    }

    /// A file that cannot be written, for tests of what happens then.
    #[cfg(test)]
    pub(crate) fn make_read_only(&mut self) {
        self.file = File::open(&self.path).expect("it is there");
    }
}

impl Drop for Acknowledged {
    /// The engine may have dropped journals while it closed.
    fn drop(&mut self) {
        // Unless the directory was refused, and must be the next time too. One that is gone needs no note.
        if self.state.lock().newest.is_some() {
            let _ = self.note_journals();
        }
    }
}

/// Makes the file, durable and whole before anything can be acknowledged, so that a missing or short file is damage.
fn make(directory: &Path, noted: Noted) -> io::Result<Noted> {
    let noted = Noted { is_checked: true, ..noted };
    let unfinished = directory.join(format!("{NAME}.new"));
    let mut file = File::create(&unfinished)?;
    file.write_all(&noted.to_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, directory.join(NAME))?;
    File::open(directory)?.sync_all()?;
    Ok(noted)
}

pub(crate) fn damaged() -> StoreError {
    StoreError::damaged(format!("the file {NAME:?}"))
}

fn failed(verb: &str, error: &io::Error) -> StoreError {
    StoreError::Failed(format!("{verb} the file {NAME:?}: {error}"))
}
