//! A store for readers of a follower: it shows the follower's state, and takes no records. Knows nothing of how the state
//! advances.

use crate::{
    memory::Memory,
    store::{Batch, Durability, Order, Pair, Range, Slice, Snapshot, Space, Store, StoreError},
};
use parking_lot::RwLock;
use std::sync::Arc;

/// What a follower has, as a store. The numbers that a server notes when it opens a store are not the shard's: they stay
/// in memory, and those of the shard are not shown.
pub struct Shown {
    state: RwLock<Arc<dyn Snapshot>>,
    own: Memory,
}

impl Shown {
    /// A store that shows a state.
    pub fn new(state: Box<dyn Snapshot>) -> Shown {
        Shown { state: RwLock::new(state.into()), own: Memory::default() }
    }

    /// Shows another state from now on; snapshots that were taken before do not change.
    pub fn show(&self, state: Box<dyn Snapshot>) {
        *self.state.write() = state.into();
    }
}

impl Store for Shown {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        Box::new(Split { state: Arc::clone(&self.state.read()), own: self.own.snapshot() })
    }

    fn commit(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        if batch.iter().all(|(space, ..)| is_own(space)) {
            return self.own.commit(batch, durability);
        }
        Err(StoreError::Failed("a follower takes no writes".to_owned()))
    }

    fn is_poisoned(&self) -> bool {
        false
    }
}

/// What is not part of the shard's state.
fn is_own(space: Space) -> bool {
    matches!(space, Space::Numbers | Space::Actions)
}

struct Split {
    state: Arc<dyn Snapshot>,
    own: Box<dyn Snapshot>,
}

impl Split {
    fn of(&self, space: Space) -> &dyn Snapshot {
        if is_own(space) { &*self.own } else { &*self.state }
    }
}

impl Snapshot for Split {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        self.of(space).get(space, key)
    }

    fn scan<'a>(&'a self, space: Space, range: Range, order: Order) -> Box<dyn Iterator<Item = Pair> + 'a> {
        self.of(space).scan(space, range, order)
    }

    fn about_len(&self, space: Space) -> Option<u64> {
        self.of(space).about_len(space)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_replace_each_other_and_records_are_refused() {
        let below = Memory::default();
        let put = |space, value: &str| {
            let mut batch = Batch::default();
            batch.put(space, "key", value);
            batch
        };
        below.commit(&put(Space::Meta, "old"), Durability::Synced).unwrap();
        below.commit(&put(Space::Numbers, "the shard's"), Durability::Synced).unwrap();
        let shown = Shown::new(below.snapshot());
        let get = |snapshot: &dyn Snapshot, space| {
            let found = snapshot.get(space, b"key").unwrap();
            found.map(|value| String::from_utf8(value.to_vec()).unwrap())
        };
        let before = shown.snapshot();
        assert_eq!(get(&*before, Space::Meta).as_deref(), Some("old"));
        assert_eq!(get(&*before, Space::Numbers), None);

        shown.commit(&put(Space::Numbers, "own"), Durability::Synced).unwrap();
        shown.commit(&put(Space::Log, "record"), Durability::Synced).unwrap_err();
        below.commit(&put(Space::Meta, "new"), Durability::Synced).unwrap();
        assert_eq!(get(&*shown.snapshot(), Space::Meta).as_deref(), Some("old"));
        shown.show(below.snapshot());
        assert_eq!(get(&*shown.snapshot(), Space::Meta).as_deref(), Some("new"));
        assert_eq!(get(&*shown.snapshot(), Space::Numbers).as_deref(), Some("own"));
        assert_eq!(get(&*before, Space::Meta).as_deref(), Some("old"));
        assert!(!shown.is_poisoned());
    }
}
