//! The OpenSlides facade: the reader and the writer of its datastore, on the same documents as everything else.
//! Translates and decides nothing; knows nothing of other interfaces.

mod answer;
mod bus;
#[cfg(test)]
mod decode_fuzz;
mod filter;
mod json;
mod model;
mod name;
mod read;
mod redis;
mod request;

use self::{
    answer::{Answer, Refusal, ids, method_not_allowed, plain, silent, written},
    read::{Library, Question},
};
use crate::{arriving::Arriving, body, config::OpenslidesConfig, listener::Service, shared::Shared};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, StatusCode,
    header::{CONTENT_TYPE, HeaderMap},
};
use lockwood_model::{Budget, Wait};
use lockwood_node::{
    gate::{self, Terms},
    limits::Limits,
    metrics::Interface,
    shard::{Call, Keep},
    trouble::Trouble,
    work::Job,
};
use lockwood_storage::Entry;
use std::{net::SocketAddr, sync::Arc};

pub(crate) use bus::Bus;

/// Larger bodies are taken apart where they keep nobody waiting.
const DECODE_BYTES_MAX: usize = 64 * 1024;
/// A short question is answered where it was read, within so many steps; what takes more is asked again elsewhere.
const STEPS_IN_PLACE: u64 = 400_000;

/// Which half of the datastore a listener is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Reader,
    Writer,
}

/// Answers everything on one of the two listeners.
#[derive(Clone)]
pub(crate) struct Openslides {
    shared: Arc<Shared>,
    side: Side,
}

/// What the writer can be asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Write,
    ReserveIds,
    WriteWithoutEvents,
    DeleteHistoryInformation,
    TruncateDb,
}

enum Route {
    Health,
    Ask(Question),
    Do(Order),
}

impl Service for Openslides {
    type Body = Full<Bytes>;

    fn interface(&self) -> Interface {
        match self.side {
            Side::Reader => Interface::OpenslidesReader,
            Side::Writer => Interface::OpenslidesWriter,
        }
    }

    async fn answer(&self, _: SocketAddr, request: Request<Arriving>) -> Answer {
        let Some(route) = self.route(request.uri().path()) else {
            return plain(StatusCode::NOT_FOUND, "there is no such route");
        };
        match (route, request.method()) {
            (Route::Health, &Method::GET | &Method::HEAD) => self.health(),
            (Route::Health, _) => method_not_allowed("GET"),
            (Route::Ask(question), &Method::POST) => self.ask(question, request).await,
            (Route::Do(order), &Method::POST) => self.order(order, request).await,
            (Route::Ask(_) | Route::Do(_), _) => method_not_allowed("POST"),
        }
    }

    fn is_read(&self, _: &Method, _: &str) -> bool {
        self.side == Side::Reader
    }

    fn refuse(trouble: Trouble) -> Answer {
        Refusal::from(trouble).into_answer("\n")
    }
}

impl Openslides {
    pub(crate) fn new(shared: &Arc<Shared>, side: Side) -> Openslides {
        Openslides { shared: Arc::clone(shared), side }
    }

    fn config(&self) -> &OpenslidesConfig {
        self.shared.config.openslides.as_ref().expect("the facade runs because it was asked for")
    }

    /// Its clients hold no locks, so they wait for everybody else's.
    fn terms(&self) -> Terms {
        Terms::anonymous(Wait::Millis(self.shared.config.wait_ms))
    }

    fn limits(&self) -> &Limits {
        &self.shared.config.limits
    }

    fn route(&self, path: &str) -> Option<Route> {
        let base = match self.side {
            Side::Reader => "/internal/datastore/reader/",
            Side::Writer => "/internal/datastore/writer/",
        };
        let name = path.strip_prefix(base)?;
        let name = name.strip_suffix('/').unwrap_or(name);
        Some(match (self.side, name) {
            (_, "health") => Route::Health,
            (Side::Reader, name) => Route::Ask(Question::named(name)?),
            (Side::Writer, "write") => Route::Do(Order::Write),
            (Side::Writer, "reserve_ids") => Route::Do(Order::ReserveIds),
            (Side::Writer, "write_without_events") => Route::Do(Order::WriteWithoutEvents),
            (Side::Writer, "delete_history_information") => Route::Do(Order::DeleteHistoryInformation),
            (Side::Writer, "truncate_db") if self.config().development => Route::Do(Order::TruncateDb),
            (Side::Writer, _) => return None,
        })
    }

    fn health(&self) -> Answer {
        if self.shared.shard.is_poisoned() {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "the server's storage failed; its log says more");
        }
        silent(StatusCode::OK)
    }

    async fn ask(&self, question: Question, request: Request<Arriving>) -> Answer {
        match self.try_ask(question, request).await {
            Ok(body) => answer::json(StatusCode::OK, body),
            Err(refusal) => refusal.into_answer(""),
        }
    }

    async fn try_ask(&self, question: Question, request: Request<Arriving>) -> Result<Vec<u8>, Refusal> {
        let body = self.body(request).await?;
        let look = move |facade: &Openslides, body: &[u8], budget: &Budget| {
            let (shared, namespace) = (&facade.shared, &facade.config().namespace);
            let active = shared.schemas.active(shared, namespace)?;
            let allowed = (&shared.config.limits, budget);
            let library = Library::open(shared.shard.read(), namespace, allowed, active)?;
            library.answer(question, body)
        };
        if !question.is_long(&body) {
            let budget = Budget::new(STEPS_IN_PLACE.min(self.limits().work_max));
            let answer = look(self, &body, &budget);
            if budget.left() > 0 {
                return answer;
            }
        }
        let facade = self.clone();
        Job::new(&self.shared).run(move |budget| look(&facade, &body, budget)).await?
    }

    async fn order(&self, order: Order, request: Request<Arriving>) -> Answer {
        let done = match order {
            Order::Write => self.write(request).await,
            Order::ReserveIds => self.reserve_ids(request).await,
            Order::WriteWithoutEvents => self.write_without_events(request).await,
            Order::DeleteHistoryInformation => {
                self.record(Entry::NotesErased { namespace: self.config().namespace.as_str().into() }).await
            }
            Order::TruncateDb => {
                let namespace = &self.config().namespace;
                let entry = Entry::Emptied { namespace: namespace.as_str().into() };
                gate::record(&self.shared, namespace, entry, &self.terms())
                    .await
                    .map_or_else(|error| Err(error.into()), |()| Ok(silent(StatusCode::NO_CONTENT)))
            }
        };
        done.unwrap_or_else(|refusal| refusal.into_answer("\n"))
    }

    async fn write(&self, request: Request<Arriving>) -> Result<Answer, Refusal> {
        let call: Call = self.decode(request, request::read_call).await?;
        let done = gate::write(&self.shared, &self.config().namespace, &call, &self.terms()).await?;
        Ok(written(done.positions.last().copied()))
    }

    async fn reserve_ids(&self, request: Request<Arriving>) -> Result<Answer, Refusal> {
        let (collection, amount) = self.decode(request, request::read_reserve).await?;
        let namespace = &self.config().namespace;
        let last_max = name::ID_MAX as u64;
        let first = self.shared.shard.reserve_up_to(namespace, &collection, amount, last_max).await?;
        Ok(ids(first, amount))
    }

    async fn write_without_events(&self, request: Request<Arriving>) -> Result<Answer, Refusal> {
        let keep: Keep = self.decode(request, request::read_volatile).await?;
        let status = match keep {
            Keep::Remove(_) => StatusCode::OK,
            Keep::Merge(..) => StatusCode::CREATED,
        };
        let limits = request::document_limits(self.limits());
        gate::keep(&self.shared, &self.config().namespace, keep, limits, &self.terms()).await?;
        Ok(silent(status))
    }

    async fn record(&self, entry: Entry) -> Result<Answer, Refusal> {
        self.shared.shard.record(entry).await?;
        Ok(silent(StatusCode::NO_CONTENT))
    }

    async fn decode<T: Send + 'static>(
        &self,
        request: Request<Arriving>,
        read: fn(&[u8], &Limits) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let body = self.body(request).await?;
        if body.len() <= DECODE_BYTES_MAX {
            return read(&body, self.limits());
        }
        let shared = Arc::clone(&self.shared);
        blocking(move || read(&body, &shared.config.limits)).await
    }

    async fn body(&self, request: Request<Arriving>) -> Result<Bytes, Refusal> {
        if !is_json(request.headers()) {
            return Err(Refusal::Request("the body must be json: send it as application/json".to_owned()));
        }
        Ok(body::read(&self.shared, request.into_body()).await?)
    }
}

/// `application/json` or something built on it, with or without parameters.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()) else { return false };
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "answer an OpenSlides request");
        Err(Refusal::Failed)
    })
}
