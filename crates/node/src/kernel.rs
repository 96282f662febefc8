//! What everything that serves one shard in this process shares: its log, its locks, its time. Knows nothing of protocols,
//! nor of other shards but what its territory says.

use crate::{
    authority::Authority,
    clock::Clock,
    feeds::Feeds,
    grace::Grace,
    limits::Limits,
    metrics::{Gauges, Metrics, Process},
    numbers::Numbers,
    procedures::Procedures,
    purge::Purges,
    registry::Registry,
    schemas::Schemas,
    secret::{Secrets, random},
    shard::{Shard, ShardError, ShardLimits},
    territory::{Admitted, Passage, Placement, SYSTEM, Territory, Use, only_natively},
    trouble::Trouble,
    work::Work,
};
use lockwood_model::{DocumentKey, OwnerId};
use lockwood_router::ShardNo;
use lockwood_storage::{Ledger, OpenError, Recovered, Store, StoreError};
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// How many queues `/metrics` names.
const QUEUES_LEN_MAX: usize = 100;

/// What a kernel is told at its start.
#[derive(Debug, Clone)]
pub struct KernelConfig {
    /// Where the directory with everything that must survive is.
    pub data: PathBuf,
    /// How many milliseconds a document operation waits for others' locks, unless it says.
    pub wait_ms: u64,
    /// What is too much.
    pub limits: Limits,
}

/// What a kernel is made of, besides its store.
pub struct KernelParts {
    /// What it is told.
    pub config: KernelConfig,
    /// Whether it may speak for its shard.
    pub authority: Arc<Authority>,
    /// Of all shards in this process.
    pub metrics: Arc<Metrics>,
    /// No other client is kept waiting by the thread that serves one.
    pub has_one_caller: Arc<AtomicBool>,
    /// The other shards of its cluster; none if everything is here.
    pub territory: Option<Arc<dyn Territory>>,
    /// The key that all shards of its cluster make the secrets of sessions with, so that these hold wherever a namespace has its
    /// home; otherwise the log has one.
    pub session_key: Option<[u8; 32]>,
}

/// Why a kernel is not opened.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store cannot be written.
    #[error(transparent)]
    Write(#[from] StoreError),
}

/// Everything in memory that belongs to the log of one shard: its documents, lock tables, sessions, leases and schemas.
pub struct Kernel {
    /// What it was told at its start.
    pub config: KernelConfig,
    /// The one clock that locks and leases are timed by.
    pub clock: Clock,
    /// What is on record of numbers, grace periods and operators.
    pub ledger: Arc<Ledger>,
    /// The log, and the state folded from it.
    pub shard: Arc<Shard>,
    /// Whether this process may speak for the shard right now.
    pub authority: Arc<Authority>,
    /// The other shards; none on a single server.
    pub territory: Option<Arc<dyn Territory>>,
    /// Keeps lock ids and tokens from being given out twice.
    pub numbers: Arc<Numbers>,
    /// The grace periods after an unclean stop.
    pub grace: Arc<Grace>,
    /// The secrets of sessions.
    pub secrets: Secrets,
    /// The namespaces in use.
    pub registry: Registry,
    /// The registries of schemas that were asked for.
    pub schemas: Schemas,
    /// What is counted as it happens.
    pub metrics: Arc<Metrics>,
    /// The change feeds that are open.
    pub feeds: Feeds,
    /// What all long work shares.
    pub work: Work,
    /// Compiled procedures.
    pub procedures: Procedures,
    /// How many sessions there are, those that are away included.
    pub sessions: AtomicU64,
    /// Whether it takes no new locks because it is about to stop.
    pub draining: AtomicBool,
    /// The number of the next owner of locks.
    pub owners: AtomicU64,
    /// The purges under way.
    pub purges: Purges,
}

impl Kernel {
    /// Opens a store and takes up what is on record there. Nothing runs yet, and no lease is in force.
    pub async fn open(
        parts: KernelParts,
        store: impl FnOnce() -> Result<Arc<dyn Store>, OpenError> + Send + 'static,
    ) -> Result<Kernel, KernelError> {
        let KernelParts { config, authority, metrics, has_one_caller, territory, session_key } = parts;
        let limits = ShardLimits {
            pending_bytes_max: config.limits.pending_bytes_max,
            namespaces_max: config.limits.namespaces_max,
        };
        let opened = blocking(move || store().and_then(|store| open_data(store, limits)));
        let (ledger, recovered, mut shard) = opened.await?;
        shard.has_one_caller = has_one_caller;
        if authority.follows() {
            shard.become_copy();
        }
        if let Some(territory) = territory.clone() {
            // A namespace is asked about before anything is done with it, so one that is not remembered is not written to.
            let is_whole = move |namespace: &str| {
                territory.remembered(namespace).is_some_and(|placement| !placement.is_spread())
            };
            shard.exempt(is_whole);
        }
        let Recovered { ceiling, grace, secret_key } = recovered;
        let ledger = Arc::new(ledger);
        let numbers = {
            let ledger = Arc::clone(&ledger);
            blocking(move || Numbers::start(ledger, ceiling)).await?
        };
        let grace = {
            let (ledger, authority) = (Arc::clone(&ledger), Arc::clone(&authority));
            blocking(move || Grace::start(ledger, &grace, authority)).await?
        };
        Ok(Kernel {
            work: Work::new(&config.limits, territory.is_some()),
            config,
            clock: Clock::start(),
            ledger,
            shard: Arc::new(shard),
            authority,
            territory,
            numbers: Arc::new(numbers),
            grace: Arc::new(grace),
            secrets: Secrets::new(session_key.unwrap_or(secret_key)),
            registry: Registry::default(),
            schemas: Schemas::default(),
            metrics,
            feeds: Feeds::default(),
            procedures: Procedures::default(),
            sessions: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            owners: AtomicU64::new(1),
            purges: Purges::default(),
        })
    }

    pub(crate) fn next_owner(&self) -> OwnerId {
        OwnerId(self.owners.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes room for a session.
    pub fn admit(self: &Arc<Kernel>, abandon_timeout_ms: u64) -> Result<Stay, Trouble> {
        let limit = self.config.limits.sessions_max;
        // Counted first, so that it is counted out again however this ends.
        let before = self.sessions.fetch_add(1, Ordering::AcqRel);
        let stay = Stay { kernel: Arc::clone(self), abandon_timeout_ms };
        match before >= limit {
            true => Err(Trouble::too_many("sessions_max", limit, "there are too many sessions")),
            false => Ok(stay),
        }
    }

    /// The other shards, if they may have something of a namespace.
    fn territory_of(&self, namespace: &str) -> Option<&Arc<dyn Territory>> {
        // That one is on every shard.
        self.territory.as_ref().filter(|_| namespace != SYSTEM)
    }

    async fn placement(&self, namespace: &str) -> Result<Option<Placement>, Trouble> {
        let Some(territory) = self.territory_of(namespace) else { return Ok(None) };
        match territory.remembered(namespace) {
            Some(placement) => Ok(Some(placement)),
            None => territory.find(namespace).await,
        }
    }

    /// That a namespace is on this shard. An address leads to the right one; what a body names may be elsewhere.
    pub(crate) async fn check_home(&self, namespace: &str, wanted: Use) -> Result<(), Trouble> {
        let Some(territory) = self.territory_of(namespace) else { return Ok(()) };
        match territory.remembered(namespace) {
            Some(Placement::Here | Placement::Home | Placement::Member(_)) => Ok(()),
            Some(Placement::Elsewhere) | None => territory.check_home(namespace, wanted).await,
        }
    }

    /// Makes sure that it is known here where a namespace is: that decides how its locks are enforced.
    pub async fn locate(&self, namespace: &str) -> Result<(), Trouble> {
        self.placement(namespace).await.map(drop)
    }

    /// The home of a namespace, if its documents are on several shards and another one is its home.
    pub async fn remote_home(&self, namespace: &str) -> Result<Option<ShardNo>, Trouble> {
        Ok(self.placement(namespace).await?.and_then(Placement::remote_home))
    }

    /// Whether the documents of a namespace are on the shards of the map.
    pub async fn is_spread(&self, namespace: &str) -> Result<bool, Trouble> {
        Ok(self.placement(namespace).await?.is_some_and(Placement::is_spread))
    }

    /// Whether this is the home of a spread namespace, as far as that was asked before.
    pub fn is_home(&self, namespace: &str) -> bool {
        let placement = self.territory_of(namespace).and_then(|territory| territory.remembered(namespace));
        placement == Some(Placement::Home)
    }

    /// Whether another shard is known to be the home of a spread namespace. What is on record of its locks here is from when this
    /// was the home, or for when it will be.
    pub fn is_member(&self, namespace: &str) -> bool {
        let placement = self.territory_of(namespace).and_then(|territory| territory.remembered(namespace));
        matches!(placement, Some(Placement::Member(_)))
    }

    /// Whether the locks of a namespace are known to be decided here.
    pub(crate) fn decides(&self, namespace: &str) -> bool {
        // Another shard may be the home of a namespace that nothing is known of.
        self.territory_of(namespace).is_none_or(|territory| {
            territory.remembered(namespace).is_some_and(|placement| placement.remote_home().is_none())
        })
    }

    /// That a namespace is on this shard for an interface that knows nothing of shards: all documents must be here.
    pub async fn check_whole(&self, namespace: &str, wanted: Use) -> Result<(), Trouble> {
        self.check_home(namespace, wanted).await?;
        match self.is_spread(namespace).await? {
            true => Err(only_natively(namespace)),
            false => Ok(()),
        }
    }

    /// Makes sure that this shard may decide about some keys: it is their owner, and it knows what became of them.
    pub async fn admit_keys<'a>(
        &self,
        namespace: &str,
        keys: impl Iterator<Item = &'a DocumentKey>,
    ) -> Result<Admitted, Trouble> {
        match self.territory_of(namespace) {
            Some(territory) if self.is_spread(namespace).await? => {
                let keys: Vec<&DocumentKey> = keys.collect();
                territory.admit_keys(namespace, &keys).await
            }
            _ => Ok(Admitted::default()),
        }
    }

    /// Goes through the fence, if the map is still the one the keys were admitted under.
    pub fn pass(&self, admitted: Admitted) -> Result<Passage<'_>, ShardError> {
        match (admitted.epoch(), &self.territory) {
            (Some(epoch), Some(territory)) => territory.pass(epoch).ok_or(ShardError::Elsewhere),
            _ => Ok(Passage::default()),
        }
    }

    /// The disk failed.
    pub fn is_poisoned(&self) -> bool {
        self.ledger.is_poisoned() || self.shard.is_poisoned()
    }

    /// Whether it takes no new locks because it is about to stop.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Where the namespaces with documents stand; the first few.
    fn positions(&self) -> Vec<(String, u64)> {
        let reading = self.shard.read();
        let state = reading.state();
        let namespaces = state.namespaces().unwrap_or_default().into_iter().take(QUEUES_LEN_MAX);
        namespaces.map(|(name, id)| (name, state.position(id).unwrap_or_default().0)).collect()
    }

    /// What there is at this moment; what belongs to the whole process is for others to count.
    pub fn gauges(&self) -> Gauges {
        let ready = self.grace.everywhere_left_ms() == 0 && !self.is_draining() && !self.is_poisoned();
        let counts = self.shard.counts();
        let mut gauges = Gauges {
            ready,
            feeds: self.feeds.open_len(),
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
pub struct Stay {
    kernel: Arc<Kernel>,
    pub(crate) abandon_timeout_ms: u64,
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.kernel.sessions.fetch_sub(1, Ordering::AcqRel);
    }
}

fn open_data(store: Arc<dyn Store>, limits: ShardLimits) -> Result<(Ledger, Recovered, Shard), OpenError> {
    let (ledger, recovered) = Ledger::open(Arc::clone(&store), random())?;
    let shard = Shard::open(store, limits)?;
    Ok((ledger, recovered, shard))
}

/// Does something off the threads that serve.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("opening files does not panic")
}
