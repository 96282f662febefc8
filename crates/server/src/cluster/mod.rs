//! A node's part in a cluster: the shard map it goes by, who serves which key, and the fence that keeps what was
//! decided under one map apart from what is decided under the next. Knows nothing of HTTP routes.
//!
//! ```text
//!   request ──► route (by the map) ──► here: admit ──► decide, under the fence ──► as without a cluster
//!                  │                        │ key not known here yet
//!                  ▼                        ▼
//!              another node            pull it from its donor, install, go on
//! ```
//!
//! The map changes only while nobody decides. So every write is before or after the change in the log, and
//! nothing is ever written by a node that had already agreed not to.

pub(crate) mod copy;
pub(crate) mod dispatch;
pub(crate) mod everywhere;
pub(crate) mod handover;
pub(crate) mod keeper;
pub(crate) mod locks;
mod pace;
mod peers;
pub(crate) mod procedures;
mod pull;
pub(crate) mod received;
pub(crate) mod replica;
pub(crate) mod scripts;
pub(crate) mod survey;
mod sweep;
pub(crate) mod transfer;
pub(crate) mod work;

use crate::{
    clustered::{ClusterNode, Membership},
    lease,
    native::Sessions,
    secret::hex,
    shard::{Call, Pending, ShardError, Written},
    shared::Shared,
    trouble::Trouble,
};
use futures_util::future::BoxFuture;
use hmac::{Hmac, KeyInit, Mac};
use hyper::HeaderMap;
use lockwood_engine::{Action, Intent, NoRules, PutIf, Request};
use lockwood_model::{DocumentKey, Json, Key, Resource};
use lockwood_router::{Epoch, HostMode, Phase, Route, ShardMap, ShardNo};
use lockwood_storage::StoreError;
use lockwood_wire::Code;
use parking_lot::{RwLock, RwLockReadGuard};
use sha2::Sha256;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

use dispatch::spread::{HoldTable, LoadTable};
pub(crate) use dispatch::spread::{NOWHERE, custody};
use scripts::Compiled;

pub(crate) use dispatch::spans;
pub(crate) use peers::{EPOCH, Message, PEER, PeerError, Peers, address_of};

/// The header in which a node tells the shard that it was started for.
pub(crate) const SHARD: &str = "lockwood-shard";
/// The namespace that every node keeps for itself.
pub(crate) const SYSTEM: &str = "_system";
/// How often a node without a map asks for one.
const JOIN_INTERVAL: Duration = Duration::from_millis(500);
/// There are fewer shards than this: a lock's number, divided by it, leaves the shard that granted it.
pub(crate) const SHARDS_MAX: u64 = 1024;
/// How often a node that is not told of new maps asks for the one after a map by which keys wait.
const CATCH_UP_INTERVAL: Duration = Duration::from_millis(20);
/// Where the map is in it.
const MAP: (&str, &str) = ("shards", "map");

/// What a node has to know to be part of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// Which shard it serves, counted from 1; 0 if it only passes requests on.
    pub this: u32,
    /// What all nodes of the cluster know and nobody else does.
    pub key: Vec<u8>,
    /// How others reach it, host and port; the address it listens on if absent.
    pub advertise: Option<String>,
    /// Nodes that can be asked for the map, until there is one.
    pub join: Vec<String>,
}

/// A node's part in a cluster, if it has one.
pub(crate) struct Cluster {
    node: Option<Node>,
    /// Read by whoever decides, written by whoever changes the map.
    fence: RwLock<Option<Arc<Current>>>,
    /// The epoch of the map, for those who cannot go through the fence; 0 without one. Written with the map.
    epoch: AtomicU64,
    /// The same, for those who wait for the next one.
    epochs: watch::Sender<Epoch>,
    pub(crate) load: pace::Load,
    pub(crate) work: work::Work,
    pub(crate) keeper: keeper::Keeper,
    pub(crate) procedures: procedures::Procedures,
    /// Locks that operations on several shards have here.
    pub(crate) holds: HoldTable,
    /// Parts of dumps that are being loaded.
    pub(crate) loads: LoadTable,
    /// Those that are connected to this node.
    pub(crate) sessions: Sessions,
    /// Who speaks for sessions whose locks are here.
    pub(crate) seats: locks::Seats,
    /// Whether this node, a replica, has leases on record that it does not go by.
    pub(crate) idle_leases: AtomicBool,
    /// Whoever puts a map in force has it.
    switching: tokio::sync::Mutex<()>,
    /// The last transition of which no old copies are here any more.
    swept: AtomicU64,
    /// The epoch of the last map that was put on record from here.
    recorded: AtomicU64,
    pub(crate) replica: replica::Replica,
}

struct Node {
    this: ShardNo,
    address: String,
    /// What others of an older cluster prove themselves by. Over PostgreSQL that is done before a call gets here.
    secret: String,
    peers: Peers,
}

/// The map as this node goes by it.
pub(crate) struct Current {
    pub(crate) map: ShardMap,
    /// Whether this node may write: it is the rw host of its shard.
    pub(crate) is_owner: bool,
    /// Whether this node follows the rw host of its shard.
    pub(crate) is_replica: bool,
    /// The shard that the map takes this node for a host of, if it was started for another one.
    taken_for: Option<ShardNo>,
    scripts: Compiled,
}

impl Current {
    /// The shard that serves a key; refused while nobody does.
    pub(crate) fn owner(&self, at: &DocumentKey) -> Result<ShardNo, Trouble> {
        match self.route(at)? {
            Route::Owner(owner) | Route::Pulled { owner, .. } => Ok(owner),
            Route::Moving { .. } => Err(pull::elsewhere(at)),
        }
    }

    pub(crate) fn route(&self, at: &DocumentKey) -> Result<Route, Trouble> {
        let route = self.map.route(&at.collection, &at.key, &self.scripts);
        route.map_err(|error| Trouble::new(Code::NoShard, error.to_string()))
    }
}

/// That some keys may be decided about here, as of one map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Admitted(Option<Epoch>);

impl Admitted {
    /// That everything may be decided about under a map.
    pub(crate) fn under(current: &Current) -> Admitted {
        Admitted(Some(current.map.epoch))
    }

    /// The epoch of that map; none if it does not matter.
    pub(crate) fn epoch(self) -> Option<Epoch> {
        self.0
    }
}

/// A map that was put in force, and the record of it.
type Switched = (Pending<Written>, Arc<Current>);

/// While this is held the map stays as it is.
pub(crate) struct Passage<'a> {
    fence: Option<RwLockReadGuard<'a, Option<Arc<Current>>>>,
}

impl Cluster {
    pub(crate) fn new(
        config: Option<&ClusterConfig>,
        membership: Option<&Arc<Membership>>,
        listen: &str,
    ) -> Cluster {
        let node = config.map(|config| Node::of(config, listen)).or_else(|| membership.map(Node::over));
        Cluster {
            node,
            fence: RwLock::new(None),
            epoch: AtomicU64::new(0),
            epochs: watch::Sender::new(0),
            load: pace::Load::new(),
            work: work::Work::default(),
            keeper: keeper::Keeper::default(),
            procedures: procedures::Procedures::default(),
            holds: HoldTable::default(),
            loads: LoadTable::default(),
            sessions: Sessions::default(),
            seats: locks::Seats::default(),
            idle_leases: AtomicBool::new(false),
            switching: tokio::sync::Mutex::default(),
            swept: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            replica: replica::Replica::default(),
        }
    }

    /// Takes up the map that was in force when the server stopped.
    pub(crate) fn restore(&self, shared: &Shared) -> Result<(), StoreError> {
        let Some(node) = &self.node else { return Ok(()) };
        let reading = shared.shard.read();
        let Some((id, _)) = reading.namespace(SYSTEM)? else { return Ok(()) };
        let Some(document) = reading.state().document(id, &map_key())? else { return Ok(()) };
        let damaged = || StoreError::damaged("the shard map");
        let json = document.get("map").ok_or_else(damaged)?;
        let map = serde_json::from_str(json.as_str())
            .ok()
            .and_then(|map| ShardMap::from_json(&map).ok())
            .ok_or_else(damaged)?;
        self.epoch.store(map.epoch, Ordering::Release);
        self.epochs.send_replace(map.epoch);
        *self.fence.write() = Some(Arc::new(node.current(map)));
        Ok(())
    }

    /// Whether this is a node of a cluster, with a map or without.
    pub(crate) fn is_node(&self) -> bool {
        self.node.is_some()
    }

    /// Its part in a cluster over PostgreSQL. Locks of a namespace are at its home there, and never spread.
    pub(crate) fn membership(&self) -> Option<&Membership> {
        match &self.node.as_ref()?.peers {
            Peers::Shards(membership) => Some(membership),
            Peers::Nodes(_) => None,
        }
    }

    /// Whether keys are on several shards. In a cluster over PostgreSQL that is so since there is a map, for
    /// namespaces that began afterwards: see [`Cluster::has_spread`].
    pub(crate) fn is_on(&self) -> bool {
        self.is_node() && (self.membership().is_none() || self.epoch() > 0)
    }

    /// Whether the documents of a namespace are on the shards of the map.
    pub(crate) async fn has_spread(&self, namespace: &str) -> Result<bool, Trouble> {
        match self.membership() {
            Some(membership) => membership.node.homes.is_spread(namespace).await,
            None => Ok(self.is_node() && namespace != SYSTEM),
        }
    }

    /// The same from where waiting is in order, though it seldom takes any: what was asked for once is remembered.
    pub(crate) fn has_spread_now(&self, namespace: &str) -> Result<bool, Trouble> {
        let Some(membership) = self.membership() else { return Ok(self.is_node() && namespace != SYSTEM) };
        match membership.node.homes.remembered(namespace) {
            Some(placed) => Ok(placed.is_spread),
            None if namespace == SYSTEM => Ok(false),
            None => dispatch::spread::wait_for(membership.node.homes.is_spread(namespace)),
        }
    }

    /// The map in force, if there is one.
    pub(crate) fn current(&self) -> Option<Arc<Current>> {
        self.fence.read().clone()
    }

    /// Whether this node, a replica, has everything that came to its shard before a map was in force. What came
    /// by a transition is there then, or it could be missed where it was seen before.
    pub(crate) fn has_caught_up(&self, current: &Current) -> bool {
        self.replica.caught_up() == current.map.epoch
    }

    /// The epoch of the map in force; 0 without one.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch.load(Ordering::Acquire)
    }

    /// Waits for a map after one, but not for long.
    pub(crate) async fn next_map(&self, epoch: Epoch, patience: Duration) {
        let mut epochs = self.epochs.subscribe();
        let _ = tokio::time::timeout(patience, epochs.wait_for(|now| *now > epoch)).await;
    }

    /// Refused if the map takes this node for a host of another shard than it was started for: it has not what others
    /// expect it to have.
    pub(crate) fn check_shard(&self, current: &Current) -> Result<(), Trouble> {
        let Some(shard) = current.taken_for else { return Ok(()) };
        Err(misplaced(self.address(), shard, self.this()))
    }

    /// This node's shard; 0 if it has none.
    pub(crate) fn this(&self) -> ShardNo {
        self.node.as_ref().map_or(ShardNo(0), |node| node.this)
    }

    /// How others reach this node.
    pub(crate) fn address(&self) -> &str {
        self.node.as_ref().map_or("", |node| &node.address)
    }

    pub(crate) fn peers(&self) -> Result<&Peers, Trouble> {
        let node = self.node.as_ref().ok_or_else(not_a_node)?;
        Ok(&node.peers)
    }

    /// The epoch of the node that sent a request; none if it does not come from a node. Over PostgreSQL nobody else's
    /// request still has that header, see [`dispatch::answer`].
    pub(crate) fn peer_epoch(&self, headers: &HeaderMap) -> Result<Option<Epoch>, Trouble> {
        if self.membership().is_some() {
            return Ok(dispatch::answer_epoch(headers));
        }
        let Some(given) = headers.get(PEER) else { return Ok(None) };
        let known = self.node.as_ref().is_some_and(|node| same(given.as_bytes(), node.secret.as_bytes()));
        if !known {
            let message = "the request says it comes from a node of this cluster, but does not prove it; give all \
                           nodes the same --cluster-key";
            return Err(Trouble::new(Code::NotAPeer, message));
        }
        let epoch = headers.get(EPOCH).and_then(|epoch| epoch.to_str().ok()?.parse().ok());
        epoch.map(Some).ok_or_else(|| Trouble::new(Code::BadQuery, "a node says which epoch it is in"))
    }

    /// Goes by a newer map from now on. Answers when that is durable, and everything that was decided before it. What
    /// comes of a map comes of it also if whoever brought it does not wait for the answer.
    pub(crate) fn adopt(
        &self,
        shared: &Arc<Shared>,
        map: ShardMap,
    ) -> BoxFuture<'static, Result<Arc<Current>, Trouble>> {
        let shared = Arc::clone(shared);
        Box::pin(async move {
            let adopting = tokio::spawn(async move { shared.cluster.adopt_to_the_end(&shared, map).await });
            adopting.await.unwrap_or_else(|error| {
                tracing::error!(%error, "adopt a shard map");
                Err(Trouble::storage_failed())
            })
        })
    }

    async fn adopt_to_the_end(&self, shared: &Arc<Shared>, map: ShardMap) -> Result<Arc<Current>, Trouble> {
        let node = self.node.as_ref().ok_or_else(not_a_node)?;
        map.validate().map_err(|error| Trouble::new(Code::BadMap, error.to_string()))?;
        let is_owner = node.current(map.clone()).is_owner;
        if is_owner && self.membership().is_none() {
            replica::take_over(shared, &map).await?;
        }
        let call = put_map(&map)?;
        // A map may be brought by several at once; what has been released since must not be put back.
        let turn = self.switching.lock().await;
        let is_new = self.epoch() < map.epoch && self.current().is_none_or(|current| !current.is_owner);
        if is_owner && is_new && self.idle_leases.load(Ordering::Acquire) {
            // Before anybody can take what somebody has.
            lease::moving::take_over(shared).await?;
            self.idle_leases.store(false, Ordering::Release);
        }
        let switched = self.switch(shared, node, map, &call)?;
        drop(turn);
        let Some((pending, current)) = switched else {
            // Whoever adopted it may still wait for the disk.
            shared.shard.shown(shared.shard.last_index()).await?;
            return self.current().ok_or_else(no_map);
        };
        shared.shard.settle_write(&call, pending).await?;
        tracing::info!(epoch = current.map.epoch, phase = ?current.map.phase, "the shard map changed");
        self.follow_up(shared, &current);
        Ok(current)
    }

    /// Puts a map in force while nobody decides; none if one that is as new is in force.
    fn switch(
        &self,
        shared: &Shared,
        node: &Node,
        map: ShardMap,
        call: &Call,
    ) -> Result<Option<Switched>, Trouble> {
        let mut fence = self.fence.write();
        if let Some(current) = fence.as_ref().filter(|current| current.map.epoch == map.epoch)
            && current.map != map
        {
            let message = format!("there is another map with epoch {}; ask for that one first", map.epoch);
            return Err(Trouble::new(Code::BadMap, message));
        }
        if fence.as_ref().is_some_and(|current| current.map.epoch >= map.epoch) {
            return Ok(None);
        }
        let pending = shared.shard.decide_write(SYSTEM, call, &NoRules, shared.clock.now())?;
        let current = Arc::new(node.current(map));
        self.epoch.store(current.map.epoch, Ordering::Release);
        *fence = Some(Arc::clone(&current));
        drop(fence);
        self.epochs.send_replace(current.map.epoch);
        Ok(Some((pending, current)))
    }

    /// What comes of a map that is in force now.
    pub(crate) fn follow_up(&self, shared: &Arc<Shared>, current: &Arc<Current>) {
        for namespace in shared.registry.all() {
            namespace.map_changed(shared, current);
        }
        if self.membership().is_none() {
            lease::moving::follow(shared, current);
            if !current.is_owner {
                self.seats.clear();
            }
        }
        if current.map.phase == Phase::Steady {
            tokio::spawn(unmark(Arc::clone(shared), current.map.epoch));
        }
        tokio::spawn(sweep::sweep(Arc::clone(shared), Arc::clone(current)));
        if self.is_untold(current) {
            tokio::spawn(catch_up(Arc::clone(shared), Arc::clone(current)));
        }
    }

    /// Whether keys wait for the next map, and nobody tells this node of it: the keeper tells those that a map names.
    /// By any other map it hears of the next one from whom it asks.
    fn is_untold(&self, current: &Current) -> bool {
        current.map.phase == Phase::Preparing
            && current.map.addresses().all(|address| address != self.address())
    }

    /// Makes sure that this node may decide about some keys: it is their owner, and it knows what became of them.
    pub(crate) async fn admit<'a>(
        &self,
        shared: &Arc<Shared>,
        namespace: &str,
        keys: impl Iterator<Item = &'a DocumentKey> + Clone,
    ) -> Result<Admitted, Trouble> {
        if !self.has_spread(namespace).await? {
            return Ok(Admitted(None));
        }
        let current = self.current().ok_or_else(no_map)?;
        pull::ensure_known(shared, &current, namespace, keys).await?;
        Ok(Admitted(Some(current.map.epoch)))
    }

    /// Makes sure that this node may decide about what every shard has: it is the owner of shard 1, or alone. Gives
    /// the map whose other shards are to be told.
    pub(crate) async fn admit_everywhere(
        &self,
        namespace: &str,
    ) -> Result<(Admitted, Option<Arc<Current>>), Trouble> {
        if self.membership().is_some() && !self.has_spread(namespace).await? {
            return Ok((Admitted(None), None));
        }
        let Some(current) = self.current() else {
            return if self.is_node() { Err(no_map()) } else { Ok((Admitted(None), None)) };
        };
        if self.this() != ShardNo(1) || !current.is_owner {
            return Err(Trouble::new(Code::WrongEpoch, "shard 1 decides about this; ask again"));
        }
        Ok((Admitted(Some(current.map.epoch)), Some(current)))
    }

    /// Whether the locks of a namespace are spread over shards.
    pub(crate) fn spreads(&self, namespace: &str) -> bool {
        self.is_node() && self.membership().is_none() && namespace != SYSTEM
    }

    /// Makes sure that this node may decide about locks: it serves every document they are in.
    pub(crate) fn admit_locks(&self, namespace: &str, resources: &[Resource]) -> Result<Admitted, Trouble> {
        if !self.spreads(namespace) {
            return Ok(Admitted(None));
        }
        let current = self.current().ok_or_else(no_map)?;
        locks::check_here(&current, self.this(), resources)?;
        Ok(Admitted(Some(current.map.epoch)))
    }

    /// That whatever is found may be decided about under the map in force.
    pub(crate) fn admit_now(&self, namespace: &str) -> Result<Admitted, Trouble> {
        match self.epoch() {
            _ if !self.spreads(namespace) => Ok(Admitted(None)),
            0 => Err(no_map()),
            epoch => Ok(Admitted(Some(epoch))),
        }
    }

    /// That locks on these resources are decided about here, by the map that whoever passes goes by.
    pub(crate) fn check_locks(&self, passage: &Passage<'_>, resources: &[Resource]) -> Result<(), Trouble> {
        if self.membership().is_some() {
            return Ok(());
        }
        let current = passage.fence.as_ref().and_then(|fence| fence.as_deref());
        current.map_or(Ok(()), |current| locks::check_here(current, self.this(), resources))
    }

    /// Goes through the fence, if the map is still the one the keys were admitted under.
    pub(crate) fn pass(&self, admitted: Admitted) -> Result<Passage<'_>, ShardError> {
        let Some(epoch) = admitted.0 else { return Ok(Passage { fence: None }) };
        let fence = self.fence.read();
        match fence.as_ref().is_some_and(|current| current.map.epoch == epoch) {
            true => Ok(Passage { fence: Some(fence) }),
            false => Err(ShardError::Elsewhere),
        }
    }
}

impl Node {
    fn of(config: &ClusterConfig, listen: &str) -> Node {
        let secret = secret_of(&config.key);
        Node {
            this: ShardNo(config.this),
            address: config.advertise.clone().unwrap_or_else(|| listen.to_owned()),
            peers: Peers::Nodes(peers::Pool::new(secret.clone())),
            secret,
        }
    }

    fn over(membership: &Arc<Membership>) -> Node {
        let (this, peers) = (membership.shard, Peers::Shards(Arc::clone(membership)));
        Node { this, address: address_of(this), secret: String::new(), peers }
    }

    fn current(&self, map: ShardMap) -> Current {
        let hosts = map.shards.get((self.this.0 as usize).wrapping_sub(1));
        let own = hosts.and_then(|hosts| hosts.iter().find(|host| host.address == self.address));
        let is_replica = own.is_some_and(|host| host.mode == HostMode::Ro);
        let taken_for = map.shard_numbers().find(|shard| {
            *shard != self.this && map.hosts(*shard).iter().any(|host| host.address == self.address)
        });
        let taken_for = taken_for.filter(|_| own.is_none());
        let is_owner = own.is_some() && !is_replica;
        Current { is_owner, is_replica, taken_for, scripts: Compiled::of(&map), map }
    }
}

/// That a node was not started for the shard that a map has it for.
fn misplaced(address: &str, shard: ShardNo, this: ShardNo) -> Trouble {
    let message = format!(
        "in the map {address} is a host of shard {shard}, but that node was started with --this {this}; start it with \
         --this {shard}, or correct the map"
    );
    Trouble::new(Code::WrongShard, message)
}

/// The key of session secrets: the same on every node, so that each can check what another gave.
pub(crate) fn session_key(key: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    mac.update(b"lockwood sessions 1");
    mac.finalize().into_bytes().into()
}

fn put_map(map: &ShardMap) -> Result<Call, Trouble> {
    let json = Json::read(&map.to_json().to_string(), 64)
        .map_err(|_| Trouble::new(Code::BadMap, "the map is too deep"))?;
    let action = Action::Put { fields: vec![("map".into(), json)], when: PutIf::Always };
    let request = Request { intents: vec![Intent { at: map_key(), action }], ..Request::default() };
    Ok(Call { requests: vec![request], ..Call::default() })
}

fn map_key() -> DocumentKey {
    let key: Key = MAP.1.parse().expect("it is a key");
    DocumentKey::new(MAP.0, key)
}

/// What nodes show each other; not the key itself, so that it is never sent.
fn secret_of(key: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    mac.update(b"lockwood peer 1");
    hex(&mac.finalize().into_bytes())
}

/// Compares without telling by its time how much is the same.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

pub(crate) fn not_a_node() -> Trouble {
    let message =
        "this server is not part of a cluster; start it with --cluster, or with --this and --cluster-key";
    Trouble::new(Code::NotSharded, message)
}

pub(crate) fn no_map() -> Trouble {
    let message = "this node has no shard map yet; give the cluster one with `lockwood shard config`";
    Trouble::new(Code::NoMap, message)
}

/// Gives a map to every node that it names, this one included.
pub(crate) async fn publish(shared: &Arc<Shared>, map: &ShardMap) -> Result<(), Trouble> {
    shared.cluster.record(map).await?;
    for address in map.addresses() {
        give_map(shared, address, map).await?;
    }
    Ok(())
}

/// Gives a map to a node, which may be this one.
async fn give_map(shared: &Arc<Shared>, address: &str, map: &ShardMap) -> Result<(), Trouble> {
    if address == shared.cluster.address() {
        return shared.cluster.adopt(shared, map.clone()).await.map(drop);
    }
    let message = Message::post("/internal/map", map.to_json().to_string());
    let answer = shared.cluster.peers()?.ask(address, map.epoch, &message).await;
    let answer = answer.map_err(|error| Trouble::new(Code::ShardUnreachable, error.to_string()))?;
    match answer.status().is_success() {
        true => Ok(()),
        false => {
            let why = String::from_utf8_lossy(answer.body()).into_owned();
            Err(Trouble::new(Code::ShardUnreachable, format!("{address} refused the map: {why}")))
        }
    }
}

impl Cluster {
    /// Goes by the latest map on record in the database, if there is one.
    pub(crate) async fn fetch(&self, shared: &Arc<Shared>) -> Result<(), Trouble> {
        let Some(Membership { node, .. }) = self.membership() else { return Ok(()) };
        if let Some(map) = latest(node).await?
            && map.epoch > self.epoch()
        {
            self.adopt(shared, map).await?;
        }
        Ok(())
    }

    /// Puts a map on record that is about to be published. Refused if that is not for this node to do: another one owns
    /// shard 1 by now, or has put a newer map on record.
    pub(crate) async fn record(&self, map: &ShardMap) -> Result<(), Trouble> {
        let Some(membership) = self.membership() else { return Ok(()) };
        let (node, shard, epoch) = (&membership.node, &membership.shard, &membership.epoch);
        if self.recorded.load(Ordering::Acquire) >= map.epoch {
            return Ok(());
        }
        let bytes = map.to_json().to_string().into_bytes();
        let added = node.database.add_map(map.epoch, &bytes, (*shard, *epoch)).await;
        if !added.map_err(|error| unrecorded(&error.to_string()))?
            && latest(node).await?.as_ref() != Some(map)
        {
            return Err(unrecorded("another node drives this by now"));
        }
        self.recorded.fetch_max(map.epoch, Ordering::AcqRel);
        Ok(())
    }
}

async fn latest(node: &ClusterNode) -> Result<Option<ShardMap>, Trouble> {
    let found = node.database.map().await.map_err(|error| unrecorded(&error.to_string()))?;
    let read = |bytes: &[u8]| ShardMap::from_json(&serde_json::from_slice(bytes).ok()?).ok();
    let damaged = || unrecorded("it is not a map");
    found.map(|(_, bytes)| read(&bytes).ok_or_else(damaged)).transpose()
}

fn unrecorded(why: &str) -> Trouble {
    Trouble::new(Code::ShardUnreachable, format!("the shard map in the database: {why}"))
}

/// Asks other nodes for the map, until there is one.
pub(crate) async fn join(shared: Arc<Shared>) {
    let nodes = shared.config.cluster.as_ref().map(|config| config.join.clone()).unwrap_or_default();
    while shared.cluster.current().is_none() && !nodes.is_empty() {
        for node in &nodes {
            if let Err(why) = learn(&shared, node).await {
                tracing::warn!(node, why, "ask for the shard map");
            }
        }
        tokio::time::sleep(JOIN_INTERVAL).await;
    }
}

/// Asks the nodes of a map by which keys wait how it goes on.
async fn catch_up(shared: Arc<Shared>, current: Arc<Current>) {
    let is_in_force = || shared.cluster.current().is_some_and(|now| now.map.epoch == current.map.epoch);
    while is_in_force() {
        for node in current.map.addresses() {
            match learn(&shared, node).await {
                Ok(()) => break,
                Err(why) => tracing::warn!(node, why, "ask for the next shard map"),
            }
        }
        tokio::time::sleep(CATCH_UP_INTERVAL).await;
    }
}

/// Asks another node for the map, and goes by it if it is newer.
pub(crate) async fn learn(shared: &Arc<Shared>, node: &str) -> Result<(), String> {
    let peers = shared.cluster.peers().map_err(|trouble| trouble.message)?;
    let question = Message { method: hyper::Method::GET, ..Message::post("/internal/map", "") };
    let answer = peers.ask(node, 0, &question).await.map_err(|error| error.to_string())?;
    let map: serde_json::Value = serde_json::from_slice(answer.body()).map_err(|error| error.to_string())?;
    if !answer.status().is_success() || map.is_null() {
        return Err(format!("it gave none: {map}"));
    }
    let map = ShardMap::from_json(&map).map_err(|error| error.to_string())?;
    shared.cluster.adopt(shared, map).await.map(drop).map_err(|trouble| trouble.message)
}

/// When a transition is over it does not matter any more what became known in it.
async fn unmark(shared: Arc<Shared>, epoch: Epoch) {
    let namespaces = shared.shard.read().state().namespaces().unwrap_or_default();
    for (namespace, _) in namespaces {
        let mut after = None;
        loop {
            if shared.cluster.epoch() != epoch {
                return;
            }
            match shared.shard.unmark(&namespace, epoch, after.as_ref()).await {
                Ok(Some(last)) => after = Some(last),
                Ok(None) => break,
                Err(error) => return tracing::warn!(?error, "forget what became known in a transition"),
            }
        }
    }
}
