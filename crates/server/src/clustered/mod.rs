//! A node of a cluster over PostgreSQL: which shards are served in this process, by which runtime, and the doors through
//! which requests reach them. Knows nothing of how ownership is decided, nor of what the requests ask for.
//!
//! ```text
//!   client ──► Door ──► served here, ownership fresh ──► runtime of the shard ──► answer, if still fresh
//!                │ served elsewhere
//!                ▼
//!              PeerDoor of the owner: proof? still the owner? ──► its runtime
//! ```

mod door;
mod host;
mod peer_door;
mod serve;
mod status;

pub(crate) use door::Doored;
pub(crate) use serve::{check_single, run};

use crate::{authority::Authority, front::Front, runtime::Services};
use lockwood_cluster::{Database, Peers, Prover, Reports, Topology};
use lockwood_router::{ShardEpoch, ShardNo};
use parking_lot::{Mutex, RwLock};
use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use tokio::sync::watch;

/// The shard that all requests are for.
pub(crate) const SHARD: ShardNo = ShardNo(1);
/// How long a look at the settings of the database may take.
const DURABILITY_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a request waits for an owner of its shard.
const OWNER_WAIT: Duration = Duration::from_secs(5);

/// What makes a server a node of a cluster.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// How the database is reached: a URL or keywords and values.
    pub database: String,
    /// The name of this node; no two nodes have the same.
    pub name: Option<String>,
    /// How other nodes reach this one, host and port.
    pub advertise: Option<String>,
    /// Where it listens for other nodes.
    pub peer_listen: SocketAddr,
}

/// This node, as its doors see it.
pub(crate) struct ClusterNode {
    pub(crate) front: Arc<Front>,
    pub(crate) topology: Arc<Topology>,
    pub(crate) peers: Peers,
    pub(crate) prover: Arc<Prover>,
    /// To the driver of this node's ownership.
    pub(crate) reports: Reports,
    pub(crate) database: Arc<Database>,
    pub(crate) stopping: AtomicBool,
    /// How many machines have an acknowledged write, in words.
    pub(crate) durability: Mutex<String>,
    /// Written by the host when it opens and closes a runtime.
    served: RwLock<Option<Served>>,
    /// Counts the changes of `served`.
    changes: watch::Sender<u64>,
}

/// A shard that is served here.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) services: Services,
    pub(crate) authority: Arc<Authority>,
    /// Becomes true when the tenure is over.
    pub(crate) over: watch::Receiver<bool>,
}

impl Served {
    /// Waits until the tenure is over.
    pub(crate) async fn ended(&self) {
        // Without a sender it is over, too.
        let _ = self.over.clone().wait_for(|is_over| *is_over).await;
    }
}

/// Where requests for a shard go.
pub(crate) enum Place {
    Here(Box<Served>),
    /// The address of the owner, and its epoch.
    There(String, ShardEpoch),
    Nowhere,
}

impl ClusterNode {
    pub(crate) fn new(
        front: Arc<Front>,
        topology: Arc<Topology>,
        peers: Peers,
        prover: Arc<Prover>,
        (reports, database): (Reports, Arc<Database>),
        durability: String,
    ) -> Arc<ClusterNode> {
        Arc::new(ClusterNode {
            front,
            topology,
            peers,
            prover,
            reports,
            database,
            stopping: AtomicBool::new(false),
            durability: Mutex::new(durability),
            served: RwLock::new(None),
            changes: watch::Sender::new(0),
        })
    }

    /// What is served here with an ownership that is fresh now.
    pub(crate) fn served(&self) -> Option<Served> {
        self.served.read().clone().filter(|served| served.authority.is_fresh())
    }

    /// Looks how durable writes are now: a failover may have changed that. What was known stays if the database is away.
    async fn read_durability(&self) {
        let read = tokio::time::timeout(DURABILITY_TIMEOUT, self.database.durability());
        if let Ok(Ok(report)) = read.await {
            *self.durability.lock() = serve::in_words(&report);
        }
    }

    /// Whether requests have a place to go to.
    pub(crate) fn has_owner(&self) -> bool {
        !matches!(self.place(), Place::Nowhere)
    }

    fn place(&self) -> Place {
        if let Some(served) = self.served() {
            return Place::Here(Box::new(served));
        }
        match self.topology.owner_elsewhere(SHARD) {
            Some((address, epoch)) => Place::There(address, epoch),
            None => Place::Nowhere,
        }
    }

    /// Waits until the tenure with this epoch is over.
    async fn moved(&self, epoch: ShardEpoch) {
        let mut changes = self.topology.subscribe();
        while self.topology.is_current(SHARD, epoch) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn set_served(&self, served: Option<Served>) -> Option<Served> {
        let before = std::mem::replace(&mut *self.served.write(), served);
        self.changes.send_modify(|changes| *changes += 1);
        before
    }
}
