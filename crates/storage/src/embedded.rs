//! The store on disk: fjall in the data directory. Knows nothing of what the keys mean.
//!
//! Beside it lies the file `acknowledged`: the last index of the log that was synced. It is written after
//! every synced commit and never synced itself, so it may be old but is never too new: a log that ends
//! before it has lost something, and is not opened.

use crate::store::{Batch, Durability, Order, Pair, Range, Slice, Snapshot, Space, Store, StoreError};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
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

/// The open data directory; it belongs to this process alone.
pub struct Embedded {
    database: Database,
    spaces: Arc<[Keyspace]>,
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
    /// The storage engine or the file system.
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
            other => OpenError::Engine(other.to_string()),
        }
    }
}

impl Embedded {
    /// Opens the store in `directory`, or makes a new one.
    pub fn open(directory: &Path) -> Result<Embedded, OpenError> {
        let database = Database::builder(directory)
            .worker_threads(1)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .manual_journal_persist(true)
            .open()?;
        let options = || {
            KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES).manual_journal_persist(true)
        };
        let spaces = Space::ALL
            .iter()
            .map(|space| database.keyspace(space.as_str(), options))
            .collect::<Result<Arc<[_]>, _>>()?;
        let mut open = OpenOptions::new();
        open.read(true).write(true).create(true).truncate(false);
        let acknowledged = open
            .open(directory.join("acknowledged"))
            .map_err(|error| OpenError::Engine(format!("the file \"acknowledged\": {error}")))?;
        let store = Embedded { database, spaces, acknowledged, poisoned: AtomicBool::new(false) };
        store.check_format()?;
        store.check_log()?;
        Ok(store)
    }

    fn check_format(&self) -> Result<(), OpenError> {
        let found = self.space(Space::Numbers).get("format")?;
        let found = match found {
            None => FORMAT,
            Some(bytes) => bytes[..]
                .try_into()
                .map(u64::from_be_bytes)
                .map_err(|_| StoreError::damaged("the number of the format"))?,
        };
        if !FORMAT_READABLE.contains(&found) {
            return Err(OpenError::Format { found });
        }
        let mut batch = Batch::default();
        batch.put(Space::Numbers, "format", FORMAT.to_be_bytes());
        Ok(self.commit(&batch, Durability::Synced)?)
    }

    /// A log that ends before what was acknowledged is damaged.
    fn check_log(&self) -> Result<(), OpenError> {
        let mut bytes = [0; 8];
        let acknowledged = match self.acknowledged.read_exact_at(&mut bytes, 0) {
            Ok(()) => u64::from_be_bytes(bytes),
            Err(_) => 0,
        };
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

    fn space(&self, space: Space) -> &Keyspace {
        &self.spaces[space as usize]
    }

    fn write(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
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
        Ok(writes.commit()?)
    }

    fn acknowledge(&self, batch: &Batch) -> Result<(), StoreError> {
        match batch.last_key(Space::Log) {
            None => Ok(()),
            Some(key) => self
                .acknowledged
                .write_all_at(key, 0)
                .map_err(|error| StoreError::Failed(format!("write the file \"acknowledged\": {error}"))),
        }
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
        let done = self.write(batch, durability).and_then(|()| match durability {
            Durability::Synced => self.acknowledge(batch),
            Durability::Buffered => Ok(()),
        });
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
        let found = self.snapshot.range::<Vec<u8>, _>(&self.spaces[space as usize], range);
        let pair = |guard: fjall::Guard| guard.into_inner().map_err(StoreError::from);
        match order {
            Order::Forward => Box::new(found.map(pair)),
            Order::Backward => Box::new(found.rev().map(pair)),
        }
    }
}
