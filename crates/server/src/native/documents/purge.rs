//! Purging: what a client asks for, and which purges are under way. Knows nothing of how they are done.

use super::{answer::json_of, body::JsonBody, decode::Decoder, terms::terms};
use crate::native::{
    HttpError,
    http::{App, InPath, check_namespace},
};
use axum::{extract::State, response::Response};
use lockwood_model::{DocumentKey, Key};
use lockwood_node::{
    gate,
    purge::{self, Wanted, Whole},
    trouble::Trouble,
};
use lockwood_wire::{
    Code, Problem,
    documents::{PurgeAnswer, PurgeList, PurgeRequest, PurgedInfo, WireKey},
};

/// What no server can do anything about.
const NOT_REACHED: &str = "Earlier backups and dumps, and copies that clients made, still contain it.";

/// Takes documents, a collection or the whole namespace away for good: out of the state, the indexes, the history, the feed,
/// later dumps and backups, and the files. It is on record when this answers, and complete when `/v1/purges` does not list
/// it any more.
#[utoipa::path(post, path = "/v1/{namespace}/purge", params(("namespace" = String, Path)),
    request_body = PurgeRequest, responses(
    (status = 202, description = "It has begun.", body = PurgeAnswer), (status = 400, body = Problem),
    (status = 404, body = Problem), (status = 409, body = Problem), (status = 423, body = Problem)))]
pub(in crate::native) async fn purge(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    check_namespace(&shared, &namespace)?;
    let request: PurgeRequest = body.read()?;
    let decoder = Decoder(&shared.config.limits);
    let (what, purged) = read_what(decoder, &namespace, &request)?;
    let user = decoder
        .note(request.user.as_ref(), "user")?
        .ok_or_else(|| Trouble::new(Code::BadBody, "say who purges, for the record: {\"user\": \"NAME\"}"))?;
    let note = decoder.note(request.note.as_ref(), "note")?;
    let terms = terms(&shared, request.tokens, request.wait_ms)?;
    let begun = purge::begin(&shared, &namespace, Wanted { what, user, note, terms }).await?;
    let mut response = json_of(&PurgeAnswer {
        purge: begun.index,
        position: begun.position.0,
        purged,
        not_reached: NOT_REACHED.to_owned(),
    });
    *response.status_mut() = hyper::StatusCode::ACCEPTED;
    Ok(response)
}

fn read_what(
    decoder: Decoder<'_>,
    namespace: &str,
    request: &PurgeRequest,
) -> Result<(Whole, PurgedInfo), Trouble> {
    let PurgeRequest { collection, keys, confirm, .. } = request;
    let info = |documents| PurgedInfo { collection: collection.clone(), documents };
    match (collection, keys) {
        (Some(collection), Some(keys)) => {
            let documents = read_keys(decoder, collection, keys)?;
            let count = documents.len() as u64;
            Ok((Whole::Documents(documents), info(Some(count))))
        }
        (Some(collection), None) => {
            decoder.collection(collection)?;
            check_reserved(collection)?;
            check_confirmed(confirm.as_deref(), "collection", collection)?;
            Ok((Whole::Collection(collection.as_str().into()), info(None)))
        }
        (None, None) => {
            check_confirmed(confirm.as_deref(), "namespace", namespace)?;
            Ok((Whole::Namespace, info(None)))
        }
        (None, Some(_)) => Err(Trouble::new(Code::BadBody, "name the collection that the keys are in")),
    }
}

fn read_keys(decoder: Decoder<'_>, collection: &str, keys: &[WireKey]) -> Result<Vec<DocumentKey>, Trouble> {
    let limit = decoder.0.events_per_call_max;
    if keys.is_empty() {
        let message = "no key is named; leave out keys to purge the whole collection";
        return Err(Trouble::new(Code::BadBody, message));
    }
    if keys.len() as u64 > limit {
        let what = format!("{} documents are too many at once", keys.len());
        return Err(Trouble::over("events_per_call_max", limit, &what));
    }
    let documents = keys.iter().map(|key| decoder.document(collection, key));
    let mut documents = documents.collect::<Result<Vec<DocumentKey>, _>>()?;
    documents.sort();
    documents.dedup();
    gate::check_reserved(documents.iter())?;
    Ok(documents)
}

/// What the server keeps there is deleted where it was made.
fn check_reserved(collection: &str) -> Result<(), Trouble> {
    gate::check_reserved([&DocumentKey::new(collection, Key::number(1))].into_iter())
}

fn check_confirmed(confirm: Option<&str>, what: &str, name: &str) -> Result<(), Trouble> {
    if confirm == Some(name) {
        return Ok(());
    }
    let message = format!(
        "all of the {what} {name:?} would be gone for good; say its name once more to confirm it: {{\"confirm\": {name:?}}}"
    );
    Err(Trouble::new(Code::ForceNeeded, message))
}

/// The purges that have begun and are not complete.
#[utoipa::path(get, path = "/v1/purges", responses((status = 200, body = PurgeList)))]
pub(in crate::native) async fn purges(State(shared): App) -> Result<Response, HttpError> {
    Ok(json_of(&PurgeList { purges: purge::list(&shared)? }))
}
