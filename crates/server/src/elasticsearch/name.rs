//! How indexes, types and ids name namespaces, collections and keys. Knows nothing of what is there.

use super::answer::{Refusal, quoted};
use crate::native::Decoder;
use lockwood_model::{DocumentKey, Key, KeyPart};
use lockwood_node::limits::Limits;
use lockwood_wire::documents::WireKey;

/// The collection of documents without a type.
pub(super) const UNTYPED: &str = "_doc";

/// Where a document is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct At {
    pub(super) index: String,
    pub(super) id: String,
    pub(super) key: DocumentKey,
}

impl At {
    pub(super) fn new(limits: &Limits, index: &str, collection: &str, id: &str) -> Result<At, Refusal> {
        check_index(limits, index)?;
        check_type(limits, collection)?;
        if id.is_empty() {
            return Err(Refusal::argument("an id is at least one character long"));
        }
        let key = Decoder(limits).document(collection, &WireKey(key_of(id)))?;
        Ok(At { index: index.to_owned(), id: id_of(&key.key), key })
    }

    pub(super) fn collection(&self) -> &str {
        &self.key.collection
    }

    pub(super) fn is_typed(&self) -> bool {
        self.collection() != UNTYPED
    }

    /// How errors call it.
    pub(super) fn label(&self) -> String {
        if self.is_typed() {
            format!("[{}][{}]", self.collection(), self.id)
        } else {
            format!("[{}]", self.id)
        }
    }

    pub(super) fn conflict(&self, reason: &str) -> Refusal {
        self.about(Refusal::conflict(format!("{}: version conflict, {reason}", self.label())))
    }

    /// Says which document a refusal is about.
    pub(super) fn about(&self, refusal: Refusal) -> Refusal {
        refusal
            .with("index_uuid", quoted("_na_"))
            .with("shard", quoted("0"))
            .with("index", quoted(&self.index))
    }
}

/// The key that an id names. An id is the text of a key if it can be, and otherwise a key of one part.
pub(super) fn key_of(id: &str) -> Key {
    let read = id.parse::<Key>().ok().filter(|key| key.to_string() == id);
    read.or_else(|| Key::new([KeyPart::new(id)])).expect("a key with a part is a key")
}

/// The id of a key, as it was given.
pub(super) fn id_of(key: &Key) -> String {
    match key.parts() {
        [KeyPart::Text(text)] if !text.is_empty() && key_of(text) == *key => text.to_string(),
        _ => key.to_string(),
    }
}

pub(super) fn check_index(limits: &Limits, index: &str) -> Result<(), Refusal> {
    let is_odd = |char: char| char.is_control() || "*?\"<>|,#\\/ ".contains(char);
    if index.is_empty()
        || index.starts_with(['_', '-', '+'])
        || index.contains(is_odd)
        || index == "."
        || index == ".."
    {
        let reason = format!(
            "Invalid index name [{index}]; a name has none of _-+ at its beginning and none of *?\"<>|,#\\/ and spaces in \
             it; several indexes can be named in _search, _count, _refresh, _delete_by_query and _mapping"
        );
        let refusal = Refusal::new(hyper::StatusCode::BAD_REQUEST, "invalid_index_name_exception", reason);
        return Err(refusal.with("index", quoted(index)));
    }
    let limit = limits.namespace_bytes_max;
    if index.len() as u64 > limit {
        let what = format!("the name of the index has {} bytes", index.len());
        return Err(Refusal::over("namespace_bytes_max", limit, &what));
    }
    Ok(())
}

pub(super) fn check_type(limits: &Limits, collection: &str) -> Result<(), Refusal> {
    if collection.starts_with('_') && collection != UNTYPED {
        let reason = format!("Document mapping type name can't start with '_', found: [{collection}]");
        return Err(Refusal::new(hyper::StatusCode::BAD_REQUEST, "invalid_type_name_exception", reason));
    }
    if collection.contains([',', '*']) {
        let reason = format!(
            "mapping type name [{collection}] should not include ',' or '*' in it; several types can be named in \
             _search, _count, _delete_by_query and _mapping"
        );
        return Err(Refusal::new(hyper::StatusCode::BAD_REQUEST, "invalid_type_name_exception", reason));
    }
    Ok(Decoder(limits).collection(collection)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_as_they_were_given() {
        for id in
            ["1", "007", "-1", "a", "/clinton/projects", "50%", "order:42", "a::b", ":", "é", "a%3Ab", "x y"]
        {
            assert_eq!(id_of(&key_of(id)), id);
        }
        assert_eq!(key_of("1"), Key::number(1));
        assert_eq!(key_of("order:42"), "order:42".parse().unwrap());
        // Native keys that are written with escapes.
        for key in ["a%3Ab", "%_", "%_:1", "%1B"] {
            let key: Key = key.parse().unwrap();
            assert_eq!(key_of(&id_of(&key)), key, "{key}");
        }
    }

    #[test]
    fn names_of_types() {
        let limits = Limits::default();
        for (name, is_type) in
            [("lock", true), ("_doc", true), ("_x", false), ("a,b", false), ("lo*", false), ("", false)]
        {
            assert_eq!(check_type(&limits, name).is_ok(), is_type, "{name}");
        }
    }

    #[test]
    fn names_of_indexes() {
        let limits = Limits::default();
        for name in ["fs", "a-b_c.d", "Größe", "x".repeat(256).as_str()] {
            assert!(check_index(&limits, name).is_ok(), "{name}");
        }
        for name in ["", "_all", "a,b", "a*", "-a", "a b", "a/b", "..", "x".repeat(257).as_str()] {
            assert!(check_index(&limits, name).is_err(), "{name}");
        }
    }
}
