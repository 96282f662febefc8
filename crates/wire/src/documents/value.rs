//! JSON values that stay as they were written, and objects that stay in their order. Knows nothing of what the
//! values mean.

use crate::{Code, documents::BodyError};
use lockwood_model::{FieldValue, Json, JsonError};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;
use std::{collections::HashSet, fmt, marker::PhantomData};

/// Any JSON value, kept as text, so that numbers lose nothing. Two are equal if they are written alike.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WireValue(Box<RawValue>);

impl WireValue {
    /// The value `text` is, if it is one.
    pub fn from_text(text: String) -> Result<WireValue, BodyError> {
        RawValue::from_string(text).map(WireValue).map_err(|error| super::body::explain(&error))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        self.as_str() == "null"
    }

    /// The value as the model keeps it, if it is nested at most `depth_max` levels deep.
    pub fn read(&self, depth_max: usize) -> Result<Json, BodyError> {
        read_json(self.as_str(), depth_max)
    }
}

/// Text that is known to be JSON.
pub(crate) fn read_json(text: &str, depth_max: usize) -> Result<Json, BodyError> {
    Json::compact(text, depth_max).map_err(|error| {
        let code = match error {
            JsonError::TooDeep(_) => Code::JsonTooDeep,
            JsonError::NotJson(_) | JsonError::LoneSurrogate(_) => Code::BadBody,
        };
        BodyError::new(code, error.to_string())
    })
}

impl From<&Json> for WireValue {
    fn from(json: &Json) -> WireValue {
        WireValue(RawValue::from_string(json.as_str().to_owned()).expect("the model keeps valid JSON"))
    }
}

impl From<&serde_json::Value> for WireValue {
    fn from(value: &serde_json::Value) -> WireValue {
        WireValue(serde_json::value::to_raw_value(value).expect("a value can be written"))
    }
}

impl PartialEq for WireValue {
    fn eq(&self, other: &WireValue) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for WireValue {}

impl fmt::Debug for WireValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl utoipa::PartialSchema for WireValue {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::SchemaType::AnyValue)
            .description(Some("Any JSON value."))
            .into()
    }
}

impl utoipa::ToSchema for WireValue {}

/// A JSON object in the order it was written in. A name that comes twice is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named<T>(pub Vec<(Box<str>, T)>);

/// The fields of a document with their values.
pub type Fields = Named<WireValue>;

impl<T> Named<T> {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is under a name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(own, _)| **own == *name).map(|(_, value)| value)
    }
}

impl<T> Default for Named<T> {
    fn default() -> Named<T> {
        Named(Vec::new())
    }
}

impl Fields {
    /// The fields as the model keeps them, each nested at most `depth_max` levels deep.
    pub fn read(&self, depth_max: usize) -> Result<Vec<FieldValue>, BodyError> {
        self.0.iter().map(|(name, value)| Ok((name.clone(), value.read(depth_max)?))).collect()
    }
}

impl<'a> FromIterator<(&'a str, &'a Json)> for Fields {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a Json)>>(fields: I) -> Fields {
        Named(fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl From<&[FieldValue]> for Fields {
    fn from(fields: &[FieldValue]) -> Fields {
        fields.iter().map(|(name, value)| (&**name, value)).collect()
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(&**name, value)?;
        }
        map.end()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Named<T>, D::Error> {
        let named = deserializer.deserialize_map(NamedVisitor(PhantomData))?;
        match twice(&named.0) {
            None => Ok(named),
            Some(name) => {
                Err(BodyError::new(Code::BadBody, format!("the member {name:?} is there twice")).into_serde())
            }
        }
    }
}

fn twice<T>(members: &[(Box<str>, T)]) -> Option<&str> {
    let mut seen = HashSet::with_capacity(members.len());
    members.iter().map(|(name, _)| &**name).find(|name| !seen.insert(*name))
}

struct NamedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for NamedVisitor<T> {
    type Value = Named<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Named(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stay_as_they_were_written() {
        let text = r#"{"z":1.50,"a":123456789012345678901234567890,"n":null,"l":[ 1,2 ]}"#;
        let fields: Fields = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&fields).unwrap(), text);
        assert_eq!(fields.get("z").unwrap().as_str(), "1.50");
        assert!(fields.get("n").unwrap().is_null());
        assert_eq!(fields.read(1).unwrap()[3].1.as_str(), "[1,2]");
    }

    #[test]
    fn what_cannot_be_kept_has_a_code() {
        let read = |text: &str| super::super::read_body::<Fields>(text.as_bytes())?.read(2);
        let code = |text: &str| read(text).unwrap_err().code;
        assert_eq!(code(r#"{"a":1,"b":2,"a":1}"#), Code::BadBody);
        assert_eq!(code(r#"{"a":[[[]]]}"#), Code::JsonTooDeep);
        assert_eq!(code(r#"{"a":"\ud800"}"#), Code::BadBody);
        assert_eq!(code(r#"[]"#), Code::BadBody);
    }
}
