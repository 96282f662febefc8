//! How a trouble is told over HTTP: as a problem, with the status of its code. Knows nothing of what was asked for.

use axum::response::{IntoResponse, Response};
use hyper::{StatusCode, header};
use lockwood_node::trouble::Trouble;
use lockwood_wire::Problem;

/// What a handler answers that does not do what it was asked for.
#[derive(Debug)]
pub(crate) struct HttpError(pub(crate) Trouble);

impl<E: Into<Trouble>> From<E> for HttpError {
    fn from(error: E) -> HttpError {
        HttpError(error.into())
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        problem(self.0)
    }
}

/// The answer that tells a trouble.
pub(crate) fn problem(trouble: Trouble) -> Response {
    let code = trouble.code;
    let problem: Problem = trouble.into_problem();
    let status = StatusCode::from_u16(problem.status).expect("codes have real statuses");
    let grace_ms = problem.grace_ms;
    let body = serde_json::to_vec(&problem).expect("a problem is valid JSON");
    let kind = [(header::CONTENT_TYPE, "application/problem+json")];
    let mut response = (status, kind, body).into_response();
    if let Some(left_ms) = grace_ms {
        response.headers_mut().insert(header::RETRY_AFTER, left_ms.div_ceil(1000).into());
    }
    // For whoever passes the answer on and need not read it for that.
    response.extensions_mut().insert(code);
    response
}
