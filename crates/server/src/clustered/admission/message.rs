//! What shards tell each other about operations, as JSON. Knows nothing of how it is sent.

use crate::trouble::Trouble;
use hyper::StatusCode;
use lockwood_model::{Resource, Wait};
use lockwood_router::{ShardEpoch, ShardNo};
use lockwood_wire::{Code, Problem, WireResource};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::fmt;

/// An operation at a shard, named by the shard's owner. A number is used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Attempt {
    pub(super) shard: u32,
    pub(super) epoch: u64,
    pub(super) number: u64,
}

/// An operation asks the home of its namespace to admit it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Enter {
    pub(super) namespace: String,
    pub(super) attempt: Attempt,
    pub(super) resources: Vec<WireResource>,
    pub(super) tokens: Vec<u64>,
    /// Absent is for ever.
    pub(super) wait_ms: Option<u64>,
    /// Operations of the same request that are over.
    pub(super) left: Vec<Attempt>,
}

/// The home admits it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Entered {
    /// Of the home.
    pub(super) epoch: u64,
}

/// The operation is durable or rejected.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Leave {
    pub(super) attempt: Attempt,
    /// Whether the home has said that it admitted the operation; otherwise the asking itself may still arrive.
    pub(super) entered: bool,
}

/// A home has a new owner.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Raise {
    pub(super) home: u32,
    pub(super) epoch: u64,
}

/// Nothing that earlier owners of the home admitted is under way.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Raised {
    /// Of the shard that answers.
    pub(super) epoch: u64,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.shard, self.epoch, self.number)
    }
}

impl Attempt {
    /// Reads what was displayed.
    pub(super) fn parse(text: &str) -> Option<Attempt> {
        let mut parts = text.split('.');
        let (shard, epoch) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let number = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Attempt { shard, epoch, number })
    }

    pub(super) fn owner(&self) -> (ShardNo, ShardEpoch) {
        (ShardNo(self.shard), ShardEpoch(self.epoch))
    }
}

impl Enter {
    pub(super) fn wait(&self) -> Wait {
        self.wait_ms.map_or(Wait::Forever, |ms| if ms == 0 { Wait::Never } else { Wait::Millis(ms) })
    }

    pub(super) fn resources(&self) -> Result<Vec<Resource>, Trouble> {
        let read = self.resources.iter().cloned().map(WireResource::into_model).collect::<Result<_, _>>();
        read.map_err(|error| Trouble::new(error.code, error.message))
    }
}

pub(super) fn wait_ms(wait: Wait) -> Option<u64> {
    match wait {
        Wait::Never => Some(0),
        Wait::Millis(ms) => Some(ms),
        Wait::Forever => None,
    }
}

pub(super) fn write(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("names and numbers can be written")
}

pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Trouble> {
    serde_json::from_slice(body)
        .map_err(|error| Trouble::new(Code::BadBody, format!("a call from another shard: {error}")))
}

/// What a shard says, or why it refuses.
pub(super) fn read_answer<T: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<T, Trouble> {
    if status.is_success() {
        return read(body);
    }
    let problem: Problem = read(body)?;
    Err(Trouble::from_problem(problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_read_as_they_are_written() {
        let attempt = Attempt { shard: 3, epoch: 17, number: u64::MAX };
        assert_eq!(Attempt::parse(&attempt.to_string()), Some(attempt));
        for text in ["", "1", "1.2", "1.2.3.4", "a.2.3", "1.2.-3"] {
            assert_eq!(Attempt::parse(text), None, "{text}");
        }
    }

    #[test]
    fn waits_keep_their_meaning() {
        for wait in [Wait::Never, Wait::Millis(7), Wait::Forever] {
            let attempt = Attempt { shard: 1, epoch: 1, number: 1 };
            let (resources, tokens) = (Vec::new(), Vec::new());
            let left = Vec::new();
            let wait_ms = wait_ms(wait);
            let asked = Enter { namespace: "n".into(), attempt, resources, tokens, wait_ms, left };
            let read: Enter = read(&write(&asked)).unwrap();
            assert_eq!(read.wait(), wait);
        }
    }
}
