//! A cache that follows a shard's log without owning it, and can become its owner's. Knows nothing of who asks it.

use super::{
    cache::{CacheError, CacheReport, LostRecords, Place, judge},
    filling::Filling,
    link::Link,
    log::Hints,
    note::Note,
    tenure::Tenure,
};
use crate::store::{Snapshot, Store};
use std::{path::Path, sync::Arc};

/// A follower of one shard. It has the log, the snapshot and the state, and no ledger before it is promoted.
pub struct Follower {
    place: Place,
    cache: Arc<dyn Store>,
    note: Note,
    /// Of the owner when the log was last looked at. As long as it is the same, no record was replaced by another one.
    tenure: Tenure,
    lost: Option<LostRecords>,
}

/// How far a follower has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advanced {
    /// To the end of the log, as it was when it was asked for.
    To(u64),
    /// What it has is no part of the log any more: it is to be dropped and opened again.
    Diverged,
}

impl Follower {
    /// Opens the cache of a shard and brings it to where the log is. Blocks.
    pub fn open(directory: &Path, link: &Arc<Link>, shard: u64) -> Result<Follower, CacheError> {
        let place = Place::new(directory, link, shard)?;
        let head = place.head()?;
        let opened = place.open(&head)?;
        let lost = opened.lost;
        let mut filling = Filling::start(opened, &place.log, &head)?;
        filling.fill(&head)?;
        let Filling { cache, note, .. } = filling;
        Ok(Follower { place, cache, note, tenure: head.tenure, lost })
    }

    /// Acknowledged records that the cache had when it was opened, and the log does not have: to be brought to an operator's
    /// attention. Nothing but this follower remembers them.
    pub fn lost(&self) -> Option<LostRecords> {
        self.lost
    }

    /// The shard as far as it is known here.
    pub fn snapshot(&self) -> Box<dyn Snapshot> {
        self.cache.snapshot()
    }

    /// The last record that is known here.
    pub fn last(&self) -> u64 {
        self.note.last
    }

    /// Hints that there is something new.
    pub fn hints(&self) -> Hints {
        self.place.log.hints()
    }

    /// Reads and folds what is new. Blocks; the time at which it is called bounds how stale the result is. An owner that
    /// trims or saves a snapshot at the same moment makes this fail; the next call shows what is there by then.
    pub fn advance(&mut self) -> Result<Advanced, CacheError> {
        let head = self.place.head()?;
        let has_gap = head.first.is_some_and(|first| first > self.note.last + 1);
        if head.last < self.note.last || head.rewrites != self.note.rewrites || has_gap {
            return Ok(Advanced::Diverged);
        }
        // A failover of the database may have lost records, and the next owner may have written others in their place.
        if head.tenure != self.tenure && judge(&*self.cache, &self.place.log, &head)?.1.is_some() {
            return Ok(Advanced::Diverged);
        }
        self.tenure = head.tenure.clone();
        let mut filling = Filling::resume(Arc::clone(&self.cache), self.note.clone(), &self.place.log);
        let filled = filling.fill(&head);
        self.note = match filled {
            Ok(()) => filling.note,
            // Some pages may be in the cache, and are not to be folded again.
            Err(_) => Note::read(&*self.cache.snapshot())?.unwrap_or_default(),
        };
        filled.map(|()| Advanced::To(self.note.last))
    }

    /// Makes it the store of an owner whose claim began `tenure` and that appends over `link`, without opening the
    /// files again. All snapshots of it should be gone: a cache that has to be discarded cannot be while there is one.
    pub fn promote(
        self,
        link: &Arc<Link>,
        tenure: &Tenure,
    ) -> Result<(Arc<dyn Store>, CacheReport), CacheError> {
        let Follower { mut place, cache, .. } = self;
        place.reach_by(link);
        let head = place.owned_head(tenure)?;
        let opened = place.resume(cache, &head)?;
        place.complete(opened, &head)
    }
}
