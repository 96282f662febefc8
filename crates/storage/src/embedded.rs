//! The store on disk: fjall in the data directory. Knows nothing of what the keys mean.
//!
//! The engine cuts its journal off where it is damaged, trusts the list of its tables, and does not guard the
//! order of its batches. So that nothing acknowledged is ever missed silently, this is checked when it is
//! opened:
//!
//! | what | against what |
//! | --- | --- |
//! | the last record of the log | the file `acknowledged`, its first eight bytes |
//! | the seal: how often the sealed spaces changed | the same file, its next eight bytes |
//! | the content of the sealed spaces | the digest in the seal, which changes in the same batch |
//! | the list of tables of each space | the checksum that the engine writes and does not read |
//!
//! The file is written after every synced commit and never synced itself, so it may be old but is never too
//! new. All other spaces are a fold over the log, whose records have checksums: `verify` compares.

use crate::{
    seal::{SEALED, Seal},
    store::{Batch, Durability, Order, Pair, Range, Slice, Snapshot, Space, Store, StoreError, is_empty},
};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use parking_lot::Mutex;
use std::{
    fs::{File, OpenOptions},
    io,
    ops::Bound,
    os::unix::fs::FileExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

const FORMAT: u64 = 2;
/// Format 1 had the ledger only; everything else comes into being when it is opened.
const FORMAT_READABLE: std::ops::RangeInclusive<u64> = 1..=FORMAT;

const CACHE_BYTES: u64 = 128 * 1024 * 1024;
const MEMTABLE_BYTES: u64 = 32 * 1024 * 1024;
const JOURNAL_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The key of the seal in its keyspace.
const SEAL: &str = "seal";
/// Where in the file `acknowledged` the last record of the log is.
const LOG_OFFSET: u64 = 0;
/// Where in it the number of the seal is.
const SEAL_OFFSET: u64 = 8;

/// The open data directory; it belongs to this process alone.
pub struct Embedded {
    database: Database,
    spaces: Arc<[Keyspace]>,
    /// Where the seal is kept.
    seals: Keyspace,
    /// The seal as of the last commit; held while the sealed spaces change.
    seal: Mutex<Seal>,
    acknowledged: File,
    poisoned: AtomicBool,
}

/// Why a data directory cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("another server is using it; stop that one, or choose another data directory")]
    InUse,
    /// It was written by another version.
    #[error("it has format {found}, this version reads format {FORMAT}; use the version that wrote it")]
    Format {
        /// The format found.
        found: u64,
    },
    /// Something in it is not what was written.
    #[error(transparent)]
    Damaged(StoreError),
    /// The file system does not let it be used.
    #[error("{0}; it must be a directory that this user may read and write, or one that can be made")]
    Unusable(String),
    /// The storage engine.
    #[error("{0}")]
    Engine(String),
}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> OpenError {
        match error {
            damaged @ StoreError::Damaged { .. } => OpenError::Damaged(damaged),
            other => OpenError::Engine(other.to_string()),
        }
    }
}

impl From<fjall::Error> for OpenError {
    fn from(error: fjall::Error) -> OpenError {
        match error {
            fjall::Error::Locked => OpenError::InUse,
            other => match io_cause(&other) {
                Some(cause) => OpenError::Unusable(cause.to_string()),
                None => OpenError::Engine(other.to_string()),
            },
        }
    }
}

/// The error of the file system behind one of the engine's, whose own words are for its developers.
fn io_cause(error: &fjall::Error) -> Option<&io::Error> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(cause) = cause.downcast_ref() {
            return Some(cause);
        }
        source = cause.source();
    }
    None
}

/// Whether there is a directory, or nothing yet.
fn check_directory(directory: &Path) -> Result<(), OpenError> {
    match std::fs::metadata(directory) {
        Ok(found) if !found.is_dir() => Err(OpenError::Unusable("it is a file".to_owned())),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(OpenError::Unusable(error.to_string())),
        Ok(_) | Err(_) => Ok(()),
    }
}

impl Embedded {
    /// Opens the store in `directory`, or makes a new one.
    pub fn open(directory: &Path) -> Result<Embedded, OpenError> {
        check_directory(directory)?;
        crate::tables::check(directory)?;
        // The engine panics on some damaged files.
        catch_unwind(AssertUnwindSafe(|| Embedded::recover(directory)))
            .unwrap_or_else(|_| Err(StoreError::damaged("the journal").into()))
    }

    fn recover(directory: &Path) -> Result<Embedded, OpenError> {
        let database = Database::builder(directory)
            .worker_threads(1)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .manual_journal_persist(true)
            .open()?;
        let options = || {
            KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES).manual_journal_persist(true)
        };
        // First, so that nothing is added to what another version wrote.
        check_format(&database.keyspace(Space::Numbers.as_str(), options)?)?;
        let spaces = Space::ALL
            .iter()
            .map(|space| database.keyspace(space.as_str(), options))
            .collect::<Result<Arc<[_]>, _>>()?;
        let seals = database.keyspace("seal", options)?;
        let mut open = OpenOptions::new();
        open.read(true).write(true).create(true).truncate(false);
        let acknowledged = open
            .open(directory.join("acknowledged"))
            .map_err(|error| OpenError::Unusable(format!("the file \"acknowledged\": {error}")))?;
        let seal = Mutex::new(Seal::default());
        let store =
            Embedded { database, spaces, seals, seal, acknowledged, poisoned: AtomicBool::new(false) };
        store.check_seal()?;
        store.check_log()?;
        // Always written, so that a disk that takes no writes is noticed at once.
        let mut batch = Batch::default();
        batch.put(Space::Numbers, "format", FORMAT.to_be_bytes());
        store.commit(&batch, Durability::Synced)?;
        Ok(store)
    }

    /// Sealed spaces that are not as they were sealed, or were sealed later, are damaged.
    fn check_seal(&self) -> Result<(), OpenError> {
        let mut found = Seal::default();
        let snapshot = self.snapshot();
        for space in SEALED {
            for pair in snapshot.scan(space, (Bound::Unbounded, Bound::Unbounded), Order::Forward) {
                let (key, value) = pair?;
                found.add(space, &key, &value);
            }
        }
        let damaged = || OpenError::Damaged(StoreError::damaged("what the server knows of itself"));
        let acknowledged = self.acknowledged_number(SEAL_OFFSET);
        let seal = match self.seals.get(SEAL)? {
            Some(bytes) => Seal::read(&bytes).ok_or_else(damaged)?,
            // Nothing was sealed before there were seals.
            None if acknowledged == 0 => found,
            None => return Err(damaged()),
        };
        if seal.digest != found.digest || seal.commits < acknowledged {
            return Err(damaged());
        }
        *self.seal.lock() = seal;
        Ok(())
    }

    /// A log that ends before what was acknowledged is damaged.
    fn check_log(&self) -> Result<(), OpenError> {
        let acknowledged = self.acknowledged_number(LOG_OFFSET);
        let last = match self.space(Space::Log).last_key_value() {
            None => 0,
            Some(guard) => guard.key()?[..].try_into().map(u64::from_be_bytes).unwrap_or_default(),
        };
        if last < acknowledged {
            let what =
                format!("the log ends at index {last}, although {acknowledged} was acknowledged: a file");
            return Err(OpenError::Damaged(StoreError::damaged(what)));
        }
        Ok(())
    }

    /// 0 if nothing was acknowledged yet.
    fn acknowledged_number(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        match self.acknowledged.read_exact_at(&mut bytes, offset) {
            Ok(()) => u64::from_be_bytes(bytes),
            Err(_) => 0,
        }
    }

    fn space(&self, space: Space) -> &Keyspace {
        &self.spaces[space as usize]
    }

    fn write(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        let changes_sealed = SEALED.into_iter().any(|space| sealed_changes(batch, space).next().is_some());
        if !changes_sealed {
            return self.write_with(batch, durability, None);
        }
        let mut seal = self.seal.lock();
        let mut next = Seal { commits: seal.commits + 1, ..*seal };
        for space in SEALED {
            for (key, value) in sealed_changes(batch, space) {
                self.space(space).get(key)?.iter().for_each(|old| next.remove(space, key, old));
                value.iter().for_each(|new| next.add(space, key, new));
            }
        }
        self.write_with(batch, durability, Some(next))?;
        *seal = next;
        match durability {
            Durability::Synced => self.acknowledge(SEAL_OFFSET, &next.commits.to_be_bytes()),
            Durability::Buffered => Ok(()),
        }
    }

    fn write_with(
        &self,
        batch: &Batch,
        durability: Durability,
        seal: Option<Seal>,
    ) -> Result<(), StoreError> {
        let mut writes = self.database.batch().durability(match durability {
            Durability::Synced => Some(PersistMode::SyncData),
            Durability::Buffered => None,
        });
        for (space, key, value) in batch.iter() {
            match value {
                Some(value) => writes.insert(self.space(space), key.clone(), value.clone()),
                None => writes.remove(self.space(space), key.clone()),
            }
        }
        if let Some(seal) = seal {
            writes.insert(&self.seals, SEAL, seal.to_bytes());
        }
        writes.commit()?;
        match (durability, batch.last_key(Space::Log)) {
            (Durability::Synced, Some(index)) => self.acknowledge(LOG_OFFSET, index),
            _ => Ok(()),
        }
    }

    fn acknowledge(&self, offset: u64, number: &[u8]) -> Result<(), StoreError> {
        self.acknowledged
            .write_all_at(number, offset)
            .map_err(|error| StoreError::Failed(format!("write the file \"acknowledged\": {error}")))
    }
}

fn sealed_changes(batch: &Batch, space: Space) -> impl Iterator<Item = (&Slice, &Option<Slice>)> {
    batch.range(space, (Bound::Unbounded, Bound::Unbounded))
}

fn check_format(numbers: &Keyspace) -> Result<(), OpenError> {
    let Some(bytes) = numbers.get("format")? else { return Ok(()) };
    let found = bytes[..].try_into().map(u64::from_be_bytes);
    let found = found.map_err(|_| StoreError::damaged("the number of the format"))?;
    match FORMAT_READABLE.contains(&found) {
        true => Ok(()),
        false => Err(OpenError::Format { found }),
    }
}

impl Store for Embedded {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        Box::new(EmbeddedSnapshot { snapshot: self.database.snapshot(), spaces: Arc::clone(&self.spaces) })
    }

    fn commit(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        if self.is_poisoned() {
            return Err(StoreError::Poisoned);
        }
        let done = self.write(batch, durability);
        if done.is_err() {
            self.poisoned.store(true, Ordering::Release);
        }
        done
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }
}

struct EmbeddedSnapshot {
    snapshot: fjall::Snapshot,
    spaces: Arc<[Keyspace]>,
}

impl Snapshot for EmbeddedSnapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        Ok(self.snapshot.get(&self.spaces[space as usize], key)?)
    }

    fn scan<'a>(&'a self, space: Space, range: Range, order: Order) -> Box<dyn Iterator<Item = Pair> + 'a> {
        if is_empty(&range) {
            return Box::new(std::iter::empty());
        }
        let found = self.snapshot.range::<Vec<u8>, _>(&self.spaces[space as usize], range);
        let pair = |guard: fjall::Guard| guard.into_inner().map_err(StoreError::from);
        match order {
            Order::Forward => Box::new(found.map(pair)),
            Order::Backward => Box::new(found.rev().map(pair)),
        }
    }
}

#[cfg(test)]
#[path = "embedded_test.rs"]
mod embedded_test;
