//! An ordered store: a few spaces of keys and values, atomic batches, consistent snapshots. Small, so that
//! disks, memory and their failures all fit behind it. Knows nothing of what the keys mean.

use std::{collections::BTreeMap, ops::Bound, path::PathBuf};

/// The bytes of a key or a value; cheap to clone.
pub type Slice = fjall::Slice;

macro_rules! spaces {
    ($($(#[doc = $help:literal])* $name:ident = $text:literal;)*) => {
        /// A part of the store with its own order of keys.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Space {
            $($(#[doc = $help])* $name,)*
        }

        impl Space {
            /// Every space.
            pub const ALL: &'static [Space] = &[$(Space::$name),*];

            /// Its name on disk.
            pub fn as_str(self) -> &'static str {
                match self { $(Space::$name => $text),* }
            }
        }
    };
}

spaces! {
    /// Numbers of the ledger, by name.
    Numbers = "numbers";
    /// What operators did.
    Actions = "actions";
    /// Index → record.
    Log = "log";
    /// Index and number → a piece of the state as it was at that index.
    Snapshots = "snapshots";
    /// Namespaces, counters, declared indexes, how far the state is.
    Meta = "meta";
    /// Document → its content.
    Documents = "documents";
    /// Document and position → how to undo that change.
    History = "history";
    /// Collection and field → when it was last touched.
    Touched = "touched";
    /// Position → where in the log.
    Positions = "positions";
    /// Secondary index, value and document → nothing.
    Indexes = "indexes";
    /// Idempotency key → the answer that was given.
    Answers = "answers";
    /// Namespace and lock → a lease that is held.
    Leases = "leases";
    /// Document → the transition in which its key became known here.
    Marks = "marks";
    /// Document and position → who made that change of a document that came from elsewhere.
    Origins = "origins";
    /// What a cache of a shared log notes of itself.
    Cache = "cache";
}

impl Space {
    /// The spaces that are a fold over the log.
    pub const STATE: [Space; 10] = [
        Space::Meta,
        Space::Documents,
        Space::History,
        Space::Touched,
        Space::Positions,
        Space::Indexes,
        Space::Answers,
        Space::Leases,
        Space::Marks,
        Space::Origins,
    ];
}

/// Why the store did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// An earlier write failed, so what is on disk is no longer known.
    #[error("an earlier write failed; restart the server once the disk is sound")]
    Poisoned,
    /// The disk, or the engine on it.
    #[error("{0}")]
    Failed(String),
    /// The directory of the store is not where it was.
    #[error(
        "the data directory {} was deleted or replaced while the server runs, so nothing is acknowledged any more; \
         dump what you need, stop the server and restore a backup",
        directory.display()
    )]
    Gone {
        /// The directory.
        directory: PathBuf,
    },
    /// Another node has claimed the shard; nothing was written.
    #[error("another node owns this shard by now (epoch {epoch})")]
    Fenced {
        /// The epoch of its claim.
        epoch: u64,
    },
    /// The shared log cannot be reached; nothing was written.
    #[error("the shared log cannot be reached: {why}")]
    Unreachable {
        /// What is wrong with it.
        why: String,
    },
    /// The shared log did not confirm a write, which may or may not be there.
    #[error("the shared log did not confirm a write: {why}")]
    Unconfirmed {
        /// What happened instead.
        why: String,
    },
    /// Something there is not what was written.
    #[error("{what} is damaged; restore the data directory from a backup")]
    Damaged {
        /// What.
        what: String,
    },
}

impl StoreError {
    /// That something there is not what was written.
    pub fn damaged(what: impl Into<String>) -> StoreError {
        StoreError::Damaged { what: what.into() }
    }
}

impl From<fjall::Error> for StoreError {
    fn from(error: fjall::Error) -> StoreError {
        match error {
            fjall::Error::Poisoned => StoreError::Poisoned,
            fjall::Error::Io(error) => StoreError::Failed(error.to_string()),
            fjall::Error::Storage(error) => match std::error::Error::source(&error) {
                Some(error) => StoreError::Failed(error.to_string()),
                None => StoreError::damaged("a table"),
            },
            fjall::Error::JournalRecovery(_)
            | fjall::Error::InvalidTag(_)
            | fjall::Error::InvalidTrailer
            | fjall::Error::Unrecoverable => StoreError::damaged("the journal"),
            fjall::Error::InvalidVersion(_) => StoreError::damaged("the file \"version\""),
            other => StoreError::Failed(other.to_string()),
        }
    }
}

/// Whether a batch must survive a loss of power before the call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It must.
    Synced,
    /// It may be lost, but only whole, and only together with everything after it.
    Buffered,
}

/// What getting something out of the files is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scrubbing {
    /// Waits for those who read what was there before.
    Views,
    /// Replaces the journal.
    Journal,
    /// Replaces the tables.
    Tables,
}

/// Key and value, one after the other.
pub type Pair = Result<(Slice, Slice), StoreError>;

/// In which order a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the smallest key.
    Forward,
    /// From the largest.
    Backward,
}

/// The store as it was at one moment.
pub trait Snapshot: Send + Sync {
    /// The value of a key.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, StoreError>;

    /// Keys and values between two bounds.
    fn scan<'a>(&'a self, space: Space, range: Range, order: Order) -> Box<dyn Iterator<Item = Pair> + 'a>;

    /// About how many keys a space has, if that is known without counting them. Keys that were replaced or removed lately
    /// may count more than once.
    fn about_len(&self, _space: Space) -> Option<u64> {
        None
    }
}

/// Keys between two bounds.
pub type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Whether a range ends before it starts, which maps and trees do not take well.
pub(crate) fn is_empty(range: &Range) -> bool {
    match range {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
        _ => false,
    }
}

/// All keys that start with `prefix`.
pub fn with_prefix(prefix: &[u8]) -> Range {
    (Bound::Included(prefix.to_vec()), after_prefix(prefix))
}

/// The bound behind all keys that start with `prefix`.
pub(crate) fn after_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Bound::Excluded(end);
        }
    }
    Bound::Unbounded
}

/// Something that keeps batches and shows snapshots.
pub trait Store: Send + Sync {
    /// Everything committed so far, and nothing that comes later.
    fn snapshot(&self) -> Box<dyn Snapshot>;

    /// Makes all changes of a batch, or none. After an error that is not [`StoreError::Damaged`] the store
    /// is poisoned: every further commit is refused.
    fn commit(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError>;

    /// True after a failed commit.
    fn is_poisoned(&self) -> bool;

    /// Why there are no more commits, if there are none.
    fn poison(&self) -> Option<StoreError> {
        self.is_poisoned().then_some(StoreError::Poisoned)
    }

    /// Gets what was removed out of the files as well, for as long as `go_on` says so. True if none of it is left. What is
    /// written meanwhile may be there in its older forms.
    fn scrub(&self, _go_on: &dyn Fn(Scrubbing) -> bool) -> Result<bool, StoreError> {
        Ok(true)
    }

    /// Looks whether what the store is kept in is still there, and notes what a start compares it with. To be
    /// called now and then; poisons a store that is gone.
    fn tend(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Changes that belong together; a later change of a key replaces an earlier one.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// By space, in the order of [`Space::ALL`].
    changes: [BTreeMap<Slice, Option<Slice>>; Space::ALL.len()],
}

impl Batch {
    /// Changes nothing yet.
    pub const fn new() -> Batch {
        Batch { changes: [const { BTreeMap::new() }; Space::ALL.len()] }
    }

    /// The bytes of all keys and values.
    pub fn bytes(&self) -> u64 {
        let bytes =
            |(_, key, value): (_, &Slice, &Option<Slice>)| key.len() + value.as_ref().map_or(0, |v| v.len());
        self.iter().map(bytes).sum::<usize>() as u64
    }

    /// Gives a key a value.
    pub fn put(&mut self, space: Space, key: impl Into<Slice>, value: impl Into<Slice>) {
        self.changes[space as usize].insert(key.into(), Some(value.into()));
    }

    /// Takes a key away.
    pub fn remove(&mut self, space: Space, key: impl Into<Slice>) {
        self.changes[space as usize].insert(key.into(), None);
    }

    /// What this batch does to a key: nothing, or a new value, or its end.
    pub fn get(&self, space: Space, key: &[u8]) -> Option<&Option<Slice>> {
        self.changes[space as usize].get(key)
    }

    /// The changes of a space within a range.
    pub(crate) fn range(
        &self,
        space: Space,
        range: Range,
    ) -> impl DoubleEndedIterator<Item = (&Slice, &Option<Slice>)> {
        let changes = Some(&self.changes[space as usize]).filter(|_| !is_empty(&range));
        let (from, to) = range;
        let bounds = (from.map(Slice::from), to.map(Slice::from));
        changes.into_iter().flat_map(move |changes| changes.range(bounds.clone()))
    }

    /// Every change.
    pub fn iter(&self) -> impl Iterator<Item = (Space, &Slice, &Option<Slice>)> {
        let spaces = Space::ALL.iter().zip(&self.changes);
        spaces.flat_map(|(space, changes)| changes.iter().map(|(key, value)| (*space, key, value)))
    }

    /// Adds the changes of a later batch.
    pub fn absorb(&mut self, later: Batch) {
        for (changes, later) in self.changes.iter_mut().zip(later.changes) {
            if changes.is_empty() {
                *changes = later;
            } else {
                changes.extend(later);
            }
        }
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.iter().all(BTreeMap::is_empty)
    }

    /// The last key it gives a value in a space.
    pub(crate) fn last_key(&self, space: Space) -> Option<&Slice> {
        self.changes[space as usize].iter().rev().find(|(_, value)| value.is_some()).map(|(key, _)| key)
    }
}
