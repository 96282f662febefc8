//! The bodies of the shard interface: operations on single keys, the map, and what moves between shards. Knows
//! nothing of routes or of how a shard is chosen.

use crate::documents::{DocumentInfo, Fields, WireKey, WireValue};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A document to be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SelectRequest {
    /// Its collection.
    pub collection: String,
    /// Its key, all parts of it.
    pub key: WireKey,
}

/// A document to be read, and who may answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EselectRequest {
    /// `ro` or `r`: a follower may answer; `rw`: only the owner.
    pub mode: String,
    /// Its collection.
    pub collection: String,
    /// Its key, all parts of it.
    pub key: WireKey,
}

/// Requests that write: what they say of themselves, then on which terms they are done, which is the same for all.
macro_rules! write_requests {
    ($($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $kind:ty,)* })*) => {
        $(
            $(#[$about])*
            #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
            #[serde(deny_unknown_fields)]
            pub struct $name {
                $($(#[$doc])* pub $field: $kind,)*
                /// Tokens of locks the writer holds. If one of them is over, nothing is done.
                #[serde(default, skip_serializing_if = "Vec::is_empty")]
                pub tokens: Vec<u64>,
                /// How many milliseconds to wait for others' locks.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub wait_ms: Option<u64>,
                /// Who writes, for the history.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub user: Option<WireValue>,
                /// Why, for the history.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub note: Option<WireValue>,
            }
        )*
    };
}

write_requests! {
    /// A document to be inserted or replaced.
    StoreRequest {
        /// Its collection.
        collection: String,
        /// Its key, all parts of it.
        key: WireKey,
        /// All its fields.
        #[schema(value_type = Object)]
        fields: Fields,
    }

    /// A document to be deleted.
    DeleteRequest {
        /// Its collection.
        collection: String,
        /// Its key, all parts of it.
        key: WireKey,
    }

    /// A document to be changed by operations.
    UpdateRequest {
        /// Its collection.
        collection: String,
        /// Its key, all parts of it.
        key: WireKey,
        /// One operation after the other, two characters each: `=p+p` sets one field and adds to another.
        format: String,
        /// For each operation a field and a value.
        arguments: Vec<WireValue>,
    }

    /// A procedure to be called at the owner of a key.
    CallRequest {
        /// `rw`: it may write; `ro` or `r`: it only reads.
        mode: String,
        /// Its name.
        procedure: String,
        /// The collection of the document it is about.
        collection: String,
        /// The key of that document, all parts of it.
        key: WireKey,
        /// What it is called with, besides the key.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        arguments: Vec<WireValue>,
    }
}

/// One document, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShardDocument {
    /// The document: as it is after an insert, a replace or an update, as it was before a delete. Null if there is
    /// none.
    pub document: Option<DocumentInfo>,
    /// The position of the write, or that of the snapshot if nothing was written.
    pub position: u64,
}

/// What a procedure answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallAnswer {
    /// Its answer.
    pub answer: WireValue,
    /// The position of what it wrote; null if it wrote nothing.
    pub position: Option<u64>,
    /// Which version of the procedure was run.
    pub version: u32,
}

/// A collection of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LenRequest {
    /// Which; all that users write to if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
}

/// How many documents a node has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LenAnswer {
    /// So many that are not deleted.
    pub len: u64,
}

/// How many documents of a collection were copied to their new shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CopiedRow {
    /// The namespace.
    pub namespace: String,
    /// The collection.
    pub collection: String,
    /// So many that were not known there.
    pub copied: u64,
}

/// How many documents of a collection were removed from their old shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemovedRow {
    /// The namespace.
    pub namespace: String,
    /// The collection.
    pub collection: String,
    /// So many that their new shards have confirmed.
    pub removed: u64,
}

/// Parameters of the shard map; those that are absent stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShardConfig {
    /// For each shard its hosts: `["rw", 1, "127.0.0.1", 7117]`, or an object with mode, weight and address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Vec<Object>>>)]
    pub list: Option<WireValue>,
    /// The shard that the node which is asked prefers to own; 0 if it prefers to own none, false if that is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub this: Option<WireValue>,
    /// The function that tells the shard of a key: `{"function": "jump"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub curr: Option<WireValue>,
    /// The function that told it before; false when everything is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub prev: Option<WireValue>,
    /// Give `prev` up although not everything is copied. What is missing is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// That a change of the map is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigAnswer {
    /// 1, as it has always been.
    pub ok: u32,
    /// The epoch of the map that is in force now; 0 if there is none.
    pub epoch: u64,
    /// How far the transition is that came of it; `none` if nothing moves.
    pub step: String,
    /// What the node that was asked prefers to own from now on, if the request said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub this: Option<u32>,
    /// The name of that node, on a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Whether a node can serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Validity {
    /// Whether it has a map and its place in it.
    pub valid: bool,
    /// What is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A registered procedure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcedureInfo {
    /// What it is called by.
    pub name: String,
    /// Counts its texts from 1; goes on after it was deleted.
    pub version: u32,
    /// The digest of its text.
    pub hash: String,
    /// Its text; left out in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// The procedures of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcedureList {
    /// By name.
    pub procedures: Vec<ProcedureInfo>,
}

/// How far a transition to another map is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TransitionStatus {
    /// The map in force at the node that drives transitions; null if there is none.
    #[schema(value_type = Option<Object>)]
    pub map: serde_json::Value,
    /// `prepare`, `import`, `activate`, `copy`, `finish`, `clean` or `settle`; `none` if nothing is under way.
    pub step: String,
    /// The epoch of the map that the transition is at, or that the last one ended with.
    #[serde(default)]
    pub last: Option<u64>,
    /// Whether copying and cleaning rest.
    #[serde(default)]
    pub paused: bool,
    /// How many documents a donor copies in a second, at most.
    #[serde(default)]
    pub throttle: Option<u64>,
    /// Whether it goes back to the map of before.
    #[serde(default)]
    pub aborting: bool,
    /// Whether `prev` was given up before everything was copied.
    #[serde(default)]
    pub forced: bool,
    /// The shards that give documents away; those of the last transition if nothing is under way.
    #[serde(default)]
    pub donors: Vec<DonorStatus>,
    /// Whom it waits for.
    #[serde(default)]
    pub waits: Vec<WaitStatus>,
    /// What somebody should look at, in words.
    #[serde(default)]
    pub alerts: Vec<String>,
}

/// How far a shard is that gives documents away.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DonorStatus {
    /// Its number.
    pub shard: u32,
    /// How many documents it has looked at that move.
    pub copied: u64,
    /// How many there are.
    pub total: Option<u64>,
    /// Whether all are copied.
    pub done: bool,
    /// Whether what was copied is what arrived.
    pub verified: bool,
    /// How many it has removed.
    pub removed: u64,
    /// Whether it has removed all.
    pub cleaned: bool,
    /// How often copying began anew because something was missing.
    pub round: u32,
    /// Documents in a second.
    pub rate: f64,
    /// How many milliseconds it will take, as far as one can tell.
    pub left_ms: Option<u64>,
}

/// Somebody a transition waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitStatus {
    /// A node's address, or `shard N`.
    #[serde(rename = "for")]
    pub whom: String,
    /// What went wrong there last.
    pub error: Option<String>,
}

/// Something the node that drives transitions is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum TransitionCommand {
    /// Go over to another map, from end to end.
    Reshard {
        /// The new map: `list` and `curr`.
        #[schema(value_type = Object)]
        change: serde_json::Value,
        /// How many documents a donor copies in a second, at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        throttle: Option<u64>,
    },
    /// Let copying and cleaning rest.
    Pause,
    /// Let them go on.
    Resume,
    /// Set the pace.
    Throttle {
        /// How many documents a donor copies in a second, at most; none is as fast as it can.
        #[serde(default)]
        rate: Option<u64>,
    },
    /// Go back to the map of before.
    Abort,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Code, documents::read_body};

    #[test]
    fn keys_have_one_part_or_several() {
        let read = |text: &str| read_body::<SelectRequest>(text.as_bytes());
        let key = |text: &str| read(text).unwrap().key.0.to_string();
        assert_eq!(key(r#"{"collection":"a","key":7}"#), "7");
        assert_eq!(key(r#"{"collection":"a","key":["order",42]}"#), "order:42");
        assert_eq!(read(r#"{"collection":"a","key":[]}"#).unwrap_err().code, Code::BadKey);
        assert_eq!(read(r#"{"collection":"a","key":1,"x":1}"#).unwrap_err().code, Code::UnknownMember);
    }

    #[test]
    fn what_is_not_given_is_not_written() {
        let (tokens, wait_ms, user, note) = (Vec::new(), None, None, None);
        let key = WireKey("7".parse().unwrap());
        let request = DeleteRequest { collection: "a".into(), key, tokens, wait_ms, user, note };
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"collection":"a","key":"7"}"#);
        let config =
            ShardConfig { prev: Some((&serde_json::Value::Bool(false)).into()), ..Default::default() };
        assert_eq!(serde_json::to_string(&config).unwrap(), r#"{"prev":false}"#);
    }
}
