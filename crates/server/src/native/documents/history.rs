//! What happened to one document, and where a namespace stands. Knows nothing of how history is kept.

use super::{
    answer::{json_of, no_document},
    decode::Decoder,
    read::{Moment, aside, check_limit, page_len},
};
use crate::{
    clock::rfc3339,
    native::http::{App, InPath, read_query},
    trouble::Trouble,
};
use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use lockwood_model::{Change, Document, DocumentKey, Position};
use lockwood_storage::{NamespaceId, Step, StoreError};
use lockwood_wire::{
    Problem,
    documents::{
        ChangeKind, Collections, FieldDiff, History, HistoryEntry, Named, PositionAnswer, WireValue,
    },
};
use serde::Deserialize;
use std::collections::BTreeSet;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::native) struct HistoryQuery {
    /// At most so many changes.
    limit: Option<u64>,
    /// Only changes after this position: `next` of the page before.
    after: Option<u64>,
}

/// What happened to a document, oldest first, as far back as is kept.
#[utoipa::path(get, path = "/v1/{namespace}/history/{collection}/{key}",
    params(("namespace" = String, Path), ("collection" = String, Path), ("key" = String, Path), HistoryQuery),
    responses((status = 200, body = History), (status = 404, body = Problem)))]
pub(in crate::native) async fn history(
    State(shared): App,
    InPath((namespace, collection, key)): InPath<(String, String, String)>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Result<Response, Trouble> {
    let query = read_query(query)?;
    check_limit(query.limit)?;
    let at = Decoder(&shared.config.limits).document_at(&collection, &key)?;
    let len_max = page_len(&shared, query.limit)?;
    aside(move || {
        let moment = Moment::now(&shared, &namespace)?;
        let Some(id) = moment.namespace else { return Err(no_document(&at)) };
        let state = moment.reading.state();
        if state.document_bytes(id, &at)?.is_none() {
            return Err(no_document(&at));
        }
        let after = Position(query.after.unwrap_or(0));
        moment.check_reached(&shared, after)?;
        // One more than wanted shows whether there is another page.
        let mut entries = Vec::new();
        state.each_step(id, &at, after, len_max + 1, &mut |step| {
            entries.push(entry(&moment, (id, &at), step)?);
            Ok(())
        })?;
        entries.reverse();
        let more = entries.len() > len_max;
        entries.truncate(len_max);
        let next = entries.last().filter(|_| more).map(|entry: &HistoryEntry| entry.position);
        Ok(json_of(&History { position: moment.position.0, entries, next }))
    })
    .await
}

fn entry(
    moment: &Moment,
    (id, at): (NamespaceId, &DocumentKey),
    step: &Step,
) -> Result<HistoryEntry, StoreError> {
    let origin = moment.reading.state().origin(id, at, step.position)?;
    Ok(HistoryEntry {
        position: step.position.0,
        at: rfc3339(origin.as_ref().map(|origin| origin.at).unwrap_or_default()),
        user: origin.as_ref().and_then(|origin| origin.user.as_ref()).map(WireValue::from),
        note: origin.as_ref().and_then(|origin| origin.note.as_ref()).map(WireValue::from),
        event: kind(moment, (id, at), step)?,
        changes: changes(step.before.as_ref(), &step.after),
    })
}

fn kind(
    moment: &Moment,
    (id, at): (NamespaceId, &DocumentKey),
    step: &Step,
) -> Result<ChangeKind, StoreError> {
    Ok(match (step.before.as_ref().map(|before| before.deleted), step.after.deleted) {
        (None, _) => ChangeKind::Created,
        (Some(false), true) => ChangeKind::Deleted,
        (Some(true), false) if is_new_life(moment, (id, at), step.position)? => ChangeKind::Created,
        (Some(true), false) => ChangeKind::Restored,
        _ => ChangeKind::Updated,
    })
}

/// Only the commit tells a document that was restored from one that was put anew. A document that came from another
/// shard came without its commits; its new life is told as a restoration there.
fn is_new_life(
    moment: &Moment,
    (id, at): (NamespaceId, &DocumentKey),
    position: Position,
) -> Result<bool, StoreError> {
    let Some(found) = moment.reading.state().commit(id, position)? else { return Ok(false) };
    let mut own = found.commit.events.iter().filter(|event| event.at == *at);
    Ok(own.any(|event| matches!(event.change, Change::Recreated { .. })))
}

/// The fields that differ, by name. A deleted document keeps its fields, so its end alone changes none.
fn changes(before: Option<&Document>, after: &Document) -> Named<FieldDiff> {
    let names: BTreeSet<&str> =
        before.into_iter().chain([after]).flat_map(Document::present).map(|(name, _)| name).collect();
    let value = |document: Option<&Document>, name| document?.get(name).map(WireValue::from);
    let diffs = names.into_iter().filter_map(|name| {
        let diff = FieldDiff { before: value(before, name), after: value(Some(after), name) };
        (diff.before != diff.after).then(|| (name.into(), diff))
    });
    Named(diffs.collect())
}

/// Where a namespace stands, and how far back its history goes.
#[utoipa::path(get, path = "/v1/{namespace}/position", params(("namespace" = String, Path)),
    responses((status = 200, body = PositionAnswer), (status = 400, body = Problem)))]
pub(in crate::native) async fn position(
    State(shared): App,
    InPath(namespace): InPath<String>,
) -> Result<Response, Trouble> {
    let moment = Moment::now(&shared, &namespace)?;
    Ok(json_of(&PositionAnswer { position: moment.position.0, horizon: moment.horizon()?.0 }))
}

/// The collections that have or had documents, by name.
#[utoipa::path(get, path = "/v1/{namespace}/collections", params(("namespace" = String, Path)),
    responses((status = 200, body = Collections), (status = 400, body = Problem)))]
pub(in crate::native) async fn collections(
    State(shared): App,
    InPath(namespace): InPath<String>,
) -> Result<Response, Trouble> {
    aside(move || {
        let moment = Moment::now(&shared, &namespace)?;
        let collections =
            moment.namespace.map_or(Ok(Vec::new()), |id| moment.reading.state().collections(id))?;
        Ok(json_of(&Collections { position: moment.position.0, collections }))
    })
    .await
}
