//! The file that a backup is written to, and how it gets its name. Knows nothing of what is in it.
//!
//! Until it is complete the file is called FILE.part, and locked by the process that writes it. So a file that an earlier
//! backup left behind is told from one that is being written, and no two backups write to the same.

use crate::exit::{EXISTS, FAILED, Failure};
use anyhow::Context;
use lockwood_model::Timestamp;
use rustix::{
    fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with},
    io::Errno,
};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Where a backup is to go.
pub(super) struct Destination {
    pub(super) path: PathBuf,
    /// Then the file gets the time as its name.
    pub(super) is_directory: bool,
    pub(super) replace: bool,
}

/// A backup that is being written.
pub(super) struct Unfinished {
    pub(super) part: PathBuf,
    /// Locked if it is a file.
    pub(super) out: File,
    file: PathBuf,
    replace: bool,
}

impl Destination {
    /// Whether there is a directory for the file, and no file that it would replace.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.is_directory {
            return Ok(());
        }
        let directory = match self.path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            true => &self.path,
            false => above(&self.path),
        };
        if !directory.is_dir() {
            let message =
                format!("there is no directory {}; make it first, or name another one", directory.display());
            return Err(Failure::new(FAILED, message));
        }
        if !self.replace && self.path.exists() {
            let file = self.path.display();
            let message =
                format!("{file} is there already; replace it with --replace, or choose another name");
            return Err(Failure::new(EXISTS, message));
        }
        Ok(())
    }

    pub(super) fn begin(&self) -> anyhow::Result<Result<Unfinished, Failure>> {
        if self.is_directory {
            let names = (1..).map(|nth| self.path.join(name(super::now(), nth)));
            let mut begun = names.map(|file| self.begin_new(file));
            return Ok(Ok(begun.find_map(Result::transpose).expect("there are always more names")?));
        }
        let (file, part) = (self.path.clone(), part_of(&self.path));
        let Some(out) = create(&part).with_context(|| format!("write {}", part.display()))? else {
            let message = format!(
                "another backup is being written to {}; wait for it, or choose another name",
                part.display()
            );
            return Ok(Err(Failure::new(EXISTS, message)));
        };
        Ok(Ok(Unfinished { part, out, file, replace: self.replace }))
    }

    /// None if there is such a file, or one that is not complete.
    fn begin_new(&self, file: PathBuf) -> anyhow::Result<Option<Unfinished>> {
        let part = part_of(&file);
        let writing = || format!("write {}", part.display());
        let out = match File::create_new(&part) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            created => created.with_context(writing)?,
        };
        if !is_locked(&out, &part).with_context(writing)? {
            return Ok(None);
        }
        // Asked only now: another backup may just have been completed under this name.
        if file.exists() {
            fs::remove_file(&part).with_context(writing)?;
            return Ok(None);
        }
        Ok(Some(Unfinished { part, out, file, replace: false }))
    }
}

impl Unfinished {
    /// Gives the file its name, durably. A file that came to be there meanwhile is replaced only if that was asked for.
    pub(super) fn finish(self) -> anyhow::Result<Result<PathBuf, Failure>> {
        let Unfinished { part, file, replace, .. } = self;
        let renamed = if replace { fs::rename(&part, &file) } else { rename_to_new(&part, &file) };
        match renamed {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let message = format!(
                    "{} came to be there meanwhile, and is left as it is; the backup is complete in {}",
                    file.display(),
                    part.display()
                );
                return Ok(Err(Failure::new(EXISTS, message)));
            }
            renamed => renamed.with_context(|| format!("rename {}", part.display()))?,
        }
        let above = above(&file);
        let synced = File::open(above).and_then(|above| above.sync_all());
        synced.with_context(|| format!("sync {}", above.display()))?;
        Ok(Ok(file))
    }
}

/// The directory that a file is in.
fn above(file: &Path) -> &Path {
    file.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Fails if there is something of the new name.
fn rename_to_new(old: &Path, new: &Path) -> io::Result<()> {
    match renameat_with(CWD, old, CWD, new, RenameFlags::NOREPLACE) {
        // Not every file system can.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            fs::hard_link(old, new)?;
            fs::remove_file(old)
        }
        renamed => Ok(renamed?),
    }
}

/// The nth of the names of backups that are begun at a time.
fn name(now: Timestamp, nth: u64) -> String {
    let seconds = now.0 / 1000;
    if nth == 1 { format!("lockwood-{seconds}.backup") } else { format!("lockwood-{seconds}-{nth}.backup") }
}

fn part_of(file: &Path) -> PathBuf {
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    part.into()
}

/// Makes the file anew, also where an earlier backup broke off: what is there may be a link, or open to others. None if
/// another backup writes it.
fn create(part: &Path) -> io::Result<Option<File>> {
    match fs::symlink_metadata(part) {
        Ok(found) if found.is_symlink() => fs::remove_file(part)?,
        Ok(found) if found.is_file() => {
            let left = File::open(part)?;
            if !is_locked(&left, part)? {
                return Ok(None);
            }
            // Still locked, so that no other backup does the same and removes what is made next.
            fs::remove_file(part)?;
        }
        Ok(_) => return File::options().write(true).open(part).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let created = match File::create_new(part) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        created => created?,
    };
    Ok(is_locked(&created, part)?.then_some(created))
}

/// Locks a file until it is closed. False if another process has locked it, or has put something else in its place.
fn is_locked(file: &File, path: &Path) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(false),
        // Not every file system has locks.
        Err(Errno::NOSYS | Errno::NOTSUP | Errno::NOLCK) => return Ok(true),
        locked => locked?,
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => {
            let (found, locked) = (found?, file.metadata()?);
            Ok((found.dev(), found.ino()) == (locked.dev(), locked.ino()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(path: &Path, is_directory: bool) -> Result<Unfinished, Failure> {
        Destination { path: path.to_owned(), is_directory, replace: false }.begin().unwrap()
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn backups_into_one_directory_at_the_same_time_have_files_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let begun: Vec<Unfinished> =
            (0..5).map(|_| begin(directory.path(), true).expect("there is always a name")).collect();
        assert_eq!(names(directory.path()).len(), 5);
        for unfinished in begun {
            let file = unfinished.file.clone();
            assert_eq!(unfinished.finish().unwrap().ok(), Some(file));
        }
        let names = names(directory.path());
        assert!(names.len() == 5 && names.iter().all(|name| name.ends_with(".backup")), "{names:?}");
    }

    #[test]
    fn file_that_another_backup_writes_is_left_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("all.backup");
        let first = begin(&file, false).expect("nothing is there");
        let failure = begin(&file, false).err().expect("it is being written");
        assert!(failure.code == EXISTS && failure.message.contains("another backup"), "{}", failure.message);
        // One that broke off is begun anew.
        drop(first);
        assert_eq!(names(directory.path()), ["all.backup.part"]);
        let again = begin(&file, false).expect("it is not being written any more");
        assert!(again.finish().unwrap().is_ok());
        assert_eq!(names(directory.path()), ["all.backup"]);
    }

    #[test]
    fn file_that_came_meanwhile_is_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("all.backup");
        let unfinished = begin(&file, false).expect("nothing is there");
        fs::write(&file, "mine").unwrap();
        let failure = unfinished.finish().unwrap().expect_err("it is not to be replaced");
        assert!(failure.code == EXISTS && failure.message.contains("all.backup.part"), "{}", failure.message);
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
        let mut replacing = begin(&file, false).expect("it is not being written any more");
        replacing.replace = true;
        assert!(replacing.finish().unwrap().is_ok());
        assert_eq!(fs::read_to_string(&file).unwrap(), "");
    }
}
