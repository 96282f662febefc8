//! Who answers a request to a node of a cluster: the node itself, the owner of a key, or several shards together.
//! Asks again when the map changes on the way. Knows nothing of how requests are carried out.

mod kind;
pub(crate) mod spread;

use super::{Current, EPOCH, Message, PeerError, pull};
use crate::{
    native::{Decoder, Native, guard_check, read_write_call},
    shared::Shared,
    trouble::Trouble,
};
use axum::{
    body::{Body, Bytes},
    extract::Request,
    response::{IntoResponse, Response},
};
use http_body_util::{BodyExt, Limited};
use hyper::{HeaderMap, Method, StatusCode, header, http::request::Parts};
use kind::Kind;
use lockwood_model::DocumentKey;
use lockwood_router::{Epoch, Route, ShardMap, ShardNo};
use lockwood_wire::Code;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a request is tried while its keys move or their owner is away.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long another node may take to answer, besides what the request itself may wait.
const ANSWER_PATIENCE: Duration = Duration::from_secs(90);
/// How long to wait before asking again.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// The header with an idempotency key for a write that has none of its own.
pub(crate) const RETRY: &str = "lockwood-retry";
/// The header of a read that goes to the donor of a key because its owner does not know it yet.
const FROZEN: &str = "lockwood-frozen";

/// A request with all of its body, to be sent as often as it takes.
struct Whole {
    parts: Parts,
    body: Bytes,
}

/// Answers a request to a node of a cluster.
pub(crate) async fn answer(native: &Native, shared: &Arc<Shared>, request: Request) -> Response {
    match answer_or(native, shared, request).await {
        Ok(response) => response,
        Err(trouble) => trouble.into_response(),
    }
}

async fn answer_or(native: &Native, shared: &Arc<Shared>, request: Request) -> Result<Response, Trouble> {
    guard_check(&shared.config, request.headers())?;
    let peer = shared.cluster.peer_epoch(request.headers())?;
    let kind = Kind::of(request.method(), request.uri(), &shared.config.limits);
    if let Kind::Local | Kind::Internal = kind {
        if matches!(kind, Kind::Internal) && peer.is_none() {
            return Err(Trouble::new(Code::NotAPeer, "only nodes of the cluster may ask this"));
        }
        return Ok(native.local(request).await);
    }
    let whole = collect(shared, request).await?;
    match peer {
        Some(epoch) => as_peer(native, shared, &kind, whole, epoch).await,
        None => as_client(native, shared, &kind, whole).await,
    }
}

async fn collect(shared: &Shared, request: Request) -> Result<Whole, Trouble> {
    let (parts, body) = request.into_parts();
    let limit = shared.config.limits.body_bytes_max;
    let body = Limited::new(body, usize::try_from(limit).unwrap_or(usize::MAX)).collect().await;
    let what = "the body is too large, or ended before it was complete; split it into several requests";
    let body = body.map_err(|_| Trouble::over("body_bytes_max", limit, what))?.to_bytes();
    Ok(Whole { parts, body })
}

/// Another node sent it here; it is carried out here or not at all.
async fn as_peer(
    native: &Native,
    shared: &Arc<Shared>,
    kind: &Kind,
    whole: Whole,
    epoch: Epoch,
) -> Result<Response, Trouble> {
    let Some(current) = shared.cluster.current().filter(|current| current.map.epoch == epoch) else {
        return Ok(wrong_epoch(shared));
    };
    let response = match kind {
        _ if whole.parts.headers.contains_key(FROZEN) => native.local(whole.request()).await,
        Kind::Namespace(_) => return spread::here(native, shared, &whole).await,
        _ => here(native, shared, &current, kind, &whole).await?,
    };
    if is_wrong_epoch(&response) { Ok(wrong_epoch(shared)) } else { Ok(response) }
}

/// Tells another node which map is in force here.
pub(crate) fn wrong_epoch(shared: &Shared) -> Response {
    let current = shared.cluster.current();
    let epoch = current.as_ref().map_or(0, |current| current.map.epoch);
    let body = current.map_or_else(|| "null".to_owned(), |current| current.map.to_json().to_string());
    (StatusCode::CONFLICT, [(EPOCH, epoch.to_string())], body).into_response()
}

/// That a request has to be made again by another map.
fn wrong_epoch_trouble() -> Trouble {
    Trouble::new(Code::WrongEpoch, "the shard map has just changed; ask again")
}

fn is_wrong_epoch(response: &Response) -> bool {
    response.extensions().get::<Code>() == Some(&Code::WrongEpoch)
}

/// A client sent it; whoever is needed is asked, as often as it takes.
async fn as_client(
    native: &Native,
    shared: &Arc<Shared>,
    kind: &Kind,
    whole: Whole,
) -> Result<Response, Trouble> {
    let started = Instant::now();
    let mut pause = PAUSE;
    let whole = whole.with_retry_key(kind);
    loop {
        let current = shared.cluster.current().ok_or_else(super::no_map)?;
        let trouble = match attempt(native, shared, &current, kind, &whole).await {
            Ok(response) if !is_wrong_epoch(&response) => return Ok(response),
            Ok(_) => {
                Trouble::new(Code::Moving, "what is asked for is on its way to another shard; try again")
            }
            Err(trouble) if trouble.code == Code::WrongEpoch => {
                Trouble::new(Code::Moving, "what is asked for is on its way to another shard; try again")
            }
            Err(trouble) if trouble.code == Code::ShardUnreachable => trouble,
            Err(trouble) => return Err(trouble),
        };
        if started.elapsed() > PATIENCE {
            return Err(trouble);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn attempt(
    native: &Native,
    shared: &Arc<Shared>,
    current: &Current,
    kind: &Kind,
    whole: &Whole,
) -> Result<Response, Trouble> {
    let owner = match kind {
        Kind::Document(at) => owner_of(current, at)?,
        Kind::Write => match written(shared, current, &whole.body)? {
            Some(owner) => owner,
            // It makes no sense, or has nothing to do; this node can say so as well as any other.
            None => return Ok(native.local(whole.request()).await),
        },
        Kind::Namespace(word) if spread::answers(word) => {
            return spread::answer(native, shared, current, whole).await;
        }
        _ => return Err(not_yet()),
    };
    if owner == shared.cluster.this() && current.is_owner {
        return here(native, shared, current, kind, whole).await;
    }
    forward(shared, current, owner, whole.message()).await
}

fn not_yet() -> Trouble {
    Trouble::new(Code::NotSharded, "this is not possible on several shards")
}

fn owner_of(current: &Current, at: &DocumentKey) -> Result<ShardNo, Trouble> {
    match current.route(at)? {
        Route::Owner(owner) | Route::Pulled { owner, .. } => Ok(owner),
        Route::Moving { .. } => Err(pull::elsewhere(at)),
    }
}

/// Carries a request out on this node, which is the owner of all it is about.
async fn here(
    native: &Native,
    shared: &Arc<Shared>,
    current: &Current,
    kind: &Kind,
    whole: &Whole,
) -> Result<Response, Trouble> {
    if let Kind::Document(at) = kind
        && whole.parts.method == Method::GET
        && let Some(donor) = pull::route_here(shared, current, at)?
    {
        return read_moving(native, shared, current, (at, donor), whole).await;
    }
    Ok(native.local(whole.request()).await)
}

/// Reads a key that may still be with its donor: there first, and only if it has not become known here since.
async fn read_moving(
    native: &Native,
    shared: &Arc<Shared>,
    current: &Current,
    (at, donor): (&DocumentKey, ShardNo),
    whole: &Whole,
) -> Result<Response, Trouble> {
    let namespace = kind::namespace(&whole.parts.uri).unwrap_or_default();
    if current.map.reverses != 0 {
        // The donor may know nothing of it, and then what is here counts; that has to be settled first.
        shared.cluster.admit(shared, &namespace, std::iter::once(at)).await?;
    }
    let known = || shared.shard.is_known(&namespace, at, current.map.transition);
    if !known()? {
        let mut message = whole.message();
        message.headers.push((FROZEN, current.map.transition.to_string()));
        let answer = forward(shared, current, donor, message).await?;
        if !known()? {
            // By the map of now: when the transition is over nothing is unknown any more.
            let same = shared.cluster.current().is_some_and(|now| now.map.epoch == current.map.epoch);
            return if same { Ok(answer) } else { Err(pull::elsewhere(at)) };
        }
    }
    Ok(native.local(whole.request()).await)
}

/// The one shard that a write call is about; none if it cannot be read.
fn written(shared: &Shared, current: &Current, body: &Bytes) -> Result<Option<ShardNo>, Trouble> {
    let Some(keys) = read_write_call(Decoder(&shared.config.limits), body) else { return Ok(None) };
    let mut owner: Option<(ShardNo, &DocumentKey)> = None;
    for at in &keys {
        let found = owner_of(current, at)?;
        match owner {
            Some((known, first)) if known != found => return Err(spans(first, known, at, found)),
            _ => owner = Some((found, at)),
        }
    }
    Ok(owner.map(|(owner, _)| owner))
}

fn spans(a: &DocumentKey, on_a: ShardNo, b: &DocumentKey, on_b: ShardNo) -> Trouble {
    let message = format!(
        "{a} is on shard {} and {b} on shard {}, and a write is atomic on one shard only; nothing was done. Write \
         them one after the other, or choose keys or a shard function that keep them together",
        on_a.0, on_b.0
    );
    Trouble::new(Code::SpansShards, message)
}

/// Has the host of a shard that may write answer.
pub(crate) async fn forward(
    shared: &Arc<Shared>,
    current: &Current,
    shard: ShardNo,
    message: Message,
) -> Result<Response, Trouble> {
    let host = current.map.rw_host(shard);
    let host = host.ok_or_else(|| pull::unreachable_shard(shard, "the map has no host for it"))?;
    let answer = shared.cluster.ask(shared, &host.address, &message).await;
    let answer = answer.map_err(|error| pull::unreachable_shard(shard, &error.to_string()))?;
    if answer.headers().contains_key(EPOCH) {
        return Err(wrong_epoch_trouble());
    }
    let (parts, body) = answer.into_parts();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = parts.status;
    if let Some(kind) = parts.headers.get(header::CONTENT_TYPE) {
        response.headers_mut().insert(header::CONTENT_TYPE, kind.clone());
    }
    Ok(response)
}

impl super::Cluster {
    /// Asks another node. If one of the two goes by an older map, it is given the newer one first.
    pub(crate) async fn ask(
        &self,
        shared: &Arc<Shared>,
        address: &str,
        message: &Message,
    ) -> Result<hyper::Response<Bytes>, PeerError> {
        let failed = |cause: String| PeerError::NotSent { address: address.to_owned(), cause };
        let peers = self.peers().map_err(|trouble| failed(trouble.message))?;
        let current = self.current();
        let epoch = current.as_ref().map_or(0, |current| current.map.epoch);
        let answer = peers.ask(address, epoch, message).await?;
        let Some(theirs) = answer_epoch(answer.headers()) else { return Ok(answer) };
        match current {
            Some(current) if theirs < epoch => {
                let map = Message::post("/internal/map", current.map.to_json().to_string());
                peers.ask(address, epoch, &map).await?;
                peers.ask(address, epoch, message).await
            }
            _ if theirs > epoch => {
                let map = serde_json::from_slice(answer.body()).ok();
                let map = map.and_then(|map| ShardMap::from_json(&map).ok());
                if let Some(map) = map {
                    let adopted = self.adopt(shared, map).await;
                    adopted.map_err(|trouble| failed(trouble.message))?;
                }
                Ok(answer)
            }
            _ => Ok(answer),
        }
    }
}

fn answer_epoch(headers: &HeaderMap) -> Option<Epoch> {
    headers.get(EPOCH)?.to_str().ok()?.parse().ok()
}

impl Message {
    /// A request with a body.
    pub(crate) fn post(target: &str, body: impl Into<Bytes>) -> Message {
        Message {
            method: Method::POST,
            target: target.to_owned(),
            headers: Vec::new(),
            body: body.into(),
            patience: ANSWER_PATIENCE,
        }
    }
}

impl Whole {
    fn request(&self) -> Request {
        Request::from_parts(self.parts.clone(), Body::from(self.body.clone()))
    }

    fn message(&self) -> Message {
        let target = self.parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        let mut headers = Vec::new();
        for name in [header::CONTENT_TYPE.as_str(), RETRY] {
            if let Some(value) = self.parts.headers.get(name).and_then(|value| value.to_str().ok()) {
                headers.push((name, value.to_owned()));
            }
        }
        let body = self.body.clone();
        Message { method: self.parts.method.clone(), target, headers, body, patience: ANSWER_PATIENCE }
    }

    /// A write may have to be sent twice; with a key of its own it is done once all the same.
    fn with_retry_key(mut self, kind: &Kind) -> Whole {
        let writes = match kind {
            Kind::Write => true,
            Kind::Document(_) => self.parts.method != Method::GET,
            _ => false,
        };
        if writes && !self.parts.headers.contains_key(RETRY) {
            let key = format!("retry-{}", crate::secret::hex(&crate::secret::random::<16>()));
            self.parts.headers.insert(RETRY, key.parse().expect("hex digits can be in a header"));
        }
        self
    }
}
