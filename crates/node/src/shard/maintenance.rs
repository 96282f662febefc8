//! What a shard does besides serving: building indexes, forgetting old history. Knows nothing of when.

use super::{Shard, ShardError};
use lockwood_model::{FieldPath, Timestamp};
use lockwood_storage::{
    Appended, Entry, IndexInfo, IndexState, NamespaceId, StoreError, Unsaved, save_snapshot,
    save_snapshot_while,
};
use std::sync::{Arc, atomic::Ordering};

/// So many records are forgotten in one step, or fewer that have so many events.
const TRIM_LEN: u64 = 1000;
const TRIM_EVENTS: usize = 10_000;

/// A snapshot is saved when so much of the log is not in the last one, and no less than that is large: so loading it and
/// folding the rest takes about as long as loading it takes twice, and all snapshots write no more than the log does.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotDue {
    /// So many records.
    pub records: u64,
    /// Or so many bytes.
    pub bytes: u64,
}

impl SnapshotDue {
    fn is_due(&self, unsaved: &Unsaved) -> bool {
        (unsaved.records() >= self.records || unsaved.bytes >= self.bytes)
            && unsaved.bytes >= unsaved.saved_bytes
    }
}

/// What can be forgotten.
struct Trimmable {
    /// The last record that is forgotten.
    start: u64,
    /// The last one that can be.
    end: u64,
    /// Where each step ends.
    steps: Vec<u64>,
    /// The commits among them.
    commits: u64,
}

impl Shard {
    /// Completes every index that is being built.
    pub async fn fill_indexes(&self) -> Result<(), ShardError> {
        for (namespace, collection, index) in self.unfinished()? {
            self.fill_index(namespace, &collection, &index).await?;
        }
        Ok(())
    }

    fn unfinished(&self) -> Result<Vec<(NamespaceId, String, IndexInfo)>, StoreError> {
        let reading = self.read();
        let mut unfinished = Vec::new();
        for (_, namespace) in reading.state().namespaces()? {
            for (collection, index) in reading.state().all_indexes(namespace)? {
                if index.state == IndexState::Building {
                    unfinished.push((namespace, collection, index));
                }
            }
        }
        Ok(unfinished)
    }

    /// One piece after the other, so that writers get their turns.
    async fn fill_index(
        &self,
        namespace: NamespaceId,
        collection: &str,
        index: &IndexInfo,
    ) -> Result<(), ShardError> {
        let mut after = None;
        loop {
            let next = self
                .submit(|writer| {
                    let mut next = None;
                    writer.derive(|state, batch| {
                        let wanted = state.indexes(namespace, collection)?.contains(index);
                        if wanted {
                            next = state.fill_index(batch, (namespace, collection), index, after.take())?;
                        }
                        if wanted && next.is_none() {
                            state.finish_index(batch, (namespace, collection), &index.field)?;
                        }
                        Ok(())
                    })?;
                    Ok(next)
                })
                .await?;
            match next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Declares an index, or takes it away. True if that changed something.
    pub async fn declare_index(
        &self,
        namespace: &str,
        (collection, field): (&str, &FieldPath),
        wanted: bool,
        indexes_max: u64,
    ) -> Result<bool, ShardError> {
        self.submit(|writer| {
            writer.check_not_loading(namespace)?;
            writer.check_collection_not_purging(namespace, collection)?;
            let all = writer.look(|state| match state.namespace(namespace)? {
                None => Ok(Vec::new()),
                Some(id) => Ok(state.all_indexes(id)?),
            })?;
            let known = all.iter().any(|(of, index)| of == collection && index.field == *field);
            if known == wanted {
                return Ok(false);
            }
            if wanted && all.len() as u64 >= indexes_max {
                return Err(ShardError::TooManyIndexes(indexes_max));
            }
            let (collection, field) = (collection.into(), field.clone());
            writer.record(&Entry::Indexed { namespace: namespace.into(), collection, field, wanted })?;
            Ok(true)
        })
        .await
    }

    /// Nothing after the record `index` is forgotten until this is called again: somebody has to read it first.
    pub fn hold_after(&self, index: u64) {
        self.held.store(index, Ordering::Release);
    }

    /// Forgets the history of what was written before `before`; gives how many commits went.
    pub async fn trim(self: &Arc<Shard>, before: Timestamp) -> Result<u64, ShardError> {
        let _alone = self.trimming.lock().await;
        let own = Arc::clone(self);
        let found = tokio::task::spawn_blocking(move || own.trimmable(before)).await;
        let Trimmable { start, end, steps, commits } =
            found.map_err(|_| StoreError::Failed("reading the log panicked".to_owned()))??;
        // Forgetting leaves a record itself, and a snapshot is not saved for a handful of those.
        if commits == 0 && end - start < TRIM_LEN {
            return Ok(0);
        }
        for to in steps {
            self.record(Entry::Trimmed { to }).await?;
        }
        let shard = Arc::clone(self);
        let dropped = tokio::task::spawn_blocking(move || shard.drop_records(end)).await;
        dropped.map_err(|_| StoreError::Failed("saving a snapshot panicked".to_owned()))??;
        Ok(commits)
    }

    /// Saves a snapshot if one is due, asking after each piece whether to go on; gives the last record in it. `unsaved` is
    /// what was counted before. No record is dropped: history and feeds are read from them.
    pub async fn keep_snapshot(
        self: &Arc<Shard>,
        mut unsaved: Unsaved,
        due: SnapshotDue,
        mut go_on: impl FnMut() -> bool + Send + 'static,
    ) -> Result<(Unsaved, Option<u64>), ShardError> {
        let _alone = self.trimming.lock().await;
        let shard = Arc::clone(self);
        let kept = tokio::task::spawn_blocking(move || -> Result<_, StoreError> {
            let reading = shard.read();
            unsaved.count(&*reading.snapshot)?;
            if !due.is_due(&unsaved) {
                return Ok((unsaved, None));
            }
            Ok((unsaved, save_snapshot_while(&*reading.snapshot, shard.store(), &mut go_on)?))
        });
        Ok(kept.await.map_err(|_| StoreError::Failed("saving a snapshot panicked".to_owned()))??)
    }

    fn trimmable(&self, before: Timestamp) -> Result<Trimmable, StoreError> {
        let reading = self.read();
        let state = reading.state();
        let start = state.trimmed()?;
        let (mut end, mut count) = (start, 0);
        let (mut steps, mut events) = (Vec::new(), 0);
        // A purge is completed by what its record and those after it say.
        let purging = state.purging()?.first().map_or(u64::MAX, |(index, _)| index - 1);
        let held = self.held.load(Ordering::Acquire).min(purging);
        while let Some(entry) = state.entry(end + 1)?.filter(|_| end < held) {
            let commits = match &entry {
                Entry::Committed { commits, .. } => &commits[..],
                Entry::Purged { commit, .. } => std::slice::from_ref(commit),
                _ => &[],
            };
            if !commits.is_empty() {
                if commits.iter().any(|commit| commit.at >= before) {
                    break;
                }
                count += commits.len() as u64;
                events += commits.iter().map(|commit| commit.events.len()).sum::<usize>();
            }
            end += 1;
            if events >= TRIM_EVENTS || end - steps.last().unwrap_or(&start) >= TRIM_LEN {
                steps.push(end);
                events = 0;
            }
        }
        steps.extend(Some(end).filter(|end| steps.last() != Some(end)));
        Ok(Trimmable { start, end, steps, commits: count })
    }

    /// Drops records of the log once a snapshot has what they led to.
    pub(super) fn drop_records(&self, to: u64) -> Result<(), StoreError> {
        let reading = self.read();
        save_snapshot(&*reading.snapshot, self.store())?;
        match self.trim_log(to) {
            Appended::Done => Ok(()),
            Appended::Unknown(error) => Err(error),
            Appended::Fenced(_) | Appended::Moved { .. } => {
                Err(StoreError::Failed("the log has another owner".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_due_when_much_is_not_in_the_last_one_and_that_is_not_larger() {
        let due = SnapshotDue { records: 100, bytes: 1000 };
        let is_due = |records: u64, bytes, saved_bytes| {
            due.is_due(&Unsaved { saved: 7, saved_bytes, last: 7 + records, bytes })
        };
        assert!(is_due(100, 10, 0) && is_due(1, 1000, 0) && is_due(100, 10, 10));
        assert!(!is_due(99, 999, 0), "it is little");
        assert!(!is_due(100, 10, 11) && !is_due(1, 5000, 5001), "the snapshot is larger");
    }
}
