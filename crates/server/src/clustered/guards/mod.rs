//! Locks of a spread namespace: all are in the lock table at its home, and every shard that stores documents enforces them by
//! guards. Knows nothing of what operations do.
//!
//! ```text
//!  client ──lock──► home: decides ──guard──► covered shards: drain admitted operations ──ack──► home ──grant──► client
//!  writer ──write─► shard: conflicting guard?   no: execute   yes: queue at the home, as a lock of its own
//! ```
//!
//! Both sides are state machines in `router/src/guards/`, which says why that is safe.

mod admittance;
mod definitions;
mod handing;
mod member;
mod message;
mod outbox;
mod parting;
mod post;
mod queue;

pub(crate) use admittance::admit;
pub(crate) use definitions::{confirmed, defined};
pub(crate) use handing::give_away;
pub(super) use handing::is_served;
pub(super) use parting::{collecting, is_from};
pub(crate) use parting::{telling, told_so_far};
pub(super) use queue::answer;

use super::ClusterNode;
use crate::shared::Shared;
use definitions::CatchUps;
use lockwood_cluster::Placed;
use lockwood_node::territory::Placement;
use lockwood_router::{
    ShardEpoch, ShardNo, ShardRow,
    guards::{Home, HomeEpoch, MapEpoch},
};
use member::Members;
use outbox::Outbox;
use parking_lot::Mutex;
use queue::Turns;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

/// What the addresses of all calls begin with.
pub(super) const PATHS: &str = "/guards/";
/// How long to wait before shards are asked again.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How long to wait before a home that was to leave, and could not, is given away again.
const LEAVE_INTERVAL: Duration = Duration::from_secs(10);
const LEAVE_STEP: Duration = Duration::from_millis(700);

/// The part of a runtime in its cluster: which shard it serves, and through which node it reaches the others.
pub(crate) struct Membership {
    pub(crate) node: Arc<ClusterNode>,
    pub(crate) shard: ShardNo,
    /// The epoch of this tenure.
    pub(crate) epoch: ShardEpoch,
    /// The owners of all shards, read after the claim of this tenure.
    rows: Vec<ShardRow>,
    /// How many changes of homes there were, read after the claim of this tenure. A home that comes here later is that of the next
    /// tenure.
    changes: u64,
    /// When this tenure has failed to give a home away, if it has.
    kept_home: Mutex<Option<Instant>>,
    /// One home is taken in at a time.
    taking_in: tokio::sync::Mutex<()>,
    /// Namespaces whose documents are here, and whose home is another shard.
    members: Members,
    /// Locks of operations at other shards, by those that hold them.
    turns: Turns,
    outbox: Outbox,
    /// Memberships that do not know yet what is registered.
    catch_ups: CatchUps,
    /// Numbers the operations here.
    attempts: AtomicU64,
}

impl Membership {
    pub(crate) fn new(
        node: &Arc<ClusterNode>,
        (shard, epoch): (ShardNo, ShardEpoch),
        (rows, changes): (Vec<ShardRow>, u64),
    ) -> Arc<Membership> {
        Arc::new(Membership {
            node: Arc::clone(node),
            shard,
            epoch,
            rows,
            changes,
            kept_home: Mutex::default(),
            taking_in: tokio::sync::Mutex::default(),
            members: Members::default(),
            turns: Turns::default(),
            outbox: Outbox::new(),
            catch_ups: CatchUps::new(),
            attempts: AtomicU64::new(1),
        })
    }

    /// Where a namespace is, as this shard sees it. None if its home has come here since this tenure began: the next one is the
    /// home.
    ///
    /// *Invariant:* no tenure becomes the home or ceases to be it. Only an owner of this shard moves a home away, before it serves;
    /// and one that comes here is that of the next owner, who hears all shards first.
    pub(crate) fn placement(&self, placed: Placed) -> Option<Placement> {
        match (placed.is_spread, placed.home == self.shard) {
            (false, true) => Some(Placement::Here),
            (false, false) => Some(Placement::Elsewhere),
            (true, true) => (placed.moved <= self.changes).then_some(Placement::Home),
            (true, false) => Some(Placement::Member(placed.home)),
        }
    }

    /// Whether the locks of a namespace are decided here. One that is nowhere yet has no locks.
    pub(crate) async fn decides(&self, namespace: &str) -> bool {
        match self.node.homes.find(namespace).await {
            Ok(Some(placed)) => matches!(self.placement(placed), Some(Placement::Home | Placement::Here)),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// The epoch of a home at this shard.
    fn home_epoch(&self, namespace: &str) -> HomeEpoch {
        let moved = self.node.homes.remembered(namespace).map_or(0, |placed| placed.moved);
        HomeEpoch::new(moved, self.epoch)
    }

    /// Whether the next tenure is to begin, because homes have come here, or are to leave and `leaves` says so.
    pub(crate) fn has_to_reopen(&self, leaves: bool) -> bool {
        // Two shards that give each other a home must not be opened at the same time again and again.
        let interval = LEAVE_INTERVAL + LEAVE_STEP * (self.shard.0 % 16);
        let is_due = |at: Instant| at.elapsed() >= interval;
        self.node.homes.arrived_at(self.shard) > self.changes
            || leaves && self.kept_home.lock().is_none_or(is_due)
    }

    /// Whether a namespace was ever used, as far as that was asked before.
    pub(crate) fn knows(&self, namespace: &str) -> bool {
        self.node.homes.remembered(namespace).is_some()
    }

    /// The home of a namespace that this tenure uses for the first time. In grace, until sessions had their time and all shards
    /// have been heard.
    pub(crate) fn take_over(&self, namespace: &str, map: MapEpoch) -> Home {
        Home::takeover(self.home_epoch(namespace), map, self.owners_elsewhere())
    }

    /// The owners of the other shards, as far as PostgreSQL has named them since this tenure began.
    fn owners_elsewhere(&self) -> BTreeMap<ShardNo, ShardEpoch> {
        let mut owners: BTreeMap<ShardNo, ShardEpoch> = BTreeMap::new();
        let view = self.node.topology.view();
        let owned = self.rows.iter().chain(&view.shards).filter(|row| row.owner.is_some());
        for row in owned.filter(|row| row.shard != self.shard) {
            let epoch = owners.entry(row.shard).or_default();
            *epoch = row.epoch.max(*epoch);
        }
        owners
    }

    /// What a member of the cluster does besides answering requests, for as long as the tenure.
    pub(crate) async fn attend(self: Arc<Membership>, shared: Arc<Shared>) {
        tokio::join!(self.deliver(&shared), self.watch_owners(&shared), self.catch_up(&shared));
    }

    /// The tenure is over. Locks of operations go, and with them what they keep in memory.
    pub(crate) fn end(&self) {
        self.turns.end();
    }

    /// Tells everything here of owners that PostgreSQL names.
    async fn watch_owners(&self, shared: &Arc<Shared>) {
        let (mut changes, mut homes) = (self.node.topology.subscribe(), self.node.homes.subscribe());
        let mut known: BTreeMap<ShardNo, ShardEpoch> = BTreeMap::new();
        loop {
            self.homes_moved();
            for row in &self.node.topology.view().shards {
                if row.shard != self.shard && known.insert(row.shard, row.epoch) != Some(row.epoch) {
                    self.turns.owner_changed(row.shard, row.epoch);
                    self.home_changed(row.shard, row.epoch);
                    for namespace in shared.registry.all() {
                        namespace.owner_changed(shared, row.shard, row.epoch);
                    }
                }
            }
            let changed = tokio::select! {
                changed = changes.changed() => changed,
                changed = homes.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
        }
    }
}
