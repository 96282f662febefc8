//! How a home that was taken over hears that nothing its predecessor admitted is under way, and how a shard tells it. Knows
//! nothing of locks.

use super::{
    Membership,
    message::{self, Raise, Raised},
};
use crate::{
    clustered::{ClusterNode, ShardCall},
    trouble::Trouble,
};
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use hyper::Uri;
use lockwood_router::{
    ShardEpoch, ShardNo, ShardRow,
    admission::{Barrier, Earlier, Replaced, Takeover},
};
use lockwood_wire::Code;
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

/// How long a shard may take to answer; one that still has operations under way is asked again.
const RAISE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it waits for them before it says so.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait before shards are asked again.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The barrier of a shard under one owner. There from the claim on, also while the shard is not served yet: two homes that are
/// taken over at the same time ask each other.
pub(crate) struct ShardBarrier {
    pub(crate) shard: ShardNo,
    pub(crate) epoch: ShardEpoch,
    barrier: Mutex<Barrier>,
    /// Changes when an operation leaves.
    left: watch::Sender<()>,
}

impl ShardBarrier {
    pub(crate) fn new(shard: ShardNo, epoch: ShardEpoch) -> Arc<ShardBarrier> {
        Arc::new(ShardBarrier { shard, epoch, barrier: Mutex::default(), left: watch::Sender::new(()) })
    }

    /// An operation begins that a home has admitted.
    pub(super) fn enter(&self, home: ShardNo, epoch: ShardEpoch) -> Result<(), Replaced> {
        self.barrier.lock().enter(home, epoch)
    }

    /// It is durable or rejected.
    pub(super) fn leave(&self, home: ShardNo, epoch: ShardEpoch) {
        self.barrier.lock().leave(home, epoch);
        self.left.send_replace(());
    }

    /// Closes the barrier to what earlier owners of a home have admitted, and waits a while for what had entered.
    async fn raise(&self, home: ShardNo, epoch: ShardEpoch) -> Result<Earlier, Replaced> {
        let mut left = self.left.subscribe();
        let deadline = tokio::time::Instant::now() + DRAIN_TIMEOUT;
        loop {
            let earlier = self.barrier.lock().raise(home, epoch)?;
            if earlier == Earlier::Over {
                return Ok(earlier);
            }
            if tokio::time::timeout_at(deadline, left.changed()).await.is_err() {
                return Ok(Earlier::Running);
            }
        }
    }
}

/// Whether a call is from the new owner of a home. It is answered before the shard is served.
pub(in crate::clustered) fn is_raise(target: &Uri) -> bool {
    target.path() == super::home::RAISE
}

pub(in crate::clustered) async fn answer_raise(node: &ClusterNode, shard: ShardNo, body: &[u8]) -> Response {
    let asked = match message::read::<Raise>(body) {
        Ok(asked) => asked,
        Err(trouble) => return trouble.into_response(),
    };
    match node.raise(shard, asked).await {
        Some(raised) => axum::Json(raised).into_response(),
        None => Trouble::new(Code::ShardUnreachable, "operations are still under way").into_response(),
    }
}

impl ClusterNode {
    /// Answers the owner of a home about one of the shards that this node has claimed. None if it has not claimed it, or if
    /// operations are still under way, or if that owner was replaced.
    pub(super) async fn raise(&self, shard: ShardNo, asked: Raise) -> Option<Raised> {
        let barrier = self.barriers.lock().get(&shard).cloned()?;
        match barrier.raise(ShardNo(asked.home), ShardEpoch(asked.epoch)).await {
            Ok(Earlier::Over) => Some(Raised { epoch: barrier.epoch.0 }),
            Ok(Earlier::Running) | Err(_) => None,
        }
    }
}

impl Membership {
    /// Asks all shards that had an owner when this tenure began, until each has answered or has another owner.
    pub(crate) async fn take_over(self: Arc<Membership>, rows: Vec<ShardRow>) {
        let mut takeover = Takeover::new(self.shard, &rows);
        let mut pause = PAUSE;
        let mut changes = self.node.topology.subscribe();
        while !takeover.is_complete() {
            let asked = takeover.pending().map(|(shard, epoch)| self.ask_to_raise(shard, epoch));
            for (shard, epoch) in join_all(asked).await.into_iter().flatten() {
                takeover.confirmed(shard, epoch);
            }
            for row in &self.node.topology.view().shards {
                takeover.observed(row.shard, row.epoch);
            }
            if takeover.is_complete() {
                break;
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
            }
        }
        self.ready.send_replace(true);
    }

    /// Asks the owner of a shard, which has this epoch or a later one. This node may have owned it earlier.
    async fn ask_to_raise(&self, shard: ShardNo, owner: ShardEpoch) -> Option<(ShardNo, ShardEpoch)> {
        let asked = Raise { home: self.shard.0, epoch: self.epoch.0 };
        let is_here = self.node.barriers.lock().get(&shard).is_some_and(|barrier| barrier.epoch >= owner);
        let raised = if is_here {
            self.node.raise(shard, asked).await?
        } else {
            let call = ShardCall::post(super::home::RAISE, message::write(&asked), RAISE_TIMEOUT);
            let answer = self.node.ask_shard(shard, &call).await.ok()?;
            message::read_answer(answer.status(), answer.body()).ok()?
        };
        Some((shard, ShardEpoch(raised.epoch)))
    }
}
