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
mod home;
mod member;
mod message;
mod outbox;
mod parting;
mod post;
mod queue;

pub(crate) use admittance::Admittance;
pub(crate) use definitions::{confirmed, defined};
pub(crate) use home::{HomeGuards, News, lifted};
pub(super) use parting::{collecting, is_from};
pub(crate) use parting::{telling, told_so_far};
pub(super) use queue::answer;

use super::ClusterNode;
use crate::{shared::Shared, trouble::Trouble};
use definitions::CatchUps;
use futures_util::future::join_all;
use lockwood_cluster::Placed;
use lockwood_router::{ShardEpoch, ShardNo, ShardRow};
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

    /// The home of a spread namespace, if that is another shard.
    pub(crate) async fn remote_home(&self, namespace: &str) -> Result<Option<ShardNo>, Trouble> {
        Ok(self.node.homes.find(namespace).await?.and_then(|placed| self.elsewhere(placed)))
    }

    /// Whether a namespace was ever used, as far as that was asked before.
    pub(crate) fn knows(&self, namespace: &str) -> bool {
        self.node.homes.remembered(namespace).is_some()
    }

    /// Whether a namespace has a remote home, as far as that was asked before.
    pub(crate) fn knows_remote_home(&self, namespace: &str) -> bool {
        self.node.homes.remembered(namespace).and_then(|placed| self.elsewhere(placed)).is_some()
    }

    /// Whether this is the home of a spread namespace, as far as that was asked before.
    pub(crate) fn is_home(&self, namespace: &str) -> bool {
        let placed = self.node.homes.remembered(namespace);
        placed.is_some_and(|placed| placed.is_spread && placed.home == self.shard)
    }

    fn elsewhere(&self, placed: Placed) -> Option<ShardNo> {
        (placed.is_spread && placed.home != self.shard).then_some(placed.home)
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

/// Asks the shards what they are to a namespace whose home is here, until each has been heard and the home serves: a shard may
/// get another owner as long as sessions have time to come back.
pub(crate) async fn hear_all(shared: Arc<Shared>, name: Arc<str>) {
    let Some(membership) = &shared.membership else { return };
    let mut pause = PAUSE;
    loop {
        let Some(namespace) = shared.registry.get(&name).filter(|namespace| !namespace.is_serving()) else {
            return;
        };
        let unheard = namespace.unheard();
        let asked = unheard.iter().map(|(shard, _)| membership.ask_to_hear(&name, *shard));
        for message in join_all(asked).await.into_iter().flatten() {
            namespace.receive(&shared, &message);
        }
        drop(namespace);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
