//! From a write request to the events it makes. Knows nothing of what is done with them.

use crate::{
    fault::{Fault, is_planted},
    list,
    position_lock::broken,
    request::{
        Action, Expectation, Intent, Limits, ListChange, Precondition, PutIf, Refused, Request, Rules,
    },
    view::{Looks, View},
};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use lockwood_model::{
    Change, Commit, Document, DocumentKey, Event, FieldValue, Json, Path, Position, Timestamp,
    node::{self, NodeError},
};

/// Decides several requests of one call in order; each sees what the ones before it did. All are done, or
/// none.
pub fn decide_all<V: View>(
    requests: &[Request],
    view: &mut V,
    limits: Limits,
    rules: &dyn Rules,
    now: Timestamp,
) -> Result<Result<Vec<Commit>, Refused>, V::Error> {
    let mut commits = Vec::with_capacity(requests.len());
    let looks = Looks::default();
    for request in requests {
        match decide_within(request, view, (limits, rules), now, &looks)? {
            Ok(commit) => {
                if !is_planted(Fault::BlindRequests) {
                    view.advance(&commit)?;
                }
                commits.push(commit);
            }
            Err(refused) => return Ok(Err(refused)),
        }
    }
    Ok(rules.finish().map(|()| commits))
}

/// Decides one request: first whether its locks hold, then what each of its intents does.
pub fn decide<V: View>(
    request: &Request,
    view: &V,
    limits: Limits,
    rules: &dyn Rules,
    now: Timestamp,
) -> Result<Result<Commit, Refused>, V::Error> {
    decide_within(request, view, (limits, rules), now, &Looks::default())
}

fn decide_within<V: View>(
    request: &Request,
    view: &V,
    (limits, rules): (Limits, &dyn Rules),
    now: Timestamp,
    looks: &Looks,
) -> Result<Result<Commit, Refused>, V::Error> {
    let broken = broken(&request.locks, view, looks)?;
    if !broken.is_empty() {
        return Ok(Err(Refused::Locked(broken)));
    }
    if let Some(refused) = unexpected(request, view)? {
        return Ok(Err(refused));
    }
    let position = view.position().next();
    let mut draft = Draft::default();
    let mut events = Vec::with_capacity(request.intents.len());
    for Intent { at, action } in &request.intents {
        let drafted = draft.document(at, view)?;
        if let Some(change) = drafted.adoption(action) {
            drafted.apply(&change, position);
            events.push(Event { at: at.clone(), change });
        }
        let change = match change(at, action, drafted) {
            Ok(change) => change,
            Err(refused) => return Ok(Err(refused)),
        };
        drafted.apply(&change, position);
        drafted.note(action);
        if writes_values(&change)
            && let Err(refused) = limits.check(at, drafted.document.present())
        {
            return Ok(Err(refused));
        }
        events.push(Event { at: at.clone(), change });
    }
    if let Err(refused) = draft.check(&events, rules) {
        return Ok(Err(refused));
    }
    let Request { user, note, .. } = request;
    let (user, note) = (user.clone(), note.clone());
    let commit = Commit { position, at: now, user, note, events, purged: None };
    Ok(Ok(commit))
}

/// The first document that is not what the request expects.
fn unexpected<V: View>(request: &Request, view: &V) -> Result<Option<Refused>, V::Error> {
    for Precondition { at, expected } in &request.preconditions {
        // Whoever restores a document knows the version it was deleted in.
        let restored = |intent: &Intent| intent.at == *at && matches!(intent.action, Action::Restore);
        let names_versions = matches!(expected, Expectation::OneOf(_) | Expectation::NoneOf(_));
        let also_deleted = names_versions && request.intents.iter().any(restored);
        let document = view.document(at)?;
        let document = document.filter(|found| found.is_born() && (also_deleted || !found.deleted));
        let version = document.map(|document| document.position);
        if !expected.is_met(version) {
            return Ok(Some(Refused::Unexpected { at: at.clone(), expected: expected.clone(), version }));
        }
    }
    Ok(None)
}

/// The documents of a request as they are so far.
#[derive(Default)]
struct Draft(HashMap<DocumentKey, Drafted, FixedState>);

/// A document as it is so far.
struct Drafted {
    document: Document,
    /// It is there, but was written without positions.
    is_volatile: bool,
    /// What is taken away from it.
    removed: Vec<Path>,
    /// Something else is done to it than taking something away.
    is_written: bool,
}

impl Drafted {
    fn new(found: Option<Document>) -> Drafted {
        let is_volatile = found.as_ref().is_some_and(|document| !document.is_born());
        let document = found.unwrap_or_else(Document::unborn);
        Drafted { document, is_volatile, removed: Vec::new(), is_written: false }
    }

    /// The event that gives a document without positions its first one, so that its history begins with what
    /// it was when the action came upon it.
    fn adoption(&self, action: &Action) -> Option<Change> {
        let changes = !matches!(action, Action::Create { .. } | Action::Restore);
        (self.is_volatile && changes).then(|| {
            let content = self.document.present().map(|(name, value)| (name.into(), value.clone()));
            Change::Created { fields: content.collect() }
        })
    }

    /// Notes what an action takes away, if it does nothing else.
    fn note(&mut self, action: &Action) {
        match action {
            Action::Set { path, value: None } => self.removed.push(path.clone()),
            Action::Update { set, lists }
                if lists.is_empty() && set.iter().all(|(_, value)| value.is_null()) =>
            {
                self.removed.extend(set.iter().map(|(name, _)| Path::from_segments([name])));
            }
            _ => self.is_written = true,
        }
    }

    fn apply(&mut self, change: &Change, position: Position) {
        self.document.apply(change, position);
        self.is_volatile = false;
    }
}

impl Draft {
    fn document<V: View>(&mut self, at: &DocumentKey, view: &V) -> Result<&mut Drafted, V::Error> {
        if !self.0.contains_key(at) || is_planted(Fault::BlindIntents) {
            self.0.insert(at.clone(), Drafted::new(view.document(at)?));
        }
        Ok(self.0.get_mut(at).expect("it was just put there"))
    }

    /// Whether what the request makes of its documents in the end is what its rules allow.
    fn check(&self, events: &[Event], rules: &dyn Rules) -> Result<(), Refused> {
        for Event { at, .. } in events {
            let Drafted { document, removed, is_written, .. } = &self.0[at];
            let may_pass = || !is_written && !removed.is_empty() && rules.may_lose(at, removed);
            if !document.deleted && !may_pass() {
                rules.check(at, document)?;
            }
        }
        Ok(())
    }
}

fn change(at: &DocumentKey, action: &Action, drafted: &Drafted) -> Result<Change, Refused> {
    let document = &drafted.document;
    match action {
        Action::Create { .. } if drafted.is_volatile => {
            Err(Refused::Exists { at: at.clone(), deleted: false })
        }
        Action::Create { fields } => create(at, fields, document),
        Action::Update { set, lists } => update(at, set, lists, document),
        Action::Put { fields, when } => put(at, fields, *when, document),
        Action::Set { path, value } => set(at, path, value.as_ref(), document),
        Action::Delete => {
            let names = present(at, document)?.present().map(|(name, _)| name.into()).collect();
            let forget = is_planted(Fault::DeleteTouchesNothing);
            Ok(Change::Deleted { fields: if forget { Vec::new() } else { names } })
        }
        Action::Restore if document.deleted => {
            let content = document.present().map(|(name, value)| (name.into(), value.clone()));
            Ok(Change::Restored { fields: content.collect() })
        }
        Action::Restore => {
            let missing = !document.is_born() && !drafted.is_volatile;
            Err(Refused::NotDeleted { at: at.clone(), missing })
        }
    }
}

fn create(at: &DocumentKey, fields: &[FieldValue], document: &Document) -> Result<Change, Refused> {
    let ignore = document.deleted && is_planted(Fault::CreateDeleted);
    if document.is_born() && !ignore {
        return Err(Refused::Exists { at: at.clone(), deleted: document.deleted });
    }
    Ok(Change::Created { fields: without_nulls(fields) })
}

fn without_nulls(fields: &[FieldValue]) -> Vec<FieldValue> {
    let is_kept = |value: &Json| !value.is_null() || is_planted(Fault::NullIsValue);
    fields.iter().filter(|(_, value)| is_kept(value)).cloned().collect()
}

fn update(
    at: &DocumentKey,
    given: &[FieldValue],
    lists: &[ListChange],
    document: &Document,
) -> Result<Change, Refused> {
    let document = present(at, document)?;
    let (removed, set): (Vec<_>, Vec<_>) = given.iter().cloned().partition(|(_, value)| value.is_null());
    let mut set = set;
    for change in lists {
        let stored = document.get(&change.field);
        let after = list::changed(stored, change)
            .map_err(|list::NotAList| Refused::NotAList { at: at.clone(), field: change.field.clone() })?;
        set.extend(after.map(|after: Json| (change.field.clone(), after)));
    }
    Ok(Change::Updated { set, removed: removed.into_iter().map(|(name, _)| name).collect() })
}

fn put(at: &DocumentKey, fields: &[FieldValue], when: PutIf, document: &Document) -> Result<Change, Refused> {
    let is_absent = document.deleted || !document.is_born();
    match when {
        PutIf::Present => drop(present(at, document)?),
        PutIf::Absent if !is_absent => return Err(Refused::Exists { at: at.clone(), deleted: false }),
        PutIf::Absent | PutIf::Always => {}
    }
    let set = without_nulls(fields);
    if !document.is_born() {
        return Ok(Change::Created { fields: set });
    }
    let removed = left_out(fields, document);
    Ok(match document.deleted {
        true => Change::Recreated { fields: set, removed },
        false => Change::Updated { set, removed },
    })
}

/// The fields of a document that are not among those given.
fn left_out(fields: &[FieldValue], document: &Document) -> Vec<Box<str>> {
    let kept = fields.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| &**name);
    let kept: HashSet<&str, FixedState> = kept.collect();
    let is_gone = |name: &&str| !kept.contains(name) && !is_planted(Fault::PutKeepsRest);
    document.present().map(|(name, _)| name).filter(is_gone).map(Into::into).collect()
}

/// What happened is told as the new value of a whole field, so that nobody need know how it came about.
fn set(at: &DocumentKey, path: &Path, value: Option<&Json>, document: &Document) -> Result<Change, Refused> {
    let document = present(at, document)?;
    let segments: Vec<&str> = path.segments().collect();
    let (name, below) = segments.split_first().expect("a path leads to a field at least");
    let led_by = |len: usize| Path::from_segments(&segments[..len]);
    let missing = |len| Refused::NoNode { at: at.clone(), path: led_by(len) };
    let stored = document.get(name);
    let after = match (stored, value) {
        (None, Some(value)) if below.is_empty() => Some(value.clone()),
        (None, _) => return Err(missing(1)),
        (Some(stored), value) => {
            let keeps = is_planted(Fault::UnsetKeeps) && value.is_none();
            let replaced =
                if keeps { Ok(Some(stored.clone())) } else { node::replaced(stored, below, value) };
            replaced.map_err(|error| match error {
                NodeError::Missing(len) => missing(len + 1),
                NodeError::NoContainer(len) => Refused::NoContainer { at: at.clone(), path: led_by(len + 1) },
            })?
        }
    };
    let name = Box::from(*name);
    Ok(match after.filter(|after| !after.is_null()) {
        Some(after) => Change::Updated { set: vec![(name, after)], removed: Vec::new() },
        None => Change::Updated { set: Vec::new(), removed: vec![name] },
    })
}

fn present<'a>(at: &DocumentKey, document: &'a Document) -> Result<&'a Document, Refused> {
    if document.deleted || !document.is_born() {
        return Err(Refused::NoDocument { at: at.clone(), deleted: document.deleted });
    }
    Ok(document)
}

/// Nothing else makes a document larger. So what is over a limit that was lowered can still be made smaller
/// and deleted.
fn writes_values(change: &Change) -> bool {
    match change {
        Change::Created { .. } | Change::Recreated { .. } => true,
        Change::Updated { set, .. } => !set.is_empty(),
        Change::Deleted { .. } | Change::Restored { .. } => false,
    }
}
