//! The life of a server: open, listen, drain, stop. Knows nothing of protocols.

use crate::{
    clustered,
    config::Config,
    elasticsearch::Library,
    front::Front,
    listeners::Listeners,
    runtime::{Origin, Runtime},
};
use lockwood_node::{authority::Authority, lease::LeaseTime};
use lockwood_storage::{Embedded, OpenError, StoreError};
use lockwood_wire::GraceInfo;
use std::{
    io::ErrorKind,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::sync::mpsc;

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
    /// The database of the cluster.
    #[error("cannot use the database of the cluster")]
    Database(#[from] lockwood_cluster::DatabaseError),
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
    if let Some(node) = config.node.clone() {
        return clustered::run(config, node, ready, stop).await;
    }
    config.limit_defaults();
    let listeners = Listeners::bind(&mut config).await?;
    let library = open_library(&config)?;
    let directory = config.data.clone();
    clustered::check_single(&directory)?;
    let front = Front::new(config);
    let origin = Origin {
        front: Arc::clone(&front),
        interfaces: listeners.interfaces(),
        library,
        authority: Arc::new(Authority::sole()),
        lease_time: LeaseTime::Continues,
        directory: directory.clone(),
        membership: None,
    };
    let runtime = Runtime::open(origin, move || {
        restrict_data(&directory);
        Ok(Arc::new(Embedded::open(&directory)?))
    })
    .await?;
    let bound = listeners.bound(runtime.shared.grace.list());
    let _listening = listeners.serve(&front, &runtime.services);
    ready(&bound);
    let _ = stop.recv().await;
    let held = runtime.drain(&mut stop).await;
    runtime.close(std::future::ready(())).await?;
    Ok(if held == 0 { Stopped::Clean } else { Stopped::LocksHeld(held) })
}

pub(crate) fn open_library(config: &Config) -> Result<Option<Library>, ServeError> {
    let Some(facade) = &config.elasticsearch else { return Ok(None) };
    let limit = config.limits.script_bytes_max;
    Library::open(facade.scripts.as_deref(), limit).map(Some).map_err(ServeError::Setting)
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

/// Closes the data directory to other users of the machine. If it belongs to another user, its modes are that user's.
pub(crate) fn restrict_data(directory: &Path) {
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
