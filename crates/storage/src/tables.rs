//! The engine's lists of tables, checked before it reads them: it writes a checksum for each list, but trusts
//! what it finds. Knows nothing of what is in the tables, which have checksums that the engine does check.
//!
//! `keyspaces/<number>/current` has the number of the list (8 bytes), the checksum of the file
//! `v<number of the list>` (16 bytes), both with the least byte first, and a 0 for the kind of checksum.

use crate::store::StoreError;
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use xxhash_rust::xxh3::xxh3_128;

/// The keyspace with the names of the others. The engine removes those that it does not name.
const NAMES: &str = "keyspaces/0/current";

/// Whether every list of tables under `directory` is what was written. One that is not there yet is none, but the
/// first one is there if the store was ever `in_use`.
pub(crate) fn check(directory: &Path, in_use: bool) -> Result<(), StoreError> {
    if in_use && !directory.join(NAMES).exists() {
        return Err(StoreError::damaged(format!("the file {NAMES:?}, which is missing,")));
    }
    let keyspaces = match fs::read_dir(directory.join("keyspaces")) {
        Ok(keyspaces) => keyspaces,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(&error)),
    };
    for keyspace in keyspaces {
        let path = keyspace.map_err(|error| failed(&error))?.path();
        if path.is_dir() && !is_sound(&path).map_err(|error| failed(&error))? {
            return Err(StoreError::damaged(format!("the list of tables in {}", path.display())));
        }
    }
    Ok(())
}

/// A table with nothing in it. That is damage only if the engine fails on it, for it may have been killed when it made
/// one; but it does not say on which.
pub(crate) fn emptied(directory: &Path) -> Option<PathBuf> {
    let keyspaces = fs::read_dir(directory.join("keyspaces")).ok()?;
    let tables = keyspaces.flatten().filter_map(|keyspace| fs::read_dir(keyspace.path().join("tables")).ok());
    let is_empty = |table: &fs::DirEntry| table.metadata().is_ok_and(|found| found.len() == 0);
    tables.flatten().flatten().find(is_empty).map(|table| table.path())
}

fn failed(error: &io::Error) -> StoreError {
    StoreError::Failed(format!("read the lists of tables: {error}"))
}

/// Whether the list of tables of one keyspace is what was written.
pub(crate) fn is_sound(keyspace: &Path) -> io::Result<bool> {
    let Some(current) = read(&keyspace.join("current"))? else { return is_new(keyspace) };
    let Some((number, rest)) = current.split_first_chunk::<8>() else { return Ok(false) };
    let Some((sum, [0])) = rest.split_first_chunk::<16>() else { return Ok(false) };
    let list = read(&keyspace.join(format!("v{}", u64::from_le_bytes(*number))))?;
    Ok(list.is_some_and(|list| xxh3_128(&list) == u128::from_le_bytes(*sum)))
}

/// The power may go before the first list is there; then there are no tables either.
fn is_new(keyspace: &Path) -> io::Result<bool> {
    match fs::read_dir(keyspace.join("tables")) {
        Ok(mut tables) => Ok(tables.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
