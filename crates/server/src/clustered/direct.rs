//! Requests for documents of one shard of a spread namespace, which go straight to the owner of that shard. Knows nothing of what
//! they ask for, nor of locks: the shard decides by its guards, and asks the home if one is in the way.
//!
//! A node may choose by a map that is not in force any more. That costs a call, no more: the shard that is asked goes by its own map,
//! and passes on what is not its own.

use super::ClusterNode;
use crate::cluster::dispatch;
use bytes::Bytes;
use hyper::http::request::Parts;
use lockwood_router::ShardNo;

impl ClusterNode {
    /// The shard that has all documents that a request names, by the latest map that this node has read. None if the request
    /// concerns other shards too, names no documents, or is about a whole namespace.
    pub(super) fn shard_of_keys(&self, parts: &Parts, body: &Bytes) -> Option<ShardNo> {
        let namespace = dispatch::namespace(&parts.uri)?;
        // Where it is was looked up on the way here.
        self.homes.remembered(&namespace).filter(|placed| placed.is_spread)?;
        let current = self.placing.read().current.clone()?;
        dispatch::shard_of_keys(&current, &self.front.config.limits, parts, body)
    }
}
