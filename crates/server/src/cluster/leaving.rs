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
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// How often it is looked whether there is another map.
const INTERVAL: Duration = Duration::from_secs(1);
/// Homes that are noted at a time.
const HOMES_LEN_MAX: u32 = 100;
/// Maps that are read at a time.
const MAPS_LEN_MAX: u32 = 100;

/// The last steady map whose homes were looked after. On record, so that the next owner goes on.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Looked {
    epoch: Epoch,
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
    let unreachable = |error: DatabaseError| {
        Trouble::new(Code::ShardUnreachable, format!("the database of the cluster: {error}"))
    };
    let shards: Vec<ShardNo> = map.shard_numbers().collect();
    let named = named_since(shared, before.epoch).await.map_err(unreachable)?;
    let left: Vec<ShardNo> = named.into_iter().filter(|shard| !shards.contains(shard)).collect();
    want_elsewhere(shared, &left, &shards).await.map_err(unreachable)?;
    let looked = Looked { epoch: map.epoch };
    let json = serde_json::to_string(&looked).expect("numbers are valid JSON");
    driver::put(shared, key(), "looked", &json).await
}

/// The shards that maps have named from an epoch on. One map can follow another before anything has looked at the first.
async fn named_since(shared: &Shared, epoch: Epoch) -> Result<BTreeSet<ShardNo>, DatabaseError> {
    let mut named = BTreeSet::new();
    let Some(membership) = &shared.membership else { return Ok(named) };
    let mut from = epoch;
    loop {
        let maps = membership.node.database.maps_from(from, MAPS_LEN_MAX).await?;
        let Some((last, _)) = maps.last() else { return Ok(named) };
        from = last + 1;
        for (_, bytes) in &maps {
            let map = serde_json::from_slice(bytes).ok().and_then(|json| ShardMap::from_json(&json).ok());
            named.extend(map.iter().flat_map(ShardMap::shard_numbers));
        }
    }
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
