//! What a donor does in a transition: copy what moves, compare it with what arrived, and clean up. Each task goes
//! on where it stopped, also after a crash. Knows nothing of who asks for it, nor of the other donors.

use super::{Current, Message, pace, transfer};
use crate::shared::Shared;
use bytes::Bytes;
use lockwood_engine::{Action, Intent, PutIf, Request};
use lockwood_model::{DocumentKey, Json, Key};
use lockwood_node::{
    shard::{Call, Follow, in_place},
    territory::{Admitted, SYSTEM},
    trouble::Trouble,
};
use lockwood_router::{Epoch, Phase, Route, ShardNo};
use lockwood_storage::{DocumentRef, Entry, Moved, NamespaceId, Order, State};
use lockwood_wire::Code;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;

/// So many documents are looked at for one message, and so many bytes of them sent. While they are taken in or away,
/// writers wait.
const CHUNK_LEN: usize = 250;
/// So many are compared at a time, which keeps nobody waiting.
const COMPARED_LEN: usize = 1000;
const CHUNK_BYTES: usize = 256 * 1024;
/// So many documents are looked up at a time.
const GROUP_LEN: usize = 50;
/// So many documents that are not taken away are named.
const STAYS_LEN_MAX: usize = 5;
/// How often a task that rests looks whether it may go on.
const REST: Duration = Duration::from_millis(50);
/// Collections that every shard has for itself.
pub(crate) const EVERYWHERE: [&str; 2] = ["_schemas", "_procedures"];

/// Something a donor can be asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Task {
    /// Send what moves to its new owners.
    Copy,
    /// Compare what was sent with what is there.
    Verify,
    /// Take away what its owners confirm.
    Clean,
}

/// How far a donor is in a transition. Kept as a document, so that nothing is done twice for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Progress {
    /// Which transition.
    pub(crate) transition: Epoch,
    /// How often it began anew.
    pub(crate) round: u32,
    /// Documents that were sent and were not known there.
    pub(crate) copied: u64,
    /// Documents that were looked at and move.
    pub(crate) seen: u64,
    /// How many that will be.
    pub(crate) total: Option<u64>,
    pub(crate) copy_done: bool,
    pub(crate) verified: bool,
    pub(crate) removed: u64,
    pub(crate) clean_done: bool,
    /// What differs between here and there, or is not there.
    pub(crate) differs: Option<String>,
    /// How many documents are not taken away because their owners do not confirm them.
    pub(crate) unconfirmed: u64,
    /// The first few of those, and why.
    pub(crate) stays: Vec<String>,
    /// Copied and removed by collection.
    pub(crate) rows: Vec<Row>,
    /// The last document of the task that was not brought to its end.
    cursor: Option<Cursor>,
}

/// What was done in one collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) namespace: String,
    pub(crate) collection: String,
    pub(crate) copied: u64,
    pub(crate) removed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cursor {
    task: Task,
    namespace: String,
    collection: String,
    /// None before the first document.
    key: Option<String>,
}

/// The tasks of this node.
#[derive(Default)]
pub(crate) struct Work {
    progress: Mutex<Progress>,
    /// One task at a time.
    running: tokio::sync::Mutex<()>,
    /// Whether tasks rest.
    pub(crate) paused: AtomicBool,
    /// How many documents are sent in a second, at most; 0 is as many as there is time for.
    pub(crate) throttle: AtomicU64,
    /// What went wrong last.
    error: Mutex<Option<String>>,
}

/// What others are told about the tasks of a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) progress: Progress,
    pub(crate) running: bool,
    pub(crate) error: Option<String>,
}

impl Work {
    /// How far this node is in the transition of a map.
    pub(crate) fn report(&self, shared: &Shared, current: &Current) -> Result<Report, Trouble> {
        let running = self.running.try_lock().is_err();
        let progress = self.load(shared, current)?;
        Ok(Report { progress, running, error: self.error.lock().clone() })
    }

    /// What is known of a transition; everything is still to be done if it is a new one.
    fn load(&self, shared: &Shared, current: &Current) -> Result<Progress, Trouble> {
        let mut progress = self.progress.lock();
        let transition = current.map.transition;
        if progress.transition != transition {
            let stored = stored(shared)?.filter(|stored| stored.transition == transition);
            *progress = stored.unwrap_or(Progress { transition, ..Progress::default() });
        }
        Ok(progress.clone())
    }

    fn save(&self, shared: &Shared, progress: &Progress) -> Result<(), Trouble> {
        *self.progress.lock() = progress.clone();
        let json = serde_json::to_string(progress).expect("progress is valid JSON");
        let fields = vec![("progress".into(), Json::trusted(&json))];
        let action = Action::Put { fields, when: PutIf::Always };
        let request = Request { intents: vec![Intent { at: key(), action }], ..Request::default() };
        let call = Call { requests: vec![request], ..Call::default() };
        let now = shared.clock.now();
        // Whatever is recorded later is durable later; if this is lost, something is sent again that is there.
        Ok(shared.shard.write_in_passing(SYSTEM, &call, now)?)
    }
}

fn key() -> DocumentKey {
    DocumentKey::new("shards", "work".parse().expect("it is a key"))
}

fn stored(shared: &Shared) -> Result<Option<Progress>, Trouble> {
    let reading = shared.shard.read();
    let Some((id, _)) = reading.namespace(SYSTEM)? else { return Ok(None) };
    let Some(document) = reading.state().document(id, &key())? else { return Ok(None) };
    Ok(document.get("progress").and_then(|json| serde_json::from_str(json.as_str()).ok()))
}

/// Brings a task to its end, from where it stopped. A later round begins anew.
pub(crate) async fn run(shared: &Arc<Shared>, task: Task, round: u32) -> Result<Progress, Trouble> {
    let work = &shared.cluster.work;
    let _running = work.running.lock().await;
    let done = run_alone(shared, task, round).await;
    *work.error.lock() = done.as_ref().err().map(|trouble| trouble.message.clone());
    done
}

async fn run_alone(shared: &Arc<Shared>, task: Task, round: u32) -> Result<Progress, Trouble> {
    let current = shared.cluster.current().ok_or_else(super::no_map)?;
    check(&current, task)?;
    let work = &shared.cluster.work;
    let mut progress = work.load(shared, &current)?;
    if progress.round < round {
        let (transition, rows) = (progress.transition, std::mem::take(&mut progress.rows));
        progress = Progress { transition, round, copied: progress.copied, rows, ..Progress::default() };
    }
    let is_done = match task {
        Task::Copy => progress.copy_done,
        Task::Verify => progress.verified,
        Task::Clean => progress.clean_done,
    };
    if is_done {
        return Ok(progress);
    }
    if progress.cursor.as_ref().is_none_or(|cursor| cursor.task != task) {
        progress.cursor = None;
        progress.differs = None;
        (progress.unconfirmed, progress.stays) = (0, Vec::new());
        if task == Task::Copy {
            progress.seen = 0;
        }
    }
    match task {
        Task::Copy => {
            let counted = count(shared, &current, progress.cursor.as_ref()).await?;
            progress.total = Some(progress.seen + counted);
        }
        Task::Verify => all_are_swept(shared, &current).await?,
        Task::Clean => {}
    }
    each_chunk(shared, &current, task, &mut progress).await?;
    progress.cursor = None;
    match task {
        Task::Copy => progress.copy_done = true,
        Task::Verify => progress.verified = progress.differs.is_none(),
        Task::Clean => progress.clean_done = progress.differs.is_none(),
    }
    work.save(shared, &progress)?;
    Ok(progress)
}

fn check(current: &Current, task: Task) -> Result<(), Trouble> {
    let refused = |message: &str| Err(Trouble::new(Code::Resharding, message));
    match (task, current.map.phase) {
        _ if !current.is_owner => refused("the map does not have this shard, so it has nothing to do"),
        (Task::Copy | Task::Verify, Phase::Resharding) | (Task::Clean, Phase::Finishing | Phase::Steady) => {
            Ok(())
        }
        (Task::Copy | Task::Verify, _) => {
            refused("nothing is to be copied: resharding is done, or has not begun")
        }
        (Task::Clean, _) => refused("resharding is not done: there is a prev, so nothing is cleaned up"),
    }
}

/// Some documents that one task is about, and where to go on.
struct Chunk {
    namespace: String,
    collection: String,
    /// By the shard that owns them.
    keys: BTreeMap<ShardNo, Vec<Found>>,
    /// The last document that was looked at; none if the collection is at its end.
    last: Option<Key>,
}

impl Chunk {
    fn of(namespace: &str, collection: &str) -> Chunk {
        let (namespace, collection) = (namespace.to_owned(), collection.to_owned());
        Chunk { namespace, collection, keys: BTreeMap::new(), last: None }
    }
}

struct Found {
    at: DocumentKey,
    position: u64,
    digest: u128,
}

async fn each_chunk(
    shared: &Arc<Shared>,
    current: &Arc<Current>,
    task: Task,
    progress: &mut Progress,
) -> Result<(), Trouble> {
    let started = Instant::now();
    let mut sent = 0;
    for (namespace, collection) in places(shared, progress.cursor.as_ref())? {
        let resumed = progress.cursor.take().filter(|cursor| {
            cursor.namespace == namespace && cursor.collection == collection && cursor.task == task
        });
        let mut after: Option<Key> = resumed.and_then(|cursor| cursor.key?.parse().ok());
        // One chunk is on its way while the next one is got ready.
        let mut flight: Option<Flight> = None;
        loop {
            rest(shared, current).await?;
            let begun = Instant::now();
            let mut is_busy = shared.cluster.load.is_busy();
            let chunk = in_place(|| scan(shared, current, task, (&namespace, &collection), after.as_ref()))?;
            after.clone_from(&chunk.last);
            let next = take_off(shared, current, task, chunk)?;
            sent += next.len;
            if let Some(flight) = flight.replace(next) {
                is_busy |= land(shared, flight, progress).await?;
            }
            if is_busy {
                pace::give_way(begun.elapsed()).await;
            }
            throttle(shared, current, started, sent).await;
            if after.is_none() {
                break;
            }
        }
        if let Some(flight) = flight {
            land(shared, flight, progress).await?;
        }
    }
    Ok(())
}

/// A chunk that is being worked on.
struct Flight {
    task: Task,
    namespace: String,
    collection: String,
    last: Option<Key>,
    /// How many documents it is about.
    len: u64,
    work: JoinHandle<Result<Done, Trouble>>,
}

/// What came of a chunk.
#[derive(Default)]
struct Done {
    copied: u64,
    removed: u64,
    differs: Option<String>,
    /// Whether clients ask an owner for much.
    is_busy: bool,
    /// What is not taken away, and why.
    stays: Vec<String>,
}

/// Begins with a chunk; what has to be looked up for it is looked up here.
fn take_off(
    shared: &Arc<Shared>,
    current: &Arc<Current>,
    task: Task,
    chunk: Chunk,
) -> Result<Flight, Trouble> {
    let len = chunk.keys.values().map(|found| found.len() as u64).sum();
    let messages = match task {
        Task::Copy => in_place(|| messages(shared, current, &chunk))?,
        Task::Verify | Task::Clean => Vec::new(),
    };
    let (namespace, collection) = (chunk.namespace.clone(), chunk.collection.clone());
    let last = chunk.last.clone();
    let (shared, current) = (Arc::clone(shared), Arc::clone(current));
    let work = tokio::spawn(async move {
        match task {
            Task::Copy => send(&shared, messages).await,
            Task::Verify => verify(&shared, &current, &chunk).await,
            Task::Clean => clean(&shared, &current, &chunk).await,
        }
    });
    Ok(Flight { task, namespace, collection, last, len, work })
}

/// Waits for a chunk and notes how far that is; says whether clients ask an owner for much.
async fn land(shared: &Shared, flight: Flight, progress: &mut Progress) -> Result<bool, Trouble> {
    let Flight { task, namespace, collection, last, len, work } = flight;
    let done = work.await.map_err(|error| {
        tracing::error!(%error, "a step of resharding");
        Trouble::storage_failed()
    })??;
    if task == Task::Copy {
        progress.seen += len;
    }
    progress.copied += done.copied;
    progress.removed += done.removed;
    progress.unconfirmed += done.stays.len() as u64;
    let room = STAYS_LEN_MAX.saturating_sub(progress.stays.len());
    progress.stays.extend(done.stays.iter().take(room).cloned());
    if progress.differs.is_none() {
        progress.differs = done.differs.or_else(|| done.stays.into_iter().next());
    }
    if len > 0 {
        let row = progress.row(&namespace, &collection);
        row.copied += done.copied;
        row.removed += done.removed;
        let key = last.as_ref().map(Key::to_string);
        progress.cursor = Some(Cursor { task, namespace, collection, key });
        shared.cluster.work.save(shared, progress)?;
    }
    Ok(done.is_busy)
}

/// Waits while tasks rest; ends with an error if the map has changed.
async fn rest(shared: &Shared, current: &Current) -> Result<(), Trouble> {
    loop {
        if shared.cluster.current().is_none_or(|now| now.map.epoch != current.map.epoch) {
            return Err(Trouble::new(Code::WrongEpoch, "the shard map has just changed; ask again"));
        }
        if !shared.cluster.work.paused.load(Ordering::Relaxed) {
            return Ok(());
        }
        tokio::time::sleep(REST).await;
    }
}

/// Waits until it is time for more. The pace may be set anew meanwhile, and the map may change.
async fn throttle(shared: &Shared, current: &Current, started: Instant, sent: u64) {
    loop {
        let rate = shared.cluster.work.throttle.load(Ordering::Relaxed);
        if rate == 0 || shared.cluster.epoch() != current.map.epoch {
            return;
        }
        let due = Duration::from_secs_f64(sent as f64 / rate as f64);
        match due.saturating_sub(started.elapsed()) {
            Duration::ZERO => return,
            left => tokio::time::sleep(left.min(REST)).await,
        }
    }
}

/// The collections that documents can move out of, from where a task stopped.
pub(super) fn places(shared: &Shared, from: Option<&Cursor>) -> Result<Vec<(String, String)>, Trouble> {
    let reading = shared.shard.read();
    let state = reading.state();
    let mut places = Vec::new();
    for (namespace, id) in state.namespaces()? {
        if !shared.cluster.has_spread_now(&namespace)? {
            continue;
        }
        for collection in state.collections(id)? {
            let is_before =
                from.is_some_and(|from| (&namespace, &collection) < (&from.namespace, &from.collection));
            if !is_before && !EVERYWHERE.contains(&&*collection) {
                places.push((namespace.clone(), collection));
            }
        }
    }
    Ok(places)
}

/// Who is to have a document that a task is about; none if the task is not about it.
fn destination(
    shared: &Shared,
    current: &Current,
    task: Task,
    at: &DocumentKey,
) -> Result<Option<ShardNo>, Trouble> {
    let this = shared.cluster.this();
    Ok(match (task, current.route(at)?) {
        (Task::Copy | Task::Verify, Route::Pulled { owner, donor }) if donor == this => Some(owner),
        (Task::Clean, Route::Owner(owner)) if owner != this => Some(owner),
        _ => None,
    })
}

/// Whether what this node has of a key counts: in a transition that goes back, only what had arrived here.
pub(super) fn counts(
    state: State<'_>,
    namespace: NamespaceId,
    current: &Current,
    at: &DocumentKey,
) -> Result<bool, Trouble> {
    match current.map.reverses {
        0 => Ok(true),
        reversed => Ok(state.mark(namespace, at)? == Some(reversed)),
    }
}

fn scan(
    shared: &Shared,
    current: &Current,
    task: Task,
    (namespace, collection): (&str, &str),
    after: Option<&Key>,
) -> Result<Chunk, Trouble> {
    let reading = shared.shard.read();
    let state = reading.state();
    let mut chunk = Chunk::of(namespace, collection);
    let Some(id) = state.namespace(namespace)? else { return Ok(chunk) };
    let (len_max, bytes_max) = match task {
        Task::Copy | Task::Clean => (CHUNK_LEN, CHUNK_BYTES),
        Task::Verify => (COMPARED_LEN, usize::MAX),
    };
    let (mut len, mut bytes) = (0, 0);
    for found in state.documents(id, collection, after, Order::Forward) {
        let (at, record) = found?;
        len += 1;
        if let Some(owner) = destination(shared, current, task, &at)?
            && (task == Task::Clean || counts(state, id, current, &at)?)
        {
            bytes += record.len();
            let position = DocumentRef::read(&record)?.position().0;
            let digest = if task == Task::Verify { xxhash_rust::xxh3::xxh3_128(&record) } else { 0 };
            chunk.keys.entry(owner).or_default().push(Found { at: at.clone(), position, digest });
        }
        if len >= len_max || bytes >= bytes_max {
            chunk.last = Some(at.key);
            break;
        }
    }
    Ok(chunk)
}

/// How many documents are still to be copied.
async fn count(shared: &Shared, current: &Current, from: Option<&Cursor>) -> Result<u64, Trouble> {
    let mut len = 0;
    for (namespace, collection) in places(shared, from)? {
        let resumed = from.filter(|from| from.namespace == namespace && from.collection == collection);
        let mut after: Option<Key> = resumed.and_then(|cursor| cursor.key.as_ref()?.parse().ok());
        loop {
            let begun = Instant::now();
            let place = (namespace.as_str(), collection.as_str());
            let chunk = in_place(|| scan(shared, current, Task::Copy, place, after.as_ref()))?;
            if shared.cluster.load.is_busy() {
                pace::give_way(begun.elapsed()).await;
            }
            len += chunk.keys.values().map(|found| found.len() as u64).sum::<u64>();
            match chunk.last {
                Some(key) => after = Some(key),
                None => break,
            }
        }
    }
    Ok(len)
}

impl Progress {
    fn row(&mut self, namespace: &str, collection: &str) -> &mut Row {
        let is_it = |row: &Row| row.namespace == namespace && row.collection == collection;
        let place = self.rows.iter().position(is_it).unwrap_or_else(|| {
            let (namespace, collection) = (namespace.to_owned(), collection.to_owned());
            self.rows.push(Row { namespace, collection, copied: 0, removed: 0 });
            self.rows.len() - 1
        });
        &mut self.rows[place]
    }
}

/// What is to be sent of a chunk, and to whom. A document may have a long history, so a chunk may be several
/// messages.
fn messages(shared: &Shared, current: &Current, chunk: &Chunk) -> Result<Vec<(ShardNo, Bytes)>, Trouble> {
    let mut messages = Vec::new();
    for (owner, found) in &chunk.keys {
        let mut gathered: Option<Entry> = None;
        let mut bytes = 0;
        for some in found.chunks(GROUP_LEN) {
            let keys: Vec<DocumentKey> = some.iter().map(|found| found.at.clone()).collect();
            let Entry::Installed { namespace, transition, horizon, mut documents } =
                transfer::export(shared, current, &chunk.namespace, &keys)?
            else {
                unreachable!("that is what an export is")
            };
            bytes += documents.iter().map(size).sum::<usize>();
            if let Some(Entry::Installed { documents: before, .. }) = &mut gathered {
                before.append(&mut documents);
            } else {
                gathered = Some(Entry::Installed { namespace, transition, horizon, documents });
            }
            if bytes >= CHUNK_BYTES {
                messages.extend(gathered.take().map(|entry| (*owner, Bytes::from(entry.encode()))));
                bytes = 0;
            }
        }
        messages.extend(gathered.map(|entry| (*owner, Bytes::from(entry.encode()))));
    }
    Ok(messages)
}

/// About as many bytes as a document takes in a message.
fn size(moved: &Moved) -> usize {
    let fields = moved.document.iter().flat_map(|document| document.present());
    let fields: usize = fields.map(|(name, value)| name.len() + value.as_str().len() + 8).sum();
    let steps: usize = moved.steps.iter().map(|step| step.undo.as_ref().map_or(0, Vec::len) + 32).sum();
    fields + steps
}

/// Sends documents to their new owners; says how many were not known there.
async fn send(shared: &Arc<Shared>, messages: Vec<(ShardNo, Bytes)>) -> Result<Done, Trouble> {
    let mut done = Done::default();
    for (owner, message) in messages {
        let answer = ask(shared, owner, Message::post("/internal/install", message)).await?;
        done.copied += answer["installed"].as_u64().unwrap_or(0);
        done.is_busy |= answer["is_busy"].as_bool().unwrap_or(false);
    }
    Ok(done)
}

async fn verify(shared: &Arc<Shared>, current: &Current, chunk: &Chunk) -> Result<Done, Trouble> {
    let mut done = Done::default();
    for (owner, found) in &chunk.keys {
        let (unconfirmed, is_busy) = confirm(shared, current, *owner, chunk, found).await?;
        done.is_busy |= is_busy;
        if let Some((at, why)) = unconfirmed.first() {
            done.differs.get_or_insert_with(|| format!("{at} on shard {}: {why}", owner.0));
        }
    }
    Ok(done)
}

/// Takes away what its owners confirm.
async fn clean(shared: &Arc<Shared>, current: &Current, chunk: &Chunk) -> Result<Done, Trouble> {
    let mut done = Done::default();
    for (owner, found) in &chunk.keys {
        let (unconfirmed, is_busy) = confirm(shared, current, *owner, chunk, found).await?;
        done.is_busy |= is_busy;
        let stays = unconfirmed.iter();
        let stays = stays.map(|(at, why)| format!("{at} stays: shard {owner} does not confirm it, {why}"));
        done.stays.extend(stays);
        let stays: BTreeSet<&DocumentKey> = unconfirmed.iter().map(|(at, _)| at).collect();
        let goes = found.iter().map(|found| &found.at).filter(|at| !stays.contains(at));
        let documents: Vec<DocumentKey> = goes.cloned().collect();
        let len = documents.len() as u64;
        if len > 0 {
            let entry = Entry::Forgotten { namespace: chunk.namespace.as_str().into(), documents };
            let index = {
                let _passage = shared.pass(Admitted::under(current.map.epoch))?;
                shared.shard.append(&entry, Follow::Thread)?
            };
            // So that the time this takes is known, and as much left to others.
            shared.shard.shown(index).await?;
        }
        done.removed += len;
    }
    Ok(done)
}

/// Refused while a shard has old copies of what comes to it, also if nothing of this node's does.
async fn all_are_swept(shared: &Arc<Shared>, current: &Current) -> Result<(), Trouble> {
    let nothing = Chunk::of("", "");
    for shard in current.map.shard_numbers() {
        confirm(shared, current, shard, &nothing, &[]).await?;
    }
    Ok(())
}

/// Which documents an owner does not have as they are here, and why; and whether clients ask it for much.
async fn confirm(
    shared: &Arc<Shared>,
    current: &Current,
    owner: ShardNo,
    chunk: &Chunk,
    found: &[Found],
) -> Result<(Vec<(DocumentKey, String)>, bool), Trouble> {
    let keys: Vec<_> = found
        .iter()
        .map(|found| (found.at.key.to_string(), found.position, format!("{:032x}", found.digest)))
        .collect();
    let question = transfer::Question {
        namespace: chunk.namespace.clone(),
        collection: chunk.collection.clone(),
        transition: current.map.transition,
        keys,
    };
    let body = serde_json::to_string(&question).expect("a question is valid JSON");
    let answer = ask(shared, owner, Message::post("/internal/confirm", body)).await?;
    let answer: transfer::Unconfirmed = serde_json::from_value(answer).unwrap_or_default();
    let named = |(place, why): (usize, String)| Some((found.get(place)?.at.clone(), why));
    Ok((answer.unconfirmed.into_iter().filter_map(named).collect(), answer.is_busy))
}

async fn ask(shared: &Arc<Shared>, owner: ShardNo, message: Message) -> Result<serde_json::Value, Trouble> {
    let unreachable = |why: &str| super::pull::unreachable_shard(owner, why);
    let answer = shared.cluster.ask(shared, owner, &message).await;
    let answer = answer.map_err(|error| unreachable(&error.to_string()))?;
    if !answer.status().is_success() {
        return Err(unreachable(&super::driver::told_by(answer.body())));
    }
    serde_json::from_slice(answer.body()).map_err(|_| unreachable("it answered something else"))
}
