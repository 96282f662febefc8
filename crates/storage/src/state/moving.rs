//! Documents that come from another shard or leave for one: what is taken in, what is given away, and which keys
//! are known here already. Knows nothing of shards, nor of who decides that something moves.

use super::{
    fold::Fold,
    keys,
    read::{Answered, NamespaceId, State, read_number},
    record::{self, DocumentRef},
};
use crate::{
    entry::{Answer, Entry},
    moved::{Moved, MovedAnswer, MovedStep},
    store::{Order, Slice, Space, StoreError, with_prefix},
};
use lockwood_model::{DocumentKey, Json, Position, Timestamp};
use std::{collections::HashMap, ops::Bound};

/// Who wrote, when and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub user: Option<Json>,
    /// Why.
    pub note: Option<Json>,
}

type Done = Result<(), StoreError>;

impl Fold<'_> {
    /// Takes in documents that come from another shard, over whatever is here, and marks their keys as known.
    pub(super) fn install(&mut self, namespace: NamespaceId, transition: u64, documents: &[Moved]) -> Done {
        for moved in documents {
            let key = keys::document(namespace.0, &moved.at);
            if !moved.kept {
                self.forget(namespace, &moved.at)?;
            }
            self.batch.put(Space::Marks, key.clone(), transition.to_be_bytes());
            let Some(document) = &moved.document else { continue };
            for step in &moved.steps {
                let place = keys::history(&key, step.position);
                if let Some(undo) = &step.undo {
                    self.batch.put(Space::History, place.clone(), undo.clone());
                }
                let user = step.user.as_ref().map(Json::as_str);
                let note = step.note.as_ref().map(Json::as_str);
                let made = |answer: &&MovedAnswer| (answer.first..=answer.last).contains(&step.position);
                let answer = moved.answers.iter().find(made).map(|answer| &*answer.key);
                self.batch.put(Space::Origins, place, record::encode(&(step.at.0, user, note, answer)));
            }
            for answer in &moved.answers {
                let value = record::encode(&(answer.fingerprint, answer.first.0, answer.last.0));
                self.batch.put(Space::Answers, keys::answer(namespace.0, &answer.key), value);
            }
            self.raise_counter(namespace, &moved.at)?;
            for field in &document.fields {
                self.raise_touched(namespace, &moved.at.collection, &field.name, document.position)?;
            }
            self.put_document(namespace, &moved.at, None, document)?;
            if self.read(|state| state.position(namespace))? < document.position {
                self.put_number(keys::meta::position(namespace.0), document.position.0);
            }
        }
        Ok(())
    }

    fn raise_touched(&mut self, namespace: NamespaceId, collection: &str, field: &str, to: Position) -> Done {
        if self.read(|state| state.touched(namespace, collection, field))? < to {
            self.batch.put(Space::Touched, keys::touched(namespace.0, collection, field), to.0.to_be_bytes());
        }
        Ok(())
    }

    /// Forgets the past of documents that came from elsewhere.
    pub(super) fn trim_installed(&mut self, name: &str, documents: &[Moved]) -> Done {
        let Some(namespace) = self.read(|state| state.namespace(name))? else { return Ok(()) };
        let mut horizon = self.read(|state| state.horizon(namespace))?;
        for moved in documents {
            let key = keys::document(namespace.0, &moved.at);
            for step in &moved.steps {
                let place = keys::history(&key, step.position);
                self.batch.remove(Space::History, place.clone());
                self.batch.remove(Space::Origins, place);
                horizon = horizon.max(step.position);
            }
        }
        self.put_number(keys::meta::horizon(namespace.0), horizon.0);
        Ok(())
    }

    /// Takes a document away without a trace, and with it all that is known of its key.
    pub(super) fn forget(&mut self, namespace: NamespaceId, at: &DocumentKey) -> Done {
        let key = keys::document(namespace.0, at);
        if self.read(|state| state.document_bytes(namespace, at))?.is_some() {
            self.discard(namespace, at)?;
            self.remove_all(Space::History, &key)?;
            self.remove_all(Space::Origins, &key)?;
        }
        self.batch.remove(Space::Marks, key);
        Ok(())
    }
}

impl State<'_> {
    /// In which transition the key became known here; none if it is not known.
    pub fn mark(&self, namespace: NamespaceId, at: &DocumentKey) -> Result<Option<u64>, StoreError> {
        let found = self.snapshot.get(Space::Marks, &keys::document(namespace.0, at))?;
        found.map(|bytes| read_number(&bytes)).transpose()
    }

    /// The first marked keys of a namespace after one, at most so many, and in which transition each became known.
    pub fn marked(
        &self,
        namespace: NamespaceId,
        after: Option<&DocumentKey>,
        len_max: usize,
    ) -> Result<Vec<(DocumentKey, u64)>, StoreError> {
        let (mut start, end) = with_prefix(&keys::namespace(namespace.0));
        if let Some(at) = after {
            start = Bound::Excluded(keys::document(namespace.0, at));
        }
        let found = self.snapshot.scan(Space::Marks, (start, end), Order::Forward);
        let marks = found.take(len_max).map(|pair| {
            let (key, transition) = pair?;
            let key =
                keys::read_document(&key).ok_or_else(|| StoreError::damaged("a mark of a moved document"))?;
            Ok((key, read_number(&transition)?))
        });
        marks.collect()
    }

    /// No write gets a position up to this one.
    pub fn floor(&self) -> Result<Position, StoreError> {
        self.meta(keys::meta::FLOOR).map(Position)
    }

    fn erased(&self, namespace: NamespaceId) -> Result<Position, StoreError> {
        self.meta(&keys::meta::erased(namespace.0)).map(Position)
    }

    /// Who changed a document at a position, when and why, if that is still known.
    pub fn origin(
        &self,
        namespace: NamespaceId,
        at: &DocumentKey,
        position: Position,
    ) -> Result<Option<Origin>, StoreError> {
        let place = keys::history(&keys::document(namespace.0, at), position);
        if let Some(bytes) = self.snapshot.get(Space::Origins, &place)? {
            let (at, user, note, _) = read_origin(&bytes)?;
            let erased = self.erased(namespace)?;
            let note = note.filter(|_| position > erased);
            let (user, note) = (user.map(Json::trusted), note.map(Json::trusted));
            return Ok(Some(Origin { at: Timestamp(at), user, note }));
        }
        let found = self.commit(namespace, position)?;
        let found = found.filter(|found| found.commit.events.iter().any(|event| event.at == *at));
        Ok(found.map(|found| Origin {
            at: found.commit.at,
            user: found.commit.user,
            note: found.commit.note,
        }))
    }

    /// Everything that is known of some keys, for another shard to take in.
    pub fn export(&self, namespace: NamespaceId, keys: &[DocumentKey]) -> Result<Vec<Moved>, StoreError> {
        let mut entries = Entries { found: HashMap::new(), origins: None, erased: self.erased(namespace)? };
        keys.iter().map(|at| self.export_one(namespace, at, &mut entries)).collect()
    }

    fn export_one(
        &self,
        namespace: NamespaceId,
        at: &DocumentKey,
        entries: &mut Entries,
    ) -> Result<Moved, StoreError> {
        let Some(bytes) = self.document_bytes(namespace, at)? else { return Ok(Moved::nothing(at)) };
        let document = DocumentRef::read(&bytes)?.to_document();
        let key = keys::document(namespace.0, at);
        let mut moved = Moved { document: Some(document.clone()), ..Moved::nothing(at) };
        let history = self.steps(Space::History, &key)?;
        // Looked up one by one if there are none or few, as with most documents.
        entries.origins = match history.len() {
            0 | 1 => None,
            _ => Some(self.steps(Space::Origins, &key)?.into_iter().collect()),
        };
        if document.is_born() {
            self.export_step(namespace, at, (document.created, None), entries, &mut moved)?;
        }
        for (position, undo) in history {
            self.export_step(namespace, at, (position, Some(undo.to_vec())), entries, &mut moved)?;
        }
        Ok(moved)
    }

    /// What a space has of each step of a document.
    fn steps(&self, space: Space, key: &[u8]) -> Result<Vec<(Position, Slice)>, StoreError> {
        let found = self.snapshot.scan(space, with_prefix(key), Order::Forward);
        let steps = found.map(|pair| {
            let (place, value) = pair?;
            let (_, position) =
                keys::read_history(&place).ok_or_else(|| StoreError::damaged("the history of a document"))?;
            Ok((position, value))
        });
        steps.collect()
    }

    fn export_step(
        &self,
        namespace: NamespaceId,
        at: &DocumentKey,
        (position, undo): (Position, Option<Vec<u8>>),
        entries: &mut Entries,
        moved: &mut Moved,
    ) -> Done {
        let stored = match &entries.origins {
            Some(origins) => origins.get(&position).cloned(),
            None => {
                let place = keys::history(&keys::document(namespace.0, at), position);
                self.snapshot.get(Space::Origins, &place)?
            }
        };
        let origin = match stored {
            Some(bytes) => {
                let (at, user, note, answered) = read_origin(&bytes)?;
                // A document may move again, and the calls that made it with it.
                if let Some(key) = answered {
                    self.export_answer(namespace, key, position, moved)?;
                }
                let note = note.filter(|_| position > entries.erased);
                let (user, note) = (user.map(Json::trusted), note.map(Json::trusted));
                Some(Origin { at: Timestamp(at), user, note })
            }
            None => match self.snapshot.get(Space::Positions, &keys::position(namespace.0, position))? {
                None => None,
                Some(index) => entries.origin((self, namespace), read_number(&index)?, position, moved)?,
            },
        };
        if let Some(Origin { at, user, note }) = origin {
            moved.steps.push(MovedStep { position, undo, at, user, note });
        } else if let Some(undo) = undo {
            // Who did it is forgotten, what was done is not.
            let at = Timestamp(0);
            moved.steps.push(MovedStep { position, undo: Some(undo), at, user: None, note: None });
        }
        Ok(())
    }
}

impl State<'_> {
    /// Notes what was answered to the call that wrote at a position, unless its key stands for another call by now.
    fn export_answer(
        &self,
        namespace: NamespaceId,
        key: &str,
        position: Position,
        moved: &mut Moved,
    ) -> Done {
        if let Some(Answered { fingerprint, first, last }) = self.answer(namespace, key)?
            && (first..=last).contains(&position)
            && moved.answers.iter().all(|known| *known.key != *key)
        {
            moved.answers.push(MovedAnswer { key: key.into(), fingerprint, first, last });
        }
        Ok(())
    }
}

/// When, who, why, and the idempotency key of the call.
type ReadOrigin<'a> = (u64, Option<&'a str>, Option<&'a str>, Option<&'a str>);

fn read_origin(bytes: &[u8]) -> Result<ReadOrigin<'_>, StoreError> {
    record::decode(bytes).ok_or_else(|| StoreError::damaged("the origin of a change"))
}

/// Records of the log that were read for one export; one record is about many documents, as a rule.
struct Entries {
    found: HashMap<u64, Option<Entry>>,
    /// Where the steps of one document are from that came from elsewhere, if all of them were read.
    origins: Option<HashMap<Position, Slice>>,
    /// The notes up to here are not to be shown.
    erased: Position,
}

/// So many records are kept at hand.
const ENTRIES_LEN_MAX: usize = 64;

impl Entries {
    fn origin(
        &mut self,
        (state, namespace): (&State<'_>, NamespaceId),
        index: u64,
        position: Position,
        moved: &mut Moved,
    ) -> Result<Option<Origin>, StoreError> {
        if self.found.len() > ENTRIES_LEN_MAX {
            self.found.clear();
        }
        let entry = match self.found.entry(index) {
            std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => place.insert(state.entry(index)?),
        };
        let Some(Entry::Committed { commits, answer, .. }) = entry else { return Ok(None) };
        let Some(commit) = commits.iter().find(|commit| commit.position == position) else { return Ok(None) };
        if let Some(Answer { key, .. }) = answer {
            state.export_answer(namespace, key, position, moved)?;
        }
        let note = commit.note.clone().filter(|_| position > self.erased);
        Ok(Some(Origin { at: commit.at, user: commit.user.clone(), note }))
    }
}
