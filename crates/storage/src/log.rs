//! The log: records in order, one owner at a time. Knows nothing of what the records say.

use crate::{
    entry::Entry,
    store::{Batch, Durability, Order, Snapshot, Space, Store, StoreError},
};
use parking_lot::Mutex;
use std::{ops::Bound, sync::Arc};

/// Which of its owners a log belongs to; every claim is larger than all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// What an owner gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// To be shown with every append.
    pub epoch: Epoch,
    /// The last record.
    pub last: u64,
}

/// What became of an append.
#[derive(Debug)]
#[must_use]
pub enum Appended {
    /// It is durable.
    Done,
    /// Somebody else has claimed the log; nothing was written.
    Fenced(Epoch),
    /// The log has other records at this place; nothing was written.
    Moved {
        /// Its last record.
        last: u64,
    },
    /// It may or may not be there. The owner must step down, claim again and read what is there.
    Unknown(StoreError),
}

/// A log with one owner at a time.
pub trait Log: Send + Sync {
    /// Makes the caller the owner and fences every earlier one.
    fn claim(&self) -> Result<Claim, StoreError>;

    /// Appends the records of a batch behind the record `expected`, and makes the batch's other changes with
    /// them. A log that is kept apart from the state writes its records first.
    fn append(&self, epoch: Epoch, expected: u64, batch: &Batch) -> Appended;

    /// Some of the records from `from` on.
    fn read(&self, from: u64, len_max: usize) -> Result<Vec<(u64, Entry)>, StoreError>;

    /// Drops the records up to `to`. A saved snapshot must have them.
    fn trim(&self, epoch: Epoch, to: u64) -> Appended;
}

/// A log in the same store as the state, so that both change in one step.
pub struct LocalLog {
    store: Arc<dyn Store>,
    /// The owner and the last record; held during appends, so that nobody claims in between.
    owner: Mutex<Option<Claim>>,
}

const EPOCH: &str = "epoch";
/// So many records are dropped in one step.
const TRIM_LEN: usize = 10_000;

impl LocalLog {
    /// The log in `store`.
    pub fn new(store: Arc<dyn Store>) -> LocalLog {
        LocalLog { store, owner: Mutex::new(None) }
    }

    fn stored_epoch(&self) -> Result<u64, StoreError> {
        let found = self.store.snapshot().get(Space::Numbers, EPOCH.as_bytes())?;
        let damaged = |_| StoreError::damaged("the number of the log's owner");
        found.map_or(Ok(0), |bytes| bytes[..].try_into().map(u64::from_be_bytes).map_err(damaged))
    }
}

impl Log for LocalLog {
    fn claim(&self) -> Result<Claim, StoreError> {
        let mut owner = self.owner.lock();
        let epoch = Epoch(self.stored_epoch()? + 1);
        let mut batch = Batch::default();
        batch.put(Space::Numbers, EPOCH, epoch.0.to_be_bytes());
        self.store.commit(&batch, Durability::Synced)?;
        let claim = Claim { epoch, last: last_index(&*self.store.snapshot())? };
        *owner = Some(claim);
        Ok(claim)
    }

    fn append(&self, epoch: Epoch, expected: u64, batch: &Batch) -> Appended {
        let mut owner = self.owner.lock();
        let claim = match owner.as_mut() {
            Some(claim) if claim.epoch == epoch => claim,
            Some(claim) => return Appended::Fenced(claim.epoch),
            None => return Appended::Fenced(Epoch(0)),
        };
        // Whoever claimed it may have done so elsewhere.
        match self.stored_epoch() {
            Ok(stored) if stored == epoch.0 => {}
            Ok(stored) => {
                *owner = None;
                return Appended::Fenced(Epoch(stored));
            }
            Err(error) => return Appended::Unknown(error),
        }
        if claim.last != expected {
            return Appended::Moved { last: claim.last };
        }
        let last = batch.last_key(Space::Log).and_then(|key| key[..].try_into().ok()).map(u64::from_be_bytes);
        match self.store.commit(batch, Durability::Synced) {
            Ok(()) => {
                // Records that were there before may be written anew.
                claim.last = last.map_or(claim.last, |last| last.max(claim.last));
                Appended::Done
            }
            Err(error) => {
                // Whether it is there is for the next owner to find out.
                *owner = None;
                Appended::Unknown(error)
            }
        }
    }

    fn read(&self, from: u64, len_max: usize) -> Result<Vec<(u64, Entry)>, StoreError> {
        let snapshot = self.store.snapshot();
        records(&*snapshot, from).take(len_max).collect()
    }

    fn trim(&self, epoch: Epoch, to: u64) -> Appended {
        loop {
            let snapshot = self.store.snapshot();
            let range = (Bound::Unbounded, Bound::Included(to.to_be_bytes().to_vec()));
            let mut batch = Batch::default();
            for pair in snapshot.scan(Space::Log, range, Order::Forward).take(TRIM_LEN) {
                match pair {
                    Ok((key, _)) => batch.remove(Space::Log, key),
                    Err(error) => return Appended::Unknown(error),
                }
            }
            if batch.is_empty() {
                return Appended::Done;
            }
            let last = self.owner.lock().map_or(0, |claim| claim.last);
            match self.append(epoch, last, &batch) {
                // Another record came in between; it does not matter here.
                Appended::Done | Appended::Moved { .. } => {}
                other => return other,
            }
        }
    }
}

/// The last record that a snapshot shows; 0 if there is none.
pub(crate) fn last_index(snapshot: &dyn Snapshot) -> Result<u64, StoreError> {
    let range = (Bound::Unbounded, Bound::Unbounded);
    let Some(pair) = snapshot.scan(Space::Log, range, Order::Backward).next() else { return Ok(0) };
    read_index(&pair?.0)
}

/// The records from `from` on, each of which must follow the one before it.
pub(crate) fn records(
    snapshot: &dyn Snapshot,
    from: u64,
) -> impl Iterator<Item = Result<(u64, Entry), StoreError>> {
    let range = (Bound::Included(from.to_be_bytes().to_vec()), Bound::Unbounded);
    let mut last: Option<u64> = None;
    snapshot.scan(Space::Log, range, Order::Forward).map(move |pair| {
        let (key, record) = pair?;
        let index = read_index(&key)?;
        if last.is_some_and(|last| last + 1 != index) {
            let what =
                format!("the log: the records between {} and {index} are missing; it", last.unwrap_or(0));
            return Err(StoreError::damaged(what));
        }
        last = Some(index);
        Ok((index, Entry::decode(index, &record)?))
    })
}

/// Whether the records after `saved`, the last one in a saved snapshot, are there without a gap and are what was
/// written. Gives the last one.
pub(crate) fn check_records(snapshot: &dyn Snapshot, saved: u64) -> Result<u64, StoreError> {
    let mut last = saved;
    let range = (Bound::Excluded(saved.to_be_bytes().to_vec()), Bound::Unbounded);
    for pair in snapshot.scan(Space::Log, range, Order::Forward) {
        let (key, record) = pair.map_err(|error| at_record(error, last + 1))?;
        let index = read_index(&key)?;
        if index != last + 1 {
            let what = format!("the log: the records after {last} and before {index} are missing; it");
            return Err(StoreError::damaged(what));
        }
        Entry::check(index, &record)?;
        last = index;
    }
    Ok(last)
}

/// Says which record cannot be read.
fn at_record(error: StoreError, index: u64) -> StoreError {
    match error {
        StoreError::Damaged { what } => {
            StoreError::damaged(format!("the log at record {index} ({what}); it"))
        }
        other => other,
    }
}

pub(crate) fn read_index(key: &[u8]) -> Result<u64, StoreError> {
    key.try_into()
        .map(u64::from_be_bytes)
        .map_err(|_| StoreError::damaged("the index of a record of the log"))
}
