//! Changing a registry: register, delete, settings. One change at a time, each durable before it is told.

use super::{
    Book, Mode, Subject, Version,
    book::{Settings, at, policy_name, quoted},
};
use crate::{
    gate::{self, GateError, Terms},
    shard::Call,
    shared::Shared,
};
use lockwood_engine::{Action, Intent, PutIf, Request};
use lockwood_model::{FieldValue, Json, Wait};
use lockwood_schema::{Incompatibility, Invalid, Level, Policy, Schema, check};
use lockwood_storage::StoreError;
use std::sync::Arc;

/// What became of a schema that was to be registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) version: u32,
    pub(crate) id: u64,
    /// False if the subject had it already.
    pub(crate) new: bool,
}

/// What was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Removed {
    pub(crate) versions: Vec<u32>,
}

/// What is to be said about a subject, or about all; what is none stays as it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct SubjectSettings {
    /// Some(None): nothing is said any more.
    pub(crate) level: Option<Option<Level>>,
    pub(crate) policy: Option<Option<Policy>>,
    pub(crate) mode: Option<Option<Mode>>,
}

/// Why a registry was not changed.
#[derive(Debug)]
pub(crate) enum SchemaError {
    /// It is no schema.
    Invalid(Invalid),
    /// A schema for documents must be about objects.
    NotObjects,
    /// It does not go with earlier versions; each reason with the version it is about.
    Incompatible(Level, Vec<(u32, Incompatibility)>),
    /// The subject takes no schemas at the moment.
    ReadOnly,
    /// There is no such subject.
    NoSubject,
    /// There is such a subject, but no such version.
    NoVersion,
    /// It is deleted already, though not for good.
    Deleted,
    /// It has to be deleted before it is deleted for good.
    NotDeleted,
    /// More than a named limit allows.
    Over { name: &'static str, limit: u64, what: String },
    /// The store, or locks.
    Gate(GateError),
}

impl From<GateError> for SchemaError {
    fn from(error: GateError) -> SchemaError {
        SchemaError::Gate(error)
    }
}

impl From<StoreError> for SchemaError {
    fn from(error: StoreError) -> SchemaError {
        SchemaError::Gate(GateError::Shard(error.into()))
    }
}

impl Book {
    /// Why a schema cannot be the next of a subject, each reason with the version it is about.
    pub(crate) fn incompatibilities(&self, subject: &str, schema: &Schema) -> Vec<(u32, Incompatibility)> {
        let live: Vec<&Version> = self.subject(subject).into_iter().flat_map(Subject::live).collect();
        let earlier: Vec<&Schema> = live.iter().map(|version| &version.schema).collect();
        let found = check(self.level(subject), self.policy(subject), schema, &earlier);
        found.into_iter().map(|reason| (live[reason.earlier].number, reason)).collect()
    }
}

/// Whether the schema must be one that documents can be held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Documents,
    Anything,
}

/// Registers a schema under a subject, unless the subject has it already.
pub(crate) async fn register(
    shared: &Arc<Shared>,
    namespace: &str,
    subject: &str,
    text: &str,
    purpose: For,
) -> Result<Registered, SchemaError> {
    check_sizes(shared, subject, text)?;
    let schema = Schema::parse(text).map_err(SchemaError::Invalid)?;
    if purpose == For::Documents && !schema.describes_objects() {
        return Err(SchemaError::NotObjects);
    }
    let _turn = shared.schemas.changing.lock().await;
    let book = shared.schemas.book(shared, namespace)?;
    let known = book.subject(subject);
    let same = |version: &&Version| version.schema.canonical() == schema.canonical();
    if let Some(found) = known.and_then(|known| known.live().rev().find(same)) {
        return Ok(Registered { version: found.number, id: found.id, new: false });
    }
    check_allowed(shared, &book, subject, &schema)?;
    let id = book.id_of(&schema).unwrap_or(book.last_id + 1);
    let version = book.subjects.get(subject).map_or(0, |subject| subject.last_version) + 1;
    let fields = vec![
        ("subject".into(), quoted(subject)),
        ("version".into(), Json::trusted(&version.to_string())),
        ("id".into(), Json::trusted(&id.to_string())),
        ("schema".into(), quoted(text)),
    ];
    let before = known.and_then(Subject::latest).map(|version| version.schema.clone());
    write(shared, namespace, vec![(book.last_key + 1, Action::Create { fields })]).await?;
    if schema.describes_objects() {
        keep_indexes(shared, namespace, subject, before.as_ref(), &schema).await?;
    }
    Ok(Registered { version, id, new: true })
}

fn check_sizes(shared: &Shared, subject: &str, text: &str) -> Result<(), SchemaError> {
    let limits = &shared.config.limits;
    let sizes = [
        ("schema_bytes_max", limits.schema_bytes_max, text.len(), "the schema"),
        ("subject_bytes_max", limits.subject_bytes_max, subject.len(), "the subject's name"),
    ];
    for (name, limit, len, what) in sizes {
        if len as u64 > limit {
            return Err(SchemaError::Over { name, limit, what: format!("{what} has {len} bytes") });
        }
    }
    Ok(())
}

fn check_allowed(shared: &Shared, book: &Book, subject: &str, schema: &Schema) -> Result<(), SchemaError> {
    if book.mode(subject) == Mode::ReadOnly {
        return Err(SchemaError::ReadOnly);
    }
    let limit = shared.config.limits.schemas_max;
    let len: usize = book.subjects.values().map(|subject| subject.versions.len()).sum();
    if len as u64 >= limit {
        let what = "the namespace has as many schemas as it may have".to_owned();
        return Err(SchemaError::Over { name: "schemas_max", limit, what });
    }
    let reasons = book.incompatibilities(subject, schema);
    if reasons.is_empty() { Ok(()) } else { Err(SchemaError::Incompatible(book.level(subject), reasons)) }
}

/// Declares the indexes a schema asks for, and takes away those that only the one before asked for.
async fn keep_indexes(
    shared: &Arc<Shared>,
    namespace: &str,
    collection: &str,
    before: Option<&Schema>,
    now: &Schema,
) -> Result<(), SchemaError> {
    let limit = shared.config.limits.indexes_max;
    let wanted = now.indexed_fields();
    for field in &wanted {
        let declared = shared.shard.declare_index(namespace, (collection, field), true, limit).await;
        declared.map_err(GateError::from)?;
    }
    let gone = before.into_iter().flat_map(Schema::indexed_fields).filter(|field| !wanted.contains(field));
    for field in gone {
        let dropped = shared.shard.declare_index(namespace, (collection, field), false, u64::MAX).await;
        dropped.map_err(GateError::from)?;
    }
    let shard = Arc::clone(&shared.shard);
    tokio::spawn(async move {
        if let Err(error) = shard.fill_indexes().await {
            tracing::error!(?error, "build indexes");
        }
    });
    Ok(())
}

/// Deletes one version, or all if none is given. The first time it can still be seen by those who ask for
/// deleted ones; the second time, `permanent`, it is gone.
pub(crate) async fn delete(
    shared: &Arc<Shared>,
    namespace: &str,
    subject: &str,
    version: Option<u32>,
    permanent: bool,
) -> Result<Removed, SchemaError> {
    let _turn = shared.schemas.changing.lock().await;
    let book = shared.schemas.book(shared, namespace)?;
    let known = book.subject(subject).ok_or(SchemaError::NoSubject)?;
    if book.mode(subject) == Mode::ReadOnly {
        return Err(SchemaError::ReadOnly);
    }
    let meant: Vec<&Version> = match version {
        Some(number) => vec![known.versions.get(&number).ok_or(SchemaError::NoVersion)?],
        None => known.versions.values().filter(|version| permanent || !version.deleted).collect(),
    };
    if permanent && meant.iter().any(|version| !version.deleted) {
        return Err(SchemaError::NotDeleted);
    }
    if !permanent && (meant.is_empty() || meant.iter().any(|version| version.deleted)) {
        return Err(SchemaError::Deleted);
    }
    let action = |_: &&Version| match permanent {
        true => Action::Delete,
        false => Action::Update { set: vec![("deleted".into(), Json::trusted("true"))], lists: Vec::new() },
    };
    let changes = meant.iter().map(|version| (version.key, action(version))).collect();
    write(shared, namespace, changes).await?;
    Ok(Removed { versions: meant.iter().map(|version| version.number).collect() })
}

/// Says something about a subject, or about all subjects that say nothing themselves.
pub(crate) async fn set(
    shared: &Arc<Shared>,
    namespace: &str,
    subject: Option<&str>,
    settings: SubjectSettings,
) -> Result<(), SchemaError> {
    check_sizes(shared, subject.unwrap_or_default(), "")?;
    let _turn = shared.schemas.changing.lock().await;
    let book = shared.schemas.book(shared, namespace)?;
    let old = match subject {
        Some(subject) => {
            book.subjects.get(subject).map(|subject| subject.settings.clone()).unwrap_or_default()
        }
        None => book.settings.clone(),
    };
    let new = Settings {
        level: settings.level.unwrap_or(old.level),
        policy: settings.policy.unwrap_or(old.policy),
        mode: settings.mode.unwrap_or(old.mode),
        key: old.key,
    };
    let key = old.key.unwrap_or(book.last_key + 1);
    let put = Action::Put { fields: settings_fields(subject, &new), when: PutIf::Always };
    write(shared, namespace, vec![(key, put)]).await
}

fn settings_fields(subject: Option<&str>, settings: &Settings) -> Vec<FieldValue> {
    let said = [
        ("subject", subject),
        ("level", settings.level.map(Level::as_str)),
        ("policy", settings.policy.map(policy_name)),
        ("mode", settings.mode.map(Mode::as_str)),
    ];
    let mut fields: Vec<FieldValue> =
        said.into_iter().filter_map(|(name, text)| Some((name.into(), quoted(text?)))).collect();
    fields.push(("settings".into(), Json::trusted("true")));
    fields
}

async fn write(
    shared: &Arc<Shared>,
    namespace: &str,
    changes: Vec<(i64, Action)>,
) -> Result<(), SchemaError> {
    let intents = changes.into_iter().map(|(key, action)| Intent { at: at(key), action }).collect();
    let request = Request { intents, ..Request::default() };
    let call = Call { requests: vec![request], ..Call::default() };
    let terms = Terms::anonymous(Wait::Millis(shared.config.wait_ms));
    let written = gate::write_registry(shared, namespace, &call, &terms).await;
    // Also if it failed: then it is not known what is there.
    shared.schemas.forget(namespace);
    written?;
    Ok(())
}
