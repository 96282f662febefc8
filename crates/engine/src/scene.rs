//! What the tests share: a namespace in memory that decisions are made over, and short ways to write requests.

use crate::{
    Action, ChangeSeen, Intent, Limits, ListChange, Looks, NoRules, Origin, PutIf, Recent, Refused, Request,
    View, decide_all,
    fault::{Fault, is_planted},
};
use lockwood_model::{
    Commit, Condition, Document, DocumentKey, Event, FieldValue, Filter, Json, Operator, Position, Timestamp,
};
use std::{collections::BTreeMap, convert::Infallible, ops::ControlFlow, rc::Rc};

pub(crate) const NOW: Timestamp = Timestamp(1000);
pub(crate) const NO_LIMITS: Limits =
    Limits { document_bytes_max: u64::MAX, fields_per_document_max: u64::MAX };
const NAMESPACE: u32 = 7;

/// A namespace. What a refused call did is undone, but for what [`Recent`] noted of it.
#[derive(Default)]
pub(crate) struct Scene {
    pub(crate) state: State,
    pub(crate) recent: Recent,
}

#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) position: Position,
    pub(crate) horizon: Position,
    pub(crate) documents: BTreeMap<DocumentKey, Rc<Document>>,
    touched: BTreeMap<Box<str>, BTreeMap<Box<str>, Position>>,
    changes: Vec<Rc<Changed>>,
    origins: BTreeMap<Position, Origin>,
}

struct Changed {
    position: Position,
    collection: Box<str>,
    touched: Vec<Box<str>>,
    before: Option<Rc<Document>>,
    after: Rc<Document>,
}

impl Scene {
    pub(crate) fn call(&mut self, requests: &[Request], limits: Limits) -> Result<Vec<Commit>, Refused> {
        // A call of one request never needs to be undone.
        let kept = (requests.len() > 1).then(|| self.state.clone());
        let Ok(outcome) = decide_all(requests, self, limits, &NoRules, NOW);
        if let (Err(_), Some(kept)) = (&outcome, kept) {
            self.state = kept;
        }
        outcome
    }

    /// What was at or before `horizon` is let go.
    pub(crate) fn forget_before(&mut self, horizon: Position) {
        self.state.horizon = horizon;
        self.state.changes.retain(|change| change.position > horizon);
        self.state.origins.retain(|position, _| *position > horizon);
    }
}

impl View for Scene {
    type Error = Infallible;

    fn position(&self) -> Position {
        self.state.position
    }

    fn horizon(&self) -> Position {
        self.state.horizon
    }

    fn document(&self, at: &DocumentKey) -> Result<Option<Document>, Infallible> {
        Ok(self.state.documents.get(at).map(|document| Document::clone(document)))
    }

    fn touched(&self, collection: &str, field: &str) -> Result<Position, Infallible> {
        let touched = self.state.touched.get(collection).and_then(|fields| fields.get(field));
        Ok(touched.copied().unwrap_or_default())
    }

    fn quiet_since(&self, collection: &str, field: &str, value: &Json, from: Position) -> Option<Position> {
        self.recent.quiet_since(NAMESPACE, collection, field, value, from)
    }

    /// In the order of writing or against it, as nobody may rely on either.
    fn changes_after(
        &self,
        collection: &str,
        after: Position,
        _: &Looks,
        see: &mut dyn FnMut(&ChangeSeen<'_>) -> ControlFlow<()>,
    ) -> Result<(), Infallible> {
        let mut changes: Vec<&Changed> = self.state.changes.iter().map(|change| &**change).collect();
        changes.retain(|change| &*change.collection == collection && change.position > after);
        if self.state.position.0.is_multiple_of(2) {
            changes.reverse();
        }
        for Changed { position, touched, before, after, .. } in changes {
            let touched: Vec<&str> = touched.iter().map(|name| &**name).collect();
            let seen =
                ChangeSeen { position: *position, touched: &touched, before: before.as_deref(), after };
            if see(&seen).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn origin(&self, position: Position) -> Result<Option<Origin>, Infallible> {
        Ok(self.state.origins.get(&position).cloned())
    }

    fn advance(&mut self, commit: &Commit) -> Result<(), Infallible> {
        let state = &mut self.state;
        let position = commit.position;
        let mut changed: BTreeMap<&DocumentKey, Changed> = BTreeMap::new();
        for Event { at, change } in &commit.events {
            let before = state.documents.get(at).cloned();
            let mut after = before.clone().unwrap_or(Rc::new(Document::unborn()));
            Rc::make_mut(&mut after).apply(change, position);
            state.documents.insert(at.clone(), after.clone());
            let touched: Vec<Box<str>> = change.touches().into_iter().map(Box::from).collect();
            let last = state.touched.entry(at.collection.clone()).or_default();
            last.extend(touched.iter().map(|name| (name.clone(), position)));
            let one = Changed { position, collection: at.collection.clone(), touched, before, after };
            match changed.get_mut(at) {
                None => drop(changed.insert(at, one)),
                Some(_) if is_planted(Fault::SeeBetweenIntents) => state.changes.push(Rc::new(one)),
                Some(all) => {
                    all.after = one.after;
                    all.touched.extend(one.touched);
                }
            }
        }
        for change in changed.into_values() {
            let Changed { collection, before, after, .. } = &change;
            if let Some(before) = before.as_deref().filter(|_| !is_planted(Fault::RecentNotesAfterOnly)) {
                self.recent.note(NAMESPACE, collection, before, position);
            }
            self.recent.note(NAMESPACE, collection, after, position);
            state.changes.push(Rc::new(change));
        }
        let Commit { at, user, note, .. } = commit;
        state.origins.insert(position, Origin { at: *at, user: user.clone(), note: note.clone() });
        state.position = position;
        Ok(())
    }
}

pub(crate) fn json(text: &str) -> Json {
    Json::read(text, 9).unwrap()
}

/// `c/1`
pub(crate) fn key(text: &str) -> DocumentKey {
    let (collection, key) = text.split_once('/').unwrap();
    DocumentKey::new(collection, key.parse().unwrap())
}

/// The members of a JSON object, in the order of their names.
fn fields(text: &str) -> Vec<FieldValue> {
    let members: BTreeMap<Box<str>, &serde_json::value::RawValue> = serde_json::from_str(text).unwrap();
    members.into_iter().map(|(name, value)| (name, json(value.get()))).collect()
}

pub(crate) fn create(text: &str) -> Action {
    Action::Create { fields: fields(text) }
}

pub(crate) fn update(text: &str) -> Action {
    Action::Update { set: fields(text), lists: Vec::new() }
}

/// Of each list its field, what is added and what is removed, as JSON lists; empty if there is none.
pub(crate) fn update_lists(text: &str, lists: &[(&str, &str, &str)]) -> Action {
    let change = |(field, add, remove): &(&str, &str, &str)| ListChange {
        field: (*field).into(),
        add: elements(add),
        remove: elements(remove),
    };
    Action::Update { set: fields(text), lists: lists.iter().map(change).collect() }
}

fn elements(text: &str) -> Option<Vec<Json>> {
    let elements: Vec<&serde_json::value::RawValue> = serde_json::from_str(text).ok()?;
    Some(elements.into_iter().map(|element| json(element.get())).collect())
}

pub(crate) fn add(field: &str, elements: &str) -> Action {
    update_lists("{}", &[(field, elements, "")])
}

pub(crate) fn remove(field: &str, elements: &str) -> Action {
    update_lists("{}", &[(field, "", elements)])
}

/// Empty text removes the node.
pub(crate) fn set(path: &str, value: &str) -> Action {
    Action::Set { path: path.parse().unwrap(), value: (!value.is_empty()).then(|| json(value)) }
}

pub(crate) fn put(text: &str, when: PutIf) -> Action {
    Action::Put { fields: fields(text), when }
}

/// Several things done to one document.
pub(crate) fn request(at: &str, actions: &[Action]) -> Request {
    let intents = actions.iter().map(|action| Intent { at: key(at), action: action.clone() }).collect();
    Request { intents, ..Request::default() }
}

/// `f = 1`; several with `and` between them.
pub(crate) fn filter(text: &str) -> Filter {
    let mut conditions: Vec<Filter> = text.split(" and ").map(condition).collect();
    if conditions.len() == 1 { conditions.remove(0) } else { Filter::All(conditions) }
}

fn condition(text: &str) -> Filter {
    let mut words = text.splitn(3, ' ');
    let mut word = || words.next().unwrap();
    let (field, operator, value) = (word(), Operator::read(word()).unwrap(), json(word()));
    Filter::Is(Condition::new(field.parse().unwrap(), operator, value).unwrap())
}
