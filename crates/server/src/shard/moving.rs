//! Documents that come from other shards and leave for them, as the one writer of a shard decides about them.
//! Knows nothing of maps, nor of other nodes.

use super::{Follow, Shard, ShardError, writer::Writer};
use lockwood_model::{DocumentKey, Position};
use lockwood_storage::{Entry, Moved};
use std::sync::atomic::Ordering;

/// The floor on record is so much higher than it has to be, so that it need not be recorded anew each time it is
/// raised a little. After a restart it counts as it is on record.
const FLOOR_STEP: u64 = 1000;

impl Shard {
    /// Whether it is known here, durable or not, what became of a key in a transition.
    pub(crate) fn is_known(
        &self,
        namespace: &str,
        at: &DocumentKey,
        transition: u64,
    ) -> Result<bool, ShardError> {
        self.ask(|writer| writer.is_known(namespace, at, transition))
    }

    /// Takes in what is not known yet; says how many of the documents were there at all. They are durable before
    /// anything that is decided later.
    pub(crate) fn install(
        &self,
        namespace: &str,
        transition: u64,
        documents: Vec<Moved>,
    ) -> Result<(u64, u64), ShardError> {
        let done = self.decide_in_passing(|writer| writer.install(namespace, transition, documents))?;
        Ok(done)
    }

    /// Takes documents away without a trace.
    pub(crate) fn forget(&self, namespace: &str, documents: Vec<DocumentKey>) -> Result<u64, ShardError> {
        self.append(&Entry::Forgotten { namespace: namespace.into(), documents }, Follow::Thread)
    }

    /// No write gets a position up to `floor` from now on, and readers see all that did.
    pub(crate) async fn raise(&self, floor: Position) -> Result<(), ShardError> {
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

    fn install(
        &mut self,
        namespace: &str,
        transition: u64,
        mut documents: Vec<Moved>,
    ) -> Result<u64, ShardError> {
        let mut failed = None;
        documents.retain(|moved| match self.is_known(namespace, &moved.at, transition) {
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
        let installed = documents.iter().filter(|moved| moved.document.is_some()).count() as u64;
        self.record(&Entry::Installed { namespace: namespace.into(), transition, documents })?;
        self.forget_recent(namespace)?;
        Ok(installed)
    }

    fn raise(&mut self, floor: Position) -> Result<(), ShardError> {
        if self.look(|state| Ok(state.floor()?))? < floor {
            self.record(&Entry::Raised { floor: Position(floor.0.saturating_add(FLOOR_STEP)) })?;
        }
        self.floor = self.floor.max(floor);
        Ok(())
    }
}
