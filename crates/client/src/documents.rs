//! The documents of a namespace, over plain HTTP. Knows nothing of sessions and locks on paths.

use crate::{
    dump::Dump,
    error::Error,
    feed::{Feed, Subject},
    lease::Terms,
    nodes::Nodes,
    transport::{self, Call, Target, escape},
};
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::{Method, body::Frame};
use lockwood_model::{DocumentKey, Path, Position};
use lockwood_wire::documents::{
    Changes, Collections, CountAnswer, CountRequest, Deleted, DocumentAnswer, DocumentInfo, DocumentPage,
    Documents, ExistsAnswer, ExtremeRequest, Fields, FilterRequest, GetRequest, History, IndexInfo, Indexes,
    Isolation, JoinPage, JoinRequest, LoadAnswer, MaxAnswer, MinAnswer, NodeAnswer, PositionAnswer,
    PurgeAnswer, PurgeRequest, ReserveRequest, Reserved, WireValue, WriteCall, Written,
};
use serde::{Serialize, de::DeserializeOwned};
use std::time::Duration;

/// The documents of one namespace of a server, or of a cluster. Every call is a connection of its own.
///
/// What passes by itself is asked again, as [`Nodes`] says. A write that is sent twice is done once: it has an
/// idempotency key, the caller's or one of its own.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use lockwood_client::{DocumentKey, PutOptions, ReadOptions, Store, wire};
///
/// let store = Store::new("127.0.0.1:7117", "default");
/// let ann = DocumentKey::new("user", "42".parse()?);
/// let fields: wire::Fields = serde_json::from_str(r#"{"name": "Ann"}"#)?;
/// store.put(&ann, &fields, &PutOptions::default()).await?;
/// let answer = store.get(&ann, &ReadOptions::default()).await?;
/// // A writer that read this document and wants to be the next to change it:
/// let options = PutOptions { position: Some(answer.document.position), ..PutOptions::default() };
/// store.put(&ann, &fields, &options).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// Where to ask.
    pub nodes: Nodes,
    /// The namespace.
    pub namespace: String,
}

/// How to read a document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadOptions {
    /// Only these fields; none means all.
    pub fields: Vec<String>,
    /// As of this position; the last one by default.
    pub at: Option<u64>,
    /// Whether a deleted document is seen.
    pub deleted: Deleted,
    /// How the read stands to locks; as the collection or the namespace is set if none.
    pub isolation: Option<Isolation>,
    /// With which locks, and how long to wait for those of others.
    pub terms: Terms,
}

/// In which case a put is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutIf {
    /// Only if there is no such document.
    Absent,
    /// Only if there is one.
    Present,
}

/// How to put or delete a document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PutOptions {
    /// Only in this case; not for deleting.
    pub only_if: Option<PutIf>,
    /// Only if the document has not changed since this position.
    pub position: Option<u64>,
    /// Who asks.
    pub user: Option<String>,
    /// Why.
    pub note: Option<String>,
    /// With which locks, and how long to wait for those of others.
    pub terms: Terms,
}

impl PutOptions {
    fn case(&self) -> Option<&'static str> {
        self.only_if.map(|only_if| match only_if {
            PutIf::Absent => "absent",
            PutIf::Present => "present",
        })
    }
}

impl Store {
    /// The documents of a namespace. Several addresses have commas between them.
    pub fn new(nodes: impl Into<Nodes>, namespace: impl Into<String>) -> Store {
        Store { nodes: nodes.into(), namespace: namespace.into() }
    }

    /// One document.
    pub async fn get(&self, at: &DocumentKey, options: &ReadOptions) -> Result<DocumentAnswer, Error> {
        self.fetch(read_by(self.document(at).names("fields", &options.fields), options)).await
    }

    /// One node of a document, down to a depth: 1 is the node alone, none everything. The fields of the options
    /// are not used.
    pub async fn get_node(
        &self,
        at: &DocumentKey,
        path: &Path,
        depth: Option<u64>,
        options: &ReadOptions,
    ) -> Result<NodeAnswer, Error> {
        let target = self.document(at).query("path", Some(path)).query("depth", depth);
        self.fetch(read_by(target, options)).await
    }

    /// Replaces one node of a document, a field or something in a field.
    pub async fn set(
        &self,
        at: &DocumentKey,
        path: &Path,
        value: &WireValue,
        options: &PutOptions,
    ) -> Result<Written, Error> {
        let target = self.document(at).query("path", Some(path)).query("if", options.case());
        self.write_on(Call::with_json(Method::PUT, written_by(target, options).text, value), &options.terms)
            .await
    }

    /// Removes one node of a document.
    pub async fn unset(&self, at: &DocumentKey, path: &Path, options: &PutOptions) -> Result<Written, Error> {
        let target = written_by(self.document(at).query("path", Some(path)), options);
        self.write_on(Call::new(Method::DELETE, target.text), &options.terms).await
    }

    /// One page of two collections put together; the next one begins at [`JoinPage::next`].
    pub async fn join(&self, request: &JoinRequest) -> Result<JoinPage, Error> {
        self.post("join", request).await
    }

    /// Several documents, all from one snapshot.
    pub async fn get_many(&self, request: &GetRequest) -> Result<Documents, Error> {
        self.post("get", request).await
    }

    /// Makes a document exactly this, be it there or not.
    pub async fn put(
        &self,
        at: &DocumentKey,
        fields: &Fields,
        options: &PutOptions,
    ) -> Result<Written, Error> {
        let target = written_by(self.document(at).query("if", options.case()), options);
        self.write_on(Call::with_json(Method::PUT, target.text, fields), &options.terms).await
    }

    /// Hides a document; it can be restored.
    pub async fn delete(&self, at: &DocumentKey, options: &PutOptions) -> Result<Written, Error> {
        let target = written_by(self.document(at), options);
        self.write_on(Call::new(Method::DELETE, target.text), &options.terms).await
    }

    /// Brings a deleted document back, with the fields it had.
    pub async fn restore(&self, at: &DocumentKey, options: &PutOptions) -> Result<Written, Error> {
        let target = written_by(self.about(at, "restore"), options);
        self.write_on(Call::new(Method::POST, target.text), &options.terms).await
    }

    /// Writes any number of events, guarded by any number of position locks.
    pub async fn write(&self, call: &WriteCall) -> Result<Written, Error> {
        let wait = call.wait_ms.map(Duration::from_millis);
        let post = Call::with_json(Method::POST, self.target("write").text, call);
        self.write_on(post, &Terms { wait, ..Terms::default() }).await
    }

    /// The same with a body that is written already.
    pub async fn write_text(&self, body: &WireValue) -> Result<Written, Error> {
        self.write_text_on(body, &Terms::default()).await
    }

    /// The same on terms that are not in the body.
    pub async fn write_text_on(&self, body: &WireValue, terms: &Terms) -> Result<Written, Error> {
        let body = WireValue::from_text(terms.inside(body.as_str()))
            .map_err(|error| Error::BadAnswer(error.message))?;
        self.write_on(Call::with_json(Method::POST, self.target("write").text, &body), terms).await
    }

    /// One page of the documents that match.
    pub async fn filter(&self, request: &FilterRequest) -> Result<DocumentPage, Error> {
        self.post("filter", request).await
    }

    /// All pages of the documents that match, fetched one after the other.
    pub fn pages(&self, request: FilterRequest) -> Pages {
        Pages { store: self.clone(), request: Some(request) }
    }

    /// How many documents match.
    pub async fn count(&self, request: &CountRequest) -> Result<CountAnswer, Error> {
        self.post("count", request).await
    }

    /// Whether a document matches.
    pub async fn exists(&self, request: &CountRequest) -> Result<ExistsAnswer, Error> {
        self.post("exists", request).await
    }

    /// The least value of a field.
    pub async fn min(&self, request: &ExtremeRequest) -> Result<MinAnswer, Error> {
        self.post("min", request).await
    }

    /// The greatest value of a field.
    pub async fn max(&self, request: &ExtremeRequest) -> Result<MaxAnswer, Error> {
        self.post("max", request).await
    }

    /// One page of what happened to a document, oldest first; the next one begins after [`History::next`].
    pub async fn history(
        &self,
        at: &DocumentKey,
        after: Option<u64>,
        limit: Option<u64>,
    ) -> Result<History, Error> {
        self.fetch(self.about(at, "history").query("limit", limit).query("after", after)).await
    }

    /// The same for one node of a document: the changes that touched it.
    pub async fn node_history(
        &self,
        at: &DocumentKey,
        path: &Path,
        after: Option<u64>,
        limit: Option<u64>,
    ) -> Result<History, Error> {
        let target = self.about(at, "history").query("path", Some(path));
        self.fetch(target.query("limit", limit).query("after", after)).await
    }

    /// One page of commits; the next one begins after [`Changes::next`].
    pub async fn changes(&self, subject: &Subject, after: u64, limit: Option<u64>) -> Result<Changes, Error> {
        self.fetch(subject.target(&self.namespace, after).query("limit", limit)).await
    }

    /// Commits as they happen, after a position or from now on.
    pub async fn feed(&self, subject: Subject, after: Option<u64>) -> Result<Feed, Error> {
        let after = match after {
            Some(after) => after,
            None => self.position().await?.position,
        };
        Feed::open(self.clone(), subject, Position(after)).await
    }

    /// Numbers for new documents that nobody else gets.
    pub async fn reserve(&self, collection: &str, amount: u64) -> Result<Reserved, Error> {
        self.post("reserve", &ReserveRequest { collection: collection.to_owned(), amount }).await
    }

    /// Takes something away for good. It has begun when this answers; [`crate::Admin::purges`] lists it until nothing is
    /// left of it.
    pub async fn purge(&self, request: &PurgeRequest) -> Result<PurgeAnswer, Error> {
        let call = Call::with_json(Method::POST, self.target("purge").text, request);
        self.nodes.ask(&call.once()).await
    }

    /// Where the namespace stands.
    pub async fn position(&self) -> Result<PositionAnswer, Error> {
        self.fetch(self.target("position")).await
    }

    /// The collections that have documents.
    pub async fn collections(&self) -> Result<Collections, Error> {
        self.fetch(self.target("collections")).await
    }

    /// The indexes.
    pub async fn indexes(&self) -> Result<Indexes, Error> {
        self.fetch(self.target("indexes")).await
    }

    /// Declares an index; it is built while others go on.
    pub async fn add_index(&self, collection: &str, field: &str) -> Result<IndexInfo, Error> {
        self.ask(Call::new(Method::PUT, self.index(collection, field).text)).await
    }

    /// Drops an index.
    pub async fn drop_index(&self, collection: &str, field: &str) -> Result<IndexInfo, Error> {
        self.ask(Call::new(Method::DELETE, self.index(collection, field).text).once()).await
    }

    /// Everything there is in the namespace, line by line.
    pub async fn dump(&self) -> Result<Dump, Error> {
        let call =
            Call { accept: "application/x-ndjson", ..Call::new(Method::GET, self.target("dump").text) };
        Ok(Dump::new(self.nodes.open(&call).await?))
    }

    /// Fills an empty namespace with what [`Store::dump`] gave. May take any time.
    pub async fn load<S>(&self, source: S) -> Result<LoadAnswer, Error>
    where
        S: Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        let frames = source.map_ok(Frame::data).map_err(Into::into);
        let call = Call {
            content_type: Some("application/x-ndjson"),
            ..Call::new(Method::POST, self.target("load").text)
        };
        transport::upload(self.nodes.address(), &call, StreamBody::new(frames).boxed_unsync()).await
    }

    fn target(&self, rest: &str) -> Target {
        Target::new(&self.namespace, rest)
    }

    fn document(&self, at: &DocumentKey) -> Target {
        self.about(at, "documents")
    }

    /// One of the addresses of a document.
    fn about(&self, at: &DocumentKey, what: &str) -> Target {
        self.target(&format!("{what}/{}/{}", escape(&at.collection), escape(&at.key.segment())))
    }

    fn index(&self, collection: &str, field: &str) -> Target {
        self.target(&format!("indexes/{}/{}", escape(collection), escape(field)))
    }

    async fn fetch<T: DeserializeOwned>(&self, target: Target) -> Result<T, Error> {
        self.ask(Call::new(Method::GET, target.text)).await
    }

    async fn post<T: DeserializeOwned>(&self, rest: &str, body: &impl Serialize) -> Result<T, Error> {
        self.ask(Call::with_json(Method::POST, self.target(rest).text, body)).await
    }

    async fn ask<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        self.nodes.ask(&call).await
    }

    /// The same for a write, which may have to wait for others' locks first.
    async fn write_on(&self, call: Call, terms: &Terms) -> Result<Written, Error> {
        self.nodes.ask_within(&call.with_retry_key(), terms.wait.unwrap_or_default()).await
    }
}

/// What need not be said is not said.
fn deleted(deleted: Deleted) -> Option<&'static str> {
    (deleted != Deleted::default()).then(|| deleted.as_str())
}

fn read_by(target: Target, options: &ReadOptions) -> Target {
    let target = target
        .query("at", options.at)
        .query("deleted", deleted(options.deleted))
        .query("isolation", options.isolation.map(Isolation::as_str));
    options.terms.on(target)
}

fn written_by(target: Target, options: &PutOptions) -> Target {
    let target = target
        .query("position", options.position)
        .query("user", options.user.as_ref())
        .query("note", options.note.as_ref());
    options.terms.on(target)
}

/// The pages of a filter, fetched when they are asked for.
#[derive(Debug, Clone)]
pub struct Pages {
    store: Store,
    /// What to ask next; none after the last page.
    request: Option<FilterRequest>,
}

impl Pages {
    /// The next page; none after the last one.
    pub async fn next(&mut self) -> Result<Option<DocumentPage>, Error> {
        let Some(request) = self.request.take() else { return Ok(None) };
        let page = self.store.filter(&request).await?;
        self.request = page.next.clone().map(|cursor| FilterRequest { cursor: Some(cursor), ..request });
        Ok(Some(page))
    }

    /// Their documents one by one. After an error it ends.
    pub fn documents(self) -> impl Stream<Item = Result<DocumentInfo, Error>> {
        stream::try_unfold(self, |mut pages| async {
            let page = pages.next().await?;
            Ok::<_, Error>(page.map(|page| (stream::iter(page.documents.into_iter().map(Ok)), pages)))
        })
        .try_flatten()
    }
}
