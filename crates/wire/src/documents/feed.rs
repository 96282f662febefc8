//! What has happened, and what is kept beside documents: history, commits, counters, indexes, positions. Knows
//! nothing of how commits travel.

use crate::documents::{Fields, Named, PurgedInfo, WireValue};
use lockwood_model::{Change, Commit, Event};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What happened to a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It came into being.
    Created,
    /// Fields of it were written.
    Updated,
    /// It is hidden.
    Deleted,
    /// It is back.
    Restored,
}

impl ChangeKind {
    /// One word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            ChangeKind::Created => "created",
            ChangeKind::Updated => "updated",
            ChangeKind::Deleted => "deleted",
            ChangeKind::Restored => "restored",
        }
    }
}

impl From<&Change> for ChangeKind {
    fn from(change: &Change) -> ChangeKind {
        match change {
            Change::Created { .. } | Change::Recreated { .. } => ChangeKind::Created,
            Change::Updated { .. } => ChangeKind::Updated,
            Change::Deleted { .. } => ChangeKind::Deleted,
            Change::Restored { .. } => ChangeKind::Restored,
        }
    }
}

/// What happened to one document, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// The position of the snapshot it was read from.
    pub position: u64,
    /// The changes in order.
    pub entries: Vec<HistoryEntry>,
    /// What to give as `after` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// One change of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryEntry {
    /// Where it stands.
    pub position: u64,
    /// When.
    pub at: String,
    /// By whom.
    #[serde(default)]
    pub user: Option<WireValue>,
    /// Why.
    #[serde(default)]
    pub note: Option<WireValue>,
    /// What happened.
    pub event: ChangeKind,
    /// The fields that are different now.
    #[schema(value_type = std::collections::HashMap<String, FieldDiff>)]
    pub changes: Named<FieldDiff>,
}

/// A field before and after; absent where it was not there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct FieldDiff {
    /// What it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<WireValue>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<WireValue>,
}

/// One write request that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WireCommit {
    /// Where it stands.
    pub position: u64,
    /// When.
    pub at: String,
    /// By whom.
    #[serde(default)]
    pub user: Option<WireValue>,
    /// Why.
    #[serde(default)]
    pub note: Option<WireValue>,
    /// What, in order. What was purged since is left out.
    pub events: Vec<CommitEvent>,
    /// What it took away for good, if it was a purge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purged: Option<PurgedInfo>,
}

/// What a commit did to one document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CommitEvent {
    /// What happened.
    #[serde(rename = "type")]
    pub kind: ChangeKind,
    /// The document's collection.
    pub collection: String,
    /// Its key, as text.
    pub key: String,
    /// The fields it was created or restored with, or those that were set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub fields: Option<Fields>,
    /// The fields that were removed by an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<Vec<String>>,
}

impl WireCommit {
    /// A commit with its time as text.
    pub fn new(commit: &Commit, at: String) -> WireCommit {
        WireCommit {
            position: commit.position.0,
            at,
            user: commit.user.as_ref().map(WireValue::from),
            note: commit.note.as_ref().map(WireValue::from),
            events: commit.events.iter().map(CommitEvent::from).collect(),
            purged: commit.purged.as_ref().map(PurgedInfo::from),
        }
    }
}

impl From<&Event> for CommitEvent {
    fn from(event: &Event) -> CommitEvent {
        let (fields, removed) = match &event.change {
            Change::Created { fields } | Change::Restored { fields } => (Some(&fields[..]), None),
            Change::Updated { set, removed } | Change::Recreated { fields: set, removed } => {
                (Some(&set[..]), Some(removed.iter().map(|name| name.to_string()).collect()))
            }
            Change::Deleted { .. } => (None, None),
        };
        CommitEvent {
            kind: ChangeKind::from(&event.change),
            collection: event.at.collection.to_string(),
            key: event.at.key.to_string(),
            fields: fields.map(Fields::from),
            removed,
        }
    }
}

/// One page of commits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changes {
    /// The position of the snapshot they were read from.
    pub position: u64,
    /// The commits in order; without those that have nothing to do with what was asked for.
    pub commits: Vec<WireCommit>,
    /// What to give as `after` for the next page.
    pub next: u64,
}

/// Wants numbers for new documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReserveRequest {
    /// Of which collection.
    pub collection: String,
    /// How many.
    pub amount: u64,
}

/// Numbers that nobody else gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reserved {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

/// Where a namespace stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PositionAnswer {
    /// The position of the last write.
    pub position: u64,
    /// What happened up to here may be forgotten.
    pub horizon: u64,
}

/// The collections of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Collections {
    /// The position of the snapshot they were read from.
    pub position: u64,
    /// Their names.
    pub collections: Vec<String>,
}

/// How far an index is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IndexState {
    /// It does not know all documents yet.
    Building,
    /// It is used.
    Ready,
}

/// An index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IndexInfo {
    /// Of which collection.
    pub collection: String,
    /// By which field, or by what inside one: `address.zip`.
    pub field: String,
    /// How far it is.
    pub state: IndexState,
}

/// The indexes of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Indexes {
    /// The indexes.
    pub indexes: Vec<IndexInfo>,
}

/// What was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoadAnswer {
    /// The position the namespace has now.
    pub position: u64,
    /// How many documents it has.
    pub documents: u64,
    /// How many commits.
    pub commits: u64,
}

/// Wants old history forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TrimRequest {
    /// What is younger than this stays.
    pub keep_ms: u64,
}

/// What was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrimAnswer {
    /// How many commits.
    pub trimmed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_model::{DocumentKey, Json, Position, Timestamp};

    #[test]
    fn a_commit_is_written_as_it_happened() {
        let at = DocumentKey::new("user", "a:42".parse().unwrap());
        let one = || vec![("b".into(), Json::trusted("1.50")), ("a".into(), Json::trusted("[1]"))];
        let changes = [
            Change::Created { fields: one() },
            Change::Updated { set: one(), removed: vec!["c".into()] },
            Change::Deleted { fields: vec!["a".into()] },
            Change::Restored { fields: one() },
        ];
        let events = changes.map(|change| Event { at: at.clone(), change }).to_vec();
        let (user, note) = (Some(Json::trusted("7")), None);
        let commit = Commit { position: Position(3), at: Timestamp(0), user, note, events, purged: None };
        let text = serde_json::to_string(&WireCommit::new(&commit, "now".into())).unwrap();
        let expected = concat!(
            r#"{"position":3,"at":"now","user":7,"note":null,"events":["#,
            r#"{"type":"created","collection":"user","key":"a:42","fields":{"b":1.50,"a":[1]}},"#,
            r#"{"type":"updated","collection":"user","key":"a:42","fields":{"b":1.50,"a":[1]},"removed":["c"]},"#,
            r#"{"type":"deleted","collection":"user","key":"a:42"},"#,
            r#"{"type":"restored","collection":"user","key":"a:42","fields":{"b":1.50,"a":[1]}}]}"#,
        );
        assert_eq!(text, expected);
        let read: WireCommit = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }

    #[test]
    fn history_shows_what_was_absent_by_leaving_it_out() {
        let text = concat!(
            r#"{"position":9,"entries":[{"position":3,"at":"t","user":null,"note":"n","event":"updated","#,
            r#""changes":{"z":{"before":1},"a":{"after":2.0},"m":{"before":1,"after":2}}}],"next":3}"#
        );
        let history: History = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&history).unwrap(), text);
    }
}
