//! Asking shards, this node's own included, all by one map. Knows nothing of what is asked, nor of what is made of
//! the answers.

use super::super::{EPOCH, Message, answer_epoch, pull, wrong_epoch_trouble};
use crate::{cluster::Current, native::Native, shared::Shared};
use axum::{
    body::{Body, Bytes},
    extract::Request,
    response::{IntoResponse, Response},
};
use futures_util::future::try_join_all;
use http_body_util::BodyExt;
use hyper::{HeaderMap, Method, StatusCode, header};
use lockwood_model::Position;
use lockwood_node::trouble::Trouble;
use lockwood_router::{Phase, ShardNo};
use lockwood_wire::{Code, Problem};
use serde::{Serialize, de::DeserializeOwned};
use std::{future::Future, sync::Arc};

/// The header with a position that a node has to have behind it before it answers.
pub(crate) const LEAST: &str = "lockwood-least";

/// Whoever asks several shards together.
pub(super) struct Asker<'a> {
    pub(super) native: &'a Native,
    pub(super) shared: &'a Arc<Shared>,
    pub(super) current: &'a Current,
}

/// What a shard answered.
#[derive(Debug)]
pub(super) struct Reply {
    status: StatusCode,
    kind: Option<header::HeaderValue>,
    pub(super) body: Bytes,
}

/// Why there is nothing to be put together.
pub(super) enum Stop {
    Trouble(Box<Trouble>),
    /// A shard refused, and what it said is what the client is told.
    Reply(Reply),
}

impl<T: Into<Trouble>> From<T> for Stop {
    fn from(trouble: T) -> Stop {
        Stop::Trouble(Box::new(trouble.into()))
    }
}

impl Reply {
    /// What it says, if it is not a refusal.
    pub(super) fn read<T: DeserializeOwned>(self) -> Result<T, Stop> {
        if self.status != StatusCode::OK {
            return Err(Stop::Reply(self));
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            let message = format!("a shard answered something else than it was asked for: {error}");
            Trouble::new(Code::ShardUnreachable, message).into()
        })
    }

    /// What it says, if that is what was asked for.
    pub(super) fn ok<T: DeserializeOwned>(&self) -> Option<T> {
        if self.status == StatusCode::OK { serde_json::from_slice(&self.body).ok() } else { None }
    }

    /// The same for what is not JSON.
    pub(super) fn bytes(self) -> Result<Bytes, Stop> {
        if self.status == StatusCode::OK { Ok(self.body) } else { Err(Stop::Reply(self)) }
    }

    /// A refusal in the words of the shard.
    pub(super) fn into_trouble(self) -> Trouble {
        self.told().map_or_else(
            || Trouble::new(Code::ShardUnreachable, "a shard answered something else than it was asked for"),
            Trouble::from_problem,
        )
    }

    fn told(&self) -> Option<Problem> {
        if self.status.is_success() { None } else { serde_json::from_slice(&self.body).ok() }
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        if let Some(kind) = self.kind {
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
        }
        response
    }
}

impl Asker<'_> {
    /// Something none of the shards but the first has to decide.
    pub(super) fn first() -> ShardNo {
        ShardNo(1)
    }

    /// Whether the shard is served by this node.
    pub(super) fn is_own(&self, shard: ShardNo) -> bool {
        shard == self.shared.cluster.this() && self.current.is_owner
    }

    /// Refused while nobody answers for what moves, and when the map is not the one that was begun with.
    pub(super) fn check_map(&self) -> Result<(), Trouble> {
        let epoch = self.shared.cluster.current().map(|current| current.map.epoch);
        if self.current.map.phase == Phase::Preparing || epoch != Some(self.current.map.epoch) {
            return Err(wrong_epoch_trouble());
        }
        Ok(())
    }

    /// Asks all shards at once.
    pub(super) async fn all<M>(&self, message: M) -> Result<Vec<Reply>, Stop>
    where
        M: Fn(ShardNo) -> Message,
    {
        let shards: Vec<ShardNo> = self.current.map.shard_numbers().collect();
        self.some(&shards, message).await
    }

    /// Asks some shards at once; answers in their order.
    pub(super) async fn some<M>(&self, shards: &[ShardNo], message: M) -> Result<Vec<Reply>, Stop>
    where
        M: Fn(ShardNo) -> Message,
    {
        let asked = shards.iter().map(|shard| {
            let message = message(*shard);
            async move { self.one(*shard, &message).await }
        });
        Ok(try_join_all(asked).await?)
    }

    /// Asks one shard something that must be true by this map.
    pub(super) async fn one(&self, shard: ShardNo, message: &Message) -> Result<Reply, Trouble> {
        let reply = self.tell(shard, message).await?;
        // It was asked by the map in force, which must have been this one.
        self.check_map()?;
        Ok(reply)
    }

    /// Has a shard do something that does not depend on the map.
    pub(super) async fn tell(&self, shard: ShardNo, message: &Message) -> Result<Reply, Trouble> {
        retryable(match self.is_own(shard) {
            true => self.here(message).await?,
            false => elsewhere(self.shared, shard, message).await?,
        })
    }

    /// Has this node answer as another one would.
    pub(super) async fn request_here(&self, message: &Message) -> Result<Response, Trouble> {
        carry_out(self.native, self.shared, message.request(self.current.map.epoch)).await
    }

    /// Has another shard answer, with a body that is still to come.
    pub(super) async fn open(&self, shard: ShardNo, message: &Message) -> Result<Response, Trouble> {
        let answer = self.shared.cluster.peers()?.open(shard, self.current.map.epoch, message).await;
        answer.map_err(|error| pull::unreachable_shard(shard, &error.to_string()))
    }

    async fn here(&self, message: &Message) -> Result<Reply, Trouble> {
        let (parts, body) = self.request_here(message).await?.into_parts();
        if parts.headers.contains_key(EPOCH) {
            return Err(wrong_epoch_trouble());
        }
        let body = body.collect().await.map_err(|_| Trouble::storage_failed())?.to_bytes();
        Ok(Reply { status: parts.status, kind: parts.headers.get(header::CONTENT_TYPE).cloned(), body })
    }
}

/// Carries out here what somebody asks of all shards.
pub(crate) async fn carry_out(
    native: &Native,
    shared: &Arc<Shared>,
    request: Request,
) -> Result<Response, Trouble> {
    let epoch = answer_epoch(request.headers());
    let reads = reads(&request);
    if let Some(least) = least(request.headers()) {
        shared.shard.raise(least).await?;
    }
    let response = native.local(request).await;
    // What was looked at while the map changed may be neither before nor after the change.
    match !reads || shared.cluster.current().map(|current| current.map.epoch) == epoch {
        true => Ok(response),
        false => Err(wrong_epoch_trouble()),
    }
}

/// Whether a request changes nothing, so that it can be carried out again.
fn reads(request: &Request) -> bool {
    let word = request.uri().path().rsplit('/').next().unwrap_or_default();
    match *request.method() {
        Method::GET => true,
        Method::POST => matches!(word, "get" | "filter" | "count" | "exists" | "min" | "max"),
        _ => false,
    }
}

fn least(headers: &HeaderMap) -> Option<Position> {
    headers.get(LEAST)?.to_str().ok()?.parse().ok().map(Position)
}

/// Asks another shard.
pub(super) async fn elsewhere(
    shared: &Arc<Shared>,
    shard: ShardNo,
    message: &Message,
) -> Result<Reply, Trouble> {
    let answer = shared.cluster.ask(shared, shard, message).await;
    let answer = answer.map_err(|error| pull::unreachable_shard(shard, &error.to_string()))?;
    if answer.headers().contains_key(EPOCH) {
        return Err(wrong_epoch_trouble());
    }
    let (parts, body) = answer.into_parts();
    Ok(Reply { status: parts.status, kind: parts.headers.get(header::CONTENT_TYPE).cloned(), body })
}

/// What only has to be asked again is a trouble of the whole, not what the client is told.
pub(super) fn retryable(reply: Reply) -> Result<Reply, Trouble> {
    match reply.told() {
        Some(Problem { code: Code::WrongEpoch | Code::Moving, .. }) => Err(wrong_epoch_trouble()),
        Some(problem @ Problem { code: Code::ShardUnreachable, .. }) => Err(Trouble::from_problem(problem)),
        _ => Ok(reply),
    }
}

impl Message {
    /// A request with a JSON body.
    pub(super) fn json(target: &str, body: &impl Serialize) -> Message {
        let body = serde_json::to_vec(body).expect("a request can be written");
        let mut message = Message::post(target, body);
        message.headers.push((header::CONTENT_TYPE.as_str(), "application/json".to_owned()));
        message
    }

    /// A request without a body.
    pub(super) fn get(target: &str) -> Message {
        Message { method: Method::GET, ..Message::post(target, Bytes::new()) }
    }

    /// The same, once the node has this position behind it.
    pub(super) fn at_least(mut self, position: u64) -> Message {
        self.headers.push((LEAST, position.to_string()));
        self
    }
}

/// Waits for something from where waiting is in order, because other threads go on meanwhile.
pub(crate) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(future))
}
