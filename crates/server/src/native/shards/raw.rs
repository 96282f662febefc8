//! What this node has, whoever should have it: for operators, and to see for oneself. Knows nothing of the map.
//!
//! Off unless the server was started with `--raw-operations`. Each use is on record under the name of an operator before
//! it is done, and respects locks unless it is forced.

use super::super::{
    documents::{Decoder, JsonBody, document_or_null, json_of, terms},
    http::{App, InPath, REASON_BYTES_MAX, check_namespace},
    query::InQuery,
};
use super::operations::{Asked, answer, exists, last_of, read_named, store_intents};
use crate::{cluster::work::EVERYWHERE, native::HttpError, shared::Shared};
use axum::{extract::State, response::Response};
use lockwood_engine::NoRules;
use lockwood_model::DocumentKey;
use lockwood_node::{
    gate::{self, Terms, Turn},
    operator,
    shard::{Selection, in_place},
    territory::SYSTEM,
    trouble::Trouble,
};
use lockwood_storage::{DocumentRef, Order, State as Stored, StoreError};
use lockwood_wire::{
    Code, OperatorAction, OperatorDeed, Problem,
    shards::{DeleteRequest, LenAnswer, LenRequest, SelectRequest, ShardDocument, StoreRequest},
};
use serde::Deserialize;
use std::sync::Arc;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::native) struct RawQuery {
    /// Who does this, for the operator log; required.
    operator: Option<String>,
    /// Why, for the operator log.
    reason: Option<String>,
    /// Pass over the locks of others.
    #[serde(default)]
    force: bool,
}

type Asking = Result<InQuery<RawQuery>, HttpError>;

/// Reads a document of this node, whether the node owns it or not.
#[utoipa::path(post, path = "/v1/{namespace}/shard/raw/select", params(("namespace" = String, Path), RawQuery),
    request_body = SelectRequest, responses((status = 200, body = ShardDocument), (status = 400, body = Problem),
    (status = 403, body = Problem)))]
pub(in crate::native) async fn raw_select(
    State(shared): App,
    InPath(namespace): InPath<String>,
    query: Asking,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let deed = Deed::read(&shared, &namespace, query)?;
    let SelectRequest { collection, key } = body.read()?;
    let at = Decoder(&shared.config.limits).document(&collection, &key)?;
    deed.record(OperatorDeed::RawSelect, Some(at.to_string())).await?;
    Ok(read_named(&shared, &namespace, &body)?)
}

/// Creates a document on this node, whether the node owns it or not.
#[utoipa::path(post, path = "/v1/{namespace}/shard/raw/insert", params(("namespace" = String, Path), RawQuery),
    request_body = StoreRequest, responses((status = 200, body = ShardDocument), (status = 400, body = Problem),
    (status = 403, body = Problem), (status = 409, body = Problem), (status = 423, body = Problem)))]
pub(in crate::native) async fn raw_insert(
    State(shared): App,
    InPath(namespace): InPath<String>,
    query: Asking,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let deed = Deed::read(&shared, &namespace, query)?;
    let StoreRequest { collection, key, fields, tokens, wait_ms, user, note } = body.read()?;
    let asked = Asked::new(&shared, &namespace, (&collection, &key), (user, note), (tokens, wait_ms))?;
    gate::check_reserved([&asked.at].into_iter())?;
    let fields = Decoder(&shared.config.limits).fields(&fields)?;
    let _turn = deed.turn(&asked.at, &asked.terms).await?;
    deed.record(OperatorDeed::RawInsert, Some(asked.at.to_string())).await?;
    let make = |state: Stored<'_>| {
        let intents = store_intents(state, &namespace, &asked.at, &fields, &exists)?;
        Ok::<_, Trouble>((asked.call_of(intents, None), ()))
    };
    let pending = shared.shard.decide_amend(&namespace, None, make, &NoRules, shared.clock.now())?;
    let amended = shared.shard.settle_amend(pending).await??;
    Ok(answer(&shared.shard.read(), &namespace, &asked.at, last_of(&amended))?)
}

/// Takes a document of this node away without a trace, with its history and all that is known of its key.
#[utoipa::path(post, path = "/v1/{namespace}/shard/raw/delete", params(("namespace" = String, Path), RawQuery),
    request_body = DeleteRequest, responses((status = 200, body = ShardDocument), (status = 400, body = Problem),
    (status = 403, body = Problem), (status = 423, body = Problem)))]
pub(in crate::native) async fn raw_delete(
    State(shared): App,
    InPath(namespace): InPath<String>,
    query: Asking,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let deed = Deed::read(&shared, &namespace, query)?;
    let DeleteRequest { collection, key, tokens, wait_ms, user, note } = body.read()?;
    if user.is_some() || note.is_some() {
        let message =
            "nothing is left of the document that could have a user or a note; give operator and reason";
        return Err(Trouble::new(Code::BadBody, message).into());
    }
    let at = Decoder(&shared.config.limits).document(&collection, &key)?;
    let _turn = deed.turn(&at, &terms(&shared, tokens, wait_ms)?).await?;
    deed.record(OperatorDeed::RawDelete, Some(at.to_string())).await?;
    shared.shard.shown(shared.shard.last_index()).await?;
    let reading = shared.shard.read();
    let Some((id, position)) = reading.namespace(&namespace)? else {
        return Ok(document_or_null(reading.position(&namespace)?, None)?);
    };
    let found = reading.get(id, at.clone(), Selection::Without, None)?;
    let index = shared.shard.forget(&namespace, vec![at])?;
    shared.shard.shown(index).await?;
    Ok(document_or_null(position, found.as_ref())?)
}

/// How many documents this node has, its own and others'.
#[utoipa::path(post, path = "/v1/{namespace}/shard/raw/len", params(("namespace" = String, Path), RawQuery),
    request_body = LenRequest, responses((status = 200, body = LenAnswer), (status = 400, body = Problem),
    (status = 403, body = Problem)))]
pub(in crate::native) async fn raw_len(
    State(shared): App,
    InPath(namespace): InPath<String>,
    query: Asking,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let deed = Deed::read(&shared, &namespace, query)?;
    let LenRequest { collection } = body.read()?;
    deed.record(OperatorDeed::RawLen, collection.clone()).await?;
    let len = in_place(|| len(&shared, &namespace, collection.as_deref()))?;
    Ok(json_of(&LenAnswer { len }))
}

/// A raw operation that may be done: who does it, why, and whether by force.
struct Deed<'a> {
    shared: &'a Arc<Shared>,
    namespace: &'a str,
    operator: String,
    reason: Option<String>,
    force: bool,
}

impl<'a> Deed<'a> {
    fn read(shared: &'a Arc<Shared>, namespace: &'a str, query: Asking) -> Result<Deed<'a>, Trouble> {
        if !shared.config.raw_operations {
            let message = "raw operations pass over the shard map and leave no history, so they are off; start the \
                           server with --raw-operations if you need them";
            return Err(Trouble::new(Code::RawOperationsOff, message));
        }
        check_open(shared, namespace)?;
        let InQuery(RawQuery { operator, reason, force }) = query.map_err(|HttpError(trouble)| trouble)?;
        let operator = operator.filter(|operator| !operator.is_empty()).ok_or_else(|| {
            Trouble::new(Code::BadQuery, "say who does this, for the operator log: ?operator=NAME")
        })?;
        let limit = shared.config.limits.owner_bytes_max;
        if operator.len() as u64 > limit {
            return Err(Trouble::over("owner_bytes_max", limit, "the name of the operator is too long"));
        }
        if reason.as_ref().is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
            let message = format!("a reason has at most {REASON_BYTES_MAX} bytes");
            return Err(Trouble::new(Code::BadQuery, message));
        }
        Ok(Deed { shared, namespace, operator, reason, force })
    }

    /// Waits for the locks of others, unless they are to be passed over.
    async fn turn(&self, at: &DocumentKey, terms: &Terms) -> Result<Option<Turn>, Trouble> {
        match self.force {
            true => Ok(None),
            false => Ok(Some(gate::hold(self.shared, self.namespace, &gate::whole(at), terms).await?)),
        }
    }

    /// Puts it on record, right before it is done.
    async fn record(&self, action: OperatorDeed, document: Option<String>) -> Result<(), Trouble> {
        let Deed { shared, namespace, operator, reason, force } = self;
        let action = OperatorAction {
            operator: Some(operator.clone()),
            document,
            forced: *force,
            ..operator::deed(shared, namespace, action, reason.clone())
        };
        operator::record(shared, &action).await?;
        tracing::warn!(?namespace, operator, action = ?action.action, document = ?action.document, forced = force,
            reason = ?reason, "a raw operation");
        Ok(())
    }
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
