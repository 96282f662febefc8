//! Writes with position locks on searches, which are about documents of all shards: the owner of what is written judges
//! its own, the others theirs, and nothing changes there until it is done. Knows nothing of how locks are judged.
//!
//! ```text
//!   one such write of a namespace at a time ──► the collections are held on the other shards ──► they judge
//!        ──► the owner judges and writes ──► everything is given back
//! ```
//!
//! One at a time, because two of them would hold what the other one wants to write to.

use super::{
    super::{Current, Kind, Message, RETRY, Whole, kind},
    ask::{Asker, Stop},
    cut::Manner,
    hold::{self, Alone},
};
use crate::{
    native::{Native, check_access, collection_resource},
    shared::Shared,
};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use lockwood_model::{Depth, Mode, Path, Resource};
use lockwood_node::{gate::Turn, trouble::Trouble};
use lockwood_router::ShardNo;
use lockwood_wire::documents::{Isolation, WireLock, WriteCall};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Where a shard is asked whether position locks hold.
pub(crate) const JUDGE: &str = "/internal/judge";
/// Where a shard is asked what it answered to a write before.
pub(crate) const ANSWERED: &str = "/internal/answered";

/// How long such a write waits for another one.
const PATIENCE_MS: u64 = 20_000;

/// What is to be judged.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Judge {
    pub(crate) namespace: String,
    pub(crate) locks: Vec<WireLock>,
}

/// Which write was done before, or not.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) namespace: String,
    pub(crate) call: Box<RawValue>,
}

/// The locks on searches of a write.
pub(crate) struct Searches {
    namespace: String,
    locks: Vec<WireLock>,
    manner: Manner,
}

/// None if a request has none, or one shard has all there is.
pub(in super::super) fn of(current: &Current, kind: &Kind, whole: &Whole) -> Option<Searches> {
    if !matches!(kind, Kind::Write) || current.map.shards.len() == 1 {
        return None;
    }
    let call = whole.call()?;
    let locks: Vec<WireLock> = locks(call).cloned().collect();
    let manner = Manner { isolation: Isolation::Locked, tokens: call.tokens.clone(), wait_ms: call.wait_ms };
    let namespace = kind::namespace(&whole.parts.uri)?;
    (!locks.is_empty()).then_some(Searches { namespace, locks, manner })
}

/// The locks on searches that a write has.
pub(in super::super) fn locks(call: &WriteCall) -> impl Iterator<Item = &WireLock> {
    call.requests.iter().flat_map(|request| &request.locks).filter(|lock| lock.key.is_none())
}

/// The same write as that of the holder of a lock, with every number as it was written. None if it is no object.
fn with_tokens(body: &[u8], tokens: &[u64]) -> Option<Bytes> {
    let mut call: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(body).ok()?;
    call.insert("tokens".to_owned(), serde_json::value::to_raw_value(tokens).ok()?);
    serde_json::to_vec(&call).ok().map(Bytes::from)
}

impl Searches {
    /// Does a write at its owner once the locks hold on all other shards, and while they do.
    pub(in super::super) async fn write(
        &self,
        native: &Native,
        shared: &Arc<Shared>,
        current: &Current,
        owner: ShardNo,
        whole: &Whole,
    ) -> Result<Response, Trouble> {
        let ask = Asker { native, shared, current };
        match self.guarded(&ask, owner, whole).await {
            Ok(response) => Ok(response),
            Err(Stop::Trouble(trouble)) => Err(*trouble),
            // Refused by the others, unless it was done before they had something against it.
            Err(Stop::Reply(refused)) => match self.answered(&ask, owner, whole).await? {
                Some(answer) => Ok(answer),
                None => Ok(refused.into_response()),
            },
        }
    }

    async fn guarded(&self, ask: &Asker<'_>, owner: ShardNo, whole: &Whole) -> Result<Response, Stop> {
        ask.check_map()?;
        let Manner { tokens, wait_ms, .. } = &self.manner;
        check_access(ask.shared, Isolation::Locked, (tokens, *wait_ms), None)?;
        let patient = Manner { wait_ms: Some(PATIENCE_MS), tokens: Vec::new(), ..self.manner.clone() };
        let alone = Alone::take(ask, &patient, &self.turn()).await?;
        let others: Vec<ShardNo> = ask.current.map.shard_numbers().filter(|shard| *shard != owner).collect();
        let turn = hold::take(ask, &self.namespace, &others, &self.manner, |_| self.resources()).await?;
        let judge = Judge { namespace: self.namespace.clone(), locks: self.locks.clone() };
        for reply in ask.some(&others, |_| Message::json(JUDGE, &judge)).await? {
            reply.bytes()?;
        }
        let mut message = whole.message(ask.shared);
        let token = turn.as_ref().and_then(Turn::token);
        if let Some(token) = token {
            // Beside the client's own: the write counts only as long as the searches cannot change.
            let tokens: Vec<u64> = tokens.iter().copied().chain([token]).collect();
            message.body = with_tokens(&message.body, &tokens).unwrap_or(message.body);
        }
        let reply = ask.tell(owner, &message).await?;
        drop(turn);
        alone.release().await?;
        Ok(reply.into_response())
    }

    /// Nobody else uses this path.
    fn turn(&self) -> Resource {
        let path = Path::from_segments(["searches", &self.namespace]);
        Resource::new(path, Mode::Write, Depth::SUBTREE)
    }

    fn resources(&self) -> Vec<Resource> {
        let collections: BTreeSet<&str> = self.locks.iter().map(|lock| lock.collection.as_str()).collect();
        collections.into_iter().map(collection_resource).collect()
    }

    /// What was answered to the write, if it was done before.
    async fn answered(
        &self,
        ask: &Asker<'_>,
        owner: ShardNo,
        whole: &Whole,
    ) -> Result<Option<Response>, Trouble> {
        let Ok(call) = serde_json::from_slice(&whole.body) else { return Ok(None) };
        let asked = Asked { namespace: self.namespace.clone(), call };
        let mut message = Message::json(ANSWERED, &asked);
        if let Some(retry) = whole.parts.headers.get(RETRY).and_then(|retry| retry.to_str().ok()) {
            message.headers.push((RETRY, retry.to_owned()));
        }
        let reply = ask.tell(owner, &message).await?;
        Ok(Some(reply).filter(|reply| reply.body != "null").map(IntoResponse::into_response))
    }
}
