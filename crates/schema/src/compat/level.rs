//! How strictly schemas are held to their predecessors, and how that is written. Knows nothing of schemas.

use std::{fmt, str::FromStr};

/// Who must be able to read whose documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Level {
    /// Nobody.
    None,
    /// The new schema those of the one before.
    #[default]
    Backward,
    /// The new schema those of all before.
    BackwardTransitive,
    /// The schema before those of the new one.
    Forward,
    /// All schemas before those of the new one.
    ForwardTransitive,
    /// Both, for the one before.
    Full,
    /// Both, for all before.
    FullTransitive,
}

/// How what is not said is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// A model that does not say otherwise is open, and documents may have anything there.
    #[default]
    Strict,
    /// Nobody is expected to have written what no schema named: optional properties may be added to open
    /// models, and open models may be closed.
    Lenient,
}

/// The text is not a level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no compatibility level; there are NONE, BACKWARD, BACKWARD_TRANSITIVE, FORWARD, \
     FORWARD_TRANSITIVE, FULL and FULL_TRANSITIVE"
)]
pub struct LevelError(pub String);

impl Level {
    /// Every level.
    pub const ALL: [Level; 7] = [
        Level::None,
        Level::Backward,
        Level::BackwardTransitive,
        Level::Forward,
        Level::ForwardTransitive,
        Level::Full,
        Level::FullTransitive,
    ];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::None => "NONE",
            Level::Backward => "BACKWARD",
            Level::BackwardTransitive => "BACKWARD_TRANSITIVE",
            Level::Forward => "FORWARD",
            Level::ForwardTransitive => "FORWARD_TRANSITIVE",
            Level::Full => "FULL",
            Level::FullTransitive => "FULL_TRANSITIVE",
        }
    }

    /// Whether all earlier schemas count and not only the latest.
    pub fn is_transitive(self) -> bool {
        matches!(self, Level::BackwardTransitive | Level::ForwardTransitive | Level::FullTransitive)
    }

    pub(crate) fn is_backward(self) -> bool {
        matches!(self, Level::Backward | Level::BackwardTransitive | Level::Full | Level::FullTransitive)
    }

    pub(crate) fn is_forward(self) -> bool {
        matches!(self, Level::Forward | Level::ForwardTransitive | Level::Full | Level::FullTransitive)
    }
}

impl FromStr for Level {
    type Err = LevelError;

    /// Upper case is how it is written; other spellings of the same letters are understood.
    fn from_str(text: &str) -> Result<Level, LevelError> {
        let same = |level: &Level| level.as_str().eq_ignore_ascii_case(text);
        Level::ALL.into_iter().find(same).ok_or_else(|| LevelError(text.to_owned()))
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_as_they_are_written() {
        for level in Level::ALL {
            assert_eq!(level.to_string().parse(), Ok(level));
            assert_eq!(level.as_str().to_lowercase().parse(), Ok(level));
        }
        assert_eq!("BOTH".parse::<Level>(), Err(LevelError("BOTH".to_owned())));
    }
}
