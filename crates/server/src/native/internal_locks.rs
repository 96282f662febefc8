//! What nodes of a cluster ask each other about locks. Each handler decodes, calls, encodes; only nodes get here.

use super::{documents::PeerBody, http::App};
use crate::{
    cluster::{
        dispatch::wrong_epoch,
        locks::{Letter, Reply, carry_out},
        no_map,
    },
    lease::moving,
    shared::Shared,
    trouble::Trouble,
};
use axum::{
    Json, Router,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
    routing::post,
};
use lockwood_wire::Code;
use serde_json::{json, value::RawValue};
use std::sync::Arc;

/// The routes, for the native router to take in.
pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/internal/locks", post(locks))
        .route("/internal/locks/export", post(export))
        .route("/internal/locks/import", post(import))
}

/// What goes from this node to others, by the map in force.
async fn export(State(shared): App) -> Result<Response, Trouble> {
    let current = shared.cluster.current().ok_or_else(no_map)?;
    let moving = moving::export(&shared, &current)?;
    // What a lease rests on must be durable before it is held elsewhere.
    shared.shard.shown(shared.shard.last_index()).await?;
    Ok(Json(moving).into_response())
}

/// What others gave that comes to this node; durable when it answers.
async fn import(State(shared): App, PeerBody(body): PeerBody) -> Result<Response, Trouble> {
    let current = shared.cluster.current().ok_or_else(no_map)?;
    let moving = serde_json::from_slice(&body).map_err(|error| bad_body(&error))?;
    moving::import(&shared, &current, &moving).await?;
    Ok(Json(json!({ "ok": true })).into_response())
}

fn bad_body(error: &serde_json::Error) -> Trouble {
    Trouble::new(Code::BadBody, error.to_string())
}

async fn locks(State(shared): App, PeerBody(body): PeerBody) -> Result<Response, Trouble> {
    let letter: Letter = serde_json::from_slice(&body).map_err(|error| bad_body(&error))?;
    let reply: Reply<Box<RawValue>> = match carry_out(&shared, letter).await {
        Ok(text) => Reply::Done(serde_json::from_slice(&text).expect("an answer is valid JSON")),
        // So that both nodes go by the same map when it is asked again.
        Err(trouble) if trouble.code == Code::WrongEpoch => return Ok(wrong_epoch(&shared)),
        Err(trouble) => Reply::Refused(trouble.into()),
    };
    let body = serde_json::to_vec(&reply).expect("a reply is valid JSON");
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}
