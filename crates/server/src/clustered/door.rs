//! The door of one interface on a node of a cluster: a request is answered by the runtime of its shard if that is here,
//! and passed on to the owner otherwise. Knows nothing of what requests ask for.

use super::{
    ClusterNode, Destination, OWNER_WAIT, Place, Served,
    aim::Aim,
    allowance, peer_door, reads,
    scope::{self, Gathered, Scope},
    silence::{Watched, replaced},
    status, streamed,
};
use crate::{
    arriving::Arriving,
    body,
    cluster::dispatch::RETRY,
    config::Config,
    elasticsearch::Elasticsearch,
    listener::{Counted, Service, refusal},
    locktopus::Locktopus,
    native::{Native, lag},
    openslides::Openslides,
    runtime::Services,
    schema_registry::SchemaRegistry,
};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Frame, SizeHint},
    header::{self, HeaderValue},
    http::{request::Parts, response},
};
use hyper_util::rt::TokioIo;
use lockwood_cluster::{Answer, Call, CallError, CallKind};
use lockwood_node::{metrics::Interface, secret, trouble::Trouble};
use lockwood_router::{ShardEpoch, ShardNo};
use lockwood_wire::Code;
use std::{
    error::Error,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// So many owners may be lost over a request before it is given up.
const LOST_MAX: u32 = 5;
/// So many shards are asked at once for one request.
const ASKED_AT_ONCE_MAX: usize = 16;
/// How long to wait before another attempt.
const PAUSE: Duration = Duration::from_millis(20);

/// The header with the name of the node that a client asked. Clients cannot set it.
pub(crate) const ASKED: &str = "lockwood-asked-node";

/// An interface that has a door.
pub(crate) trait Doored: Service {
    /// Its name in the addresses of calls between nodes.
    const INTERFACE: Interface;
    /// That of a runtime.
    fn of(services: &Services) -> Option<Self>;
    /// Which shards a request is for.
    fn scope(config: &Config, request: &Request<Arriving>) -> Scope;
    /// The shard that has all documents that a request names, as far as this node knows. Any shard of a spread namespace answers
    /// any request for it; this one needs no other.
    fn shard_of_keys(_: &ClusterNode, _: &Parts, _: &Bytes) -> Option<ShardNo> {
        None
    }
    /// Answers what is about the node itself, or about its cluster.
    fn about_node(
        _: &Arc<ClusterNode>,
        _: &Request<Arriving>,
    ) -> impl Future<Output = Option<Response<Self::Body>>> + Send {
        std::future::ready(None)
    }
    /// Answers a read that tolerates a stale copy, if this node has one; otherwise gives the request back.
    fn by_copy(
        _: &ClusterNode,
        _: ShardNo,
        _: SocketAddr,
        request: Request<Arriving>,
    ) -> impl Future<Output = Result<Response<Self::Body>, Request<Arriving>>> + Send {
        std::future::ready(Err(request))
    }
}

impl Doored for Native {
    const INTERFACE: Interface = Interface::Native;
    fn scope(_: &Config, request: &Request<Arriving>) -> Scope {
        scope::native(request)
    }
    fn of(services: &Services) -> Option<Native> {
        Some(services.native.clone())
    }
    fn shard_of_keys(node: &ClusterNode, parts: &Parts, body: &Bytes) -> Option<ShardNo> {
        node.shard_of_keys(parts, body)
    }
    async fn about_node(
        node: &Arc<ClusterNode>,
        request: &Request<Arriving>,
    ) -> Option<Response<Self::Body>> {
        let asked = status::Asked::of(request)?;
        Some(status::answer(node, asked).await)
    }
    async fn by_copy(
        node: &ClusterNode,
        shard: ShardNo,
        peer: SocketAddr,
        request: Request<Arriving>,
    ) -> Result<Response<Self::Body>, Request<Arriving>> {
        reads::answer(node, shard, peer, request).await
    }
}

impl Doored for Locktopus {
    const INTERFACE: Interface = Interface::Locktopus;
    fn scope(_: &Config, request: &Request<Arriving>) -> Scope {
        scope::locktopus(request)
    }
    fn of(services: &Services) -> Option<Locktopus> {
        services.locktopus.clone()
    }
}

impl Doored for Elasticsearch {
    const INTERFACE: Interface = Interface::Elasticsearch;
    fn scope(_: &Config, request: &Request<Arriving>) -> Scope {
        scope::elasticsearch(request)
    }
    fn of(services: &Services) -> Option<Elasticsearch> {
        services.elasticsearch.clone()
    }
}

impl Doored for SchemaRegistry {
    const INTERFACE: Interface = Interface::SchemaRegistry;
    fn scope(config: &Config, request: &Request<Arriving>) -> Scope {
        scope::schema_registry(config, request)
    }
    fn of(services: &Services) -> Option<SchemaRegistry> {
        services.schema_registry.clone()
    }
}

/// The reader and the writer of the OpenSlides facade are one type, so each has a door of its own kind.
#[derive(Clone)]
pub(crate) struct Side<const WRITES: bool>(Openslides);

impl<const WRITES: bool> Service for Side<WRITES> {
    type Body = <Openslides as Service>::Body;
    fn interface(&self) -> Interface {
        self.0.interface()
    }
    async fn answer(&self, peer: SocketAddr, request: Request<Arriving>) -> Response<Self::Body> {
        self.0.answer(peer, request).await
    }
    fn is_read(&self, method: &Method, path: &str) -> bool {
        self.0.is_read(method, path)
    }
    fn refuse(trouble: Trouble) -> Response<Self::Body> {
        Openslides::refuse(trouble)
    }
}

impl<const WRITES: bool> Doored for Side<WRITES> {
    const INTERFACE: Interface =
        if WRITES { Interface::OpenslidesWriter } else { Interface::OpenslidesReader };
    fn scope(config: &Config, _: &Request<Arriving>) -> Scope {
        scope::openslides(config)
    }
    fn of(services: &Services) -> Option<Side<WRITES>> {
        let side = if WRITES { &services.openslides_writer } else { &services.openslides_reader };
        side.clone().map(Side)
    }
}

/// The attempts at one request so far.
struct Attempts {
    deadline: Instant,
    is_write: bool,
    /// How many owners were lost over it.
    lost: u32,
    /// Why one of them may have carried it out.
    in_doubt: Option<Trouble>,
}

impl Attempts {
    /// An owner was lost before it answered. A takeover needs some more time, but a request that owner after owner is lost over
    /// is not sent for ever: it may be the reason.
    fn lost(&mut self, doubt: Trouble, trouble: Trouble) -> Trouble {
        self.lost += 1;
        if self.lost <= LOST_MAX {
            self.deadline = self.deadline.max(Instant::now() + OWNER_WAIT);
        }
        self.in_doubt = Some(doubt).filter(|_| self.is_write);
        trouble
    }
}

/// Another node that owns a shard.
struct Owner {
    address: String,
    shard: ShardNo,
    epoch: ShardEpoch,
}

/// Answers everything on the listener of one interface.
pub(crate) struct Door<S> {
    pub(super) node: Arc<ClusterNode>,
    interface: std::marker::PhantomData<fn() -> S>,
}

impl<S> Clone for Door<S> {
    fn clone(&self) -> Door<S> {
        Door { node: Arc::clone(&self.node), interface: std::marker::PhantomData }
    }
}

impl<S: Doored> Service for Door<S> {
    type Body = DoorBody<S::Body>;

    fn interface(&self) -> Interface {
        S::INTERFACE
    }

    async fn answer(&self, peer: SocketAddr, mut request: Request<Arriving>) -> Response<Self::Body> {
        if let Some(answer) = S::about_node(&self.node, &request).await {
            return answer.map(DoorBody::Here);
        }
        // For requests that are about the node, and decided by another one.
        request.headers_mut().remove(ASKED);
        if let Ok(name) = HeaderValue::try_from(self.node.topology.own().as_str()) {
            request.headers_mut().insert(ASKED, name);
        }
        let deadline = Instant::now() + OWNER_WAIT;
        // Until the rows were read once there is no shard to choose.
        while self.node.shards().is_empty() && Instant::now() < deadline {
            self.wait().await;
        }
        let scope = S::scope(&self.node.front.config, &request);
        if let Scope::Shard(..) = scope {
            *request.uri_mut() = scope::without_shard(request.uri());
        }
        let namespace = match &scope {
            Scope::Namespace(named) => Some(named.name.clone()),
            _ => None,
        };
        match self.node.destination(scope, S::INTERFACE).await {
            Ok(Destination::One(shard)) => match S::by_copy(&self.node, shard, peer, request).await {
                Ok(answer) => answer.map(DoorBody::Here),
                Err(request) => {
                    let aim = namespace.map_or(Aim::Shard(shard), |name| Aim::Home(shard, name));
                    self.answer_by(aim, peer, request, deadline).await
                }
            },
            Ok(Destination::All(gathered)) => match self.gather(gathered, peer, request, deadline).await {
                Ok(answer) => answer,
                Err(trouble) => refused::<S>(trouble),
            },
            Err(trouble) => refused::<S>(trouble),
        }
    }

    fn is_read(&self, method: &Method, _: &str) -> bool {
        method == Method::GET
    }

    fn refuse(trouble: Trouble) -> Response<Self::Body> {
        S::refuse(trouble).map(DoorBody::Here)
    }
}

impl<S: Doored> Door<S> {
    pub(crate) fn new(node: &Arc<ClusterNode>) -> Door<S> {
        Door { node: Arc::clone(node), interface: std::marker::PhantomData }
    }

    /// Answers a request for one namespace, or for what one shard has of it.
    async fn answer_by(
        &self,
        mut aim: Aim,
        peer: SocketAddr,
        mut request: Request<Arriving>,
        deadline: Instant,
    ) -> Response<DoorBody<S::Body>> {
        let upgrade = request.headers().contains_key(header::UPGRADE);
        let repeats = !upgrade && repeats(S::INTERFACE, request.method(), request.uri().path());
        if !repeats {
            // One that cannot be sent again need not be kept.
            request = match self.answer_here(&aim, peer, request, deadline).await {
                Ok(answer) => return answer,
                Err(request) => request,
            };
        }
        if streamed::is_streamed(S::INTERFACE, request.method(), request.uri().path()) {
            return self.stream(&aim, peer, request, deadline).await;
        }
        let on_upgrade = upgrade.then(|| hyper::upgrade::on(&mut request));
        let counted = request.extensions().get::<Arc<Counted>>().cloned();
        let (parts, body) = request.into_parts();
        let body = match body::read_at(&self.node.front, body).await {
            Ok(body) => body,
            Err(error) => return refused::<S>(error.into()),
        };
        if let Some(shard) = S::shard_of_keys(&self.node, &parts, &body).filter(|_| repeats) {
            aim = Aim::Shard(shard);
        }
        match self.forward(&aim, peer, parts, body, deadline).await {
            Ok((answer, Some(owner))) => match on_upgrade {
                Some(client) => tunnel(&self.node, answer, (client, counted), owner),
                None => answer,
            },
            Ok((answer, None)) => answer,
            Err(trouble) => refused::<S>(trouble),
        }
    }

    /// Answers a request by the runtime of its shard, if that is here; gives it back if another node owns the shard.
    pub(super) async fn answer_here(
        &self,
        aim: &Aim,
        peer: SocketAddr,
        request: Request<Arriving>,
        deadline: Instant,
    ) -> Result<Response<DoorBody<S::Body>>, Request<Arriving>> {
        loop {
            let shard = aim.shard(&self.node);
            match aim.place(&self.node, shard).await {
                Place::Here(served) => {
                    let Some(service) = S::of(&served.services) else {
                        return Ok(refused::<S>(not_served(shard)));
                    };
                    let answer = local(&service, &served, peer, request).await;
                    return Ok(answer.unwrap_or_else(|trouble| refused::<S>(trouble)));
                }
                Place::There(..) => return Err(request),
                Place::Nowhere if Instant::now() >= deadline => {
                    return Ok(refused::<S>(no_owner(&self.node, shard)));
                }
                Place::Nowhere => self.wait().await,
            }
        }
    }

    /// Asks all shards and merges what they say. What one of them refuses is refused.
    async fn gather(
        &self,
        gathered: Gathered,
        peer: SocketAddr,
        request: Request<Arriving>,
        deadline: Instant,
    ) -> Result<Response<DoorBody<S::Body>>, Trouble> {
        gathered.check()?;
        let (mut parts, body) = request.into_parts();
        let body = body::read_at(&self.node.front, body).await?;
        // The length of the merged answer is not that of the first one.
        parts.headers.remove(header::ACCEPT_ENCODING);
        let asking = self.node.shards().into_iter().map(|shard| {
            let (parts, body) = (parts.clone(), body.clone());
            async move { self.ask(shard, peer, parts, body, deadline).await }
        });
        // In the order of their shards, whichever answers first.
        let mut asking = stream::iter(asking).buffered(ASKED_AT_ONCE_MAX);
        let (mut answers, mut head) = (Vec::new(), None);
        while let Some(asked) = asking.next().await {
            let (shard, answer, body) = match asked? {
                Asked::Answer(shard, answer, body) => (shard, answer, body),
                Asked::Refusal(refusal) => return Ok(refusal),
            };
            answers.push((shard, body));
            head.get_or_insert(answer);
        }
        let merged = gathered.merge(&answers)?;
        let mut answer = Response::new(DoorBody::Merged(Full::from(merged)));
        if let Some(head) = head {
            *answer.headers_mut() = head.headers;
            answer.headers_mut().remove(header::CONTENT_LENGTH);
        }
        Ok(answer)
    }

    /// Asks one of all shards.
    async fn ask(
        &self,
        shard: ShardNo,
        peer: SocketAddr,
        parts: Parts,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Asked<S::Body>, Trouble> {
        let (answer, _) = self.forward(&Aim::Shard(shard), peer, parts, body, deadline).await?;
        if !answer.status().is_success() {
            return Ok(Asked::Refusal(answer));
        }
        let (answer, body) = answer.into_parts();
        let body = body.collect().await.map_err(|error| unreadable(shard, &*error))?;
        Ok(Asked::Answer(shard, answer, body.to_bytes()))
    }

    /// Waits a moment for another owner.
    pub(super) async fn wait(&self) {
        let (mut here, mut there) = (self.node.changes.subscribe(), self.node.topology.subscribe());
        tokio::select! {
            _ = here.changed() => {}
            _ = there.changed() => {}
            () = tokio::time::sleep(PAUSE) => {}
        }
    }

    /// Calls the owner, for as long as it is the owner: one that is paused never answers.
    async fn call(
        &self,
        Owner { address, shard, epoch }: &Owner,
        (call, timeout): (&Call, Duration),
    ) -> Result<Response<Answer>, CallError> {
        tokio::select! {
            answer = self.node.peers.call(address, call, timeout) => answer,
            () = self.node.silenced(*shard, *epoch) => {
                Err(CallError::Unknown { address: address.clone(), cause: replaced(*shard) })
            }
        }
    }

    /// Passes a request on to the owner, also if that changes meanwhile. Gives the owner that answered, if it was not this
    /// node.
    async fn forward(
        &self,
        aim: &Aim,
        peer: SocketAddr,
        mut parts: Parts,
        body: Bytes,
        deadline: Instant,
    ) -> Result<(Response<DoorBody<S::Body>>, Option<Owner>), Trouble> {
        let timeout = allowance::of_request(&self.node.front.config, S::INTERFACE, &parts, &body);
        let repeats = repeats(S::INTERFACE, &parts.method, parts.uri.path());
        if repeats {
            add_retry_key(&mut parts);
        }
        let is_write = !only_reads(&parts.method, parts.uri.path());
        let mut attempts = Attempts { deadline, is_write, lost: 0, in_doubt: None };
        loop {
            let shard = aim.shard(&self.node);
            let mut call = call_of((shard, S::INTERFACE), peer, &parts, (&body, aim));
            let trouble = match aim.place(&self.node, shard).await {
                Place::Here(served) => {
                    let Some(service) = S::of(&served.services) else { return Err(not_served(shard)) };
                    let request =
                        Request::from_parts(parts.clone(), Arriving::Whole(Full::new(body.clone())));
                    match local(&service, &served, peer, request).await {
                        Err(trouble) if repeats => attempts.lost(trouble.clone(), trouble),
                        answered => return answered.map(|answer| (answer, None)),
                    }
                }
                Place::Nowhere => no_owner(&self.node, shard),
                Place::There(address, epoch) => {
                    let owner = Owner { address, shard, epoch };
                    call.headers.insert(peer_door::EPOCH, HeaderValue::from(epoch.0));
                    match self.call(&owner, (&call, timeout)).await {
                        Ok(answer) if repeats && peer_door::is_lost(&answer) => {
                            attempts.lost(lost(shard), lost(shard))
                        }
                        Ok(answer) if !peer_door::is_not_owner(&answer) => {
                            let watched =
                                |body| DoorBody::There(Watched::new(&self.node, (shard, epoch), body));
                            return Ok((answer.map(watched), Some(owner)));
                        }
                        Ok(_) => no_owner(&self.node, shard),
                        Err(error @ CallError::Unknown { .. }) if !repeats => {
                            return Err(outcome_unknown(shard, &error));
                        }
                        Err(error @ CallError::Unknown { .. }) => {
                            attempts.lost(outcome_unknown(shard, &error), unreachable(shard, &error))
                        }
                        Err(error) => unreachable(shard, &error),
                    }
                }
            };
            if Instant::now() >= attempts.deadline {
                return Err(attempts.in_doubt.unwrap_or(trouble));
            }
            self.wait().await;
        }
    }
}

/// Answers by a runtime of this process; refused if that ends before. An answer that claims to be current is sent only if it
/// still is.
async fn local<S: Doored>(
    service: &S,
    served: &Served,
    peer: SocketAddr,
    request: Request<Arriving>,
) -> Result<Response<DoorBody<S::Body>>, Trouble> {
    let rests = Rests::of(service, &request);
    let answer = tokio::select! {
        answer = service.answer(peer, request) => answer,
        // Dropped with all it waits for: the runtime is about to go.
        () = served.ended() => return Err(lost(served.shard())),
    };
    match doubt(&answer, rests, served) {
        Some(trouble) => Err(trouble),
        None => Ok(answer.map(DoorBody::Here)),
    }
}

/// Why an answer is not to be sent. What was written was accepted by the database under the epoch of this owner; what was
/// read was not, so it counts only if the ownership is still fresh.
pub(super) fn doubt<B>(answer: &Response<B>, rests: Rests, served: &Served) -> Option<Trouble> {
    let was_read = match rests {
        Rests::Reads => true,
        Rests::IfRefused => answer.status().is_client_error(),
    };
    if was_read && !served.authority.is_fresh() {
        return Some(lost(served.shard()));
    }
    let is_over = answer.extensions().get::<Code>() == Some(&Code::StorageFailed);
    is_over.then(|| lost(served.shard()))
}

/// What an answer rests on that the database has not accepted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rests {
    /// On what was read, or on locks: a lease that its owner asks for again is held by what is in memory, and no record. That of
    /// a procedure may, if it wrote nothing.
    Reads,
    /// It writes: only a refusal rests on what was read. The request can be sent again.
    IfRefused,
}

impl Rests {
    pub(super) fn of<S: Doored>(service: &S, request: &Request<Arriving>) -> Rests {
        let (method, path) = (request.method(), request.uri().path());
        let calls = S::INTERFACE == Interface::Native && path.ends_with("/shard/call");
        match repeats(S::INTERFACE, method, path) {
            _ if calls || service.is_read(method, path) => Rests::Reads,
            true => Rests::IfRefused,
            false => Rests::Reads,
        }
    }
}

/// That the tenure ended before the answer was there.
pub(crate) fn lost(shard: ShardNo) -> Trouble {
    let message = format!(
        "the owner of shard {} has lost it; a write may have been carried out, so look before you send it again",
        shard.0
    );
    Trouble::unreachable(shard, message)
}

/// Whether a request may be sent again without being done twice: it reads, renews, or is a write that is known by a key.
fn repeats(interface: Interface, method: &Method, path: &str) -> bool {
    if method == Method::GET || method == Method::HEAD {
        return true;
    }
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    interface == Interface::Native
        && matches!(
            segments[..],
            ["v1", _, "write" | "get" | "filter" | "count" | "exists" | "min" | "max" | "join"]
                | ["v1", _, "documents" | "restore", _, _, ..]
                | ["v1", _, "locks", "renew"]
                | ["v1", _, "locks", _, "renew"]
                | [
                    "v1",
                    _,
                    "shard",
                    "select" | "eselect" | "insert" | "replace" | "delete" | "update" | "call"
                ]
        )
}

/// Whether a request that may be sent again writes nothing.
fn only_reads(method: &Method, path: &str) -> bool {
    method == Method::GET || method == Method::HEAD || lag::is_read(method, path)
}

/// Gives a request a key by which it is known if it is sent again. What only reads ignores it.
fn add_retry_key(parts: &mut Parts) {
    if parts.method != Method::GET && parts.method != Method::HEAD && !parts.headers.contains_key(RETRY) {
        let key = format!("retry-{}", secret::hex(&secret::random::<16>()));
        parts.headers.insert(RETRY, HeaderValue::try_from(key).expect("hex digits can be in a header"));
    }
}

fn call_of(
    (shard, interface): (ShardNo, Interface),
    peer: SocketAddr,
    parts: &Parts,
    (body, aim): (&Bytes, &Aim),
) -> Call {
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let target = format!("/{}/{}{target}", shard.0, interface.as_str());
    let mut headers = parts.headers.clone();
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::TRANSFER_ENCODING);
    headers.remove(header::EXPECT);
    if !headers.contains_key(header::UPGRADE) {
        headers.remove(header::CONNECTION);
    }
    if let Ok(client) = HeaderValue::try_from(peer.to_string()) {
        headers.insert(peer_door::CLIENT, client);
    }
    aim.mark(&mut headers);
    Call {
        kind: CallKind::Request,
        method: parts.method.clone(),
        target: target.parse().unwrap_or_default(),
        headers,
        body: body.clone(),
    }
}

/// Connects the client with the owner, byte for byte, once both have agreed. When another node takes over, or the owner is
/// silent, the tunnel ends, so that the client comes back and finds the next owner, or another way.
fn tunnel<B>(
    node: &Arc<ClusterNode>,
    mut answer: Response<DoorBody<B>>,
    (client, counted): (hyper::upgrade::OnUpgrade, Option<Arc<Counted>>),
    Owner { address, shard, epoch }: Owner,
) -> Response<DoorBody<B>> {
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return answer;
    }
    let (node, owner) = (Arc::clone(node), hyper::upgrade::on(&mut answer));
    tokio::spawn(async move {
        // The connection counts for as long as it is a tunnel.
        let _counted = counted;
        let (Ok(client), Ok(owner)) = tokio::join!(client, owner) else { return };
        let (mut client, mut owner) = (TokioIo::new(client), TokioIo::new(owner));
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut owner) => {}
            () = node.moved(shard, epoch) => {}
            () = node.peers.silenced(&address) => {}
        }
    });
    answer
}

pub(super) fn refused<S: Doored>(trouble: Trouble) -> Response<DoorBody<S::Body>> {
    refusal::<S>(trouble).map(DoorBody::Here)
}

pub(super) fn no_owner(node: &ClusterNode, shard: ShardNo) -> Trouble {
    if node.topology.is_lost() {
        let message = "the database of the cluster cannot be reached, so nothing is granted, written or read; try again";
        return Trouble::new(Code::ShardUnreachable, message);
    }
    let message = format!(
        "no node owns shard {} right now; a takeover takes a few seconds, so try again, or see `lockwood cluster status`",
        shard.0
    );
    Trouble::unreachable(shard, message)
}

fn not_served(shard: ShardNo) -> Trouble {
    let message = format!(
        "the owner of shard {} does not serve this interface; start all nodes with the same facades",
        shard.0
    );
    Trouble::unreachable(shard, message)
}

pub(super) fn unreachable(shard: ShardNo, error: &CallError) -> Trouble {
    Trouble::unreachable(shard, format!("the owner of shard {} does not answer: {error}; try again", shard.0))
}

pub(super) fn outcome_unknown(shard: ShardNo, error: &CallError) -> Trouble {
    let message = format!(
        "the owner of shard {} does not answer: {error}; the request may have been carried out, so look before you send \
         it again",
        shard.0
    );
    Trouble::unreachable(shard, message)
}

fn unreadable(shard: ShardNo, error: &(dyn Error + Send + Sync)) -> Trouble {
    let message = format!("the answer of shard {} broke off: {error}; try again", shard.0);
    Trouble::unreachable(shard, message)
}

/// What one of all shards said.
enum Asked<B> {
    Answer(ShardNo, response::Parts, Bytes),
    Refusal(Response<DoorBody<B>>),
}

/// The body of an answer that was made here, by the owner, or of those of several owners.
pub(crate) enum DoorBody<B> {
    Here(B),
    There(Watched),
    Merged(Full<Bytes>),
}

impl<B: Default> Default for DoorBody<B> {
    fn default() -> DoorBody<B> {
        DoorBody::Here(B::default())
    }
}

impl<B> Body for DoorBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            DoorBody::Here(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
            DoorBody::There(body) => Pin::new(body).poll_frame(context),
            DoorBody::Merged(body) => Pin::new(body).poll_frame(context).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            DoorBody::Here(body) => body.is_end_stream(),
            DoorBody::There(body) => body.is_end_stream(),
            DoorBody::Merged(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            DoorBody::Here(body) => body.size_hint(),
            DoorBody::There(body) => body.size_hint(),
            DoorBody::Merged(body) => body.size_hint(),
        }
    }
}
