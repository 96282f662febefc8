//! The procedures of a namespace: registered at its home, so that each key's owner has them. Knows nothing of
//! running them.

use super::super::{
    documents::{AnyBody, Retry, json_of},
    http::{App, InPath, check_namespace},
};
use super::operations::store_intents;
use crate::{native::HttpError, shared::Shared};
use axum::{extract::State, response::Response};
use lockwood_engine::{Action, Intent, Request};
use lockwood_model::{Document, DocumentKey, FieldValue, Json, Key, KeyPart, Scalar};
use lockwood_node::{
    gate::{self, Amendment, PROCEDURES},
    shard::{Call, Reading, in_place},
    trouble::Trouble,
};
use lockwood_storage::{DocumentRef, Order, State as Stored, StoreError};
use lockwood_wire::{
    Code, Problem,
    shards::{ProcedureInfo, ProcedureList},
};
use std::sync::Arc;

/// Bytes of a procedure's name.
const NAME_BYTES_MAX: usize = 128;

/// A procedure as it is registered.
pub(super) struct Registered {
    pub(super) name: String,
    pub(super) version: u32,
    pub(super) source: String,
}

/// The procedures of a namespace.
#[utoipa::path(get, path = "/v1/{namespace}/shard/procedures", params(("namespace" = String, Path)),
    responses((status = 200, body = ProcedureList), (status = 503, body = Problem)))]
pub(in crate::native) async fn procedures(
    State(shared): App,
    InPath(namespace): InPath<String>,
) -> Result<Response, HttpError> {
    check_namespace(&shared, &namespace)?;
    let reading = shared.shard.read();
    let mut procedures = Vec::new();
    if let Some((id, _)) = reading.namespace(&namespace)? {
        for found in reading.state().documents(id, PROCEDURES, None, Order::Forward) {
            let document = DocumentRef::read(&found?.1)?.to_document();
            let registered = Registered::of(&document).filter(|_| !document.deleted);
            procedures.extend(registered.map(|registered| registered.info(false)));
        }
    }
    Ok(json_of(&ProcedureList { procedures }))
}

/// One procedure with its text.
#[utoipa::path(get, path = "/v1/{namespace}/shard/procedures/{name}",
    params(("namespace" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = ProcedureInfo), (status = 404, body = Problem), (status = 503, body = Problem)))]
pub(in crate::native) async fn procedure(
    State(shared): App,
    InPath((namespace, name)): InPath<(String, String)>,
) -> Result<Response, HttpError> {
    check_namespace(&shared, &namespace)?;
    Ok(json_of(&find(&shared.shard.read(), &namespace, &name)?.info(true)))
}

/// Registers a procedure on all shards, or gives it another text. The body is its text in Luau.
#[utoipa::path(put, path = "/v1/{namespace}/shard/procedures/{name}",
    params(("namespace" = String, Path), ("name" = String, Path)),
    request_body(content = String, content_type = "application/octet-stream"),
    responses((status = 200, body = ProcedureInfo), (status = 400, body = Problem), (status = 503, body = Problem)))]
pub(in crate::native) async fn put_procedure(
    State(shared): App,
    InPath((namespace, name)): InPath<(String, String)>,
    retry: Retry,
    AnyBody(body): AnyBody,
) -> Result<Response, HttpError> {
    check_namespace(&shared, &namespace)?;
    let at = key_of(&name)?;
    let bad = |why: String| Trouble::new(Code::BadScript, why);
    let source = String::from_utf8(body.into()).map_err(|_| bad("the text is not UTF-8".to_owned()))?;
    in_place(|| shared.procedures.compiled(&name, &source)).map_err(|error| bad(error.to_string()))?;
    let make = |state: Stored<'_>| {
        let before = stored(state, &namespace, &at)?;
        let known = before.as_ref().and_then(Registered::of);
        let is_same = known.as_ref().is_some_and(|known| known.source == source);
        if is_same && before.is_some_and(|before| !before.deleted) {
            return Ok((Call::default(), ()));
        }
        let version = known.map_or(0, |known| known.version) + 1;
        let registered = Registered { name: name.clone(), version, source: source.clone() };
        let intents = store_intents(state, &namespace, &at, &registered.fields(), &|_: &DocumentKey| Ok(()))?;
        Ok((call_of(intents), ()))
    };
    decide(&shared, &namespace, &at, retry, make).await?;
    Ok(json_of(&find(&shared.shard.read(), &namespace, &name)?.info(false)))
}

/// Takes a procedure away from all shards.
#[utoipa::path(delete, path = "/v1/{namespace}/shard/procedures/{name}",
    params(("namespace" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = ProcedureInfo), (status = 404, body = Problem), (status = 503, body = Problem)))]
pub(in crate::native) async fn delete_procedure(
    State(shared): App,
    InPath((namespace, name)): InPath<(String, String)>,
    retry: Retry,
) -> Result<Response, HttpError> {
    check_namespace(&shared, &namespace)?;
    let at = key_of(&name)?;
    let make = |state: Stored<'_>| match stored(state, &namespace, &at)? {
        Some(document) if !document.deleted => {
            Ok((call_of(vec![Intent { at: at.clone(), action: Action::Delete }]), ()))
        }
        _ => Err(no_procedure(&name)),
    };
    decide(&shared, &namespace, &at, retry, make).await?;
    let gone = stored(shared.shard.read().state(), &namespace, &at)?;
    let gone = gone.as_ref().and_then(Registered::of).ok_or_else(|| no_procedure(&name))?;
    Ok(json_of(&gone.info(false)))
}

/// Decides about a procedure, at the home if the namespace is spread.
async fn decide(
    shared: &Arc<Shared>,
    namespace: &str,
    at: &DocumentKey,
    retry: Retry,
    make: impl Fn(Stored<'_>) -> Result<(Call, ()), Trouble>,
) -> Result<(), Trouble> {
    let documents = std::slice::from_ref(at);
    let (resources, answer) = (gate::whole(at).into(), retry.answer());
    let amendment = Amendment { documents, resources, makes: None, answer };
    gate::transact_registered(shared, namespace, &amendment, make).await?;
    Ok(())
}

/// A procedure that is registered on this shard.
pub(super) fn find(reading: &Reading, namespace: &str, name: &str) -> Result<Registered, Trouble> {
    let found = stored(reading.state(), namespace, &key_of(name)?)?;
    let found = found.filter(|document| !document.deleted);
    found.as_ref().and_then(Registered::of).ok_or_else(|| no_procedure(name))
}

fn no_procedure(name: &str) -> Trouble {
    let message = format!(
        "there is no procedure {name:?} in this namespace; register it with `lockwood shard procedure put`"
    );
    Trouble::new(Code::NoProcedure, message)
}

fn stored(state: Stored<'_>, namespace: &str, at: &DocumentKey) -> Result<Option<Document>, StoreError> {
    let Some(id) = state.namespace(namespace)? else { return Ok(None) };
    state.document(id, at)
}

fn key_of(name: &str) -> Result<DocumentKey, Trouble> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let message =
            format!("a procedure has a name of 1 to {NAME_BYTES_MAX} bytes without control characters");
        return Err(Trouble::new(Code::BadKey, message));
    }
    let key = Key::new([KeyPart::new(name)]).expect("it has a part");
    Ok(DocumentKey::new(PROCEDURES, key))
}

fn call_of(intents: Vec<Intent>) -> Call {
    Call { requests: vec![Request { intents, ..Request::default() }], ..Call::default() }
}

impl Registered {
    fn of(document: &Document) -> Option<Registered> {
        let text = |name: &str| match Scalar::read(document.get(name)?.as_str()) {
            Scalar::Text(text) => Some(text.into_owned()),
            _ => None,
        };
        let version = document.get("version")?.as_str().parse().ok()?;
        Some(Registered { name: text("name")?, version, source: text("source")? })
    }

    fn fields(&self) -> Vec<FieldValue> {
        let hash = lockwood_script::hash(&self.source);
        let text = |text: &str| Json::from(serde_json::Value::from(text));
        vec![
            ("name".into(), text(&self.name)),
            ("version".into(), Json::from(serde_json::Value::from(self.version))),
            ("hash".into(), text(&hash)),
            ("source".into(), text(&self.source)),
        ]
    }

    fn info(&self, with_source: bool) -> ProcedureInfo {
        ProcedureInfo {
            name: self.name.clone(),
            version: self.version,
            hash: lockwood_script::hash(&self.source),
            source: with_source.then(|| self.source.clone()),
        }
    }
}
