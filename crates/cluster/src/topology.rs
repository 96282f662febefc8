//! What this node last read of the cluster's rows, as far as requests are routed by it. Knows nothing of how rows are
//! read.

use lockwood_node::clock::monotonic;
use lockwood_router::{NodeName, ShardEpoch, ShardNo, View, ownership::Monotonic};
use parking_lot::RwLock;
use std::sync::Arc;
use tokio::sync::watch;

/// Written by the driver after each renewal, read by every request that is not for this node.
pub struct Topology {
    /// This node.
    own: NodeName,
    /// An ownership that was renewed longer ago than this may be claimed by others.
    stale_after_ms: u64,
    view: RwLock<(Arc<View>, Option<Monotonic>)>,
    changes: watch::Sender<u64>,
}

/// Rows that were read longer ago than this say nothing about now.
const LOST_AFTER_MS: u64 = 5_000;

impl Topology {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(own: NodeName, stale_after_ms: u64) -> Topology {
        Topology { own, stale_after_ms, view: RwLock::default(), changes: watch::Sender::new(0) }
    }

    /// The rows as they were read last.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read().0)
    }

    /// This node's name.
    #[must_use]
    pub fn own(&self) -> &NodeName {
        &self.own
    }

    pub(crate) fn publish(&self, view: &View) {
        *self.view.write() = (Arc::new(view.clone()), Some(monotonic()));
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Time since rows were read.
    #[must_use]
    pub fn age_ms(&self) -> u64 {
        self.view.read().1.map_or(u64::MAX, |read| monotonic().since(read))
    }

    /// Whether the database has not answered for a while.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.age_ms() > LOST_AFTER_MS
    }

    /// Changes whenever rows were read.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether a shard still has the epoch that it had when its owner was looked up.
    #[must_use]
    pub fn is_current(&self, shard: ShardNo, epoch: ShardEpoch) -> bool {
        self.view().shard(shard).is_some_and(|row| row.epoch == epoch)
    }

    /// Whether the ownership of a shard was stale when rows were read last: its owner grants and reads nothing.
    #[must_use]
    pub fn is_stale(&self, shard: ShardNo) -> bool {
        self.view().shard(shard).is_some_and(|row| row.age_ms > self.stale_after_ms)
    }

    /// Where all other nodes listen.
    #[must_use]
    pub fn others(&self) -> Vec<String> {
        let view = self.view();
        let others = view.nodes.iter().filter(|node| node.name != self.own);
        others.map(|node| node.address.clone()).collect()
    }

    /// Where the owner of a shard listens for other nodes, with its epoch; none if there is no owner, if it may not
    /// answer because its ownership is stale, or if it is this node.
    #[must_use]
    pub fn owner_elsewhere(&self, shard: ShardNo) -> Option<(String, ShardEpoch)> {
        let view = self.view();
        let row = view.shard(shard).filter(|row| row.age_ms <= self.stale_after_ms)?;
        let owner = row.owner.as_ref().filter(|owner| **owner != self.own)?;
        view.node(owner).map(|node| (node.address.clone(), row.epoch))
    }
}
