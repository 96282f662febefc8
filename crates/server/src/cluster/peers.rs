//! Requests to other shards: addresses, headers, and what is known when there is no answer. Knows nothing of what the
//! requests ask for, nor of the nodes that own the shards.

use crate::clustered::{Membership, ShardCall};
use axum::body::Body;
use bytes::Bytes;
use hyper::{HeaderMap, Method, Request, Response};
use lockwood_cluster::CallError;
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
    /// How long the answer may take to begin.
    pub(crate) patience: Duration,
}

/// Why a node did not answer.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum PeerError {
    /// It did not get the request, so nothing was done.
    #[error("{address} cannot be reached: {cause}")]
    NotSent {
        /// Which node.
        address: String,
        /// Why.
        cause: String,
    },
    /// It may have got the request, and may have done what it says.
    #[error("{address} did not answer: {cause}")]
    Unknown {
        /// Which node.
        address: String,
        /// Why.
        cause: String,
    },
}

impl From<CallError> for PeerError {
    fn from(error: CallError) -> PeerError {
        match error {
            CallError::NotSent { address, cause } | CallError::Rejected { address, cause } => {
                PeerError::NotSent { address, cause }
            }
            CallError::Unknown { address, cause } => PeerError::Unknown { address, cause },
        }
    }
}

/// The other shards; the current owner of each answers. An address is one that [`address_of`] makes.
pub(crate) struct Peers<'a>(pub(super) &'a Arc<Membership>);

impl Peers<'_> {
    /// Sends a request and gives its answer, whatever it is, with the body read to its end.
    pub(crate) async fn ask(
        &self,
        address: &str,
        epoch: u64,
        message: &Message,
    ) -> Result<Response<Bytes>, PeerError> {
        let (Peers(membership), shard) = (self, shard_of(address)?);
        let call = membership.sign(message.to_shard(epoch));
        let mut answer = membership.node.ask_shard(shard, &call).await?;
        membership.heed(answer.headers_mut());
        Ok(answer)
    }

    /// Sends a request and gives its answer with a body that is still to come.
    pub(crate) async fn open(
        &self,
        address: &str,
        epoch: u64,
        message: &Message,
    ) -> Result<Response<Body>, PeerError> {
        let (Peers(membership), shard) = (self, shard_of(address)?);
        let call = membership.sign(message.to_shard(epoch));
        let mut answer = membership.node.call_shard(shard, &call).await?;
        membership.heed(answer.headers_mut());
        Ok(answer)
    }
}

/// What a map has for the address of a shard: its owner is the node on record.
pub(crate) fn address_of(shard: ShardNo) -> String {
    format!("shard-{}:1", shard.0)
}

fn shard_of(address: &str) -> Result<ShardNo, PeerError> {
    let number = address.strip_prefix("shard-").and_then(|rest| rest.strip_suffix(":1")?.parse().ok());
    number.map(ShardNo).ok_or_else(|| {
        let cause = "it is not the address of a shard".to_owned();
        PeerError::NotSent { address: address.to_owned(), cause }
    })
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

    fn to_shard(&self, epoch: u64) -> ShardCall {
        let Message { method, target, body, patience, .. } = self.clone();
        ShardCall { method, target, headers: self.headers(epoch), body, timeout: patience }
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
