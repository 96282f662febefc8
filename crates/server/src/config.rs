//! What a server is told at its start. Knows nothing of flags or environment variables.

use crate::clustered::NodeConfig;
use lockwood_node::limits::Limits;
use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// The settings of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the native interface listens.
    pub listen: SocketAddr,
    /// Where the directory with everything that must survive is.
    pub data: PathBuf,
    /// Whether addresses other than loopback are allowed although there is no authentication.
    pub insecure: bool,
    /// Names, besides those of loopback and the listening addresses, by which clients may call this server.
    pub hosts: Vec<String>,
    /// Origins of web pages of other sites that may use this server; `*` is all of them.
    pub origins: Vec<String>,
    /// Whether operators may read and change what this node has by `shard/raw/*`.
    pub raw_operations: bool,
    /// How long locks stay after the connection of a native session is lost, unless the session says.
    pub abandon_timeout_ms: u64,
    /// How many milliseconds a document operation waits for others' locks, unless it says.
    pub wait_ms: u64,
    /// A silent connection is pinged this often.
    pub ping_interval: Duration,
    /// A connection that stays silent this long is dead.
    pub silence_max: Duration,
    /// How long the body of a request may take to arrive.
    pub body_timeout: Duration,
    /// A connection whose peer takes nothing of an answer for this long is closed.
    pub write_timeout: Duration,
    /// How long a stopping server waits for locks to be released.
    pub drain_timeout: Duration,
    /// History older than this is forgotten; nothing is if absent.
    pub retain: Option<Duration>,
    /// The Locktopus facade, if it is wanted.
    pub locktopus: Option<LocktopusConfig>,
    /// The OpenSlides facade, if it is wanted.
    pub openslides: Option<OpenslidesConfig>,
    /// The Elasticsearch facade, if it is wanted.
    pub elasticsearch: Option<ElasticsearchConfig>,
    /// The Schema Registry facade, if it is wanted.
    pub schema_registry: Option<SchemaRegistryConfig>,
    /// Whether a facade that cannot listen is left out instead of keeping the server from starting.
    pub skip_unavailable: bool,
    /// What makes it a node of a cluster, if it is one.
    pub node: Option<NodeConfig>,
    /// What is too much.
    pub limits: Limits,
}

/// The settings of the Schema Registry facade.
#[derive(Debug, Clone)]
pub struct SchemaRegistryConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The namespace of subjects that name no context.
    pub namespace: String,
}

/// The settings of the Locktopus facade.
#[derive(Debug, Clone)]
pub struct LocktopusConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// How long locks stay after a connection is lost, unless the client says.
    pub abandon_timeout_ms: u64,
    /// Whether connections are logged.
    pub log_clients: bool,
    /// Whether locks and releases are logged.
    pub log_locks: bool,
    /// How often counts are logged, if at all.
    pub stats_interval: Option<Duration>,
}

/// The settings of the OpenSlides facade.
#[derive(Debug, Clone)]
pub struct OpenslidesConfig {
    /// Where its reader listens.
    pub reader: SocketAddr,
    /// Where its writer listens.
    pub writer: SocketAddr,
    /// The namespace its models are in.
    pub namespace: String,
    /// The Redis that is told of changes, as host and port.
    pub redis: Option<String>,
    /// Whether everything may be thrown away by a request.
    pub development: bool,
}

/// The settings of the Elasticsearch facade.
#[derive(Debug, Clone)]
pub struct ElasticsearchConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// A directory with scripts that requests can name, besides those that are known anyway.
    pub scripts: Option<PathBuf>,
}

impl Config {
    /// The defaults, with everything kept in `data`.
    pub fn new(data: PathBuf) -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 7117)),
            data,
            insecure: false,
            hosts: Vec::new(),
            origins: Vec::new(),
            raw_operations: false,
            abandon_timeout_ms: 60_000,
            wait_ms: 1000,
            ping_interval: Duration::from_secs(15),
            silence_max: Duration::from_secs(45),
            body_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(30),
            retain: None,
            locktopus: None,
            openslides: None,
            elasticsearch: None,
            schema_registry: None,
            skip_unavailable: false,
            node: None,
            limits: Limits::default(),
        }
    }

    /// What a client gets without asking is no more than it may ask for.
    pub(crate) fn limit_defaults(&mut self) {
        let limit = self.limits.abandon_timeout_ms_max;
        let locktopus = self.locktopus.as_mut().map(|locktopus| &mut locktopus.abandon_timeout_ms);
        for timeout_ms in [Some(&mut self.abandon_timeout_ms), locktopus].into_iter().flatten() {
            if *timeout_ms > limit {
                tracing::warn!(
                    default_ms = *timeout_ms,
                    abandon_timeout_ms_max = limit,
                    "the default abandon timeout is longer than the longest one, which holds instead"
                );
                *timeout_ms = limit;
            }
        }
    }
}

impl LocktopusConfig {
    /// The defaults, on `listen`.
    pub fn new(listen: SocketAddr) -> LocktopusConfig {
        LocktopusConfig {
            listen,
            abandon_timeout_ms: 60_000,
            log_clients: false,
            log_locks: false,
            stats_interval: None,
        }
    }
}

impl OpenslidesConfig {
    /// The defaults, on these addresses.
    pub fn new(reader: SocketAddr, writer: SocketAddr) -> OpenslidesConfig {
        OpenslidesConfig {
            reader,
            writer,
            namespace: "openslides".to_owned(),
            redis: None,
            development: false,
        }
    }
}
