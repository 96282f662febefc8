//! The documents of the native interface. Each handler decodes, asks the shard, encodes. Knows nothing of how
//! documents are kept.

mod address;
mod answer;
mod backup;
mod body;
mod cursor;
mod decode;
mod dump;
mod etag;
mod feed;
mod history;
mod indexes;
mod isolation;
mod join;
mod load;
mod purge;
mod read;
mod stream;
mod terms;
mod trim;
mod write;

use crate::shared::Shared;
use axum::{
    Router,
    routing::{get, post, put},
};
use std::sync::Arc;

pub(super) use answer::document_or_null;
pub(crate) use answer::json_of;
pub(super) use backup::*;
pub(crate) use body::read_json_body;
pub(super) use body::{AnyBody, JsonBody, PeerBody};
pub(crate) use decode::Decoder;
pub(super) use dump::*;
pub(super) use feed::*;
pub(super) use history::*;
pub(crate) use indexes::build as build_indexes;
pub(super) use indexes::*;
pub(crate) use isolation::{check_access, collection as collection_resource, in_force as isolation_in_force};
pub(super) use join::*;
pub(crate) use join::{JoinPlan, answer_join};
pub(super) use load::*;
pub(crate) use load::{Load, check_dump_type, read_head, unread};
pub(super) use purge::*;
pub(super) use read::*;
pub(crate) use read::{PagePlan, get_limits, get_resources, key_cursor, list_request};
pub(crate) use stream::{Pieces, stream};
pub(super) use terms::terms;
pub(super) use trim::*;
pub(crate) use write::written_documents;
pub(super) use write::*;

/// The routes, for the native router to take in.
pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route(
            "/v1/{namespace}/documents/{collection}/{key}",
            get(read::document).put(write::put).delete(write::delete),
        )
        .route(
            "/v1/{namespace}/documents/{collection}/{key}/{*path}",
            get(read::document).put(write::put).delete(write::delete),
        )
        .route("/v1/{namespace}/documents/{collection}", get(read::documents))
        .route("/v1/{namespace}/restore/{collection}/{key}", post(write::restore))
        .route("/v1/{namespace}/write", post(write::write))
        .route("/v1/{namespace}/reserve", post(write::reserve))
        .route("/v1/{namespace}/get", post(read::get_many))
        .route("/v1/{namespace}/filter", post(read::filter))
        .route("/v1/{namespace}/count", post(read::count))
        .route("/v1/{namespace}/exists", post(read::exists))
        .route("/v1/{namespace}/min", post(read::min))
        .route("/v1/{namespace}/max", post(read::max))
        .route("/v1/{namespace}/join", post(join::join))
        .route("/v1/{namespace}/history/{collection}/{key}", get(history::history))
        .route("/v1/{namespace}/history/{collection}/{key}/{*path}", get(history::history))
        .route("/v1/{namespace}/changes", get(feed::changes))
        .route("/v1/{namespace}/position", get(history::position))
        .route("/v1/{namespace}/collections", get(history::collections))
        .route("/v1/{namespace}/indexes", get(indexes::indexes))
        .route(
            "/v1/{namespace}/indexes/{collection}/{field}",
            put(indexes::declare).delete(indexes::drop_index),
        )
        .route("/v1/{namespace}/dump", get(dump::dump))
        .route("/v1/{namespace}/load", post(load::load))
        .route("/v1/{namespace}/purge", post(purge::purge))
        .route("/v1/purges", get(purge::purges))
        .route("/v1/trim", post(trim::trim))
        .route("/v1/backup", get(backup::backup))
}
