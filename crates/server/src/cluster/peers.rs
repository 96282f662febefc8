//! Requests to other nodes: connections that are kept for the next request, patience, and what is safe to send
//! again; in a cluster over PostgreSQL, calls to other shards. Knows nothing of what the requests ask for.

use crate::clustered::{Membership, ShardCall};
use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Request, Response,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header,
};
use hyper_util::rt::TokioIo;
use lockwood_cluster::CallError;
use lockwood_router::ShardNo;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::net::TcpStream;

/// A node that cannot be reached within this time is taken to be down.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// So many idle connections to one node are kept.
const IDLE_LEN_MAX: usize = 64;

/// The header that says that a request comes from another node.
pub(crate) const PEER: &str = "lockwood-peer";
/// The header with the epoch of the sender's map.
pub(crate) const EPOCH: &str = "lockwood-epoch";

/// A request to another node.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
    /// How long the answer may take to begin.
    pub(crate) patience: Duration,
}

/// Why a node did not answer.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum PeerError {
    /// It did not get the request, so nothing was done.
    #[error("{address} cannot be reached: {cause}")]
    NotSent {
        /// Which node.
        address: String,
        /// Why.
        cause: String,
    },
    /// It may have got the request, and may have done what it says.
    #[error("{address} did not answer: {cause}")]
    Unknown {
        /// Which node.
        address: String,
        /// Why.
        cause: String,
    },
}

impl From<CallError> for PeerError {
    fn from(error: CallError) -> PeerError {
        match error {
            CallError::NotSent { address, cause } | CallError::Rejected { address, cause } => {
                PeerError::NotSent { address, cause }
            }
            CallError::Unknown { address, cause } => PeerError::Unknown { address, cause },
        }
    }
}

type Sender = SendRequest<Full<Bytes>>;

/// How others are reached.
pub(crate) enum Peers {
    /// By the addresses of nodes.
    Nodes(Pool),
    /// By the numbers of shards; the current owner answers. An address is one that [`address_of`] makes.
    Shards(Arc<Membership>),
}

impl Peers {
    /// Sends a request and gives its answer, whatever it is, with the body read to its end.
    pub(crate) async fn ask(
        &self,
        address: &str,
        epoch: u64,
        message: &Message,
    ) -> Result<Response<Bytes>, PeerError> {
        match self {
            Peers::Nodes(pool) => pool.ask(address, epoch, message).await,
            Peers::Shards(membership) => {
                let shard = shard_of(address)?;
                let call = membership.sign(message.to_shard(epoch));
                let mut answer = membership.node.ask_shard(shard, &call).await?;
                membership.heed(answer.headers_mut());
                Ok(answer)
            }
        }
    }

    /// Sends a request and gives its answer with a body that is still to come.
    pub(crate) async fn open(
        &self,
        address: &str,
        epoch: u64,
        message: &Message,
    ) -> Result<Response<Body>, PeerError> {
        match self {
            // The connection belongs to the body now and ends with it.
            Peers::Nodes(pool) => Ok(pool.exchange(address, epoch, message).await?.0.map(Body::new)),
            Peers::Shards(membership) => {
                let shard = shard_of(address)?;
                let call = membership.sign(message.to_shard(epoch));
                let mut answer = membership.node.call_shard(shard, &call).await?;
                membership.heed(answer.headers_mut());
                Ok(answer)
            }
        }
    }

    /// A request as another one would send it.
    pub(crate) fn request(&self, address: &str, epoch: u64, message: &Message) -> Request<Full<Bytes>> {
        match self {
            Peers::Nodes(pool) => pool.request(address, epoch, message),
            Peers::Shards(_) => {
                let mut request = Request::new(Full::new(message.body.clone()));
                *request.method_mut() = message.method.clone();
                *request.uri_mut() = message.target.parse().unwrap_or_default();
                *request.headers_mut() = message.headers(epoch);
                request
            }
        }
    }
}

/// What a map has for the address of a shard in a cluster over PostgreSQL: its owner is the node on record.
pub(crate) fn address_of(shard: ShardNo) -> String {
    format!("shard-{}:1", shard.0)
}

fn shard_of(address: &str) -> Result<ShardNo, PeerError> {
    let number = address.strip_prefix("shard-").and_then(|rest| rest.strip_suffix(":1")?.parse().ok());
    number.map(ShardNo).ok_or_else(|| {
        let cause = "it is not the address of a shard".to_owned();
        PeerError::NotSent { address: address.to_owned(), cause }
    })
}

impl Message {
    fn to_shard(&self, epoch: u64) -> ShardCall {
        let Message { method, target, body, patience, .. } = self.clone();
        ShardCall { method, target, headers: self.headers(epoch), body, timeout: patience }
    }

    fn headers(&self, epoch: u64) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(EPOCH, epoch.into());
        for (name, value) in &self.headers {
            if let Ok(value) = value.parse() {
                headers.insert(*name, value);
            }
        }
        headers
    }
}

/// The connections to all other nodes.
pub(crate) struct Pool {
    /// What proves that a request comes from a node of this cluster.
    secret: String,
    idle: Mutex<HashMap<String, Vec<Sender>>>,
}

impl Pool {
    pub(crate) fn new(secret: String) -> Pool {
        Pool { secret, idle: Mutex::default() }
    }

    /// Sends a request and gives its answer, whatever it is, with the body read to its end.
    async fn ask(&self, address: &str, epoch: u64, message: &Message) -> Result<Response<Bytes>, PeerError> {
        let (answer, sender) = self.exchange(address, epoch, message).await?;
        let unknown = |cause: String| PeerError::Unknown { address: address.to_owned(), cause };
        let (parts, body) = answer.into_parts();
        let body = tokio::time::timeout(message.patience, body.collect()).await;
        let body = body.map_err(|_| unknown("it took too long".to_owned()))?;
        let body = body.map_err(|error| unknown(error.to_string()))?.to_bytes();
        self.keep(address, sender);
        Ok(Response::from_parts(parts, body))
    }

    async fn exchange(
        &self,
        address: &str,
        epoch: u64,
        message: &Message,
    ) -> Result<(Response<Incoming>, Sender), PeerError> {
        let mut request = self.request(address, epoch, message);
        // A connection that was kept may have been closed meanwhile; then the request comes back unsent.
        while let Some(mut sender) = self.idle(address) {
            if !matches!(tokio::time::timeout(message.patience, sender.ready()).await, Ok(Ok(()))) {
                continue;
            }
            match tokio::time::timeout(message.patience, sender.try_send_request(request)).await {
                Ok(Ok(answer)) => return Ok((answer, sender)),
                Ok(Err(mut error)) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(unknown(address, error.error())),
                },
                Err(_) => return Err(unknown(address, &"it took too long")),
            }
        }
        let mut sender = connect(address).await?;
        match tokio::time::timeout(message.patience, sender.send_request(request)).await {
            Ok(Ok(answer)) => Ok((answer, sender)),
            Ok(Err(error)) => Err(unknown(address, &error)),
            Err(_) => Err(unknown(address, &"it took too long")),
        }
    }

    /// A request as it is sent.
    fn request(&self, address: &str, epoch: u64, message: &Message) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(message.body.clone()));
        *request.method_mut() = message.method.clone();
        *request.uri_mut() = message.target.parse().unwrap_or_default();
        let headers = request.headers_mut();
        let mut set = |name: &'static str, value: &str| {
            if let Ok(value) = value.parse() {
                headers.insert(name, value);
            }
        };
        set(header::HOST.as_str(), address);
        set(PEER, &self.secret);
        set(EPOCH, &epoch.to_string());
        message.headers.iter().for_each(|(name, value)| set(name, value));
        request
    }

    fn idle(&self, address: &str) -> Option<Sender> {
        self.idle.lock().get_mut(address)?.pop()
    }

    fn keep(&self, address: &str, sender: Sender) {
        let mut idle = self.idle.lock();
        let kept = idle.entry(address.to_owned()).or_default();
        if kept.len() < IDLE_LEN_MAX {
            kept.push(sender);
        }
    }
}

fn unknown(address: &str, cause: &dyn std::fmt::Display) -> PeerError {
    PeerError::Unknown { address: address.to_owned(), cause: cause.to_string() }
}

async fn connect(address: &str) -> Result<Sender, PeerError> {
    let not_sent = |cause: String| PeerError::NotSent { address: address.to_owned(), cause };
    let connecting = async {
        let tcp = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let _ = tcp.set_nodelay(true);
        http1::handshake(TokioIo::new(tcp)).await.map_err(|error| error.to_string())
    };
    match tokio::time::timeout(CONNECT_PATIENCE, connecting).await {
        Ok(Ok((sender, connection))) => {
            tokio::spawn(connection);
            Ok(sender)
        }
        Ok(Err(cause)) => Err(not_sent(cause)),
        Err(_) => Err(not_sent("it took too long".to_owned())),
    }
}
