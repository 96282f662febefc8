//! From one map to another: how far that is, steering it, and the two steps of it that can be taken by hand.

use super::super::{
    documents::{AnyBody, json_of},
    http::{App, InPath},
};
use super::config::check_change;
use crate::{
    cluster::{
        self, Current,
        driver::{self, Command},
        work::{self, EVERYWHERE, Progress, Row, Task},
    },
    native::HttpError,
    shared::Shared,
};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use lockwood_node::{territory::SYSTEM, trouble::Trouble};
use lockwood_router::Phase;
use lockwood_wire::{
    Code, Problem,
    shards::{CopiedRow, RemovedRow, TransitionCommand, TransitionStatus},
};
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a map that is about to change is waited for.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(10);

/// How far the transition to another map is.
#[utoipa::path(get, path = "/v1/{namespace}/shard/transition", params(("namespace" = String, Path)),
    responses((status = 200, body = TransitionStatus), (status = 503, body = Problem)))]
pub(in crate::native) async fn transition_status(State(shared): App) -> Result<Response, HttpError> {
    if !shared.cluster.is_node() {
        return Err(cluster::not_a_node().into());
    }
    Ok(json_of(&status(&shared).await?))
}

pub(super) async fn status(shared: &Arc<Shared>) -> Result<TransitionStatus, Trouble> {
    let status = driver::command(shared, &Command::Status).await?;
    serde_json::from_value(status).map_err(|error| Trouble::new(Code::BadBody, error.to_string()))
}

/// Begins a transition to another map, or steers the one under way.
#[utoipa::path(post, path = "/v1/{namespace}/shard/transition", params(("namespace" = String, Path)),
    request_body = TransitionCommand, responses((status = 200, body = Object), (status = 400, body = Problem),
    (status = 409, body = Problem), (status = 503, body = Problem)))]
pub(in crate::native) async fn transition_command(
    State(shared): App,
    AnyBody(body): AnyBody,
) -> Result<Response, HttpError> {
    if !shared.cluster.is_node() {
        return Err(cluster::not_a_node().into());
    }
    let command: Command =
        serde_json::from_slice(&body).map_err(|error| Trouble::new(Code::BadBody, error.to_string()))?;
    if let Command::Config { change, .. } | Command::Reshard { change, .. } = &command {
        check_change(change)?;
    }
    Ok(Json(driver::command(&shared, &command).await?).into_response())
}

/// Copies what this node has and another shard is to have. Answers how many documents of each collection that were
/// not there yet; nothing if this node may not write.
#[utoipa::path(post, path = "/v1/{namespace}/shard/copy", params(("namespace" = String, Path)),
    responses((status = 200, body = Vec<CopiedRow>), (status = 409, body = Problem), (status = 503, body = Problem)))]
pub(in crate::native) async fn copy(
    State(shared): App,
    InPath(namespace): InPath<String>,
) -> Result<Response, HttpError> {
    let Some(current) = served(&shared).await? else { return Ok(json_of(&Vec::<CopiedRow>::new())) };
    if current.map.prev.is_none() {
        let message = "resharding is done already: there is no prev, so there is nothing to copy";
        return Err(Trouble::new(Code::Resharding, message).into());
    }
    let rows = done(&shared, &current, &namespace, Task::Copy).await?;
    let row = |Row { namespace, collection, copied, .. }| CopiedRow { namespace, collection, copied };
    Ok(json_of(&rows.into_iter().map(row).collect::<Vec<_>>()))
}

/// Removes what this node has and another shard has confirmed to have. Answers how many documents of each
/// collection; nothing if this node may not write. If something is not confirmed it stays; the problem tells how many
/// documents that are, the first few of them, and what was removed.
#[utoipa::path(post, path = "/v1/{namespace}/shard/cleanup", params(("namespace" = String, Path)),
    responses((status = 200, body = Vec<RemovedRow>), (status = 409, body = Problem), (status = 503, body = Problem)))]
pub(in crate::native) async fn cleanup(
    State(shared): App,
    InPath(namespace): InPath<String>,
) -> Result<Response, HttpError> {
    let Some(current) = served(&shared).await? else { return Ok(json_of(&Vec::<RemovedRow>::new())) };
    if current.map.prev.is_some() {
        let message = "resharding is not done: there is a prev, so nothing is cleaned up; copy on all shards, then \
                       set prev to false";
        return Err(Trouble::new(Code::Resharding, message).into());
    }
    let rows = done(&shared, &current, &namespace, Task::Clean).await?;
    let row = |Row { namespace, collection, removed, .. }| RemovedRow { namespace, collection, removed };
    Ok(json_of(&rows.into_iter().map(row).collect::<Vec<_>>()))
}

/// The map, once it is not about to change; none if this node may not write.
async fn served(shared: &Shared) -> Result<Option<Arc<Current>>, Trouble> {
    if !shared.cluster.is_node() {
        return Err(cluster::not_a_node());
    }
    let started = Instant::now();
    loop {
        // A shard that no map has needs none.
        let Some(current) = shared.cluster.current() else { return Ok(None) };
        if !current.is_owner {
            return Ok(None);
        }
        if current.map.phase != Phase::Preparing {
            return Ok(Some(current));
        }
        if started.elapsed() > PATIENCE {
            let message = "the shards are still agreeing on the new map; `lockwood reshard status` tells why";
            return Err(Trouble::new(Code::Moving, message));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Brings a task to its end; what was done since it was asked for, by collection.
async fn done(
    shared: &Arc<Shared>,
    current: &Arc<Current>,
    namespace: &str,
    task: Task,
) -> Result<Vec<Row>, Trouble> {
    let this = shared.cluster.this().0;
    let earlier = shared.cluster.work.report(shared, current)?.progress;
    let mut round = earlier.round;
    let mut is_driven = false;
    if current.map.phase == Phase::Steady {
        // Nobody drives this, and what was cleaned up before says nothing of what is there now.
        round += 1;
    } else if status(shared).await?.donors.iter().any(|donor| donor.shard == this) {
        let command = match task {
            Task::Copy | Task::Verify => Command::Copy { shard: this },
            Task::Clean => Command::Cleanup { shard: this },
        };
        driver::command(shared, &command).await.map_err(|trouble| match trouble.code {
            // It may have come to its end meanwhile.
            Code::Resharding if shared.cluster.epoch() != current.map.epoch => changed(),
            _ => trouble,
        })?;
        is_driven = true;
    }
    let progress = work::run(shared, task, round).await.map_err(|trouble| match trouble.code {
        Code::WrongEpoch => changed(),
        _ => trouble,
    })?;
    let rows = since(shared, namespace, &earlier.rows, &progress.rows)?;
    if task == Task::Clean && progress.unconfirmed > 0 {
        return Err(Trouble::new(Code::NotCopied, left_over(&rows, &progress)));
    }
    if is_driven {
        noted(shared, task, this).await?;
    }
    Ok(rows)
}

fn changed() -> Trouble {
    Trouble::new(Code::Moving, "the shard map has just changed; ask again")
}

/// What was removed, and what was not, in words.
fn left_over(rows: &[Row], progress: &Progress) -> String {
    let Progress { unconfirmed, stays, .. } = progress;
    let removed = rows.iter().filter(|row| row.removed > 0);
    let removed: Vec<String> =
        removed.map(|row| format!("{} of {} in {}", row.removed, row.collection, row.namespace)).collect();
    let removed = if removed.is_empty() { "nothing".to_owned() } else { removed.join(", ") };
    let more = unconfirmed.saturating_sub(stays.len() as u64);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{unconfirmed} not confirmed: {}{more}. Removed: {removed}", stays.join("; "))
}

/// Waits until the driver knows that a task is done, so that the next request need not wait.
async fn noted(shared: &Arc<Shared>, task: Task, this: u32) -> Result<(), Trouble> {
    let started = Instant::now();
    loop {
        let status = status(shared).await?;
        let donor = status.donors.iter().find(|donor| donor.shard == this);
        let is_noted = donor.is_none_or(|donor| match task {
            Task::Copy | Task::Verify => donor.done || status.step != "copy",
            Task::Clean => donor.cleaned || status.step != "clean",
        });
        if is_noted || started.elapsed() > PATIENCE {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What was done in the collections that a caller in a namespace is told of, be it nothing.
fn since(shared: &Shared, namespace: &str, earlier: &[Row], now: &[Row]) -> Result<Vec<Row>, Trouble> {
    let is_told = |name: &str| name != SYSTEM && (namespace == SYSTEM || namespace == name);
    // A collection that was cleaned up may not be there any more.
    let mut places: BTreeSet<(String, String)> =
        now.iter().map(|row| (row.namespace.clone(), row.collection.clone())).collect();
    let reading = shared.shard.read();
    for (name, id) in reading.state().namespaces()? {
        if !shared.cluster.has_spread_now(&name)? {
            continue;
        }
        let collections = reading.state().collections(id)?;
        let moving = collections.into_iter().filter(|collection| !EVERYWHERE.contains(&&**collection));
        places.extend(moving.map(|collection| (name.clone(), collection)));
    }
    let of = |rows: &[Row], (namespace, collection): &(String, String)| {
        let row = rows.iter().find(|row| row.namespace == *namespace && row.collection == *collection);
        row.map_or((0, 0), |row| (row.copied, row.removed))
    };
    let told = places.into_iter().filter(|(name, _)| is_told(name));
    let rows = told.map(|at| {
        let ((copied, removed), (copied_before, removed_before)) = (of(now, &at), of(earlier, &at));
        let (copied, removed) =
            (copied.saturating_sub(copied_before), removed.saturating_sub(removed_before));
        Row { namespace: at.0, collection: at.1, copied, removed }
    });
    Ok(rows.collect())
}
