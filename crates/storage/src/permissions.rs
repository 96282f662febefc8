//! Closes the data directory to everybody but its owner: directories 0700, files 0600. Knows nothing of what is in the
//! files, and touches none that is not the store's.

use std::{
    fs::{self, DirBuilder, Metadata, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
};

const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;
/// The permission bits of a mode.
const BITS: u32 = 0o777;
/// Where the engine keeps its tables.
const TABLES: &str = "keyspaces";

/// Makes `directory` if it is not there, and closes it and the store in it to everybody but their owner. Gives the number
/// of files and directories that were open to others. What is made later is closed by the umask of the process.
pub fn restrict(directory: &Path) -> io::Result<usize> {
    DirBuilder::new().recursive(true).mode(DIRECTORY).create(directory)?;
    let mut changed = usize::from(close(directory, &fs::metadata(directory)?)?);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, metadata) = (entry.path(), entry.metadata()?);
        if metadata.is_file() && is_ours(&path) {
            changed += usize::from(close(&path, &metadata)?);
        } else if metadata.is_dir() && entry.file_name() == TABLES {
            changed += restrict_all(&path, &metadata)?;
        }
    }
    Ok(changed)
}

/// A directory that is used for the store may have others' files in it.
fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    matches!(name, "acknowledged" | "lock" | "version") || name.ends_with(".jnl")
}

/// A directory and everything in it; links are not followed.
fn restrict_all(directory: &Path, metadata: &Metadata) -> io::Result<usize> {
    let mut changed = usize::from(close(directory, metadata)?);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, metadata) = (entry.path(), entry.metadata()?);
        if metadata.is_dir() {
            changed += restrict_all(&path, &metadata)?;
        } else if metadata.is_file() {
            changed += usize::from(close(&path, &metadata)?);
        }
    }
    Ok(changed)
}

/// True if it was open.
fn close(path: &Path, metadata: &Metadata) -> io::Result<bool> {
    let mode = if metadata.is_dir() { DIRECTORY } else { FILE };
    let is_open = metadata.permissions().mode() & BITS & !mode != 0;
    if is_open {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    Ok(is_open)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & BITS
    }

    #[test]
    fn the_store_is_closed_and_other_files_are_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let data = parent.path().join("data");
        restrict(&data).unwrap();
        assert_eq!(mode(&data), 0o700, "made closed");
        let tables = data.join("keyspaces/0/tables");
        fs::create_dir_all(&tables).unwrap();
        let (ours, others) =
            ([data.join("0.jnl"), data.join("acknowledged"), tables.join("1")], data.join("notes"));
        for path in ours.iter().chain([&others]) {
            fs::write(path, "x").unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o664)).unwrap();
        }
        for path in [&data, &tables] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        let changed = restrict(&data).unwrap();
        assert!(changed >= 5, "{changed}");
        ours.iter().for_each(|path| assert_eq!(mode(path), 0o600, "{}", path.display()));
        [&data, &tables].into_iter().for_each(|path| assert_eq!(mode(path), 0o700, "{}", path.display()));
        assert_eq!(mode(&others), 0o664);
        assert_eq!(restrict(&data).unwrap(), 0, "nothing is left to do");
    }
}
