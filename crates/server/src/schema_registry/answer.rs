//! What the facade says: the error codes of the original, and how answers are put into HTTP. Knows nothing of what
//! was asked.

use crate::body::BodyError;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER},
};
use lockwood_node::{gate::GateError, schemas::SchemaError, shard::ShardError, trouble::Trouble};
use lockwood_storage::StoreError;
use lockwood_wire::Code;
use serde_json::json;

pub(super) type Answer = Response<Full<Bytes>>;

const JSON: HeaderValue = HeaderValue::from_static("application/vnd.schemaregistry.v1+json");

/// Why a request was not done. The first three digits of the code are the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: u32,
    pub(super) message: String,
    /// What every interface calls it, if there is a code for it.
    known_as: Option<Code>,
}

impl Refusal {
    fn new(status: StatusCode, code: u32, message: impl Into<String>) -> Refusal {
        Refusal { status, code, message: message.into(), known_as: None }
    }

    /// Counted under this code.
    fn known_as(mut self, code: Code) -> Refusal {
        self.known_as = Some(code);
        self
    }

    /// An error of HTTP, without a code of its own.
    pub(super) fn plain(status: StatusCode, message: &str) -> Refusal {
        Refusal::new(status, u32::from(status.as_u16()), message)
    }

    pub(super) fn not_found() -> Refusal {
        Refusal::plain(StatusCode::NOT_FOUND, "there is nothing at this address").known_as(Code::NotFound)
    }

    pub(super) fn method_not_allowed() -> Refusal {
        Refusal::plain(StatusCode::METHOD_NOT_ALLOWED, "this address does not take this method")
            .known_as(Code::MethodNotAllowed)
    }

    fn missing(code: u32, message: String) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, code, message)
    }

    fn wrong(code: u32, message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
    }

    pub(super) fn no_subject(subject: &str) -> Refusal {
        Refusal::missing(40401, format!("Subject '{subject}' not found.")).known_as(Code::NoSubject)
    }

    pub(super) fn no_version(version: &str) -> Refusal {
        Refusal::missing(40402, format!("Version {version} not found.")).known_as(Code::NoVersion)
    }

    pub(super) fn no_schema(what: &str) -> Refusal {
        Refusal::missing(40403, format!("Schema {what} not found."))
    }

    fn subject_deleted(subject: &str) -> Refusal {
        let message =
            format!("Subject '{subject}' was soft deleted. Set permanent=true to delete permanently");
        Refusal::missing(40404, message).known_as(Code::SchemaDeleted)
    }

    fn subject_not_deleted(subject: &str) -> Refusal {
        let message = format!("Subject '{subject}' was not deleted first before being permanently deleted");
        Refusal::missing(40405, message).known_as(Code::SchemaNotDeleted)
    }

    fn version_deleted(subject: &str, version: u32) -> Refusal {
        let message = format!(
            "Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
        );
        Refusal::missing(40406, message).known_as(Code::SchemaDeleted)
    }

    fn version_not_deleted(subject: &str, version: u32) -> Refusal {
        let message = format!(
            "Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
        );
        Refusal::missing(40407, message).known_as(Code::SchemaNotDeleted)
    }

    pub(super) fn no_level(subject: &str) -> Refusal {
        let message = format!("Subject '{subject}' does not have subject-level compatibility configured");
        Refusal::missing(40408, message)
    }

    pub(super) fn no_mode(subject: &str) -> Refusal {
        Refusal::missing(40409, format!("Subject '{subject}' does not have subject-level mode configured"))
    }

    pub(super) fn bad_schema(message: impl Into<String>) -> Refusal {
        Refusal::wrong(42201, message).known_as(Code::BadSchema)
    }

    pub(super) fn bad_version(text: &str) -> Refusal {
        let message = format!(
            "The specified version '{text}' is not a valid version id. Allowed values are between [1, 2^31-1] \
             and the string \"latest\""
        );
        Refusal::wrong(42202, message).known_as(Code::BadVersion)
    }

    pub(super) fn bad_level(message: String) -> Refusal {
        Refusal::wrong(42203, message).known_as(Code::BadSetting)
    }

    pub(super) fn bad_mode(text: &str) -> Refusal {
        Refusal::wrong(42204, format!("{text:?} is no mode here; there are READWRITE and READONLY"))
            .known_as(Code::BadSetting)
    }

    pub(super) fn not_permitted(message: impl Into<String>) -> Refusal {
        Refusal::wrong(42205, message)
    }

    /// A member of a config that nothing here would heed.
    pub(super) fn unsupported_member(name: &str) -> Refusal {
        Refusal::not_permitted(format!(
            "the config member {name:?} is not supported; send the config without it (supported are \
             compatibility, compatibilityLevel, compatibilityPolicy, normalize and alias)"
        ))
        .known_as(Code::BadSetting)
    }

    pub(super) fn bad_subject(message: impl Into<String>) -> Refusal {
        Refusal::wrong(42208, message)
    }

    /// More than the limit called `name` allows.
    pub(super) fn over(name: &str, limit: u64, what: &str) -> Refusal {
        let code = match name {
            "subject_bytes_max" | "namespace_bytes_max" => 42208,
            "schemas_max" | "indexes_max" => 42205,
            _ => 42209,
        };
        let Trouble { code: known_as, message, .. } = Trouble::over(name, limit, what);
        Refusal::wrong(code, message).known_as(known_as)
    }

    /// What a change of a registry was refused for.
    pub(super) fn of_change(error: SchemaError, subject: &str) -> Refusal {
        match error {
            SchemaError::Invalid(invalid) => Refusal::bad_schema(format!("Invalid schema: {invalid}")),
            SchemaError::NotObjects => {
                Refusal::bad_schema("the schema is not about objects").known_as(Code::SchemaNotObjects)
            }
            SchemaError::Incompatible(level, reasons) => {
                let lines: Vec<String> =
                    reasons.iter().map(|(version, reason)| format!("version {version}: {reason}")).collect();
                let message = format!(
                    "Schema being registered is incompatible with an earlier schema for subject '{subject}' \
                     at level {level}: {}",
                    lines.join("; ")
                );
                Refusal::new(StatusCode::CONFLICT, 40901, message).known_as(Code::SchemaIncompatible)
            }
            SchemaError::ReadOnly => Refusal::not_permitted(format!(
                "Subject '{subject}' is in READONLY mode; set it to READWRITE first"
            ))
            .known_as(Code::SchemaReadOnly),
            SchemaError::NoSubject => Refusal::no_subject(subject),
            SchemaError::NoVersion => Refusal::no_version("asked for"),
            SchemaError::Deleted(None) => Refusal::subject_deleted(subject),
            SchemaError::Deleted(Some(version)) => Refusal::version_deleted(subject, version),
            SchemaError::NotDeleted(None) => Refusal::subject_not_deleted(subject),
            SchemaError::NotDeleted(Some(version)) => Refusal::version_not_deleted(subject, version),
            SchemaError::Over { name, limit, what } => Refusal::over(name, limit, &what),
            SchemaError::Gate(GateError::Refused(trouble)) => Refusal::of_trouble(*trouble),
            SchemaError::Gate(GateError::Shard(ShardError::TooManyIndexes(limit))) => {
                Refusal::over("indexes_max", limit, "the namespace has as many indexes as it may have")
            }
            SchemaError::Gate(GateError::Shard(error)) => Refusal::of_trouble(error.into()),
            SchemaError::Overtaken => Refusal::of_trouble(ShardError::Purging.into()),
        }
    }

    /// What the original has no words for; most of it is neither the client's mistake nor for ever.
    pub(super) fn of_trouble(trouble: Trouble) -> Refusal {
        if let Code::ForeignHost | Code::ForeignOrigin = trouble.code {
            return Refusal::plain(StatusCode::FORBIDDEN, &trouble.message).known_as(trouble.code);
        }
        let code = match trouble.code {
            Code::Locked
            | Code::Timeout
            | Code::GracePeriod
            | Code::Draining
            | Code::TooMany
            | Code::MemoryInUse => 50002,
            _ => 50001,
        };
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, code, trouble.message).known_as(trouble.code)
    }

    pub(super) fn into_answer(self) -> Answer {
        let body = json!({ "error_code": self.code, "message": self.message });
        let mut answer = json(self.status, body.to_string());
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(code) = self.known_as {
            answer.extensions_mut().insert(code);
        }
        answer
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Refusal {
        let plain = |status, error| {
            let Trouble { code, message, .. } = Trouble::from(error);
            Refusal::plain(status, &message).known_as(code)
        };
        match error {
            BodyError::TooLarge { name, limit } => Refusal::over(name, limit, "the body is too large"),
            BodyError::TooSlow { .. } => plain(StatusCode::REQUEST_TIMEOUT, error),
            BodyError::CutOff => plain(StatusCode::BAD_REQUEST, error),
            BodyError::NoMemory(trouble) => Refusal::of_trouble(*trouble),
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Refusal {
        Refusal::of_trouble(error.into())
    }
}

pub(super) fn json(status: StatusCode, body: String) -> Answer {
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    answer
}
