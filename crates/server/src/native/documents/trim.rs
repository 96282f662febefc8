//! Forgetting old history. Knows nothing of how that is done.

use super::{answer::json_of, body::JsonBody};
use crate::native::{HttpError, http::App};
use axum::{extract::State, response::Response};
use lockwood_model::Timestamp;
use lockwood_wire::{
    Problem,
    documents::{TrimAnswer, TrimRequest},
};

/// Forgets the history of everything older than a time, in all namespaces. Documents stay as they are.
#[utoipa::path(post, path = "/v1/trim", request_body = TrimRequest,
    responses((status = 200, body = TrimAnswer), (status = 400, body = Problem)))]
pub(in crate::native) async fn trim(State(shared): App, body: JsonBody) -> Result<Response, HttpError> {
    let TrimRequest { keep_ms } = body.read()?;
    // What is younger stays; what is exactly as old goes.
    let before = Timestamp(shared.clock.now().0.saturating_sub(keep_ms)).after(1);
    let trimmed = shared.shard.trim(before).await?;
    Ok(json_of(&TrimAnswer { trimmed }))
}
