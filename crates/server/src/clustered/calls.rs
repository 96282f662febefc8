//! Calls from one shard to another, whichever nodes own them: carried out in this process if it owns the other one. Knows
//! nothing of what they ask for.

use super::{
    ClusterNode, PeerCall, Place, guards, peer_door,
    silence::{Watched, replaced},
};
use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use hyper::{HeaderMap, Method, Request, Uri, header};
use lockwood_cluster::{Call, CallError, CallKind};
use lockwood_router::ShardNo;
use std::{sync::Arc, time::Duration};

/// The name of this interface in the addresses of calls between nodes.
pub(super) const INTERFACE: &str = "shard";

/// A call to a shard.
#[derive(Debug, Clone)]
pub(crate) struct ShardCall {
    pub(crate) method: Method,
    /// Path and query, below the shard.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// How long the head of the answer may take.
    pub(crate) timeout: Duration,
}

impl ShardCall {
    pub(crate) fn get(target: &str, timeout: Duration) -> ShardCall {
        ShardCall { method: Method::GET, ..ShardCall::post(target, Bytes::new(), timeout) }
    }

    pub(crate) fn post(target: &str, body: impl Into<Bytes>, timeout: Duration) -> ShardCall {
        let (method, target, headers) = (Method::POST, target.to_owned(), HeaderMap::new());
        ShardCall { method, target, headers, body: body.into(), timeout }
    }
}

impl ClusterNode {
    /// Calls the owner of a shard; the answer's body is still to come. An owner that changes meanwhile is not waited for.
    ///
    /// Boxed, because a shard that is asked may ask others in its turn.
    pub(crate) fn call_shard<'a>(
        self: &'a Arc<ClusterNode>,
        shard: ShardNo,
        call: &'a ShardCall,
    ) -> BoxFuture<'a, Result<Response<Body>, CallError>> {
        Box::pin(self.place_call(shard, call))
    }

    async fn place_call(
        self: &Arc<ClusterNode>,
        shard: ShardNo,
        call: &ShardCall,
    ) -> Result<Response<Body>, CallError> {
        match self.place(shard) {
            Place::Here(served) => {
                let request = request(call);
                let answering = peer_door::by_shard(&served, request);
                let answer = tokio::select! {
                    answer = tokio::time::timeout(call.timeout, answering) => {
                        answer.map_err(|_| unknown("this node", "it took too long"))?
                    }
                    () = served.ended() => return Err(unknown("this node", "it has lost the shard")),
                };
                // What was read counts only if the ownership is still fresh.
                match served.authority.is_fresh() {
                    true => Ok(answer),
                    false => Err(unknown("this node", "it has lost the shard")),
                }
            }
            Place::Nowhere => Err(not_sent(&format!("shard {}", shard.0), "no node owns it right now")),
            Place::There(address, epoch) => {
                let target = format!("/{}/{INTERFACE}{}", shard.0, call.target);
                let target = target.parse().unwrap_or_default();
                let ShardCall { method, headers, body, .. } = call.clone();
                let kind = kind_of(&call.target);
                let sent = Call { kind, method, target, headers, body };
                let answer = tokio::select! {
                    answer = self.peers.call(&address, &sent, call.timeout) => answer?,
                    () = self.silenced(shard, epoch) => {
                        return Err(unknown(&address, &replaced(shard)));
                    }
                };
                if peer_door::is_not_owner(&answer) {
                    return Err(not_sent(&address, "it does not own the shard"));
                }
                if peer_door::is_lost(&answer) {
                    return Err(unknown(&address, "it has lost the shard"));
                }
                Ok(answer.map(|body| Body::new(Watched::new(self, (shard, epoch), body))))
            }
        }
    }

    /// The same with the whole answer.
    pub(crate) async fn ask_shard(
        self: &Arc<ClusterNode>,
        shard: ShardNo,
        call: &ShardCall,
    ) -> Result<Response<Bytes>, CallError> {
        let (parts, body) = self.call_shard(shard, call).await?.into_parts();
        let named = format!("shard {}", shard.0);
        let body = tokio::time::timeout(call.timeout, body.collect()).await;
        let body = body.map_err(|_| unknown(&named, "its answer took too long"))?;
        let body = body.map_err(|error| unknown(&named, &error.to_string()))?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    }
}

/// What a call to a shard is about, by where it goes.
fn kind_of(target: &str) -> CallKind {
    if target.starts_with(guards::PATHS) { CallKind::Guards } else { CallKind::Shard }
}

fn request(call: &ShardCall) -> Request<Body> {
    let mut request = Request::new(Body::from(call.body.clone()));
    *request.method_mut() = call.method.clone();
    *request.uri_mut() = call.target.parse::<Uri>().unwrap_or_default();
    *request.headers_mut() = call.headers.clone();
    request.headers_mut().remove(header::HOST);
    request.extensions_mut().insert(PeerCall);
    request
}

fn unknown(address: &str, cause: &str) -> CallError {
    CallError::Unknown { address: address.to_owned(), cause: cause.to_owned() }
}

fn not_sent(address: &str, cause: &str) -> CallError {
    CallError::NotSent { address: address.to_owned(), cause: cause.to_owned() }
}
