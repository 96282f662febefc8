//! The life of a server: open, listen, drain, stop. Knows nothing of protocols.

use crate::{
    clock::Clock,
    cluster::{self, Cluster, ClusterConfig, SHARDS_MAX, keeper, replica},
    config::Config,
    elasticsearch::{Elasticsearch, Library},
    feeds::Feeds,
    grace::{self, Grace},
    lease,
    listener::listen,
    listeners::Listeners,
    locktopus::Locktopus,
    memory::Account,
    metrics::Metrics,
    native::Native,
    numbers::Numbers,
    openslides::{Bus, Openslides, Side},
    purge::{self, Purges},
    registry::Registry,
    schema_registry::SchemaRegistry,
    schemas::Schemas,
    secret::{Secrets, random},
    session::Notice,
    shard::{Shard, ShardLimits},
    shared::Shared,
    work::Work,
};
use lockwood_locks::Series;
use lockwood_model::Timestamp;
use lockwood_storage::{Embedded, Ledger, OpenError, Recovered, Store, StoreError};
use lockwood_wire::{GraceInfo, Interface};
use std::{
    io::ErrorKind,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::mpsc, time::Instant};

/// How often a stopping server looks whether it is done.
const DRAIN_INTERVAL: Duration = Duration::from_millis(10);
/// How often old history is looked for.
const TRIM_INTERVAL: Duration = Duration::from_secs(3600);
/// How often the data directory is looked after.
const TEND_INTERVAL: Duration = Duration::from_millis(250);
/// How long connections may take to end once they are told to.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// Where a server listens and how it starts.
#[derive(Debug, Clone)]
pub struct Bound {
    /// The native interface.
    pub native: SocketAddr,
    /// The Locktopus facade.
    pub locktopus: Option<SocketAddr>,
    /// The reader and the writer of the OpenSlides facade.
    pub openslides: Option<(SocketAddr, SocketAddr)>,
    /// The Elasticsearch facade.
    pub elasticsearch: Option<SocketAddr>,
    /// The Schema Registry facade.
    pub schema_registry: Option<SocketAddr>,
    /// The facades that were wanted and cannot listen.
    pub left_out: Vec<LeftOut>,
    /// The namespaces in which nothing is granted yet because sessions held locks there when the last run ended.
    pub grace: Vec<GraceInfo>,
}

/// A facade that cannot listen.
#[derive(Debug, Clone)]
pub struct LeftOut {
    /// Its name.
    pub name: &'static str,
    /// Why, and what to do.
    pub reason: String,
}

/// How a server stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// No lock was held: the next start has no new grace period.
    Clean,
    /// So many locks were still held: the next start waits for them.
    LocksHeld(usize),
}

/// Why a server does not start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address that others can reach.
    #[error(
        "{0} can be reached from other machines, and there is no authentication yet; listen on 127.0.0.1, or \
         say --insecure if everybody who can reach {0} may take and break locks"
    )]
    NotLoopback(SocketAddr),
    /// A setting that contradicts another one.
    #[error("{0}")]
    Setting(String),
    /// An address that cannot be had.
    #[error("cannot listen on {address}: {}", unlistenable(cause, flag))]
    Listen {
        /// Which.
        address: SocketAddr,
        /// The flag that chooses another one.
        flag: &'static str,
        /// Why.
        cause: std::io::Error,
    },
    /// The data directory cannot be opened.
    #[error("cannot open the data directory {}: {cause}", directory.display())]
    Data {
        /// Which.
        directory: PathBuf,
        /// Why.
        cause: OpenError,
    },
    /// The data directory cannot be written.
    #[error("cannot write to the data directory")]
    Write(#[from] StoreError),
}

/// Why an address cannot be listened on, and what to do about it.
fn unlistenable(cause: &std::io::Error, flag: &str) -> String {
    match cause.kind() {
        ErrorKind::AddrInUse => {
            format!("another program listens there; stop it, or choose another address with {flag}")
        }
        ErrorKind::PermissionDenied => format!(
            "this user may not use the port, as most systems keep those below 1024 for root; choose another one with \
             {flag}"
        ),
        ErrorKind::AddrNotAvailable => {
            format!("this machine has no such address; choose one that it has with {flag}")
        }
        _ => format!("{cause}; choose another address with {flag}"),
    }
}

/// Runs a server until it is told to stop. The first message on `stop` makes it drain, the second makes it
/// stop at once.
pub async fn run(
    mut config: Config,
    ready: impl FnOnce(&Bound),
    mut stop: mpsc::Receiver<()>,
) -> Result<Stopped, ServeError> {
    check(&config)?;
    config.limit_defaults();
    let listeners = Listeners::bind(&mut config).await?;
    let library = match &config.elasticsearch {
        Some(facade) => {
            let limit = config.limits.script_bytes_max;
            Some(Library::open(facade.scripts.as_deref(), limit).map_err(ServeError::Setting)?)
        }
        None => None,
    };
    let shared = open(config, listeners.interfaces()).await?;
    shared.cluster.restore(&shared)?;
    restore_leases(&shared)?;
    if let Err(error) = shared.shard.undo_loads().await {
        tracing::error!(?error, "take away what is left of a load");
    }
    if let Err(error) = purge::resume(&shared).await {
        tracing::error!(?error, "go on with a purge");
    }
    let bound = listeners.bound(shared.grace.list());
    let Listeners { native, locktopus, openslides, elasticsearch, schema_registry, .. } = listeners;
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(Arc::clone(&shared.numbers).keep_ahead());
    tasks.spawn(grace::keep_time(Arc::clone(&shared)));
    tasks.spawn(grace::keep_low(Arc::clone(&shared)));
    tasks.spawn(tend_documents(Arc::clone(&shared)));
    tasks.spawn(tend_store(Arc::clone(&shared)));
    replica::ask_around(&shared).await;
    tasks.spawn(listen(native, Arc::clone(&shared), Native::new(&shared)));
    if let Some(listener) = locktopus {
        let facade = Locktopus::new(&shared);
        tasks.spawn(facade.clone().log_stats());
        tasks.spawn(listen(listener, Arc::clone(&shared), facade));
    }
    if let Some((reader, writer)) = openslides {
        // Before the first write, so that the bus misses none.
        if let Some(bus) = open_bus(&shared).await? {
            tasks.spawn(bus.run());
        }
        tasks.spawn(listen(reader, Arc::clone(&shared), Openslides::new(&shared, Side::Reader)));
        tasks.spawn(listen(writer, Arc::clone(&shared), Openslides::new(&shared, Side::Writer)));
    }
    if let (Some(listener), Some(library)) = (elasticsearch, library) {
        let facade = Elasticsearch::new(&shared, library);
        tasks.spawn(facade.clone().sweep());
        tasks.spawn(listen(listener, Arc::clone(&shared), facade));
    }
    if let Some(listener) = schema_registry {
        tasks.spawn(listen(listener, Arc::clone(&shared), SchemaRegistry::new(&shared)));
    }
    if shared.cluster.is_on() {
        tasks.spawn(keeper::keep(Arc::clone(&shared)));
        tasks.spawn(replica::follow(Arc::clone(&shared)));
        tasks.spawn(cluster::join(Arc::clone(&shared)));
        if let Some(current) = shared.cluster.current() {
            shared.cluster.follow_up(&shared, &current);
        }
    }
    ready(&bound);
    let _ = stop.recv().await;
    let held = drain(&shared, &mut stop).await;
    close(&shared).await?;
    Ok(if held == 0 { Stopped::Clean } else { Stopped::LocksHeld(held) })
}

fn check(config: &Config) -> Result<(), ServeError> {
    if config.ping_interval.is_zero() || config.silence_max <= config.ping_interval {
        let message =
            "--silence-max must be longer than --ping-interval, and both longer than nothing".to_owned();
        return Err(ServeError::Setting(message));
    }
    if config.body_timeout.is_zero() || config.write_timeout.is_zero() {
        let message = "--body-timeout and --write-timeout must be longer than nothing".to_owned();
        return Err(ServeError::Setting(message));
    }
    if config.cluster.as_ref().is_some_and(|cluster| u64::from(cluster.this) >= SHARDS_MAX) {
        let message = format!("--this is the number of a shard, and at most {}", SHARDS_MAX - 1);
        return Err(ServeError::Setting(message));
    }
    let facades = [
        ("locktopus", config.locktopus.is_some()),
        ("openslides", config.openslides.is_some()),
        ("elasticsearch", config.elasticsearch.is_some()),
        ("schema-registry", config.schema_registry.is_some()),
    ];
    if let (Some(_), Some((name, _))) = (&config.cluster, facades.into_iter().find(|(_, wanted)| *wanted)) {
        let message = format!(
            "--{name} serves the documents and locks of one server, so it does not go with --this; run a server \
             of its own for it"
        );
        return Err(ServeError::Setting(message));
    }
    let names = [
        ("openslides", config.openslides.as_ref().map(|facade| &facade.namespace)),
        ("schema-registry", config.schema_registry.as_ref().map(|facade| &facade.namespace)),
    ];
    for (facade, name) in names {
        let limit = config.limits.namespace_bytes_max;
        if name.is_some_and(|name| name.is_empty() || name.len() as u64 > limit) {
            let message = format!("--{facade}-namespace must have 1 to {limit} bytes");
            return Err(ServeError::Setting(message));
        }
    }
    Ok(())
}

/// Puts back leases, unless they are those of the host that writes, which this one only follows.
fn restore_leases(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let current = shared.cluster.current();
    if current.as_ref().is_some_and(|current| current.is_replica) {
        shared.cluster.idle_leases.store(true, Ordering::Release);
        return Ok(());
    }
    lease::restore(shared)?;
    if let Some(current) = current {
        // It may have stopped between the map and what comes of it.
        lease::moving::follow(shared, &current);
    }
    Ok(())
}

async fn open(config: Config, interfaces: Vec<Interface>) -> Result<Arc<Shared>, ServeError> {
    let directory = config.data.clone();
    let limits = ShardLimits {
        pending_bytes_max: config.limits.pending_bytes_max,
        namespaces_max: config.limits.namespaces_max,
    };
    let (ledger, recovered, shard) = blocking(move || {
        restrict_data(&directory);
        open_data(&directory, limits).map_err(|cause| ServeError::Data { directory, cause })
    })
    .await?;
    let Recovered { ceiling, grace, secret_key } = recovered;
    let ledger = Arc::new(ledger);
    let numbers = {
        let ledger = Arc::clone(&ledger);
        let series = config.cluster.as_ref().map_or(Series::ALL, numbers_of);
        blocking(move || Numbers::start(ledger, ceiling, series)).await?
    };
    let grace = {
        let ledger = Arc::clone(&ledger);
        blocking(move || Grace::start(ledger, &grace)).await?
    };
    let clock = Clock::new();
    let session_key = config.cluster.as_ref().map(|config| cluster::session_key(&config.key));
    let cluster = Cluster::new(config.cluster.as_ref(), &interfaces[0].address);
    let work = Work::new(&config.limits, config.cluster.is_some());
    let shared = Shared {
        cluster,
        memory: Account::new(config.limits.held_bytes_max),
        config,
        interfaces,
        started_at: clock.now(),
        clock,
        numbers: Arc::new(numbers),
        grace: Arc::new(grace),
        secrets: Secrets::new(session_key.unwrap_or(secret_key)),
        ledger,
        shard: Arc::new(shard),
        registry: Registry::default(),
        schemas: Schemas::default(),
        metrics: Metrics::default(),
        feeds: Feeds::default(),
        work,
        connections: AtomicU64::new(0),
        sessions: AtomicU64::new(0),
        draining: AtomicBool::new(false),
        owners: AtomicU64::new(1),
        backups: AtomicU64::new(0),
        purges: Purges::default(),
    };
    Ok(Arc::new(shared))
}

/// The lock numbers of a node: no two shards ever give out the same.
fn numbers_of(cluster: &ClusterConfig) -> Series {
    Series::new(SHARDS_MAX, u64::from(cluster.this) % SHARDS_MAX)
}

/// Closes the data directory to other users of the machine. If it belongs to another user, its modes are that user's.
fn restrict_data(directory: &Path) {
    match lockwood_storage::restrict(directory) {
        Ok(0) => {}
        Ok(changed) => tracing::warn!(
            data = %directory.display(),
            changed,
            "the data directory was open to other users; now it is 0700 and its files 0600"
        ),
        // What is no directory is refused in a moment.
        Err(error) if directory.is_dir() => {
            tracing::warn!(data = %directory.display(), %error, "close the data directory to other users");
        }
        Err(_) => {}
    }
}

fn open_data(directory: &Path, limits: ShardLimits) -> Result<(Ledger, Recovered, Shard), OpenError> {
    let store: Arc<dyn Store> = Arc::new(Embedded::open(directory)?);
    let (ledger, recovered) = Ledger::open(Arc::clone(&store), random())?;
    let shard = Shard::open(store, limits)?;
    Ok((ledger, recovered, shard))
}

async fn open_bus(shared: &Arc<Shared>) -> Result<Option<Bus>, StoreError> {
    let Some(facade) = &shared.config.openslides else { return Ok(None) };
    let Some(redis) = facade.redis.clone() else { return Ok(None) };
    let (shared, namespace) = (Arc::clone(shared), facade.namespace.clone());
    blocking(move || Bus::open(&shared, &namespace, &redis).map(Some)).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("opening files does not panic")
}

/// Notices a data directory that is gone although nothing is written. Ends when it is.
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

/// Sends waiters away and waits for holders; says how many locks are left.
async fn drain(shared: &Shared, stop: &mut mpsc::Receiver<()>) -> usize {
    shared.draining.store(true, Ordering::Release);
    shared.feeds.close();
    for namespace in shared.registry.all() {
        namespace.drain(shared);
    }
    shared.cluster.sessions.tell_all(|| Notice::Draining);
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

/// Ends the connections and notes what is still held.
async fn close(shared: &Arc<Shared>) -> Result<(), ServeError> {
    shared.work.stop();
    for namespace in shared.registry.all() {
        namespace.tell_all_to_close();
    }
    shared.cluster.sessions.tell_all(|| Notice::Closing);
    let deadline = Instant::now() + CLOSE_PATIENCE;
    let connected = || shared.gauges().sessions_connected + shared.cluster.sessions.len();
    while (connected() > 0 || shared.feeds.len() > 0) && Instant::now() < deadline {
        tokio::time::sleep(DRAIN_INTERVAL).await;
    }
    Ok(shared.grace.close(shared).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_an_address_cannot_be_had_decides_what_to_do_about_it() {
        let check = |kind: ErrorKind, part: &str| {
            let address = SocketAddr::from(([127, 0, 0, 1], 80));
            let error = ServeError::Listen { address, flag: "--listen ADDR", cause: kind.into() }.to_string();
            assert!(error.starts_with("cannot listen on 127.0.0.1:80: ") && error.contains(part), "{error}");
            assert!(error.contains("--listen ADDR"), "{error}");
        };
        check(ErrorKind::AddrInUse, "another program listens there");
        check(ErrorKind::PermissionDenied, "may not use the port");
        check(ErrorKind::AddrNotAvailable, "no such address");
        check(ErrorKind::Other, "other error");
    }
}
