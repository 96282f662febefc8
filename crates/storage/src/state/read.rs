//! Everything that can be asked of the state at one moment. Knows nothing of filters over many documents, nor
//! of how answers are written.

use super::{
    index::{self, IndexInfo, IndexState},
    keys, past,
    record::{self, DocumentRef},
};
use crate::{
    entry::Entry,
    lease::StoredLease,
    store::{Batch, Order, Pair, Slice, Snapshot, Space, StoreError, after_prefix, with_prefix},
};
use lockwood_model::{Commit, Condition, Document, DocumentKey, FieldPath, Key, Lease, LockId, Position};
use std::{
    collections::HashMap,
    ops::{Bound, ControlFlow},
};

/// A namespace's number in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceId(pub u32);

/// The state as a snapshot of the store shows it.
#[derive(Clone, Copy)]
pub struct State<'a> {
    pub(crate) snapshot: &'a dyn Snapshot,
}

/// A write request and where in the log it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitAt {
    /// The record of the log.
    pub index: u64,
    /// The request; its note is absent if notes were erased.
    pub commit: Commit,
}

/// One step of a document's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Where it was done.
    pub position: Position,
    /// As it was before; none if it came into being.
    pub before: Option<Document>,
    /// As it became.
    pub after: Document,
}

type Read<T> = Result<T, StoreError>;

/// Is shown a change: where, which fields it touched, the document before and after. Says whether to go on.
pub type See<'a> = dyn FnMut(Position, &[&str], Option<&Document>, &Document) -> ControlFlow<()> + 'a;

impl<'a> State<'a> {
    /// The state that `snapshot` shows.
    pub fn new(snapshot: &'a dyn Snapshot) -> State<'a> {
        State { snapshot }
    }

    /// The last record of the log that is in the state.
    pub fn applied(&self) -> Read<u64> {
        self.meta(keys::meta::APPLIED)
    }

    /// Up to which record of the log history was forgotten.
    pub fn trimmed(&self) -> Read<u64> {
        self.meta(keys::meta::TRIMMED)
    }

    /// The number of a namespace that has something in it.
    pub fn namespace(&self, name: &str) -> Read<Option<NamespaceId>> {
        let found = self.snapshot.get(Space::Meta, &keys::meta::namespace(name))?;
        found.map(|bytes| read_number(&bytes).map(|number| NamespaceId(number as u32))).transpose()
    }

    /// All namespaces that have something in them, by name.
    pub fn namespaces(&self) -> Read<Vec<(String, NamespaceId)>> {
        let found = self.snapshot.scan(Space::Meta, with_prefix(keys::meta::NAMESPACES), Order::Forward);
        found
            .map(|pair| {
                let (key, value) = pair?;
                let name = String::from_utf8(key[1..].to_vec())
                    .map_err(|_| StoreError::damaged("the name of a namespace"))?;
                Ok((name, NamespaceId(read_number(&value)? as u32)))
            })
            .collect()
    }

    /// The namespaces with a part of a dump in them, by name.
    pub fn half_loaded(&self) -> Read<Vec<String>> {
        let found = self.snapshot.scan(Space::Meta, with_prefix(keys::meta::LOADING), Order::Forward);
        found.map(|pair| Ok(String::from_utf8_lossy(&pair?.0[1..]).into_owned())).collect()
    }

    /// The position of the last write.
    pub fn position(&self, namespace: NamespaceId) -> Read<Position> {
        self.meta(&keys::meta::position(namespace.0)).map(Position)
    }

    /// The history up to this position is forgotten.
    pub fn horizon(&self, namespace: NamespaceId) -> Read<Position> {
        self.meta(&keys::meta::horizon(namespace.0)).map(Position)
    }

    /// The last position of a namespace of this name that was purged.
    pub fn past(&self, name: &str) -> Read<Position> {
        self.meta(&keys::meta::past(name)).map(Position)
    }

    /// When documents of a collection were last purged.
    pub fn purged(&self, namespace: NamespaceId, collection: &str) -> Read<Position> {
        self.meta(&keys::meta::purged(namespace.0, collection)).map(Position)
    }

    /// The purges that have to be completed: their records, and the last record with something to erase; 0 if
    /// something is left in the state.
    pub fn purging(&self) -> Read<Vec<(u64, u64)>> {
        let found = self.snapshot.scan(Space::Meta, with_prefix(keys::meta::PURGING), Order::Forward);
        found
            // The first one is their number.
            .skip(1)
            .map(|pair| {
                let (key, value) = pair?;
                Ok((read_number(&key[1..])?, read_number(&value)?))
            })
            .collect()
    }

    /// What of a commit is not purged, while the log may still have more.
    fn without_purged(&self, namespace: NamespaceId, mut commit: Commit) -> Read<Commit> {
        let mut events = Vec::with_capacity(commit.events.len());
        for event in commit.events {
            let there = self.document(namespace, &event.at)?;
            // A document that came later has taken the key of one that is purged.
            if there.is_some_and(|document| document.created <= commit.position) {
                events.push(event);
            } else {
                commit.note = None;
            }
        }
        commit.user = commit.user.filter(|_| !events.is_empty() || commit.purged.is_some());
        Ok(Commit { events, ..commit })
    }

    /// Some documents of a namespace after one, of one collection if one is named.
    pub fn some_documents(
        &self,
        namespace: NamespaceId,
        collection: Option<&str>,
        after: Option<&DocumentKey>,
        len_max: usize,
    ) -> Read<Vec<DocumentKey>> {
        let (mut start, end) = with_prefix(&match collection {
            Some(collection) => keys::collection(namespace.0, collection),
            None => keys::namespace(namespace.0),
        });
        if let Some(at) = after {
            start = Bound::Excluded(keys::document(namespace.0, at));
        }
        let found = self.snapshot.scan(Space::Documents, (start, end), Order::Forward);
        found.take(len_max).map(|pair| document_pair(pair).map(|(at, _)| at)).collect()
    }

    /// Which version its data is of, if whoever began it said so.
    pub fn version(&self, namespace: NamespaceId) -> Read<Option<i64>> {
        let found = self.snapshot.get(Space::Meta, &keys::meta::version(namespace.0))?;
        found.map(|bytes| read_number(&bytes).map(|number| number as i64)).transpose()
    }

    /// The first id of a collection that is neither reserved nor used.
    pub fn next_id(&self, namespace: NamespaceId, collection: &str) -> Read<u64> {
        self.meta(&keys::meta::counter(namespace.0, collection)).map(|next| next.max(1))
    }

    /// All counters of a namespace.
    pub fn counters(&self, namespace: NamespaceId) -> Read<Vec<(String, u64)>> {
        let prefix = keys::meta::counters(namespace.0);
        let found = self.snapshot.scan(Space::Meta, with_prefix(&prefix), Order::Forward);
        found
            .map(|pair| {
                let (key, value) = pair?;
                let name = String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
                Ok((name, read_number(&value)?))
            })
            .collect()
    }

    pub(crate) fn meta(&self, key: &[u8]) -> Read<u64> {
        self.snapshot.get(Space::Meta, key)?.map_or(Ok(0), |bytes| read_number(&bytes))
    }

    /// A document, deleted or not.
    pub fn document(&self, namespace: NamespaceId, at: &DocumentKey) -> Read<Option<Document>> {
        let Some(bytes) = self.document_bytes(namespace, at)? else { return Ok(None) };
        DocumentRef::read(&bytes).map(|document| Some(document.to_document()))
    }

    /// A document's record, for [`DocumentRef::read`].
    pub fn document_bytes(&self, namespace: NamespaceId, at: &DocumentKey) -> Read<Option<Slice>> {
        self.snapshot.get(Space::Documents, &keys::document(namespace.0, at))
    }

    /// A document as it was after a position, deleted or not.
    pub fn document_at(
        &self,
        namespace: NamespaceId,
        at: &DocumentKey,
        position: Position,
    ) -> Read<Option<Document>> {
        let Some(current) = self.document(namespace, at)? else { return Ok(None) };
        self.back_to(namespace, at, &current, position)
    }

    /// The same for a document whose current content is at hand.
    pub fn back_to(
        &self,
        namespace: NamespaceId,
        at: &DocumentKey,
        current: &Document,
        position: Position,
    ) -> Read<Option<Document>> {
        past::document_at(self, &keys::document(namespace.0, at), current, position)
    }

    /// The documents of a collection and their records, by key, from after `after` on.
    pub fn documents(
        &self,
        namespace: NamespaceId,
        collection: &str,
        after: Option<&Key>,
        order: Order,
    ) -> impl Iterator<Item = Read<(DocumentKey, Slice)>> + use<'a> {
        let prefix = keys::collection(namespace.0, collection);
        let (mut start, mut end) = with_prefix(&prefix);
        if let Some(key) = after {
            let at = DocumentKey::new(collection, key.clone());
            let bound = Bound::Excluded(keys::document(namespace.0, &at));
            match order {
                Order::Forward => start = bound,
                Order::Backward => end = bound,
            }
        }
        self.snapshot.scan(Space::Documents, (start, end), order).map(document_pair)
    }

    /// The collections that have or had documents, by name.
    pub fn collections(&self, namespace: NamespaceId) -> Read<Vec<String>> {
        let prefix = keys::namespace(namespace.0);
        let (mut start, end) = with_prefix(&prefix);
        let mut names = Vec::new();
        // From the first document of each collection straight to behind its last one.
        while let Some(pair) =
            self.snapshot.scan(Space::Documents, (start, end.clone()), Order::Forward).next()
        {
            let (key, _) = pair?;
            let at = keys::read_document(&key).ok_or_else(|| StoreError::damaged("the key of a document"))?;
            start = after_prefix(&keys::collection(namespace.0, &at.collection));
            names.push(at.collection.into());
            if let Bound::Excluded(key) = start {
                start = Bound::Included(key);
            }
        }
        Ok(names)
    }

    /// When a field was last touched in any document of a collection.
    pub fn touched(&self, namespace: NamespaceId, collection: &str, field: &str) -> Read<Position> {
        let found = self.snapshot.get(Space::Touched, &keys::touched(namespace.0, collection, field))?;
        found.map_or(Ok(Position::START), |bytes| read_number(&bytes).map(Position))
    }

    /// The positions that were answered to a call with this idempotency key, and its digest.
    pub fn answer(&self, namespace: NamespaceId, key: &str) -> Read<Option<Answered>> {
        let Some(bytes) = self.snapshot.get(Space::Answers, &keys::answer(namespace.0, key))? else {
            return Ok(None);
        };
        let (fingerprint, first, last) =
            record::decode(&bytes).ok_or_else(|| StoreError::damaged("an answer that was given"))?;
        Ok(Some(Answered { fingerprint, first: Position(first), last: Position(last) }))
    }

    /// A lease that is held.
    pub fn lease(&self, namespace: &str, lock: LockId) -> Read<Option<Lease>> {
        let found = self.snapshot.get(Space::Leases, &keys::lease(namespace, lock.0))?;
        found.map(|bytes| read_lease(&bytes)).transpose()
    }

    /// All leases that are held, with their namespaces.
    pub fn leases(&self) -> Read<Vec<(Box<str>, Lease)>> {
        let pairs = self.snapshot.scan(Space::Leases, with_prefix(&[]), Order::Forward);
        let leases = pairs.map(|pair| {
            let (key, value) = pair?;
            let (namespace, _) =
                keys::read_lease(&key).ok_or_else(|| StoreError::damaged("the key of a lease"))?;
            Ok((namespace.into(), read_lease(&value)?))
        });
        leases.collect()
    }

    /// The write request at a position, if it is still kept.
    pub fn commit(&self, namespace: NamespaceId, position: Position) -> Read<Option<CommitAt>> {
        self.commits(namespace, position, Some(position)).next().transpose()
    }

    /// The write requests from a position on, up to `to` if given.
    pub fn commits(
        &self,
        namespace: NamespaceId,
        from: Position,
        to: Option<Position>,
    ) -> impl Iterator<Item = Read<CommitAt>> + use<'a> {
        let start = Bound::Included(keys::position(namespace.0, from));
        let end = match to {
            // A range must not end before it starts.
            Some(position) if position < from => Bound::Excluded(keys::position(namespace.0, from)),
            Some(position) => Bound::Included(keys::position(namespace.0, position)),
            None => after_prefix(&keys::namespace(namespace.0)),
        };
        let state = *self;
        let mut last: Option<(u64, Vec<Commit>)> = None;
        let mut erased: Option<(Position, bool)> = None;
        self.snapshot.scan(Space::Positions, (start, end), Order::Forward).map(move |pair| {
            let (key, value) = pair?;
            let damaged = || StoreError::damaged("the index of positions");
            let position = key.get(4..).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
            let position = Position(position.ok_or_else(damaged)?);
            let index = read_number(&value)?;
            if last.as_ref().is_none_or(|(found, _)| *found != index) {
                last = Some((index, state.record_commits(index)?));
            }
            let (erased, purging) = match erased {
                Some(erased) => erased,
                None => *erased.insert((
                    Position(state.meta(&keys::meta::erased(namespace.0))?),
                    state.meta(keys::meta::PURGING)? > 0,
                )),
            };
            let (_, commits) = last.as_ref().expect("it was just read");
            let mut commit =
                commits.iter().find(|commit| commit.position == position).cloned().ok_or_else(damaged)?;
            if position <= erased {
                commit.note = None;
            }
            if purging {
                commit = state.without_purged(namespace, commit)?;
            }
            Ok(CommitAt { index, commit })
        })
    }

    fn record_commits(&self, index: u64) -> Read<Vec<Commit>> {
        match self.entry(index)? {
            Some(Entry::Committed { commits, .. }) => Ok(commits),
            Some(Entry::Purged { commit, .. }) => Ok(vec![commit]),
            _ => Err(StoreError::damaged(format!("the record {index} of the log"))),
        }
    }

    /// A record of the log.
    pub fn entry(&self, index: u64) -> Read<Option<Entry>> {
        let found = self.snapshot.get(Space::Log, &index.to_be_bytes())?;
        found.map(|record| Entry::decode(index, &record)).transpose()
    }

    /// A record of the log as it is kept.
    pub fn record(&self, index: u64) -> Read<Option<Slice>> {
        self.snapshot.get(Space::Log, &index.to_be_bytes())
    }

    /// Shows the history of a document after a position, the newest of the first `len_max` steps first. Not
    /// all at once: each step has the whole document twice.
    pub fn each_step(
        &self,
        namespace: NamespaceId,
        at: &DocumentKey,
        after: Position,
        len_max: usize,
        see: &mut dyn FnMut(&Step) -> Read<()>,
    ) -> Read<()> {
        let Some(current) = self.document(namespace, at)? else { return Ok(()) };
        let key = keys::document(namespace.0, at);
        let horizon = self.horizon(namespace)?;
        let positions = self.change_positions(&key, &current, after.max(horizon), len_max)?;
        let Some(last) = positions.last() else { return Ok(()) };
        let mut document = past::document_at(self, &key, &current, *last)?
            .ok_or_else(|| StoreError::damaged("the history of a document"))?;
        for position in positions.into_iter().rev() {
            let before = match self.snapshot.get(Space::History, &keys::history(&key, position))? {
                None => None,
                Some(bytes) => {
                    let mut before = document.clone();
                    past::undo_step(&mut before, &record::read_undo(&bytes)?);
                    Some(before)
                }
            };
            let after = match &before {
                Some(before) => std::mem::replace(&mut document, before.clone()),
                None => document.clone(),
            };
            see(&Step { position, before, after })?;
        }
        Ok(())
    }

    /// The history of a document after a position, oldest first.
    pub fn history(
        &self,
        namespace: NamespaceId,
        at: &DocumentKey,
        after: Position,
        len_max: usize,
    ) -> Read<Vec<Step>> {
        let mut steps = Vec::new();
        self.each_step(namespace, at, after, len_max, &mut |step| {
            steps.push(step.clone());
            Ok(())
        })?;
        steps.reverse();
        Ok(steps)
    }

    /// When a document changed, its creation included, oldest first.
    pub fn changed_at(
        &self,
        namespace: NamespaceId,
        at: &DocumentKey,
        len_max: usize,
    ) -> Read<Vec<Position>> {
        let Some(current) = self.document(namespace, at)? else { return Ok(Vec::new()) };
        self.change_positions(&keys::document(namespace.0, at), &current, Position::START, len_max)
    }

    /// When a document changed after a position, its creation included.
    fn change_positions(
        &self,
        key: &[u8],
        current: &Document,
        after: Position,
        len_max: usize,
    ) -> Read<Vec<Position>> {
        let mut positions = Vec::new();
        if current.created > after {
            positions.push(current.created);
        }
        let range = (Bound::Included(keys::history(key, after.next())), after_prefix(key));
        for pair in self.snapshot.scan(Space::History, range, Order::Forward) {
            if positions.len() >= len_max {
                break;
            }
            let (found, _) = pair?;
            let (_, position) =
                keys::read_history(&found).ok_or_else(|| StoreError::damaged("the history of a document"))?;
            positions.push(position);
        }
        positions.truncate(len_max);
        Ok(positions)
    }

    /// Shows every document of a collection that changed after a position, change by change, until told to
    /// stop.
    pub fn changes_after(
        &self,
        namespace: NamespaceId,
        collection: &str,
        after: Position,
        see: &mut See<'_>,
    ) -> Read<()> {
        for commit in self.commits(namespace, after.next(), None) {
            if self.changes_of(namespace, collection, &commit?.commit, see)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The same for one commit, which need not be in the log yet; says whether it was told to stop.
    pub fn changes_of(
        &self,
        namespace: NamespaceId,
        collection: &str,
        commit: &Commit,
        see: &mut See<'_>,
    ) -> Read<ControlFlow<()>> {
        let mut places: HashMap<&DocumentKey, usize> = HashMap::new();
        let mut touched: Vec<(&DocumentKey, Vec<&str>)> = Vec::new();
        for event in commit.events.iter().filter(|event| *event.at.collection == *collection) {
            let place = *places.entry(&event.at).or_insert(touched.len());
            if place == touched.len() {
                touched.push((&event.at, Vec::new()));
            }
            touched[place].1.extend(event.change.touches());
        }
        for (at, touched) in touched {
            let Some(became) = self.document_at(namespace, at, commit.position)? else { continue };
            let was = self.document_at(namespace, at, Position(commit.position.0 - 1))?;
            if see(commit.position, &touched, was.as_ref(), &became).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The declared indexes of a collection.
    pub fn indexes(&self, namespace: NamespaceId, collection: &str) -> Read<Vec<IndexInfo>> {
        let found =
            self.snapshot.get(Space::Meta, &keys::meta::collection_indexes(namespace.0, collection))?;
        found.map_or(Ok(Vec::new()), |bytes| read_indexes(&bytes))
    }

    /// All declared indexes of a namespace, with their collections.
    pub fn all_indexes(&self, namespace: NamespaceId) -> Read<Vec<(String, IndexInfo)>> {
        let prefix = keys::meta::indexes(namespace.0);
        let mut all = Vec::new();
        for pair in self.snapshot.scan(Space::Meta, with_prefix(&prefix), Order::Forward) {
            let (key, value) = pair?;
            let collection = String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
            all.extend(read_indexes(&value)?.into_iter().map(|index| (collection.clone(), index)));
        }
        Ok(all)
    }

    /// The documents that can fulfil a condition, as a ready index knows them; none if no index helps. They
    /// come in the order of the index and still have to be asked.
    pub fn candidates(
        &self,
        namespace: NamespaceId,
        collection: &str,
        conditions: &[&Condition],
    ) -> Read<Option<impl Iterator<Item = Read<DocumentKey>> + use<'a>>> {
        let indexes = self.indexes(namespace, collection)?;
        let ready = |index: &&IndexInfo| index.state == IndexState::Ready;
        let mut ranges = conditions.iter().filter_map(|condition| {
            let index = indexes.iter().filter(ready).find(|index| index.field == *condition.field())?;
            Some((condition.operator(), index::range(index, condition)?))
        });
        // An equality promises the fewest documents.
        let first = ranges.next();
        let best = match first {
            Some((lockwood_model::Operator::Equal, range)) => Some(range),
            other => ranges
                .find(|(operator, _)| *operator == lockwood_model::Operator::Equal)
                .or(other)
                .map(|(_, range)| range),
        };
        let Some(range) = best else { return Ok(None) };
        let snapshot = self.snapshot;
        Ok(Some(snapshot.scan(Space::Indexes, range, Order::Forward).map(move |pair| {
            let (place, _) = pair?;
            let damaged = || StoreError::damaged("a secondary index");
            let key = index::document_at(&place).ok_or_else(damaged)?;
            keys::read_document(key).ok_or_else(damaged)
        })))
    }

    /// Puts some more documents into an index that is being built, from after `after` on. Gives what to
    /// pass next time, or nothing when every document is in it.
    pub fn fill_index(
        &self,
        batch: &mut Batch,
        (namespace, collection): (NamespaceId, &str),
        index: &IndexInfo,
        after: Option<Vec<u8>>,
    ) -> Read<Option<Vec<u8>>> {
        index::fill(self, batch, (namespace.0, collection), index, after)
    }

    /// Declares that every document is in an index now.
    pub fn finish_index(
        &self,
        batch: &mut Batch,
        (namespace, collection): (NamespaceId, &str),
        field: &FieldPath,
    ) -> Read<()> {
        let mut indexes = self.indexes(namespace, collection)?;
        for index in &mut indexes {
            if index.field == *field {
                index.state = IndexState::Ready;
            }
        }
        write_indexes(batch, namespace.0, collection, &indexes);
        Ok(())
    }
}

/// What was answered to a call that had an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// The digest of the call.
    pub fingerprint: [u8; 16],
    /// The position of its first request.
    pub first: Position,
    /// And of its last.
    pub last: Position,
}

pub(crate) fn write_indexes(batch: &mut Batch, namespace: u32, collection: &str, indexes: &[IndexInfo]) {
    let key = keys::meta::collection_indexes(namespace, collection);
    if indexes.is_empty() {
        batch.remove(Space::Meta, key);
    } else {
        batch.put(Space::Meta, key, index::encode_list(indexes));
    }
}

fn read_indexes(bytes: &[u8]) -> Read<Vec<IndexInfo>> {
    index::decode_list(bytes).ok_or_else(|| StoreError::damaged("the list of indexes"))
}

fn read_lease(bytes: &[u8]) -> Read<Lease> {
    let stored: Option<StoredLease<'_>> = record::decode(bytes);
    stored.and_then(|stored| stored.to_lease()).ok_or_else(|| StoreError::damaged("a lease"))
}

pub(crate) fn read_number(bytes: &[u8]) -> Read<u64> {
    bytes.try_into().map(u64::from_be_bytes).map_err(|_| StoreError::damaged("a number"))
}

fn document_pair(pair: Pair) -> Read<(DocumentKey, Slice)> {
    let (key, value) = pair?;
    let at = keys::read_document(&key).ok_or_else(|| StoreError::damaged("the key of a document"))?;
    Ok((at, value))
}
