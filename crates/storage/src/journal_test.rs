//! Directories with an older journal that lost something: each is refused with the place, and left as it is.

use super::{BatchReader, Next, list};
use crate::{
    Embedded, OpenError,
    acknowledged::Noted,
    embedded::embedded_test::{Contents, copy, expected, furnish, journal, read_everything},
};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// A directory whose only journal was made two, as the engine does when one is full, and where the batches of the
/// older one end.
fn two_journals() -> (TempDir, Vec<u64>, Contents) {
    let directory = tempfile::tempdir().unwrap();
    furnish(directory.path());
    let contents = expected(directory.path());
    let only = journal(directory.path());
    let mut ends = batch_ends(&only);
    ends.truncate(ends.len() * 2 / 3);
    let bytes = fs::read(&only).unwrap();
    let (older, newer) = bytes.split_at(*ends.last().unwrap() as usize);
    fs::write(directory.path().join("1.jnl"), newer).unwrap();
    fs::write(only, older).unwrap();
    (directory, ends, contents)
}

fn batch_ends(journal: &Path) -> Vec<u64> {
    let mut reader = BatchReader::open(journal).unwrap();
    let mut ends = Vec::new();
    while let Next::Batch(_) = reader.next().unwrap() {
        ends.push(reader.offset);
    }
    ends
}

/// Opens a copy of `source` after something was done to its older journal.
fn open_changed(source: &Path, change: impl FnOnce(PathBuf)) -> Result<(), OpenError> {
    let directory = tempfile::tempdir().unwrap();
    copy(source, directory.path());
    change(directory.path().join("0.jnl"));
    let len = |(_, path): (u64, PathBuf)| fs::metadata(path).unwrap().len();
    let before: Vec<u64> = list(directory.path()).unwrap().into_iter().map(len).collect();
    let opened = Embedded::open(directory.path()).map(drop);
    if opened.is_err() {
        let after: Vec<u64> = list(directory.path()).unwrap().into_iter().map(len).collect();
        assert_eq!(before, after, "what is refused is not changed");
    }
    opened
}

#[test]
fn two_sound_journals_are_read_as_one() {
    let (source, _, contents) = two_journals();
    let directory = tempfile::tempdir().unwrap();
    copy(source.path(), directory.path());
    assert!(read_everything(directory.path()).unwrap() == contents);
}

/// The engine alone takes all of these.
#[test]
fn an_older_journal_that_lost_its_end_is_reported_with_the_place() {
    let (source, ends, _) = two_journals();
    let whole = *ends.last().unwrap();
    for cut in ends.iter().rev().skip(1).take(8).flat_map(|end| [*end, end + 7]) {
        let cut_off = |path: PathBuf| {
            let bytes = fs::read(&path).unwrap();
            fs::write(path, &bytes[..cut as usize]).unwrap();
        };
        let zeroed = |path: PathBuf| {
            let mut bytes = fs::read(&path).unwrap();
            bytes[cut as usize..].fill(0);
            fs::write(path, bytes).unwrap();
        };
        for error in [open_changed(source.path(), cut_off), open_changed(source.path(), zeroed)] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("commits are missing after commit"), "{cut} of {whole}: {error}");
            assert!(error.contains("1.jnl"), "{error}");
        }
    }
}

#[test]
fn an_older_journal_with_a_wrong_byte_is_reported() {
    let (source, ends, _) = two_journals();
    for at in (0..*ends.last().unwrap()).step_by(997) {
        let flipped = |path: PathBuf| {
            let mut bytes = fs::read(&path).unwrap();
            bytes[at as usize] ^= 0x10;
            fs::write(path, bytes).unwrap();
        };
        let opened = open_changed(source.path(), flipped);
        // A sequence number is not covered by a checksum; nothing is lost by a wrong one.
        if let Err(error) = opened {
            assert!(matches!(error, OpenError::Damaged(_)), "{at}: {error}");
        }
    }
}

#[test]
fn an_older_journal_that_is_empty_or_gone_is_reported() {
    let (source, _, _) = two_journals();
    let emptied = |path: PathBuf| fs::write(path, b"").unwrap();
    let error = open_changed(source.path(), emptied).unwrap_err();
    assert!(matches!(error, OpenError::Damaged(_)), "{error}");
    let removed = |path: PathBuf| fs::remove_file(path).unwrap();
    let error = open_changed(source.path(), removed).unwrap_err();
    assert!(error.to_string().contains("0.jnl is missing"), "{error}");
}

#[test]
fn damage_is_reported_at_every_start() {
    let (source, _, _) = two_journals();
    fs::remove_file(source.path().join("0.jnl")).unwrap();
    for start in 1..=3 {
        let error = Embedded::open(source.path()).map(drop).unwrap_err();
        assert!(error.to_string().contains("0.jnl is missing"), "start {start}: {error}");
    }
}

/// Its last batch is there, but not all of it, and never was: nothing rests on it.
#[test]
fn a_last_batch_with_a_wrong_checksum_that_was_never_acknowledged_is_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    furnish(directory.path());
    let only = journal(directory.path());
    let ends = batch_ends(&only);
    let [.., before, last] = ends[..] else { panic!("there are several batches") };
    let mut bytes = fs::read(&only).unwrap();
    bytes.truncate(last as usize);
    bytes[before as usize + 40] ^= 1;
    fs::write(&only, &bytes).unwrap();
    let error = Embedded::open(directory.path()).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::Damaged(_)), "it was acknowledged: {error}");
    let mut noted = Noted::read(directory.path()).unwrap().unwrap();
    noted.commit -= 1;
    fs::write(directory.path().join("acknowledged"), noted.to_bytes()).unwrap();
    Embedded::open(directory.path()).unwrap();
}

/// The file `acknowledged` may be old after a loss of power; then the commits that follow tell.
#[test]
fn a_wrong_checksum_before_a_commit_that_rests_on_it_is_reported_whatever_was_noted() {
    let directory = tempfile::tempdir().unwrap();
    furnish(directory.path());
    let only = journal(directory.path());
    let ends = batch_ends(&only);
    let mut bytes = fs::read(&only).unwrap();
    let damaged = ends[ends.len() / 2];
    bytes[damaged as usize + 40] ^= 1;
    fs::write(&only, bytes).unwrap();
    fs::write(directory.path().join("acknowledged"), Noted::default().to_bytes()).unwrap();
    let error = Embedded::open(directory.path()).map(drop).unwrap_err().to_string();
    assert!(error.contains(&format!("at byte {damaged}")), "{error}");
}
