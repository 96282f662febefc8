//! Positions: where a write stands in the order of all writes of a namespace. Knows nothing of logs.

use std::fmt;

/// The place of a write request in its namespace, counted from 1; 0 is before the first. There are no gaps, except on
/// a cluster, where a shard leaves out what others have used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

impl Position {
    /// Before everything.
    pub const START: Position = Position(0);

    /// The place after this one.
    #[must_use]
    pub fn next(self) -> Position {
        // Whoever asks may name any number, also the last there is.
        Position(self.0.saturating_add(1))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
