//! Homes at shards that leave the map: the owner of shard 1 notes where each is wanted, and the owners of those shards move them. A home
//! that an operator has moved to a shard beside the map stays there. Knows nothing of how a home moves.

use super::driver::{self, FIRST};
use crate::shared::Shared;
use lockwood_cluster::DatabaseError;
use lockwood_model::DocumentKey;
use lockwood_node::{territory::SYSTEM, trouble::Trouble};
use lockwood_router::{Epoch, Phase, ShardMap, ShardNo, pick_home};
use lockwood_wire::Code;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// How often it is looked whether there is another map.
const INTERVAL: Duration = Duration::from_secs(1);
/// Homes that are noted at a time.
const HOMES_LEN_MAX: u32 = 100;

/// The last steady map whose homes were looked after. On record, so that the next owner goes on.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Looked {
    epoch: Epoch,
    shards: Vec<u32>,
}

fn key() -> DocumentKey {
    DocumentKey::new("shards", "homes".parse().expect("it is a key"))
}

/// Looks after each change of the map, for as long as this shard is owned here.
pub(crate) async fn watch(shared: Arc<Shared>) {
    if shared.cluster.this() != FIRST {
        return;
    }
    let mut done: Epoch = 0;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(current) = shared.cluster.current() else { continue };
        let map = &current.map;
        // While documents move both their shards are named.
        if map.epoch == done || map.phase != Phase::Steady || !shared.authority.is_fresh() {
            continue;
        }
        match look(&shared, map).await {
            Ok(()) => done = map.epoch,
            Err(trouble) => {
                tracing::warn!(why = trouble.message, "look for homes at shards that have left the map");
            }
        }
    }
}

async fn look(shared: &Arc<Shared>, map: &ShardMap) -> Result<(), Trouble> {
    let before = load(shared)?;
    if before.epoch >= map.epoch {
        return Ok(());
    }
    let shards: Vec<ShardNo> = map.shard_numbers().collect();
    let left = before.shards.into_iter().map(ShardNo).filter(|shard| !shards.contains(shard));
    want_elsewhere(shared, &left.collect::<Vec<_>>(), &shards).await.map_err(|error| {
        Trouble::new(Code::ShardUnreachable, format!("the database of the cluster: {error}"))
    })?;
    let looked = Looked { epoch: map.epoch, shards: shards.iter().map(|shard| shard.0).collect() };
    let json = serde_json::to_string(&looked).expect("numbers are valid JSON");
    driver::put(shared, key(), "looked", &json).await
}

fn load(shared: &Shared) -> Result<Looked, Trouble> {
    let reading = shared.shard.read();
    let Some((id, _)) = reading.namespace(SYSTEM)? else { return Ok(Looked::default()) };
    let Some(document) = reading.state().document(id, &key())? else { return Ok(Looked::default()) };
    let read = document.get("looked").and_then(|json| serde_json::from_str(json.as_str()).ok());
    Ok(read.unwrap_or_default())
}

/// Notes for all homes at some shards that they are wanted at others.
async fn want_elsewhere(shared: &Shared, left: &[ShardNo], shards: &[ShardNo]) -> Result<(), DatabaseError> {
    let Some(membership) = &shared.membership else { return Ok(()) };
    let database = &membership.node.database;
    loop {
        let homes = database.homes_at(left, HOMES_LEN_MAX).await?;
        if homes.is_empty() {
            return Ok(());
        }
        for (namespace, from) in homes {
            let Some(to) = pick_home(&namespace, shards) else { return Ok(()) };
            tracing::info!(%namespace, from = from.0, to = to.0, "a home is to leave a shard that has left the map");
            database.want_home(&namespace, to).await?;
        }
    }
}
