//! Reads a body, and says with a code what is wrong with it. Knows nothing of what bodies there are.

use crate::Code;
use serde::de::{DeserializeOwned, Error};
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
    serde_json::from_slice(bytes).map_err(|error| explain(&error))
}

/// The error behind one of serde's.
pub(crate) fn explain(error: &serde_json::Error) -> BodyError {
    let text = error.to_string();
    if let Some(error) = coded(&text) {
        return error;
    }
    match text.strip_prefix("unknown field ") {
        Some(rest) => {
            let sentence = rest.replacen(", expected", " is no member of this; known is", 1);
            BodyError::new(Code::UnknownMember, sentence.replacen("known is one of", "known are", 1))
        }
        None => BodyError::new(Code::BadBody, format!("the body is not as it should be: {text}")),
    }
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
    use crate::documents::{FilterRequest, ReserveRequest, WriteCall};

    #[track_caller]
    fn check<T: DeserializeOwned + fmt::Debug>(body: &str, code: Code, part: &str) {
        let error = read_body::<T>(body.as_bytes()).unwrap_err();
        assert_eq!(error.code, code, "{body}: {error}");
        assert!(error.message.contains(part), "{body}: {error}");
    }

    #[test]
    fn mistakes_have_codes() {
        check::<ReserveRequest>("", Code::BadBody, "EOF");
        check::<ReserveRequest>("[]", Code::BadBody, "not as it should be");
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
