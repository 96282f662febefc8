//! A data directory made of a backup: checked before, checked after, and usable only if both say that it is sound.
//! Knows nothing of servers.

use crate::verify::{VerifyError, verify_store};
use lockwood_model::Timestamp;
use lockwood_storage::{
    BackupError, BeginError, OpenError, Unfinished, check_backup as check, check_restorable,
    restore_backup as fill,
};
use std::{
    fs::File,
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
    /// The directory cannot be used.
    #[error("nothing is restored into {}: {cause}", directory.display())]
    Begin {
        /// Which.
        directory: PathBuf,
        /// Why.
        cause: BeginError,
    },
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
    /// Nothing was restored, and what was written on the way is still there.
    #[error("{first}\nwhat was written on the way is left in {}, which cannot be emptied: {cause}", left.display())]
    Left {
        /// Why nothing was restored.
        first: Box<RestoreError>,
        /// What is left.
        left: PathBuf,
        /// Why it is left.
        cause: io::Error,
    },
}

/// Compares every checksum of a backup.
pub fn check_backup(backup: &Path) -> Result<(), RestoreError> {
    let source = File::open(backup).map_err(io_error(backup))?;
    check(&mut BufReader::new(source), &mut |_| ())?;
    Ok(())
}

/// Restores a backup into `data`, which is not there, empty, or left by a restore that did not end. Until it is complete
/// and verified it has a mark, with which nothing else opens it; nothing of it stays if it does not come to that.
pub fn restore_backup(
    backup: &Path,
    data: &Path,
    now: Timestamp,
    progress: &mut dyn FnMut(Restoring),
) -> Result<Restored, RestoreError> {
    let not_begun = |cause| RestoreError::Begin { directory: data.to_owned(), cause };
    check_restorable(data).map_err(not_begun)?;
    let source = File::open(backup).map_err(io_error(backup))?;
    let len = source.metadata().map_err(io_error(backup))?.len();
    check(&mut BufReader::new(source), &mut |done| progress(Restoring::Checking(done, len)))?;
    let unfinished = Unfinished::begin(data).map_err(not_begun)?;
    match restore_into(&unfinished, backup, len, now, progress) {
        Ok(restored) => {
            unfinished.finish().map_err(io_error(data))?;
            Ok(restored)
        }
        // The failure is told first also if what was written cannot be removed.
        Err(first) => Err(match unfinished.abandon() {
            Ok(()) => first,
            Err(cause) => RestoreError::Left { first: Box::new(first), left: data.to_owned(), cause },
        }),
    }
}

fn restore_into(
    unfinished: &Unfinished,
    backup: &Path,
    len: u64,
    now: Timestamp,
    progress: &mut dyn FnMut(Restoring),
) -> Result<Restored, RestoreError> {
    let open = || {
        let failed = |cause| RestoreError::Open { directory: unfinished.directory().to_owned(), cause };
        unfinished.open().map_err(failed)
    };
    let mut source = BufReader::new(File::open(backup).map_err(io_error(backup))?);
    let store = open()?;
    let head = fill(&mut source, &store, now, &mut |done| progress(Restoring::Writing(done, len)))?;
    drop(store);
    // Opened anew, as a server will: that also finds what is missing on disk.
    let mut compared = |done, all| progress(Restoring::Comparing(done, all));
    let verified = verify_store(&open()?, &unfinished.scratch(), &mut compared)?;
    match verified.differences.into_iter().next() {
        Some(difference) => Err(RestoreError::Unsound(difference)),
        None => Ok(Restored { taken_at: Timestamp(head.taken_at), records: verified.records }),
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> RestoreError {
    let path = path.to_owned();
    move |cause| RestoreError::Io { path, cause }
}
