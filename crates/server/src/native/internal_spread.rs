//! What nodes ask each other for operations that are about all shards. Each handler decodes, calls, encodes; only
//! nodes get here.

use super::{
    documents::{Decoder, PeerBody, Retry, dump_lines, reserve_from, terms},
    http::{App, InPath},
    internal::{Refused, read_json, same_epoch},
};
use crate::{
    cluster::{
        Current,
        dispatch::spread::{
            HoldTable, IdsRequest, LoadTable, NEXT_ID, NextId, RESERVE,
            dump::{COUNTERS, Counters, LINES, Lines},
            feed::{AWAIT, AWAIT_PATIENCE, Await},
            frozen::{self, GET, KNOWN, Keys, SEARCH, Search},
            hold::{HOLD, Held, HoldRequest, RELEASE},
            load::{self, Beginning, Begun, Ending},
            searches::{ANSWERED, Asked, JUDGE, Judge},
        },
    },
    clustered::defined,
    shared::Shared,
};
use axum::{
    Json, Router,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
    routing::post,
};
use lockwood_model::{Position, Resource};
use lockwood_node::{gate, shard::in_place, trouble::Trouble};
use lockwood_wire::documents::{PositionAnswer, WriteCall, Written, read_body};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// The routes, for the native router to take in.
pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route(SEARCH, post(frozen_search))
        .route(GET, post(frozen_get))
        .route(KNOWN, post(frozen_known))
        .route(HOLD, post(hold))
        .route(RELEASE, post(release))
        .route(NEXT_ID, post(next_id))
        .route(RESERVE, post(reserve))
        .route(AWAIT, post(await_position))
        .route(JUDGE, post(judge))
        .route(ANSWERED, post(answered))
        .route(LINES, post(lines))
        .route(COUNTERS, post(counters))
        .route(load::BEGIN, post(begin_load))
        .route(&format!("{}{{load}}", load::LINES), post(load_lines))
        .route(load::END, post(end_load))
        .route(load::FINISH, post(finish_load))
        .route(load::UNDO, post(undo_load))
}

async fn frozen_search(
    State(shared): App,
    headers: HeaderMap,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    let found = under_one_map(&shared, &headers, &body, |current, search: Search| {
        let filter = search.filter().map(|filter| Decoder(&shared.config.limits).filter(filter));
        frozen::search(&shared, current, &search, filter.transpose()?)
    })?;
    Ok(found.encode().into_response())
}

async fn frozen_get(
    State(shared): App,
    headers: HeaderMap,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    let found =
        under_one_map(&shared, &headers, &body, |current, keys: Keys| frozen::get(&shared, current, &keys))?;
    Ok(found.encode().into_response())
}

async fn frozen_known(
    State(shared): App,
    headers: HeaderMap,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    let known = under_one_map(&shared, &headers, &body, |current, keys: Keys| {
        frozen::known(&shared, current, &keys)
    })?;
    Ok(Json(known).into_response())
}

/// Answers by the map of the other shard, if that is in force here before and after.
fn under_one_map<Q: DeserializeOwned, A>(
    shared: &Shared,
    headers: &HeaderMap,
    body: &[u8],
    answer: impl FnOnce(&Arc<Current>, Q) -> Result<A, Trouble>,
) -> Result<A, Refused> {
    let current = same_epoch(shared, headers)?;
    let question = read_json(body)?;
    let answer = in_place(|| answer(&current, question))?;
    same_epoch(shared, headers)?;
    Ok(answer)
}

async fn hold(State(shared): App, headers: HeaderMap, PeerBody(body): PeerBody) -> Result<Response, Refused> {
    same_epoch(&shared, &headers)?;
    let HoldRequest { namespace, resources, tokens, wait_ms } = read_json(&body)?;
    let terms = terms(&shared, tokens, wait_ms)?;
    let resources: Result<Vec<Resource>, _> =
        resources.into_iter().map(lockwood_wire::WireResource::into_model).collect();
    let resources = resources.map_err(|error| Trouble::new(error.code, error.message))?;
    let turn = gate::hold(&shared, &namespace, &resources, &terms).await?;
    same_epoch(&shared, &headers)?;
    Ok(Json(HoldTable::keep(&shared, turn)).into_response())
}

async fn release(State(shared): App, PeerBody(body): PeerBody) -> Result<Response, Refused> {
    let Held { hold } = read_json(&body)?;
    Ok(Json(shared.cluster.holds.release(&hold)).into_response())
}

async fn next_id(
    State(shared): App,
    headers: HeaderMap,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    same_epoch(&shared, &headers)?;
    let IdsRequest { namespace, collection, .. } = read_json(&body)?;
    Decoder(&shared.config.limits).collection(&collection)?;
    let reading = shared.shard.read();
    let next = match reading.namespace(&namespace)? {
        Some((id, _)) => reading.state().next_id(id, &collection)?,
        None => 1,
    };
    Ok(Json(NextId { next }).into_response())
}

async fn reserve(
    State(shared): App,
    headers: HeaderMap,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    same_epoch(&shared, &headers)?;
    let IdsRequest { namespace, collection, amount, least } = read_json(&body)?;
    Ok(reserve_from(&shared, &namespace, &collection, amount, least).await?)
}

/// Whether position locks hold here.
async fn judge(
    State(shared): App,
    headers: HeaderMap,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    same_epoch(&shared, &headers)?;
    let Judge { namespace, locks } = read_json(&body)?;
    let decoder = Decoder(&shared.config.limits);
    let locks: Vec<_> = locks.iter().map(|lock| decoder.position_lock(lock)).collect::<Result<_, _>>()?;
    shared.shard.judge(&namespace, locks).await?;
    Ok(Json(()).into_response())
}

/// What was answered to a write that was done before; null if it was not.
async fn answered(
    State(shared): App,
    headers: HeaderMap,
    retry: Retry,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    same_epoch(&shared, &headers)?;
    let Asked { namespace, call } = read_json(&body)?;
    let call: WriteCall = read_body(call.get().as_bytes()).map_err(Trouble::from)?;
    let call = retry.mark(Decoder(&shared.config.limits).call(&call)?);
    let Some(answer) = &call.answer else { return Ok(Json(()).into_response()) };
    let Some(written) = shared.shard.answered(&namespace, answer).await? else {
        return Ok(Json(()).into_response());
    };
    let positions: Vec<u64> = written.positions.iter().map(|position| position.0).collect();
    let position = positions.last().copied().unwrap_or_default();
    Ok(Json(Written { position, positions, replayed: written.replayed }).into_response())
}

async fn lines(
    State(shared): App,
    headers: HeaderMap,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    same_epoch(&shared, &headers)?;
    let Lines { namespace, collection, at } = read_json(&body)?;
    defined(&shared, &namespace).await?;
    shared.shard.raise(Position(at)).await?;
    Ok(dump_lines(&shared, &namespace, &collection, at).await?)
}

async fn counters(
    State(shared): App,
    headers: HeaderMap,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    same_epoch(&shared, &headers)?;
    let Counters { namespace } = read_json(&body)?;
    let reading = shared.shard.read();
    let counters = match reading.namespace(&namespace)? {
        Some((id, _)) => reading.state().counters(id)?,
        None => Vec::new(),
    };
    Ok(Json(counters).into_response())
}

async fn begin_load(
    State(shared): App,
    headers: HeaderMap,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    same_epoch(&shared, &headers)?;
    let beginning: Beginning = read_json(&body)?;
    Ok(Json(LoadTable::begin(&shared, beginning).await?).into_response())
}

async fn load_lines(
    State(shared): App,
    InPath(load): InPath<String>,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    shared.cluster.loads.take(&load, &body).await?;
    Ok(Json(()).into_response())
}

async fn end_load(State(shared): App, PeerBody(body): PeerBody) -> Result<Response, Refused> {
    let Begun { load } = read_json(&body)?;
    Ok(Json(shared.cluster.loads.end(&load).await?).into_response())
}

/// Owners must be who they were when the lines were split.
async fn finish_load(
    State(shared): App,
    headers: HeaderMap,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    same_epoch(&shared, &headers)?;
    Ok(Json(shared.cluster.loads.finish(&shared, &read_json(&body)?).await?).into_response())
}

/// Gives a part up; takes it away if it was kept already.
async fn undo_load(State(shared): App, PeerBody(body): PeerBody) -> Result<Response, Refused> {
    let Ending { load, namespace, tokens, .. } = read_json(&body)?;
    if shared.cluster.loads.is_kept(&load) {
        load::empty(&shared, &namespace, tokens).await?;
    }
    shared.cluster.loads.undo(&load).await?;
    Ok(Json(()).into_response())
}

/// Answers when the namespace is further than a position, or after a while.
async fn await_position(
    State(shared): App,
    headers: HeaderMap,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    let Await { namespace, after } = read_json(&body)?;
    let mut applied = shared.shard.subscribe();
    let deadline = tokio::time::Instant::now() + AWAIT_PATIENCE;
    loop {
        same_epoch(&shared, &headers)?;
        applied.borrow_and_update();
        let reading = shared.shard.read();
        let position = reading.namespace(&namespace)?.map_or(reading.floor(), |(_, position)| position);
        drop(reading);
        if position.0 > after || tokio::time::timeout_at(deadline, applied.changed()).await.is_err() {
            return Ok(Json(PositionAnswer { position: position.0, horizon: 0 }).into_response());
        }
    }
}
