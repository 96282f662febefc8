//! A node of a cluster over PostgreSQL: which shards are served in this process, by which runtime, and the doors through
//! which requests reach them. Knows nothing of how ownership is decided, nor of what the requests ask for.
//!
//! ```text
//!   client ──► Door: which namespace? ──► Homes: which shard? ──► served here, ownership fresh ──► its runtime ──► answer,
//!                                              │ served elsewhere                                              if still fresh
//!                                              ▼
//!                                            PeerDoor of the owner: proof? still the owner? ──► its runtime
//! ```

mod aim;
mod alerts;
pub(crate) mod allowance;
mod calls;
mod direct;
mod door;
mod follower;
mod gather;
mod guards;
mod home_moves;
mod homes;
mod host;
mod newcomer;
mod peer_door;
pub(crate) mod preferences;
mod reads;
mod scope;
mod serve;
mod silence;
pub(crate) mod snapshots;
mod status;
mod streamed;

pub(crate) use calls::ShardCall;
pub(crate) use door::{ASKED, Doored, lost};
pub(crate) use guards::{Membership, admit, confirmed, defined, give_away, telling, told_so_far};
pub(crate) use homes::Homes;
pub(crate) use serve::{check_single, run};

use crate::{front::Front, runtime::Services, shared::Shared};
use lockwood_cluster::{Database, Peers, Placed, Prover, Reports, TlsFiles, Topology};
use lockwood_node::{
    authority::Authority,
    metrics::Interface,
    territory::{SYSTEM, only_natively},
    trouble::Trouble,
};
use lockwood_router::{ShardEpoch, ShardMap, ShardNo};
use lockwood_storage::postgres::DurabilityReport;
use lockwood_wire::Code;
use parking_lot::{Mutex, RwLock};
use scope::{Beside, Gathered, Named, Scope};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// The first shard. Requests that any shard can answer go there.
pub(crate) const FIRST: ShardNo = ShardNo(1);
/// How long a look at the settings of the database may take.
const DURABILITY_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a request waits for an owner of its shard.
const OWNER_WAIT: Duration = Duration::from_secs(5);
/// How long a planned end of a tenure waits for answers after it has sent away all that wait for locks.
const ANSWERING_TIMEOUT: Duration = Duration::from_millis(300);
const ANSWERING_INTERVAL: Duration = Duration::from_millis(2);

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
    /// The shards that the cluster should have; there may be more already.
    pub shards: Option<u32>,
    /// With what calls between nodes are encrypted, if they are.
    pub tls: Option<TlsFiles>,
    /// A snapshot of a shard is saved when so much of its log is not in the last one.
    pub snapshot_bytes: u64,
}

/// This node, as its doors see it.
pub(crate) struct ClusterNode {
    pub(crate) front: Arc<Front>,
    pub(crate) topology: Arc<Topology>,
    pub(crate) peers: Peers,
    pub(crate) prover: Arc<Prover>,
    doorkeeper: newcomer::Doorkeeper,
    /// To the driver of this node's ownership.
    pub(crate) reports: Reports,
    pub(crate) database: Arc<Database>,
    pub(crate) stopping: AtomicBool,
    pub(crate) homes: Arc<Homes>,
    /// What the secrets of sessions are made with, on every shard.
    pub(crate) session_key: [u8; 32],
    /// On how many machines an acknowledged write is, if the database says so; read now and then.
    pub(crate) durability: Mutex<Option<DurabilityReport>>,
    /// Logs that were found to lack acknowledged records, in words, since this process began.
    pub(crate) losses: Mutex<Vec<String>>,
    /// Those of the shards that this node follows; written by the tasks that follow them.
    copies: RwLock<BTreeMap<ShardNo, Arc<follower::Copy>>>,
    /// What operators prefer, and the latest map; as they were read last.
    placing: RwLock<preferences::Placing>,
    /// Written by the host when it opens and closes runtimes.
    served: RwLock<BTreeMap<ShardNo, Served>>,
    /// Counts the changes of `served`.
    changes: watch::Sender<u64>,
}

/// A shard that is served here.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) shared: Arc<Shared>,
    pub(crate) services: Services,
    pub(crate) authority: Arc<Authority>,
    /// Becomes true when the tenure is over.
    pub(crate) over: watch::Receiver<bool>,
    #[expect(dead_code, reason = "only counted: each request that is being answered keeps one")]
    pub(crate) answering: Answering,
}

impl Served {
    /// Whether this is the tenure with the epoch that a header names.
    pub(crate) fn has_epoch(&self, named: &hyper::header::HeaderValue) -> bool {
        let epoch = self.shared.membership.as_ref().map(|membership| membership.epoch.0);
        named.to_str().ok().and_then(|named| named.parse().ok()) == epoch
    }
}

/// Counts the requests that are being answered by a tenure: a planned end waits for them.
#[derive(Clone, Default)]
pub(crate) struct Answering(Arc<()>);

impl Answering {
    /// Waits until all requests have been answered, but not for long: one that waits for another shard may take its time.
    async fn finished(&self) {
        let deadline = Instant::now() + ANSWERING_TIMEOUT;
        while Arc::strong_count(&self.0) > 1 && Instant::now() < deadline {
            tokio::time::sleep(ANSWERING_INTERVAL).await;
        }
    }
}

impl Served {
    /// The number of the shard.
    pub(crate) fn shard(&self) -> ShardNo {
        self.shared.cluster.this()
    }

    /// Whether the locks of a namespace are decided by this tenure.
    pub(crate) async fn decides(&self, namespace: &str) -> bool {
        match &self.shared.membership {
            Some(membership) => membership.decides(namespace).await,
            None => true,
        }
    }

    /// Waits until the tenure is over.
    pub(crate) async fn ended(&self) {
        // Without a sender it is over, too.
        let _ = self.over.clone().wait_for(|is_over| *is_over).await;
    }
}

/// Marks a request that comes from another shard of the cluster, with a proof if it came over the network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerCall;

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
        (session_key, durability): ([u8; 32], Option<DurabilityReport>),
    ) -> Arc<ClusterNode> {
        Arc::new(ClusterNode {
            front,
            topology,
            peers,
            prover,
            doorkeeper: newcomer::Doorkeeper::default(),
            reports,
            homes: Arc::new(Homes::new(Arc::clone(&database))),
            session_key,
            database,
            stopping: AtomicBool::new(false),
            durability: Mutex::new(durability),
            losses: Mutex::default(),
            copies: RwLock::default(),
            placing: RwLock::default(),
            served: RwLock::default(),
            changes: watch::Sender::new(0),
        })
    }

    /// What is served here of a shard, with an ownership that is fresh now.
    pub(crate) fn served(&self, shard: ShardNo) -> Option<Served> {
        self.served.read().get(&shard).filter(|served| served.authority.is_fresh()).cloned()
    }

    /// The shards that are served here now.
    pub(crate) fn all_served(&self) -> Vec<Served> {
        self.served.read().values().filter(|served| served.authority.is_fresh()).cloned().collect()
    }

    /// The shards of the cluster by number, as far as this node has heard of them.
    pub(crate) fn shards(&self) -> Vec<ShardNo> {
        let mut shards: Vec<ShardNo> = self.topology.view().shards.iter().map(|row| row.shard).collect();
        shards.sort_unstable();
        shards
    }

    /// The shards that a request to an interface is for.
    async fn destination(&self, scope: Scope, interface: Interface) -> Result<Destination, Trouble> {
        match scope {
            Scope::Any => Ok(Destination::One(FIRST)),
            Scope::Shard(shard, named) => self.one_of(ShardNo(shard), &named).await.map(Destination::One),
            Scope::Namespace(named) => self.home_of(&named, interface).await.map(Destination::One),
            Scope::Namespaces(named) => self.one_home_of(&named, interface).await.map(Destination::One),
            Scope::All(gathered) => match self.shards().len() {
                0 | 1 => Ok(Destination::One(FIRST)),
                _ => Ok(Destination::All(gathered)),
            },
        }
    }

    /// The shard that a request names, if that may have documents of its namespace.
    async fn one_of(&self, shard: ShardNo, named: &Named) -> Result<ShardNo, Trouble> {
        if !self.shards().contains(&shard) {
            return Err(Trouble::new(Code::NoShard, format!("there is no shard {}", shard.0)));
        }
        let home = self.home_of(named, Interface::Native).await?;
        let name = &named.name;
        if named.creates && home != shard && name != SYSTEM && !self.homes.is_spread(name).await? {
            let message = format!("all documents of {name} are on shard {}, its home", home.0);
            return Err(Trouble::new(Code::NoShard, message));
        }
        Ok(shard)
    }

    async fn home_of(
        &self,
        Named { name, creates, beside }: &Named,
        interface: Interface,
    ) -> Result<ShardNo, Trouble> {
        let limit = self.front.config.limits.namespace_bytes_max;
        // A name that none can have is refused by any shard.
        if name.is_empty() || name.len() as u64 > limit || name.contains('\0') {
            return Ok(FIRST);
        }
        if let Some(placed) = self.homes.find(name).await? {
            return usable(name, placed, interface);
        }
        let whole = |home| Placed { home, is_spread: false, moved: 0 };
        let first_use = match beside {
            Beside::First => FIRST,
            Beside::Nothing => self.pick(name),
            Beside::Namespace(other) if *creates => {
                self.homes.ensure(other, whole(self.pick(other))).await?.home
            }
            Beside::Namespace(other) => {
                self.homes.find(other).await?.map_or_else(|| self.pick(other), |placed| placed.home)
            }
        };
        // A plain read finds nothing there, and leaves no trace.
        if !*creates {
            return Ok(first_use);
        }
        // Other interfaces know nothing of shards.
        let mut wanted = whole(first_use);
        if interface == Interface::Native
            && let Some(shards) = self.mapped().await?
        {
            wanted.is_spread = true;
            if *beside == Beside::Nothing {
                wanted.home = lockwood_router::pick_home(name, &shards).unwrap_or(first_use);
            }
        }
        usable(name, self.homes.ensure(name, wanted).await?, interface)
    }

    /// The shards of the map by which documents are placed; none if there is no map.
    async fn mapped(&self) -> Result<Option<Vec<ShardNo>>, Trouble> {
        let unavailable = |why: String| {
            let message =
                format!("the database of the cluster does not say if there is a map: {why}; try again");
            Trouble::new(Code::ShardUnreachable, message)
        };
        let map = self.database.map().await.map_err(|error| unavailable(error.to_string()))?;
        let Some((_, bytes)) = map else { return Ok(None) };
        let map = serde_json::from_slice(&bytes).map_err(|error| unavailable(error.to_string()))?;
        let map = ShardMap::from_json(&map).map_err(|error| unavailable(error.to_string()))?;
        Ok(Some(map.shard_numbers().collect()))
    }

    async fn one_home_of(&self, all: &[Named], interface: Interface) -> Result<ShardNo, Trouble> {
        let mut homes: Vec<(ShardNo, &str)> = Vec::new();
        for named in all {
            homes.push((self.home_of(named, interface).await?, &named.name));
        }
        let (first, named) = homes[0];
        match homes.iter().find(|(home, _)| *home != first) {
            None => Ok(first),
            Some((other, name)) => {
                let message = format!(
                    "{named} is on shard {}, and {name} on shard {}; send a request for each",
                    first.0, other.0
                );
                Err(Trouble::new(Code::SpansShards, message))
            }
        }
    }

    /// The shard that a namespace begins on.
    fn pick(&self, namespace: &str) -> ShardNo {
        let shards = self.shards();
        lockwood_router::pick_home(namespace, &shards).unwrap_or(FIRST)
    }

    /// On how many machines an acknowledged write is, in words, as it was read last.
    pub(crate) fn durability_in_words(&self) -> String {
        serve::in_words(self.durability.lock().as_ref())
    }

    /// Looks how durable writes are now: a failover may have changed that. What was known stays if the database is away.
    async fn read_durability(&self) {
        let read = tokio::time::timeout(DURABILITY_TIMEOUT, self.database.durability());
        if let Ok(Ok(report)) = read.await {
            *self.durability.lock() = report;
        }
    }

    /// Whether some requests have a place to go to.
    pub(crate) fn has_owner(&self) -> bool {
        let shards = self.shards();
        shards.iter().any(|shard| !matches!(self.place(*shard), Place::Nowhere))
    }

    fn place(&self, shard: ShardNo) -> Place {
        if let Some(served) = self.served(shard) {
            return Place::Here(Box::new(served));
        }
        match self.topology.owner_elsewhere(shard) {
            Some((address, epoch)) => Place::There(address, epoch),
            None => Place::Nowhere,
        }
    }

    fn set_served(&self, shard: ShardNo, served: Option<Served>) {
        let mut all = self.served.write();
        match served {
            Some(served) => drop(all.insert(shard, served)),
            None => drop(all.remove(&shard)),
        }
        drop(all);
        self.changes.send_modify(|changes| *changes += 1);
    }
}

/// The home of a namespace, if an interface can have what is there. Locks are there in any case.
fn usable(name: &str, placed: Placed, interface: Interface) -> Result<ShardNo, Trouble> {
    let finds_all = matches!(interface, Interface::Native | Interface::Locktopus);
    if placed.is_spread && !finds_all { Err(only_natively(name)) } else { Ok(placed.home) }
}

/// Where a request goes.
enum Destination {
    One(ShardNo),
    All(Gathered),
}
