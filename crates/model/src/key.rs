//! Keys: how a document is named within its collection, and how that name is written. Knows nothing of
//! documents.

use crate::path::{Path, is_unprintable};
use smallvec::SmallVec;
use std::{fmt, str::FromStr};

/// One part of a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyPart {
    /// A number; numbers come before text, and in their own order.
    Number(i64),
    /// Text that is not the canonical form of a number.
    Text(Box<str>),
}

/// The name of a document in its collection: one or more parts.
///
/// In text the parts are joined by colons, `order:42`. A part that is written as a whole number is that
/// number, so `42` and `"42"` name one document. Inside a part `%3A` stands for a colon and `%25` for a
/// percent sign; any byte may be written as `%` and two hex digits. `%_` stands for an empty part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(SmallVec<[KeyPart; 1]>);

/// Where a document is: its collection and its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentKey {
    /// The collection.
    pub collection: Box<str>,
    /// The key in it.
    pub key: Key,
}

/// The text is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing, or nothing between two colons.
    #[error("the key {0:?} has an empty part; write %_ if an empty part is meant, in a path %25_")]
    EmptyPart(String),
    /// A `%` that starts no escape.
    #[error(
        "the key {0:?} has a % that starts no escape; write %25 for a percent sign and %3A for a colon, in a path %2525 and %253A"
    )]
    BadEscape(String),
    /// The escapes do not spell UTF-8.
    #[error("the key {0:?} has escapes that are not UTF-8 text")]
    NotUtf8(String),
}

impl KeyPart {
    /// The part that `text` is: a number if it is written as one.
    pub fn new(text: &str) -> KeyPart {
        match canonical_number(text) {
            Some(number) => KeyPart::Number(number),
            None => KeyPart::Text(text.into()),
        }
    }
}

/// The number whose only way of being written is `text`.
fn canonical_number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = matches!(digits.as_bytes(), [b'0'] | [b'1'..=b'9', ..]) && text != "-0";
    if canonical { text.parse().ok() } else { None }
}

impl Key {
    /// A key of these parts; none if there are no parts.
    pub fn new(parts: impl IntoIterator<Item = KeyPart>) -> Option<Key> {
        let parts: SmallVec<[KeyPart; 1]> = parts.into_iter().collect();
        (!parts.is_empty()).then_some(Key(parts))
    }

    /// The key that is just a number.
    pub fn number(number: i64) -> Key {
        Key(SmallVec::from_buf([KeyPart::Number(number)]))
    }

    /// The parts in their order.
    pub fn parts(&self) -> &[KeyPart] {
        &self.0
    }

    /// The key as a segment of a path. A path escapes what cannot be seen by itself, so it is left alone here, and what
    /// a user writes into a path is what is in it.
    pub fn segment(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, |_| false).expect("a string takes all");
        text
    }

    fn write(&self, out: &mut impl fmt::Write, is_escaped: impl Fn(char) -> bool) -> fmt::Result {
        for (index, part) in self.0.iter().enumerate() {
            if index > 0 {
                out.write_char(':')?;
            }
            match part {
                KeyPart::Number(number) => write!(out, "{number}")?,
                KeyPart::Text(text) => write_text(out, text, &is_escaped)?,
            }
        }
        Ok(())
    }

    /// The number, if the key is just one.
    pub fn as_number(&self) -> Option<i64> {
        match self.0[..] {
            [KeyPart::Number(number)] => Some(number),
            _ => None,
        }
    }
}

impl DocumentKey {
    /// The document `key` of `collection`.
    pub fn new(collection: &str, key: Key) -> DocumentKey {
        DocumentKey { collection: collection.into(), key }
    }

    /// The node of the tree that is this document, where locks on it are.
    pub fn path(&self) -> Path {
        Path::from_segments([&*self.collection, &self.key.segment()])
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, is_unprintable)
    }
}

fn write_text(out: &mut impl fmt::Write, text: &str, is_escaped: impl Fn(char) -> bool) -> fmt::Result {
    if text.is_empty() {
        return out.write_str("%_");
    }
    for char in text.chars() {
        match char {
            ':' | '%' => write!(out, "%{:02X}", char as u32)?,
            _ if is_escaped(char) => {
                for byte in char.encode_utf8(&mut [0; 4]).bytes() {
                    write!(out, "%{byte:02X}")?;
                }
            }
            _ => out.write_char(char)?,
        }
    }
    Ok(())
}

/// As a path, so that what is shown can be given back.
impl fmt::Display for DocumentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().fmt(f)
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Key, KeyError> {
        let parts = text.split(':').map(|written| read_part(text, written));
        Ok(Key(parts.collect::<Result<_, _>>()?))
    }
}

fn read_part(text: &str, written: &str) -> Result<KeyPart, KeyError> {
    match written {
        "" => return Err(KeyError::EmptyPart(text.to_owned())),
        "%_" => return Ok(KeyPart::Text("".into())),
        _ if !written.contains('%') => return Ok(KeyPart::new(written)),
        _ => {}
    }
    let bytes = crate::path::unescape(written).ok_or_else(|| KeyError::BadEscape(text.to_owned()))?;
    let part = String::from_utf8(bytes).map_err(|_| KeyError::NotUtf8(text.to_owned()))?;
    Ok(KeyPart::new(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, parts: &[KeyPart]) {
        let key: Key = text.parse().unwrap();
        assert_eq!(key.parts(), parts, "{text:?}");
        assert_eq!(key.to_string().parse::<Key>().unwrap(), key, "{text:?} round trip");
    }

    fn word(text: &str) -> KeyPart {
        KeyPart::Text(text.into())
    }

    #[test]
    fn text_form() {
        check("42", &[KeyPart::Number(42)]);
        check("-7", &[KeyPart::Number(-7)]);
        check("0", &[KeyPart::Number(0)]);
        check("007", &[word("007")]);
        check("-0", &[word("-0")]);
        check("-", &[word("-")]);
        check("9223372036854775808", &[word("9223372036854775808")]);
        check("order:42", &[word("order"), KeyPart::Number(42)]);
        check("a%3Ab:50%25:%_", &[word("a:b"), word("50%"), word("")]);
        check("a/b", &[word("a/b")]);
        check("%1B", &[word("\x1b")]);
    }

    #[test]
    fn bad_text_says_what_to_write_instead() {
        for text in ["", "a:", ":a", "a::b"] {
            assert!(matches!(text.parse::<Key>(), Err(KeyError::EmptyPart(_))), "{text}");
        }
        for text in ["%", "%2", "%zz"] {
            assert!(matches!(text.parse::<Key>(), Err(KeyError::BadEscape(_))), "{text}");
        }
        assert!(matches!("%FF".parse::<Key>(), Err(KeyError::NotUtf8(_))));
    }
}
