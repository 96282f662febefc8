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
    clustered::preferences,
    native::HttpError,
    shared::Shared,
};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use lockwood_node::trouble::Trouble;
use lockwood_router::{Change, ShardMap};
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

/// Changes the parameters of the map that are given, all of them or none. Answers when the map is in force; a
/// transition that comes of it is gone on with by copy, `prev: false` and cleanup.
#[utoipa::path(post, path = "/v1/{namespace}/shard/config", params(("namespace" = String, Path)),
    request_body = ShardConfig, responses((status = 200, body = ConfigAnswer), (status = 400, body = Problem),
    (status = 409, body = Problem), (status = 503, body = Problem)))]
pub(in crate::native) async fn config(State(shared): App, body: JsonBody) -> Result<Response, HttpError> {
    if !shared.cluster.is_node() {
        return Err(cluster::not_a_node().into());
    }
    let (change, force) = read_config(&body)?;
    check_change(&change)?;
    in_force(&shared).await?;
    told(&shared, &Command::Config { change, force }).await?;
    let status = in_force(&shared).await?;
    let epoch = status.map["epoch"].as_u64().unwrap_or_default();
    Ok(json_of(&ConfigAnswer { ok: 1, epoch, step: status.step }))
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

/// Whether a change makes sense by itself, before anybody is told of it.
pub(super) fn check_change(change: &Value) -> Result<(), Trouble> {
    let change = Change::from_json(change);
    let Change { curr, prev, .. } = change.map_err(|error| Trouble::new(Code::BadMap, error.to_string()))?;
    for (entry, function) in [("curr", curr), ("prev", prev.flatten())] {
        if let Some(Err(why)) = function.as_ref().and_then(compile) {
            return Err(Trouble::new(Code::BadScript, format!("{entry}.source: {why}")));
        }
    }
    Ok(())
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
