//! The bodies of the Schema Registry's routes. Knows nothing of routes or of what schemas mean.

use crate::documents::WireValue;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// A schema that is to be registered, or to be compared with those that are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SchemaRequest {
    /// The JSON Schema itself, or its text as a string.
    pub schema: WireValue,
}

impl SchemaRequest {
    /// The schema as text.
    pub fn text(&self) -> String {
        let text = self.schema.as_str();
        match text.starts_with('"') {
            // A string that cannot be one (half of a surrogate pair) is no schema either.
            true => serde_json::from_str(text).unwrap_or_else(|_| text.to_owned()),
            false => text.to_owned(),
        }
    }
}

/// A schema that is registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchemaRegistered {
    /// Under which name: that of the collection it is for.
    pub subject: String,
    /// Its number there, from 1.
    pub version: u32,
    /// Its number in the namespace: the same for the same schema under every subject.
    pub id: u64,
    /// False if the subject had it already; then nothing was changed.
    pub new: bool,
}

/// The subjects of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubjectList {
    /// By name.
    pub subjects: Vec<SubjectInfo>,
}

/// What is known under one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubjectInfo {
    /// Its name.
    pub subject: String,
    /// The latest version.
    pub version: u32,
    /// The number of that schema in the namespace.
    pub id: u64,
    /// How versions must go with earlier ones.
    pub level: String,
    /// How what schemas do not say is judged.
    pub policy: String,
    /// Whether versions can be registered.
    pub mode: String,
    /// Whether the documents of the collection with this name are held to it.
    pub enforced: bool,
    /// Whether all its versions are deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// The versions of a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionList {
    /// Which subject.
    pub subject: String,
    /// How versions must go with earlier ones.
    pub level: String,
    /// How what schemas do not say is judged.
    pub policy: String,
    /// Whether versions can be registered.
    pub mode: String,
    /// The oldest first.
    pub versions: Vec<VersionInfo>,
}

/// One version of a subject, without its schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionInfo {
    /// Its number.
    pub version: u32,
    /// The number of its schema in the namespace.
    pub id: u64,
    /// Whether it is deleted, though not for good.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// One version of a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchemaInfo {
    /// Which subject.
    pub subject: String,
    /// Which version.
    pub version: u32,
    /// The number of its schema in the namespace.
    pub id: u64,
    /// Whether it is deleted, though not for good.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// The JSON Schema, as it was registered.
    pub schema: WireValue,
}

/// Whether a schema could be registered now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchemaCheck {
    /// Whether it goes with the earlier versions.
    pub compatible: bool,
    /// At which level that was judged.
    pub level: String,
    /// By which policy.
    pub policy: String,
    /// Why not, each place in the schema.
    pub reasons: Vec<SchemaReason>,
}

/// A reason why a schema does not go with an earlier version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchemaReason {
    /// The earlier version.
    pub version: u32,
    /// What kind of change it is; such names never change.
    pub kind: String,
    /// Where in the schema that must read the other's documents, as a JSON pointer: `#/properties/age`.
    pub path: String,
    /// backward: the new schema cannot read every document of the earlier one. forward: the other way round.
    pub direction: String,
    /// Why, as a sentence.
    pub reason: String,
}

/// What changed from one version of a subject to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchemaDiff {
    /// Which subject.
    pub subject: String,
    /// From this version.
    pub from: u32,
    /// To this one.
    pub to: u32,
    /// From the top down.
    pub changes: Vec<SchemaChange>,
}

/// One change of a schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchemaChange {
    /// added, removed or changed.
    pub kind: String,
    /// Which part of documents it is about: `$.address.zip`.
    pub path: String,
    /// What it is, was, or how it changed.
    pub text: String,
}

/// The versions that were deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchemaDeleted {
    /// Of which subject.
    pub subject: String,
    /// Their numbers.
    pub versions: Vec<u32>,
    /// Whether they are gone for good.
    pub permanent: bool,
}

/// What is to be said about a subject, or about all. What is absent stays as it is; null takes it back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettingsRequest {
    /// NONE, BACKWARD, FORWARD, FULL, or one of the last three with `_TRANSITIVE`.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub level: Option<Option<String>>,
    /// STRICT or LENIENT.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub policy: Option<Option<String>>,
    /// READWRITE or READONLY.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub mode: Option<Option<String>>,
    /// How reads of the collection stand to locks unless they say so: snapshot, locked or document.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub isolation: Option<Option<String>>,
}

/// Tells null from what is not there.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// What holds for a subject, or for all that say nothing themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettingsAnswer {
    /// Which subject; absent for the settings of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// How versions must go with earlier ones.
    pub level: String,
    /// How what schemas do not say is judged.
    pub policy: String,
    /// Whether versions can be registered.
    pub mode: String,
    /// How reads of the collection stand to locks unless they say so.
    pub isolation: String,
    /// Which of these it says itself.
    pub own: Vec<String>,
}
