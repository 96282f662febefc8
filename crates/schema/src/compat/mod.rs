//! Whether a new schema can take the place of earlier ones. Knows nothing of subjects or who asks.

mod compare;
mod kind;
mod leftover;
mod level;
mod rules_arrays;
mod rules_logic;
mod rules_objects;
mod rules_scalars;
mod same;
mod written;

#[cfg(test)]
mod compat_test;

pub use compare::{COMPARE_DEPTH_MAX, COMPARE_WORK_MAX};
pub use kind::Kind;
pub use level::{Level, LevelError, Policy};

use crate::schema::Schema;
use compare::differences;
use std::fmt;

/// Who reads what the other has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The new schema reads documents of the earlier one.
    Backward,
    /// The earlier schema reads documents of the new one.
    Forward,
}

/// One reason why a schema cannot take the place of an earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incompatibility {
    /// What kind of change it is.
    pub kind: Kind,
    /// Where in the schema that reads, as a JSON pointer: `#/properties/age`.
    pub path: String,
    /// Why a document may not be read any more, as a sentence.
    pub reason: String,
    /// Which of the earlier schemas it is about, counted from 0 for the oldest.
    pub earlier: usize,
    /// Which of the two reads.
    pub direction: Direction,
}

impl fmt::Display for Incompatibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.direction {
            Direction::Backward => "the new schema cannot read every document of the earlier one",
            Direction::Forward => "the earlier schema cannot read every document of the new one",
        };
        // Names in the path were chosen by whoever wrote the schema; they must not steer a terminal.
        write!(f, "{} at {}: {who}: {}", self.kind, self.path.escape_debug(), self.reason)
    }
}

/// Why `new` cannot follow the `earlier` schemas, oldest first, at this level; nothing if it can.
///
/// Every document that fits the schema that writes also fits the schema that reads when nothing is found,
/// with exceptions that are meant: under both policies, a required property with a `default` counts as
/// optional, and of a `oneOf` it is only asked that some variant fits and that no two certainly do; under
/// [`Policy::Lenient`] also what [`Policy::Lenient`] says.
pub fn check(level: Level, policy: Policy, new: &Schema, earlier: &[&Schema]) -> Vec<Incompatibility> {
    let first = if level.is_transitive() { 0 } else { earlier.len().saturating_sub(1) };
    let mut found = Vec::new();
    for (index, old) in earlier.iter().enumerate().skip(first) {
        if level.is_backward() {
            let list = differences(policy, new, old);
            found.extend(list.into_iter().map(|one| one.against(index, Direction::Backward)));
        }
        if level.is_forward() {
            let list = differences(policy, old, new);
            found.extend(list.into_iter().map(|one| one.against(index, Direction::Forward)));
        }
    }
    found
}
