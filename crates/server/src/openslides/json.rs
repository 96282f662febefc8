//! The shapes that request bodies are made of, as strict as the original's schemas. Knows nothing of routes.

use super::answer::Refusal;
use lockwood_model::{Json, JsonError};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt, marker::PhantomData};

/// Reads a whole body.
pub(super) fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    let text = std::str::from_utf8(body)
        .map_err(|error| Refusal::Request(format!("the body is not UTF-8: {error}")))?;
    serde_json::from_str(text).map_err(|error| Refusal::Request(error.to_string()))
}

/// Reads a value inside a body.
pub(super) fn read_part<'a, T: Deserialize<'a>>(what: &str, raw: &'a RawValue) -> Result<T, Refusal> {
    serde_json::from_str(raw.get()).map_err(|error| Refusal::Request(format!("{what}: {error}")))
}

/// A value to be kept, as it was written.
pub(super) fn keep(raw: &RawValue, depth_max: u64) -> Result<Json, Refusal> {
    Json::compact(raw.get(), depth_max as usize).map_err(|error| match error {
        JsonError::TooDeep(_) => Refusal::over("json_depth_max", depth_max, "a value is nested too deeply"),
        error => Refusal::Request(error.to_string()),
    })
}

/// For members that may be left out but not be null.
pub(super) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A whole number; 1.0 is one, true is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Whole(pub(super) i128);

impl Whole {
    pub(super) fn from_float<E: Error>(float: f64) -> Result<Whole, E> {
        const EDGE: f64 = 1e38;
        if float.fract() == 0.0 && float.abs() < EDGE {
            return Ok(Whole(float as i128));
        }
        Err(E::invalid_type(Unexpected::Float(float), &"a whole number"))
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Whole, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Whole, E> {
                Ok(Whole(number.into()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number.into()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Whole, E> {
                Whole::from_float(number)
            }
        }
        deserializer.deserialize_any(Read)
    }
}

/// Text, borrowed where it has no escapes.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Something that is written as an object; without this a list of its members would do as well.
#[derive(Debug)]
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        struct Read<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Read<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Read(PhantomData))
    }
}

/// An object with members of any name, sorted by name; no name comes twice.
#[derive(Debug)]
pub(super) struct Members<'a, T>(pub(super) Vec<(Cow<'a, str>, T)>);

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for Members<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'a, T>, D::Error> {
        struct Read<'a, T>(PhantomData<(&'a (), T)>);
        impl<'de: 'a, 'a, T: Deserialize<'de>> Visitor<'de> for Read<'a, T> {
            type Value = Members<'a, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'a, T>, A::Error> {
                let mut members: Vec<(Cow<'a, str>, T)> = Vec::new();
                while let Some((Text(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                members.sort_by(|(a, _), (b, _)| a.cmp(b));
                match members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                    Some(pair) => {
                        Err(A::Error::custom(format_args!("the member {:?} is given twice", pair[0].0)))
                    }
                    None => Ok(Members(members)),
                }
            }
        }
        deserializer.deserialize_map(Read(PhantomData))
    }
}
