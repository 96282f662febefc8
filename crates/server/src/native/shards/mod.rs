//! The shard interface: operations on single keys, the map, and what moves between shards. Each handler decodes,
//! calls, encodes; who carries a request out has been decided before it gets here.

mod call;
mod config;
mod homes;
mod operations;
mod procedures;
mod raw;
mod transition;

use crate::shared::Shared;
use axum::{
    Router,
    routing::{get, post, put},
};
use std::sync::Arc;

pub(super) use call::*;
pub(super) use config::*;
pub(super) use homes::*;
pub(super) use operations::*;
pub(super) use procedures::*;
pub(super) use raw::*;
pub(super) use transition::*;

/// The routes, for the native router to take in.
pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/v1/{namespace}/shard/select", post(operations::select))
        .route("/v1/{namespace}/shard/eselect", post(operations::eselect))
        .route("/v1/{namespace}/shard/insert", post(operations::insert))
        .route("/v1/{namespace}/shard/replace", post(operations::replace))
        .route("/v1/{namespace}/shard/delete", post(operations::shard_delete))
        .route("/v1/{namespace}/shard/update", post(operations::update))
        .route("/v1/{namespace}/shard/call", post(call::call))
        .route("/v1/{namespace}/shard/procedures", get(procedures::procedures))
        .route(
            "/v1/{namespace}/shard/procedures/{name}",
            get(procedures::procedure).put(procedures::put_procedure).delete(procedures::delete_procedure),
        )
        .route("/v1/{namespace}/shard/map", get(config::map))
        .route("/v1/{namespace}/shard/config", post(config::config))
        .route("/v1/{namespace}/shard/is_valid", get(config::is_valid))
        .route(
            "/v1/{namespace}/shard/transition",
            get(transition::transition_status).post(transition::transition_command),
        )
        .route("/v1/{namespace}/shard/home", get(homes::home))
        .route("/v1/{namespace}/shard/home/{shard}", put(homes::move_home))
        .route("/v1/{namespace}/shard/copy", post(transition::copy))
        .route("/v1/{namespace}/shard/cleanup", post(transition::cleanup))
        .route("/v1/{namespace}/shard/raw/select", post(raw::raw_select))
        .route("/v1/{namespace}/shard/raw/insert", post(raw::raw_insert))
        .route("/v1/{namespace}/shard/raw/delete", post(raw::raw_delete))
        .route("/v1/{namespace}/shard/raw/len", post(raw::raw_len))
}
