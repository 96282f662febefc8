//! Calls to other nodes: each proved, over connections that are kept for the next call. Says whether a call that failed
//! may have been carried out. A call fails when its node is silent, whatever it asks for; how long a node that answers may
//! take is for the caller to say. Knows nothing of what the calls ask for, nor of which node should be asked.

use crate::{
    answer::{Answer, Kept},
    proof::{BodyDigest, Covered, INCARNATION, Incarnation, PROOF, Prover},
    pulse::{BEAT_INTERVAL, BEAT_TIMEOUT, Pulse},
    tls::{PeerTls, TLS_REQUIRED, Unconnected, rejection, requires_tls},
};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode, Uri,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header::{self, HeaderValue},
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout};
use std::{
    collections::HashMap,
    fmt::Display,
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::Instant,
};

/// The address at which a node only shows that it answers.
pub const BEAT: &str = "/beat";

/// A node that does not accept a connection within this time counts as unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection ends when what was sent on it is not acknowledged for this time. Networks forget connections, too, so each is
/// tried when nothing was sent on it for a while.
const UNACKNOWLEDGED_MS_MAX: u32 = 5_000;
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
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

pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// That of the certificates with which it was made.
    generation: u64,
}

/// The connections to all other nodes. Cheap to clone.
#[derive(Clone)]
pub struct Peers(Arc<Pool>);

pub(crate) struct Pool {
    prover: Arc<Prover>,
    /// Encrypts all calls, if there is one.
    tls: Option<Arc<PeerTls>>,
    idle: Mutex<HashMap<String, Vec<Connection>>>,
    /// Who answers at an address, as far as it is known.
    incarnations: Mutex<HashMap<String, Incarnation>>,
    /// Whether the node at an address answers; each has a task that calls it for as long as it is in here.
    pulses: Mutex<HashMap<String, Arc<Pulse>>>,
    /// How the last connection to an address began: well, or why this node and that one cannot talk.
    begun: Mutex<HashMap<String, Result<(), String>>>,
    /// Calls made so far, in the order of [`CallKind::ALL`].
    made: [AtomicU64; CallKind::ALL.len()],
}

impl Peers {
    /// None yet. With certificates all calls are encrypted.
    #[must_use]
    pub fn new(prover: Arc<Prover>, tls: Option<Arc<PeerTls>>) -> Peers {
        let (idle, incarnations, pulses, begun, made) = Default::default();
        Peers(Arc::new(Pool { prover, tls, idle, incarnations, pulses, begun, made }))
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

    /// How long nothing has come from the node at an address, if it is silent.
    #[must_use]
    pub fn silent_for(&self, address: &str) -> Option<Duration> {
        let pulses = self.0.pulses.lock();
        pulses.get(address).filter(|pulse| pulse.is_silent()).map(|pulse| pulse.unheard())
    }

    /// Waits until the node at an address is silent.
    pub async fn silenced(&self, address: &str) {
        self.0.pulse(address).silenced().await;
    }

    /// Calls the node at an address again and again from now on, so that it is known whether it answers.
    pub fn watch(&self, address: &str) {
        self.0.pulse(address);
    }

    /// Forgets everything about all other addresses.
    pub fn retain(&self, addresses: &[String]) {
        let Pool { idle, incarnations, pulses, begun, .. } = &*self.0;
        idle.lock().retain(|address, _| addresses.contains(address));
        incarnations.lock().retain(|address, _| addresses.contains(address));
        pulses.lock().retain(|address, _| addresses.contains(address));
        begun.lock().retain(|address, _| addresses.contains(address));
    }

    /// How many calls this node has made, by what they were about; one that had to be proved anew counts twice.
    pub fn made(&self) -> impl Iterator<Item = (CallKind, u64)> {
        CallKind::ALL.into_iter().zip(&self.0.made).map(|(kind, made)| (kind, made.load(Ordering::Relaxed)))
    }

    /// Makes a call; the answer's body is still to come. `timeout` is for the head of the answer. A node that is silent is given
    /// a moment to answer a beat; then the call is not sent.
    pub async fn call(
        &self,
        address: &str,
        call: &Call,
        timeout: Duration,
    ) -> Result<Response<Answer>, CallError> {
        let pulse = self.0.pulse(address);
        if pulse.is_silent() && !pulse.answers_within(timeout.min(BEAT_INTERVAL)).await {
            return Err(CallError::NotSent { address: address.to_owned(), cause: pulse.silence() });
        }
        tokio::select! {
            answer = self.0.call((address, &pulse), call, timeout) => answer,
            () = pulse.silenced() => Err(unknown(address, &pulse.silence())),
        }
    }
}

impl Pool {
    /// What is known of the node at an address, which is called again and again from then on.
    fn pulse(self: &Arc<Pool>, address: &str) -> Arc<Pulse> {
        let mut pulses = self.pulses.lock();
        if let Some(pulse) = pulses.get(address) {
            return Arc::clone(pulse);
        }
        let pulse = Arc::new(Pulse::new());
        pulses.insert(address.to_owned(), Arc::clone(&pulse));
        tokio::spawn(beat(Arc::downgrade(self), address.to_owned(), Arc::clone(&pulse)));
        pulse
    }

    /// Makes a call, also to a node that is silent.
    async fn call(
        self: &Arc<Pool>,
        (address, pulse): (&str, &Arc<Pulse>),
        call: &Call,
        timeout: Duration,
    ) -> Result<Response<Answer>, CallError> {
        // A node that has restarted rejects the first proof and says who it is now; it has done nothing by then.
        for _ in 0..2 {
            let answer = self.exchange((address, pulse), call, timeout).await?;
            match self.is_rejection(address, &answer) {
                None => return Ok(answer),
                Some(true) => {}
                Some(false) => break,
            }
        }
        let cause = "it rejects the proof".to_owned();
        Err(CallError::Rejected { address: address.to_owned(), cause })
    }

    /// Calls a node for no other purpose than to hear of it. One that refuses is heard, too.
    async fn beat(self: &Arc<Pool>, address: &str, pulse: &Arc<Pulse>) {
        let begun = Instant::now();
        let call = Call {
            kind: CallKind::Node,
            method: Method::POST,
            target: Uri::from_static(BEAT),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        };
        // What came back has been heard by then.
        match tokio::time::timeout(BEAT_TIMEOUT, self.call((address, pulse), &call, BEAT_TIMEOUT)).await {
            Ok(Ok(_) | Err(CallError::Rejected { .. })) => {}
            Ok(Err(_)) if matches!(self.begun.lock().get(address), Some(Err(_))) => pulse.hear(),
            Ok(Err(_)) | Err(_) if pulse.miss(begun) => {
                tracing::warn!(address, "a node does not answer; calls to it are not waited for");
                // What is sent on these would be lost.
                self.idle.lock().remove(address);
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }

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
        (address, pulse): (&str, &Arc<Pulse>),
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
                Ok(Ok(answer)) => return Ok(self.answer((address, pulse), answer, connection)),
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
                Ok(self.answer((address, pulse), answer, connection))
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
            if let Err(error) = end_when_lost(&tcp) {
                tracing::warn!(%error, "have a connection to a node end when the network loses it");
            }
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
        (address, pulse): (&str, &Arc<Pulse>),
        answer: Response<Incoming>,
        connection: Connection,
    ) -> Response<Answer> {
        // A connection that becomes a tunnel does not come back.
        let returns = answer.status() != StatusCode::SWITCHING_PROTOCOLS;
        let kept = returns.then(|| Kept { pool: Arc::clone(self), address: address.to_owned(), connection });
        pulse.hear();
        answer.map(|body| Answer::new(body, kept, Arc::clone(pulse)))
    }

    /// Keeps a connection for the next call, unless its address was forgotten meanwhile.
    pub(crate) fn keep(&self, address: String, connection: Connection) {
        if !self.pulses.lock().contains_key(&address) {
            return;
        }
        let mut idle = self.idle.lock();
        let kept = idle.entry(address).or_default();
        if kept.len() < IDLE_LEN_MAX {
            kept.push(connection);
        }
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

/// Calls a node again and again, until its address is forgotten.
async fn beat(pool: Weak<Pool>, address: String, pulse: Arc<Pulse>) {
    loop {
        let next = Instant::now() + BEAT_INTERVAL;
        {
            let Some(pool) = pool.upgrade() else { return };
            let is_known = |known: &Arc<Pulse>| Arc::ptr_eq(known, &pulse);
            if !pool.pulses.lock().get(&address).is_some_and(is_known) {
                return;
            }
            pool.beat(&address, &pulse).await;
        }
        tokio::time::sleep_until(next).await;
    }
}

/// Has the kernel end a connection that the network has lost.
fn end_when_lost(tcp: &TcpStream) -> io::Result<()> {
    set_tcp_user_timeout(tcp, UNACKNOWLEDGED_MS_MAX)?;
    set_socket_keepalive(tcp, true)?;
    set_tcp_keepidle(tcp, KEEPALIVE_INTERVAL)?;
    set_tcp_keepintvl(tcp, KEEPALIVE_INTERVAL)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::{body::Incoming, server, service::service_fn};
    use std::convert::Infallible;
    use tokio::net::TcpListener;

    /// Where a node listens that answers everything, and how many calls it has answered.
    async fn node() -> (String, Arc<AtomicU64>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answered = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&answered);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let count = Arc::clone(&count);
                let answer = service_fn(move |_: Request<Incoming>| {
                    count.fetch_add(1, Ordering::Relaxed);
                    async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::new()))) }
                });
                tokio::spawn(server::conn::http1::Builder::new().serve_connection(TokioIo::new(tcp), answer));
            }
        });
        (address, answered)
    }

    #[tokio::test]
    async fn nothing_is_kept_of_an_address_that_no_node_has_any_more() {
        let peers = Peers::new(Arc::new(Prover::new([1; 32], Incarnation::draw())), None);
        let (kept, answered) = node().await;
        let (gone, unanswered) = node().await;
        let known = |address: &String| {
            let Pool { idle, incarnations, pulses, begun, .. } = &*peers.0;
            [
                idle.lock().contains_key(address),
                incarnations.lock().contains_key(address),
                pulses.lock().contains_key(address),
                begun.lock().contains_key(address),
            ]
        };
        for address in [&kept, &gone] {
            peers.watch(address);
            peers.0.incarnations.lock().insert(address.clone(), Incarnation::draw());
        }
        while known(&kept) != [true; 4] || known(&gone) != [true; 4] {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        peers.retain(std::slice::from_ref(&kept));
        assert_eq!((known(&kept), known(&gone)), ([true; 4], [false; 4]));
        // One beat may be under way.
        let (before, last) = (answered.load(Ordering::Relaxed), unanswered.load(Ordering::Relaxed) + 1);
        while answered.load(Ordering::Relaxed) < before + 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(unanswered.load(Ordering::Relaxed) <= last, "it is still called");
        assert_eq!(known(&gone), [false; 4]);
    }
}
