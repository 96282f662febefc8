//! Shards, over plain HTTP: operations on single keys, the map, and moving from one map to another. Knows nothing of
//! where a key is; any node passes a request on to whoever has it.

use crate::{
    error::Error,
    lease::Terms,
    nodes::Nodes,
    transport::{Call, Target, escape},
};
use hyper::Method;
use lockwood_model::DocumentKey;
use lockwood_wire::{
    NamespaceHome,
    documents::{Fields, WireKey, WireValue},
    shards::{
        CallAnswer, CallRequest, ConfigAnswer, CopiedRow, DeleteRequest, EselectRequest, ProcedureInfo,
        ProcedureList, RemovedRow, SelectRequest, ShardConfig, ShardDocument, StoreRequest,
        TransitionCommand, TransitionStatus, UpdateRequest, Validity,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use std::time::Duration;

/// A step of resharding that is waited for may take so long.
const STEP_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a home may take to move.
const MOVE_WAIT: Duration = Duration::from_secs(20);

/// The shards of one namespace, asked through any of its nodes. Every call is a connection of its own; what passes
/// by itself is asked again, see [`Nodes`].
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use lockwood_client::{DocumentKey, ShardMode, ShardOptions, Shards, wire};
///
/// let shards = Shards::new("127.0.0.1:7117,127.0.0.1:7118", "default");
/// let line = DocumentKey::new("line", "order:42".parse()?);
/// let fields: wire::Fields = serde_json::from_str(r#"{"n": 1}"#)?;
/// shards.insert(&line, &fields, &ShardOptions::default()).await?;
/// let one = wire::WireValue::from_text("1".into())?;
/// let field = wire::WireValue::from_text("\"n\"".into())?;
/// let after = shards.update(&line, "+p", &[field, one], &ShardOptions::default()).await?;
/// println!("{:?}", after.document);
/// let now = shards.eselect(ShardMode::Rw, &line).await?;
/// assert_eq!(now.document, after.document);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Shards {
    /// Who can be asked.
    pub nodes: Nodes,
    /// The namespace.
    pub namespace: String,
}

/// Who may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardMode {
    /// A follower may answer.
    Ro,
    /// Only the owner.
    Rw,
}

impl ShardMode {
    /// How it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            ShardMode::Ro => "ro",
            ShardMode::Rw => "rw",
        }
    }
}

/// How to write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShardOptions {
    /// Who asks.
    pub user: Option<String>,
    /// Why.
    pub note: Option<String>,
    /// With which locks, and how long to wait for those of others.
    pub terms: Terms,
}

impl Shards {
    /// The shards of a namespace. Several addresses have commas between them.
    pub fn new(nodes: impl Into<Nodes>, namespace: impl Into<String>) -> Shards {
        Shards { nodes: nodes.into(), namespace: namespace.into() }
    }

    /// One document; a follower may answer.
    pub async fn select(&self, at: &DocumentKey) -> Result<ShardDocument, Error> {
        let (collection, key) = names(at);
        self.post("select", &SelectRequest { collection, key }).await
    }

    /// One document, and who may answer.
    pub async fn eselect(&self, mode: ShardMode, at: &DocumentKey) -> Result<ShardDocument, Error> {
        let (collection, key) = names(at);
        self.post("eselect", &EselectRequest { mode: mode.as_str().to_owned(), collection, key }).await
    }

    /// Creates a document; refused if there is one.
    pub async fn insert(
        &self,
        at: &DocumentKey,
        fields: &Fields,
        options: &ShardOptions,
    ) -> Result<ShardDocument, Error> {
        self.store("insert", at, fields, options).await
    }

    /// Makes a document exactly this, be it there or not.
    pub async fn replace(
        &self,
        at: &DocumentKey,
        fields: &Fields,
        options: &ShardOptions,
    ) -> Result<ShardDocument, Error> {
        self.store("replace", at, fields, options).await
    }

    async fn store(
        &self,
        operation: &str,
        at: &DocumentKey,
        fields: &Fields,
        options: &ShardOptions,
    ) -> Result<ShardDocument, Error> {
        let ((collection, key), (user, note)) = (names(at), options.origin());
        let (tokens, wait_ms) = options.terms();
        let fields = fields.clone();
        let request = StoreRequest { collection, key, fields, tokens, wait_ms, user, note };
        self.write(operation, &request, options).await
    }

    /// Deletes a document; the answer has what it was.
    pub async fn delete(&self, at: &DocumentKey, options: &ShardOptions) -> Result<ShardDocument, Error> {
        let ((collection, key), (user, note)) = (names(at), options.origin());
        let (tokens, wait_ms) = options.terms();
        let request = DeleteRequest { collection, key, tokens, wait_ms, user, note };
        self.write("delete", &request, options).await
    }

    /// Changes a document by the operations of a format, each with a field and a value; the answer has what it has
    /// become.
    pub async fn update(
        &self,
        at: &DocumentKey,
        format: &str,
        arguments: &[WireValue],
        options: &ShardOptions,
    ) -> Result<ShardDocument, Error> {
        let ((collection, key), (user, note)) = (names(at), options.origin());
        let (tokens, wait_ms) = options.terms();
        let (format, arguments) = (format.to_owned(), arguments.to_vec());
        let request = UpdateRequest { collection, key, format, arguments, tokens, wait_ms, user, note };
        self.write("update", &request, options).await
    }

    /// Calls a procedure at the owner of a key.
    pub async fn call(
        &self,
        mode: ShardMode,
        procedure: &str,
        at: &DocumentKey,
        arguments: &[WireValue],
        options: &ShardOptions,
    ) -> Result<CallAnswer, Error> {
        let ((collection, key), (user, note)) = (names(at), options.origin());
        let (tokens, wait_ms) = options.terms();
        let (mode, procedure) = (mode.as_str().to_owned(), procedure.to_owned());
        let arguments = arguments.to_vec();
        let request =
            CallRequest { mode, procedure, collection, key, arguments, tokens, wait_ms, user, note };
        self.write("call", &request, options).await
    }

    /// The map of the node that is asked; null if it has none.
    pub async fn map(&self) -> Result<serde_json::Value, Error> {
        self.fetch("map").await
    }

    /// Whether the node that is asked has a map, and its place in it.
    pub async fn is_valid(&self) -> Result<Validity, Error> {
        self.fetch("is_valid").await
    }

    /// Where the home of the namespace is.
    pub async fn home(&self) -> Result<NamespaceHome, Error> {
        self.fetch("home").await
    }

    /// Moves the home of the namespace to a shard, and waits until it is there.
    pub async fn move_home(&self, shard: u32) -> Result<NamespaceHome, Error> {
        let call = Call::new(Method::PUT, self.target(&format!("home/{shard}")));
        self.nodes.ask_within(&call, MOVE_WAIT).await
    }

    /// Changes parameters of the map.
    pub async fn config(&self, config: &ShardConfig) -> Result<ConfigAnswer, Error> {
        self.post("config", config).await
    }

    /// Has the node that is asked copy what moves away from it.
    pub async fn copy(&self) -> Result<Vec<CopiedRow>, Error> {
        self.step("copy").await
    }

    /// Has the node that is asked remove what has moved away from it.
    pub async fn cleanup(&self) -> Result<Vec<RemovedRow>, Error> {
        self.step("cleanup").await
    }

    async fn step<T: DeserializeOwned>(&self, step: &str) -> Result<T, Error> {
        self.nodes.ask_within(&Call::new(Method::POST, self.target(step)), STEP_WAIT).await
    }

    /// How far the transition to another map is.
    pub async fn status(&self) -> Result<TransitionStatus, Error> {
        self.fetch("transition").await
    }

    /// Begins a transition to another map, or steers the one under way.
    pub async fn command(&self, command: &TransitionCommand) -> Result<(), Error> {
        // If it was carried out and the answer was lost, a second time would be refused.
        let call = Call::with_json(Method::POST, self.target("transition"), command).once();
        self.nodes.ask::<serde_json::Value>(&call).await.map(drop)
    }

    /// The procedures of the namespace.
    pub async fn procedures(&self) -> Result<ProcedureList, Error> {
        self.fetch("procedures").await
    }

    /// One procedure with its text.
    pub async fn procedure(&self, name: &str) -> Result<ProcedureInfo, Error> {
        self.fetch(&procedure(name)).await
    }

    /// Registers a procedure on all shards, or gives it another text.
    pub async fn put_procedure(&self, name: &str, source: &str) -> Result<ProcedureInfo, Error> {
        let call = Call {
            content_type: Some("text/plain"),
            body: source.to_owned().into(),
            ..Call::new(Method::PUT, self.target(&procedure(name)))
        };
        self.nodes.ask(&call.with_retry_key()).await
    }

    /// Takes a procedure away from all shards.
    pub async fn delete_procedure(&self, name: &str) -> Result<ProcedureInfo, Error> {
        let call = Call::new(Method::DELETE, self.target(&procedure(name)));
        self.nodes.ask(&call.with_retry_key()).await
    }

    fn target(&self, rest: &str) -> String {
        Target::new(&self.namespace, &format!("shard/{rest}")).text
    }

    async fn fetch<T: DeserializeOwned>(&self, rest: &str) -> Result<T, Error> {
        self.nodes.ask(&Call::new(Method::GET, self.target(rest))).await
    }

    async fn post<T: DeserializeOwned>(&self, rest: &str, body: &impl Serialize) -> Result<T, Error> {
        self.nodes.ask(&Call::with_json(Method::POST, self.target(rest), body)).await
    }

    /// The same for a write, which may have to wait for others' locks first.
    async fn write<T: DeserializeOwned>(
        &self,
        rest: &str,
        body: &impl Serialize,
        options: &ShardOptions,
    ) -> Result<T, Error> {
        let call = Call::with_json(Method::POST, self.target(rest), body).with_retry_key();
        self.nodes.ask_within(&call, options.terms.wait.unwrap_or_default()).await
    }
}

impl ShardOptions {
    fn origin(&self) -> (Option<WireValue>, Option<WireValue>) {
        let text = |text: &Option<String>| {
            text.as_ref().map(|text| WireValue::from(&serde_json::Value::from(text.as_str())))
        };
        (text(&self.user), text(&self.note))
    }

    fn terms(&self) -> (Vec<u64>, Option<u64>) {
        (self.terms.tokens.clone(), self.terms.wait_ms())
    }
}

fn names(at: &DocumentKey) -> (String, WireKey) {
    (at.collection.to_string(), WireKey(at.key.clone()))
}

fn procedure(name: &str) -> String {
    format!("procedures/{}", escape(name))
}
