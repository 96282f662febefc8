//! Which shards a lock concerns. Knows nothing of guards.

use crate::ShardNo;
use lockwood_model::Resource;
use std::collections::BTreeSet;

/// The shards that may store something that a lock covers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Covered {
    /// Every shard: the namespace, a collection, or anything that is spread.
    All,
    /// These ones.
    Shards(BTreeSet<ShardNo>),
}

impl Covered {
    /// Whether a shard is one of them.
    pub fn contains(&self, shard: ShardNo) -> bool {
        match self {
            Covered::All => true,
            Covered::Shards(shards) => shards.contains(&shard),
        }
    }

    pub(super) fn extend(&mut self, other: Covered) {
        match (&mut *self, other) {
            (Covered::All, _) => {}
            (Covered::Shards(shards), Covered::Shards(more)) => shards.extend(more),
            (_, Covered::All) => *self = Covered::All,
        }
    }
}

/// Finds the shards that resources cover, by one map.
///
/// While keys move (a map with `prev`) the shards by both functions are covered: the old shard may still serve a key
/// when the home has the map already, and the new shard begins as soon as it has the guards.
pub trait Coverage {
    /// The shards that may store something that these resources cover, or create a child in a list that they cover
    /// (`list` and `link` on a collection concern every shard). Too many cost messages; too few lose enforcement.
    fn covered(&self, resources: &[Resource]) -> Covered;
}

impl<F: Fn(&[Resource]) -> Covered> Coverage for F {
    fn covered(&self, resources: &[Resource]) -> Covered {
        self(resources)
    }
}
