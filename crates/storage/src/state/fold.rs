//! From a record of the log to the changes of the state. Decides nothing: the same records make the same
//! state, whoever folds them and when.

use super::{
    index::{self, IndexInfo, IndexState},
    keys, past,
    purge::BESIDE_DOCUMENTS,
    read::{NamespaceId, State, read_number, write_indexes},
    record,
};
use crate::{
    entry::{Answer, Entry},
    lease::StoredLease,
    overlay::Overlay,
    store::{Batch, Order, Snapshot, Space, StoreError, with_prefix},
};
use lockwood_model::{
    Commit, Document, DocumentKey, Field, FieldPath, FieldValue, Json, Lease, Position, Purged,
};
use std::collections::{BTreeMap, HashMap};

/// The changes that one record makes, growing.
pub struct Fold<'a> {
    below: &'a dyn Snapshot,
    pub(super) batch: Batch,
    index: u64,
}

/// A document that a write request changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folded {
    /// Which.
    pub at: DocumentKey,
    /// As it was; none if it was not there.
    pub before: Option<Document>,
    /// As it is.
    pub after: Document,
}

/// Documents as they are before a write request, as far as they were looked at.
pub type Documents = HashMap<DocumentKey, Option<Document>>;

type Done = Result<(), StoreError>;

impl<'a> Fold<'a> {
    /// Starts the record `index` on top of what `below` shows.
    pub fn new(below: &'a dyn Snapshot, index: u64) -> Fold<'a> {
        Fold { below, batch: Batch::default(), index }
    }

    /// What the state is with the changes so far.
    pub fn view(&self) -> Overlay<'_> {
        Overlay { below: self.below, above: &self.batch }
    }

    pub(super) fn read<T>(
        &self,
        question: impl FnOnce(State<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let view = self.view();
        question(State::new(&view))
    }

    /// The number of a namespace, which is new if there is nothing in it yet.
    pub fn namespace(&mut self, name: &str) -> Result<NamespaceId, StoreError> {
        if let Some(found) = self.read(|state| state.namespace(name))? {
            return Ok(found);
        }
        let number = self.next_number(keys::meta::NEXT_NAMESPACE)?;
        self.put_number(keys::meta::namespace(name), u64::from(number));
        let past = self.read(|state| state.past(name))?;
        if past > Position::START {
            self.put_number(keys::meta::position(number), past.0);
            self.put_number(keys::meta::horizon(number), past.0);
        }
        Ok(NamespaceId(number))
    }

    fn next_number(&mut self, key: &[u8]) -> Result<u32, StoreError> {
        let next = self.read(|state| state.meta(key))?;
        self.put_number(key.to_vec(), next + 1);
        u32::try_from(next).map_err(|_| StoreError::Failed("there are too many namespaces or indexes".into()))
    }

    pub(super) fn put_number(&mut self, key: Vec<u8>, number: u64) {
        self.batch.put(Space::Meta, key, number.to_be_bytes());
    }

    /// Takes in a write request; the record it is in comes with [`Fold::finish`]. What is already `known` of
    /// its documents need not be read, and is not true any more afterwards.
    pub fn commit(
        &mut self,
        namespace: NamespaceId,
        commit: &Commit,
        known: &mut Documents,
    ) -> Result<Vec<Folded>, StoreError> {
        let mut folded: Vec<Folded> = Vec::with_capacity(commit.events.len());
        let mut places = HashMap::with_capacity(commit.events.len());
        for event in &commit.events {
            let place = match places.get(&event.at) {
                Some(place) => *place,
                None => {
                    let before = match known.remove(&event.at) {
                        Some(before) => before,
                        None => self.read(|state| state.document(namespace, &event.at))?,
                    };
                    let after = before.clone().unwrap_or_else(Document::unborn);
                    folded.push(Folded { at: event.at.clone(), before, after });
                    places.insert(&event.at, folded.len() - 1);
                    folded.len() - 1
                }
            };
            folded[place].after.apply(&event.change, commit.position);
            for field in event.change.touches() {
                let key = keys::touched(namespace.0, &event.at.collection, field);
                self.batch.put(Space::Touched, key, commit.position.0.to_be_bytes());
            }
        }
        for document in &folded {
            self.document(namespace, commit.position, document)?;
        }
        self.put_number(keys::meta::position(namespace.0), commit.position.0);
        let key = keys::position(namespace.0, commit.position);
        self.batch.put(Space::Positions, key, self.index.to_be_bytes());
        Ok(folded)
    }

    fn document(&mut self, namespace: NamespaceId, position: Position, folded: &Folded) -> Done {
        let Folded { at, before, after } = folded;
        let key = keys::document(namespace.0, at);
        // A document without positions has no history to go back to.
        match before.as_ref().filter(|before| before.is_born()) {
            Some(before) => {
                self.batch.put(Space::History, keys::history(&key, position), past::undo(before, after));
            }
            None => self.raise_counter(namespace, at)?,
        }
        self.put_document(namespace, at, before.as_ref(), after)
    }

    pub(super) fn put_document(
        &mut self,
        namespace: NamespaceId,
        at: &DocumentKey,
        before: Option<&Document>,
        after: &Document,
    ) -> Done {
        let key = keys::document(namespace.0, at);
        let indexes = self.read(|state| state.indexes(namespace, &at.collection))?;
        index::update(&mut self.batch, &indexes, &key, before, Some(after));
        self.batch.put(Space::Documents, key, record::encode_document(after));
        Ok(())
    }

    /// Ids that were given by hand are not handed out again.
    pub(super) fn raise_counter(&mut self, namespace: NamespaceId, at: &DocumentKey) -> Done {
        let Some(id) = at.key.as_number().and_then(|id| u64::try_from(id).ok()) else { return Ok(()) };
        if self.read(|state| state.next_id(namespace, &at.collection))? <= id {
            self.put_number(keys::meta::counter(namespace.0, &at.collection), id + 1);
        }
        Ok(())
    }

    /// Takes in a whole record, as a replay does.
    pub fn apply(&mut self, entry: &Entry) -> Done {
        match entry {
            Entry::Committed { namespace, commits, .. } => {
                let id = self.namespace(namespace)?;
                let known = &mut Documents::default();
                commits.iter().try_for_each(|commit| self.commit(id, commit, known).map(drop))?;
            }
            Entry::Reserved { namespace, collection, next } => {
                let id = self.namespace(namespace)?;
                self.put_number(keys::meta::counter(id.0, collection), *next);
            }
            Entry::Indexed { namespace, collection, field, wanted } => {
                let id = self.namespace(namespace)?;
                self.index(id, collection, field, *wanted)?;
            }
            Entry::Kept { namespace, put, removed } => {
                let id = self.namespace(namespace)?;
                put.iter().try_for_each(|(at, fields)| self.keep(id, at, fields))?;
                removed.iter().try_for_each(|at| self.discard(id, at))?;
            }
            Entry::NotesErased { namespace } => {
                let id = self.namespace(namespace)?;
                let position = self.read(|state| state.position(id))?;
                self.put_number(keys::meta::erased(id.0), position.0);
            }
            Entry::Emptied { namespace } => self.empty(namespace)?,
            Entry::Loaded { namespace, horizon, documents } => {
                let id = self.namespace(namespace)?;
                self.load(id, *horizon, documents)?;
            }
            Entry::Trimmed { to } => self.trim(*to)?,
            Entry::Merged { namespace, at, set, removed } => {
                let id = self.namespace(namespace)?;
                self.merge(id, at, set, removed)?;
            }
            Entry::Versioned { namespace, version } => {
                let id = self.namespace(namespace)?;
                self.batch.put(Space::Meta, keys::meta::version(id.0), version.to_be_bytes());
            }
            Entry::Loading { namespace, done: false } => {
                self.batch.put(Space::Meta, keys::meta::loading(namespace), []);
            }
            Entry::Loading { namespace, done: true } => {
                self.batch.remove(Space::Meta, keys::meta::loading(namespace));
            }
            Entry::Leased { namespace, lease } => self.put_lease(namespace, lease),
            Entry::LeaseRenewed { namespace, lock, expires_at, ttl_ms } => {
                if let Some(mut lease) = self.read(|state| state.lease(namespace, *lock))? {
                    lease.expires_at = *expires_at;
                    lease.ttl_ms = ttl_ms.or(lease.ttl_ms);
                    self.put_lease(namespace, &lease);
                }
            }
            Entry::LeasesEnded { namespace, locks } => {
                locks
                    .iter()
                    .for_each(|lock| self.batch.remove(Space::Leases, keys::lease(namespace, lock.0)));
            }
            Entry::Installed { namespace, transition, horizon, documents } => {
                let id = self.namespace(namespace)?;
                self.install(id, *transition, documents)?;
                if self.read(|state| state.horizon(id))? < *horizon {
                    self.put_number(keys::meta::horizon(id.0), horizon.0);
                }
            }
            Entry::Forgotten { namespace, documents } => {
                let id = self.namespace(namespace)?;
                documents.iter().try_for_each(|at| self.forget(id, at))?;
            }
            Entry::Unmarked { namespace, documents } => {
                let id = self.namespace(namespace)?;
                let keys = documents.iter().map(|at| keys::document(id.0, at));
                keys.for_each(|key| self.batch.remove(Space::Marks, key));
            }
            Entry::Raised { floor } => {
                // A copy of another log may say again what it said earlier.
                let floor = self.read(|state| state.floor())?.max(*floor);
                self.put_number(keys::meta::FLOOR.to_vec(), floor.0);
            }
            Entry::Purged { namespace, commit, documents, next, pending } => {
                let id = self.namespace(namespace)?;
                self.purge(id, commit, documents, *next)?;
                if *pending {
                    // Up to which record there is something to erase is told by its last one.
                    self.mark_purge(self.index, Some(0))?;
                }
            }
            Entry::Unanswered { namespace, keys, .. } => {
                let id = self.namespace(namespace)?;
                keys.iter().for_each(|key| self.batch.remove(Space::Answers, keys::answer(id.0, key)));
            }
            Entry::Cleared { namespace, len } => self.clear(namespace, *len)?,
            Entry::Dropped { namespace, purged, purge } => {
                match purged {
                    Purged::Documents { .. } => {}
                    Purged::Collection { collection } => self.drop_name(namespace, Some(collection))?,
                    Purged::Namespace => self.drop_name(namespace, None)?,
                }
                self.mark_purge(*purge, Some(self.index))?;
            }
            Entry::PurgeEnded { purge } => self.mark_purge(*purge, None)?,
            Entry::Erased { namespace: Some(namespace) } => self.namespace(namespace).map(drop)?,
            Entry::Erased { namespace: None } => {}
        }
        Ok(())
    }

    /// Marks a purge as not complete, or takes the mark away; and counts the marks. The record that set a mark first may
    /// have been erased by a later purge, so that another one does when the log is read again.
    fn mark_purge(&mut self, purge: u64, last: Option<u64>) -> Result<(), StoreError> {
        let key = keys::meta::purging(purge);
        let purges = self.read(|state| state.meta(keys::meta::PURGING))?;
        let is_marked = self.read(|state| Ok(state.snapshot.get(Space::Meta, &key)?.is_some()))?;
        match last {
            Some(last) => self.put_number(key, last),
            None => self.batch.remove(Space::Meta, key),
        }
        let purges = match (is_marked, last) {
            (false, Some(_)) => purges + 1,
            (true, None) => purges.saturating_sub(1),
            _ => return Ok(()),
        };
        self.put_number(keys::meta::PURGING.to_vec(), purges);
        Ok(())
    }

    /// The batch with the record itself in it.
    pub fn finish(mut self, entry: &Entry) -> Result<Batch, StoreError> {
        if let Entry::Committed { namespace, commits, answer: Some(answer) } = entry {
            self.answer(namespace, commits, answer)?;
        }
        self.put_number(keys::meta::APPLIED.to_vec(), self.index);
        self.batch.put(Space::Log, self.index.to_be_bytes(), entry.encode());
        Ok(self.batch)
    }

    fn answer(&mut self, namespace: &str, commits: &[Commit], answer: &Answer) -> Done {
        let id = self.namespace(namespace)?;
        if let [first, .., last] | [first @ last] = commits {
            let value = record::encode(&(answer.fingerprint, first.position.0, last.position.0));
            self.batch.put(Space::Answers, keys::answer(id.0, &answer.key), value);
        }
        Ok(())
    }

    fn index(&mut self, namespace: NamespaceId, collection: &str, field: &FieldPath, wanted: bool) -> Done {
        let mut indexes = self.read(|state| state.indexes(namespace, collection))?;
        let known = indexes.iter().position(|index| index.field == *field);
        match (known, wanted) {
            (None, true) => {
                let number = self.next_number(keys::meta::NEXT_INDEX)?;
                indexes.push(IndexInfo { field: field.clone(), state: IndexState::Building, number });
            }
            (Some(known), false) => {
                let gone = indexes.remove(known);
                self.remove_all(Space::Indexes, &gone.number.to_be_bytes())?;
            }
            _ => {}
        }
        write_indexes(&mut self.batch, namespace.0, collection, &indexes);
        Ok(())
    }

    fn keep(&mut self, namespace: NamespaceId, at: &DocumentKey, fields: &[FieldValue]) -> Done {
        let before = self.read(|state| state.document(namespace, at))?;
        let mut after = Document::unborn();
        let field = |(name, value): &FieldValue| Field {
            name: name.clone(),
            position: Position::START,
            value: Some(value.clone()),
        };
        after.fields = fields.iter().map(field).collect();
        after.fields.sort_by(|a, b| a.name.cmp(&b.name));
        self.put_document(namespace, at, before.as_ref(), &after)
    }

    fn merge(
        &mut self,
        namespace: NamespaceId,
        at: &DocumentKey,
        set: &[FieldValue],
        removed: &[Box<str>],
    ) -> Done {
        let stored = self.read(|state| state.document(namespace, at))?.unwrap_or_else(Document::unborn);
        let mut fields: BTreeMap<&str, &Json> = stored.present().collect();
        fields.extend(set.iter().map(|(name, value)| (&**name, value)));
        for name in removed {
            fields.remove(&**name);
        }
        let fields: Vec<FieldValue> =
            fields.into_iter().map(|(name, value)| (name.into(), value.clone())).collect();
        self.keep(namespace, at, &fields)
    }

    pub(super) fn discard(&mut self, namespace: NamespaceId, at: &DocumentKey) -> Done {
        let before = self.read(|state| state.document(namespace, at))?;
        let indexes = self.read(|state| state.indexes(namespace, &at.collection))?;
        let key = keys::document(namespace.0, at);
        index::update(&mut self.batch, &indexes, &key, before.as_ref(), None);
        self.batch.remove(Space::Documents, key);
        Ok(())
    }

    fn load(
        &mut self,
        namespace: NamespaceId,
        horizon: Position,
        documents: &[(DocumentKey, Document)],
    ) -> Done {
        for (at, document) in documents {
            self.raise_counter(namespace, at)?;
            self.put_document(namespace, at, None, document)?;
        }
        self.put_number(keys::meta::position(namespace.0), horizon.0);
        self.put_number(keys::meta::horizon(namespace.0), horizon.0);
        Ok(())
    }

    fn empty(&mut self, name: &str) -> Done {
        self.batch.remove(Space::Meta, keys::meta::loading(name));
        let Some(namespace) = self.read(|state| state.namespace(name))? else { return Ok(()) };
        for (_, index) in self.read(|state| state.all_indexes(namespace))? {
            self.remove_all(Space::Indexes, &index.number.to_be_bytes())?;
        }
        for space in [Space::Documents].into_iter().chain(BESIDE_DOCUMENTS) {
            self.remove_all(space, &keys::namespace(namespace.0))?;
        }
        self.remove_all(Space::Meta, &keys::meta::counters(namespace.0))?;
        self.remove_all(Space::Meta, &keys::meta::indexes(namespace.0))?;
        self.remove_all(Space::Meta, &keys::meta::purges(namespace.0))?;
        let single = [keys::meta::position, keys::meta::horizon, keys::meta::erased, keys::meta::version];
        single.into_iter().for_each(|key| self.batch.remove(Space::Meta, key(namespace.0)));
        self.batch.remove(Space::Meta, keys::meta::namespace(name));
        Ok(())
    }

    /// Takes documents away for good. Which fields of the collection were touched when is not known any more: they were.
    fn purge(
        &mut self,
        namespace: NamespaceId,
        commit: &Commit,
        documents: &[DocumentKey],
        next: u64,
    ) -> Done {
        documents.iter().try_for_each(|at| self.forget(namespace, at))?;
        if let Some(collection) = commit.purged.as_ref().and_then(Purged::collection) {
            self.remove_all(Space::Touched, &keys::collection(namespace.0, collection))?;
            self.put_number(keys::meta::purged(namespace.0, collection), commit.position.0);
            // Ids of the documents are not handed out again, although nothing tells of them any more.
            if next > 0 {
                self.put_number(keys::meta::counter(namespace.0, collection), next);
            }
        }
        self.put_number(keys::meta::position(namespace.0), commit.position.0);
        let key = keys::position(namespace.0, commit.position);
        self.batch.put(Space::Positions, key, self.index.to_be_bytes());
        Ok(())
    }

    /// Takes away the first of what is known of a namespace besides its documents. Positions go too, so those who ask for
    /// one hear that it is not known any more.
    fn clear(&mut self, name: &str, len: u64) -> Done {
        let Some(namespace) = self.read(|state| state.namespace(name))? else { return Ok(()) };
        let position = self.read(|state| state.position(namespace))?;
        self.put_number(keys::meta::horizon(namespace.0), position.0.saturating_sub(1));
        let found = self.read(|state| state.beside_documents(namespace, len as usize))?;
        found.into_iter().for_each(|(space, key)| self.batch.remove(space, key));
        Ok(())
    }

    /// What was purged as a whole is not there any more. A namespace of the same name goes on behind its last position.
    fn drop_name(&mut self, name: &str, collection: Option<&str>) -> Done {
        let Some(namespace) = self.read(|state| state.namespace(name))? else { return Ok(()) };
        let Some(collection) = collection else {
            let position = self.read(|state| state.position(namespace))?;
            self.empty(name)?;
            self.put_number(keys::meta::past(name), position.0);
            return Ok(());
        };
        for index in self.read(|state| state.indexes(namespace, collection))? {
            self.remove_all(Space::Indexes, &index.number.to_be_bytes())?;
        }
        write_indexes(&mut self.batch, namespace.0, collection, &[]);
        self.batch.remove(Space::Meta, keys::meta::counter(namespace.0, collection));
        Ok(())
    }

    fn put_lease(&mut self, namespace: &str, lease: &Lease) {
        let key = keys::lease(namespace, lease.lock.0);
        self.batch.put(Space::Leases, key, record::encode(&StoredLease::from(lease)));
    }

    pub(super) fn remove_all(&mut self, space: Space, prefix: &[u8]) -> Done {
        let found: Vec<_> =
            self.view().scan(space, with_prefix(prefix), Order::Forward).collect::<Result<_, _>>()?;
        found.into_iter().for_each(|(key, _)| self.batch.remove(space, key));
        Ok(())
    }

    /// Forgets the history of everything up to the record `to`.
    fn trim(&mut self, to: u64) -> Done {
        let trimmed = self.read(|state| state.trimmed())?;
        for index in trimmed + 1..=to {
            match self.read(|state| state.entry(index))? {
                Some(Entry::Committed { namespace, commits, answer }) => {
                    self.trim_record(index, &namespace, &commits, answer.as_ref())?;
                }
                Some(Entry::Installed { namespace, documents, .. }) => {
                    self.trim_installed(&namespace, &documents)?;
                }
                Some(Entry::Purged { namespace, commit, .. }) => {
                    self.trim_record(index, &namespace, &[commit], None)?;
                }
                Some(_) => {}
                None => return Err(StoreError::damaged(format!("the log: record {index} is missing; it"))),
            }
        }
        self.put_number(keys::meta::TRIMMED.to_vec(), to.max(trimmed));
        Ok(())
    }

    fn trim_record(&mut self, index: u64, name: &str, commits: &[Commit], answer: Option<&Answer>) -> Done {
        let (Some(last), Some(namespace)) = (commits.last(), self.read(|state| state.namespace(name))?)
        else {
            return Ok(());
        };
        // A namespace that was emptied since has other writes at the same positions.
        let found = self.view().get(Space::Positions, &keys::position(namespace.0, last.position))?;
        if found.map(|bytes| read_number(&bytes)).transpose()? != Some(index) {
            return Ok(());
        }
        commits.iter().for_each(|commit| self.trim_commit(namespace, commit));
        self.put_number(keys::meta::horizon(namespace.0), last.position.0);
        match answer {
            Some(answer) => self.trim_answer(namespace, answer, last.position),
            None => Ok(()),
        }
    }

    fn trim_commit(&mut self, namespace: NamespaceId, commit: &Commit) {
        self.batch.remove(Space::Positions, keys::position(namespace.0, commit.position));
        for event in &commit.events {
            let key = keys::document(namespace.0, &event.at);
            self.batch.remove(Space::History, keys::history(&key, commit.position));
        }
    }

    /// The answer goes with the record, unless the same key was used again later.
    fn trim_answer(&mut self, namespace: NamespaceId, answer: &Answer, position: Position) -> Done {
        let found = self.read(|state| state.answer(namespace, &answer.key))?;
        if found.is_some_and(|answered| answered.last == position) {
            self.batch.remove(Space::Answers, keys::answer(namespace.0, &answer.key));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Memory, Store};

    #[test]
    fn floor_on_record_never_sinks() {
        let store = Memory::default();
        let snapshot = store.snapshot();
        let mut fold = Fold::new(&*snapshot, 1);
        for floor in [7, 77, 8] {
            fold.apply(&Entry::Raised { floor: Position(floor) }).unwrap();
        }
        assert_eq!(fold.read(|state| state.floor()).unwrap(), Position(77));
    }
}
