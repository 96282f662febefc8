//! The bodies of requests for leases and their answers. Knows nothing of routes.

use crate::{Blocker, LockInfo, WireResource, documents::WireValue};
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use utoipa::ToSchema;

/// A lease to be taken: a lock with a named owner, kept on disk until it is released or its time is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// Who takes it: a name by which the process is known, the same each time it asks.
    pub owner: String,
    /// What it is to cover, all or nothing.
    pub resources: Vec<WireResource>,
    /// How many milliseconds it is held from its grant on, unless it is renewed.
    pub ttl_ms: u64,
    /// How many milliseconds to stand in line; none or 0 is not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// How many of them this request waits before it answers that the lock is queued; all of them unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_ms: Option<u64>,
    /// Anything the owner wants others to see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub note: Option<WireValue>,
}

/// How a request for a lease was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LeaseAnswer {
    /// What became of it.
    pub outcome: LeaseOutcome,
    /// The lock, held or waiting.
    #[serde(flatten)]
    pub lock: LockInfo,
    /// The locks in its way, if it waits; the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_the_way: Vec<Blocker>,
}

/// Read in two steps: a note is kept as it is written, which does not work inside of what is flattened.
impl<'de> Deserialize<'de> for LeaseAnswer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LeaseAnswer, D::Error> {
        #[derive(Deserialize)]
        struct Beside {
            outcome: LeaseOutcome,
            #[serde(default)]
            in_the_way: Vec<Blocker>,
        }
        let text = WireValue::deserialize(deserializer)?;
        let Beside { outcome, in_the_way } = serde_json::from_str(text.as_str()).map_err(D::Error::custom)?;
        let lock = serde_json::from_str(text.as_str()).map_err(D::Error::custom)?;
        Ok(LeaseAnswer { outcome, lock, in_the_way })
    }
}

/// What became of a request for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeaseOutcome {
    /// It is held.
    Granted,
    /// Its owner had it already; nothing was changed.
    Held,
    /// It stands in line; ask for the lock by its number to learn more.
    Queued,
}

/// Leases to be renewed: one by its token, or all of an owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// How many milliseconds they are held from now on.
    pub ttl_ms: u64,
    /// Whose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The token of the lease, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
}

/// Leases to be released: one by its token, those with the same resources, or all of an owner.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// Whose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The token of the lease, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Exactly what it was taken with; nothing for all of the owner's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<WireResource>>,
}

/// The leases that were renewed or released, as they are or were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseList {
    /// The leases.
    pub leases: Vec<LeaseInfo>,
}

/// A lease that was renewed or released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseInfo {
    /// Its number within the namespace.
    pub lock: u64,
    /// Its fencing token.
    pub token: u64,
    /// Whose it is.
    pub owner: String,
    /// What it covers.
    pub resources: Vec<WireResource>,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_is_written() {
        let text = r#"{"outcome":"granted","lock":5,"state":"granted","token":7,"owner":{"name":"ann","via":"lease","connected":true},"resources":[],"requested_at":"T","age_ms":0,"note":{"x":1.50}}"#;
        let answer: LeaseAnswer = serde_json::from_str(text).unwrap();
        assert_eq!((answer.outcome, answer.lock.token), (LeaseOutcome::Granted, Some(7)));
        assert_eq!(serde_json::to_string(&answer).unwrap(), text);
    }
}
