//! What the facade says: the eight errors of the original, and how answers are put into HTTP. Knows nothing of
//! what was asked.

use crate::body::BodyError;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER},
};
use lockwood_engine::{Refused, Target};
use lockwood_model::{DocumentKey, Path, Position};
use lockwood_node::{
    gate::GateError,
    shard::{PageError, ShardError},
    trouble::Trouble,
    work::Unfinished,
};
use lockwood_storage::StoreError;
use lockwood_wire::Code;
use std::io::Write;

pub(super) type Answer = Response<Full<Bytes>>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const POSITION: &str = "x-lockwood-position";

/// Why a request was not done.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Refusal {
    /// A name, a number or a value is not what it must be.
    Format(String),
    /// The request has not the right shape, or is too much.
    Request(String),
    Missing(DocumentKey),
    Exists(DocumentKey),
    NotDeleted(DocumentKey),
    /// The keys of the broken locks.
    Locked(Vec<String>),
    /// A migration index for a store that has positions.
    NotEmpty(Position),
    /// By its `Host` or `Origin`.
    Foreign(String),
    /// Not now.
    Busy(String),
    /// It is the server's fault.
    Failed,
    /// What every interface calls it, beside what this one says.
    KnownAs(Code, Box<Refusal>),
}

impl Refusal {
    /// More than the limit called `name` allows.
    pub(super) fn over(name: &str, limit: u64, what: &str) -> Refusal {
        let flag = name.replace('_', "-");
        Refusal::Request(format!("{what}; the limit {name} is {limit} (flag --{flag})"))
            .known_as(Code::OverLimit)
    }

    /// Counted under this code.
    fn known_as(self, code: Code) -> Refusal {
        Refusal::KnownAs(code, Box::new(self))
    }

    /// What every interface calls it, if there is a code for it.
    fn code(&self) -> Option<Code> {
        match self {
            Refusal::Missing(_) => Some(Code::NoDocument),
            Refusal::Exists(_) => Some(Code::DocumentExists),
            Refusal::NotDeleted(_) => Some(Code::NotDeleted),
            Refusal::Locked(_) => Some(Code::PositionLocked),
            Refusal::NotEmpty(_) => Some(Code::NamespaceNotEmpty),
            Refusal::Failed => Some(Code::StorageFailed),
            Refusal::KnownAs(code, _) => Some(*code),
            Refusal::Format(_) | Refusal::Request(_) | Refusal::Foreign(_) | Refusal::Busy(_) => None,
        }
    }

    pub(super) fn into_answer(self, ending: &str) -> Answer {
        let code = self.code();
        let mut answer = self.in_words(ending);
        if let Some(code) = code {
            answer.extensions_mut().insert(code);
        }
        answer
    }

    fn in_words(self, ending: &str) -> Answer {
        let (kind, name, extra, value) = match self {
            Refusal::KnownAs(_, refusal) => return refusal.in_words(ending),
            Refusal::Format(message) => (1, "INVALID_FORMAT", "msg", quoted(&message)),
            Refusal::Request(message) => (2, "INVALID_REQUEST", "msg", quoted(&message)),
            Refusal::Missing(at) => (3, "MODEL_DOES_NOT_EXIST", "fqid", quoted(&at.to_string())),
            Refusal::Exists(at) => (4, "MODEL_EXISTS", "fqid", quoted(&at.to_string())),
            Refusal::NotDeleted(at) => (5, "MODEL_NOT_DELETED", "fqid", quoted(&at.to_string())),
            Refusal::Locked(keys) => {
                let keys: Vec<String> = keys.iter().map(|key| quoted(key)).collect();
                (6, "MODEL_LOCKED", "keys", format!("[{}]", keys.join(",")))
            }
            Refusal::NotEmpty(position) => {
                let message = format!(
                    "a migration index is taken by an empty datastore only; this one is at position {position}"
                );
                (8, "DATASTORE_NOT_EMPTY", "msg", quoted(&message))
            }
            Refusal::Foreign(message) => return plain(StatusCode::FORBIDDEN, &message),
            Refusal::Busy(message) => {
                let mut answer = plain(StatusCode::SERVICE_UNAVAILABLE, &message);
                answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
                return answer;
            }
            Refusal::Failed => {
                let message = "the server's storage failed; its log says more";
                return plain(StatusCode::INTERNAL_SERVER_ERROR, message);
            }
        };
        let body = format!(
            "{{\"error\":{{\"{extra}\":{value},\"type\":{kind},\"type_verbose\":\"{name}\"}}}}{ending}"
        );
        json(StatusCode::BAD_REQUEST, body.into_bytes())
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Refusal {
        match error {
            BodyError::NoMemory(trouble) => (*trouble).into(),
            error => {
                let Trouble { code, message, .. } = Trouble::from(error);
                Refusal::Request(message).known_as(code)
            }
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Refusal {
        tracing::error!(%error, "answer an OpenSlides request");
        Refusal::Failed
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
                Refusal::over("looks_max", limit, "too many models would have to be looked at")
            }
            PageError::Store(error) => error.into(),
            PageError::Elsewhere(trouble) => (*trouble).into(),
            PageError::Exhausted(exhausted) => Unfinished::from(exhausted).into(),
        }
    }
}

impl From<ShardError> for Refusal {
    fn from(error: ShardError) -> Refusal {
        match error {
            ShardError::Refused(refused) => (*refused).into(),
            ShardError::NotEmpty(position) => Refusal::NotEmpty(position),
            ShardError::HasPositions(at) => {
                Refusal::Request(format!("{at} was written with events, so it is not written without"))
                    .known_as(Code::DocumentExists)
            }
            ShardError::NoIdsLeft => {
                Refusal::Format("there are not so many ids left".to_owned()).known_as(Code::OverLimit)
            }
            ShardError::TooManyNamespaces(limit) => {
                Refusal::over("namespaces_max", limit, "there are too many namespaces")
            }
            ShardError::TooMuchPending(limit) => Refusal::Busy(format!(
                "too much is waiting for the disk; the limit pending_bytes_max is {limit}; try later"
            ))
            .known_as(Code::TooMany),
            ShardError::Store(error) => error.into(),
            ShardError::Loading => Refusal::Busy(
                "a dump is being loaded into the namespace; try again when that is done".to_owned(),
            )
            .known_as(Code::NamespaceLoading),
            ShardError::Purging => {
                Refusal::Busy("what this would write is being purged; try again when it is gone".to_owned())
                    .known_as(Code::Purging)
            }
            ShardError::Elsewhere => Refusal::Busy("the shard map has just changed; try again".to_owned())
                .known_as(Code::WrongEpoch),
            ShardError::IdempotencyMismatch
            | ShardError::Misfit(_)
            | ShardError::Purged(_)
            | ShardError::Ahead(..)
            | ShardError::TooManyIndexes(_) => {
                unreachable!(
                    "the facade has neither idempotency keys nor dumps nor indexes, and takes any position"
                )
            }
        }
    }
}

impl From<GateError> for Refusal {
    fn from(error: GateError) -> Refusal {
        match error {
            GateError::Shard(error) => error.into(),
            GateError::Refused(trouble) => (*trouble).into(),
        }
    }
}

impl From<Trouble> for Refusal {
    fn from(trouble: Trouble) -> Refusal {
        let code = trouble.code;
        let refusal = match code {
            Code::Locked | Code::Timeout | Code::LockLost => Refusal::Locked(locked_keys(&trouble.paths)),
            Code::UnknownField | Code::ReservedCollection => Refusal::Format(trouble.message),
            Code::ForeignHost | Code::ForeignOrigin => Refusal::Foreign(trouble.message),
            Code::BudgetExceeded => Refusal::Request(trouble.message),
            _ => Refusal::Busy(trouble.message),
        };
        refusal.known_as(code)
    }
}

/// The models and fields that others hold, as keys of locks are written.
fn locked_keys(paths: &[Path]) -> Vec<String> {
    let mut keys: Vec<String> =
        paths.iter().map(|path| path.segments().collect::<Vec<_>>().join("/")).collect();
    keys.sort_unstable();
    keys.dedup();
    // That a model comes or goes changes the list of its collection; the model itself says more.
    if keys.iter().any(|key| key.contains('/')) {
        keys.retain(|key| key.contains('/'));
    }
    keys
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Refusal {
        match refused {
            Refused::Locked(broken) => {
                let mut keys: Vec<String> = broken.iter().map(|broken| key(&broken.lock.target)).collect();
                keys.sort_unstable();
                keys.dedup();
                Refusal::Locked(keys)
            }
            Refused::NoDocument { at, .. } => Refusal::Missing(at),
            Refused::Exists { at, .. } => Refusal::Exists(at),
            Refused::NotDeleted { at, .. } => Refusal::NotDeleted(at),
            // Only the native interface has preconditions.
            Refused::Unexpected { .. }
            | Refused::NotAList { .. }
            | Refused::NoNode { .. }
            | Refused::NoContainer { .. } => Refusal::Format(refused.to_string()),
            Refused::Misfit { ref misfits, .. } => {
                let places: Vec<String> =
                    misfits.iter().map(|misfit| format!("{}: {}", misfit.path, misfit.reason)).collect();
                Refusal::Format(format!("{refused}: {}", places.join("; "))).known_as(Code::SchemaMismatch)
            }
            Refused::OverLimit { .. } => Refusal::Request(refused.to_string()).known_as(Code::OverLimit),
            Refused::Unchecked => Refusal::Request(refused.to_string()).known_as(Code::BudgetExceeded),
        }
    }
}

/// The key of a lock as it was sent: the grammar leaves one way to write each.
fn key(target: &Target) -> String {
    match target {
        Target::Document(at) => at.to_string(),
        Target::Field(at, field) => format!("{at}/{field}"),
        Target::CollectionField { collection, field, .. } => format!("{collection}/{field}"),
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text is valid JSON")
}

pub(super) fn json(status: StatusCode, body: Vec<u8>) -> Answer {
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    answer
}

/// An error that is not one of the eight.
pub(super) fn plain(status: StatusCode, message: &str) -> Answer {
    json(status, format!("{{\"error\":{}}}", quoted(message)).into_bytes())
}

pub(super) fn method_not_allowed(allowed: &'static str) -> Answer {
    let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, &format!("only {allowed} is allowed here"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

pub(super) fn silent(status: StatusCode) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}

pub(super) fn written(last: Option<Position>) -> Answer {
    let mut answer = silent(StatusCode::CREATED);
    if let Some(position) = last {
        answer.headers_mut().insert(POSITION, position.0.into());
    }
    answer
}

/// Ids from `first` on.
pub(super) fn ids(first: u64, amount: u64) -> Answer {
    let mut body = b"{\"ids\":[".to_vec();
    for id in first..first + amount {
        let comma = if id > first { "," } else { "" };
        write!(body, "{comma}{id}").expect("memory takes everything");
    }
    body.extend_from_slice(b"]}\n");
    json(StatusCode::OK, body)
}
