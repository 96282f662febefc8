//! How refusals of the store, of shards and of schemas are put into words. Knows nothing of interfaces: each of them turns
//! the trouble into what its clients understand.

use crate::{
    clock::rfc3339,
    schemas::SchemaError,
    shard::{PageError, Reading, ShardError},
    trouble::{Trouble, Why},
    work::Unfinished,
};
use lockwood_engine::{Broken, BrokenBy, Expectation, Misfit, PositionLock, Refused, Target};
use lockwood_model::{DocumentKey, FieldPath, Path, Position};
use lockwood_schema::{Direction, Incompatibility, Level};
use lockwood_storage::StoreError;
use lockwood_wire::{
    Code, SchemaReason,
    documents::{BodyError, BrokenLock, WireFilter, WireKey, WireLock},
};
use std::fmt::Write as _;

impl From<BodyError> for Trouble {
    fn from(error: BodyError) -> Trouble {
        Trouble::new(error.code, error.message)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Trouble {
        match error {
            StoreError::Poisoned => Trouble::storage_failed(),
            StoreError::Gone { .. } => Trouble::new(Code::StorageFailed, error.to_string()),
            StoreError::Fenced { .. } | StoreError::Unreachable { .. } => {
                Trouble::new(Code::ShardUnreachable, format!("{error}; nothing was written, so try again"))
            }
            StoreError::Unconfirmed { .. } => {
                let message = format!(
                    "{error}; the request may have been carried out, so look before you send it again"
                );
                Trouble::new(Code::ShardUnreachable, message)
            }
            StoreError::Failed(_) => {
                tracing::error!(%error, "use the store");
                Trouble::storage_failed()
            }
            StoreError::Damaged { .. } => {
                tracing::error!(%error, "read the store");
                let message = "what is stored there is damaged, so it cannot be read; restore it from a copy";
                Trouble::new(Code::StorageFailed, message)
            }
        }
    }
}

impl From<PageError> for Trouble {
    fn from(error: PageError) -> Trouble {
        match error {
            PageError::Store(error) => error.into(),
            PageError::Elsewhere(trouble) => *trouble,
            PageError::Exhausted(exhausted) => Unfinished::from(exhausted).into(),
            PageError::TooManyRows(limit) => Trouble::over(
                "join_rows_max",
                limit,
                "too many documents of the right side would have to be remembered; filter it, put the smaller \
                 collection on the right, or declare an index for its field and filter the left",
            ),
            PageError::TooManyLooks(limit) => Trouble::over(
                "looks_max",
                limit,
                "too many documents would have to be looked at; declare an index for a field that the filter \
                 compares with =",
            ),
        }
    }
}

impl From<ShardError> for Trouble {
    fn from(error: ShardError) -> Trouble {
        match error {
            ShardError::Refused(refused) => (*refused).into(),
            ShardError::Store(error) => error.into(),
            ShardError::IdempotencyMismatch => Trouble::new(
                Code::IdempotencyMismatch,
                "the idempotency key was used for another write; use a new key for a new write",
            ),
            ShardError::NotEmpty(position) => Trouble::new(
                Code::NamespaceNotEmpty,
                format!("the namespace is at position {position}; choose one that nothing was written to"),
            ),
            ShardError::Purged(position) => Trouble::new(
                Code::NamespaceNotEmpty,
                format!(
                    "a namespace of this name was purged at position {position}, and positions are never used again; \
                     load the dump into a namespace of another name"
                ),
            ),
            ShardError::HasPositions(at) => Trouble::new(
                Code::DocumentExists,
                format!("there is a document {at} already; update or put it"),
            ),
            ShardError::Ahead(position, present) => ahead(position, present),
            ShardError::Loading => Trouble::new(
                Code::NamespaceLoading,
                "a dump is being loaded into the namespace, and nothing else is written to it until that is done",
            ),
            ShardError::Purging => Trouble::new(
                Code::Purging,
                "what this would write is being purged; try again when it is gone, which GET /v1/purges shows",
            ),
            ShardError::TooManyIndexes(limit) => {
                Trouble::over("indexes_max", limit, "the namespace has as many indexes as it may have")
            }
            ShardError::Elsewhere => {
                Trouble::new(Code::WrongEpoch, "the shard map has just changed; ask again")
            }
            ShardError::Misfit(message) => Trouble::new(Code::BadBody, message),
            ShardError::TooMuchPending(limit) => {
                Trouble::too_many("pending_bytes_max", limit, "too much is waiting for the disk")
            }
            ShardError::TooManyNamespaces(limit) => {
                Trouble::too_many("namespaces_max", limit, "there are too many namespaces")
            }
            ShardError::NoIdsLeft => {
                Trouble::new(Code::OverLimit, "there are not so many ids left in this collection")
            }
        }
    }
}

fn misfit(at: &DocumentKey, misfits: &[Misfit]) -> Trouble {
    let places: Vec<String> =
        misfits.iter().map(|misfit| format!("{}: {}", misfit.path, misfit.reason)).collect();
    let message =
        format!("the document {at} does not fit the schema of its collection: {}", places.join("; "));
    Trouble::new(Code::SchemaMismatch, message)
}

impl From<Refused> for Trouble {
    fn from(refused: Refused) -> Trouble {
        match refused {
            Refused::Locked(broken) => locked(broken),
            Refused::Unexpected { at, expected, version } => unexpected(&at, &expected, version),
            Refused::NoDocument { at, deleted: false } => no_document(&at),
            Refused::NoDocument { at, deleted: true } => Trouble::new(
                Code::DocumentDeleted,
                format!("the document {at} is deleted; restore it, or put it anew"),
            ),
            Refused::Exists { at, deleted: false } => Trouble::new(
                Code::DocumentExists,
                format!("there is a document {at} already; update or put it"),
            ),
            Refused::Exists { at, deleted: true } => Trouble::new(
                Code::DocumentDeleted,
                format!("there was a document {at}, and it is deleted; restore it, or choose another key"),
            ),
            Refused::NotDeleted { at, missing: true } => no_document(&at),
            Refused::NotDeleted { at, missing: false } => {
                Trouble::new(Code::NotDeleted, format!("the document {at} is not deleted"))
            }
            Refused::Misfit { at, misfits } => misfit(&at, &misfits),
            // It is decided again, so nobody is told.
            Refused::Unchecked => {
                Trouble::new(Code::BudgetExceeded, "the documents are not checked yet; try again")
            }
            Refused::NotAList { at, field } => Trouble::new(
                Code::NotAList,
                format!("the field {field:?} of {at} is not a list of whole numbers and strings"),
            ),
            Refused::NoNode { at, path } => no_node(&at, &path),
            Refused::NoContainer { at, path } => Trouble::new(
                Code::NoContainer,
                format!(
                    "{path} of {at} is neither a list nor an object, so nothing can be in it; set {path} itself"
                ),
            ),
            Refused::OverLimit { at, name, limit, len } => {
                Trouble::over(name, limit, &format!("the document {at} would come to {len}"))
            }
        }
    }
}

/// That a document is not there.
pub fn no_document(at: &DocumentKey) -> Trouble {
    Trouble::new(Code::NoDocument, format!("there is no document {at}"))
}

/// That a document has no such node.
pub fn no_node(at: &DocumentKey, path: &Path) -> Trouble {
    let message = format!(
        "there is no {path} in {at}; what a node is in must be there before it, and in lists \
                           places count from 0"
    );
    Trouble::new(Code::NoNode, message)
}

/// That history from before the horizon is forgotten.
pub fn too_old(position: Position, horizon: Position) -> Trouble {
    Trouble::new(
        Code::PositionTooOld,
        format!(
            "what was at position {position} is forgotten; the oldest position that is kept is {horizon}"
        ),
    )
}

/// Why there is nothing in a namespace to do something with.
pub fn no_namespace(reading: &Reading, namespace: &str, what: &str) -> Result<Trouble, StoreError> {
    let purged = reading.state().past(namespace)?;
    let why = match purged == Position::START {
        true => "nothing was ever written to it; `lockwood namespaces` lists those there are".to_owned(),
        false => format!("it was purged at position {purged}, and nothing was written to it since"),
    };
    let message = format!("there is nothing to {what} in the namespace {namespace:?}: {why}");
    Ok(Trouble::new(Code::UnknownNamespace, message))
}

/// Whether what a filter finds has changed is found out while all other writers wait, so only little may be compared.
fn too_much(lock: &PositionLock, present: Position) -> Trouble {
    let message = format!(
        "whether {} changed since position {} takes too much comparing to be found out; read again, and write with \
         position {present}, or lock with fewer conditions, shorter patterns or no filter",
        name(&lock.target),
        lock.position
    );
    Trouble::new(Code::PositionTooOld, message)
}

/// No answer has told this position yet, so it is a mistake, or it belongs to another namespace or server.
pub fn ahead(position: Position, present: Position) -> Trouble {
    let message = format!(
        "position {position} is ahead: the namespace is at position {present}; use a position that an answer for this \
         namespace told"
    );
    Trouble::new(Code::PositionAhead, message)
}

/// Says which version the document has instead of the expected one.
pub fn unexpected(at: &DocumentKey, expected: &Expectation, version: Option<Position>) -> Trouble {
    let found = match version {
        Some(version) => format!("the document {at} has the ETag \"{version}\""),
        None => format!("there is no document {at}"),
    };
    let advice = match expected {
        Expectation::Absent => "If-None-Match: * creates documents only; leave it out to replace this one",
        Expectation::Present => {
            "If-Match: * changes existing documents only; leave it out to create this one"
        }
        Expectation::OneOf(_) => "If-Match asks for another one; read again and try again with the new ETag",
        Expectation::NoneOf(_) => "If-None-Match excludes it; read again and decide again",
    };
    Trouble::new(Code::PreconditionFailed, format!("{found}; {advice}"))
}

/// Says which locks are broken, by whom, and what to do.
fn locked(broken: Vec<Broken>) -> Trouble {
    let undecided = broken.iter().find_map(|broken| match broken.by {
        BrokenBy::TooOld { horizon } => Some(too_old(broken.lock.position, horizon)),
        BrokenBy::TooMuch { present } => Some(too_much(&broken.lock, present)),
        BrokenBy::Write { .. } => None,
    });
    let is_written = broken.iter().any(|broken| matches!(broken.by, BrokenBy::Write { .. }));
    let mut trouble = match undecided.filter(|_| !is_written) {
        Some(trouble) => trouble,
        None => {
            let mut message = format!("{} changed since it was read", name(&broken[0].lock.target));
            if broken.len() > 1 {
                write!(message, " and so did {} more", broken.len() - 1).expect("text can be written");
            }
            message.push_str("; read again and try again with the new position");
            Trouble::new(Code::PositionLocked, message)
        }
    };
    trouble.why = Some(Box::new(Why::Broken(broken.into_iter().map(broken_lock).collect())));
    trouble
}

fn name(target: &Target) -> String {
    match target {
        Target::Document(at) => format!("the document {at}"),
        Target::Field(at, field) => format!("the field {field} of {at}"),
        Target::CollectionField { collection, field, filter: None } => {
            format!("the field {field} of a document in {collection:?}")
        }
        Target::CollectionField { collection, filter: Some(_), .. } => {
            format!("what a filter finds in {collection:?}")
        }
    }
}

fn broken_lock(broken: Broken) -> BrokenLock {
    let position = broken.lock.position.0;
    let lock = match broken.lock.target {
        Target::Document(at) => wire_lock(at.collection, Some(at.key), None, None, position),
        Target::Field(at, field) => wire_lock(at.collection, Some(at.key), Some(field), None, position),
        Target::CollectionField { collection, field, filter } => {
            wire_lock(collection, None, Some(field), filter.as_ref().map(Into::into), position)
        }
    };
    match broken.by {
        BrokenBy::TooOld { horizon: position } | BrokenBy::TooMuch { present: position } => {
            BrokenLock { lock, position: position.0, user: None, note: None, at: None }
        }
        BrokenBy::Write { position, origin } => {
            let (at, user, note) = match origin {
                Some(origin) => (Some(rfc3339(origin.at)), origin.user, origin.note),
                None => (None, None, None),
            };
            let value = |json: Option<lockwood_model::Json>| json.as_ref().map(Into::into);
            BrokenLock { lock, position: position.0, user: value(user), note: value(note), at }
        }
    }
}

fn wire_lock(
    collection: Box<str>,
    key: Option<lockwood_model::Key>,
    field: Option<FieldPath>,
    filter: Option<WireFilter>,
    position: u64,
) -> WireLock {
    WireLock {
        collection: collection.into(),
        key: key.map(WireKey),
        field: field.map(|field| field.to_string()),
        filter,
        position,
    }
}

/// Why a registry was not changed, in words.
pub fn schema_trouble(error: SchemaError, subject: &str) -> Trouble {
    match error {
        SchemaError::Invalid(invalid) => {
            Trouble::new(Code::BadSchema, format!("this is no JSON Schema that can be used: {invalid}"))
        }
        SchemaError::NotObjects => Trouble::new(
            Code::SchemaNotObjects,
            "documents are objects, and this schema is about something else; say \"type\": \"object\"",
        ),
        SchemaError::Incompatible(level, found) => incompatible(subject, level, &found),
        SchemaError::ReadOnly => Trouble::new(
            Code::SchemaReadOnly,
            format!("the schemas of {subject:?} are READONLY; set the mode to READWRITE first"),
        ),
        SchemaError::NoSubject => no_subject(subject),
        SchemaError::NoVersion => Trouble::new(Code::NoVersion, format!("{subject:?} has no such version")),
        SchemaError::Deleted(_) => Trouble::new(
            Code::SchemaDeleted,
            format!("{subject:?} is deleted already; say permanent=true to delete it for good"),
        ),
        SchemaError::NotDeleted(_) => Trouble::new(
            Code::SchemaNotDeleted,
            format!(
                "only what is deleted can be deleted for good; delete {subject:?} without permanent first"
            ),
        ),
        SchemaError::Over { name, limit, what } => Trouble::over(name, limit, &what),
        SchemaError::Gate(error) => error.into(),
        SchemaError::Overtaken => ShardError::Purging.into(),
    }
}

fn incompatible(subject: &str, level: Level, found: &[(u32, Incompatibility)]) -> Trouble {
    let versions = found.first().map_or(0, |(version, _)| *version);
    let message = format!(
        "the schema does not go with version {versions} of {subject:?} at level {level}; change what the reasons \
         name, or set another level"
    );
    let why = Some(Box::new(Why::Incompatible(found.iter().map(reason).collect())));
    Trouble { why, ..Trouble::new(Code::SchemaIncompatible, message) }
}

/// That nothing is registered under a subject.
pub fn no_subject(subject: &str) -> Trouble {
    let message = format!("there is no schema for {subject:?}; register one, or ask for deleted ones too");
    Trouble::new(Code::NoSubject, message)
}

/// One reason why a schema does not go with an earlier version.
pub fn reason((version, found): &(u32, Incompatibility)) -> SchemaReason {
    let direction = match found.direction {
        Direction::Backward => "backward",
        Direction::Forward => "forward",
    };
    SchemaReason {
        version: *version,
        kind: found.kind.to_string(),
        path: found.path.clone(),
        direction: direction.to_owned(),
        reason: found.reason.clone(),
    }
}
