//! The part of the ledger that says for which namespaces the next start has to wait, and how long. Knows nothing of
//! why, nor of clocks.
//!
//! | key | value | meaning |
//! | --- | --- | --- |
//! | `grace/NAMESPACE` | two numbers of 8 bytes | a [`GraceRecord`] |
//! | `grace_held/NAMESPACE` | names, one a line | after a planned stop: all sessions that may still hold locks |
//! | `grace_elapsed_ms` | 8 bytes | how much of every period this run has waited out |
//! | `grace_ms` | 8 bytes | the period of all namespaces without a record; only earlier formats set it |

use crate::{
    ledger::{Ledger, damaged},
    store::{Batch, Durability, Order, Space, StoreError, with_prefix},
};
use std::sync::Arc;

const EVERYWHERE: &str = "grace_ms";
const ELAPSED: &str = "grace_elapsed_ms";
const NAMESPACE: &str = "grace/";
const HELD: &str = "grace_held/";

/// What the ledger keeps for one namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GraceRecord {
    /// The grace period, as it was when this run began.
    pub period_ms: u64,
    /// How long the locks of this run may outlive it.
    pub cover_ms: u64,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GraceBook {
    /// The period of all namespaces that have no record of their own.
    pub everywhere_ms: u64,
    /// How much of the periods is over.
    pub elapsed_ms: u64,
    /// By namespace.
    pub namespaces: Vec<(Arc<str>, GraceRecord)>,
    /// The sessions that may still hold locks, of namespaces in which that is known. Good for one start.
    pub holders: Vec<(Arc<str>, Vec<String>)>,
}

impl GraceBook {
    /// The same as a run finds it that begins now: what is left of the periods, or what the run before has to be
    /// waited out for, whichever is longer.
    pub fn begun(&self) -> GraceBook {
        let left = |period_ms: u64| period_ms.saturating_sub(self.elapsed_ms);
        let everywhere_ms = left(self.everywhere_ms);
        let begun = |record: &GraceRecord| GraceRecord {
            period_ms: left(record.period_ms).max(record.cover_ms),
            cover_ms: 0,
        };
        // A record that says nothing still makes an exception of its namespace.
        let says = |record: &GraceRecord| record.period_ms > 0 || everywhere_ms > 0;
        let namespaces = self.namespaces.iter().map(|(name, record)| (Arc::clone(name), begun(record)));
        let namespaces = namespaces.filter(|(_, record)| says(record)).collect();
        GraceBook { everywhere_ms, elapsed_ms: 0, namespaces, holders: Vec::new() }
    }
}

impl Ledger {
    pub(crate) fn grace(&self) -> Result<GraceBook, StoreError> {
        let mut namespaces = Vec::new();
        let snapshot = self.store.snapshot();
        for pair in snapshot.scan(Space::Numbers, with_prefix(NAMESPACE.as_bytes()), Order::Forward) {
            let (key, value) = pair?;
            let name = std::str::from_utf8(&key[NAMESPACE.len()..]).map_err(|_| damaged(NAMESPACE))?;
            namespaces.push((name.into(), decode(&value).ok_or_else(|| damaged(NAMESPACE))?));
        }
        let mut holders = Vec::new();
        for pair in snapshot.scan(Space::Numbers, with_prefix(HELD.as_bytes()), Order::Forward) {
            let (key, value) = pair?;
            let name = std::str::from_utf8(&key[HELD.len()..]).map_err(|_| damaged(HELD))?;
            let sessions = std::str::from_utf8(&value).map_err(|_| damaged(HELD))?;
            holders.push((name.into(), sessions.lines().map(str::to_owned).collect()));
        }
        Ok(GraceBook {
            everywhere_ms: self.number(EVERYWHERE)?.unwrap_or(0),
            elapsed_ms: self.number(ELAPSED)?.unwrap_or(0),
            namespaces,
            holders,
        })
    }

    /// Replaces all of it.
    pub fn begin_grace(&self, before: &GraceBook, now: &GraceBook) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        for (name, _) in &before.namespaces {
            batch.remove(Space::Numbers, key(name).as_str());
        }
        for (name, record) in &now.namespaces {
            batch.put(Space::Numbers, key(name).as_str(), encode(*record));
        }
        for (name, _) in &before.holders {
            batch.remove(Space::Numbers, held_key(name).as_str());
        }
        batch.put(Space::Numbers, EVERYWHERE, now.everywhere_ms.to_be_bytes());
        batch.put(Space::Numbers, ELAPSED, now.elapsed_ms.to_be_bytes());
        self.store.commit(&batch, Durability::Synced)
    }

    /// Replaces some of the records, or removes them.
    pub fn record_grace(&self, records: &[(Arc<str>, Option<GraceRecord>)]) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        for (name, record) in records {
            match record {
                Some(record) => batch.put(Space::Numbers, key(name).as_str(), encode(*record)),
                None => batch.remove(Space::Numbers, key(name).as_str()),
            }
        }
        self.store.commit(&batch, Durability::Synced)
    }

    /// Notes which sessions may still hold locks; nothing changes after that in this run.
    pub fn record_holders(&self, holders: &[(Arc<str>, Vec<String>)]) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        for (name, sessions) in holders {
            batch.put(Space::Numbers, held_key(name).as_str(), sessions.join("\n").as_bytes());
        }
        self.store.commit(&batch, Durability::Synced)
    }

    /// Replaces all that is kept for one namespace, and who may still hold locks there, if that is known.
    pub fn replace_grace(
        &self,
        namespace: &str,
        record: Option<GraceRecord>,
        holders: Option<&[String]>,
    ) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        match record {
            Some(record) => batch.put(Space::Numbers, key(namespace).as_str(), encode(record)),
            None => batch.remove(Space::Numbers, key(namespace).as_str()),
        }
        match holders {
            Some(holders) => {
                batch.put(Space::Numbers, held_key(namespace).as_str(), holders.join("\n").as_bytes());
            }
            None => batch.remove(Space::Numbers, held_key(namespace).as_str()),
        }
        self.store.commit(&batch, Durability::Synced)
    }

    /// Notes how much of the periods is over.
    pub fn set_grace_elapsed(&self, elapsed_ms: u64) -> Result<(), StoreError> {
        self.put(ELAPSED, &elapsed_ms.to_be_bytes())
    }

    /// The period of all namespaces without a record is over.
    pub fn end_grace_everywhere(&self) -> Result<(), StoreError> {
        self.put(EVERYWHERE, &0u64.to_be_bytes())
    }
}

fn key(namespace: &str) -> String {
    format!("{NAMESPACE}{namespace}")
}

fn held_key(namespace: &str) -> String {
    format!("{HELD}{namespace}")
}

fn encode(record: GraceRecord) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&record.period_ms.to_be_bytes());
    bytes[8..].copy_from_slice(&record.cover_ms.to_be_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<GraceRecord> {
    let (period, cover) = bytes.split_first_chunk()?;
    let (period_ms, cover_ms) = (u64::from_be_bytes(*period), u64::from_be_bytes(cover.try_into().ok()?));
    Some(GraceRecord { period_ms, cover_ms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{memory::Memory, store::Store};

    fn record(period_ms: u64, cover_ms: u64) -> GraceRecord {
        GraceRecord { period_ms, cover_ms }
    }

    fn book(everywhere_ms: u64, elapsed_ms: u64, namespaces: &[(&str, u64, u64)]) -> GraceBook {
        let entry = |(name, period, cover): &(&str, u64, u64)| ((*name).into(), record(*period, *cover));
        let namespaces = namespaces.iter().map(entry).collect();
        GraceBook { everywhere_ms, elapsed_ms, namespaces, holders: Vec::new() }
    }

    fn open(memory: &Memory) -> (Ledger, GraceBook) {
        let (ledger, recovered) = Ledger::open(Arc::new(memory.clone()), [1; 32]).unwrap();
        (ledger, recovered.grace)
    }

    #[test]
    fn holders_are_good_for_one_start() {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let (ledger, _) = Ledger::open(Arc::clone(&store), [1; 32]).unwrap();
        let holders = vec![("a".into(), vec!["s1".to_owned(), "s2".to_owned()])];
        ledger.record_holders(&holders).unwrap();
        let (ledger, recovered) = Ledger::open(Arc::clone(&store), [1; 32]).unwrap();
        assert_eq!(recovered.grace.holders, holders);
        ledger.begin_grace(&recovered.grace, &recovered.grace.begun()).unwrap();
        assert_eq!(Ledger::open(store, [1; 32]).unwrap().1.grace.holders, []);
    }

    #[test]
    fn all_that_is_kept_for_a_namespace_is_replaced_at_once() {
        let memory = Memory::default();
        let (ledger, _) = open(&memory);
        let holders = ["s1".to_owned()];
        ledger.replace_grace("a", Some(record(0, 9)), Some(&holders)).unwrap();
        ledger.replace_grace("b", Some(record(0, 8)), Some(&holders)).unwrap();
        ledger.replace_grace("b", Some(record(0, 7)), None).unwrap();
        ledger.replace_grace("c", Some(record(0, 6)), None).unwrap();
        ledger.replace_grace("c", None, None).unwrap();
        let (_, found) = open(&memory);
        let expected = GraceBook {
            holders: vec![("a".into(), holders.to_vec())],
            ..book(0, 0, &[("a", 0, 9), ("b", 0, 7)])
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_recorded_is_found_again() {
        let memory = Memory::default();
        let (ledger, found) = open(&memory);
        assert_eq!(found, GraceBook::default());
        let records = [("a", record(5, 7)), ("b", record(0, 9)), ("a/b", record(1, 1))];
        let records: Vec<_> = records.into_iter().map(|(name, record)| (name.into(), Some(record))).collect();
        ledger.record_grace(&records).unwrap();
        ledger.record_grace(&[("b".into(), None)]).unwrap();
        ledger.set_grace_elapsed(3).unwrap();
        let (ledger, found) = open(&memory);
        assert_eq!(found, book(0, 3, &[("a", 5, 7), ("a/b", 1, 1)]));
        ledger.begin_grace(&found, &found.begun()).unwrap();
        let (_, found) = open(&memory);
        assert_eq!(found, book(0, 0, &[("a", 7, 0), ("a/b", 1, 0)]));
    }

    #[test]
    fn the_figure_of_earlier_versions_is_the_period_of_all_namespaces() {
        let memory = Memory::default();
        let (ledger, _) = open(&memory);
        ledger.put("grace_ms", &60_000u64.to_be_bytes()).unwrap();
        let (ledger, found) = open(&memory);
        assert_eq!(found, book(60_000, 0, &[]));
        ledger.end_grace_everywhere().unwrap();
        assert_eq!(open(&memory).1, GraceBook::default());
    }

    #[test]
    fn a_new_run_waits_for_what_is_left_or_for_the_locks_of_the_last_one() {
        let check = |before: GraceBook, after: GraceBook| assert_eq!(before.begun(), after, "{before:?}");
        check(book(0, 0, &[("a", 0, 60)]), book(0, 0, &[("a", 60, 0)]));
        check(book(0, 40, &[("a", 60, 0)]), book(0, 0, &[("a", 20, 0)]));
        check(book(0, 40, &[("a", 60, 30)]), book(0, 0, &[("a", 30, 0)]));
        check(book(0, 70, &[("a", 60, 0)]), book(0, 0, &[]));
        check(book(50, 40, &[("a", 0, 0), ("b", 0, 30)]), book(10, 0, &[("a", 0, 0), ("b", 30, 0)]));
        check(book(50, 50, &[("a", 0, 0)]), book(0, 0, &[]));
    }

    #[test]
    fn a_damaged_record_is_named() {
        let memory = Memory::default();
        let (ledger, _) = open(&memory);
        ledger.put("grace/a", b"abc").unwrap();
        let error = Ledger::open(Arc::new(memory), [1; 32]).map(drop).unwrap_err();
        assert!(error.to_string().contains("\"grace/\" is damaged"), "{error}");
    }
}
