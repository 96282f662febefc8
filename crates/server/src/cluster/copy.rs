//! Everything a node has, as records that make the same of nothing: for a host that only reads and cannot follow the
//! log from its beginning. Knows nothing of who sends it, nor of who takes it in.

use super::{
    SYSTEM,
    replica::{PART_BYTES, push},
};
use crate::{native::Pieces, shard::Reading, trouble::Trouble};
use lockwood_model::DocumentKey;
use lockwood_storage::{Entry, Moved, NamespaceId, Order, State, StoreError};
use std::collections::BTreeMap;
use tokio::runtime::Handle;

/// So many documents are looked up at a time.
const GROUP_LEN: usize = 50;
/// So many marks are looked at at a time.
const MARKS_LEN: usize = 1000;

/// Why a copy ends before its end.
enum Broken {
    /// Whoever asked for it takes no more.
    Gone,
    Store(StoreError),
}

impl From<StoreError> for Broken {
    fn from(error: StoreError) -> Broken {
        Broken::Store(error)
    }
}

type Done = Result<(), Broken>;

/// Writes everything that a reading shows. What is there for others to take is told by its index, 0; the last record
/// of the log by its own.
pub(crate) fn write(reading: &Reading, pieces: &Pieces) {
    let mut copy = Copy { pieces, runtime: Handle::current(), bytes: Vec::new() };
    match copy.all(reading) {
        Ok(()) => pieces.complete(),
        Err(Broken::Store(error)) => tracing::error!(%error, "copy everything for a host that only reads"),
        Err(Broken::Gone) => {}
    }
}

/// The records that leave nothing of what is here, but for what a node keeps for itself.
pub(super) fn emptied(reading: &Reading) -> Result<Vec<Entry>, Trouble> {
    let state = reading.state();
    let mut locks: BTreeMap<Box<str>, Vec<_>> = BTreeMap::new();
    for (namespace, lease) in state.leases()?.into_iter().filter(|(name, _)| **name != *SYSTEM) {
        locks.entry(namespace).or_default().push(lease.lock);
    }
    let ended = locks.into_iter().map(|(namespace, locks)| Entry::LeasesEnded { namespace, locks });
    let namespaces = state.namespaces()?.into_iter().filter(|(name, _)| name != SYSTEM);
    let emptied = namespaces.map(|(name, _)| Entry::Emptied { namespace: name.into() });
    Ok(ended.chain(emptied).collect())
}

struct Copy<'a> {
    pieces: &'a Pieces,
    runtime: Handle,
    bytes: Vec<u8>,
}

impl Copy<'_> {
    fn all(&mut self, reading: &Reading) -> Done {
        let state = reading.state();
        let mut floor = state.floor()?;
        for (name, id) in state.namespaces()?.into_iter().filter(|(name, _)| name != SYSTEM) {
            floor = floor.max(state.position(id)?);
            self.namespace(state, &name, id)?;
        }
        for (namespace, lease) in state.leases()?.into_iter().filter(|(name, _)| **name != *SYSTEM) {
            self.record(&Entry::Leased { namespace, lease })?;
        }
        // A position may be that of a document which is gone without a trace.
        self.record(&Entry::Raised { floor })?;
        let last = state.applied()?;
        let record = state.record(last)?.ok_or_else(|| StoreError::damaged("the last record of the log"))?;
        push(&mut self.bytes, last, &record);
        self.flush()
    }

    fn namespace(&mut self, state: State<'_>, name: &str, id: NamespaceId) -> Done {
        let horizon = state.horizon(id)?;
        let mut brought = |transition, documents: Vec<Moved>| Entry::Installed {
            namespace: name.into(),
            transition,
            horizon,
            documents,
        };
        self.record(&brought(0, Vec::new()))?;
        for (collection, index) in state.all_indexes(id)? {
            let (namespace, collection, field) = (name.into(), collection.into(), index.field);
            self.record(&Entry::Indexed { namespace, collection, field, wanted: true })?;
        }
        for collection in state.collections(id)? {
            let mut documents = state.documents(id, &collection, None, Order::Forward).peekable();
            while documents.peek().is_some() {
                let some = documents.by_ref().take(GROUP_LEN).map(|found| Ok(found?.0));
                let some: Vec<DocumentKey> = some.collect::<Result<_, StoreError>>()?;
                for (mark, documents) in by_mark(state, id, state.export(id, &some)?)? {
                    let keys: Vec<DocumentKey> = documents.iter().map(|moved| moved.at.clone()).collect();
                    self.record(&brought(mark.unwrap_or(0), documents))?;
                    if mark.is_none() {
                        self.record(&Entry::Unmarked { namespace: name.into(), documents: keys })?;
                    }
                }
            }
        }
        self.tombstones(state, id, &mut brought)?;
        for (collection, next) in state.counters(id)? {
            self.record(&Entry::Reserved { namespace: name.into(), collection: collection.into(), next })?;
        }
        Ok(())
    }

    /// Keys of which it is known that there is nothing.
    fn tombstones(
        &mut self,
        state: State<'_>,
        id: NamespaceId,
        brought: &mut dyn FnMut(u64, Vec<Moved>) -> Entry,
    ) -> Done {
        let mut after: Option<DocumentKey> = None;
        loop {
            let marked = state.marked(id, after.as_ref(), MARKS_LEN)?;
            let Some((last, _)) = marked.last() else { return Ok(()) };
            after = Some(last.clone());
            for (at, transition) in marked {
                if state.document_bytes(id, &at)?.is_none() {
                    self.record(&brought(transition, vec![Moved::nothing(&at)]))?;
                }
            }
        }
    }

    fn record(&mut self, entry: &Entry) -> Done {
        push(&mut self.bytes, 0, &entry.encode());
        if self.bytes.len() >= PART_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Done {
        let bytes = std::mem::take(&mut self.bytes);
        self.runtime.block_on(self.pieces.send(bytes)).map_err(|_| Broken::Gone)
    }
}

/// Documents by the transition in which each became known.
fn by_mark(
    state: State<'_>,
    id: NamespaceId,
    documents: Vec<Moved>,
) -> Result<BTreeMap<Option<u64>, Vec<Moved>>, StoreError> {
    let mut found: BTreeMap<Option<u64>, Vec<Moved>> = BTreeMap::new();
    for moved in documents {
        found.entry(state.mark(id, &moved.at)?).or_default().push(moved);
    }
    Ok(found)
}
