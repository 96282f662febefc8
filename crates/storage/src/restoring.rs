//! The mark of a data directory that a backup is being restored into: made first, removed last. Knows nothing of
//! backups.
//!
//! A directory with the mark is not opened by anything but the restore, so half a store is never served. The process
//! that restores holds a lock on the mark; a mark without one is of a restore that did not end.

use crate::embedded::{Embedded, OpenError, SCRATCH};
use std::{
    fs::{self, DirEntry, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

const MARK: &str = "restoring";
/// Every new file system of some kinds has it.
const LOST_AND_FOUND: &str = "lost+found";

/// A data directory that a backup is being restored into.
pub struct Unfinished {
    directory: PathBuf,
    /// Whether it was not there before.
    is_new: bool,
    _locked: File,
}

/// Why a restore cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// There is something in the directory that is not of an earlier restore.
    #[error(
        "it is not empty; a backup is restored into a new or empty directory, and nothing is overwritten"
    )]
    NotEmpty,
    /// Another process restores into it.
    #[error("{}", OpenError::Restoring)]
    Running,
    /// The file system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Whether a restore may begin in `directory`. Changes nothing.
pub fn check_restorable(directory: &Path) -> Result<(), BeginError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries.collect::<io::Result<Vec<DirEntry>>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let is_marked = entries.iter().any(|entry| entry.file_name() == MARK);
    let is_taken = |entry: &DirEntry| match is_marked {
        true => !is_ours(entry) && entry.file_name() != LOST_AND_FOUND,
        false => entry.file_name() != LOST_AND_FOUND,
    };
    if entries.iter().any(is_taken) {
        return Err(BeginError::NotEmpty);
    }
    match open_error(directory) {
        Some(OpenError::Restoring) => Err(BeginError::Running),
        _ => Ok(()),
    }
}

/// Why a directory with the mark is not opened; none if it has none.
pub(crate) fn open_error(directory: &Path) -> Option<OpenError> {
    let mark = match File::open(directory.join(MARK)) {
        Ok(mark) => mark,
        // What is no directory is refused in a moment.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return None;
        }
        Err(error) => return Some(OpenError::Unusable(error.to_string())),
    };
    Some(match mark.try_lock() {
        Err(TryLockError::WouldBlock) => OpenError::Restoring,
        _ => OpenError::Unrestored,
    })
}

impl Unfinished {
    /// Marks `directory`, makes it if need be, and removes what an earlier restore left in it.
    pub fn begin(directory: &Path) -> Result<Unfinished, BeginError> {
        check_restorable(directory)?;
        let is_new = !directory.exists();
        crate::restrict(directory)?;
        let mark = File::options().create(true).append(true).open(directory.join(MARK))?;
        match mark.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(BeginError::Running),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        mark.sync_all()?;
        sync(directory)?;
        let unfinished = Unfinished { directory: directory.to_owned(), is_new, _locked: mark };
        unfinished.empty()?;
        Ok(unfinished)
    }

    /// Which it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Opens the store in it.
    pub fn open(&self) -> Result<Embedded, OpenError> {
        Embedded::open_marked(&self.directory)
    }

    /// Where a state can be rebuilt to be compared.
    pub fn scratch(&self) -> PathBuf {
        self.directory.join(SCRATCH)
    }

    /// The restore is complete, and everything closed.
    pub fn finish(self) -> io::Result<()> {
        remove_directory(&self.scratch())?;
        crate::restrict(&self.directory)?;
        // Before the mark goes, all the rest is there.
        sync(&self.directory)?;
        fs::remove_file(self.directory.join(MARK))?;
        sync(&self.directory)?;
        match self.directory.canonicalize()?.parent() {
            Some(above) if self.is_new => sync(above),
            _ => Ok(()),
        }
    }

    /// The restore came to nothing, and nothing of it stays.
    pub fn abandon(self) -> io::Result<()> {
        self.empty()?;
        fs::remove_file(self.directory.join(MARK))?;
        match self.is_new {
            true => fs::remove_dir(&self.directory),
            false => sync(&self.directory),
        }
    }

    /// Removes everything but the mark.
    fn empty(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if !is_ours(&entry) || entry.file_name() == MARK {
                continue;
            }
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        Ok(())
    }
}

/// What a restore makes in a data directory.
fn is_ours(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let Some(name) = name.to_str() else { return false };
    matches!(name, MARK | "acknowledged" | "acknowledged.new" | "lock" | "version" | "keyspaces" | SCRATCH)
        || name.ends_with(".jnl")
}

fn remove_directory(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_directory_with_the_mark_is_opened_by_the_restore_alone() {
        let directory = TempDir::new().unwrap();
        let unfinished = Unfinished::begin(directory.path()).unwrap();
        drop(unfinished.open().unwrap());
        let refused = || Embedded::open(directory.path()).map(drop).unwrap_err();
        assert!(matches!(refused(), OpenError::Restoring));
        assert!(matches!(Unfinished::begin(directory.path()), Err(BeginError::Running)));
        drop(unfinished);
        assert!(matches!(refused(), OpenError::Unrestored));
        let existing = Embedded::open_existing(directory.path()).map(drop);
        assert!(matches!(existing, Err(OpenError::Unrestored)));
        let unfinished = Unfinished::begin(directory.path()).unwrap();
        assert_eq!(names(directory.path()), [MARK], "what was left is removed");
        drop(unfinished.open().unwrap());
        unfinished.finish().unwrap();
        Embedded::open(directory.path()).unwrap();
    }

    #[test]
    fn a_restore_that_comes_to_nothing_leaves_what_was_there() {
        let parent = TempDir::new().unwrap();
        let (new, empty) = (parent.path().join("new"), parent.path().join("empty"));
        fs::create_dir_all(empty.join(LOST_AND_FOUND)).unwrap();
        for directory in [&new, &empty] {
            let unfinished = Unfinished::begin(directory).unwrap();
            drop(unfinished.open().unwrap());
            unfinished.abandon().unwrap();
        }
        assert!(!new.exists());
        assert_eq!(names(&empty), [LOST_AND_FOUND]);
    }

    #[test]
    fn what_is_not_of_a_restore_is_never_removed() {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("0.jnl"), "").unwrap();
        assert!(matches!(Unfinished::begin(directory.path()), Err(BeginError::NotEmpty)), "no mark");
        fs::write(directory.path().join(MARK), "").unwrap();
        fs::write(directory.path().join("mine"), "").unwrap();
        assert!(matches!(Unfinished::begin(directory.path()), Err(BeginError::NotEmpty)));
        assert_eq!(names(directory.path()).len(), 3);
    }
}
