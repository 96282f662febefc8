//! What is durable, as deciding asks about it: a snapshot, and a memory of the few keys that every call asks
//! for. Knows nothing of what the keys mean.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use lockwood_storage::{Batch, Order, Pair, Range, Slice, Snapshot, Space, StoreError};
use parking_lot::Mutex;
use std::sync::Arc;

/// So many keys are remembered before all are forgotten.
const REMEMBERED_MAX: usize = 10_000;

/// Invariant: what is remembered of a key is what the snapshot shows; [`Base::advance`] keeps it.
pub(super) struct Base {
    snapshot: Arc<dyn Snapshot>,
    /// Keys of [`Space::Meta`]: namespaces, positions, counters, indexes.
    remembered: Mutex<HashMap<Box<[u8]>, Option<Slice>, FixedState>>,
}

impl Base {
    pub(super) fn new(snapshot: Arc<dyn Snapshot>) -> Base {
        Base { snapshot, remembered: Mutex::default() }
    }

    /// Goes on to a snapshot that has this batch and nothing else in addition.
    pub(super) fn advance(&mut self, snapshot: Arc<dyn Snapshot>, batch: &Batch) {
        self.snapshot = snapshot;
        let remembered = self.remembered.get_mut();
        if remembered.len() > REMEMBERED_MAX {
            remembered.clear();
        }
        for (space, key, value) in batch.iter() {
            if space == Space::Meta
                && let Some(known) = remembered.get_mut(&**key)
            {
                known.clone_from(value);
            }
        }
    }
}

impl Snapshot for Base {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        if space != Space::Meta {
            return self.snapshot.get(space, key);
        }
        let mut remembered = self.remembered.lock();
        if let Some(known) = remembered.get(key) {
            return Ok(known.clone());
        }
        let found = self.snapshot.get(space, key)?;
        remembered.insert(key.into(), found.clone());
        Ok(found)
    }

    fn scan<'a>(&'a self, space: Space, range: Range, order: Order) -> Box<dyn Iterator<Item = Pair> + 'a> {
        self.snapshot.scan(space, range, order)
    }
}
