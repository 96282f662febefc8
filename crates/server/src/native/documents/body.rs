//! The body of a request, read within its limit. Knows nothing of what is in it.

use crate::{shared::Shared, trouble::Trouble};
use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, Request},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{HeaderMap, header};
use lockwood_wire::{Code, documents::read_body};
use serde::de::DeserializeOwned;
use std::{sync::Arc, time::Duration};

/// What is read of a body that is refused already.
const DRAIN_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a body may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(60);
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);

/// A JSON body, not yet taken apart.
pub(crate) struct JsonBody(pub(crate) Bytes);

impl JsonBody {
    /// The body as what the request takes.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Trouble> {
        read_body(&self.0).map_err(|error| Trouble::new(error.code, error.message))
    }
}

impl FromRequest<Arc<Shared>> for JsonBody {
    type Rejection = Trouble;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<JsonBody, Trouble> {
        check_type(request.headers())?;
        collect(request.into_body(), shared.config.limits.body_bytes_max).await.map(JsonBody)
    }
}

/// The same for a body that has arrived already.
pub(crate) fn read_json_body<T: DeserializeOwned>(headers: &HeaderMap, body: &Bytes) -> Result<T, Trouble> {
    check_type(headers)?;
    JsonBody(body.clone()).read()
}

fn check_type(headers: &HeaderMap) -> Result<(), Trouble> {
    let Some(given) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let given = given.to_str().unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") || essence.to_ascii_lowercase().ends_with("+json") {
        return Ok(());
    }
    let message = format!("the content type is {given:?}; this request takes application/json");
    Err(Trouble::new(Code::UnsupportedMediaType, message))
}

async fn collect(mut body: Body, limit: u64) -> Result<Bytes, Trouble> {
    let limited = Limited::new(&mut body, usize::try_from(limit).unwrap_or(usize::MAX));
    let Ok(collected) = tokio::time::timeout(BODY_PATIENCE, limited.collect()).await else {
        return Err(Trouble::new(Code::BadBody, "the body took too long to arrive"));
    };
    match collected {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            drain(body).await;
            let what = "the body is too large; split it into several requests";
            Err(Trouble::over("body_bytes_max", limit, what))
        }
        Err(_) => Err(Trouble::new(Code::BadBody, "the body ended before it was complete")),
    }
}

/// Reads on for a while and throws it away: a connection that is closed with something unread is reset, and
/// the answer to what was read is lost.
pub(crate) async fn drain(mut body: Body) {
    let rest = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > DRAIN_BYTES_MAX {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN_PATIENCE, rest).await;
}
