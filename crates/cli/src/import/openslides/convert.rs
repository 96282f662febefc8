//! From the rows of the OpenSlides datastore to the lines of a dump. Knows nothing of PostgreSQL or the server.
//!
//! | row | becomes |
//! | --- | --- |
//! | a model of `action_worker` or `import_preview` | a document without positions, as it is now |
//! | a position with its events | a commit with the same number |
//! | `update`, `deletefields`, `listfields` | an update with the outcome |
//! | a model | nothing; it must be what its events make of it |
//! | a sequence | the next id of its collection |
//!
//! Positions without events leave a gap.

use anyhow::{Context, bail, ensure};
use lockwood_model::{Change, Commit, Document, DocumentKey, Event, Field, Json, Key, Position, Timestamp};
use lockwood_wire::documents::{DumpCommit, DumpDocument, DumpHead, DumpLine};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Values may be nested so deeply; the server has a limit of its own.
const DEPTH_MAX: usize = 120;

/// A line of the data.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Row<'a> {
    Head {
        position: u64,
        migration_indexes: u64,
    },
    Volatile {
        fqid: String,
        #[serde(borrow)]
        data: Fields<'a>,
    },
    Position {
        position: u64,
        at: u64,
        user_id: i64,
        #[serde(borrow)]
        information: Option<&'a RawValue>,
    },
    Event {
        position: u64,
        fqid: String,
        #[serde(rename = "type")]
        kind: Kind,
        #[serde(borrow)]
        data: Option<&'a RawValue>,
    },
    Model {
        fqid: String,
        #[serde(borrow)]
        data: Fields<'a>,
        deleted: bool,
    },
    Sequence {
        collection: String,
        next: u64,
    },
    End(IgnoredAny),
}

type Fields<'a> = BTreeMap<String, &'a RawValue>;

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Create,
    Update,
    Deletefields,
    Listfields,
    Delete,
    Restore,
}

/// The data of a list update.
#[derive(Deserialize)]
struct Lists<'a> {
    #[serde(borrow, default)]
    add: BTreeMap<String, Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    remove: BTreeMap<String, Vec<&'a RawValue>>,
}

/// Makes the lines of a dump, one row after the other.
pub(super) struct Converter {
    namespace: String,
    /// Lines of the dump so far.
    lines: u64,
    head: Option<u64>,
    commit: Option<Commit>,
    documents: HashMap<DocumentKey, Document>,
    /// Those that were compared with their row.
    compared: HashSet<DocumentKey>,
    /// The largest id of each collection.
    ids: HashMap<Box<str>, u64>,
    sequences: BTreeMap<String, u64>,
    is_complete: bool,
}

impl Converter {
    pub(super) fn new(namespace: &str) -> Converter {
        Converter {
            namespace: namespace.to_owned(),
            lines: 0,
            head: None,
            commit: None,
            documents: HashMap::new(),
            compared: HashSet::new(),
            ids: HashMap::new(),
            sequences: BTreeMap::new(),
            is_complete: false,
        }
    }

    /// Takes in a row, and writes what is ready.
    pub(super) fn take(&mut self, row: &[u8], out: &mut Vec<u8>) -> anyhow::Result<()> {
        ensure!(!self.is_complete, "there is more after the end");
        let row = serde_json::from_slice(row).context("this is no row of the export")?;
        ensure!(self.head.is_some() || matches!(row, Row::Head { .. }), "the head is missing");
        match row {
            Row::Head { position, migration_indexes } => self.head(position, migration_indexes, out),
            Row::Volatile { fqid, data } => self.volatile(&fqid, &data, out),
            Row::Position { position, at, user_id, information } => {
                self.finish_commit(out);
                let note = information.map(read).transpose()?.filter(|note| !note.is_null());
                self.commit = Some(Commit {
                    position: Position(position),
                    at: Timestamp(at),
                    user: Some(Json::from(serde_json::Value::from(user_id))),
                    note,
                    events: Vec::new(),
                    purged: None,
                });
                Ok(())
            }
            Row::Event { position, fqid, kind, data } => self
                .event(Position(position), &fqid, kind, data)
                .with_context(|| format!("the event {kind:?} of {fqid} at position {position}")),
            Row::Model { fqid, data, deleted } => {
                self.finish_commit(out);
                self.compare(&fqid, &data, deleted)
            }
            Row::Sequence { collection, next } => {
                self.finish_commit(out);
                self.sequences.insert(collection, next);
                Ok(())
            }
            Row::End(_) => {
                self.is_complete = true;
                Ok(())
            }
        }
    }

    /// Writes the rest.
    pub(super) fn end(mut self, out: &mut Vec<u8>) -> anyhow::Result<()> {
        ensure!(self.head.is_some() && self.is_complete, "the data broke off before its last line");
        self.finish_commit(out);
        if let Some(at) = self.documents.keys().find(|at| !self.compared.contains(at)) {
            bail!("the model {at} has events, and is not in the table of models");
        }
        for (collection, largest) in &self.ids {
            let next = self.sequences.entry(collection.to_string()).or_default();
            *next = (*next).max(largest + 1);
        }
        for (collection, next) in std::mem::take(&mut self.sequences) {
            self.line(out, &DumpLine::Counter { collection, next });
        }
        let lines = self.lines;
        self.line(out, &DumpLine::End { lines });
        Ok(())
    }

    fn line(&mut self, out: &mut Vec<u8>, line: &impl serde::Serialize) {
        serde_json::to_writer(&mut *out, line).expect("lines can be written");
        out.push(b'\n');
        self.lines += 1;
    }

    fn head(&mut self, position: u64, migration_indexes: u64, out: &mut Vec<u8>) -> anyhow::Result<()> {
        ensure!(self.head.is_none(), "there are two heads");
        ensure!(
            migration_indexes <= 1,
            "the positions have {migration_indexes} different migration indexes; finish the migration first"
        );
        self.head = Some(position);
        let namespace = self.namespace.clone();
        let (lockwood, format) = (DumpHead::KIND.to_owned(), DumpHead::FORMAT);
        self.line(out, &DumpHead { lockwood, format, namespace, position, horizon: 0 });
        Ok(())
    }

    fn volatile(&mut self, fqid: &str, data: &Fields<'_>, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let at = self.key(fqid)?;
        let fields = content(data)?.into_iter();
        let field = |(name, value)| Field { name, position: Position::START, value: Some(value) };
        let document = Document { fields: fields.map(field).collect(), ..Document::unborn() };
        self.line(out, &DumpLine::Document(DumpDocument::new(&at, &document)));
        Ok(())
    }

    /// A position whose events are all left out is left out too.
    fn finish_commit(&mut self, out: &mut Vec<u8>) {
        if let Some(commit) = self.commit.take().filter(|commit| !commit.events.is_empty()) {
            self.line(out, &DumpLine::Commit(DumpCommit::from(&commit)));
        }
    }

    fn event(
        &mut self,
        position: Position,
        fqid: &str,
        kind: Kind,
        data: Option<&RawValue>,
    ) -> anyhow::Result<()> {
        let at = self.key(fqid)?;
        let document = self.documents.entry(at.clone()).or_insert_with(Document::unborn);
        let fits = match kind {
            Kind::Create => !document.is_born(),
            Kind::Restore => document.deleted,
            _ => document.is_born() && !document.deleted,
        };
        ensure!(fits, "it does not follow from the events before it");
        let change = change(kind, data, document)?;
        document.apply(&change, position);
        let commit = self.commit.as_mut().filter(|commit| commit.position == position);
        commit.context("its position is missing")?.events.push(Event { at, change });
        Ok(())
    }

    fn compare(&mut self, fqid: &str, data: &Fields<'_>, deleted: bool) -> anyhow::Result<()> {
        let at = self.key(fqid)?;
        let document = self.documents.get(&at).with_context(|| format!("{fqid} has no events"))?;
        ensure!(document.deleted == deleted, "{fqid} is deleted, or its events say so, but not both");
        let stored: BTreeMap<Box<str>, serde_json::Value> = content(data)?
            .into_iter()
            .map(|(name, value)| Ok((name, serde_json::from_str(value.as_str())?)))
            .collect::<anyhow::Result<_>>()?;
        let mut made = 0;
        for (name, value) in document.present() {
            made += 1;
            let value: serde_json::Value = serde_json::from_str(value.as_str())?;
            ensure!(stored.get(name) == Some(&value), "{fqid}: the events make {name} {value}");
        }
        ensure!(made == stored.len(), "{fqid} has fields that its events do not make");
        self.compared.insert(at);
        Ok(())
    }

    fn key(&mut self, fqid: &str) -> anyhow::Result<DocumentKey> {
        let parts = fqid.split_once('/').and_then(|(collection, id)| Some((collection, id.parse().ok()?)));
        let (collection, id): (&str, i64) = parts.with_context(|| format!("{fqid:?} is no fqid"))?;
        let largest = self.ids.entry(collection.into()).or_default();
        *largest = (*largest).max(u64::try_from(id).with_context(|| format!("{fqid:?} is no fqid"))?);
        Ok(DocumentKey::new(collection, Key::number(id)))
    }
}

fn change(kind: Kind, data: Option<&RawValue>, document: &Document) -> anyhow::Result<Change> {
    let data = || data.map(RawValue::get).context("it has no data");
    let content = || document.present().map(|(name, value)| (name.into(), value.clone())).collect();
    Ok(match kind {
        Kind::Create => Change::Created { fields: fields(data()?)? },
        Kind::Update => Change::Updated { set: fields(data()?)?, removed: Vec::new() },
        Kind::Deletefields => {
            let names: Vec<String> = serde_json::from_str(data()?)?;
            Change::Updated { set: Vec::new(), removed: names.into_iter().map(Into::into).collect() }
        }
        Kind::Listfields => {
            let set = lists(serde_json::from_str(data()?)?, document)?;
            Change::Updated { set, removed: Vec::new() }
        }
        Kind::Delete => Change::Deleted { fields: document.present().map(|(name, _)| name.into()).collect() },
        Kind::Restore => Change::Restored { fields: content() },
    })
}

fn fields(data: &str) -> anyhow::Result<Vec<(Box<str>, Json)>> {
    content(&serde_json::from_str::<Fields<'_>>(data)?)
}

/// The fields of a model itself: neither those that the datastore keeps of it nor null.
fn content(data: &Fields<'_>) -> anyhow::Result<Vec<(Box<str>, Json)>> {
    let mut content = Vec::with_capacity(data.len());
    for (name, value) in data.iter().filter(|(name, _)| !name.starts_with("meta_")) {
        let value = read(value).with_context(|| format!("the field {name}"))?;
        if !value.is_null() {
            content.push((name.as_str().into(), value));
        }
    }
    Ok(content)
}

fn read(raw: &RawValue) -> anyhow::Result<Json> {
    Ok(Json::compact(raw.get(), DEPTH_MAX)?)
}

/// What lists become: added is what is not there yet, then removed is what is to go, from fields that were there.
fn lists(lists: Lists<'_>, document: &Document) -> anyhow::Result<Vec<(Box<str>, Json)>> {
    let mut after: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    for (field, added) in lists.add {
        let mut list = stored_list(document, &field)?.unwrap_or_default();
        let mut added = elements(added)?;
        added.retain(|element| !list.contains(element));
        list.extend(added);
        after.insert(field, list);
    }
    for (field, removed) in lists.remove {
        let Some(stored) = stored_list(document, &field)? else { continue };
        let removed = elements(removed)?;
        let list = after.entry(field).or_insert(stored);
        list.retain(|element| !removed.contains(element));
    }
    let text = |list: Vec<Json>| list.iter().map(|element| element.to_string()).collect::<Vec<_>>().join(",");
    let pair = |(field, list): (String, Vec<Json>)| {
        Ok((field.into(), Json::compact(&format!("[{}]", text(list)), DEPTH_MAX)?))
    };
    after.into_iter().map(pair).collect()
}

fn stored_list(document: &Document, field: &str) -> anyhow::Result<Option<Vec<Json>>> {
    let Some(stored) = document.get(field) else { return Ok(None) };
    let list = serde_json::from_str::<Vec<&RawValue>>(stored.as_str());
    elements(list.with_context(|| format!("the field {field} is no list"))?).map(Some)
}

fn elements(list: Vec<&RawValue>) -> anyhow::Result<Vec<Json>> {
    list.into_iter().map(read).collect()
}
