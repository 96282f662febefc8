//! Hosts of a shard that only read: they follow the log of the host that writes, record by record. Knows nothing of
//! who reads from them.

use super::{Current, Message, SYSTEM};
use crate::{
    shard::{Call, Reading},
    shared::Shared,
    trouble::Trouble,
};
use hyper::Method;
use lockwood_engine::{Action, Intent, PutIf, Request};
use lockwood_model::{DocumentKey, Json};
use lockwood_storage::{Entry, StoreError};
use lockwood_wire::Code;
use serde::{Deserialize, Serialize};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// So much of the log is sent at a time.
const PART_BYTES: usize = 1024 * 1024;
/// A host that has nothing new waits so long for something.
pub(crate) const POLL: Duration = Duration::from_millis(500);
/// How long to wait after something went wrong.
const PAUSE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(10);

/// How far a replica is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Followed {
    /// Whose log it follows.
    address: String,
    /// The last record that is here.
    index: u64,
}

/// A part of the log, from a record on: for each record its index, its length and itself.
pub(crate) fn part(reading: &Reading, from: u64) -> Result<Vec<u8>, Trouble> {
    let state = reading.state();
    let applied = state.applied()?;
    let mut part = Vec::new();
    for index in from..=applied {
        let Some(record) = state.record(index)? else {
            let message = "the log before this record is forgotten; start the replica on a copy of the data";
            return Err(Trouble::new(Code::PositionTooOld, message));
        };
        part.extend_from_slice(&index.to_be_bytes());
        part.extend_from_slice(&(record.len() as u32).to_be_bytes());
        part.extend_from_slice(&record);
        if part.len() >= PART_BYTES {
            break;
        }
    }
    Ok(part)
}

fn read_part(mut bytes: &[u8]) -> Result<Vec<(u64, Entry)>, StoreError> {
    let damaged = || StoreError::damaged("what another host sent of its log");
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (index, rest) = bytes.split_first_chunk::<8>().ok_or_else(damaged)?;
        let (len, rest) = rest.split_first_chunk::<4>().ok_or_else(damaged)?;
        let (record, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize).ok_or_else(damaged)?;
        let index = u64::from_be_bytes(*index);
        entries.push((index, Entry::decode(index, record)?));
        bytes = rest;
    }
    Ok(entries)
}

/// Follows the host that writes, for as long as this one does not.
pub(crate) async fn follow(shared: Arc<Shared>) {
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

/// Takes in the next part of the log; false if there is nobody to follow.
async fn follow_once(shared: &Arc<Shared>, current: &Current) -> Result<bool, Trouble> {
    let Some(host) = current.map.rw_host(shared.cluster.this()) else { return Ok(false) };
    let mut followed = load(shared)?;
    if followed.index > 0 && followed.address != host.address {
        let message = format!(
            "this replica followed {}, and {} has another log; start it on an empty data directory",
            followed.address, host.address
        );
        return Err(Trouble::new(Code::ReadOnlyHost, message));
    }
    let message = Message {
        method: Method::GET,
        patience: PATIENCE,
        ..Message::post(&format!("/internal/log?from={}", followed.index + 1), "")
    };
    let answer = shared.cluster.ask(shared, &host.address, &message).await;
    let answer = answer.map_err(|error| Trouble::new(Code::ShardUnreachable, error.to_string()))?;
    if !answer.status().is_success() {
        let why = String::from_utf8_lossy(answer.body()).into_owned();
        return Err(Trouble::new(Code::ShardUnreachable, format!("{} refused: {why}", host.address)));
    }
    // The host that writes is in the same epoch, or it would have refused.
    let is_all = answer.body().len() < PART_BYTES;
    let entries = read_part(answer.body())?;
    if let Some((last, _)) = entries.last() {
        followed = Followed { address: host.address.clone(), index: *last };
        let entries = entries.into_iter().map(|(_, entry)| entry).filter(is_followed).collect::<Vec<_>>();
        let index = shared.shard.replay(&entries, SYSTEM, &put(&followed), shared.clock.now())?;
        shared.shard.shown(index).await?;
    }
    if is_all {
        shared.cluster.caught_up.store(current.map.epoch, Ordering::Release);
    }
    Ok(true)
}

/// What a host keeps for itself is not for others, and each forgets its own history.
fn is_followed(entry: &Entry) -> bool {
    entry.namespace() != Some(SYSTEM) && !matches!(entry, Entry::Trimmed { .. })
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

fn put(followed: &Followed) -> Call {
    let json = serde_json::to_string(followed).expect("it is valid JSON");
    let action = Action::Put { fields: vec![("followed".into(), Json::trusted(&json))], when: PutIf::Always };
    let request = Request { intents: vec![Intent { at: key(), action }], ..Request::default() };
    Call { requests: vec![request], ..Call::default() }
}
