//! Purges: what is asked for, what is told of those under way, and what stays on record. Knows nothing of how they are done.

use crate::documents::{WireKey, WireValue};
use lockwood_model::Purged;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Wants something gone for good: documents, a collection or the whole namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PurgeRequest {
    /// The collection; the whole namespace if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    /// The keys of the documents; the whole collection if none are named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<WireKey>>,
    /// The name of the collection or the namespace once more, if all of it is to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
    /// Who purges, for the record; required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<WireValue>,
    /// Why, for the record. It stays, so it should not say what is purged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<WireValue>,
    /// Tokens of locks the writer holds. If one of them is over, nothing is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<u64>,
    /// How many milliseconds to wait for others' locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// A purge that has begun and will be completed, also by the next start of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PurgeAnswer {
    /// Its number; it is complete when `GET /v1/purges` does not list it any more.
    pub purge: u64,
    /// Where it stands in the namespace.
    pub position: u64,
    /// What is purged.
    pub purged: PurgedInfo,
    /// What the server cannot reach.
    pub not_reached: String,
}

/// What a purge took away: where, and nothing of what it was. The whole namespace if no collection is named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PurgedInfo {
    /// The collection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    /// How many documents; the whole collection if this is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<u64>,
}

/// The purges that are not complete, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PurgeList {
    /// Those.
    pub purges: Vec<PurgeInfo>,
}

/// A purge that is not complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PurgeInfo {
    /// Its number.
    pub purge: u64,
    /// Where.
    pub namespace: String,
    /// Of what.
    pub purged: PurgedInfo,
    /// What it does now.
    pub step: PurgeStep,
    /// How far the step is, in documents or records of the log; absent if it cannot be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    /// How many there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
}

/// What a purge does, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PurgeStep {
    /// Waits for another purge.
    Waiting,
    /// Takes the documents away; when this is over, no request shows them any more.
    Documents,
    /// Forgets the idempotency keys of the writes that made them. What is purged is locked up to here.
    Answers,
    /// Erases them from the log.
    Log,
    /// Replaces a saved snapshot.
    Snapshot,
    /// Waits for room on the disk: the files that follow are written anew before the old ones go.
    Room,
    /// Waits for requests that read what was there before.
    Readers,
    /// Replaces the journal.
    Journal,
    /// Replaces the tables.
    Tables,
}

impl PurgeStep {
    /// In a few words.
    pub fn describe(self) -> &'static str {
        match self {
            PurgeStep::Waiting => "waiting for another purge",
            PurgeStep::Documents => "taking documents away",
            PurgeStep::Answers => "forgetting idempotency keys",
            PurgeStep::Log => "erasing the log",
            PurgeStep::Snapshot => "replacing the snapshot",
            PurgeStep::Room => "waiting for room on the disk",
            PurgeStep::Readers => "waiting for readers",
            PurgeStep::Journal => "replacing the journal",
            PurgeStep::Tables => "replacing the tables",
        }
    }
}

impl From<&Purged> for PurgedInfo {
    fn from(purged: &Purged) -> PurgedInfo {
        let documents = match purged {
            Purged::Documents { count, .. } => Some(*count),
            Purged::Collection { .. } | Purged::Namespace => None,
        };
        PurgedInfo { collection: purged.collection().map(str::to_owned), documents }
    }
}

impl From<&PurgedInfo> for Purged {
    fn from(info: &PurgedInfo) -> Purged {
        let collection = |name: &String| name.as_str().into();
        match (&info.collection, info.documents) {
            (Some(name), Some(count)) => Purged::Documents { collection: collection(name), count },
            (Some(name), None) => Purged::Collection { collection: collection(name) },
            (None, _) => Purged::Namespace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_purged_is_written_as_it_is_read() {
        let all = [
            Purged::Documents { collection: "user".into(), count: 3 },
            Purged::Collection { collection: "user".into() },
            Purged::Namespace,
        ];
        for purged in all {
            let text = serde_json::to_string(&PurgedInfo::from(&purged)).unwrap();
            let read: PurgedInfo = serde_json::from_str(&text).unwrap();
            assert_eq!(Purged::from(&read), purged, "{text}");
        }
    }
}
