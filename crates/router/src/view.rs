//! What the database says of nodes and shards at one moment: the rows that placement and ownership decide on. Knows
//! nothing of how rows are read or changed.

use crate::{Host, ShardMap, ShardNo, map::pick_ro};
use std::{collections::BTreeMap, fmt, sync::Arc};

/// The configured name of a node. Two processes with one name are told apart by the epochs they hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Arc<str>);

/// Counts the claims of one shard: each claim adds 1, and every append names the epoch of its owner.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardEpoch(pub u64);

/// Stands for one renewal, claim or release of a shard: a row with the same mark was not changed by one in between. Marks
/// are taken from a clock that may step, so nothing but their equality means anything.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RenewalMark(pub i64);

/// A node's row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeRow {
    /// Unique in the cluster.
    pub name: NodeName,
    /// `host:port`, by which host lists name it.
    pub address: String,
    /// Time since its last renewal, by the database clock.
    pub age_ms: u64,
    /// Whether an operator or the node itself wants it to own nothing.
    pub drains: bool,
}

/// A shard's row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardRow {
    /// Counted from 1.
    pub shard: ShardNo,
    /// Of the last claim; 0 if there was none.
    pub epoch: ShardEpoch,
    /// Absent if the shard was released or never claimed.
    pub owner: Option<NodeName>,
    /// The last renewal, claim or release.
    pub renewed: RenewalMark,
    /// Time since then, by the database clock, which is for people: [`crate::ownership`] goes by what it has observed.
    pub age_ms: u64,
    /// The node that is to own it.
    pub target: Target,
}

/// Which node is to own a shard, if one was named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Target {
    /// Placement decides.
    #[default]
    Any,
    /// The last owner released the shard to this node; the next claim removes the entry.
    Handoff(NodeName),
    /// An operator moved the shard to this node; stays until an operator removes it.
    Pinned(NodeName),
}

/// All rows, read in one statement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct View {
    /// In any order.
    pub nodes: Vec<NodeRow>,
    /// In any order.
    pub shards: Vec<ShardRow>,
}

/// Which nodes should own which shards, as operators prefer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Preferences {
    /// The host lists of a map: which nodes should own (`rw`) or follow (`ro`) a shard. A shard without an entry may be
    /// owned by any node.
    pub lists: BTreeMap<ShardNo, Vec<Host>>,
    /// What single nodes prefer for themselves.
    pub this: BTreeMap<NodeName, This>,
}

/// What a node prefers to own: the parameter `this` of box.shard.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum This {
    /// No shard: the node is a proxy. Written 0.
    Nothing,
    /// This shard.
    Shard(ShardNo),
}

impl NodeName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for NodeName {
    fn from(name: &str) -> NodeName {
        NodeName(name.into())
    }
}

impl ShardEpoch {
    /// The epoch of the next claim.
    #[must_use]
    pub fn next(self) -> ShardEpoch {
        ShardEpoch(self.0 + 1)
    }
}

impl ShardRow {
    /// Whether this node holds the shard at exactly this epoch.
    pub fn is_held(&self, node: &NodeName, epoch: ShardEpoch) -> bool {
        self.epoch == epoch && self.owner.as_ref() == Some(node)
    }
}

impl Target {
    /// The node that is named.
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Target::Any => None,
            Target::Handoff(node) | Target::Pinned(node) => Some(node),
        }
    }
}

impl View {
    /// The row of a node.
    pub fn node(&self, name: &NodeName) -> Option<&NodeRow> {
        self.nodes.iter().find(|row| row.name == *name)
    }

    /// The row of a shard.
    pub fn shard(&self, shard: ShardNo) -> Option<&ShardRow> {
        self.shards.iter().find(|row| row.shard == shard)
    }
}

impl This {
    /// What is written as a number.
    pub fn of(number: u32) -> This {
        if number == 0 { This::Nothing } else { This::Shard(ShardNo(number)) }
    }

    /// How it is written.
    pub fn number(self) -> u32 {
        match self {
            This::Nothing => 0,
            This::Shard(shard) => shard.0,
        }
    }
}

impl Preferences {
    /// The host lists of `map`.
    pub fn of(map: &ShardMap) -> Preferences {
        let lists = map.shard_numbers().map(|shard| (shard, map.hosts(shard).to_vec()));
        Preferences::listed(lists.filter(|(_, hosts)| !hosts.is_empty()).collect())
    }

    /// Host lists alone.
    pub fn listed(lists: BTreeMap<ShardNo, Vec<Host>>) -> Preferences {
        Preferences { lists, this: BTreeMap::new() }
    }

    /// The list of a shard; empty if there is none.
    pub fn hosts(&self, shard: ShardNo) -> &[Host] {
        self.lists.get(&shard).map_or(&[], Vec::as_slice)
    }

    /// One of the `ro` hosts of a shard, by weight; none if there is none with a weight. `dice` is any number, and the caller's
    /// randomness.
    pub fn pick_ro(&self, shard: ShardNo, dice: u64) -> Option<&Host> {
        pick_ro(self.hosts(shard), dice)
    }

    /// Whether the node at this address is listed for the shard.
    pub fn lists(&self, shard: ShardNo, address: &str) -> bool {
        self.hosts(shard).iter().any(|host| host.address == address)
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ShardEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
