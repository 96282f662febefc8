//! What the facade says: errors in the words of Elasticsearch, and how answers are put into HTTP. Knows nothing of
//! what was asked.

use crate::body::BodyError;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER},
};
use lockwood_node::{
    gate::GateError,
    shard::{PageError, ShardError},
    trouble::Trouble,
    work::Unfinished,
};
use lockwood_storage::StoreError;
use lockwood_wire::Code;
use std::fmt::Write;

pub(super) type Answer = Response<Full<Bytes>>;

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=UTF-8");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=UTF-8");
/// Clients from 7.14 on speak to nobody who does not say this.
const PRODUCT: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-elastic-product"), HeaderValue::from_static("Elasticsearch"));

pub(super) const CONFLICT: &str = "version_conflict_engine_exception";
pub(super) const ILLEGAL_ARGUMENT: &str = "illegal_argument_exception";

/// A JSON object that is being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object(String);

impl Object {
    pub(super) fn new() -> Object {
        Object("{".to_owned())
    }

    /// A value that is JSON already.
    pub(super) fn raw(mut self, name: &str, json: &str) -> Object {
        let comma = if self.0.len() > 1 { "," } else { "" };
        write!(self.0, "{comma}{}:{json}", quoted(name)).expect("memory takes everything");
        self
    }

    pub(super) fn text(self, name: &str, text: &str) -> Object {
        self.raw(name, &quoted(text))
    }

    pub(super) fn number(self, name: &str, number: u64) -> Object {
        self.raw(name, &number.to_string())
    }

    pub(super) fn flag(self, name: &str, flag: bool) -> Object {
        self.raw(name, if flag { "true" } else { "false" })
    }

    /// With what `add` adds, if there is reason to.
    pub(super) fn when(self, reason: bool, add: impl FnOnce(Object) -> Object) -> Object {
        if reason { add(self) } else { self }
    }

    pub(super) fn done(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text is valid JSON")
}

pub(super) fn list(values: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", values.into_iter().collect::<Vec<_>>().join(","))
}

/// Why a request was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// The stable name of what went wrong.
    pub(super) kind: &'static str,
    pub(super) reason: String,
    /// What is told as its root, if not itself.
    root: Option<(&'static str, String)>,
    /// More members of the error, as JSON.
    more: Vec<(&'static str, String)>,
    /// What every interface calls it, if there is a code for it.
    code: Option<Code>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, kind: &'static str, reason: impl Into<String>) -> Refusal {
        Refusal { status, kind, reason: reason.into(), root: None, more: Vec::new(), code: None }
    }

    /// The body, or a part of it, is not what it must be.
    pub(super) fn parse(reason: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "parse_exception", reason)
    }

    pub(super) fn argument(reason: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, ILLEGAL_ARGUMENT, reason)
    }

    pub(super) fn conflict(reason: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::CONFLICT, CONFLICT, reason)
    }

    /// More than the limit called `name` allows.
    pub(super) fn over(name: &str, limit: u64, what: &str) -> Refusal {
        Trouble::over(name, limit, what).into()
    }

    pub(super) fn no_index(index: &str) -> Refusal {
        let refusal = Refusal::new(
            StatusCode::NOT_FOUND,
            "index_not_found_exception",
            format!("no such index [{index}]"),
        );
        let refusal = refusal.known_as(Code::NoCollection);
        refusal.with("index", quoted(index)).with("resource.type", quoted("index_or_alias"))
    }

    pub(super) fn failed() -> Refusal {
        Trouble::storage_failed().into()
    }

    pub(super) fn with(mut self, name: &'static str, json: String) -> Refusal {
        self.more.push((name, json));
        self
    }

    /// Counted under this code.
    pub(super) fn known_as(mut self, code: Code) -> Refusal {
        self.code = Some(code);
        self
    }

    pub(super) fn rooted(mut self, kind: &'static str, reason: String) -> Refusal {
        self.root = Some((kind, reason));
        self
    }

    /// The error without its root, as it is told of one of many.
    pub(super) fn object(&self) -> String {
        self.members(Object::new()).done()
    }

    fn members(&self, object: Object) -> Object {
        let object = object.text("type", self.kind).text("reason", &self.reason);
        self.more.iter().fold(object, |object, (name, json)| object.raw(name, json))
    }

    pub(super) fn into_answer(self) -> Answer {
        let root = match &self.root {
            Some((kind, reason)) => Object::new().text("type", kind).text("reason", reason).done(),
            None => {
                let plain = self.more.iter().filter(|(name, _)| *name != "caused_by");
                let object = Object::new().text("type", self.kind).text("reason", &self.reason);
                plain.fold(object, |object, (name, json)| object.raw(name, json)).done()
            }
        };
        let error = self.members(Object::new().raw("root_cause", &list([root]))).done();
        let body = Object::new().raw("error", &error).number("status", self.status.as_u16().into()).done();
        let mut answer = json(self.status, body);
        if matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(code) = self.code {
            answer.extensions_mut().insert(code);
        }
        answer
    }
}

impl From<Trouble> for Refusal {
    fn from(trouble: Trouble) -> Refusal {
        let Trouble { code, message, .. } = trouble;
        let refusal = match code {
            Code::Locked | Code::Timeout | Code::LockLost | Code::Deadlock | Code::ReleasedByOperator => {
                Refusal::conflict(message)
            }
            Code::TooMany => {
                Refusal::new(StatusCode::TOO_MANY_REQUESTS, "es_rejected_execution_exception", message)
            }
            Code::MemoryInUse => {
                Refusal::new(StatusCode::TOO_MANY_REQUESTS, "circuit_breaking_exception", message)
            }
            _ => {
                let status = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::BAD_REQUEST);
                let kind = match status {
                    StatusCode::BAD_REQUEST => ILLEGAL_ARGUMENT,
                    StatusCode::CONFLICT => CONFLICT,
                    StatusCode::FORBIDDEN => "security_exception",
                    _ => "unavailable_shards_exception",
                };
                Refusal::new(status, kind, message)
            }
        };
        refusal.known_as(code)
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Refusal {
        let new = |status, kind| {
            let Trouble { code, message, .. } = Trouble::from(error.clone());
            Refusal::new(status, kind, message).known_as(code)
        };
        match &error {
            BodyError::TooLarge { .. } => new(StatusCode::PAYLOAD_TOO_LARGE, "content_too_long_exception"),
            BodyError::TooSlow { .. } => new(StatusCode::REQUEST_TIMEOUT, "parse_exception"),
            BodyError::CutOff => new(StatusCode::BAD_REQUEST, "parse_exception"),
            BodyError::NoMemory(trouble) => Trouble::clone(trouble).into(),
        }
    }
}

impl From<ShardError> for Refusal {
    fn from(error: ShardError) -> Refusal {
        Trouble::from(error).into()
    }
}

impl From<GateError> for Refusal {
    fn from(error: GateError) -> Refusal {
        Trouble::from(error).into()
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Refusal {
        tracing::error!(%error, "answer an Elasticsearch request");
        Refusal::failed()
    }
}

impl From<Unfinished> for Refusal {
    fn from(unfinished: Unfinished) -> Refusal {
        Trouble::from(unfinished).into()
    }
}

impl From<PageError> for Refusal {
    fn from(error: PageError) -> Refusal {
        match error {
            PageError::TooManyLooks(limit) | PageError::TooManyRows(limit) => {
                Refusal::over("looks_max", limit, "too many documents would have to be looked at")
            }
            PageError::Store(error) => error.into(),
            PageError::Elsewhere(trouble) => (*trouble).into(),
            PageError::Exhausted(exhausted) => Unfinished::from(exhausted).into(),
        }
    }
}

pub(super) fn json(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    let (name, value) = PRODUCT;
    answer.headers_mut().insert(name, value);
    answer
}

/// A table for people.
pub(super) fn text(body: impl Into<Bytes>) -> Answer {
    let mut answer = ok(body);
    answer.headers_mut().insert(CONTENT_TYPE, TEXT);
    answer
}

pub(super) fn ok(body: impl Into<Bytes>) -> Answer {
    json(StatusCode::OK, body)
}

/// An error that is just a sentence.
pub(super) fn plain(status: StatusCode, message: &str) -> Answer {
    json(status, Object::new().text("error", message).number("status", status.as_u16().into()).done())
}

pub(super) fn method_not_allowed(method: &str, path: &str, allowed: &'static str) -> Answer {
    let message =
        format!("Incorrect HTTP method for uri [{path}] and method [{method}], allowed: [{allowed}]");
    let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, &message);
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

/// How many copies did something; here there is one shard, which is its own only copy.
pub(super) fn shards(total: u64, successful: u64) -> String {
    Object::new().number("total", total).number("successful", successful).number("failed", 0).done()
}
