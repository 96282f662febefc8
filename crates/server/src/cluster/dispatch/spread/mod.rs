//! Operations about more than one key, on all shards: each is asked for its part, and the parts are put together to
//! what one server would have answered. Knows nothing of how a shard finds its part.

mod ask;
mod catalog;
mod custody;
mod cut;
pub(crate) mod dump;
pub(crate) mod feed;
pub(crate) mod frozen;
mod get;
pub(crate) mod hold;
mod join;
pub(crate) mod load;
mod page;
mod reserve;
pub(crate) mod searches;
mod tally;

use super::{Current, Whole, kind::decoded, wrong_epoch};
use crate::{
    cluster::work::EVERYWHERE,
    native::{Native, read_json_body},
    shared::Shared,
};
use ask::{Asker, Stop};
use axum::response::{IntoResponse, Response};
use hyper::Method;
use lockwood_node::trouble::Trouble;
use lockwood_router::Phase;
use lockwood_wire::Code;
use serde::de::DeserializeOwned;
use std::sync::Arc;

use ask::carry_out;
pub(crate) use ask::{LEAST, wait_for};
pub(crate) use custody::{NOWHERE, custody};
pub(super) use get::shard_of as shard_of_get;
pub(crate) use hold::HoldTable;
pub(crate) use load::{LoadTable, load};
pub(crate) use reserve::{IdsRequest, NEXT_ID, NextId, RESERVE};

/// What comes of a part of a spread request that is not an answer.
type Answer = Result<Response, Stop>;

/// Whether a word in an address is of something that is answered here: all but locks.
pub(super) fn answers(word: &str) -> bool {
    !matches!(word, "locks" | "tree" | "waits" | "operator-log" | "session" | "grace")
}

/// Another shard put the request together; this one does its part.
pub(super) async fn here(native: &Native, shared: &Arc<Shared>, whole: &Whole) -> Result<Response, Trouble> {
    match carry_out(native, shared, whole.request()).await {
        Err(trouble) if trouble.code == Code::WrongEpoch => Ok(wrong_epoch(shared)),
        other => other,
    }
}

/// Answers a request about a namespace, or about all of them.
pub(super) async fn answer(
    native: &Native,
    shared: &Arc<Shared>,
    current: &Current,
    whole: &Whole,
) -> Result<Response, Trouble> {
    let ask = Asker { native, shared, current };
    if whole.parts.uri.path().ends_with("/changes") {
        // It goes on for long, and asks others by itself.
        return Ok(native.local(whole.request()).await);
    }
    if current.map.shards.len() == 1 && current.map.phase == Phase::Steady {
        return alone(&ask, whole).await;
    }
    match route(&ask, whole).await {
        Ok(response) => Ok(response),
        Err(Stop::Reply(reply)) => Ok(reply.into_response()),
        Err(Stop::Trouble(trouble)) => Err(*trouble),
    }
}

/// With one shard there is nothing to be put together.
async fn alone(ask: &Asker<'_>, whole: &Whole) -> Result<Response, Trouble> {
    match ask.is_own(Asker::first()) {
        true => Ok(ask.native.local(whole.request()).await),
        false if whole.parts.uri.path().ends_with("/dump") => {
            ask.open(Asker::first(), &whole.message(ask.shared)).await
        }
        false => super::forward(ask.shared, Asker::first(), &whole.message(ask.shared)).await,
    }
}

async fn route(ask: &Asker<'_>, whole: &Whole) -> Answer {
    let segments: Vec<String> = whole.parts.uri.path().split('/').skip(2).map(decoded).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let method = &whole.parts.method;
    match (method, &segments[..]) {
        (&Method::GET, ["namespaces"]) => catalog::namespaces(ask).await,
        (&Method::POST, ["trim"]) => catalog::trim(ask, whole).await,
        (&Method::GET, [namespace, "documents", collection]) => {
            page::list(ask, namespace, collection, whole).await
        }
        (&Method::GET, [namespace, "position"]) => catalog::position(ask, namespace).await,
        (&Method::GET, [namespace, "collections"]) => catalog::collections(ask, namespace).await,
        (&Method::GET, [namespace, "dump"]) => dump::dump(ask, namespace).await,
        (&Method::GET, [namespace, "indexes"]) => catalog::indexes(ask, namespace).await,
        (&Method::POST, [namespace, word]) => post(ask, namespace, word, whole).await,
        _ => itself(ask, whole).await,
    }
}

async fn post(ask: &Asker<'_>, namespace: &str, word: &str, whole: &Whole) -> Answer {
    match word {
        "get" => get::get(ask, namespace, body(whole)?).await,
        "filter" => page::filter(ask, namespace, body(whole)?, whole).await,
        "count" => tally::count(ask, namespace, body(whole)?, whole).await,
        "exists" => tally::exists(ask, namespace, body(whole)?, whole).await,
        "min" => tally::min(ask, namespace, body(whole)?, whole).await,
        "max" => tally::max(ask, namespace, body(whole)?, whole).await,
        "join" => join::join(ask, namespace, body(whole)?).await,
        "reserve" => reserve::reserve(ask, namespace, body(whole)?).await,
        _ => itself(ask, whole).await,
    }
}

fn body<T: DeserializeOwned>(whole: &Whole) -> Result<T, Trouble> {
    read_json_body(&whole.parts.headers, &whole.body)
}

/// It makes no sense, or is about the node itself; this node can say so as well as any other.
async fn itself(ask: &Asker<'_>, whole: &Whole) -> Answer {
    Ok(ask.native.local(whole.request()).await)
}

/// The documents of what is registered are on every shard alike; the first answers for them.
async fn first(ask: &Asker<'_>, whole: &Whole) -> Answer {
    Ok(ask.one(Asker::first(), &whole.message(ask.shared)).await?.into_response())
}

/// Whether a collection is on every shard as a whole.
fn is_everywhere(collection: &str) -> bool {
    EVERYWHERE.contains(&collection)
}

/// An address in a namespace.
fn target(namespace: &str, path: &str) -> String {
    let name: String = form_urlencoded::byte_serialize(namespace.as_bytes()).collect();
    // In a path a plus is a plus.
    format!("/v1/{}/{path}", name.replace('+', "%20"))
}
