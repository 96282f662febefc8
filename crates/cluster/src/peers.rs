//! Calls to other nodes: each proved, over connections that are kept for the next call. Says whether a call that failed
//! may have been carried out. Knows nothing of what the calls ask for, nor of which node should be asked.

use crate::{
    proof::{BodyDigest, Covered, INCARNATION, Incarnation, PROOF, Prover},
    tls::{PeerTls, TLS_REQUIRED, Unconnected, rejection, requires_tls},
};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode, Uri,
    body::{Body, Frame, Incoming, SizeHint},
    client::conn::http1::{self, SendRequest},
    header::{self, HeaderValue},
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fmt::Display,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// A node that does not accept a connection within this time counts as unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Idle connections kept for one node.
const IDLE_LEN_MAX: usize = 64;

/// What a call to another node is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// A client's request, passed on to the owner of a shard.
    Request,
    /// What one shard asks of another: documents, maps, steps of a change of the map.
    Shard,
    /// Locks of spread namespaces: guards, and operations that queue at their home.
    Guards,
    /// A read that a copy may answer.
    Copy,
    /// What nodes tell each other of themselves.
    Node,
}

impl CallKind {
    /// All kinds, in the order in which they are declared.
    pub const ALL: [CallKind; 5] =
        [CallKind::Request, CallKind::Shard, CallKind::Guards, CallKind::Copy, CallKind::Node];

    /// Its name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            CallKind::Request => "request",
            CallKind::Shard => "shard",
            CallKind::Guards => "guards",
            CallKind::Copy => "copy",
            CallKind::Node => "node",
        }
    }
}

/// A call to another node.
#[derive(Debug, Clone)]
pub struct Call {
    /// What it is about.
    pub kind: CallKind,
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub target: Uri,
    /// Its headers; `Host` and the proof are added.
    pub headers: HeaderMap,
    /// All of its body.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The node did not get the call, so nothing was done.
    #[error("{address} cannot be reached: {cause}")]
    NotSent {
        /// The node's address.
        address: String,
        /// What failed.
        cause: String,
    },
    /// The node may have carried the call out.
    #[error("{address} did not answer: {cause}")]
    Unknown {
        /// The node's address.
        address: String,
        /// What failed.
        cause: String,
    },
    /// The node does not take this one for a member of its cluster.
    #[error("{address} does not accept this node: {cause}; do all nodes use the same database?")]
    Rejected {
        /// The node's address.
        address: String,
        /// What the node said.
        cause: String,
    },
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// That of the certificates with which it was made.
    generation: u64,
}

/// The connections to all other nodes. Cheap to clone.
#[derive(Clone)]
pub struct Peers(Arc<Pool>);

struct Pool {
    prover: Arc<Prover>,
    /// Encrypts all calls, if there is one.
    tls: Option<Arc<PeerTls>>,
    idle: Mutex<HashMap<String, Vec<Connection>>>,
    /// Who answers at an address, as far as it is known.
    incarnations: Mutex<HashMap<String, Incarnation>>,
    /// How the last connection to an address began: well, or why this node and that one cannot talk.
    begun: Mutex<HashMap<String, Result<(), String>>>,
    /// Calls made so far, in the order of [`CallKind::ALL`].
    made: [AtomicU64; CallKind::ALL.len()],
}

impl Peers {
    /// None yet. With certificates all calls are encrypted.
    #[must_use]
    pub fn new(prover: Arc<Prover>, tls: Option<Arc<PeerTls>>) -> Peers {
        let (idle, incarnations, begun, made) = Default::default();
        Peers(Arc::new(Pool { prover, tls, idle, incarnations, begun, made }))
    }

    /// What encrypts calls.
    #[must_use]
    pub fn tls(&self) -> Option<&Arc<PeerTls>> {
        self.0.tls.as_ref()
    }

    /// Why this node and the one at an address cannot talk although the network would let them, if that is so.
    #[must_use]
    pub fn misfit(&self, address: &str) -> Option<String> {
        self.0.begun.lock().get(address)?.clone().err()
    }

    /// Whether nothing is known against the node at an address.
    #[must_use]
    pub fn is_reached(&self, address: &str) -> bool {
        matches!(self.0.begun.lock().get(address), Some(Ok(())))
    }

    /// Forgets how connections to all other addresses began.
    pub fn retain(&self, addresses: &[String]) {
        self.0.begun.lock().retain(|address, _| addresses.contains(address));
    }

    /// How many calls this node has made, by what they were about; one that had to be proved anew counts twice.
    pub fn made(&self) -> impl Iterator<Item = (CallKind, u64)> {
        CallKind::ALL.into_iter().zip(&self.0.made).map(|(kind, made)| (kind, made.load(Ordering::Relaxed)))
    }

    /// Makes a call; the answer's body is still to come. `timeout` is for the head of the answer.
    pub async fn call(
        &self,
        address: &str,
        call: &Call,
        timeout: Duration,
    ) -> Result<Response<Answer>, CallError> {
        // A node that has restarted rejects the first proof and says who it is now; it has done nothing by then.
        for _ in 0..2 {
            let answer = self.0.exchange(address, call, timeout).await?;
            match self.0.is_rejection(address, &answer) {
                None => return Ok(answer),
                Some(true) => {}
                Some(false) => break,
            }
        }
        let cause = "it rejects the proof".to_owned();
        Err(CallError::Rejected { address: address.to_owned(), cause })
    }
}

impl Pool {
    /// None if the node took the call; otherwise whether another attempt may succeed.
    fn is_rejection(&self, address: &str, answer: &Response<Answer>) -> Option<bool> {
        if answer.status() != StatusCode::UNAUTHORIZED {
            return None;
        }
        let named = answer.headers().get(INCARNATION)?.to_str().ok().and_then(Incarnation::parse)?;
        let before = self.incarnations.lock().insert(address.to_owned(), named);
        Some(before != Some(named))
    }

    async fn exchange(
        self: &Arc<Pool>,
        address: &str,
        call: &Call,
        timeout: Duration,
    ) -> Result<Response<Answer>, CallError> {
        self.made[call.kind as usize].fetch_add(1, Ordering::Relaxed);
        let mut request = self.request(address, call);
        // A kept connection may have been closed meanwhile; then the request comes back unsent.
        while let Some(mut connection) = self.take_idle(address) {
            if !matches!(tokio::time::timeout(timeout, connection.sender.ready()).await, Ok(Ok(()))) {
                continue;
            }
            match tokio::time::timeout(timeout, connection.sender.try_send_request(request)).await {
                Ok(Ok(answer)) => return Ok(self.answer(address, answer, connection)),
                Ok(Err(mut error)) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(unknown(address, error.error())),
                },
                Err(_) => return Err(unknown(address, &"it took too long")),
            }
        }
        let mut connection = self.connect(address).await?;
        match tokio::time::timeout(timeout, connection.sender.send_request(request)).await {
            Ok(Ok(answer)) if self.tls.is_none() && answer.headers().contains_key(TLS_REQUIRED) => {
                Err(self.misfits(address, requires_tls()))
            }
            Ok(Ok(answer)) => {
                self.begun.lock().insert(address.to_owned(), Ok(()));
                Ok(self.answer(address, answer, connection))
            }
            // In TLS 1.3 a caller is done before its certificate was looked at.
            Ok(Err(error)) => Err(match rejection(&error) {
                Some(cause) => self.misfits(address, cause),
                None => unknown(address, &error),
            }),
            Err(_) => Err(unknown(address, &"it took too long")),
        }
    }

    /// Nothing was done: the two nodes do not understand or trust each other.
    fn misfits(&self, address: &str, cause: String) -> CallError {
        self.idle.lock().remove(address);
        let before = self.begun.lock().insert(address.to_owned(), Err(cause.clone()));
        if before.is_none_or(|before| before.err().as_ref() != Some(&cause)) {
            tracing::warn!(address, cause, "a node cannot be called");
        }
        CallError::NotSent { address: address.to_owned(), cause }
    }

    async fn connect(&self, address: &str) -> Result<Connection, CallError> {
        let generation = self.generation();
        let connecting = async {
            let tcp = TcpStream::connect(address).await;
            let tcp = tcp.map_err(|error| self.unreached(address, &error))?;
            let _ = tcp.set_nodelay(true);
            let Some(tls) = &self.tls else { return self.speak_http(address, tcp).await };
            match tls.connect(address, tcp).await {
                Ok(encrypted) => self.speak_http(address, encrypted).await,
                Err(Unconnected::Misfit(cause)) => Err(self.misfits(address, cause)),
                Err(Unconnected::Lost(cause)) => Err(self.unreached(address, &cause)),
            }
        };
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
        let sender = connected.unwrap_or_else(|_| Err(self.unreached(address, &"it took too long")))?;
        Ok(Connection { sender, generation })
    }

    async fn speak_http(
        &self,
        address: &str,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<SendRequest<Full<Bytes>>, CallError> {
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| self.unreached(address, &error))?;
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }

    /// Nothing was done, and whether the two nodes would understand each other is not known.
    fn unreached(&self, address: &str, cause: &dyn Display) -> CallError {
        self.begun.lock().remove(address);
        CallError::NotSent { address: address.to_owned(), cause: cause.to_string() }
    }

    fn generation(&self) -> u64 {
        self.tls.as_ref().map_or(0, |tls| tls.generation())
    }

    fn request(&self, address: &str, call: &Call) -> Request<Full<Bytes>> {
        let receiver = self.incarnations.lock().get(address).copied();
        let Call { method, target, headers, body, .. } = call;
        let text = target.path_and_query().map_or("/", |target| target.as_str());
        let covered = Covered { method, target: text, headers };
        // To a node that was never heard of this proves nothing; its answer says which incarnation it is.
        let receiver = receiver.unwrap_or(Incarnation::NOBODY);
        let proof = self.prover.prove(covered, BodyDigest::of(body), receiver, now_ms());
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = target.clone();
        *request.headers_mut() = headers.clone();
        let headers = request.headers_mut();
        headers.insert(PROOF, HeaderValue::try_from(proof).expect("a proof is plain ASCII"));
        if let Ok(host) = HeaderValue::try_from(address) {
            headers.insert(header::HOST, host);
        }
        request
    }

    fn answer(
        self: &Arc<Pool>,
        address: &str,
        answer: Response<Incoming>,
        connection: Connection,
    ) -> Response<Answer> {
        // A connection that becomes a tunnel does not come back.
        let returns = answer.status() != StatusCode::SWITCHING_PROTOCOLS;
        let kept = returns.then(|| Kept { pool: Arc::clone(self), address: address.to_owned(), connection });
        let mut answer = answer.map(|body| Answer { body, kept });
        if answer.body().body.is_end_stream() {
            answer.body_mut().give_back();
        }
        answer
    }

    /// A connection for the next call. Those that were made with other certificates are closed.
    fn take_idle(&self, address: &str) -> Option<Connection> {
        let generation = self.generation();
        let mut idle = self.idle.lock();
        let kept = idle.get_mut(address)?;
        kept.retain(|connection| connection.generation == generation);
        kept.pop()
    }
}

/// Milliseconds since the epoch, as the system clock has them.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn unknown(address: &str, cause: &dyn Display) -> CallError {
    CallError::Unknown { address: address.to_owned(), cause: cause.to_string() }
}

/// The body of an answer. Its connection is kept for the next call once all of it was read.
pub struct Answer {
    body: Incoming,
    kept: Option<Kept>,
}

struct Kept {
    pool: Arc<Pool>,
    address: String,
    connection: Connection,
}

impl Answer {
    fn give_back(&mut self) {
        let Some(Kept { pool, address, connection }) = self.kept.take() else { return };
        let mut idle = pool.idle.lock();
        let kept = idle.entry(address).or_default();
        if kept.len() < IDLE_LEN_MAX {
            kept.push(connection);
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let is_over = matches!(polled, Poll::Ready(None)) || self.body.is_end_stream();
        match &polled {
            Poll::Ready(Some(Err(_))) => drop(self.kept.take()),
            _ if is_over => self.give_back(),
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
