//! A data directory made of a backup: checked before, checked after, and there only if both say that it is sound.
//! Knows nothing of servers.

use crate::verify::{VerifyError, verify};
use lockwood_model::Timestamp;
use lockwood_storage::{
    BackupError, Embedded, OpenError, check_backup as check, restore_backup as fill, restrict,
};
use std::{
    fs::{self, File},
    io::{self, BufReader},
    path::{Path, PathBuf},
};

/// How far a restore is; the numbers are what is done of how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restoring {
    /// The backup is read and its checksums are compared; bytes.
    Checking(u64, u64),
    /// The data directory is written; bytes.
    Writing(u64, u64),
    /// The state is compared with what the log leads to; records.
    Comparing(u64, u64),
}

/// What was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// When the backup was taken.
    pub taken_at: Timestamp,
    /// How many records of the log there are.
    pub records: u64,
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// There is something where the data shall be.
    #[error("{} is not empty; a backup is restored into a new directory, and nothing is overwritten", .0.display())]
    NotEmpty(PathBuf),
    /// The backup is not what it should be.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The data directory cannot be made.
    #[error("cannot make the data directory {}: {cause}", directory.display())]
    Open {
        /// Which.
        directory: PathBuf,
        /// Why.
        cause: OpenError,
    },
    /// A file or a directory cannot be used.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// What was written cannot be read again.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// The state in the backup is not what its log leads to.
    #[error("the state in the backup is not what its log leads to: {0}")]
    Unsound(String),
}

/// Compares every checksum of a backup.
pub fn check_backup(backup: &Path) -> Result<(), RestoreError> {
    let source = File::open(backup).map_err(io_error(backup))?;
    check(&mut BufReader::new(source), &mut |_| ())?;
    Ok(())
}

/// Restores a backup into `data`, which is not there or empty. Until it is complete and verified it is in
/// `data` with `.part` behind its name, and nothing of it stays if it does not come to that.
pub fn restore_backup(
    backup: &Path,
    data: &Path,
    now: Timestamp,
    progress: &mut dyn FnMut(Restoring),
) -> Result<Restored, RestoreError> {
    check_empty(data)?;
    let source = || File::open(backup).map_err(io_error(backup));
    let len = source()?.metadata().map_err(io_error(backup))?.len();
    check(&mut BufReader::new(source()?), &mut |done| progress(Restoring::Checking(done, len)))?;
    let (part, scratch) = (beside(data, ".part"), beside(data, ".verify"));
    // Somebody else's, or of a restore that did not end: not ours to remove.
    check_empty(&part)?;
    check_empty(&scratch)?;
    restrict(&part).map_err(io_error(&part))?;
    let restored = (|| {
        let store =
            Embedded::open(&part).map_err(|cause| RestoreError::Open { directory: part.clone(), cause })?;
        let head = fill(&mut BufReader::new(source()?), &store, now, &mut |done| {
            progress(Restoring::Writing(done, len));
        })?;
        drop(store);
        let verified = verify(&part, &scratch, &mut |done, all| progress(Restoring::Comparing(done, all)))?;
        if let Some(difference) = verified.differences.into_iter().next() {
            return Err(RestoreError::Unsound(difference));
        }
        Ok(Restored { taken_at: Timestamp(head.taken_at), records: verified.records })
    })();
    remove(&scratch)?;
    let placed = restored.and_then(|restored| put_in_place(&part, data).map(|()| restored));
    if placed.is_err() {
        remove(&part)?;
    }
    placed
}

fn check_empty(data: &Path) -> Result<(), RestoreError> {
    match fs::read_dir(data) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(RestoreError::NotEmpty(data.to_owned())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_error(data)(error)),
    }
}

fn put_in_place(part: &Path, data: &Path) -> Result<(), RestoreError> {
    restrict(part).map_err(io_error(part))?;
    // Takes the place of an empty directory; if it is not empty any more, this fails.
    fs::rename(part, data).map_err(io_error(data))?;
    let above = data.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(above).and_then(|above| above.sync_all());
    synced.map_err(io_error(above))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let name = path.components().as_path().as_os_str();
    let mut name = name.to_owned();
    name.push(ending);
    name.into()
}

fn remove(directory: &Path) -> Result<(), RestoreError> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(directory)(error)),
        _ => Ok(()),
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> RestoreError {
    let path = path.to_owned();
    move |cause| RestoreError::Io { path, cause }
}
