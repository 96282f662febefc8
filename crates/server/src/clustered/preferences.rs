//! The hosts that operators prefer for each shard: on record in the database, noted by the owner of shard 1, and told to the
//! ownership of every node. Knows nothing of what placement makes of them.

use super::ClusterNode;
use crate::trouble::Trouble;
use lockwood_router::{Host, Preferences, ShardEpoch, ShardNo, ownership::Event};
use lockwood_wire::Code;
use std::sync::Arc;

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

/// Tells the ownership of this node of the hosts on record whenever they change. Looks after each renewal.
pub(super) async fn watch(node: Arc<ClusterNode>) {
    let (mut renewals, mut known) = (node.topology.subscribe(), Vec::new());
    while renewals.changed().await.is_ok() {
        match read(&node).await {
            Ok(list) if list != known => {
                node.reports.report(Event::Listed(preferences(&list)));
                known = list;
            }
            Ok(_) => {}
            Err(trouble) => tracing::debug!(error = trouble.message, "look for the hosts of shards"),
        }
    }
}

fn preferences(list: &[Vec<Host>]) -> Preferences {
    let listed = (1..).map(ShardNo).zip(list.iter().cloned());
    Preferences(listed.filter(|(_, hosts)| !hosts.is_empty()).collect())
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
        assert_eq!(preferences.0.into_iter().collect::<Vec<_>>(), [(ShardNo(2), vec![host])]);
    }
}
