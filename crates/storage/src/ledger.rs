//! A few numbers that must never go backwards, and what operators did. Knows nothing of what they mean.
//!
//! Every write is synced before it returns. After a failed write the store refuses all further ones: what is
//! on disk then is no longer known.

use crate::{
    grace::GraceBook,
    store::{Batch, Durability, Order, Slice, Snapshot, Space, Store, StoreError, with_prefix},
};
use parking_lot::Mutex;
use std::sync::Arc;

/// How many operator actions are kept; the oldest make room for new ones.
pub const ACTIONS_LEN_MAX: u64 = 10_000;

/// The ledger in a store.
pub struct Ledger {
    pub(crate) store: Arc<dyn Store>,
    /// Held while an action is given its number and written.
    recording: Mutex<()>,
}

/// What the ledger held when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Every lock id and token given out before is smaller.
    pub ceiling: u64,
    /// How long the locks of earlier runs may still be believed in.
    pub grace: GraceBook,
    /// The key session secrets are made with.
    pub secret_key: [u8; 32],
}

/// Something an operator did, in the words of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// The namespace it was done in.
    pub namespace: String,
    /// What was done.
    pub record: Vec<u8>,
}

impl Ledger {
    /// Opens the ledger in `store`, or makes a new one with `fresh_key` as its secret key.
    pub fn open(store: Arc<dyn Store>, fresh_key: [u8; 32]) -> Result<(Ledger, Recovered), StoreError> {
        let ledger = Ledger { store, recording: Mutex::new(()) };
        let recovered = ledger.recover(fresh_key)?;
        Ok((ledger, recovered))
    }

    fn recover(&self, fresh_key: [u8; 32]) -> Result<Recovered, StoreError> {
        // A store made of a backup has all but the key.
        let secret_key = match self.get("secret_key")? {
            Some(key) => key[..].try_into().map_err(|_| damaged("secret_key"))?,
            None => {
                self.put("secret_key", &fresh_key)?;
                fresh_key
            }
        };
        Ok(Recovered { ceiling: self.number("ceiling")?.unwrap_or(1), grace: self.grace()?, secret_key })
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, StoreError> {
        let Some(bytes) = self.get(name)? else { return Ok(None) };
        let bytes = bytes[..].try_into().map_err(|_| damaged(name))?;
        Ok(Some(u64::from_be_bytes(bytes)))
    }

    fn get(&self, name: &str) -> Result<Option<Slice>, StoreError> {
        self.store.snapshot().get(Space::Numbers, name.as_bytes())
    }

    pub(crate) fn put(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        batch.put(Space::Numbers, name, value);
        self.store.commit(&batch, Durability::Synced)
    }

    /// From now on numbers below `ceiling` may be given out.
    pub fn raise_ceiling(&self, ceiling: u64) -> Result<(), StoreError> {
        self.put("ceiling", &ceiling.to_be_bytes())
    }

    /// How far a reader of the log has come, by the reader's name.
    pub fn cursor(&self, reader: &str) -> Result<Option<u64>, StoreError> {
        self.number(&format!("cursor/{reader}"))
    }

    /// Notes how far a reader of the log has come. After a crash it may find an earlier note, never a later
    /// one.
    pub fn set_cursor(&self, reader: &str, index: u64) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        batch.put(Space::Numbers, format!("cursor/{reader}").as_str(), index.to_be_bytes());
        self.store.commit(&batch, Durability::Buffered)
    }

    /// Keeps a record of what an operator did.
    pub fn record(&self, action: &Action) -> Result<(), StoreError> {
        let _turn = self.recording.lock();
        let next = self.last_action()?.map_or(0, |number| number + 1);
        let mut batch = Batch::default();
        if let Some(oldest) = next.checked_sub(ACTIONS_LEN_MAX) {
            batch.remove(Space::Actions, oldest.to_be_bytes());
        }
        batch.put(Space::Actions, next.to_be_bytes(), encode(action));
        self.store.commit(&batch, Durability::Synced)
    }

    /// The latest actions in a namespace, the last one first.
    pub fn actions(&self, namespace: &str, len_max: usize) -> Result<Vec<Action>, StoreError> {
        let snapshot = self.store.snapshot();
        let mut found = Vec::new();
        for pair in snapshot.scan(Space::Actions, with_prefix(b""), Order::Backward) {
            let (_, value) = pair?;
            let action = decode(&value).ok_or_else(|| StoreError::damaged("what an operator did"))?;
            if action.namespace == namespace {
                found.push(action);
            }
            if found.len() == len_max {
                break;
            }
        }
        Ok(found)
    }

    /// Everything in the store that the ledger is in, as it is now.
    pub fn snapshot(&self) -> Box<dyn Snapshot> {
        self.store.snapshot()
    }

    /// True after a failed write.
    pub fn is_poisoned(&self) -> bool {
        self.store.is_poisoned()
    }

    fn last_action(&self) -> Result<Option<u64>, StoreError> {
        let snapshot = self.store.snapshot();
        let Some(pair) = snapshot.scan(Space::Actions, with_prefix(b""), Order::Backward).next() else {
            return Ok(None);
        };
        Ok(pair?.0[..].try_into().ok().map(u64::from_be_bytes))
    }
}

pub(crate) fn damaged(name: &str) -> StoreError {
    StoreError::damaged(format!("the value of {name:?}"))
}

/// Length of the namespace in four bytes, the namespace, the record.
fn encode(action: &Action) -> Vec<u8> {
    let length = u32::try_from(action.namespace.len()).expect("namespaces are short");
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend_from_slice(action.namespace.as_bytes());
    bytes.extend_from_slice(&action.record);
    bytes
}

fn decode(bytes: &[u8]) -> Option<Action> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (namespace, record) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    Some(Action { namespace: String::from_utf8(namespace.to_vec()).ok()?, record: record.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    fn action(namespace: &str, record: &str) -> Action {
        Action { namespace: namespace.into(), record: record.into() }
    }

    fn open(memory: &Memory) -> (Ledger, Recovered) {
        Ledger::open(Arc::new(memory.clone()), [1; 32]).unwrap()
    }

    #[test]
    fn a_new_ledger_starts_at_one_and_what_is_written_is_there_after_reopening() {
        let memory = Memory::default();
        let (ledger, recovered) = open(&memory);
        let grace = GraceBook::default();
        assert_eq!(recovered, Recovered { ceiling: 1, grace: grace.clone(), secret_key: [1; 32] });
        ledger.raise_ceiling(1000).unwrap();
        let (_, recovered) = Ledger::open(Arc::new(memory), [2; 32]).unwrap();
        assert_eq!(recovered, Recovered { ceiling: 1000, grace, secret_key: [1; 32] });
    }

    #[test]
    fn readers_of_the_log_have_cursors_of_their_own() {
        let (ledger, _) = open(&Memory::default());
        assert_eq!(ledger.cursor("a").unwrap(), None);
        ledger.set_cursor("a", 7).unwrap();
        ledger.set_cursor("b", 9).unwrap();
        assert_eq!((ledger.cursor("a").unwrap(), ledger.cursor("b").unwrap()), (Some(7), Some(9)));
    }

    #[test]
    fn damaged_values_are_named() {
        let memory = Memory::default();
        let (ledger, _) = open(&memory);
        ledger.put("ceiling", b"abc").unwrap();
        let error = Ledger::open(Arc::new(memory), [1; 32]).map(drop).unwrap_err();
        assert!(error.to_string().contains("\"ceiling\" is damaged"), "{error}");
    }

    #[test]
    fn actions_of_many_at_once_are_all_kept() {
        let (ledger, _) = open(&Memory::default());
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let ledger = &ledger;
                let record = move |n| ledger.record(&action("a", &format!("{thread}/{n}"))).unwrap();
                scope.spawn(move || (0..5).for_each(record));
            }
        });
        assert_eq!(ledger.actions("a", 100).unwrap().len(), 40);
    }

    #[test]
    fn actions_are_listed_by_namespace_from_the_latest() {
        let (ledger, _) = open(&Memory::default());
        for (namespace, record) in [("a", "1"), ("b", "2"), ("a", "3")] {
            ledger.record(&action(namespace, record)).unwrap();
        }
        assert_eq!(ledger.actions("a", 10).unwrap(), [action("a", "3"), action("a", "1")]);
        assert_eq!(ledger.actions("a", 1).unwrap(), [action("a", "3")]);
        assert_eq!(ledger.actions("c", 10).unwrap(), []);
    }
}
