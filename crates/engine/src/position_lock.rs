//! Position locks: whether what was read at a position has changed since. Knows nothing of lock tables.
//!
//! A lock on a collection's field with a filter stands for a search: "these documents match, and this is what
//! their field holds". A change breaks it if the document matched before or matches after, and the field or
//! any field the filter looks at was touched, or the document came, was deleted or restored. So entering, staying
//! in and leaving the filter all count. As every change moves `meta_position`, a filter that looks at it watches all fields; for a lock on that field
//! itself only being deleted and restored counts.
//!
//! What is touched is known of whole fields only, so for a path into a field any change of the field counts.

use crate::{
    fault::{Fault, is_planted},
    request::{PositionLock, Target},
    view::{ChangeSeen, Looks, Origin, View},
};
use lockwood_model::{
    Budget, Document, DocumentKey, Exhausted, FieldPath, Filter, META_DELETED, META_POSITION, Operator,
    Position,
};
use std::{collections::HashMap, ops::ControlFlow};

/// A position lock that does not hold, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Broken {
    /// Which of the request's locks, counted from 0.
    pub index: usize,
    /// The lock.
    pub lock: PositionLock,
    /// What broke it.
    pub by: BrokenBy,
}

/// What broke a position lock.
#[derive(Debug, Clone, PartialEq)]
pub enum BrokenBy {
    /// A write.
    Write {
        /// Where.
        position: Position,
        /// Whose, if that is still known and not too much to be told.
        origin: Option<Origin>,
    },
    /// It is older than what is kept, so nobody can say.
    TooOld {
        /// A lock at this position could be judged.
        horizon: Position,
    },
    /// Finding out would take too long: too much has happened since, or its filter takes too much comparing.
    TooMuch {
        /// A lock at this position needs no finding out.
        present: Position,
    },
}

/// Of so many writes that broke locks it is told whose they were.
const ORIGINS_LEN_MAX: usize = 100;
/// And no longer once users and notes have come to so many bytes.
const ORIGINS_BYTES_MAX: usize = 1 << 20;

/// Judges every lock by its own position and reports all that are broken.
pub(crate) fn broken<V: View>(
    locks: &[PositionLock],
    view: &V,
    looks: &Looks,
) -> Result<Vec<Broken>, V::Error> {
    let mut broken = Vec::new();
    let mut origins = Origins::default();
    for (index, lock) in locks.iter().enumerate() {
        if let Some(by) = judge(&lock.target, since(lock, locks), view, looks, &mut origins)? {
            broken.push(Broken { index, lock: lock.clone(), by });
        }
        if is_planted(Fault::StopAtFirstBroken) && !broken.is_empty() {
            break;
        }
    }
    Ok(broken)
}

/// Each by its own position, whatever the others have.
fn since(lock: &PositionLock, locks: &[PositionLock]) -> Position {
    if is_planted(Fault::LowestPosition) {
        return locks.iter().map(|lock| lock.position).min().unwrap_or_default();
    }
    lock.position
}

/// Whose the writes were that broke locks; many are often broken by one.
#[derive(Default)]
struct Origins {
    known: HashMap<Position, Option<Origin>>,
    bytes: usize,
}

impl Origins {
    fn get<V: View>(&mut self, position: Position, view: &V) -> Result<Option<Origin>, V::Error> {
        if self.bytes > ORIGINS_BYTES_MAX {
            return Ok(None);
        }
        if !self.known.contains_key(&position) {
            if self.known.len() >= ORIGINS_LEN_MAX {
                return Ok(None);
            }
            self.known.insert(position, view.origin(position)?);
        }
        let origin = self.known[&position].clone();
        let texts = origin.iter().flat_map(|origin| origin.user.iter().chain(&origin.note));
        self.bytes += texts.map(|text| text.as_str().len()).sum::<usize>();
        Ok(origin)
    }
}

fn judge<V: View>(
    target: &Target,
    since: Position,
    view: &V,
    looks: &Looks,
    origins: &mut Origins,
) -> Result<Option<BrokenBy>, V::Error> {
    if since < view.horizon() && !is_planted(Fault::IgnoreHorizon) {
        return Ok(Some(BrokenBy::TooOld { horizon: view.horizon() }));
    }
    let Some(changed) = changed(target, since, view, looks)? else {
        return Ok(Some(BrokenBy::TooMuch { present: view.position() }));
    };
    let is_seen = if is_planted(Fault::BrokenBySeen) { changed < since } else { changed <= since };
    if is_seen {
        return Ok(None);
    }
    Ok(Some(BrokenBy::Write { position: changed, origin: origins.get(changed, view)? }))
}

/// A position after `since` at which the target changed, or any other if it did not; none if finding out would
/// take too long.
fn changed<V: View>(
    target: &Target,
    since: Position,
    view: &V,
    looks: &Looks,
) -> Result<Option<Position>, V::Error> {
    Ok(Some(match target {
        Target::Document(at) => document_changed(at, since, view, |document| document.position)?,
        Target::Field(at, field) => {
            document_changed(at, since, view, |document| document.touched(field.root()))?
        }
        Target::CollectionField { collection, field, filter } => {
            let purged = view.purged(collection)?;
            match filter {
                // Which documents went is not known, so any search may have found them.
                _ if purged > since => purged,
                None => view.touched(collection, field.root())?,
                Some(filter) => {
                    return search_changed((collection, field.root(), filter), since, view, looks);
                }
            }
        }
    }))
}

/// When a document changed, if it is the one that was there at `since`. If it is not, that one may have been purged.
fn document_changed<V: View>(
    at: &DocumentKey,
    since: Position,
    view: &V,
    changed: impl Fn(&Document) -> Position,
) -> Result<Position, V::Error> {
    let document = view.document(at)?;
    let changed = document.as_ref().map_or(Position::START, changed);
    match document.is_some_and(|document| document.created <= since) {
        true => Ok(changed),
        false => Ok(changed.max(view.purged(&at.collection)?)),
    }
}

/// Tries what is cheap first: no watched field was touched at all; no document with a value the filter
/// requires has changed. Only then are the changes looked at one by one.
fn search_changed<V: View>(
    (collection, field, filter): (&str, &str, &Filter),
    since: Position,
    view: &V,
    looks: &Looks,
) -> Result<Option<Position>, V::Error> {
    let watched = watched(field, filter, looks);
    if is_untouched(collection, watched.as_deref(), since, (view, looks))?
        || is_quiet(collection, filter, since, view)
    {
        return Ok(Some(Position::START));
    }
    if looks.is_spent() {
        return Ok(None);
    }
    let mut changed = None;
    view.changes_after(collection, since, looks, &mut |change| match breaks(
        change,
        watched.as_deref(),
        filter,
        looks.budget(),
    ) {
        Ok(false) => looks.change(change),
        Ok(true) => {
            changed = Some(change.position);
            ControlFlow::Break(())
        }
        Err(_) => ControlFlow::Break(()),
    })?;
    Ok(changed.or((!looks.is_spent()).then_some(Position::START)))
}

/// The fields that matter, sorted; none if all do.
fn watched<'a>(field: &'a str, filter: &'a Filter, looks: &Looks) -> Option<Vec<&'a str>> {
    let mut names: Vec<&str> = filter.fields().into_iter().map(FieldPath::root).collect();
    if is_planted(Fault::OwnFieldOnly) {
        names.clear();
    }
    if names.contains(&META_POSITION) {
        return None;
    }
    names.push(field);
    // A document without any of these fields comes and goes without touching one.
    if filter.matches_within(&Document::unborn(), looks.budget()).unwrap_or(true) {
        names.push(META_DELETED);
    }
    names.sort_unstable();
    Some(names)
}

fn is_untouched<V: View>(
    collection: &str,
    watched: Option<&[&str]>,
    since: Position,
    (view, looks): (&V, &Looks),
) -> Result<bool, V::Error> {
    let Some(watched) = watched else { return Ok(false) };
    for name in watched {
        if looks.spend(1).is_break() || view.touched(collection, name)? > since {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_quiet<V: View>(collection: &str, filter: &Filter, since: Position, view: &V) -> bool {
    filter.required().into_iter().any(|condition| {
        // What is inside objects is not remembered.
        let field = condition.field();
        (condition.operator() == Operator::Equal || is_planted(Fault::QuietForAnyOperator))
            && (field.is_top_level() || is_planted(Fault::QuietBelowFields))
            && view
                .quiet_since(collection, field.root(), condition.value(), since)
                .is_some_and(|quiet| quiet <= since)
    })
}

fn breaks(
    change: &ChangeSeen<'_>,
    watched: Option<&[&str]>,
    filter: &Filter,
    budget: &Budget,
) -> Result<bool, Exhausted> {
    let is_watched = |watched: &[&str]| change.touched.iter().any(|name| watched.binary_search(name).is_ok());
    if !watched.is_none_or(is_watched) {
        return Ok(false);
    }
    if !is_planted(Fault::FilterBeforeOnly) && filter.matches_within(change.after, budget)? {
        return Ok(true);
    }
    match change.before.filter(|_| !is_planted(Fault::FilterAfterOnly)) {
        Some(before) => filter.matches_within(before, budget),
        None => Ok(false),
    }
}
