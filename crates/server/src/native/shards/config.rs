//! The shard map: what it is, changing it, and whether this node has its place in it.

use super::super::{
    documents::{JsonBody, json_of},
    http::App,
};
use super::transition::status;
use crate::{
    cluster::{
        self,
        driver::{self, Command},
        scripts::compile,
    },
    clustered::{self, Membership, preferences},
    native::HttpError,
    shared::Shared,
};
use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use lockwood_node::trouble::Trouble;
use lockwood_router::{Change, ShardMap, ShardNo, This};
use lockwood_wire::{
    Code, Problem,
    shards::{ConfigAnswer, ShardConfig, TransitionStatus, Validity},
};
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a change of the map is waited for; it goes on afterwards.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(10);

/// The map this node goes by; null if it has none.
#[utoipa::path(get, path = "/v1/{namespace}/shard/map", params(("namespace" = String, Path)),
    responses((status = 200, body = Object)))]
pub(in crate::native) async fn map(State(shared): App) -> Response {
    let mut map = shared.cluster.current().map_or(Value::Null, |current| current.map.to_json());
    if let Some(membership) = shared.cluster.membership().filter(|_| !map.is_null()) {
        // The hosts that operators named; in the map itself there are none.
        let preferred = preferences::read(&membership.node).await.unwrap_or_default();
        let shown = map["shards"].as_array_mut().into_iter().flatten().zip(preferred);
        shown.filter(|(_, hosts)| !hosts.is_empty()).for_each(|(shown, hosts)| *shown = json!(hosts));
    }
    Json(map).into_response()
}

/// Changes the parameters of the map that are given, all of them or none, and what the node that is asked prefers to own. Answers
/// when the map is in force; a transition that comes of it is gone on with by copy, `prev: false` and cleanup.
#[utoipa::path(post, path = "/v1/{namespace}/shard/config", params(("namespace" = String, Path)),
    request_body = ShardConfig, responses((status = 200, body = ConfigAnswer), (status = 400, body = Problem),
    (status = 409, body = Problem), (status = 503, body = Problem)))]
pub(in crate::native) async fn config(
    State(shared): App,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let (mut change, force) = read_config(&body)?;
    let Change { list, this, .. } = read_change(&change)?;
    let Some(membership) = shared.cluster.membership() else { return Ok(alone(&change, this)?) };
    let asked = headers.get(clustered::ASKED).and_then(|name| std::str::from_utf8(name.as_bytes()).ok());
    let this =
        this.map(|this| preferred(membership, this, list.map_or(0, |list| list.len()), asked)).transpose()?;
    let members = change.as_object_mut().map_or(0, |members| {
        members.remove("this");
        members.len()
    });
    // `this` alone is no change of the map.
    if members > 0 || this.is_none() {
        in_force(&shared).await?;
        told(&shared, &Command::Config { change, force }).await?;
    }
    if let Some((name, this)) = this {
        let owner = (membership.shard, membership.epoch);
        preferences::note_this(&membership.node, name, this, owner).await?;
    }
    let status = in_force(&shared).await?;
    let epoch = status.map["epoch"].as_u64().unwrap_or_default();
    let (node, this) = this.map(|(name, this)| (name.to_owned(), this.map(This::number))).unzip();
    Ok(json_of(&ConfigAnswer { ok: 1, epoch, step: status.step, this: this.flatten(), node }))
}

/// A single server has shard 1 and cannot have another, so it has nothing to prefer, and no map.
fn alone(change: &Value, this: Option<Option<This>>) -> Result<Response, Trouble> {
    match this.flatten() {
        Some(This::Shard(ShardNo(1))) if change.as_object().is_some_and(|members| members.len() == 1) => {
            let step = "none".to_owned();
            Ok(json_of(&ConfigAnswer { ok: 1, epoch: 0, step, this: Some(1), node: None }))
        }
        Some(This::Shard(ShardNo(1))) | None => Err(cluster::not_a_node()),
        Some(this) => {
            let message = format!(
                "this: {}: a single server is shard 1 and has all keys; for more shards, or a node that owns none, start nodes \
                 of a cluster with --cluster",
                this.number()
            );
            Err(Trouble::new(Code::BadMap, message))
        }
    }
}

/// The node that was asked, and what it prefers, if there is such a shard. A list may be about to make some.
fn preferred<'a>(
    membership: &Membership,
    this: Option<This>,
    listed: usize,
    asked: Option<&'a str>,
) -> Result<(&'a str, Option<This>), Trouble> {
    let last = membership.node.shards().last().map_or(1, |shard| shard.0);
    let last = last.max(u32::try_from(listed).unwrap_or(u32::MAX));
    if let Some(number) = this.map(This::number).filter(|number| *number > last) {
        let message =
            format!("this: {number}: there are shards 1 to {last}; 0 is for a node that prefers to own none");
        return Err(Trouble::new(Code::BadMap, message));
    }
    let nameless =
        || Trouble::new(Code::BadMap, "this: the request does not come through a node of the cluster");
    Ok((asked.ok_or_else(nameless)?, this))
}

fn read_config(body: &JsonBody) -> Result<(Value, bool), Trouble> {
    let mut change: Value = body.read()?;
    let force = change.as_object_mut().and_then(|members| members.remove("force"));
    match force {
        None => Ok((change, false)),
        Some(Value::Bool(force)) => Ok((change, force)),
        Some(other) => Err(Trouble::new(Code::BadMap, format!("force: true or false, not {other}"))),
    }
}

/// Whether a change of the map makes sense by itself, before anybody is told of it.
pub(super) fn check_change(change: &Value) -> Result<(), Trouble> {
    match read_change(change)?.this {
        None => Ok(()),
        Some(_) => {
            let message = "this: no part of the map; send it to the node that prefers a shard, with `lockwood shard config`";
            Err(Trouble::new(Code::BadMap, message))
        }
    }
}

fn read_change(change: &Value) -> Result<Change, Trouble> {
    let change = Change::from_json(change).map_err(|error| Trouble::new(Code::BadMap, error.to_string()))?;
    for (entry, function) in [("curr", change.curr.as_ref()), ("prev", change.prev.iter().flatten().next())] {
        if let Some(Err(why)) = function.and_then(compile) {
            return Err(Trouble::new(Code::BadScript, format!("{entry}.source: {why}")));
        }
    }
    Ok(change)
}

/// Tells the driver. What is copied is compared before it can be relied on; that is waited for.
async fn told(shared: &Arc<Shared>, command: &Command) -> Result<(), Trouble> {
    let started = Instant::now();
    loop {
        match driver::command(shared, command).await {
            Err(trouble) if trouble.code == Code::NotCopied && started.elapsed() < PATIENCE => {
                let donors = status(shared).await?.donors;
                if donors.iter().any(|donor| !donor.done) {
                    return Err(trouble);
                }
            }
            told => return told.map(drop),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until a change is in force: there is nothing to do, or nothing before somebody says so.
async fn in_force(shared: &Arc<Shared>) -> Result<TransitionStatus, Trouble> {
    let started = Instant::now();
    loop {
        let status = status(shared).await?;
        let rests = match status.step.as_str() {
            "none" | "copy" => true,
            "clean" => status.donors.iter().any(|donor| !donor.cleaned),
            _ => false,
        };
        if rests || started.elapsed() > PATIENCE {
            // A node that is in no map is not given any.
            if let Ok(map) = ShardMap::from_json(&status.map) {
                shared.cluster.adopt(shared, map).await?;
            }
            return Ok(status);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether this node has a map, and its place in it.
#[utoipa::path(get, path = "/v1/{namespace}/shard/is_valid", params(("namespace" = String, Path)),
    responses((status = 200, body = Validity)))]
pub(in crate::native) async fn is_valid(State(shared): App) -> Response {
    let why = invalid(&shared);
    json_of(&Validity { valid: why.is_none(), why })
}

fn invalid(shared: &Shared) -> Option<String> {
    if !shared.cluster.is_node() {
        return Some(cluster::not_a_node().message);
    }
    let Some(current) = shared.cluster.current() else { return Some(cluster::no_map().message) };
    if let Err(error) = current.map.validate() {
        return Some(error.to_string());
    }
    (!current.is_owner).then(|| format!("the map does not have shard {}", shared.cluster.this()))
}
