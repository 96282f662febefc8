//! Purging: documents, a collection or a namespace, gone from the state, the log and the files. Knows nothing of locks,
//! nor of who asks.
//!
//! | step | what is so afterwards |
//! | --- | --- |
//! | the record of the purge | it will be completed, by the next start if not by this one |
//! | documents, answers | readers see none of them, and calls that wrote them are not known; names are free |
//! | log | no record says anything of them |
//! | snapshot | a snapshot that was saved before is replaced |
//! | files | neither the journal nor the tables have any of their bytes |
//! | the record of its end | |
//!
//! Each can be done again, and the log leads to the same state after each. From the record of the purge until its names are
//! free nothing of it is written, so that all that is erased from the log is older: the writer refuses it.

use super::{Shard, ShardError, writer::Writer};
use lockwood_model::{Commit, DocumentKey, Json, Position, Purged, Timestamp};
use lockwood_storage::{Entry, Erasure, Scrubbing, State, StoreError, has_snapshot_before, save_snapshot};
use std::{sync::Arc, time::Duration};

/// So many documents are taken away at a time.
const PIECE_LEN: usize = 500;
/// How long to wait when too much is pending.
const PENDING_PATIENCE: Duration = Duration::from_millis(10);

/// How long to wait before looking again whether an older purge is complete.
const TURN_PATIENCE: Duration = Duration::from_millis(50);

/// A purge that is to begin.
pub(crate) struct Purging {
    pub(crate) purged: Purged,
    /// The documents, if it is about some only.
    pub(crate) documents: Vec<DocumentKey>,
    pub(crate) user: Option<Json>,
    pub(crate) note: Option<Json>,
}

/// A purge that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    /// The record of it.
    pub index: u64,
    pub position: Position,
}

/// What a purge does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Waiting,
    /// So many documents are gone.
    Documents(u64),
    /// So many records of so many are looked through for calls.
    Answers(u64, u64),
    /// So many records of so many are erased.
    Log(u64, u64),
    Snapshot,
    /// There is not enough room on the disk for the files that are written anew.
    Room,
    Files(Scrubbing),
}

/// A purge that the state has nothing of any more.
struct Gone {
    index: u64,
    /// The last record with something to erase.
    last: u64,
    erasure: Arc<Erasure>,
}

/// The purges that are completed together, so that the files are written anew once for all of them: the oldest and
/// those behind it, up to one that would take the record of another with it before that has ended.
fn together(state: &State<'_>) -> Result<Vec<Gone>, StoreError> {
    let mut together: Vec<Gone> = Vec::new();
    for (index, last) in state.purging()? {
        let Some(erasure) = Erasure::of(state, index)?.filter(|_| last > 0) else { break };
        let follows = |gone: &Gone| gone.erasure.namespace() == erasure.namespace();
        if *erasure.purged() == Purged::Namespace && together.iter().any(follows) {
            break;
        }
        together.push(Gone { index, last, erasure: Arc::new(erasure) });
    }
    Ok(together)
}

/// Is told what is done, and says whether to go on.
type GoOn = dyn Fn(Stage) -> bool + Send + Sync;

impl Shard {
    /// Puts a purge on record, with which the documents it names are gone.
    pub(crate) async fn begin_purge(
        &self,
        namespace: &str,
        purging: &Purging,
        now: Timestamp,
    ) -> Result<Begun, ShardError> {
        self.submit(|writer| writer.begin_purge(namespace, purging, now)).await
    }

    /// From now on nothing is written that goes with a purge that a former run has begun; gives those purges, the oldest
    /// first.
    pub(crate) fn resume_purges(&self) -> Result<Vec<u64>, StoreError> {
        let reading = self.read();
        let purging = reading.state().purging()?;
        for (index, _) in purging.iter().filter(|(_, last)| *last == 0) {
            let erasure = Erasure::of(&reading.state(), *index)?.map(Arc::new);
            self.lock().purging.extend(erasure.map(|erasure| (*index, erasure)));
        }
        Ok(purging.into_iter().map(|(index, _)| index).collect())
    }

    /// Takes all that is purged out of the state. To be called while nobody else writes there. False if it was told to
    /// stop.
    pub(crate) async fn purge_state(self: &Arc<Shard>, index: u64, go_on: &GoOn) -> Result<bool, ShardError> {
        let Some(erasure) = Erasure::of(&self.read().state(), index)?.map(Arc::new) else { return Ok(true) };
        self.lock().purging.insert(index, Arc::clone(&erasure));
        let went = self.purge_documents(&erasure, go_on).await?
            && self.purge_answers(&erasure, index, go_on).await?;
        if went {
            let (namespace, purged) = (erasure.namespace().into(), erasure.purged().clone());
            let dropped = Entry::Dropped { namespace, purged, purge: index };
            self.patiently(|writer| {
                writer.record(&dropped)?;
                writer.purging.remove(&index);
                Ok(())
            })
            .await?;
        }
        Ok(went)
    }

    async fn purge_documents(&self, erasure: &Erasure, go_on: &GoOn) -> Result<bool, ShardError> {
        let (mut last, mut done) = (None, 0);
        loop {
            if !go_on(Stage::Documents(done)) {
                return Ok(false);
            }
            let documents = erasure.some_documents(&self.read().state(), last.as_ref(), PIECE_LEN)?;
            let Some(end) = documents.last().cloned() else { break };
            done += documents.len() as u64;
            self.put(&Entry::Forgotten { namespace: erasure.namespace().into(), documents }).await?;
            last = Some(end);
        }
        while let Some(clearing) = erasure.next_clearing(&self.read().state())? {
            if !go_on(Stage::Documents(done)) {
                return Ok(false);
            }
            self.put(&clearing).await?;
        }
        Ok(true)
    }

    async fn purge_answers(
        self: &Arc<Shard>,
        erasure: &Arc<Erasure>,
        index: u64,
        go_on: &GoOn,
    ) -> Result<bool, ShardError> {
        let mut after = 0;
        while after < index {
            if !go_on(Stage::Answers(after, index)) {
                return Ok(false);
            }
            let (shard, erased) = (Arc::clone(self), Arc::clone(erasure));
            let (keys, last) = aside(move || erased.answers(&shard.read().state(), after, index)).await?;
            after = last;
            if !keys.is_empty() {
                let namespace = erasure.namespace().into();
                self.put(&Entry::Unanswered { namespace, keys, purge: index }).await?;
            }
        }
        Ok(true)
    }

    /// Erases what is purged from the log and the files, along with younger purges that have come as far. False if it was
    /// told to stop.
    pub(crate) async fn complete_purge(
        self: &Arc<Shard>,
        index: u64,
        go_on: Arc<GoOn>,
    ) -> Result<bool, ShardError> {
        let Some(_alone) = self.turn_of(index, &*go_on).await? else { return Ok(false) };
        if !self.read().state().purging()?.iter().any(|(found, _)| *found == index) {
            return Ok(true);
        }
        let Some(together) = self.erase_log(&go_on).await? else { return Ok(false) };
        tracing::info!(purges = together.len(), "erased from the log; the files are written anew");
        if !self.scrub(go_on).await? {
            return Ok(false);
        }
        for index in together {
            self.put(&Entry::PurgeEnded { purge: index }).await?;
        }
        Ok(true)
    }

    /// Erases what is purged from the log and the snapshot, along with what other purges wait for that have come as far;
    /// gives the purges. None if it was told to stop.
    async fn erase_log(self: &Arc<Shard>, go_on: &Arc<GoOn>) -> Result<Option<Vec<u64>>, ShardError> {
        let _alone = self.trimming.lock().await;
        let reading = self.read();
        let (together, trimmed) = (together(&reading.state())?, reading.state().trimmed()?);
        drop(reading);
        // What is forgotten may still be in the log, if a trim was cut short; and it must not come back.
        if trimmed > 0 {
            let shard = Arc::clone(self);
            aside(move || shard.drop_records(trimmed)).await?;
        }
        for gone in &together {
            if !self.erase_all(gone, trimmed, go_on).await? {
                return Ok(None);
            }
        }
        Ok(Some(together.into_iter().map(|gone| gone.index).collect()))
    }

    /// Erases what is purged from the log.
    async fn erase_all(
        self: &Arc<Shard>,
        gone: &Gone,
        trimmed: u64,
        go_on: &Arc<GoOn>,
    ) -> Result<bool, ShardError> {
        let Gone { index, last, erasure } = gone;
        // What takes the documents away stays until a snapshot, if there is one, does without it.
        if erasure.names_documents()
            && !(self.erase(erasure, trimmed..index - 1, go_on).await?
                && self.replace_snapshot(*last, go_on).await?)
        {
            return Ok(false);
        }
        self.erase(erasure, index - 1..*last, go_on).await
    }

    async fn scrub(self: &Arc<Shard>, go_on: Arc<GoOn>) -> Result<bool, ShardError> {
        let shard = Arc::clone(self);
        // Without the turn of trims: this may have to wait for readers, or for room that a trim would make.
        let scrub = move || {
            shard.store().scrub(&|what| {
                shard.renew_view();
                go_on(Stage::Files(what))
            })
        };
        aside(scrub).await
    }

    /// Purges are completed the oldest first: a namespace may have been purged after one of its documents was, and takes
    /// the record of that with it. None if it was told to stop.
    async fn turn_of(
        &self,
        index: u64,
        go_on: &GoOn,
    ) -> Result<Option<tokio::sync::MutexGuard<'_, ()>>, ShardError> {
        while go_on(Stage::Waiting) {
            let alone = self.completing.lock().await;
            if self.read().state().purging()?.first().is_none_or(|(oldest, _)| *oldest >= index) {
                return Ok(Some(alone));
            }
            drop(alone);
            tokio::time::sleep(TURN_PATIENCE).await;
        }
        Ok(None)
    }

    /// Erases the records in a range, whose start is excluded and whose end is included.
    async fn erase(
        self: &Arc<Shard>,
        erasure: &Arc<Erasure>,
        records: std::ops::Range<u64>,
        go_on: &Arc<GoOn>,
    ) -> Result<bool, ShardError> {
        let mut after = records.start;
        while after < records.end {
            if !go_on(Stage::Log(after, records.end)) {
                return Ok(false);
            }
            let (shard, erasure) = (Arc::clone(self), Arc::clone(erasure));
            let step = aside(move || erasure.step(&shard.read().state(), after, records.end)).await?;
            after = step.last;
            if !step.batch.is_empty() {
                self.patiently(|writer| {
                    writer.rewrite(step.batch.clone());
                    Ok(())
                })
                .await?;
            }
        }
        Ok(true)
    }

    async fn replace_snapshot(self: &Arc<Shard>, last: u64, go_on: &Arc<GoOn>) -> Result<bool, ShardError> {
        if !go_on(Stage::Snapshot) {
            return Ok(false);
        }
        let shard = Arc::clone(self);
        aside(move || {
            let reading = shard.read();
            match has_snapshot_before(&*reading.snapshot, last)? {
                true => save_snapshot(&*reading.snapshot, shard.store()).map(drop),
                false => Ok(()),
            }
        })
        .await?;
        Ok(true)
    }

    async fn put(&self, entry: &Entry) -> Result<(), ShardError> {
        self.patiently(|writer| writer.record(entry)).await
    }

    /// A purge has time; others come first when the disk is behind.
    async fn patiently(
        &self,
        decide: impl Fn(&mut Writer) -> Result<(), ShardError>,
    ) -> Result<(), ShardError> {
        loop {
            match self.submit(&decide).await {
                Err(ShardError::TooMuchPending(_)) => tokio::time::sleep(PENDING_PATIENCE).await,
                other => return other,
            }
        }
    }
}

async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, ShardError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|_| StoreError::Failed("a purge panicked".to_owned()))??)
}

impl Writer {
    fn begin_purge(
        &mut self,
        namespace: &str,
        purging: &Purging,
        now: Timestamp,
    ) -> Result<Begun, ShardError> {
        self.check_not_loading(namespace)?;
        let Purging { purged, documents, user, note } = purging;
        if self.purging.values().any(|purge| purge.meets(namespace, purged, documents)) {
            return Err(ShardError::Purging);
        }
        let (position, next) = self.look(|state: State<'_>| {
            let Some(id) = state.namespace(namespace)? else { return Ok((Position::START, 0)) };
            let next = match purged {
                Purged::Documents { collection, .. } => state.next_id(id, collection)?,
                Purged::Collection { .. } | Purged::Namespace => 0,
            };
            Ok((state.position(id)?, next))
        })?;
        let commit = Commit {
            position: position.max(self.floor_of(namespace)).next(),
            at: now,
            user: user.clone(),
            note: note.clone(),
            events: Vec::new(),
            purged: Some(purged.clone()),
        };
        let begun = Begun { index: self.last() + 1, position: commit.position };
        self.record(&Entry::Purged {
            namespace: namespace.into(),
            commit,
            documents: documents.clone(),
            // One that was never raised is 1.
            next: if next > 1 { next } else { 0 },
            pending: true,
        })?;
        self.forget_recent(namespace)?;
        let erasure = self.look(|state| Ok(Erasure::of(&state, begun.index)?))?;
        self.purging.extend(erasure.map(|erasure| (begun.index, Arc::new(erasure))));
        Ok(begun)
    }

    pub(super) fn check_not_purging<'a>(
        &self,
        namespace: &str,
        mut documents: impl Iterator<Item = &'a DocumentKey>,
    ) -> Result<(), ShardError> {
        if self.purging.is_empty() {
            return Ok(());
        }
        let goes = |at: &DocumentKey| self.purging.values().any(|purge| purge.takes(namespace, at));
        if documents.any(goes) { Err(ShardError::Purging) } else { Ok(()) }
    }

    pub(super) fn check_collection_not_purging(
        &self,
        namespace: &str,
        collection: &str,
    ) -> Result<(), ShardError> {
        match self.purging.values().any(|purge| purge.takes_collection(namespace, collection)) {
            true => Err(ShardError::Purging),
            false => Ok(()),
        }
    }
}
