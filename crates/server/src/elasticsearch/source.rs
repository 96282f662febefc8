//! The source of a document: its top-level fields, each as it was written. Knows nothing of where it is kept.

use super::answer::{Object, Refusal};
use lockwood_model::{Fields, Json, JsonError};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};
use std::{borrow::Cow, collections::HashSet, fmt};

/// Fields in the order they were written; no name comes twice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Source(pub(super) Vec<(Box<str>, Json)>);

impl Source {
    /// Reads an object, nested at most so deep.
    pub(super) fn read(text: &str, depth_max: u64) -> Result<Source, Refusal> {
        let Members(members) = serde_json::from_str(text).map_err(|error| {
            Refusal::new(hyper::StatusCode::BAD_REQUEST, "mapper_parsing_exception", "failed to parse").with(
                "caused_by",
                Object::new().text("type", "parse_exception").text("reason", &error.to_string()).done(),
            )
        })?;
        let keep = |(name, raw): (String, Box<RawValue>)| {
            let value = Json::compact(raw.get(), depth_max as usize).map_err(|error| match error {
                JsonError::TooDeep(_) => {
                    Refusal::over("json_depth_max", depth_max, "a value is nested too deeply")
                }
                error => Refusal::parse(error.to_string()),
            })?;
            Ok((name.into(), value))
        };
        members.into_iter().map(keep).collect::<Result<_, Refusal>>().map(Source)
    }

    /// What was kept before.
    pub(super) fn of_note(note: Option<&Json>) -> Source {
        let Members(members) =
            note.and_then(|note| serde_json::from_str(note.as_str()).ok()).unwrap_or(Members(Vec::new()));
        Source(members.into_iter().map(|(name, raw)| (name.into(), Json::trusted(raw.get()))).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&Json> {
        self.0.iter().find(|(found, _)| **found == *name).map(|(_, value)| value)
    }

    pub(super) fn to_text(&self) -> String {
        object(self.0.iter().map(|(name, value)| (&**name, value.as_str())))
    }

    /// For calculating with.
    pub(super) fn to_values(&self) -> Map<String, Value> {
        let value = |text: &Json| serde_json::from_str(text.as_str()).unwrap_or(Value::Null);
        self.0.iter().map(|(name, text)| (name.to_string(), value(text))).collect()
    }

    /// With these values. What stays the same stays as it was written.
    pub(super) fn become_values(&self, mut values: Map<String, Value>) -> Source {
        let before = self.to_values();
        let mut fields = Vec::with_capacity(values.len());
        for (name, text) in &self.0 {
            match values.remove(&**name) {
                Some(value) if before.get(&**name) == Some(&value) => {
                    fields.push((name.clone(), text.clone()));
                }
                Some(value) => fields.push((name.clone(), Json::from(value))),
                None => {}
            }
        }
        fields.extend(values.into_iter().map(|(name, value)| (name.into(), Json::from(value))));
        Source(fields)
    }
}

/// An object of these fields.
pub(super) fn object<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    fields.fold(Object::new(), |object, (name, value)| object.raw(name, value)).done()
}

impl Fields for Source {
    fn value(&self, field: &str) -> Option<Cow<'_, str>> {
        self.get(field).map(|value| Cow::Borrowed(value.as_str()))
    }
}

/// The members of an object in their order; no name comes twice.
pub(super) struct Members(pub(super) Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                let mut names: HashSet<String> = HashSet::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format_args!("Duplicate field '{name}'")));
                    }
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stay_as_they_were_written() {
        let source =
            Source::read(r#" {"b": 1.0, "a" : [ 1, 2e3 ], "big": 123456789012345678901234567890} "#, 9)
                .unwrap();
        assert_eq!(source.to_text(), r#"{"b":1.0,"a":[1,2e3],"big":123456789012345678901234567890}"#);
        let mut values = source.to_values();
        values.insert("c".to_owned(), Value::from(1));
        values.insert("b".to_owned(), Value::from("x"));
        values.remove("a");
        let after = source.become_values(values);
        assert_eq!(after.to_text(), r#"{"b":"x","big":123456789012345678901234567890,"c":1}"#);
        assert_eq!(Source::of_note(Some(&Json::trusted(&after.to_text()))), after);
    }

    #[test]
    fn what_is_no_source() {
        for text in
            ["", "[]", "1", "null", r#"{"a":1,"a":2}"#, r#"{"a":1} x"#, r#"{"a"}"#, r#"{"a":"\ud800"}"#]
        {
            let refusal = Source::read(text, 9).expect_err(text);
            assert_eq!(refusal.status, hyper::StatusCode::BAD_REQUEST, "{text}");
        }
        assert!(Source::read(r#"{"a":[[1]]}"#, 2).is_ok());
        assert!(Source::read(r#"{"a":[[[1]]]}"#, 2).unwrap_err().reason.contains("json_depth_max"));
    }
}
