//! The shard map and the transitions between maps. Each handler decodes, calls, encodes.

use super::http::App;
use crate::{
    cluster::{
        self,
        keeper::{self, Command},
    },
    shared::Shared,
    trouble::Trouble,
};
use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    response::{IntoResponse, Response},
    routing::get,
};
use lockwood_router::ShardMap;
use lockwood_wire::Code;
use serde_json::Value;
use std::sync::Arc;

/// The routes, for the native router to take in.
pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/v1/{namespace}/shard/map", get(map).put(put_map))
        .route("/v1/{namespace}/shard/transition", get(status).post(command))
}

async fn map(State(shared): App) -> Response {
    let map = shared.cluster.current().map_or(Value::Null, |current| current.map.to_json());
    Json(map).into_response()
}

async fn put_map(State(shared): App, Json(map): Json<Value>) -> Result<Response, Trouble> {
    let map = ShardMap::from_json(&map).map_err(|error| Trouble::new(Code::BadMap, error.to_string()))?;
    cluster::publish(&shared, &map).await?;
    Ok(Json(map.to_json()).into_response())
}

async fn status(State(shared): App) -> Result<Response, Trouble> {
    Ok(Json(keeper::command(&shared, &Command::Status).await?).into_response())
}

async fn command(State(shared): App, body: Bytes) -> Result<Response, Trouble> {
    let command: Command =
        serde_json::from_slice(&body).map_err(|error| Trouble::new(Code::BadBody, error.to_string()))?;
    Ok(Json(keeper::command(&shared, &command).await?).into_response())
}
