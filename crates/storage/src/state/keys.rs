//! How keys are laid out so that their bytes sort as what they stand for. Knows nothing of values.
//!
//! | space | key |
//! | --- | --- |
//! | Meta | a tag byte and what it is about, see [`meta`] |
//! | Documents | namespace (4), collection, 0, key parts, 1 |
//! | History | the key of the document, position (8) |
//! | Touched | namespace (4), collection, 0, field |
//! | Positions | namespace (4), position (8) |
//! | Indexes | index (4), value, the key of the document |
//! | Answers | namespace (4), idempotency key |
//! | Marks | the key of the document |
//! | Origins | the key of the document, position (8) |
//! | Leases | length of the namespace's name (2), its name, lock (8) |
//!
//! A number in a key is the tag 2 and eight bytes, text is the tag 3, its bytes with `0 255` for 0, and `0 1`.
//! The 1 at the end is smaller than both tags, so no document's key starts with that of another.

use lockwood_model::{DocumentKey, Json, Key, KeyPart, Position, Scalar};

const END: u8 = 1;
const NUMBER: u8 = 2;
const TEXT: u8 = 3;

/// Everything of a namespace in the spaces of documents, history, positions, touches and answers.
pub(crate) fn namespace(namespace: u32) -> Vec<u8> {
    namespace.to_be_bytes().to_vec()
}

/// Everything of a collection in the spaces of documents, history and touches.
pub(crate) fn collection(namespace: u32, collection: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + collection.len() + 24);
    bytes.extend_from_slice(&namespace.to_be_bytes());
    bytes.extend_from_slice(collection.as_bytes());
    bytes.push(0);
    bytes
}

/// A document.
pub(crate) fn document(namespace: u32, at: &DocumentKey) -> Vec<u8> {
    let mut bytes = collection(namespace, &at.collection);
    push_key(&mut bytes, &at.key);
    bytes
}

/// A change of a document, given the key of the document.
pub(crate) fn history(document: &[u8], position: Position) -> Vec<u8> {
    [document, &position.0.to_be_bytes()].concat()
}

/// A field of a collection.
pub(crate) fn touched(namespace: u32, name: &str, field: &str) -> Vec<u8> {
    let mut bytes = collection(namespace, name);
    bytes.extend_from_slice(field.as_bytes());
    bytes
}

/// A position.
pub(crate) fn position(namespace: u32, position: Position) -> Vec<u8> {
    [&namespace.to_be_bytes()[..], &position.0.to_be_bytes()].concat()
}

/// An idempotency key.
pub(crate) fn answer(namespace: u32, key: &str) -> Vec<u8> {
    [&namespace.to_be_bytes()[..], key.as_bytes()].concat()
}

/// A lease. By name, because a namespace without documents has no number.
pub(crate) fn lease(namespace: &str, lock: u64) -> Vec<u8> {
    let len = u16::try_from(namespace.len()).expect("names are short");
    [&len.to_be_bytes()[..], namespace.as_bytes(), &lock.to_be_bytes()].concat()
}

/// The namespace and the lock of a lease's key.
pub(crate) fn read_lease(key: &[u8]) -> Option<(&str, u64)> {
    let (len, rest) = key.split_first_chunk::<2>()?;
    let (name, lock) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    Some((std::str::from_utf8(name).ok()?, u64::from_be_bytes(lock.try_into().ok()?)))
}

/// Keys of the space Meta.
pub(crate) mod meta {
    /// How far the state is.
    pub(crate) const APPLIED: &[u8] = b"a";
    /// Up to which index of the log history was forgotten.
    pub(crate) const TRIMMED: &[u8] = b"t";
    /// The number the next namespace gets.
    pub(crate) const NEXT_NAMESPACE: &[u8] = b"s";
    /// The number the next secondary index gets.
    pub(crate) const NEXT_INDEX: &[u8] = b"x";

    /// No write gets a position up to this one.
    pub(crate) const FLOOR: &[u8] = b"f";

    /// All namespaces by name.
    pub(crate) const NAMESPACES: &[u8] = b"n";

    /// All namespaces that a dump is being loaded into, by name.
    pub(crate) const LOADING: &[u8] = b"l";

    /// A namespace that a dump is being loaded into.
    pub(crate) fn loading(name: &str) -> Vec<u8> {
        [LOADING, name.as_bytes()].concat()
    }

    /// How many purges have to be completed; with the record of one behind it, how far that is.
    pub(crate) const PURGING: &[u8] = b"u";

    /// A purge that has to be completed.
    pub(crate) fn purging(index: u64) -> Vec<u8> {
        [PURGING, &index.to_be_bytes()].concat()
    }

    /// The last position of a namespace that was purged, by its name.
    pub(crate) fn past(name: &str) -> Vec<u8> {
        [&b"d"[..], name.as_bytes()].concat()
    }

    /// When collections of a namespace were last purged.
    pub(crate) fn purges(namespace: u32) -> Vec<u8> {
        [&b"g"[..], &namespace.to_be_bytes()].concat()
    }

    /// When documents of a collection were last purged.
    pub(crate) fn purged(namespace: u32, collection: &str) -> Vec<u8> {
        [&purges(namespace)[..], collection.as_bytes()].concat()
    }

    /// A namespace by its name.
    pub(crate) fn namespace(name: &str) -> Vec<u8> {
        [NAMESPACES, name.as_bytes()].concat()
    }

    /// The last position of a namespace.
    pub(crate) fn position(namespace: u32) -> Vec<u8> {
        [&b"p"[..], &namespace.to_be_bytes()].concat()
    }

    /// Up to where the history of a namespace is forgotten.
    pub(crate) fn horizon(namespace: u32) -> Vec<u8> {
        [&b"h"[..], &namespace.to_be_bytes()].concat()
    }

    /// Up to where the notes of a namespace are not to be shown.
    pub(crate) fn erased(namespace: u32) -> Vec<u8> {
        [&b"e"[..], &namespace.to_be_bytes()].concat()
    }

    /// Which version the data of a namespace is of.
    pub(crate) fn version(namespace: u32) -> Vec<u8> {
        [&b"v"[..], &namespace.to_be_bytes()].concat()
    }

    /// All counters of a namespace.
    pub(crate) fn counters(namespace: u32) -> Vec<u8> {
        [&b"c"[..], &namespace.to_be_bytes()].concat()
    }

    /// The next free id of a collection.
    pub(crate) fn counter(namespace: u32, collection: &str) -> Vec<u8> {
        [&counters(namespace)[..], collection.as_bytes()].concat()
    }

    /// All secondary indexes of a namespace.
    pub(crate) fn indexes(namespace: u32) -> Vec<u8> {
        [&b"i"[..], &namespace.to_be_bytes()].concat()
    }

    /// The secondary indexes of a collection.
    pub(crate) fn collection_indexes(namespace: u32, collection: &str) -> Vec<u8> {
        [&indexes(namespace)[..], collection.as_bytes()].concat()
    }
}

fn push_key(bytes: &mut Vec<u8>, key: &Key) {
    for part in key.parts() {
        match part {
            KeyPart::Number(number) => push_number(bytes, *number),
            KeyPart::Text(text) => push_text(bytes, text.as_bytes()),
        }
    }
    bytes.push(END);
}

fn push_number(bytes: &mut Vec<u8>, number: i64) {
    bytes.push(NUMBER);
    // The sign bit is turned around, so that negative numbers come first.
    bytes.extend_from_slice(&((number as u64) ^ (1 << 63)).to_be_bytes());
}

fn push_text(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.push(TEXT);
    for &byte in text {
        bytes.push(byte);
        if byte == 0 {
            bytes.push(255);
        }
    }
    bytes.extend_from_slice(&[0, 1]);
}

/// The document that a key in the space of documents stands for.
pub(crate) fn read_document(bytes: &[u8]) -> Option<DocumentKey> {
    let rest = bytes.get(4..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let collection = std::str::from_utf8(&rest[..end]).ok()?;
    let mut rest = &rest[end + 1..];
    let mut parts = Vec::with_capacity(1);
    loop {
        let (tag, after) = rest.split_first()?;
        rest = match *tag {
            END if after.is_empty() => break,
            NUMBER => {
                let (number, after) = after.split_first_chunk::<8>()?;
                parts.push(KeyPart::Number((u64::from_be_bytes(*number) ^ (1 << 63)) as i64));
                after
            }
            TEXT => {
                let (text, after) = read_text(after)?;
                parts.push(KeyPart::Text(text.into()));
                after
            }
            _ => return None,
        };
    }
    Some(DocumentKey { collection: collection.into(), key: Key::new(parts)? })
}

fn read_text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let mut text = Vec::new();
    let mut rest = bytes;
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        if *byte != 0 {
            text.push(*byte);
            continue;
        }
        let (mark, after) = rest.split_first()?;
        rest = after;
        match *mark {
            255 => text.push(0),
            _ => return Some((String::from_utf8(text).ok()?, rest)),
        }
    }
}

/// The document part of a key in the space of history, and the position.
pub(crate) fn read_history(bytes: &[u8]) -> Option<(&[u8], Position)> {
    let (document, position) = bytes.split_last_chunk::<8>()?;
    Some((document, Position(u64::from_be_bytes(*position))))
}

/// All documents with this value in an index, given the index's number. Values that are equal have the same
/// bytes; values that are ordered have bytes in the same order, or the same bytes.
pub(crate) fn index_value(index: u32, value: &str) -> Vec<u8> {
    let mut bytes = index.to_be_bytes().to_vec();
    match Scalar::read(value) {
        Scalar::Null => bytes.push(0),
        Scalar::Bool(value) => bytes.extend_from_slice(&[1, u8::from(value)]),
        Scalar::Number(number) => {
            bytes.push(NUMBER);
            bytes.extend_from_slice(&float_bytes(number.as_f64()));
        }
        Scalar::Text(text) => push_text(&mut bytes, index_text(&text)),
        // Equal lists and objects can be written in different ways, so they share one place.
        Scalar::Compound(_) => bytes.push(4),
    }
    bytes
}

/// All values of a type in an index: the bounds of what is ordered with `value`.
pub(crate) fn index_type(index: u32, value: &Json) -> Vec<u8> {
    let mut bytes = index_value(index, value.as_str());
    bytes.truncate(5);
    bytes
}

/// Long text is cut: what is found has to be looked at anyway. It is cut at the same byte whatever it is, in
/// the middle of a character too: otherwise a text that is cut earlier would come before a smaller one.
fn index_text(text: &str) -> &[u8] {
    const BYTES_MAX: usize = 256;
    &text.as_bytes()[..text.len().min(BYTES_MAX)]
}

/// Eight bytes that sort as the floats do.
fn float_bytes(float: f64) -> [u8; 8] {
    // Adding zero makes one of the two zeros.
    let bits = (float + 0.0).to_bits();
    let sorted = if bits >> 63 == 0 { bits ^ (1 << 63) } else { !bits };
    sorted.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(key: &str) -> DocumentKey {
        DocumentKey::new("user", key.parse().unwrap())
    }

    #[test]
    fn documents_sort_by_their_keys_and_can_be_read_back() {
        let sorted = [
            "-5", "-1", "0", "7", "10", "10:1", "10:a", "%00", "%00a", "%01", "a", "a:1", "a:b", "a%00",
            "ab", "b",
        ];
        let keys: Vec<Vec<u8>> = sorted.iter().map(|key| document(1, &at(key))).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        for (key, bytes) in sorted.iter().zip(&keys) {
            assert_eq!(read_document(bytes), Some(at(key)));
            assert!(
                keys.iter().filter(|other| other.starts_with(bytes)).count() == 1,
                "{key} is nobody's prefix"
            );
        }
    }

    #[test]
    fn damaged_keys_are_noticed() {
        let bytes = document(1, &at("a:10"));
        for len in 0..bytes.len() {
            assert_eq!(read_document(&bytes[..len]), None);
        }
    }

    #[test]
    fn index_values_sort_as_the_values_do() {
        let sorted = [
            "false", "true", "-1e300", "-2", "-1.5", "0", "1e-300", "1", "1.5", "1e300", "\"\"", "\"a\"",
            "\"ab\"", "\"b\"",
        ];
        let bytes: Vec<Vec<u8>> = sorted.iter().map(|value| index_value(1, value)).collect();
        assert!(bytes.windows(2).all(|pair| pair[0] < pair[1]), "{bytes:?}");
        assert_eq!(index_value(1, "1"), index_value(1, "1.0"));
        assert_eq!(index_value(1, "-0"), index_value(1, "0"));
        assert_eq!(index_value(1, "\"a\""), index_value(1, "\"\\u0061\""));
    }
}
