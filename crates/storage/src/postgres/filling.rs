//! Reads what a cache does not have from PostgreSQL, page by page, and folds it. Knows nothing of whether the cache can be
//! continued, nor of whose it is.

use super::{
    cache::{CacheError, Opened},
    change::{LOCAL_NUMBERS, is_shared},
    log::{Head, Record, ShardLog},
    note::Note,
};
use crate::{
    entry::Entry,
    overlay::Overlay,
    state::{Fold, LAST_PIECE, State, elsewhere, read_piece, snapshot_index},
    store::{Batch, Durability, Order, Slice, Snapshot, Space, Store, StoreError, with_prefix},
};
use std::{collections::BTreeSet, ops::Bound, sync::Arc};

/// So many records are folded in one step, or fewer that have the bytes of a page.
const PAGE_LEN: u32 = 1000;
/// So many records are dropped in one step.
const DROP_LEN: usize = 10_000;

/// A cache on its way.
pub(super) struct Filling<'a> {
    pub(super) cache: Arc<dyn Store>,
    pub(super) note: Note,
    log: &'a ShardLog,
    /// How many records were folded.
    pub(super) folded: u64,
}

impl<'a> Filling<'a> {
    /// A cache that has at least the snapshot.
    pub(super) fn start(opened: Opened, log: &'a ShardLog, head: &Head) -> Result<Filling<'a>, CacheError> {
        let Opened { cache, note, .. } = opened;
        let is_new = note.is_none();
        let mut filling = Filling { cache, note: note.unwrap_or_default(), log, folded: 0 };
        if is_new {
            filling.load_snapshot(head)?;
            filling.fold(head)?;
            // A long fill is not to be done again after a loss of power.
            filling.commit(Batch::default(), Durability::Synced)?;
        }
        Ok(filling)
    }

    /// Goes on with a cache that was filled before.
    pub(super) fn resume(cache: Arc<dyn Store>, note: Note, log: &'a ShardLog) -> Filling<'a> {
        Filling { cache, note, log, folded: 0 }
    }

    /// Brings records, state and snapshot to where the log is.
    pub(super) fn fill(&mut self, head: &Head) -> Result<(), CacheError> {
        self.fold(head)?;
        self.copy_snapshot(head)?;
        self.drop_records(head)?;
        Ok(self.commit(Batch::default(), Durability::Buffered)?)
    }

    /// Changes the cache, and its note with it.
    fn commit(&self, mut batch: Batch, durability: Durability) -> Result<(), StoreError> {
        self.note.put(&mut batch);
        self.cache.commit(&batch, durability)
    }

    /// Puts the state of the last complete snapshot into an empty cache, along with the snapshot itself and the records that
    /// are in it and still there. Has no note before all of it is there.
    fn load_snapshot(&mut self, head: &Head) -> Result<(), CacheError> {
        let Some(index) = head.snapshot else { return Ok(()) };
        let damaged = || StoreError::damaged("a saved snapshot in PostgreSQL");
        each_part(self.log, index, |part, bytes| {
            let mut batch = match part {
                LAST_PIECE => Batch::default(),
                _ => read_piece(&bytes).ok_or_else(damaged)?,
            };
            keep_part(&mut batch, head, (index, part), bytes);
            Ok(self.cache.commit(&batch, Durability::Buffered)?)
        })?;
        let applied = State::new(&*self.cache.snapshot()).applied()?;
        if applied != index {
            return Err(damaged().into());
        }
        self.note = Note { last: index, snapshot: Some(index), rewrites: head.rewrites, ..Note::default() };
        self.copy_records(head.first.unwrap_or(index + 1), index)?;
        Ok(self.commit(Batch::default(), Durability::Buffered)?)
    }

    /// Copies records that are in the state already.
    fn copy_records(&mut self, mut from: u64, to: u64) -> Result<(), CacheError> {
        while from <= to {
            let page = self.log.read(from, PAGE_LEN)?;
            check_follows(from - 1, page.first())?;
            let mut batch = Batch::default();
            for record in page.into_iter().take_while(|record| record.index <= to) {
                Entry::check(record.index, &record.bytes)?;
                check_follows(from - 1, Some(&record))?;
                from = record.index + 1;
                self.note.advance(record.index, record.epoch.0, &record.bytes);
                batch.put(Space::Log, record.index.to_be_bytes(), record.bytes);
            }
            self.cache.commit(&batch, Durability::Buffered)?;
        }
        Ok(())
    }

    /// Reads and folds all records behind the last one.
    fn fold(&mut self, head: &Head) -> Result<(), CacheError> {
        self.note.rewrites = head.rewrites;
        while self.note.last < head.last {
            let page = self.log.read(self.note.last + 1, PAGE_LEN)?;
            check_follows(self.note.last, page.first())?;
            let below = self.cache.snapshot();
            let mut batch = Batch::default();
            for record in page {
                check_follows(self.note.last, Some(&record))?;
                fold_record(&*below, &mut batch, &record)?;
                self.note.advance(record.index, record.epoch.0, &record.bytes);
                self.folded += 1;
            }
            drop(below);
            self.commit(batch, Durability::Buffered)?;
        }
        Ok(())
    }

    /// Replaces the snapshot by that of PostgreSQL, if it is another one. Of a snapshot that nothing here is made from there
    /// is only the last piece, which says that it is elsewhere.
    fn copy_snapshot(&mut self, head: &Head) -> Result<(), CacheError> {
        let snapshot = self.cache.snapshot();
        let is_here = has_all_records(head) || head.snapshot == Some(snapshot_index(&*snapshot)?);
        if self.note.snapshot == head.snapshot && (head.snapshot.is_none() || is_here) {
            return Ok(());
        }
        let older = keys(&*snapshot, Space::Snapshots)?;
        drop(snapshot);
        if let Some(index) = head.snapshot {
            let from = if has_all_records(head) { LAST_PIECE } else { 0 };
            each_part_from(self.log, index, from, |part, bytes| {
                let mut batch = Batch::default();
                keep_part(&mut batch, head, (index, part), bytes);
                Ok(self.cache.commit(&batch, Durability::Buffered)?)
            })?;
        }
        let mut batch = Batch::default();
        let kept = head.snapshot.map(u64::to_be_bytes);
        let is_stale = |key: &Slice| kept.is_none_or(|kept| !key.starts_with(&kept));
        older.into_iter().filter(is_stale).for_each(|key| batch.remove(Space::Snapshots, key));
        self.note.snapshot = head.snapshot;
        Ok(self.commit(batch, Durability::Buffered)?)
    }

    /// Drops the records that PostgreSQL does not have any more.
    fn drop_records(&self, head: &Head) -> Result<(), CacheError> {
        let first = head.first.unwrap_or(head.last + 1);
        let range = || (Bound::Unbounded, Bound::Excluded(first.to_be_bytes().to_vec()));
        loop {
            let snapshot = self.cache.snapshot();
            let mut batch = Batch::default();
            for pair in snapshot.scan(Space::Log, range(), Order::Forward).take(DROP_LEN) {
                batch.remove(Space::Log, pair?.0);
            }
            if batch.is_empty() {
                return Ok(());
            }
            self.cache.commit(&batch, Durability::Buffered)?;
        }
    }

    /// Makes numbers and actions the same as in PostgreSQL, but for those that are the local store's own.
    pub(super) fn copy_ledger(&self) -> Result<(), CacheError> {
        let snapshot = self.cache.snapshot();
        let mut gone: BTreeSet<(Space, Slice)> = BTreeSet::new();
        for space in [Space::Numbers, Space::Actions] {
            let found = keys(&*snapshot, space)?;
            gone.extend(found.into_iter().filter(|key| is_shared(space, key)).map(|key| (space, key)));
        }
        let mut after = (None, Vec::new());
        loop {
            let page = self.log.ledger(after)?;
            let Some((space, key, _)) = page.last() else { break };
            after = (Some(*space), key.clone());
            let mut batch = Batch::default();
            for (space, key, value) in page {
                let key = Slice::from(key);
                gone.remove(&(space, key.clone()));
                if !LOCAL_NUMBERS.contains(&&*key)
                    && snapshot.get(space, &key)?.as_deref() != Some(&value[..])
                {
                    batch.put(space, key, value);
                }
            }
            self.cache.commit(&batch, Durability::Buffered)?;
        }
        let mut batch = Batch::default();
        gone.into_iter().for_each(|(space, key)| batch.remove(space, key));
        Ok(self.cache.commit(&batch, Durability::Buffered)?)
    }
}

/// Folds a record over what is below and in the batch already. The bytes stay those of the log.
fn fold_record(below: &dyn Snapshot, batch: &mut Batch, record: &Record) -> Result<(), StoreError> {
    let entry = Entry::decode(record.index, &record.bytes)?;
    let view = Overlay { below, above: batch };
    let mut fold = Fold::new(&view, record.index);
    fold.apply(&entry)?;
    let mut changes = fold.finish(&entry)?;
    changes.put(Space::Log, record.index.to_be_bytes(), record.bytes.clone());
    batch.absorb(changes);
    Ok(())
}

/// Whether no record was dropped, so that the state can be made from the log alone.
fn has_all_records(head: &Head) -> bool {
    head.first == Some(1)
}

/// Keeps a piece of a snapshot beside the state, if something here is made from it.
fn keep_part(batch: &mut Batch, head: &Head, (index, part): (u64, u32), bytes: Vec<u8>) {
    match (has_all_records(head), part) {
        (false, _) => batch.put(Space::Snapshots, part_key(index, part), bytes),
        (true, LAST_PIECE) => batch.put(Space::Snapshots, part_key(index, part), elsewhere(&bytes)),
        (true, _) => {}
    }
}

/// Each piece of a snapshot, the one that says that all are there last.
fn each_part(
    log: &ShardLog,
    index: u64,
    take: impl FnMut(u32, Vec<u8>) -> Result<(), CacheError>,
) -> Result<(), CacheError> {
    each_part_from(log, index, 0, take)
}

/// The same from one piece on.
fn each_part_from(
    log: &ShardLog,
    index: u64,
    mut from: u32,
    mut take: impl FnMut(u32, Vec<u8>) -> Result<(), CacheError>,
) -> Result<(), CacheError> {
    loop {
        let page = log.parts(index, from)?;
        if page.is_empty() {
            return Err(StoreError::damaged("a saved snapshot in PostgreSQL").into());
        }
        for (part, bytes) in page {
            take(part, bytes)?;
            match part.checked_add(1) {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }
}

fn check_follows(last: u64, record: Option<&Record>) -> Result<(), StoreError> {
    match record {
        Some(record) if record.index == last + 1 => Ok(()),
        _ => {
            let what = format!("the log in PostgreSQL, which has no record {},", last + 1);
            Err(StoreError::damaged(what))
        }
    }
}

fn part_key(index: u64, part: u32) -> Vec<u8> {
    [&index.to_be_bytes()[..], &part.to_be_bytes()].concat()
}

fn keys(snapshot: &dyn Snapshot, space: Space) -> Result<Vec<Slice>, StoreError> {
    snapshot.scan(space, with_prefix(b""), Order::Forward).map(|pair| Ok(pair?.0)).collect()
}
