//! Requests about what is registered in a spread namespace: its home answers them, and tells of a change when every shard goes
//! by it. Knows nothing of what is registered.

use super::{Kind, Whole, forward, kind};
use crate::{
    clustered::confirmed,
    native::{Native, problem},
    shared::Shared,
};
use axum::response::Response;
use hyper::{Method, StatusCode};
use lockwood_node::trouble::Trouble;
use lockwood_wire::Code;
use std::sync::Arc;

/// Answers, if this is the home; otherwise has the home answer.
pub(super) async fn answer(
    native: &Native,
    shared: &Arc<Shared>,
    whole: &mut Whole,
) -> Result<Response, Trouble> {
    let namespace = kind::namespace(&whole.parts.uri).unwrap_or_default();
    match shared.remote_home(&namespace).await? {
        None => Ok(here(native, shared, &namespace, whole).await),
        Some(home) => {
            whole.add_retry_key(&Kind::Registered);
            forward(shared, home, &whole.message(shared)).await
        }
    }
}

/// Answers at the home. What is on record there stays, also if a shard does not confirm it, so this is never done again by
/// itself: a client that does it again finds it done, and waits for the shards.
async fn here(native: &Native, shared: &Arc<Shared>, namespace: &str, whole: &Whole) -> Response {
    let answer = native.local(whole.request()).await;
    // What is gone may be so because of an earlier request, whose client has not been told that shards know.
    let is_gone = answer.status() == StatusCode::NOT_FOUND
        || answer.extensions().get::<Code>() == Some(&Code::SchemaDeleted);
    if !changes(whole) || !(answer.status().is_success() || is_gone) {
        return answer;
    }
    match confirmed(shared, namespace).await {
        Ok(()) => answer,
        Err(trouble) => problem(trouble),
    }
}

fn changes(whole: &Whole) -> bool {
    let only_checks = whole.parts.method == Method::POST && whole.parts.uri.path().ends_with("/check");
    whole.parts.method != Method::GET && !only_checks
}
