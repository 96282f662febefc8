//! What can go wrong, in words that say who, since when and what to do. Knows nothing of sockets.

use crate::text;
use lockwood_wire::{Blocker, Code, CycleStep, Problem, SchemaReason, ServerMessage, documents::BrokenLock};
use std::fmt;

/// Why something asked for was not done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The server said no.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The lock it was about is gone.
    #[error("{0}")]
    Lost(Loss),
    /// No server answers at the address.
    #[error("no Lockwood server answers at {address}: {reason}")]
    Unreachable {
        /// Where it was looked for.
        address: String,
        /// What happened instead.
        reason: String,
    },
    /// The connection was lost and did not come back in time.
    #[error(
        "the server at {address} has been out of reach for {}: {reason}; ask again when it is back",
        text::span(*.away_ms)
    )]
    Disconnected {
        /// Where the server was.
        address: String,
        /// For how long it has been away.
        away_ms: u64,
        /// What the last attempt met.
        reason: String,
    },
    /// The session was closed by its owner.
    #[error("the session is closed; open another one")]
    Closed,
    /// A dump broke off.
    #[error("the dump is incomplete, it broke off after {len} lines: {reason}; ask for it again")]
    Incomplete {
        /// How many lines came.
        len: u64,
        /// What happened.
        reason: String,
    },
    /// The answer is none this client understands.
    #[error("the answer is not Lockwood's: {0}")]
    BadAnswer(String),
}

/// A server's no, with its reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The stable code.
    pub code: Code,
    /// In words, and what to do.
    pub message: String,
    /// The lock it is about.
    pub lock: Option<u64>,
    /// Some of those in the way.
    pub blockers: Vec<Blocker>,
    /// Who waits for whom, in a deadlock.
    pub cycle: Vec<CycleStep>,
    /// The position locks that do not hold.
    pub broken: Vec<BrokenLock>,
    /// Why a schema does not go with earlier ones.
    pub reasons: Vec<SchemaReason>,
    /// The shard that did not answer.
    pub shard: Option<u32>,
}

/// Why a lock is gone although nobody here released it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The stable code.
    pub code: Code,
    /// In words, and what to do.
    pub message: String,
}

impl Error {
    /// The server's code, if it was the server that said no.
    pub fn code(&self) -> Option<Code> {
        match self {
            Error::Refused(refusal) => Some(refusal.code),
            Error::Lost(loss) => Some(loss.code),
            _ => None,
        }
    }
}

impl Refusal {
    /// A no with nothing but its explanation.
    pub fn new(code: Code, message: impl Into<String>) -> Refusal {
        Refusal {
            code,
            message: message.into(),
            lock: None,
            blockers: Vec::new(),
            cycle: Vec::new(),
            broken: Vec::new(),
            reasons: Vec::new(),
            shard: None,
        }
    }

    /// The refusal in an error message, with the number of the message it answers.
    pub(crate) fn from_message(message: ServerMessage) -> Result<(Option<u64>, Refusal), ServerMessage> {
        match message {
            ServerMessage::Error { id, code, message, lock, blockers, cycle } => {
                Ok((id, Refusal { lock, blockers, cycle, ..Refusal::new(code, message) }))
            }
            other => Err(other),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error::Refused(Box::new(refusal))
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Error {
        let Problem { code, detail, blockers, broken, reasons, shard, .. } = problem;
        Refusal { blockers, broken, reasons, shard, ..Refusal::new(code, detail) }.into()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", text::plain(&self.message), self.code)?;
        for blocker in &self.blockers {
            write!(f, "\n  in the way: {}", text::blocker(blocker))?;
        }
        for step in &self.cycle {
            write!(
                f,
                "\n  in the cycle: {} wants {}, but {} has {} (lock {})",
                text::owner(step.name.as_deref(), &step.session),
                text::resources(std::slice::from_ref(&step.wants)),
                text::owner(step.holder_name.as_deref(), &step.holder),
                text::resources(std::slice::from_ref(&step.has)),
                step.lock,
            )?;
        }
        for broken in &self.broken {
            write!(f, "\n  changed meanwhile: {}", text::broken(broken))?;
        }
        for reason in &self.reasons {
            write!(f, "\n  {}", text::reason(reason))?;
        }
        Ok(())
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", text::plain(&self.message), self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_wire::{LockState, WirePath, WireResource};

    #[test]
    fn a_refusal_says_who_and_since_when() {
        let blocker = Blocker {
            lock: 12,
            state: LockState::Granted,
            session: "s1".into(),
            name: Some("alice\n".into()),
            since: "2026-01-01T00:00:00Z".into(),
            age_ms: 3200,
            resources: vec![WireResource {
                path: WirePath("user/42".parse().unwrap()),
                mode: "write".into(),
                depth: Some(1),
            }],
        };
        let refusal = Refusal { blockers: vec![blocker], ..Refusal::new(Code::Locked, "others hold it") };
        assert_eq!(
            Error::from(refusal).to_string(),
            "others hold it (locked)\n  in the way: alice\\n holds write user/42 (depth 1) since \
             2026-01-01T00:00:00Z (3.2s), lock 12"
        );
    }
}
