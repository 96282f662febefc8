//! The store on disk: fjall in the data directory. Knows nothing of what the keys mean.
//!
//! The engine cuts its journals off where they are damaged, trusts the list of its tables, and makes anew what it
//! does not find. So that nothing acknowledged is ever missed silently, this is checked when it is opened:
//!
//! | what | against what |
//! | --- | --- |
//! | the numbers of the commits in the journals | each other: there are no gaps; the file `acknowledged` |
//! | the last record of the log, the oldest journal | the file `acknowledged` |
//! | the content of the sealed spaces | the digest in the seal, which is part of every commit |
//! | the list of tables of each space | the checksum that the engine writes and does not read |
//! | the spaces | the engine's own list of them |
//! | the records of the log behind the last saved snapshot | their checksums; their indexes, without gaps |
//!
//! All other spaces are a fold over the log: `verify` compares.

use crate::{
    acknowledged::{self, Acknowledged, Noted},
    journal::{self, Journals, SEAL},
    log::check_records,
    restoring,
    seal::{SEALED, Seal},
    state::{snapshot_index, verify},
    store::{
        Batch, Durability, Order, Pair, Range, Scrubbing, Slice, Snapshot, Space, Store, StoreError, is_empty,
    },
    tables,
};
#[path = "scrub.rs"]
mod scrub;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use parking_lot::Mutex;
use std::{
    fs::{File, TryLockError},
    io,
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

const FORMAT: u64 = 5;
/// Since this format the file `acknowledged` has a digest.
const FORMAT_DIGEST: u64 = 4;
/// Format 1 had the ledger only; everything else comes into being when it is opened. Up to format 2 commits had no
/// numbers, up to format 3 the file `acknowledged` had no digest, up to format 4 leases did not say how long they last.
const FORMAT_READABLE: std::ops::RangeInclusive<u64> = 1..=FORMAT;

const CACHE_BYTES: u64 = 128 * 1024 * 1024;
const MEMTABLE_BYTES: u64 = 32 * 1024 * 1024;
/// The least that the engine allows: it reads about 80 MB/s of journals when it starts.
const JOURNAL_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The file that the engine makes last in a new directory.
const VERSION: &str = "version";
/// Where the engine keeps its tables.
const TABLES: &str = "keyspaces";
/// The file that the engine locks.
const LOCK: &str = "lock";
/// The key of the names of all spaces that were made.
const SPACES: &str = "spaces";
/// What is damaged if the engine does not say more.
const ENGINE_FILE: &str = "a file of the storage engine";
/// Where a state is rebuilt to be compared.
pub(crate) const SCRATCH: &str = "verify";

/// The open data directory; it belongs to this process alone.
pub struct Embedded {
    database: Database,
    spaces: Arc<[Keyspace]>,
    /// Where the seal is kept.
    seals: Keyspace,
    /// The seal of the last commit; held during commits.
    seal: Mutex<Seal>,
    /// Behind the database, so that it is closed later.
    acknowledged: Acknowledged,
    /// Why there are no more commits.
    poisoned: OnceLock<StoreError>,
}

/// Why a data directory cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("another server is using it; stop that one, or choose another data directory")]
    InUse,
    /// It is not there, or has nothing in it.
    #[error("there is no data in it; name the data directory of a server that has run")]
    NotThere,
    /// It was written by another version.
    #[error("it has format {found}, this version reads format {FORMAT}; use the version that wrote it")]
    Format {
        /// The format found.
        found: u64,
    },
    /// A backup is being restored into it.
    #[error("a backup is being restored into it; wait until that has ended")]
    Restoring,
    /// A restore of a backup did not end.
    #[error(
        "a backup was being restored into it, and that did not end; run `lockwood restore-backup` with this directory \
         again, which begins anew"
    )]
    Unrestored,
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
                Some(cause) if is_refusal(cause) => OpenError::Unusable(cause.to_string()),
                // The engine does not say which file it reads.
                Some(cause) => StoreError::damaged(format!("{ENGINE_FILE} ({cause})")).into(),
                None => StoreError::from(other).into(),
            },
        }
    }
}

/// What was found before the engine opened anything.
struct Inspected {
    journals: Journals,
    /// Nothing if there is no such file.
    noted: Option<Noted>,
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

/// Whether the file system refuses, other than because of what is in a file.
fn is_refusal(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, NotFound, UnexpectedEof};
    !matches!(error.kind(), InvalidData | InvalidInput | NotFound | UnexpectedEof)
}

/// Makes the directory if there is nothing yet.
fn make_directory(directory: &Path) -> Result<(), OpenError> {
    let unusable = |error: io::Error| OpenError::Unusable(error.to_string());
    match std::fs::metadata(directory) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(OpenError::Unusable("it is a file".to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(directory).map_err(unusable)
        }
        Err(error) => Err(unusable(error)),
    }
}

impl Embedded {
    /// Opens the store in `directory`, or makes a new one.
    pub fn open(directory: &Path) -> Result<Embedded, OpenError> {
        match restoring::open_error(directory) {
            Some(error) => Err(error),
            None => Embedded::open_marked(directory),
        }
    }

    /// The same for a restore, which alone may open what is not restored yet.
    pub(crate) fn open_marked(directory: &Path) -> Result<Embedded, OpenError> {
        make_directory(directory)?;
        let inspected = inspect(directory)?;
        // The engine panics on some damaged files.
        let opened = catch_unwind(AssertUnwindSafe(|| Embedded::recover(directory, &inspected)))
            .unwrap_or_else(|_| Err(StoreError::damaged(ENGINE_FILE).into()));
        opened.map_err(|error| match error {
            OpenError::Damaged(StoreError::Damaged { what }) if what.starts_with(ENGINE_FILE) => {
                let table = tables::emptied(directory);
                let place = table.map(|table| format!("the table {}, which is empty,", table.display()));
                StoreError::damaged(place.unwrap_or(what)).into()
            }
            other => other,
        })
    }

    /// Opens the store in `directory` if there is one.
    pub fn open_existing(directory: &Path) -> Result<Embedded, OpenError> {
        if let Some(error) = restoring::open_error(directory) {
            return Err(error);
        }
        match has_version(directory)? {
            true => Embedded::open(directory),
            false if Noted::read(directory)?.is_none() => Err(OpenError::NotThere),
            false => Err(no_version()),
        }
    }

    fn recover(directory: &Path, inspected: &Inspected) -> Result<Embedded, OpenError> {
        let database = Database::builder(directory)
            .worker_threads(1)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .manual_journal_persist(true)
            .open()?;
        remove_scratch(directory)?;
        let found = database.list_keyspace_names();
        let options = || {
            KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES).manual_journal_persist(true)
        };
        // First, so that nothing is added to what another version wrote.
        let numbers = database.keyspace(Space::Numbers.as_str(), options)?;
        let format = read_format(&numbers)?;
        inspected.check_complete(format, &numbers, |name| found.iter().any(|found| **found == *name))?;
        let spaces = Space::ALL
            .iter()
            .map(|space| database.keyspace(space.as_str(), options))
            .collect::<Result<Arc<[_]>, _>>()?;
        let seals = database.keyspace(SEAL, options)?;
        let acknowledged = Acknowledged::open(directory)?;
        let seal = Mutex::new(Seal::default());
        let store = Embedded { database, spaces, seals, seal, acknowledged, poisoned: OnceLock::new() };
        let noted = inspected.noted.unwrap_or_default();
        store.check_seal(&noted, inspected.journals.last)?;
        store.check_log(&noted)?;
        store.check_oldest(directory, &noted, &inspected.journals)?;
        store.acknowledged.note_journals()?;
        if format.is_some_and(|format| format < FORMAT) {
            store.flush()?;
        }
        // Always written, so that a disk that takes no writes is noticed at once.
        let mut batch = Batch::default();
        batch.put(Space::Numbers, "format", FORMAT.to_be_bytes());
        batch.put(Space::Numbers, SPACES, names().collect::<Vec<_>>().join(" ").into_bytes());
        store.commit(&batch, Durability::Synced)?;
        Ok(store)
    }

    /// Sealed spaces that are not as they were sealed, or were sealed later, are damaged.
    fn check_seal(&self, noted: &Noted, in_journals: Option<u64>) -> Result<(), OpenError> {
        let mut found = Seal::default();
        let snapshot = self.snapshot();
        for space in SEALED {
            for pair in snapshot.scan(space, (Bound::Unbounded, Bound::Unbounded), Order::Forward) {
                let (key, value) = pair?;
                found.add(space, &key, &value);
            }
        }
        let damaged = || OpenError::Damaged(StoreError::damaged("what the server knows of itself"));
        let seal = match self.seals.get(SEAL)? {
            Some(bytes) => Seal::read(&bytes).ok_or_else(damaged)?,
            // Nothing was sealed before there were seals.
            None if noted.commit == 0 => found,
            None => return Err(damaged()),
        };
        if seal.digest != found.digest || seal.commits < noted.commit {
            return Err(damaged());
        }
        // The engine must have found what was found in its journals.
        if in_journals.is_some_and(|commit| commit != seal.commits) {
            return Err(damaged());
        }
        *self.seal.lock() = Seal { synced: seal.commits, ..seal };
        Ok(())
    }

    /// A log that ends before what was acknowledged is damaged, and so is one with gaps.
    fn check_log(&self, noted: &Noted) -> Result<(), OpenError> {
        let snapshot = self.snapshot();
        let saved = snapshot_index(&*snapshot)?;
        let last = check_records(&*snapshot, saved)?;
        if last < noted.record {
            let what = format!(
                "the log: it ends at record {last}, although record {} was acknowledged; it",
                noted.record
            );
            return Err(OpenError::Damaged(StoreError::damaged(what)));
        }
        Ok(())
    }

    /// The engine drops the oldest journal when all of it is in tables. If that was not seen, what is there must
    /// show that nothing is lost.
    fn check_oldest(&self, directory: &Path, noted: &Noted, journals: &Journals) -> Result<(), OpenError> {
        let (Some(noted), Some(found)) = (noted.oldest, journals.oldest) else { return Ok(()) };
        if found <= noted {
            return Ok(());
        }
        let differences = {
            let rebuilt = Embedded::open(&directory.join(SCRATCH))?;
            verify(&*self.snapshot(), &rebuilt, &mut |_, _| {})?
        };
        remove_scratch(directory)?;
        match differences.first() {
            None => Ok(()),
            Some(difference) => {
                let what = format!(
                    "the journal: {noted}.jnl is missing, and the state is not what the log leads to (in the space \
                     {:?}); it",
                    difference.space.as_str()
                );
                Err(OpenError::Damaged(StoreError::damaged(what)))
            }
        }
    }

    /// From memory to tables. What was committed without a number does not depend on the journals any more.
    fn flush(&self) -> Result<(), StoreError> {
        self.spaces.iter().chain([&self.seals]).try_for_each(|space| Ok(space.rotate_memtable_and_wait()?))
    }

    fn space(&self, space: Space) -> &Keyspace {
        &self.spaces[space as usize]
    }

    fn write(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut seal = self.seal.lock();
        let mut next = Seal { commits: seal.commits + 1, ..*seal };
        for space in SEALED {
            for (key, value) in batch.range(space, (Bound::Unbounded, Bound::Unbounded)) {
                self.space(space).get(key)?.iter().for_each(|old| next.remove(space, key, old));
                value.iter().for_each(|new| next.add(space, key, new));
            }
        }
        self.write_sealed(batch, durability, next)?;
        if durability == Durability::Synced {
            next.synced = next.commits;
            self.acknowledged.note(last_record(batch), next.commits)?;
        }
        *seal = next;
        self.acknowledged.check_there()
    }

    fn write_sealed(&self, batch: &Batch, durability: Durability, seal: Seal) -> Result<(), StoreError> {
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
        // The last item, where [`Journals`] looks for it.
        writes.insert(&self.seals, SEAL, seal.to_bytes());
        Ok(writes.commit()?)
    }

    /// Nothing more is committed, for the reason given first.
    fn set_poison(&self, error: &StoreError) {
        let _ = self.poisoned.set(match error {
            StoreError::Gone { .. } => error.clone(),
            _ => StoreError::Poisoned,
        });
    }
}

/// Looks at the files in `directory` before the engine does. Changes nothing, unless everything is as it should be.
fn inspect(directory: &Path) -> Result<Inspected, OpenError> {
    let noted = Noted::read(directory)?;
    if !has_version(directory)? {
        // The engine would make a new store of it.
        return match noted {
            None => remove_unfinished(directory).map(|()| Inspected { journals: Journals::default(), noted }),
            Some(_) => Err(no_version()),
        };
    }
    let _lock = lock(directory)?;
    tables::check(directory, noted.is_some())?;
    let journals = Journals::read(directory, noted.unwrap_or_default().commit)?;
    if journals.oldest.is_none() {
        return Err(StoreError::damaged("the journal, of which there is no file,").into());
    }
    journals.cut_torn()?;
    Ok(Inspected { journals, noted })
}

/// Whether the engine has made a store in `directory`, to the end.
fn has_version(directory: &Path) -> Result<bool, OpenError> {
    match std::fs::metadata(directory.join(VERSION)) {
        Ok(found) => Ok(found.len() > 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(OpenError::Engine(error.to_string())),
    }
}

/// What the engine left behind if it was killed while it made a new store. It would not make one beside it.
fn remove_unfinished(directory: &Path) -> Result<(), OpenError> {
    let _lock = lock(directory)?;
    let journals = journal::list(directory)?;
    let failed = |error: io::Error| OpenError::Engine(error.to_string());
    let is_used = |(_, path): &(u64, PathBuf)| journal::is_used(path);
    let has_tables =
        std::fs::read_dir(directory.join(TABLES)).is_ok_and(|mut spaces| spaces.next().is_some());
    if has_tables
        || journals.iter().map(is_used).collect::<Result<Vec<_>, _>>().map_err(failed)?.contains(&true)
    {
        return Err(no_version());
    }
    let version = directory.join(VERSION);
    let mut unfinished =
        journals.into_iter().map(|(_, path)| path).chain(version.exists().then_some(version));
    unfinished.try_for_each(std::fs::remove_file).map_err(failed)
}

/// Whether there is a store in `directory`, or what is left of one.
pub fn is_there(directory: &Path) -> Result<bool, OpenError> {
    let has = |name: &str| directory.join(name).exists();
    Ok(has_version(directory)?
        || has(TABLES)
        || Noted::read(directory)?.is_some()
        || restoring::open_error(directory).is_some())
}

/// Deletes the store in `directory`, unless another process has it open, and nothing else. The file by which the engine
/// knows a store goes last but for the notes.
pub(crate) fn discard(directory: &Path) -> Result<(), OpenError> {
    let _lock = lock(directory)?;
    let done = |done: io::Result<()>| match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(OpenError::Unusable(error.to_string())),
        _ => Ok(()),
    };
    [SCRATCH, TABLES].iter().try_for_each(|name| done(std::fs::remove_dir_all(directory.join(name))))?;
    journal::list(directory)?.into_iter().try_for_each(|(_, path)| done(std::fs::remove_file(path)))?;
    [VERSION, acknowledged::NAME, LOCK]
        .iter()
        .try_for_each(|name| done(std::fs::remove_file(directory.join(name))))
}

/// What a comparison left behind that was killed.
fn remove_scratch(directory: &Path) -> Result<(), OpenError> {
    let scratch = directory.join(SCRATCH);
    match std::fs::remove_dir_all(&scratch) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(OpenError::Engine(format!("remove {}: {error}", scratch.display())))
        }
        _ => Ok(()),
    }
}

fn no_version() -> OpenError {
    OpenError::Damaged(StoreError::damaged(format!("the file {VERSION:?}, which is missing,")))
}

/// What another process writes at the same time cannot be judged.
fn lock(directory: &Path) -> Result<Option<File>, OpenError> {
    let Ok(file) = File::open(directory.join(LOCK)) else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse),
        Err(TryLockError::Error(error)) => {
            Err(OpenError::Engine(format!("lock the data directory: {error}")))
        }
    }
}

impl Inspected {
    /// What was ever acknowledged has all its files. The engine makes spaces anew whose files it does not find.
    fn check_complete(
        &self,
        format: Option<u64>,
        numbers: &Keyspace,
        is_found: impl Fn(&str) -> bool,
    ) -> Result<(), OpenError> {
        let missing = |what: &str| Err(StoreError::damaged(format!("{what}, which is missing,")).into());
        match (format, &self.noted) {
            (Some(FORMAT_DIGEST..=FORMAT), None) => return missing("the file \"acknowledged\""),
            (Some(FORMAT_DIGEST..=FORMAT), Some(noted)) if !noted.is_checked => {
                return Err(acknowledged::damaged().into());
            }
            (None, Some(noted)) if noted.commit > 0 => return missing("the number of the format"),
            _ => {}
        }
        let spaces = numbers.get(SPACES)?.unwrap_or_default();
        let spaces = String::from_utf8_lossy(&spaces);
        match spaces.split_whitespace().find(|name| !is_found(name)) {
            None => Ok(()),
            Some(name) => missing(&format!("the space {name:?}")),
        }
    }
}

/// The names of all spaces, that of the seal included.
fn names() -> impl Iterator<Item = &'static str> {
    Space::ALL.iter().map(|space| space.as_str()).chain([SEAL])
}

fn last_record(batch: &Batch) -> Option<u64> {
    batch.last_key(Space::Log).and_then(|key| key[..].try_into().ok()).map(u64::from_be_bytes)
}

fn read_format(numbers: &Keyspace) -> Result<Option<u64>, OpenError> {
    let Some(bytes) = numbers.get("format")? else { return Ok(None) };
    let found = bytes[..].try_into().map(u64::from_be_bytes);
    let found = found.map_err(|_| StoreError::damaged("the number of the format"))?;
    match FORMAT_READABLE.contains(&found) {
        true => Ok(Some(found)),
        false => Err(OpenError::Format { found }),
    }
}

impl Store for Embedded {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        Box::new(EmbeddedSnapshot { snapshot: self.database.snapshot(), spaces: Arc::clone(&self.spaces) })
    }

    fn commit(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        if let Some(error) = self.poisoned.get() {
            return Err(error.clone());
        }
        self.write(batch, durability).inspect_err(|error| self.set_poison(error))
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned.get().is_some()
    }

    fn poison(&self) -> Option<StoreError> {
        self.poisoned.get().cloned()
    }

    fn scrub(&self, go_on: &dyn Fn(Scrubbing) -> bool) -> Result<bool, StoreError> {
        self.scrub_files(go_on)
    }

    fn tend(&self) -> Result<(), StoreError> {
        let tended = self.acknowledged.note_journals().and_then(|()| self.acknowledged.check_there());
        tended.inspect_err(|error| self.set_poison(error))
    }
}

struct EmbeddedSnapshot {
    snapshot: fjall::Snapshot,
    spaces: Arc<[Keyspace]>,
}

impl Snapshot for EmbeddedSnapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        let space = &self.spaces[space as usize];
        self.snapshot.get(space, key).map_err(|error| damaged_in(space, error))
    }

    fn scan<'a>(&'a self, space: Space, range: Range, order: Order) -> Box<dyn Iterator<Item = Pair> + 'a> {
        if is_empty(&range) {
            return Box::new(std::iter::empty());
        }
        let space = &self.spaces[space as usize];
        let found = self.snapshot.range::<Vec<u8>, _>(space, range);
        let pair = |guard: fjall::Guard| guard.into_inner().map_err(|error| damaged_in(space, error));
        match order {
            Order::Forward => Box::new(found.map(pair)),
            Order::Backward => Box::new(found.rev().map(pair)),
        }
    }

    fn about_len(&self, space: Space) -> Option<u64> {
        Some(self.spaces[space as usize].approximate_len() as u64)
    }
}

/// Says in which space something cannot be read.
fn damaged_in(space: &Keyspace, error: fjall::Error) -> StoreError {
    match StoreError::from(error) {
        StoreError::Damaged { what } => StoreError::damaged(format!(
            "{what} of the space {:?} in {}",
            &**space.name(),
            space.path().display()
        )),
        other => other,
    }
}

#[cfg(test)]
#[path = "embedded_test.rs"]
pub(crate) mod embedded_test;
