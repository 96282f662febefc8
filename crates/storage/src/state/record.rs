//! How documents and undo records are kept. Knows nothing of keys.

use crate::{entry::StoredDocument, store::StoreError};
use lockwood_model::{Document, Fields, META_DELETED, META_POSITION, Position};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

const FORMAT: u8 = 1;

/// A document as it lies in the store, read without copying.
#[derive(Debug, Clone)]
pub struct DocumentRef<'a>(StoredDocument<'a>);

impl<'a> DocumentRef<'a> {
    /// Reads what [`encode_document`] wrote.
    pub fn read(bytes: &'a [u8]) -> Result<DocumentRef<'a>, StoreError> {
        decode(bytes).map(DocumentRef).ok_or_else(|| StoreError::damaged("a document"))
    }

    /// When it came into being.
    pub fn created(&self) -> Position {
        Position(self.0.created)
    }

    /// When it last changed.
    pub fn position(&self) -> Position {
        Position(self.0.position)
    }

    /// Whether it is deleted.
    pub fn deleted(&self) -> bool {
        self.0.deleted
    }

    /// Names and values of its fields, by name.
    pub fn fields(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.fields.iter().filter_map(|(name, _, value)| Some((*name, (*value)?)))
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let index = self.0.fields.binary_search_by(|(found, _, _)| (*found).cmp(name)).ok()?;
        self.0.fields[index].2
    }

    /// A copy that stands for itself.
    pub fn to_document(&self) -> Document {
        self.0.to_document()
    }
}

impl<'a> From<&'a Document> for DocumentRef<'a> {
    fn from(document: &'a Document) -> DocumentRef<'a> {
        DocumentRef(document.into())
    }
}

impl Fields for DocumentRef<'_> {
    fn value(&self, field: &str) -> Option<Cow<'_, str>> {
        match field {
            META_DELETED => Some(Cow::Borrowed(if self.0.deleted { "true" } else { "false" })),
            META_POSITION => (self.0.position > 0).then(|| Cow::Owned(self.0.position.to_string())),
            _ => self.get(field).map(Cow::Borrowed),
        }
    }
}

pub(crate) fn encode_document(document: &Document) -> Vec<u8> {
    encode(&StoredDocument::from(document))
}

/// What a change has to be undone with.
#[derive(Serialize, Deserialize)]
pub(crate) struct Undo<'a> {
    pub(crate) position: u64,
    pub(crate) deleted: bool,
    pub(crate) version: u64,
    /// If true, `fields` is everything the document had; otherwise only what the change touched.
    pub(crate) whole: bool,
    /// The value a field had; none if it was absent.
    #[serde(borrow)]
    pub(crate) fields: UndoFields<'a>,
}

/// The value that each of some fields had; none if it was absent.
pub type UndoFields<'a> = Vec<(&'a str, Option<&'a str>)>;

pub(crate) fn encode_undo(undo: &Undo<'_>) -> Vec<u8> {
    encode(undo)
}

/// The position and the fields that an undo record goes back to, for a look at one that another node sent.
pub fn undo_fields(bytes: &[u8]) -> Result<(Position, UndoFields<'_>), StoreError> {
    read_undo(bytes).map(|undo| (Position(undo.position), undo.fields))
}

pub(crate) fn read_undo(bytes: &[u8]) -> Result<Undo<'_>, StoreError> {
    decode(bytes).ok_or_else(|| StoreError::damaged("the history of a document"))
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_extend(value, vec![FORMAT]).expect("records can be encoded")
}

pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match bytes.split_first() {
        Some((&FORMAT, body)) => postcard::from_bytes(body).ok(),
        _ => None,
    }
}
