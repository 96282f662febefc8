//! Reads that a copy may answer: which copy, and at which node. Knows nothing of how copies are kept.
//!
//! | read | answered by |
//! | --- | --- |
//! | with `max_lag_ms`, of a whole namespace | the copy of its home, if this node has one |
//! | with `max_lag_ms`, of one document of a spread namespace | the copy of the document's shard, if this node has one |
//! | `select`, and `eselect` with mode `ro` | one of the shard's `ro` hosts, by weight, within [`SELECT_LAG_MS`] unless the request says otherwise |
//! | any other, and all that a copy declines | the owner |

use super::{
    ClusterNode,
    follower::Copy,
    peer_door::{self, CLIENT},
};
use crate::{
    arriving::Arriving,
    body,
    cluster::dispatch::decoded,
    native::{Decoder, lag, problem},
};
use axum::{body::Body, response::Response};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Uri,
    header::{self, HeaderValue},
    http::request::Parts,
};
use lockwood_cluster::{Call, CallKind};
use lockwood_model::DocumentKey;
use lockwood_node::secret;
use lockwood_planted::{Fault, is_planted};
use lockwood_router::{NoScripts, Phase, Route, ShardMap, ShardNo};
use lockwood_wire::documents::WireKey;
use serde::Deserialize;
use std::{net::SocketAddr, time::Duration};

/// The name of copies in the addresses of calls between nodes.
pub(super) const INTERFACE: &str = "copy";
/// How stale an answer of an `ro` host may be, unless the request says otherwise.
const SELECT_LAG_MS: u64 = 1_000;
/// How long an `ro` host may take; then the owner is asked.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// The header that tells which host answered an operation on one key.
const HOST: &str = "lockwood-host";

/// A read that a copy may answer.
struct Read {
    namespace: String,
    what: What,
}

enum What {
    /// Several documents, or what they have in common.
    Several,
    /// One document, which the address names.
    One(DocumentKey),
    /// One document, which the body names.
    Operation,
}

/// As much of the body of an operation as tells who may answer it.
#[derive(Deserialize)]
struct Addressed {
    collection: String,
    key: WireKey,
    mode: Option<String>,
}

/// Answers a read by a copy, if one may; otherwise gives the request back.
pub(super) async fn answer(
    node: &ClusterNode,
    home: ShardNo,
    peer: SocketAddr,
    request: Request<Arriving>,
) -> Result<Response, Request<Arriving>> {
    let tolerated = match lag::tolerated(request.method(), request.uri()) {
        Ok(tolerated) => tolerated.or(is_planted(Fault::FollowerForOwner).then_some(u64::MAX)),
        Err(trouble) => return Ok(problem(trouble)),
    };
    let Some(read) = Read::of(node, request.method(), request.uri()) else { return Err(request) };
    // Where it is was looked up on the way here; what is nowhere is empty.
    let is_spread = node.homes.remembered(&read.namespace).is_some_and(|placed| placed.is_spread);
    let placing = node.placing.read().clone();
    let map = placing.map.filter(|_| is_spread);
    match (&read.what, tolerated) {
        (What::Several, Some(tolerated)) if !is_spread => {
            by_own(node, home, None, (peer, tolerated), request).await
        }
        (What::One(at), Some(tolerated)) => match shard_of(home, is_spread, map.as_deref(), at) {
            Some(shard) => by_own(node, shard, map.as_deref(), (peer, tolerated), request).await,
            None => Err(request),
        },
        (What::Operation, _) if tolerated.is_some() || !placing.preferences.lists.is_empty() => {
            let (parts, body) = request.into_parts();
            let body = match body::read_at(&node.front, body).await {
                Ok(body) => body,
                Err(error) => return Ok(problem(error.into())),
            };
            let shard = named(node, &body).and_then(|at| shard_of(home, is_spread, map.as_deref(), &at));
            let picked = shard.and_then(|shard| {
                let dice = u64::from_be_bytes(secret::random());
                Some((shard, placing.preferences.pick_ro(shard, dice)?.address.clone()))
            });
            let max_lag_ms = tolerated.unwrap_or(SELECT_LAG_MS);
            let answer = match (picked, shard) {
                (Some((shard, host)), _) => {
                    by_host(node, (shard, &host), (peer, max_lag_ms), &parts, &body).await
                }
                (None, Some(shard)) if tolerated.is_some() => {
                    return by_own(node, shard, map.as_deref(), (peer, max_lag_ms), whole(&parts, &body))
                        .await;
                }
                _ => None,
            };
            answer.ok_or_else(|| whole(&parts, &body))
        }
        _ => Err(request),
    }
}

/// Answers an operation that another node asks a copy of this one; none if the copy cannot, or is not of the document's shard
/// by what this node knows.
pub(super) async fn answer_peer(
    node: &ClusterNode,
    shard: ShardNo,
    peer: SocketAddr,
    (parts, body): (&Parts, &Bytes),
) -> Option<Response> {
    let max_lag_ms = lag::tolerated(&parts.method, &parts.uri).ok()??;
    let read = Read::of(node, &parts.method, &parts.uri)?;
    let placed = node.homes.find(&read.namespace).await.ok()??;
    let map = node.placing.read().map.clone().filter(|_| placed.is_spread);
    let at = named(node, body)?;
    if shard_of(placed.home, placed.is_spread, map.as_deref(), &at) != Some(shard) {
        return None;
    }
    let copy = node.copy(shard)?;
    by_copy(&copy, map.as_deref(), (peer, max_lag_ms), whole(parts, body)).await
}

impl Read {
    fn of(node: &ClusterNode, method: &Method, uri: &Uri) -> Option<Read> {
        if !lag::is_read(method, uri.path()) {
            return None;
        }
        let segments: Vec<&str> = uri.path().split('/').skip(1).collect();
        let ["v1", namespace, word, rest @ ..] = &segments[..] else { return None };
        let what = match (*word, rest) {
            ("shard", _) => What::Operation,
            ("documents" | "history", [collection, key, ..]) => {
                let limits = &node.front.config.limits;
                What::One(Decoder(limits).document_at(&decoded(collection), &decoded(key)).ok()?)
            }
            _ => What::Several,
        };
        Some(Read { namespace: decoded(namespace), what })
    }
}

/// The document that an operation reads, if any host may answer.
fn named(node: &ClusterNode, body: &[u8]) -> Option<DocumentKey> {
    let Addressed { collection, key, mode } = serde_json::from_slice(body).ok()?;
    let reads = matches!(mode.as_deref(), None | Some("ro" | "r"));
    reads.then(|| Decoder(&node.front.config.limits).document(&collection, &key).ok())?
}

/// The shard that has a document, as far as that is certain.
fn shard_of(home: ShardNo, is_spread: bool, map: Option<&ShardMap>, at: &DocumentKey) -> Option<ShardNo> {
    if !is_spread {
        return Some(home);
    }
    let map = map.filter(|map| map.phase == Phase::Steady)?;
    match map.route(&at.collection, &at.key, &NoScripts) {
        Ok(Route::Owner(shard)) => Some(shard),
        _ => None,
    }
}

/// Answers by the copy that this node has, if it has one that is not too old.
async fn by_own(
    node: &ClusterNode,
    shard: ShardNo,
    map: Option<&ShardMap>,
    (peer, max_lag_ms): (SocketAddr, u64),
    request: Request<Arriving>,
) -> Result<Response, Request<Arriving>> {
    // One that is too old is not worth reading the body for.
    let copy = node.copy(shard).filter(|copy| copy.lag_ms().is_some_and(|lag_ms| lag_ms <= max_lag_ms));
    let Some(copy) = copy else { return Err(request) };
    let (parts, body) = request.into_parts();
    let body = match body::read_at(&node.front, body).await {
        Ok(body) => body,
        Err(error) => return Ok(problem(error.into())),
    };
    let answer = by_copy(&copy, map, (peer, max_lag_ms), whole(&parts, &body)).await;
    answer.ok_or_else(|| whole(&parts, &body))
}

async fn by_copy(
    copy: &Copy,
    map: Option<&ShardMap>,
    (peer, max_lag_ms): (SocketAddr, u64),
    request: Request<Arriving>,
) -> Option<Response> {
    match map {
        None => copy.answer(peer, max_lag_ms, request).await,
        Some(map) => copy.answer_under(map, peer, max_lag_ms, request).await,
    }
}

/// Has a host of a list answer, wherever that is.
async fn by_host(
    node: &ClusterNode,
    (shard, host): (ShardNo, &str),
    (peer, max_lag_ms): (SocketAddr, u64),
    parts: &Parts,
    body: &Bytes,
) -> Option<Response> {
    let target = lag::with(&parts.uri, max_lag_ms);
    let view = node.topology.view();
    let found = view.nodes.iter().find(|row| row.address == host)?;
    let mut answer = if found.name == *node.topology.own() {
        let mut parts = parts.clone();
        parts.uri = target;
        answer_peer(node, shard, peer, (&parts, body)).await?
    } else {
        let target = format!("/{}/{INTERFACE}{target}", shard.0).parse().ok()?;
        let mut headers = parts.headers.clone();
        for name in [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION] {
            headers.remove(name);
        }
        headers.insert(CLIENT, HeaderValue::try_from(peer.to_string()).ok()?);
        let (kind, method, body) = (CallKind::Copy, parts.method.clone(), body.clone());
        let call = Call { kind, method, target, headers, body };
        let answer = node.peers.call(host, &call, ANSWER_TIMEOUT).await.ok()?;
        if peer_door::is_not_owner(&answer) {
            return None;
        }
        answer.map(Body::new)
    };
    answer.headers_mut().insert(HOST, HeaderValue::try_from(host).ok()?);
    Some(answer)
}

fn whole(parts: &Parts, body: &Bytes) -> Request<Arriving> {
    Request::from_parts(parts.clone(), Arriving::Whole(Full::new(body.clone())))
}
