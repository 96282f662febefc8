//! The bodies of the plain HTTP interface. Knows nothing of routes.

use crate::{
    Code, SchemaReason, WirePath, WireResource,
    documents::{BrokenLock, WireValue},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The header that says about how many bytes a backup has.
pub const ABOUT_BYTES_HEADER: &str = "x-lockwood-about-bytes";

/// Whether a lock is held or waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LockState {
    /// It is held.
    Granted,
    /// It stands in line.
    Waiting,
    /// It is held, and waits for stronger modes.
    Converting,
}

/// Who a lock belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Owner {
    /// The session; empty if the lock does not belong to one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// How the session, or the owner of a lease, calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the lock belongs to, and how it came: a session (native or locktopus), a lease (lease or
    /// elasticsearch), or an operation for as long as it takes (operation).
    pub via: String,
    /// The address of the other side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// False while the connection is lost.
    pub connected: bool,
}

/// A lock as listings show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LockInfo {
    /// Its number within the namespace.
    pub lock: u64,
    /// Held or waiting.
    pub state: LockState,
    /// Its fencing token, if it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Whose lock.
    pub owner: Owner,
    /// What it covers, or shall cover.
    pub resources: Vec<WireResource>,
    /// What it wants to become, while it is converting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub converting_to: Option<Vec<WireResource>>,
    /// When it was asked for.
    pub requested_at: String,
    /// When it was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_at: Option<String>,
    /// For how long it has been held, or has waited.
    pub age_ms: u64,
    /// How long it will still wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_left_ms: Option<u64>,
    /// How long it will still be kept although its connection is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandoned_in_ms: Option<u64>,
    /// When it ends by itself, if it is a lease that does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// How long that is from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// What its owner wrote on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub note: Option<WireValue>,
    /// Its place in line, 1 for the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
    /// How many locks are in its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blockers_len: Option<usize>,
    /// The numbers of some of them, holders first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<u64>,
}

/// One page of locks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LockList {
    /// The locks, in the order they were asked for. A page may be short, even empty, and not be the last.
    pub locks: Vec<LockInfo>,
    /// What to pass as `after` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// A lock that is in somebody's way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Blocker {
    /// Its number.
    pub lock: u64,
    /// Held or waiting.
    pub state: LockState,
    /// The session it belongs to; empty if it belongs to none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// How that session, or the owner of the lease, calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Since when it has been held, or has waited.
    pub since: String,
    /// For how long.
    pub age_ms: u64,
    /// What it covers; the first few.
    pub resources: Vec<WireResource>,
}

/// One wait in a deadlock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CycleStep {
    /// The session that waits.
    pub session: String,
    /// How it calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it wants.
    pub wants: WireResource,
    /// The lock that is in the way.
    pub lock: u64,
    /// What that lock has.
    pub has: WireResource,
    /// The session it belongs to.
    pub holder: String,
    /// How that one calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_name: Option<String>,
}

/// Who waits for whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitGraph {
    /// Every wait, up to a limit.
    pub edges: Vec<WaitEdge>,
    /// True if there are more.
    pub truncated: bool,
}

/// A lock that waits for another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitEdge {
    /// The lock that waits.
    pub waiter: u64,
    /// Its session.
    pub waiter_session: String,
    /// The lock in its way.
    pub blocker: u64,
    /// The session of that.
    pub blocker_session: String,
}

/// The tree of nodes with locks on them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tree {
    /// In the order of their paths, ancestors first.
    pub nodes: Vec<NodeInfo>,
    /// True if there are more claims than are shown; ask for a path further down.
    #[serde(default)]
    pub truncated: bool,
}

/// A node and the claims on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TreeNode)]
pub struct NodeInfo {
    /// Which node.
    pub path: WirePath,
    /// Who holds it or waits for it.
    pub claims: Vec<NodeClaim>,
    /// What the locks below it mean for this node.
    pub intents: Intents,
}

/// The intents that locks on descendants put on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Intents {
    /// IS: resources held below that only read.
    pub read: usize,
    /// IX: resources held below that may change something.
    pub change: usize,
}

/// A claim on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeClaim {
    /// The lock.
    pub lock: u64,
    /// Its session.
    pub session: String,
    /// How the session calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// In which mode.
    pub mode: String,
    /// How many levels; absent means the whole subtree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u64>,
    /// S, U or X if it is held; the pending intent IS or IX if it waits. CS and CX are the same on a child
    /// list.
    pub sign: String,
    /// Whether it is held.
    pub granted: bool,
}

/// The namespaces in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceList {
    /// By name.
    pub namespaces: Vec<NamespaceInfo>,
}

/// A namespace in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceInfo {
    /// Its name.
    pub namespace: String,
    /// Sessions in it, those whose connection is lost included.
    pub sessions: usize,
    /// Locks that are held.
    pub locks_granted: usize,
    /// Locks that stand in line.
    pub locks_waiting: usize,
    /// The position of its documents, if it has or had any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}

/// What operators did in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperatorLog {
    /// The latest first.
    pub actions: Vec<OperatorAction>,
}

/// What an operator can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperatorDeed {
    /// End a lock.
    #[default]
    ReleaseLock,
    /// End the grace period of the namespace.
    EndGrace,
    /// Read a document that a node has, whether it owns it or not.
    RawSelect,
    /// Create a document on a node, whether the node owns it or not.
    RawInsert,
    /// Take a document of a node away without a trace.
    RawDelete,
    /// Count the documents that a node has.
    RawLen,
    /// Take documents, a collection or the namespace away for good.
    Purge,
}

/// Something an operator did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperatorAction {
    /// What.
    #[serde(default)]
    pub action: OperatorDeed,
    /// Who, in the operator's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// When.
    pub at: String,
    /// Where.
    pub namespace: String,
    /// Why, in the operator's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The lock that was ended, with its first few resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockInfo>,
    /// How much was left of the grace period that was ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// The document, or the collection if it was about all of its documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    /// Whether the locks of others were passed over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
}

/// The namespaces that grant nothing yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GraceList {
    /// By name; empty if every namespace grants locks.
    pub namespaces: Vec<GraceInfo>,
}

/// A grace period: nothing is granted in a namespace, because sessions held locks in it when the server stopped without
/// them, and can still take them up again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GraceInfo {
    /// The namespace; absent for all that are not listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// How long it still lasts.
    pub left_ms: u64,
}

/// A server at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerStatus {
    /// The version that runs.
    pub version: String,
    /// ready, grace_period, draining or storage_failed, as in the readiness.
    pub status: String,
    /// Where nothing is granted yet because sessions held locks there when the last run ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grace: Vec<GraceInfo>,
    /// When it was started.
    pub started_at: String,
    /// How long ago that is.
    pub uptime_ms: u64,
    /// The data directory.
    pub data: String,
    /// What is served where, the native interface first.
    pub interfaces: Vec<Interface>,
    /// Connections of all interfaces.
    pub connections: u64,
    /// Physical memory the process has, if the system says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// On how many machines an acknowledged write is, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
    /// Its namespaces, with their positions and locks.
    pub namespaces: Vec<NamespaceInfo>,
}

/// An interface and where it listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Interface {
    /// native, locktopus, openslides_reader, openslides_writer, elasticsearch or schema_registry.
    pub name: String,
    /// Its IP address and port.
    pub address: String,
}

/// Whether the server can be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// ready, grace_period (no namespace grants locks yet), draining or storage_failed.
    pub status: String,
    /// The namespaces that grant nothing yet; all others do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grace: Vec<GraceInfo>,
    /// On how many machines an acknowledged write is, and why; said by nodes of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
}

/// An error of the HTTP interface (application/problem+json).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `urn:lockwood:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable code.
    pub code: Code,
    /// What happened and what to do.
    pub detail: String,
    /// The locks in the way, if others' locks are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<Blocker>,
    /// The paths that were wanted and that others have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<WirePath>,
    /// The position locks that do not hold, if that is what is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<BrokenLock>,
    /// Why a schema does not go with earlier ones, if that is what is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<SchemaReason>,
    /// For `grace_period`: how long it still lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// For `shard_unreachable`: the shard that has no owner, or whose owner does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
}

impl Problem {
    /// An error with its explanation.
    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        Problem {
            kind: format!("urn:lockwood:{code}"),
            title: code.as_str().replace('_', " "),
            status: code.status(),
            code,
            detail: detail.into(),
            blockers: Vec::new(),
            paths: Vec::new(),
            broken: Vec::new(),
            reasons: Vec::new(),
            grace_ms: None,
            shard: None,
        }
    }
}
