//! What happened: the outcomes the log keeps. Knows nothing of requests, or of how outcomes are stored.

use crate::{DocumentKey, Json, Position, Timestamp};

/// The field of every document that says whether it is deleted; touched by create, delete and restore.
pub const META_DELETED: &str = "meta_deleted";
/// The field of every document that says when it last changed; touched by delete and restore.
pub const META_POSITION: &str = "meta_position";

/// A field and its value.
pub type FieldValue = (Box<str>, Json);

/// One write request that was done, all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its place in the namespace.
    pub position: Position,
    /// When.
    pub at: Timestamp,
    /// By whom, in the words of the writer.
    pub user: Option<Json>,
    /// Why, in the words of the writer.
    pub note: Option<Json>,
    /// What, in order.
    pub events: Vec<Event>,
    /// What it took away for good, if it is a purge; then there are no events.
    pub purged: Option<Purged>,
}

/// What a purge took away: where it was, and nothing of what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purged {
    /// Some documents of a collection.
    Documents {
        /// The collection.
        collection: Box<str>,
        /// How many.
        count: u64,
    },
    /// A whole collection.
    Collection {
        /// Its name.
        collection: Box<str>,
    },
    /// The whole namespace.
    Namespace,
}

impl Purged {
    /// The collection, unless it was all of them.
    pub fn collection(&self) -> Option<&str> {
        match self {
            Purged::Documents { collection, .. } | Purged::Collection { collection } => Some(collection),
            Purged::Namespace => None,
        }
    }
}

/// A change of one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Of which document.
    pub at: DocumentKey,
    /// What happened to it.
    pub change: Change,
}

/// What happened to a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It came into being.
    Created {
        /// With these fields.
        fields: Vec<FieldValue>,
    },
    /// Fields of it were written, perhaps with the values they had.
    Updated {
        /// These have a value now.
        set: Vec<FieldValue>,
        /// These have none, and perhaps had none before.
        removed: Vec<Box<str>>,
    },
    /// It is hidden, and can be restored.
    Deleted {
        /// The fields it had.
        fields: Vec<Box<str>>,
    },
    /// It is back.
    Restored {
        /// With what it had before.
        fields: Vec<FieldValue>,
    },
    /// It was deleted and begins a new life.
    Recreated {
        /// With these fields.
        fields: Vec<FieldValue>,
        /// These it had in its last life and has no more.
        removed: Vec<Box<str>>,
    },
}

impl Change {
    /// The fields of the document it touched, those of the document itself included; some perhaps twice.
    pub fn touches(&self) -> Vec<&str> {
        fn names(fields: &[FieldValue]) -> impl Iterator<Item = &str> {
            fields.iter().map(|(name, _)| &**name)
        }
        match self {
            Change::Created { fields } => names(fields).chain([META_DELETED]).collect(),
            Change::Updated { set, removed } => {
                names(set).chain(removed.iter().map(|name| &**name)).collect()
            }
            Change::Deleted { fields } => {
                fields.iter().map(|name| &**name).chain([META_DELETED, META_POSITION]).collect()
            }
            Change::Restored { fields } => names(fields).chain([META_DELETED, META_POSITION]).collect(),
            Change::Recreated { fields, removed } => names(fields)
                .chain(removed.iter().map(|name| &**name))
                .chain([META_DELETED, META_POSITION])
                .collect(),
        }
    }

    /// One word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Change::Created { .. } | Change::Recreated { .. } => "created",
            Change::Updated { .. } => "updated",
            Change::Deleted { .. } => "deleted",
            Change::Restored { .. } => "restored",
        }
    }
}
