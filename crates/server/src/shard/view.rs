//! What the engine sees while it decides: the state with everything decided before, durable or not.

use lockwood_engine::{ChangeSeen, Origin, Recent, View};
use lockwood_model::{Commit, Document, DocumentKey, Json, Position};
use lockwood_storage::{Batch, Documents, Entry, Fold, NamespaceId, Overlay, Space, State, StoreError};
use std::{cell::RefCell, ops::ControlFlow};

/// One namespace, with the changes of the call that is being decided.
pub(super) struct WriteView<'a> {
    pub(super) fold: Fold<'a>,
    pub(super) recent: &'a mut Recent,
    /// The documents looked at, so that taking in the decision need not look again.
    pub(super) seen: RefCell<Documents>,
    pub(super) namespace: NamespaceId,
    pub(super) position: Position,
    pub(super) horizon: Position,
    /// The record of the log that the call will be.
    pub(super) index: u64,
    /// How many requests of the call are still to be decided.
    pub(super) left: usize,
    /// Those that were, if others come after them: they are in no record yet.
    pub(super) done: Vec<Commit>,
}

impl WriteView<'_> {
    fn read<T>(&self, question: impl FnOnce(State<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let view = self.fold.view();
        question(State::new(&view))
    }

    /// The same with a record of what was decided so far, for questions about writes.
    fn read_writes<T>(
        &self,
        question: impl FnOnce(State<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.done.is_empty() {
            return self.read(question);
        }
        let so_far = Entry::Committed { namespace: "".into(), commits: self.done.clone(), answer: None };
        let mut record = Batch::default();
        record.put(Space::Log, self.index.to_be_bytes(), so_far.encode());
        let view = self.fold.view();
        question(State::new(&Overlay { below: &view, above: &record }))
    }
}

impl View for WriteView<'_> {
    type Error = StoreError;

    fn position(&self) -> Position {
        self.position
    }

    fn horizon(&self) -> Position {
        self.horizon
    }

    fn document(&self, at: &DocumentKey) -> Result<Option<Document>, StoreError> {
        if let Some(document) = self.seen.borrow().get(at) {
            return Ok(document.clone());
        }
        let document = self.read(|state| state.document(self.namespace, at))?;
        self.seen.borrow_mut().insert(at.clone(), document.clone());
        Ok(document)
    }

    fn touched(&self, collection: &str, field: &str) -> Result<Position, StoreError> {
        self.read(|state| state.touched(self.namespace, collection, field))
    }

    fn quiet_since(&self, collection: &str, field: &str, value: &Json, from: Position) -> Option<Position> {
        self.recent.quiet_since(self.namespace.0, collection, field, value, from)
    }

    fn changes_after(
        &self,
        collection: &str,
        after: Position,
        see: &mut dyn FnMut(&ChangeSeen<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.read_writes(|state| {
            state.changes_after(self.namespace, collection, after, &mut |position, touched, before, after| {
                see(&ChangeSeen { position, touched, before, after })
            })
        })
    }

    fn origin(&self, position: Position) -> Result<Option<Origin>, StoreError> {
        let found = self.read_writes(|state| state.commit(self.namespace, position))?;
        Ok(found.map(|found| Origin {
            at: found.commit.at,
            user: found.commit.user,
            note: found.commit.note,
        }))
    }

    fn advance(&mut self, commit: &Commit) -> Result<(), StoreError> {
        // A call may still be refused as a whole; then these notes only make later answers more careful.
        for folded in self.fold.commit(self.namespace, commit, self.seen.get_mut())? {
            for document in folded.before.iter().chain([&folded.after]) {
                self.recent.note(self.namespace.0, &folded.at.collection, document, commit.position);
            }
        }
        self.position = commit.position;
        self.left -= 1;
        if self.left > 0 {
            self.done.push(commit.clone());
        }
        Ok(())
    }
}
