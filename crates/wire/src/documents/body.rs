//! Reads a body, and says with a code what is wrong with it. Knows nothing of what bodies there are.

use crate::Code;
use serde::{
    Deserialize,
    de::{DeserializeOwned, Error},
};
use std::fmt;

/// A body, or a part of one, that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyError {
    /// Which kind of mistake.
    pub code: Code,
    /// What to write instead.
    pub message: String,
}

impl BodyError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> BodyError {
        BodyError { code, message: message.into() }
    }

    /// As an error of a deserialiser. That can carry text only, so the code goes in front of it, and
    /// [`read_body`] takes it off again.
    pub(crate) fn into_serde<E: Error>(self) -> E {
        E::custom(self)
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for BodyError {}

/// The body that the bytes are.
pub fn read_body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BodyError> {
    // serde would take the members of an object from an array in their order.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        let known = known_members::<T>();
        if !known.is_empty() {
            let shape = Shape { expected: "an object".to_owned(), found: Some("an array".to_owned()) };
            return Err(BodyError::new(
                Code::BadBody,
                format!("invalid JSON body: {}", shape.at("", &known)),
            ));
        }
    }
    serde_json::from_slice(bytes).map_err(|error| match mistake(&error) {
        Mistake::Told(error) => error,
        Mistake::Shape(shape) => {
            let place = place_of::<T>(bytes);
            let known = if place.is_empty() { known_members::<T>() } else { String::new() };
            BodyError::new(Code::BadBody, format!("invalid JSON body: {}", shape.at(&place, &known)))
        }
    })
}

/// The error behind one of serde's.
pub(crate) fn explain(error: &serde_json::Error) -> BodyError {
    match mistake(error) {
        Mistake::Told(error) => error,
        Mistake::Shape(shape) => {
            BodyError::new(Code::BadBody, format!("invalid JSON body: {}", shape.at("", "")))
        }
    }
}

/// What is wrong with some JSON that is no body, in the words that are used for bodies.
pub(crate) fn in_words<'de, T: Deserialize<'de>>(bytes: &'de [u8], error: &serde_json::Error) -> String {
    match mistake(error) {
        Mistake::Shape(shape) => shape.at(&place_of::<T>(bytes), ""),
        Mistake::Told(_) => error.to_string(),
    }
}

/// The same for a part of a body, whose codes are not told.
pub(crate) fn explain_part<'de, T: Deserialize<'de>>(bytes: &'de [u8], error: &serde_json::Error) -> String {
    match mistake(error) {
        Mistake::Shape(shape) => shape.at(&place_of::<T>(bytes), ""),
        Mistake::Told(error) => error.message,
    }
}

/// What is wrong with a body.
enum Mistake {
    /// Everything is said.
    Told(BodyError),
    /// A part of it is not of the shape that is expected there.
    Shape(Shape),
}

struct Shape {
    expected: String,
    found: Option<String>,
}

fn mistake(error: &serde_json::Error) -> Mistake {
    let text = error.to_string();
    if let Some(error) = coded(&text) {
        return Mistake::Told(error);
    }
    if let Some(rest) = text.strip_prefix("unknown field ") {
        let sentence = rest.replacen(", expected", " is no member of this; known is", 1);
        let sentence = sentence.replacen("known is one of", "known are", 1);
        return Mistake::Told(BodyError::new(Code::UnknownMember, sentence));
    }
    match shape(&text) {
        Some(shape) => Mistake::Shape(shape),
        None => Mistake::Told(BodyError::new(Code::BadBody, format!("invalid JSON body: {text}"))),
    }
}

/// Reads serde's words about a value of the wrong type or length, which are for those who know the types.
fn shape(text: &str) -> Option<Shape> {
    let text = text.rsplit_once(" at line ").map_or(text, |(text, _)| text);
    let (kind, rest) = text.split_once(": ").or_else(|| text.split_once(" length "))?;
    let (found, expected) = rest.rsplit_once(", expected ")?;
    let found = match kind {
        "invalid type" | "invalid value" => Some(found_in_words(found)),
        "invalid" => None,
        _ => return None,
    };
    Some(Shape { expected: expected_in_words(expected), found })
}

fn found_in_words(found: &str) -> String {
    match found {
        "sequence" => "an array".to_owned(),
        "map" => "an object".to_owned(),
        other => {
            let kinds = ["integer ", "floating point ", "boolean ", "string "];
            let value = kinds.iter().find_map(|kind| other.strip_prefix(kind)).unwrap_or(other);
            value.trim_matches('`').to_owned()
        }
    }
}

fn expected_in_words(expected: &str) -> String {
    match expected {
        "u64" | "u32" | "u16" | "usize" => "a whole number from 0".to_owned(),
        "i64" | "i32" | "isize" => "a whole number".to_owned(),
        "f64" => "a number".to_owned(),
        "a sequence" => "an array".to_owned(),
        "a map" => "an object".to_owned(),
        name if name.starts_with("struct ") => "an object".to_owned(),
        other => other.to_owned(),
    }
}

impl Shape {
    fn at(&self, place: &str, members: &str) -> String {
        let what = if place.is_empty() { "it".to_owned() } else { format!("`{place}`") };
        let found = self.found.as_ref().map(|found| format!(", not {found}")).unwrap_or_default();
        format!("{what} must be {}{members}{found}", self.expected)
    }
}

/// The member in which reading the body fails; empty for the body itself. Read a second time for that: only what
/// is wrong pays for it.
fn place_of<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> String {
    let read = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_slice(bytes));
    let place = read.err().map(|error| error.path().to_string()).unwrap_or_default();
    if place == "." { String::new() } else { place }
}

/// The members of a body, as it tells them itself to those who misspell one.
fn known_members<T: DeserializeOwned>() -> String {
    let misspelt = serde_json::from_str::<T>("{\"?\":0}").err().map(|error| error.to_string());
    let text = misspelt.filter(|text| text.starts_with("unknown field "));
    let text = text.and_then(|text| text.split_once(", expected ").map(|(_, names)| names.to_owned()));
    let Some(names) = text else { return String::new() };
    let names = names.rsplit_once(" at line ").map_or(&*names, |(names, _)| names);
    format!(" with the members {}", names.trim_start_matches("one of ").replace("` or `", "` and `"))
}

/// The error that [`BodyError::into_serde`] made text of.
fn coded(text: &str) -> Option<BodyError> {
    let (name, message) = text.split_once(": ")?;
    let code = Code::ALL.iter().find(|code| code.as_str() == name)?;
    Some(BodyError::new(*code, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        LeaseRequest,
        documents::{FilterRequest, ReserveRequest, WriteCall},
    };

    #[track_caller]
    fn check<T: DeserializeOwned + fmt::Debug>(body: &str, code: Code, part: &str) {
        let error = read_body::<T>(body.as_bytes()).unwrap_err();
        assert_eq!(error.code, code, "{body}: {error}");
        assert!(error.message.contains(part), "{body}: {error}");
    }

    #[test]
    fn mistakes_have_codes() {
        check::<ReserveRequest>("", Code::BadBody, "EOF");
        check::<ReserveRequest>(
            "[]",
            Code::BadBody,
            "invalid JSON body: it must be an object with the members `collection` and `amount`",
        );
        check::<ReserveRequest>(
            "5",
            Code::BadBody,
            "it must be an object with the members `collection` and `amount`, not 5",
        );
        check::<ReserveRequest>(
            r#"{"collection":7,"amount":1}"#,
            Code::BadBody,
            "invalid JSON body: `collection` must be a string, not 7",
        );
        check::<ReserveRequest>(
            r#"{"collection":"a","amount":"x"}"#,
            Code::BadBody,
            "`amount` must be a whole number from 0, not \"x\"",
        );
        check::<LeaseRequest>(
            "[]",
            Code::BadBody,
            "it must be an object with the members `owner`, `resources`",
        );
        check::<LeaseRequest>(
            r#"{"owner":"a","ttl_ms":1,"resources":[{"path":"a","mode":"write"},[]]}"#,
            Code::BadBody,
            "`resources[1]` must be an object",
        );
        check::<LeaseRequest>(
            r#"{"owner":"a","ttl_ms":1,"resources":{}}"#,
            Code::BadBody,
            "`resources` must be an array, not an object",
        );
        check::<ReserveRequest>(r#"{"collection":"a"}"#, Code::BadBody, "missing field `amount`");
        check::<ReserveRequest>(
            r#"{"collection":"a","amount":1,"x":2}"#,
            Code::UnknownMember,
            "`x` is no member of this; known is `collection` or `amount`",
        );
        check::<FilterRequest>(r#"{"collection":"a","x":2}"#, Code::UnknownMember, "known are `collection`");
        check::<WriteCall>(
            r#"{"events":[{"type":"delete","collection":"a","key":true}]}"#,
            Code::BadKey,
            "whole number",
        );
    }
}
