//! What every connection of a server shares. Knows nothing of protocols.

use crate::{
    authority::Authority,
    clock::Clock,
    cluster::{Cluster, SYSTEM},
    clustered::{Membership, Use, only_natively},
    config::Config,
    feeds::Feeds,
    front::Front,
    grace::Grace,
    memory::Account,
    metrics::{Gauges, Metrics, Process},
    numbers::Numbers,
    purge::Purges,
    registry::Registry,
    schemas::Schemas,
    secret::Secrets,
    shard::Shard,
    trouble::Trouble,
    work::Work,
};
use lockwood_model::{OwnerId, Timestamp};
use lockwood_router::ShardNo;
use lockwood_storage::Ledger;
use lockwood_wire::Interface;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// How many queues `/metrics` names.
const QUEUES_LEN_MAX: usize = 100;

pub(crate) struct Shared {
    pub(crate) config: Config,
    /// Where each interface listens, the native one first.
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) started_at: Timestamp,
    pub(crate) clock: Clock,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) shard: Arc<Shard>,
    pub(crate) authority: Arc<Authority>,
    /// Its part in a cluster over PostgreSQL; none if everything is here.
    pub(crate) membership: Option<Arc<Membership>>,
    pub(crate) cluster: Cluster,
    pub(crate) numbers: Arc<Numbers>,
    pub(crate) grace: Arc<Grace>,
    pub(crate) secrets: Secrets,
    pub(crate) registry: Registry,
    pub(crate) schemas: Schemas,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) memory: Arc<Account>,
    pub(crate) feeds: Feeds,
    pub(crate) work: Work,
    pub(crate) front: Arc<Front>,
    pub(crate) sessions: AtomicU64,
    pub(crate) draining: AtomicBool,
    pub(crate) owners: AtomicU64,
    /// How many backups are being taken.
    pub(crate) backups: AtomicU64,
    pub(crate) purges: Purges,
}

impl Shared {
    pub(crate) fn next_owner(&self) -> OwnerId {
        OwnerId(self.owners.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes room for a session.
    pub(crate) fn admit(self: &Arc<Shared>, abandon_timeout_ms: u64) -> Result<Stay, Trouble> {
        let limit = self.config.limits.sessions_max;
        // Counted first, so that it is counted out again however this ends.
        let before = self.sessions.fetch_add(1, Ordering::AcqRel);
        let stay = Stay { shared: Arc::clone(self), abandon_timeout_ms };
        match before >= limit {
            true => Err(Trouble::too_many("sessions_max", limit, "there are too many sessions")),
            false => Ok(stay),
        }
    }

    /// That a namespace is on this shard. An address leads to the right one; what a body names may be elsewhere.
    pub(crate) async fn check_home(&self, namespace: &str, wanted: Use) -> Result<(), Trouble> {
        match &self.membership {
            // That one is on every shard.
            Some(membership) if namespace != SYSTEM => {
                membership.node.homes.check(namespace, membership.shard, wanted).await
            }
            _ => Ok(()),
        }
    }

    /// Makes sure that it is known here where a namespace is: that decides how its locks are enforced.
    pub(crate) async fn locate(&self, namespace: &str) -> Result<(), Trouble> {
        match &self.membership {
            Some(membership) if namespace != SYSTEM => membership.node.homes.find(namespace).await.map(drop),
            _ => Ok(()),
        }
    }

    /// The home of a namespace, if its documents are on several shards and another one is its home.
    pub(crate) async fn remote_home(&self, namespace: &str) -> Result<Option<ShardNo>, Trouble> {
        match &self.membership {
            Some(membership) if namespace != SYSTEM => membership.remote_home(namespace).await,
            _ => Ok(None),
        }
    }

    /// The same for an interface that knows nothing of shards: all documents must be here.
    pub(crate) async fn check_whole(&self, namespace: &str, wanted: Use) -> Result<(), Trouble> {
        self.check_home(namespace, wanted).await?;
        match self.cluster.has_spread(namespace).await? {
            true => Err(only_natively(namespace)),
            false => Ok(()),
        }
    }

    /// The disk failed.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.ledger.is_poisoned() || self.shard.is_poisoned()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Where the namespaces with documents stand; the first few.
    fn positions(&self) -> Vec<(String, u64)> {
        let reading = self.shard.read();
        let state = reading.state();
        let namespaces = state.namespaces().unwrap_or_default().into_iter().take(QUEUES_LEN_MAX);
        namespaces.map(|(name, id)| (name, state.position(id).unwrap_or_default().0)).collect()
    }

    pub(crate) fn gauges(&self) -> Gauges {
        let ready = self.grace.everywhere_left_ms() == 0 && !self.is_draining() && !self.is_poisoned();
        let connections = self.front.connections.load(Ordering::Relaxed);
        let counts = self.shard.counts();
        let mut gauges = Gauges {
            connections,
            ready,
            feeds: self.feeds.len(),
            held_bytes: self.memory.held(),
            held_refusals: self.memory.refusals(),
            writes: counts.commits.get(),
            events: counts.events.get(),
            position_refusals: counts.position_refusals.get(),
            batches: counts.batches.get(),
            positions: self.positions(),
            process: Process::read(&self.config.data),
            covers: self.grace.covers().into_iter().take(QUEUES_LEN_MAX).collect(),
            grace: self.grace.list().into_iter().take(QUEUES_LEN_MAX).collect(),
            ..Gauges::default()
        };
        for namespace in self.registry.all() {
            let (sessions, granted, waiting) = namespace.sizes();
            gauges.sessions_connected += namespace.connected_len();
            gauges.namespaces += 1;
            gauges.sessions += sessions as u64;
            gauges.locks_granted += granted as u64;
            gauges.leases += namespace.leases_len() as u64;
            gauges.locks_waiting += waiting as u64;
            gauges.queues.push((namespace.name.to_string(), waiting as u64));
        }
        gauges.queues.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        gauges.queues.truncate(QUEUES_LEN_MAX);
        gauges
    }
}

/// A session's right to be here: counted for as long as this lives.
pub(crate) struct Stay {
    shared: Arc<Shared>,
    pub(crate) abandon_timeout_ms: u64,
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.shared.sessions.fetch_sub(1, Ordering::AcqRel);
    }
}
