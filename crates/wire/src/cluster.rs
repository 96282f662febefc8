//! A cluster as its operators see it: nodes, shards and their owners, and the database. Knows nothing of how they came
//! to own them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A cluster, as the answering node read it last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterStatus {
    /// The node that answers.
    pub node: String,
    /// All nodes that are registered.
    pub nodes: Vec<ClusterNodeInfo>,
    /// All shards.
    pub shards: Vec<ClusterShardInfo>,
    /// The change of the shard map that is under way; absent if there is none, or its driver does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transition: Option<ClusterTransitionInfo>,
    /// What is wrong, and what to do.
    #[serde(default)]
    pub alerts: Vec<String>,
    /// The database.
    pub database: DatabaseInfo,
}

/// Where the home of a namespace is: the shard that decides its locks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceHome {
    /// The namespace.
    pub namespace: String,
    /// The shard.
    pub home: u32,
    /// Whether its documents are on the shards of the map; otherwise all of them are at the home.
    pub spread: bool,
    /// The shard that the home is on its way to; absent if it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<u32>,
}

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterNodeInfo {
    /// Its name.
    pub name: String,
    /// Where other nodes reach it.
    pub address: String,
    /// Time since its last renewal, by the database clock.
    pub age_ms: u64,
    /// Whether it renews as it should: `live` or `stale`.
    pub state: String,
    /// Whether it gives its shards away and takes none.
    pub drains: bool,
    /// The shards that it owns.
    pub shards: Vec<u32>,
    /// The shard that it prefers to own, 0 for none; absent if it prefers nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub this: Option<u32>,
}

/// A shard and its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterShardInfo {
    /// Its number.
    pub shard: u32,
    /// The node that may write; absent if there is none right now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Grows with every change of the owner.
    pub epoch: u64,
    /// Time since the ownership was renewed, by the database clock.
    pub age_ms: u64,
    /// The nodes that follow its log, by name.
    #[serde(default)]
    pub followers: Vec<ClusterFollowerInfo>,
    /// How many namespaces have their home here; absent if the database did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<u64>,
    /// The first of them by name, if the request asks for some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub homes: Option<Vec<String>>,
}

/// A node that has a copy of a shard, from which it answers reads that tolerate a lag, and which it owns next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterFollowerInfo {
    /// The node.
    pub node: String,
    /// Everything that was in the log so many milliseconds ago is in the copy.
    pub lag_ms: u64,
    /// The last record of the log that is in the copy.
    pub last: u64,
}

/// How far a change of the shard map is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterTransitionInfo {
    /// `prepare`, `import`, `activate`, `copy`, `finish`, `clean` or `settle`.
    pub step: String,
    /// The node that drives it: the owner of shard 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// How many documents were copied.
    pub copied: u64,
    /// How many there are; absent if they were not counted yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Whether copying and cleaning are paused.
    pub paused: bool,
    /// Whether it goes back to the map of before.
    pub aborting: bool,
    /// Shards and nodes that it waits for.
    #[serde(default)]
    pub waits: Vec<String>,
}

/// The database of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DatabaseInfo {
    /// How many machines have an acknowledged write, and by which settings, in words.
    pub durability: String,
    /// Time since the answering node last heard from the database.
    pub age_ms: u64,
    /// The standbys that are connected; absent if the role of the nodes may not see them, or the database did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standbys: Option<Vec<StandbyInfo>>,
}

/// A standby of the database, as `pg_stat_replication` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StandbyInfo {
    /// Its `application_name`.
    pub name: String,
    /// Where it connects from; empty for a socket of the database's machine.
    pub address: String,
    /// `streaming`, or what it does before that.
    pub state: String,
    /// `sync` or `quorum` if commits wait for it, `potential` if they would, `async` otherwise.
    pub sync_state: String,
    /// How far its replay is behind, while there is something to replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<u64>,
}
