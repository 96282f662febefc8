//! The state as deciding needs to see it. Knows nothing of how it is kept.

use lockwood_model::{Commit, Document, DocumentKey, Json, Position, Timestamp};
use std::ops::ControlFlow;

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

    /// A position after which no document of the collection that had this value in this field, before or
    /// after, has changed; none if that is not known.
    fn quiet_since(&self, collection: &str, field: &str, value: &Json, from: Position) -> Option<Position>;

    /// Shows every change of a document of the collection after a position, until told to stop.
    fn changes_after(
        &self,
        collection: &str,
        after: Position,
        see: &mut dyn FnMut(&ChangeSeen<'_>) -> ControlFlow<()>,
    ) -> Result<(), Self::Error>;

    /// Who wrote at a position, when and why.
    fn origin(&self, position: Position) -> Result<Option<Origin>, Self::Error>;

    /// Takes in what was just decided, so that the next decision sees it.
    fn advance(&mut self, commit: &Commit) -> Result<(), Self::Error>;
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
