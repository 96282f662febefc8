//! What a donor has of keys that have moved to another shard and may not have arrived there: asked for by the owner,
//! looked up by the donor. Knows nothing of what the owner makes of it.

use super::{
    super::Message,
    ask::{elsewhere, retryable, wait_for},
    custody::Mine,
};
use crate::{cluster::Current, shared::Shared};
use lockwood_model::{Budget, Document, DocumentKey, Key, Position};
use lockwood_node::{
    shard::{Custody, Elsewhere, Find, Found, PageError, Reading, Selection},
    trouble::Trouble,
};
use lockwood_router::{Route, ShardNo};
use lockwood_storage::{Entry, NamespaceId};
use lockwood_wire::documents::{Deleted, WireFilter, WireKey};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, vec};

/// So many documents are sent at once, if they are not too large.
const PAGE_LEN: usize = 1000;
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Where documents are asked for.
pub(crate) const SEARCH: &str = "/internal/frozen/search";
/// Where some documents are asked for by their keys.
pub(crate) const GET: &str = "/internal/frozen/get";
/// Where it is asked which keys a donor has ever heard of.
pub(crate) const KNOWN: &str = "/internal/frozen/known";

/// Which documents an owner asks for. An empty answer is the end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Search {
    namespace: String,
    collection: String,
    filter: Option<WireFilter>,
    deleted: Deleted,
    at: Option<u64>,
    after: Option<WireKey>,
    /// Only those that have moved to this shard.
    to: ShardNo,
}

/// Some keys, all of which have moved to one shard.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Keys {
    namespace: String,
    keys: Vec<(String, WireKey)>,
    at: Option<u64>,
    to: ShardNo,
}

impl Keys {
    fn of(mine: &Mine, keys: &[DocumentKey], at: Option<Position>) -> Keys {
        let keys = keys.iter().map(|at| (at.collection.to_string(), WireKey(at.key.clone())));
        Keys {
            namespace: mine.namespace.clone(),
            keys: keys.collect(),
            at: at.map(|at| at.0),
            to: mine.shared.cluster.this(),
        }
    }

    fn documents(&self) -> impl Iterator<Item = DocumentKey> {
        self.keys.iter().map(|(collection, key)| DocumentKey::new(collection, key.0.clone()))
    }
}

/// The documents of a donor, page by page, in the order of their keys.
pub(super) struct Frozen<'a> {
    mine: &'a Mine,
    donor: ShardNo,
    search: Search,
    page: vec::IntoIter<(DocumentKey, Document)>,
    over: bool,
}

impl<'a> Frozen<'a> {
    pub(super) fn new(mine: &'a Mine, donor: ShardNo, find: &Find, after: Option<Key>) -> Frozen<'a> {
        let search = Search {
            namespace: mine.namespace.clone(),
            collection: find.collection.to_string(),
            filter: find.filter.as_ref().map(Into::into),
            deleted: match find.deleted {
                Selection::Without => Deleted::Without,
                Selection::Only => Deleted::Only,
                Selection::With => Deleted::With,
            },
            at: find.at.map(|at| at.0),
            after: after.map(WireKey),
            to: mine.shared.cluster.this(),
        };
        Frozen { mine, donor, search, page: Vec::new().into_iter(), over: false }
    }

    fn turn(&mut self) -> Result<(), Trouble> {
        let page = wait_for(ask(self.mine, self.donor, &Message::json(SEARCH, &self.search)))?;
        self.over = page.is_empty();
        if let Some((last, _)) = page.last() {
            self.search.after = Some(WireKey(last.key.clone()));
        }
        self.page = page.into_iter();
        Ok(())
    }

    /// Those of some documents that are there, deleted or not.
    pub(super) async fn get(
        mine: &Mine,
        donor: ShardNo,
        keys: &[DocumentKey],
        as_of: Option<Position>,
    ) -> Result<Vec<(DocumentKey, Document)>, Trouble> {
        ask(mine, donor, &Message::json(GET, &Keys::of(mine, keys, as_of))).await
    }
}

impl Iterator for Frozen<'_> {
    type Item = Result<Found, PageError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((at, document)) = self.page.next() {
                return Some(Ok(Found::past(at, document)));
            }
            if self.over {
                return None;
            }
            if let Err(trouble) = self.turn() {
                self.over = true;
                return Some(Err(trouble.into()));
            }
        }
    }
}

/// Whether a donor has ever heard of keys.
pub(super) struct Known;

impl Known {
    pub(super) async fn ask(mine: &Mine, donor: ShardNo, keys: &[DocumentKey]) -> Result<Vec<bool>, Trouble> {
        let message = Message::json(KNOWN, &Keys::of(mine, keys, None));
        let reply = retryable(elsewhere(&mine.shared, donor, &message).await?)?;
        let known: Option<Vec<bool>> = serde_json::from_slice(&reply.body).ok();
        known.filter(|known| known.len() == keys.len()).ok_or_else(|| reply.into_trouble())
    }
}

async fn ask(
    mine: &Mine,
    donor: ShardNo,
    message: &Message,
) -> Result<Vec<(DocumentKey, Document)>, Trouble> {
    let reply = retryable(elsewhere(&mine.shared, donor, message).await?)?;
    match Entry::decode(0, &reply.body) {
        Ok(Entry::Loaded { documents, .. }) => Ok(documents),
        _ => Err(reply.into_trouble()),
    }
}

/// What this node, a donor, has of a search.
pub(crate) fn search(
    shared: &Shared,
    current: &Arc<Current>,
    search: &Search,
    filter: Option<lockwood_model::Filter>,
) -> Result<Entry, Trouble> {
    let reading = shared.shard.read();
    let Some((namespace, _)) = reading.namespace(&search.namespace)? else {
        return Ok(loaded(&search.namespace, Vec::new()));
    };
    let find = Find {
        namespace,
        collection: search.collection.as_str().into(),
        filter,
        deleted: match search.deleted {
            Deleted::Without => Selection::Without,
            Deleted::Only => Selection::Only,
            Deleted::With => Selection::With,
        },
        at: past(&reading, namespace, search.at)?,
        looks_max: shared.config.limits.looks_max,
        budget: Budget::new(shared.config.limits.work_max),
        custody: Some(Arc::new(Given {
            current: Arc::clone(current),
            this: shared.cluster.this(),
            to: search.to,
        })),
    };
    let (mut documents, mut bytes) = (Vec::new(), 0);
    reading.each(&find, search.after.as_ref().map(|key| &key.0), &mut |found, document| {
        bytes += document.fields().map(|(name, value)| name.len() + value.len() + 16).sum::<usize>();
        documents.push((found().at, document.to_document()));
        documents.len() < PAGE_LEN && bytes < PAGE_BYTES
    })?;
    Ok(loaded(&search.namespace, documents))
}

impl Search {
    pub(crate) fn filter(&self) -> Option<&WireFilter> {
        self.filter.as_ref()
    }
}

/// What this node, a donor, has of some keys.
pub(crate) fn get(shared: &Shared, current: &Arc<Current>, keys: &Keys) -> Result<Entry, Trouble> {
    let reading = shared.shard.read();
    let mut documents = Vec::new();
    if let Some((namespace, _)) = reading.namespace(&keys.namespace)? {
        let as_of = past(&reading, namespace, keys.at)?;
        let given = Given { current: Arc::clone(current), this: shared.cluster.this(), to: keys.to };
        let all: Vec<DocumentKey> = keys.documents().collect();
        for found in given.get_all(&reading, namespace, &all, as_of)?.into_iter().flatten() {
            let document = found.document()?.to_document();
            documents.push((found.at, document));
        }
    }
    Ok(loaded(&keys.namespace, documents))
}

/// Which of some keys this node, a donor, has ever heard of.
pub(crate) fn known(shared: &Shared, current: &Current, keys: &Keys) -> Result<Vec<bool>, Trouble> {
    let reading = shared.shard.read();
    let Some((namespace, _)) = reading.namespace(&keys.namespace)? else {
        return Ok(keys.documents().map(|_| false).collect());
    };
    keys.documents().map(|at| Ok(counts(&reading, namespace, current, &at)?)).collect()
}

/// The position asked about, if it is in the past of what is here; it must not be forgotten.
fn past(reading: &Reading, namespace: NamespaceId, at: Option<u64>) -> Result<Option<Position>, Trouble> {
    let Some(at) = at.map(Position) else { return Ok(None) };
    let horizon = reading.state().horizon(namespace)?;
    if at < horizon {
        return Err(lockwood_node::refusals::too_old(at, horizon));
    }
    let written = reading.state().position(namespace)?;
    Ok(Some(at).filter(|at| *at < written))
}

fn loaded(namespace: &str, documents: Vec<(DocumentKey, Document)>) -> Entry {
    Entry::Loaded { namespace: namespace.into(), horizon: Position::START, documents }
}

/// Whether what a donor has of a key counts: in a transition that goes back, only if it had arrived there.
fn counts(
    reading: &Reading,
    namespace: NamespaceId,
    current: &Current,
    at: &DocumentKey,
) -> Result<bool, PageError> {
    match current.map.reverses {
        0 => Ok(true),
        reversed => Ok(reading.state().mark(namespace, at)? == Some(reversed)),
    }
}

/// What this node has given to another one.
#[derive(Clone)]
struct Given {
    current: Arc<Current>,
    this: ShardNo,
    to: ShardNo,
}

impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "given by shard {} to {}", self.this.0, self.to.0)
    }
}

impl Custody for Given {
    fn is_here(
        &self,
        reading: &Reading,
        namespace: NamespaceId,
        at: &DocumentKey,
    ) -> Result<bool, PageError> {
        let moved = Route::Pulled { owner: self.to, donor: self.this };
        Ok(self.current.route(at)? == moved && counts(reading, namespace, &self.current, at)?)
    }

    fn elsewhere<'a>(
        &'a self,
        _: &'a Reading,
        _: &'a Find,
        _: Option<&Key>,
    ) -> Result<Option<Elsewhere<'a>>, PageError> {
        Ok(None)
    }

    fn get_all(
        &self,
        reading: &Reading,
        namespace: NamespaceId,
        keys: &[DocumentKey],
        as_of: Option<Position>,
    ) -> Result<Vec<Option<Found>>, PageError> {
        let get = |at: &DocumentKey| match self.is_here(reading, namespace, at)? {
            true => Ok(reading.get(namespace, at.clone(), Selection::With, as_of)?),
            false => Ok(None),
        };
        keys.iter().map(get).collect()
    }
}
