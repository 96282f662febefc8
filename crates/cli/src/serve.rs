//! `lockwood serve`: reads the flags, starts the server, says where it is, passes on signals.

use crate::{limits::LimitArgs, target::parse_listen, wait::parse_span};
use anyhow::Context;
use lockwood_server::{
    Bound, Config, ElasticsearchConfig, LocktopusConfig, NodeConfig, OpenslidesConfig, SchemaRegistryConfig,
    Stopped, TlsFiles,
};
use lockwood_wire::GraceInfo;
use serde_json::json;
use std::{
    io::{IsTerminal, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use tracing_subscriber::EnvFilter;

/// The server stopped although locks were held.
const STOPPED_WITH_LOCKS: u8 = 3;

/// How long a server that stops at once may take to do so in order.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// More shards than this make a node slow to renew them.
const SHARDS_MAX: i64 = 1024;

const EXAMPLES: &str = "\
Examples:
  lockwood serve                         the native interface on 127.0.0.1:7117
  lockwood serve --locktopus             and the Locktopus protocol on 127.0.0.1:9009
  lockwood serve --openslides --openslides-redis 127.0.0.1:6379
                                         and the OpenSlides datastore on 127.0.0.1:9010 and 127.0.0.1:9011
  lockwood serve --elasticsearch         and Elasticsearch's document locks on 127.0.0.1:9200
  lockwood serve --schema-registry       and the REST interface of the Schema Registry on 127.0.0.1:8081
  lockwood serve --cluster postgres://lockwood@db.example/lockwood --advertise node1.example:7118
                                         as a node of a cluster; see `lockwood cluster --help`
  lockwood serve --cluster postgres://lockwood@db.example/lockwood --advertise node1.example:7118 \\
      --peer-cert node1.pem --peer-key node1.key --peer-ca nodes-ca.pem
                                         the same, with calls between nodes encrypted and verified
  lockwood serve --data /var/lib/lockwood --log-format json

Signals: the first SIGTERM or SIGINT drains (new locks are refused, holders are told, the server waits up \
to --drain-timeout for them), the second stops at once.

Exit codes: 0 stopped with no lock held; 1 could not start or go on; 2 wrong usage; 3 stopped while locks \
were held, so the next start waits for as long as they may be believed in.";

/// Run the server
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where the native interface listens
    #[arg(long, value_name = "ADDR", env = "LOCKWOOD_LISTEN", default_value = "127.0.0.1:7117",
        value_parser = parse_listen)]
    listen: SocketAddr,

    /// The directory for everything that must survive a restart; made if it is not there
    #[arg(long, value_name = "DIR", env = "LOCKWOOD_DATA", default_value = "lockwood-data")]
    data: PathBuf,

    /// Listen on addresses that other machines can reach, although anybody there may take and break locks
    #[arg(long)]
    insecure: bool,

    /// A name, besides localhost and the addresses listened on, by which clients call this server; may be repeated
    #[arg(long = "allow-host", alias = "host", value_name = "NAME")]
    hosts: Vec<String>,

    /// Let web pages of this origin use the server, for example https://app.example:8443, or of all sites: *; may be
    /// repeated
    #[arg(long = "allow-origin", value_name = "ORIGIN", value_parser = origin)]
    origins: Vec<String>,

    /// Let operators read and change what this server has by shard/raw/*, each time on record under a name
    #[arg(long)]
    raw_operations: bool,

    /// Leave out something that clients rely on, for tests that have to notice it
    #[cfg(feature = "planted")]
    #[arg(long, hide = true, value_name = "FAULT")]
    planted: Option<lockwood_planted::Fault>,

    /// How long locks stay after the connection of a session is lost, unless the session says
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_span)]
    abandon_timeout: Duration,

    /// How long reads and writes of documents wait for others' locks, unless they say
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_span)]
    wait: Duration,

    /// Ping a connection that has been silent this long
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_span)]
    ping_interval: Duration,

    /// Give up a connection that has been silent this long, pings notwithstanding
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = parse_span)]
    silence_max: Duration,

    /// How long the body of a request may take to arrive
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_span)]
    body_timeout: Duration,

    /// Close a connection whose peer takes nothing of an answer for this long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_span)]
    write_timeout: Duration,

    /// How long to wait for locks to be released before stopping
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_span)]
    drain_timeout: Duration,

    /// Forget the history of documents when it is older than this [default: keep it for ever]
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    retain: Option<Duration>,

    /// Threads that serve connections [default: half as many as cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// How the log on stderr, and the greeting, are written; RUST_LOG says how much (default: info), and debug
    /// has a line for every request and lock
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    log_format: String,

    /// Start without a facade that cannot listen, and say so, instead of not at all
    #[arg(long)]
    skip_unavailable: bool,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    locktopus: LocktopusArgs,

    #[command(flatten)]
    openslides: OpenslidesArgs,

    #[command(flatten)]
    elasticsearch: ElasticsearchArgs,

    #[command(flatten)]
    schema_registry: SchemaRegistryArgs,

    #[command(flatten)]
    limits: LimitArgs,
}

/// What makes the server a node of a cluster.
#[derive(clap::Args)]
#[command(next_help_heading = "Cluster")]
struct ClusterArgs {
    /// Be a node of a cluster over this PostgreSQL, for example postgres://lockwood@db.example/lockwood
    #[arg(long = "cluster", value_name = "URL", env = "LOCKWOOD_CLUSTER")]
    database: Option<String>,

    /// Name of this node in the cluster [default: what it advertises]
    #[arg(long = "node", value_name = "NAME", env = "LOCKWOOD_NODE", requires = "database",
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    node: Option<String>,

    /// Where this node listens for other nodes [default: the port it advertises, on loopback if it advertises loopback]
    #[arg(long, value_name = "ADDR", requires = "database", value_parser = parse_listen)]
    peer_listen: Option<SocketAddr>,

    /// This node's certificate (PEM, with those between it and the authority): calls between nodes are encrypted, and both
    /// sides verified. Goes with --peer-key and --peer-ca, on all nodes; taken up again when the files change
    #[arg(long, value_name = "FILE", requires = "database")]
    peer_cert: Option<PathBuf>,

    /// The private key of that certificate, closed to other users
    #[arg(long, value_name = "FILE", requires = "database")]
    peer_key: Option<PathBuf>,

    /// The certificates of the authorities that sign those of nodes, for example one of your own, made with openssl
    #[arg(long, value_name = "FILE", requires = "database")]
    peer_ca: Option<PathBuf>,

    /// How many shards the cluster should have; those that are missing are made [default: 1]
    #[arg(long, value_name = "N", env = "LOCKWOOD_SHARDS", requires = "database",
        value_parser = clap::value_parser!(u32).range(1..=SHARDS_MAX))]
    shards: Option<u32>,

    /// Save a snapshot of a shard when its log has grown by N MiB, or by as much as the last snapshot is large: a node
    /// without a cache loads it, and does not start from the first record
    #[arg(long, value_name = "N", default_value_t = 64, requires = "database",
        value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    snapshot_mib: u64,

    /// How other nodes reach this one, if not at the address it listens on
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    advertise: Option<String>,
}

impl ClusterArgs {
    fn node(&self) -> anyhow::Result<Option<NodeConfig>> {
        let tls = self.tls()?;
        let Some(database) = self.database.clone() else { return Ok(None) };
        Ok(Some(NodeConfig {
            database,
            name: self.node.clone(),
            advertise: self.advertise.clone(),
            peer_listen: self.peer_listen.unwrap_or_else(|| peer_listen(self.advertise.as_deref())),
            shards: self.shards,
            tls,
            snapshot_bytes: self.snapshot_mib << 20,
        }))
    }

    /// All three files, or none.
    fn tls(&self) -> anyhow::Result<Option<TlsFiles>> {
        match (self.peer_cert.clone(), self.peer_key.clone(), self.peer_ca.clone()) {
            (None, None, None) => Ok(None),
            (Some(certificate), Some(key), Some(authority)) => {
                Ok(Some(TlsFiles { certificate, key, authority }))
            }
            (certificate, key, _) => {
                let missing = match (certificate, key) {
                    (None, _) => "--peer-cert FILE, the certificate of this node",
                    (_, None) => "--peer-key FILE, the private key of its certificate",
                    _ => "--peer-ca FILE, the authority that signs the certificates of nodes",
                };
                anyhow::bail!(
                    "TLS between nodes takes three files, so that both sides can verify each other; add {missing}"
                )
            }
        }
    }
}

/// Where a node listens for other nodes if it advertises this address. A port that the system chooses is advertised as
/// it is.
fn peer_listen(advertise: Option<&str>) -> SocketAddr {
    let Some((host, port)) = advertise.and_then(|address| address.rsplit_once(':')) else {
        return SocketAddr::from(([127, 0, 0, 1], 0));
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = match host.parse::<IpAddr>() {
        Ok(own) if own.is_loopback() => own,
        Ok(IpAddr::V6(_)) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        _ if host == "localhost" => IpAddr::from(Ipv4Addr::LOCALHOST),
        _ => IpAddr::from(Ipv4Addr::UNSPECIFIED),
    };
    SocketAddr::from((address, port.parse().unwrap_or(0)))
}

/// The facade's flags, with the environment names of the original as their defaults.
#[derive(clap::Args)]
#[command(next_help_heading = "Locktopus")]
struct LocktopusArgs {
    /// Speak the Locktopus protocol too, on ADDR or on the host and port below
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = false, value_parser = parse_listen)]
    locktopus: Option<Option<SocketAddr>>,

    /// Host for --locktopus [default: 127.0.0.1]
    #[arg(long, value_name = "HOST", env = "LOCKTOPUS_HOST")]
    locktopus_host: Option<String>,

    /// Port for --locktopus [default: 9009]
    #[arg(long, value_name = "PORT", env = "LOCKTOPUS_PORT", value_parser = optional::<u16>)]
    locktopus_port: Option<Optional<u16>>,

    /// Log connections: true, 1, yes or y
    #[arg(long, value_name = "YES", env = "LOCKTOPUS_LOG_CLIENTS", num_args = 0..=1, default_missing_value = "true")]
    locktopus_log_clients: Option<String>,

    /// Log locks and releases: true, 1, yes or y
    #[arg(long, value_name = "YES", env = "LOCKTOPUS_LOG_LOCKS", num_args = 0..=1, default_missing_value = "true")]
    locktopus_log_locks: Option<String>,

    /// Log counts every so many seconds; 0 is never
    #[arg(long, value_name = "SECONDS", env = "LOCKTOPUS_STATS_INTERVAL", value_parser = optional::<i64>,
        allow_negative_numbers = true)]
    locktopus_stats_interval: Option<Optional<i64>>,

    /// Milliseconds locks stay after a connection is lost, unless the client says [default: 60000]
    #[arg(long, value_name = "MS", env = "LOCKTOPUS_DEFAULT_ABANDON_TIMEOUT", value_parser = optional::<i64>,
        allow_negative_numbers = true)]
    locktopus_default_abandon_timeout: Option<Optional<i64>>,
}

/// The flags of the OpenSlides facade.
#[derive(clap::Args)]
#[command(next_help_heading = "OpenSlides")]
struct OpenslidesArgs {
    /// Be an OpenSlides datastore too, its reader and its writer on these addresses, for example
    /// 127.0.0.1:9010,127.0.0.1:9011, which they are without a value
    #[arg(long, value_name = "READER,WRITER", num_args = 0..=1, require_equals = false, value_parser = two_addresses)]
    openslides: Option<Option<(SocketAddr, SocketAddr)>>,

    /// The namespace its models are in
    #[arg(long, value_name = "NAME", default_value = "openslides")]
    openslides_namespace: String,

    /// Tell the stream ModifiedFields of this Redis of every change, for example 127.0.0.1:6379
    #[arg(long, value_name = "HOST:PORT", requires = "openslides", value_parser = host_and_port)]
    openslides_redis: Option<String>,

    /// Let truncate_db throw everything in the namespace away
    #[arg(long, requires = "openslides")]
    openslides_development: bool,
}

/// The flags of the Elasticsearch facade.
#[derive(clap::Args)]
#[command(next_help_heading = "Elasticsearch")]
struct ElasticsearchArgs {
    /// Answer Elasticsearch clients too, as far as document locks need it, on ADDR or on 127.0.0.1:9200
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = false, value_parser = parse_listen)]
    elasticsearch: Option<Option<SocketAddr>>,

    /// A directory with scripts that requests can name: NAME.groovy and NAME.painless
    #[arg(long, value_name = "DIR", requires = "elasticsearch")]
    elasticsearch_scripts: Option<PathBuf>,
}

/// The flags of the Schema Registry facade.
#[derive(clap::Args)]
#[command(next_help_heading = "Schema Registry")]
struct SchemaRegistryArgs {
    /// Speak the REST interface of Confluent's Schema Registry too, on ADDR; 127.0.0.1:8081 without a value
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = false, value_parser = parse_listen)]
    schema_registry: Option<Option<SocketAddr>>,

    /// The namespace of subjects that name no context; others are written :.NAMESPACE:SUBJECT
    #[arg(long, value_name = "NAME", default_value = "default")]
    schema_registry_namespace: String,
}

impl SchemaRegistryArgs {
    /// The facade is on only if `--schema-registry` says so.
    fn into_config(self) -> Option<SchemaRegistryConfig> {
        let listen = self.schema_registry?.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8081)));
        Some(SchemaRegistryConfig { listen, namespace: self.schema_registry_namespace })
    }
}

fn two_addresses(text: &str) -> Result<(SocketAddr, SocketAddr), String> {
    let rule = "two addresses with a comma between them, for example 127.0.0.1:9010,127.0.0.1:9011";
    let (reader, writer) = text.split_once(',').ok_or(rule)?;
    let address = |text: &str| parse_listen(text.trim()).map_err(|_| rule);
    Ok((address(reader)?, address(writer)?))
}

fn host_and_port(text: &str) -> Result<String, String> {
    let port =
        text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(_)) => Ok(text.to_owned()),
        _ => Err("a host and a port, for example 127.0.0.1:6379".to_owned()),
    }
}

/// An origin as browsers write it: a scheme and a host, a port if it is not the scheme's own, and nothing else.
fn origin(text: &str) -> Result<String, String> {
    let is_host = |rest: &str| !rest.is_empty() && !rest.contains(['/', '?', '#', '@', ' ']);
    match text.split_once("://") {
        _ if text == "*" => Ok(text.to_owned()),
        Some((scheme, host)) if !scheme.is_empty() && is_host(host) => Ok(text.to_owned()),
        _ => Err("a scheme and a host without a path, for example https://app.example:8443, or *".to_owned()),
    }
}

/// A value that counts as absent when it is empty, as the original has it for its environment.
#[derive(Debug, Clone, Copy)]
struct Optional<T>(Option<T>);

fn optional<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<Optional<T>, String> {
    match text {
        "" => Ok(Optional(None)),
        text => text.parse::<T>().map(|value| Optional(Some(value))).map_err(|error| error.to_string()),
    }
}

fn given<T: Copy>(value: Option<Optional<T>>) -> Option<T> {
    value.and_then(|Optional(value)| value)
}

fn is_true(text: Option<&str>) -> bool {
    matches!(text, Some("true" | "1" | "yes" | "y"))
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let in_json = args.log_format == "json";
    start_log(in_json);
    #[cfg(feature = "planted")]
    args.planted.into_iter().for_each(lockwood_planted::plant);
    raise_file_limit();
    close_new_files();
    match start(args, in_json) {
        // Whoever reads the log reads JSON, to the last line.
        Err(error) if in_json => {
            tracing::error!(error = format!("{error:#}"), "the server cannot start or go on");
            Ok(ExitCode::FAILURE)
        }
        ended => ended,
    }
}

fn start(args: Args, in_json: bool) -> anyhow::Result<ExitCode> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(args.threads.map_or_else(default_threads, usize::from));
    let config = args.into_config()?;
    let runtime = runtime.enable_all().build().context("start threads")?;
    let (sender, stop) = mpsc::channel(2);
    pass_on_signals(sender).context("listen for signals")?;
    let ended = runtime.block_on(serve(config, stop, in_json));
    // Work that was cancelled ends soon. What does not is left behind.
    runtime.shutdown_timeout(STOP_PATIENCE);
    ended
}

/// A lock takes far less time than the network work around it, most of which the kernel does on other cores.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))
}

async fn serve(config: Config, stop: mpsc::Receiver<()>, in_json: bool) -> anyhow::Result<ExitCode> {
    let data = config.data.clone();
    let greet = |bound: &Bound| {
        let data = data.display().to_string();
        let text = if in_json { greeting_in_json(bound, &data) } else { greeting(bound, &data) };
        // Nobody has to listen.
        let _ = std::io::stdout().write_all(text.as_bytes());
    };
    let stopped = lockwood_server::run(config, greet, stop);
    match stopped.await? {
        Stopped::Clean => Ok(ExitCode::SUCCESS),
        Stopped::LocksHeld(count) if in_json => {
            tracing::warn!(count, "stopped while locks were held; the next start will wait for them");
            Ok(ExitCode::from(STOPPED_WITH_LOCKS))
        }
        Stopped::LocksHeld(count) => {
            let _ = writeln!(
                std::io::stderr(),
                "lockwood: stopped while {count} locks were held; the next start will wait for them"
            );
            Ok(ExitCode::from(STOPPED_WITH_LOCKS))
        }
    }
}

/// On a thread of its own, so that signals are heard whatever the others are busy with.
fn pass_on_signals(stop: mpsc::Sender<()>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listen = async move {
        let handlers = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
        let (Ok(mut terminate), Ok(mut interrupt)) = handlers else { return };
        // The first makes the server drain, the second makes it stop at once.
        for _ in 0..2 {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            let _ = stop.try_send(());
        }
        tokio::time::sleep(STOP_PATIENCE).await;
        let _ = writeln!(
            std::io::stderr(),
            "lockwood: stopped while requests were worked on; the next start will wait for locks that may be held"
        );
        std::process::exit(STOPPED_WITH_LOCKS.into());
    };
    std::thread::Builder::new()
        .name("lockwood-signals".to_owned())
        .spawn(move || runtime.block_on(listen))?;
    Ok(())
}

/// What a user sees first: where everything is and what to try.
fn greeting(bound: &Bound, data: &str) -> String {
    let Bound { native, locktopus, openslides, elasticsearch, schema_registry, left_out, grace } = bound;
    let mut text = format!("Lockwood {} is up. Data: {data}\n\n", env!("CARGO_PKG_VERSION"));
    text += &format!("  native     http://{native}    (sessions: ws://{native}/v1/NAMESPACE/session)\n");
    if let Some(locktopus) = locktopus {
        text += &format!("  locktopus  ws://{locktopus}/v1?namespace=NAMESPACE\n");
    }
    if let Some((reader, writer)) = openslides {
        text += &format!("  openslides reader http://{reader}\n");
        text += &format!("  openslides writer http://{writer}\n");
    }
    if let Some(elasticsearch) = elasticsearch {
        text += &format!("  elasticsearch http://{elasticsearch}\n");
    }
    if let Some(schema_registry) = schema_registry {
        text += &format!("  schemas    http://{schema_registry}\n");
    }
    for facade in left_out {
        text += &format!("  {} is left out: {}\n", facade.name, facade.reason);
    }
    if let Some(longest_ms) = grace.iter().map(|info| info.left_ms).max() {
        let whose = match &grace[..] {
            [GraceInfo { namespace: Some(name), .. }] => format!("in namespace {name:?}"),
            _ if grace.iter().any(|info| info.namespace.is_none()) => "in any namespace".to_owned(),
            _ => format!("in {} namespaces", grace.len()),
        };
        text += &format!(
            "\nThe last run did not end cleanly: nothing is granted {whose} for up to {longest_ms} ms, in which clients\n\
             can take up their sessions again. `lockwood grace` says more.\n"
        );
    }
    text += "\nTry, in another terminal:\n";
    text += "  lockwood lock --write user/42 -- sleep 60      run a program under a lock\n";
    text += "  lockwood locks                                 see who holds it\n";
    text += "  lockwood put user/42 '{\"name\": \"Ann\"}'         write a document\n";
    text += "  lockwood history user/42                       see what became of it\n";
    text += &format!("  curl http://{native}/v1/default/locks\n\n");
    text
}

/// The same for programs, in one line.
fn greeting_in_json(bound: &Bound, data: &str) -> String {
    let Bound { native, locktopus, openslides, elasticsearch, schema_registry, left_out, grace } = bound;
    let text = |address: &SocketAddr| address.to_string();
    let left_out: Vec<_> =
        left_out.iter().map(|facade| json!({ "name": facade.name, "reason": facade.reason })).collect();
    let fields = json!({
        "message": "the server is up",
        "version": env!("CARGO_PKG_VERSION"),
        "data": data,
        "native": text(native),
        "locktopus": locktopus.as_ref().map(text),
        "openslides_reader": openslides.as_ref().map(|(reader, _)| text(reader)),
        "openslides_writer": openslides.as_ref().map(|(_, writer)| text(writer)),
        "elasticsearch": elasticsearch.as_ref().map(text),
        "schema_registry": schema_registry.as_ref().map(text),
        "left_out": left_out,
        "grace": grace,
    });
    format!("{}\n", json!({ "level": "INFO", "fields": fields }))
}

/// A panic is an event like others. Without it the text of a panic would stand between lines of JSON.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = panic.payload_as_str().unwrap_or("no message");
        tracing::error!(why = message, place, "panic");
    }));
}

fn start_log(in_json: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal());
    match in_json {
        true => {
            log.json().init();
            log_panics();
        }
        false => log.init(),
    }
}

/// Every connection needs a file descriptor; the usual limit of 1024 is too few for a server.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// What the process makes from now on is its owner's alone.
pub(crate) fn close_new_files() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

impl Args {
    fn into_config(self) -> anyhow::Result<Config> {
        let locktopus = self.locktopus.config()?;
        let node = self.cluster.node()?;
        anyhow::ensure!(
            self.cluster.advertise.is_none() || node.is_some(),
            "--advertise is for nodes of a cluster; it goes with --cluster"
        );
        Ok(Config {
            listen: self.listen,
            data: self.data,
            insecure: self.insecure,
            hosts: self.hosts,
            origins: self.origins,
            raw_operations: self.raw_operations,
            abandon_timeout_ms: self.abandon_timeout.as_millis() as u64,
            wait_ms: self.wait.as_millis() as u64,
            ping_interval: self.ping_interval,
            silence_max: self.silence_max,
            body_timeout: self.body_timeout,
            write_timeout: self.write_timeout,
            drain_timeout: self.drain_timeout,
            retain: self.retain,
            locktopus,
            openslides: self.openslides.into_config(),
            elasticsearch: self.elasticsearch.into_config(),
            schema_registry: self.schema_registry.into_config(),
            skip_unavailable: self.skip_unavailable,
            node,
            limits: self.limits.0,
        })
    }
}

impl OpenslidesArgs {
    /// The facade is on only if `--openslides` says so.
    fn into_config(self) -> Option<OpenslidesConfig> {
        let standard =
            || (SocketAddr::from(([127, 0, 0, 1], 9010)), SocketAddr::from(([127, 0, 0, 1], 9011)));
        let (reader, writer) = self.openslides?.unwrap_or_else(standard);
        Some(OpenslidesConfig {
            namespace: self.openslides_namespace,
            redis: self.openslides_redis,
            development: self.openslides_development,
            ..OpenslidesConfig::new(reader, writer)
        })
    }
}

impl ElasticsearchArgs {
    /// The facade is on only if `--elasticsearch` says so.
    fn into_config(self) -> Option<ElasticsearchConfig> {
        let listen = self.elasticsearch?.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 9200)));
        Some(ElasticsearchConfig { listen, scripts: self.elasticsearch_scripts })
    }
}

impl LocktopusArgs {
    /// The facade is on only if `--locktopus` says so.
    fn config(&self) -> anyhow::Result<Option<LocktopusConfig>> {
        let Some(address) = self.locktopus else { return Ok(None) };
        let defaults = LocktopusConfig::new(address.map_or_else(|| self.resolve(), Ok)?);
        let timeout = given(self.locktopus_default_abandon_timeout);
        let interval = given(self.locktopus_stats_interval).and_then(|seconds| u64::try_from(seconds).ok());
        Ok(Some(LocktopusConfig {
            abandon_timeout_ms: timeout.map_or(defaults.abandon_timeout_ms, |timeout| timeout.max(0) as u64),
            log_clients: is_true(self.locktopus_log_clients.as_deref()),
            log_locks: is_true(self.locktopus_log_locks.as_deref()),
            stats_interval: interval.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            ..defaults
        }))
    }

    fn resolve(&self) -> anyhow::Result<SocketAddr> {
        let host = self.locktopus_host.as_deref().filter(|host| !host.is_empty()).unwrap_or("127.0.0.1");
        let port = given(self.locktopus_port).unwrap_or(9009);
        let mut addresses = (host, port).to_socket_addrs().with_context(|| format!("look up {host}"))?;
        addresses.next().with_context(|| format!("{host} has no address"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_listens_where_it_is_advertised() {
        let check = |advertised: &str, expected: &str| {
            assert_eq!(peer_listen(Some(advertised)).to_string(), expected, "{advertised}");
        };
        check("127.0.0.1:7118", "127.0.0.1:7118");
        check("127.0.1.2:7118", "127.0.1.2:7118");
        check("localhost:7118", "127.0.0.1:7118");
        check("[::1]:7118", "[::1]:7118");
        check("10.0.0.11:7118", "0.0.0.0:7118");
        check("[fd00::11]:7118", "[::]:7118");
        check("n1.example:7118", "0.0.0.0:7118");
        assert_eq!(peer_listen(None).to_string(), "127.0.0.1:0");
    }
}
