//! Accepts connections, speaks HTTP on them, and lets only requests through that may be answered. Knows nothing of
//! routes.

use crate::{
    arriving::Arriving,
    config::Config,
    front::Front,
    guard::{self, AllowedPage},
    outgoing::Outgoing,
    peer_stream::PeerStream,
    stream::Stream,
};
use hyper::{Method, Request, Response, Version, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use lockwood_node::{metrics::Interface, trouble::Trouble};
use lockwood_wire::Code;
use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};

/// A request must arrive within this time, and an idle connection sends one within it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// The head of a request, all headers included.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Answers the requests of one listener.
pub(crate) trait Service: Clone + Send + Sync + 'static {
    type Body: hyper::body::Body<Data = bytes::Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Default
        + Send
        + Unpin
        + 'static;
    /// Under which name its requests are counted.
    fn interface(&self) -> Interface;
    fn answer(
        &self,
        peer: SocketAddr,
        request: Request<Arriving>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
    /// Decides by `Host` and `Origin` whether a request may be answered.
    fn guard(
        &self,
        config: &Config,
        local: SocketAddr,
        request: &Request<Arriving>,
    ) -> Result<Option<AllowedPage>, Trouble> {
        guard::admit(config, local, request)
    }
    /// Whether nothing is said on its connections before they are encrypted.
    fn is_encrypted(&self) -> bool {
        false
    }
    /// A new connection as requests come over it; none if it may not go on.
    fn admit(&self, tcp: TcpStream, _: SocketAddr) -> impl Future<Output = Option<Stream>> + Send {
        std::future::ready(Some(Stream::Plain(tcp)))
    }
    /// Whether a request changes nothing, so that its answer can be refused when it is made.
    fn is_read(&self, method: &Method, path: &str) -> bool;
    /// Says why a request does not get to [`Service::answer`], in the way of the interface.
    fn refuse(trouble: Trouble) -> Response<Self::Body>;
}

/// Accepts connections for ever.
pub(crate) async fn listen(listener: TcpListener, front: Arc<Front>, service: impl Service) {
    loop {
        match listener.accept().await {
            Ok((tcp, peer)) => {
                let counted = Counted::new(&front);
                tokio::spawn(serve(tcp, peer, counted, service.clone()));
            }
            Err(error) => {
                // Out of file descriptors, most likely. They come back when connections end.
                tracing::warn!(%error, "accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(tcp: TcpStream, peer: SocketAddr, counted: Counted, service: impl Service) {
    let limit = counted.0.config.limits.connections_max;
    if counted.0.connections.load(Ordering::Relaxed) > limit {
        return refuse(tcp, &counted.0, limit, service.is_encrypted()).await;
    }
    let _ = tcp.set_nodelay(true);
    let Ok(local) = tcp.local_addr() else { return };
    let Some(stream) = service.admit(tcp, peer).await else { return };
    let counted = Arc::new(counted);
    let (stream, torn) = PeerStream::new(stream, counted.0.config.write_timeout);
    let marks_no_end = Arc::new(AtomicBool::new(false));
    let is_old = Arc::clone(&marks_no_end);
    let answers = service_fn(move |mut request: Request<Incoming>| {
        is_old.store(request.version() == Version::HTTP_10, Ordering::Relaxed);
        // A connection that becomes a WebSocket outlives this task and still counts.
        request.extensions_mut().insert(Arc::clone(&counted));
        let (service, counted) = (service.clone(), Arc::clone(&counted));
        async move { Ok::<_, Infallible>(measured(&service, &counted.0, (local, peer), request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answers)
        .with_upgrades();
    let mut connection = pin!(connection);
    if let Err(error) = connection.as_mut().await {
        tracing::debug!(%error, %peer, "serve a connection");
        // To HTTP/1.0 the end of the connection is the end of the body, complete or not.
        if error.is_user() && marks_no_end.load(Ordering::Relaxed) {
            torn.tear();
        }
    }
}

/// Answers a request, and counts how long that took and how it ended. At the level debug it leaves a line in the log.
async fn measured<S: Service>(
    service: &S,
    front: &Front,
    addresses: (SocketAddr, SocketAddr),
    request: Request<Incoming>,
) -> Response<Outgoing<S::Body>> {
    let said =
        tracing::enabled!(tracing::Level::DEBUG).then(|| (request.method().clone(), request.uri().clone()));
    let begun = Instant::now();
    let response = answer(front, service, addresses, request).await;
    let (took, status) = (begun.elapsed(), response.status());
    let code = response.extensions().get::<Code>().copied();
    front.metrics.requests.answered(service.interface(), took, status.as_u16(), code);
    if let Some((method, target)) = said {
        let (peer, status, took_us) = (addresses.1, status.as_u16(), took.as_micros());
        tracing::debug!(interface = service.interface().as_str(), %peer, %method, %target, status, took_us, "request");
    }
    response
}

/// Answers a request if it may be answered and there is memory for the answer until it is read.
async fn answer<S: Service>(
    front: &Front,
    service: &S,
    addresses: (SocketAddr, SocketAddr),
    request: Request<Incoming>,
) -> Response<Outgoing<S::Body>> {
    let is_read = service.is_read(request.method(), request.uri().path());
    let answer = admit(front, service, addresses, request.map(Arriving::Wire)).await;
    Outgoing::hold(&front.memory, answer, is_read)
        .unwrap_or_else(|trouble| Outgoing::small(refusal::<S>(trouble)))
}

/// Answers a request if its `Host` and `Origin` allow that.
async fn admit<S: Service>(
    front: &Front,
    service: &S,
    (local, peer): (SocketAddr, SocketAddr),
    request: Request<Arriving>,
) -> Response<S::Body> {
    let page = match service.guard(&front.config, local, &request) {
        Ok(page) => page,
        Err(trouble) => return refusal::<S>(trouble),
    };
    let Some(page) = page else { return service.answer(peer, request).await };
    if let Some(answer) = page.preflight(&request) {
        return answer;
    }
    let mut answer = service.answer(peer, request).await;
    page.mark(answer.headers_mut());
    answer
}

pub(crate) fn refusal<S: Service>(trouble: Trouble) -> Response<S::Body> {
    let code = trouble.code;
    let mut response = S::refuse(trouble);
    // For those who count.
    response.extensions_mut().insert(code);
    response
}

async fn refuse(mut tcp: TcpStream, front: &Front, limit: u64, is_encrypted: bool) {
    front.metrics.connections_refused.add(1);
    if is_encrypted {
        // A handshake is what there are too many of.
        return;
    }
    let problem =
        Trouble::too_many("connections_max", limit, "there are too many connections").into_problem();
    let body = serde_json::to_string(&problem).expect("a problem is valid JSON");
    let response = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 5\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = tokio::time::timeout(Duration::from_secs(1), tcp.write_all(response.as_bytes())).await;
}

/// One open connection, for as long as this lives.
pub(crate) struct Counted(Arc<Front>);

impl Counted {
    fn new(front: &Arc<Front>) -> Counted {
        let before = front.connections.fetch_add(1, Ordering::Relaxed);
        front.has_one_caller.store(before == 0, Ordering::Relaxed);
        Counted(Arc::clone(front))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let before = self.0.connections.fetch_sub(1, Ordering::Relaxed);
        self.0.has_one_caller.store(before == 2, Ordering::Relaxed);
    }
}
