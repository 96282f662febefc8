//! What a node says of itself and of its cluster, whichever shards it owns. Knows nothing of documents or locks.

use super::{
    ClusterNode, FIRST, Served, ShardCall,
    alerts::{Alert, STALE_MS, Seen, Told},
    follower::{Followed, Own},
    home_moves,
};
use crate::{cluster::dispatch::decoded, native::problem};
use axum::{
    Json,
    body::Body,
    response::{IntoResponse, Response},
};
use hyper::{Method, Request, StatusCode, header};
use lockwood_cluster::DatabaseError;
use lockwood_node::{
    metrics::{self, Gauges, Process},
    trouble::Trouble,
};
use lockwood_router::{NodeName, NodeRow, Preferences, ShardNo, ShardRow, View, ownership::Event};
use lockwood_storage::postgres::Standby;
use lockwood_wire::{
    ClusterFollowerInfo, ClusterNodeInfo, ClusterShardInfo, ClusterStatus, ClusterTransitionInfo, Code,
    DatabaseInfo, Readiness, StandbyInfo, shards::TransitionStatus,
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// How long the database may take to count namespaces, and to tell of its standbys.
const READING_TIMEOUT: Duration = Duration::from_secs(1);
/// How many namespaces of a shard a request may have named.
const NAMES_MAX: u32 = 1_000;
/// How long to wait for the rows after a change of them.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(1);
/// Where the driver of a change of the map tells how far it is, and how long it may take.
const TRANSITION: &str = "/v1/_system/shard/transition";
const TRANSITION_TIMEOUT: Duration = Duration::from_secs(1);
/// How often it is looked for alerts.
const ALERTS_INTERVAL: Duration = Duration::from_secs(1);
/// So many looks for alerts come with one at the settings of the database.
const SETTINGS_INTERVAL: u64 = 5;

/// What a request asks of the node itself, or of its cluster.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Health,
    Readiness,
    Metrics,
    Cluster {
        /// How many namespaces of each shard to name.
        names: u32,
    },
    /// Have a node give its shards away and take none, or take some again.
    Drain {
        node: String,
        drains: bool,
    },
    /// Have a node own a shard, for as long as it lives; none ends that.
    Move {
        shard: u32,
        node: Option<String>,
    },
    /// Take a node off the list that does not come back.
    Forget {
        node: String,
    },
    /// Say where the home of a namespace is, or move it.
    Home {
        namespace: String,
        to: Option<u32>,
    },
    /// It has parameters that there are not.
    Parameters,
}

impl Asked {
    /// None if it asks for what shards hold.
    pub(super) fn of<B>(request: &Request<B>) -> Option<Asked> {
        let segments: Vec<&str> = request.uri().path().split('/').skip(1).collect();
        // Load balancers ask for the head alone.
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        let asked = match (method, &segments[..]) {
            (&Method::GET, ["healthz"]) => Asked::Health,
            (&Method::GET, ["readyz"]) => Asked::Readiness,
            (&Method::GET, ["metrics"]) => Asked::Metrics,
            (&Method::GET, ["v1", "cluster"]) => {
                return Some(
                    names(request.uri().query()).map_or(Asked::Parameters, |names| Asked::Cluster { names }),
                );
            }
            (&Method::PUT, ["v1", "cluster", "nodes", node, "drain"]) => {
                Asked::Drain { node: decoded(node), drains: true }
            }
            (&Method::DELETE, ["v1", "cluster", "nodes", node, "drain"]) => {
                Asked::Drain { node: decoded(node), drains: false }
            }
            (&Method::DELETE, ["v1", "cluster", "nodes", node]) => Asked::Forget { node: decoded(node) },
            (&Method::PUT, ["v1", "cluster", "shards", shard, "owner", node]) => {
                Asked::Move { shard: shard.parse().ok()?, node: Some(decoded(node)) }
            }
            (&Method::GET, ["v1", namespace, "shard", "home"]) => {
                Asked::Home { namespace: decoded(namespace), to: None }
            }
            (&Method::PUT, ["v1", namespace, "shard", "home", shard]) => {
                Asked::Home { namespace: decoded(namespace), to: Some(shard.parse().ok()?) }
            }
            (&Method::DELETE, ["v1", "cluster", "shards", shard, "owner"]) => {
                Asked::Move { shard: shard.parse().ok()?, node: None }
            }
            _ => return None,
        };
        Some(if request.uri().query().is_some() { Asked::Parameters } else { asked })
    }
}

/// How many namespaces to name, by the parameters of a request; none if they are wrong.
fn names(query: Option<&str>) -> Option<u32> {
    let Some(query) = query else { return Some(0) };
    query.strip_prefix("homes=")?.parse().ok().filter(|names| (1..=NAMES_MAX).contains(names))
}

/// Answers what is about the node or its cluster.
pub(super) async fn answer(node: &Arc<ClusterNode>, asked: Asked) -> Response<Body> {
    match asked {
        Asked::Health => "ok\n".into_response(),
        Asked::Readiness => readiness(node),
        Asked::Metrics => metrics(node),
        Asked::Cluster { names } => Json(status_now(node, names).await).into_response(),
        Asked::Drain { node: name, drains } => told(drain(node, &name, drains).await),
        Asked::Move { shard, node: to } => told(hand_over(node, shard, to.as_deref()).await),
        Asked::Forget { node: name } => told(forget(node, &name).await),
        Asked::Home { namespace, to: None } => told(home_moves::show(node, &namespace).await),
        Asked::Home { namespace, to: Some(to) } => {
            told(home_moves::move_home(node, &namespace, ShardNo(to)).await)
        }
        Asked::Parameters => {
            let message = format!(
                "this address takes no such parameter; /v1/cluster takes homes, from 1 to {NAMES_MAX}, the others none"
            );
            problem(Trouble::new(Code::BadQuery, message))
        }
    }
}

fn told(answer: Result<impl Serialize, Trouble>) -> Response<Body> {
    answer.map_or_else(problem, |answer| Json(answer).into_response())
}

/// The cluster with what was just changed.
async fn changed(node: &Arc<ClusterNode>) -> ClusterStatus {
    let mut rows = node.topology.subscribe();
    // A renewal that is under way may have read the rows before.
    for _ in 0..2 {
        node.reports.report(Event::Hint);
        let _ = tokio::time::timeout(CHANGE_TIMEOUT, rows.changed()).await;
    }
    status_now(node, 0).await
}

async fn drain(node: &Arc<ClusterNode>, name: &str, drains: bool) -> Result<ClusterStatus, Trouble> {
    if !node.database.set_drains(name, drains).await.map_err(|error| unavailable(&error))? {
        return Err(no_node(node, name));
    }
    tracing::warn!(node = name, drains, "an operator drains a node, or ends that");
    Ok(changed(node).await)
}

async fn hand_over(node: &Arc<ClusterNode>, shard: u32, to: Option<&str>) -> Result<ClusterStatus, Trouble> {
    if let Some(name) = to
        && node.topology.view().node(&NodeName::from(name)).is_none()
    {
        return Err(no_node(node, name));
    }
    if !node.database.pin(ShardNo(shard), to).await.map_err(|error| unavailable(&error))? {
        return Err(Trouble::new(Code::NoShard, format!("there is no shard {shard}")));
    }
    tracing::warn!(shard, to, "an operator moves a shard, or ends that");
    Ok(changed(node).await)
}

async fn forget(node: &Arc<ClusterNode>, name: &str) -> Result<ClusterStatus, Trouble> {
    if node.topology.view().node(&NodeName::from(name)).is_none() {
        return Err(no_node(node, name));
    }
    if !node.database.forget(name).await.map_err(|error| unavailable(&error))? {
        let message = format!(
            "{name} is live, so it would be on the list again at once; stop it first, or have it give its shards away with \
             `lockwood cluster drain {name}`"
        );
        return Err(Trouble::new(Code::NodeLive, message));
    }
    tracing::warn!(node = name, "an operator takes a node off the list");
    Ok(changed(node).await)
}

fn no_node(node: &ClusterNode, name: &str) -> Trouble {
    let view = node.topology.view();
    let names: Vec<&str> = view.nodes.iter().map(|row| row.name.as_str()).collect();
    Trouble::new(Code::NoNode, format!("there is no node {name:?}; there are {}", names.join(", ")))
}

fn unavailable(error: &DatabaseError) -> Trouble {
    Trouble::new(Code::ShardUnreachable, format!("{error}; try again"))
}

/// Why a node is not ready. It is if it knows the shard map, or that there is none, and an owner of some shard: requests for
/// the others wait for theirs.
fn unready(node: &ClusterNode) -> Option<&'static str> {
    match () {
        () if node.stopping.load(Ordering::Acquire) => Some("draining"),
        () if node.topology.is_lost() => Some("database_unreachable"),
        () if !node.placing.read().is_read => Some("no_map"),
        () if !node.has_owner() => Some("no_owner"),
        () => None,
    }
}

/// Namespaces in grace are those of the shards that the node owns.
fn readiness(node: &ClusterNode) -> Response<Body> {
    let (status, word) = match unready(node) {
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
        None => (StatusCode::OK, "ready"),
    };
    let grace = node.all_served().iter().flat_map(|served| served.shared.grace.list()).collect();
    let durability = Some(node.durability_in_words());
    (status, Json(Readiness { status: word.to_owned(), grace, durability })).into_response()
}

/// Those of the process, and of all shards that it owns.
fn metrics(node: &ClusterNode) -> Response<Body> {
    let front = &node.front;
    let mut gauges = Gauges {
        connections: front.connections.load(Ordering::Relaxed),
        ready: unready(node).is_none(),
        held_bytes: front.memory.held(),
        held_refusals: front.memory.refusals(),
        process: Process::read(&front.config.data),
        peer_calls: node.peers.made().map(|(kind, made)| (kind.as_str(), made)).collect(),
        ..Gauges::default()
    };
    let sync_time = metrics::Histogram::default();
    for Served { shared, .. } in node.all_served() {
        gauges.add(shared.gauges());
        sync_time.add_all(&shared.shard.counts().sync_time);
    }
    let text = front.metrics.render(&gauges, &sync_time);
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

/// The cluster as it is now, with the names of so many namespaces of each shard.
async fn status_now(node: &Arc<ClusterNode>, names: u32) -> ClusterStatus {
    node.read_durability().await;
    // Without the database it is not known, and the rest of the status still is.
    let homes = tokio::time::timeout(READING_TIMEOUT, homes(node, names));
    let standbys = tokio::time::timeout(READING_TIMEOUT, node.database.standbys());
    let (homes, standbys, told, transition) =
        tokio::join!(homes, standbys, node.all_tell(), transition(node));
    let homes = homes.ok().and_then(Result::ok);
    let mut status = status(node);
    let standbys = standbys.ok().and_then(Result::ok).flatten();
    status.database.standbys = standbys.map(|all| all.into_iter().map(standby_info).collect());
    if let Some((transition, alerts)) = transition {
        let driver = status.shards.iter().find(|shard| shard.shard == FIRST.0);
        let driver = driver.and_then(|shard| shard.owner.clone());
        status.transition = Some(ClusterTransitionInfo { driver, ..transition });
        status.alerts.extend(alerts);
    }
    for (name, Own { copies, losses, connections }) in told {
        for Followed { shard, lag_ms, last } in copies {
            if let Some(found) = status.shards.iter_mut().find(|found| found.shard == shard) {
                found.followers.push(ClusterFollowerInfo { node: name.to_string(), lag_ms, last });
            }
        }
        status.alerts.extend(losses.iter().map(|loss| {
            format!(
                "{loss}: restore the database from a backup that has it, or go on without, and restart {name} to end this alert"
            )
        }));
        // Its own ones this node has said already.
        status.alerts.extend(connections.into_iter().filter(|_| name != *node.topology.own()));
    }
    for shard in &mut status.shards {
        let of_shard = |homes: &Homes| homes.get(&ShardNo(shard.shard)).cloned().unwrap_or_default();
        let (count, named) = homes.as_ref().map(of_shard).unzip();
        shard.namespaces = count;
        shard.homes = named.filter(|_| names > 0);
    }
    status
}

/// How many namespaces each shard has that has some, and the names of the first.
type Homes = BTreeMap<ShardNo, (u64, Vec<String>)>;

async fn homes(node: &ClusterNode, names: u32) -> Result<Homes, DatabaseError> {
    if names > 0 {
        return node.database.names_by_shard(names).await;
    }
    let counts = node.database.homes_by_shard().await?;
    Ok(counts.into_iter().map(|(shard, count)| (shard, (count, Vec::new()))).collect())
}

fn standby_info(standby: Standby) -> StandbyInfo {
    let Standby { name, address, state, sync_state, lag_ms } = standby;
    StandbyInfo { name, address, state, sync_state, lag_ms }
}

/// The change of the map that is under way, and what is wrong with it, as its driver tells; none if there is none.
async fn transition(node: &Arc<ClusterNode>) -> Option<(ClusterTransitionInfo, Vec<String>)> {
    node.placing.read().map.as_ref()?;
    let answer = node.ask_shard(FIRST, &ShardCall::get(TRANSITION, TRANSITION_TIMEOUT)).await.ok()?;
    let TransitionStatus { step, paused, aborting, donors, waits, alerts, .. } =
        serde_json::from_slice(answer.body()).ok()?;
    if step == "none" {
        return None;
    }
    let copied = donors.iter().map(|donor| donor.copied).sum();
    let total = donors.iter().map(|donor| donor.total).sum();
    let waits = waits.into_iter().map(|wait| wait.whom).collect();
    Some((ClusterTransitionInfo { step, driver: None, copied, total, paused, aborting, waits }, alerts))
}

fn status(node: &ClusterNode) -> ClusterStatus {
    let view = node.topology.view();
    // What the rows say is as old as the last look at them.
    let since_ms = node.topology.age_ms();
    let preferences = Arc::clone(&node.placing.read().preferences);
    let mut nodes: Vec<ClusterNodeInfo> =
        view.nodes.iter().map(|row| node_info(row, (&view, &preferences), since_ms)).collect();
    let mut shards: Vec<ClusterShardInfo> = view.shards.iter().map(|row| shard_info(row, since_ms)).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    shards.sort_by_key(|shard| shard.shard);
    ClusterStatus {
        node: node.topology.own().to_string(),
        nodes,
        shards,
        transition: None,
        alerts: seen(node).into_iter().map(|alert| alert.text).collect(),
        database: DatabaseInfo { durability: node.durability_in_words(), age_ms: since_ms, standbys: None },
    }
}

/// What is wrong, by what this node knows.
fn seen(node: &ClusterNode) -> Vec<Alert> {
    let (view, durability) = (node.topology.view(), node.durability.lock());
    let (own, since_ms) = (node.topology.own(), node.topology.age_ms());
    let mut alerts = Seen { own, view: &view, since_ms, durability: durability.as_ref() }.alerts();
    alerts.extend(node.connection_alerts());
    alerts
}

/// Logs alerts when they begin and when they are over.
pub(super) async fn watch(node: Arc<ClusterNode>) {
    let mut told = Told::default();
    for looks in 0_u64.. {
        tokio::time::sleep(ALERTS_INTERVAL).await;
        if looks % SETTINGS_INTERVAL == 0 {
            node.read_durability().await;
        }
        // Until rows were read there is nothing to say.
        if node.topology.age_ms() != u64::MAX {
            node.watch_others();
            told.tell(&seen(&node));
        }
    }
}

fn node_info(row: &NodeRow, (view, preferences): (&View, &Preferences), since_ms: u64) -> ClusterNodeInfo {
    let age_ms = row.age_ms.saturating_add(since_ms);
    let owned = view.shards.iter().filter(|shard| shard.owner.as_ref() == Some(&row.name));
    let state = if age_ms <= STALE_MS { "live" } else { "stale" };
    ClusterNodeInfo {
        name: row.name.to_string(),
        address: row.address.clone(),
        age_ms,
        state: state.to_owned(),
        drains: row.drains,
        shards: owned.map(|shard| shard.shard.0).collect(),
        this: preferences.this.get(&row.name).map(|this| this.number()),
    }
}

fn shard_info(row: &ShardRow, since_ms: u64) -> ClusterShardInfo {
    ClusterShardInfo {
        shard: row.shard.0,
        owner: row.owner.as_ref().map(NodeName::to_string),
        epoch: row.epoch.0,
        age_ms: row.age_ms.saturating_add(since_ms),
        followers: Vec::new(),
        namespaces: None,
        homes: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_the_node_is_told_from_what_shards_hold() {
        let check = |method: Method, target: &str, expected: Option<Asked>| {
            let request = Request::builder().method(method).uri(target).body(()).unwrap();
            assert_eq!(Asked::of(&request), expected, "{target}");
        };
        check(Method::GET, "/readyz", Some(Asked::Readiness));
        check(Method::GET, "/v1/cluster", Some(Asked::Cluster { names: 0 }));
        check(Method::GET, "/v1/cluster?homes=7", Some(Asked::Cluster { names: 7 }));
        for wrong in ["x=1", "homes=0", "homes=1001", "homes=7&x=1", "homes", ""] {
            check(Method::GET, &format!("/v1/cluster?{wrong}"), Some(Asked::Parameters));
        }
        check(Method::POST, "/v1/cluster/write", None);
        let drain = |drains| Some(Asked::Drain { node: "a b".into(), drains });
        check(Method::PUT, "/v1/cluster/nodes/a%20b/drain", drain(true));
        check(Method::DELETE, "/v1/cluster/nodes/a%20b/drain", drain(false));
        let moved = |node: Option<&str>| Some(Asked::Move { shard: 1, node: node.map(str::to_owned) });
        check(Method::PUT, "/v1/cluster/shards/1/owner/n2", moved(Some("n2")));
        check(Method::DELETE, "/v1/cluster/shards/1/owner", moved(None));
        check(Method::PUT, "/v1/cluster/shards/x/owner/n2", None);
        check(Method::DELETE, "/v1/cluster/nodes/a%20b", Some(Asked::Forget { node: "a b".into() }));
        let home = |to| Some(Asked::Home { namespace: "a b".into(), to });
        check(Method::GET, "/v1/a%20b/shard/home", home(None));
        check(Method::PUT, "/v1/a%20b/shard/home/2", home(Some(2)));
        check(Method::PUT, "/v1/a%20b/shard/home/x", None);
        check(Method::GET, "/v1/shop/documents/a/b", None);
    }
}
