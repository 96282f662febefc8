//! A namespace of all shards as lines of text: the documents of one shard after the other, as of one position. Knows
//! nothing of how a document is written.
//!
//! It has no commits: those of different shards can have the same position, which a dump cannot say. So what is loaded
//! from it begins at its position, with the documents and without their past.

use super::{
    super::{EPOCH, Message, wrong_epoch_trouble},
    Answer,
    ask::{Asker, Stop},
    catalog,
    cut::{Cut, Manner},
    is_everywhere, target,
};
use crate::{
    cluster::Current,
    native::{Native, Pieces, stream},
    shared::Shared,
};
use axum::{
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use http_body_util::BodyExt;
use hyper::header;
use lockwood_node::trouble::Trouble;
use lockwood_router::ShardNo;
use lockwood_wire::documents::{DumpHead, DumpLine, IndexInfo, Indexes, read_field};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// Where a shard is asked for the documents of a collection, as lines.
pub(crate) const LINES: &str = "/internal/dump";
/// Where a shard is asked for its counters.
pub(crate) const COUNTERS: &str = "/internal/counters";

/// Which lines.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lines {
    pub(crate) namespace: String,
    pub(crate) collection: String,
    pub(crate) at: u64,
}

/// Whose counters.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Counters {
    pub(crate) namespace: String,
}

/// Everything there is in a namespace.
pub(super) async fn dump(ask: &Asker<'_>, namespace: &str) -> Answer {
    let shards: Vec<ShardNo> = ask.current.map.shard_numbers().collect();
    let free = Manner::free();
    let cut = Cut::begin(ask, namespace, &shards, None, (&free, |_| Vec::new())).await?.fixed();
    let position = cut.told(std::iter::empty());
    let dump = Dump {
        native: ask.native.clone(),
        shared: Arc::clone(ask.shared),
        current: ask.shared.cluster.current().ok_or_else(wrong_epoch_trouble)?,
        namespace: namespace.to_owned(),
        position,
        collections: catalog::names(ask, namespace, &cut).await?.1,
        tail: tail(ask, namespace, &cut).await?,
        lines: 0,
    };
    cut.end()?;
    let (pieces, body) = stream(ask.shared)?;
    tokio::spawn(async move {
        if dump.write(&pieces).await.is_ok() {
            pieces.complete();
        }
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// What comes after the documents.
async fn tail(ask: &Asker<'_>, namespace: &str, cut: &Cut<'_>) -> Result<Vec<DumpLine>, Stop> {
    let question = Counters { namespace: namespace.to_owned() };
    let mut counters: BTreeMap<String, u64> = BTreeMap::new();
    for reply in ask.all(|_| cut.message(Message::json(COUNTERS, &question))).await? {
        let part: Vec<(String, u64)> = reply.read()?;
        for (collection, next) in part {
            let known = counters.entry(collection).or_default();
            *known = next.max(*known);
        }
    }
    let indexes = ask.one(Asker::first(), &Message::get(&target(namespace, "indexes"))).await?;
    let Indexes { indexes } = indexes.read()?;
    let counters = counters.into_iter().map(|(collection, next)| DumpLine::Counter { collection, next });
    let mut lines: Vec<DumpLine> = counters.collect();
    for IndexInfo { collection, field, .. } in indexes {
        lines.push(DumpLine::index(collection, &read_field(&field).map_err(Trouble::from)?));
    }
    Ok(lines)
}

/// A dump and how far it is.
struct Dump {
    native: Native,
    shared: Arc<Shared>,
    current: Arc<Current>,
    namespace: String,
    position: u64,
    collections: Vec<String>,
    tail: Vec<DumpLine>,
    lines: u64,
}

/// It does not get to its end: a shard cannot be asked any more, or nobody listens.
struct BrokenOff;

impl Dump {
    async fn write(mut self, pieces: &Pieces) -> Result<(), BrokenOff> {
        let head = DumpHead {
            lockwood: DumpHead::KIND.to_owned(),
            format: DumpHead::FORMAT,
            namespace: self.namespace.clone(),
            position: self.position,
            horizon: self.position,
        };
        self.line(pieces, &head).await?;
        for collection in std::mem::take(&mut self.collections) {
            let shards: Vec<ShardNo> = match is_everywhere(&collection) {
                true => vec![Asker::first()],
                false => self.current.map.shard_numbers().collect(),
            };
            for shard in shards {
                self.documents(pieces, shard, &collection).await?;
            }
        }
        for line in std::mem::take(&mut self.tail) {
            self.line(pieces, &line).await?;
        }
        let end = DumpLine::End { lines: self.lines };
        self.line(pieces, &end).await
    }

    async fn line(&mut self, pieces: &Pieces, line: &impl Serialize) -> Result<(), BrokenOff> {
        let mut text = serde_json::to_vec(line).expect("lines can be written");
        text.push(b'\n');
        self.pass_on(pieces, text.into()).await
    }

    async fn pass_on(&mut self, pieces: &Pieces, text: Bytes) -> Result<(), BrokenOff> {
        self.lines += text.iter().filter(|byte| **byte == b'\n').count() as u64;
        pieces.send(text).await.map_err(|_| BrokenOff)
    }

    async fn documents(
        &mut self,
        pieces: &Pieces,
        shard: ShardNo,
        collection: &str,
    ) -> Result<(), BrokenOff> {
        let question =
            Lines { namespace: self.namespace.clone(), collection: collection.to_owned(), at: self.position };
        let mut body = match self.open(shard, &Message::json(LINES, &question)).await {
            Ok(body) => body,
            Err(trouble) => {
                tracing::warn!(why = trouble.message, "a dump of several shards is broken off");
                return Err(BrokenOff);
            }
        };
        while let Some(frame) = body.frame().await {
            let piece = frame.map_err(|_| BrokenOff)?.into_data().unwrap_or_default();
            self.pass_on(pieces, piece).await?;
        }
        Ok(())
    }

    /// The answer of a shard while it is written.
    async fn open(&self, shard: ShardNo, message: &Message) -> Result<Body, Trouble> {
        let Dump { native, shared, current, .. } = self;
        let ask = Asker { native, shared, current };
        ask.check_map()?;
        let response: Response = match ask.is_own(shard) {
            true => ask.request_here(message).await?,
            false => ask.open(shard, message).await?,
        };
        match response.status().is_success() && !response.headers().contains_key(EPOCH) {
            true => Ok(response.into_body()),
            false => Err(wrong_epoch_trouble()),
        }
    }
}
