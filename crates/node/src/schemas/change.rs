//! Changing a registry: register, delete, settings. One change at a time, each durable before it is told.
//!
//! Indexes that a schema asks for are declared before it is registered and taken away after it is gone, so a crash
//! in between leaves an index too many, which changes no answer.

use super::{
    Book, Known, Mode, Subject, Version,
    book::{Settings, at, policy_name, quoted},
};
use crate::{
    gate::{self, GateError, Terms},
    kernel::Kernel,
    shard::{Call, ShardError, in_place},
};
use lockwood_engine::{Action, Intent, NoRules, PutIf, Request};
use lockwood_model::{FieldPath, FieldValue, Json, Wait};
use lockwood_schema::{Incompatibility, Invalid, Level, Policy, Schema, check};
use lockwood_storage::StoreError;
use lockwood_wire::documents::Isolation;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// What became of a schema that was to be registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// The number of the version in its subject.
    pub version: u32,
    /// The number of the schema in its namespace.
    pub id: u64,
    /// False if the subject had it already.
    pub new: bool,
}

/// What was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// The versions that were deleted.
    pub versions: Vec<u32>,
}

/// What is to be said about a subject, or about all; what is none stays as it is.
#[derive(Debug, Clone, Default)]
pub struct SubjectSettings {
    /// Some(None): nothing is said any more.
    pub level: Option<Option<Level>>,
    /// What becomes of fields that the schema does not name.
    pub policy: Option<Option<Policy>>,
    /// Whether the subject can be changed.
    pub mode: Option<Option<Mode>>,
    /// How reads are isolated unless they say.
    pub isolation: Option<Option<Isolation>>,
    /// Whether schemas are normalised when they are registered.
    pub normalize: Option<Option<bool>>,
    /// The subject that is meant by this one.
    pub alias: Option<Option<Box<str>>>,
}

/// Why a registry was not changed.
#[derive(Debug)]
pub enum SchemaError {
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
    /// It is deleted already, though not for good; the version, if one was meant.
    Deleted(Option<u32>),
    /// It has to be deleted before it is deleted for good; the version, if one was meant.
    NotDeleted(Option<u32>),
    /// More than a named limit allows.
    Over {
        /// The name of the limit.
        name: &'static str,
        /// The limit.
        limit: u64,
        /// What is too much.
        what: String,
    },
    /// The registry is not what the change was made of any more.
    Overtaken,
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
    pub fn incompatibilities(&self, subject: &str, schema: &Schema) -> Vec<(u32, Incompatibility)> {
        let live: Vec<&Version> = self.subject(subject).into_iter().flat_map(Subject::live).collect();
        let earlier: Vec<&Schema> = live.iter().map(|version| &version.schema).collect();
        let found = check(self.level(subject), self.policy(subject), schema, &earlier);
        found.into_iter().map(|reason| (live[reason.earlier].number, reason)).collect()
    }
}

/// Whether the schema must be one that documents can be held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// Documents of a collection.
    Documents,
    /// Values of any kind, as other systems register them.
    Anything,
}

/// Registers a schema under a subject, unless the subject has it already.
pub async fn register(
    kernel: &Arc<Kernel>,
    namespace: &str,
    subject: &str,
    text: &str,
    purpose: For,
) -> Result<Registered, SchemaError> {
    check_sizes(kernel, subject, text)?;
    let schema = aside(|| read_schema(text, purpose))?;
    let (text, subject): (Arc<str>, _) = (Arc::from(text), subject.to_owned());
    whole(kernel, namespace, move |registry| {
        let (subject, schema, text) = (subject.clone(), schema.clone(), Arc::clone(&text));
        async move { registry.register(&subject, schema, text).await }
    })
    .await
}

/// The schema a text is, if it may be registered for this purpose.
pub fn read_schema(text: &str, purpose: For) -> Result<Schema, SchemaError> {
    let schema = Schema::parse(text).map_err(SchemaError::Invalid)?;
    if purpose == For::Documents && !schema.describes_objects() {
        return Err(SchemaError::NotObjects);
    }
    Ok(schema)
}

/// Deletes one version, or all if none is given. The first time it can still be seen by those who ask for
/// deleted ones; the second time, `permanent`, it is gone.
pub async fn delete(
    kernel: &Arc<Kernel>,
    namespace: &str,
    subject: &str,
    version: Option<u32>,
    permanent: bool,
) -> Result<Removed, SchemaError> {
    let subject = subject.to_owned();
    whole(kernel, namespace, move |registry| {
        let subject = subject.clone();
        async move { registry.delete(&subject, version, permanent).await }
    })
    .await
}

/// Says something about a subject, or about all subjects that say nothing themselves.
pub async fn set(
    kernel: &Arc<Kernel>,
    namespace: &str,
    subject: Option<&str>,
    settings: SubjectSettings,
) -> Result<(), SchemaError> {
    check_sizes(kernel, subject.unwrap_or_default(), "")?;
    let subject = subject.map(str::to_owned);
    whole(kernel, namespace, move |registry| {
        let (subject, settings) = (subject.clone(), settings.clone());
        async move { registry.set(subject.as_deref(), &settings).await }
    })
    .await
}

/// Takes away all that is said of a subject, for a purge that holds the locks on the registry and on the collection: it
/// waits for nobody, so nobody has to wait for it to give up. The indexes go with the collection.
pub(crate) async fn unbind(kernel: &Arc<Kernel>, namespace: &str, subject: &str) -> Result<(), SchemaError> {
    let book = kernel.schemas.book(kernel, namespace)?;
    let Some(known) = book.subjects.get(subject) else { return Ok(()) };
    let mut changes: Vec<(i64, Action)> =
        known.versions.values().map(|version| (version.key, Action::Delete)).collect();
    let mut after = Book::clone(&book);
    if let Some(key) = known.settings.key {
        let nothing = Settings { key: Some(key), ..Settings::default() };
        let fields = settings_fields(Some(subject), &nothing);
        changes.push((key, Action::Put { fields, when: PutIf::Always }));
        after.say(Some(subject), nothing);
    }
    if changes.is_empty() {
        return Ok(());
    }
    after.subjects.entry(subject.into()).or_default().versions.clear();
    let (call, after) = (call_of(changes), Known::new(after));
    kernel.schemas.install(namespace, &book, &after);
    let settled = async {
        let pending = kernel.shard.decide_write(namespace, &call, &NoRules, kernel.clock.now())?;
        kernel.shard.settle_write(&call, pending).await
    };
    let settled = settled.await;
    // Also if it went well: a change that was refused meanwhile may have read again what was there before.
    kernel.schemas.reread(kernel, namespace);
    settled.map_err(GateError::from)?;
    Ok(())
}

/// Does a change to its end, also if nobody waits for it any more, and no other one meanwhile.
async fn whole<T, F>(
    kernel: &Arc<Kernel>,
    namespace: &str,
    change: impl Fn(Registry) -> F + Send + Sync + 'static,
) -> Result<T, SchemaError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, SchemaError>> + Send,
{
    let (kernel, namespace): (_, Box<str>) = (Arc::clone(kernel), namespace.into());
    let work = tokio::spawn(async move {
        let turn = Arc::clone(&kernel);
        let _turn = turn.schemas.changing.lock().await;
        loop {
            let book = kernel.schemas.book(&kernel, &namespace)?;
            let registry = Registry { kernel: Arc::clone(&kernel), namespace: namespace.clone(), book };
            match change(registry).await {
                Err(SchemaError::Overtaken) => {}
                done => return done,
            }
        }
    });
    work.await.unwrap_or_else(|error| {
        tracing::error!(%error, "change a schema registry");
        Err(StoreError::Poisoned.into())
    })
}

/// A registry that nobody else changes at the moment.
struct Registry {
    kernel: Arc<Kernel>,
    namespace: Box<str>,
    book: Arc<Book>,
}

impl Registry {
    async fn register(
        self,
        subject: &str,
        schema: Schema,
        text: Arc<str>,
    ) -> Result<Registered, SchemaError> {
        let known = self.book.subject(subject);
        let latest = known.and_then(Subject::latest);
        let same = |version: &&Version| version.schema == schema;
        if let Some(found) = known.and_then(|known| known.live().rev().find(same)) {
            if latest.is_some_and(|latest| latest.number == found.number) {
                // Somebody may have taken them away by hand.
                self.declare_indexes(subject, Some(&schema)).await?;
            }
            return Ok(Registered { version: found.number, id: found.id, new: false });
        }
        self.check_allowed(subject, &schema)?;
        let id = self.book.id_of(&schema).unwrap_or(self.book.last_id + 1);
        let number = self.book.subjects.get(subject).map_or(0, |subject| subject.last_version) + 1;
        let version =
            Version { number, id, schema: schema.clone(), text, deleted: false, key: self.book.last_key + 1 };
        let declared = self.declare_indexes(subject, Some(&schema)).await?;
        let change = (version.key, Action::Create { fields: version_fields(subject, &version) });
        let mut book = Book::clone(&self.book);
        book.add(subject, version);
        if let Err(error) = self.write(vec![change], book).await {
            self.drop_indexes(subject, &declared).await?;
            return Err(error);
        }
        self.drop_indexes(subject, &gone(latest.map(|latest| &latest.schema), Some(&schema))).await?;
        Ok(Registered { version: number, id, new: true })
    }

    fn check_allowed(&self, subject: &str, schema: &Schema) -> Result<(), SchemaError> {
        self.check_writable(subject)?;
        self.check_room("the namespace has as many schemas and settings as it may have")?;
        let reasons = aside(|| self.book.incompatibilities(subject, schema));
        match reasons.is_empty() {
            true => Ok(()),
            false => Err(SchemaError::Incompatible(self.book.level(subject), reasons)),
        }
    }

    fn check_writable(&self, subject: &str) -> Result<(), SchemaError> {
        if self.book.mode(subject) == Mode::ReadOnly { Err(SchemaError::ReadOnly) } else { Ok(()) }
    }

    fn check_room(&self, what: &str) -> Result<(), SchemaError> {
        let limit = self.kernel.config.limits.schemas_max;
        if self.book.records_len() as u64 >= limit {
            return Err(SchemaError::Over { name: "schemas_max", limit, what: what.to_owned() });
        }
        Ok(())
    }

    async fn delete(
        self,
        subject: &str,
        version: Option<u32>,
        permanent: bool,
    ) -> Result<Removed, SchemaError> {
        let known = self.book.subject(subject).ok_or(SchemaError::NoSubject)?;
        self.check_writable(subject)?;
        let meant: Vec<&Version> = match version {
            Some(number) => vec![known.versions.get(&number).ok_or(SchemaError::NoVersion)?],
            None => known.versions.values().filter(|version| permanent || !version.deleted).collect(),
        };
        if permanent && meant.iter().any(|version| !version.deleted) {
            return Err(SchemaError::NotDeleted(version));
        }
        if !permanent && (meant.is_empty() || meant.iter().any(|version| version.deleted)) {
            return Err(SchemaError::Deleted(version));
        }
        let mut book = Book::clone(&self.book);
        let after = book.subjects.get_mut(subject).ok_or(SchemaError::NoSubject)?;
        for version in &meant {
            match (permanent, after.versions.get_mut(&version.number)) {
                (false, Some(one)) => one.deleted = true,
                _ => drop(after.versions.remove(&version.number)),
            }
        }
        let (before, now) = (known.latest(), after.latest());
        let before = before.map(|version| version.schema.clone());
        let now = now.map(|version| version.schema.clone());
        self.declare_indexes(subject, now.as_ref()).await?;
        let action = || match permanent {
            true => Action::Delete,
            false => {
                Action::Update { set: vec![("deleted".into(), Json::trusted("true"))], lists: Vec::new() }
            }
        };
        let versions: Vec<u32> = meant.iter().map(|version| version.number).collect();
        self.write(meant.iter().map(|version| (version.key, action())).collect(), book).await?;
        self.drop_indexes(subject, &gone(before.as_ref(), now.as_ref())).await?;
        Ok(Removed { versions })
    }

    async fn set(self, subject: Option<&str>, said: &SubjectSettings) -> Result<(), SchemaError> {
        let old = match subject {
            Some(subject) => self.book.subjects.get(subject).map(|subject| subject.settings.clone()),
            None => Some(self.book.settings.clone()),
        };
        let old = old.unwrap_or_default();
        let mode = said.mode.unwrap_or(old.mode);
        // Whoever says that it can be written to again may say the rest along with it.
        if said.mode.is_none() {
            match subject {
                Some(subject) => self.check_writable(subject)?,
                None if old.mode == Some(Mode::ReadOnly) => return Err(SchemaError::ReadOnly),
                None => {}
            }
        }
        let key = old.key.unwrap_or(self.book.last_key + 1);
        let (level, policy) = (said.level.unwrap_or(old.level), said.policy.unwrap_or(old.policy));
        let isolation = said.isolation.unwrap_or(old.isolation);
        let normalize = said.normalize.unwrap_or(old.normalize);
        let alias = said.alias.clone().unwrap_or(old.alias);
        let new = Settings { level, policy, mode, isolation, normalize, alias, key: old.key };
        if new == Settings::default() {
            return Ok(());
        }
        if subject.is_some() && old.key.is_none() {
            self.check_room("the namespace has as many schemas and settings of subjects as it may have")?;
        }
        let new = Settings { key: Some(key), ..new };
        let put = Action::Put { fields: settings_fields(subject, &new), when: PutIf::Always };
        let mut book = Book::clone(&self.book);
        book.say(subject, new);
        self.write(vec![(key, put)], book).await
    }

    /// Declares the indexes a schema asks for; gives those that were not there.
    async fn declare_indexes(
        &self,
        collection: &str,
        schema: Option<&Schema>,
    ) -> Result<Vec<FieldPath>, SchemaError> {
        let limit = self.kernel.config.limits.indexes_max;
        let mut declared = Vec::new();
        for field in indexed(schema) {
            let shard = &self.kernel.shard;
            match shard.declare_index(&self.namespace, (collection, &field), true, limit).await {
                Ok(true) => declared.push(field),
                Ok(false) => {}
                Err(error) => {
                    self.drop_indexes(collection, &declared).await?;
                    return Err(GateError::from(error).into());
                }
            }
        }
        if !declared.is_empty() {
            self.build_indexes();
        }
        Ok(declared)
    }

    async fn drop_indexes(&self, collection: &str, fields: &[FieldPath]) -> Result<(), SchemaError> {
        for field in fields {
            let shard = &self.kernel.shard;
            let dropped = shard.declare_index(&self.namespace, (collection, field), false, u64::MAX).await;
            dropped.map_err(GateError::from)?;
        }
        Ok(())
    }

    fn build_indexes(&self) {
        let shard = Arc::clone(&self.kernel.shard);
        tokio::spawn(async move {
            if let Err(error) = shard.fill_indexes().await {
                tracing::error!(?error, "build indexes");
            }
        });
    }

    /// Writes records, after which the registry is what `after` is.
    async fn write(&self, changes: Vec<(i64, Action)>, after: Book) -> Result<(), SchemaError> {
        let Registry { kernel, namespace, book } = self;
        let (call, after) = (call_of(changes), Known::new(after));
        let terms = Terms::anonymous(Wait::Millis(kernel.config.wait_ms));
        let is_overtaken = AtomicBool::new(false);
        let install = || {
            let is_installed = kernel.schemas.install(namespace, book, &after);
            is_overtaken.store(!is_installed, Ordering::Relaxed);
            if is_installed { Ok(()) } else { Err(ShardError::Purging) }
        };
        let written = gate::write_registry(kernel, namespace, &call, &terms, install).await;
        let Err(error) = written else { return Ok(()) };
        if is_overtaken.into_inner() {
            return Err(SchemaError::Overtaken);
        }
        kernel.schemas.reread(kernel, namespace);
        Err(error.into())
    }
}

fn call_of(changes: Vec<(i64, Action)>) -> Call {
    let intents = changes.into_iter().map(|(key, action)| Intent { at: at(key), action }).collect();
    Call { requests: vec![Request { intents, ..Request::default() }], ..Call::default() }
}

/// Reading and comparing schemas may take long; other tasks of this thread go on elsewhere meanwhile.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    in_place(work)
}

/// That a subject and the text of a schema are within the limits.
pub fn check_sizes(kernel: &Kernel, subject: &str, text: &str) -> Result<(), SchemaError> {
    let limits = &kernel.config.limits;
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

/// The fields a schema asks to have indexed, if documents are held to it.
fn indexed(schema: Option<&Schema>) -> Vec<FieldPath> {
    schema.filter(|schema| schema.describes_objects()).map(Schema::indexed_fields).unwrap_or_default()
}

/// The indexes that only the schema before asked for.
fn gone(before: Option<&Schema>, now: Option<&Schema>) -> Vec<FieldPath> {
    let wanted = indexed(now);
    indexed(before).into_iter().filter(|field| !wanted.contains(field)).collect()
}

fn version_fields(subject: &str, version: &Version) -> Vec<FieldValue> {
    vec![
        ("subject".into(), quoted(subject)),
        ("version".into(), Json::trusted(&version.number.to_string())),
        ("id".into(), Json::trusted(&version.id.to_string())),
        ("schema".into(), quoted(&version.text)),
    ]
}

fn settings_fields(subject: Option<&str>, settings: &Settings) -> Vec<FieldValue> {
    let said = [
        ("subject", subject),
        ("level", settings.level.map(Level::as_str)),
        ("policy", settings.policy.map(policy_name)),
        ("mode", settings.mode.map(Mode::as_str)),
        ("isolation", settings.isolation.map(Isolation::as_str)),
        ("alias", settings.alias.as_deref()),
    ];
    let mut fields: Vec<FieldValue> =
        said.into_iter().filter_map(|(name, text)| Some((name.into(), quoted(text?)))).collect();
    fields.extend(settings.normalize.map(|flag| ("normalize".into(), Json::trusted(&flag.to_string()))));
    fields.push(("settings".into(), Json::trusted("true")));
    fields
}
