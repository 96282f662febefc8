//! What the engine sees while it decides: the state with everything decided before, durable or not.

use super::writer::in_place;
use lockwood_engine::{ChangeSeen, Looks, Origin, Recent, View};
use lockwood_model::{Commit, Document, DocumentKey, Json, Position};
use lockwood_storage::{Documents, Fold, NamespaceId, State, StoreError};
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
    /// The commits of the call so far, which are not in the log yet.
    pub(super) own: Vec<Commit>,
    /// How many requests of the call are still to be decided.
    pub(super) left: usize,
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

    fn purged(&self, collection: &str) -> Result<Position, StoreError> {
        self.read(|state| state.purged(self.namespace, collection))
    }

    fn quiet_since(&self, collection: &str, field: &str, value: &Json, from: Position) -> Option<Position> {
        self.recent.quiet_since(self.namespace.0, collection, field, value, from)
    }

    fn changes_after(
        &self,
        collection: &str,
        after: Position,
        looks: &Looks,
        see: &mut dyn FnMut(&ChangeSeen<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut see = |position, touched: &[&str], before: Option<&Document>, after: &Document| {
            see(&ChangeSeen { position, touched, before, after })
        };
        let changes = |state: State<'_>| {
            let in_log = self.own.first().map(|first| Position(first.position.0 - 1));
            for found in state.commits(self.namespace, after.next(), in_log) {
                let commit = found?.commit;
                if looks.commit(&commit).is_break()
                    || state.changes_of(self.namespace, collection, &commit, &mut see)?.is_break()
                {
                    return Ok(());
                }
            }
            for commit in self.own.iter().filter(|commit| commit.position > after) {
                if looks.commit(commit).is_break()
                    || state.changes_of(self.namespace, collection, commit, &mut see)?.is_break()
                {
                    break;
                }
            }
            Ok(())
        };
        in_place(|| self.read(changes))
    }

    fn origin(&self, position: Position) -> Result<Option<Origin>, StoreError> {
        let own = self.own.iter().find(|commit| commit.position == position).cloned();
        let found = match own {
            Some(own) => Some(own),
            None => self.read(|state| state.commit(self.namespace, position))?.map(|found| found.commit),
        };
        Ok(found.map(|commit| Origin { at: commit.at, user: commit.user, note: commit.note }))
    }

    fn advance(&mut self, commit: &Commit) -> Result<(), StoreError> {
        // A call may still be refused as a whole; then these notes only make later answers more careful.
        for folded in self.fold.commit(self.namespace, commit, self.seen.get_mut())? {
            for document in folded.before.iter().chain([&folded.after]) {
                self.recent.note(self.namespace.0, &folded.at.collection, document, commit.position);
            }
        }
        self.position = commit.position;
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            self.own.push(commit.clone());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Call, Shard, ShardError, ShardLimits, Written};
    use lockwood_engine::{Action, BrokenBy, Intent, PositionLock, Refused, Request, Target};
    use lockwood_model::{
        Condition, DocumentKey, FieldPath, Filter, Json, Key, Operator, Position, Timestamp,
    };
    use lockwood_storage::Memory;
    use std::sync::Arc;

    fn create(key: i64, color: &str, locks: Vec<PositionLock>) -> Request {
        let fields = vec![("color".into(), Json::read(color, 1).unwrap())];
        let at = DocumentKey::new("a", Key::number(key));
        let intents = vec![Intent { at, action: Action::Create { fields } }];
        Request { intents, locks, user: Some(Json::read(color, 1).unwrap()), ..Request::default() }
    }

    async fn write(requests: Vec<Request>) -> Result<Written, ShardError> {
        let limits = ShardLimits { pending_bytes_max: u64::MAX, namespaces_max: 9 };
        let shard = Shard::open(Arc::new(Memory::default()), limits).unwrap();
        shard.write("n", &Call { requests, ..Call::default() }, Timestamp(7)).await
    }

    /// The commits before a request in its call are not in the log when its locks are judged.
    #[tokio::test]
    async fn locks_are_judged_by_what_the_requests_before_did() {
        let value = Json::read("\"red\"", 1).unwrap();
        let filter =
            Filter::Is(Condition::new(FieldPath::name("color"), Operator::GreaterOrEqual, value).unwrap());
        let target = Target::CollectionField {
            collection: "a".into(),
            field: FieldPath::name("x"),
            filter: Some(filter),
        };
        let search = PositionLock { target, position: Position(0) };
        let calls = |second: &str| {
            vec![
                create(1, "\"blue\"", vec![]),
                create(2, second, vec![]),
                create(3, "1", vec![search.clone()]),
            ]
        };
        assert_eq!(write(calls("\"blue\"")).await.unwrap().positions.len(), 3);
        let Err(ShardError::Refused(refused)) = write(calls("\"red\"")).await else { panic!("it was done") };
        let Refused::Locked(broken) = *refused else { panic!("not locked") };
        let BrokenBy::Write { position, origin: Some(origin) } = &broken[0].by else { panic!("no writer") };
        assert_eq!((position.0, origin.user.as_ref().unwrap().as_str()), (2, "\"red\""));
    }
}
