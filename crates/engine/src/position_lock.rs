//! Position locks: whether what was read at a position has changed since. Knows nothing of lock tables.
//!
//! A lock on a collection's field with a filter stands for a search: "these documents match, and this is what
//! their field holds". A change breaks it if the document matched before or matches after, and the field or
//! any field the filter looks at was touched. So entering, staying in and leaving the filter all count. As
//! every change moves `meta_position`, a filter that looks at it watches all fields; for a lock on that field
//! itself only being deleted and restored counts.

use crate::{
    fault::{Fault, is_planted},
    request::{PositionLock, Target},
    view::{ChangeSeen, Origin, View},
};
use lockwood_model::{Document, Filter, META_DELETED, META_POSITION, Operator, Position};
use std::ops::ControlFlow;

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
        /// Whose, if that is still known.
        origin: Option<Origin>,
    },
    /// It is older than what is kept, so nobody can say.
    TooOld {
        /// A lock at this position could be judged.
        horizon: Position,
    },
}

/// Judges every lock by its own position and reports all that are broken.
pub(crate) fn broken<V: View>(locks: &[PositionLock], view: &V) -> Result<Vec<Broken>, V::Error> {
    let mut broken = Vec::new();
    for (index, lock) in locks.iter().enumerate() {
        if let Some(by) = judge(&lock.target, since(lock, locks), view)? {
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

fn judge<V: View>(target: &Target, since: Position, view: &V) -> Result<Option<BrokenBy>, V::Error> {
    if since < view.horizon() && !is_planted(Fault::IgnoreHorizon) {
        return Ok(Some(BrokenBy::TooOld { horizon: view.horizon() }));
    }
    let changed = changed(target, since, view)?;
    let is_seen = if is_planted(Fault::BrokenBySeen) { changed < since } else { changed <= since };
    if is_seen {
        return Ok(None);
    }
    Ok(Some(BrokenBy::Write { position: changed, origin: view.origin(changed)? }))
}

/// A position after `since` at which the target changed, or any other if it did not.
fn changed<V: View>(target: &Target, since: Position, view: &V) -> Result<Position, V::Error> {
    match target {
        Target::Document(at) => Ok(view.document(at)?.map_or(Position::START, |document| document.position)),
        Target::Field(at, field) => {
            Ok(view.document(at)?.map_or(Position::START, |document| document.touched(field)))
        }
        Target::CollectionField { collection, field, filter: None } => view.touched(collection, field),
        Target::CollectionField { collection, field, filter: Some(filter) } => {
            search_changed(collection, field, filter, since, view)
        }
    }
}

/// Tries what is cheap first: no watched field was touched at all; no document with a value the filter
/// requires has changed. Only then are the changes looked at one by one.
fn search_changed<V: View>(
    collection: &str,
    field: &str,
    filter: &Filter,
    since: Position,
    view: &V,
) -> Result<Position, V::Error> {
    let watched = watched(field, filter);
    if is_untouched(collection, watched.as_deref(), since, view)? || is_quiet(collection, filter, since, view)
    {
        return Ok(Position::START);
    }
    let mut changed = Position::START;
    view.changes_after(collection, since, &mut |change| {
        if !breaks(change, watched.as_deref(), filter) {
            return ControlFlow::Continue(());
        }
        changed = change.position;
        ControlFlow::Break(())
    })?;
    Ok(changed)
}

/// The fields that matter; none if all do.
fn watched<'a>(field: &'a str, filter: &'a Filter) -> Option<Vec<&'a str>> {
    let mut names = if is_planted(Fault::OwnFieldOnly) { Vec::new() } else { filter.fields() };
    if names.contains(&META_POSITION) {
        return None;
    }
    names.push(field);
    // A document without any of these fields comes and goes without touching one.
    if filter.matches(&Document::unborn()) {
        names.push(META_DELETED);
    }
    Some(names)
}

fn is_untouched<V: View>(
    collection: &str,
    watched: Option<&[&str]>,
    since: Position,
    view: &V,
) -> Result<bool, V::Error> {
    let Some(watched) = watched else { return Ok(false) };
    for name in watched {
        if view.touched(collection, name)? > since {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_quiet<V: View>(collection: &str, filter: &Filter, since: Position, view: &V) -> bool {
    filter.required().into_iter().any(|condition| {
        (condition.operator() == Operator::Equal || is_planted(Fault::QuietForAnyOperator))
            && view
                .quiet_since(collection, condition.field(), condition.value(), since)
                .is_some_and(|quiet| quiet <= since)
    })
}

fn breaks(change: &ChangeSeen<'_>, watched: Option<&[&str]>, filter: &Filter) -> bool {
    let after = || filter.matches(change.after) && !is_planted(Fault::FilterBeforeOnly);
    let before =
        || change.before.is_some_and(|before| filter.matches(before)) && !is_planted(Fault::FilterAfterOnly);
    watched.is_none_or(|watched| change.touched.iter().any(|name| watched.contains(name)))
        && (after() || before())
}
