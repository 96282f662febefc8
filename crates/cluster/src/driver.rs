//! Drives the ownership of one node: carries out what the state machine in `router` decides, and reports what came of it.
//! Decides nothing itself, and knows nothing of what a shard holds.
//!
//! ```text
//!   timer, answers of the database, the host's reports ──► Ownership (pure) ──► actions
//!            ▲                                                                  │
//!            └────────── tasks: one call to the database or the host each ◄─────┘
//! ```

use crate::{
    database::Database,
    peers::{Call, CallKind, Peers},
    topology::Topology,
};
use bytes::Bytes;
use futures_util::future::join_all;
use hyper::{HeaderMap, Method, Uri};
use lockwood_node::clock::monotonic;
use lockwood_router::{
    NodeName, ShardEpoch, ShardNo,
    ownership::{Action, Event, Monotonic, Ownership, StepDownReason},
};
use lockwood_storage::{Epoch, postgres::Renewal};
use std::{future::Future, pin::Pin, sync::Arc, time::Duration};
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
};

/// The address at which a node is told to look at the rows.
pub const HINT: &str = "/hint";
/// How long a node may take to hear of it.
const HINT_TIMEOUT: Duration = Duration::from_millis(200);

/// What a host does takes a while.
pub type Doing<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What has shards and serves them. Calls for one shard are made in order; an epoch names a tenure.
pub trait Host: Send + Sync + 'static {
    /// Makes the local store equal to the log, and prepares to serve. Admits nothing yet.
    fn catch_up(&self, shard: ShardNo, epoch: ShardEpoch) -> Doing<Result<(), String>>;
    /// Admits requests from now on.
    fn serve(&self, shard: ShardNo, epoch: ShardEpoch);
    /// Until when the ownership is fresh; none if it is not.
    fn set_fresh(&self, shard: ShardNo, until: Option<Monotonic>);
    /// Admits nothing more; done when what was admitted is durable or rejected.
    fn stop_admitting(&self, shard: ShardNo, epoch: ShardEpoch) -> Doing<()>;
    /// Abandons the tenure and everything in memory that belongs to it.
    fn step_down(&self, shard: ShardNo, epoch: ShardEpoch, why: StepDownReason) -> Doing<()>;
    /// Tails the log of a shard that it does not own, until it catches up as its owner or is told to stop. May be told
    /// again.
    fn follow(&self, shard: ShardNo);
    /// Stops tailing a log.
    fn unfollow(&self, shard: ShardNo);
}

/// Reports to a driver what happened outside of it.
#[derive(Clone)]
pub struct Reports(mpsc::UnboundedSender<Event>);

impl Reports {
    /// A channel for one driver.
    #[must_use]
    pub fn channel() -> (Reports, mpsc::UnboundedReceiver<Event>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Reports(sender), receiver)
    }

    /// Something happened. Without a driver it does not matter any more.
    pub fn report(&self, event: Event) {
        let _ = self.0.send(event);
    }
}

/// Runs until everything is released after [`Event::Stop`].
///
/// *Invariant:* every action that takes a while ends in an event. One that panics would leave its shard owned, renewed and
/// not served, with nothing to see in the rows; so it ends the driver, and with it the process, and other nodes take over.
/// Only catching up may fail by itself: what makes one shard's log unreadable does so on every node, and is to cost that
/// shard alone.
pub struct Driver {
    /// The node.
    pub node: NodeName,
    /// Its run.
    pub incarnation: String,
    /// Where other nodes reach it.
    pub address: String,
    /// Its version, for operators.
    pub version: &'static str,
    /// Where the rows are.
    pub database: Arc<Database>,
    /// What requests are routed by.
    pub topology: Arc<Topology>,
    /// How other nodes are told of a release.
    pub peers: Peers,
    /// What serves the shards.
    pub host: Arc<dyn Host>,
}

/// What is under way.
type Tasks = JoinSet<Event>;

impl Driver {
    /// Drives `ownership` by its own timer and by what is reported. Fails if an action panicked.
    pub async fn run(
        self,
        mut ownership: Ownership,
        mut inbox: mpsc::UnboundedReceiver<Event>,
    ) -> Result<(), JoinError> {
        let (mut tasks, mut published) = (Tasks::new(), Monotonic(0));
        loop {
            let event = tokio::select! {
                Some(ended) = tasks.join_next() => ended?,
                event = inbox.recv() => event.unwrap_or(Event::Tick),
                () = sleep_until(ownership.wake_at()) => Event::Tick,
            };
            // One that was given up may answer late, with rows that are older than those that are known.
            if let Event::Renewed { sent, view } = &event
                && *sent >= published
            {
                published = *sent;
                self.topology.publish(view);
            }
            let now = monotonic();
            let actions = ownership.apply(event, now);
            for (shard, _) in ownership.holds() {
                self.host.set_fresh(shard, ownership.fresh_until(shard));
            }
            for action in actions {
                if let Action::Deregister = action {
                    self.deregister().await;
                    return Ok(());
                }
                self.carry_out(action, &mut tasks);
            }
        }
    }

    async fn deregister(&self) {
        if let Err(error) = self.database.deregister(&self.node, &self.incarnation).await {
            tracing::warn!(%error, "remove the node's row");
        }
    }

    fn carry_out(&self, action: Action, tasks: &mut Tasks) {
        match action {
            Action::Renew { sent, stops, shards } => self.renew(sent, stops, &shards, tasks),
            Action::Claim { shard, sent, expected, rule } => {
                let (database, node) = (Arc::clone(&self.database), self.node.clone());
                tasks.spawn(async move {
                    match database.claim(shard, &node, expected, rule).await {
                        Ok(Some(epoch)) => Event::Claimed { shard, sent, epoch },
                        Ok(None) => Event::ClaimFailed { shard, sent },
                        Err(error) => {
                            tracing::warn!(%error, shard = shard.0, "claim a shard");
                            Event::ClaimFailed { shard, sent }
                        }
                    }
                });
            }
            Action::CatchUp { shard, epoch } => {
                let doing = tokio::spawn(self.host.catch_up(shard, epoch));
                tasks.spawn(async move {
                    let why = match doing.await {
                        Ok(Ok(())) => return Event::CaughtUp { shard, epoch },
                        Ok(Err(why)) => why,
                        Err(panicked) => panicked.to_string(),
                    };
                    tracing::error!(shard = shard.0, epoch = epoch.0, why, "catch up with the log");
                    Event::CatchUpFailed { shard, epoch }
                });
            }
            Action::Serve { shard, epoch } => {
                tracing::info!(shard = shard.0, epoch = epoch.0, "this node serves a shard");
                self.host.serve(shard, epoch);
            }
            Action::Suspend { shard, epoch } => {
                tracing::warn!(
                    shard = shard.0,
                    epoch = epoch.0,
                    "the ownership of a shard cannot be renewed; nothing is granted until it is"
                );
            }
            Action::Resume { shard, epoch } => {
                tracing::info!(shard = shard.0, epoch = epoch.0, "the ownership of a shard is fresh again");
            }
            Action::StopAdmitting { shard, epoch } => {
                let doing = self.host.stop_admitting(shard, epoch);
                tasks.spawn(async move {
                    doing.await;
                    Event::Drained { shard, epoch }
                });
            }
            Action::Release { shard, epoch, to } => {
                let (database, node) = (Arc::clone(&self.database), self.node.clone());
                let (peers, others) = (self.peers.clone(), self.topology.others());
                tasks.spawn(async move {
                    match database.release(shard, &node, epoch, to.as_ref()).await {
                        Ok(()) => {
                            hint(&peers, &others).await;
                            Event::Released { shard, epoch }
                        }
                        Err(error) => {
                            tracing::warn!(%error, shard = shard.0, "release a shard");
                            Event::ReleaseFailed { shard, epoch }
                        }
                    }
                });
            }
            Action::StepDown { shard, epoch, why } => {
                tracing::warn!(shard = shard.0, epoch = epoch.0, ?why, "this node steps down as an owner");
                let doing = self.host.step_down(shard, epoch, why);
                tasks.spawn(async move {
                    doing.await;
                    Event::SteppedDown { shard, epoch }
                });
            }
            Action::Follow { shard } => self.host.follow(shard),
            Action::Unfollow { shard } => self.host.unfollow(shard),
            Action::Deregister => {}
        }
    }

    fn renew(&self, sent: Monotonic, stops: bool, shards: &[(ShardNo, ShardEpoch)], tasks: &mut Tasks) {
        let database = Arc::clone(&self.database);
        let renewal = Renewal {
            node: self.node.as_str().to_owned(),
            incarnation: self.incarnation.clone(),
            address: self.address.clone(),
            version: self.version.to_owned(),
            stops,
            shards: shards.iter().map(|(shard, epoch)| (u64::from(shard.0), Epoch(epoch.0))).collect(),
        };
        tasks.spawn(async move {
            match database.renew(&renewal).await {
                Ok(view) => Event::Renewed { sent, view },
                Err(error) => {
                    tracing::warn!(%error, "renew the node and its shards");
                    Event::RenewFailed { sent }
                }
            }
        });
    }
}

/// Has other nodes look at the rows now. Saves up to a renewal's interval; nothing depends on it.
pub async fn hint(peers: &Peers, others: &[String]) {
    let call = Call {
        kind: CallKind::Node,
        method: Method::POST,
        target: Uri::from_static(HINT),
        headers: HeaderMap::new(),
        body: Bytes::new(),
    };
    let hints = async {
        join_all(others.iter().map(|address| peers.call(address, &call, HINT_TIMEOUT))).await;
    };
    // Connecting counts as well.
    let _ = tokio::time::timeout(HINT_TIMEOUT, hints).await;
}

async fn sleep_until(at: Option<Monotonic>) {
    match at {
        None => std::future::pending().await,
        Some(at) => tokio::time::sleep(Duration::from_millis(at.since(monotonic()))).await,
    }
}
