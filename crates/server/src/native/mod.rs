//! The native interface: HTTP routes and the session protocol. Knows nothing of other interfaces.

mod connection;
mod documents;
mod grace;
mod http;
mod internal;
mod internal_spread;
pub(crate) mod lag;
mod leases;
mod openapi;
mod problem;
mod query;
mod schemas;
mod shards;

pub(crate) use documents::{
    Decoder, JoinPlan, Load, PagePlan, Pieces, answer_join, build_indexes, check_access, check_dump_type,
    collection_resource, get_limits, get_resources, isolation_in_force, json_of, key_cursor, list_request,
    read_head, read_json_body, stream, unread, written_documents,
};

pub(crate) use problem::{HttpError, problem};

use crate::{arriving::Arriving, cluster::dispatch, listener::Service, shared::Shared};
use axum::{Router, body::Body, extract::Request, middleware, response::Response};
use hyper::Method;
use lockwood_node::{metrics::Interface, trouble::Trouble};
use std::{convert::Infallible, net::SocketAddr, sync::Arc};
use tower_service::Service as _;

/// Answers everything on the native listener.
#[derive(Clone)]
pub(crate) struct Native {
    shared: Arc<Shared>,
    router: Router,
    /// The same for requests with parameters.
    checking: Router,
}

impl Native {
    pub(crate) fn new(shared: &Arc<Shared>) -> Native {
        let checking = http::routes().route_layer(middleware::from_fn(query::admit));
        let [router, checking] = [http::routes(), checking].map(|routes| http::router(shared, routes));
        Native { shared: Arc::clone(shared), router, checking }
    }
}

impl Service for Native {
    type Body = Body;

    fn interface(&self) -> Interface {
        Interface::Native
    }

    async fn answer(&self, peer: SocketAddr, request: Request<Arriving>) -> Response {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        match lag::tolerated(request.method(), request.uri()) {
            Ok(None) => self.current(request).await,
            // Here the answer is current.
            Ok(Some(_)) => {
                *request.uri_mut() = lag::without(request.uri());
                let mut answer = self.current(request).await;
                lag::note(&mut answer, 0);
                answer
            }
            Err(trouble) => problem(trouble),
        }
    }

    fn is_read(&self, method: &Method, path: &str) -> bool {
        const READS: [&str; 11] = [
            "get", "filter", "count", "exists", "min", "max", "join", "select", "eselect", "len", "is_valid",
        ];
        let last = path.rsplit('/').next().unwrap_or_default();
        // What operators look at when memory is short, metrics above all, is not among the documents.
        path.starts_with("/v1/")
            && (method == Method::GET
                || method == Method::HEAD
                || method == Method::POST && READS.contains(&last))
    }

    fn refuse(trouble: Trouble) -> Response {
        problem(trouble)
    }
}

impl Native {
    /// Answers a request by what is known here and at other shards.
    async fn current(&self, request: Request) -> Response {
        match self.shared.cluster.is_node() {
            true => dispatch::answer(self, &self.shared, request).await,
            false => self.local(request).await,
        }
    }

    /// Carries a request out on this node.
    pub(crate) async fn local(&self, request: Request) -> Response {
        // The ways most requests take; the router does the same for them, with more steps.
        if let Some(namespace) = written_namespace(&request) {
            return documents::write_to(&self.shared, namespace, request).await;
        }
        if is_read_of_document(&request) {
            return documents::read_one(&self.shared, request).await;
        }
        let router = if request.uri().query().is_some() { &self.checking } else { &self.router };
        let answer: Result<Response, Infallible> = router.clone().call(request).await;
        match answer {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// The namespace of a plain `POST /v1/{namespace}/write`; the router refuses parameters.
fn written_namespace(request: &Request<Body>) -> Option<String> {
    let namespace = request.uri().path().strip_prefix("/v1/")?.strip_suffix("/write")?;
    let plain = !namespace.is_empty() && namespace.bytes().all(|byte| byte != b'/' && byte != b'%');
    let is_plain = plain && request.method() == Method::POST && request.uri().query().is_none();
    is_plain.then(|| namespace.to_owned())
}

/// Whether this is a plain `GET /v1/{namespace}/documents/{collection}/{key}`.
fn is_read_of_document(request: &Request<Body>) -> bool {
    let mut parts = request.uri().path().split('/');
    let mut is_next = |matches: fn(&str) -> bool| parts.next().is_some_and(matches);
    request.method() == Method::GET
        && request.uri().query().is_none()
        && is_next(str::is_empty)
        && is_next(|part| part == "v1")
        && is_next(|namespace| !namespace.is_empty())
        && is_next(|word| word == "documents")
        && is_next(|collection| !collection.is_empty())
        && is_next(|key| !key.is_empty())
        && parts.next().is_none()
}
