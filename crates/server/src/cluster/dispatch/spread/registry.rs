//! What every shard has as a whole, schemas and indexes: the first shard decides about a change, and the others are
//! made like it. Knows nothing of what a schema is.
//!
//! A change that does not get to all shards is brought to its end by the next one, as shards are given everything
//! there is and not what was done.

use super::{
    super::{Message, Whole},
    Answer,
    ask::{Asker, Stop},
    cut::Manner,
    hold::Alone,
    target,
};
use crate::{
    cluster::{received, work::EVERYWHERE},
    shared::Shared,
    trouble::Trouble,
};
use axum::response::IntoResponse;
use lockwood_model::{Depth, DocumentKey, Mode, Path, Position, Resource};
use lockwood_storage::{Entry, Order, StoreError};
use lockwood_wire::{
    Code,
    documents::{Indexes, Isolation},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Where the documents are asked for that every shard has, and given.
pub(crate) const RECORDS: &str = "/internal/everywhere";
/// Where a shard is told which indexes there are.
pub(crate) const INDEXES: &str = "/internal/indexes";

/// How long a change waits for others.
const PATIENCE_MS: u64 = 20_000;

/// Which indexes a namespace has.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IndexList {
    pub(crate) namespace: String,
    /// Collection and field.
    pub(crate) indexes: Vec<(String, String)>,
}

/// Has the first shard make a change, and all others follow it.
pub(super) async fn change(ask: &Asker<'_>, namespace: &str, whole: &Whole) -> Answer {
    ask.check_map()?;
    let manner = Manner { isolation: Isolation::Locked, tokens: Vec::new(), wait_ms: Some(PATIENCE_MS) };
    // One change at a time, so that the others get them in the order they were made.
    let alone = Alone::take(ask, &manner, &turn(namespace)).await?;
    let reply = ask.tell(Asker::first(), &whole.message()).await?;
    // Also if it was refused: the one before may not have got everywhere.
    follow(ask, namespace).await?;
    alone.release().await?;
    Ok(reply.into_response())
}

/// Nobody else uses this path.
fn turn(namespace: &str) -> Resource {
    Resource::new(Path::from_segments(["registry", namespace]), Mode::Write, Depth::SUBTREE)
}

/// Makes all shards like the first.
async fn follow(ask: &Asker<'_>, namespace: &str) -> Result<(), Stop> {
    let name: String = form_urlencoded::byte_serialize(namespace.as_bytes()).collect();
    let records = ask.tell(Asker::first(), &Message::get(&format!("{RECORDS}?namespace={name}"))).await?;
    let records = records.bytes()?;
    let indexes = ask.tell(Asker::first(), &Message::get(&target(namespace, "indexes"))).await?;
    let Indexes { indexes } = indexes.read()?;
    let indexes = IndexList {
        namespace: namespace.to_owned(),
        indexes: indexes.into_iter().map(|index| (index.collection, index.field)).collect(),
    };
    for shard in ask.current.map.shard_numbers().filter(|shard| *shard != Asker::first()) {
        ask.tell(shard, &Message::post(RECORDS, records.clone())).await?.bytes()?;
        ask.tell(shard, &Message::json(INDEXES, &indexes)).await?.bytes()?;
    }
    Ok(())
}

/// The documents of a namespace that every shard has, as this one has them.
pub(crate) fn records(shared: &Shared, namespace: &str) -> Result<Entry, Trouble> {
    let reading = shared.shard.read();
    let mut documents = Vec::new();
    if let Some((id, _)) = reading.namespace(namespace)? {
        for collection in EVERYWHERE {
            let found = reading.state().documents(id, collection, None, Order::Forward);
            let keys: Vec<DocumentKey> =
                found.map(|found| found.map(|(at, _)| at)).collect::<Result<_, StoreError>>()?;
            documents.extend(reading.state().export(id, &keys)?);
        }
    }
    let (namespace, horizon) = (namespace.into(), Position::START);
    Ok(Entry::Installed { namespace, transition: 0, horizon, documents })
}

/// Takes over those that are newer; durable when it answers.
pub(crate) async fn take_records(shared: &Arc<Shared>, body: &[u8]) -> Result<(), Trouble> {
    let Entry::Installed { namespace, documents, .. } = received::read_entry(body)? else {
        return Err(Trouble::new(Code::BadBody, "what every shard has is not a record"));
    };
    if documents.is_empty() {
        return Ok(());
    }
    let _changing = shared.schemas.changing.lock().await;
    let index = shared.shard.install_newer(&namespace, documents)?;
    shared.shard.shown(index).await?;
    shared.schemas.reread(shared, &namespace);
    Ok(())
}
