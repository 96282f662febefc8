//! Brings a local directory to where a shard's log in PostgreSQL is. Knows nothing of who owns the shard next, nor of what
//! the records say.
//!
//! | the directory | what happens |
//! | --- | --- |
//! | is empty | it is filled from snapshot and log |
//! | has a cache whose last record is in the log | the rest is read and folded |
//! | has a cache that is ahead, disagrees, is damaged, or is another shard's or cluster's | discarded, and filled |
//! | has a cache with records that were written anew since, by a purge | the same: what was purged is still in it |
//! | has a store that is no cache | refused: it may be the only copy |
//!
//! A cache is a mirror: it has the records, the snapshot and the ledger as PostgreSQL has them, and the state that they
//! lead to. So whatever looks into a store (verification, backups, purges) finds the same. Everything is read in pages.

use super::{
    filling::Filling,
    link::{CallError, Link},
    log::{Head, ShardLog, get},
    note::{Note, digest},
    store::Clustered,
    tenure::Tenure,
};
use crate::{
    embedded::{Embedded, OpenError, discard, is_there},
    state::State,
    store::{Store, StoreError},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use xxhash_rust::xxh3::xxh3_64;

const DEADLINE: Duration = Duration::from_secs(30);
/// The file that says that a directory is a cache, and of what.
const MARK: &str = "cache";

/// What was done to a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheReport {
    /// How it was brought to the log.
    pub outcome: CacheOutcome,
    /// How many records were folded.
    pub records: u64,
    /// The last record in it.
    pub last: u64,
    /// Acknowledged records are gone: to be brought to an operator's attention.
    pub alert: Option<LostRecords>,
}

/// How a cache was brought to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheOutcome {
    /// There was none.
    Filled,
    /// It had a part of the log, or all of it.
    CaughtUp,
    /// What was there could not be used.
    Rebuilt(Discarded),
}

/// Why a cache was discarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discarded {
    /// It is another shard's, or another cluster's.
    Foreign,
    /// It cannot be read.
    Damaged(String),
    /// It was never completed.
    Unfinished,
    /// It has records that the log does not have.
    Ahead,
    /// Its last record is another one in the log.
    Disagrees,
    /// Records were written anew.
    Rewritten,
    /// The log starts behind it.
    Trimmed,
}

/// PostgreSQL has lost records that were acknowledged, for example by a failover to a standby that did not have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LostRecords {
    /// The log ends before them.
    #[error(
        "the log of shard {shard} ends at record {found}, although record {acknowledged} was acknowledged: PostgreSQL has \
         lost committed data"
    )]
    Missing {
        /// Whose log.
        shard: u64,
        /// The last record that was acknowledged, as far as this cache knows.
        acknowledged: u64,
        /// The last record that is there.
        found: u64,
    },
    /// Others are in their place, which were written since.
    #[error(
        "record {acknowledged} in the log of shard {shard} is not the one that was acknowledged: PostgreSQL has lost \
         committed data, and others were written in its place"
    )]
    Replaced {
        /// Whose log.
        shard: u64,
        /// The last record that was acknowledged, as far as this cache knows.
        acknowledged: u64,
    },
}

impl LostRecords {
    /// What a cache that ended at `acknowledged` and was discarded for this reason says of the log.
    fn of(reason: &Discarded, shard: u64, acknowledged: u64, head: &Head) -> Option<LostRecords> {
        if acknowledged > head.last {
            return Some(LostRecords::Missing { shard, acknowledged, found: head.last });
        }
        (*reason == Discarded::Disagrees).then_some(LostRecords::Replaced { shard, acknowledged })
    }
}

/// Why there is no cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The shard has another owner by now, or no row.
    #[error("the ownership of shard {shard} with epoch {expected} is over; the shard has epoch {found}")]
    Fenced {
        /// Which shard.
        shard: u64,
        /// The epoch it was claimed with.
        expected: u64,
        /// The epoch it has.
        found: u64,
    },
    /// The directory has a store in it that is no cache.
    #[error("{} has a store in it that is not a cache, and is left alone; choose another directory", .0.display())]
    NotACache(PathBuf),
    /// The directory cannot be used.
    #[error("open {}: {error}", directory.display())]
    Open {
        /// Which directory.
        directory: PathBuf,
        /// Why.
        error: OpenError,
    },
    /// The log in PostgreSQL, or the local store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// PostgreSQL does not answer.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Opens the cache of a shard whose claim began `tenure`, and brings it to where the log is. Blocks; takes as long as
/// reading what the cache does not have.
pub fn open_cache(
    directory: &Path,
    link: &Arc<Link>,
    shard: u64,
    tenure: &Tenure,
) -> Result<(Arc<dyn Store>, CacheReport), CacheError> {
    let place = Place::new(directory, link, shard)?;
    let head = place.owned_head(tenure)?;
    let opened = place.open(&head)?;
    place.complete(opened, &head)
}

/// A directory and the log that it is brought to.
pub(super) struct Place {
    directory: PathBuf,
    /// What the file says that marks the directory.
    mark: String,
    pub(super) log: ShardLog,
    shard: u64,
}

/// A cache before it is filled.
pub(super) struct Opened {
    pub(super) cache: Arc<dyn Store>,
    /// None if it is empty.
    pub(super) note: Option<Note>,
    pub(super) outcome: CacheOutcome,
    /// What the cache that was there says the log lacks.
    pub(super) lost: Option<LostRecords>,
}

impl Place {
    pub(super) fn new(directory: &Path, link: &Arc<Link>, shard: u64) -> Result<Place, CacheError> {
        let mark = format!("cluster {:016x}\nshard {shard}\n", cluster_digest(link)?);
        let log = ShardLog::new(Arc::clone(link), shard);
        Ok(Place { directory: directory.to_owned(), mark, log, shard })
    }

    /// Reads and writes the log over another link from now on.
    pub(super) fn reach_by(&mut self, link: &Arc<Link>) {
        self.log = ShardLog::new(Arc::clone(link), self.shard);
    }

    /// Where the shard stands, if this is the tenure of its owner.
    pub(super) fn owned_head(&self, tenure: &Tenure) -> Result<Head, CacheError> {
        let found = self.log.head()?;
        let (shard, other) = (self.shard, found.as_ref().map_or(0, |head| head.tenure.epoch.0));
        let owned = found.filter(|head| head.tenure == *tenure);
        owned.ok_or(CacheError::Fenced { shard, expected: tenure.epoch.0, found: other })
    }

    /// Where the shard stands, under any owner.
    pub(super) fn head(&self) -> Result<Head, CacheError> {
        let none = CacheError::Fenced { shard: self.shard, expected: 0, found: 0 };
        self.log.head()?.ok_or(none)
    }

    /// Opens what is in the directory, or an empty cache in its place.
    pub(super) fn open(&self, head: &Head) -> Result<Opened, CacheError> {
        match find(&self.directory, &self.mark).map_err(|error| self.failed(error))? {
            Found::Nothing => {
                let cache = Embedded::open(&self.directory).map_err(|error| self.failed(error))?;
                let (cache, outcome) = (Arc::new(cache), CacheOutcome::Filled);
                return Ok(Opened { cache, note: None, outcome, lost: None });
            }
            Found::Store => return Err(CacheError::NotACache(self.directory.clone())),
            Found::Foreign => return self.renew(Discarded::Foreign, None),
            Found::Cache => {}
        }
        match Embedded::open(&self.directory) {
            Ok(cache) => self.resume(Arc::new(cache), head),
            Err(error @ (OpenError::Damaged(_) | OpenError::Format { .. })) => {
                self.renew(Discarded::Damaged(error.to_string()), None)
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// An open cache, if it can be continued, or an empty one in its place.
    pub(super) fn resume(&self, cache: Arc<dyn Store>, head: &Head) -> Result<Opened, CacheError> {
        let (note, reason) = match judge(&*cache, &self.log, head) {
            Err(CacheError::Store(error @ StoreError::Damaged { .. })) => {
                (Note::default(), Some(Discarded::Damaged(error.to_string())))
            }
            judged => judged?,
        };
        match reason {
            None => Ok(Opened { cache, note: Some(note), outcome: CacheOutcome::CaughtUp, lost: None }),
            Some(reason) => {
                drop(cache);
                let lost = LostRecords::of(&reason, self.shard, note.last, head);
                self.renew(reason, lost)
            }
        }
    }

    /// Discards the store, and makes a new one. The mark stays throughout, so that a half discarded store is known as a
    /// cache.
    fn renew(&self, reason: Discarded, lost: Option<LostRecords>) -> Result<Opened, CacheError> {
        let unusable = |error: io::Error| OpenError::Unusable(error.to_string());
        let renewed = discard(&self.directory)
            .and_then(|()| fs::write(self.directory.join(MARK), &self.mark).map_err(unusable))
            .and_then(|()| Embedded::open(&self.directory));
        let cache = Arc::new(renewed.map_err(|error| self.failed(error))?);
        Ok(Opened { cache, note: None, outcome: CacheOutcome::Rebuilt(reason), lost })
    }

    fn failed(&self, error: OpenError) -> CacheError {
        CacheError::Open { directory: self.directory.clone(), error }
    }

    /// Fills a cache, for the owner with the tenure of `head`.
    pub(super) fn complete(
        self,
        opened: Opened,
        head: &Head,
    ) -> Result<(Arc<dyn Store>, CacheReport), CacheError> {
        let (outcome, alert) = (opened.outcome.clone(), opened.lost);
        let mut filling = Filling::start(opened, &self.log, head)?;
        filling.fill(head)?;
        filling.copy_ledger()?;
        let report = CacheReport { outcome, records: filling.folded, last: filling.note.last, alert };
        let Filling { cache, note, .. } = filling;
        Ok((Arc::new(Clustered::new(cache, self.log, head.tenure.clone(), note)), report))
    }
}

/// Tells clusters apart without keeping their key on this disk.
fn cluster_digest(link: &Link) -> Result<u64, CallError> {
    let rows = link.call_blocking(DEADLINE, |call| async move {
        call.query("select value from lockwood.setting where name = 'cluster'", &[]).await
    })?;
    rows.first().map_or(Ok(0), |row| Ok(xxh3_64(get(row, 0)?)))
}

/// What is in a directory.
enum Found {
    Nothing,
    /// A store without the mark of a cache.
    Store,
    /// A cache of something else.
    Foreign,
    Cache,
}

fn find(directory: &Path, mark: &str) -> Result<Found, OpenError> {
    let unusable = |error: io::Error| OpenError::Unusable(error.to_string());
    match fs::read_to_string(directory.join(MARK)) {
        Ok(found) if found == mark => Ok(Found::Cache),
        Ok(_) => Ok(Found::Foreign),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if is_there(directory)? {
                return Ok(Found::Store);
            }
            fs::create_dir_all(directory)
                .and_then(|()| fs::write(directory.join(MARK), mark))
                .map_err(unusable)?;
            Ok(Found::Nothing)
        }
        // Not even text.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Found::Foreign),
        Err(error) => Err(unusable(error)),
    }
}

/// Whether a cache can be continued, and why not.
pub(super) fn judge(
    cache: &dyn Store,
    log: &ShardLog,
    head: &Head,
) -> Result<(Note, Option<Discarded>), CacheError> {
    let snapshot = cache.snapshot();
    let Some(note) = Note::read(&*snapshot)? else {
        return Ok((Note::default(), Some(Discarded::Unfinished)));
    };
    let reason = if note.last > head.last || State::new(&*snapshot).applied()? != note.last {
        Some(Discarded::Ahead)
    } else if note.rewrites != head.rewrites {
        Some(Discarded::Rewritten)
    } else if note.last == 0 {
        // There is nothing to compare, and nothing to lose.
        (head.last > 0 && head.first != Some(1)).then_some(Discarded::Trimmed)
    } else {
        match log.read(note.last, 1)?.first() {
            Some(record) if record.index == note.last => {
                let found = (record.epoch.0, digest(&record.bytes));
                (found != (note.epoch, note.digest)).then_some(Discarded::Disagrees)
            }
            _ => Some(Discarded::Trimmed),
        }
    };
    Ok((note, reason))
}
