//! The documents of the native interface. Each handler decodes, asks the shard, encodes. Knows nothing of how
//! documents are kept.

mod answer;
mod body;
mod cursor;
mod decode;
mod read;
mod write;

use crate::shared::Shared;
use axum::{
    Router,
    routing::{get, post},
};
use std::sync::Arc;

pub(super) use read::*;
pub(super) use write::*;

/// The routes, for the native router to take in.
pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route(
            "/v1/{namespace}/documents/{collection}/{key}",
            get(read::document).put(write::put).delete(write::delete),
        )
        .route("/v1/{namespace}/documents/{collection}", get(read::documents))
        .route("/v1/{namespace}/write", post(write::write))
        .route("/v1/{namespace}/reserve", post(write::reserve))
        .route("/v1/{namespace}/get", post(read::get_many))
        .route("/v1/{namespace}/filter", post(read::filter))
        .route("/v1/{namespace}/count", post(read::count))
        .route("/v1/{namespace}/exists", post(read::exists))
        .route("/v1/{namespace}/min", post(read::min))
        .route("/v1/{namespace}/max", post(read::max))
}
