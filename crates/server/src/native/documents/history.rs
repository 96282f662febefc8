//! What happened to one document, and where a namespace stands. Knows nothing of how history is kept.

use super::{
    address::Addressed,
    answer::json_of,
    decode::Decoder,
    read::{Moment, aside, check_limit, page_len},
};
use crate::native::{
    HttpError,
    http::{App, InPath},
    query::InQuery,
};
use axum::{extract::State, response::Response};
use lockwood_model::{Change, Document, DocumentKey, Json, Path, Position, node};
use lockwood_node::{
    clock::rfc3339,
    refusals::{no_document, no_node},
    schemas::check_node,
    work::Job,
};
use lockwood_storage::{DocumentRef, NamespaceId, Step, StoreError};
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
    /// Only changes that touched this node, a field or something in a field: `/address/city`. The address may name
    /// the node as well: `history/user/42/address/city`.
    path: Option<String>,
}

/// So many changes of a document are looked at for a page with those of one node.
const STEPS_MAX: usize = 10_000;

/// What happened to a document, oldest first, as far back as is kept.
#[utoipa::path(get, path = "/v1/{namespace}/history/{collection}/{key}",
    params(("namespace" = String, Path), ("collection" = String, Path), ("key" = String, Path), HistoryQuery),
    responses((status = 200, body = History), (status = 404, body = Problem)))]
pub(in crate::native) async fn history(
    State(shared): App,
    address: Addressed,
    InQuery(query): InQuery<HistoryQuery>,
) -> Result<Response, HttpError> {
    check_limit(query.limit)?;
    let node = address.node(query.path.as_deref())?;
    let Addressed { namespace, document: at, .. } = address;
    if let Some(node) = &node {
        Decoder(&shared.config.limits).node(node)?;
        check_node(&Job::new(&shared), &namespace, &at.collection, node).await?;
    }
    let node = node.filter(|node| !node.is_empty());
    let len_max = page_len(&shared, query.limit)?;
    Ok(aside(move || {
        let moment = Moment::now(&shared, &namespace)?;
        let Some(id) = moment.namespace else { return Err(no_document(&at)) };
        let state = moment.reading.state();
        let Some(bytes) = state.document_bytes(id, &at)? else { return Err(no_document(&at)) };
        let is_there = node
            .as_ref()
            .is_none_or(|node| DocumentRef::read(&bytes).is_ok_and(|document| is_in(&document, node)));
        let after = Position(query.after.unwrap_or(0));
        moment.check_reached(&shared, &namespace, after)?;
        let (entries, next) = page(&moment, (id, &at), node.as_ref(), after, len_max)?;
        // Nothing ever happened to it, as far as is kept, and it is not there.
        if let Some(node) = node.as_ref().filter(|_| !is_there && entries.is_empty())
            && next.is_none()
            && after == Position(0)
        {
            return Err(no_node(&at, node));
        }
        Ok(json_of(&History { position: moment.position.0, entries, next }))
    })
    .await?)
}

/// The changes after a position, oldest first, and where the next page begins.
fn page(
    moment: &Moment,
    (id, at): (NamespaceId, &DocumentKey),
    node: Option<&Path>,
    mut after: Position,
    len_max: usize,
) -> Result<(Vec<HistoryEntry>, Option<u64>), StoreError> {
    let (mut entries, mut steps_len) = (Vec::new(), 0);
    loop {
        // One more than wanted shows whether there is another page.
        let (mut found, mut seen_len, mut last) = (Vec::new(), 0, after);
        moment.reading.state().each_step(id, at, after, len_max + 1, &mut |step| {
            seen_len += 1;
            last = last.max(step.position);
            if node.is_none_or(|node| touches(step, node)) {
                found.push(entry(moment, (id, at), step, node)?);
            }
            Ok(())
        })?;
        entries.extend(found.into_iter().rev());
        if entries.len() > len_max {
            entries.truncate(len_max);
            let next = entries.last().map(|entry: &HistoryEntry| entry.position);
            return Ok((entries, next));
        }
        if seen_len <= len_max {
            return Ok((entries, None));
        }
        steps_len += seen_len;
        after = last;
        if steps_len >= STEPS_MAX {
            return Ok((entries, Some(after.0)));
        }
    }
}

/// Whether a change concerns a node: its value is another one, or it came or went with its document.
fn touches(step: &Step, node: &Path) -> bool {
    let before = step.before.as_ref().and_then(|before| node_of(before, node));
    let after = node_of(&step.after, node);
    let exists = |document: &Document| !document.deleted;
    let comes_or_goes = step.before.as_ref().is_some_and(exists) != exists(&step.after);
    before != after || comes_or_goes && (before.is_some() || after.is_some())
}

/// Whether a document has a node, as it is kept.
fn is_in(document: &DocumentRef<'_>, node: &Path) -> bool {
    let mut segments = node.segments();
    let value = segments.next().and_then(|field| document.get(field));
    value.is_some_and(|value| node::find(value, segments).is_some())
}

/// The JSON of a node of a document.
fn node_of<'a>(document: &'a Document, node: &Path) -> Option<&'a str> {
    let mut segments = node.segments();
    let value = document.get(segments.next()?)?;
    node::find(value.as_str(), segments)
}

fn entry(
    moment: &Moment,
    (id, at): (NamespaceId, &DocumentKey),
    step: &Step,
    node: Option<&Path>,
) -> Result<HistoryEntry, StoreError> {
    let origin = moment.reading.state().origin(id, at, step.position)?;
    Ok(HistoryEntry {
        position: step.position.0,
        at: rfc3339(origin.as_ref().map(|origin| origin.at).unwrap_or_default()),
        user: origin.as_ref().and_then(|origin| origin.user.as_ref()).map(WireValue::from),
        note: origin.as_ref().and_then(|origin| origin.note.as_ref()).map(WireValue::from),
        event: kind(moment, (id, at), step)?,
        changes: match node {
            Some(node) => node_changes(step, node),
            None => changes(step.before.as_ref(), &step.after),
        },
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

/// What the node was and is, by its path, if that differs.
fn node_changes(step: &Step, node: &Path) -> Named<FieldDiff> {
    let value =
        |document: &Document| node_of(document, node).map(|json| WireValue::from(&Json::trusted(json)));
    let diff = FieldDiff { before: step.before.as_ref().and_then(value), after: value(&step.after) };
    let differs = diff.before != diff.after;
    Named(differs.then(|| (node.to_string().into(), diff)).into_iter().collect())
}

/// Where a namespace stands, and how far back its history goes.
#[utoipa::path(get, path = "/v1/{namespace}/position", params(("namespace" = String, Path)),
    responses((status = 200, body = PositionAnswer), (status = 400, body = Problem)))]
pub(in crate::native) async fn position(
    State(shared): App,
    InPath(namespace): InPath<String>,
) -> Result<Response, HttpError> {
    let moment = Moment::now(&shared, &namespace)?;
    Ok(json_of(&PositionAnswer { position: moment.position.0, horizon: moment.horizon(&namespace)?.0 }))
}

/// The collections that have or had documents, by name.
#[utoipa::path(get, path = "/v1/{namespace}/collections", params(("namespace" = String, Path)),
    responses((status = 200, body = Collections), (status = 400, body = Problem)))]
pub(in crate::native) async fn collections(
    State(shared): App,
    InPath(namespace): InPath<String>,
) -> Result<Response, HttpError> {
    Ok(aside(move || {
        let moment = Moment::now(&shared, &namespace)?;
        let collections =
            moment.namespace.map_or(Ok(Vec::new()), |id| moment.reading.state().collections(id))?;
        Ok(json_of(&Collections { position: moment.position.0, collections }))
    })
    .await?)
}
