//! The state as deciding needs to see it. Knows nothing of how it is kept.

use lockwood_model::{Budget, Commit, Document, DocumentKey, Json, Position, Timestamp};
use std::{cell::OnceCell, ops::ControlFlow};

/// One namespace at one moment, everything included that was decided before, durable or not.
pub trait View {
    /// Why it cannot be looked at.
    type Error;

    /// The position of the last write.
    fn position(&self) -> Position;

    /// Nothing at or before this position can be told apart any more.
    fn horizon(&self) -> Position;

    /// A document, deleted or not.
    fn document(&self, at: &DocumentKey) -> Result<Option<Document>, Self::Error>;

    /// When a field was last touched in any document of a collection.
    fn touched(&self, collection: &str, field: &str) -> Result<Position, Self::Error>;

    /// When documents of a collection were last purged. Nothing else is known of those.
    fn purged(&self, _collection: &str) -> Result<Position, Self::Error> {
        Ok(Position::START)
    }

    /// A position after which no document of the collection that had this value in this field, before or
    /// after, has changed; none if that is not known.
    fn quiet_since(&self, collection: &str, field: &str, value: &Json, from: Position) -> Option<Position>;

    /// Shows every change of a document of the collection after a position, until told to stop. What it goes
    /// through on the way is counted, and it stops too when that is too much.
    fn changes_after(
        &self,
        collection: &str,
        after: Position,
        looks: &Looks,
        see: &mut dyn FnMut(&ChangeSeen<'_>) -> ControlFlow<()>,
    ) -> Result<(), Self::Error>;

    /// Who wrote at a position, when and why.
    fn origin(&self, position: Position) -> Result<Option<Origin>, Self::Error>;

    /// Takes in what was just decided, so that the next decision sees it.
    fn advance(&mut self, commit: &Commit) -> Result<(), Self::Error>;
}

/// How much a call may look at and compare to judge its locks. All other writers wait for the one that decides.
#[derive(Debug, Default)]
pub struct Looks(OnceCell<Budget>);

/// About as many changes of small documents are looked at in a fifth of a second.
const LOOKS_MAX: u64 = 100_000;
/// A commit with this many events takes as long as another change.
const EVENTS_PER_LOOK: u64 = 8;
/// So do so many bytes of a document.
const BYTES_PER_LOOK: u64 = 4096;
/// A field counts as so many bytes besides its own.
const FIELD_BYTES: usize = 64;

impl Looks {
    /// A commit is gone through; says whether there may be more.
    pub fn commit(&self, commit: &Commit) -> ControlFlow<()> {
        self.spend(1 + commit.events.len() as u64 / EVENTS_PER_LOOK)
    }

    /// A change is looked at; says whether there may be more.
    pub(crate) fn change(&self, change: &ChangeSeen<'_>) -> ControlFlow<()> {
        let fields = change.before.into_iter().chain([change.after]).flat_map(Document::present);
        let bytes: usize = fields.map(|(name, value)| FIELD_BYTES + name.len() + value.as_str().len()).sum();
        self.spend(1 + bytes as u64 / BYTES_PER_LOOK)
    }

    pub(crate) fn spend(&self, looks: u64) -> ControlFlow<()> {
        if self.budget().spend(looks).is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.budget().left() == 0
    }

    /// What is left for comparing. Most calls have no lock with a filter and never ask.
    pub(crate) fn budget(&self) -> &Budget {
        self.0.get_or_init(|| Budget::new(LOOKS_MAX))
    }
}

/// A document before and after everything one request did to it.
pub struct ChangeSeen<'a> {
    /// The position of the request.
    pub position: Position,
    /// The fields that were touched.
    pub touched: &'a [&'a str],
    /// As it was; none if it was not there.
    pub before: Option<&'a Document>,
    /// As it became.
    pub after: &'a Document,
}

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
