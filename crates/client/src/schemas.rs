//! The schemas of a namespace, over plain HTTP. Knows nothing of documents.

use crate::{
    error::Error,
    nodes::Nodes,
    transport::{Call, Target, escape},
};
use hyper::Method;
use lockwood_wire::{
    SchemaCheck, SchemaDeleted, SchemaDiff, SchemaInfo, SchemaRegistered, SchemaRequest, SettingsAnswer,
    SettingsRequest, SubjectList, VersionList, documents::WireValue,
};
use serde::de::DeserializeOwned;

/// The Schema Registry of one namespace of a server. Every call is a connection of its own.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use lockwood_client::Schemas;
///
/// let schemas = Schemas::new("127.0.0.1:7117", "default");
/// let text = r#"{"type": "object", "properties": {"name": {"type": "string"}}}"#;
/// let registered = schemas.register("user", text).await?;
/// println!("version {}", registered.version);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schemas {
    /// Host and port of the server.
    pub address: String,
    /// The namespace.
    pub namespace: String,
}

impl Schemas {
    /// The schemas of a namespace.
    pub fn new(address: impl Into<String>, namespace: impl Into<String>) -> Schemas {
        Schemas { address: address.into(), namespace: namespace.into() }
    }

    /// The subjects, on request also those whose versions are all deleted.
    pub async fn subjects(&self, deleted: bool) -> Result<SubjectList, Error> {
        self.fetch(self.target("schemas").query("deleted", deleted.then_some(true))).await
    }

    /// The versions of a subject, on request also deleted ones.
    pub async fn versions(&self, subject: &str, deleted: bool) -> Result<VersionList, Error> {
        self.fetch(self.subject(subject, "").query("deleted", deleted.then_some(true))).await
    }

    /// One version of a subject; the latest if none is given.
    pub async fn get(&self, subject: &str, version: Option<u32>) -> Result<SchemaInfo, Error> {
        let version = version.map_or_else(|| "latest".to_owned(), |version| version.to_string());
        let target = self.subject(subject, &format!("/{version}"));
        self.fetch(target.query("deleted", Some(true).filter(|_| version != "latest"))).await
    }

    /// Registers a schema, given as text.
    pub async fn register(&self, subject: &str, schema: &str) -> Result<SchemaRegistered, Error> {
        self.ask(Call::with_json(Method::POST, self.subject(subject, "").text, &request(schema))).await
    }

    /// Whether a schema could be registered.
    pub async fn check(&self, subject: &str, schema: &str) -> Result<SchemaCheck, Error> {
        self.ask(Call::with_json(Method::POST, self.subject(subject, "/check").text, &request(schema))).await
    }

    /// What changed from one version to another; to the latest, and from the one before, unless given.
    pub async fn diff(&self, subject: &str, from: Option<u32>, to: Option<u32>) -> Result<SchemaDiff, Error> {
        self.fetch(self.subject(subject, "/diff").query("from", from).query("to", to)).await
    }

    /// Deletes a version, or all of them; for good only what is deleted already.
    pub async fn delete(
        &self,
        subject: &str,
        version: Option<u32>,
        permanent: bool,
    ) -> Result<SchemaDeleted, Error> {
        let rest = version.map_or_else(String::new, |version| format!("/{version}"));
        let target = self.subject(subject, &rest).query("permanent", permanent.then_some(true));
        self.ask(Call::new(Method::DELETE, target.text).once()).await
    }

    /// What holds for a subject, or for those that say nothing themselves.
    pub async fn settings(&self, subject: Option<&str>) -> Result<SettingsAnswer, Error> {
        self.fetch(self.of_settings(subject)).await
    }

    /// Says something about a subject, or about those that say nothing themselves.
    pub async fn set(
        &self,
        subject: Option<&str>,
        settings: &SettingsRequest,
    ) -> Result<SettingsAnswer, Error> {
        self.ask(Call::with_json(Method::PUT, self.of_settings(subject).text, settings)).await
    }

    fn of_settings(&self, subject: Option<&str>) -> Target {
        match subject {
            Some(subject) => self.subject(subject, "/settings"),
            None => self.target("schema-settings"),
        }
    }

    fn subject(&self, subject: &str, rest: &str) -> Target {
        self.target(&format!("schemas/{}{rest}", escape(subject)))
    }

    fn target(&self, rest: &str) -> Target {
        Target::new(&self.namespace, rest)
    }

    async fn fetch<T: DeserializeOwned>(&self, target: Target) -> Result<T, Error> {
        self.ask(Call::new(Method::GET, target.text)).await
    }

    async fn ask<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        Nodes::new(&self.address).ask(&call).await
    }
}

fn request(schema: &str) -> SchemaRequest {
    SchemaRequest { schema: WireValue::from(&serde_json::Value::from(schema)) }
}
