//! Loading a dump: everything of it gets into a namespace, or nothing. Knows nothing of how dumps are written.
//!
//! While it lasts nobody else writes to the namespace. That a load has begun is on record, so what is there of
//! it after a crash is taken away at the next start.

use super::{Shard, ShardError, writer::Writer};
use lockwood_model::{Change, Commit, Document, DocumentKey, Position};
use lockwood_storage::{Entry, State};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// How long to wait when too much is pending.
const PENDING_PATIENCE: Duration = Duration::from_millis(10);

/// A namespace that a dump is being loaded into; whoever has it must end it by [`Loading::finish`] or
/// [`Loading::undo`].
pub struct Loading {
    shard: Arc<Shard>,
    namespace: Box<str>,
}

/// Which commits of a namespace a dump has. There need not be one at every position: data that comes from elsewhere
/// brings its own gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Positions {
    /// All after its horizon, so the last one is at the position of the namespace.
    All,
    /// Some; the others are on other shards.
    Some,
}

impl Shard {
    /// Keeps everybody else out of a namespace that has nothing in it.
    pub async fn begin_load(self: &Arc<Shard>, namespace: &str) -> Result<Loading, ShardError> {
        self.submit(|writer| {
            writer.check_not_loading(namespace)?;
            let found = writer.look(|state| match state.namespace(namespace)? {
                None => Ok(None),
                Some(id) => Ok(Some(state.position(id)?)),
            })?;
            if let Some(position) = found {
                return Err(ShardError::NotEmpty(position));
            }
            let past = writer.look(|state| Ok(state.past(namespace)?))?;
            if past > Position::START {
                return Err(ShardError::Purged(past));
            }
            writer.record(&Entry::Loading { namespace: namespace.into(), done: false })?;
            writer.loading.insert(namespace.into());
            self.loads.fetch_add(1, Ordering::AcqRel);
            Ok(())
        })
        .await?;
        Ok(Loading { shard: Arc::clone(self), namespace: namespace.into() })
    }

    /// Whether anybody else may write to a namespace.
    pub(crate) fn check_not_loading(&self, namespace: &str) -> Result<(), ShardError> {
        if self.is_loading() { self.ask(|writer| writer.check_not_loading(namespace)) } else { Ok(()) }
    }

    /// Whether anything is being loaded.
    pub(super) fn is_loading(&self) -> bool {
        self.loads.load(Ordering::Acquire) > 0
    }

    /// Takes away what loads have left that were under way when the server ended.
    pub async fn undo_loads(&self) -> Result<(), ShardError> {
        let names = self.read().state().half_loaded()?;
        for namespace in names {
            tracing::warn!(namespace, "a load did not end before the server did; what is there of it goes");
            self.record(Entry::Emptied { namespace: namespace.into() }).await?;
        }
        Ok(())
    }
}

impl Loading {
    /// Puts a part of the dump in, if it fits what is there of it.
    pub async fn put(&self, entry: &Entry) -> Result<(), ShardError> {
        self.record(|writer| {
            writer.check_fits(&self.namespace, entry)?;
            writer.record(entry)
        })
        .await
    }

    /// Everything is there.
    pub async fn finish(self) -> Result<(), ShardError> {
        let entry = Entry::Loading { namespace: self.namespace.clone(), done: true };
        self.record(|writer| writer.record(&entry)).await
    }

    /// Nothing is to be there.
    pub async fn undo(self) -> Result<(), ShardError> {
        let entry = Entry::Emptied { namespace: self.namespace.clone() };
        self.record(|writer| writer.record(&entry)).await
    }

    /// A load has time; others come first when the disk is behind.
    async fn record(&self, record: impl Fn(&mut Writer) -> Result<(), ShardError>) -> Result<(), ShardError> {
        loop {
            match self.shard.submit(&record).await {
                Err(ShardError::TooMuchPending(_)) => tokio::time::sleep(PENDING_PATIENCE).await,
                other => return other,
            }
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.shard.end_loading(&self.namespace);
        self.shard.loads.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Writer {
    pub(super) fn check_not_loading(&self, namespace: &str) -> Result<(), ShardError> {
        match self.loading.contains(namespace) {
            true => Err(ShardError::Loading),
            false => Ok(()),
        }
    }

    /// A dump that was made by hand must not lead to what could not have happened.
    fn check_fits(&self, namespace: &str, entry: &Entry) -> Result<(), ShardError> {
        match entry {
            Entry::Loaded { documents, .. } => self.check_new(namespace, documents.iter().map(|(at, _)| at)),
            Entry::Kept { put, .. } => self.check_new(namespace, put.iter().map(|(at, _)| at)),
            Entry::Committed { commits, .. } => self.check_commits(namespace, commits),
            Entry::Purged { commit, .. } => self.check_commits(namespace, std::slice::from_ref(commit)),
            Entry::Reserved { collection, next, .. } => self.check_counter(namespace, collection, *next),
            _ => Ok(()),
        }
    }

    fn check_new<'a>(
        &self,
        namespace: &str,
        documents: impl Iterator<Item = &'a DocumentKey>,
    ) -> Result<(), ShardError> {
        let mut seen = BTreeSet::new();
        for at in documents {
            if !seen.insert(at) || self.document(namespace, at)?.is_some() {
                return Err(ShardError::Misfit(format!("the document {at} is there twice")));
            }
        }
        Ok(())
    }

    fn check_commits(&self, namespace: &str, commits: &[Commit]) -> Result<(), ShardError> {
        let mut position = self.position(namespace)?;
        let mut documents: HashMap<&DocumentKey, Document> = HashMap::new();
        for commit in commits {
            if commit.position <= position {
                let message = format!("the commit {} comes after {position}", commit.position);
                return Err(ShardError::Misfit(message));
            }
            position = commit.position;
            for event in &commit.events {
                if !documents.contains_key(&event.at) {
                    let found = self.document(namespace, &event.at)?;
                    documents.insert(&event.at, found.unwrap_or_else(Document::unborn));
                }
                let document = documents.get_mut(&event.at).expect("it was just put there");
                check_change(document, &event.at, &event.change, position)?;
                document.apply(&event.change, position);
            }
        }
        Ok(())
    }

    /// Ids that are used are not handed out.
    fn check_counter(&self, namespace: &str, collection: &str, next: u64) -> Result<(), ShardError> {
        let least = self.look(|state| match state.namespace(namespace)? {
            None => Ok(1),
            Some(id) => Ok(state.next_id(id, collection)?),
        })?;
        if next < least {
            let message = format!("the ids of {collection:?} go up to {}, not {}", least - 1, next - 1);
            return Err(ShardError::Misfit(message));
        }
        Ok(())
    }

    fn position(&self, namespace: &str) -> Result<Position, ShardError> {
        self.look(|state| match state.namespace(namespace)? {
            None => Ok(Position::START),
            Some(id) => Ok(state.position(id)?),
        })
    }

    fn document(&self, namespace: &str, at: &DocumentKey) -> Result<Option<Document>, ShardError> {
        self.look(|state: State<'_>| match state.namespace(namespace)? {
            None => Ok(None),
            Some(id) => Ok(state.document(id, at)?),
        })
    }
}

fn check_change(
    document: &Document,
    at: &DocumentKey,
    change: &Change,
    position: Position,
) -> Result<(), ShardError> {
    let fits = match change {
        Change::Created { .. } => !document.is_born(),
        Change::Updated { .. } | Change::Deleted { .. } => document.is_born() && !document.deleted,
        Change::Restored { .. } | Change::Recreated { .. } => document.deleted,
    };
    if fits {
        return Ok(());
    }
    let what = change.name();
    Err(ShardError::Misfit(format!("the commit {position} has {at} {what}, which it cannot be then")))
}
