//! Lock modes and which of them get along. Knows nothing of who holds what.

use std::{fmt, str::FromStr};

/// What a lock holder may do with the nodes it covers.
///
/// Compatibility between different owners; the relation is symmetric:
///
/// |        | read | list | update | link | write |
/// | ---    | ---  | ---  | ---    | ---  | ---   |
/// | read   | yes  | yes  | yes    | no   | no    |
/// | list   | yes  | yes  | yes    | no   | no    |
/// | update | yes  | yes  | no     | no   | no    |
/// | link   | no   | no   | no     | yes  | no    |
/// | write  | no   | no   | no     | no   | no    |
///
/// `list` and `link` concern the *child list* of their node: which children there are, not what is in
/// them. Creating or deleting `user/42` takes `write` on `user/42` and `link` on `user`; two creators of
/// different children do not disturb each other, but a search that holds `list` on `user`, or a `read` of
/// `user` with a depth of two or more, keeps both out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Shared: others may read too (S).
    Read,
    /// Reads now and may be converted to `write` later; one at a time (U).
    Update,
    /// Exclusive (X).
    Write,
    /// Reads the list of children only.
    List,
    /// Adds or removes children.
    Link,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 5] = [Mode::Read, Mode::Update, Mode::Write, Mode::List, Mode::Link];

    /// True when two different owners may hold these modes on the same node.
    pub fn compatible(self, other: Mode) -> bool {
        use Mode::{Link, List, Read, Update, Write};
        match (self, other) {
            (Write, _) | (_, Write) | (Update, Update) => false,
            (Link, Link) => true,
            (Link, _) | (_, Link) => false,
            (Read | List | Update, Read | List | Update) => true,
        }
    }

    /// True when holding `self` allows everything `other` allows.
    pub fn includes(self, other: Mode) -> bool {
        use Mode::{Link, List, Read, Update, Write};
        match self {
            Write => true,
            Update => matches!(other, Read | List | Update),
            Read => matches!(other, Read | List),
            List => other == List,
            Link => other == Link,
        }
    }

    /// True for the two modes that concern the list of children instead of the node.
    pub fn on_child_list(self) -> bool {
        matches!(self, Mode::List | Mode::Link)
    }

    /// True when the ancestors of a node locked in this mode carry the intent IX rather than IS.
    pub fn intends_change(self) -> bool {
        matches!(self, Mode::Update | Mode::Write | Mode::Link)
    }

    /// The word used on the wire and in listings.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Read => "read",
            Mode::Update => "update",
            Mode::Write => "write",
            Mode::List => "list",
            Mode::Link => "link",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The text names no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no mode {0:?}; use read, update, write, list or link")]
pub struct ModeError(pub String);

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Mode, ModeError> {
        Mode::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or_else(|| ModeError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_in_the_documentation_is_the_code() {
        let order = [Mode::Read, Mode::List, Mode::Update, Mode::Link, Mode::Write];
        let table = ["yyynn", "yyynn", "yynnn", "nnnyn", "nnnnn"];
        for (row, mode) in table.iter().zip(order) {
            for (cell, other) in row.chars().zip(order) {
                assert_eq!(mode.compatible(other), cell == 'y', "{mode} beside {other}");
                assert_eq!(mode.compatible(other), other.compatible(mode), "{mode}, {other}: symmetric");
            }
        }
    }

    #[test]
    fn a_mode_that_includes_another_is_at_least_as_hard_to_share() {
        for strong in Mode::ALL {
            for weak in Mode::ALL.into_iter().filter(|weak| strong.includes(*weak)) {
                for other in Mode::ALL {
                    assert!(weak.compatible(other) || !strong.compatible(other), "{strong} {weak} {other}");
                }
            }
        }
    }

    #[test]
    fn names_round_trip() {
        for mode in Mode::ALL {
            assert_eq!(mode.as_str().parse(), Ok(mode));
        }
        assert_eq!("x".parse::<Mode>(), Err(ModeError("x".into())));
    }
}
