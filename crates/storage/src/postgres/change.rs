//! What a commit changes in PostgreSQL, out of all that it changes. Knows nothing of SQL.
//!
//! | space | where it goes |
//! | --- | --- |
//! | log | table `log` |
//! | snapshots | table `snapshot` |
//! | numbers, actions | table `ledger`, but for the numbers that only the local store needs |
//! | the cache's own note | nowhere |
//! | all others | nowhere: they are a fold over the log |

use crate::{
    state::LAST_PIECE,
    store::{Batch, Slice, Space, StoreError},
};

/// Numbers of the local store: the engine's, and the epoch of the log inside one process.
pub(super) const LOCAL_NUMBERS: [&[u8]; 4] = [b"format", b"spaces", b"scrubbed", b"epoch"];

/// What must survive the node, out of one batch or several.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// New records, and records that are written anew.
    pub(super) records: Vec<(u64, Slice)>,
    /// Records that are dropped.
    pub(super) dropped: Vec<u64>,
    pub(super) ledger: Vec<(Space, Slice, Slice)>,
    pub(super) ledger_dropped: Vec<(Space, Slice)>,
    /// Pieces of snapshots by the index of the snapshot and their number.
    pub(super) parts: Vec<(u64, u32, Slice)>,
    pub(super) parts_dropped: Vec<(u64, u32)>,
}

impl Change {
    /// What of a batch goes to PostgreSQL.
    pub fn of(batch: &Batch) -> Result<Change, StoreError> {
        let mut change = Change::default();
        for (space, key, value) in batch.iter().filter(|(space, key, _)| is_shared(*space, key)) {
            match (space, value) {
                (Space::Log, Some(value)) => change.records.push((read_index(key)?, value.clone())),
                (Space::Log, None) => change.dropped.push(read_index(key)?),
                (Space::Snapshots, Some(value)) => {
                    let (index, part) = read_part(key)?;
                    change.parts.push((index, part, value.clone()));
                }
                (Space::Snapshots, None) => change.parts_dropped.push(read_part(key)?),
                (_, Some(value)) => change.ledger.push((space, key.clone(), value.clone())),
                (_, None) => change.ledger_dropped.push((space, key.clone())),
            }
        }
        Ok(change)
    }

    /// The last record it writes.
    pub(super) fn last(&self) -> Option<u64> {
        self.records.last().map(|(index, _)| *index)
    }

    /// Whether it only appends records behind `last`.
    pub(super) fn only_appends(&self, last: u64) -> bool {
        let Change { records, dropped, ledger, ledger_dropped, parts, parts_dropped } = self;
        records.first().is_some_and(|(index, _)| *index > last)
            && dropped.is_empty()
            && ledger.is_empty()
            && ledger_dropped.is_empty()
            && parts.is_empty()
            && parts_dropped.is_empty()
    }

    /// The last record in a snapshot that it completes.
    pub(super) fn saved(&self) -> Option<u64> {
        self.parts.iter().rev().find(|(_, part, _)| *part == LAST_PIECE).map(|(index, ..)| *index)
    }

    /// In how many pieces that snapshot is.
    pub(super) fn pieces(&self) -> u32 {
        let last = self.parts.iter().rev().find(|(_, part, _)| *part == LAST_PIECE);
        last.and_then(|(.., bytes)| bytes[..].try_into().ok()).map_or(LAST_PIECE, u32::from_be_bytes)
    }

    /// Whether it writes records anew that were there before.
    pub(super) fn rewrites(&self, last: u64) -> bool {
        self.records.first().is_some_and(|(index, _)| *index <= last)
    }
}

/// The part of a batch that goes to PostgreSQL.
pub(super) fn shared(batch: &Batch) -> Batch {
    let mut shared = Batch::default();
    for (space, key, value) in batch.iter().filter(|(space, key, _)| is_shared(*space, key)) {
        match value {
            Some(value) => shared.put(space, key.clone(), value.clone()),
            None => shared.remove(space, key.clone()),
        }
    }
    shared
}

/// Whether a key is kept in PostgreSQL.
pub(super) fn is_shared(space: Space, key: &[u8]) -> bool {
    match space {
        Space::Log | Space::Snapshots | Space::Actions => true,
        Space::Numbers => !LOCAL_NUMBERS.contains(&key),
        _ => false,
    }
}

fn read_index(key: &[u8]) -> Result<u64, StoreError> {
    let damaged = |_| StoreError::damaged("the index of a record of the log");
    key.try_into().map(u64::from_be_bytes).map_err(damaged)
}

fn read_part(key: &[u8]) -> Result<(u64, u32), StoreError> {
    let damaged = || StoreError::damaged("the key of a saved snapshot");
    let (index, part) = key.split_first_chunk::<8>().ok_or_else(damaged)?;
    let part = part.try_into().map_err(|_| damaged())?;
    Ok((u64::from_be_bytes(*index), u32::from_be_bytes(part)))
}
