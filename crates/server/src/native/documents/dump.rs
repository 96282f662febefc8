//! A namespace as lines of text, of one moment, written as fast as they are taken. Knows nothing of files.

use super::{
    read::{Moment, aside},
    stream::stream,
};
use crate::{
    cluster::{NOWHERE, custody},
    native::http::{App, InPath, NoQuery, read_query},
    shard::{Find, PageError, Reading, Selection, ShardError},
    shared::Shared,
    trouble::Trouble,
};
use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::{IntoResponse, Response},
};
use hyper::header;
use lockwood_model::{Budget, Document, DocumentKey, Key, Position};
use lockwood_storage::{DocumentRef, NamespaceId, Order, Slice, StoreError};
use lockwood_wire::{
    Code, Problem,
    documents::{DumpCommit, DumpDocument, DumpHead, DumpLine},
};
use std::sync::Arc;

/// A piece of a dump ends at this many bytes, or when so many documents were looked at.
const PIECE_BYTES: usize = 256 * 1024;
const PIECE_LOOKS: usize = 100_000;

/// Everything there is in a namespace, for [`super::load`].
#[utoipa::path(get, path = "/v1/{namespace}/dump", params(("namespace" = String, Path)),
    responses((status = 200, description = "JSON lines.", content_type = "application/x-ndjson"),
    (status = 400, body = Problem),
    (status = 404, description = "There is no such namespace.", body = Problem)))]
pub(in crate::native) async fn dump(
    State(shared): App,
    InPath(namespace): InPath<String>,
    query: Result<Query<NoQuery>, QueryRejection>,
) -> Result<Response, Trouble> {
    let NoQuery {} = read_query(query)?;
    let moment = Moment::now(&shared, &namespace)?;
    // A node of a cluster may have nothing of what the others have.
    if moment.namespace.is_none() && !shared.cluster.is_on() {
        let message = format!("there is nothing in the namespace {namespace:?}, so there is nothing to dump");
        return Err(Trouble::new(Code::UnknownNamespace, message));
    }
    let dump = aside(move || Ok(Dump::new(moment, namespace)?)).await?;
    let (pieces, body) = stream(&shared)?;
    tokio::spawn(async move {
        // Whoever is gone needs no more lines.
        let _ = pieces.write(dump, |dump| Ok(dump.piece()?)).await;
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// The documents of a collection that this node answers for, as they were at a position, as lines. Broken off if the
/// shard map changes, as another node may answer for some of them then.
pub(crate) async fn dump_lines(
    shared: &Arc<Shared>,
    namespace: &str,
    collection: &str,
    at: u64,
) -> Result<Response, Trouble> {
    let moment = Moment::now(shared, namespace)?;
    let custody = custody(shared, namespace);
    let searched = moment.searched(custody.as_ref()).unwrap_or(NOWHERE);
    let find = Find {
        namespace: searched,
        collection: collection.into(),
        filter: None,
        deleted: Selection::With,
        at: moment.as_of(Some(at))?,
        looks_max: u64::MAX,
        // Read piece by piece, none of which is long.
        budget: Budget::unlimited(),
        custody,
    };
    let (pieces, body) = stream(shared)?;
    let (shared, epoch) = (Arc::clone(shared), shared.cluster.epoch());
    let lines = Lines { reading: moment.reading, find, after: None, shared, epoch };
    tokio::spawn(async move {
        // Whoever is gone needs no more lines.
        let _ = pieces.write(lines, Lines::next).await;
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// Documents and how far they are written.
struct Lines {
    reading: Reading,
    find: Find,
    after: Option<Key>,
    shared: Arc<Shared>,
    /// The shard map by which they are looked for.
    epoch: u64,
}

impl Lines {
    fn next(&mut self) -> Result<Option<Vec<u8>>, Trouble> {
        let piece = self.piece()?;
        if self.shared.cluster.epoch() == self.epoch { Ok(piece) } else { Err(ShardError::Elsewhere.into()) }
    }

    /// Some more lines; nothing after the last.
    fn piece(&mut self) -> Result<Option<Vec<u8>>, PageError> {
        let (mut out, mut last) = (Vec::new(), None);
        self.reading.each(&self.find, self.after.as_ref(), &mut |found, document| {
            let at = found().at;
            let line = DumpLine::Document(DumpDocument::new(&at, &document.to_document()));
            serde_json::to_writer(&mut out, &line).expect("lines can be written");
            out.push(b'\n');
            last = Some(at.key);
            out.len() < PIECE_BYTES
        })?;
        self.after = last;
        Ok(Some(out).filter(|out| !out.is_empty()))
    }
}

/// A dump and how far it is.
struct Dump {
    moment: Moment,
    name: String,
    horizon: Position,
    collections: Vec<String>,
    place: Place,
    /// How many lines there are so far.
    lines: u64,
}

/// What comes next.
enum Place {
    Head,
    /// The documents of a collection after this one.
    Documents {
        collection: usize,
        after: Option<Key>,
    },
    /// The commits after this one.
    Commits(Position),
    Tail,
    Done,
}

impl Dump {
    fn new(moment: Moment, name: String) -> Result<Dump, StoreError> {
        let horizon = moment.horizon()?;
        let collections =
            moment.namespace.map_or(Ok(Vec::new()), |id| moment.reading.state().collections(id))?;
        Ok(Dump { moment, name, horizon, collections, place: Place::Head, lines: 0 })
    }

    /// Some more lines; nothing after the last.
    fn piece(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let mut out = Vec::new();
        let place = std::mem::replace(&mut self.place, Place::Done);
        self.place = match (place, self.moment.namespace) {
            (Place::Done, _) => return Ok(None),
            (Place::Head, _) => {
                self.head(&mut out);
                Place::Documents { collection: 0, after: None }
            }
            (Place::Documents { collection, after }, Some(id)) if collection < self.collections.len() => {
                match self.documents(&mut out, id, collection, after.as_ref())? {
                    Some(last) => Place::Documents { collection, after: Some(last) },
                    None => Place::Documents { collection: collection + 1, after: None },
                }
            }
            (Place::Documents { .. }, _) => Place::Commits(self.horizon),
            (Place::Commits(after), Some(id)) => match self.commits(&mut out, id, after)? {
                Some(last) => Place::Commits(last),
                None => Place::Tail,
            },
            (Place::Commits(_), None) => Place::Tail,
            (Place::Tail, id) => {
                self.tail(&mut out, id)?;
                Place::Done
            }
        };
        Ok(Some(out))
    }

    fn line(&mut self, out: &mut Vec<u8>, line: &impl serde::Serialize) {
        serde_json::to_writer(&mut *out, line).expect("lines can be written");
        out.push(b'\n');
        self.lines += 1;
    }

    fn head(&mut self, out: &mut Vec<u8>) {
        let head = DumpHead {
            lockwood: DumpHead::KIND.to_owned(),
            format: DumpHead::FORMAT,
            namespace: self.name.clone(),
            position: self.moment.position.0,
            horizon: self.horizon.0,
        };
        self.line(out, &head);
    }

    /// Some of a collection's documents; gives the last one, or nothing if there are no more.
    fn documents(
        &mut self,
        out: &mut Vec<u8>,
        id: NamespaceId,
        collection: usize,
        after: Option<&Key>,
    ) -> Result<Option<Key>, StoreError> {
        let reading = self.moment.reading.clone();
        let name = &self.collections[collection];
        let found = reading.state().documents(id, name, after, Order::Forward);
        for (looks, pair) in found.enumerate() {
            let (at, record) = pair?;
            if let Some(document) = self.document(id, &at, &record)? {
                self.line(out, &DumpLine::Document(DumpDocument::new(&at, &document)));
            }
            if out.len() >= PIECE_BYTES || looks + 1 >= PIECE_LOOKS {
                return Ok(Some(at.key));
            }
        }
        Ok(None)
    }

    /// A document as it was at the horizon; those without positions are what they are.
    fn document(
        &self,
        id: NamespaceId,
        at: &DocumentKey,
        record: &Slice,
    ) -> Result<Option<Document>, StoreError> {
        let found = DocumentRef::read(record)?;
        if found.created() > self.horizon {
            return Ok(None);
        }
        self.moment.reading.state().back_to(id, at, &found.to_document(), self.horizon)
    }

    /// Some of the commits; gives the last one, or nothing if there are no more.
    fn commits(
        &mut self,
        out: &mut Vec<u8>,
        id: NamespaceId,
        after: Position,
    ) -> Result<Option<Position>, StoreError> {
        let reading = self.moment.reading.clone();
        for found in reading.state().commits(id, after.next(), None) {
            let commit = found?.commit;
            // All that it did may be purged.
            if !commit.events.is_empty() || commit.purged.is_some() {
                self.line(out, &DumpLine::Commit(DumpCommit::from(&commit)));
            }
            if out.len() >= PIECE_BYTES {
                return Ok(Some(commit.position));
            }
        }
        Ok(None)
    }

    fn tail(&mut self, out: &mut Vec<u8>, id: Option<NamespaceId>) -> Result<(), StoreError> {
        let reading = self.moment.reading.clone();
        if let Some(id) = id {
            for (collection, next) in reading.state().counters(id)? {
                self.line(out, &DumpLine::Counter { collection, next });
            }
            for (collection, index) in reading.state().all_indexes(id)? {
                self.line(out, &DumpLine::index(collection, &index.field));
            }
        }
        let end = DumpLine::End { lines: self.lines };
        self.line(out, &end);
        Ok(())
    }
}
