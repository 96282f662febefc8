//! Reading documents: one, several, or those that match. Every answer says at which position it was true.

use super::{
    answer::{self, json, json_of, no_document, open, too_old, write_found},
    body::JsonBody,
    cursor,
    decode::Decoder,
};
use crate::{
    native::http::{App, InPath, check_namespace, read_query},
    schemas::check_names,
    shard::{Find, Page, Place, Reading, Selection, Sort},
    shared::Shared,
    trouble::Trouble,
};
use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use lockwood_model::{Filter, Position, Scalar};
use lockwood_storage::{NamespaceId, StoreError};
use lockwood_wire::{
    Code, Problem,
    documents::{
        CountAnswer, CountRequest, Deleted, DocumentAnswer, DocumentPage, Documents, ExistsAnswer,
        ExtremeRequest, FilterRequest, GetRequest, MaxAnswer, MinAnswer, Wanted, WireFilter,
    },
};
use serde::Deserialize;
use std::{cmp::Ordering, sync::Arc};

/// A page unless `limit` says otherwise.
const PAGE_LEN: u64 = 100;

/// A namespace at one moment.
pub(super) struct Moment {
    pub(super) reading: Reading,
    /// None if nothing was ever written to it.
    pub(super) namespace: Option<NamespaceId>,
    pub(super) position: Position,
}

impl Moment {
    pub(super) fn now(shared: &Shared, name: &str) -> Result<Moment, Trouble> {
        shared.metrics.reads.add(1);
        Moment::uncounted(shared, name)
    }

    /// The same for those who look again and again.
    pub(super) fn uncounted(shared: &Shared, name: &str) -> Result<Moment, Trouble> {
        check_namespace(shared, name)?;
        let reading = shared.shard.read();
        let found = reading.namespace(name)?;
        let (namespace, position) =
            found.map_or((None, Position::START), |(id, position)| (Some(id), position));
        Ok(Moment { reading, namespace, position })
    }

    /// What happened up to here is forgotten.
    pub(super) fn horizon(&self) -> Result<Position, StoreError> {
        self.namespace.map_or(Ok(Position::START), |namespace| self.reading.state().horizon(namespace))
    }

    /// The position asked about, if the past is asked about; it must be one that is still known.
    pub(super) fn as_of(&self, at: Option<u64>) -> Result<Option<Position>, Trouble> {
        let Some(at) = at.map(Position) else { return Ok(None) };
        let horizon = self.horizon()?;
        if at < horizon {
            return Err(too_old(at, horizon));
        }
        Ok(Some(at).filter(|at| *at < self.position))
    }
}

pub(super) fn selection(deleted: Deleted) -> Selection {
    match deleted {
        Deleted::Without => Selection::Without,
        Deleted::Only => Selection::Only,
        Deleted::With => Selection::With,
    }
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::native) struct DocumentQuery {
    /// Only these fields, with commas between them.
    fields: Option<String>,
    /// As of this position.
    at: Option<u64>,
    /// Whether deleted documents are meant: without, only, with.
    #[serde(default)]
    deleted: Deleted,
}

/// One document.
#[utoipa::path(get, path = "/v1/{namespace}/documents/{collection}/{key}",
    params(("namespace" = String, Path), ("collection" = String, Path), ("key" = String, Path), DocumentQuery),
    responses((status = 200, body = DocumentAnswer), (status = 404, body = Problem), (status = 410, body = Problem)))]
pub(in crate::native) async fn document(
    State(shared): App,
    InPath((namespace, collection, key)): InPath<(String, String, String)>,
    query: Result<Query<DocumentQuery>, QueryRejection>,
) -> Result<Response, Trouble> {
    let query = read_query(query)?;
    let decoder = Decoder(&shared.config.limits);
    let at = decoder.document_at(&collection, &key)?;
    let fields = field_list(decoder, query.fields.as_deref())?;
    check_names(&shared, &namespace, &collection, names(fields.as_ref()), None)?;
    let moment = Moment::now(&shared, &namespace)?;
    let as_of = moment.as_of(query.at)?;
    let Some(id) = moment.namespace else { return Err(no_document(&at)) };
    let found = moment.reading.get(id, at.clone(), selection(query.deleted), as_of)?;
    let Some(found) = found else { return Err(absent(&moment, id, &at, as_of)?) };
    let mut body = open(as_of.unwrap_or(moment.position));
    body.extend_from_slice(b"\"document\":");
    write_found(&mut body, &found, fields.as_deref())?;
    body.push(b'}');
    Ok(json(body))
}

/// Says why a document is not there: deleted, live, or never been.
fn absent(
    moment: &Moment,
    id: NamespaceId,
    at: &lockwood_model::DocumentKey,
    as_of: Option<Position>,
) -> Result<Trouble, Trouble> {
    let Some(found) = moment.reading.get(id, at.clone(), Selection::With, as_of)? else {
        return Ok(no_document(at));
    };
    let message = if found.document()?.deleted() {
        format!("the document {at} is deleted; ask for deleted documents too (deleted: with), or restore it")
    } else {
        format!("the document {at} is not deleted, and only deleted ones were asked for")
    };
    Ok(Trouble::new(Code::NoDocument, message))
}

/// The fields that are asked for, one by one.
fn names(fields: Option<&Vec<String>>) -> impl Iterator<Item = &str> {
    fields.into_iter().flatten().map(String::as_str)
}

fn field_list(decoder: Decoder<'_>, text: Option<&str>) -> Result<Option<Vec<String>>, Trouble> {
    let Some(text) = text else { return Ok(None) };
    let names: Vec<String> = text.split(',').map(str::to_owned).collect();
    projection(decoder, Some(&names))?;
    Ok(Some(names))
}

/// Checks the fields that are wanted; the reserved ones are always told and no part of the value.
fn projection(decoder: Decoder<'_>, fields: Option<&[String]>) -> Result<(), Trouble> {
    for name in fields.into_iter().flatten() {
        decoder.field(name)?;
        if answer::is_reserved(name) {
            let message = format!("{name:?} is no field of the value; every answer has position and deleted");
            return Err(Trouble::new(Code::ReservedField, message));
        }
    }
    Ok(())
}

/// Several documents, in the order asked for; null stands for those that are not there.
#[utoipa::path(post, path = "/v1/{namespace}/get", params(("namespace" = String, Path)),
    request_body = GetRequest, responses((status = 200, body = Documents), (status = 400, body = Problem),
    (status = 410, body = Problem)))]
pub(in crate::native) async fn get_many(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, Trouble> {
    let request: GetRequest = body.read()?;
    let decoder = Decoder(&shared.config.limits);
    let limit = shared.config.limits.documents_per_get_max;
    if request.documents.len() as u64 > limit {
        let what = format!("{} documents are too many at once", request.documents.len());
        return Err(Trouble::over("documents_per_get_max", limit, &what));
    }
    projection(decoder, request.fields.as_deref())?;
    for Wanted { collection, fields, .. } in &request.documents {
        check_names(
            &shared,
            &namespace,
            collection,
            names(fields.as_ref().or(request.fields.as_ref())),
            None,
        )?;
    }
    let moment = Moment::now(&shared, &namespace)?;
    let as_of = moment.as_of(request.at)?;
    let mut out = Answer::new(&shared, as_of.unwrap_or(moment.position));
    for Wanted { collection, key, fields } in &request.documents {
        let at = decoder.document(collection, key)?;
        projection(decoder, fields.as_deref())?;
        let found = match moment.namespace {
            Some(id) => moment.reading.get(id, at, selection(request.deleted), as_of)?,
            None => None,
        };
        out.push(found.as_ref(), fields.as_deref().or(request.fields.as_deref()))?;
    }
    Ok(out.finish(None))
}

/// An answer with documents, growing within its limit.
struct Answer {
    bytes: Vec<u8>,
    bytes_max: u64,
    first: bool,
}

impl Answer {
    fn new(shared: &Shared, position: Position) -> Answer {
        let mut bytes = open(position);
        bytes.extend_from_slice(b"\"documents\":[");
        Answer { bytes, bytes_max: shared.config.limits.answer_bytes_max, first: true }
    }

    fn push(
        &mut self,
        found: Option<&crate::shard::Found>,
        fields: answer::Projection<'_>,
    ) -> Result<(), Trouble> {
        if !std::mem::take(&mut self.first) {
            self.bytes.push(b',');
        }
        match found {
            Some(found) => write_found(&mut self.bytes, found, fields)?,
            None => self.bytes.extend_from_slice(b"null"),
        }
        if self.bytes.len() as u64 > self.bytes_max {
            let what = "the answer is too large; ask for fewer documents or fields at once";
            return Err(Trouble::over("answer_bytes_max", self.bytes_max, what));
        }
        Ok(())
    }

    fn finish(mut self, next: Option<&str>) -> Response {
        self.bytes.push(b']');
        if let Some(next) = next {
            self.bytes.extend_from_slice(b",\"next\":");
            answer::write_text(&mut self.bytes, next);
        }
        self.bytes.push(b'}');
        json(self.bytes)
    }
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::native) struct DocumentsQuery {
    /// At most so many documents.
    limit: Option<u64>,
    /// From where the page before ended: its `next`.
    cursor: Option<String>,
    /// Only these fields, with commas between them.
    fields: Option<String>,
    /// Whether deleted documents are meant: without, only, with.
    #[serde(default)]
    deleted: Deleted,
    /// As of this position.
    at: Option<u64>,
}

/// The documents of a collection, by key.
#[utoipa::path(get, path = "/v1/{namespace}/documents/{collection}",
    params(("namespace" = String, Path), ("collection" = String, Path), DocumentsQuery),
    responses((status = 200, body = DocumentPage), (status = 400, body = Problem), (status = 410, body = Problem)))]
pub(in crate::native) async fn documents(
    State(shared): App,
    InPath((namespace, collection)): InPath<(String, String)>,
    query: Result<Query<DocumentsQuery>, QueryRejection>,
) -> Result<Response, Trouble> {
    let DocumentsQuery { limit, cursor, fields, deleted, at } = read_query(query)?;
    check_limit(limit)?;
    let fields = field_list(Decoder(&shared.config.limits), fields.as_deref())?;
    let request =
        FilterRequest { collection, limit, cursor, fields, deleted, at, ..FilterRequest::default() };
    page(shared, namespace, request).await
}

/// The documents of a collection that match, sorted, page by page.
#[utoipa::path(post, path = "/v1/{namespace}/filter", params(("namespace" = String, Path)),
    request_body = FilterRequest, responses((status = 200, body = DocumentPage), (status = 400, body = Problem),
    (status = 410, body = Problem)))]
pub(in crate::native) async fn filter(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, Trouble> {
    let request = body.read()?;
    page(shared, namespace, request).await
}

async fn page(shared: Arc<Shared>, namespace: String, request: FilterRequest) -> Result<Response, Trouble> {
    aside(move || {
        let decoder = Decoder(&shared.config.limits);
        projection(decoder, request.fields.as_deref())?;
        let sorted = request.sort.iter().map(|sort| &*sort.field);
        let named = names(request.fields.as_ref()).chain(sorted);
        check_names(&shared, &namespace, &request.collection, named, None)?;
        let search = Search::new(
            &shared,
            &namespace,
            (&request.collection, request.filter.as_ref()),
            request.deleted,
            request.at,
        )?;
        let sort = sort(decoder, &request)?;
        let len_max = page_len(&shared, request.limit)?;
        let after =
            request.cursor.as_deref().map(|text| place(&request.collection, &sort, text)).transpose()?;
        let page = match &search.find {
            None => Page::default(),
            Some(find) => search.moment.reading.page(find, &sort, after.as_ref(), len_max)?,
        };
        let mut out = Answer::new(&shared, search.position);
        page.documents.iter().try_for_each(|found| out.push(Some(found), request.fields.as_deref()))?;
        let next = page.next.map(|place| cursor::write(&request.collection, &sort, &place));
        Ok(out.finish(next.as_deref()))
    })
    .await
}

/// Work that may take long is done beside the threads that serve connections.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Trouble> + Send + 'static,
) -> Result<T, Trouble> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(%error, "answer a question about documents");
            Err(Trouble::storage_failed())
        }
    }
}

fn place(collection: &str, sort: &[Sort], text: &str) -> Result<Place, Trouble> {
    cursor::read(collection, sort, text).ok_or_else(|| {
        let message = "the cursor is not one for this list; pass `next` of the page before, with the same \
                       collection and sort";
        Trouble::new(Code::BadCursor, message)
    })
}

fn sort(decoder: Decoder<'_>, request: &FilterRequest) -> Result<Vec<Sort>, Trouble> {
    let limit = decoder.0.sort_fields_max;
    if request.sort.len() as u64 > limit {
        return Err(Trouble::over("sort_fields_max", limit, "there are too many fields to sort by"));
    }
    let sort = request.sort.iter().map(|sort| {
        decoder.field(&sort.field)?;
        Ok(Sort { field: sort.field.as_str().into(), descending: sort.descending })
    });
    sort.collect()
}

/// That the limit in an address is one.
pub(super) fn check_limit(limit: Option<u64>) -> Result<(), Trouble> {
    match limit {
        Some(0) => Err(Trouble::new(Code::BadQuery, "limit counts from 1")),
        _ => Ok(()),
    }
}

pub(super) fn page_len(shared: &Shared, limit: Option<u64>) -> Result<usize, Trouble> {
    let most = shared.config.limits.documents_per_page_max;
    match limit {
        None => Ok(PAGE_LEN.min(most) as usize),
        Some(0) => Err(Trouble::new(Code::BadBody, "limit counts from 1")),
        Some(len) if len > most => Err(Trouble::over("documents_per_page_max", most, "limit is too large")),
        Some(len) => Ok(len as usize),
    }
}

/// A question about a collection, ready to be asked.
struct Search {
    moment: Moment,
    position: Position,
    /// None if there is nothing to look at.
    find: Option<Find>,
}

impl Search {
    fn new(
        shared: &Shared,
        namespace: &str,
        (collection, filter): (&str, Option<&WireFilter>),
        deleted: Deleted,
        at: Option<u64>,
    ) -> Result<Search, Trouble> {
        let decoder = Decoder(&shared.config.limits);
        decoder.collection(collection)?;
        let filter: Option<Filter> = filter.map(|filter| decoder.filter(filter)).transpose()?;
        check_names(shared, namespace, collection, [], filter.as_ref())?;
        let moment = Moment::now(shared, namespace)?;
        let at = moment.as_of(at)?;
        let find = moment.namespace.map(|namespace| Find {
            namespace,
            collection: collection.into(),
            filter,
            deleted: selection(deleted),
            at,
            looks_max: shared.config.limits.looks_max,
        });
        Ok(Search { position: at.unwrap_or(moment.position), moment, find })
    }

    fn of_count(shared: &Shared, namespace: &str, request: &CountRequest) -> Result<Search, Trouble> {
        let CountRequest { collection, filter, deleted, at } = request;
        Search::new(shared, namespace, (collection, filter.as_ref()), *deleted, *at)
    }
}

/// How many documents match.
#[utoipa::path(post, path = "/v1/{namespace}/count", params(("namespace" = String, Path)),
    request_body = CountRequest, responses((status = 200, body = CountAnswer), (status = 400, body = Problem)))]
pub(in crate::native) async fn count(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, Trouble> {
    aside(move || {
        let search = Search::of_count(&shared, &namespace, &body.read()?)?;
        let count = search.find.as_ref().map_or(Ok(0), |find| search.moment.reading.count(find))?;
        Ok(json_of(&CountAnswer { position: search.position.0, count }))
    })
    .await
}

/// Whether any document matches.
#[utoipa::path(post, path = "/v1/{namespace}/exists", params(("namespace" = String, Path)),
    request_body = CountRequest, responses((status = 200, body = ExistsAnswer), (status = 400, body = Problem)))]
pub(in crate::native) async fn exists(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, Trouble> {
    aside(move || {
        let search = Search::of_count(&shared, &namespace, &body.read()?)?;
        let exists = search.find.as_ref().map_or(Ok(false), |find| search.moment.reading.exists(find))?;
        Ok(json_of(&ExistsAnswer { position: search.position.0, exists }))
    })
    .await
}

/// The smallest value of a field among the documents that match; null if none has it.
#[utoipa::path(post, path = "/v1/{namespace}/min", params(("namespace" = String, Path)),
    request_body = ExtremeRequest, responses((status = 200, body = MinAnswer), (status = 400, body = Problem)))]
pub(in crate::native) async fn min(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, Trouble> {
    extreme(shared, namespace, body, Ordering::Less).await
}

/// The largest value of a field among the documents that match; null if none has it.
#[utoipa::path(post, path = "/v1/{namespace}/max", params(("namespace" = String, Path)),
    request_body = ExtremeRequest, responses((status = 200, body = MaxAnswer), (status = 400, body = Problem)))]
pub(in crate::native) async fn max(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, Trouble> {
    extreme(shared, namespace, body, Ordering::Greater).await
}

async fn extreme(
    shared: Arc<Shared>,
    namespace: String,
    body: JsonBody,
    wanted: Ordering,
) -> Result<Response, Trouble> {
    aside(move || {
        let ExtremeRequest { collection, field, filter, deleted, at } = body.read()?;
        Decoder(&shared.config.limits).field(&field)?;
        check_names(&shared, &namespace, &collection, [&*field], None)?;
        let search = Search::new(&shared, &namespace, (&collection, filter.as_ref()), deleted, at)?;
        let counts = |value: &Scalar<'_>| !matches!(value, Scalar::Compound(_) | Scalar::Null);
        let value = match &search.find {
            None => None,
            Some(find) => search.moment.reading.extreme(find, &field, wanted, counts)?,
        };
        let mut out = open(search.position);
        let name: &[u8] = if wanted == Ordering::Less { b"\"min\":" } else { b"\"max\":" };
        out.extend_from_slice(name);
        out.extend_from_slice(value.as_deref().unwrap_or("null").as_bytes());
        out.push(b'}');
        Ok(json(out))
    })
    .await
}
