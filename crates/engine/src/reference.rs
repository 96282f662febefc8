//! The rules of writing and of position locks once more, written for the reader and not for speed: every
//! version of every document is kept, and a lock is judged by looking at all of them. Shares no code with the
//! engine, and none with documents and filters but their types.
//!
//! | lock at P on | broken by every request after P that |
//! | --- | --- |
//! | a document | did anything to it |
//! | a field of a document, or something in it | touched the field |
//! | a field of a collection | touched it in any document |
//! | the same with a filter | touched it, or a field the filter looks at, in a document that matched before the request or after it |
//!
//! A filter that looks at `meta_position` looks at what every request changes, touched or not.

use crate::{Action, Intent, Limits, ListChange, Origin, PositionLock, PutIf, Refused, Request, Target};
use lockwood_model::{
    Change, Commit, Condition, DocumentKey, Event, FieldPath, FieldValue, Filter, Json, META_DELETED,
    META_POSITION, Operator, Path, Position, Timestamp,
};
use serde_json::{Value, value::RawValue};
use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// A document after a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Version {
    pub(crate) position: Position,
    pub(crate) deleted: bool,
    pub(crate) fields: BTreeMap<Box<str>, Held>,
}

#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) text: Json,
    value: Value,
}

pub(crate) type Versions = BTreeMap<DocumentKey, Rc<Version>>;

/// A request that was done.
struct Past {
    origin: Origin,
    /// Which document, and which of its fields.
    touched: Vec<(DocumentKey, BTreeSet<Box<str>>)>,
    after: Versions,
}

impl Past {
    /// Whether it touched one of `names` in a document; whether it did anything to it, if there are none.
    fn touched(&self, at: &DocumentKey, names: &[&str]) -> bool {
        self.touched.iter().any(|(found, fields)| found == at && is_one(fields, names))
    }

    /// The same for any document of a collection.
    fn touched_in(&self, collection: &str, names: &[&str]) -> bool {
        self.touched.iter().any(|(at, fields)| &*at.collection == collection && is_one(fields, names))
    }
}

/// Why a lock is broken.
#[derive(Debug, PartialEq)]
pub(crate) enum Why {
    TooOld,
    /// All requests that break it, and where they came from.
    Writes(BTreeMap<Position, Option<Origin>>),
}

#[derive(Debug)]
pub(crate) enum Refusal {
    Locked(BTreeMap<usize, Why>),
    Other(Refused),
}

#[derive(Default)]
pub(crate) struct Reference {
    pub(crate) horizon: Position,
    /// The request at position 1 is the first of them.
    past: Vec<Past>,
}

impl Reference {
    pub(crate) fn position(&self) -> Position {
        Position(self.past.len() as u64)
    }

    pub(crate) fn version(&self, at: &DocumentKey) -> Option<Rc<Version>> {
        self.past.last()?.after.get(at).cloned()
    }

    pub(crate) fn versions(&self) -> Versions {
        self.past.last().map(|past| past.after.clone()).unwrap_or_default()
    }

    fn origin(&self, position: Position) -> Option<Origin> {
        (position > self.horizon).then(|| self.past[position.0 as usize - 1].origin.clone())
    }

    /// When one of `names` was last touched in a document; when anything happened to it, if there are none.
    pub(crate) fn last_touched(&self, at: &DocumentKey, names: &[&str]) -> Position {
        self.last(|past| past.touched(at, names))
    }

    /// When a field was last touched in any document of a collection.
    pub(crate) fn last_touched_in(&self, collection: &str, name: &str) -> Position {
        self.last(|past| past.touched_in(collection, &[name]))
    }

    fn last(&self, wanted: impl Fn(&Past) -> bool) -> Position {
        Position(self.past.iter().rposition(wanted).map_or(0, |index| index as u64 + 1))
    }

    /// When a document was created.
    pub(crate) fn created(&self, at: &DocumentKey) -> Position {
        Position(self.past.iter().position(|past| past.touched(at, &[])).map_or(0, |index| index as u64 + 1))
    }

    /// Which of the locks do not hold, and why.
    pub(crate) fn broken(&self, locks: &[PositionLock]) -> BTreeMap<usize, Why> {
        let judged = locks.iter().enumerate().map(|(index, lock)| (index, self.judge(lock)));
        judged.filter_map(|(index, why)| Some((index, why?))).collect()
    }

    fn judge(&self, lock: &PositionLock) -> Option<Why> {
        if lock.position < self.horizon {
            return Some(Why::TooOld);
        }
        let later = (lock.position.next().0..=self.position().0).map(Position);
        let breaking = later.filter(|position| self.breaks(&lock.target, *position));
        let writes: BTreeMap<_, _> = breaking.map(|position| (position, self.origin(position))).collect();
        (!writes.is_empty()).then_some(Why::Writes(writes))
    }

    /// Whether the request at a position changed what the target stands for.
    fn breaks(&self, target: &Target, position: Position) -> bool {
        let index = position.0 as usize - 1;
        let past = &self.past[index];
        match target {
            Target::Document(at) => past.touched(at, &[]),
            Target::Field(at, field) => past.touched(at, &[field.root()]),
            Target::CollectionField { collection, field, filter: None } => {
                past.touched_in(collection, &[field.root()])
            }
            Target::CollectionField { collection, field, filter: Some(filter) } => {
                let mut watched = Vec::new();
                add_names(filter, &mut watched);
                match watched.contains(&META_POSITION) {
                    true => watched.clear(),
                    false => watched.push(field.root()),
                }
                let mut documents = past.after.iter().filter(|(at, _)| at.collection == *collection);
                documents.any(|(at, after)| {
                    let before = index.checked_sub(1).and_then(|index| self.past[index].after.get(at));
                    let is_meant = |version: &Rc<Version>| matches(filter, version);
                    let is_watched = past.touched(at, &watched) || past.touched(at, &[META_DELETED]);
                    is_watched && (before.is_some_and(is_meant) || is_meant(after))
                })
            }
        }
    }

    pub(crate) fn call(
        &mut self,
        requests: &[Request],
        limits: Limits,
        now: Timestamp,
    ) -> Result<Vec<Commit>, Refusal> {
        let kept = self.past.len();
        let outcome: Result<Vec<Commit>, Refusal> =
            requests.iter().map(|request| self.write(request, limits, now)).collect();
        if outcome.is_err() {
            self.past.truncate(kept);
        }
        outcome
    }

    fn write(&mut self, request: &Request, limits: Limits, now: Timestamp) -> Result<Commit, Refusal> {
        let broken = self.broken(&request.locks);
        if !broken.is_empty() {
            return Err(Refusal::Locked(broken));
        }
        let position = self.position().next();
        let (mut versions, mut touched, mut events) = (self.versions(), Vec::new(), Vec::new());
        for Intent { at, action } in &request.intents {
            let old = versions.get(at).map(|version| &**version);
            let (change, mut new) = act(at, action, old).map_err(Refusal::Other)?;
            new.position = position;
            check_limits(at, &change, &new, limits).map_err(Refusal::Other)?;
            versions.insert(at.clone(), Rc::new(new));
            touched.push((at.clone(), touches(&change)));
            events.push(Event { at: at.clone(), change });
        }
        let (user, note) = (request.user.clone(), request.note.clone());
        let origin = Origin { at: now, user: user.clone(), note: note.clone() };
        self.past.push(Past { origin, touched, after: versions });
        Ok(Commit { position, at: now, user, note, events, purged: None })
    }
}

fn is_one(fields: &BTreeSet<Box<str>>, names: &[&str]) -> bool {
    names.is_empty() || names.iter().any(|name| fields.contains(*name))
}

/// What happened, in the order of field names, and the document it leaves behind.
fn act(at: &DocumentKey, action: &Action, old: Option<&Version>) -> Result<(Change, Version), Refused> {
    let live = old.filter(|old| !old.deleted);
    let deleted = old.is_some_and(|old| old.deleted);
    let absent = || Refused::NoDocument { at: at.clone(), deleted };
    let exists = || Refused::Exists { at: at.clone(), deleted };
    match action {
        Action::Create { .. } if old.is_some() => Err(exists()),
        Action::Create { fields } => Ok(create(fields)),
        Action::Update { set, lists } => update(at, set, lists, live.ok_or_else(absent)?),
        Action::Put { when: PutIf::Absent, .. } if live.is_some() => Err(exists()),
        Action::Put { when: PutIf::Present, .. } if live.is_none() => Err(absent()),
        Action::Put { fields, .. } => match old {
            None => Ok(create(fields)),
            Some(old) => {
                let (_, new) = create(fields);
                let gone = old.fields.keys().filter(|name| !new.fields.contains_key(*name));
                let (set, removed) = (content(&new), gone.cloned().collect());
                let reborn = Change::Recreated { fields: set.clone(), removed: Vec::clone(&removed) };
                Ok((if deleted { reborn } else { Change::Updated { set, removed } }, new))
            }
        },
        Action::Set { path, value } => set(at, path, value.as_ref(), live.ok_or_else(absent)?),
        Action::Delete => {
            let live = live.ok_or_else(absent)?;
            let fields = live.fields.keys().cloned().collect();
            Ok((Change::Deleted { fields }, Version { deleted: true, ..live.clone() }))
        }
        Action::Restore => match old {
            Some(old) if old.deleted => {
                Ok((Change::Restored { fields: content(old) }, Version { deleted: false, ..old.clone() }))
            }
            _ => Err(Refused::NotDeleted { at: at.clone(), missing: old.is_none() }),
        },
    }
}

fn create(fields: &[FieldValue]) -> (Change, Version) {
    let given = fields.iter().filter(|(_, value)| value.as_str() != "null");
    let fields = given.map(|(name, value)| (name.clone(), held(value))).collect();
    let new = Version { fields, ..Version::default() };
    (Change::Created { fields: content(&new) }, new)
}

fn update(
    at: &DocumentKey,
    given: &[FieldValue],
    lists: &[ListChange],
    live: &Version,
) -> Result<(Change, Version), Refused> {
    let mut new = live.clone();
    let (mut set, mut removed) = (BTreeSet::new(), BTreeSet::new());
    for (name, value) in given {
        if value.as_str() == "null" {
            new.fields.remove(name);
            removed.insert(name.clone());
        } else {
            new.fields.insert(name.clone(), held(value));
            set.insert(name.clone());
        }
    }
    for ListChange { field, add, remove } in lists {
        let not_a_list = || Refused::NotAList { at: at.clone(), field: field.clone() };
        let stored = match live.fields.get(field) {
            None if add.is_none() => continue,
            None => Vec::new(),
            Some(stored) => elements(stored).ok_or_else(not_a_list)?,
        };
        let is_in = |list: &[Json], one: &Json| list.iter().any(|other| held(other).value == held(one).value);
        let mut list = stored.clone();
        list.extend(add.iter().flatten().filter(|element| !is_in(&stored, element)).cloned());
        if live.fields.contains_key(field) {
            list.retain(|element| !is_in(remove.as_deref().unwrap_or_default(), element));
        }
        let text: Vec<&str> = list.iter().map(Json::as_str).collect();
        new.fields.insert(field.clone(), held(&Json::trusted(&format!("[{}]", text.join(",")))));
        set.insert(field.clone());
    }
    let set = set.into_iter().map(|name| (name.clone(), new.fields[&name].text.clone())).collect();
    Ok((Change::Updated { set, removed: removed.into_iter().collect() }, new))
}

/// A document is a tree of containers, each taken apart by the usual reader; what is not touched keeps its text.
fn set(
    at: &DocumentKey,
    path: &Path,
    value: Option<&Json>,
    live: &Version,
) -> Result<(Change, Version), Refused> {
    let segments: Vec<&str> = path.segments().collect();
    let names = live.fields.iter().map(|(name, held)| format!("{}:{}", Value::from(&**name), held.text));
    let mut text = format!("{{{}}}", names.collect::<Vec<_>>().join(","));
    // From the document down: the text of each container on the way, and where in it the way goes on.
    let mut way = Vec::new();
    for (index, segment) in segments.iter().enumerate() {
        let led_by = |len: usize| Path::from_segments(&segments[..len]);
        let (is_list, children) =
            parts(&text).ok_or_else(|| Refused::NoContainer { at: at.clone(), path: led_by(index) })?;
        let found = match is_list {
            true => index_of(segment).filter(|place| *place <= children.len()),
            false => Some(children.iter().position(|(name, _)| name == segment).unwrap_or(children.len())),
        };
        let is_last = index + 1 == segments.len();
        let may_grow = is_last && value.is_some();
        let found = found.filter(|place| *place < children.len() || may_grow);
        let found = found.ok_or_else(|| Refused::NoNode { at: at.clone(), path: led_by(index + 1) })?;
        text = children.get(found).map(|(_, text)| text.clone()).unwrap_or_default();
        way.push((is_list, children, found, (*segment).to_owned()));
    }
    let mut node = value.map(|value| value.as_str().to_owned());
    for (is_list, mut children, place, name) in way.into_iter().skip(1).rev() {
        children.splice(place..children.len().min(place + 1), node.map(|node| (name, node)));
        let text = |(name, text): &(String, String)| {
            if is_list { text.clone() } else { format!("{}:{text}", Value::from(name.as_str())) }
        };
        let inner = children.iter().map(text).collect::<Vec<_>>().join(",");
        node = Some(if is_list { format!("[{inner}]") } else { format!("{{{inner}}}") });
    }
    let value = node.map_or(Json::null(), |text| Json::trusted(&text));
    update(at, &[(segments[0].into(), value)], &[], live)
}

/// Whether it is a list, and what is in it, with its names or none.
fn parts(text: &str) -> Option<(bool, Vec<(String, String)>)> {
    if let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(text) {
        let elements = elements.iter().map(|element| (String::new(), element.get().to_owned()));
        return Some((true, elements.collect()));
    }
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    let mut members: Vec<(String, &RawValue)> = members.into_iter().collect();
    // In the order they stand there.
    members.sort_by_key(|(_, value)| value.get().as_ptr());
    Some((false, members.into_iter().map(|(name, value)| (name, value.get().to_owned())).collect()))
}

fn index_of(segment: &str) -> Option<usize> {
    let place: usize = segment.parse().ok()?;
    (place.to_string() == segment).then_some(place)
}

fn elements(stored: &Held) -> Option<Vec<Json>> {
    let elements: Vec<&RawValue> = serde_json::from_str(stored.text.as_str()).ok()?;
    let elements: Vec<Json> = elements.iter().map(|element| Json::trusted(element.get())).collect();
    let is_fit = |element: &Json| {
        let value = held(element).value;
        value.is_string() || value.is_i64() || value.is_u64()
    };
    elements.iter().all(is_fit).then_some(elements)
}

fn held(text: &Json) -> Held {
    Held { text: text.clone(), value: serde_json::from_str(text.as_str()).unwrap() }
}

fn content(version: &Version) -> Vec<FieldValue> {
    version.fields.iter().map(|(name, held)| (name.clone(), held.text.clone())).collect()
}

fn touches(change: &Change) -> BTreeSet<Box<str>> {
    let names =
        |fields: &[FieldValue]| -> Vec<Box<str>> { fields.iter().map(|(name, _)| name.clone()).collect() };
    let (mut touched, meta): (Vec<Box<str>>, &[&str]) = match change {
        Change::Created { fields } => (names(fields), &[META_DELETED]),
        Change::Updated { set, removed } => ([names(set), removed.clone()].concat(), &[]),
        Change::Deleted { fields } => (fields.clone(), &[META_DELETED, META_POSITION]),
        Change::Restored { fields } => (names(fields), &[META_DELETED, META_POSITION]),
        Change::Recreated { fields, removed } => {
            ([names(fields), removed.clone()].concat(), &[META_DELETED, META_POSITION])
        }
    };
    touched.extend(meta.iter().map(|name| Box::from(*name)));
    touched.into_iter().collect()
}

/// Only what writes values can make a document too large.
fn check_limits(at: &DocumentKey, change: &Change, new: &Version, limits: Limits) -> Result<(), Refused> {
    let writes = match change {
        Change::Created { .. } | Change::Recreated { .. } => true,
        Change::Updated { set, .. } => !set.is_empty(),
        Change::Deleted { .. } | Change::Restored { .. } => false,
    };
    let bytes =
        new.fields.iter().map(|(name, held)| name.len() + held.text.as_str().len()).sum::<usize>() as u64;
    let sizes = [
        ("fields_per_document_max", limits.fields_per_document_max, new.fields.len() as u64),
        ("document_bytes_max", limits.document_bytes_max, bytes),
    ];
    let over = sizes.into_iter().find(|(_, limit, len)| writes && len > limit);
    over.map_or(Ok(()), |(name, limit, len)| Err(Refused::OverLimit { at: at.clone(), name, limit, len }))
}

fn add_names<'a>(filter: &'a Filter, names: &mut Vec<&'a str>) {
    match filter {
        Filter::Is(condition) => names.push(condition.field().root()),
        Filter::All(filters) | Filter::Any(filters) => {
            filters.iter().for_each(|filter| add_names(filter, names));
        }
        Filter::Not(filter) => add_names(filter, names),
    }
}

fn matches(filter: &Filter, version: &Version) -> bool {
    match filter {
        Filter::Is(condition) => holds(condition, version),
        Filter::All(filters) => !filters.iter().any(|filter| !matches(filter, version)),
        Filter::Any(filters) => filters.iter().any(|filter| matches(filter, version)),
        Filter::Not(filter) => !matches(filter, version),
    }
}

fn holds(condition: &Condition, version: &Version) -> bool {
    let found = match condition.field().root() {
        META_DELETED => Some(Cow::Owned(Value::from(version.deleted))),
        META_POSITION => Some(Cow::Owned(Value::from(version.position.0))),
        name => version.fields.get(name).map(|held| Cow::Borrowed(&held.value)),
    };
    let found = found.as_deref().and_then(|found| below(found, condition.field()));
    let value = held(condition.value()).value;
    let Some(found) = found else { return value.is_null() && condition.operator() == Operator::Equal };
    let order = order(found, &value);
    match condition.operator() {
        Operator::Equal => same(found, &value),
        Operator::Different => !same(found, &value),
        Operator::Less => order == Some(Ordering::Less),
        Operator::LessOrEqual => order.is_some_and(Ordering::is_le),
        Operator::Greater => order == Some(Ordering::Greater),
        Operator::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
        Operator::EqualFolded => match (found, &value) {
            (Value::String(found), Value::String(value)) => found.to_lowercase() == value.to_lowercase(),
            _ => same(found, &value),
        },
        Operator::Like => match (found, &value) {
            (Value::String(found), Value::String(value)) => {
                is_like(found.to_lowercase().as_bytes(), value.to_lowercase().as_bytes())
            }
            _ => false,
        },
    }
}

/// What a path leads to below the field it begins with. Null is absent there too.
fn below<'a>(field: &'a Value, path: &FieldPath) -> Option<&'a Value> {
    let found = path.below().try_fold(field, |found, name| found.as_object()?.get(name))?;
    (!found.is_null()).then_some(found)
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

/// For text of one byte per character, and patterns without escapes.
fn is_like(text: &[u8], pattern: &[u8]) -> bool {
    match (text, pattern) {
        (_, [b'%', pattern @ ..]) => (0..=text.len()).any(|skipped| is_like(&text[skipped..], pattern)),
        ([_, text @ ..], [b'_', pattern @ ..]) => is_like(text, pattern),
        ([a, text @ ..], [b, pattern @ ..]) => a == b && is_like(text, pattern),
        ([], []) => true,
        _ => false,
    }
}
