//! The native interface: HTTP routes and the session protocol. Knows nothing of other interfaces.

mod connection;
mod documents;
mod guard;
mod http;
mod openapi;

use crate::{listener::Service, shared::Shared};
use axum::{Router, body::Body, extract::Request, response::Response};
use hyper::body::Incoming;
use std::{convert::Infallible, net::SocketAddr, sync::Arc};
use tower_service::Service as _;

/// Answers everything on the native listener.
#[derive(Clone)]
pub(crate) struct Native {
    router: Router,
}

impl Native {
    pub(crate) fn new(shared: &Arc<Shared>) -> Native {
        Native { router: http::router(shared) }
    }
}

impl Service for Native {
    type Body = Body;

    async fn answer(&self, peer: SocketAddr, request: Request<Incoming>) -> Response {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        let answer: Result<Response, Infallible> = self.router.clone().call(request).await;
        match answer {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}
