//! A store whose truth is in PostgreSQL: commits go there first, and then into a local cache that needs no sync. Knows
//! nothing of what the keys mean, nor of who owns other shards.
//!
//! | commit | to PostgreSQL | to the cache |
//! | --- | --- | --- |
//! | synced, with something shared | in one guarded append, along with what was deferred | after it, unsynced |
//! | synced, derived changes only | nothing, unless something is deferred | unsynced |
//! | buffered, with something shared | deferred: with the next append, when there is much of it, or when the store is tended | unsynced |
//! | buffered, derived changes only | nothing | unsynced |
//!
//! What is shared is told by [`Change`]. Derived changes (the state, indexes that are being built) are made again by whatever
//! has the log. Cursors are shared and buffered, so a successor finds an earlier one at worst. That is the promise of
//! [`Durability::Buffered`].
//!
//! After an append that was not confirmed nothing more is committed, and [`Store::poison`] says why. The owner steps down,
//! claims the shard again and opens the cache anew, which finds out what is there.

use super::{
    change::{Change, shared},
    log::ShardLog,
    note::Note,
    tenure::Tenure,
};
use crate::{
    log::{Appended, Epoch},
    store::{Batch, Durability, Scrubbing, Snapshot, Store, StoreError},
};
use lockwood_planted::{Fault, is_planted};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

/// More than this is not deferred: a snapshot that is being saved would be in memory as a whole.
const DEFERRED_BYTES_MAX: u64 = 1 << 20;

/// The store of a shard that this node owns.
pub struct Clustered {
    cache: Arc<dyn Store>,
    log: ShardLog,
    tenure: Tenure,
    /// Held during commits, so that the cache takes them in the order in which PostgreSQL has them.
    writer: Mutex<Writer>,
    poison: OnceLock<StoreError>,
}

struct Writer {
    note: Note,
    /// Buffered changes that PostgreSQL does not have yet.
    deferred: Batch,
}

impl Clustered {
    /// `cache` must be where the log is, as its note says.
    pub(super) fn new(cache: Arc<dyn Store>, log: ShardLog, tenure: Tenure, note: Note) -> Clustered {
        let writer = Mutex::new(Writer { note, deferred: Batch::default() });
        Clustered { cache, log, tenure, writer, poison: OnceLock::new() }
    }

    /// Poisons the store before another commit gets its turn.
    fn write(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        if let Some(error) = self.poison.get() {
            return Err(error.clone());
        }
        let written = self.write_alone(&mut writer, batch, durability);
        written.inspect_err(|error| drop(self.poison.set(error.clone())))
    }

    fn write_alone(
        &self,
        writer: &mut Writer,
        batch: &Batch,
        durability: Durability,
    ) -> Result<(), StoreError> {
        writer.deferred.absorb(shared(batch));
        let is_due = durability == Durability::Synced || writer.deferred.bytes() > DEFERRED_BYTES_MAX;
        if !is_due || writer.deferred.is_empty() {
            return self.cache.commit(batch, Durability::Buffered);
        }
        let sent = std::mem::take(&mut writer.deferred);
        self.send(&mut writer.note, &sent)?;
        let mut noted = batch.clone();
        writer.note.put(&mut noted);
        self.cache.commit(&noted, Durability::Buffered)
    }

    /// One guarded append.
    fn send(&self, note: &mut Note, batch: &Batch) -> Result<(), StoreError> {
        let change = Change::of(batch)?;
        let (rewrites, saved) = (change.rewrites(note.last), change.saved());
        let last = change.records.last().filter(|(index, _)| *index >= note.last).cloned();
        match self.log.append(&self.tenure, note.last, change) {
            Appended::Done => {}
            Appended::Fenced(Epoch(epoch)) => return Err(StoreError::Fenced { epoch }),
            Appended::Moved { last } => {
                let (expected, epoch) = (note.last, self.tenure.epoch.0);
                return Err(StoreError::Failed(format!(
                    "the log in PostgreSQL ends at record {last}, although epoch {epoch} wrote up to {expected}"
                )));
            }
            Appended::Unknown(error) => return Err(error),
        }
        note.rewrites += u64::from(rewrites);
        if let Some((index, record)) = last {
            // A record that is written anew keeps its epoch.
            let epoch = if index == note.last { note.epoch } else { self.tenure.epoch.0 };
            note.advance(index, epoch, &record);
        }
        note.snapshot = saved.or(note.snapshot);
        Ok(())
    }
}

impl Store for Clustered {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        self.cache.snapshot()
    }

    fn commit(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        let is_early = is_planted(Fault::AnswerBeforeCommit);
        self.write(batch, if is_early { Durability::Buffered } else { durability })
    }

    fn is_poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    fn poison(&self) -> Option<StoreError> {
        self.poison.get().cloned()
    }

    fn scrub(&self, go_on: &dyn Fn(Scrubbing) -> bool) -> Result<bool, StoreError> {
        self.cache.scrub(go_on)
    }

    /// Sends what is deferred, too.
    fn tend(&self) -> Result<(), StoreError> {
        if !self.writer.lock().deferred.is_empty() {
            self.write(&Batch::default(), Durability::Synced)?;
        }
        self.cache.tend().inspect_err(|error| drop(self.poison.set(error.clone())))
    }
}
