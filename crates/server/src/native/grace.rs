//! The routes about grace periods: which namespaces are in one, and an operator's end of it. Each handler decodes, calls,
//! encodes.

use super::{
    http::{App, InPath, check_namespace, check_reason},
    query::InQuery,
};
use crate::native::HttpError;
use axum::{Json, extract::State};
use lockwood_node::{operator, trouble::Trouble};
use lockwood_wire::{Code, GraceList, OperatorAction, Problem};
use serde::Deserialize;

/// The namespaces in which nothing is granted yet, because sessions held locks there when the server stopped.
#[utoipa::path(get, path = "/v1/grace", responses((status = 200, body = GraceList)))]
pub(super) async fn grace(State(shared): App) -> Json<GraceList> {
    Json(GraceList { namespaces: shared.grace.list() })
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EndQuery {
    /// Why, for the record.
    reason: Option<String>,
}

/// Ends the grace period of a namespace. It is recorded; what sessions held there before is theirs no longer, unless
/// they have taken it up again.
#[utoipa::path(delete, path = "/v1/{namespace}/grace", params(("namespace" = String, Path), EndQuery), responses(
    (status = 200, body = OperatorAction), (status = 400, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn end_grace(
    State(shared): App,
    InPath(name): InPath<String>,
    InQuery(query): InQuery<EndQuery>,
) -> Result<Json<OperatorAction>, HttpError> {
    let reason = query.reason;
    check_namespace(&shared, &name)?;
    check_reason(reason.as_deref())?;
    let left_ms = shared.grace.left_ms(&name);
    if left_ms == 0 {
        let message = format!("the namespace {name:?} is in no grace period; locks are granted there");
        return Err(Trouble::new(Code::NoGracePeriod, message).into());
    }
    let action = operator::end_of_grace(&shared, &name, left_ms, reason);
    operator::record(&shared, &action).await?;
    shared.grace.end(&shared, &name).await?;
    tracing::warn!(namespace = ?name, left_ms, reason = ?action.reason, "an operator ended a grace period");
    Ok(Json(action))
}
