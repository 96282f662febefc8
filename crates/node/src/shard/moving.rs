//! Documents that come from other shards and leave for them, as the one writer of a shard decides about them.
//! Knows nothing of maps, nor of other nodes.

use super::{Call, Follow, POSITION_MAX, Shard, ShardError, writer::Writer};
use lockwood_engine::{NoRules, PositionLock};
use lockwood_model::{Document, DocumentKey, Position, Timestamp};
use lockwood_storage::{DocumentRef, Entry, Moved, Order};
use std::{collections::HashMap, sync::atomic::Ordering};

/// The floor on record is so much higher than it has to be, so that it need not be recorded anew each time it is
/// raised a little. After a restart it counts as it is on record.
const FLOOR_STEP: u64 = 1000;

/// So many marks are taken away at a time; writers wait meanwhile.
const UNMARK_LEN: usize = 200;

impl Shard {
    /// Whether it is known here, durable or not, what became of a key in a transition.
    pub fn is_known(&self, namespace: &str, at: &DocumentKey, transition: u64) -> Result<bool, ShardError> {
        self.ask(|writer| writer.is_known(namespace, at, transition))
    }

    /// Takes in what is not known yet; says how many of the documents were there at all. They are durable before
    /// anything that is decided later.
    /// If this shard keeps what it has, only what it has not is taken in.
    pub fn install(&self, brought: Entry, keeps: bool) -> Result<(u64, u64), ShardError> {
        self.decide_in_passing(|writer| writer.install(brought, keeps))
    }

    /// Makes some collections exactly these documents; gives the record to wait for.
    pub fn make_same(
        &self,
        namespace: &str,
        collections: &[&str],
        documents: Vec<Moved>,
    ) -> Result<u64, ShardError> {
        self.decide_in_passing(|writer| writer.make_same(namespace, collections, documents))
            .map(|(_, index)| index)
    }

    /// Forgets which keys became known in the transitions up to an epoch, some keys after one; gives the last of them
    /// if there may be more.
    pub async fn unmark(
        &self,
        namespace: &str,
        epoch: u64,
        after: Option<&DocumentKey>,
    ) -> Result<Option<DocumentKey>, ShardError> {
        self.submit(|writer| writer.unmark(namespace, epoch, after)).await
    }

    /// Does a write call that nobody waits for.
    pub fn write_in_passing(&self, namespace: &str, call: &Call, now: Timestamp) -> Result<(), ShardError> {
        self.decide_in_passing(|writer| writer.write(namespace, call, &NoRules, now)).map(drop)
    }

    /// Takes documents away without a trace.
    pub fn forget(&self, namespace: &str, documents: Vec<DocumentKey>) -> Result<u64, ShardError> {
        self.append(&Entry::Forgotten { namespace: namespace.into(), documents }, Follow::Thread)
    }

    /// The same with those of which it is not known, durable or not, what became of them in a transition.
    pub fn forget_unknown(
        &self,
        namespace: &str,
        documents: Vec<DocumentKey>,
        transition: u64,
    ) -> Result<(), ShardError> {
        self.decide_in_passing(|writer| writer.forget_unknown(namespace, documents, transition)).map(drop)
    }

    /// Whether position locks hold, by what was decided so far; told when that is durable.
    pub async fn judge(&self, namespace: &str, locks: Vec<PositionLock>) -> Result<(), ShardError> {
        self.submit(|writer| writer.judge(namespace, locks)).await
    }

    /// No write gets a position up to `floor` from now on, and readers see all that did.
    pub async fn raise(&self, floor: Position) -> Result<(), ShardError> {
        // It comes from another node, and there is no way back down.
        if floor.0 > POSITION_MAX {
            return Err(ShardError::Misfit(format!("{floor} is no position; the largest is {POSITION_MAX}")));
        }
        if self.floor.load(Ordering::Acquire) < floor.0 {
            // What was decided before is durable and visible when this is over.
            self.submit(|writer| writer.raise(floor)).await?;
            self.floor.fetch_max(floor.0, Ordering::AcqRel);
        }
        Ok(())
    }

    fn decide_in_passing<T>(
        &self,
        decide: impl FnOnce(&mut Writer) -> Result<T, ShardError>,
    ) -> Result<(T, u64), ShardError> {
        let done = self.with_writer(|writer| decide(writer).map(|done| (done, writer.last())))?;
        self.nudge();
        Ok(done)
    }
}

impl Writer {
    fn is_known(&self, namespace: &str, at: &DocumentKey, transition: u64) -> Result<bool, ShardError> {
        self.look(|state| {
            let Some(id) = state.namespace(namespace)? else { return Ok(false) };
            Ok(state.mark(id, at)? == Some(transition))
        })
    }

    fn install(&mut self, brought: Entry, keeps: bool) -> Result<u64, ShardError> {
        let Entry::Installed { namespace, transition, horizon, mut documents } = brought else {
            return Err(ShardError::Misfit("nothing was brought".to_owned()));
        };
        let mut failed = None;
        documents.retain(|moved| match self.is_known(&namespace, &moved.at, transition) {
            Ok(known) => !known,
            Err(error) => {
                failed = Some(error);
                false
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if documents.is_empty() {
            return Ok(0);
        }
        if keeps {
            self.keep_own(&namespace, &mut documents)?;
        }
        let installed = documents.iter().filter(|moved| moved.document.is_some()).count() as u64;
        let entry = Entry::Installed { namespace, transition, horizon, documents };
        self.record(&entry)?;
        self.forget_recent(entry.namespace().unwrap_or_default())?;
        Ok(installed)
    }

    fn forget_unknown(
        &mut self,
        namespace: &str,
        documents: Vec<DocumentKey>,
        transition: u64,
    ) -> Result<(), ShardError> {
        let mut unknown = Vec::new();
        for at in documents {
            if !self.is_known(namespace, &at, transition)? {
                unknown.push(at);
            }
        }
        match unknown.is_empty() {
            true => Ok(()),
            false => self.record(&Entry::Forgotten { namespace: namespace.into(), documents: unknown }),
        }
    }

    /// Leaves out what is brought where there is something already; a deleted document is nothing, unless nothing
    /// else is brought.
    fn keep_own(&self, namespace: &str, documents: &mut [Moved]) -> Result<(), ShardError> {
        self.look(|state| {
            let Some(id) = state.namespace(namespace)? else { return Ok(()) };
            for moved in documents {
                let own = state.document(id, &moved.at)?;
                let is_live = |document: Option<&Document>| document.is_some_and(|found| !found.deleted);
                if is_live(own.as_ref()) || (own.is_some() && !is_live(moved.document.as_ref())) {
                    *moved = Moved::kept(&moved.at);
                }
            }
            Ok(())
        })
    }

    fn make_same(
        &mut self,
        namespace: &str,
        collections: &[&str],
        mut documents: Vec<Moved>,
    ) -> Result<(), ShardError> {
        self.check_not_loading(namespace)?;
        let mut here: HashMap<DocumentKey, Position> = self.look(|state| {
            let Some(id) = state.namespace(namespace)? else { return Ok(HashMap::new()) };
            let mut here = HashMap::new();
            for found in collections.iter().flat_map(|name| state.documents(id, name, None, Order::Forward)) {
                let (at, bytes) = found?;
                here.insert(at, DocumentRef::read(&bytes)?.position());
            }
            Ok(here)
        })?;
        documents.retain(|moved| {
            let here = here.remove(&moved.at);
            moved.document.as_ref().is_some_and(|document| here != Some(document.position))
        });
        if !here.is_empty() {
            let documents = here.into_keys().collect();
            self.record(&Entry::Forgotten { namespace: namespace.into(), documents })?;
        }
        if documents.is_empty() {
            return Ok(());
        }
        let (namespace, horizon) = (namespace.into(), Position::START);
        self.record(&Entry::Installed { namespace, transition: 0, horizon, documents })
    }

    fn unmark(
        &mut self,
        namespace: &str,
        epoch: u64,
        after: Option<&DocumentKey>,
    ) -> Result<Option<DocumentKey>, ShardError> {
        let marks = self.look(|state| match state.namespace(namespace)? {
            Some(id) => Ok(state.marked(id, after, UNMARK_LEN)?),
            None => Ok(Vec::new()),
        })?;
        let last = marks.last().filter(|_| marks.len() == UNMARK_LEN).map(|(at, _)| at.clone());
        // The next transition may have begun, and what becomes known in it is not to be forgotten.
        let is_past = |(_, known): &(DocumentKey, u64)| *known <= epoch;
        let documents: Vec<DocumentKey> = marks.into_iter().filter(is_past).map(|(at, _)| at).collect();
        if !documents.is_empty() {
            self.record(&Entry::Unmarked { namespace: namespace.into(), documents })?;
        }
        Ok(last)
    }

    /// Below this a namespace gets no positions.
    pub(super) fn floor_of(&self, namespace: &str) -> Position {
        if self.exempt.covers(namespace) { Position::START } else { self.floor }
    }

    fn raise(&mut self, floor: Position) -> Result<(), ShardError> {
        if self.look(|state| Ok(state.floor()?))? < floor {
            self.record(&Entry::Raised { floor: Position(floor.0.saturating_add(FLOOR_STEP)) })?;
        }
        self.floor = self.floor.max(floor);
        Ok(())
    }
}
