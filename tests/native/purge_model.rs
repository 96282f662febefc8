//! What a storm of writes and purges must have left, by the positions at which they were done. Knows nothing of servers.
//!
//! Whatever a write says has a token in it: its values, its new keys, its user, its note and its idempotency key. So it can
//! be said of every token whether it may still be found.

use std::collections::{BTreeMap, BTreeSet};

/// A document that a write puts, or deletes if there is no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) collection: &'static str,
    pub(crate) key: String,
    pub(crate) value: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Deed {
    Write(Vec<Written>),
    PurgeDocuments(&'static str, Vec<String>),
    PurgeCollection(&'static str),
    PurgeNamespace,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) serial: u64,
    pub(crate) deed: Deed,
    /// Whether it has a key by which the server knows it if it comes again.
    pub(crate) is_idempotent: bool,
}

impl Operation {
    pub(crate) fn user(&self) -> String {
        match self.deed {
            Deed::Write(_) => token(self.serial, 'u', 0),
            // Who purges stays.
            _ => format!("purger {}", self.serial),
        }
    }

    pub(crate) fn note(&self) -> String {
        token(self.serial, 'n', 0)
    }

    pub(crate) fn idempotency_key(&self) -> String {
        token(self.serial, 'i', 0)
    }

    /// Whether it purges a document.
    fn takes(&self, at: &Written) -> bool {
        match &self.deed {
            Deed::Write(_) => false,
            Deed::PurgeDocuments(collection, keys) => *collection == at.collection && keys.contains(&at.key),
            Deed::PurgeCollection(collection) => *collection == at.collection,
            Deed::PurgeNamespace => true,
        }
    }

    fn is_purge(&self) -> bool {
        !matches!(self.deed, Deed::Write(_))
    }
}

/// A text that is like no other.
pub(crate) fn token(serial: u64, kind: char, place: usize) -> String {
    format!("zq{serial}{kind}{place}zq")
}

/// A namespace and all that was done in it, by position.
#[derive(Debug, Default)]
pub(crate) struct Model {
    done: BTreeMap<u64, Operation>,
    /// Tokens that were purged, of what was left out of `done` since.
    purged: BTreeSet<String>,
    /// Where the namespace was last purged.
    horizon: u64,
}

/// What is left of a write.
#[derive(Debug, Clone)]
pub(crate) struct Left<'a> {
    pub(crate) position: u64,
    pub(crate) operation: &'a Operation,
    pub(crate) written: Vec<&'a Written>,
}

impl Left<'_> {
    /// Whether nothing of it was purged.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(&self.operation.deed, Deed::Write(written) if written.len() == self.written.len())
    }
}

impl Model {
    /// Notes what was done at a position.
    pub(crate) fn note(&mut self, position: u64, operation: &Operation) {
        if let Some(other) = self.done.insert(position, operation.clone()) {
            assert_eq!(&other, operation, "position {position} was given twice");
        }
        if operation.deed == Deed::PurgeNamespace {
            self.horizon = self.horizon.max(position);
        }
    }

    pub(crate) fn at(&self, position: u64) -> Option<&Operation> {
        self.done.get(&position)
    }

    /// Where the namespace was last purged; nothing from before is left.
    pub(crate) fn horizon(&self) -> u64 {
        self.horizon
    }

    pub(crate) fn last(&self) -> u64 {
        self.done.last_key_value().map_or(self.horizon, |(position, _)| (*position).max(self.horizon))
    }

    /// Some of the last writes.
    pub(crate) fn recent(&self, len: usize) -> Vec<&Operation> {
        self.done.values().rev().filter(|operation| !operation.is_purge()).take(len).collect()
    }

    /// Whether something that a write wrote was purged between two positions.
    pub(crate) fn is_purged_between(&self, operation: &Operation, first: u64, second: u64) -> bool {
        let Deed::Write(written) = &operation.deed else { return false };
        let between = self.done.range(first + 1..second);
        between.into_iter().any(|(_, purge)| written.iter().any(|at| purge.takes(at)))
    }

    /// The purges of documents and collections that are still told of.
    pub(crate) fn purges(&self) -> impl Iterator<Item = (u64, &Operation)> {
        let all = self.done.range(self.horizon + 1..).filter(|(_, operation)| operation.is_purge());
        all.map(|(position, operation)| (*position, operation))
    }

    /// What is left of all writes, in order.
    pub(crate) fn left(&self) -> Vec<Left<'_>> {
        let purges: Vec<_> = self.done.iter().filter(|(_, operation)| operation.is_purge()).collect();
        let left = self.done.iter().filter_map(|(position, operation)| {
            let Deed::Write(written) = &operation.deed else { return None };
            let later = purges.iter().filter(|(purge, _)| *purge > position);
            let stays = |at: &&Written| !later.clone().any(|(_, purge)| purge.takes(at));
            let written: Vec<_> = written.iter().filter(stays).collect();
            (!written.is_empty()).then_some(Left { position: *position, operation, written })
        });
        left.collect()
    }

    /// Every document with its value, and whether it is deleted.
    pub(crate) fn documents(&self) -> BTreeMap<(String, String), (String, bool)> {
        let mut documents = BTreeMap::new();
        for left in self.left() {
            for Written { collection, key, value } in left.written {
                let at = ((*collection).to_owned(), key.clone());
                match value {
                    Some(value) => drop(documents.insert(at, (value.clone(), false))),
                    None => {
                        documents
                            .get_mut(&at)
                            .unwrap_or_else(|| panic!("{at:?} is deleted before it is there"))
                            .1 = true;
                    }
                }
            }
        }
        documents
    }

    /// The tokens that must not be anywhere any more. What was purged is left out of the model from now on.
    pub(crate) fn purged_tokens(&mut self) -> &BTreeSet<String> {
        let mut allowed = BTreeSet::new();
        for left in self.left() {
            allowed.insert(left.operation.user());
            if left.is_whole() {
                allowed.extend([left.operation.note(), left.operation.idempotency_key()]);
            }
            for Written { key, value, .. } in left.written {
                allowed.extend(value.iter().cloned().chain([key.clone()]));
            }
        }
        let kept: BTreeSet<u64> = self.left().iter().map(|left| left.position).collect();
        for operation in self.done.values() {
            let Deed::Write(written) = &operation.deed else { continue };
            let said = [operation.user(), operation.note(), operation.idempotency_key()];
            let of_documents = written.iter().flat_map(|at| at.value.iter().chain([&at.key]));
            self.purged.extend(said.into_iter().chain(of_documents.cloned()));
        }
        self.purged.retain(|token| is_token(token) && !allowed.contains(token));
        let horizon = self.horizon;
        self.done.retain(|position, operation| {
            kept.contains(position) || operation.is_purge() && *position > horizon
        });
        &self.purged
    }
}

fn is_token(text: &str) -> bool {
    text.starts_with("zq")
}
