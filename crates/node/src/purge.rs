//! Purges of a server: how they stand to locks and schemas, and that each is completed. Knows nothing of protocols, nor of
//! how something is erased.

use crate::{
    gate::{self, Terms, Turn},
    kernel::Kernel,
    operator,
    refusals::{no_namespace, schema_trouble},
    schemas::{self, Book, SchemaError},
    shard::{Begun, Purging, Reading, Stage},
    territory::SYSTEM,
    trouble::Trouble,
};
use lockwood_model::{Depth, DocumentKey, Json, Mode, Path, Purged, Resource};
use lockwood_storage::{Entry, NamespaceId, Scrubbing, StoreError};
use lockwood_wire::{
    Code, OperatorAction, OperatorDeed,
    documents::{PurgeInfo, PurgeStep, PurgedInfo},
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Besides the tables, journals are filled up.
const JOURNALS_BYTES: u64 = 192 << 20;
/// How long to wait before looking again whether there is room.
const ROOM_PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait after a step failed, at first and at most.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// The purges of a server.
#[derive(Default)]
pub struct Purges {
    /// What they are doing, by their records.
    stages: Mutex<BTreeMap<u64, Stage>>,
    /// For namespaces with purges since the server started: a view up to this record may show what is purged.
    unseen: Mutex<BTreeMap<Box<str>, u64>>,
}

impl Purges {
    /// Whether a view of a namespace, up to a record, may show what was purged since.
    pub fn is_shown(&self, namespace: &str, seen: u64) -> bool {
        self.unseen.lock().get(namespace).is_some_and(|last| seen < *last)
    }

    fn note_gone(&self, namespace: &str, last: u64) {
        self.unseen.lock().insert(namespace.into(), last);
    }
}

/// What is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whole {
    /// These documents, all of one collection.
    Documents(Vec<DocumentKey>),
    /// All documents of a collection, and its schema.
    Collection(Box<str>),
    /// Everything in the namespace.
    Namespace,
}

/// A purge that a client asks for.
pub struct Wanted {
    /// What is to go.
    pub what: Whole,
    /// Who asks for it, for the record.
    pub user: Json,
    /// Why, for the record.
    pub note: Option<Json>,
    /// Whose locks it is done under.
    pub terms: Terms,
}

impl Whole {
    fn purged(&self) -> Purged {
        match self {
            Whole::Documents(documents) => Purged::Documents {
                collection: documents.first().map(|at| at.collection.clone()).unwrap_or_default(),
                count: documents.len() as u64,
            },
            Whole::Collection(collection) => Purged::Collection { collection: collection.clone() },
            Whole::Namespace => Purged::Namespace,
        }
    }

    fn resources(&self) -> Vec<Resource> {
        match self {
            Whole::Documents(documents) => documents.iter().flat_map(gate::whole).collect(),
            // Its schema goes with it.
            Whole::Collection(name) => {
                let whole = |name| Resource::new(Path::from_segments([name]), Mode::Write, Depth::SUBTREE);
                [&**name, schemas::COLLECTION].map(whole).into()
            }
            Whole::Namespace => vec![gate::everything()],
        }
    }

    /// Whether there is something to purge: in the store, or in the registry of the namespace.
    fn check_there(&self, reading: &Reading, book: &Book, namespace: &str) -> Result<(), Trouble> {
        let Some((id, _)) = reading.namespace(namespace)? else {
            return Err(no_namespace(reading, namespace, "purge")?);
        };
        match self {
            Whole::Documents(documents) => {
                documents.iter().try_for_each(|at| match reading.state().document_bytes(id, at)? {
                    Some(_) => Ok(()),
                    None => Err(Trouble::new(Code::NoDocument, format!("there is no document {at}"))),
                })
            }
            Whole::Collection(name) if !book.has(name) && !has_collection(reading, id, name)? => {
                Err(Trouble::new(Code::NoCollection, format!("there is no collection {name:?}")))
            }
            Whole::Collection(_) | Whole::Namespace => Ok(()),
        }
    }
}

/// A collection is in the store if it has or had documents, ids or indexes.
fn has_collection(reading: &Reading, id: NamespaceId, name: &str) -> Result<bool, StoreError> {
    let state = reading.state();
    Ok(!state.some_documents(id, Some(name), None, 1)?.is_empty()
        || state.next_id(id, name)? > 1
        || !state.indexes(id, name)?.is_empty())
}

/// Begins a purge once nobody else's lock is in the way. When this answers, it is on record; it is completed whether
/// anybody waits or not.
pub async fn begin(kernel: &Arc<Kernel>, namespace: &str, wanted: Wanted) -> Result<Begun, Trouble> {
    if kernel.is_spread(namespace).await? {
        let message = "a node of a cluster cannot purge: other nodes have copies that it does not reach; purge on a single \
                       server";
        return Err(Trouble::new(Code::NotOnCluster, message));
    }
    if namespace == SYSTEM {
        let message = format!("{SYSTEM} is what the server keeps for itself; name another namespace");
        return Err(Trouble::new(Code::ReservedNamespace, message));
    }
    kernel.shard.check_not_loading(namespace)?;
    let turn = gate::hold(kernel, namespace, &wanted.what.resources(), &wanted.terms).await?;
    let book = kernel.schemas.book(kernel, namespace)?;
    wanted.what.check_there(&kernel.shard.read(), &book, namespace)?;
    if let Whole::Collection(collection) = &wanted.what
        && book.mode(collection) == schemas::Mode::ReadOnly
    {
        return Err(schema_trouble(SchemaError::ReadOnly, collection));
    }
    let (kernel, namespace) = (Arc::clone(kernel), namespace.to_owned());
    // To its end, also if nobody waits for the answer any more.
    let begun = tokio::spawn(async move { begin_held(&kernel, &namespace, wanted, turn).await });
    begun.await.unwrap_or_else(|error| {
        tracing::error!(%error, "begin a purge");
        Err(Trouble::storage_failed())
    })
}

async fn begin_held(
    kernel: &Arc<Kernel>,
    namespace: &str,
    wanted: Wanted,
    mut turn: Turn,
) -> Result<Begun, Trouble> {
    let Wanted { what, user, note, .. } = wanted;
    let action = deed(kernel, namespace, &what, &user, note.as_ref());
    let purging = Purging {
        purged: what.purged(),
        documents: if let Whole::Documents(documents) = what { documents } else { Vec::new() },
        user: Some(user),
        note,
    };
    let begun = kernel.shard.begin_purge(namespace, &purging, kernel.clock.now()).await?;
    turn.wrote(begun.index);
    kernel.purges.note_gone(namespace, begun.index);
    let kernel = Arc::clone(kernel);
    tokio::spawn(async move {
        // The log has it already, with the rest of the purge.
        if let Err(trouble) = operator::record(&kernel, &action).await {
            tracing::error!(?trouble, "note a purge in the operator log");
        }
        finish(&kernel, begun.index, Some(turn)).await;
    });
    Ok(begun)
}

/// That something is purged, by whom and why.
fn deed(kernel: &Kernel, namespace: &str, what: &Whole, user: &Json, note: Option<&Json>) -> OperatorAction {
    let text = |json: &Json| serde_json::from_str(json.as_str()).unwrap_or_else(|_| json.as_str().to_owned());
    let action = OperatorAction {
        operator: Some(text(user)),
        document: what.purged().collection().map(str::to_owned),
        ..operator::deed(kernel, namespace, OperatorDeed::Purge, note.map(text))
    };
    tracing::warn!(?namespace, collection = ?action.document, operator = ?action.operator, "a purge");
    action
}

/// Takes all that is purged out of the state, unless that is done. False if the server stops.
async fn leave_state(kernel: &Arc<Kernel>, index: u64) -> Result<bool, Trouble> {
    let pending = kernel.shard.read().state().purging()?.into_iter().find(|(purge, _)| *purge == index);
    if pending.is_none_or(|(_, last)| last > 0) {
        return Ok(true);
    }
    let entry = kernel.shard.read().state().entry(index)?;
    let Some(Entry::Purged { namespace, commit, .. }) = entry else { return Ok(true) };
    // A collection that comes again is not held to what was said of this one.
    if let Some(Purged::Collection { collection }) = &commit.purged {
        let unbound = schemas::unbind(kernel, &namespace, collection).await;
        unbound.map_err(|error| schema_trouble(error, collection))?;
    }
    let went = kernel.shard.purge_state(index, &*goes_on(kernel, index)).await;
    kernel.purges.note_gone(&namespace, kernel.shard.last_index());
    // Nobody else can write to a registry whose namespace is purged; that of a collection's namespace stays.
    if commit.purged == Some(Purged::Namespace) {
        kernel.schemas.reread(kernel, &namespace);
    }
    Ok(went?)
}

/// Completes a purge, unless the server stops. What fails is tried again: until the documents are gone, nothing can be
/// written in their place. Those who wait for its lock hear of it then.
async fn finish(kernel: &Arc<Kernel>, index: u64, mut turn: Option<Turn>) {
    let mut pause = RETRY;
    let is_complete = loop {
        match go_on(kernel, index, &mut turn).await {
            Ok(is_complete) => break is_complete,
            Err(trouble) => tracing::error!(purge = index, ?trouble, "complete a purge; it is tried again"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_MAX);
        if kernel.is_draining() {
            break false;
        }
    };
    kernel.purges.stages.lock().remove(&index);
    match is_complete {
        true => tracing::info!(purge = index, "a purge is complete"),
        false => tracing::info!(purge = index, "a purge goes on when the server starts again"),
    }
}

/// Does what is left of a purge; its lock is let go once the documents are gone. False if the server stops.
async fn go_on(kernel: &Arc<Kernel>, index: u64, turn: &mut Option<Turn>) -> Result<bool, Trouble> {
    let went = leave_state(kernel, index).await?;
    turn.iter_mut().for_each(|turn| turn.wrote(kernel.shard.last_index()));
    if !went {
        return Ok(false);
    }
    *turn = None;
    Ok(kernel.shard.complete_purge(index, goes_on(kernel, index)).await?)
}

/// Notes what a purge does; a server that stops leaves the rest to its next start.
fn goes_on(kernel: &Arc<Kernel>, index: u64) -> Arc<dyn Fn(Stage) -> bool + Send + Sync> {
    let kernel = Arc::clone(kernel);
    Arc::new(move |stage| {
        kernel.purges.stages.lock().insert(index, stage);
        if matches!(stage, Stage::Files(_)) {
            wait_for_room(&kernel, index);
            kernel.purges.stages.lock().insert(index, stage);
        }
        !kernel.is_draining()
    })
}

/// Writing the files anew takes as much room as they have; a disk that is full would take no more writes at all.
fn wait_for_room(kernel: &Kernel, index: u64) {
    let mut is_told = false;
    while !kernel.is_draining()
        && let Some((used, free)) = crate::metrics::disk_bytes(&kernel.config.data)
        && free < used.saturating_add(JOURNALS_BYTES)
    {
        if !is_told {
            tracing::warn!(
                purge = index,
                used,
                free,
                "a purge waits for room on the disk to write the files anew"
            );
            is_told = true;
        }
        kernel.purges.stages.lock().insert(index, Stage::Room);
        std::thread::sleep(ROOM_PATIENCE);
    }
}

/// Goes on with the purges that were under way when the server ended: takes the documents away before anything is served,
/// and the rest when there is time.
pub async fn resume(kernel: &Arc<Kernel>) -> Result<(), StoreError> {
    for index in kernel.shard.resume_purges()? {
        tracing::warn!(purge = index, "a purge was not complete when the server ended; it goes on");
        if let Err(trouble) = leave_state(kernel, index).await {
            tracing::error!(purge = index, ?trouble, "take away what is purged; it is tried again");
        }
        let kernel = Arc::clone(kernel);
        tokio::spawn(async move { finish(&kernel, index, None).await });
    }
    Ok(())
}

/// The purges that are not complete.
pub fn list(kernel: &Kernel) -> Result<Vec<PurgeInfo>, StoreError> {
    let reading = kernel.shard.read();
    let state = reading.state();
    let mut purges = Vec::new();
    for (index, _) in state.purging()? {
        let Some(Entry::Purged { namespace, commit, .. }) = state.entry(index)? else { continue };
        let stage = kernel.purges.stages.lock().get(&index).copied().unwrap_or(Stage::Waiting);
        let (step, done, of) = match stage {
            Stage::Waiting => (PurgeStep::Waiting, None, None),
            Stage::Documents(done) => (PurgeStep::Documents, Some(done), None),
            Stage::Answers(done, of) => (PurgeStep::Answers, Some(done), Some(of)),
            Stage::Log(done, of) => (PurgeStep::Log, Some(done), Some(of)),
            Stage::Snapshot => (PurgeStep::Snapshot, None, None),
            Stage::Room => (PurgeStep::Room, None, None),
            Stage::Files(Scrubbing::Views) => (PurgeStep::Readers, None, None),
            Stage::Files(Scrubbing::Journal) => (PurgeStep::Journal, None, None),
            Stage::Files(Scrubbing::Tables) => (PurgeStep::Tables, None, None),
        };
        let purged =
            commit.purged.as_ref().map_or(PurgedInfo { collection: None, documents: None }, Into::into);
        purges.push(PurgeInfo { purge: index, namespace: namespace.into(), purged, step, done, of });
    }
    Ok(purges)
}
