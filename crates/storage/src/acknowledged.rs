//! The file `acknowledged` beside the store: what a client may have been told is durable, and which journals there
//! were. Knows nothing of what was acknowledged.
//!
//! | bytes | number, its greatest byte first |
//! | --- | --- |
//! | 0 to 8 | the last record of the log |
//! | 8 to 16 | the last commit |
//! | 16 to 24 | one more than the id of the oldest journal; 0 if that was never noted |
//!
//! It is written after every synced commit and never synced itself, but when it is made. So it may be old after a
//! loss of power, but is never too new.

use crate::{journal, store::StoreError};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

const NAME: &str = "acknowledged";
const LEN: usize = 24;
const COMMIT_OFFSET: u64 = 8;
const OLDEST_OFFSET: u64 = 16;

/// What the file says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// The last record of the log.
    pub(crate) record: u64,
    /// The last commit.
    pub(crate) commit: u64,
    /// The id of the oldest journal.
    pub(crate) oldest: Option<u64>,
}

impl Noted {
    /// Nothing if there is no file.
    pub(crate) fn read(directory: &Path) -> Result<Option<Noted>, StoreError> {
        let mut bytes = match fs::read(directory.join(NAME)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", &error)),
        };
        // Older versions wrote fewer numbers.
        bytes.resize(LEN, 0);
        let number = |at: u64| {
            let (chunk, _) = bytes[at as usize..].split_first_chunk().expect("it was made long enough");
            u64::from_be_bytes(*chunk)
        };
        let oldest = number(OLDEST_OFFSET).checked_sub(1);
        Ok(Some(Noted { record: number(0), commit: number(COMMIT_OFFSET), oldest }))
    }
}

/// The open file; the data directory it is in must stay where it is.
pub(crate) struct Acknowledged {
    file: File,
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    /// One more than the id of the oldest journal that was noted, 0 if none was yet; the id of the newest.
    journals: [AtomicU64; 2],
    /// The last record that was noted.
    record: AtomicU64,
}

impl Acknowledged {
    /// Opens the file in `directory`, or makes it. Notes nothing: what it says of the last run must stay until that was
    /// compared with what is there, or the next start would find nothing wrong.
    pub(crate) fn open(directory: &Path) -> Result<Acknowledged, StoreError> {
        let path = directory.join(NAME);
        let open = || -> io::Result<(File, (u64, u64))> {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(false).open(&path)?;
            let metadata = file.metadata()?;
            if metadata.len() == 0 {
                // Durable before anything can be acknowledged, so that a missing file is damage.
                file.set_len(LEN as u64)?;
                file.sync_all()?;
                File::open(directory)?.sync_all()?;
            }
            Ok((file, (metadata.dev(), metadata.ino())))
        };
        let (file, identity) = open().map_err(|error| failed("open", &error))?;
        let record = AtomicU64::new(Noted::read(directory)?.unwrap_or_default().record);
        Ok(Acknowledged { file, path, identity, journals: [const { AtomicU64::new(0) }; 2], record })
    }

    /// Notes what may be acknowledged from now on: a commit, and the last record of the log in it.
    pub(crate) fn note(&self, record: Option<u64>, commit: u64) -> Result<(), StoreError> {
        let commit = commit.to_be_bytes();
        // A commit may write records anew that were there before.
        let record = record.filter(|record| *record > self.record.fetch_max(*record, Ordering::Relaxed));
        let written = match record {
            Some(record) => self.file.write_all_at(&[record.to_be_bytes(), commit].concat(), 0),
            None => self.file.write_all_at(&commit, COMMIT_OFFSET),
        };
        written.map_err(|error| failed("write", &error))
    }

    /// Whether the data directory is where it was, with this file and the newest journal in it.
    pub(crate) fn check_there(&self) -> Result<(), StoreError> {
        let gone = || StoreError::Gone { directory: self.directory().to_owned() };
        let found = fs::metadata(&self.path).map_err(|_| gone())?;
        if (found.dev(), found.ino()) != self.identity {
            return Err(gone());
        }
        let newest = self.journals[1].load(Ordering::Relaxed);
        if fs::metadata(self.directory().join(format!("{newest}.jnl"))).is_ok() {
            return Ok(());
        }
        // It may have been flushed since, and others written.
        let newer = journal::list(self.directory())?.last().is_some_and(|(id, _)| *id > newest);
        if newer { self.note_journals() } else { Err(gone()) }
    }

    /// Notes which journals there are, if they are others than those that were noted.
    pub(crate) fn note_journals(&self) -> Result<(), StoreError> {
        let journals = journal::list(self.directory())?;
        let (Some((oldest, _)), Some((newest, _))) = (journals.first(), journals.last()) else {
            return Err(StoreError::Gone { directory: self.directory().to_owned() });
        };
        self.journals[1].store(*newest, Ordering::Relaxed);
        if self.journals[0].swap(oldest + 1, Ordering::Relaxed) == oldest + 1 {
            return Ok(());
        }
        let noted = self.file.write_all_at(&(oldest + 1).to_be_bytes(), OLDEST_OFFSET);
        noted.map_err(|error| failed("write", &error))
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
        // Unless the directory was refused, and must be the next time too. One that is gone has nobody who would look.
        if self.journals[0].load(Ordering::Relaxed) != 0 {
            let _ = self.note_journals();
        }
    }
}

fn failed(verb: &str, error: &io::Error) -> StoreError {
    StoreError::Failed(format!("{verb} the file {NAME:?}: {error}"))
}
