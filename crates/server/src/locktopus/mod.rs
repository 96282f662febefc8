//! The Locktopus facade: its three addresses and its protocol, on the same lock tables as everything else.
//! Knows nothing of the native interface, and decides nothing about locks.

mod connection;
mod message;
#[cfg(test)]
mod message_fuzz;

use crate::{
    arriving::Arriving,
    config::LocktopusConfig,
    handshake::{self, NotHandshake, Upgrade},
    listener::{Counted, Service},
    shared::Shared,
};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, SEC_WEBSOCKET_VERSION},
};
use lockwood_node::{
    metrics::Interface,
    namespace::Namespace,
    seat::Seat,
    secret::Secrets,
    session::{Opening, Via},
    trouble::Trouble,
};
use std::{
    fmt::Write,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// How long the locks of a connection stay after it is lost; less than was asked for if that was too much.
const ABANDON_TIMEOUT: HeaderName = HeaderName::from_static("x-abandon-timeout-ms");

type Answer = Response<Full<Bytes>>;

/// Answers everything on the Locktopus listener.
#[derive(Clone)]
pub(crate) struct Locktopus {
    shared: Arc<Shared>,
    /// Whether the log says already that somebody asked for too long an abandon timeout.
    capped: Arc<AtomicBool>,
}

impl Service for Locktopus {
    type Body = Full<Bytes>;

    fn interface(&self) -> Interface {
        Interface::Locktopus
    }

    async fn answer(&self, peer: SocketAddr, mut request: Request<Arriving>) -> Answer {
        match request.uri().path() {
            "/v1" => self.connect(peer, &mut request).await,
            "/stats_v1" => self.stats(&request),
            "/" => text(StatusCode::OK, &self.status_page()),
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    fn is_read(&self, _: &Method, _: &str) -> bool {
        true
    }

    fn refuse(trouble: Trouble) -> Answer {
        refusal(&trouble)
    }
}

impl Locktopus {
    pub(crate) fn new(shared: &Arc<Shared>) -> Locktopus {
        Locktopus { shared: Arc::clone(shared), capped: Arc::default() }
    }

    fn config(&self) -> &LocktopusConfig {
        self.shared.config.locktopus.as_ref().expect("the facade runs because it was asked for")
    }

    /// Namespace first, then the timeout, then the handshake: in this order mistakes are reported.
    async fn connect(&self, peer: SocketAddr, request: &mut Request<Arriving>) -> Answer {
        let (namespace, timeout) = match self.read_query(request) {
            Ok(read) => read,
            Err(message) => return text(StatusCode::BAD_REQUEST, &message),
        };
        if let Err(trouble) = self.shared.locate(&namespace).await {
            return refusal(&trouble);
        }
        let counted: Option<Arc<Counted>> = request.extensions_mut().remove();
        let (answer, upgrade) = match handshake::accept(request) {
            Ok(accepted) => accepted,
            Err(error) => return not_a_handshake(error),
        };
        match self.open(&namespace, timeout, peer) {
            Ok(seat) => {
                let mut answer = answer;
                answer.headers_mut().insert(ABANDON_TIMEOUT, timeout.into());
                tokio::spawn(self.clone().carry_on(seat, upgrade, peer, counted));
                answer
            }
            Err(trouble) => refusal(&trouble),
        }
    }

    fn read_query(&self, request: &Request<Arriving>) -> Result<(String, u64), String> {
        let query = request.uri().query().unwrap_or_default();
        let value = |name: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
        };
        let namespace = value("namespace").filter(|namespace| !namespace.is_empty());
        let namespace = namespace.ok_or("URL query parameter 'namespace' is required\n")?;
        let limit = self.shared.config.limits.namespace_bytes_max;
        if namespace.len() as u64 > limit {
            return Err(format!(
                "URL query parameter 'namespace' has more than {limit} bytes (namespace_bytes_max)\n"
            ));
        }
        let timeout = match value("abandon-timeout-ms") {
            None => self.config().abandon_timeout_ms,
            Some(value) => self.read_timeout(&value)?,
        };
        Ok((namespace, timeout))
    }

    fn read_timeout(&self, value: &str) -> Result<u64, String> {
        let rule =
            "URL query parameter 'abandon-timeout-ms' must be a whole number of milliseconds, 0 or more";
        let timeout: i64 = value.parse().map_err(|_| format!("{rule}\n"))?;
        let timeout = u64::try_from(timeout).map_err(|_| format!("{rule}\n"))?;
        let limit = self.shared.config.limits.abandon_timeout_ms_max;
        if timeout > limit && !self.capped.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                asked_ms = timeout,
                abandon_timeout_ms_max = limit,
                "a locktopus client asked for a longer abandon timeout than there is; it gets the longest one"
            );
        }
        Ok(timeout.min(limit))
    }

    fn open(&self, namespace: &str, abandon_timeout_ms: u64, peer: SocketAddr) -> Result<Seat, Trouble> {
        let stay = self.shared.admit(abandon_timeout_ms)?;
        let (id, via) = (Secrets::new_session_id(), Via::Locktopus);
        Seat::open(&self.shared, namespace, Opening { id, name: None, via, peer, stay }, &[])
    }

    async fn carry_on(self, seat: Seat, upgrade: Upgrade, peer: SocketAddr, counted: Option<Arc<Counted>>) {
        let log = self.config().log_clients;
        if log {
            tracing::info!(%peer, namespace = ?seat.namespace().name, "locktopus client connected");
        }
        if let Some((stream, received)) = upgrade.complete().await {
            connection::run(&self.shared, seat, self.config().log_locks, stream, &received).await;
        }
        if log {
            tracing::info!(%peer, "locktopus client disconnected");
        }
        drop(counted);
    }

    fn stats(&self, request: &Request<Arriving>) -> Answer {
        let query = request.uri().query().unwrap_or_default();
        let namespace = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "namespace");
        let Some((_, name)) = namespace.filter(|(_, name)| !name.is_empty()) else {
            return text(StatusCode::BAD_REQUEST, "URL query parameter 'namespace' is required\n");
        };
        match self.shared.registry.get(&name) {
            None => text(StatusCode::NOT_FOUND, "namespace not found\n"),
            Some(namespace) => {
                let mut answer = text(StatusCode::OK, &stats(&namespace));
                answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                answer
            }
        }
    }

    fn status_page(&self) -> String {
        let listen = self.config().listen;
        let mut page = String::from("Lockwood speaks the Locktopus protocol here.\n\n");
        let parts = [
            format!(
                "Locks (WebSocket): /v1, for example ws://{listen}/v1?namespace=default&abandon-timeout-ms=60000\n"
            ),
            format!(
                "Statistics (HTTP): /stats_v1, for example http://{listen}/stats_v1?namespace=default\n\n"
            ),
            format!(
                "Server parameters:\n  default abandon timeout: {} ms\n  longest abandon timeout: {} ms\n\n",
                self.config().abandon_timeout_ms,
                self.shared.config.limits.abandon_timeout_ms_max
            ),
        ];
        parts.iter().for_each(|part| page.push_str(part));
        let namespaces = self.shared.registry.all();
        match namespaces.is_empty() {
            true => page.push_str("No namespaces are open.\n"),
            false => page.push_str("Open namespaces:\n"),
        }
        for namespace in namespaces {
            writeln!(page, "  {}", namespace.name.escape_debug()).expect("a string takes everything");
        }
        page
    }

    /// Logs the counts of every namespace from time to time, if that is wanted.
    pub(crate) async fn log_stats(self) {
        let Some(interval) = self.config().stats_interval else { return };
        loop {
            tokio::time::sleep(interval).await;
            for namespace in self.shared.registry.all() {
                tracing::info!(namespace = ?namespace.name, stats = stats(&namespace), "locktopus stats");
            }
        }
    }
}

/// The nine numbers Locktopus gives.
fn stats(namespace: &Namespace) -> String {
    let (counts, tally, total) = namespace.counts();
    // The root of the tree has a segment of its own there, the empty one.
    let numbers = [
        ("LastGroupID", total),
        ("GroupsPending", counts.locks_waiting as u64),
        ("GroupsAcquired", counts.locks_granted as u64),
        ("LocksPending", tally.resources_waiting as u64),
        ("LocksAcquired", tally.resources_granted as u64),
        ("LockrefCount", tally.references as u64),
        ("TokensTotal", tally.segments as u64 + 1),
        ("TokensUnique", tally.distinct_segments as u64 + 1),
        ("PathCount", tally.prefixes as u64),
    ];
    let fields: Vec<String> = numbers.iter().map(|(name, number)| format!("\"{name}\":{number}")).collect();
    format!("{{{}}}\n", fields.join(","))
}

fn not_a_handshake(error: NotHandshake) -> Answer {
    match error {
        NotHandshake::Method => text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n"),
        NotHandshake::Header(message) => {
            let mut answer = text(StatusCode::BAD_REQUEST, &format!("Bad Request: {message}\n"));
            answer.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            answer
        }
    }
}

fn refusal(trouble: &Trouble) -> Answer {
    let status = StatusCode::from_u16(trouble.code.status()).expect("codes have real statuses");
    let mut answer = text(status, &format!("{}\n", trouble.message));
    answer.extensions_mut().insert(trouble.code);
    answer
}

fn text(status: StatusCode, body: &str) -> Answer {
    let mut answer = Response::new(Full::from(body.to_owned()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}
