//! When the owner of a shard is not waited for any more: another node owns the shard, or nobody has renewed the ownership for so
//! long that the owner may not answer. Knows nothing of what it was asked.

use super::ClusterNode;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use lockwood_cluster::Answer;
use lockwood_router::{ShardEpoch, ShardNo};
use std::{
    error::Error,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// How long an answer of a replaced owner may still be on its way.
const LATE_ANSWER: Duration = Duration::from_millis(100);
/// How long an ownership may be stale before its owner is given up. After an outage of the database every ownership is stale
/// until its owner has renewed it.
const STALE_TIMEOUT: Duration = Duration::from_millis(1_500);
/// How long the database may be away until nothing is expected any more from an owner of which nothing is known since.
const DATABASE_TIMEOUT_MS: u64 = 30_000;
/// How often that is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the rest of a replaced owner's answer may pause: what it has begun to tell was true when it began.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(1);

impl ClusterNode {
    /// Waits until no answer is to be expected any more from a shard's owner with this epoch.
    pub(super) async fn silenced(&self, shard: ShardNo, epoch: ShardEpoch) {
        let (mut changes, mut stale_since) = (self.topology.subscribe(), None);
        while self.topology.is_current(shard, epoch) {
            if !self.topology.is_stale(shard) {
                stale_since = None;
            } else if stale_since.get_or_insert_with(Instant::now).elapsed() >= STALE_TIMEOUT {
                return;
            }
            // Nothing is read while the database is away. Then the owner grants nothing, and waiters wait on.
            match tokio::time::timeout(LOOK_INTERVAL, changes.changed()).await {
                Ok(Err(_)) => return,
                Ok(Ok(())) => {}
                Err(_) if self.topology.age_ms() > DATABASE_TIMEOUT_MS => return,
                Err(_) => {}
            }
        }
        tokio::time::sleep(LATE_ANSWER).await;
    }

    /// Waits until the tenure of a shard's owner with this epoch is over.
    pub(super) async fn moved(&self, shard: ShardNo, epoch: ShardEpoch) {
        let mut changes = self.topology.subscribe();
        while self.topology.is_current(shard, epoch) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

/// The body of an owner's answer. It breaks off when nothing more comes and another node has the shard: an owner that is paused
/// never ends it.
pub(crate) struct Watched {
    answer: Answer,
    node: Arc<ClusterNode>,
    owner: (ShardNo, ShardEpoch),
    /// Made when there is something to wait for; begins anew with each part.
    silenced: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Watched {
    pub(super) fn new(node: &Arc<ClusterNode>, owner: (ShardNo, ShardEpoch), answer: Answer) -> Watched {
        Watched { answer, node: Arc::clone(node), owner, silenced: None }
    }

    /// Ready when the owner is not waited for any more.
    fn poll_silenced(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (node, (shard, epoch)) = (&self.node, self.owner);
        let silenced = self.silenced.get_or_insert_with(|| {
            let node = Arc::clone(node);
            Box::pin(async move {
                node.silenced(shard, epoch).await;
                tokio::time::sleep(PAUSE_TIMEOUT).await;
            })
        });
        silenced.as_mut().poll(context)
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match Pin::new(&mut self.answer).poll_frame(context) {
            Poll::Ready(frame) => {
                self.silenced = None;
                Poll::Ready(frame)
            }
            Poll::Pending => self.poll_silenced(context).map(|()| Some(Err(replaced(self.owner.0).into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.answer.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.size_hint()
    }
}

/// Why an owner is not waited for any more.
pub(super) fn replaced(shard: ShardNo) -> String {
    format!("it has lost shard {}, or does not renew its ownership", shard.0)
}
