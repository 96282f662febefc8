//! What is in a registry: subjects with their versions and settings. Decides nothing.

use super::COLLECTION;
use crate::shard::Reading;
use lockwood_model::{Json, Key};
use lockwood_schema::{Level, Policy, Schema};
use lockwood_storage::{DocumentRef, Order, StoreError};
use std::{collections::BTreeMap, sync::Arc};

/// A registry at one moment.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) subjects: BTreeMap<Box<str>, Subject>,
    /// What holds for subjects that do not say.
    pub(crate) settings: Settings,
    /// The largest key of a document in it.
    pub(super) last_key: i64,
    /// The largest id given out so far.
    pub(super) last_id: u64,
}

/// What is known under one name.
#[derive(Debug, Default)]
pub(crate) struct Subject {
    /// Also those that are deleted, but not for good.
    pub(crate) versions: BTreeMap<u32, Version>,
    pub(crate) settings: Settings,
    /// The largest number a version ever had.
    pub(crate) last_version: u32,
}

/// One schema of a subject.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) number: u32,
    /// The same for the same schema under every subject of the namespace.
    pub(crate) id: u64,
    pub(crate) schema: Schema,
    /// As it was registered.
    pub(crate) text: Arc<str>,
    pub(crate) deleted: bool,
    /// The document it is kept in.
    pub(super) key: i64,
}

/// What was said about a subject, or about all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) level: Option<Level>,
    pub(crate) policy: Option<Policy>,
    pub(crate) mode: Option<Mode>,
    /// The document it is kept in, if anything was ever said.
    pub(super) key: Option<i64>,
}

/// Whether schemas can be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    #[default]
    ReadWrite,
    ReadOnly,
}

impl Mode {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Mode::ReadWrite => "READWRITE",
            Mode::ReadOnly => "READONLY",
        }
    }

    pub(crate) fn named(text: &str) -> Option<Mode> {
        [Mode::ReadWrite, Mode::ReadOnly].into_iter().find(|mode| mode.as_str() == text)
    }
}

impl Subject {
    /// The versions that are not deleted, oldest first.
    pub(crate) fn live(&self) -> impl DoubleEndedIterator<Item = &Version> {
        self.versions.values().filter(|version| !version.deleted)
    }

    pub(crate) fn latest(&self) -> Option<&Version> {
        self.live().next_back()
    }
}

impl Book {
    /// Reads the registry of a namespace.
    pub(super) fn read(reading: &Reading, namespace: &str) -> Result<Book, StoreError> {
        let mut book = Book::default();
        let Some((id, _)) = reading.namespace(namespace)? else { return Ok(book) };
        for found in reading.state().documents(id, COLLECTION, None, Order::Forward) {
            let (at, bytes) = found?;
            let document = DocumentRef::read(&bytes)?;
            let key = at.key.as_number().unwrap_or_default();
            book.last_key = book.last_key.max(key);
            book.take(key, &document)
                .ok_or_else(|| StoreError::damaged(format!("the schema record {key}")))?;
        }
        Ok(book)
    }

    /// Takes in one document; none if it is not as it was written.
    fn take(&mut self, key: i64, document: &DocumentRef<'_>) -> Option<()> {
        let text = |name: &str| document.get(name).map(|value| serde_json::from_str::<String>(value).ok());
        let number = |name: &str| document.get(name)?.parse::<u64>().ok();
        let name = text("subject").flatten();
        match number("version") {
            Some(version) => {
                let version = u32::try_from(version).ok()?;
                let id = number("id")?;
                self.last_id = self.last_id.max(id);
                let subject = self.subjects.entry(name?.into()).or_default();
                subject.last_version = subject.last_version.max(version);
                // A document that is deleted is a version that is gone for good.
                if document.deleted() {
                    return Some(());
                }
                let source = text("schema")??;
                let version = Version {
                    number: version,
                    id,
                    schema: Schema::parse(&source).ok()?,
                    text: source.into(),
                    deleted: document.get("deleted") == Some("true"),
                    key,
                };
                subject.versions.insert(version.number, version);
            }
            None => {
                let settings = Settings {
                    level: text("level").flatten().and_then(|level| level.parse().ok()),
                    policy: text("policy").flatten().map(|policy| read_policy(&policy)),
                    mode: text("mode").flatten().and_then(|mode| Mode::named(&mode)),
                    key: Some(key),
                };
                match name {
                    Some(name) => self.subjects.entry(name.into()).or_default().settings = settings,
                    None => self.settings = settings,
                }
            }
        }
        Some(())
    }

    /// A subject that has versions, perhaps deleted ones.
    pub(crate) fn subject(&self, name: &str) -> Option<&Subject> {
        self.subjects.get(name).filter(|subject| !subject.versions.is_empty())
    }

    /// What holds for a subject.
    pub(crate) fn level(&self, subject: &str) -> Level {
        let own = self.subjects.get(subject).and_then(|subject| subject.settings.level);
        own.or(self.settings.level).unwrap_or_default()
    }

    pub(crate) fn policy(&self, subject: &str) -> Policy {
        let own = self.subjects.get(subject).and_then(|subject| subject.settings.policy);
        own.or(self.settings.policy).unwrap_or_default()
    }

    pub(crate) fn mode(&self, subject: &str) -> Mode {
        let own = self.subjects.get(subject).and_then(|subject| subject.settings.mode);
        own.or(self.settings.mode).unwrap_or_default()
    }

    /// Every use of a schema: subject and version, also deleted ones.
    pub(crate) fn uses(&self, id: u64) -> impl Iterator<Item = (&str, &Version)> {
        self.subjects.iter().flat_map(move |(name, subject)| {
            subject
                .versions
                .values()
                .filter(move |version| version.id == id)
                .map(move |version| (&**name, version))
        })
    }

    /// The id of a schema that is like this one, if one was ever registered and is still there.
    pub(crate) fn id_of(&self, schema: &Schema) -> Option<u64> {
        let mut all = self.subjects.values().flat_map(|subject| subject.versions.values());
        all.find(|version| version.schema.canonical() == schema.canonical()).map(|version| version.id)
    }
}

pub(crate) fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Strict => "STRICT",
        Policy::Lenient => "LENIENT",
    }
}

pub(crate) fn read_policy(text: &str) -> Policy {
    if text == "LENIENT" { Policy::Lenient } else { Policy::Strict }
}

/// Where a document of the registry is.
pub(super) fn at(key: i64) -> lockwood_model::DocumentKey {
    lockwood_model::DocumentKey::new(COLLECTION, Key::number(key))
}

/// Text as a value of a field.
pub(super) fn quoted(text: &str) -> Json {
    Json::trusted(&serde_json::to_string(text).expect("text is valid JSON"))
}
