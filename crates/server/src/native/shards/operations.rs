//! Operations on single keys, with the arguments and answers of box.shard. They are carried out here; whether the
//! key is this node's is for the gate to see when something is written.

use super::super::{
    documents::{Decoder, JsonBody, Retry, document_or_null, terms},
    http::{App, InPath, check_namespace},
};
use crate::{native::HttpError, shared::Shared};
use axum::{extract::State, response::Response};
use lockwood_engine::{
    Action, Intent, PutIf, Request,
    format::{self, FormatError},
};
use lockwood_model::{Document, DocumentKey, FieldValue, Json, Mode, Position, Resource, Scalar};
use lockwood_node::{
    gate::{self, Amendment, Terms},
    shard::{Amended, Call, Reading, Selection},
    trouble::Trouble,
};
use lockwood_storage::{State as Stored, StoreError};
use lockwood_wire::{
    Code, Problem,
    documents::{WireKey, WireValue},
    shards::{DeleteRequest, EselectRequest, SelectRequest, ShardDocument, StoreRequest, UpdateRequest},
};
use std::sync::Arc;

/// Reads a document; a follower may answer.
#[utoipa::path(post, path = "/v1/{namespace}/shard/select", params(("namespace" = String, Path)),
    request_body = SelectRequest, responses((status = 200, body = ShardDocument), (status = 400, body = Problem),
    (status = 503, body = Problem)))]
pub(in crate::native) async fn select(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    Ok(read_named(&shared, &namespace, &body)?)
}

/// Reads a document, if need be from the owner.
#[utoipa::path(post, path = "/v1/{namespace}/shard/eselect", params(("namespace" = String, Path)),
    request_body = EselectRequest, responses((status = 200, body = ShardDocument), (status = 400, body = Problem),
    (status = 503, body = Problem)))]
pub(in crate::native) async fn eselect(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let EselectRequest { mode, collection, key } = body.read()?;
    Access::read(&mode)?;
    Ok(read(&shared, &namespace, &Decoder(&shared.config.limits).document(&collection, &key)?)?)
}

/// What an operation with a mode may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Read, at the owner or a follower.
    Ro,
    /// Read and write, at the owner.
    Rw,
}

impl Access {
    pub(super) fn read(mode: &str) -> Result<Access, Trouble> {
        match mode {
            "ro" | "r" => Ok(Access::Ro),
            "rw" => Ok(Access::Rw),
            _ => {
                let message =
                    format!("there is no mode {mode:?}; ro (or r) lets a follower answer, rw does not");
                Err(Trouble::new(Code::BadMode, message))
            }
        }
    }
}

/// The document that a body names, as it is here.
pub(super) fn read_named(shared: &Shared, namespace: &str, body: &JsonBody) -> Result<Response, Trouble> {
    let SelectRequest { collection, key } = body.read()?;
    read(shared, namespace, &Decoder(&shared.config.limits).document(&collection, &key)?)
}

/// A document as it is here.
fn read(shared: &Shared, namespace: &str, at: &DocumentKey) -> Result<Response, Trouble> {
    check_namespace(shared, namespace)?;
    shared.metrics.reads.add(1);
    answer(&shared.shard.read(), namespace, at, None)
}

/// A document as it is, or as it was at a position.
pub(super) fn answer(
    reading: &Reading,
    namespace: &str,
    at: &DocumentKey,
    as_of: Option<Position>,
) -> Result<Response, Trouble> {
    let Some((id, position)) = reading.namespace(namespace)? else {
        return Ok(document_or_null(reading.position(namespace)?, None)?);
    };
    let found = reading.get(id, at.clone(), Selection::Without, as_of)?;
    Ok(document_or_null(as_of.unwrap_or(position), found.as_ref())?)
}

/// Creates a document; refused if there is one.
#[utoipa::path(post, path = "/v1/{namespace}/shard/insert", params(("namespace" = String, Path)),
    request_body = StoreRequest, responses((status = 200, body = ShardDocument), (status = 400, body = Problem),
    (status = 409, body = Problem), (status = 422, body = Problem), (status = 503, body = Problem)))]
pub(in crate::native) async fn insert(
    State(shared): App,
    InPath(namespace): InPath<String>,
    retry: Retry,
    body: JsonBody,
) -> Result<Response, HttpError> {
    Ok(store(&shared, &namespace, retry, body.read()?, exists).await?)
}

/// Makes a document exactly what the body says, be it there or not.
#[utoipa::path(post, path = "/v1/{namespace}/shard/replace", params(("namespace" = String, Path)),
    request_body = StoreRequest, responses((status = 200, body = ShardDocument), (status = 400, body = Problem),
    (status = 409, body = Problem), (status = 422, body = Problem), (status = 503, body = Problem)))]
pub(in crate::native) async fn replace(
    State(shared): App,
    InPath(namespace): InPath<String>,
    retry: Retry,
    body: JsonBody,
) -> Result<Response, HttpError> {
    Ok(store(&shared, &namespace, retry, body.read()?, |_| Ok(())).await?)
}

/// That there must not be a document. One that is deleted is none.
pub(super) fn exists(at: &DocumentKey) -> Result<(), Trouble> {
    Err(Trouble::new(Code::DocumentExists, format!("there is a document {at} already; replace or update it")))
}

async fn store(
    shared: &Arc<Shared>,
    namespace: &str,
    retry: Retry,
    request: StoreRequest,
    if_there: impl Fn(&DocumentKey) -> Result<(), Trouble>,
) -> Result<Response, Trouble> {
    let StoreRequest { collection, key, fields, tokens, wait_ms, user, note } = request;
    let asked = Asked::new(shared, namespace, (&collection, &key), (user, note), (tokens, wait_ms))?;
    let fields = Decoder(&shared.config.limits).fields(&fields)?;
    let amendment = asked.amendment(gate::whole(&asked.at).into(), retry);
    let amendment = Amendment { makes: Some(&fields), ..amendment };
    let make = |state: Stored<'_>| {
        let intents = store_intents(state, namespace, &asked.at, &fields, &if_there)?;
        Ok((asked.call_of(intents, asked.note.clone()), ()))
    };
    let amended = gate::transact(shared, namespace, &amendment, &asked.terms, make).await?;
    answer(&shared.shard.read(), namespace, &asked.at, last_of(&amended))
}

/// What makes a document exactly these fields, be it there, deleted or not; refused if it is there and must not be.
pub(super) fn store_intents(
    state: Stored<'_>,
    namespace: &str,
    at: &DocumentKey,
    fields: &[FieldValue],
    if_there: &impl Fn(&DocumentKey) -> Result<(), Trouble>,
) -> Result<Vec<Intent>, Trouble> {
    let id = state.namespace(namespace)?;
    let found = id.map(|id| state.document(id, at)).transpose()?.flatten();
    let mut actions = Vec::new();
    match found {
        Some(document) if document.deleted => actions.push(Action::Restore),
        Some(_) => if_there(at)?,
        None => {}
    }
    actions.push(Action::Put { fields: fields.to_vec(), when: PutIf::Always });
    Ok(actions.into_iter().map(|action| Intent { at: at.clone(), action }).collect())
}

/// Deletes a document and answers what it was; null if there is none.
#[utoipa::path(post, path = "/v1/{namespace}/shard/delete", params(("namespace" = String, Path)),
    request_body = DeleteRequest, responses((status = 200, body = ShardDocument), (status = 400, body = Problem),
    (status = 409, body = Problem), (status = 503, body = Problem)))]
pub(in crate::native) async fn shard_delete(
    State(shared): App,
    InPath(namespace): InPath<String>,
    retry: Retry,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let DeleteRequest { collection, key, tokens, wait_ms, user, note } = body.read()?;
    let asked = Asked::new(&shared, &namespace, (&collection, &key), (user, note), (tokens, wait_ms))?;
    let amendment = asked.amendment(gate::whole(&asked.at).into(), retry);
    let make = |state: Stored<'_>| match live(state, &namespace, &asked.at)? {
        Some(_) => Ok((asked.call(Action::Delete), ())),
        None => Ok((Call::default(), ())),
    };
    let amended = gate::transact(&shared, &namespace, &amendment, &asked.terms, make).await?;
    let reading = shared.shard.read();
    match last_of(&amended) {
        // What it was right before.
        Some(position) => {
            let found = before(&reading, &namespace, &asked.at, position)?;
            Ok(document_or_null(position, found.as_ref())?)
        }
        None => Ok(document_or_null(reading.position(&namespace)?, None)?),
    }
}

/// Changes a document by operations and answers what it has become; null if there is none.
#[utoipa::path(post, path = "/v1/{namespace}/shard/update", params(("namespace" = String, Path)),
    request_body = UpdateRequest, responses((status = 200, body = ShardDocument), (status = 400, body = Problem),
    (status = 409, body = Problem), (status = 422, body = Problem), (status = 503, body = Problem)))]
pub(in crate::native) async fn update(
    State(shared): App,
    InPath(namespace): InPath<String>,
    retry: Retry,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let UpdateRequest { collection, key, format, arguments, tokens, wait_ms, user, note } = body.read()?;
    let asked = Asked::new(&shared, &namespace, (&collection, &key), (user, note), (tokens, wait_ms))?;
    let arguments = read_arguments(&shared, &arguments)?;
    let names = fields_of(&arguments);
    let decoder = Decoder(&shared.config.limits);
    names.iter().try_for_each(|name| decoder.written_field(name))?;
    check_format(&format, &arguments)?;
    let resources = names.iter().map(|name| gate::field(&asked.at, name, Mode::Write)).collect();
    let amendment = asked.amendment(resources, retry);
    let make = |state: Stored<'_>| {
        let Some(document) = live(state, &namespace, &asked.at)? else { return Ok((Call::default(), false)) };
        let set = format::apply(&format, &arguments, &document).map_err(|error| bad_update(&error))?;
        Ok((asked.call(Action::Update { set, lists: Vec::new() }), true))
    };
    let amended = gate::transact(&shared, &namespace, &amendment, &asked.terms, make).await?;
    let reading = shared.shard.read();
    match (last_of(&amended), amended) {
        (Some(position), _) => Ok(answer(&reading, &namespace, &asked.at, Some(position))?),
        (None, Amended::Now { made: true, .. }) => Ok(answer(&reading, &namespace, &asked.at, None)?),
        _ => Ok(document_or_null(reading.position(&namespace)?, None)?),
    }
}

/// What a write of one key has in common with every other.
pub(super) struct Asked {
    pub(super) at: DocumentKey,
    pub(super) terms: Terms,
    user: Option<Json>,
    pub(super) note: Option<Json>,
    limits: lockwood_engine::Limits,
}

impl Asked {
    pub(super) fn new(
        shared: &Shared,
        namespace: &str,
        (collection, key): (&str, &WireKey),
        (user, note): (Option<WireValue>, Option<WireValue>),
        (tokens, wait_ms): (Vec<u64>, Option<u64>),
    ) -> Result<Asked, Trouble> {
        check_namespace(shared, namespace)?;
        let decoder = Decoder(&shared.config.limits);
        Ok(Asked {
            at: decoder.document(collection, key)?,
            terms: terms(shared, tokens, wait_ms)?,
            user: decoder.note(user.as_ref(), "user")?,
            note: decoder.note(note.as_ref(), "note")?,
            limits: decoder.engine_limits(),
        })
    }

    /// That the document is looked at and changed in one step, with these resources held.
    fn amendment(&self, resources: Vec<Resource>, retry: Retry) -> Amendment<'_> {
        let documents = std::slice::from_ref(&self.at);
        Amendment { documents, resources, makes: None, answer: retry.answer() }
    }

    fn call(&self, action: Action) -> Call {
        self.call_of(vec![Intent { at: self.at.clone(), action }], self.note.clone())
    }

    /// A call that does several things at once, for one reason.
    pub(super) fn call_of(&self, intents: Vec<Intent>, note: Option<Json>) -> Call {
        let request = Request { intents, user: self.user.clone(), note, ..Request::default() };
        Call { requests: vec![request], limits: Some(self.limits), ..Call::default() }
    }
}

pub(super) fn read_arguments(shared: &Shared, arguments: &[WireValue]) -> Result<Vec<Json>, Trouble> {
    let depth = shared.config.limits.json_depth_max as usize;
    let read = arguments.iter().map(|argument| argument.read(depth));
    Ok(read.collect::<Result<_, _>>()?)
}

/// The fields that the arguments of an update name.
fn fields_of(arguments: &[Json]) -> Vec<String> {
    let name = |argument: &Json| match Scalar::read(argument.as_str()) {
        Scalar::Text(name) => Some(name.into_owned()),
        _ => None,
    };
    arguments.iter().step_by(2).filter_map(name).collect()
}

/// Whether a format makes sense whatever the document is like.
fn check_format(format: &str, arguments: &[Json]) -> Result<(), Trouble> {
    match format::apply(format, arguments, &Document::unborn()) {
        Err(
            error @ (FormatError::NoFormat
            | FormatError::NoType { .. }
            | FormatError::UnknownOperation { .. }
            | FormatError::OddArguments { .. }
            | FormatError::WrongLen { .. }
            | FormatError::NoName { .. }),
        ) => Err(bad_update(&error)),
        _ => Ok(()),
    }
}

fn bad_update(error: &FormatError) -> Trouble {
    Trouble::new(Code::BadUpdate, error.to_string())
}

/// A document that is there and not deleted.
fn live(state: Stored<'_>, namespace: &str, at: &DocumentKey) -> Result<Option<Document>, StoreError> {
    let Some(id) = state.namespace(namespace)? else { return Ok(None) };
    Ok(state.document(id, at)?.filter(|document| !document.deleted))
}

pub(super) fn last_of<T>(amended: &Amended<T>) -> Option<Position> {
    let (Amended::Now { written, .. } | Amended::Before(written)) = amended;
    written.positions.last().copied()
}

/// A document as it was right before a position.
fn before(
    reading: &Reading,
    namespace: &str,
    at: &DocumentKey,
    position: Position,
) -> Result<Option<lockwood_node::shard::Found>, StoreError> {
    let Some((id, _)) = reading.namespace(namespace)? else { return Ok(None) };
    reading.get(id, at.clone(), Selection::Without, Some(Position(position.0.saturating_sub(1))))
}
