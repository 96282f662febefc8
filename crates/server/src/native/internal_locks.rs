//! What nodes of a cluster ask each other about locks. Each handler decodes, calls, encodes; only nodes get here.

use super::http::App;
use crate::{
    cluster::{
        dispatch::wrong_epoch,
        locks::{Letter, Reply, carry_out},
    },
    shared::Shared,
    trouble::Trouble,
};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
    routing::post,
};
use lockwood_wire::Code;
use serde_json::value::RawValue;
use std::sync::Arc;

/// The routes, for the native router to take in.
pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new().route("/internal/locks", post(locks))
}

async fn locks(State(shared): App, body: Bytes) -> Result<Response, Trouble> {
    let letter: Letter =
        serde_json::from_slice(&body).map_err(|error| Trouble::new(Code::BadBody, error.to_string()))?;
    let reply: Reply<Box<RawValue>> = match carry_out(&shared, letter).await {
        Ok(text) => Reply::Done(serde_json::from_slice(&text).expect("an answer is valid JSON")),
        // So that both nodes go by the same map when it is asked again.
        Err(trouble) if trouble.code == Code::WrongEpoch => return Ok(wrong_epoch(&shared)),
        Err(trouble) => Reply::Refused(trouble.into()),
    };
    let body = serde_json::to_vec(&reply).expect("a reply is valid JSON");
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}
