//! The bodies of requests. Knows nothing of routes or of what is registered.

use super::answer::Refusal;
use hyper::StatusCode;
use lockwood_node::schemas::{Mode, SubjectSettings, read_policy};
use lockwood_schema::Level;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value};

/// A schema as clients send it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) text: String,
    /// The number the version is to have, if the client says.
    pub(super) version: Option<u32>,
}

/// Members that are not known are overlooked, as the original does.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    schema: Option<Value>,
    schema_type: Option<String>,
    references: Option<Vec<Value>>,
    metadata: Option<Value>,
    rule_set: Option<Value>,
    id: Option<i64>,
    version: Option<i64>,
}

/// The schema in a body, if it is one of the kind that is kept here.
pub(super) fn read_schema(body: &[u8]) -> Result<Given, Refusal> {
    let raw: Raw = read(body)?;
    match raw.schema_type.as_deref() {
        Some("JSON") => {}
        None => {
            let message = "schemaType is missing, which means AVRO; only JSON is kept here: say \"schemaType\": \"JSON\"";
            return Err(Refusal::bad_schema(message));
        }
        Some(other) => {
            return Err(Refusal::bad_schema(format!("schemaType is {other:?}; only JSON is kept here")));
        }
    }
    if raw.references.is_some_and(|references| !references.is_empty()) {
        let message =
            "references to other schemas are not supported; put what is meant into $defs and refer to that";
        return Err(Refusal::bad_schema(message));
    }
    if raw.metadata.is_some() || raw.rule_set.is_some() {
        return Err(Refusal::bad_schema(
            "metadata and ruleSet are not kept here; send the schema without them",
        ));
    }
    if raw.id.is_some_and(|id| id > 0) {
        return Err(Refusal::not_permitted("ids are given out by the server; send the schema without one"));
    }
    let version = raw.version.filter(|version| *version > 0);
    let version =
        version.map(|version| u32::try_from(version).map_err(|_| Refusal::bad_version(&version.to_string())));
    match raw.schema {
        Some(Value::String(text)) => Ok(Given { text, version: version.transpose()? }),
        None | Some(Value::Null) => Err(Refusal::bad_schema("Empty schema: the body needs a schema")),
        Some(_) => Err(Refusal::bad_schema("the schema must be sent as text, inside a JSON string")),
    }
}

/// The members of a config that are heeded; null takes back what can be taken back.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawConfig {
    compatibility: Option<String>,
    compatibility_level: Option<String>,
    compatibility_policy: Option<String>,
    #[serde(default, deserialize_with = "given")]
    normalize: Option<Option<bool>>,
    #[serde(default, deserialize_with = "given")]
    alias: Option<Option<String>>,
}

const CONFIG_MEMBERS: [&str; 5] =
    ["compatibility", "compatibilityLevel", "compatibilityPolicy", "normalize", "alias"];

/// Tells null from what is not there.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// What a body says about a subject, or about all. A member that is not supported is refused, unless it says nothing.
pub(super) fn read_config(body: &[u8]) -> Result<SubjectSettings, Refusal> {
    let members: Map<String, Value> = read(body)?;
    let is_unsupported =
        |(name, value): &(&String, &Value)| !CONFIG_MEMBERS.contains(&name.as_str()) && !value.is_null();
    if let Some((name, _)) = members.iter().find(is_unsupported) {
        return Err(Refusal::unsupported_member(name));
    }
    let raw: RawConfig =
        serde_json::from_value(Value::Object(members)).map_err(|error| unreadable(&error))?;
    let level = raw.compatibility.or(raw.compatibility_level);
    let says_more = raw.normalize.is_some() || raw.alias.is_some() || raw.compatibility_policy.is_some();
    if level.is_none() && !says_more {
        return Err(Refusal::bad_level(
            "the body needs a compatibility: {\"compatibility\": \"FULL\"}".to_owned(),
        ));
    }
    let level = level.map(|text| text.parse::<Level>()).transpose();
    let level = level.map_err(|error| Refusal::bad_level(error.to_string()))?;
    let policy = raw.compatibility_policy.map(|text| {
        let message = format!("{text:?} is no compatibilityPolicy; there are STRICT and LENIENT");
        read_policy(&text).ok_or_else(|| Refusal::bad_level(message))
    });
    Ok(SubjectSettings {
        level: level.map(Some),
        policy: policy.transpose()?.map(Some),
        normalize: raw.normalize,
        // The original takes an empty alias for none.
        alias: raw.alias.map(|alias| alias.filter(|alias| !alias.is_empty()).map(Into::into)),
        ..SubjectSettings::default()
    })
}

#[derive(Deserialize)]
struct RawMode {
    mode: Option<String>,
}

/// The mode a body wants.
pub(super) fn read_mode(body: &[u8]) -> Result<Mode, Refusal> {
    let text = read::<RawMode>(body)?.mode.unwrap_or_default();
    Mode::named(&text).ok_or_else(|| Refusal::bad_mode(&text))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| unreadable(&error))
}

fn unreadable(error: &serde_json::Error) -> Refusal {
    Refusal::plain(StatusCode::BAD_REQUEST, &format!("the body is not what this request takes: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(body: &str, code: u32, part: &str) {
        let refusal = read_schema(body.as_bytes()).unwrap_err();
        assert_eq!(refusal.code, code, "{body}: {refusal:?}");
        assert!(refusal.message.contains(part), "{body}: {refusal:?}");
    }

    #[test]
    fn bodies_say_what_is_wrong_with_them() {
        let given = read_schema(br#"{"schema":"{}","schemaType":"JSON","references":[],"id":-1,"other":1}"#);
        assert_eq!(given, Ok(Given { text: "{}".into(), version: None }));
        refused("{", 400, "EOF");
        refused("[]", 400, "body");
        refused(r#"{"schema":"{}"}"#, 42201, "means AVRO");
        refused(r#"{"schema":"{}","schemaType":"PROTOBUF"}"#, 42201, "only JSON");
        refused(r#"{"schemaType":"JSON"}"#, 42201, "Empty schema");
        refused(r#"{"schema":{},"schemaType":"JSON"}"#, 42201, "as text");
        refused(r#"{"schema":"{}","schemaType":"JSON","references":[{"name":"a"}]}"#, 42201, "$defs");
        refused(r#"{"schema":"{}","schemaType":"JSON","metadata":{}}"#, 42201, "metadata");
        refused(r#"{"schema":"{}","schemaType":"JSON","id":7}"#, 42205, "ids");
        refused(r#"{"schema":"{}","schemaType":"JSON","version":9999999999}"#, 42202, "9999999999");
        assert_eq!(read_config(br#"{"compatibility":"BOTH"}"#).unwrap_err().code, 42203);
        assert_eq!(read_config(br#"{"compatibilityPolicy":"LAX"}"#).unwrap_err().code, 42203);
        assert_eq!(read_config(b"{}").unwrap_err().code, 42203);
        assert_eq!(read_config(br#"{"normalize":"yes"}"#).unwrap_err().code, 400);
        assert_eq!(read_config(b"[]").unwrap_err().code, 400);
        for name in ["validateFields", "compatibilityGroup", "defaultMetadata", "overrideRuleSet", "nonsense"]
        {
            let body = |value: &str| format!(r#"{{"compatibility":"FULL","{name}":{value}}}"#);
            let refusal = read_config(body("{}").as_bytes()).unwrap_err();
            assert!(refusal.code == 42205 && refusal.message.contains(name), "{refusal:?}");
            assert!(read_config(body("null").as_bytes()).is_ok(), "{name}");
        }
        let config = read_config(br#"{"normalize":true,"alias":""}"#).unwrap();
        assert_eq!((config.level, config.normalize, config.alias), (None, Some(Some(true)), Some(None)));
        assert_eq!(read_config(br#"{"normalize":null}"#).unwrap().normalize, Some(None));
        assert_eq!(read_mode(br#"{"mode":"IMPORT"}"#).unwrap_err().code, 42204);
        assert_eq!(read_mode(br#"{"mode":"READONLY"}"#), Ok(Mode::ReadOnly));
    }
}
