//! The door for other nodes: a call with a valid proof is answered by the runtime of its shard, if this node still owns
//! it. Clients never get here. Knows nothing of what the calls ask for.

use super::{
    ClusterNode, Doored, PeerCall, Served, aim, calls,
    door::{Rests, Side, doubt, lost, no_owner},
    follower, guards, reads, streamed,
};
use crate::{
    arriving::Arriving,
    body,
    cluster::dispatch,
    config::Config,
    elasticsearch::Elasticsearch,
    guard::AllowedPage,
    listener::Service,
    locktopus::Locktopus,
    native::{Native, problem},
    schema_registry::SchemaRegistry,
    stream::Stream,
};
use axum::{Json, response::IntoResponse};
#[cfg(test)]
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode, Uri, header::HeaderValue, http::request::Parts,
};
use lockwood_cluster::{BodyDigest, Covered, INCARNATION, PROOF, ProofError, now_ms};
use lockwood_node::{metrics::Interface, trouble::Trouble};
use lockwood_router::{ShardNo, ownership::Event};
use lockwood_wire::Code;
use std::{net::SocketAddr, sync::Arc};
use tokio::net::TcpStream;

/// The header with the address of the client that another node speaks for.
pub(super) const CLIENT: &str = "lockwood-client";
/// The header of a call with the epoch of the owner that it is for. One that goes by older rows would be answered by the next
/// tenure, and given up by its caller as soon as that reads newer ones.
pub(super) const EPOCH: &str = "lockwood-shard-epoch";
/// The header of an answer that another node should give.
const NOT_OWNER: &str = "lockwood-not-owner";

/// The header of an answer that says no more than that the tenure ended.
const LOST: &str = "lockwood-lost";

/// Whether another node has to be asked.
pub(super) fn is_not_owner<B>(answer: &Response<B>) -> bool {
    answer.headers().contains_key(NOT_OWNER)
}

/// Whether the owner has lost the shard before it could answer.
pub(super) fn is_lost<B>(answer: &Response<B>) -> bool {
    answer.headers().contains_key(LOST)
}

/// Answers everything on the listener for other nodes.
#[derive(Clone)]
pub(crate) struct PeerDoor(pub(crate) Arc<ClusterNode>);

type Answer = Response<axum::body::Body>;

impl Service for PeerDoor {
    type Body = axum::body::Body;

    fn interface(&self) -> Interface {
        Interface::Peer
    }

    fn is_encrypted(&self) -> bool {
        self.0.peers.tls().is_some()
    }

    async fn admit(&self, tcp: TcpStream, peer: SocketAddr) -> Option<Stream> {
        self.0.doorkeeper.admit(self.0.peers.tls().map(|tls| &**tls), tcp, peer).await
    }

    async fn answer(&self, peer: SocketAddr, request: Request<Arriving>) -> Answer {
        let (parts, body) = request.into_parts();
        // Before the body: a stranger must not make the node hold one.
        let digest = match self.check(&parts) {
            Ok(digest) => digest,
            Err(error) => return self.rejected(error),
        };
        let body = match body::read_of_peer(&self.0.front, body).await {
            Ok(body) => body,
            Err(error) => return PeerDoor::refuse(error.into()),
        };
        if BodyDigest::of(&body) != digest {
            return self.rejected(ProofError::Wrong);
        }
        if parts.uri.path() == lockwood_cluster::HINT {
            self.0.reports.report(Event::Hint);
            return StatusCode::NO_CONTENT.into_response();
        }
        if parts.uri.path() == lockwood_cluster::BEAT {
            return StatusCode::NO_CONTENT.into_response();
        }
        if parts.uri.path() == follower::TELL {
            return Json(self.0.tell()).into_response();
        }
        let client = client_of(&parts.headers).unwrap_or(peer);
        let Some((shard, interface, mut parts)) = addressed(parts) else { return unknown_interface() };
        if interface == reads::INTERFACE {
            let answer = reads::answer_peer(&self.0, shard, client, (&parts, &body)).await;
            return answer.unwrap_or_else(|| not_owner(&self.0, shard));
        }
        let asked = parts.headers.remove(EPOCH);
        let is_asked = |served: &Served| asked.is_none_or(|asked| served.has_epoch(&asked));
        let Some(served) = self.0.served(shard).filter(is_asked) else { return not_owner(&self.0, shard) };
        if interface == calls::INTERFACE {
            let mut request = Request::from_parts(parts, axum::body::Body::from(body));
            request.extensions_mut().insert(PeerCall);
            return PeerDoor::by_shard(&served, request).await;
        }
        let served = (shard, served);
        if interface == streamed::INTERFACE {
            return self.carry(served, client, parts);
        }
        let request = Request::from_parts(parts, Arriving::Whole(Full::new(body)));
        match interface.as_str() {
            "native" => self.by::<Native>(&served, client, request).await,
            "locktopus" => self.by::<Locktopus>(&served, client, request).await,
            "openslides_reader" => self.by::<Side<false>>(&served, client, request).await,
            "openslides_writer" => self.by::<Side<true>>(&served, client, request).await,
            "elasticsearch" => self.by::<Elasticsearch>(&served, client, request).await,
            "schema_registry" => self.by::<SchemaRegistry>(&served, client, request).await,
            _ => unknown_interface(),
        }
    }

    /// Nodes call each other by the addresses in the database, and no browser has a proof.
    fn guard(
        &self,
        _: &Config,
        _: SocketAddr,
        _: &Request<Arriving>,
    ) -> Result<Option<AllowedPage>, Trouble> {
        Ok(None)
    }

    fn is_read(&self, _: &Method, _: &str) -> bool {
        false
    }

    fn refuse(trouble: Trouble) -> Answer {
        problem(trouble)
    }
}

impl PeerDoor {
    fn check(&self, parts: &Parts) -> Result<BodyDigest, ProofError> {
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let covered = Covered { method: &parts.method, target, headers: &parts.headers };
        self.0.prover.check(covered, now_ms())
    }

    /// Answers another shard. What was read counts only if the ownership is still fresh.
    async fn by_shard(served: &Served, request: Request<axum::body::Body>) -> Answer {
        let answer = tokio::select! {
            answer = by_shard(served, request) => answer,
            () = served.ended() => return lost_here(served.shard()),
        };
        if served.authority.is_fresh() { answer } else { lost_here(served.shard()) }
    }

    pub(super) async fn by<S: Doored>(
        &self,
        (shard, served): &(ShardNo, Served),
        client: SocketAddr,
        mut request: Request<Arriving>,
    ) -> Answer {
        let Some(service) = S::of(&served.services) else { return unknown_interface() };
        if !aim::is_met(request.headers_mut(), served).await {
            return not_owner(&self.0, *shard);
        }
        request.headers_mut().remove(PROOF);
        request.headers_mut().remove(CLIENT);
        // One that can do nothing but read may be asked of another owner.
        let is_read = service.is_read(request.method(), request.uri().path());
        let rests = Rests::of(&service, &request);
        let answer = tokio::select! {
            answer = service.answer(client, request) => answer,
            () = served.ended() => return lost_here(*shard),
        };
        match doubt(&answer, rests, served) {
            // Another owner can be asked.
            Some(_) if is_read => not_owner(&self.0, *shard),
            Some(_) => lost_here(*shard),
            None => answer.map(axum::body::Body::new),
        }
    }

    fn rejected(&self, error: ProofError) -> Answer {
        if error != ProofError::OtherReceiver {
            tracing::debug!(%error, "a call without a valid proof came to the listener for nodes");
        }
        let mut answer = PeerDoor::refuse(Trouble::new(Code::NotAPeer, error.to_string()));
        *answer.status_mut() = StatusCode::UNAUTHORIZED;
        let incarnation = self.0.prover.incarnation().to_string();
        let value = HeaderValue::try_from(incarnation).expect("hex digits can be in a header");
        answer.headers_mut().insert(INCARNATION, value);
        answer
    }
}

/// Answers a call from another shard, which is marked as one. Boxed, because what it asks of other shards gets here again.
pub(super) fn by_shard(served: &Served, request: Request<axum::body::Body>) -> BoxFuture<'_, Answer> {
    match request.uri().path().starts_with(guards::PATHS) {
        true => Box::pin(guards::answer(&served.shared, request)),
        false => {
            let asking = guards::is_from(request.headers());
            Box::pin(guards::collecting(
                asking,
                dispatch::answer(&served.services.native, &served.shared, request),
            ))
        }
    }
}

/// The shard and the interface that a call names, and the call without those names.
fn addressed(mut parts: Parts) -> Option<(ShardNo, String, Parts)> {
    let target = parts.uri.path_and_query()?.as_str();
    let (shard, rest) = target.strip_prefix('/')?.split_once('/')?;
    let (interface, rest) = rest.split_once('/')?;
    let (shard, interface, rest) = (shard.parse().ok()?, interface.to_owned(), format!("/{rest}"));
    parts.uri = rest.parse::<Uri>().ok()?;
    Some((ShardNo(shard), interface, parts))
}

fn client_of(headers: &HeaderMap) -> Option<SocketAddr> {
    headers.get(CLIENT)?.to_str().ok()?.parse().ok()
}

fn not_owner(node: &ClusterNode, shard: ShardNo) -> Answer {
    let mut answer = PeerDoor::refuse(no_owner(node, shard));
    answer.headers_mut().insert(NOT_OWNER, HeaderValue::from_static("1"));
    answer
}

fn lost_here(shard: ShardNo) -> Answer {
    let mut answer = PeerDoor::refuse(lost(shard));
    answer.headers_mut().insert(LOST, HeaderValue::from_static("1"));
    answer
}

pub(super) fn unknown_interface() -> Answer {
    let message = "this node serves no such interface; start all nodes with the same facades";
    PeerDoor::refuse(Trouble::new(Code::NotFound, message))
}

/// A body with nothing in it.
#[cfg(test)]
fn empty() -> Arriving {
    Arriving::Whole(Full::new(Bytes::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_segments_name_the_shard_and_the_interface() {
        let check = |target: &str, expected: Option<(u32, &str, &str)>| {
            let (parts, _) = Request::builder().uri(target).body(empty()).unwrap().into_parts();
            let read =
                addressed(parts).map(|(shard, interface, parts)| (shard.0, interface, parts.uri.to_string()));
            let expected = expected.map(|(shard, name, rest)| (shard, name.to_owned(), rest.to_owned()));
            assert_eq!(read, expected, "{target}");
        };
        check("/3/native/v1/a/locks?x=1", Some((3, "native", "/v1/a/locks?x=1")));
        check("/1/locktopus/", Some((1, "locktopus", "/")));
        check("/native/v1/a/locks", None);
        check("/1/native", None);
        check("/", None);
    }
}
