//! The messages of the Locktopus protocol, read as tolerantly as the original reads them. Knows nothing of
//! connections.
//!
//! The original is lenient: names of fields in any letter case, unknown fields, repeated ones (the last
//! counts), `null` for an empty path or segment, anything at all after the first JSON value.

use lockwood_model::{Depth, Mode, PATH_SEGMENTS_CAP, Path, Resource};
use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use std::{borrow::Cow, fmt};

/// A message as it was written; whether it makes sense is another question.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) action: String,
    resources: Vec<Written>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Written {
    kind: String,
    path: Path,
    /// How many segments were written; the path has no more than any server takes.
    segments_len: usize,
}

/// Why the resources of a message cannot be locked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BadResource {
    /// In words.
    Type(String),
    /// A path with so many segments that none can have.
    TooDeep(usize),
}

impl Message {
    /// Reads a message; the error is the reason in words.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Message, String> {
        let read = |bytes: &[u8]| Message::deserialize(&mut serde_json::Deserializer::from_slice(bytes));
        let first = read(bytes);
        // What is not text is rare enough to be looked for only when something is wrong.
        let read = first.or_else(|_| read(&replace_non_text(bytes)));
        read.map_err(|error| format!("cannot read the message: {error}"))
    }

    /// The resources of a `lock`.
    pub(crate) fn into_resources(self) -> Result<Vec<Resource>, BadResource> {
        self.resources.into_iter().map(Written::into_resource).collect()
    }
}

/// The same message with U+FFFD for everything that is not text: bytes that are not UTF-8, and escapes of
/// half a character (`\ud800` without the other half).
fn replace_non_text(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let mut bytes = text.into_owned().into_bytes();
    let mut at = 0;
    while at + 1 < bytes.len() {
        match (bytes[at], escaped(&bytes, at)) {
            (_, Some(0xD800..=0xDBFF)) if matches!(escaped(&bytes, at + 6), Some(0xDC00..=0xDFFF)) => {
                at += 12;
            }
            (_, Some(0xD800..=0xDFFF)) => {
                bytes[at + 2..at + 6].copy_from_slice(b"fffd");
                at += 6;
            }
            (b'\\', _) => at += 2,
            _ => at += 1,
        }
    }
    bytes
}

/// The number written as `\uXXXX` at `at`, if there is one.
fn escaped(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

impl Written {
    fn into_resource(self) -> Result<Resource, BadResource> {
        if self.segments_len > PATH_SEGMENTS_CAP {
            return Err(BadResource::TooDeep(self.segments_len));
        }
        let mode = match self.kind.to_ascii_lowercase().as_str() {
            "r" | "read" => Mode::Read,
            "w" | "write" => Mode::Write,
            _ => {
                return Err(BadResource::Type(format!(
                    "cannot build resource lock: invalid lock type: {}; use read or write",
                    self.kind.escape_debug()
                )));
            }
        };
        Ok(Resource::new(self.path, mode, Depth::SUBTREE))
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Message, D::Error> {
        deserializer.deserialize_any(MessageVisitor)
    }
}

struct MessageVisitor;

impl<'de> Visitor<'de> for MessageVisitor {
    type Value = Message;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with action and resources")
    }

    fn visit_unit<E: Error>(self) -> Result<Message, E> {
        Ok(Message::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Message, A::Error> {
        let mut message = Message::default();
        while let Some(Text(name)) = map.next_key()? {
            if name.eq_ignore_ascii_case("action") {
                if let Some(Text(action)) = map.next_value()? {
                    message.action = action.into_owned();
                }
            } else if name.eq_ignore_ascii_case("resources") {
                message.resources = map.next_value::<Option<Vec<Written>>>()?.unwrap_or_default();
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(message)
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Written, D::Error> {
        deserializer.deserialize_any(WrittenVisitor)
    }
}

struct WrittenVisitor;

impl<'de> Visitor<'de> for WrittenVisitor {
    type Value = Written;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a resource with type and path")
    }

    fn visit_unit<E: Error>(self) -> Result<Written, E> {
        Ok(Written::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Written, A::Error> {
        let mut written = Written::default();
        while let Some(Text(name)) = map.next_key()? {
            if name.eq_ignore_ascii_case("type") {
                if let Some(Text(kind)) = map.next_value()? {
                    written.kind = kind.into_owned();
                }
            } else if name.eq_ignore_ascii_case("path") {
                let segments = map.next_value::<Option<Segments>>()?.unwrap_or_default();
                (written.path, written.segments_len) = (segments.path, segments.len);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(written)
    }
}

/// Borrows from the message wherever it holds no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Default)]
struct Segments {
    path: Path,
    len: usize,
}

impl<'de> Deserialize<'de> for Segments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Segments, D::Error> {
        deserializer.deserialize_seq(SegmentsVisitor)
    }
}

struct SegmentsVisitor;

impl<'de> Visitor<'de> for SegmentsVisitor {
    type Value = Segments;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Segments, A::Error> {
        let mut segments = Segments::default();
        while let Some(segment) = sequence.next_element::<Option<Text<'de>>>()? {
            if segments.len < PATH_SEGMENTS_CAP {
                segments.path.push(segment.as_ref().map_or("", |Text(text)| text));
            }
            segments.len += 1;
        }
        Ok(segments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, action: &str, resources: &[(&str, Mode)]) {
        let message = Message::decode(text.as_bytes()).unwrap();
        assert_eq!(message.action, action, "{text}");
        let expected: Vec<Resource> = resources
            .iter()
            .map(|(path, mode)| Resource::new(path.parse().unwrap(), *mode, Depth::SUBTREE))
            .collect();
        assert_eq!(message.into_resources(), Ok(expected), "{text}");
    }

    #[test]
    fn what_the_clients_send() {
        let lock = r#"{"action":"lock","resources":[{"type":"write","path":["a","b"]},{"type":"read","path":["c"]}]}"#;
        check(lock, "lock", &[("a/b", Mode::Write), ("c", Mode::Read)]);
        check(r#"{"action":"release"}"#, "release", &[]);
    }

    #[test]
    fn what_the_original_puts_up_with() {
        check(
            r#"{"ACTION":"lock","Resources":[{"TYPE":"R","PATH":[null,""]}]}"#,
            "lock",
            &[("%_/%_", Mode::Read)],
        );
        check(r#"{"action":"lock","resources":[{"type":"W"}]}"#, "lock", &[("/", Mode::Write)]);
        check(r#"{"action":"lock","resources":[{"type":"w","path":null}]}"#, "lock", &[("/", Mode::Write)]);
        check(r#"{"action":"lock","resources":null}"#, "lock", &[]);
        check(r#"{"action":"lock"}"#, "lock", &[]);
        check(r#"{"action":"x","action":"lock","more":{"a":[1]}} and then some"#, "lock", &[]);
        check(r#"{"action":"release"}{"action":"lock"}"#, "release", &[]);
        check("null", "", &[]);
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        let message =
            Message::decode(b"{\"action\":\"lock\",\"resources\":[{\"type\":\"r\",\"path\":[\"\xff\"]}]}");
        let resources = message.unwrap().into_resources().unwrap();
        assert_eq!(resources[0].path, Path::from_segments(["\u{fffd}"]));
    }

    #[test]
    fn half_characters_are_replaced() {
        let lock =
            |path: &str| format!(r#"{{"action":"lock","resources":[{{"type":"r","path":[{path}]}}]}}"#);
        check(&lock(r#""\ud800""#), "lock", &[("\u{fffd}", Mode::Read)]);
        check(&lock(r#""a\udc00b""#), "lock", &[("a\u{fffd}b", Mode::Read)]);
        check(&lock(r#""\ud800\ud83e\udd91""#), "lock", &[("\u{fffd}🦑", Mode::Read)]);
        check(&lock(r#""\\ud800""#), "lock", &[("\\ud800", Mode::Read)]);
    }

    #[test]
    fn what_makes_no_sense() {
        for text in ["", "x", "[]", "\"lock\"", "3", r#"{"action":3}"#, r#"{"action":"lock","resources":{}}"#]
        {
            assert!(Message::decode(text.as_bytes()).is_err(), "{text}");
        }
        for text in
            [r#"{"resources":[{"path":[3]}]}"#, r#"{"resources":[{"path":"a"}]}"#, r#"{"resources":[3]}"#]
        {
            assert!(Message::decode(text.as_bytes()).is_err(), "{text}");
        }
        for text in [r#"{"resources":[{}]}"#, r#"{"resources":[{"type":"x"}]}"#, r#"{"resources":[null]}"#] {
            assert!(Message::decode(text.as_bytes()).unwrap().into_resources().is_err(), "{text}");
        }
    }
}
