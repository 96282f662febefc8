//! What a writer can ask for, and why it may be refused. Knows nothing of how requests are written down.

use crate::position_lock::Broken;
use lockwood_model::{Document, DocumentKey, FieldPath, FieldValue, Filter, Json, Path, Position};

/// A write request: all of it is done, or nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// What to do, in order; each intent sees what the ones before it did.
    pub intents: Vec<Intent>,
    /// What must not have changed since it was read.
    pub locks: Vec<PositionLock>,
    /// What documents must be before anything is done to them.
    pub preconditions: Vec<Precondition>,
    /// Who asks.
    pub user: Option<Json>,
    /// Why.
    pub note: Option<Json>,
}

/// Something to be done to one document.
#[derive(Debug, Clone, PartialEq)]
pub struct Intent {
    /// To which.
    pub at: DocumentKey,
    /// What.
    pub action: Action,
}

/// What can be done to a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Bring it into being; it must never have been there. Fields with the value null are left out.
    Create {
        /// With these fields.
        fields: Vec<FieldValue>,
    },
    /// Write some of its fields; it must be there.
    Update {
        /// These get these values; null removes a field.
        set: Vec<FieldValue>,
        /// These lists get or lose elements.
        lists: Vec<ListChange>,
    },
    /// Make it exactly this. A deleted document begins a new life. Fields with the value null are left out.
    Put {
        /// All its fields.
        fields: Vec<FieldValue>,
        /// Only in this case.
        when: PutIf,
    },
    /// Replace or remove one node of it, a field or something in a field; it must be there, and so must be what
    /// the node is in.
    Set {
        /// From the document down to the node; never empty.
        path: Path,
        /// What it becomes; none removes it, and so does null for a field.
        value: Option<Json>,
    },
    /// Hide it; it must be there.
    Delete,
    /// Bring it back; it must be deleted.
    Restore,
}

/// In which case a put is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PutIf {
    /// In any case.
    #[default]
    Always,
    /// Only if there is no such document, or it is deleted.
    Absent,
    /// Only if there is one.
    Present,
}

/// Elements to be added to a list and removed from it, in this order. A field that is absent only gets what is
/// added.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListChange {
    /// The field with the list.
    pub field: Box<str>,
    /// Added at the end, unless they are in the list already.
    pub add: Option<Vec<Json>>,
    /// Taken out wherever they are.
    pub remove: Option<Vec<Json>>,
}

/// "What I read was valid at this position."
#[derive(Debug, Clone, PartialEq)]
pub struct PositionLock {
    /// What was read.
    pub target: Target,
    /// When.
    pub position: Position,
}

/// What a position lock covers.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// A whole document.
    Document(DocumentKey),
    /// A field of a document.
    Field(DocumentKey, FieldPath),
    /// A field of every document of a collection, or of those that match a filter.
    CollectionField {
        /// The collection.
        collection: Box<str>,
        /// The field.
        field: FieldPath,
        /// Which documents.
        filter: Option<Filter>,
    },
}

/// What a document must be, as `If-Match` and `If-None-Match` of HTTP say it. A deleted document is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Precondition {
    /// Which document.
    pub at: DocumentKey,
    /// What it must be.
    pub expected: Expectation,
}

/// What is expected of the version of a document, which is the position of its last change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expectation {
    /// The document is there.
    Present,
    /// The document is not there.
    Absent,
    /// The document is there, in one of these versions.
    OneOf(Vec<Position>),
    /// The document is in none of these versions, or absent.
    NoneOf(Vec<Position>),
}

impl Expectation {
    /// Whether a document with this version is as expected; none is an absent document.
    pub fn is_met(&self, version: Option<Position>) -> bool {
        match (self, version) {
            (Expectation::Present, version) => version.is_some(),
            (Expectation::Absent, version) => version.is_none(),
            (Expectation::OneOf(versions), version) => {
                version.is_some_and(|version| versions.contains(&version))
            }
            (Expectation::NoneOf(versions), version) => {
                version.is_none_or(|version| !versions.contains(&version))
            }
        }
    }
}

/// How large a document may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all names and values of a document.
    pub document_bytes_max: u64,
    /// Fields of a document.
    pub fields_per_document_max: u64,
}

impl Limits {
    /// Whether a document with these fields is small enough.
    pub fn check<'a>(
        self,
        at: &DocumentKey,
        fields: impl Iterator<Item = (&'a str, &'a Json)>,
    ) -> Result<(), Refused> {
        let (mut len, mut bytes) = (0, 0);
        for (name, value) in fields {
            len += 1;
            bytes += (name.len() + value.as_str().len()) as u64;
        }
        let over = |name, limit, len| Err(Refused::OverLimit { at: at.clone(), name, limit, len });
        match () {
            () if len > self.fields_per_document_max => {
                over("fields_per_document_max", self.fields_per_document_max, len)
            }
            () if bytes > self.document_bytes_max => {
                over("document_bytes_max", self.document_bytes_max, bytes)
            }
            () => Ok(()),
        }
    }
}

/// What documents must be like.
pub trait Rules: Sync {
    /// Whether a document may be as it is.
    fn check(&self, at: &DocumentKey, document: &Document) -> Result<(), Refused>;

    /// Whether these nodes may be taken away from a document whatever is left of it then.
    fn may_lose(&self, _at: &DocumentKey, _removed: &[Path]) -> bool {
        false
    }

    /// Called when all documents of a call were checked. Rules that put some off, because checking them takes long,
    /// refuse the call here.
    fn finish(&self) -> Result<(), Refused> {
        Ok(())
    }
}

/// Documents may be anything.
pub struct NoRules;

impl Rules for NoRules {
    fn check(&self, _: &DocumentKey, _: &Document) -> Result<(), Refused> {
        Ok(())
    }
}

/// A place in a document that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Where: `$.address.zip`.
    pub path: String,
    /// What was expected there and what was found.
    pub reason: String,
}

/// Why nothing was done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refused {
    /// What was read has changed since.
    #[error("{} of the position locks are broken", .0.len())]
    Locked(Vec<Broken>),
    /// A document is not what the request expected.
    #[error("the document {at} is not as expected")]
    Unexpected {
        /// Which.
        at: DocumentKey,
        /// What was expected.
        expected: Expectation,
        /// Its version; none if it is absent.
        version: Option<Position>,
    },
    /// There is no such document, or it is deleted.
    #[error("there is no document {at}")]
    NoDocument {
        /// Which.
        at: DocumentKey,
        /// It was there.
        deleted: bool,
    },
    /// There is such a document already, or there was.
    #[error("there is a document {at} already")]
    Exists {
        /// Which.
        at: DocumentKey,
        /// It is deleted.
        deleted: bool,
    },
    /// There is nothing to restore.
    #[error("the document {at} is not deleted")]
    NotDeleted {
        /// Which.
        at: DocumentKey,
        /// It was never there.
        missing: bool,
    },
    /// Elements cannot be added to or removed from what is no list of whole numbers and strings.
    #[error("the field {field:?} of {at} is not a list of whole numbers and strings")]
    NotAList {
        /// The document.
        at: DocumentKey,
        /// The field.
        field: Box<str>,
    },
    /// The document would not be what its schema says.
    #[error("the document {at} does not fit the schema of its collection")]
    Misfit {
        /// The document.
        at: DocumentKey,
        /// Where it does not fit; the first few places.
        misfits: Vec<Misfit>,
    },
    /// Checking documents takes long, and has to be done before the call is decided again.
    #[error("the documents are not checked yet")]
    Unchecked,
    /// There is no such node, so it cannot be removed, or nothing can be put into it.
    #[error("there is no node {path} in {at}")]
    NoNode {
        /// The document.
        at: DocumentKey,
        /// The node.
        path: Path,
    },
    /// Nothing can be put into what is neither a list nor an object.
    #[error("the node {path} of {at} is neither a list nor an object")]
    NoContainer {
        /// The document.
        at: DocumentKey,
        /// The node.
        path: Path,
    },
    /// The document would become too large.
    #[error("the document {at} would have {len} of at most {limit} ({name})")]
    OverLimit {
        /// The document.
        at: DocumentKey,
        /// The limit's name.
        name: &'static str,
        /// The limit.
        limit: u64,
        /// How much it would be.
        len: u64,
    },
}
