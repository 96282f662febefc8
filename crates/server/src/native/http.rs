//! The plain HTTP routes: listings, the operator's release, health, metrics. Each handler decodes, calls,
//! encodes.

use super::{
    connection, documents, grace, internal, internal_spread, leases, openapi, query::InQuery, schemas, shards,
};
use crate::{
    listener::Counted,
    native::{HttpError, problem},
    shared::Shared,
};
use axum::{
    Json, Router,
    body::Body,
    extract::{FromRequestParts, Path as UrlPath, Request, State},
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use hyper::{StatusCode, header, http::request::Parts};
use lockwood_node::{
    clock::rfc3339,
    listing::{self, Selection},
    metrics, operator,
    trouble::Trouble,
};
use lockwood_wire::{
    Code, LockInfo, LockList, NamespaceInfo, NamespaceList, OperatorAction, OperatorLog, Problem, Readiness,
    ServerStatus, Tree, WaitGraph,
};
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// A page unless `limit` says otherwise.
const PAGE_LEN: usize = 100;
/// The reason an operator gives.
pub(super) const REASON_BYTES_MAX: usize = 1024;

pub(super) use lockwood_node::listing::read_path;

pub(super) type App = State<Arc<Shared>>;

pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(openapi_json))
        .route("/v1/namespaces", get(namespaces))
        .route("/v1/grace", get(grace::grace))
        .route("/v1/{namespace}/grace", delete(grace::end_grace))
        .route("/v1/status", get(server_status))
        .route("/v1/{namespace}/session", get(session))
        .route("/v1/{namespace}/locks", get(locks).post(leases::take))
        .route("/v1/{namespace}/locks/renew", post(leases::renew_all))
        .route("/v1/{namespace}/locks/release", post(leases::release_all))
        .route("/v1/{namespace}/locks/{lock}/renew", post(leases::renew))
        .route("/v1/{namespace}/locks/{lock}/release", post(leases::release))
        .route("/v1/{namespace}/locks/{lock}", get(lock).delete(release))
        .route("/v1/{namespace}/tree", get(tree))
        .route("/v1/{namespace}/waits", get(waits))
        .route("/v1/{namespace}/operator-log", get(operator_log))
        .merge(documents::router())
        .merge(schemas::router())
        .merge(shards::router())
}

/// The same with what others are told who ask for something else.
pub(super) fn router(shared: &Arc<Shared>, routes: Router<Arc<Shared>>) -> Router {
    routes
        .merge(peers(shared))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(Arc::clone(shared))
}

/// What other nodes of the cluster may ask; a server that is no node has no such routes.
fn peers(shared: &Shared) -> Router<Arc<Shared>> {
    match shared.cluster.is_node() {
        true => internal::router().merge(internal_spread::router()),
        false => Router::new(),
    }
}

type Answer<T> = Result<Json<T>, HttpError>;

/// The named parts of the address; if they cannot be read it is a problem like any other.
pub(super) struct InPath<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for InPath<T> {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<InPath<T>, HttpError> {
        let read = UrlPath::from_request_parts(parts, state).await;
        Ok(read
            .map(|UrlPath(read)| InPath(read))
            .map_err(|error| Trouble::new(Code::BadPath, error.body_text()))?)
    }
}

/// The process is alive.
#[utoipa::path(get, path = "/healthz", responses(
    (status = 200, description = "The process is alive.", body = String, content_type = "text/plain")))]
async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether locks can be had.
#[utoipa::path(get, path = "/readyz", responses(
    (status = 200, description = "Sessions can be opened or taken up again.", body = Readiness),
    (status = 503, description = "The server is about to stop, or its disk failed.", body = Readiness)))]
async fn readyz(State(shared): App) -> (StatusCode, Json<Readiness>) {
    let (status, readiness) = readiness(&shared);
    (status, Json(readiness))
}

fn readiness(shared: &Shared) -> (StatusCode, Readiness) {
    let (status, word) = match () {
        () if shared.is_poisoned() => (StatusCode::SERVICE_UNAVAILABLE, "storage_failed"),
        () if shared.is_draining() => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        // Clients must be able to take up their sessions now, so this is not a reason to be sent elsewhere.
        () if shared.grace.everywhere_left_ms() > 0 => (StatusCode::OK, "grace_period"),
        () => (StatusCode::OK, "ready"),
    };
    (status, Readiness { status: word.to_owned(), grace: shared.grace.list(), durability: None })
}

/// The server at a glance: what is served where, its namespaces with their positions and locks, memory, grace.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = ServerStatus)))]
async fn server_status(State(shared): App) -> Answer<ServerStatus> {
    let (now, (_, Readiness { status, grace, .. })) = (shared.clock.now(), readiness(&shared));
    let durability = match &shared.membership {
        Some(membership) => membership.node.durability_in_words(),
        None => "an acknowledged write is on 1 machine: synced to the disk of this server".to_owned(),
    };
    Ok(Json(ServerStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        status,
        grace,
        started_at: rfc3339(shared.started_at),
        uptime_ms: now.since(shared.started_at),
        data: shared.config.data.display().to_string(),
        interfaces: shared.interfaces.clone(),
        connections: shared.front.connections.load(Ordering::Relaxed),
        memory_bytes: metrics::resident_bytes(),
        durability: Some(durability),
        namespaces: list_namespaces(&shared)?,
    }))
}

/// Counts and times for Prometheus.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, description = "Prometheus text format.", body = String, content_type = "text/plain")))]
async fn metrics(State(shared): App) -> Response {
    let text = shared.metrics.render(&shared.gauges(), &shared.shard.counts().sync_time);
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

async fn openapi_json() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], openapi::document()).into_response()
}

/// The namespaces in use, and those with documents. One that nobody uses and that has none disappears.
#[utoipa::path(get, path = "/v1/namespaces", responses((status = 200, body = NamespaceList)))]
async fn namespaces(State(shared): App) -> Answer<NamespaceList> {
    Ok(Json(NamespaceList { namespaces: list_namespaces(&shared)? }))
}

fn list_namespaces(shared: &Shared) -> Result<Vec<NamespaceInfo>, Trouble> {
    let mut positions: BTreeMap<String, Option<u64>> = BTreeMap::new();
    let reading = shared.shard.read();
    for (name, id) in reading.state().namespaces()? {
        positions.insert(name, Some(reading.state().position(id)?.0));
    }
    let mut sizes: BTreeMap<String, (usize, usize, usize)> = BTreeMap::new();
    for namespace in shared.registry.all() {
        positions.entry(namespace.name.to_string()).or_default();
        sizes.insert(namespace.name.to_string(), namespace.sizes());
    }
    let info = |(namespace, position)| {
        let (sessions, locks_granted, locks_waiting) = sizes.get(&namespace).copied().unwrap_or_default();
        NamespaceInfo { namespace, sessions, locks_granted, locks_waiting, position }
    };
    Ok(positions.into_iter().map(info).collect())
}

/// Opens a WebSocket for a session; see the protocol document.
#[utoipa::path(get, path = "/v1/{namespace}/session", params(("namespace" = String, Path)), responses(
    (status = 101, description = "A session can be opened on this connection."),
    (status = 400, body = Problem)))]
async fn session(State(shared): App, InPath(namespace): InPath<String>, mut request: Request) -> Response {
    if let Err(trouble) = check_namespace(&shared, &namespace) {
        return problem(trouble);
    }
    let peer = *request.extensions().get().expect("the listener says who called");
    let counted: Option<Arc<Counted>> = request.extensions_mut().remove();
    match crate::handshake::accept::<_, Body>(&mut request) {
        Ok((response, upgrade)) => {
            tokio::spawn(async move {
                if let Some((stream, received)) = upgrade.complete().await {
                    connection::run(shared, &namespace, peer, stream, &received).await;
                }
                drop(counted);
            });
            response
        }
        Err(crate::handshake::NotHandshake::Method) => method_not_allowed().await.into_response(),
        Err(crate::handshake::NotHandshake::Header(message)) => {
            problem(Trouble::new(Code::NotWebsocket, message))
        }
    }
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LocksQuery {
    /// The session a lock belongs to, the name that session gave itself, or the owner of a lease.
    owner: Option<String>,
    /// Only locks with a resource at or below this path (`user/42`).
    path: Option<String>,
    /// granted, waiting or converting.
    state: Option<lockwood_wire::LockState>,
    /// At most so many locks.
    limit: Option<usize>,
    /// Only locks after this one: `next` of the page before.
    after: Option<u64>,
}

/// The locks of a namespace, held and waiting, in the order they were asked for.
#[utoipa::path(get, path = "/v1/{namespace}/locks", params(("namespace" = String, Path), LocksQuery), responses(
    (status = 200, body = LockList), (status = 400, body = Problem)))]
async fn locks(
    State(shared): App,
    InPath(namespace): InPath<String>,
    InQuery(query): InQuery<LocksQuery>,
) -> Answer<LockList> {
    let LocksQuery { owner, path, state, limit, after } = query;
    let selection = Selection { owner, path, state, after, len_max: page_len(&shared, limit)? };
    Ok(Json(listing::page(&shared, &namespace, &selection).await?))
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LockQuery {
    /// Wait up to so many milliseconds while the lock stands in line.
    poll_ms: Option<u64>,
}

/// One lock.
#[utoipa::path(get, path = "/v1/{namespace}/locks/{lock}",
    params(("namespace" = String, Path), ("lock" = u64, Path), LockQuery),
    responses((status = 200, body = LockInfo), (status = 404, body = Problem)))]
async fn lock(
    State(shared): App,
    InPath((name, lock)): InPath<(String, String)>,
    InQuery(query): InQuery<LockQuery>,
) -> Answer<LockInfo> {
    let LockQuery { poll_ms } = query;
    let number = lock_number(&lock)?;
    let limit = shared.config.limits.wait_ms_max;
    if let Some(poll_ms) = poll_ms.filter(|poll_ms| *poll_ms > limit) {
        let what = format!("the request would wait for {poll_ms} ms");
        return Err(Trouble::over("wait_ms_max", limit, &what).into());
    }
    let patience = poll_ms.map(Duration::from_millis);
    match listing::one(&shared, &name, number, patience).await? {
        Some(found) => Ok(Json(found)),
        None => Err(no_lock(&shared, &name, number)?.into()),
    }
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ReleaseQuery {
    /// Why, for the record.
    reason: Option<String>,
}

/// Ends a lock by force. It is recorded, and its owner is told.
#[utoipa::path(delete, path = "/v1/{namespace}/locks/{lock}",
    params(("namespace" = String, Path), ("lock" = u64, Path), ReleaseQuery),
    responses((status = 200, body = OperatorAction), (status = 404, body = Problem)))]
async fn release(
    State(shared): App,
    InPath((name, lock)): InPath<(String, String)>,
    InQuery(query): InQuery<ReleaseQuery>,
) -> Answer<OperatorAction> {
    let reason = query.reason;
    check_reason(reason.as_deref())?;
    let number = lock_number(&lock)?;
    let namespace = shared.registry.get(&name);
    let Some(info) = namespace.and_then(|namespace| namespace.lock_info(&shared, number)) else {
        return Err(no_lock(&shared, &name, number)?.into());
    };
    let action = operator::action(&shared, &name, info, reason);
    operator::record(&shared, &action).await?;
    operator::end(&shared, &name, number).await?;
    let owner = action.lock.as_ref().map_or("", |lock| &lock.owner.session);
    tracing::warn!(namespace = ?action.namespace, lock = number, owner,
        reason = ?action.reason, "an operator ended a lock");
    Ok(Json(action))
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct TreeQuery {
    /// Only the node at this path and those below it.
    path: Option<String>,
}

/// The nodes with locks on them, and the intents on the nodes above.
#[utoipa::path(get, path = "/v1/{namespace}/tree", params(("namespace" = String, Path), TreeQuery), responses(
    (status = 200, body = Tree), (status = 400, body = Problem)))]
async fn tree(
    State(shared): App,
    InPath(namespace): InPath<String>,
    InQuery(query): InQuery<TreeQuery>,
) -> Answer<Tree> {
    let path = query.path.as_deref().map(read_path).transpose()?.unwrap_or_default();
    Ok(Json(listing::tree(&shared, &namespace, &path)))
}

/// Who waits for whom.
#[utoipa::path(get, path = "/v1/{namespace}/waits", params(("namespace" = String, Path)), responses(
    (status = 200, body = WaitGraph)))]
async fn waits(State(shared): App, InPath(namespace): InPath<String>) -> Answer<WaitGraph> {
    Ok(Json(listing::waits(&shared, &namespace)))
}

/// What operators did, the latest first.
#[utoipa::path(get, path = "/v1/{namespace}/operator-log", params(("namespace" = String, Path)), responses(
    (status = 200, body = OperatorLog)))]
async fn operator_log(State(shared): App, InPath(namespace): InPath<String>) -> Answer<OperatorLog> {
    Ok(Json(OperatorLog { actions: operator::log(&shared, &namespace).await? }))
}

async fn not_found() -> HttpError {
    Trouble::new(Code::NotFound, "there is nothing at this address; /openapi.json lists what there is").into()
}

async fn method_not_allowed() -> HttpError {
    Trouble::new(Code::MethodNotAllowed, "this address does not take this method; see /openapi.json").into()
}

/// Why there is no such lock: its namespace has no lock of that number, or there is no such namespace.
fn no_lock(shared: &Shared, name: &str, lock: u64) -> Result<Trouble, Trouble> {
    // On a cluster every namespace that was ever used is known, and others may have its documents.
    let has_home = shared.membership.as_ref().is_some_and(|membership| membership.knows(name));
    let is_known = has_home
        || shared.registry.get(name).is_some()
        || shared.shard.read().state().namespace(name)?.is_some();
    Ok(match is_known {
        true => Trouble::new(
            Code::UnknownLock,
            format!(
                "there is no lock {lock} in the namespace {name:?}; it may be over, `lockwood locks` lists those there are"
            ),
        ),
        false => Trouble::new(
            Code::UnknownNamespace,
            format!(
                "the namespace {name:?} has no documents and no locks; `lockwood namespaces` lists those there are"
            ),
        ),
    })
}

pub(super) fn lock_number(lock: &str) -> Result<u64, Trouble> {
    lock.parse().map_err(|_| {
        Trouble::new(
            Code::UnknownLock,
            format!("{lock:?} is not the number of a lock; listings show the numbers"),
        )
    })
}

pub(super) fn check_reason(reason: Option<&str>) -> Result<(), Trouble> {
    match reason.is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
        true => Err(Trouble::new(Code::BadQuery, format!("a reason has at most {REASON_BYTES_MAX} bytes"))),
        false => Ok(()),
    }
}

pub(super) fn check_namespace(shared: &Shared, name: &str) -> Result<(), Trouble> {
    if name.is_empty() {
        return Err(Trouble::new(Code::BadNamespace, "a namespace needs a name: /v1/NAMESPACE/..."));
    }
    let limit = shared.config.limits.namespace_bytes_max;
    if name.len() as u64 > limit {
        let what = format!("the name of the namespace has {} bytes", name.len());
        return Err(Trouble::over("namespace_bytes_max", limit, &what));
    }
    Ok(())
}

fn page_len(shared: &Shared, limit: Option<usize>) -> Result<usize, Trouble> {
    let most = shared.config.limits.page_len_max;
    match limit {
        None => Ok(PAGE_LEN.min(most as usize)),
        Some(0) => {
            Err(Trouble::new(Code::BadQuery, "the parameter `limit` must be a whole number from 1, not 0"))
        }
        Some(len) if len as u64 > most => Err(Trouble::over("page_len_max", most, "limit is too large")),
        Some(len) => Ok(len),
    }
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Lockwood", description = "Locks on a tree, for everyone to see."),
    paths(
        healthz,
        readyz,
        metrics,
        namespaces,
        grace::grace,
        grace::end_grace,
        server_status,
        session,
        locks,
        lock,
        release,
        leases::take,
        leases::renew,
        leases::renew_all,
        leases::release,
        leases::release_all,
        tree,
        waits,
        operator_log,
        documents::document,
        documents::documents,
        documents::put,
        documents::delete,
        documents::restore,
        documents::write,
        documents::reserve,
        documents::get_many,
        documents::filter,
        documents::count,
        documents::exists,
        documents::min,
        documents::max,
        documents::join,
        documents::history,
        documents::changes,
        documents::position,
        documents::collections,
        documents::indexes,
        documents::declare,
        documents::drop_index,
        documents::dump,
        documents::load,
        documents::trim,
        documents::purge,
        documents::purges,
        documents::backup,
        schemas::subjects,
        schemas::versions,
        schemas::version,
        schemas::register,
        schemas::check,
        schemas::differences,
        schemas::delete_subject,
        schemas::delete_version,
        schemas::settings,
        schemas::set,
        schemas::forget,
        schemas::settings_of_all,
        schemas::set_for_all,
        schemas::forget_for_all,
        shards::select,
        shards::eselect,
        shards::insert,
        shards::replace,
        shards::shard_delete,
        shards::update,
        shards::call,
        shards::procedures,
        shards::procedure,
        shards::put_procedure,
        shards::delete_procedure,
        shards::map,
        shards::config,
        shards::is_valid,
        shards::home,
        shards::move_home,
        shards::transition_status,
        shards::transition_command,
        shards::copy,
        shards::cleanup,
        shards::raw_select,
        shards::raw_insert,
        shards::raw_delete,
        shards::raw_len
    )
)]
pub(crate) struct Api;
