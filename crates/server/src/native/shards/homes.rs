//! The homes of namespaces. On a cluster the node that is asked answers before any shard is; a single server has none to move.

use crate::{cluster, native::HttpError};
use axum::response::Response;
use lockwood_wire::{NamespaceHome, Problem};

/// Where the home of a namespace is, the shard that decides its locks; and where it is on its way to.
#[utoipa::path(get, path = "/v1/{namespace}/shard/home", params(("namespace" = String, Path)),
    responses((status = 200, body = NamespaceHome), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 503, body = Problem)))]
pub(in crate::native) async fn home() -> Result<Response, HttpError> {
    Err(cluster::not_a_node().into())
}

/// Moves the home of a spread namespace to a shard, and waits until it is there. Sessions come back to it with their locks, and
/// leases stay. A whole namespace cannot move: all its documents are at its home.
#[utoipa::path(put, path = "/v1/{namespace}/shard/home/{shard}",
    params(("namespace" = String, Path), ("shard" = u32, Path)),
    responses((status = 200, body = NamespaceHome), (status = 400, body = Problem), (status = 404, body = Problem),
    (status = 409, body = Problem), (status = 503, body = Problem)))]
pub(in crate::native) async fn move_home() -> Result<Response, HttpError> {
    Err(cluster::not_a_node().into())
}
