//! A store in memory, and what can go wrong with stores: one that forgets what was not synced, and one that
//! fails after a number of commits. Knows nothing of what the keys mean.

use crate::store::{
    Batch, Durability, Order, Pair, Range, Slice, Snapshot, Space, Store, StoreError, is_empty,
};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

type SpaceBound = Bound<(Space, Slice)>;
type Versions = BTreeMap<(Space, Slice), Vec<(u64, Option<Slice>)>>;

/// Keeps everything in memory, every version of it. Clones share their content.
#[derive(Clone, Default)]
pub struct Memory {
    inner: Arc<RwLock<Inner>>,
}

#[derive(Clone, Default)]
struct Inner {
    versions: Versions,
    commits: u64,
}

impl Inner {
    fn apply(&mut self, batch: &Batch) {
        self.commits += 1;
        for (space, key, value) in batch.iter() {
            let versions = self.versions.entry((space, key.clone())).or_default();
            versions.push((self.commits, value.clone()));
        }
    }
}

impl Store for Memory {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        let commits = self.inner.read().commits;
        Box::new(MemorySnapshot { inner: Arc::clone(&self.inner), commits })
    }

    fn commit(&self, batch: &Batch, _: Durability) -> Result<(), StoreError> {
        self.inner.write().apply(batch);
        Ok(())
    }

    fn is_poisoned(&self) -> bool {
        false
    }
}

struct MemorySnapshot {
    inner: Arc<RwLock<Inner>>,
    commits: u64,
}

impl MemorySnapshot {
    fn seen<'a>(&self, versions: &'a [(u64, Option<Slice>)]) -> Option<&'a Slice> {
        let version = versions.iter().rev().find(|(commit, _)| *commit <= self.commits);
        version.and_then(|(_, value)| value.as_ref())
    }
}

impl Snapshot for MemorySnapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        let inner = self.inner.read();
        let versions = inner.versions.get(&(space, key.into()));
        Ok(versions.and_then(|versions| self.seen(versions)).cloned())
    }

    fn scan<'a>(&'a self, space: Space, range: Range, order: Order) -> Box<dyn Iterator<Item = Pair> + 'a> {
        if is_empty(&range) {
            return Box::new(std::iter::empty());
        }
        let (mut from, mut to) = bounds(space, range);
        Box::new(std::iter::from_fn(move || {
            let inner = self.inner.read();
            let mut versions = inner.versions.range((from.clone(), to.clone()));
            let seen = |(key, versions): (&(Space, Slice), &Vec<_>)| {
                Some((key.clone(), self.seen(versions)?.clone()))
            };
            let (key, value) = match order {
                Order::Forward => versions.find_map(seen)?,
                Order::Backward => versions.rev().find_map(seen)?,
            };
            match order {
                Order::Forward => from = Bound::Excluded(key.clone()),
                Order::Backward => to = Bound::Excluded(key.clone()),
            }
            Some(Ok((key.1, value)))
        }))
    }

    fn about_len(&self, space: Space) -> Option<u64> {
        let range = bounds(space, (Bound::Unbounded, Bound::Unbounded));
        Some(self.inner.read().versions.range(range).count() as u64)
    }
}

/// The same bounds among the keys of all spaces.
fn bounds(space: Space, (from, to): Range) -> (SpaceBound, SpaceBound) {
    let key = |key: Vec<u8>| (space, Slice::from(key));
    let first = |space: &Space| (*space, Slice::from(&[][..]));
    let next = Space::ALL.iter().find(|other| **other > space).map(first);
    let from = match from {
        Bound::Unbounded => Bound::Included(first(&space)),
        bound => bound.map(key),
    };
    let to = match to {
        Bound::Unbounded => next.map_or(Bound::Unbounded, Bound::Excluded),
        bound => bound.map(key),
    };
    (from, to)
}

/// A store whose machine can lose power: what was not synced is gone then.
#[derive(Clone, Default)]
pub struct Forgetful {
    live: Memory,
    disk: Arc<Mutex<Disk>>,
}

/// What was synced, and what came after it.
#[derive(Default)]
struct Disk {
    synced: Inner,
    buffered: Vec<Batch>,
}

impl Forgetful {
    /// The store as it comes back after the power was lost.
    pub fn lose_power(&self) -> Forgetful {
        let synced = self.disk.lock().synced.clone();
        let live = Memory { inner: Arc::new(RwLock::new(synced.clone())) };
        Forgetful { live, disk: Arc::new(Mutex::new(Disk { synced, buffered: Vec::new() })) }
    }
}

impl Store for Forgetful {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        self.live.snapshot()
    }

    fn commit(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        let mut disk = self.disk.lock();
        self.live.commit(batch, durability)?;
        disk.buffered.push(batch.clone());
        if durability == Durability::Synced {
            let Disk { synced, buffered } = &mut *disk;
            buffered.drain(..).for_each(|batch| synced.apply(&batch));
        }
        Ok(())
    }

    fn is_poisoned(&self) -> bool {
        false
    }
}

/// How a commit fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Nothing of the batch is there.
    Before,
    /// All of it is there, only the answer was lost.
    After,
}

/// A store that fails its commits after the first few, and is poisoned from then on.
pub struct Failing<S> {
    store: S,
    commits_left: AtomicU64,
    failure: Failure,
    poisoned: AtomicBool,
}

impl<S: Store> Failing<S> {
    /// `store`, with so many commits that succeed.
    pub fn new(store: S, commits: u64, failure: Failure) -> Failing<S> {
        Failing { store, commits_left: AtomicU64::new(commits), failure, poisoned: AtomicBool::new(false) }
    }
}

impl<S: Store> Store for Failing<S> {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        self.store.snapshot()
    }

    fn commit(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        if self.is_poisoned() {
            return Err(StoreError::Poisoned);
        }
        let left =
            self.commits_left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
        if left.is_ok() {
            return self.store.commit(batch, durability);
        }
        self.poisoned.store(true, Ordering::Release);
        if self.failure == Failure::After {
            self.store.commit(batch, durability)?;
        }
        Err(StoreError::Failed("the disk failed, as it was told to".to_owned()))
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }
}
