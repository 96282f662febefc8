//! A lock, its pending conversion, and its owner, as the table keeps them.

use crate::{
    entry::{EntryKey, LockKey},
    outcome::Rank,
};
use lockwood_model::{LockId, Mode, OwnerId, Timestamp, Token};
use smallvec::SmallVec;

#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) id: LockId,
    pub(crate) owner: OwnerId,
    /// Where it is in its owner's list of locks.
    pub(crate) slot: u32,
    pub(crate) entries: SmallVec<[EntryKey; 2]>,
    /// Segments of the paths that were asked for more than once.
    pub(crate) repeated_segments: u32,
    pub(crate) state: State,
    pub(crate) requested_at: Timestamp,
    pub(crate) conversion: Option<Box<Conversion>>,
    pub(crate) end: End,
    pub(crate) rank: Rank,
}

/// Whether a lock ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Never,
    /// So long after it is granted.
    After(u64),
    At(Timestamp),
}

impl End {
    pub(crate) fn at(self) -> Option<Timestamp> {
        match self {
            End::At(at) => Some(at),
            End::Never | End::After(_) => None,
        }
    }
}

#[derive(Debug)]
pub(crate) enum State {
    Waiting(Pending),
    Granted { token: Token, at: Timestamp },
}

/// What a waiting lock and a waiting conversion have in common.
#[derive(Debug)]
pub(crate) struct Pending {
    /// How many of the entries have something in their way or must look again.
    pub(crate) blocked: u32,
    /// The table's count of upheavals when the free entries were last looked at.
    pub(crate) looked_at: u64,
    pub(crate) deadline: Option<Timestamp>,
}

#[derive(Debug)]
pub(crate) struct Conversion {
    /// (entry of the lock, stronger entry that replaces it)
    pub(crate) stronger: Vec<(EntryKey, EntryKey)>,
    /// Entries that become weaker when the stronger ones are granted.
    pub(crate) weaker: Vec<(EntryKey, Mode)>,
    pub(crate) pending: Pending,
}

impl Lock {
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    pub(crate) fn held_ms(&self, now: Timestamp) -> Option<u64> {
        match self.state {
            State::Granted { at, .. } => Some(now.since(at)),
            State::Waiting(_) => None,
        }
    }

    /// What is pending: the lock itself or its conversion.
    pub(crate) fn pending_mut(&mut self, converts: bool) -> &mut Pending {
        match (&mut self.state, &mut self.conversion) {
            (State::Waiting(pending), _) if !converts => pending,
            (_, Some(conversion)) if converts => &mut conversion.pending,
            _ => unreachable!("an entry that waits belongs to something that waits"),
        }
    }

    /// All entries, those of a conversion included.
    pub(crate) fn all_entries(&self) -> impl Iterator<Item = EntryKey> {
        let stronger = self.conversion.iter().flat_map(|conversion| &conversion.stronger);
        self.entries.iter().copied().chain(stronger.map(|(_, entry)| *entry))
    }
}

/// Exists as long as it has locks.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    pub(crate) locks: SmallVec<[LockKey; 2]>,
    /// How many resources those have together.
    pub(crate) resources_len: usize,
    /// When its locks are given up, if it is away.
    pub(crate) away_until: Option<Timestamp>,
}

/// Something that happens at a known time unless it is called off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deadline {
    Wait(LockId),
    Conversion(LockId),
    Expiry(LockId),
    Owner(OwnerId),
}
