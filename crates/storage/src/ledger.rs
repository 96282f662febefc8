//! A few numbers that must never go backwards, and what operators did. Knows nothing of what they mean.
//!
//! Every write is synced before it returns. After a failed write the ledger refuses all further ones: what
//! is on disk then is no longer known.

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::{
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// How many operator actions are kept; the oldest make room for new ones.
pub const ACTIONS_LEN_MAX: u64 = 10_000;

const FORMAT: u64 = 1;

/// The open ledger; the directory belongs to it alone.
pub struct Ledger {
    database: Database,
    numbers: Keyspace,
    actions: Keyspace,
    poisoned: AtomicBool,
    /// Held while an action is given its number and written.
    recording: Mutex<()>,
}

/// What the ledger held when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Every lock id and token given out before is smaller.
    pub ceiling: u64,
    /// How long locks of an earlier run may still be believed in; 0 after a clean stop.
    pub grace_ms: u64,
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

/// Why a ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("another server is using it; stop that one, or choose another data directory")]
    InUse,
    /// It was written by another version.
    #[error("it has format {found}, this version reads format {FORMAT}; use the version that wrote it")]
    Format {
        /// The format found.
        found: u64,
    },
    /// A value in it is not what was written.
    #[error("the value of {0:?} is damaged; restore the directory from a copy")]
    Damaged(&'static str),
    /// The storage engine cannot read it.
    #[error("{0}")]
    Engine(#[from] fjall::Error),
}

/// Why a write was not done.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// An earlier write failed.
    #[error("an earlier write failed; restart the server once the disk is sound")]
    Poisoned,
    /// This one failed.
    #[error("{0}")]
    Engine(#[from] fjall::Error),
}

impl Ledger {
    /// Opens the ledger in `directory`, or makes a new one with `fresh_key` as its secret key.
    pub fn open(directory: &Path, fresh_key: [u8; 32]) -> Result<(Ledger, Recovered), OpenError> {
        let database =
            Database::builder(directory).worker_threads(1).open().map_err(|error| match error {
                fjall::Error::Locked => OpenError::InUse,
                other => OpenError::Engine(other),
            })?;
        let numbers = database.keyspace("numbers", KeyspaceCreateOptions::default)?;
        let actions = database.keyspace("actions", KeyspaceCreateOptions::default)?;
        let ledger = Ledger {
            database,
            numbers,
            actions,
            poisoned: AtomicBool::new(false),
            recording: Mutex::new(()),
        };
        let recovered = ledger.recover(fresh_key)?;
        Ok((ledger, recovered))
    }

    fn recover(&self, fresh_key: [u8; 32]) -> Result<Recovered, OpenError> {
        let Some(found) = self.number("format")? else {
            self.numbers.insert("secret_key", fresh_key)?;
            self.numbers.insert("format", FORMAT.to_be_bytes())?;
            self.database.persist(PersistMode::SyncAll)?;
            return Ok(Recovered { ceiling: 1, grace_ms: 0, secret_key: fresh_key });
        };
        if found != FORMAT {
            return Err(OpenError::Format { found });
        }
        let key = self.numbers.get("secret_key")?.ok_or(OpenError::Damaged("secret_key"))?;
        Ok(Recovered {
            ceiling: self.number("ceiling")?.unwrap_or(1),
            grace_ms: self.number("grace_ms")?.unwrap_or(0),
            secret_key: key[..].try_into().map_err(|_| OpenError::Damaged("secret_key"))?,
        })
    }

    fn number(&self, name: &'static str) -> Result<Option<u64>, OpenError> {
        let Some(bytes) = self.numbers.get(name)? else { return Ok(None) };
        let bytes = bytes[..].try_into().map_err(|_| OpenError::Damaged(name))?;
        Ok(Some(u64::from_be_bytes(bytes)))
    }

    /// From now on numbers below `ceiling` may be given out.
    pub fn raise_ceiling(&self, ceiling: u64) -> Result<(), WriteError> {
        self.write(|| self.numbers.insert("ceiling", ceiling.to_be_bytes()))
    }

    /// If the server dies from now on, its next run must wait this long.
    pub fn set_grace(&self, grace_ms: u64) -> Result<(), WriteError> {
        self.write(|| self.numbers.insert("grace_ms", grace_ms.to_be_bytes()))
    }

    /// Keeps a record of what an operator did.
    pub fn record(&self, action: &Action) -> Result<(), WriteError> {
        let _turn = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.last_action()?.map_or(0, |number| number + 1);
        self.write(|| {
            if let Some(oldest) = next.checked_sub(ACTIONS_LEN_MAX) {
                self.actions.remove(oldest.to_be_bytes())?;
            }
            self.actions.insert(next.to_be_bytes(), encode(action))
        })
    }

    /// The latest actions in a namespace, the last one first.
    pub fn actions(&self, namespace: &str, len_max: usize) -> Result<Vec<Action>, WriteError> {
        let mut found = Vec::new();
        for entry in self.actions.iter().rev() {
            let value = entry.value()?;
            if let Some(action) = decode(&value).filter(|action| action.namespace == namespace) {
                found.push(action);
            }
            if found.len() == len_max {
                break;
            }
        }
        Ok(found)
    }

    /// True after a failed write.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    fn last_action(&self) -> Result<Option<u64>, WriteError> {
        let Some(entry) = self.actions.last_key_value() else { return Ok(None) };
        Ok(entry.key()?[..].try_into().ok().map(u64::from_be_bytes))
    }

    fn write(&self, change: impl FnOnce() -> Result<(), fjall::Error>) -> Result<(), WriteError> {
        if self.is_poisoned() {
            return Err(WriteError::Poisoned);
        }
        let done = change().and_then(|()| self.database.persist(PersistMode::SyncAll));
        if done.is_err() {
            self.poisoned.store(true, Ordering::Release);
        }
        Ok(done?)
    }
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

    fn action(namespace: &str, record: &str) -> Action {
        Action { namespace: namespace.into(), record: record.into() }
    }

    #[test]
    fn a_new_ledger_starts_at_one_and_what_is_written_is_there_after_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let (ledger, recovered) = Ledger::open(directory.path(), [1; 32]).unwrap();
        assert_eq!(recovered, Recovered { ceiling: 1, grace_ms: 0, secret_key: [1; 32] });
        ledger.raise_ceiling(1000).unwrap();
        ledger.set_grace(60_000).unwrap();
        drop(ledger);
        let (_, recovered) = Ledger::open(directory.path(), [2; 32]).unwrap();
        assert_eq!(recovered, Recovered { ceiling: 1000, grace_ms: 60_000, secret_key: [1; 32] });
    }

    #[test]
    fn a_second_user_is_told_so() {
        let directory = tempfile::tempdir().unwrap();
        let _open = Ledger::open(directory.path(), [1; 32]).unwrap();
        assert!(matches!(Ledger::open(directory.path(), [1; 32]), Err(OpenError::InUse)));
    }

    #[test]
    fn another_format_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (ledger, _) = Ledger::open(directory.path(), [1; 32]).unwrap();
        ledger.numbers.insert("format", 7u64.to_be_bytes()).unwrap();
        drop(ledger);
        assert!(matches!(Ledger::open(directory.path(), [1; 32]), Err(OpenError::Format { found: 7 })));
    }

    #[test]
    fn damaged_values_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let (ledger, _) = Ledger::open(directory.path(), [1; 32]).unwrap();
        ledger.numbers.insert("ceiling", "abc").unwrap();
        drop(ledger);
        assert!(matches!(Ledger::open(directory.path(), [1; 32]), Err(OpenError::Damaged("ceiling"))));
    }

    #[test]
    fn actions_of_many_at_once_are_all_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (ledger, _) = Ledger::open(directory.path(), [1; 32]).unwrap();
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
        let directory = tempfile::tempdir().unwrap();
        let (ledger, _) = Ledger::open(directory.path(), [1; 32]).unwrap();
        for (namespace, record) in [("a", "1"), ("b", "2"), ("a", "3")] {
            ledger.record(&action(namespace, record)).unwrap();
        }
        assert_eq!(ledger.actions("a", 10).unwrap(), [action("a", "3"), action("a", "1")]);
        assert_eq!(ledger.actions("a", 1).unwrap(), [action("a", "3")]);
        assert_eq!(ledger.actions("c", 10).unwrap(), []);
    }
}
