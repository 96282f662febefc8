//! What a reader asks for and gets: documents, and what can be said of many at once. Knows nothing of history.

use crate::documents::{Fields, WireFilter, WireKey, WireValue};
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
