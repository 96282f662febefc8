//! Addresses of documents and of nodes inside them: what a path of the tree means for the store. Knows nothing of
//! what is kept there.

use crate::{
    key::{DocumentKey, Key, KeyError},
    path::{Path, PathError},
};
use std::{fmt, str::FromStr};

/// A document, or a node inside it.
///
/// Locks, commands and addresses of the server read a path in this one way: `user/42/address/city` is the node
/// `address/city` of the document `42` of the collection `user`. The second segment is the key, whose parts have colons
/// between them, `line/order:42`; what comes after it leads into the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress {
    /// The document.
    pub document: DocumentKey,
    /// From the document down to the node; empty for the document itself.
    pub path: Path,
}

/// A path that names no document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The whole namespace.
    #[error("/ is the whole namespace; a document is COLLECTION/KEY, for example user/42")]
    Namespace,
    /// A collection.
    #[error("{0} is a collection; a document is COLLECTION/KEY, for example {0}/42")]
    Collection(Path),
    /// Not written as paths are.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The second segment is not written as keys are.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The second segment is another spelling of a key. A lock on it would not be on the document.
    #[error("the key {written:?} has another spelling than the one that locks on it have; write {path}")]
    Spelling {
        /// The second segment.
        written: String,
        /// The document, as locks on it are written.
        path: Path,
    },
}

impl NodeAddress {
    /// What a path names.
    pub fn of(path: &Path) -> Result<NodeAddress, AddressError> {
        let mut segments = path.segments();
        let Some(collection) = segments.next() else { return Err(AddressError::Namespace) };
        let Some(key) = segments.next() else { return Err(AddressError::Collection(path.clone())) };
        let document = DocumentKey::new(collection, key.parse::<Key>()?);
        if document.key.segment() != key {
            return Err(AddressError::Spelling { written: key.to_owned(), path: document.path() });
        }
        Ok(NodeAddress { document, path: Path::from_segments(segments) })
    }
}

impl FromStr for NodeAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<NodeAddress, AddressError> {
        NodeAddress::of(&text.parse()?)
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.document.fmt(f)?;
        if self.path.is_empty() { Ok(()) } else { write!(f, "/{}", self.path) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, collection: &str, key: &str, path: &[&str]) {
        let address: NodeAddress = text.parse().unwrap();
        let document = DocumentKey::new(collection, key.parse().unwrap());
        assert_eq!(address, NodeAddress { document, path: Path::from_segments(path) }, "{text}");
        assert_eq!(address.to_string().parse::<NodeAddress>().unwrap(), address, "{text} round trip");
    }

    #[test]
    fn the_second_segment_is_the_key() {
        check("user/42", "user", "42", &[]);
        check("/user/42", "user", "42", &[]);
        check("user/42/address/city", "user", "42", &["address", "city"]);
        check("line/order:7/price", "line", "order:7", &["price"]);
        check("file/a%2Fb/c%2Fd", "file", "a/b", &["c/d"]);
        check("file/a%253Ab", "file", "a%3Ab", &[]);
        check("a%2Fb/%25_/%_", "a/b", "%_", &[""]);
    }

    #[test]
    fn a_path_without_a_key_names_no_document() {
        let error = |text: &str| text.parse::<NodeAddress>().unwrap_err();
        assert_eq!(error("/"), AddressError::Namespace);
        assert_eq!(error("user"), AddressError::Collection("user".parse().unwrap()));
        assert_eq!(error(""), AddressError::Path(PathError::Nothing));
        for text in ["user/", "user/42/", "user//x", "user/42/a//b"] {
            assert!(matches!(error(text), AddressError::Path(PathError::EmptySegment(_))), "{text}");
        }
        assert!(matches!(error("user/a::b"), AddressError::Key(KeyError::EmptyPart(_))));
    }

    #[test]
    fn a_lock_on_an_address_is_on_the_document_it_names() {
        for text in
            ["user/42", "line/order:7", "file/a%2Fb", "file/a%253Ab", "user/%1B%E2%80%AE", "a/50%2525"]
        {
            let path: Path = text.parse().unwrap();
            assert_eq!(NodeAddress::of(&path).unwrap().document.path(), path, "{text}");
        }
    }

    #[test]
    fn a_key_has_one_spelling() {
        for (text, right) in
            [("k/a%252Fb", "k/a%2Fb"), ("k/x%253a1", "k/x%253A1"), ("k/%2541", "k/A"), ("k/007", "k/007")]
        {
            match text.parse::<NodeAddress>() {
                Ok(_) => assert_eq!(text, right),
                Err(AddressError::Spelling { path, .. }) => {
                    assert_eq!(path, right.parse().unwrap(), "{text}");
                    assert_eq!(right.parse::<NodeAddress>().unwrap().document.path(), path, "{text}");
                }
                Err(error) => panic!("{text}: {error}"),
            }
        }
    }
}
