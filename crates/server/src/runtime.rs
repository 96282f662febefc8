//! The runtime of one shard: everything in memory that belongs to its log, and the interfaces over it. Opened from a
//! store, drained, closed. Knows nothing of listeners, nor of why it runs in this process.

use crate::{
    cluster::{Cluster, Neighbours, driver, leaving},
    clustered::{Membership, give_away, snapshots},
    elasticsearch::{Elasticsearch, Library},
    front::Front,
    locktopus::Locktopus,
    native::Native,
    openslides::{Bus, Openslides, Side},
    schema_registry::SchemaRegistry,
    serve::ServeError,
    shared::Shared,
};
use lockwood_model::Timestamp;
use lockwood_node::{
    authority::Authority,
    grace,
    kernel::{Kernel, KernelConfig, KernelError, KernelParts, blocking},
    lease::{self, LeaseTime},
    purge,
    territory::Territory,
};
use lockwood_storage::{OpenError, Store, StoreError, postgres::Shown};
use lockwood_wire::Interface;
use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

/// How often a stopping runtime looks whether it is done.
const DRAIN_INTERVAL: Duration = Duration::from_millis(10);
/// How often old history is looked for.
const TRIM_INTERVAL: Duration = Duration::from_secs(3600);
/// How often the store is looked after.
const TEND_INTERVAL: Duration = Duration::from_millis(250);
/// How long connections may take to end once they are told to.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// What a runtime is opened from.
pub(crate) struct Origin {
    pub(crate) front: Arc<Front>,
    /// Where each interface listens, the native one first.
    pub(crate) interfaces: Vec<Interface>,
    /// Scripts of the Elasticsearch facade, if it is wanted.
    pub(crate) library: Option<Library>,
    pub(crate) authority: Arc<Authority>,
    /// How the time of leases goes on.
    pub(crate) lease_time: LeaseTime,
    /// Where the store is, for messages.
    pub(crate) directory: PathBuf,
    /// Its part in a cluster over PostgreSQL, if it has one.
    pub(crate) membership: Option<Arc<Membership>>,
}

/// A shard that is served here.
pub(crate) struct Runtime {
    pub(crate) shared: Arc<Shared>,
    pub(crate) services: Services,
    tasks: JoinSet<()>,
}

/// The interfaces of a runtime; a facade that is not wanted is absent.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) native: Native,
    pub(crate) locktopus: Option<Locktopus>,
    pub(crate) openslides_reader: Option<Openslides>,
    pub(crate) openslides_writer: Option<Openslides>,
    pub(crate) elasticsearch: Option<Elasticsearch>,
    pub(crate) schema_registry: Option<SchemaRegistry>,
}

impl Runtime {
    /// Opens the store and takes up where the last run ended. Its locks are in force when this returns.
    pub(crate) async fn open(
        origin: Origin,
        store: impl FnOnce() -> Result<Arc<dyn Store>, OpenError> + Send + 'static,
    ) -> Result<Runtime, ServeError> {
        let (library, lease_time) = (origin.library.clone(), origin.lease_time);
        let shared = open(origin, store).await?;
        shared.cluster.restore(&shared)?;
        give_away(&shared).await?;
        locate_leases(&shared).await?;
        lease::restore(&shared, lease_time)?;
        if let Err(error) = shared.shard.undo_loads().await {
            tracing::error!(?error, "take away what is left of a load");
        }
        purge::resume(&shared).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&shared.numbers).keep_ahead());
        tasks.spawn(grace::keep_time(Arc::clone(&shared.kernel)));
        tasks.spawn(grace::keep_low(Arc::clone(&shared.kernel)));
        tasks.spawn(tend_documents(Arc::clone(&shared)));
        tasks.spawn(tend_store(Arc::clone(&shared)));
        if shared.membership.is_some() {
            tasks.spawn(snapshots::keep(Arc::clone(&shared)));
        }
        // Nothing is served by a map that is over.
        let fetched = shared.cluster.fetch(&shared).await;
        fetched.map_err(|trouble| ServeError::Setting(trouble.message))?;
        let services = Services::open(&shared, library, &mut tasks).await?;
        if shared.cluster.is_node() {
            tasks.spawn(driver::drive(Arc::clone(&shared)));
            tasks.spawn(leaving::watch(Arc::clone(&shared)));
            if let Some(current) = shared.cluster.current() {
                shared.cluster.follow_up(&shared, &current);
            }
        }
        Ok(Runtime { shared, services, tasks })
    }

    /// Sends waiters away and waits for holders; says how many locks are left.
    pub(crate) async fn drain(&self, stop: &mut mpsc::Receiver<()>) -> usize {
        let shared = &self.shared;
        self.send_away();
        let deadline = Instant::now() + shared.config.drain_timeout;
        loop {
            let held = shared.registry.all().iter().map(|namespace| namespace.mortal_len()).sum();
            if held == 0 || Instant::now() >= deadline {
                return held;
            }
            tokio::select! {
                () = tokio::time::sleep(DRAIN_INTERVAL) => {}
                _ = stop.recv() => return held,
            }
        }
    }

    /// Takes no new locks, sends waiters away and tells holders; all of that once.
    fn send_away(&self) {
        let shared = &self.shared;
        if shared.draining.swap(true, Ordering::AcqRel) {
            return;
        }
        shared.feeds.close();
        for namespace in shared.registry.all() {
            namespace.drain(shared);
        }
    }

    /// Ends the connections, waits until requests have been `answered`, and notes what is still held.
    pub(crate) async fn close(mut self, answered: impl Future<Output = ()>) -> Result<(), ServeError> {
        self.send_away();
        self.disconnect().await;
        answered.await;
        let closed = self.shared.grace.close(&self.shared).await;
        self.tasks.shutdown().await;
        self.shared.registry.abandon();
        Ok(closed?)
    }

    /// Ends everything at once: another node owns the shard, or may. What is held here counts no longer, so nothing is
    /// noted. Done when the store is closed, or when it takes too long.
    pub(crate) async fn abandon(mut self) {
        self.tasks.abort_all();
        self.send_away();
        self.disconnect().await;
        self.shared.registry.abandon();
        let left = Arc::downgrade(&self.shared.kernel);
        drop(self);
        let deadline = Instant::now() + CLOSE_PATIENCE;
        while left.strong_count() > 0 && Instant::now() < deadline {
            tokio::time::sleep(DRAIN_INTERVAL).await;
        }
    }

    async fn disconnect(&self) {
        let shared = &self.shared;
        shared.work.stop();
        for namespace in shared.registry.all() {
            namespace.tell_all_to_close();
        }
        let deadline = Instant::now() + CLOSE_PATIENCE;
        let connected = || shared.gauges().sessions_connected;
        while (connected() > 0 || shared.feeds.open_len() > 0) && Instant::now() < deadline {
            tokio::time::sleep(DRAIN_INTERVAL).await;
        }
    }
}

/// Opens what is needed to read a copy of a shard that another node owns. Nothing runs beside it: no lock is kept, nothing
/// is written, and what the copy shows changes only by [`Shard::show_latest`].
pub(crate) async fn copy(origin: Origin, shown: Arc<Shown>) -> Result<Arc<Shared>, ServeError> {
    open(origin, move || Ok(shown)).await
}

impl Services {
    async fn open(
        shared: &Arc<Shared>,
        library: Option<Library>,
        tasks: &mut JoinSet<()>,
    ) -> Result<Services, ServeError> {
        let config = &shared.config;
        let locktopus = config.locktopus.as_ref().map(|_| Locktopus::new(shared));
        if let Some(facade) = &locktopus {
            tasks.spawn(facade.clone().log_stats());
        }
        // Before the first write, so that the bus misses none.
        if let Some(bus) = open_bus(shared).await? {
            tasks.spawn(bus.run());
        }
        let openslides = |side| config.openslides.as_ref().map(|_| Openslides::new(shared, side));
        let elasticsearch = library.map(|library| Elasticsearch::new(shared, library));
        if let Some(facade) = &elasticsearch {
            tasks.spawn(facade.clone().sweep());
        }
        Ok(Services {
            native: Native::new(shared),
            locktopus,
            openslides_reader: openslides(Side::Reader),
            openslides_writer: openslides(Side::Writer),
            elasticsearch,
            schema_registry: config.schema_registry.as_ref().map(|_| SchemaRegistry::new(shared)),
        })
    }
}

/// Finds out where the namespaces with leases are: that decides how these are enforced.
async fn locate_leases(shared: &Arc<Shared>) -> Result<(), ServeError> {
    let leases = shared.shard.read().state().leases()?;
    let names: BTreeSet<Box<str>> = leases.into_iter().map(|(namespace, _)| namespace).collect();
    for name in names {
        shared.locate(&name).await.map_err(|trouble| ServeError::Setting(trouble.message))?;
    }
    Ok(())
}

async fn open(
    origin: Origin,
    store: impl FnOnce() -> Result<Arc<dyn Store>, OpenError> + Send + 'static,
) -> Result<Arc<Shared>, ServeError> {
    let Origin { front, interfaces, authority, directory, membership, .. } = origin;
    let config = front.config.clone();
    let cluster = Arc::new(Cluster::new(membership.as_ref()));
    let neighbours = Neighbours::of(&cluster);
    let session_key = membership.as_ref().map(|membership| membership.node.session_key);
    let parts = KernelParts {
        config: KernelConfig {
            data: config.data.clone(),
            wait_ms: config.wait_ms,
            limits: config.limits.clone(),
        },
        authority,
        metrics: Arc::clone(&front.metrics),
        // A caller that commits for itself waits for the disk on the thread that serves it. A node waits for a database
        // instead, and its only connection may be that of another node: renewals would stand still.
        has_one_caller: match &membership {
            None => Arc::clone(&front.has_one_caller),
            Some(_) => Arc::default(),
        },
        territory: neighbours.clone().map(|neighbours| neighbours as Arc<dyn Territory>),
        session_key,
    };
    let kernel = Kernel::open(parts, store).await.map_err(|error| match error {
        KernelError::Open(cause) => ServeError::Data { directory, cause },
        KernelError::Write(error) => ServeError::Write(error),
    })?;
    let shared = Arc::new(Shared {
        started_at: kernel.clock.now(),
        kernel: Arc::new(kernel),
        config,
        interfaces,
        membership,
        cluster,
        memory: Arc::clone(&front.memory),
        front,
        backups: AtomicU64::new(0),
    });
    if let Some(neighbours) = neighbours {
        neighbours.serve(&shared);
    }
    Ok(shared)
}

async fn open_bus(shared: &Arc<Shared>) -> Result<Option<Bus>, StoreError> {
    let Some(facade) = &shared.config.openslides else { return Ok(None) };
    let Some(redis) = facade.redis.clone() else { return Ok(None) };
    let (shared, namespace) = (Arc::clone(shared), facade.namespace.clone());
    blocking(move || Bus::open(&shared, &namespace, &redis).map(Some)).await
}

/// Notices a store that is gone although nothing is written. Ends when it is.
async fn tend_store(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(TEND_INTERVAL).await;
        let store = Arc::clone(&shared.shard);
        if let Err(error) = blocking(move || store.tend()).await {
            return tracing::error!(%error, "look after the data directory");
        }
    }
}

/// Completes indexes whose building was interrupted, and forgets old history if that is wanted.
async fn tend_documents(shared: Arc<Shared>) {
    if let Err(error) = shared.shard.fill_indexes().await {
        tracing::error!(?error, "build indexes");
    }
    let Some(retain) = shared.config.retain else { return };
    loop {
        let keep_ms = u64::try_from(retain.as_millis()).unwrap_or(u64::MAX);
        let before = Timestamp(shared.clock.now().0.saturating_sub(keep_ms)).after(1);
        match shared.shard.trim(before).await {
            Ok(0) => {}
            Ok(trimmed) => tracing::info!(trimmed, "old history is forgotten"),
            Err(error) => tracing::error!(?error, "forget old history"),
        }
        tokio::time::sleep(TRIM_INTERVAL).await;
    }
}
