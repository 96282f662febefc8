//! The Elasticsearch facade: as much of its interface as document locks need, on the same documents and locks as
//! everything else. Translates and decides nothing; knows nothing of other interfaces.

mod answer;
mod bulk;
mod cat;
mod change;
#[cfg(test)]
mod decode_fuzz;
mod delete_by_query;
mod document;
mod filter_path;
mod health;
mod index;
mod library;
mod lock_document;
mod mapping;
mod name;
mod outcome;
mod place;
mod pretty;
mod query;
mod request;
mod route;
mod script;
mod scroll;
mod search;
mod several;
mod source;

use self::{
    answer::{Answer, Object, Refusal, list, method_not_allowed, ok, plain, shards},
    bulk::{Item, new_id},
    change::{Current, Order, Write},
    filter_path::FilterPath,
    lock_document::is_lock,
    name::{At, UNTYPED, check_index},
    outcome::Done,
    place::{Cursor, Looker, Place},
    query::id,
    request::{Params, Reader, members, part, text},
    route::{Aspect, Route, Scope},
    scroll::{Scroll, Scrolls, keep_alive},
    search::{Extent, Search, Wanted},
    several::Address,
};
use crate::{arriving::Arriving, body, listener::Service, shared::Shared};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, StatusCode,
    header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap},
};
use lockwood_model::Budget;
use lockwood_node::{lease, limits::Limits, metrics::Interface, territory::Use, trouble::Trouble, work::Job};
use serde_json::Value;
use std::{
    collections::{BTreeSet, HashSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};
use tokio::{task::JoinSet, time::Instant};

pub(crate) use library::Library;
pub(crate) use route::indexes_of;

/// Larger bodies are taken apart where they keep nobody waiting.
const DECODE_BYTES_MAX: usize = 64 * 1024;
/// How many writes of one bulk are on their way at once.
const BULK_WIDTH: usize = 64;
/// How often scrolls that nobody asked for in time are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// What clients are told to be talking to.
const VERSION: &str = "7.17.28";

/// Answers everything on its listener.
#[derive(Clone)]
pub(crate) struct Elasticsearch(Arc<Facade>);

struct Facade {
    shared: Arc<Shared>,
    library: Library,
    scrolls: Scrolls,
}

/// A request without its body, which comes with it.
struct Asked {
    method: Method,
    params: Params,
    /// Which kinds of answers the client takes, in its own words.
    accept: String,
    body: Bytes,
}

impl Asked {
    fn text(&self) -> Result<&str, Refusal> {
        text(&self.body)
    }
}

impl Service for Elasticsearch {
    type Body = Full<Bytes>;

    fn interface(&self) -> Interface {
        Interface::Elasticsearch
    }

    async fn answer(&self, _: SocketAddr, request: Request<Arriving>) -> Answer {
        let is_pretty = pretty::is_wanted(request.uri().query());
        let answer = self.try_answer(request).await.unwrap_or_else(Refusal::into_answer);
        if is_pretty { pretty::lay_out(answer, self.limits().answer_bytes_max).await } else { answer }
    }

    fn is_read(&self, method: &Method, path: &str) -> bool {
        let last = path.rsplit('/').next().unwrap_or_default();
        method == Method::GET
            || method == Method::HEAD
            || matches!(last, "_search" | "_mget" | "_count" | "scroll")
    }

    fn refuse(trouble: Trouble) -> Answer {
        Refusal::from(trouble).into_answer()
    }
}

impl Elasticsearch {
    pub(crate) fn new(shared: &Arc<Shared>, library: Library) -> Elasticsearch {
        Elasticsearch(Arc::new(Facade { shared: Arc::clone(shared), library, scrolls: Scrolls::default() }))
    }

    /// Lets go of scrolls that are over, for ever.
    pub(crate) async fn sweep(self) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            self.0.scrolls.drop_old(&self.0.shared.purges);
        }
    }

    fn limits(&self) -> &Limits {
        &self.0.shared.config.limits
    }

    fn reader(&self) -> Reader<'_> {
        Reader { limits: self.limits(), library: &self.0.library }
    }

    async fn try_answer(&self, request: Request<Arriving>) -> Result<Answer, Refusal> {
        let (path, method) = (request.uri().path().to_owned(), request.method().clone());
        let Some(route) = Route::read(&path)? else { return Ok(no_handler(&path, &method)) };
        let allowed = route.methods();
        if !allowed.split(", ").any(|allowed| allowed == method.as_str()) {
            return Ok(method_not_allowed(method.as_str(), &path, allowed));
        }
        let params = Params::read(request.uri().query())?;
        let filter = params.get("filter_path").map(FilterPath::read).transpose()?;
        let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
        let accept = accept.unwrap_or_default().to_owned();
        let body = self.body(request, route.takes_forms()).await?;
        let answer = self.route(route, Asked { method, params, accept, body }).await?;
        match filter {
            Some(filter) => Ok(filter.apply(answer).await),
            None => Ok(answer),
        }
    }

    async fn route(&self, route: Route, asked: Asked) -> Result<Answer, Refusal> {
        match route {
            Route::Info => Ok(ok(info())),
            Route::Index(index) => self.index(&index, &asked).await,
            Route::Refresh(scope) => {
                let address = Address::read(self.limits(), &scope, &asked.params)?;
                let indexes = self.look(move |looker| address.find(looker)).await?.indexes.len() as u64;
                Ok(ok(Object::new().raw("_shards", &shards(10 * indexes, 5 * indexes)).done()))
            }
            Route::New { index, collection } => {
                let at = At::new(self.limits(), &index, &collection, &new_id())?;
                self.put(&at, &asked, true).await
            }
            Route::Document { index, collection, id, aspect } => {
                let at = At::new(self.limits(), &index, &collection, &id)?;
                self.document(&at, aspect, &asked).await
            }
            Route::Bulk(scope) => self.bulk(&scope, &asked).await,
            Route::GetMany(scope) => self.get_many(&scope, &asked).await,
            Route::Search(scope) => self.search(scope, &asked).await,
            Route::Count(scope) => self.count(scope, &asked).await,
            Route::DeleteByQuery(scope) => self.delete_by_query(&scope, &asked).await,
            Route::Mapping(scope) => self.mapping(&scope, &asked).await,
            Route::Health(scope) => self.health(&scope, &asked).await,
            Route::CatIndices(scope) => self.cat_indices(&scope, &asked).await,
            Route::Scroll(ids) if asked.method == Method::DELETE => self.clear_scrolls(ids, &asked),
            Route::Scroll(ids) => self.scroll(ids, &asked).await,
        }
    }

    async fn body(&self, request: Request<Arriving>, takes_forms: bool) -> Result<Bytes, Refusal> {
        let kind = check_kind(request.headers(), takes_forms);
        let body = body::read(&self.0.shared, request.into_body()).await?;
        if !body.is_empty() {
            kind?;
        }
        Ok(body)
    }

    async fn index(&self, index: &str, asked: &Asked) -> Result<Answer, Refusal> {
        check_index(self.limits(), index)?;
        let shared = &self.0.shared;
        match asked.method {
            Method::PUT => {
                members("index", asked.text()?)?;
                if index::exists(shared, index)? {
                    let reason = format!("index [{index}] already exists");
                    let kind = "resource_already_exists_exception";
                    let refusal = Refusal::new(StatusCode::BAD_REQUEST, kind, reason);
                    return Err(refusal.with("index", answer::quoted(index)));
                }
                index::ensure(shared, index).await?;
                let object = Object::new().flag("acknowledged", true).flag("shards_acknowledged", true);
                Ok(ok(object.text("index", index).done()))
            }
            Method::DELETE => {
                index::remove(shared, index).await?;
                Ok(ok(Object::new().flag("acknowledged", true).done()))
            }
            _ => {
                index::check_exists(shared, index)?;
                let is_asked = asked.method == Method::GET;
                let mappings = if is_asked { self.mappings_of(index).await? } else { "{}".to_owned() };
                let about = Object::new().raw("aliases", "{}").raw("mappings", &mappings);
                Ok(ok(Object::new().raw(index, &about.raw("settings", "{}").done()).done()))
            }
        }
    }

    async fn document(&self, at: &At, aspect: Aspect, asked: &Asked) -> Result<Answer, Refusal> {
        match (aspect, &asked.method) {
            (Aspect::All, &Method::GET | &Method::HEAD) => self.get(at, asked).await,
            (Aspect::All, &Method::DELETE) => self.delete(at, asked).await,
            (Aspect::All, _) => {
                let create = match asked.params.get("op_type") {
                    None | Some("index") => false,
                    Some("create") => true,
                    Some(other) => {
                        return Err(Refusal::argument(format!(
                            "opType must be 'create' or 'index', found: [{other}]"
                        )));
                    }
                };
                self.put(at, asked, create).await
            }
            (Aspect::Create, _) => self.put(at, asked, true).await,
            (Aspect::Source, _) => self.get_source(at, asked).await,
            (Aspect::Update, _) => {
                let write = self.decode(asked, |reader, text| reader.update(text, &asked.params))?;
                self.write(at, write.expecting(&asked.params)?).await
            }
        }
    }

    async fn put(&self, at: &At, asked: &Asked, create: bool) -> Result<Answer, Refusal> {
        let write = self.decode(asked, |reader, text| reader.index(text, create))?;
        self.write(at, write.expecting(&asked.params)?).await
    }

    async fn delete(&self, at: &At, asked: &Asked) -> Result<Answer, Refusal> {
        index::check_exists(&self.0.shared, &at.index)?;
        self.write(at, Write::new(Order::Delete).expecting(&asked.params)?).await
    }

    async fn write(&self, at: &At, write: Write) -> Result<Answer, Refusal> {
        let done = self.0.write(at, &write).await?;
        Ok(answer::json(done.status(), done.object(at, &write, false)))
    }

    fn decode<T>(
        &self,
        asked: &Asked,
        read: impl FnOnce(Reader<'_>, &str) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let decode = || read(self.reader(), asked.text()?);
        if asked.body.len() > DECODE_BYTES_MAX { tokio::task::block_in_place(decode) } else { decode() }
    }

    async fn get(&self, at: &At, asked: &Asked) -> Result<Answer, Refusal> {
        let found = self.0.get(at).await?;
        if found.is_none() {
            index::check_exists(&self.0.shared, &at.index)?;
        }
        let status = if found.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
        Ok(answer::json(status, got(at, found.as_ref(), &Wanted::of_params(&asked.params)?)))
    }

    async fn get_source(&self, at: &At, asked: &Asked) -> Result<Answer, Refusal> {
        match self.0.get(at).await? {
            Some(current) => Ok(ok(shown(&current, &Wanted::of_params(&asked.params)?))),
            None => {
                let reason = format!("Document not found [{}]/{}", at.index, at.label());
                Err(Refusal::new(StatusCode::NOT_FOUND, "resource_not_found_exception", reason))
            }
        }
    }

    async fn get_many(&self, scope: &Scope, asked: &Asked) -> Result<Answer, Refusal> {
        let wanted = Wanted::of_params(&asked.params)?;
        let targets = self.targets(scope, asked.text()?)?;
        self.check_homes(&targets, Use::Read).await?;
        let mut docs = Vec::with_capacity(targets.len());
        let mut bytes = 0;
        for at in targets {
            let doc = got(&at, self.0.get(&at).await?.as_ref(), &wanted);
            bytes += doc.len() as u64;
            let limit = self.limits().answer_bytes_max;
            if bytes > limit {
                return Err(Refusal::over("answer_bytes_max", limit, "the answer would be too long"));
            }
            docs.push(doc);
        }
        Ok(ok(Object::new().raw("docs", &list(docs)).done()))
    }

    /// That all documents are in indexes of this shard: what a body names may be elsewhere.
    async fn check_homes(&self, targets: impl IntoIterator<Item = &At>, wanted: Use) -> Result<(), Refusal> {
        let indexes: BTreeSet<&str> = targets.into_iter().map(|at| at.index.as_str()).collect();
        for index in indexes {
            self.0.shared.check_whole(index, wanted).await?;
        }
        Ok(())
    }

    /// The documents that an `_mget` names.
    fn targets(&self, scope: &Scope, json: &str) -> Result<Vec<At>, Refusal> {
        let mut members = members("mget", json)?;
        let mut entries: Vec<Value> = Vec::new();
        for name in ["docs", "ids"] {
            if let Some(raw) = members.remove(name) {
                entries.extend(part::<Vec<Value>>(name, raw.get())?);
            }
        }
        if entries.is_empty() {
            return Err(request::validation("no documents to get"));
        }
        let limit = self.limits().documents_per_get_max;
        if entries.len() as u64 > limit {
            return Err(Refusal::over("documents_per_get_max", limit, "too many documents are asked for"));
        }
        entries.iter().map(|entry| self.target(scope, entry)).collect()
    }

    fn target(&self, scope: &Scope, entry: &Value) -> Result<At, Refusal> {
        let member = |name: &str| entry.get(name).and_then(id);
        let index = member("_index").or_else(|| scope.index.clone());
        let index = index.ok_or_else(|| request::validation("index is missing"))?;
        let collection = member("_type").or_else(|| scope.collection.clone());
        let id = id(entry).or_else(|| member("_id")).ok_or_else(|| request::validation("id is missing"))?;
        At::new(self.limits(), &index, collection.as_deref().unwrap_or(UNTYPED), &id)
    }

    async fn bulk(&self, scope: &Scope, asked: &Asked) -> Result<Answer, Refusal> {
        let began = Instant::now();
        let items = self.decode(asked, |reader, text| reader.bulk(text, scope))?;
        self.check_homes(items.iter().map(|item| &item.at), Use::Write).await?;
        let mut answers: Vec<(&'static str, String)> =
            items.iter().map(|item| (item.action, String::new())).collect();
        let mut has_errors = false;
        let mut items = items.into_iter().enumerate().peekable();
        while items.peek().is_some() {
            // Writes of one document are done one after the other, in their order.
            let (mut width, mut seen) = (JoinSet::new(), HashSet::new());
            while width.len() < BULK_WIDTH
                && let Some((number, item)) =
                    items.next_if(|(_, item)| seen.insert((item.at.index.clone(), item.at.key.clone())))
            {
                let facade = Arc::clone(&self.0);
                width.spawn(async move { (number, facade.item(item).await) });
            }
            while let Some(done) = width.join_next().await {
                let (number, (failed, answer)) = done.map_err(|error| {
                    tracing::error!(%error, "write one of many");
                    Refusal::failed()
                })?;
                has_errors |= failed;
                answers[number].1 = answer;
            }
        }
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(ok(bulk::answer(took_ms, has_errors, answers)))
    }

    /// A search, and where it is to look.
    fn read_search(
        &self,
        scope: &Scope,
        asked: &Asked,
        is_scroll: bool,
    ) -> Result<(Search, Address), Refusal> {
        let address = Address::read(self.limits(), scope, &asked.params)?;
        let is_typed = scope.collection.is_some();
        let search = Search::read(self.limits(), is_typed, asked.text()?, &asked.params, is_scroll)?;
        Ok((search, address))
    }

    async fn search(&self, scope: Scope, asked: &Asked) -> Result<Answer, Refusal> {
        let began = std::time::Instant::now();
        let alive = asked.params.get("scroll").map(|text| keep_alive(self.limits(), text)).transpose()?;
        let (search, address) = self.read_search(&scope, asked, alive.is_some())?;
        let extent = Extent { from: search.from, size: search.size, count: true, cut: alive.is_some() };
        let (search, place, page) = self
            .look(move |looker| {
                let place = Place::open(looker, address.find(looker)?)?;
                let page = search.page(looker, &place, Cursor::default(), extent)?;
                Ok((search, place, page))
            })
            .await?;
        self.settle(&place.indexes).await?;
        let began = (began, place.indexes.len());
        let Some(alive) = alive else { return Ok(ok(search.answer(page.hits, page.seen, began, None))) };
        let until = Instant::now() + alive;
        let scroll = Scroll { search: search.clone(), place, cursor: page.next, total: page.seen, until };
        let id = self.0.scrolls.insert(&self.0.shared, scroll)?;
        Ok(ok(search.answer(page.hits, page.seen, began, Some(&id))))
    }

    async fn scroll(&self, ids: Vec<String>, asked: &Asked) -> Result<Answer, Refusal> {
        let began = std::time::Instant::now();
        let (ids, alive) = scroll_of(ids, asked)?;
        let [id] = &ids[..] else { return Err(request::validation("scrollId is missing")) };
        let alive = alive.map(|text| keep_alive(self.limits(), &text)).transpose()?;
        let mut taken = self.0.scrolls.take(&self.0.shared.purges, id)?;
        if let Some(alive) = alive {
            taken.scroll().until = Instant::now() + alive;
        }
        let look = move |looker: Looker<'_>| {
            let Scroll { search, place, cursor, .. } = taken.scroll();
            let extent = Extent { from: 0, size: search.size, count: false, cut: true };
            let page = search.page(looker, place, cursor.clone(), extent)?;
            Ok((taken, page))
        };
        let (mut taken, page) = self.look(look).await?;
        let scroll = taken.scroll();
        self.settle(&scroll.place.indexes).await?;
        // Whoever did not get a page can ask for it again.
        scroll.cursor = page.next;
        let began = (began, scroll.place.indexes.len());
        Ok(ok(scroll.search.answer(page.hits, scroll.total, began, Some(id))))
    }

    fn clear_scrolls(&self, ids: Vec<String>, asked: &Asked) -> Result<Answer, Refusal> {
        let (ids, _) = scroll_of(ids, asked)?;
        if ids.is_empty() {
            return Err(request::validation("no scroll ids specified"));
        }
        let freed = match &ids[..] {
            [only] if only == "_all" => self.0.scrolls.clear(),
            ids => ids.iter().filter(|id| self.0.scrolls.remove(id)).count(),
        };
        let status = if freed > 0 { StatusCode::OK } else { StatusCode::NOT_FOUND };
        let object = Object::new().flag("succeeded", true).number("num_freed", freed as u64);
        Ok(answer::json(status, object.done()))
    }

    async fn count(&self, scope: Scope, asked: &Asked) -> Result<Answer, Refusal> {
        let (search, address) = self.read_search(&scope, asked, false)?;
        let extent = Extent { from: 0, size: 0, count: true, cut: false };
        let count = move |looker: Looker<'_>| {
            let place = Place::open(looker, address.find(looker)?)?;
            let count = search.page(looker, &place, Cursor::default(), extent)?.seen;
            Ok((place.indexes, count))
        };
        let (indexes, count) = self.look(count).await?;
        self.settle(&indexes).await?;
        Ok(ok(Object::new().number("count", count).raw("_shards", &search::shards(indexes.len())).done()))
    }

    /// Waits until everything that could be seen of the locks of these indexes is durable.
    async fn settle(&self, indexes: impl IntoIterator<Item = &String>) -> Result<(), Refusal> {
        for index in indexes {
            lease::settle(&self.0.shared, index).await?;
        }
        Ok(())
    }

    /// Looks at many documents, where that keeps nobody waiting.
    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(Looker<'_>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let shared = Arc::clone(&self.0.shared);
        let work = move |budget: &Budget| look(Looker { shared: &shared, budget });
        Job::new(&self.0.shared).run(work).await?
    }
}

impl Facade {
    async fn write(&self, at: &At, write: &Write) -> Result<Done, Refusal> {
        if is_lock(&at.index, at.collection()) {
            lock_document::write(&self.shared, at, write).await
        } else {
            document::write(&self.shared, at, write).await
        }
    }

    async fn get(&self, at: &At) -> Result<Option<Current>, Refusal> {
        if is_lock(&at.index, at.collection()) {
            lock_document::get(&self.shared, at).await
        } else {
            document::get(&self.shared.shard.read(), at)
        }
    }

    /// One of many writes: whether it failed, and its answer.
    async fn item(&self, item: Item) -> (bool, String) {
        let Item { at, write, .. } = item;
        let done = match write {
            Ok(write) => self.write(&at, &write).await.map(|done| done.object(&at, &write, true)),
            Err(refusal) => Err(refusal),
        };
        match done {
            Ok(answer) => (false, answer),
            Err(refusal) => (true, bulk::failed(&at, &refusal)),
        }
    }
}

impl Route {
    /// The methods it takes.
    fn methods(&self) -> &'static str {
        match self {
            Route::Info => "GET, HEAD",
            Route::Scroll(_) => "GET, POST, DELETE",
            Route::Bulk(_) => "POST, PUT",
            Route::Search(_) | Route::Count(_) | Route::GetMany(_) | Route::Refresh(_) => "GET, POST",
            Route::DeleteByQuery(_) => "POST",
            Route::Mapping(_) | Route::Health(_) | Route::CatIndices(_) => "GET, HEAD",
            Route::Index(_) => "GET, HEAD, PUT, DELETE",
            Route::New { .. } => "POST",
            Route::Document { aspect: Aspect::All, .. } => "GET, HEAD, PUT, POST, DELETE",
            Route::Document { aspect: Aspect::Source, .. } => "GET, HEAD",
            Route::Document { aspect: Aspect::Create, .. } => "PUT, POST",
            Route::Document { aspect: Aspect::Update, .. } => "POST",
        }
    }

    /// Whether it is an address that versions before 6 had. Those read every body as JSON, also one that curl calls a
    /// form.
    fn takes_forms(&self) -> bool {
        match self {
            Route::New { collection, .. } | Route::Document { collection, .. } => collection != UNTYPED,
            _ => true,
        }
    }
}

/// The ids and the time that a request about scrolls names, in its address or its body.
fn scroll_of(mut ids: Vec<String>, asked: &Asked) -> Result<(Vec<String>, Option<String>), Refusal> {
    let mut members = members("scroll", asked.text()?)?;
    let in_address = asked.params.get("scroll_id").into_iter().flat_map(|ids| ids.split(','));
    ids.extend(in_address.map(str::to_owned));
    match members.remove("scroll_id").map(|raw| part("scroll_id", raw.get())).transpose()? {
        None => {}
        Some(Value::Array(list)) => ids.extend(list.iter().filter_map(id)),
        Some(value) => ids.extend(id(&value)),
    }
    let alive = members.remove("scroll").map(|raw| part::<String>("scroll", raw.get())).transpose()?;
    Ok((ids, alive.or_else(|| asked.params.get("scroll").map(str::to_owned))))
}

fn shown(current: &Current, wanted: &Wanted) -> String {
    let fields = current.source.0.iter().map(|(name, value)| (&**name, value.as_str()));
    wanted.of(fields)
}

/// The answer to a question for one document.
fn got(at: &At, found: Option<&Current>, wanted: &Wanted) -> String {
    let object = Object::new()
        .text("_index", &at.index)
        .when(at.is_typed(), |object| object.text("_type", at.collection()))
        .text("_id", &at.id);
    let Some(current) = found else { return object.flag("found", false).done() };
    object
        .number("_version", current.version)
        .number("_seq_no", current.seq_no)
        .number("_primary_term", 1)
        .flag("found", true)
        .when(*wanted != Wanted::Nothing, |object| object.raw("_source", &shown(current, wanted)))
        .done()
}

fn info() -> String {
    let version = Object::new()
        .text("number", VERSION)
        .text("build_flavor", "default")
        .text("build_type", "lockwood")
        .text("build_hash", env!("CARGO_PKG_VERSION"))
        .flag("build_snapshot", false)
        .text("lucene_version", "8.11.3")
        .text("minimum_wire_compatibility_version", "6.8.0")
        .text("minimum_index_compatibility_version", "6.0.0-beta1")
        .done();
    Object::new()
        .text("name", "lockwood")
        .text("cluster_name", "lockwood")
        .text("cluster_uuid", "_na_")
        .raw("version", &version)
        .text("tagline", "You Know, for Search")
        .done()
}

fn no_handler(path: &str, method: &Method) -> Answer {
    let message = format!("no handler found for uri [{path}] and method [{method}]");
    plain(StatusCode::BAD_REQUEST, &message)
}

/// Bodies are JSON, or lines of it, and not compressed.
fn check_kind(headers: &HeaderMap, takes_forms: bool) -> Result<(), Refusal> {
    let refuse = |message: String| {
        Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, "media_type_header_exception", message))
    };
    if let Some(coding) = headers.get(CONTENT_ENCODING).filter(|coding| *coding != "identity") {
        return refuse(format!(
            "Content-Encoding [{}] is not supported; send the body as it is",
            coding.to_str().unwrap_or_default()
        ));
    }
    let Some(given) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let given = given.to_str().unwrap_or_default();
    let kind = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = matches!(kind.as_str(), "application/json" | "application/x-ndjson" | "application/ndjson")
        || (takes_forms && kind == "application/x-www-form-urlencoded")
        || (kind.starts_with("application/vnd.elasticsearch+") && kind.ends_with("json"));
    if is_json {
        return Ok(());
    }
    refuse(format!(
        "Content-Type header [{given}] is not supported; send application/json (curl -H 'content-type: application/json')"
    ))
}
