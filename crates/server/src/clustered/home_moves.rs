//! Homes that move, as a node sees it: it looks for changes after each renewal, has shards opened anew that are to give homes away or
//! have got some, and answers operators. Knows nothing of what a home hands over.

use super::{ClusterNode, guards};
use lockwood_cluster::{DatabaseError, Placed};
use lockwood_node::trouble::Trouble;
use lockwood_router::{ShardEpoch, ShardNo, ownership::Event};
use lockwood_wire::{Code, NamespaceHome};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How long an operator waits for a home to move.
const MOVE_TIMEOUT: Duration = Duration::from_secs(15);
const MOVE_INTERVAL: Duration = Duration::from_millis(20);
/// How long a shard may take to be opened anew until other nodes are told all the same.
const REOPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// What was looked at last.
#[derive(Default)]
struct Looked {
    changes: u64,
    /// The shards with homes that are wanted elsewhere.
    left: Vec<ShardNo>,
}

/// Looks after each renewal, for as long as the node runs.
pub(super) async fn watch(node: Arc<ClusterNode>) {
    let (mut renewals, mut looked) = (node.topology.subscribe(), Looked::default());
    while renewals.changed().await.is_ok() {
        if let Err(trouble) = look(&node, &mut looked).await {
            tracing::debug!(error = trouble.message, "look for homes that move");
        }
    }
}

async fn look(node: &Arc<ClusterNode>, looked: &mut Looked) -> Result<(), Trouble> {
    let changes = node.homes.look().await?;
    if changes != looked.changes || !looked.left.is_empty() {
        let left = node.database.shards_to_leave().await.map_err(|error| unavailable(&error))?;
        *looked = Looked { changes, left };
    }
    for served in node.all_served() {
        let Some(membership) = &served.shared.membership else { continue };
        let (shard, epoch) = (membership.shard, membership.epoch);
        if membership.has_to_reopen(looked.left.contains(&shard)) {
            tracing::info!(
                shard = shard.0,
                epoch = epoch.0,
                "a shard is opened anew: homes leave it, or have come"
            );
            node.reports.report(Event::Reopen { shard, epoch });
            tokio::spawn(tell_when_reopened(Arc::clone(node), shard, epoch));
        }
    }
    Ok(())
}

/// Has all nodes look at the rows now. Saves up to a renewal's interval.
pub(super) async fn tell(node: Arc<ClusterNode>) {
    node.reports.report(Event::Hint);
    lockwood_cluster::hint(&node.peers, &node.topology.others()).await;
}

/// The same as soon as a shard is served under another epoch: connections to the one before would end a little later.
async fn tell_when_reopened(node: Arc<ClusterNode>, shard: ShardNo, epoch: ShardEpoch) {
    let deadline = Instant::now() + REOPEN_TIMEOUT;
    let is_later = |served: super::Served| {
        served.shared.membership.as_ref().is_some_and(|membership| membership.epoch > epoch)
    };
    while !node.served(shard).is_some_and(is_later) && Instant::now() < deadline {
        tokio::time::sleep(MOVE_INTERVAL).await;
    }
    tell(node).await;
}

/// Where the home of a namespace is, and where it is wanted.
pub(super) async fn show(node: &ClusterNode, namespace: &str) -> Result<NamespaceHome, Trouble> {
    let placed = find(node, namespace).await?;
    let target = node.database.home_target(namespace).await.map_err(|error| unavailable(&error))?;
    let target = target.filter(|target| *target != placed.home).map(|target| target.0);
    Ok(NamespaceHome {
        namespace: namespace.to_owned(),
        home: placed.home.0,
        spread: placed.is_spread,
        target,
    })
}

/// Moves the home of a spread namespace, and waits until it is served at the new shard.
pub(super) async fn move_home(
    node: &Arc<ClusterNode>,
    namespace: &str,
    to: ShardNo,
) -> Result<NamespaceHome, Trouble> {
    let placed = find(node, namespace).await?;
    let shards = node.shards();
    if shards.is_empty() {
        let message = "this node has not read yet which shards there are; try again";
        return Err(Trouble::new(Code::ShardUnreachable, message));
    }
    if !shards.contains(&to) {
        let numbers: Vec<String> = shards.iter().map(|shard| shard.0.to_string()).collect();
        let message = format!("there is no shard {}; there are {}", to.0, numbers.join(", "));
        return Err(Trouble::new(Code::NoShard, message));
    }
    if !placed.is_spread {
        return Err(whole(namespace, placed.home));
    }
    let wanted = node.database.want_home(namespace, to).await.map_err(|error| unavailable(&error))?;
    let home = wanted.ok_or_else(|| unknown(namespace))?;
    if home != to {
        tracing::warn!(namespace, from = home.0, to = to.0, "an operator moves the home of a namespace");
        tell(Arc::clone(node)).await;
    }
    let deadline = Instant::now() + MOVE_TIMEOUT;
    loop {
        let Placed { home, .. } = find(node, namespace).await?;
        let is_late = Instant::now() >= deadline;
        // Once the row names the new home, its shard is opened anew, or its next owner opens it.
        if home == to && (is_late || guards::is_served(node, namespace, to).await) {
            return show(node, namespace).await;
        }
        if is_late {
            return Err(stays(namespace, home, to));
        }
        tokio::time::sleep(MOVE_INTERVAL).await;
    }
}

/// What is on record now, whatever is remembered.
async fn find(node: &ClusterNode, namespace: &str) -> Result<Placed, Trouble> {
    let found = node.database.find_home(namespace).await.map_err(|error| unavailable(&error))?;
    found.ok_or_else(|| unknown(namespace))
}

fn unknown(namespace: &str) -> Trouble {
    let message = format!(
        "there is no namespace called {namespace:?}; `lockwood status` lists those that there are, and one begins when \
         something is written or locked in it"
    );
    Trouble::new(Code::UnknownNamespace, message)
}

fn whole(namespace: &str, home: ShardNo) -> Trouble {
    let home = home.0;
    let message = format!(
        "all documents of {namespace} are on shard {home} with its locks, so its home cannot move without them; to have another \
         node serve shard {home}, use `lockwood cluster move {home} NODE`"
    );
    Trouble::new(Code::WholeNamespace, message)
}

fn stays(namespace: &str, home: ShardNo, to: ShardNo) -> Trouble {
    let message = format!(
        "the home of {namespace} is still shard {}: that shard or shard {} has no owner that answers, see `lockwood cluster \
         status`. It moves as soon as both have one; move it to shard {} to end that",
        home.0, to.0, home.0
    );
    Trouble::unreachable(home, message)
}

fn unavailable(error: &DatabaseError) -> Trouble {
    Trouble::new(
        Code::ShardUnreachable,
        format!("the database of the cluster does not say where homes are: {error}; try again"),
    )
}
