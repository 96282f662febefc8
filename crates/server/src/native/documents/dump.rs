//! A namespace as lines of text, of one moment, written as fast as they are taken. Knows nothing of files.

use super::{
    read::{Moment, aside},
    stream::stream,
};
use crate::{
    cluster::{NOWHERE, custody},
    native::{
        HttpError,
        http::{App, InPath},
    },
    shared::Shared,
};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use hyper::header;
use lockwood_model::{Budget, Commit, Document, DocumentKey, Key, Position};
use lockwood_node::{
    refusals::no_namespace,
    shard::{Find, PageError, Reading, Selection, ShardError},
    trouble::Trouble,
};
use lockwood_storage::{DocumentRef, NamespaceId, Order, Slice, StoreError};
use lockwood_wire::{
    Problem,
    documents::{DumpCommit, DumpDocument, DumpHead, DumpLine},
};
use std::sync::Arc;

/// A piece of a dump ends at this many bytes, or when so many documents or commits were looked at: not all of them
/// become lines.
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
) -> Result<Response, HttpError> {
    let moment = Moment::now(&shared, &namespace)?;
    // A node of a cluster may have nothing of what the others have.
    if moment.namespace.is_none() && !shared.is_spread(&namespace).await? {
        return Err(no_namespace(&moment.reading, &namespace, "dump")?.into());
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
    let custody = custody(shared, namespace)?;
    let searched = moment.searched(custody.as_ref()).unwrap_or(NOWHERE);
    let find = Find {
        namespace: searched,
        collection: collection.into(),
        filter: None,
        deleted: Selection::With,
        at: moment.as_of(namespace, Some(at))?,
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
        let horizon = moment.horizon(&name)?;
        let collections =
            moment.namespace.map_or(Ok(Vec::new()), |id| moment.reading.state().collections(id))?;
        Ok(Dump { moment, name, horizon, collections, place: Place::Head, lines: 0 })
    }

    /// Some more lines, or none yet; nothing after the last.
    fn piece(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let mut piece = Piece::default();
        let place = std::mem::replace(&mut self.place, Place::Done);
        self.place = match (place, self.moment.namespace) {
            (Place::Done, _) => return Ok(None),
            (Place::Head, _) => {
                piece.line(&self.head());
                Place::Documents { collection: 0, after: None }
            }
            (Place::Documents { collection, after }, Some(id)) if collection < self.collections.len() => {
                match self.documents(&mut piece, id, collection, after.as_ref())? {
                    Some(last) => Place::Documents { collection, after: Some(last) },
                    None => Place::Documents { collection: collection + 1, after: None },
                }
            }
            (Place::Documents { .. }, _) => Place::Commits(self.horizon),
            (Place::Commits(after), Some(id)) => {
                let found = self.moment.reading.state().commits(id, after.next(), None);
                match piece.commits(found.map(|found| Ok(found?.commit)))? {
                    Some(last) => Place::Commits(last),
                    None => Place::Tail,
                }
            }
            (Place::Commits(_), None) => Place::Tail,
            (Place::Tail, id) => {
                self.tail(&mut piece, id)?;
                Place::Done
            }
        };
        self.lines += piece.lines;
        Ok(Some(piece.out))
    }

    fn head(&self) -> DumpHead {
        DumpHead {
            lockwood: DumpHead::KIND.to_owned(),
            format: DumpHead::FORMAT,
            namespace: self.name.clone(),
            position: self.moment.position.0,
            horizon: self.horizon.0,
        }
    }

    /// Some of a collection's documents; gives the last one, or nothing if there are no more.
    fn documents(
        &self,
        piece: &mut Piece,
        id: NamespaceId,
        collection: usize,
        after: Option<&Key>,
    ) -> Result<Option<Key>, StoreError> {
        let name = &self.collections[collection];
        for pair in self.moment.reading.state().documents(id, name, after, Order::Forward) {
            let (at, record) = pair?;
            if let Some(document) = self.document(id, &at, &record)? {
                piece.line(&DumpLine::Document(DumpDocument::new(&at, &document)));
            }
            if piece.is_full_after_look() {
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

    fn tail(&self, piece: &mut Piece, id: Option<NamespaceId>) -> Result<(), StoreError> {
        if let Some(id) = id {
            let state = self.moment.reading.state();
            for (collection, next) in state.counters(id)? {
                piece.line(&DumpLine::Counter { collection, next });
            }
            for (collection, index) in state.all_indexes(id)? {
                piece.line(&DumpLine::index(collection, &index.field));
            }
        }
        piece.line(&DumpLine::End { lines: self.lines + piece.lines });
        Ok(())
    }
}

/// Lines that are sent together.
#[derive(Default)]
struct Piece {
    out: Vec<u8>,
    lines: u64,
    /// How many documents or commits were looked at for it.
    looks: usize,
}

impl Piece {
    fn line(&mut self, line: &impl serde::Serialize) {
        serde_json::to_writer(&mut self.out, line).expect("lines can be written");
        self.out.push(b'\n');
        self.lines += 1;
    }

    /// Some of the commits; gives the last one, or nothing if there are no more.
    fn commits(
        &mut self,
        commits: impl Iterator<Item = Result<Commit, StoreError>>,
    ) -> Result<Option<Position>, StoreError> {
        for commit in commits {
            let commit = commit?;
            // All that it did may be purged.
            if !commit.events.is_empty() || commit.purged.is_some() {
                self.line(&DumpLine::Commit(DumpCommit::from(&commit)));
            }
            if self.is_full_after_look() {
                return Ok(Some(commit.position));
            }
        }
        Ok(None)
    }

    /// Counts one more document or commit.
    fn is_full_after_look(&mut self) -> bool {
        self.looks += 1;
        self.out.len() >= PIECE_BYTES || self.looks >= PIECE_LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_model::{Change, Event, Json, Timestamp};

    /// As what is left of a commit when all that it did is purged.
    fn purged_commit(position: usize) -> Commit {
        Commit {
            position: Position(position as u64),
            at: Timestamp(0),
            user: None,
            note: None,
            events: Vec::new(),
            purged: None,
        }
    }

    #[test]
    fn commits_that_say_nothing_end_a_piece() {
        let commits = 3 * PIECE_LOOKS / 2;
        let mut read = 0;
        let mut all = (1..=commits).map(|position| {
            read += 1;
            Ok(purged_commit(position))
        });
        let mut piece = Piece::default();
        assert_eq!(piece.commits(&mut all).unwrap(), Some(Position(PIECE_LOOKS as u64)));
        assert_eq!((piece.lines, piece.out.len()), (0, 0));
        assert_eq!(Piece::default().commits(&mut all).unwrap(), None, "the rest");
        assert_eq!(read, commits);
    }

    #[test]
    fn piece_ends_at_its_bytes() {
        let note = Json::trusted(&format!("\"{}\"", "x".repeat(PIECE_BYTES)));
        let at = DocumentKey { collection: "c".into(), key: "1".parse().unwrap() };
        let event = Event { at, change: Change::Deleted { fields: Vec::new() } };
        let all = (1..=2).map(|position| {
            let (events, note) = (vec![event.clone()], Some(note.clone()));
            Ok(Commit { events, note, ..purged_commit(position) })
        });
        let mut piece = Piece::default();
        assert_eq!(piece.commits(all).unwrap(), Some(Position(1)));
        assert_eq!(piece.lines, 1);
    }
}
