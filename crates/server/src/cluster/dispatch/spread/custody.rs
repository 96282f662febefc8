//! Which documents a node answers for: those it owns, be they here already or still with their donor. Knows nothing
//! of what is asked about them.
//!
//! ```text
//!                        here                                elsewhere
//!   Steady, Finishing    owned                               -
//!   Resharding           owned and not moving, or known      moving here, not known in the same reading
//! ```
//!
//! What a donor has of keys that move is frozen. So it can be looked at after the reading that says which of them
//! are not known here yet, and both together are as of that reading. In a transition that goes back, what is here
//! counts for a key that its donor has never heard of.

use super::{
    ask::wait_for,
    frozen::{Frozen, Known},
};
use crate::{
    cluster::{Current, work::EVERYWHERE},
    shared::Shared,
};
use lockwood_model::{DocumentKey, Key, Position};
use lockwood_node::{
    shard::{Custody, Elsewhere, Find, Found, PageError, Reading, Selection},
    trouble::Trouble,
};
use lockwood_router::{Phase, Route, ShardNo};
use lockwood_storage::{NamespaceId, Order};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    iter::Peekable,
    sync::Arc,
};

/// A namespace that nothing is in, where one has to be named.
pub(crate) const NOWHERE: NamespaceId = NamespaceId(u32::MAX);

/// So many documents that are here are asked about together.
const DOUBTS_LEN: usize = 500;

/// What a node answers for; none if it answers for all it has.
pub(crate) fn custody(shared: &Arc<Shared>, namespace: &str) -> Result<Option<Arc<dyn Custody>>, Trouble> {
    if !shared.cluster.has_spread_now(namespace)? {
        return Ok(None);
    }
    let Some(current) = shared.cluster.current() else { return Ok(None) };
    Ok(Some(Arc::new(Mine { shared: Arc::clone(shared), current, namespace: namespace.to_owned() })))
}

/// What this node owns of a namespace.
pub(super) struct Mine {
    pub(super) shared: Arc<Shared>,
    pub(super) current: Arc<Current>,
    pub(super) namespace: String,
}

impl fmt::Debug for Mine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of shard {}", self.namespace, self.shared.cluster.this().0)
    }
}

/// Where what counts of a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Here,
    Donor(ShardNo),
    /// Another shard answers for it.
    Elsewhere,
}

impl Mine {
    fn place(&self, reading: &Reading, namespace: NamespaceId, at: &DocumentKey) -> Result<Place, PageError> {
        if EVERYWHERE.contains(&&*at.collection) {
            return Ok(Place::Here);
        }
        let this = self.shared.cluster.this();
        Ok(match self.current.route(at)? {
            Route::Owner(owner) if owner == this => Place::Here,
            Route::Pulled { owner, donor } if owner == this => {
                match reading.state().mark(namespace, at)? == Some(self.current.map.transition) {
                    true => Place::Here,
                    false => Place::Donor(donor),
                }
            }
            _ => Place::Elsewhere,
        })
    }

    /// Of documents that are here and that a donor answers for, those that it has never heard of.
    fn unheard(
        &self,
        reading: &Reading,
        namespace: NamespaceId,
        keys: &[DocumentKey],
    ) -> Result<Vec<DocumentKey>, PageError> {
        let mut asked: BTreeMap<ShardNo, Vec<DocumentKey>> = BTreeMap::new();
        for at in keys {
            if let Place::Donor(donor) = self.place(reading, namespace, at)? {
                asked.entry(donor).or_default().push(at.clone());
            }
        }
        let mut unheard = Vec::new();
        for (donor, keys) in asked {
            let known = wait_for(Known::ask(self, donor, &keys))?;
            unheard.extend(keys.into_iter().zip(known).filter(|(_, known)| !known).map(|(at, _)| at));
        }
        Ok(unheard)
    }

    fn goes_back(&self) -> bool {
        self.current.map.reverses != 0
    }
}

impl Custody for Mine {
    fn is_here(
        &self,
        reading: &Reading,
        namespace: NamespaceId,
        at: &DocumentKey,
    ) -> Result<bool, PageError> {
        Ok(self.place(reading, namespace, at)? == Place::Here)
    }

    fn elsewhere<'a>(
        &'a self,
        reading: &'a Reading,
        find: &'a Find,
        after: Option<&Key>,
    ) -> Result<Option<Elsewhere<'a>>, PageError> {
        let everywhere = EVERYWHERE.contains(&&*find.collection);
        if self.current.map.phase != Phase::Resharding || everywhere {
            return Ok(None);
        }
        let this = self.shared.cluster.this();
        let donors = self.current.map.shard_numbers().filter(|donor| *donor != this);
        let unknown = move |found: Result<Found, PageError>| match found {
            Ok(found) => match self.place(reading, find.namespace, &found.at) {
                Ok(Place::Here) => None,
                Ok(_) => Some(Ok(found)),
                Err(error) => Some(Err(error)),
            },
            Err(error) => Some(Err(error)),
        };
        let streams = donors.map(|donor| {
            let frozen = Frozen::new(self, donor, find, after.cloned()).filter_map(unknown);
            (Box::new(frozen) as Elsewhere<'a>).peekable()
        });
        let mut streams: Vec<_> = streams.collect();
        if self.goes_back() {
            let kept = Kept { mine: self, reading, find, after: after.cloned(), ready: VecDeque::new() };
            streams.push((Box::new(kept) as Elsewhere<'a>).peekable());
        }
        Ok(Some(Box::new(Merged(streams))))
    }

    fn get_all(
        &self,
        reading: &Reading,
        namespace: NamespaceId,
        keys: &[DocumentKey],
        as_of: Option<Position>,
    ) -> Result<Vec<Option<Found>>, PageError> {
        let mut asked: BTreeMap<ShardNo, Vec<DocumentKey>> = BTreeMap::new();
        for at in keys {
            if let Place::Donor(donor) = self.place(reading, namespace, at)? {
                asked.entry(donor).or_default().push(at.clone());
            }
        }
        let mut given: HashMap<DocumentKey, Option<Found>> = HashMap::new();
        let unheard = if self.goes_back() { self.unheard(reading, namespace, keys)? } else { Vec::new() };
        for (donor, keys) in asked {
            given.extend(keys.iter().map(|at| (at.clone(), None)));
            for (at, document) in wait_for(Frozen::get(self, donor, &keys, as_of))? {
                given.insert(at.clone(), Some(Found::past(at, document)));
            }
        }
        unheard.iter().for_each(|at| drop(given.remove(at)));
        let get = |at: &DocumentKey| match given.get(at) {
            Some(found) => Ok(found.clone()),
            None => Ok(reading.get(namespace, at.clone(), Selection::With, as_of)?),
        };
        keys.iter().map(get).collect()
    }
}

/// Documents that are here and count though they are not known, because their donor has never heard of them.
struct Kept<'a> {
    mine: &'a Mine,
    reading: &'a Reading,
    find: &'a Find,
    after: Option<Key>,
    ready: VecDeque<Found>,
}

impl Kept<'_> {
    /// Looks at some more; says whether there were any.
    fn look(&mut self) -> Result<bool, PageError> {
        let Kept { mine, reading, find, .. } = *self;
        let state = reading.state();
        let documents =
            state.documents(find.namespace, &find.collection, self.after.as_ref(), Order::Forward);
        let keys = documents.take(DOUBTS_LEN).map(|pair| pair.map(|(at, _)| at));
        let keys: Vec<DocumentKey> = keys.collect::<Result<_, _>>()?;
        let Some(last) = keys.last() else { return Ok(false) };
        self.after = Some(last.key.clone());
        let mut unheard = mine.unheard(reading, find.namespace, &keys)?;
        unheard.sort_unstable();
        for at in unheard {
            let Some(found) = reading.get(find.namespace, at, Selection::With, find.at)? else { continue };
            if Reading::is_found(find, &found.document()?)? {
                self.ready.push_back(found);
            }
        }
        Ok(true)
    }
}

impl Iterator for Kept<'_> {
    type Item = Result<Found, PageError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.ready.pop_front() {
                return Some(Ok(found));
            }
            match self.look() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Several streams in the order of the keys, as one.
struct Merged<'a>(Vec<Peekable<Elsewhere<'a>>>);

impl Iterator for Merged<'_> {
    type Item = Result<Found, PageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut first: Option<(usize, Key)> = None;
        for (index, stream) in self.0.iter_mut().enumerate() {
            match stream.peek() {
                None => {}
                Some(Err(_)) => return stream.next(),
                Some(Ok(found)) if first.as_ref().is_none_or(|(_, key)| found.at.key < *key) => {
                    first = Some((index, found.at.key.clone()));
                }
                Some(Ok(_)) => {}
            }
        }
        self.0[first?.0].next()
    }
}
