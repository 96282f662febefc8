//! How collections, models and fields are named. Knows nothing of what is done with names.
//!
//! | name | grammar |
//! | --- | --- |
//! | collection | `[a-z]([a-z_]+[a-z])?`, at most 32 where something is written or locked |
//! | id | `[1-9][0-9]*`, at most 2,147,483,647 |
//! | field | `[a-z][a-z0-9_]*(\$[a-z0-9_]*)?` |
//! | model | collection `/` id |
//! | field of a model | collection `/` id `/` field |
//! | field of a collection | collection `/` field, at most 239 |

use super::answer::Refusal;
use lockwood_model::{DocumentKey, Key};

pub(super) const ID_MAX: i64 = i32::MAX as i64;
const COLLECTION_LEN_MAX: usize = 32;
const COLLECTION_FIELD_LEN_MAX: usize = 239;
/// So much of a wrong name is repeated to whoever sent it.
const SHOWN_LEN_MAX: usize = 100;

/// What a lock can be on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named<'a> {
    Model(DocumentKey),
    Field(DocumentKey, &'a str),
    CollectionField(&'a str, &'a str),
}

impl<'a> Named<'a> {
    pub(super) fn read(text: &'a str) -> Result<Named<'a>, Refusal> {
        let wrong = || refusal(text, "neither a model, a field of a model nor a field of a collection");
        let (collection, rest) = text.split_once('/').ok_or_else(wrong)?;
        if !is_collection(collection) {
            return Err(wrong());
        }
        let (name, field) = match rest.split_once('/') {
            None => (rest, None),
            Some((id, field)) => (id, Some(field)),
        };
        match (read_id(name), field) {
            (Some(id), None) => Ok(Named::Model(DocumentKey::new(collection, id))),
            (Some(id), Some(field)) if is_field(field) => {
                Ok(Named::Field(DocumentKey::new(collection, id), field))
            }
            (None, None) if is_field(name) => Ok(Named::CollectionField(collection, name)),
            _ => Err(wrong()),
        }
    }
}

impl Named<'_> {
    /// Nothing can ever be written under a longer name, so a lock on one is a mistake.
    pub(super) fn check_len(&self) -> Result<(), Refusal> {
        let (collection, field) = match self {
            Named::Model(at) => (&*at.collection, None),
            Named::Field(at, field) => (&*at.collection, Some(*field)),
            Named::CollectionField(collection, field) => (*collection, Some(*field)),
        };
        written_collection(collection)?;
        match field.filter(|field| !is_field_of(collection, field)) {
            Some(field) => Err(refusal(field, "no field: its name is too long")),
            None => Ok(()),
        }
    }
}

pub(super) fn model(text: &str) -> Result<DocumentKey, Refusal> {
    let found = text.split_once('/').filter(|(collection, _)| is_collection(collection));
    let found = found.and_then(|(collection, id)| Some(DocumentKey::new(collection, read_id(id)?)));
    found.ok_or_else(|| refusal(text, "no fqid"))
}

pub(super) fn collection(text: &str) -> Result<&str, Refusal> {
    if is_collection(text) { Ok(text) } else { Err(refusal(text, "no collection")) }
}

/// A collection that can be written to.
pub(super) fn written_collection(text: &str) -> Result<&str, Refusal> {
    if text.len() > COLLECTION_LEN_MAX {
        let what = format!("no collection: its name has at most {COLLECTION_LEN_MAX} characters");
        return Err(refusal(text, &what));
    }
    collection(text)
}

pub(super) fn field(text: &str) -> Result<&str, Refusal> {
    if is_field(text) { Ok(text) } else { Err(refusal(text, "no field")) }
}

/// A field that can be written.
pub(super) fn own_field<'a>(collection: &str, text: &'a str) -> Result<&'a str, Refusal> {
    if text.starts_with("meta") {
        return Err(refusal(text, "reserved: names of fields that can be written do not start with meta"));
    }
    if is_field_of(collection, text) { Ok(text) } else { Err(refusal(text, "no field")) }
}

pub(super) fn id(collection: &str, number: i128) -> Result<i64, Refusal> {
    let id = i64::try_from(number).ok().filter(|id| (1..=ID_MAX).contains(id));
    id.ok_or_else(|| {
        refusal(&format!("{collection}/{number}"), &format!("no fqid: ids are numbers from 1 to {ID_MAX}"))
    })
}

fn refusal(text: &str, what: &str) -> Refusal {
    let shown: String = text.chars().take(SHOWN_LEN_MAX).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    Refusal::Format(format!("{shown:?}{more} is {what}"))
}

fn is_collection(text: &str) -> bool {
    match text.as_bytes() {
        [only] => only.is_ascii_lowercase(),
        [first, middle @ .., last] => {
            first.is_ascii_lowercase()
                && last.is_ascii_lowercase()
                && !middle.is_empty()
                && middle.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'_')
        }
        [] => false,
    }
}

fn read_id(text: &str) -> Option<Key> {
    let canonical =
        matches!(text.as_bytes(), [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit));
    let id: i64 = text.parse().ok().filter(|id| canonical && *id <= ID_MAX)?;
    Some(Key::number(id))
}

fn is_field(text: &str) -> bool {
    let Some((first, rest)) = text.as_bytes().split_first() else { return false };
    let is_word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
    first.is_ascii_lowercase()
        && rest.iter().all(|byte| is_word(byte) || *byte == b'$')
        && rest.iter().filter(|byte| **byte == b'$').count() <= 1
}

fn is_field_of(collection: &str, text: &str) -> bool {
    is_field(text) && collection.len() + 1 + text.len() <= COLLECTION_FIELD_LEN_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections() {
        for right in ["a", "abc", "a_c", "a__b", &"c".repeat(33)] {
            assert!(is_collection(right), "{right}");
        }
        for wrong in ["", "ab", "a_", "_", "_a_", "a1c", "A", "aBc", "a\n", "ä", "a-b"] {
            assert!(!is_collection(wrong), "{wrong}");
        }
        assert!(written_collection(&"c".repeat(32)).is_ok());
        assert!(written_collection(&"c".repeat(33)).is_err());
    }

    #[test]
    fn fields() {
        for right in ["f", "f1", "f_", "f$", "f_$_s", "f$1"] {
            assert!(is_field(right), "{right}");
        }
        for wrong in ["", "1", "_f", "$f", "F", "f$$", "f$a$", "f-g", "f\n", "f/g", "ä"] {
            assert!(!is_field(wrong), "{wrong}");
        }
    }

    #[test]
    fn keys_of_locks() {
        let at = DocumentKey::new("a", Key::number(5));
        assert_eq!(Named::read("a/5"), Ok(Named::Model(at.clone())));
        assert_eq!(Named::read("a/5/f"), Ok(Named::Field(at, "f")));
        assert_eq!(Named::read("a/f5"), Ok(Named::CollectionField("a", "f5")));
        for wrong in ["", "/", "a", "a/", "a/0", "a/05", "a/5/", "a/5/f/g", "a/f/5", "ab/5", "a/5\n", "a/+5"]
        {
            assert!(matches!(Named::read(wrong), Err(Refusal::Format(_))), "{wrong:?}");
        }
        let check_len = |text: String| Named::read(&text).unwrap().check_len();
        assert!(check_len(format!("a/{}", "f".repeat(237))).is_ok());
        assert!(check_len(format!("a/{}", "f".repeat(238))).is_err());
        assert!(check_len(format!("{}/1", "c".repeat(32))).is_ok());
        assert!(check_len(format!("{}/1", "c".repeat(33))).is_err());
    }
}
