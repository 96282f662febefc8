//! What is in a registry: subjects with their versions and settings. Decides nothing.

use super::COLLECTION;
use lockwood_model::{Json, Key};
use lockwood_schema::{Level, Policy, Schema};
use lockwood_storage::{DocumentRef, NamespaceId, Order, State, StoreError};
use lockwood_wire::documents::Isolation;
use std::{collections::BTreeMap, sync::Arc};

/// A registry at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Book {
    /// What is registered, by subject.
    pub subjects: BTreeMap<Box<str>, Subject>,
    /// What holds for subjects that do not say.
    pub settings: Settings,
    /// The largest key of a document in it.
    pub(super) last_key: i64,
    /// The largest id given out so far.
    pub(super) last_id: u64,
}

/// What is known under one name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Subject {
    /// Also those that are deleted, but not for good.
    pub versions: BTreeMap<u32, Version>,
    /// What holds for it unless all subjects have something else.
    pub settings: Settings,
    /// The largest number a version ever had.
    pub last_version: u32,
}

/// One schema of a subject.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    /// Counts the versions of the subject, from 1.
    pub number: u32,
    /// The same for the same schema under every subject of the namespace.
    pub id: u64,
    /// Its text, compiled.
    pub schema: Schema,
    /// As it was registered.
    pub text: Arc<str>,
    /// Whether it was deleted, but not for good.
    pub deleted: bool,
    /// The document it is kept in.
    pub(super) key: i64,
}

/// What was said about a subject, or about all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The compatibility that new versions must have.
    pub level: Option<Level>,
    /// What becomes of fields that the schema does not name.
    pub policy: Option<Policy>,
    /// Whether it can be changed.
    pub mode: Option<Mode>,
    /// How reads stand to locks that do not say so themselves.
    pub isolation: Option<Isolation>,
    /// Whether the text of a schema is put into its normal form before it is kept.
    pub normalize: Option<bool>,
    /// The subject that is meant by this one's name, as the Schema Registry's clients write it.
    pub alias: Option<Box<str>>,
    /// The document it is kept in, if anything was ever said.
    pub(super) key: Option<i64>,
}

/// Whether schemas can be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Schemas can be registered and deleted.
    #[default]
    ReadWrite,
    /// Nothing can be registered or deleted.
    ReadOnly,
}

impl Mode {
    /// How it is called in requests and records.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::ReadWrite => "READWRITE",
            Mode::ReadOnly => "READONLY",
        }
    }

    /// The mode that is called so.
    pub fn named(text: &str) -> Option<Mode> {
        [Mode::ReadWrite, Mode::ReadOnly].into_iter().find(|mode| mode.as_str().eq_ignore_ascii_case(text))
    }
}

impl Subject {
    /// The versions that are not deleted, oldest first.
    pub fn live(&self) -> impl DoubleEndedIterator<Item = &Version> {
        self.versions.values().filter(|version| !version.deleted)
    }

    /// The last version that is not deleted.
    pub fn latest(&self) -> Option<&Version> {
        self.live().next_back()
    }

    /// The latest of those that are looked at.
    pub fn latest_of(&self, deleted: bool) -> Option<&Version> {
        self.versions.values().rfind(|version| deleted || !version.deleted)
    }
}

impl Book {
    /// One subject with one version.
    #[cfg(test)]
    pub(super) fn of_one(subject: &str, text: &str) -> Book {
        let schema = Schema::parse(text).expect("a schema");
        let version = Version { number: 1, id: 1, schema, text: text.into(), deleted: false, key: 1 };
        let mut book = Book::default();
        book.add(subject, version);
        book
    }

    /// Whether a namespace has a registry with anything in it, which is found without reading any schema.
    pub fn is_there(state: State<'_>, namespace: NamespaceId) -> Result<bool, StoreError> {
        let first = state.documents(namespace, COLLECTION, None, Order::Forward).next();
        Ok(first.transpose()?.is_some())
    }

    /// Reads the registry of a namespace.
    pub fn read(state: State<'_>, namespace: NamespaceId) -> Result<Book, StoreError> {
        let mut book = Book::default();
        for found in state.documents(namespace, COLLECTION, None, Order::Forward) {
            let (at, bytes) = found?;
            let document = DocumentRef::read(&bytes)?;
            let taken = at.key.as_number().and_then(|key| book.take(key, &document));
            taken.ok_or_else(|| StoreError::damaged(format!("the schema record {}", at.key)))?;
        }
        Ok(book)
    }

    /// Takes in one document; none if it is not as it was written.
    fn take(&mut self, key: i64, document: &DocumentRef<'_>) -> Option<()> {
        self.last_key = self.last_key.max(key);
        let member = |name: &str| match document.get(name) {
            None => Some(None),
            Some(value) => serde_json::from_str::<String>(value).ok().map(Some),
        };
        match document.get("version") {
            Some(number) => self.take_version(key, number.parse().ok()?, &member("subject")??, document),
            None => {
                let settings = Settings {
                    level: read(member("level")?, |level| level.parse().ok())?,
                    policy: read(member("policy")?, read_policy)?,
                    mode: read(member("mode")?, Mode::named)?,
                    isolation: read(member("isolation")?, |isolation| isolation.parse().ok())?,
                    normalize: document.get("normalize").map(str::parse).transpose().ok()?,
                    alias: member("alias")?.map(Into::into),
                    key: Some(key),
                };
                self.say(member("subject")?.as_deref(), settings);
                Some(())
            }
        }
    }

    fn take_version(
        &mut self,
        key: i64,
        number: u32,
        subject: &str,
        document: &DocumentRef<'_>,
    ) -> Option<()> {
        let id = document.get("id")?.parse().ok()?;
        // A document that is deleted is a version that is gone for good; its numbers stay used.
        if document.deleted() {
            self.note(subject, number, id);
            return Some(());
        }
        let text: String = serde_json::from_str(document.get("schema")?).ok()?;
        let schema = Schema::parse(&text).ok()?;
        let deleted = document.get("deleted") == Some("true");
        self.add(subject, Version { number, id, schema, text: text.into(), deleted, key });
        Some(())
    }

    /// Takes in a version.
    pub(super) fn add(&mut self, subject: &str, version: Version) {
        self.last_key = self.last_key.max(version.key);
        self.note(subject, version.number, version.id).versions.insert(version.number, version);
    }

    /// Numbers that were given out are not given out again.
    fn note(&mut self, subject: &str, version: u32, id: u64) -> &mut Subject {
        self.last_id = self.last_id.max(id);
        let subject = self.subjects.entry(subject.into()).or_default();
        subject.last_version = subject.last_version.max(version);
        subject
    }

    /// Takes in what is said about a subject, or about all.
    pub(super) fn say(&mut self, subject: Option<&str>, settings: Settings) {
        self.last_key = self.last_key.max(settings.key.unwrap_or_default());
        match subject {
            Some(subject) => self.subjects.entry(subject.into()).or_default().settings = settings,
            None => self.settings = settings,
        }
    }

    /// The versions there are, deleted ones included, and the settings of subjects.
    pub(super) fn records_len(&self) -> usize {
        let said = self.subjects.values().filter(|subject| subject.settings.key.is_some()).count();
        self.subjects.values().map(|subject| subject.versions.len()).sum::<usize>() + said
    }

    /// A subject that has versions, perhaps deleted ones.
    pub fn subject(&self, name: &str) -> Option<&Subject> {
        self.subjects.get(name).filter(|subject| !subject.versions.is_empty())
    }

    /// Whether there is anything of a subject: versions, or settings that say something.
    pub fn has(&self, name: &str) -> bool {
        self.subjects.get(name).is_some_and(|subject| {
            let nothing = Settings { key: subject.settings.key, ..Settings::default() };
            !subject.versions.is_empty() || subject.settings != nothing
        })
    }

    /// The largest id given out so far.
    pub fn last_id(&self) -> u64 {
        self.last_id
    }

    /// What holds for a subject.
    pub fn level(&self, subject: &str) -> Level {
        let own = self.subjects.get(subject).and_then(|subject| subject.settings.level);
        own.or(self.settings.level).unwrap_or_default()
    }

    /// What becomes of unknown fields in a subject: by its own setting, or that of all.
    pub fn policy(&self, subject: &str) -> Policy {
        let own = self.subjects.get(subject).and_then(|subject| subject.settings.policy);
        own.or(self.settings.policy).unwrap_or_default()
    }

    /// Whether a subject can be changed: by its own setting, or that of all.
    pub fn mode(&self, subject: &str) -> Mode {
        let own = self.subjects.get(subject).and_then(|subject| subject.settings.mode);
        own.or(self.settings.mode).unwrap_or_default()
    }

    /// How reads of a subject are isolated unless they say: by its own setting, or that of all.
    pub fn isolation(&self, subject: &str) -> Isolation {
        let own = self.subjects.get(subject).and_then(|subject| subject.settings.isolation);
        own.or(self.settings.isolation).unwrap_or_default()
    }

    /// Whether schemas of a subject are normalised: by its own setting, or that of all.
    pub fn normalize(&self, subject: &str) -> bool {
        let own = self.subjects.get(subject).and_then(|subject| subject.settings.normalize);
        own.or(self.settings.normalize).unwrap_or_default()
    }

    /// Whose name a subject is another one for.
    pub fn alias(&self, subject: &str) -> Option<&str> {
        self.subjects.get(subject)?.settings.alias.as_deref()
    }

    /// Every version, also deleted ones.
    pub fn versions(&self) -> impl Iterator<Item = &Version> {
        self.subjects.values().flat_map(|subject| subject.versions.values())
    }

    /// Every use of a schema: subject and version, also deleted ones.
    pub fn uses(&self, id: u64) -> impl Iterator<Item = (&str, &Version)> {
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

/// What a text says, if there is one; none if there is and it says nothing.
fn read<T>(text: Option<String>, meaning: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    match text {
        None => Some(None),
        Some(text) => meaning(&text).map(Some),
    }
}

/// How a policy is called in requests and records.
pub fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Strict => "STRICT",
        Policy::Lenient => "LENIENT",
    }
}

/// The policy that is called so.
pub fn read_policy(text: &str) -> Option<Policy> {
    [Policy::Strict, Policy::Lenient]
        .into_iter()
        .find(|policy| policy_name(*policy).eq_ignore_ascii_case(text))
}

/// Where a document of the registry is.
pub(super) fn at(key: i64) -> lockwood_model::DocumentKey {
    lockwood_model::DocumentKey::new(COLLECTION, Key::number(key))
}

/// Text as a value of a field.
pub(super) fn quoted(text: &str) -> Json {
    Json::trusted(&serde_json::to_string(text).expect("text is valid JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_model::{Change, Document, FieldValue, Position};

    fn document(members: &[(&str, &str)], deleted: bool) -> Document {
        let fields: Vec<FieldValue> =
            members.iter().map(|(name, value)| ((*name).into(), Json::trusted(value))).collect();
        let mut document = Document::unborn();
        document.apply(&Change::Created { fields }, Position(1));
        if deleted {
            let fields = members.iter().map(|(name, _)| (*name).into()).collect();
            document.apply(&Change::Deleted { fields }, Position(2));
        }
        document
    }

    fn take(book: &mut Book, key: i64, members: &[(&str, &str)], deleted: bool) -> Option<()> {
        book.take(key, &DocumentRef::from(&document(members, deleted)))
    }

    const VERSION: [(&str, &str); 4] =
        [("subject", r#""a""#), ("version", "3"), ("id", "7"), ("schema", r#""{}""#)];

    #[test]
    fn versions_and_settings_are_read() {
        let mut book = Book::default();
        take(&mut book, 1, &VERSION, false).unwrap();
        take(&mut book, 2, &[("settings", "true"), ("level", r#""NONE""#)], false).unwrap();
        let own = [
            ("subject", r#""a""#),
            ("policy", r#""LENIENT""#),
            ("isolation", r#""locked""#),
            ("normalize", "true"),
            ("alias", r#""b""#),
        ];
        take(&mut book, 5, &own, false).unwrap();
        assert_eq!((book.normalize("a"), book.normalize("b")), (true, false));
        assert_eq!((book.alias("a"), book.alias("b")), (Some("b"), None));
        assert_eq!((book.isolation("a"), book.isolation("b")), (Isolation::Locked, Isolation::Snapshot));
        assert_eq!(
            (book.level("a"), book.policy("a"), book.mode("a")),
            (Level::None, Policy::Lenient, Mode::ReadWrite)
        );
        assert_eq!(
            (book.policy("b"), book.last_key, book.last_id, book.records_len()),
            (Policy::Strict, 5, 7, 2)
        );
        assert_eq!(book.subject("a").and_then(Subject::latest).map(|version| version.number), Some(3));
        assert_eq!(book.id_of(&Schema::parse("{}").unwrap()), Some(7));
        assert_eq!(book.uses(7).map(|(name, _)| name).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn what_is_gone_for_good_keeps_its_numbers() {
        let mut book = Book::default();
        take(&mut book, 1, &VERSION, true).unwrap();
        assert!(book.subject("a").is_none());
        assert_eq!((book.subjects["a"].last_version, book.last_id, book.last_key), (3, 7, 1));
        assert_eq!(book.settings, Settings::default());
    }

    #[test]
    fn what_was_not_written_here_is_damage() {
        for (name, value) in
            [("version", "-1"), ("id", "x"), ("schema", r#""{""#), ("schema", "3"), ("subject", "3")]
        {
            let mut members = VERSION;
            members.iter_mut().filter(|member| member.0 == name).for_each(|member| member.1 = value);
            assert_eq!(take(&mut Book::default(), 1, &members, false), None, "{name} {value}");
        }
        assert_eq!(take(&mut Book::default(), 1, &[("level", r#""BOTH""#)], false), None);
        assert_eq!(take(&mut Book::default(), 1, &[("mode", "1")], false), None);
        assert_eq!(take(&mut Book::default(), 1, &[("normalize", "1")], false), None);
    }

    #[test]
    fn deleted_versions_are_not_the_latest() {
        let mut book = Book::default();
        for (key, number, deleted) in [(1, 1, false), (2, 2, true)] {
            let (schema, text) = (Schema::parse("true").unwrap(), "true".into());
            book.add("a", Version { number, id: 1, schema, text, deleted, key });
        }
        let subject = book.subject("a").unwrap();
        assert_eq!(subject.latest().map(|version| version.number), Some(1));
        assert_eq!(subject.latest_of(true).map(|version| version.number), Some(2));
        assert_eq!(subject.live().count(), 1);
    }
}
