//! Erasing from the log what was purged: records lose what they say of it, and keep their places. Knows nothing of when
//! that is done, nor of files.
//!
//! Records are erased from the oldest on, and those that took the documents out of the state last of all. So the log
//! leads to the same state at every moment: whatever is left of the documents in it is taken away further on.

use super::{
    keys,
    read::{NamespaceId, State},
};
use crate::{
    entry::Entry,
    log::records,
    store::{Batch, Order, Slice, Space, StoreError, with_prefix},
};
use lockwood_model::{Commit, DocumentKey, Lease, Path, Purged};
use std::collections::BTreeSet;

/// Where something is known of a namespace besides its documents.
pub(super) const BESIDE_DOCUMENTS: [Space; 6] =
    [Space::History, Space::Touched, Space::Positions, Space::Answers, Space::Marks, Space::Origins];
/// So many records are looked at in one step.
const STEP_LEN: usize = 1000;
/// No more than about so many bytes of records are written anew in one step.
const STEP_BYTES: usize = 4 << 20;
/// Documents that have more steps of history than this together are not taken away in one record.
const PIECE_STEPS: usize = 2000;
/// So much of what is known of a namespace besides its documents goes with one record.
const CLEARED_LEN: u64 = 2000;

/// What is to be erased, and where.
#[derive(Debug)]
pub struct Erasure {
    namespace: Box<str>,
    what: What,
    purged: Purged,
    /// The record of the purge.
    purge: u64,
}

#[derive(Debug)]
enum What {
    Documents(BTreeSet<DocumentKey>),
    Collection(Box<str>),
    Namespace,
}

/// One step of an erasure.
#[derive(Debug)]
pub struct ErasureStep {
    /// What changes.
    pub batch: Batch,
    /// The last record that was looked at.
    pub last: u64,
}

impl Erasure {
    /// What the purge at `index` has to erase; nothing if that is not the record of a purge.
    pub fn of(state: &State<'_>, index: u64) -> Result<Option<Erasure>, StoreError> {
        let Some(Entry::Purged { namespace, commit, documents, .. }) = state.entry(index)? else {
            return Ok(None);
        };
        let purged = commit.purged.unwrap_or(Purged::Namespace);
        let what = match &purged {
            Purged::Documents { .. } => What::Documents(documents.into_iter().collect()),
            Purged::Collection { collection } => What::Collection(collection.clone()),
            Purged::Namespace => What::Namespace,
        };
        Ok(Some(Erasure { namespace, what, purged, purge: index }))
    }

    /// Where the purge is.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Whether a document goes.
    pub fn takes(&self, namespace: &str, at: &DocumentKey) -> bool {
        *self.namespace == *namespace && self.goes(at)
    }

    /// Whether a collection goes, with its indexes and ids.
    pub fn takes_collection(&self, namespace: &str, collection: &str) -> bool {
        let goes = match &self.what {
            What::Documents(_) => false,
            What::Collection(going) => **going == *collection,
            What::Namespace => true,
        };
        *self.namespace == *namespace && goes
    }

    /// Whether another purge would take something that goes.
    pub fn meets(&self, namespace: &str, other: &Purged, documents: &[DocumentKey]) -> bool {
        let meets = match (&self.what, other) {
            (What::Namespace, _) | (_, Purged::Namespace) => true,
            (
                What::Collection(going),
                Purged::Documents { collection, .. } | Purged::Collection { collection },
            ) => going == collection,
            (What::Documents(going), Purged::Collection { collection }) => {
                going.iter().any(|at| at.collection == *collection)
            }
            (What::Documents(going), Purged::Documents { .. }) => {
                documents.iter().any(|at| going.contains(at))
            }
        };
        *self.namespace == *namespace && meets
    }

    fn goes(&self, at: &DocumentKey) -> bool {
        match &self.what {
            What::Documents(documents) => documents.contains(at),
            What::Collection(collection) => *at.collection == **collection,
            What::Namespace => true,
        }
    }

    /// Some of the documents that are still there, after one, of what goes as a whole: fewer if much is known of them.
    pub fn some_documents(
        &self,
        state: &State<'_>,
        after: Option<&DocumentKey>,
        len_max: usize,
    ) -> Result<Vec<DocumentKey>, StoreError> {
        let collection = match &self.what {
            What::Documents(_) => return Ok(Vec::new()),
            What::Collection(collection) => Some(&**collection),
            What::Namespace => None,
        };
        let Some(id) = state.namespace(&self.namespace)? else { return Ok(Vec::new()) };
        let mut documents = state.some_documents(id, collection, after, len_max)?;
        let mut steps = 0;
        for (count, at) in documents.iter().enumerate() {
            steps += state.history_len(id, at, PIECE_STEPS)?;
            if steps >= PIECE_STEPS {
                documents.truncate(count + 1);
                break;
            }
        }
        Ok(documents)
    }

    /// Takes away some of what is known of a namespace besides its documents, if that is what goes and something is left.
    pub fn next_clearing(&self, state: &State<'_>) -> Result<Option<Entry>, StoreError> {
        let (What::Namespace, Some(id)) = (&self.what, state.namespace(&self.namespace)?) else {
            return Ok(None);
        };
        let is_left = !state.beside_documents(id, 1)?.is_empty();
        Ok(is_left.then(|| Entry::Cleared { namespace: self.namespace.clone(), len: CLEARED_LEN }))
    }

    /// The keys of calls in some of the records after `after`, up to `to`, that wrote what goes and are still known; and
    /// the last record that was looked at. All those of a namespace go with it.
    pub fn answers(
        &self,
        state: &State<'_>,
        after: u64,
        to: u64,
    ) -> Result<(Vec<Box<str>>, u64), StoreError> {
        let (mut keys, mut last) = (Vec::new(), to);
        let (false, Some(id)) = (matches!(self.what, What::Namespace), state.namespace(&self.namespace)?)
        else {
            return Ok((keys, to));
        };
        for (count, found) in records(state.snapshot, after + 1).enumerate() {
            let (index, entry) = found?;
            if index > to {
                break;
            }
            if self.goes_from(&entry)
                && let Entry::Committed { commits, answer: Some(answer), .. } = &entry
                && let Some(answered) = state.answer(id, &answer.key)?
                && commits.last().is_some_and(|commit| commit.position == answered.last)
            {
                keys.push(answer.key.clone());
            }
            if count + 1 == STEP_LEN {
                last = index;
                break;
            }
        }
        Ok((keys, last))
    }

    /// Whether a call wrote something that goes.
    fn goes_from(&self, entry: &Entry) -> bool {
        let Entry::Committed { namespace, commits, .. } = entry else { return false };
        *namespace == self.namespace
            && commits.iter().flat_map(|commit| &commit.events).any(|event| self.goes(&event.at))
    }

    /// What is purged, for the record.
    pub fn purged(&self) -> &Purged {
        &self.purged
    }

    /// Whether the record of the purge still says what to look for. It forgets that when nothing before it is left.
    pub fn names_documents(&self) -> bool {
        !matches!(&self.what, What::Documents(documents) if documents.is_empty())
    }

    /// Erases some of the records after `after`, up to `to`.
    pub fn step(&self, state: &State<'_>, after: u64, to: u64) -> Result<ErasureStep, StoreError> {
        let mut step = ErasureStep { batch: Batch::default(), last: after };
        let mut bytes = 0;
        for found in records(state.snapshot, after + 1).take(STEP_LEN) {
            let (index, entry) = found?;
            if index > to {
                break;
            }
            step.last = index;
            let is_held = |lease: &Lease| state.lease(&self.namespace, lease.lock).map(|held| held.is_some());
            if let Some(erased) = self.erased(index, &entry, is_held)? {
                let record = erased.encode();
                bytes += record.len();
                step.batch.put(Space::Log, index.to_be_bytes(), record);
            }
            if bytes >= STEP_BYTES {
                return Ok(step);
            }
        }
        // The oldest records may be trimmed.
        if step.last == after {
            step.last = to;
        }
        Ok(step)
    }

    /// What is left of a record; nothing if it stays as it is.
    fn erased(
        &self,
        index: u64,
        entry: &Entry,
        is_held: impl Fn(&Lease) -> Result<bool, StoreError>,
    ) -> Result<Option<Entry>, StoreError> {
        match entry {
            // Leases are by name, also where there are no documents.
            Entry::Leased { namespace, lease } if *namespace == self.namespace => {
                let erased = self.names(lease) && !is_held(lease)?;
                Ok(erased.then_some(Entry::Erased { namespace: None }))
            }
            _ if entry.namespace() != Some(&*self.namespace) => Ok(None),
            Entry::Purged { commit, documents, next, pending, .. } if index == self.purge => {
                let (namespace, commit) = (self.namespace.clone(), commit.clone());
                let (next, pending) = (*next, *pending);
                Ok((!documents.is_empty()).then_some(Entry::Purged {
                    namespace,
                    commit,
                    documents: vec![],
                    next,
                    pending,
                }))
            }
            Entry::Unanswered { purge, .. } if *purge == self.purge => Ok(Some(self.nothing())),
            _ => Ok(match &self.what {
                What::Namespace => self.erased_whole(entry),
                What::Collection(collection) => {
                    let in_it = |at: &DocumentKey| *at.collection == **collection;
                    match entry {
                        Entry::Reserved { collection: of, .. } if of == collection => Some(self.nothing()),
                        _ => self.without(entry, in_it),
                    }
                }
                What::Documents(documents) => self.without(entry, |at| documents.contains(at)),
            }),
        }
    }

    fn nothing(&self) -> Entry {
        Entry::Erased { namespace: Some(self.namespace.clone()) }
    }

    /// All that gave the namespace its number still does.
    fn erased_whole(&self, entry: &Entry) -> Option<Entry> {
        match entry {
            Entry::Committed { .. }
            | Entry::Reserved { .. }
            | Entry::Kept { .. }
            | Entry::Merged { .. }
            | Entry::NotesErased { .. }
            | Entry::Loaded { .. }
            | Entry::Versioned { .. }
            | Entry::Installed { .. }
            | Entry::Forgotten { .. }
            | Entry::Unmarked { .. }
            | Entry::Unanswered { .. }
            | Entry::Purged { .. } => Some(self.nothing()),
            // The next index gets another number, and so does the next namespace of the name.
            Entry::Indexed { .. } | Entry::Emptied { .. } | Entry::Dropped { .. } => None,
            // It says nothing, and what it took away may be in records that are not erased yet.
            Entry::Cleared { .. } => None,
            Entry::Loading { .. } | Entry::Erased { .. } => None,
            Entry::Trimmed { .. }
            | Entry::Leased { .. }
            | Entry::LeaseRenewed { .. }
            | Entry::LeasesEnded { .. }
            | Entry::Raised { .. }
            | Entry::PurgeEnded { .. } => None,
        }
    }

    fn without(&self, entry: &Entry, goes: impl Fn(&DocumentKey) -> bool) -> Option<Entry> {
        let namespace = || self.namespace.clone();
        match entry {
            Entry::Committed { commits, .. } => {
                let goes_from = |commit: &Commit| commit.events.iter().any(|event| goes(&event.at));
                if !commits.iter().any(goes_from) {
                    return None;
                }
                let commits = commits.iter().map(|commit| commit_without(commit, &goes)).collect();
                Some(Entry::Committed { namespace: namespace(), commits, answer: None })
            }
            Entry::Kept { put, removed, .. } => {
                if !put.iter().map(|(at, _)| at).chain(removed).any(&goes) {
                    return None;
                }
                let put = put.iter().filter(|(at, _)| !goes(at)).cloned().collect();
                Some(Entry::Kept { namespace: namespace(), put, removed: left(removed, goes) })
            }
            Entry::Merged { at, .. } => goes(at).then(|| self.nothing()),
            Entry::Loaded { horizon, documents, .. } => {
                if !documents.iter().any(|(at, _)| goes(at)) {
                    return None;
                }
                let documents = documents.iter().filter(|(at, _)| !goes(at)).cloned().collect();
                Some(Entry::Loaded { namespace: namespace(), horizon: *horizon, documents })
            }
            Entry::Installed { transition, horizon, documents, .. } => {
                if !documents.iter().any(|moved| goes(&moved.at)) {
                    return None;
                }
                let documents = documents.iter().filter(|moved| !goes(&moved.at)).cloned().collect();
                let (transition, horizon) = (*transition, *horizon);
                Some(Entry::Installed { namespace: namespace(), transition, horizon, documents })
            }
            Entry::Forgotten { documents, .. } => documents
                .iter()
                .any(&goes)
                .then(|| Entry::Forgotten { namespace: namespace(), documents: left(documents, &goes) }),
            Entry::Unmarked { documents, .. } => documents
                .iter()
                .any(&goes)
                .then(|| Entry::Unmarked { namespace: namespace(), documents: left(documents, &goes) }),
            _ => None,
        }
    }

    /// Whether a lease names something that goes, or something in it.
    fn names(&self, lease: &Lease) -> bool {
        lease.resources.iter().any(|resource| match &self.what {
            What::Namespace => true,
            What::Collection(collection) => resource.path.segments().next() == Some(collection),
            What::Documents(documents) => documents.iter().any(|at| is_in(&resource.path, &at.path())),
        })
    }
}

impl State<'_> {
    /// How many steps of the history of a document are known, at most so many.
    fn history_len(&self, namespace: NamespaceId, at: &DocumentKey, max: usize) -> Result<usize, StoreError> {
        let steps = with_prefix(&keys::document(namespace.0, at));
        Ok(self.snapshot.scan(Space::History, steps, Order::Forward).take(max).count())
    }

    /// The first keys of what is known of a namespace besides its documents.
    pub(super) fn beside_documents(
        &self,
        namespace: NamespaceId,
        len_max: usize,
    ) -> Result<Vec<(Space, Slice)>, StoreError> {
        let all = BESIDE_DOCUMENTS.into_iter().flat_map(|space| {
            let found = self.snapshot.scan(space, with_prefix(&keys::namespace(namespace.0)), Order::Forward);
            found.map(move |pair| Ok((space, pair?.0)))
        });
        all.take(len_max).collect()
    }
}

fn is_in(path: &Path, whole: &Path) -> bool {
    path.len() >= whole.len() && path.segments().zip(whole.segments()).all(|(a, b)| a == b)
}

fn left(documents: &[DocumentKey], goes: impl Fn(&DocumentKey) -> bool) -> Vec<DocumentKey> {
    documents.iter().filter(|at| !goes(at)).cloned().collect()
}

/// A note may tell of any document of its commit; who wrote is of interest for as long as something is left.
fn commit_without(commit: &Commit, goes: impl Fn(&DocumentKey) -> bool) -> Commit {
    let events: Vec<_> = commit.events.iter().filter(|event| !goes(&event.at)).cloned().collect();
    if events.len() == commit.events.len() {
        return commit.clone();
    }
    let user = commit.user.clone().filter(|_| !events.is_empty());
    Commit { position: commit.position, at: commit.at, user, note: None, events, purged: None }
}
