//! What an owner has already: by token, by resources, by node. Changes nothing; knows nothing of queues.

use crate::{
    entry::{Entry, EntryKey, LockKey, Place},
    table::LockTable,
    tree::NodeKey,
};
use hashbrown::HashMap;
use lockwood_model::{LockId, OwnerId, Resource, Token};
use smallvec::SmallVec;

impl LockTable {
    /// The lock whose grant has this token, and its owner.
    pub fn granted(&self, token: Token) -> Option<(LockId, OwnerId)> {
        self.by_token.get(&token).map(|key| (self.lock_of(*key).id, self.lock_of(*key).owner))
    }

    /// The lock of an owner that has at least all these resources, and is none of its operations'.
    pub fn holding(&mut self, owner: OwnerId, resources: &[Resource]) -> Option<LockId> {
        let places = self.places(owner, resources);
        let first = *places.first()?;
        let covers = |key: &EntryKey| {
            let entry = self.entry(*key);
            entry.owner == owner && entry.granted() && self.includes(entry, first)
        };
        let above = self.tree.above(first.node).flat_map(|node| self.tree.here(node).iter());
        let mut candidates: Vec<LockKey> = above.filter(covers).map(|key| self.entry(key).lock).collect();
        candidates.dedup();
        let found = candidates.into_iter().find(|key| self.has_all(*key, &places));
        places.iter().for_each(|place| self.tree.prune(place.node));
        found.map(|key| self.lock_of(key).id)
    }

    /// Whether an owner holds something at each of these nodes, be it weaker; its operations aside.
    pub fn stands_at(&mut self, owner: OwnerId, resources: &[Resource]) -> bool {
        if self.owned_len(owner) == 0 {
            return false;
        }
        let places = self.places(owner, resources);
        let is_own = |key: EntryKey| {
            let entry = self.entry(key);
            entry.owner == owner && entry.granted() && !self.lock_of(entry.lock).rank.is_operation()
        };
        let stands = places.iter().all(|place| self.tree.here(place.node).iter().any(is_own));
        places.iter().for_each(|place| self.tree.prune(place.node));
        stands
    }

    fn has_all(&self, key: LockKey, places: &[Place]) -> bool {
        let lock = self.lock_of(key);
        let mut by_node: HashMap<NodeKey, SmallVec<[EntryKey; 2]>, foldhash::fast::FixedState> =
            HashMap::default();
        for entry in &lock.entries {
            by_node.entry(self.entry(*entry).node).or_default().push(*entry);
        }
        let has = |place: &Place| {
            let on_the_way = self.tree.above(place.node).filter_map(|node| by_node.get(&node));
            on_the_way.flatten().any(|entry| self.includes(self.entry(*entry), *place))
        };
        !lock.is_waiting() && !lock.rank.is_operation() && places.iter().all(has)
    }

    /// Whether an entry has all of a place.
    pub(crate) fn includes(&self, entry: &Entry, place: Place) -> bool {
        entry.mode.includes(place.mode)
            && self.tree.covers((entry.node, entry.depth), (place.node, place.depth))
    }
}
