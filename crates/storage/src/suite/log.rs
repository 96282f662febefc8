//! What every log does: one owner at a time, records in order, nothing missing unnoticed.

use super::Machine;
use crate::{
    Appended, Batch, Claim, Durability, Entry, Epoch, Fold, LocalLog, Log, Space, State, Store, StoreError,
};
use std::sync::Arc;

fn entry(number: u64) -> Entry {
    Entry::Reserved { namespace: "n".into(), collection: "c".into(), next: number }
}

/// The record `index` with all it changes.
fn record(store: &dyn Store, index: u64) -> Batch {
    let snapshot = store.snapshot();
    let mut fold = Fold::new(&*snapshot, index);
    fold.apply(&entry(index)).unwrap();
    fold.finish(&entry(index)).unwrap()
}

fn append(log: &dyn Log, store: &dyn Store, epoch: Epoch, index: u64) -> Appended {
    log.append(epoch, index - 1, &record(store, index))
}

#[track_caller]
fn done(appended: &Appended) {
    assert!(matches!(appended, Appended::Done), "{appended:?}");
}

fn indexes(log: &dyn Log, from: u64, len_max: usize) -> Vec<u64> {
    let read = log.read(from, len_max).unwrap();
    read.iter().for_each(|(index, found)| assert_eq!(*found, entry(*index)));
    read.into_iter().map(|(index, _)| index).collect()
}

pub(super) fn a_claim_fences_every_earlier_owner(machine: &mut dyn Machine) {
    let store = machine.store();
    let log = LocalLog::new(Arc::clone(&store));
    assert!(matches!(log.append(Epoch(1), 0, &record(&*store, 1)), Appended::Fenced(_)), "nobody claimed it");
    let first = log.claim().unwrap();
    done(&append(&log, &*store, first.epoch, 1));
    let second = log.claim().unwrap();
    assert!(second.epoch > first.epoch);
    assert_eq!(second.last, 1);
    let fenced = append(&log, &*store, first.epoch, 2);
    assert!(matches!(fenced, Appended::Fenced(by) if by == second.epoch), "{fenced:?}");
    assert!(matches!(log.trim(first.epoch, 1), Appended::Fenced(_)));
    done(&append(&log, &*store, second.epoch, 2));
    // Another owner need not be in the same hands.
    let other = LocalLog::new(Arc::clone(&store));
    let third = other.claim().unwrap();
    let fenced = append(&log, &*store, second.epoch, 3);
    assert!(matches!(fenced, Appended::Fenced(by) if by == third.epoch), "{fenced:?}");
    done(&append(&other, &*store, third.epoch, 3));
    drop((store, log, other));
    machine.restart();
    let log = LocalLog::new(machine.store());
    let fourth = log.claim().unwrap();
    assert!(fourth.epoch > third.epoch, "epochs do not start again");
    assert_eq!(indexes(&log, 1, 9), [1, 2, 3]);
}

pub(super) fn an_append_at_another_place_is_refused(machine: &mut dyn Machine) {
    let store = machine.store();
    let log = LocalLog::new(Arc::clone(&store));
    let Claim { epoch, last } = log.claim().unwrap();
    assert_eq!(last, 0);
    done(&append(&log, &*store, epoch, 1));
    done(&append(&log, &*store, epoch, 2));
    for expected in [0, 1, 3] {
        let moved = log.append(epoch, expected, &record(&*store, expected + 1));
        assert!(matches!(moved, Appended::Moved { last: 2 }), "{moved:?}");
    }
    assert_eq!(indexes(&log, 1, 9), [1, 2]);
}

pub(super) fn records_are_read_in_order_and_trimmed(machine: &mut dyn Machine) {
    let store = machine.store();
    let log = LocalLog::new(Arc::clone(&store));
    let Claim { epoch, .. } = log.claim().unwrap();
    (1..=9).for_each(|index| done(&append(&log, &*store, epoch, index)));
    assert_eq!(indexes(&log, 0, 100), (1..=9).collect::<Vec<_>>());
    assert_eq!(indexes(&log, 4, 3), [4, 5, 6]);
    assert_eq!(indexes(&log, 10, 3), [0; 0]);
    let mut saved = Batch::default();
    saved.put(Space::Snapshots, [&3u64.to_be_bytes()[..], &u32::MAX.to_be_bytes()].concat(), [0; 4]);
    store.commit(&saved, Durability::Synced).unwrap();
    done(&log.trim(epoch, 3));
    done(&log.trim(epoch, 3));
    assert_eq!(indexes(&log, 0, 2), [4, 5]);
    done(&append(&log, &*store, epoch, 10));
    drop((store, log));
    machine.restart();
    let log = LocalLog::new(machine.store());
    assert_eq!(log.claim().unwrap().last, 10);
    assert_eq!(indexes(&log, 0, 100), (4..=10).collect::<Vec<_>>());
}

pub(super) fn a_gap_or_a_damaged_record_is_reported(machine: &mut dyn Machine) {
    let store = machine.store();
    let log = LocalLog::new(Arc::clone(&store));
    let Claim { epoch, .. } = log.claim().unwrap();
    (1..=5).for_each(|index| done(&append(&log, &*store, epoch, index)));
    let tamper = |value: Option<Vec<u8>>| {
        let mut batch = Batch::default();
        match value {
            None => batch.remove(Space::Log, 3u64.to_be_bytes()),
            Some(value) => batch.put(Space::Log, 3u64.to_be_bytes(), value),
        }
        store.commit(&batch, Durability::Synced).unwrap();
        let error = log.read(1, 9).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        error.to_string()
    };
    let mut record = entry(3).encode();
    *record.last_mut().unwrap() ^= 1;
    assert!(tamper(Some(record)).contains("record 3"));
    assert!(tamper(None).contains("between 2 and 4"));
}

pub(super) fn the_state_and_the_log_change_in_one_step(machine: &mut dyn Machine) {
    let store = machine.store();
    let log = LocalLog::new(Arc::clone(&store));
    let Claim { epoch, .. } = log.claim().unwrap();
    (1..=4).for_each(|index| done(&append(&log, &*store, epoch, index)));
    store.commit(&record(&*store, 5), Durability::Buffered).unwrap();
    drop((store, log));
    machine.restart();
    let last = LocalLog::new(machine.store()).claim().unwrap().last;
    let snapshot = machine.store().snapshot();
    let state = State::new(&*snapshot);
    assert!(last >= 4);
    assert_eq!(state.applied().unwrap(), last);
    let namespace = state.namespace("n").unwrap().unwrap();
    assert_eq!(state.next_id(namespace, "c").unwrap(), last);
}
