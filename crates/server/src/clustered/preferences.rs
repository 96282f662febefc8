//! The hosts that operators prefer for each shard: on record in the database, noted by the owner of shard 1, and told to the
//! ownership of every node. The latest map is kept beside them, for reads by copies. Knows nothing of what placement and reads
//! make of them.

use super::ClusterNode;
use crate::cluster::Current;
use lockwood_node::trouble::Trouble;
use lockwood_router::{Host, NodeName, Preferences, ShardEpoch, ShardMap, ShardNo, This, ownership::Event};
use lockwood_wire::Code;
use std::sync::Arc;

/// What a node has read of hosts and of the map.
#[derive(Default, Clone)]
pub(super) struct Placing {
    pub(super) preferences: Arc<Preferences>,
    /// Whether the latest map was read, or it was read that there is none.
    pub(super) is_read: bool,
    pub(super) map: Option<Arc<ShardMap>>,
    /// The same, with its functions compiled.
    pub(super) current: Option<Arc<Current>>,
}

/// The hosts of each shard, by its number, as they are on record.
pub(crate) async fn read(node: &ClusterNode) -> Result<Vec<Vec<Host>>, Trouble> {
    let found = node.database.hosts().await.map_err(|error| unavailable(&error.to_string()))?;
    let read = |bytes: Vec<u8>| serde_json::from_slice(&bytes);
    let read = found.map(read).transpose().map_err(|error| unavailable(&error.to_string()))?;
    Ok(read.unwrap_or_default())
}

/// Notes the hosts of the first shards. Refused if another node owns the shard that decides this by now.
pub(crate) async fn note(
    node: &ClusterNode,
    list: Vec<Vec<Host>>,
    owner: (ShardNo, ShardEpoch),
) -> Result<(), Trouble> {
    let mut all = read(node).await?;
    all.resize(all.len().max(list.len()), Vec::new());
    all.iter_mut().zip(list).for_each(|(known, hosts)| *known = hosts);
    let bytes = serde_json::to_vec(&all).expect("a list is valid JSON");
    match node.database.set_hosts(&bytes, owner).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(unavailable("another node owns shard 1 by now")),
        Err(error) => Err(unavailable(&error.to_string())),
    }
}

/// Notes what the node of this name prefers to own, if anything. Refused if another node owns the shard that decides this by now.
pub(crate) async fn note_this(
    node: &ClusterNode,
    name: &str,
    this: Option<This>,
    owner: (ShardNo, ShardEpoch),
) -> Result<(), Trouble> {
    match node.database.set_this(&NodeName::from(name), this, owner).await {
        Ok(true) => {
            let this = this.map(This::number);
            tracing::warn!(node = name, this, "a node prefers another shard, or none");
            Ok(())
        }
        Ok(false) => Err(unavailable("another node owns shard 1 by now")),
        Err(error) => Err(unavailable(&error.to_string())),
    }
}

/// Tells the ownership of this node of the hosts on record whenever they change. Looks after each renewal.
pub(super) async fn watch(node: Arc<ClusterNode>) {
    let mut renewals = node.topology.subscribe();
    while renewals.changed().await.is_ok() {
        if let Err(trouble) = look(&node).await {
            tracing::debug!(error = trouble.message, "look for the hosts of shards, and for the map");
        }
    }
}

async fn look(node: &ClusterNode) -> Result<(), Trouble> {
    let this = node.database.this().await.map_err(|error| unavailable(&error.to_string()))?;
    let listed = Preferences { this, ..preferences(&read(node).await?) };
    let known = node.placing.read().clone();
    if listed != *known.preferences {
        node.reports.report(Event::Listed(listed.clone()));
        node.placing.write().preferences = Arc::new(listed);
    }
    let epoch = node.database.map_epoch().await.map_err(|error| unavailable(&error.to_string()))?;
    if !known.is_read || epoch != known.map.map(|map| map.epoch) {
        let map = node.database.map().await.map_err(|error| unavailable(&error.to_string()))?;
        let read = |(_, bytes): (u64, Vec<u8>)| {
            ShardMap::from_json(&serde_json::from_slice(&bytes).ok()?).ok().map(Arc::new)
        };
        let map = map.and_then(read);
        let current = map.as_ref().map(|map| Arc::new(Current::unserved(ShardMap::clone(map))));
        let mut placing = node.placing.write();
        placing.is_read = map.is_some() == epoch.is_some();
        (placing.map, placing.current) = (map, current);
    }
    teach(node).await
}

/// Gives the latest map to the shards here that it does not name, as the driver tells only the others of it. They may be homes, and
/// members wait until their home has the map that they go by.
async fn teach(node: &ClusterNode) -> Result<(), Trouble> {
    let Some(map) = node.placing.read().map.clone() else { return Ok(()) };
    for served in node.all_served() {
        let is_named = map.shard_numbers().any(|shard| shard == served.shard());
        if !is_named && served.shared.cluster.epoch() < map.epoch {
            served.shared.cluster.adopt(&served.shared, ShardMap::clone(&map)).await?;
        }
    }
    Ok(())
}

fn preferences(list: &[Vec<Host>]) -> Preferences {
    let listed = (1..).map(ShardNo).zip(list.iter().cloned());
    Preferences::listed(listed.filter(|(_, hosts)| !hosts.is_empty()).collect())
}

fn unavailable(why: &str) -> Trouble {
    let message = format!("the hosts of shards in the database of the cluster: {why}; try again");
    Trouble::new(Code::ShardUnreachable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_counted_from_one_and_empty_lists_prefer_nothing() {
        let host = serde_json::from_str::<Host>(r#"["rw", 1, "n1", 7118]"#).unwrap();
        let preferences = preferences(&[Vec::new(), vec![host.clone()]]);
        assert_eq!(preferences.lists.into_iter().collect::<Vec<_>>(), [(ShardNo(2), vec![host])]);
    }
}
