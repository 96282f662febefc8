//! What a reader asks for and gets: documents, and what can be said of many at once. Knows nothing of history.

use crate::{
    WirePath,
    documents::{Fields, WireFilter, WireKey, WireValue},
};
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use utoipa::ToSchema;

/// A document as answers show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentInfo {
    /// Its collection.
    pub collection: String,
    /// Its key, as text.
    pub key: String,
    /// The position of its last change.
    pub position: u64,
    /// The position at which it came into being.
    pub created: u64,
    /// Whether it is deleted.
    pub deleted: bool,
    /// Its fields, or those that were asked for.
    #[schema(value_type = Object)]
    pub value: Fields,
}

/// One document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentAnswer {
    /// The position of the snapshot it was read from.
    pub position: u64,
    /// The document.
    pub document: DocumentInfo,
}

/// Which documents are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Deleted {
    /// Those that are not deleted.
    #[default]
    Without,
    /// Those that are deleted.
    Only,
    /// All.
    With,
}

impl Deleted {
    /// How it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Deleted::Without => "without",
            Deleted::Only => "only",
            Deleted::With => "with",
        }
    }

    /// Whether a document that is or is not deleted is seen.
    pub fn sees(self, deleted: bool) -> bool {
        match self {
            Deleted::Without => !deleted,
            Deleted::Only => deleted,
            Deleted::With => true,
        }
    }

    fn is_default(&self) -> bool {
        *self == Deleted::Without
    }
}

impl FromStr for Deleted {
    type Err = String;

    fn from_str(text: &str) -> Result<Deleted, String> {
        let all = [Deleted::Without, Deleted::Only, Deleted::With];
        all.into_iter()
            .find(|deleted| deleted.as_str() == text)
            .ok_or_else(|| format!("deleted is without, only or with, not {text:?}"))
    }
}

/// How a read stands to the locks of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Sees what is durable, whoever has locks on it.
    #[default]
    Snapshot,
    /// Waits until nobody else's lock is in the way of all it reads: documents asked for by key, or the whole
    /// collection.
    Locked,
    /// Waits for each document by itself.
    Document,
}

impl Isolation {
    /// How it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Isolation::Snapshot => "snapshot",
            Isolation::Locked => "locked",
            Isolation::Document => "document",
        }
    }

    /// The one that keeps more of the others' locks away.
    pub fn stronger(self, other: Isolation) -> Isolation {
        match (self, other) {
            (Isolation::Locked, _) | (_, Isolation::Locked) => Isolation::Locked,
            (Isolation::Document, _) | (_, Isolation::Document) => Isolation::Document,
            (Isolation::Snapshot, Isolation::Snapshot) => Isolation::Snapshot,
        }
    }
}

impl FromStr for Isolation {
    type Err = String;

    fn from_str(text: &str) -> Result<Isolation, String> {
        let all = [Isolation::Snapshot, Isolation::Locked, Isolation::Document];
        all.into_iter()
            .find(|isolation| isolation.as_str() == text)
            .ok_or_else(|| format!("isolation is snapshot, locked or document, not {text:?}"))
    }
}

/// One node of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeAnswer {
    /// The position of the snapshot it was read from.
    pub position: u64,
    /// The node.
    pub node: NodeInfo,
    /// The nodes whose children were left out because they are too deep.
    pub cut: Vec<WirePath>,
}

/// A node as answers show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeInfo {
    /// The collection of its document.
    pub collection: String,
    /// The key of its document, as text.
    pub key: String,
    /// From the document down to it.
    pub path: WirePath,
    /// The position of the last change of its document.
    pub position: u64,
    /// What it is, down to the depth asked for.
    pub value: WireValue,
}

/// Several documents by their keys.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GetRequest {
    /// Which documents.
    pub documents: Vec<Wanted>,
    /// Which fields of those that do not say so themselves; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
    /// As of which position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// Whether deleted documents are seen.
    #[serde(default, skip_serializing_if = "Deleted::is_default")]
    pub deleted: Deleted,
    /// How the read stands to locks; as the collection or the namespace is set if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Tokens of locks the reader holds, all of one owner. If one of them is over, nothing is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<u64>,
    /// How many milliseconds to wait for others' locks, unless it is to be as long as usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// One of several documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Its collection.
    pub collection: String,
    /// Its key.
    pub key: WireKey,
    /// Which of its fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
}

/// Several documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Documents {
    /// The position of the snapshot they were read from.
    pub position: u64,
    /// The documents in the order they were asked for; null for those that are not there.
    pub documents: Vec<Option<DocumentInfo>>,
}

/// The documents of a collection that match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterRequest {
    /// Which collection.
    pub collection: String,
    /// Which documents; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<WireFilter>,
    /// Which fields; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
    /// In which order; those that are equal, and all if nothing is said, by their keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sort: Vec<Sort>,
    /// At most so many in one page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// What the page before gave as `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Whether deleted documents are seen.
    #[serde(default, skip_serializing_if = "Deleted::is_default")]
    pub deleted: Deleted,
    /// As of which position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// How the read stands to locks; as the collection or the namespace is set if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Tokens of locks the reader holds, all of one owner. If one of them is over, nothing is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<u64>,
    /// How many milliseconds to wait for others' locks, unless it is to be as long as usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// One level of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Sort {
    /// By which field.
    pub field: String,
    /// The greatest first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub descending: bool,
}

/// One page of documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentPage {
    /// The position of the snapshot they were read from.
    pub position: u64,
    /// The documents in order.
    pub documents: Vec<DocumentInfo>,
    /// What to give as `cursor` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// How many documents match, or whether one does.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CountRequest {
    /// Which collection.
    pub collection: String,
    /// Which documents; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<WireFilter>,
    /// Whether deleted documents are seen.
    #[serde(default, skip_serializing_if = "Deleted::is_default")]
    pub deleted: Deleted,
    /// As of which position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// How the read stands to locks; as the collection or the namespace is set if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Tokens of locks the reader holds, all of one owner. If one of them is over, nothing is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<u64>,
    /// How many milliseconds to wait for others' locks, unless it is to be as long as usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// Two collections put together where a field of the one equals a field of the other.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinRequest {
    /// The side whose keys give the order.
    pub left: JoinSide,
    /// The side in which partners are looked for.
    pub right: JoinSide,
    /// What becomes of documents on the left without a partner.
    #[serde(default, skip_serializing_if = "JoinKind::is_default")]
    pub kind: JoinKind,
    /// At most so many rows in one page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// What the page before gave as `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// As of which position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// How the read stands to locks; as the collection or the namespace is set if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Tokens of locks the reader holds, all of one owner. If one of them is over, nothing is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<u64>,
    /// How many milliseconds to wait for others' locks, unless it is to be as long as usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// One side of a join.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinSide {
    /// Which collection.
    pub collection: String,
    /// The field that is compared.
    pub field: String,
    /// Which documents; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<WireFilter>,
    /// Which fields; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
}

/// Which documents a join keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JoinKind {
    /// Those with a partner.
    #[default]
    Inner,
    /// All on the left; those without a partner once, with null.
    Left,
}

impl JoinKind {
    fn is_default(&self) -> bool {
        *self == JoinKind::Inner
    }
}

/// One page of a join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinPage {
    /// The position of the snapshot both sides were read from.
    pub position: u64,
    /// The rows, by the keys of the left side and then of the right.
    pub rows: Vec<JoinRow>,
    /// What to give as `cursor` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A document and its partner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinRow {
    /// The document on the left.
    pub left: DocumentInfo,
    /// Its partner; null if it has none.
    pub right: Option<DocumentInfo>,
}

/// The least or greatest value of a field among the documents that match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtremeRequest {
    /// Which collection.
    pub collection: String,
    /// Which field.
    pub field: String,
    /// Which documents; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<WireFilter>,
    /// Whether deleted documents are seen.
    #[serde(default, skip_serializing_if = "Deleted::is_default")]
    pub deleted: Deleted,
    /// As of which position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// How the read stands to locks; as the collection or the namespace is set if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Tokens of locks the reader holds, all of one owner. If one of them is over, nothing is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<u64>,
    /// How many milliseconds to wait for others' locks, unless it is to be as long as usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// How many documents match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountAnswer {
    /// The position of the snapshot they were counted in.
    pub position: u64,
    /// How many.
    pub count: u64,
}

/// Whether a document matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExistsAnswer {
    /// The position of the snapshot that was looked at.
    pub position: u64,
    /// Whether there is one.
    pub exists: bool,
}

/// The least value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MinAnswer {
    /// The position of the snapshot that was looked at.
    pub position: u64,
    /// The value; null if no document that matches has the field.
    pub min: Option<WireValue>,
}

/// The greatest value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MaxAnswer {
    /// The position of the snapshot that was looked at.
    pub position: u64,
    /// The value; null if no document that matches has the field.
    pub max: Option<WireValue>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::read_body;
    use serde::de::DeserializeOwned;

    #[track_caller]
    fn check<T: Serialize + DeserializeOwned>(text: &str) {
        let body: T = read_body(text.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&body).unwrap(), text);
    }

    #[test]
    fn bodies_are_read_and_written_alike() {
        check::<DocumentAnswer>(
            r#"{"position":7,"document":{"collection":"user","key":"42","position":5,"created":1,"deleted":false,"value":{"b":1.0,"a":2}}}"#,
        );
        check::<GetRequest>(
            r#"{"documents":[{"collection":"u","key":"1"},{"collection":"u","key":"a:2","fields":["x"]}],"fields":[],"at":3,"deleted":"with"}"#,
        );
        check::<Documents>(r#"{"position":7,"documents":[null]}"#);
        check::<FilterRequest>(r#"{"collection":"u"}"#);
        check::<FilterRequest>(
            r#"{"collection":"u","filter":{"and":[]},"fields":["a"],"sort":[{"field":"a"},{"field":"b","descending":true}],"limit":5,"cursor":"c","deleted":"only","at":9}"#,
        );
        check::<DocumentPage>(r#"{"position":7,"documents":[],"next":"c"}"#);
        check::<CountRequest>(r#"{"collection":"u","filter":{"and":[]}}"#);
        check::<CountRequest>(r#"{"collection":"u","isolation":"locked","tokens":[7],"wait_ms":5}"#);
        check::<NodeAnswer>(
            r#"{"position":7,"node":{"collection":"u","key":"1","path":["a","b"],"position":5,"value":{}},"cut":[["a","b"]]}"#,
        );
        check::<JoinRequest>(
            r#"{"left":{"collection":"a","field":"x"},"right":{"collection":"b","field":"y","filter":{"and":[]},"fields":["z"]},"kind":"left","limit":5,"cursor":"c","isolation":"document"}"#,
        );
        check::<JoinPage>(r#"{"position":7,"rows":[],"next":"c"}"#);
        check::<ExtremeRequest>(r#"{"collection":"u","field":"f"}"#);
        check::<MinAnswer>(r#"{"position":7,"min":null}"#);
        check::<MaxAnswer>(r#"{"position":7,"max":1.50}"#);
    }

    #[test]
    fn whether_deleted_documents_are_seen() {
        for deleted in [Deleted::Without, Deleted::Only, Deleted::With] {
            assert_eq!(deleted.as_str().parse(), Ok(deleted));
            assert_eq!(serde_json::to_string(&deleted).unwrap(), format!("{:?}", deleted.as_str()));
        }
        assert!("no".parse::<Deleted>().is_err());
        assert_eq!([false, true].map(|deleted| Deleted::Only.sees(deleted)), [false, true]);
    }
}
