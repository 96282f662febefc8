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
use hyper::{HeaderMap, Method, Uri};
use lockwood_node::clock::monotonic;
use lockwood_router::{
    NodeName, ShardEpoch, ShardNo,
    ownership::{Action, Event, Monotonic, Ownership, StepDownReason},
};
use lockwood_storage::{Epoch, postgres::Renewal};
use std::{future::Future, pin::Pin, sync::Arc, time::Duration};
use tokio::sync::mpsc;

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
    /// Where reports go.
    pub reports: Reports,
}

impl Driver {
    /// Drives `ownership` by its own timer and by what is reported.
    pub async fn run(self, mut ownership: Ownership, mut inbox: mpsc::UnboundedReceiver<Event>) {
        loop {
            let event = tokio::select! {
                event = inbox.recv() => event.unwrap_or(Event::Tick),
                () = sleep_until(ownership.wake_at()) => Event::Tick,
            };
            if let Event::Renewed { view, .. } = &event {
                self.topology.publish(view);
            }
            let now = monotonic();
            let actions = ownership.apply(event, now);
            for (shard, _) in ownership.holds() {
                self.host.set_fresh(shard, ownership.fresh_until(shard));
            }
            for action in actions {
                if let Action::Deregister = action {
                    return self.deregister().await;
                }
                self.carry_out(action);
            }
        }
    }

    async fn deregister(&self) {
        if let Err(error) = self.database.deregister(&self.node).await {
            tracing::warn!(%error, "remove the node's row");
        }
    }

    fn carry_out(&self, action: Action) {
        match action {
            Action::Renew { sent, stops, shards } => self.renew(sent, stops, &shards),
            Action::Claim { shard, sent, expected, rule } => {
                let (database, node) = (Arc::clone(&self.database), self.node.clone());
                self.spawn(async move {
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
                let doing = self.host.catch_up(shard, epoch);
                self.spawn(async move {
                    match doing.await {
                        Ok(()) => Event::CaughtUp { shard, epoch },
                        Err(why) => {
                            tracing::error!(shard = shard.0, epoch = epoch.0, why, "catch up with the log");
                            Event::CatchUpFailed { shard, epoch }
                        }
                    }
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
                self.spawn(async move {
                    doing.await;
                    Event::Drained { shard, epoch }
                });
            }
            Action::Release { shard, epoch, to } => {
                let (database, node) = (Arc::clone(&self.database), self.node.clone());
                let (peers, others) = (self.peers.clone(), self.topology.others());
                self.spawn(async move {
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
                self.spawn(async move {
                    doing.await;
                    Event::SteppedDown { shard, epoch }
                });
            }
            Action::Follow { shard } => self.host.follow(shard),
            Action::Unfollow { shard } => self.host.unfollow(shard),
            Action::Deregister => {}
        }
    }

    fn renew(&self, sent: Monotonic, stops: bool, shards: &[(ShardNo, ShardEpoch)]) {
        let database = Arc::clone(&self.database);
        let renewal = Renewal {
            node: self.node.as_str().to_owned(),
            incarnation: self.incarnation.clone(),
            address: self.address.clone(),
            version: self.version.to_owned(),
            stops,
            shards: shards.iter().map(|(shard, epoch)| (u64::from(shard.0), Epoch(epoch.0))).collect(),
        };
        self.spawn(async move {
            match database.renew(&renewal).await {
                Ok(view) => Event::Renewed { sent, view },
                Err(error) => {
                    tracing::warn!(%error, "renew the node and its shards");
                    Event::RenewFailed { sent }
                }
            }
        });
    }

    fn spawn(&self, doing: impl Future<Output = Event> + Send + 'static) {
        let reports = self.reports.clone();
        tokio::spawn(async move { reports.report(doing.await) });
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
    for address in others {
        let _ = peers.call(address, &call, HINT_TIMEOUT).await;
    }
}

async fn sleep_until(at: Option<Monotonic>) {
    match at {
        None => std::future::pending().await,
        Some(at) => tokio::time::sleep(Duration::from_millis(at.since(monotonic()))).await,
    }
}
