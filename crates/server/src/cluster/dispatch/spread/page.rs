//! A page of documents, put together from the same page of every shard. Knows nothing of how a shard finds its own.

use super::{
    super::{Message, Whole},
    Answer,
    ask::{Asker, Stop},
    cut::{Cut, Manner},
    first, is_everywhere, target,
};
use crate::native::{PagePlan, check_access, collection_resource, isolation_in_force, list_request};
use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use hyper::header;
use lockwood_model::{FieldPath, Fields, META_DELETED, META_POSITION, Projection};
use lockwood_node::{
    shard::{Place, order},
    trouble::Trouble,
};
use lockwood_router::ShardNo;
use lockwood_wire::documents::FilterRequest;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap};

/// The documents of a collection, by key.
pub(super) async fn list(ask: &Asker<'_>, namespace: &str, collection: &str, whole: &Whole) -> Answer {
    let request = list_request(ask.shared, collection, &whole.parts.uri)?;
    filter(ask, namespace, request, whole).await
}

/// The documents of a collection that match, sorted.
pub(super) async fn filter(
    ask: &Asker<'_>,
    namespace: &str,
    request: FilterRequest,
    whole: &Whole,
) -> Answer {
    if is_everywhere(&request.collection) {
        return first(ask, whole).await;
    }
    let plan = PagePlan::new(ask.shared, request)?;
    let request = &plan.request;
    let asked = (request.isolation, request.at);
    let isolation = isolation_in_force(ask.shared, namespace, [request.collection.as_str()], asked)?;
    let manner = Manner { isolation, tokens: request.tokens.clone(), wait_ms: request.wait_ms };
    check_access(ask.shared, manner.isolation, (&manner.tokens, manner.wait_ms), request.at)?;
    let shards: Vec<ShardNo> = ask.current.map.shard_numbers().collect();
    let whole = |_| vec![collection_resource(&request.collection)];
    let cut = Cut::begin(ask, namespace, &shards, request.at, (&manner, whole)).await?;
    let pages = ask_pages(ask, namespace, &plan, &cut, &manner).await?;
    let position = cut.told(pages.iter().map(|page| page.position));
    cut.end()?;
    Ok(merge(&plan, position, &pages, ask.shared.config.limits.answer_bytes_max)?)
}

/// A page as a shard gives it, with documents that are not taken apart.
#[derive(Deserialize)]
struct Page {
    position: u64,
    documents: Vec<Box<RawValue>>,
    next: Option<String>,
}

async fn ask_pages(
    ask: &Asker<'_>,
    namespace: &str,
    plan: &PagePlan,
    cut: &Cut<'_>,
    manner: &Manner,
) -> Result<Vec<Page>, Stop> {
    let target = target(namespace, "filter");
    let replies = ask.all(|_| {
        let Manner { isolation, tokens, wait_ms } = manner.part();
        let (fields, limit, at) = (fields(plan), Some(plan.len_max as u64), cut.at);
        let isolation = Some(isolation);
        let part = FilterRequest { fields, limit, at, isolation, tokens, wait_ms, ..plan.request.clone() };
        cut.message(Message::json(&target, &part))
    });
    replies.await?.into_iter().map(|reply| reply.read()).collect()
}

/// What is wanted of each document, and what it is sorted by.
fn fields(plan: &PagePlan) -> Option<Vec<String>> {
    let mut fields = plan.request.fields.clone()?;
    fields.extend(hidden(plan).map(ToString::to_string));
    Some(fields)
}

/// The fields that are sorted by and not wanted.
fn hidden(plan: &PagePlan) -> impl Iterator<Item = &FieldPath> {
    let wanted = plan.fields.as_ref();
    let is_hidden = move |field: &&FieldPath| {
        field.root() != META_DELETED
            && field.root() != META_POSITION
            && wanted.is_some_and(|wanted| !wanted.contains(field))
    };
    plan.sort.iter().map(|sort| &sort.field).filter(is_hidden)
}

/// A document as a shard shows it.
#[derive(Deserialize)]
struct Shown<'a> {
    #[serde(borrow)]
    collection: Cow<'a, str>,
    #[serde(borrow)]
    key: Cow<'a, str>,
    position: u64,
    created: u64,
    deleted: bool,
    #[serde(borrow)]
    value: Members<'a>,
}

#[derive(Deserialize)]
struct Members<'a>(#[serde(borrow)] BTreeMap<Cow<'a, str>, &'a RawValue>);

impl Shown<'_> {
    /// Where it comes in the order.
    fn place(&self, plan: &PagePlan) -> Option<Place> {
        let values = plan.sort.iter().map(|sort| self.at(&sort.field));
        let values = values.map(|value| value.map_or_else(|| "null".to_owned(), Cow::into_owned)).collect();
        Some(Place { values, key: self.key.parse().ok()? })
    }

    /// The same with the wanted fields only.
    fn write(&self, fields: &Projection, out: &mut Vec<u8>) {
        let Shown { collection, key, position, created, deleted, value } = self;
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let head = format!(
            "{{\"collection\":{},\"key\":{},\"position\":{position},\"created\":{created},\"deleted\":{deleted},\
             \"value\":{{",
            text(collection),
            text(key)
        );
        out.extend_from_slice(head.as_bytes());
        let known = fields.fields(|name| value.0.get(name).map(|value| value.get()));
        for (index, (name, value)) in known.enumerate() {
            out.extend_from_slice(if index > 0 { b"," } else { b"" });
            out.extend_from_slice(text(name).as_bytes());
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
        }
        out.extend_from_slice(b"}}");
    }
}

impl Fields for Shown<'_> {
    fn value(&self, field: &str) -> Option<Cow<'_, str>> {
        match field {
            META_DELETED => Some(Cow::Borrowed(if self.deleted { "true" } else { "false" })),
            META_POSITION => (self.position > 0).then(|| Cow::Owned(self.position.to_string())),
            _ => self.value.0.get(field).map(|value| Cow::Borrowed(value.get())),
        }
    }
}

/// The first of all documents, in the same order as on every page.
fn merge(plan: &PagePlan, position: u64, pages: &[Page], bytes_max: u64) -> Result<Response, Trouble> {
    let mut documents: Vec<(Place, &RawValue)> = Vec::new();
    for document in pages.iter().flat_map(|page| &page.documents) {
        let shown = shown(document)?;
        documents.push((shown.place(plan).ok_or_else(misshown)?, document));
    }
    documents.sort_by(|(a, _), (b, _)| order(&plan.sort, a, b));
    let more = documents.len() > plan.len_max || pages.iter().any(|page| page.next.is_some());
    documents.truncate(plan.len_max);
    let cut_down = plan.fields.as_ref().filter(|_| hidden(plan).next().is_some()).map(Projection::new);
    let mut out = format!("{{\"position\":{position},\"documents\":[").into_bytes();
    for (index, (_, document)) in documents.iter().enumerate() {
        out.extend_from_slice(if index > 0 { b"," } else { b"" });
        match &cut_down {
            None => out.extend_from_slice(document.get().as_bytes()),
            Some(fields) => shown(document)?.write(fields, &mut out),
        }
        if out.len() as u64 > bytes_max {
            let what = "the answer is too large; ask for fewer documents or fields at once";
            return Err(Trouble::over("answer_bytes_max", bytes_max, what));
        }
    }
    out.push(b']');
    if let Some((place, _)) = documents.last().filter(|_| more) {
        out.extend_from_slice(format!(",\"next\":\"{}\"", plan.cursor(place)).as_bytes());
    }
    out.push(b'}');
    Ok(([(header::CONTENT_TYPE, "application/json")], Body::from(out)).into_response())
}

fn shown(document: &RawValue) -> Result<Shown<'_>, Trouble> {
    serde_json::from_str(document.get()).map_err(|_| misshown())
}

fn misshown() -> Trouble {
    let message = "a shard showed a document that cannot be read";
    Trouble::new(lockwood_wire::Code::ShardUnreachable, message)
}
