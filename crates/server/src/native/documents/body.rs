//! The bodies of the native interface: JSON from clients, records from other nodes. Knows nothing of what they say.

use crate::{body, native::HttpError, shared::Shared};
use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
};
use hyper::{HeaderMap, header};
use lockwood_node::trouble::Trouble;
use lockwood_wire::{Code, documents::read_body};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// A JSON body, not yet taken apart.
pub(crate) struct JsonBody(pub(crate) Bytes);

impl JsonBody {
    /// The body as what the request takes.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Trouble> {
        read_body(&self.0).map_err(|error| Trouble::new(error.code, error.message))
    }
}

impl FromRequest<Arc<Shared>> for JsonBody {
    type Rejection = HttpError;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<JsonBody, HttpError> {
        check_type(request.headers())?;
        Ok(JsonBody(body::read(shared, request.into_body()).await?))
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

/// What a client sent, of whatever type.
pub(crate) struct AnyBody(pub(crate) Bytes);

impl FromRequest<Arc<Shared>> for AnyBody {
    type Rejection = HttpError;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<AnyBody, HttpError> {
        Ok(AnyBody(body::read(shared, request.into_body()).await?))
    }
}

/// What another node sent.
pub(crate) struct PeerBody(pub(crate) Bytes);

impl FromRequest<Arc<Shared>> for PeerBody {
    type Rejection = HttpError;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<PeerBody, HttpError> {
        Ok(PeerBody(body::read_of_peer(&shared.front, request.into_body()).await?))
    }
}
