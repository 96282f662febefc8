//! Keys as they are written in JSON: a whole number, text, or a list of those. Knows nothing of documents.

use crate::{Code, documents::BodyError};
use lockwood_model::{Key, KeyPart};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use std::fmt;

/// A key: written as text, read as that, as a whole number, or as a list of the parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireKey(pub Key);

impl Serialize for WireKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for WireKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WireKey, D::Error> {
        deserializer.deserialize_any(KeyVisitor).map(WireKey)
    }
}

fn wrong<E: Error>(message: impl Into<String>) -> E {
    BodyError::new(Code::BadKey, message).into_serde()
}

fn not_a_key<E: Error>() -> E {
    wrong("a key is a whole number, text such as \"order:42\", or a list of those such as [\"order\", 42]")
}

fn too_large<E: Error>() -> E {
    wrong(format!("a number in a key is a whole number of at most {}; write others as text", i64::MAX))
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Key, E> {
        Ok(Key::number(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Key, E> {
        i64::try_from(number).map(Key::number).map_err(|_| too_large())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Key, E> {
        Err(too_large())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Key, E> {
        text.parse().map_err(|error: lockwood_model::KeyError| wrong(error.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Key, A::Error> {
        let mut parts = Vec::new();
        while let Some(Part(part)) = sequence.next_element()? {
            parts.push(part);
        }
        Key::new(parts).ok_or_else(|| wrong("a key has at least one part"))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Key, E> {
        Err(not_a_key())
    }

    fn visit_unit<E: Error>(self) -> Result<Key, E> {
        Err(not_a_key())
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Key, A::Error> {
        Err(not_a_key())
    }
}

/// A part in a list. Its text has no escapes, because nothing in a list needs them.
struct Part(KeyPart);

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Part, D::Error> {
        deserializer.deserialize_any(PartVisitor).map(Part)
    }
}

struct PartVisitor;

impl<'de> Visitor<'de> for PartVisitor {
    type Value = KeyPart;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part of a key")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<KeyPart, E> {
        Ok(KeyPart::Number(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<KeyPart, E> {
        i64::try_from(number).map(KeyPart::Number).map_err(|_| too_large())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<KeyPart, E> {
        Err(too_large())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<KeyPart, E> {
        Ok(KeyPart::new(text))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<KeyPart, E> {
        Err(not_a_key())
    }

    fn visit_unit<E: Error>(self) -> Result<KeyPart, E> {
        Err(not_a_key())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<KeyPart, A::Error> {
        while sequence.next_element::<IgnoredAny>()?.is_some() {}
        Err(not_a_key())
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<KeyPart, A::Error> {
        Err(not_a_key())
    }
}

impl utoipa::PartialSchema for WireKey {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::{Array, Object, OneOfBuilder, Type};
        let part = || {
            OneOfBuilder::new().item(Object::with_type(Type::Integer)).item(Object::with_type(Type::String))
        };
        part()
            .item(Array::new(part()))
            .description(Some(
                "A whole number, text such as order:42, or a list of the parts such as [\"order\", 42]; \
                 in text %3A is a colon inside a part and %25 a percent sign.",
            ))
            .into()
    }
}

impl utoipa::ToSchema for WireKey {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::read_body;

    #[track_caller]
    fn check(json: &str, text: &str) {
        let key: WireKey = read_body(json.as_bytes()).unwrap();
        assert_eq!(key.0.to_string(), text, "{json}");
        assert_eq!(serde_json::to_string(&key).unwrap(), format!("{text:?}"));
    }

    #[test]
    fn every_way_to_write_a_key() {
        check("42", "42");
        check("-7", "-7");
        check("\"42\"", "42");
        check("\"order:42\"", "order:42");
        check("[\"order\",42]", "order:42");
        check("[\"order\",\"42\"]", "order:42");
        check("[\"a:b\",\"50%\",\"\"]", "a%3Ab:50%25:%_");
        check("[7]", "7");
    }

    #[test]
    fn what_is_no_key_is_told() {
        let no = [
            "true",
            "null",
            "{}",
            "1.5",
            "1e3",
            "9223372036854775808",
            "1e999",
            "[]",
            "[[1]]",
            "[null]",
            "[{}]",
            "\"\"",
            "\"a::b\"",
            "\"%\"",
        ];
        for json in no {
            // A number beyond every range is no JSON to serde.
            let code = read_body::<WireKey>(json.as_bytes()).unwrap_err().code;
            assert_eq!(code, if json == "1e999" { Code::BadBody } else { Code::BadKey }, "{json}");
        }
    }
}
