//! Requests to other shards: what they are made of, and how the current owner of a shard is asked. Knows nothing of what the
//! requests ask for, nor of the nodes that own the shards.

use super::{Cluster, not_a_node};
use crate::clustered::{Membership, ShardCall, allowance};
use axum::body::Body;
use bytes::Bytes;
use hyper::{HeaderMap, Method, Request, Response};
use lockwood_cluster::CallError;
use lockwood_node::trouble::Trouble;
use lockwood_router::ShardNo;
use std::{sync::Arc, time::Duration};

/// The header with the epoch of the sender's map.
pub(crate) const EPOCH: &str = "lockwood-epoch";

/// A request to another shard.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
    /// How long the answer may take to begin, unless it is what any request may take that waits for no lock.
    pub(crate) patience: Option<Duration>,
}

impl Cluster {
    /// The other shards of the cluster.
    pub(crate) fn peers(&self) -> Result<Peers<'_>, Trouble> {
        self.membership.as_ref().map(Peers).ok_or_else(not_a_node)
    }
}

/// The other shards; the current owner of each answers.
pub(crate) struct Peers<'a>(&'a Arc<Membership>);

impl Peers<'_> {
    /// Sends a request and gives its answer, whatever it is, with the body read to its end.
    pub(crate) async fn ask(
        &self,
        shard: ShardNo,
        epoch: u64,
        message: &Message,
    ) -> Result<Response<Bytes>, CallError> {
        let Peers(membership) = self;
        let call = membership.sign(message.to_shard(membership, epoch));
        let mut answer = membership.node.ask_shard(shard, &call).await?;
        membership.heed(answer.headers_mut());
        Ok(answer)
    }

    /// Sends a request and gives its answer with a body that is still to come.
    pub(crate) async fn open(
        &self,
        shard: ShardNo,
        epoch: u64,
        message: &Message,
    ) -> Result<Response<Body>, CallError> {
        let Peers(membership) = self;
        let call = membership.sign(message.to_shard(membership, epoch));
        let mut answer = membership.node.call_shard(shard, &call).await?;
        membership.heed(answer.headers_mut());
        Ok(answer)
    }
}

/// What a map has for the address of a shard, because who owns it is not for a map to say.
pub(crate) fn address_of(shard: ShardNo) -> String {
    format!("shard-{}:1", shard.0)
}

/// The shard with an address that [`address_of`] made.
pub(crate) fn shard_at(address: &str) -> Option<ShardNo> {
    address.strip_prefix("shard-")?.strip_suffix(":1")?.parse().ok().map(ShardNo)
}

impl Message {
    /// The request as another shard would send it.
    pub(crate) fn request(&self, epoch: u64) -> Request<Body> {
        let mut request = Request::new(Body::from(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.target.parse().unwrap_or_default();
        *request.headers_mut() = self.headers(epoch);
        request
    }

    fn to_shard(&self, membership: &Membership, epoch: u64) -> ShardCall {
        let Message { method, target, body, patience, .. } = self.clone();
        let timeout = patience.unwrap_or_else(|| allowance::of_work(&membership.node.front.config.limits));
        ShardCall { method, target, headers: self.headers(epoch), body, timeout }
    }

    fn headers(&self, epoch: u64) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(EPOCH, epoch.into());
        for (name, value) in &self.headers {
            if let Ok(value) = value.parse() {
                headers.insert(*name, value);
            }
        }
        headers
    }
}
