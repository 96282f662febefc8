//! What the engine sees while it decides: the state with everything decided before, durable or not.

use lockwood_engine::{ChangeSeen, Origin, Recent, View};
use lockwood_model::{Commit, Document, DocumentKey, Json, Position};
use lockwood_storage::{Fold, NamespaceId, State, StoreError};
use std::ops::ControlFlow;

/// One namespace, with the changes of the call that is being decided.
pub(super) struct WriteView<'a> {
    pub(super) fold: Fold<'a>,
    pub(super) recent: &'a mut Recent,
    pub(super) namespace: NamespaceId,
    pub(super) position: Position,
    pub(super) horizon: Position,
}

impl WriteView<'_> {
    fn read<T>(&self, question: impl FnOnce(State<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let view = self.fold.view();
        question(State::new(&view))
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
        self.read(|state| state.document(self.namespace, at))
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
        self.read(|state| {
            state.changes_after(self.namespace, collection, after, &mut |position, touched, before, after| {
                see(&ChangeSeen { position, touched, before, after })
            })
        })
    }

    fn origin(&self, position: Position) -> Result<Option<Origin>, StoreError> {
        let found = self.read(|state| state.commit(self.namespace, position))?;
        Ok(found.map(|found| Origin {
            at: found.commit.at,
            user: found.commit.user,
            note: found.commit.note,
        }))
    }

    fn advance(&mut self, commit: &Commit) -> Result<(), StoreError> {
        // A call may still be refused as a whole; then these notes only make later answers more careful.
        for folded in self.fold.commit(self.namespace, commit)? {
            for document in folded.before.iter().chain([&folded.after]) {
                self.recent.note(self.namespace.0, &folded.at.collection, document, commit.position);
            }
        }
        self.position = commit.position;
        Ok(())
    }
}
