//! The life of a node of a cluster: connect, register, serve what it comes to own, hand off, stop. Knows nothing of
//! protocols.

use super::{
    ClusterNode, NodeConfig,
    door::{Door, Side},
    follower::Followers,
    home_moves,
    host::{Handle, ShardHost},
    peer_door::PeerDoor,
    preferences, status,
};
use crate::{
    config::Config,
    elasticsearch::Elasticsearch,
    front::Front,
    listener::listen,
    listeners::{Listeners, address},
    locktopus::Locktopus,
    native::Native,
    schema_registry::SchemaRegistry,
    serve::{Bound, ServeError, Stopped, open_library},
};
use lockwood_cluster::{Database, Driver, Incarnation, PeerTls, Peers, Prover, Reports, Topology};
use lockwood_node::secret::{Secrets, unhex};
use lockwood_router::{
    NodeName, Preferences, ShardNo,
    ownership::{Event, Ownership, Policy},
};
use lockwood_storage::postgres::DurabilityReport;
use parking_lot::Mutex;
use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::{JoinError, JoinSet},
};

/// How long a start waits for its name; longer than a row stays fresh.
const NAME_TIMEOUT: Duration = Duration::from_secs(6);
/// How the directories of caches are called, before their numbers.
const CACHE: &str = "shard-";
const NAME_INTERVAL: Duration = Duration::from_millis(200);
/// How often it is looked for new certificates.
const TLS_INTERVAL: Duration = Duration::from_secs(2);
/// How long a planned stop may take; then the other nodes wait until the ownership is stale.
const HANDOFF_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a node until it is told to stop. The first message on `stop` makes it hand its shards off, the second makes it
/// stop at once.
pub(crate) async fn run(
    mut config: Config,
    settings: NodeConfig,
    ready: impl FnOnce(&Bound),
    mut stop: mpsc::Receiver<()>,
) -> Result<Stopped, ServeError> {
    config.limit_defaults();
    check_cache(&config.data)?;
    let listeners = Listeners::bind(&mut config).await?;
    let peers = Listeners::bind_peers(&config, settings.peer_listen, settings.tls.is_some()).await?;
    let library = open_library(&config)?;
    let incarnation = Incarnation::draw();
    let advertise = settings.advertise.clone().unwrap_or_else(|| address(&peers).to_string());
    let tls = settings.tls.clone().map(|files| PeerTls::load(files, &advertise)).transpose();
    let tls =
        tls.map_err(|error| ServeError::Setting(format!("no TLS between nodes: {error}")))?.map(Arc::new);
    let name = NodeName::from(settings.name.as_deref().unwrap_or(&advertise));
    let policy = Policy::default();
    let database = Arc::new(Database::connect(&settings.database, incarnation, policy.stale_after_ms).await?);
    let shards = settings.shards.unwrap_or(1).max(1);
    database.ensure_shards(&(1..=shards).map(ShardNo).collect::<Vec<_>>()).await?;
    register(&database, &name, &advertise).await?;
    let key = database.key().await?;
    let durability = database.durability().await?;
    tracing::info!(node = %name, advertise, durability = in_words(durability.as_ref()), "the node is part of a cluster");

    let data = config.data.clone();
    let front = Front::new(config);
    let prover = Arc::new(Prover::new(key, incarnation));
    let topology = Arc::new(Topology::new(name.clone(), policy.stale_after_ms));
    let (calls, proofs) = (Peers::new(Arc::clone(&prover), tls.clone()), prover);
    let (reports, inbox) = Reports::channel();
    let reached = (reports.clone(), Arc::clone(&database));
    let node = ClusterNode::new(
        Arc::clone(&front),
        Arc::clone(&topology),
        calls.clone(),
        proofs,
        reached,
        (session_key(&key), durability),
    );
    let host = Arc::new(ShardHost {
        node: Arc::clone(&node),
        database: Arc::clone(&database),
        interfaces: listeners.interfaces(),
        library,
        directory: data,
        reports: reports.clone(),
        tenures: Mutex::default(),
        followers: Followers::default(),
    });
    let driver = Driver {
        node: name.clone(),
        incarnation: incarnation.to_string(),
        address: advertise,
        version: env!("CARGO_PKG_VERSION"),
        database,
        topology,
        peers: calls,
        host: Arc::new(Handle(host)),
    };
    let ownership =
        Ownership::new(name, policy, Preferences::default()).expect("the default policy is valid");
    let mut driving = tokio::spawn(driver.run(ownership, inbox));
    tokio::spawn(preferences::watch(Arc::clone(&node)));
    tokio::spawn(home_moves::watch(Arc::clone(&node)));
    tokio::spawn(status::watch(Arc::clone(&node)));
    if let Some(tls) = tls {
        tokio::spawn(keep_fresh(tls));
    }
    let bound = listeners.bound(Vec::new());
    let _listening = serve(listeners, peers, &front, &node);
    ready(&bound);
    tokio::select! {
        _ = stop.recv() => {}
        ended = &mut driving => return Err(ServeError::Setting(driver_ended(ended))),
    }
    node.stopping.store(true, Ordering::Release);
    reports.report(Event::Stop);
    tokio::select! {
        _ = &mut driving => {}
        _ = stop.recv() => {}
        () = tokio::time::sleep(HANDOFF_TIMEOUT) => {
            tracing::warn!("not everything was handed off in time; other nodes take over once it is stale");
        }
    }
    driving.abort();
    Ok(Stopped::Clean)
}

/// Only a panic ends the driver of a node that is not told to stop.
fn driver_ended(ended: Result<Result<(), JoinError>, JoinError>) -> String {
    let why = match ended.flatten() {
        Ok(()) => "it gave everything up".to_owned(),
        Err(panicked) => panicked.to_string(),
    };
    format!(
        "the driver of this node's shards ended ({why}); other nodes take over, so start it again and report this"
    )
}

/// What the secrets of sessions are made with: they hold on every shard, so that a session outlives a move of its namespace's home.
fn session_key(key: &[u8; 32]) -> [u8; 32] {
    let derived = Secrets::new(*key).of("lockwood", "sessions");
    unhex(&derived)
        .and_then(|bytes| bytes.try_into().ok())
        .expect("a secret has 32 bytes in hexadecimal digits")
}

/// Takes the node's name. After a crash the row of the last run is fresh for a moment; a row that stays fresh is that of
/// another node.
async fn register(database: &Database, name: &NodeName, address: &str) -> Result<(), ServeError> {
    let begun = Instant::now();
    while !database.register(name, address, env!("CARGO_PKG_VERSION")).await? {
        if begun.elapsed() > NAME_TIMEOUT {
            let message = format!(
                "another node called {name} is running; give each node a name of its own with --node, and an address of \
                 its own with --advertise"
            );
            return Err(ServeError::Setting(message));
        }
        tokio::time::sleep(NAME_INTERVAL).await;
    }
    Ok(())
}

/// Takes up files for TLS that have changed.
async fn keep_fresh(tls: Arc<PeerTls>) {
    loop {
        tokio::time::sleep(TLS_INTERVAL).await;
        let tls = Arc::clone(&tls);
        // Files may be on a disk that is slow.
        let _ = tokio::task::spawn_blocking(move || tls.refresh()).await;
    }
}

/// A node keeps caches in its data directory; what a single server has there would be neither used nor seen.
fn check_cache(directory: &Path) -> Result<(), ServeError> {
    let is_there = lockwood_storage::is_there(directory);
    if !is_there.map_err(|cause| ServeError::Data { directory: directory.to_owned(), cause })? {
        return Ok(());
    }
    let message = format!(
        "{} has the data of a single server, which a node of a cluster does not use; choose another directory with --data, \
         and bring the data over with `lockwood dump` and `lockwood load`",
        directory.display()
    );
    Err(ServeError::Setting(message))
}

/// The other way round: a single server would begin with nothing beside the cache of a node.
pub(crate) fn check_single(directory: &Path) -> Result<(), ServeError> {
    let is_cache = |directory: &Path| directory.join("cache").exists();
    // A node without shards has none.
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut caches = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(CACHE));
    if !is_cache(directory) && !caches.any(|cache| is_cache(&cache.path())) {
        return Ok(());
    }
    let message = format!(
        "{} has the cache of a node of a cluster, whose data is in the database; start the node with --cluster, or choose \
         another directory with --data",
        directory.display()
    );
    Err(ServeError::Setting(message))
}

/// The directory of one of a shard's caches in the data directory.
pub(super) fn cache_of(shard: ShardNo, number: usize) -> String {
    match number {
        0 => format!("{CACHE}{}", shard.0),
        _ => format!("{CACHE}{}.{number}", shard.0),
    }
}

/// How many machines have an acknowledged write, and why.
pub(super) fn in_words(report: Option<&DurabilityReport>) -> String {
    let Some(report) = report else {
        return "cannot tell on how many machines an acknowledged write is: the database does not show its \
                settings"
            .to_owned();
    };
    let DurabilityReport { synchronous_commit, synchronous_standby_names, machines, server_version, .. } =
        report;
    let machines = match machines {
        1 => "an acknowledged write is on 1 machine, so its loss may lose writes".to_owned(),
        machines => format!("an acknowledged write is on {machines} machines"),
    };
    format!(
        "PostgreSQL {server_version}: {machines} (synchronous_commit {synchronous_commit}, synchronous_standby_names \
         {synchronous_standby_names:?})"
    )
}

fn serve(
    listeners: Listeners,
    peers: TcpListener,
    front: &Arc<Front>,
    node: &Arc<ClusterNode>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let Listeners { native, locktopus, openslides, elasticsearch, schema_registry, .. } = listeners;
    let (reader, writer) = openslides.unzip();
    tasks.spawn(listen(peers, Arc::clone(front), PeerDoor(Arc::clone(node))));
    tasks.spawn(listen(native, Arc::clone(front), Door::<Native>::new(node)));
    if let Some(listener) = locktopus {
        tasks.spawn(listen(listener, Arc::clone(front), Door::<Locktopus>::new(node)));
    }
    if let Some(listener) = reader {
        tasks.spawn(listen(listener, Arc::clone(front), Door::<Side<false>>::new(node)));
    }
    if let Some(listener) = writer {
        tasks.spawn(listen(listener, Arc::clone(front), Door::<Side<true>>::new(node)));
    }
    if let Some(listener) = elasticsearch {
        tasks.spawn(listen(listener, Arc::clone(front), Door::<Elasticsearch>::new(node)));
    }
    if let Some(listener) = schema_registry {
        tasks.spawn(listen(listener, Arc::clone(front), Door::<SchemaRegistry>::new(node)));
    }
    tasks
}
