//! A state that is nothing but lists: every version of every document, every write, every answer. Slow and
//! plain, so that it can be believed. Also makes up the records that both it and the real one take in.

use super::Random;
use crate::{Answer, Answered, Entry};
use lockwood_model::{
    Change, Commit, Depth, Document, DocumentKey, Event, Field, FieldPath, FieldValue, Json, Key, Lease,
    LeaseVia, LockId, Mode, Path, Position, Resource, Timestamp, Token,
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const NAMESPACES: [&str; 2] = ["n", "other"];
pub(super) const COLLECTIONS: [&str; 3] = ["c", "cc", "kept"];
pub(super) const FIELDS: [&str; 4] = ["a", "b", "f", "ff"];
/// So many fields are set and removed together, more than a document remembers one by one.
const MANY_FIELDS: u64 = 70;

#[derive(Default, Clone)]
pub(super) struct Model {
    pub(super) namespaces: BTreeMap<Box<str>, Namespace>,
    pub(super) index: u64,
    pub(super) trimmed: u64,
    pub(super) leases: BTreeMap<(Box<str>, u64), Lease>,
}

#[derive(Default, Clone)]
pub(super) struct Namespace {
    pub(super) position: u64,
    pub(super) horizon: u64,
    pub(super) erased: u64,
    pub(super) counters: BTreeMap<Box<str>, u64>,
    /// Every version of each document, the last one last. One without positions has one version.
    pub(super) documents: BTreeMap<DocumentKey, Vec<Document>>,
    /// With the index of the record each is in.
    pub(super) commits: Vec<(u64, Commit)>,
    pub(super) touched: BTreeMap<(Box<str>, String), u64>,
    pub(super) answers: BTreeMap<Box<str>, (u64, Answered)>,
    pub(super) indexes: BTreeSet<(Box<str>, FieldPath)>,
}

impl Model {
    pub(super) fn apply(&mut self, entry: &Entry) {
        self.index += 1;
        let index = self.index;
        match entry {
            Entry::Emptied { namespace } => drop(self.namespaces.remove(namespace)),
            Entry::Trimmed { to } => {
                self.trimmed = self.trimmed.max(*to);
                self.namespaces.values_mut().for_each(|namespace| namespace.trim(*to));
            }
            Entry::Committed { namespace, .. }
            | Entry::Reserved { namespace, .. }
            | Entry::Indexed { namespace, .. }
            | Entry::Kept { namespace, .. }
            | Entry::NotesErased { namespace }
            | Entry::Merged { namespace, .. }
            | Entry::Versioned { namespace, .. }
            | Entry::Loaded { namespace, .. } => {
                self.namespaces.entry(namespace.clone()).or_default().apply(index, entry);
            }
            Entry::Loading { .. } | Entry::Raised { .. } => {}
            // Moves have a suite of their own.
            Entry::Installed { .. } | Entry::Forgotten { .. } | Entry::Unmarked { .. } => {}
            // And so have purges.
            Entry::Purged { .. }
            | Entry::Unanswered { .. }
            | Entry::Cleared { .. }
            | Entry::Dropped { .. } => {}
            Entry::PurgeEnded { .. } | Entry::Erased { .. } => {}
            Entry::Leased { namespace, lease } => {
                self.leases.insert((namespace.clone(), lease.lock.0), lease.clone());
            }
            Entry::LeaseRenewed { namespace, lock, expires_at, ttl_ms } => {
                let lease = self.leases.get_mut(&(namespace.clone(), lock.0));
                lease.into_iter().for_each(|lease| {
                    lease.expires_at = *expires_at;
                    // Parts do not keep it.
                    lease.ttl_ms = ttl_ms.or(lease.ttl_ms);
                });
            }
            Entry::LeasesEnded { namespace, locks } => {
                self.leases.retain(|(name, lock), _| name != namespace || !locks.contains(&LockId(*lock)));
            }
        }
    }
}

impl Namespace {
    fn apply(&mut self, index: u64, entry: &Entry) {
        match entry {
            Entry::Committed { commits, answer, .. } => {
                commits.iter().for_each(|commit| self.commit(index, commit));
                if let Some(Answer { key, fingerprint }) = answer {
                    let (first, last) = (commits[0].position, commits[commits.len() - 1].position);
                    let answered = Answered { fingerprint: *fingerprint, first, last };
                    self.answers.insert(key.clone(), (index, answered));
                }
            }
            Entry::Reserved { collection, next, .. } => drop(self.counters.insert(collection.clone(), *next)),
            Entry::Indexed { collection, field, wanted, .. } => {
                let index = (collection.clone(), field.clone());
                match wanted {
                    true => self.indexes.insert(index),
                    false => self.indexes.remove(&index),
                };
            }
            Entry::Kept { put, removed, .. } => {
                for (at, fields) in put {
                    self.documents.insert(at.clone(), vec![kept(fields)]);
                }
                removed.iter().for_each(|at| drop(self.documents.remove(at)));
            }
            Entry::Merged { at, set, removed, .. } => {
                let stored = self.documents.get(at).and_then(|versions| versions.last());
                let mut fields: BTreeMap<Box<str>, _> = stored
                    .into_iter()
                    .flat_map(Document::present)
                    .map(|(n, v)| (n.into(), v.clone()))
                    .collect();
                fields.extend(set.iter().cloned());
                fields.retain(|name, _| !removed.contains(name));
                self.documents.insert(at.clone(), vec![kept(&fields.into_iter().collect::<Vec<_>>())]);
            }
            Entry::NotesErased { .. } => self.erased = self.position,
            Entry::Loaded { horizon, documents, .. } => {
                for (at, document) in documents {
                    self.raise_counter(at);
                    self.documents.insert(at.clone(), vec![document.clone()]);
                }
                (self.position, self.horizon) = (horizon.0, horizon.0);
            }
            Entry::Versioned { .. } => {}
            Entry::Emptied { .. }
            | Entry::Trimmed { .. }
            | Entry::Loading { .. }
            | Entry::Leased { .. }
            | Entry::LeaseRenewed { .. }
            | Entry::LeasesEnded { .. }
            | Entry::Installed { .. }
            | Entry::Forgotten { .. }
            | Entry::Unmarked { .. }
            | Entry::Purged { .. }
            | Entry::Unanswered { .. }
            | Entry::Cleared { .. }
            | Entry::Dropped { .. }
            | Entry::PurgeEnded { .. }
            | Entry::Erased { .. }
            | Entry::Raised { .. } => {
                unreachable!("these are not about one life")
            }
        }
    }

    fn commit(&mut self, index: u64, commit: &Commit) {
        for Event { at, change } in &commit.events {
            let versions = self.documents.entry(at.clone()).or_default();
            let mut document = versions.last().cloned().unwrap_or_else(Document::unborn);
            let born = document.is_born();
            // What is not born has no past, and several changes of one request are one version.
            if !born || document.position == commit.position {
                versions.pop();
            }
            document.apply(change, commit.position);
            versions.push(document);
            if !born {
                self.raise_counter(at);
            }
            for field in change.touches() {
                self.touched.insert((at.collection.clone(), field.to_owned()), commit.position.0);
            }
        }
        self.position = commit.position.0;
        self.commits.push((index, commit.clone()));
    }

    fn raise_counter(&mut self, at: &DocumentKey) {
        if let Some(id) = at.key.as_number().and_then(|id| u64::try_from(id).ok()) {
            let next = self.counters.entry(at.collection.clone()).or_insert(1);
            *next = (*next).max(id + 1);
        }
    }

    fn trim(&mut self, to: u64) {
        let gone = self.commits.iter().filter(|(index, _)| *index <= to).map(|(_, commit)| commit.position.0);
        self.horizon = gone.max().unwrap_or(0).max(self.horizon);
        self.commits.retain(|(index, _)| *index > to);
        self.answers.retain(|_, (index, _)| *index > to);
    }

    /// A document as it was after a position.
    pub(super) fn document_at(&self, at: &DocumentKey, position: u64) -> Option<&Document> {
        self.documents.get(at)?.iter().rev().find(|version| version.position.0 <= position)
    }

    pub(super) fn current(&self, at: &DocumentKey) -> Option<&Document> {
        self.documents.get(at)?.last()
    }
}

fn kept(fields: &[FieldValue]) -> Document {
    let mut document = Document::unborn();
    let field = |(name, value): &FieldValue| Field {
        name: name.clone(),
        position: Position::START,
        value: Some(value.clone()),
    };
    document.fields = fields.iter().map(field).collect();
    document.fields.sort_by(|a, b| a.name.cmp(&b.name));
    document
}

/// A record that could come next.
pub(super) fn random_entry(model: &Model, random: &mut Random) -> Entry {
    let namespace: Box<str> = if random.one_in(4) { NAMESPACES[1] } else { NAMESPACES[0] }.into();
    let empty = Namespace::default();
    let found = model.namespaces.get(&namespace).unwrap_or(&empty);
    let collection: Box<str> = random.pick(&COLLECTIONS).into();
    match random.below(60) {
        0..=2 => {
            Entry::Indexed { namespace, collection, field: random_path(random), wanted: !random.one_in(4) }
        }
        3 => Entry::NotesErased { namespace },
        4 if random.one_in(3) => Entry::Emptied { namespace },
        5..=6 => {
            let next = found.counters.get(&collection).copied().unwrap_or(1) + random.below(5);
            Entry::Reserved { namespace, collection, next }
        }
        7..=9 => random_kept(namespace, found, random),
        10 if model.index > 0 => {
            let to = (model.trimmed + random.below(12)).min(model.index);
            Entry::Trimmed { to }
        }
        21..=26 => random_lease(namespace, random),
        11..=20 if found.position == 0 && found.documents.is_empty() => random_load(namespace, random),
        _ => random_commits(namespace, found, random),
    }
}

/// A field, or something that may be in it.
fn random_path(random: &mut Random) -> FieldPath {
    let below = ["", "", ".a", ".a", ".x.y", ".\"x.y\"", ".0"];
    format!("{}{}", random.pick(&FIELDS), random.pick(&below)).parse().unwrap()
}

fn random_lease(namespace: Box<str>, random: &mut Random) -> Entry {
    let lock = LockId(random.below(4));
    match random.below(3) {
        0 => {
            let expires_at = random.one_in(2).then(|| Timestamp(random.below(100)));
            Entry::LeaseRenewed {
                namespace,
                lock,
                expires_at,
                ttl_ms: random.one_in(2).then(|| random.below(100)),
            }
        }
        1 => Entry::LeasesEnded { namespace, locks: vec![lock, LockId(random.below(4))] },
        _ => random_granted(namespace, random),
    }
}

pub(super) fn random_granted(namespace: Box<str>, random: &mut Random) -> Entry {
    let path = Path::from_segments(["a", "b"]);
    let lease = Lease {
        lock: LockId(random.below(4)),
        token: Token(random.below(100)),
        owner: "p".into(),
        via: LeaseVia::Native,
        resources: vec![Resource::new(path, Mode::Write, Depth::NODE)],
        granted_at: Timestamp(random.below(100)),
        expires_at: random.one_in(2).then(|| Timestamp(random.below(100))),
        note: random.one_in(2).then(|| Json::trusted("{}")),
        version: random.below(3),
        ttl_ms: random.one_in(2).then(|| random.below(100)),
    };
    Entry::Leased { namespace, lease }
}

fn random_kept(namespace: Box<str>, found: &Namespace, random: &mut Random) -> Entry {
    let unborn = |at: &DocumentKey| found.current(at).is_none_or(|document| !document.is_born());
    let mut some = |len| -> Vec<DocumentKey> {
        let keys = (0..len).map(|_| DocumentKey::new("kept", Key::number(random.below(6) as i64)));
        keys.filter(unborn).collect()
    };
    let (put, removed) = (some(3), some(1));
    let put = put.into_iter().map(|at| (at, random_fields(random))).collect();
    Entry::Kept { namespace, put, removed }
}

fn random_load(namespace: Box<str>, random: &mut Random) -> Entry {
    let horizon = Position(5 + random.below(20));
    let mut documents = BTreeMap::new();
    for _ in 0..random.below(5) {
        let mut document = Document::unborn();
        document.apply(&Change::Created { fields: random_fields(random) }, Position(1 + random.below(3)));
        let set = random_fields(random);
        document.apply(&Change::Updated { set, removed: vec!["a".into()] }, Position(4 + random.below(2)));
        documents.insert(random_key(random), document);
    }
    Entry::Loaded { namespace, horizon, documents: documents.into_iter().collect() }
}

fn random_commits(namespace: Box<str>, found: &Namespace, random: &mut Random) -> Entry {
    let mut after = found.clone();
    let mut commits = Vec::new();
    for _ in 0..1 + random.below(2) {
        let position = Position(after.position + 1);
        let mut commit = Commit {
            position,
            at: Timestamp(position.0),
            user: None,
            note: None,
            events: Vec::new(),
            purged: None,
        };
        commit.note = random.one_in(2).then(|| Json::trusted("\"why\""));
        commit.user = random.one_in(2).then(|| Json::trusted("7"));
        // Each event has to fit what the ones before it made.
        let mut so_far = after.clone();
        for _ in 0..1 + random.below(3) {
            let event = random_event(&so_far, random);
            so_far.commit(0, &Commit { events: vec![event.clone()], ..commit.clone() });
            commit.events.push(event);
        }
        after.commit(0, &commit);
        commits.push(commit);
    }
    let answer = random.one_in(3).then(|| Answer {
        key: format!("key {}", random.below(5)).into(),
        fingerprint: [random.below(250) as u8; 16],
    });
    Entry::Committed { namespace, commits, answer }
}

pub(super) fn random_key(random: &mut Random) -> DocumentKey {
    let collection = random.pick(&["c", "c", "c", "cc", "kept"]);
    let key = random.pick(&["1", "2", "30", "a", "a:1", "a%00", "b"]);
    DocumentKey::new(collection, key.parse().unwrap())
}

fn random_event(found: &Namespace, random: &mut Random) -> Event {
    let at = random_key(random);
    let document = found.current(&at).filter(|document| document.is_born());
    let change = match document {
        None => Change::Created { fields: random_fields(random) },
        Some(document) if document.deleted && random.one_in(2) => {
            let fields = random_fields(random);
            let gone = document.present().map(|(name, _)| name);
            let gone = gone.filter(|name| fields.iter().all(|(given, _)| **given != **name));
            Change::Recreated { removed: gone.map(Into::into).collect(), fields }
        }
        Some(document) if document.deleted => {
            let content = document.present().map(|(name, value)| (name.into(), value.clone()));
            Change::Restored { fields: content.collect() }
        }
        Some(document) => match random.below(8) {
            0 => Change::Deleted { fields: document.present().map(|(name, _)| name.into()).collect() },
            1 => Change::Updated {
                set: many_fields().map(|name| (name, value(random))).collect(),
                removed: vec![],
            },
            2 | 3 => {
                let removed = many_fields().filter(|_| random.below(3) > 0).collect();
                Change::Updated { set: random_fields(random), removed }
            }
            _ => {
                let removed = FIELDS.iter().filter(|_| random.one_in(4)).map(|name| (*name).into()).collect();
                Change::Updated { set: random_fields(random), removed }
            }
        },
    };
    Event { at, change }
}

fn many_fields() -> impl Iterator<Item = Box<str>> {
    (0..MANY_FIELDS).map(|number| format!("x{number}").into())
}

fn random_fields(random: &mut Random) -> Vec<FieldValue> {
    let names: Vec<&str> = FIELDS.into_iter().filter(|_| random.one_in(2)).collect();
    names.into_iter().map(|name| (name.into(), value(random))).collect()
}

/// Values that are near each other in an index, or equal but written in different ways.
pub(super) fn value(random: &mut Random) -> Json {
    let long = |end: &str| format!("\"{}{end}\"", "a".repeat(255));
    let text = match random.below(16) {
        12 => format!("{{\"a\":{}}}", value(random)),
        13 => format!("{{\"x\":{{\"y\":{}}},\"x.y\":{}}}", value(random), value(random)),
        14 => format!("{{\"a\":null,\"\\u0061\":{},\"0\":true}}", value(random)),
        15 => format!("[{}]", value(random)),
        0 => long("z"),
        1 => long("\u{e9}"),
        2 => long("\u{e9}z"),
        3 => long(""),
        4 => random.pick(&["true", "false", "[1,2]", "[1.0,2]", "{\"a\":1}", "[]"]).to_owned(),
        5 => random.pick(&["9007199254740992", "9007199254740993", "9007199254740992.5", "1e30"]).to_owned(),
        6..=8 => random.pick(&["-2", "-1.5", "-0", "0", "0.0", "1", "1.0", "1e0", "2", "10"]).to_owned(),
        _ => random
            .pick(&[
                "\"\"",
                "\"a\"",
                "\"\\u0061\"",
                "\"ab\"",
                "\"a\\u0000\"",
                "\"a\\u0001\"",
                "\"B\"",
                "\"b\"",
            ])
            .to_owned(),
    };
    Json::trusted(&text)
}
