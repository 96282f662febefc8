//! Requests with bodies of any length, on their way to the owner of a shard. A proof covers the body of its call, so it has to be
//! known whole; here a proved call without a body opens a connection instead, which carries one request, as sessions are
//! tunnelled. Knows nothing of what is in the bodies.

use super::{
    ClusterNode, Doored, Place, Served,
    aim::Aim,
    door::{Door, DoorBody, no_owner, outcome_unknown, refused, unreachable},
    peer_door::{self, PeerDoor},
    silence::replaced,
};
use crate::{arriving::Arriving, listener::Counted, native::Native};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode, Version,
    body::Incoming,
    header::{self, HeaderValue},
    http::request::Parts,
    service::service_fn,
    upgrade::Upgraded,
};
use hyper_util::rt::TokioTimer;
use lockwood_cluster::{Call, CallError, CallKind};
use lockwood_node::metrics::Interface;
use lockwood_router::{ShardEpoch, ShardNo};
use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

/// The name of this interface in the addresses of calls between nodes.
pub(super) const INTERFACE: &str = "stream";
/// What the connection becomes.
const PROTOCOL: &str = "lockwood-request";
/// How long the owner may take to open the connection.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the head of the request may take on an open connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);

/// Whether a request may have a body that is longer than others: it takes in a dump.
pub(super) fn is_streamed(interface: Interface, method: &Method, path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    interface == Interface::Native && method == Method::POST && matches!(segments[..], ["v1", _, "load"])
}

impl<S: Doored> Door<S> {
    /// Passes a request on to the owner while its body still arrives. Once some of that was sent it cannot be sent again.
    pub(super) async fn stream(
        &self,
        aim: &Aim,
        peer: SocketAddr,
        mut request: Request<Arriving>,
        deadline: Instant,
    ) -> Response<DoorBody<S::Body>> {
        loop {
            request = match self.answer_here(aim, peer, request, deadline).await {
                Ok(answer) => return answer,
                Err(request) => request,
            };
            let shard = aim.shard(&self.node);
            let trouble = match aim.place(&self.node, shard).await {
                Place::There(address, epoch) => {
                    match self.node.open_stream(&address, (shard, epoch), peer).await {
                        Ok(Some(connection)) => {
                            let owner = (address.as_str(), shard, epoch);
                            aim.mark(request.headers_mut());
                            let answer = self.node.send_streamed(connection, owner, request).await;
                            return match answer {
                                Ok(answer) => answer.map(|body| DoorBody::Merged(Full::new(body))),
                                Err(error) => refused::<S>(outcome_unknown(shard, &error)),
                            };
                        }
                        Ok(None) => no_owner(&self.node, shard),
                        // Nothing of the request was sent.
                        Err(error) => unreachable(shard, &error),
                    }
                }
                _ => no_owner(&self.node, shard),
            };
            if Instant::now() >= deadline {
                return refused::<S>(trouble);
            }
            self.wait().await;
        }
    }
}

impl ClusterNode {
    /// Opens a connection to an owner for one request of a client; none if that node does not own the shard.
    async fn open_stream(
        &self,
        address: &str,
        (shard, epoch): (ShardNo, ShardEpoch),
        client: SocketAddr,
    ) -> Result<Option<Upgraded>, CallError> {
        let mut headers = HeaderMap::new();
        headers.insert(peer_door::EPOCH, HeaderValue::from(epoch.0));
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
        if let Ok(client) = HeaderValue::try_from(client.to_string()) {
            headers.insert(peer_door::CLIENT, client);
        }
        let target = format!("/{}/{INTERFACE}/", shard.0).parse().unwrap_or_default();
        let call =
            Call { kind: CallKind::Request, method: Method::POST, target, headers, body: Bytes::new() };
        let mut answer = self.peers.call(address, &call, OPEN_TIMEOUT).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(None);
        }
        let opened = hyper::upgrade::on(&mut answer).await;
        opened.map(Some).map_err(|error| broken(address, &error))
    }

    /// Sends a request over a connection that was opened for it. Its owner is waited for as long as it is the owner.
    async fn send_streamed(
        &self,
        connection: Upgraded,
        (address, shard, epoch): (&str, ShardNo, ShardEpoch),
        request: Request<Arriving>,
    ) -> Result<Response<Bytes>, CallError> {
        let exchange = async {
            let (mut sender, driver) = hyper::client::conn::http1::handshake(connection).await?;
            let driver = tokio::spawn(driver);
            let (mut head, body) = sender.send_request(for_owner(request)).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            driver.abort();
            head.headers.remove(header::CONNECTION);
            head.headers.remove(header::TRANSFER_ENCODING);
            Ok::<_, hyper::Error>(Response::from_parts(head, body))
        };
        tokio::select! {
            answer = exchange => answer.map_err(|error| broken(address, &error)),
            () = self.silenced(shard, epoch) => Err(broken(address, &replaced(shard))),
        }
    }
}

/// Headers that are about the connection to the client stay here.
fn for_owner(mut request: Request<Arriving>) -> Request<Arriving> {
    *request.version_mut() = Version::HTTP_11;
    let about_connection =
        [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::EXPECT];
    for name in about_connection {
        request.headers_mut().remove(name);
    }
    request
}

fn broken(address: &str, cause: &dyn ToString) -> CallError {
    CallError::Unknown { address: address.to_owned(), cause: cause.to_string() }
}

impl PeerDoor {
    /// Agrees to carry one request over a connection, and answers it there.
    pub(super) fn carry(
        &self,
        served: (ShardNo, Served),
        client: SocketAddr,
        parts: Parts,
    ) -> Response<axum::body::Body> {
        let counted = parts.extensions.get::<Arc<Counted>>().cloned();
        let opening = hyper::upgrade::on(Request::from_parts(parts, ()));
        let (door, served) = (self.clone(), Arc::new(served));
        tokio::spawn(async move {
            // The connection counts for as long as it carries the request.
            let _counted = counted;
            let Ok(connection) = opening.await else { return };
            let answers = service_fn(move |request: Request<Incoming>| {
                let (door, served) = (door.clone(), Arc::clone(&served));
                async move { Ok::<_, Infallible>(door.carried(&served, client, request).await) }
            });
            let serving = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .keep_alive(false)
                .serve_connection(connection, answers);
            if let Err(error) = serving.await {
                tracing::debug!(%error, "answer a request that another node carries");
            }
        });
        let mut answer = Response::new(axum::body::Body::empty());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        answer.headers_mut().insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
        answer
    }

    /// The proof was for the connection, so only requests that need one get through.
    async fn carried(
        &self,
        served: &(ShardNo, Served),
        client: SocketAddr,
        request: Request<Incoming>,
    ) -> Response<axum::body::Body> {
        match is_streamed(Interface::Native, request.method(), request.uri().path()) {
            true => self.by::<Native>(served, client, request.map(Arriving::Wire)).await,
            false => peer_door::unknown_interface(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loads_are_streamed() {
        let check = |method: Method, path: &str, expected: bool| {
            assert_eq!(is_streamed(Interface::Native, &method, path), expected, "{method} {path}");
        };
        check(Method::POST, "/v1/shop/load", true);
        check(Method::GET, "/v1/shop/load", false);
        check(Method::POST, "/v1/shop/documents/load", false);
        check(Method::POST, "/v1/load", false);
        assert!(!is_streamed(Interface::Elasticsearch, &Method::POST, "/v1/shop/load"));
    }
}
