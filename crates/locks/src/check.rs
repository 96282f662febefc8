//! Asserts what must be true of a table between two calls. Costs the square of its size; for tests.

use crate::{
    entry::{Claim, EntryKey},
    lock::State,
    table::LockTable,
};
use lockwood_model::Resource;

impl LockTable {
    /// Panics if the table contradicts itself.
    pub fn check_invariants(&self) {
        let entries: Vec<(EntryKey, Resource)> = self
            .entries
            .iter()
            .map(|(key, _)| EntryKey(key as u32))
            .map(|key| (key, self.resource(key)))
            .collect();
        for (key, resource) in &entries {
            self.check_entry(*key);
            for (other, rival) in &entries {
                self.check_pair((*key, resource), (*other, rival));
            }
        }
        self.check_locks();
        self.check_cycles();
        let standing: usize = self.tree.here(crate::tree::ROOT).iter().count();
        let below: usize = self.tree.below(crate::tree::ROOT).iter().count();
        assert_eq!(standing + below, self.entries.len(), "the root sees every entry");
        assert!(!self.entries.is_empty() || self.tree.len() == 1, "an empty tree has no nodes but the root");
    }

    fn check_entry(&self, key: EntryKey) {
        let entry = self.entry(key);
        assert!(self.locks.contains(entry.lock.0 as usize), "an entry has a lock");
        assert!(self.lock_of(entry.lock).all_entries().any(|own| own == key), "the lock knows its entry");
        match entry.claim {
            Claim::Granted => {}
            Claim::Woken => panic!("nothing is left to look again between two calls"),
            // An upheaval may have put something in the way meanwhile; then it looks before it is granted.
            Claim::Free => {}
            Claim::Behind(rival) => {
                let rival = self.entry(rival);
                assert_ne!(rival.owner, entry.owner, "nobody waits for itself");
                assert!(entry.in_front() || rival.order < entry.order, "nobody waits for a later one");
            }
        }
        let mut watcher = entry.watchers.first;
        let mut previous = None;
        while let Some(at) = watcher {
            assert_eq!(self.entry(at).claim, Claim::Behind(key), "a watcher watches");
            assert_eq!(self.entry(at).watchers.previous, previous, "the list goes both ways");
            (previous, watcher) = (watcher, self.entry(at).watchers.next);
        }
    }

    fn check_pair(&self, (key, resource): (EntryKey, &Resource), (other, rival): (EntryKey, &Resource)) {
        let (entry, against) = (self.entry(key), self.entry(other));
        if entry.owner == against.owner || !resource.conflicts(rival) {
            return;
        }
        assert!(!(entry.granted() && against.granted()), "both granted: {resource:?} and {rival:?}");
        if entry.granted() && !against.in_front() {
            assert!(entry.order < against.order, "granted behind a waiter it conflicts with");
        }
    }

    /// While the table is frozen there may be cycles; the thaw breaks them.
    fn check_cycles(&self) {
        if !self.frozen {
            let cycle = self.owners.keys().find_map(|owner| self.find_cycle_of(*owner));
            assert!(cycle.is_none(), "owners wait for each other: {cycle:?}");
        }
    }

    fn check_locks(&self) {
        let mut waiting = 0;
        for (id, key) in &self.by_id {
            let lock = self.lock_of(*key);
            assert_eq!(lock.id, *id);
            assert_eq!(self.owners[&lock.owner].locks[lock.slot as usize], *key, "an owner knows its locks");
            let blocked = |converts: bool| {
                let entries = lock.all_entries().map(|entry| self.entry(entry));
                let behind = entries.filter(|entry| matches!(entry.claim, Claim::Behind(_)));
                behind.filter(|entry| entry.converts == converts).count()
            };
            match &lock.state {
                State::Waiting(pending) => {
                    waiting += 1;
                    assert_eq!(pending.blocked as usize, blocked(false), "the count of blocked entries");
                    assert!(
                        pending.blocked > 0 || self.frozen,
                        "what nothing stands in the way of is granted"
                    );
                }
                State::Granted { .. } => {
                    assert!(lock.entries.iter().all(|entry| self.entry(*entry).granted()), "granted whole");
                }
            }
            assert_eq!(lock.conversion.is_some(), self.converting.contains(key), "conversions are listed");
            if let Some(conversion) = &lock.conversion {
                assert_eq!(conversion.pending.blocked as usize, blocked(true), "blocked conversion entries");
                assert!(conversion.pending.blocked > 0 || self.frozen, "a free conversion is done");
            }
        }
        for owner in self.owners.values() {
            let resources: usize = owner.locks.iter().map(|key| self.lock_of(*key).entries.len()).sum();
            assert_eq!(owner.resources_len, resources, "the count of an owner's resources");
        }
        for (token, key) in &self.by_token {
            let granted =
                matches!(&self.lock_of(*key).state, State::Granted { token: found, .. } if found == token);
            assert!(granted, "a token leads to the lock that has it");
        }
        assert_eq!(waiting, self.waiting_len(), "the count of waiting locks");
        assert_eq!(self.by_id.len(), self.len(), "every lock has an id");
    }
}
