//! Reading documents: one, several, or those that match. Every answer says at which position it was true.

use super::{
    address::Addressed,
    answer::{self, before_purge, json, json_of, open, write_document, write_found, write_node},
    body::JsonBody,
    cursor,
    decode::Decoder,
    etag::{Conditions, tagged},
    isolation::{self, Access, Scope, Sought, search},
    terms::read_terms,
};
use crate::{
    cluster::{NOWHERE, custody},
    native::{
        HttpError,
        http::{App, InPath, check_namespace},
        query::{self, InQuery},
    },
    shared::Shared,
};
use axum::{
    extract::{FromRequestParts, Request, State},
    response::{IntoResponse, Response},
};
use hyper::Uri;
use lockwood_model::{Depth, DocumentKey, FieldPath, Key, Path, Position, Projection, Resource, Scalar};
use lockwood_node::{
    refusals::{ahead, no_document, too_old},
    schemas::{check_fields, check_node},
    shard::{Any, Count, Custody, Extreme, Found, Gather, Pager, Place, Reading, Selection, Sort},
    trouble::Trouble,
    work::Job,
};
use lockwood_storage::{NamespaceId, StoreError};
use lockwood_wire::{
    Code, Problem,
    documents::{
        CountAnswer, CountRequest, Deleted, DocumentAnswer, DocumentPage, Documents, ExistsAnswer,
        ExtremeRequest, FilterRequest, GetRequest, Isolation, MaxAnswer, MinAnswer, NodeAnswer, Wanted,
        WireFilter,
    },
};
use serde::Deserialize;
use std::{cmp::Ordering, collections::BTreeSet, sync::Arc};

/// Longer pages are written beside the threads that serve connections.
const SHORT_PAGE_LEN: usize = 100;
/// A page unless `limit` says otherwise.
const PAGE_LEN: u64 = 100;

/// A namespace at one moment.
pub(super) struct Moment {
    pub(super) reading: Reading,
    /// None if nothing was ever written to it, or nothing since it was purged.
    pub(super) namespace: Option<NamespaceId>,
    /// Whatever is written later is after this position, and whatever was written before is in it.
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
        Moment::of(shared.shard.read(), name)
    }

    /// The moment of a reading.
    pub(super) fn of(reading: Reading, name: &str) -> Result<Moment, Trouble> {
        let (namespace, position) = match reading.namespace(name)? {
            Some((id, position)) => (Some(id), position),
            None => (None, reading.position(name)?),
        };
        Ok(Moment { reading, namespace, position })
    }

    /// What happened up to here is forgotten.
    pub(super) fn horizon(&self, name: &str) -> Result<Position, StoreError> {
        let state = self.reading.state();
        self.namespace.map_or_else(|| state.past(name), |namespace| state.horizon(namespace))
    }

    /// Refuses a position that is forgotten; whoever was there is told if it is because of a purge.
    pub(super) fn check_kept(&self, name: &str, position: Position) -> Result<(), Trouble> {
        let horizon = self.horizon(name)?;
        if position >= horizon {
            return Ok(());
        }
        let purged = self.reading.state().past(name)?;
        Err(if position < purged { before_purge(name, position, purged) } else { too_old(position, horizon) })
    }

    /// Refuses a position of the future. Nodes of a cluster are at different positions, and a node may be asked
    /// about one that another node has told.
    pub(super) fn check_reached(
        &self,
        shared: &Shared,
        name: &str,
        position: Position,
    ) -> Result<(), Trouble> {
        let is_ahead = position > self.position && !shared.cluster.has_spread_now(name)?;
        if is_ahead { Err(ahead(position, self.position)) } else { Ok(()) }
    }

    /// The position asked about, if the past is asked about; it must be one that is still known.
    pub(super) fn as_of(&self, name: &str, at: Option<u64>) -> Result<Option<Position>, Trouble> {
        let Some(at) = at.map(Position) else { return Ok(None) };
        self.check_kept(name, at)?;
        let written = self.namespace.map_or(Ok(Position::START), |id| self.reading.state().position(id))?;
        Ok(Some(at).filter(|at| *at < written))
    }

    /// The position of an answer to whoever asked about `at`.
    pub(super) fn told(&self, at: Option<u64>) -> Position {
        at.map_or(self.position, |at| self.position.min(Position(at)))
    }

    /// The namespace to search in; with others' documents there may be something to be found though there is
    /// nothing here.
    pub(super) fn searched(&self, custody: Option<&Arc<dyn Custody>>) -> Option<NamespaceId> {
        self.namespace.or_else(|| custody.map(|_| NOWHERE))
    }
}

pub(super) fn selection(deleted: Deleted) -> Selection {
    match deleted {
        Deleted::Without => Selection::Without,
        Deleted::Only => Selection::Only,
        Deleted::With => Selection::With,
    }
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::native) struct DocumentQuery {
    /// Only these fields, or what is inside them (`address.zip`), with commas between them.
    fields: Option<String>,
    /// As of this position.
    at: Option<u64>,
    /// Whether deleted documents are meant: without, only, with.
    #[serde(default)]
    deleted: Deleted,
    /// Only this node, a field or something in a field: `/address/city`, with %2F for a slash inside a name. The
    /// answer then is a node instead of a document. The address may name the node as well:
    /// `documents/user/42/address/city`.
    path: Option<String>,
    /// How many levels of the node, or of the document, 1 being itself alone; all if absent. What is deeper is cut
    /// off, and the answer says where.
    depth: Option<u64>,
    /// How the read stands to locks: snapshot, locked, document; as the collection or the namespace is set if absent.
    isolation: Option<Isolation>,
    /// Tokens of locks the reader holds, with commas between them. If one of them is over, nothing is read.
    token: Option<String>,
    /// How many milliseconds to wait for others' locks.
    wait_ms: Option<u64>,
}

/// One document, or one node of it.
#[utoipa::path(get, path = "/v1/{namespace}/documents/{collection}/{key}",
    params(("namespace" = String, Path), ("collection" = String, Path), ("key" = String, Path), DocumentQuery,
    ("If-Match" = Option<String>, Header, description = "Only if the document has one of these ETags."),
    ("If-None-Match" = Option<String>, Header, description = "Only if the document has none of these ETags.")),
    responses((status = 200, body = DocumentOrNode, headers(("ETag" = String,
    description = "The position of the document's last change, in quotes."))),
    (status = 304, description = "The document has an ETag that the reader knows."),
    (status = 404, body = Problem), (status = 409, body = Problem), (status = 410, body = Problem),
    (status = 412, body = Problem), (status = 423, body = Problem)))]
pub(in crate::native) async fn document(
    State(shared): App,
    address: Addressed,
    InQuery(query): InQuery<DocumentQuery>,
    conditions: Conditions,
) -> Result<Response, HttpError> {
    let wanted = WantedPart::new(Decoder(&shared.config.limits), &address, &query)?;
    let Addressed { namespace, document: at, .. } = address;
    let terms = (query.token.as_deref(), query.wait_ms);
    wanted.check_names(&Job::new(&shared), &namespace, &at.collection).await?;
    let manner = (query.isolation, query.at);
    let isolation = isolation::in_force(&shared, &namespace, [&*at.collection], manner)?;
    let access = Access::of_query(&shared, isolation, terms, query.at)?;
    let moment = access.moment(&shared, &namespace, || wanted.resources(&at)).await?;
    let as_of = moment.as_of(&namespace, query.at)?;
    let Some(id) = moment.namespace else { return Err(no_document(&at).into()) };
    let found = moment.reading.get(id, at.clone(), selection(query.deleted), as_of)?;
    let Some(found) = found else { return Err(absent(&moment, id, &at, as_of)?.into()) };
    let document = found.document()?;
    let version = document.position();
    if let Some(answer) = conditions.answer(&at, version)? {
        return Ok(answer);
    }
    let mut body = open(moment.told(query.at));
    match &wanted {
        WantedPart::Fields(fields) => {
            body.extend_from_slice(b"\"document\":");
            let shown = fields.as_ref().map(Projection::new);
            write_document(&mut body, &at, &document, shown.as_ref());
        }
        WantedPart::Node(path, depth) => write_node(&mut body, &at, &document, (path, *depth))?,
    }
    body.push(b'}');
    Ok(tagged(json(body), version))
}

/// The same for a request without parameters that did not come through the router.
pub(in crate::native) async fn read_one(shared: &Arc<Shared>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let read = async {
        let address = Addressed::from_request_parts(&mut parts, shared).await?;
        let conditions = Conditions::from_request_parts(&mut parts, shared).await?;
        let query = InQuery(DocumentQuery::default());
        document(State(Arc::clone(shared)), address, query, conditions).await
    };
    read.await.unwrap_or_else(IntoResponse::into_response)
}

/// A document, or a node of one if a path or a depth was given.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only described")]
pub(in crate::native) enum DocumentOrNode {
    Document(DocumentAnswer),
    Node(NodeAnswer),
}

/// What is wanted of a document.
enum WantedPart {
    Fields(Option<Vec<FieldPath>>),
    Node(Path, Depth),
}

impl WantedPart {
    /// Whether the schema of the collection, if it has one, knows what is wanted.
    async fn check_names(&self, job: &Job<'_>, namespace: &str, collection: &str) -> Result<(), Trouble> {
        match self {
            WantedPart::Fields(fields) => {
                let named = fields.iter().flatten().map(|field| (collection, field)).collect();
                check_fields(job, namespace, named).await
            }
            WantedPart::Node(path, _) => check_node(job, namespace, collection, path).await,
        }
    }

    fn new(decoder: Decoder<'_>, address: &Addressed, query: &DocumentQuery) -> Result<WantedPart, Trouble> {
        let path = address.node(query.path.as_deref())?;
        if path.is_none() && query.depth.is_none() {
            return read_fields(decoder, query.fields.as_deref()).map(WantedPart::Fields);
        }
        if query.fields.is_some() {
            let message = "fields go with whole documents; leave them out, or path and depth";
            return Err(Trouble::new(Code::BadQuery, message));
        }
        let path = path.unwrap_or_default();
        decoder.node(&path)?;
        let depth = query.depth.map_or(Some(Depth::SUBTREE), Depth::levels);
        let message = "depth counts levels from 1 (the node alone); leave it out for all";
        let depth = depth.ok_or_else(|| Trouble::new(Code::BadDepth, message))?;
        Ok(WantedPart::Node(path, depth))
    }

    fn resources(&self, at: &DocumentKey) -> Vec<Resource> {
        match self {
            WantedPart::Fields(fields) => {
                let mut resources = Vec::new();
                Scope::of(fields.as_deref()).resources(at, &mut resources);
                resources
            }
            WantedPart::Node(path, depth) => vec![isolation::node(at, path, *depth)],
        }
    }
}

/// Says why a document is not there: deleted, live, or never been.
fn absent(
    moment: &Moment,
    id: NamespaceId,
    at: &DocumentKey,
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

/// The fields that an address asks for.
fn read_fields(decoder: Decoder<'_>, text: Option<&str>) -> Result<Option<Vec<FieldPath>>, Trouble> {
    let Some(text) = text else { return Ok(None) };
    let paths = decoder.path_list(text)?;
    paths.iter().try_for_each(check_shown)?;
    Ok(Some(paths))
}

/// The fields that are wanted.
pub(super) fn projection(
    decoder: Decoder<'_>,
    fields: Option<&[String]>,
) -> Result<Option<Vec<FieldPath>>, Trouble> {
    let read = |text: &String| {
        let path = decoder.path(text)?;
        check_shown(&path)?;
        Ok(path)
    };
    fields.map(|fields| fields.iter().map(read).collect()).transpose()
}

/// The reserved fields are always told and no part of the value.
fn check_shown(path: &FieldPath) -> Result<(), Trouble> {
    if answer::is_reserved(path.root()) {
        let message = format!("{path} is no field of the value; every answer has position and deleted");
        return Err(Trouble::new(Code::ReservedField, message));
    }
    Ok(())
}

/// The fields of collections that are wanted: those of a document itself, or else the usual ones, once for each
/// collection.
fn named_fields<'a>(
    named: &'a [(&'a str, Option<Vec<FieldPath>>)],
    usual: Option<&'a [FieldPath]>,
) -> Vec<(&'a str, &'a FieldPath)> {
    let own = named
        .iter()
        .flat_map(|(collection, own)| own.iter().flatten().map(move |field| (*collection, field)));
    let others: BTreeSet<&str> =
        named.iter().filter(|(_, own)| own.is_none()).map(|(collection, _)| *collection).collect();
    let usual = usual.unwrap_or_default();
    let others = others.into_iter().flat_map(|collection| usual.iter().map(move |field| (collection, field)));
    own.chain(others).collect()
}

/// Several documents, in the order asked for; null stands for those that are not there.
#[utoipa::path(post, path = "/v1/{namespace}/get", params(("namespace" = String, Path)),
    request_body = GetRequest, responses((status = 200, body = Documents), (status = 400, body = Problem),
    (status = 410, body = Problem), (status = 422, body = Problem)))]
pub(in crate::native) async fn get_many(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let request: GetRequest = body.read()?;
    let decoder = Decoder(&shared.config.limits);
    get_limits(&shared, &request)?;
    let deleted = selection(request.deleted);
    let usual = projection(decoder, request.fields.as_deref())?;
    let usually_shown = usual.as_ref().map(Projection::new).map(Arc::new);
    let mut wanted = Vec::with_capacity(request.documents.len());
    let mut named = Vec::with_capacity(request.documents.len());
    for Wanted { collection, key, fields } in &request.documents {
        let at = decoder.document(collection, key)?;
        let own = projection(decoder, fields.as_deref())?;
        named.push((collection.as_str(), own));
        let own = named.last().and_then(|(_, own)| own.as_ref()).map(Projection::new).map(Arc::new);
        wanted.push((at, own.or_else(|| usually_shown.clone())));
    }
    check_fields(&Job::new(&shared), &namespace, named_fields(&named, usual.as_deref())).await?;
    let collections = request.documents.iter().map(|wanted| wanted.collection.as_str());
    let manner = (request.isolation, request.at);
    let isolation = isolation::in_force(&shared, &namespace, collections, manner)?;
    let access = Access::new(&shared, isolation, (&request.tokens, request.wait_ms), request.at)?;
    let moment = access.moment(&shared, &namespace, || get_resources(&request)).await?;
    let as_of = moment.as_of(&namespace, request.at)?;
    let position = moment.told(request.at);
    let (keys, fields): (Vec<_>, Vec<_>) = wanted.into_iter().unzip();
    let found = match custody(&shared, &namespace)? {
        None => get_here(&moment, keys, as_of)?,
        Some(custody) => {
            aside(move || {
                let namespace = moment.searched(Some(&custody)).unwrap_or(NOWHERE);
                Ok(custody.get_all(&moment.reading, namespace, &keys, as_of)?)
            })
            .await?
        }
    };
    let mut out = Answer::new(&shared, position);
    for (found, fields) in found.into_iter().zip(fields) {
        let seen = |found: &Found| found.document().map(|document| deleted.takes(document.deleted()));
        let found = match found {
            Some(found) if seen(&found)? => Some(found),
            _ => None,
        };
        out.push(found.as_ref(), fields.as_deref())?;
    }
    Ok(out.finish(None))
}

/// That as many documents may be asked for, and such fields.
pub(crate) fn get_limits(shared: &Shared, request: &GetRequest) -> Result<(), Trouble> {
    let (decoder, limit) = (Decoder(&shared.config.limits), shared.config.limits.documents_per_get_max);
    if request.documents.len() as u64 > limit {
        let what = format!("{} documents are too many at once", request.documents.len());
        return Err(Trouble::over("documents_per_get_max", limit, &what));
    }
    projection(decoder, request.fields.as_deref())?;
    let mut documents = request.documents.iter();
    documents.try_for_each(|wanted| projection(decoder, wanted.fields.as_deref()).map(drop))
}

/// What is read of documents that are asked for by their keys.
pub(crate) fn get_resources(request: &GetRequest) -> Vec<Resource> {
    let mut resources = Vec::with_capacity(request.documents.len());
    for Wanted { collection, key, fields } in &request.documents {
        let at = DocumentKey::new(collection, key.0.clone());
        let named = fields.as_deref().or(request.fields.as_deref());
        // Whoever asks has checked that they can be read.
        let named = named.map(|named| named.iter().filter_map(|text| text.parse().ok()).collect::<Vec<_>>());
        Scope::of(named.as_deref()).resources(&at, &mut resources);
    }
    resources
}

fn get_here(
    moment: &Moment,
    keys: Vec<DocumentKey>,
    as_of: Option<Position>,
) -> Result<Vec<Option<Found>>, StoreError> {
    let get = |at| match moment.namespace {
        Some(id) => moment.reading.get(id, at, Selection::With, as_of),
        None => Ok(None),
    };
    keys.into_iter().map(get).collect()
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

    fn push(&mut self, found: Option<&Found>, fields: Option<&Projection>) -> Result<(), Trouble> {
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
    /// Only these fields, or what is inside them (`address.zip`), with commas between them.
    fields: Option<String>,
    /// Whether deleted documents are meant: without, only, with.
    #[serde(default)]
    deleted: Deleted,
    /// As of this position.
    at: Option<u64>,
    /// How the read stands to locks: snapshot, locked, document; as the collection or the namespace is set if absent.
    isolation: Option<Isolation>,
    /// Tokens of locks the reader holds, with commas between them. If one of them is over, nothing is read.
    token: Option<String>,
    /// How many milliseconds to wait for others' locks.
    wait_ms: Option<u64>,
}

/// The documents of a collection, by key.
#[utoipa::path(get, path = "/v1/{namespace}/documents/{collection}",
    params(("namespace" = String, Path), ("collection" = String, Path), DocumentsQuery),
    responses((status = 200, body = DocumentPage), (status = 400, body = Problem), (status = 410, body = Problem),
    (status = 422, body = Problem)))]
pub(in crate::native) async fn documents(
    State(shared): App,
    InPath((namespace, collection)): InPath<(String, String)>,
    InQuery(query): InQuery<DocumentsQuery>,
) -> Result<Response, HttpError> {
    let request = read_list(&shared, &collection, query)?;
    Ok(page(shared, namespace, request).await?)
}

/// A list as an address asks for it.
pub(crate) fn list_request(shared: &Shared, collection: &str, uri: &Uri) -> Result<FilterRequest, Trouble> {
    read_list(shared, collection, query::read(uri)?)
}

fn read_list(shared: &Shared, collection: &str, query: DocumentsQuery) -> Result<FilterRequest, Trouble> {
    let DocumentsQuery { limit, cursor, fields, deleted, at, isolation, token, wait_ms } = query;
    check_limit(limit)?;
    let fields = read_fields(Decoder(&shared.config.limits), fields.as_deref())?;
    let fields = fields.map(|paths| paths.iter().map(ToString::to_string).collect());
    let tokens = read_terms(shared, token.as_deref(), wait_ms)?.tokens;
    let collection = collection.to_owned();
    Ok(FilterRequest {
        collection,
        limit,
        cursor,
        fields,
        deleted,
        at,
        isolation,
        tokens,
        wait_ms,
        ..FilterRequest::default()
    })
}

/// The documents of a collection that match, sorted, page by page.
#[utoipa::path(post, path = "/v1/{namespace}/filter", params(("namespace" = String, Path)),
    request_body = FilterRequest, responses((status = 200, body = DocumentPage), (status = 400, body = Problem),
    (status = 410, body = Problem), (status = 422, body = Problem)))]
pub(in crate::native) async fn filter(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    Ok(page(shared, namespace, body.read()?).await?)
}

/// A page as it was asked for.
pub(crate) struct PagePlan {
    pub(crate) request: FilterRequest,
    pub(crate) sort: Vec<Sort>,
    /// The fields that are wanted; all if there is no list.
    pub(crate) fields: Option<Vec<FieldPath>>,
    after: Option<Place>,
    pub(crate) len_max: usize,
}

impl PagePlan {
    pub(crate) fn new(shared: &Shared, request: FilterRequest) -> Result<PagePlan, Trouble> {
        let decoder = Decoder(&shared.config.limits);
        let fields = projection(decoder, request.fields.as_deref())?;
        let sort = sort(decoder, &request)?;
        let len_max = page_len(shared, request.limit)?;
        let after = request.cursor.as_deref().map(|text| place(&request.collection, &sort, text));
        Ok(PagePlan { after: after.transpose()?, request, sort, fields, len_max })
    }

    /// What stands for a place in this list.
    pub(crate) fn cursor(&self, place: &Place) -> String {
        cursor::write(&self.request.collection, &self.sort, place)
    }
}

/// What stands for the place after a key in a list of a collection by key.
pub(crate) fn key_cursor(collection: &str, key: &Key) -> String {
    cursor::write(collection, &[], &Place { values: Vec::new(), key: key.clone() })
}

async fn page(shared: Arc<Shared>, namespace: String, request: FilterRequest) -> Result<Response, Trouble> {
    let manner = (request.isolation, request.at);
    let isolation = isolation::in_force(&shared, &namespace, [request.collection.as_str()], manner)?;
    let access = Access::new(&shared, isolation, (&request.tokens, request.wait_ms), request.at)?;
    let plan = PagePlan::new(&shared, request)?;
    let request = &plan.request;
    let sorted_by = plan.sort.iter().map(|sort| &sort.field);
    let sorted = sorted_by.clone().map(|field| (request.collection.as_str(), field)).collect();
    check_fields(&Job::new(&shared), &namespace, sorted).await?;
    let mut scope = Scope::of(plan.fields.as_deref());
    if let Scope::Fields(fields) = &mut scope {
        fields.extend(sorted_by.cloned());
    }
    let (deleted, at) = (request.deleted, request.at);
    let decoder = Decoder(&shared.config.limits);
    let sought = sought(decoder, &request.collection, request.filter.as_ref(), (deleted, at), scope)?;
    let pager = Pager::new(plan.sort.clone(), plan.after.clone(), plan.len_max);
    let (position, pager) = search(Arc::clone(&shared), namespace, sought, access, pager).await?;
    let (page, is_long) = (pager.finish(), plan.len_max > SHORT_PAGE_LEN);
    let write = move || {
        let mut out = Answer::new(&shared, position);
        let fields = plan.fields.as_ref().map(Projection::new);
        page.documents.iter().try_for_each(|found| out.push(Some(found), fields.as_ref()))?;
        let next = page.next.map(|place| plan.cursor(&place));
        Ok(out.finish(next.as_deref()))
    };
    if is_long { aside(write).await } else { write() }
}

/// What a request about a collection asks for.
pub(super) fn sought(
    decoder: Decoder<'_>,
    collection: &str,
    filter: Option<&WireFilter>,
    (deleted, at): (Deleted, Option<u64>),
    scope: Scope,
) -> Result<Sought, Trouble> {
    decoder.collection(collection)?;
    let filter = filter.map(|filter| decoder.filter(filter)).transpose()?;
    Ok(Sought { collection: collection.into(), filter, deleted: selection(deleted), at, scope })
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
    let sort = request
        .sort
        .iter()
        .map(|sort| Ok(Sort { field: decoder.path(&sort.field)?, descending: sort.descending }));
    sort.collect()
}

/// That the limit in an address is one.
pub(super) fn check_limit(limit: Option<u64>) -> Result<(), Trouble> {
    match limit {
        Some(0) => {
            Err(Trouble::new(Code::BadQuery, "the parameter `limit` must be a whole number from 1, not 0"))
        }
        _ => Ok(()),
    }
}

pub(super) fn page_len(shared: &Shared, limit: Option<u64>) -> Result<usize, Trouble> {
    let most = shared.config.limits.documents_per_page_max;
    match limit {
        None => Ok(PAGE_LEN.min(most) as usize),
        Some(0) => {
            Err(Trouble::new(Code::BadBody, "the parameter `limit` must be a whole number from 1, not 0"))
        }
        Some(len) if len > most => Err(Trouble::over("documents_per_page_max", most, "limit is too large")),
        Some(len) => Ok(len as usize),
    }
}

/// How many documents match.
#[utoipa::path(post, path = "/v1/{namespace}/count", params(("namespace" = String, Path)),
    request_body = CountRequest, responses((status = 200, body = CountAnswer), (status = 400, body = Problem),
    (status = 422, body = Problem), (status = 423, body = Problem)))]
pub(in crate::native) async fn count(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let (position, count) = counted(shared, namespace, &body, Count(0)).await?;
    Ok(json_of(&CountAnswer { position: position.0, count: count.0 }))
}

/// Whether any document matches.
#[utoipa::path(post, path = "/v1/{namespace}/exists", params(("namespace" = String, Path)),
    request_body = CountRequest, responses((status = 200, body = ExistsAnswer), (status = 400, body = Problem),
    (status = 422, body = Problem), (status = 423, body = Problem)))]
pub(in crate::native) async fn exists(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let (position, any) = counted(shared, namespace, &body, Any(false)).await?;
    Ok(json_of(&ExistsAnswer { position: position.0, exists: any.0 }))
}

/// Searches for what only has to be there.
async fn counted<G: Gather + 'static>(
    shared: Arc<Shared>,
    namespace: String,
    body: &JsonBody,
    gather: G,
) -> Result<(Position, G), Trouble> {
    let CountRequest { collection, filter, deleted, at, isolation, tokens, wait_ms } = body.read()?;
    let isolation = isolation::in_force(&shared, &namespace, [collection.as_str()], (isolation, at))?;
    let access = Access::new(&shared, isolation, (&tokens, wait_ms), at)?;
    let decoder = Decoder(&shared.config.limits);
    let scope = Scope::Fields(Vec::new());
    let sought = sought(decoder, &collection, filter.as_ref(), (deleted, at), scope)?;
    search(shared, namespace, sought, access, gather).await
}

/// The smallest value of a field among the documents that match; null if none has it.
#[utoipa::path(post, path = "/v1/{namespace}/min", params(("namespace" = String, Path)),
    request_body = ExtremeRequest, responses((status = 200, body = MinAnswer), (status = 400, body = Problem),
    (status = 422, body = Problem)))]
pub(in crate::native) async fn min(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    Ok(extreme(shared, namespace, body, Ordering::Less).await?)
}

/// The largest value of a field among the documents that match; null if none has it.
#[utoipa::path(post, path = "/v1/{namespace}/max", params(("namespace" = String, Path)),
    request_body = ExtremeRequest, responses((status = 200, body = MaxAnswer), (status = 400, body = Problem),
    (status = 422, body = Problem)))]
pub(in crate::native) async fn max(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    Ok(extreme(shared, namespace, body, Ordering::Greater).await?)
}

async fn extreme(
    shared: Arc<Shared>,
    namespace: String,
    body: JsonBody,
    wanted: Ordering,
) -> Result<Response, Trouble> {
    let ExtremeRequest { collection, field, filter, deleted, at, isolation, tokens, wait_ms } =
        body.read()?;
    let isolation = isolation::in_force(&shared, &namespace, [collection.as_str()], (isolation, at))?;
    let access = Access::new(&shared, isolation, (&tokens, wait_ms), at)?;
    let decoder = Decoder(&shared.config.limits);
    let field = decoder.path(&field)?;
    let scope = Scope::Fields(vec![field.clone()]);
    let sought = sought(decoder, &collection, filter.as_ref(), (deleted, at), scope)?;
    let counts = |value: &Scalar<'_>| !matches!(value, Scalar::Compound(_) | Scalar::Null);
    let extreme = Extreme::new(&field, wanted, counts);
    let (position, extreme) = search(shared, namespace, sought, access, extreme).await?;
    let mut out = open(position);
    let name: &[u8] = if wanted == Ordering::Less { b"\"min\":" } else { b"\"max\":" };
    out.extend_from_slice(name);
    out.extend_from_slice(extreme.value.as_deref().unwrap_or("null").as_bytes());
    out.push(b'}');
    Ok(json(out))
}
