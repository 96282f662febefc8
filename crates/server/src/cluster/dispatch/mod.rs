//! Which shards answer a request to a shard of a cluster: itself, the one that a key is on, or several together.
//! Asks again when the map changes on the way. Knows nothing of how requests are carried out.

mod kind;
mod registered;
pub(crate) mod spread;

pub(crate) use kind::{decoded, namespace};

use super::{Current, EPOCH, Message, pull};
use crate::{
    body,
    clustered::{PeerCall, allowance, defined, telling, told_so_far},
    native::{Decoder, Native, problem, written_documents},
    shared::Shared,
};
use axum::{
    body::{Body, Bytes},
    extract::Request,
    response::{IntoResponse, Response},
};
use hyper::{HeaderMap, Method, StatusCode, Uri, header, http::request::Parts};
use kind::Kind;
use lockwood_cluster::CallError;
use lockwood_model::DocumentKey;
use lockwood_node::{limits::Limits, metrics::Interface, trouble::Trouble};
use lockwood_router::{Epoch, ShardMap, ShardNo};
use lockwood_wire::{
    Code,
    documents::{WriteCall, read_body},
};
use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

/// How long a request is tried while its keys move.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it is tried since a shard could not be asked; a takeover takes that long.
const AWAY_PATIENCE: Duration = Duration::from_secs(5);
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
    /// The write call that the body is; none if it is none.
    call: OnceLock<Option<WriteCall>>,
}

/// Answers a request to a shard of a cluster. What comes from another shard is marked as such; a client that says so in a
/// header is not believed, and its headers for that are taken away.
pub(crate) async fn answer(native: &Native, shared: &Arc<Shared>, mut request: Request) -> Response {
    let is_client = request.extensions().get::<PeerCall>().is_none();
    if is_client {
        for name in [EPOCH, FROZEN, spread::LEAST] {
            request.headers_mut().remove(name);
        }
    }
    // Before anything is granted here, to sessions and for leases alike, it is known where the home is.
    let home = match is_client {
        true => shared.remote_home(&namespace(request.uri()).unwrap_or_default()).await,
        false => Ok(None),
    };
    // Boxed, because it is large, and moving it around takes room on the stack.
    let answering = Box::pin(async { answer_or(native, shared, request).await.unwrap_or_else(problem) });
    match home {
        Ok(Some(home)) => telling(home, answering).await,
        Ok(None) => answering.await,
        Err(trouble) => problem(trouble),
    }
}

async fn answer_or(native: &Native, shared: &Arc<Shared>, request: Request) -> Result<Response, Trouble> {
    let peer = shared.cluster.peer_epoch(request.headers());
    let kind = Kind::of(request.method(), request.uri(), &shared.config.limits);
    if let Kind::Local | Kind::Internal = kind {
        if matches!(kind, Kind::Internal) && peer.is_none() {
            return Err(Trouble::new(Code::NotAPeer, "only nodes of the cluster may ask this"));
        }
        return Ok(native.local(request).await);
    }
    if peer.is_none() && !is_spread(shared, request.uri()).await? {
        return Ok(native.local(request).await);
    }
    if let (Kind::Namespace(word), None) = (&kind, peer)
        && word == "load"
    {
        // A dump is as long as it is.
        return spread::load(native, shared, request).await;
    }
    shared.cluster.load.count();
    let whole = collect(shared, request).await?;
    let kind = kind.with_body(&whole.body, &shared.config.limits);
    if kind == Kind::Local {
        return Ok(native.local(whole.request()).await);
    }
    match peer {
        Some(epoch) => as_peer(native, shared, &kind, whole, epoch).await,
        None => as_client(native, shared, &kind, whole).await,
    }
}

/// Whether a request is about what is on several shards. Without a map it is not known who has that; there is one as soon
/// as anything is spread.
async fn is_spread(shared: &Arc<Shared>, uri: &Uri) -> Result<bool, Trouble> {
    let Some(membership) = shared.cluster.membership() else { return Ok(false) };
    let named = namespace(uri).unwrap_or_default();
    let is_spread = match named.as_str() {
        // The door gathers what all shards have.
        "namespaces" => return Ok(false),
        "trim" => shared.cluster.is_on(),
        named => membership.node.homes.is_spread(named).await?,
    };
    if is_spread && !shared.cluster.is_on() {
        shared.cluster.fetch(shared).await?;
    }
    Ok(is_spread)
}

async fn collect(shared: &Shared, request: Request) -> Result<Whole, Trouble> {
    let (parts, body) = request.into_parts();
    let body = body::read(shared, body).await?;
    Ok(Whole { parts, body, call: OnceLock::new() })
}

/// Another shard sent it here; it is carried out here or not at all.
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
    defined(shared, &namespace(&whole.parts.uri).unwrap_or_default()).await?;
    if whole.parts.headers.contains_key(FROZEN) {
        return Ok(native.local(whole.request()).await);
    }
    if let Kind::Namespace(_) = kind {
        return spread::here(native, shared, &whole).await;
    }
    let mut whole = whole;
    if *kind == Kind::Registered {
        return registered::answer(native, shared, &mut whole).await;
    }
    let response = match here(native, shared, &current, kind, &whole).await {
        Err(trouble) if trouble.code == Code::WrongEpoch => return Ok(wrong_epoch(shared)),
        answered => answered?,
    };
    if is_wrong_epoch(&response) { Ok(wrong_epoch(shared)) } else { Ok(response) }
}

/// Tells another shard which map is in force here.
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
    mut whole: Whole,
) -> Result<Response, Trouble> {
    let (mut pause, mut epoch) = (PAUSE, 0);
    // What a request waits for locks does not count.
    let (mut moving_since, mut away_since): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        let current = shared.cluster.current().ok_or_else(super::no_map)?;
        if std::mem::replace(&mut epoch, current.map.epoch) != epoch {
            pause = PAUSE;
        }
        let trouble = match attempt(native, shared, &current, kind, &mut whole).await {
            Ok(response) if !is_wrong_epoch(&response) => return Ok(response),
            Err(trouble) if !matches!(trouble.code, Code::WrongEpoch | Code::ShardUnreachable) => {
                return Err(trouble);
            }
            Err(trouble) if trouble.code == Code::ShardUnreachable => {
                if away_since.get_or_insert_with(Instant::now).elapsed() > AWAY_PATIENCE {
                    return Err(trouble);
                }
                trouble
            }
            Ok(_) | Err(_) => {
                // The shard has answered.
                away_since = None;
                Trouble::new(Code::Moving, "what is asked for is on its way to another shard; try again")
            }
        };
        if moving_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(trouble);
        }
        // The next attempt must not wait for a lock of this one.
        told_so_far().await;
        shared.cluster.next_map(epoch, pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn attempt(
    native: &Native,
    shared: &Arc<Shared>,
    current: &Current,
    kind: &Kind,
    whole: &mut Whole,
) -> Result<Response, Trouble> {
    if *kind == Kind::Registered {
        return registered::answer(native, shared, whole).await;
    }
    if current.is_owner {
        // What is done here is done by what is registered.
        defined(shared, &namespace(&whole.parts.uri).unwrap_or_default()).await?;
    }
    if let Kind::Namespace(word) = kind
        && spread::answers(word)
    {
        return spread::answer(native, shared, current, whole).await;
    }
    let Some(owner) = shard_of(shared, current, kind, whole)? else {
        // It makes no sense, or has nothing to do; this node can say so as well as any other.
        return Ok(native.local(whole.request()).await);
    };
    if let Some(searches) = spread::searches::of(current, kind, whole) {
        whole.add_retry_key(kind);
        return searches.write(native, shared, current, owner, whole).await;
    }
    if owner == shared.cluster.this() && current.is_owner {
        return here(native, shared, current, kind, whole).await;
    }
    whole.add_retry_key(kind);
    forward(shared, owner, &whole.message(shared)).await
}

/// The shard that a request is for; none if it is for none.
fn shard_of(
    shared: &Shared,
    current: &Current,
    kind: &Kind,
    whole: &Whole,
) -> Result<Option<ShardNo>, Trouble> {
    match kind {
        Kind::Document(at) | Kind::Keyed(at, _) => current.owner(at).map(Some),
        Kind::Write => match whole.call() {
            Some(call) => written(current, &shared.config.limits, call),
            None => Ok(None),
        },
        _ => Err(not_yet()),
    }
}

/// The shard that has all documents that a request names, by a map. None if it names none, or concerns other shards as well. With
/// that shard nothing else is needed but the home, if a guard is in the way.
pub(crate) fn shard_of_keys(
    current: &Current,
    limits: &Limits,
    parts: &Parts,
    body: &[u8],
) -> Option<ShardNo> {
    match Kind::of(&parts.method, &parts.uri, limits).with_body(body, limits) {
        Kind::Document(at) | Kind::Keyed(at, _) => current.owner(&at).ok(),
        Kind::Write => {
            let call: WriteCall = read_body(body).ok()?;
            match spread::searches::locks(&call).next() {
                None => written(current, limits, &call).ok()?,
                Some(_) => None,
            }
        }
        Kind::Namespace(word) if word == "get" => spread::shard_of_get(current, limits, body),
        _ => None,
    }
}

fn not_yet() -> Trouble {
    Trouble::new(Code::NotSharded, "this is not possible on several shards")
}

/// Carries a request out on this node, which is the owner of all it is about.
async fn here(
    native: &Native,
    shared: &Arc<Shared>,
    current: &Current,
    kind: &Kind,
    whole: &Whole,
) -> Result<Response, Trouble> {
    if let Some(at) = kind.read_only(&whole.parts.method)
        && let Some(donor) = pull::route_here(shared, current, at)?
    {
        return read_moving(native, shared, current, (at, donor), whole).await;
    }
    let response = native.local(whole.request()).await;
    // A read may have waited for a lock, and the key may have moved away and changed since. What changes something has gone
    // through the fence.
    let is_read = kind.read_only(&whole.parts.method).is_some();
    match !is_read || shared.cluster.epoch() == current.map.epoch {
        true => Ok(response),
        false => Err(wrong_epoch_trouble()),
    }
}

/// Reads a key that may still be with its donor: there first, and only if it has not become known here since.
async fn read_moving(
    native: &Native,
    shared: &Arc<Shared>,
    current: &Current,
    (at, donor): (&DocumentKey, ShardNo),
    whole: &Whole,
) -> Result<Response, Trouble> {
    let namespace = namespace(&whole.parts.uri).unwrap_or_default();
    if current.map.reverses != 0 || current.map.keeps {
        // The donor may know nothing of it, and then what is here counts; that has to be settled first.
        shared.admit_keys(&namespace, std::iter::once(at)).await?;
        shared.shard.shown(shared.shard.last_index()).await?;
    }
    let known = || is_shown(shared, &namespace, at, current.map.transition);
    if !known()? {
        let mut message = whole.message(shared);
        message.headers.push((FROZEN, current.map.transition.to_string()));
        let answer = forward(shared, donor, &message).await?;
        if !known()? {
            // By the map of now: when the transition is over nothing is unknown any more.
            let same = shared.cluster.current().is_some_and(|now| now.map.epoch == current.map.epoch);
            return if same { Ok(answer) } else { Err(pull::elsewhere(at)) };
        }
    }
    Ok(native.local(whole.request()).await)
}

/// Whether readers see here what became of a key in a transition. What is decided but not durable yet was not
/// answered to anybody, so that what the donor has may still be told; what readers do not see may not.
fn is_shown(shared: &Shared, namespace: &str, at: &DocumentKey, transition: Epoch) -> Result<bool, Trouble> {
    let reading = shared.shard.read();
    let Some((id, _)) = reading.namespace(namespace)? else { return Ok(false) };
    Ok(reading.state().mark(id, at)? == Some(transition))
}

/// The one shard that a write call is about; none if it cannot be read.
fn written(current: &Current, limits: &Limits, call: &WriteCall) -> Result<Option<ShardNo>, Trouble> {
    let Some(keys) = written_documents(Decoder(limits), call) else { return Ok(None) };
    let mut owner: Option<(ShardNo, &DocumentKey)> = None;
    for at in &keys {
        let found = current.owner(at)?;
        match owner {
            Some((known, first)) if known != found => return Err(spans(first, known, at, found)),
            _ => owner = Some((found, at)),
        }
    }
    Ok(owner.map(|(owner, _)| owner))
}

pub(crate) fn spans(a: &DocumentKey, on_a: ShardNo, b: &DocumentKey, on_b: ShardNo) -> Trouble {
    let message = format!(
        "{a} is on shard {} and {b} on shard {}, and a write is atomic on one shard only; nothing was done. Write \
         them one after the other, or choose keys or a shard function that keep them together",
        on_a.0, on_b.0
    );
    Trouble::new(Code::SpansShards, message)
}

/// Has a shard answer.
async fn forward(shared: &Arc<Shared>, shard: ShardNo, message: &Message) -> Result<Response, Trouble> {
    let answer = shared.cluster.ask(shared, shard, message).await;
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
    /// Asks another shard. If one of the two goes by an older map, it is given the newer one first.
    pub(crate) async fn ask(
        &self,
        shared: &Arc<Shared>,
        shard: ShardNo,
        message: &Message,
    ) -> Result<hyper::Response<Bytes>, CallError> {
        let failed = |cause: String| CallError::NotSent { address: format!("shard {shard}"), cause };
        let peers = self.peers().map_err(|trouble| failed(trouble.message))?;
        let current = self.current();
        let epoch = current.as_ref().map_or(0, |current| current.map.epoch);
        let answer = peers.ask(shard, epoch, message).await?;
        let Some(theirs) = answer_epoch(answer.headers()) else { return Ok(answer) };
        match current {
            Some(current) if theirs < epoch => {
                let map = Message::post("/internal/map", current.map.to_json().to_string());
                peers.ask(shard, epoch, &map).await?;
                peers.ask(shard, epoch, message).await
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

pub(super) fn answer_epoch(headers: &HeaderMap) -> Option<Epoch> {
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
            patience: None,
        }
    }
}

impl Whole {
    fn request(&self) -> Request {
        Request::from_parts(self.parts.clone(), Body::from(self.body.clone()))
    }

    /// The request as another shard is asked; it may take as long as the request may wait.
    fn message(&self, shared: &Shared) -> Message {
        let target = self.parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        let mut headers = Vec::new();
        for name in [header::CONTENT_TYPE.as_str(), RETRY] {
            if let Some(value) = self.parts.headers.get(name).and_then(|value| value.to_str().ok()) {
                headers.push((name, value.to_owned()));
            }
        }
        let body = self.body.clone();
        let patience = allowance::of_request(&shared.config, Interface::Native, &self.parts, &body);
        Message { method: self.parts.method.clone(), target, headers, body, patience: Some(patience) }
    }

    /// As a write call; none if it is none.
    fn call(&self) -> Option<&WriteCall> {
        self.call.get_or_init(|| read_body(&self.body).ok()).as_ref()
    }

    /// A write that is sent to another shard may have to be sent twice; with a key of its own it is done once all the
    /// same. What this node does itself it knows to be done or not.
    fn add_retry_key(&mut self, kind: &Kind) {
        if kind.writes(&self.parts.method) && !self.parts.headers.contains_key(RETRY) {
            let key = format!("retry-{}", lockwood_node::secret::hex(&lockwood_node::secret::random::<16>()));
            self.parts.headers.insert(RETRY, key.parse().expect("hex digits can be in a header"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_router::{Function, Host};

    /// Key `n` is on shard `n % 3 + 1`.
    fn three_shards() -> Current {
        let host = |shard| serde_json::from_str::<Host>(&format!(r#"["rw", 1, "n{shard}", 7118]"#)).unwrap();
        let shards = (1..=3).map(|shard| vec![host(shard)]).collect();
        Current::unserved(ShardMap::steady(1, shards, Function::Modulo { shards: 3 }))
    }

    #[track_caller]
    fn check(method: &str, target: &str, body: &str, expected: Option<u32>) {
        let parts = Request::builder().method(method).uri(target).body(()).unwrap().into_parts().0;
        let found = shard_of_keys(&three_shards(), &Limits::default(), &parts, body.as_bytes());
        assert_eq!(found.map(|shard| shard.0), expected, "{method} {target} {body}");
    }

    #[test]
    fn documents_of_one_shard_name_it() {
        check("PUT", "/v1/shop/documents/user/1", "{}", Some(2));
        check("GET", "/v1/shop/history/user/2", "", Some(3));
        check("POST", "/v1/shop/shard/select", r#"{"collection":"user","key":3}"#, Some(1));
        let put = |key| format!(r#"{{"type":"put","collection":"user","key":{key},"fields":{{}}}}"#);
        check("POST", "/v1/shop/write", &format!(r#"{{"events":[{},{}]}}"#, put(1), put(4)), Some(2));
        let user = |key| format!(r#"{{"collection":"user","key":{key}}}"#);
        check("POST", "/v1/shop/get", &format!(r#"{{"documents":[{},{}]}}"#, user(2), user(5)), Some(3));
    }

    #[test]
    fn what_concerns_other_shards_names_none() {
        let put = |key| format!(r#"{{"type":"put","collection":"user","key":{key},"fields":{{}}}}"#);
        check("POST", "/v1/shop/write", &format!(r#"{{"events":[{},{}]}}"#, put(1), put(2)), None);
        let search = r#"[{"collection":"user","position":1,"field":"v"}]"#;
        check("POST", "/v1/shop/write", &format!(r#"{{"events":[{}],"locks":{search}}}"#, put(1)), None);
        let user = |key| format!(r#"{{"collection":"user","key":{key}}}"#);
        check("POST", "/v1/shop/get", &format!(r#"{{"documents":[{},{}]}}"#, user(1), user(2)), None);
        check("POST", "/v1/shop/get", r#"{"documents":[]}"#, None);
        check("POST", "/v1/shop/count", r#"{"collection":"user"}"#, None);
        check("POST", "/v1/shop/locks", "{}", None);
        check("GET", "/v1/shop/session", "", None);
        check("GET", "/v1/shop/documents/user", "", None);
        check("PUT", "/v1/_system/documents/user/1", "{}", None);
        check("PUT", "/v1/shop/documents/user/no%20number", "{}", None);
        check("POST", "/v1/shop/write", "{", None);
    }
}
