//! Hosts of a shard that only read: they follow the log of the host that writes, record by record, and take over from
//! it when a map says so. Knows nothing of who reads from them.
//!
//! ```text
//!   log of the host that writes:   … n  n+1  n+2 …
//!                                    │   └────┴──► sent, recorded here, n+2 noted with its digest
//!                                    └─ is not the record that was noted, or is forgotten: everything is copied
//! ```
//!
//! Whose log it is does not matter: what was noted of the last record is there, or it is another log.

use super::{Current, Message, SYSTEM, copy, received};
use crate::{
    lease,
    shard::{Call, Reading, in_place},
    shared::Shared,
    trouble::Trouble,
};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{HeaderMap, Method, StatusCode};
use lockwood_engine::{Action, Intent, PutIf, Request};
use lockwood_model::{Change, DocumentKey, Json};
use lockwood_router::{Epoch, ShardMap};
use lockwood_storage::{Entry, StoreError};
use lockwood_wire::Code;
use serde::{Deserialize, Serialize};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Mutex;
use xxhash_rust::xxh3::xxh3_64;

/// The header by which a host says how far its lock numbers have come.
const CEILING: &str = "lockwood-ceiling";
/// How long a node that starts waits for others to say by which map they go.
const ASK_PATIENCE: Duration = Duration::from_millis(500);
/// So much of the log is sent at a time.
pub(super) const PART_BYTES: usize = 1024 * 1024;
/// A host that has nothing new waits so long for something.
pub(crate) const POLL: Duration = Duration::from_millis(500);
/// How long to wait after something went wrong.
const PAUSE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(10);
/// Reads that were let in before a copy begins are over by then.
const READ_PATIENCE: Duration = Duration::from_secs(1);

/// What a host that only reads keeps at hand.
#[derive(Default)]
pub(crate) struct Replica {
    /// The last epoch in which this node had all that the host had that writes.
    caught_up: AtomicU64,
    /// Whoever takes something in has it: each record is taken in once.
    turn: Mutex<()>,
}

impl Replica {
    /// The last epoch in which this node had all that the host had that writes.
    pub(super) fn caught_up(&self) -> Epoch {
        self.caught_up.load(Ordering::Acquire)
    }
}

/// How far a replica is. Kept as a document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Followed {
    /// Whose log it follows.
    address: String,
    /// The last record that is here.
    index: u64,
    /// The digest of that record.
    sum: u64,
    /// Whether there is only a part of what was to be copied.
    copying: bool,
    /// The host that it may take over from without having everything.
    without: Option<String>,
    /// The epoch of the map that the last record is about, if it is a newer one than this host goes by: there is nothing
    /// more to be taken in by the older map. If this host takes over by the newer one, what the other has on record
    /// later may come from here.
    taken: Epoch,
}

/// How far a host is, for those who ask.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// Whose log it follows.
    pub(crate) address: String,
    /// The last record of that log that is here.
    pub(crate) index: u64,
    /// The last record of its own log.
    pub(crate) last: u64,
    /// The last epoch in which it had everything.
    pub(crate) caught_up: Epoch,
}

pub(crate) fn standing(shared: &Shared) -> Result<Standing, Trouble> {
    let Followed { address, index, .. } = load(shared)?;
    let (last, caught_up) = (shared.shard.last_index(), shared.cluster.replica.caught_up());
    Ok(Standing { address, index, last, caught_up })
}

/// Lets this host take over from another one without having everything that one has.
pub(crate) async fn let_go(shared: &Shared, without: String) -> Result<(), Trouble> {
    let _turn = shared.cluster.replica.turn.lock().await;
    let followed = Followed { without: Some(without), ..load(shared)? };
    note(shared, &[], &followed).await
}

/// A part of the log, from a record on: for each record its index, its length and itself.
pub(crate) fn part(reading: &Reading, from: u64, sum: u64) -> Result<Vec<u8>, Trouble> {
    let state = reading.state();
    let applied = state.applied()?;
    let forgotten = || Trouble::new(Code::PositionTooOld, "the log does not go on where that one ended");
    if from > 1 && state.record(from - 1)?.is_none_or(|record| xxh3_64(&record) != sum) {
        return Err(forgotten());
    }
    let mut part = Vec::new();
    for index in from..=applied {
        let record = state.record(index)?.ok_or_else(forgotten)?;
        push(&mut part, index, &record);
        if part.len() >= PART_BYTES {
            break;
        }
    }
    Ok(part)
}

pub(super) fn push(part: &mut Vec<u8>, index: u64, record: &[u8]) {
    part.extend_from_slice(&index.to_be_bytes());
    part.extend_from_slice(&(record.len() as u32).to_be_bytes());
    part.extend_from_slice(record);
}

/// The first record of some bytes, with its index, and what is behind it; none if it is not all there.
fn first_record(bytes: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (index, rest) = bytes.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let (record, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
    Some((u64::from_be_bytes(*index), record, rest))
}

/// Records that were received, and the last of them.
#[derive(Default)]
struct Received {
    entries: Vec<Entry>,
    index: u64,
    sum: u64,
    /// The epoch of the map that the last of them is about, if it is the last that counts.
    taken: Epoch,
}

fn read_part(mut bytes: &[u8], until: Epoch) -> Result<Received, StoreError> {
    let mut received = Received::default();
    while !bytes.is_empty() && received.taken == 0 {
        let (index, record, rest) = first_record(bytes).ok_or_else(damaged)?;
        (received.index, received.sum) = (index, xxh3_64(record));
        let entry = Entry::decode(index, record)?;
        received.taken = map_begun(&entry).filter(|epoch| *epoch >= until).unwrap_or(0);
        received.entries.push(entry);
        bytes = rest;
    }
    Ok(received)
}

fn damaged() -> StoreError {
    StoreError::damaged("what another host sent of its log")
}

/// Follows the host that writes, for as long as this one does not.
pub(crate) async fn follow(shared: Arc<Shared>) {
    hear_of_newer_maps(&shared).await;
    loop {
        let current = shared.cluster.current().filter(|current| current.is_replica);
        let followed = match &current {
            Some(current) => follow_once(&shared, current).await,
            None => Ok(false),
        };
        match followed {
            Ok(true) => {}
            Ok(false) => tokio::time::sleep(PAUSE).await,
            Err(trouble) => {
                tracing::warn!(why = trouble.message, "follow the log of the host that writes");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// The same before anything is served, as far as others answer at once: by an old map this host may be one that writes.
pub(crate) async fn ask_around(shared: &Arc<Shared>) {
    let _ = tokio::time::timeout(ASK_PATIENCE, hear_of_newer_maps(shared)).await;
}

/// Another host may have taken over while this one was down, and nobody tells who is in no map.
async fn hear_of_newer_maps(shared: &Arc<Shared>) {
    let Some(current) = shared.cluster.current() else { return };
    let others = current.map.addresses().filter(|address| *address != shared.cluster.address());
    let asking = others.map(async |address| {
        if let Err(why) = super::learn(shared, address).await {
            tracing::debug!(node = address, why, "ask for the shard map");
        }
    });
    futures_util::future::join_all(asking).await;
}

/// Takes in the next part of the log; false if there is nobody to follow.
async fn follow_once(shared: &Arc<Shared>, current: &Current) -> Result<bool, Trouble> {
    let Some(host) = current.map.rw_host(shared.cluster.this()) else { return Ok(false) };
    let followed = load(shared)?;
    // This host may be about to write by that map, and what comes now is its own, sent back.
    let is_over = followed.taken > current.map.epoch;
    if !is_over && (followed.copying || (followed.index == 0 && has_documents(shared)?)) {
        return copy_all(shared, &host.address, current.map.epoch).await.map(|()| true);
    }
    let question = question(&followed, true);
    // The turn is not kept meanwhile: a newer map may come with the answer, by which this host takes over.
    let answer = shared.cluster.ask(shared, &host.address, &question).await;
    let answer = answer.map_err(|error| Trouble::new(Code::ShardUnreachable, error.to_string()))?;
    if is_over {
        return Ok(false);
    }
    let Some(part) = given(&host.address, &answer)? else {
        return copy_all(shared, &host.address, current.map.epoch).await.map(|()| true);
    };
    raise_numbers(shared, answer.headers()).await?;
    let turn = shared.cluster.replica.turn.lock().await;
    if load(shared)? != followed {
        return Ok(true);
    }
    take_in(shared, &host.address, &part, current.map.epoch + 1).await?;
    drop(turn);
    // The host that writes is in the same epoch, or it would have refused.
    if part.len() < PART_BYTES {
        shared.cluster.replica.caught_up.store(current.map.epoch, Ordering::Release);
    }
    Ok(true)
}

fn question(followed: &Followed, wait: bool) -> Message {
    let target = format!("/internal/log?from={}&sum={}&wait={wait}", followed.index + 1, followed.sum);
    Message { method: Method::GET, patience: PATIENCE, ..Message::post(&target, "") }
}

/// Lock numbers and tokens of the host that writes are not on record. Whoever takes over from it goes on above them.
pub(crate) fn with_ceiling(shared: &Shared, answer: impl IntoResponse) -> Response {
    ([(CEILING, shared.numbers.ceiling().to_string())], answer).into_response()
}

async fn raise_numbers(shared: &Arc<Shared>, headers: &HeaderMap) -> Result<(), Trouble> {
    let ceiling = headers.get(CEILING).and_then(|ceiling| ceiling.to_str().ok()?.parse().ok());
    let ceiling = ceiling.unwrap_or(0);
    received::check_number(ceiling)?;
    Ok(shared.numbers.raise(ceiling).await?)
}

/// What a host gave of its log; none if it has another log than the one that was followed.
fn given(address: &str, answer: &hyper::Response<Bytes>) -> Result<Option<Bytes>, Trouble> {
    match answer.status() {
        status if status.is_success() => Ok(Some(answer.body().clone())),
        StatusCode::GONE => Ok(None),
        _ => {
            let why = String::from_utf8_lossy(answer.body());
            Err(Trouble::new(Code::ShardUnreachable, format!("{address} refused: {why}")))
        }
    }
}

/// Takes in a part of the log of a host, up to where that one began to go by a map; says whether it has come there.
/// Whoever calls has the turn.
async fn take_in(shared: &Shared, address: &str, part: &[u8], until: Epoch) -> Result<bool, Trouble> {
    let Received { mut entries, index, sum, taken } = read_part(part, until)?;
    if entries.is_empty() {
        return Ok(false);
    }
    entries.retain(is_followed);
    entries.iter().try_for_each(received::check_entry)?;
    let followed = Followed { address: address.to_owned(), index, sum, taken, ..Followed::default() };
    note(shared, &entries, &followed).await?;
    Ok(taken > 0)
}

/// The epoch of the map that a host began to go by with a record; none if it did not.
fn map_begun(entry: &Entry) -> Option<Epoch> {
    let Entry::Committed { namespace, commits, .. } = entry else { return None };
    let mut events = commits.iter().flat_map(|commit| &commit.events).filter(|_| **namespace == *SYSTEM);
    let event = events.find(|event| event.at == super::map_key())?;
    let (Change::Created { fields } | Change::Updated { set: fields, .. }) = &event.change else {
        return None;
    };
    let (_, json) = fields.iter().find(|(name, _)| **name == *"map")?;
    serde_json::from_str::<serde_json::Value>(json.as_str()).ok()?["epoch"].as_u64()
}

/// What a host keeps for itself is not for others, and each forgets its own history. That a dump is being loaded is of
/// use only to the host that loads it.
fn is_followed(entry: &Entry) -> bool {
    entry.namespace() != Some(SYSTEM) && !matches!(entry, Entry::Trimmed { .. } | Entry::Loading { .. })
}

/// Puts everything that another host has in the place of what is here.
async fn copy_all(shared: &Arc<Shared>, address: &str, epoch: Epoch) -> Result<(), Trouble> {
    let _turn = shared.cluster.replica.turn.lock().await;
    if shared.cluster.epoch() != epoch || load(shared)?.taken > epoch {
        return Ok(());
    }
    copy_here(shared, address, epoch).await
}

/// The same for whoever has the turn.
async fn copy_here(shared: &Arc<Shared>, address: &str, epoch: Epoch) -> Result<(), Trouble> {
    tracing::info!(from = address, "everything is copied from the host that writes");
    let unreachable = |why: String| Trouble::new(Code::ShardUnreachable, why);
    let message = Message { method: Method::GET, ..Message::post("/internal/copy", "") };
    let answer = shared.cluster.peers()?.open(address, epoch, &message).await;
    let answer = answer.map_err(|error| unreachable(error.to_string()))?;
    if !answer.status().is_success() {
        return Err(unreachable(format!("{address} refused: status {}", answer.status())));
    }
    raise_numbers(shared, answer.headers()).await?;
    shared.cluster.replica.caught_up.store(0, Ordering::Release);
    tokio::time::sleep(READ_PATIENCE).await;
    let copying = Followed { address: address.to_owned(), copying: true, ..Followed::default() };
    if let Some(current) = shared.cluster.current().filter(|current| current.is_replica) {
        // Not before: as long as nobody else has them, they are here.
        lease::moving::let_go(shared, &current);
    }
    let emptied = in_place(|| copy::emptied(&shared.shard.read()))?;
    note(shared, &emptied, &copying).await?;
    let mut body = answer.into_body();
    let mut bytes: Vec<u8> = Vec::new();
    let mut end = None;
    loop {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await;
        let frame = frame.map_err(|_| unreachable(format!("{address} sent no more for a while")))?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| unreachable(format!("{address} broke off: {error}")))?;
        bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        if bytes.len() >= PART_BYTES {
            end = copied(shared, &mut bytes, &copying).await?;
        }
    }
    if !bytes.is_empty() {
        end = copied(shared, &mut bytes, &copying).await?;
    }
    let (index, sum) = end.filter(|_| bytes.is_empty()).ok_or_else(damaged)?;
    let followed = Followed { index, sum, copying: false, ..copying };
    note(shared, &[], &followed).await
}

/// Takes in what has been received of a copy; its end, if that is there.
async fn copied(
    shared: &Shared,
    bytes: &mut Vec<u8>,
    copying: &Followed,
) -> Result<Option<(u64, u64)>, Trouble> {
    let (mut entries, mut end) = (Vec::new(), None);
    let mut rest = &bytes[..];
    while let Some((index, record, behind)) = first_record(rest) {
        match index {
            0 => entries.push(received::read_entry(record)?),
            // The last record of the log that all of it led to.
            _ => end = Some((index, xxh3_64(record))),
        }
        rest = behind;
    }
    *bytes = rest.to_vec();
    note(shared, &entries, copying).await?;
    Ok(end)
}

/// This host is going to write by a map: it has to have everything first that the host before it has, and that one has
/// to have stopped.
pub(super) async fn take_over(shared: &Arc<Shared>, map: &ShardMap) -> Result<(), Trouble> {
    let _turn = shared.cluster.replica.turn.lock().await;
    let Some(current) = shared.cluster.current() else { return Ok(()) };
    if !current.is_replica || map.epoch <= current.map.epoch {
        return Ok(());
    }
    let Some(host) = current.map.rw_host(shared.cluster.this()) else { return Ok(()) };
    let followed = load(shared)?;
    if followed.taken > map.epoch {
        let message = format!("{} goes by a newer map; ask again", host.address);
        return Err(Trouble::new(Code::WrongEpoch, message));
    }
    if followed.taken != map.epoch && followed.without.as_ref() == Some(&host.address) {
        tracing::warn!(from = host.address, "this host takes over without knowing what the other one has");
        note(shared, &[], &Followed { taken: map.epoch, ..Followed::default() }).await?;
    } else if followed.taken != map.epoch {
        let caught_up = catch_up(shared, &host.address, map).await;
        caught_up
            .map_err(|trouble| not_caught_up(shared.cluster.address(), &host.address, &trouble.message))?;
    }
    begin(shared).await
}

/// That a host may not write, and what can be done about that.
pub(super) fn not_caught_up(to: &str, from: &str, why: &str) -> Trouble {
    let message = format!(
        "{to} does not have everything that {from} has: {why}. Start {from} and wait until {to} has caught up, or \
         give the change the force flag, which loses what {to} does not have"
    );
    Trouble::new(Code::NotCaughtUp, message)
}

/// Stops the host that writes by giving it the map by which it does not, and takes in what is left of its log.
async fn catch_up(shared: &Arc<Shared>, address: &str, map: &ShardMap) -> Result<(), Trouble> {
    // In a box: to give this node a map would be to come here again.
    Box::pin(super::give_map(shared, address, map)).await?;
    let unreachable = |why: String| Trouble::new(Code::ShardUnreachable, why);
    loop {
        let followed = load(shared)?;
        let part = match followed.copying || (followed.index == 0 && has_documents(shared)?) {
            true => None,
            false => {
                let answer =
                    shared.cluster.peers()?.ask(address, map.epoch, &question(&followed, false)).await;
                let answer = answer.map_err(|error| unreachable(error.to_string()))?;
                raise_numbers(shared, answer.headers()).await?;
                given(address, &answer)?
            }
        };
        let is_end = match part {
            Some(part) if part.is_empty() => return Err(unreachable(format!("{address} has not stopped"))),
            Some(part) => take_in(shared, address, &part, map.epoch).await?,
            None => {
                copy_here(shared, address, map.epoch).await?;
                note(shared, &[], &Followed { taken: map.epoch, ..load(shared)? }).await?;
                true
            }
        };
        if is_end {
            return Ok(());
        }
    }
}

/// What this host followed becomes its own.
async fn begin(shared: &Arc<Shared>) -> Result<(), Trouble> {
    let (floor, namespaces) = {
        let reading = shared.shard.read();
        (reading.state().floor()?, reading.state().namespaces()?)
    };
    shared.shard.raise(floor).await?;
    namespaces.iter().for_each(|(namespace, _)| shared.schemas.reread(shared, namespace));
    // Those that were declared meanwhile were not built here.
    shared.shard.fill_indexes().await?;
    shared.cluster.idle_leases.store(true, Ordering::Release);
    Ok(())
}

/// Whether there is anything here that came from somewhere.
fn has_documents(shared: &Shared) -> Result<bool, Trouble> {
    let namespaces = shared.shard.read().state().namespaces()?;
    Ok(namespaces.iter().any(|(name, _)| name != SYSTEM))
}

fn key() -> DocumentKey {
    DocumentKey::new("shards", "replica".parse().expect("it is a key"))
}

fn load(shared: &Shared) -> Result<Followed, Trouble> {
    let reading = shared.shard.read();
    let Some((id, _)) = reading.namespace(SYSTEM)? else { return Ok(Followed::default()) };
    let document = reading.state().document(id, &key())?;
    let read = document.and_then(|document| serde_json::from_str(document.get("followed")?.as_str()).ok());
    Ok(read.unwrap_or_default())
}

/// Takes records in and notes how far that is, in one step.
async fn note(shared: &Shared, entries: &[Entry], followed: &Followed) -> Result<(), Trouble> {
    let json = serde_json::to_string(followed).expect("it is valid JSON");
    let action = Action::Put { fields: vec![("followed".into(), Json::trusted(&json))], when: PutIf::Always };
    let request = Request { intents: vec![Intent { at: key(), action }], ..Request::default() };
    let call = Call { requests: vec![request], ..Call::default() };
    let index = in_place(|| shared.shard.replay(entries, SYSTEM, &call, shared.clock.now()))?;
    Ok(shared.shard.shown(index).await?)
}
