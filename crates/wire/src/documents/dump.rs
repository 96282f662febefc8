//! The lines of a dump: a namespace as text, from which it can be made again. Knows nothing of files.
//!
//! The first line is a [`DumpHead`], every other one a [`DumpLine`]: the documents as they were at the horizon
//! and those without positions, the commits after it in order, the counters, the indexes, and the end.

use crate::{
    Code,
    documents::{BodyError, ChangeKind, Fields, PurgedInfo, WireKey, WireValue},
};
use lockwood_model::{
    Change, Commit, Document, DocumentKey, Event, Field, FieldPath, Json, Position, Purged, Timestamp,
};
use serde::{Deserialize, Serialize};

/// The first line of a dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DumpHead {
    /// Always [`DumpHead::KIND`].
    pub lockwood: String,
    /// How the other lines are written: [`DumpHead::FORMAT`].
    pub format: u32,
    /// The namespace it was taken from.
    pub namespace: String,
    /// The position of the last commit.
    pub position: u64,
    /// What happened up to here is forgotten.
    pub horizon: u64,
}

impl DumpHead {
    /// What tells a dump from other files.
    pub const KIND: &'static str = "dump";
    /// The way dumps are written now.
    pub const FORMAT: u32 = 1;
}

/// Any other line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DumpLine {
    /// A document as it was at the horizon, or one without positions.
    Document(DumpDocument),
    /// A commit after the horizon.
    Commit(DumpCommit),
    /// The first id of a collection that nobody has.
    Counter {
        /// Of which collection.
        collection: String,
        /// The id.
        next: u64,
    },
    /// A declared index.
    Index {
        /// Of which collection.
        collection: String,
        /// By which field; its name, not a path.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        field: Option<String>,
        /// Or by something inside a field: the names from the field down.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<Vec<String>>,
    },
    /// The last line.
    End {
        /// How many lines came before it.
        lines: u64,
    },
}

impl DumpLine {
    /// A declared index. A field is told by its name alone, as it was before there were paths.
    pub fn index(collection: String, field: &FieldPath) -> DumpLine {
        match field.is_top_level() {
            true => DumpLine::Index { collection, field: Some(field.root().to_owned()), path: None },
            false => {
                let path = Some(field.names().map(str::to_owned).collect());
                DumpLine::Index { collection, field: None, path }
            }
        }
    }

    /// What an index of a dump is by.
    pub fn indexed(field: Option<&str>, path: Option<&[String]>) -> Result<FieldPath, BodyError> {
        match (field, path.and_then(FieldPath::from_names)) {
            (Some(field), None) if path.is_none() => Ok(FieldPath::name(field)),
            (None, Some(path)) => Ok(path),
            _ => Err(wrong("an index is by a field or by a path of names".to_owned())),
        }
    }
}

/// A document as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DumpDocument {
    /// Its collection.
    pub collection: String,
    /// Its key.
    pub key: WireKey,
    /// When it came into being; 0 if it has no positions.
    pub created: u64,
    /// When it last changed.
    pub position: u64,
    /// When it was last created, deleted or restored.
    pub existence: u64,
    /// Whether it is deleted.
    pub deleted: bool,
    /// How many write requests have changed it.
    pub version: u64,
    /// Its fields.
    pub fields: Fields,
}

/// A commit with everything the log has of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DumpCommit {
    /// Where it stands.
    pub position: u64,
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// By whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<WireValue>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<WireValue>,
    /// What, in order.
    pub events: Vec<DumpEvent>,
    /// What it took away for good, if it was a purge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purged: Option<PurgedInfo>,
}

/// What a commit did to one document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DumpEvent {
    /// What happened.
    #[serde(rename = "type")]
    pub kind: ChangeKind,
    /// The document's collection.
    pub collection: String,
    /// Its key.
    pub key: WireKey,
    /// The fields it was created or restored with, or those that were set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Fields>,
    /// The fields that an update removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<Vec<String>>,
    /// The fields that a deleted document had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub had: Option<Vec<String>>,
}

impl DumpDocument {
    /// A document at its place.
    pub fn new(at: &DocumentKey, document: &Document) -> DumpDocument {
        DumpDocument {
            collection: at.collection.to_string(),
            key: WireKey(at.key.clone()),
            created: document.created.0,
            position: document.position.0,
            existence: document.existence.0,
            deleted: document.deleted,
            version: document.version,
            fields: document.present().collect(),
        }
    }

    /// The document, if it can have been one at `horizon`.
    pub fn read(&self, horizon: Position, depth_max: usize) -> Result<Document, BodyError> {
        let ordered = self.created <= self.existence && self.existence <= self.position;
        let unborn = (self.position, self.version, self.deleted) == (0, 0, false);
        let born = ordered && self.position <= horizon.0 && self.version > 0;
        if !(if self.created == 0 { unborn && ordered } else { born }) {
            return Err(wrong("the numbers of the document contradict each other"));
        }
        let mut fields = Vec::with_capacity(self.fields.0.len());
        for (name, value) in self.fields.read(depth_max)? {
            if value.is_null() {
                return Err(wrong(format!("the field {name:?} is null, which no field can be")));
            }
            fields.push(Field { name, position: Position(self.position), value: Some(value) });
        }
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Document {
            created: Position(self.created),
            position: Position(self.position),
            existence: Position(self.existence),
            hidden: Position(if self.deleted { self.existence } else { 0 }),
            deleted: self.deleted,
            version: self.version,
            forgotten: Position::START,
            fields,
        })
    }
}

impl From<&Commit> for DumpCommit {
    fn from(commit: &Commit) -> DumpCommit {
        DumpCommit {
            position: commit.position.0,
            at: commit.at.0,
            user: commit.user.as_ref().map(WireValue::from),
            note: commit.note.as_ref().map(WireValue::from),
            events: commit.events.iter().map(DumpEvent::from).collect(),
            purged: commit.purged.as_ref().map(PurgedInfo::from),
        }
    }
}

impl From<&Event> for DumpEvent {
    fn from(event: &Event) -> DumpEvent {
        let names = |names: &[Box<str>]| Some(names.iter().map(|name| name.to_string()).collect());
        let (fields, removed, had) = match &event.change {
            Change::Created { fields } | Change::Restored { fields } => (Some(&fields[..]), None, None),
            Change::Updated { set, removed } | Change::Recreated { fields: set, removed } => {
                (Some(&set[..]), names(removed), None)
            }
            Change::Deleted { fields } => (None, None, names(fields)),
        };
        DumpEvent {
            kind: ChangeKind::from(&event.change),
            collection: event.at.collection.to_string(),
            key: WireKey(event.at.key.clone()),
            fields: fields.map(Fields::from),
            removed,
            had,
        }
    }
}

impl DumpCommit {
    /// The commit.
    pub fn read(&self, depth_max: usize) -> Result<Commit, BodyError> {
        let value = |value: &Option<WireValue>| -> Result<Option<Json>, BodyError> {
            value.as_ref().map(|value| value.read(depth_max)).transpose()
        };
        if self.purged.is_some() && !self.events.is_empty() {
            return Err(wrong("a purge has no events"));
        }
        Ok(Commit {
            position: Position(self.position),
            at: Timestamp(self.at),
            user: value(&self.user)?,
            note: value(&self.note)?,
            events: self.events.iter().map(|event| event.read(depth_max)).collect::<Result<_, _>>()?,
            purged: self.purged.as_ref().map(Purged::from),
        })
    }
}

impl DumpEvent {
    fn read(&self, depth_max: usize) -> Result<Event, BodyError> {
        let fields = self.fields.as_ref().map(|fields| fields.read(depth_max)).transpose()?;
        if let Some((name, _)) = fields.iter().flatten().find(|(_, value)| value.is_null()) {
            return Err(wrong(format!("the field {name:?} is null, which no field can be")));
        }
        let names = |names: &Vec<String>| names.iter().map(|name| name.as_str().into()).collect();
        let change = match (self.kind, fields, &self.removed, &self.had) {
            (ChangeKind::Created, Some(fields), None, None) => Change::Created { fields },
            (ChangeKind::Created, Some(fields), Some(removed), None) => {
                Change::Recreated { fields, removed: names(removed) }
            }
            (ChangeKind::Updated, Some(set), Some(removed), None) => {
                Change::Updated { set, removed: names(removed) }
            }
            (ChangeKind::Deleted, None, None, Some(had)) => Change::Deleted { fields: names(had) },
            (ChangeKind::Restored, Some(fields), None, None) => Change::Restored { fields },
            (kind, ..) => return Err(wrong(format!("that is not what an event {:?} has", kind.as_str()))),
        };
        let at = DocumentKey::new(&self.collection, self.key.0.clone());
        Ok(Event { at, change })
    }
}

fn wrong(message: impl Into<String>) -> BodyError {
    BodyError::new(Code::BadBody, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str) -> DumpLine {
        let line: DumpLine = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&line).unwrap(), text);
        line
    }

    #[test]
    fn lines_are_written_as_they_are_read() {
        check(r#"{"counter":{"collection":"a","next":7}}"#);
        check(r#"{"index":{"collection":"a","field":"b"}}"#);
        check(r#"{"index":{"collection":"a","path":["b","c.d"]}}"#);
        check(r#"{"end":{"lines":3}}"#);
        let document = concat!(
            r#"{"document":{"collection":"a","key":"x:1","created":1,"position":3,"existence":2,"#,
            r#""deleted":true,"version":3,"fields":{"b":1.50,"c":"é"}}}"#
        );
        let DumpLine::Document(document) = check(document) else { panic!("not a document") };
        let read = document.read(Position(3), 9).unwrap();
        let at = DocumentKey::new("a", document.key.0.clone());
        assert_eq!(DumpDocument::new(&at, &read), document);
        assert!(document.read(Position(2), 9).is_err(), "it changed after the horizon");
    }

    #[test]
    fn commits_come_back_as_they_were() {
        let text = concat!(
            r#"{"commit":{"position":3,"at":9,"user":{"z":1,"a":2.0},"events":["#,
            r#"{"type":"created","collection":"u","key":"1","fields":{"b":1.50,"a":[1]}},"#,
            r#"{"type":"updated","collection":"u","key":"1","fields":{"b":null2},"removed":["c"]},"#,
            r#"{"type":"deleted","collection":"u","key":"1","had":["a"]},"#,
            r#"{"type":"restored","collection":"u","key":"1","fields":{"a":[1]}}]}}"#
        );
        let DumpLine::Commit(commit) = check(&text.replace("null2", "2")) else { panic!("not a commit") };
        let read = commit.read(9).unwrap();
        assert_eq!(DumpCommit::from(&read), commit);
        let DumpLine::Commit(commit) = check(&text.replace("null2", "null")) else { panic!("not a commit") };
        assert!(commit.read(9).is_err(), "a field is null");
    }

    #[test]
    fn an_event_has_what_its_type_has() {
        for event in [
            r#"{"type":"created","collection":"u","key":"1"}"#,
            r#"{"type":"updated","collection":"u","key":"1","fields":{}}"#,
            r#"{"type":"deleted","collection":"u","key":"1","fields":{}}"#,
            r#"{"type":"restored","collection":"u","key":"1","fields":{},"had":[]}"#,
        ] {
            let event: DumpEvent = serde_json::from_str(event).unwrap();
            assert!(event.read(9).is_err(), "{event:?}");
        }
    }
}
