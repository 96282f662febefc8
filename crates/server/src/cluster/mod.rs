//! A shard's part in a cluster: the shard map it goes by, which shard serves which key, and the fence that keeps what was
//! decided under one map apart from what is decided under the next. Knows nothing of HTTP routes, nor of which nodes own
//! the shards.
//!
//! ```text
//!   request ──► route (by the map) ──► here: admit ──► decide, under the fence ──► as without a cluster
//!                  │                        │ key not known here yet
//!                  ▼                        ▼
//!              another shard           pull it from its donor, install, go on
//! ```
//!
//! The map changes only while nobody decides. So every write is before or after the change in the log, and
//! nothing is ever written by a shard that had already agreed not to.

pub(crate) mod definitions;
pub(crate) mod dispatch;
pub(crate) mod driver;
pub(crate) mod handover;
pub(crate) mod leaving;
mod neighbours;
mod pace;
mod peers;
mod pull;
pub(crate) mod received;
pub(crate) mod scripts;
pub(crate) mod survey;
mod sweep;
pub(crate) mod transfer;
pub(crate) mod work;

use crate::{
    clustered::{ClusterNode, Membership},
    shared::Shared,
};
use futures_util::future::BoxFuture;
use hyper::HeaderMap;
use lockwood_engine::{Action, Intent, NoRules, PutIf, Request};
use lockwood_model::{DocumentKey, Json, Key, Resource};
use lockwood_node::{
    shard::{Call, Pending, Written},
    territory::{Passage, SYSTEM},
    trouble::Trouble,
};
use lockwood_router::{Epoch, Phase, Route, ShardMap, ShardNo, guards::MapEpoch};
use lockwood_storage::StoreError;
use lockwood_wire::Code;
use parking_lot::{RwLock, RwLockReadGuard};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

use dispatch::spread::{HoldTable, LoadTable};
pub(crate) use dispatch::spread::{NOWHERE, custody};
use scripts::Compiled;

pub(crate) use dispatch::spans;
pub(crate) use neighbours::Neighbours;
pub(crate) use peers::{EPOCH, Message, address_of, shard_at};

/// How often a shard that is not told of new maps asks for the one after a map by which keys wait.
const CATCH_UP_INTERVAL: Duration = Duration::from_millis(20);
/// Where the map is in it.
const MAP: (&str, &str) = ("shards", "map");

/// A shard's part in a cluster, if it has one.
pub(crate) struct Cluster {
    membership: Option<Arc<Membership>>,
    /// Read by whoever decides, written by whoever changes the map.
    fence: RwLock<Option<Arc<Current>>>,
    /// The epoch of the map, for those who cannot go through the fence; 0 without one. Written with the map.
    epoch: AtomicU64,
    /// The same, for those who wait for the next one.
    epochs: watch::Sender<Epoch>,
    pub(crate) load: pace::Load,
    pub(crate) work: work::Work,
    pub(crate) driver: driver::Driver,
    /// Locks that operations on several shards have here.
    pub(crate) holds: HoldTable,
    /// Parts of dumps that are being loaded.
    pub(crate) loads: LoadTable,
    /// The last transition of which no old copies are here any more.
    swept: AtomicU64,
    /// The epoch of the last map that was put on record from here.
    recorded: AtomicU64,
}

/// The map as this shard goes by it.
pub(crate) struct Current {
    pub(crate) map: ShardMap,
    /// Whether the map has this shard.
    pub(crate) is_owner: bool,
    scripts: Compiled,
}

impl Current {
    fn of(map: ShardMap, this: ShardNo) -> Current {
        let is_owner = map.shard_numbers().any(|shard| shard == this);
        Current { is_owner, scripts: Compiled::of(&map), map }
    }

    /// The same for those who have no shard of it.
    pub(crate) fn unserved(map: ShardMap) -> Current {
        Current { is_owner: false, scripts: Compiled::of(&map), map }
    }

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

/// A map that was put in force, and the record of it.
type Switched = (Pending<Written>, Arc<Current>);

impl Cluster {
    pub(crate) fn new(membership: Option<&Arc<Membership>>) -> Cluster {
        Cluster {
            membership: membership.cloned(),
            fence: RwLock::new(None),
            epoch: AtomicU64::new(0),
            epochs: watch::Sender::new(0),
            load: pace::Load::new(),
            work: work::Work::default(),
            driver: driver::Driver::default(),
            holds: HoldTable::default(),
            loads: LoadTable::default(),
            swept: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
        }
    }

    /// Takes up the map that was in force when the server stopped.
    pub(crate) fn restore(&self, shared: &Shared) -> Result<(), StoreError> {
        if !self.is_node() {
            return Ok(());
        }
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
        *self.fence.write() = Some(Arc::new(Current::of(map, self.this())));
        Ok(())
    }

    /// Whether this is a node of a cluster, with a map or without.
    pub(crate) fn is_node(&self) -> bool {
        self.membership.is_some()
    }

    /// Its part in a cluster.
    pub(crate) fn membership(&self) -> Option<&Arc<Membership>> {
        self.membership.as_ref()
    }

    /// Whether keys are on several shards: since there is a map, for namespaces that began afterwards, see
    /// [`Cluster::has_spread_now`].
    pub(crate) fn is_on(&self) -> bool {
        self.is_node() && self.epoch() > 0
    }

    /// Whether the documents of a namespace are on the shards of the map, from where waiting is in order, though it seldom takes any: what was asked for once is remembered.
    pub(crate) fn has_spread_now(&self, namespace: &str) -> Result<bool, Trouble> {
        let Some(membership) = self.membership() else { return Ok(false) };
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

    /// The epoch of the map in force; 0 without one.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch.load(Ordering::Acquire)
    }

    /// Waits for a map after one, but not for long.
    pub(crate) async fn next_map(&self, epoch: Epoch, patience: Duration) {
        let mut epochs = self.epochs.subscribe();
        let _ = tokio::time::timeout(patience, epochs.wait_for(|now| *now > epoch)).await;
    }

    /// Which shard this is; 0 on a server that is no node of a cluster.
    pub(crate) fn this(&self) -> ShardNo {
        self.membership.as_ref().map_or(ShardNo(0), |membership| membership.shard)
    }

    /// The epoch of the shard that sent a request; none if it does not come from a shard. No other request still has
    /// that header, see [`dispatch::answer`].
    pub(crate) fn peer_epoch(&self, headers: &HeaderMap) -> Option<Epoch> {
        self.membership.as_ref().and_then(|_| dispatch::answer_epoch(headers))
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
        if !self.is_node() {
            return Err(not_a_node());
        }
        map.validate().map_err(|error| Trouble::new(Code::BadMap, error.to_string()))?;
        let call = put_map(&map)?;
        let Some((pending, current)) = self.switch(shared, map, &call)? else {
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
    fn switch(&self, shared: &Shared, map: ShardMap, call: &Call) -> Result<Option<Switched>, Trouble> {
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
        let current = Arc::new(Current::of(map, self.this()));
        self.epoch.store(current.map.epoch, Ordering::Release);
        *fence = Some(Arc::clone(&current));
        drop(fence);
        self.epochs.send_replace(current.map.epoch);
        Ok(Some((pending, current)))
    }

    /// What comes of a map that is in force now.
    pub(crate) fn follow_up(&self, shared: &Arc<Shared>, current: &Arc<Current>) {
        for namespace in shared.registry.all() {
            let covered = |resources: &[Resource]| neighbours::covered(Some(current), resources);
            namespace.map_changed(shared, MapEpoch(current.map.epoch), &covered);
        }
        if current.map.phase == Phase::Steady {
            tokio::spawn(unmark(Arc::clone(shared), current.map.epoch));
        }
        tokio::spawn(sweep::sweep(Arc::clone(shared), Arc::clone(current)));
        if self.is_untold(current) {
            tokio::spawn(catch_up(Arc::clone(shared), Arc::clone(current)));
        }
    }

    /// Whether keys wait for the next map, and this shard is not told of it: the driver tells those that a map has.
    /// By any other map it hears of the next one from whom it asks.
    fn is_untold(&self, current: &Current) -> bool {
        current.map.phase == Phase::Preparing && !current.is_owner
    }

    /// Goes through the fence, if the map still has this epoch.
    fn pass(&self, epoch: Epoch) -> Option<Passage<'_>> {
        let fence = self.fence.read();
        let is_same = fence.as_ref().is_some_and(|current| current.map.epoch == epoch);
        is_same.then(|| Passage::through(RwLockReadGuard::map(fence, |_| &())))
    }
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

pub(crate) fn not_a_node() -> Trouble {
    let message = "this server is not part of a cluster; start it with --cluster";
    Trouble::new(Code::NotSharded, message)
}

pub(crate) fn no_map() -> Trouble {
    let message = "this node has no shard map yet; give the cluster one with `lockwood shard config`";
    Trouble::new(Code::NoMap, message)
}

/// Gives a map to every shard that it names, this one included.
async fn publish(shared: &Arc<Shared>, map: &ShardMap) -> Result<(), Trouble> {
    shared.cluster.record(map).await?;
    for shard in map.shard_numbers() {
        give_map(shared, shard, map).await?;
    }
    Ok(())
}

/// Gives a map to a shard, which may be this one.
async fn give_map(shared: &Arc<Shared>, shard: ShardNo, map: &ShardMap) -> Result<(), Trouble> {
    if shard == shared.cluster.this() {
        return shared.cluster.adopt(shared, map.clone()).await.map(drop);
    }
    let message = Message::post("/internal/map", map.to_json().to_string());
    let answer = shared.cluster.peers()?.ask(shard, map.epoch, &message).await;
    let answer = answer.map_err(|error| pull::unreachable_shard(shard, &error.to_string()))?;
    match answer.status().is_success() {
        true => Ok(()),
        false => {
            let why = String::from_utf8_lossy(answer.body()).into_owned();
            Err(Trouble::unreachable(shard, format!("shard {shard} refused the map: {why}")))
        }
    }
}

impl Cluster {
    /// Goes by the latest map on record in the database, if there is one.
    pub(crate) async fn fetch(&self, shared: &Arc<Shared>) -> Result<(), Trouble> {
        let Some(membership) = self.membership() else { return Ok(()) };
        let node = &membership.node;
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

/// Asks the shards of a map by which keys wait how it goes on.
async fn catch_up(shared: Arc<Shared>, current: Arc<Current>) {
    let is_in_force = || shared.cluster.current().is_some_and(|now| now.map.epoch == current.map.epoch);
    while is_in_force() {
        for shard in current.map.shard_numbers() {
            match learn(&shared, shard).await {
                Ok(()) => break,
                Err(why) => tracing::warn!(shard = shard.0, why, "ask for the next shard map"),
            }
        }
        tokio::time::sleep(CATCH_UP_INTERVAL).await;
    }
}

/// Asks another shard for the map, and goes by it if it is newer.
async fn learn(shared: &Arc<Shared>, shard: ShardNo) -> Result<(), String> {
    let peers = shared.cluster.peers().map_err(|trouble| trouble.message)?;
    let question = Message { method: hyper::Method::GET, ..Message::post("/internal/map", "") };
    let answer = peers.ask(shard, 0, &question).await.map_err(|error| error.to_string())?;
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
