//! What this node has, whoever should have it: for operators, and to see for oneself. Knows nothing of the map, and
//! asks nobody for leave.

use super::super::{
    documents::{Decoder, JsonBody, document_or_null, json_of},
    http::{App, InPath, check_namespace},
};
use super::operations::{Asked, answer, exists, last_of, read_named, store_intents};
use crate::{
    cluster::{SYSTEM, work::EVERYWHERE},
    shard::{Selection, in_place},
    shared::Shared,
    trouble::Trouble,
};
use axum::{extract::State, response::Response};
use lockwood_engine::NoRules;
use lockwood_model::Position;
use lockwood_storage::{DocumentRef, Order, State as Stored, StoreError};
use lockwood_wire::{
    Code, Problem,
    shards::{LenAnswer, LenRequest, SelectRequest, ShardDocument, StoreRequest},
};

/// Reads a document of this node, be it its to serve or not.
#[utoipa::path(post, path = "/v1/{namespace}/shard/raw/select", params(("namespace" = String, Path)),
    request_body = SelectRequest, responses((status = 200, body = ShardDocument), (status = 400, body = Problem)))]
pub(in crate::native) async fn raw_select(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, Trouble> {
    check_open(&shared, &namespace)?;
    read_named(&shared, &namespace, &body)
}

/// Creates a document on this node, wherever it belongs and whoever has locks.
#[utoipa::path(post, path = "/v1/{namespace}/shard/raw/insert", params(("namespace" = String, Path)),
    request_body = StoreRequest, responses((status = 200, body = ShardDocument), (status = 400, body = Problem),
    (status = 409, body = Problem)))]
pub(in crate::native) async fn raw_insert(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, Trouble> {
    check_open(&shared, &namespace)?;
    let StoreRequest { collection, key, fields, tokens, wait_ms, user, note } = body.read()?;
    let asked = Asked::new(&shared, &namespace, (&collection, &key), (user, note), (tokens, wait_ms))?;
    let fields = Decoder(&shared.config.limits).fields(&fields)?;
    let make = |state: Stored<'_>| {
        let intents = store_intents(state, &namespace, &asked.at, &fields, &exists)?;
        Ok::<_, Trouble>((asked.call_of(intents, None), ()))
    };
    let pending = shared.shard.decide_amend(&namespace, None, make, &NoRules, shared.clock.now())?;
    let amended = shared.shard.settle_amend(pending).await??;
    answer(&shared.shard.read(), &namespace, &asked.at, last_of(&amended))
}

/// Takes a document of this node away without a trace, with its history and all that is known of its key.
#[utoipa::path(post, path = "/v1/{namespace}/shard/raw/delete", params(("namespace" = String, Path)),
    request_body = SelectRequest, responses((status = 200, body = ShardDocument), (status = 400, body = Problem)))]
pub(in crate::native) async fn raw_delete(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, Trouble> {
    check_open(&shared, &namespace)?;
    let SelectRequest { collection, key } = body.read()?;
    let at = Decoder(&shared.config.limits).document(&collection, &key)?;
    shared.shard.shown(shared.shard.last_index()).await?;
    let reading = shared.shard.read();
    let Some((id, position)) = reading.namespace(&namespace)? else {
        return Ok(document_or_null(Position::START, None)?);
    };
    let found = reading.get(id, at.clone(), Selection::Without, None)?;
    let index = shared.shard.forget(&namespace, vec![at])?;
    shared.shard.shown(index).await?;
    Ok(document_or_null(position, found.as_ref())?)
}

/// How many documents this node has, its own and others'.
#[utoipa::path(post, path = "/v1/{namespace}/shard/raw/len", params(("namespace" = String, Path)),
    request_body = LenRequest, responses((status = 200, body = LenAnswer), (status = 400, body = Problem)))]
pub(in crate::native) async fn raw_len(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, Trouble> {
    check_open(&shared, &namespace)?;
    let LenRequest { collection } = body.read()?;
    let len = in_place(|| len(&shared, &namespace, collection.as_deref()))?;
    Ok(json_of(&LenAnswer { len }))
}

/// Whether operators may see and change what this node has of a namespace. How far it is with maps and transitions is
/// for the node alone to know.
fn check_open(shared: &Shared, namespace: &str) -> Result<(), Trouble> {
    if namespace == SYSTEM {
        let message = format!("{SYSTEM} is what this node keeps for itself; name another namespace");
        return Err(Trouble::new(Code::ReservedNamespace, message));
    }
    check_namespace(shared, namespace)
}

fn len(shared: &Shared, namespace: &str, collection: Option<&str>) -> Result<u64, StoreError> {
    let reading = shared.shard.read();
    let state = reading.state();
    let Some((id, _)) = reading.namespace(namespace)? else { return Ok(0) };
    let collections = match collection {
        Some(collection) => vec![collection.to_owned()],
        None => state.collections(id)?,
    };
    let mut len = 0;
    for name in collections {
        if collection.is_none() && EVERYWHERE.contains(&&*name) {
            continue;
        }
        for found in state.documents(id, &name, None, Order::Forward) {
            len += u64::from(!DocumentRef::read(&found?.1)?.deleted());
        }
    }
    Ok(len)
}
