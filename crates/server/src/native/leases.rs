//! The routes for leases: take, poll, renew, release. Each handler decodes, calls, encodes.

use super::{
    connection::read_resources,
    documents::{JsonBody, json_of},
    http::{App, InPath, check_namespace, lock_number},
};
use crate::{native::HttpError, shared::Shared};
use axum::{extract::State, response::Response};
use hyper::StatusCode;
use lockwood_model::{Json, Lease, LeaseVia, LockId, Wait};
use lockwood_node::{
    clock::rfc3339,
    lease::{self, Taken, Which},
    schemas::check_locked,
    trouble::Trouble,
    work::Job,
};
use lockwood_wire::{
    Code, LeaseAnswer, LeaseInfo, LeaseList, LeaseOutcome, LeaseRequest, Problem, ReleaseRequest,
    RenewRequest, WireResource,
};
use std::{sync::Arc, time::Duration};

/// Takes a lease: a lock with a named owner that is kept on disk. Asking again for what the owner has changes
/// nothing and succeeds.
#[utoipa::path(post, path = "/v1/{namespace}/locks", params(("namespace" = String, Path)),
    request_body = LeaseRequest, responses(
    (status = 200, description = "It was held already.", body = LeaseAnswer),
    (status = 201, description = "It is held.", body = LeaseAnswer),
    (status = 202, description = "It stands in line.", body = LeaseAnswer),
    (status = 400, body = Problem), (status = 409, body = Problem), (status = 422, body = Problem),
    (status = 423, body = Problem)))]
pub(super) async fn take(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    check_namespace(&shared, &namespace)?;
    let body: LeaseRequest = body.read()?;
    let (wait_ms, poll_ms) = waits(&shared, &body)?;
    let request = read_request(&shared, body, wait_ms)?;
    check_locked(&Job::new(&shared), &namespace, &request.resources).await?;
    let patience = poll_ms.filter(|poll_ms| *poll_ms < wait_ms).map(Duration::from_millis);
    let taken = match patience {
        Some(patience) => lease::take_and_poll(&shared, &namespace, request, patience).await?,
        None => lease::take(&shared, &namespace, request).await?,
    };
    let response = answer(&told(&shared, &namespace, &taken)?);
    if matches!(taken, Taken::Queued(..)) {
        // It may have been granted just now.
        lease::settled(&shared, &namespace).await?;
    }
    Ok(response)
}

fn waits(shared: &Shared, body: &LeaseRequest) -> Result<(u64, Option<u64>), Trouble> {
    let limit = shared.config.limits.wait_ms_max;
    let wait_ms = body.wait_ms.unwrap_or(0);
    if wait_ms > limit {
        return Err(Trouble::over("wait_ms_max", limit, &format!("the request would wait for {wait_ms} ms")));
    }
    Ok((wait_ms, body.poll_ms))
}

fn read_request(shared: &Shared, body: LeaseRequest, wait_ms: u64) -> Result<lease::LeaseRequest, Trouble> {
    let LeaseRequest { owner, resources, ttl_ms, note, .. } = body;
    let depth_max = shared.config.limits.json_depth_max;
    let note = note.map(|note| Json::read(note.as_str(), usize::try_from(depth_max).unwrap_or(usize::MAX)));
    let note = note.transpose().map_err(|error| Trouble::new(Code::BadBody, format!("the note: {error}")))?;
    let wait = if wait_ms == 0 { Wait::Never } else { Wait::Millis(wait_ms) };
    let resources = read_resources(resources)?;
    Ok(lease::LeaseRequest { owner, via: LeaseVia::Native, resources, ttl_ms: Some(ttl_ms), wait, note })
}

/// How a lease was taken.
fn told(shared: &Shared, name: &str, taken: &Taken) -> Result<LeaseAnswer, Trouble> {
    let (outcome, lock, in_the_way) = match taken {
        Taken::Granted(lease) => (LeaseOutcome::Granted, lease.lock, Vec::new()),
        Taken::Held(lease) => (LeaseOutcome::Held, lease.lock, Vec::new()),
        Taken::Queued(lock, line) => (LeaseOutcome::Queued, *lock, line.blockers.clone()),
    };
    let found = shared.registry.get(name).and_then(|space| space.lock_info(shared, lock.0));
    let lock = found.ok_or_else(|| lease::lost(lock))?;
    let is_granted = outcome == LeaseOutcome::Queued && lock.token.is_some();
    let outcome = if is_granted { LeaseOutcome::Granted } else { outcome };
    Ok(LeaseAnswer { outcome, lock, in_the_way })
}

fn answer(answer: &LeaseAnswer) -> Response {
    let mut response = json_of(answer);
    *response.status_mut() = match answer.outcome {
        LeaseOutcome::Granted => StatusCode::CREATED,
        LeaseOutcome::Held => StatusCode::OK,
        LeaseOutcome::Queued => StatusCode::ACCEPTED,
    };
    response
}

/// Changes when a lease ends. Only its owner can: by its token, its name, or both.
#[utoipa::path(post, path = "/v1/{namespace}/locks/{lock}/renew",
    params(("namespace" = String, Path), ("lock" = u64, Path)), request_body = RenewRequest,
    responses((status = 200, body = LeaseList), (status = 409, body = Problem)))]
pub(super) async fn renew(
    State(shared): App,
    InPath((namespace, lock)): InPath<(String, String)>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let RenewRequest { ttl_ms, owner, token } = body.read()?;
    let which = one(&lock, owner, token)?;
    Ok(renewed(&shared, &namespace, &which, ttl_ms).await?)
}

/// Changes when all leases of an owner end.
#[utoipa::path(post, path = "/v1/{namespace}/locks/renew", params(("namespace" = String, Path)),
    request_body = RenewRequest, responses((status = 200, body = LeaseList), (status = 409, body = Problem)))]
pub(super) async fn renew_all(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let RenewRequest { ttl_ms, owner, token } = body.read()?;
    let (Some(owner), None) = (owner, token) else {
        return Err(Trouble::new(Code::BadBody, "give the owner whose leases are all to be renewed").into());
    };
    Ok(renewed(&shared, &namespace, &Which::All { owner }, ttl_ms).await?)
}

/// Ends a lease. Only its owner can: by its token, its name, or both. An operator uses DELETE.
#[utoipa::path(post, path = "/v1/{namespace}/locks/{lock}/release", operation_id = "release_lease",
    params(("namespace" = String, Path), ("lock" = u64, Path)), request_body = ReleaseRequest,
    responses((status = 200, body = LeaseList), (status = 409, body = Problem)))]
pub(super) async fn release(
    State(shared): App,
    InPath((namespace, lock)): InPath<(String, String)>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let ReleaseRequest { owner, token, resources } = body.read()?;
    if resources.is_some() {
        return Err(Trouble::new(
            Code::BadBody,
            "the address says which lease; resources are for locks/release",
        )
        .into());
    }
    let which = one(&lock, owner, token)?;
    Ok(released(&shared, &namespace, &which).await?)
}

/// Ends leases of an owner: those taken with exactly these resources, or all of them.
#[utoipa::path(post, path = "/v1/{namespace}/locks/release", params(("namespace" = String, Path)),
    request_body = ReleaseRequest, responses((status = 200, body = LeaseList), (status = 409, body = Problem)))]
pub(super) async fn release_all(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let which = match body.read()? {
        ReleaseRequest { owner: Some(owner), token: None, resources: None } => Which::All { owner },
        ReleaseRequest { owner: Some(owner), token: None, resources: Some(resources) } => {
            Which::Like { owner, resources: read_resources(resources)? }
        }
        _ => {
            let message = "give the owner whose leases are to be released, and resources if not all of them";
            return Err(Trouble::new(Code::BadBody, message).into());
        }
    };
    Ok(released(&shared, &namespace, &which).await?)
}

fn one(lock: &str, owner: Option<String>, token: Option<u64>) -> Result<Which, Trouble> {
    if owner.is_none() && token.is_none() {
        let message = "say whose lease it is: by its token, or by its owner";
        return Err(Trouble::new(Code::BadBody, message));
    }
    // In a namespace that nobody uses any more, every lease is over.
    Ok(Which::Lock { lock: LockId(lock_number(lock)?), token, owner })
}

async fn renewed(
    shared: &Arc<Shared>,
    namespace: &str,
    which: &Which,
    ttl_ms: u64,
) -> Result<Response, Trouble> {
    Ok(listed(&lease::renew(shared, namespace, which, ttl_ms).await?))
}

async fn released(shared: &Arc<Shared>, namespace: &str, which: &Which) -> Result<Response, Trouble> {
    Ok(listed(&lease::release(shared, namespace, which).await?))
}

fn listed(leases: &[Lease]) -> Response {
    let info = |lease: &Lease| LeaseInfo {
        lock: lease.lock.0,
        token: lease.token.0,
        owner: lease.owner.to_string(),
        resources: lease.resources.iter().map(WireResource::from).collect(),
        expires_at: lease.expires_at.map(rfc3339),
    };
    json_of(&LeaseList { leases: leases.iter().map(info).collect() })
}
