//! Writing documents.

use super::{
    address::Addressed,
    answer::json_of,
    body::JsonBody,
    decode::Decoder,
    etag::{Conditions, tagged},
    terms::{read_terms, terms},
};
use crate::{
    cluster::dispatch,
    native::{
        HttpError,
        http::{App, InPath, check_namespace},
        query::InQuery,
    },
    shared::Shared,
};
use axum::{
    extract::{FromRequest, FromRequestParts, State},
    response::{IntoResponse, Response},
};
use hyper::{HeaderMap, http::request::Parts};
use lockwood_engine::{Action, Intent, PositionLock, PutIf, Refused, Request, Target};
use lockwood_model::{DocumentKey, Path, Position};
use lockwood_node::{
    gate::{self, GateError, Terms},
    schemas::check_node,
    shard::{Call, ShardError},
    trouble::Trouble,
    work::Job,
};
use lockwood_storage::Answer;
use lockwood_wire::{
    Code, Problem,
    documents::{Fields, ReserveRequest, Reserved, WireValue, WriteCall, Written},
};
use serde::Deserialize;
use std::sync::Arc;

/// Larger bodies are worked on beside the threads that serve connections.
const LARGE_BODY_BYTES: usize = 64 * 1024;

/// Does all write requests of a call, or none.
#[utoipa::path(post, path = "/v1/{namespace}/write", params(("namespace" = String, Path)),
    request_body = WriteCall, responses(
    (status = 200, body = Written), (status = 400, body = Problem), (status = 404, body = Problem),
    (status = 409, body = Problem), (status = 410, body = Problem),
    (status = 422, body = Problem), (status = 423, body = Problem)))]
pub(in crate::native) async fn write(
    State(shared): App,
    InPath(namespace): InPath<String>,
    retry: Retry,
    body: JsonBody,
) -> Result<Response, HttpError> {
    check_namespace(&shared, &namespace)?;
    let decode = || {
        let body = body.read::<WriteCall>()?;
        let terms = terms(&shared, body.tokens.clone(), body.wait_ms)?;
        Ok::<_, Trouble>((Decoder(&shared.config.limits).call(&body)?, terms))
    };
    let large = body.0.len() > LARGE_BODY_BYTES;
    let (call, terms) = if large { tokio::task::block_in_place(decode)? } else { decode()? };
    Ok(answer(&shared, &namespace, retry.mark(call), &terms).await?)
}

/// The same for a request that did not come through the router.
pub(in crate::native) async fn write_to(
    shared: &Arc<Shared>,
    namespace: String,
    request: axum::extract::Request,
) -> Response {
    let written = async {
        let retry = Retry::of(request.headers());
        let body = JsonBody::from_request(request, shared).await?;
        write(State(Arc::clone(shared)), InPath(namespace), retry, body).await
    };
    written.await.unwrap_or_else(IntoResponse::into_response)
}

async fn answer(
    shared: &Arc<Shared>,
    namespace: &str,
    call: Call,
    terms: &Terms,
) -> Result<Response, Trouble> {
    Ok(json_of(&written(shared, namespace, call, terms).await?))
}

async fn written(
    shared: &Arc<Shared>,
    namespace: &str,
    call: Call,
    terms: &Terms,
) -> Result<Written, Trouble> {
    // Nodes of a cluster are at different positions, and a node may be asked about one that another node has told.
    let call = Call { refuses_future: !shared.is_spread(namespace).await?, ..call };
    let written = match gate::write(shared, namespace, &call, terms).await {
        Ok(written) => written,
        Err(error) => return Err(unwritten(shared, namespace, &call, error).await),
    };
    let positions: Vec<u64> = written.positions.iter().map(|position| position.0).collect();
    let position = match positions.last() {
        Some(position) => *position,
        None => shared.shard.read().position(namespace)?.0,
    };
    Ok(Written { position, positions, replayed: written.replayed })
}

/// Why a call was not done. What is there can be removed whether or not the schema knows it; a name that is neither there
/// nor known is misspelt, and is told as such.
async fn unwritten(shared: &Arc<Shared>, namespace: &str, call: &Call, error: GateError) -> Trouble {
    if let GateError::Shard(ShardError::Refused(refused)) = &error
        && let Refused::NoNode { at, path } = &**refused
    {
        for node in removed_below(call, at, path) {
            let checked = check_node(&Job::new(shared), namespace, &at.collection, node).await;
            if let Err(trouble) = checked {
                return trouble;
            }
        }
    }
    error.into()
}

/// The nodes at and below a path of a document that a call is to remove.
fn removed_below<'a>(call: &'a Call, document: &DocumentKey, path: &Path) -> impl Iterator<Item = &'a Path> {
    let intents = call.requests.iter().flat_map(|request| &request.intents);
    intents.filter(|intent| intent.at == *document).filter_map(|intent| match &intent.action {
        Action::Set { path: node, value: None } => {
            let is_below =
                node.len() >= path.len() && node.segments().zip(path.segments()).all(|(a, b)| a == b);
            is_below.then_some(node)
        }
        _ => None,
    })
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::native) struct PutQuery {
    /// Only if there is no such document yet (`absent`), or only if there is one (`present`).
    r#if: Option<String>,
    /// Only this node, a field or something in a field: `/address/city`, with %2F for a slash inside a name. The
    /// body is its new value. The document must be there, and so must be what the node is in.
    path: Option<String>,
    /// Only if the document has not changed since this position.
    position: Option<u64>,
    /// Who writes, for the history.
    user: Option<String>,
    /// Why, for the history.
    note: Option<String>,
    /// Tokens of locks the writer holds, with commas between them. If one of them is over, nothing is done.
    token: Option<String>,
    /// How many milliseconds to wait for others' locks.
    wait_ms: Option<u64>,
}

/// Makes a document exactly what the body says, be it there or not; or only one node of a document that is there.
#[utoipa::path(put, path = "/v1/{namespace}/documents/{collection}/{key}",
    params(("namespace" = String, Path), ("collection" = String, Path), ("key" = String, Path), PutQuery),
    request_body = Object, responses((status = 200, body = Written), (status = 400, body = Problem),
    (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 422, body = Problem), (status = 423, body = Problem)))]
pub(in crate::native) async fn put(
    State(shared): App,
    address: Addressed,
    InQuery(query): InQuery<PutQuery>,
    conditions: Conditions,
    retry: Retry,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let decoder = Decoder(&shared.config.limits);
    let when = match query.r#if.as_deref() {
        None => PutIf::Always,
        Some("absent") => PutIf::Absent,
        Some("present") => PutIf::Present,
        Some(other) => {
            let message = format!("the parameter `if` must be `absent` or `present`, not {other:?}");
            return Err(Trouble::new(Code::BadQuery, message).into());
        }
    };
    let action = match (address.node(query.path.as_deref())?, when) {
        (None, when) => Action::Put { fields: decoder.fields(&body.read::<Fields>()?)?, when },
        (Some(path), PutIf::Always | PutIf::Present) => {
            decoder.set(&path, Some(&body.read::<WireValue>()?))?
        }
        (Some(_), PutIf::Absent) => {
            let message = "a node can be put into a document that is there only; leave out if or path";
            return Err(Trouble::new(Code::BadQuery, message).into());
        }
    };
    let terms = read_terms(&shared, query.token.as_deref(), query.wait_ms)?;
    let Addressed { namespace, document: at, .. } = address;
    let written_by = (query.user, query.note);
    let call = single(decoder, Intent { at, action }, (query.position, conditions), written_by)?;
    let written = written(&shared, &namespace, retry.mark(call), &terms).await?;
    Ok(tagged(json_of(&written), Position(written.position)))
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::native) struct DeleteQuery {
    /// Only this node, a field or something in a field: `/address/city`. What comes after it in a list moves up.
    path: Option<String>,
    /// Only if the document has not changed since this position.
    position: Option<u64>,
    /// Who deletes, for the history.
    user: Option<String>,
    /// Why, for the history.
    note: Option<String>,
    /// Tokens of locks the writer holds, with commas between them. If one of them is over, nothing is done.
    token: Option<String>,
    /// How many milliseconds to wait for others' locks.
    wait_ms: Option<u64>,
}

/// Deletes a document, which can be restored; or removes one node of it.
#[utoipa::path(delete, path = "/v1/{namespace}/documents/{collection}/{key}",
    params(("namespace" = String, Path), ("collection" = String, Path), ("key" = String, Path), DeleteQuery),
    responses((status = 200, body = Written), (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 422, body = Problem), (status = 423, body = Problem)))]
pub(in crate::native) async fn delete(
    State(shared): App,
    address: Addressed,
    InQuery(query): InQuery<DeleteQuery>,
    conditions: Conditions,
    retry: Retry,
) -> Result<Response, HttpError> {
    let decoder = Decoder(&shared.config.limits);
    let terms = read_terms(&shared, query.token.as_deref(), query.wait_ms)?;
    let action = match address.node(query.path.as_deref())? {
        None => Action::Delete,
        Some(path) => decoder.set(&path, None)?,
    };
    let Addressed { namespace, document: at, .. } = address;
    let written_by = (query.user, query.note);
    let call = single(decoder, Intent { at, action }, (query.position, conditions), written_by)?;
    Ok(answer(&shared, &namespace, retry.mark(call), &terms).await?)
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::native) struct RestoreQuery {
    /// Only if the document has not changed since this position.
    position: Option<u64>,
    /// Who restores it, for the history.
    user: Option<String>,
    /// Why, for the history.
    note: Option<String>,
    /// Tokens of locks the writer holds, with commas between them. If one of them is over, nothing is done.
    token: Option<String>,
    /// How many milliseconds to wait for others' locks.
    wait_ms: Option<u64>,
}

/// Brings a deleted document back, with the fields it had.
#[utoipa::path(post, path = "/v1/{namespace}/restore/{collection}/{key}",
    params(("namespace" = String, Path), ("collection" = String, Path), ("key" = String, Path), RestoreQuery),
    responses((status = 200, body = Written, headers(("ETag" = String,
    description = "The position of the document's last change, in quotes."))),
    (status = 404, body = Problem), (status = 409, body = Problem),
    (status = 422, body = Problem), (status = 423, body = Problem)))]
pub(in crate::native) async fn restore(
    State(shared): App,
    Addressed { namespace, document: at, .. }: Addressed,
    InQuery(query): InQuery<RestoreQuery>,
    conditions: Conditions,
    retry: Retry,
) -> Result<Response, HttpError> {
    let decoder = Decoder(&shared.config.limits);
    let terms = read_terms(&shared, query.token.as_deref(), query.wait_ms)?;
    let intent = Intent { at, action: Action::Restore };
    let call = single(decoder, intent, (query.position, conditions), (query.user, query.note))?;
    let written = written(&shared, &namespace, retry.mark(call), &terms).await?;
    Ok(tagged(json_of(&written), Position(written.position)))
}

/// An idempotency key that another node gave to a write without one, because it may have to send it twice.
pub(in crate::native) struct Retry(Option<String>);

/// Nodes give shorter ones; whatever else is there is not from a node.
const RETRY_LEN_MAX: usize = 64;

impl Retry {
    fn of(headers: &HeaderMap) -> Retry {
        let key = headers.get(dispatch::RETRY).filter(|key| key.len() <= RETRY_LEN_MAX);
        let key = key.and_then(|key| key.to_str().ok());
        Retry(key.map(str::to_owned))
    }

    pub(in crate::native) fn mark(self, mut call: Call) -> Call {
        if call.answer.is_none() {
            call.answer = self.answer();
        }
        call
    }

    /// How to know a call without a key of its own if it comes again.
    pub(in crate::native) fn answer(self) -> Option<Answer> {
        self.0.map(|key| Answer { key: key.into(), fingerprint: [0; 16] })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Retry {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Retry, Self::Rejection> {
        Ok(Retry::of(&parts.headers))
    }
}

/// The documents that a write call is about; none if it makes no sense.
pub(crate) fn written_documents(decoder: Decoder<'_>, call: &WriteCall) -> Option<Vec<DocumentKey>> {
    let call = decoder.call(call).ok()?;
    Some(gate::documents_of(&call).cloned().collect())
}

/// A call that does one thing to one document.
fn single(
    decoder: Decoder<'_>,
    intent: Intent,
    (position, conditions): (Option<u64>, Conditions),
    (user, note): (Option<String>, Option<String>),
) -> Result<Call, Trouble> {
    let text = |text: Option<String>| text.map(|text| WireValue::from(&serde_json::Value::from(text)));
    let target = Target::Document(intent.at.clone());
    let lock = |position| PositionLock { target, position: Position(position) };
    let request = Request {
        locks: position.map(lock).into_iter().collect(),
        preconditions: conditions.preconditions(&intent.at),
        intents: vec![intent],
        user: decoder.note(text(user).as_ref(), "user")?,
        note: decoder.note(text(note).as_ref(), "note")?,
    };
    Ok(Call { requests: vec![request], limits: Some(decoder.engine_limits()), ..Call::default() })
}

/// Hands out ids that nobody else gets.
#[utoipa::path(post, path = "/v1/{namespace}/reserve", params(("namespace" = String, Path)),
    request_body = ReserveRequest, responses((status = 200, body = Reserved), (status = 400, body = Problem)))]
pub(in crate::native) async fn reserve(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let ReserveRequest { collection, amount } = body.read()?;
    Ok(reserve_from(&shared, &namespace, &collection, amount, 1).await?)
}

/// Hands out ids from `least` on.
pub(in crate::native) async fn reserve_from(
    shared: &Shared,
    namespace: &str,
    collection: &str,
    amount: u64,
    least: u64,
) -> Result<Response, Trouble> {
    check_namespace(shared, namespace)?;
    Decoder(&shared.config.limits).collection(collection)?;
    let limit = shared.config.limits.reserve_max;
    if amount == 0 {
        return Err(Trouble::new(Code::BadBody, "amount counts from 1"));
    }
    if amount > limit {
        return Err(Trouble::over("reserve_max", limit, &format!("{amount} ids are too many at once")));
    }
    let first = shared.shard.reserve_from(namespace, collection, amount, least).await?;
    Ok(json_of(&Reserved { first, last: first + amount - 1 }))
}
