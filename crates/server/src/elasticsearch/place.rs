//! What a search looks through, at one moment: the documents of indexes, and the locks that have documents. Knows nothing
//! of how hits are told, nor of scrolls' ids or of HTTP.

use super::{
    answer::Refusal,
    change::Current,
    lock_document::{self, is_lock},
    name::{At, UNTYPED, id_of, key_of},
    query::Query,
    several::Meant,
};
use crate::shared::Shared;
use lockwood_model::{Budget, DocumentKey, Key, Lease, LockId, Path};
use lockwood_node::{
    lease,
    shard::{Find, PageError, Reading, Selection},
};
use lockwood_storage::{DocumentRef, NamespaceId};
use std::collections::BTreeSet;

pub(super) struct Place {
    reading: Reading,
    /// The last record that it shows.
    pub(super) seen: u64,
    pub(super) indexes: Vec<String>,
    stages: Vec<Stage>,
}

/// A type of an index.
pub(super) struct Stage {
    pub(super) index: String,
    pub(super) collection: String,
    holds: Holds,
}

enum Holds {
    Locks(Vec<LockId>),
    Documents(NamespaceId),
}

/// Where to go on.
#[derive(Debug, Clone, Default)]
pub(super) struct Cursor {
    stage: usize,
    inside: Inside,
}

#[derive(Debug, Clone, Default)]
enum Inside {
    #[default]
    Start,
    /// After this document.
    Key(Key),
    /// After so many locks.
    Count(usize),
}

/// Who looks, and what that may cost.
#[derive(Clone, Copy)]
pub(super) struct Looker<'a> {
    pub(super) shared: &'a Shared,
    pub(super) budget: &'a Budget,
}

/// How much of each type is looked at when not all of it has to be.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    pub(super) len_max: usize,
    pub(super) bytes_max: usize,
}

/// Something that was found.
pub(super) struct Hit<'a> {
    pub(super) stage: &'a Stage,
    pub(super) id: &'a str,
    number: usize,
    content: Content<'a>,
}

enum Content<'a> {
    Document(&'a Key, &'a DocumentRef<'a>),
    /// With how many locks were before it.
    Lock(usize, &'a Lease, &'a Current),
}

/// A document that was found, and as what.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) at: At,
    pub(super) state: TargetState,
}

#[derive(Debug, Clone)]
pub(super) enum TargetState {
    /// As it was written at this position.
    Document(u64),
    Lock(Box<Lease>),
}

/// Is shown a hit; says whether to go on.
type See<'a> = dyn FnMut(&Hit<'_>) -> bool + 'a;

impl Place {
    pub(super) fn open(looker: Looker<'_>, meant: Meant) -> Result<Place, Refusal> {
        let Looker { shared, budget } = looker;
        let reading = shared.shard.read();
        let mut stages = Vec::new();
        for index in &meant.indexes {
            let namespace = reading.namespace(index)?.map(|(namespace, _)| namespace);
            let locks = lease::below_path(shared, index, &Path::root());
            if namespace.is_none() && locks.is_empty() {
                return Err(Refusal::no_index(index));
            }
            let there =
                namespace.map_or(Ok(Vec::new()), |namespace| reading.state().collections(namespace))?;
            for collection in collections(&meant, there, &locks, budget)? {
                let holds = if is_lock(index, &collection) {
                    budget.spend(locks.len() as u64).map_err(PageError::from)?;
                    Holds::Locks(locks_below(&collection, &locks))
                } else if let Some(namespace) = namespace {
                    Holds::Documents(namespace)
                } else {
                    continue;
                };
                stages.push(Stage { index: index.clone(), collection, holds });
            }
        }
        let seen = reading.state().applied()?;
        Ok(Place { reading, seen, indexes: meant.indexes, stages })
    }

    /// Shows what a query finds from `start` on, until told to stop.
    pub(super) fn visit(
        &self,
        looker: Looker<'_>,
        query: &Query,
        start: Cursor,
        see: &mut See<'_>,
    ) -> Result<(), Refusal> {
        let Cursor { stage: first, mut inside } = start;
        for (number, stage) in self.stages.iter().enumerate().skip(first) {
            let inside = std::mem::take(&mut inside);
            if !self.visit_stage(looker, query, (number, stage), inside, see)? {
                break;
            }
        }
        Ok(())
    }

    /// Shows the first documents of each type, as many as a sample of it has, until told to stop.
    pub(super) fn sample(
        &self,
        looker: Looker<'_>,
        Sample { len_max, bytes_max }: Sample,
        see: &mut See<'_>,
    ) -> Result<(), Refusal> {
        for (number, stage) in self.stages.iter().enumerate() {
            let (mut len, mut bytes, mut goes_on) = (0, 0, true);
            self.visit_stage(looker, &Query::All, (number, stage), Inside::Start, &mut |hit| {
                len += 1;
                bytes += hit.fields().map(|(_, json)| json.len()).sum::<usize>();
                goes_on = see(hit);
                goes_on && len < len_max && bytes < bytes_max
            })?;
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// False if told to stop.
    fn visit_stage(
        &self,
        looker: Looker<'_>,
        query: &Query,
        (number, stage): (usize, &Stage),
        inside: Inside,
        see: &mut See<'_>,
    ) -> Result<bool, Refusal> {
        match &stage.holds {
            Holds::Locks(locks) => {
                let skip = if let Inside::Count(count) = inside { count } else { 0 };
                Ok(locks_of(looker, query, (number, stage, locks), skip, see)?)
            }
            Holds::Documents(namespace) => {
                let after = if let Inside::Key(key) = inside { Some(key) } else { None };
                self.documents_of(looker, query, (number, stage, *namespace), after.as_ref(), see)
            }
        }
    }

    fn documents_of(
        &self,
        Looker { shared, budget }: Looker<'_>,
        query: &Query,
        (number, stage, namespace): (usize, &Stage, NamespaceId),
        after: Option<&Key>,
        see: &mut See<'_>,
    ) -> Result<bool, Refusal> {
        let find = Find {
            namespace,
            collection: stage.collection.as_str().into(),
            filter: None,
            deleted: Selection::Without,
            at: None,
            looks_max: shared.config.limits.looks_max,
            budget: budget.clone(),
            custody: None,
        };
        let mut goes_on = true;
        let mut exhausted = Ok(());
        self.reading.each(&find, after, &mut |found, document| {
            let key = found().at.key;
            let id = id_of(&key);
            match query.matches(&id, document, budget) {
                Ok(true) => {}
                Ok(false) => return true,
                Err(error) => {
                    exhausted = Err(error);
                    return false;
                }
            }
            goes_on = see(&Hit { stage, id: &id, number, content: Content::Document(&key, document) });
            goes_on
        })?;
        exhausted.map_err(PageError::from)?;
        Ok(goes_on)
    }
}

/// The types that are meant of those that are there. What the server keeps for itself is no type.
fn collections(
    meant: &Meant,
    there: Vec<String>,
    locks: &[Lease],
    budget: &Budget,
) -> Result<Vec<String>, PageError> {
    let locked = locks.iter().flat_map(|lock| &lock.resources);
    let of_locks: BTreeSet<&str> = locked.filter_map(|resource| resource.path.segments().next()).collect();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for name in there.into_iter().chain(of_locks.into_iter().map(str::to_owned)) {
        let is_type = name == UNTYPED || !name.starts_with('_');
        if is_type && meant.types.fit(&name, budget)? {
            names.insert(name);
        }
    }
    Ok(names.into_iter().collect())
}

fn locks_below(collection: &str, locks: &[Lease]) -> Vec<LockId> {
    let below = Path::from_segments([collection]);
    let is_meant = |lock: &&Lease| lock.resources.iter().any(|one| below.is_prefix_of(&one.path));
    locks.iter().filter(is_meant).map(|lock| lock.lock).collect()
}

fn locks_of(
    Looker { shared, budget }: Looker<'_>,
    query: &Query,
    (number, stage, locks): (usize, &Stage, &[LockId]),
    skip: usize,
    see: &mut See<'_>,
) -> Result<bool, PageError> {
    let now = shared.clock.now();
    for (before, lock) in locks.iter().enumerate().skip(skip) {
        // It may be over by now.
        let lease = lease::get(shared, &stage.index, *lock)
            .filter(|lease| lease.expires_at.is_none_or(|at| at > now));
        let Some(lease) = lease else { continue };
        let Some(id) = lease.resources.first().and_then(|one| one.path.segments().nth(1)) else { continue };
        let id = id.parse::<Key>().map_or_else(|_| id.to_owned(), |key| id_of(&key));
        let current = lock_document::current(&lease);
        if !query.matches(&id, &current.source, budget)? {
            continue;
        }
        if !see(&Hit { stage, id: &id, number, content: Content::Lock(before, &lease, &current) }) {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Hit<'_> {
    /// Shows the fields of its source, each with its JSON.
    pub(super) fn fields(&self) -> Box<dyn Iterator<Item = (&str, &str)> + '_> {
        match &self.content {
            Content::Document(_, document) => Box::new(document.fields()),
            Content::Lock(_, _, current) => {
                Box::new(current.source.0.iter().map(|(name, value)| (&**name, value.as_str())))
            }
        }
    }

    /// Reads the whole document.
    pub(super) fn version(&self) -> u64 {
        match &self.content {
            Content::Document(_, document) => document.to_document().version,
            Content::Lock(_, _, current) => current.version,
        }
    }

    pub(super) fn seq_no(&self) -> u64 {
        match &self.content {
            Content::Document(_, document) => document.position().0,
            Content::Lock(_, _, current) => current.seq_no,
        }
    }

    /// Where to go on behind it.
    pub(super) fn cursor(&self) -> Cursor {
        let inside = match &self.content {
            Content::Document(key, _) => Inside::Key((*key).clone()),
            Content::Lock(before, ..) => Inside::Count(before + 1),
        };
        Cursor { stage: self.number, inside }
    }

    pub(super) fn target(&self) -> Target {
        let (key, state) = match &self.content {
            Content::Document(key, _) => ((*key).clone(), TargetState::Document(self.seq_no())),
            Content::Lock(_, lease, _) => (key_of(self.id), TargetState::Lock(Box::new((*lease).clone()))),
        };
        let key = DocumentKey { collection: self.stage.collection.as_str().into(), key };
        Target { at: At { index: self.stage.index.clone(), id: self.id.to_owned(), key }, state }
    }
}
