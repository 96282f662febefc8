//! Resources, paths and waits as they are written in JSON. Knows nothing of messages.

use crate::Code;
use lockwood_model::{Depth, Mode, PATH_SEGMENTS_CAP, Path, Resource, Wait};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, IgnoredAny, SeqAccess, Visitor},
    ser::SerializeSeq,
};
use std::{borrow::Cow, fmt};

/// A path: written as an array of segments, read as that or as text (`"user/42/name"`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WirePath(pub Path);

impl Serialize for WirePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(Some(self.0.len()))?;
        for segment in self.0.segments() {
            sequence.serialize_element(segment)?;
        }
        sequence.end()
    }
}

impl<'de> Deserialize<'de> for WirePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WirePath, D::Error> {
        deserializer.deserialize_any(PathVisitor).map(WirePath)
    }
}

struct PathVisitor;

impl<'de> Visitor<'de> for PathVisitor {
    type Value = Path;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path such as [\"user\", \"42\"] or \"user/42\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Path, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Path, A::Error> {
        let mut path = Path::root();
        while path.len() < PATH_SEGMENTS_CAP {
            match sequence.next_element::<Segment<'de>>()? {
                Some(Segment(segment)) => path.push(&segment),
                None => return Ok(path),
            }
        }
        match sequence.next_element::<IgnoredAny>()? {
            None => Ok(path),
            Some(_) => Err(A::Error::custom(lockwood_model::PathError::TooLong)),
        }
    }
}

/// Borrows from the message wherever it holds no escapes; plain `Cow` would always copy.
#[derive(Deserialize)]
struct Segment<'a>(#[serde(borrow)] Cow<'a, str>);

impl utoipa::PartialSchema for WirePath {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::{Array, Object, OneOfBuilder, Type};
        OneOfBuilder::new()
            .item(Array::new(Object::with_type(Type::String)))
            .item(Object::with_type(Type::String))
            .description(Some("The segments from the namespace down; in requests also text such as user/42."))
            .into()
    }
}

impl utoipa::ToSchema for WirePath {}

/// A resource as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WireResource {
    /// The topmost node; the empty path is the whole namespace.
    pub path: WirePath,
    /// read, update, write, list or link.
    #[serde(deserialize_with = "read_mode")]
    pub mode: Cow<'static, str>,
    /// How many levels; absent means the whole subtree, 1 the node alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u64>,
}

/// The name of a mode, without a copy if there is such a mode.
fn read_mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'static, str>, D::Error> {
    let Segment(text) = Segment::deserialize(deserializer)?;
    Ok(text
        .parse::<Mode>()
        .map_or_else(|_| Cow::Owned(text.into_owned()), |mode| Cow::Borrowed(mode.as_str())))
}

/// A resource that cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceError {
    /// Which kind of mistake.
    pub code: Code,
    /// What to write instead.
    pub message: String,
}

impl WireResource {
    /// The resource meant.
    pub fn into_model(self) -> Result<Resource, ResourceError> {
        let mode: Mode = self.mode.parse().map_err(|error: lockwood_model::ModeError| ResourceError {
            code: Code::BadMode,
            message: error.to_string(),
        })?;
        let depth = match self.depth {
            None => Depth::SUBTREE,
            Some(levels) => Depth::levels(levels).ok_or_else(|| ResourceError {
                code: Code::BadDepth,
                message: "depth counts levels from 1 (the node alone); leave it out for the whole subtree"
                    .into(),
            })?,
        };
        Ok(Resource::new(self.path.0, mode, depth))
    }
}

impl From<&Resource> for WireResource {
    fn from(resource: &Resource) -> WireResource {
        let depth = if resource.mode.on_child_list() { None } else { resource.depth.limit().map(u64::from) };
        WireResource {
            path: WirePath(resource.path.clone()),
            mode: Cow::Borrowed(resource.mode.as_str()),
            depth,
        }
    }
}

/// How long to wait: milliseconds (0: not at all), or `"forever"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireWait(pub Wait);

impl Serialize for WireWait {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Wait::Never => serializer.serialize_u64(0),
            Wait::Millis(millis) => serializer.serialize_u64(millis),
            Wait::Forever => serializer.serialize_str("forever"),
        }
    }
}

impl<'de> Deserialize<'de> for WireWait {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WireWait, D::Error> {
        deserializer.deserialize_any(WaitVisitor)
    }
}

struct WaitVisitor;

impl Visitor<'_> for WaitVisitor {
    type Value = WireWait;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a wait: milliseconds (0 for not at all) or \"forever\"")
    }

    fn visit_u64<E: Error>(self, millis: u64) -> Result<WireWait, E> {
        Ok(WireWait(if millis == 0 { Wait::Never } else { Wait::Millis(millis) }))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<WireWait, E> {
        match text {
            "forever" => Ok(WireWait(Wait::Forever)),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
        }
    }
}
