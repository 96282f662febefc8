//! Locks of a spread namespace: all are in the lock table at its home, and an operation at another shard is admitted there
//! before it reads or writes. Knows nothing of what operations do.
//!
//! ```text
//!   operation at a shard ──enter: resources, tokens, wait──► home: takes the operation's lock in its table
//!                        ◄──────── admitted, epoch ─────────
//!   the shard's barrier: no later home? ─► decide ─► durable ──leave──► home: gives the lock back
//! ```
//!
//! Why a home that is replaced meanwhile, or a shard that is, does no harm: `router/src/admission.rs`.

mod home;
mod message;
mod parting;
mod shard;
mod takeover;

use home::Turns;
pub(super) use home::answer;
pub(super) use parting::{collecting, is_from};
pub(crate) use shard::Admittance;
pub(crate) use takeover::ShardBarrier;
pub(super) use takeover::{answer_raise, is_raise};

use super::ClusterNode;
use crate::trouble::Trouble;
use lockwood_cluster::Placed;
use lockwood_router::{ShardEpoch, ShardNo};
use lockwood_wire::Code;
use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};
use tokio::sync::watch;

/// What the addresses of all calls begin with.
pub(super) const PATHS: &str = "/admission/";
/// How long a request waits until a home that was just taken over may grant.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

/// The part of a runtime in its cluster: which shard it serves, and through which node it reaches the others.
pub(crate) struct Membership {
    pub(crate) node: Arc<ClusterNode>,
    pub(crate) shard: ShardNo,
    /// The epoch of this tenure.
    pub(crate) epoch: ShardEpoch,
    /// Operations that homes have admitted here.
    barrier: Arc<ShardBarrier>,
    /// Locks of operations at other shards, by those that hold them.
    turns: Turns,
    /// Becomes true when the namespaces whose home is here may grant and admit.
    ready: watch::Sender<bool>,
    /// Numbers the operations here that ask a home.
    attempts: AtomicU64,
}

impl Membership {
    pub(crate) fn new(node: &Arc<ClusterNode>, barrier: &Arc<ShardBarrier>) -> Arc<Membership> {
        Arc::new(Membership {
            node: Arc::clone(node),
            shard: barrier.shard,
            epoch: barrier.epoch,
            barrier: Arc::clone(barrier),
            turns: Turns::default(),
            ready: watch::Sender::new(false),
            attempts: AtomicU64::new(1),
        })
    }

    /// The home of a spread namespace, if that is another shard.
    pub(crate) async fn remote_home(&self, namespace: &str) -> Result<Option<ShardNo>, Trouble> {
        Ok(self.node.homes.find(namespace).await?.and_then(|placed| self.elsewhere(placed)))
    }

    /// Whether a namespace was ever used, as far as that was asked before.
    pub(crate) fn knows(&self, namespace: &str) -> bool {
        self.node.homes.remembered(namespace).is_some()
    }

    /// Whether a namespace has a remote home, as far as that was asked before.
    pub(crate) fn knows_remote_home(&self, namespace: &str) -> bool {
        self.node.homes.remembered(namespace).and_then(|placed| self.elsewhere(placed)).is_some()
    }

    fn elsewhere(&self, placed: Placed) -> Option<ShardNo> {
        (placed.is_spread && placed.home != self.shard).then_some(placed.home)
    }

    /// Waits until namespaces whose home is here may grant and admit.
    pub(crate) async fn ready(&self) -> Result<(), Trouble> {
        let mut ready = self.ready.subscribe();
        if *ready.borrow_and_update() {
            return Ok(());
        }
        let became = tokio::time::timeout(READY_TIMEOUT, ready.wait_for(|ready| *ready)).await;
        if matches!(became, Ok(Ok(_))) {
            return Ok(());
        }
        let message = format!(
            "shard {} has a new owner, and another shard does not tell it that operations under the previous one have ended; \
             try again, or see `lockwood cluster status`",
            self.shard.0
        );
        Err(Trouble::new(Code::ShardUnreachable, message))
    }
}
