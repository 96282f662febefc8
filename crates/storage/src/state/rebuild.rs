//! Making the state anew: saved snapshots of it, replays of the log on top, and whether what is there is what
//! would come out. Knows nothing of who serves meanwhile.

use super::{
    fold::Fold,
    index::IndexState,
    keys,
    read::{NamespaceId, State},
};
use crate::{
    log::{last_index, records},
    store::{Batch, Durability, Order, Pair, Slice, Snapshot, Space, Store, StoreError, with_prefix},
};
use std::{collections::BTreeSet, ops::Bound};

/// A saved snapshot consists of pieces of about this size.
const PIECE_BYTES: usize = 256 * 1024;
/// So many records are replayed in one step.
const REPLAY_LEN: usize = 1000;
/// No more differences than this are named.
const DIFFERENCES_MAX: usize = 20;
/// The number of the piece that says that all are there.
pub(crate) const LAST_PIECE: u32 = u32::MAX;

/// A key that has another value than a rebuild gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where.
    pub space: Space,
    /// Which key.
    pub key: Vec<u8>,
    /// Whether it is there.
    pub found: bool,
    /// Whether it should be.
    pub expected: bool,
}

/// Saves the state that `source` shows into `target`, so that the log before it can be dropped. Gives the
/// index of the last record in it.
pub fn save_snapshot(source: &dyn Snapshot, target: &dyn Store) -> Result<u64, StoreError> {
    let saved = save_snapshot_while(source, target, &mut || true)?;
    Ok(saved.expect("nothing stopped it"))
}

/// The same, asking after each piece whether to go on; none if not. Pieces that are there by then are those of no snapshot.
pub fn save_snapshot_while(
    source: &dyn Snapshot,
    target: &dyn Store,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<u64>, StoreError> {
    let index = State::new(source).applied()?;
    let older: Vec<Slice> = snapshot_keys(source)?;
    let mut piece = Piece::default();
    let mut number = 0;
    for space in Space::STATE {
        for pair in source.scan(space, with_prefix(b""), Order::Forward) {
            let (key, value) = pair?;
            piece.push(space, &key, &value);
            if piece.bytes >= PIECE_BYTES {
                write_piece(target, index, number, &std::mem::take(&mut piece))?;
                number += 1;
                if !go_on() {
                    return Ok(None);
                }
            }
        }
    }
    write_piece(target, index, number, &piece)?;
    let mut last = Batch::default();
    // A snapshot of the same moment may be there already; its pieces have just been written again.
    let stale = older.into_iter().filter(|key| !key.starts_with(&index.to_be_bytes()));
    stale.for_each(|key| last.remove(Space::Snapshots, key));
    last.put(Space::Snapshots, snapshot_key(index, LAST_PIECE), (number + 1).to_be_bytes());
    target.commit(&last, Durability::Synced)?;
    Ok(Some(index))
}

/// What a node without a cache has to read at its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unsaved {
    /// The last record in the last snapshot; 0 if there is none.
    pub saved: u64,
    /// About how large that is.
    pub saved_bytes: u64,
    /// The last record that was counted.
    pub last: u64,
    /// How large the records behind the snapshot are, up to that one.
    pub bytes: u64,
}

impl Unsaved {
    /// Counts what came since the last count, or since the last snapshot.
    pub fn count(&mut self, source: &dyn Snapshot) -> Result<(), StoreError> {
        let (saved, pieces) = last_snapshot(source)?;
        if *self == Unsaved::default() || self.saved != saved {
            *self = Unsaved { saved, saved_bytes: pieces * PIECE_BYTES as u64, last: saved, bytes: 0 };
        }
        let range = (Bound::Excluded(self.last.to_be_bytes().to_vec()), Bound::Unbounded);
        for pair in source.scan(Space::Log, range, Order::Forward) {
            let (key, record) = pair?;
            self.last = crate::log::read_index(&key)?;
            self.bytes += record.len() as u64;
        }
        Ok(())
    }

    /// How many records are behind the snapshot.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.last - self.saved
    }
}

/// The last record in the last complete snapshot, here or elsewhere, and in how many pieces it is.
fn last_snapshot(source: &dyn Snapshot) -> Result<(u64, u64), StoreError> {
    let damaged = || StoreError::damaged("a saved snapshot");
    for pair in source.scan(Space::Snapshots, with_prefix(b""), Order::Backward) {
        let (key, pieces) = pair?;
        let (index, number) = key.split_first_chunk::<8>().ok_or_else(damaged)?;
        if number == LAST_PIECE.to_be_bytes() {
            let (pieces, _) = pieces.split_first_chunk::<4>().ok_or_else(damaged)?;
            return Ok((u64::from_be_bytes(*index), u64::from(u32::from_be_bytes(*pieces))));
        }
    }
    Ok((0, 0))
}

/// The last piece of a snapshot whose other pieces are elsewhere, made of its last piece there.
pub(crate) fn elsewhere(last_piece: &[u8]) -> Vec<u8> {
    [last_piece, b"elsewhere"].concat()
}

fn is_here(last_piece: &[u8]) -> bool {
    last_piece.len() == size_of::<u32>()
}

fn snapshot_keys(source: &dyn Snapshot) -> Result<Vec<Slice>, StoreError> {
    source.scan(Space::Snapshots, with_prefix(b""), Order::Forward).map(|pair| Ok(pair?.0)).collect()
}

fn snapshot_key(index: u64, number: u32) -> Vec<u8> {
    [&index.to_be_bytes()[..], &number.to_be_bytes()].concat()
}

/// Keys and values with their spaces.
#[derive(Default)]
struct Piece {
    pairs: Vec<(u8, Vec<u8>, Vec<u8>)>,
    bytes: usize,
}

impl Piece {
    fn push(&mut self, space: Space, key: &[u8], value: &[u8]) {
        self.bytes += key.len() + value.len();
        self.pairs.push((space as u8, key.to_vec(), value.to_vec()));
    }
}

fn write_piece(target: &dyn Store, index: u64, number: u32, piece: &Piece) -> Result<(), StoreError> {
    let mut record = postcard::to_extend(&piece.pairs, vec![0; 4]).expect("pieces can be encoded");
    let sum = crc32fast::hash(&record[4..]);
    record[..4].copy_from_slice(&sum.to_be_bytes());
    let mut batch = Batch::default();
    batch.put(Space::Snapshots, snapshot_key(index, number), record);
    target.commit(&batch, Durability::Buffered)
}

/// Makes the state of `target`, which is empty, out of the snapshot and the log that `source` shows. Gives
/// the last record in it.
pub fn rebuild(
    source: &dyn Snapshot,
    target: &dyn Store,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, StoreError> {
    let start = load_snapshot(source, target)?;
    copy_records(source, target, start)?;
    let last = last_index(source)?;
    let mut batch = Batch::default();
    for (count, record) in records(source, start + 1).enumerate() {
        let (index, entry) = record?;
        if count == 0 && index != start + 1 {
            let what = format!("the log: it starts at {index}, after a snapshot at {start}; it");
            return Err(StoreError::damaged(what));
        }
        let below = target.snapshot();
        let view = crate::overlay::Overlay { below: &*below, above: &batch };
        let mut fold = Fold::new(&view, index);
        fold.apply(&entry)?;
        let changes = fold.finish(&entry)?;
        batch.absorb(changes);
        if (count + 1) % REPLAY_LEN == 0 {
            target.commit(&std::mem::take(&mut batch), Durability::Buffered)?;
            progress(index, last);
        }
    }
    target.commit(&batch, Durability::Synced)?;
    fill_indexes(target)?;
    progress(last, last);
    Ok(last)
}

/// The last record in the last complete snapshot that is here; 0 if there is none.
pub(crate) fn snapshot_index(source: &dyn Snapshot) -> Result<u64, StoreError> {
    let mut range = with_prefix(b"");
    loop {
        let Some(pair) = source.scan(Space::Snapshots, range, Order::Backward).next() else { return Ok(0) };
        let (key, value) = pair?;
        let damaged = || StoreError::damaged("a saved snapshot");
        let (index, number) = key.split_first_chunk::<8>().ok_or_else(damaged)?;
        if number == LAST_PIECE.to_be_bytes() && is_here(&value) {
            return Ok(u64::from_be_bytes(*index));
        }
        // Its last piece was never written; one that was saved before is complete.
        range = (Bound::Unbounded, Bound::Excluded(index.to_vec()));
    }
}

/// Whether anything of a snapshot is saved that was taken before the record `index`.
pub fn has_snapshot_before(source: &dyn Snapshot, index: u64) -> Result<bool, StoreError> {
    let range = (Bound::Unbounded, Bound::Excluded(index.to_be_bytes().to_vec()));
    Ok(source.scan(Space::Snapshots, range, Order::Forward).next().transpose()?.is_some())
}

/// Puts the last complete snapshot into `target`; gives its index, or 0.
fn load_snapshot(source: &dyn Snapshot, target: &dyn Store) -> Result<u64, StoreError> {
    let damaged = || StoreError::damaged("a saved snapshot");
    let index = snapshot_index(source)?;
    if index == 0 {
        return Ok(0);
    }
    let pieces = source.get(Space::Snapshots, &snapshot_key(index, LAST_PIECE))?.ok_or_else(damaged)?;
    let pieces = pieces[..].try_into().map(u32::from_be_bytes).map_err(|_| damaged())?;
    for number in 0..pieces {
        let record = source.get(Space::Snapshots, &snapshot_key(index, number))?.ok_or_else(damaged)?;
        target.commit(&read_piece(&record).ok_or_else(damaged)?, Durability::Buffered)?;
    }
    Ok(index)
}

/// The part of the state in a piece of a snapshot; nothing if it is damaged.
pub(crate) fn read_piece(record: &[u8]) -> Option<Batch> {
    let (sum, body) = record.split_first_chunk::<4>()?;
    if crc32fast::hash(body) != u32::from_be_bytes(*sum) {
        return None;
    }
    let pairs: Vec<(u8, Vec<u8>, Vec<u8>)> = postcard::from_bytes(body).ok()?;
    let mut batch = Batch::default();
    for (space, key, value) in pairs {
        batch.put(*Space::ALL.get(space as usize)?, key, value);
    }
    Some(batch)
}

/// The records that are in the snapshot and still in the log: trims look at them.
fn copy_records(source: &dyn Snapshot, target: &dyn Store, to: u64) -> Result<(), StoreError> {
    let mut batch = Batch::default();
    // Read as well, so that none that is damaged or missing goes unnoticed.
    for (count, record) in records(source, 0).enumerate() {
        let (index, entry) = record?;
        if index > to {
            break;
        }
        batch.put(Space::Log, index.to_be_bytes(), entry.encode());
        if (count + 1) % REPLAY_LEN == 0 {
            target.commit(&std::mem::take(&mut batch), Durability::Buffered)?;
        }
    }
    target.commit(&batch, Durability::Buffered)
}

/// Completes the indexes that are being built.
fn fill_indexes(target: &dyn Store) -> Result<(), StoreError> {
    let snapshot = target.snapshot();
    for (_, namespace) in State::new(&*snapshot).namespaces()? {
        for (collection, index) in State::new(&*snapshot).all_indexes(namespace)? {
            if index.state == IndexState::Building {
                fill_index(target, (namespace, &collection), &index)?;
            }
        }
    }
    Ok(())
}

fn fill_index(
    target: &dyn Store,
    place: (NamespaceId, &str),
    index: &super::index::IndexInfo,
) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let snapshot = target.snapshot();
        let state = State::new(&*snapshot);
        let mut batch = Batch::default();
        after = state.fill_index(&mut batch, place, index, after)?;
        if after.is_none() {
            state.finish_index(&mut batch, place, &index.field)?;
        }
        target.commit(&batch, Durability::Buffered)?;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Rebuilds the state of `source` in `scratch`, which is empty, and compares.
pub fn verify(
    source: &dyn Snapshot,
    scratch: &dyn Store,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Difference>, StoreError> {
    rebuild(source, scratch, progress)?;
    let rebuilt = scratch.snapshot();
    let unfinished = Unfinished::of(source)?;
    let mut differences = Vec::new();
    for space in Space::STATE {
        compare(space, source, &*rebuilt, &unfinished, &mut differences)?;
    }
    Ok(differences)
}

/// The indexes that are being built. A rebuild completes them, and so does the next start.
struct Unfinished {
    numbers: BTreeSet<[u8; 4]>,
    lists: BTreeSet<Vec<u8>>,
}

impl Unfinished {
    fn of(source: &dyn Snapshot) -> Result<Unfinished, StoreError> {
        let state = State::new(source);
        let mut unfinished = Unfinished { numbers: BTreeSet::new(), lists: BTreeSet::new() };
        for (_, namespace) in state.namespaces()? {
            for (collection, index) in state.all_indexes(namespace)? {
                if index.state == IndexState::Building {
                    unfinished.numbers.insert(index.number.to_be_bytes());
                    unfinished.lists.insert(keys::meta::collection_indexes(namespace.0, &collection));
                }
            }
        }
        Ok(unfinished)
    }

    fn has(&self, space: Space, key: &[u8]) -> bool {
        match space {
            Space::Indexes => key.first_chunk().is_some_and(|number| self.numbers.contains(number)),
            Space::Meta => self.lists.contains(key),
            _ => false,
        }
    }
}

fn compare(
    space: Space,
    found: &dyn Snapshot,
    expected: &dyn Snapshot,
    unfinished: &Unfinished,
    differences: &mut Vec<Difference>,
) -> Result<(), StoreError> {
    let all = |snapshot| {
        let is_built = |pair: &Pair| pair.as_ref().is_ok_and(|(key, _)| !unfinished.has(space, key));
        let pairs = Snapshot::scan(snapshot, space, with_prefix(b""), Order::Forward);
        pairs.filter(move |pair| pair.is_err() || is_built(pair))
    };
    let (mut found, mut expected) = (all(found).peekable(), all(expected).peekable());
    while differences.len() < DIFFERENCES_MAX {
        let (a, b) = (found.peek().cloned().transpose()?, expected.peek().cloned().transpose()?);
        let (key, in_found, in_expected) = match (a, b) {
            (None, None) => return Ok(()),
            (Some((a, _)), Some((b, _))) if a < b => (a, true, false),
            (Some((a, x)), Some((b, y))) if a == b => {
                found.next();
                expected.next();
                if x != y {
                    differences.push(Difference { space, key: a.to_vec(), found: true, expected: true });
                }
                continue;
            }
            (Some((a, _)), None) => (a, true, false),
            (_, Some((b, _))) => (b, false, true),
        };
        if in_found {
            found.next();
        } else {
            expected.next();
        }
        differences.push(Difference { space, key: key.to_vec(), found: in_found, expected: in_expected });
    }
    Ok(())
}
