//! The Schema Registry facade: the REST interface that Confluent's clients speak, on the same schemas as everything
//! else. Translates and decides nothing; knows nothing of other interfaces.

mod answer;
mod context;
mod media;
mod query;
mod read;
mod request;
#[cfg(test)]
mod request_fuzz;
mod route;
mod write;

pub(crate) use route::namespace_of;

use self::{
    answer::{Answer, Refusal, json},
    context::{Contexts, Place},
    query::Query,
    route::Route,
};
use crate::{arriving::Arriving, body, config::SchemaRegistryConfig, listener::Service, shared::Shared};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode, header::CONTENT_TYPE};
use lockwood_node::{metrics::Interface, schemas::Book, trouble::Trouble};
use std::{net::SocketAddr, sync::Arc};

/// Answers everything on the facade's listener.
#[derive(Clone)]
pub(crate) struct SchemaRegistry {
    shared: Arc<Shared>,
}

impl Service for SchemaRegistry {
    type Body = Full<Bytes>;

    fn interface(&self) -> Interface {
        Interface::SchemaRegistry
    }

    async fn answer(&self, _: SocketAddr, request: Request<Arriving>) -> Answer {
        let kind = media::negotiated(request.headers());
        let answered = self.try_answer(request, kind.as_ref().err()).await;
        let mut answer = answered.unwrap_or_else(Refusal::into_answer);
        if let Ok(kind) = kind {
            answer.headers_mut().insert(CONTENT_TYPE, kind);
        }
        answer
    }

    fn is_read(&self, method: &Method, _: &str) -> bool {
        method == Method::GET || method == Method::HEAD
    }

    fn refuse(trouble: Trouble) -> Answer {
        Refusal::of_trouble(trouble).into_answer()
    }
}

impl SchemaRegistry {
    pub(crate) fn new(shared: &Arc<Shared>) -> SchemaRegistry {
        SchemaRegistry { shared: Arc::clone(shared) }
    }

    fn config(&self) -> &SchemaRegistryConfig {
        self.shared.config.schema_registry.as_ref().expect("the facade runs because it was asked for")
    }

    fn contexts(&self) -> Contexts<'_> {
        Contexts { default: &self.config().namespace, limits: &self.shared.config.limits }
    }

    /// `unacceptable` is why no answer would be accepted; what the address is worth is said before that.
    async fn try_answer(
        &self,
        request: Request<Arriving>,
        unacceptable: Option<&Refusal>,
    ) -> Result<Answer, Refusal> {
        let mut route = Route::read(request.uri().path(), self.contexts())?;
        if !route.takes(request.method()) {
            return Err(Refusal::method_not_allowed());
        }
        if let Method::POST | Method::PUT = *request.method() {
            media::check_body(request.headers())?;
        }
        if let Some(refusal) = unacceptable {
            return Err(refusal.clone());
        }
        if let Some(place) = route.subject_mut() {
            *place = self.meant_by(place)?;
        }
        let query = Query::read(request.uri().query().unwrap_or_default());
        match *request.method() {
            Method::POST => {
                let body = self.body(request).await?;
                self.post(&route, &query, &body).await
            }
            Method::PUT => {
                let body = self.body(request).await?;
                self.put(&route, &body).await
            }
            Method::DELETE => self.delete(&route, &query).await,
            _ => self.look(&route, &query).await,
        }
    }

    /// The subject that a name stands for: another one if its own config has an alias. An alias of an alias is not
    /// followed.
    fn meant_by(&self, place: &Place) -> Result<Place, Refusal> {
        let Some(subject) = &place.subject else { return Ok(place.clone()) };
        match self.book(&place.namespace)?.alias(subject) {
            Some(alias) => self.contexts().read(&place.namespace, alias),
            None => Ok(place.clone()),
        }
    }

    /// The registry of a namespace.
    fn book(&self, namespace: &str) -> Result<Arc<Book>, Refusal> {
        Ok(self.shared.schemas.book(&self.shared, namespace)?)
    }

    async fn body(&self, request: Request<Arriving>) -> Result<Bytes, Refusal> {
        Ok(body::read(&self.shared, request.into_body()).await?)
    }
}

/// An answer that went well.
fn done(body: &serde_json::Value) -> Result<Answer, Refusal> {
    Ok(json(StatusCode::OK, body.to_string()))
}
