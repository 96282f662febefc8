//! The engine's journals, read before the engine does: it cuts a journal off where it is damaged and goes on
//! without what followed. Knows nothing of what the keys mean but the seal, which numbers every commit.
//!
//! A journal `<id>.jnl` is a row of batches; the largest id is the one that is written. All numbers have their
//! least byte first:
//!
//! | entry | bytes |
//! | --- | --- |
//! | start | 1, number of items (4), sequence number (8) |
//! | item | 2, kind (1), compression (1), keyspace (8), lengths of key (2), value (4) and value on disk (4), key, value |
//! | clear | 4, keyspace (8) |
//! | end | 3, XXH3 of all items as they are there (8), `FJL` and a 3 |
//!
//! A journal may end in the middle of a batch, or have zeros behind the last one: power was lost, or the disk was
//! full. That is damage only if it lost a commit: commits are numbered without gaps over all journals, and the
//! last of them is no smaller than the last one that was acknowledged.

use crate::{seal::Seal, store::StoreError};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};
use xxhash_rust::xxh3::Xxh3Default;

/// The key under which every batch has its seal, as its last item.
pub(crate) const SEAL: &str = "seal";

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: [u8; 4] = *b"FJL\x03";
const ITEM_HEAD_LEN: usize = 20;
const BUFFER_BYTES: usize = 256 * 1024;

/// What the journals of a data directory have in them.
#[derive(Debug, Default)]
pub(crate) struct Journals {
    /// The smallest id.
    pub(crate) oldest: Option<u64>,
    /// The number of the last commit; none if there is none with a number.
    pub(crate) last: Option<u64>,
    /// Where journals end in the middle of a batch that was never acknowledged.
    torn: Vec<(PathBuf, u64)>,
}

impl Journals {
    /// Reads the journals in `directory`. Those that lost a commit that was `acknowledged`, or that was made
    /// durable before a later one, are damaged.
    pub(crate) fn read(directory: &Path, acknowledged: u64) -> Result<Journals, StoreError> {
        let mut journals = Journals::default();
        let mut end: Option<(PathBuf, u64)> = None;
        for (id, path) in list(directory)? {
            // The engine begins another journal when one is full.
            if let Some((path, 0)) = end {
                let what = format!("the journal {}, which has nothing in it,", path.display());
                return Err(StoreError::damaged(what));
            }
            journals.oldest.get_or_insert(id);
            let offset = journals.read_one(&path)?;
            end = Some((path, offset));
        }
        match (journals.last, end) {
            (Some(last), Some((path, offset))) if last < acknowledged => Err(StoreError::damaged(format!(
                "the journal {}: it ends at byte {offset} with commit {last}, although commit {acknowledged} was \
                 acknowledged; it",
                path.display()
            ))),
            _ => Ok(journals),
        }
    }

    /// Takes in one journal; gives the byte behind its last batch.
    fn read_one(&mut self, path: &Path) -> Result<u64, StoreError> {
        let failed = |error| failed("read", path, &error);
        let mut reader = BatchReader::open(path).map_err(failed)?;
        loop {
            let offset = reader.offset;
            match reader.next().map_err(failed)? {
                Next::Batch(seal) => self.follow(path, offset, seal)?,
                Next::Nothing => return Ok(offset),
                Next::Torn => {
                    self.torn.push((path.to_owned(), offset));
                    return Ok(offset);
                }
                Next::Mismatch => {
                    self.check_tail(path, offset, &mut reader)?;
                    self.torn.push((path.to_owned(), offset));
                    return Ok(offset);
                }
            }
        }
    }

    /// A commit follows the one before it.
    fn follow(&mut self, path: &Path, offset: u64, seal: Option<Seal>) -> Result<(), StoreError> {
        match (self.last, seal) {
            // An older version wrote commits without numbers.
            (None, seal) => self.last = seal.map(|seal| seal.commits),
            (Some(last), Some(seal)) if seal.commits == last + 1 => self.last = Some(seal.commits),
            (Some(last), _) => {
                return Err(StoreError::damaged(format!(
                    "the journal: commits are missing after commit {last}, before byte {offset} of {}; it",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// Behind a batch with a wrong checksum nothing may rest on that batch.
    fn check_tail(&self, path: &Path, offset: u64, reader: &mut BatchReader) -> Result<(), StoreError> {
        while let Next::Batch(seal) = reader.next().map_err(|error| failed("read", path, &error))? {
            if self.last.is_none_or(|last| seal.is_none_or(|seal| seal.synced > last)) {
                let what = format!("the journal {} at byte {offset}", path.display());
                return Err(StoreError::damaged(what));
            }
        }
        Ok(())
    }

    /// Cuts journals off behind their last whole batch. The engine would refuse some of them otherwise.
    pub(crate) fn cut_torn(&self) -> Result<(), StoreError> {
        for (path, len) in &self.torn {
            let cut = || {
                let file = OpenOptions::new().write(true).open(path)?;
                file.set_len(*len)?;
                file.sync_all()
            };
            cut().map_err(|error| failed("cut", path, &error))?;
        }
        Ok(())
    }
}

/// The journals in a directory, the oldest first.
pub(crate) fn list(directory: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let read = || -> io::Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let id = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse().ok());
            found.extend(id.map(|id| (id, path)));
        }
        found.sort();
        Ok(found)
    };
    match read() {
        Ok(found) => Ok(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed("list", directory, &error)),
    }
}

fn failed(verb: &str, path: &Path, error: &io::Error) -> StoreError {
    StoreError::Failed(format!("{verb} {}: {error}", path.display()))
}

/// Whether anything was ever written to a journal.
pub(crate) fn is_used(path: &Path) -> io::Result<bool> {
    Ok(!matches!(BatchReader::open(path)?.next()?, Next::Nothing))
}

/// What comes next in a journal.
enum Next {
    /// A whole batch, and its seal if it has a number.
    Batch(Option<Seal>),
    /// A batch with a wrong checksum; what follows it can be read.
    Mismatch,
    /// Something that is no whole batch.
    Torn,
    /// Zeros, or the end of the file.
    Nothing,
}

struct BatchReader {
    input: BufReader<File>,
    /// Behind what was read last.
    offset: u64,
    len: u64,
    item: Vec<u8>,
}

impl BatchReader {
    fn open(path: &Path) -> io::Result<BatchReader> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let input = BufReader::with_capacity(BUFFER_BYTES, file);
        Ok(BatchReader { input, offset: 0, len, item: Vec::new() })
    }

    fn next(&mut self) -> io::Result<Next> {
        if self.offset == self.len {
            return Ok(Next::Nothing);
        }
        let next = match self.take::<1>()? {
            [0] => Ok(Next::Nothing),
            [START] => self.batch(),
            _ => Ok(Next::Torn),
        };
        match next {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Next::Torn),
            next => next,
        }
    }

    fn batch(&mut self) -> io::Result<Next> {
        let [a, b, c, d, _seqno @ ..] = self.take::<12>()?;
        let mut hasher = Xxh3Default::new();
        let mut seal = None;
        for _ in 0..u32::from_le_bytes([a, b, c, d]) {
            seal = match self.take::<1>()? {
                [ITEM] => match self.item(&mut hasher)? {
                    Some(seal) => seal,
                    None => return Ok(Next::Torn),
                },
                [CLEAR] => {
                    hasher.update(&[CLEAR]);
                    hasher.update(&self.take::<8>()?);
                    None
                }
                _ => return Ok(Next::Torn),
            };
        }
        if self.take::<1>()? != [END] {
            return Ok(Next::Torn);
        }
        let sum = u64::from_le_bytes(self.take()?);
        if self.take()? != TRAILER {
            return Ok(Next::Torn);
        }
        Ok(if sum == hasher.digest() { Next::Batch(seal) } else { Next::Mismatch })
    }

    /// The seal, if the item is one; nothing if it is no item.
    fn item(&mut self, hasher: &mut Xxh3Default) -> io::Result<Option<Option<Seal>>> {
        let head: [u8; ITEM_HEAD_LEN] = self.take()?;
        let number = |from: usize, len: usize| {
            head[from..from + len].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let (key_len, value_len, stored_len) = (number(10, 2), number(12, 4), number(16, 4));
        // Never more than there is, whatever the lengths say.
        if value_len != stored_len || self.offset + key_len + value_len > self.len {
            return Ok(None);
        }
        self.item.resize((key_len + value_len) as usize, 0);
        self.input.read_exact(&mut self.item)?;
        self.offset += key_len + value_len;
        hasher.update(&[ITEM]);
        hasher.update(&head);
        hasher.update(&self.item);
        let (key, value) = self.item.split_at(key_len as usize);
        Ok(Some(if key == SEAL.as_bytes() { Seal::read_numbered(value) } else { None }))
    }

    fn take<const LEN: usize>(&mut self) -> io::Result<[u8; LEN]> {
        let mut bytes = [0; LEN];
        self.input.read_exact(&mut bytes)?;
        self.offset += LEN as u64;
        Ok(bytes)
    }
}

#[cfg(test)]
#[path = "journal_test.rs"]
mod journal_test;
