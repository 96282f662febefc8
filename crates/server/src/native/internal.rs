//! What shards of a cluster ask each other. Each handler decodes, calls, encodes; only calls of shards get here.

use super::{documents::PeerBody, http::App};
use crate::{
    cluster::{
        Current,
        dispatch::wrong_epoch,
        driver, handover,
        received::read_entry,
        survey, transfer,
        work::{self, Task},
    },
    native::{HttpError, problem},
    shared::Shared,
};
use axum::{
    Json, Router,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use lockwood_node::{shard::in_place, trouble::Trouble};
use lockwood_router::ShardMap;
use lockwood_storage::Entry;
use lockwood_wire::Code;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::sync::{Arc, atomic::Ordering};

/// The routes, for the native router to take in.
pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/internal/map", get(map).post(adopt))
        .route("/internal/survey", post(look_over))
        .route("/internal/pull", post(pull))
        .route("/internal/install", post(install))
        .route("/internal/confirm", post(confirm))
        .route("/internal/export", post(export))
        .route("/internal/import", post(import))
        .route("/internal/driver", post(driver_command))
        .route("/internal/work", get(report).post(start))
}

#[derive(Deserialize)]
struct Order {
    task: Option<Task>,
    #[serde(default)]
    round: u32,
    paused: bool,
    throttle: Option<u64>,
}

/// Why an internal request is not answered as asked.
pub(super) enum Refused {
    /// The two nodes go by different maps.
    Epoch(Response),
    Trouble(Trouble),
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Refused::Epoch(response) => response,
            Refused::Trouble(trouble) => problem(trouble),
        }
    }
}

impl<T: Into<Trouble>> From<T> for Refused {
    fn from(trouble: T) -> Refused {
        Refused::Trouble(trouble.into())
    }
}

/// The map, if the other shard goes by the same.
pub(super) fn same_epoch(shared: &Shared, headers: &HeaderMap) -> Result<Arc<Current>, Refused> {
    let epoch = shared.cluster.peer_epoch(headers);
    let current = shared.cluster.current().filter(|current| Some(current.map.epoch) == epoch);
    current.ok_or_else(|| Refused::Epoch(wrong_epoch(shared)))
}

async fn map(State(shared): App) -> Response {
    Json(shared.cluster.current().map_or(Value::Null, |current| current.map.to_json())).into_response()
}

/// Whether a map has a place for everything that is here.
async fn look_over(State(shared): App, PeerBody(body): PeerBody) -> Result<Response, HttpError> {
    survey::survey(&shared, &read_map(&body)?).await?;
    Ok(Json(()).into_response())
}

async fn adopt(State(shared): App, PeerBody(body): PeerBody) -> Result<Response, HttpError> {
    let current = shared.cluster.adopt(&shared, read_map(&body)?).await?;
    Ok(Json(json!({ "epoch": current.map.epoch })).into_response())
}

fn read_map(body: &[u8]) -> Result<ShardMap, Trouble> {
    let map: Value = serde_json::from_slice(body)
        .map_err(|error| Trouble::new(Code::BadMap, format!("the map is not JSON: {error}")))?;
    ShardMap::from_json(&map).map_err(|error| Trouble::new(Code::BadMap, error.to_string()))
}

async fn pull(State(shared): App, headers: HeaderMap, PeerBody(body): PeerBody) -> Result<Response, Refused> {
    let current = same_epoch(&shared, &headers)?;
    let Entry::Unmarked { namespace, documents } = read_entry(&body)? else {
        return Err(Trouble::new(Code::BadBody, "a pull names documents").into());
    };
    let entry = transfer::export(&shared, &current, &namespace, &documents)?;
    Ok(entry.encode().into_response())
}

async fn install(
    State(shared): App,
    headers: HeaderMap,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    let current = same_epoch(&shared, &headers)?;
    let brought = read_entry(&body)?;
    if !matches!(&brought, Entry::Installed { transition, .. } if *transition == current.map.transition) {
        return Err(Refused::Epoch(wrong_epoch(&shared)));
    }
    let installed = transfer::install(&shared, &current, brought).await?;
    Ok(Json(json!({ "installed": installed, "is_busy": shared.cluster.load.is_busy() })).into_response())
}

async fn confirm(
    State(shared): App,
    headers: HeaderMap,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    let current = same_epoch(&shared, &headers)?;
    let question: transfer::Question = read_json(&body)?;
    let answer = in_place(|| transfer::confirm(&shared, &current, &question))?;
    Ok(Json(answer).into_response())
}

pub(super) fn read_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Trouble> {
    serde_json::from_slice(body).map_err(|error| Trouble::new(Code::BadBody, error.to_string()))
}

async fn report(State(shared): App, headers: HeaderMap) -> Result<Response, Refused> {
    let current = same_epoch(&shared, &headers)?;
    Ok(Json(shared.cluster.work.report(&shared, &current)?).into_response())
}

/// Sets the pace, and starts a task unless one is running. How it goes on is for [`report`] to say.
async fn start(
    State(shared): App,
    headers: HeaderMap,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    let current = same_epoch(&shared, &headers)?;
    let Order { task, round, paused, throttle } = read_json(&body)?;
    let work = &shared.cluster.work;
    work.paused.store(paused, Ordering::Relaxed);
    work.throttle.store(throttle.unwrap_or(0), Ordering::Relaxed);
    let report = work.report(&shared, &current)?;
    if let (Some(task), false) = (task, report.running) {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            if let Err(trouble) = work::run(&shared, task, round).await {
                tracing::warn!(?task, why = trouble.message, "a step of resharding stopped");
            }
        });
    }
    Ok(Json(report).into_response())
}

async fn export(State(shared): App, headers: HeaderMap) -> Result<Response, Refused> {
    same_epoch(&shared, &headers)?;
    // What was decided before the map came must be seen.
    shared.shard.shown(shared.shard.last_index()).await?;
    Ok(Json(handover::give(&shared)?).into_response())
}

async fn import(
    State(shared): App,
    headers: HeaderMap,
    PeerBody(body): PeerBody,
) -> Result<Response, Refused> {
    same_epoch(&shared, &headers)?;
    handover::take(&shared, read_json(&body)?).await?;
    Ok(Json(json!({ "ok": true })).into_response())
}

async fn driver_command(State(shared): App, PeerBody(body): PeerBody) -> Result<Response, HttpError> {
    let command = read_json(&body)?;
    Ok(Json(driver::command_here(&shared, &command).await?).into_response())
}
