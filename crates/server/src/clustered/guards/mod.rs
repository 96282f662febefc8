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
mod member;
mod message;
mod outbox;
mod parting;
mod post;
mod queue;

pub(crate) use admittance::admit;
pub(crate) use definitions::{confirmed, defined};
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
use queue::Turns;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

/// What the addresses of all calls begin with.
pub(super) const PATHS: &str = "/guards/";
/// How long to wait before shards are asked again.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The part of a runtime in its cluster: which shard it serves, and through which node it reaches the others.
pub(crate) struct Membership {
    pub(crate) node: Arc<ClusterNode>,
    pub(crate) shard: ShardNo,
    /// The epoch of this tenure.
    pub(crate) epoch: ShardEpoch,
    /// The owners of all shards, read after the claim of this tenure.
    rows: Vec<ShardRow>,
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
        rows: Vec<ShardRow>,
    ) -> Arc<Membership> {
        Arc::new(Membership {
            node: Arc::clone(node),
            shard,
            epoch,
            rows,
            members: Members::default(),
            turns: Turns::default(),
            outbox: Outbox::new(),
            catch_ups: CatchUps::new(),
            attempts: AtomicU64::new(1),
        })
    }

    /// Where a namespace is, as this shard sees it.
    pub(crate) fn placement(&self, placed: Placed) -> Placement {
        match (placed.is_spread, placed.home == self.shard) {
            (false, true) => Placement::Here,
            (false, false) => Placement::Elsewhere,
            (true, true) => Placement::Home,
            (true, false) => Placement::Member(placed.home),
        }
    }

    /// Whether a namespace was ever used, as far as that was asked before.
    pub(crate) fn knows(&self, namespace: &str) -> bool {
        self.node.homes.remembered(namespace).is_some()
    }

    /// The home of a namespace that this tenure uses for the first time. In grace, until sessions had their time and all shards
    /// have been heard.
    pub(crate) fn take_over(&self, map: MapEpoch) -> Home {
        Home::takeover(HomeEpoch(self.epoch.0), map, self.owners_elsewhere())
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
        let mut changes = self.node.topology.subscribe();
        let mut known: BTreeMap<ShardNo, ShardEpoch> = BTreeMap::new();
        loop {
            for row in &self.node.topology.view().shards {
                if row.shard != self.shard && known.insert(row.shard, row.epoch) != Some(row.epoch) {
                    self.turns.owner_changed(row.shard, row.epoch);
                    self.home_changed(row.shard, row.epoch);
                    for namespace in shared.registry.all() {
                        namespace.owner_changed(shared, row.shard, row.epoch);
                    }
                }
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}
