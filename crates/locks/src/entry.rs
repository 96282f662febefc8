//! One resource of one lock at its place in the tree. Knows nothing of how entries are searched.

use crate::tree::NodeKey;
use lockwood_model::{Depth, Mode, OwnerId, Resource};

/// Where an entry stands in line; no two entries share a number.
///
/// Entries in front (conversions and repeated requests for what is already held) come before everything
/// that queued at the back, however late they arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Order(pub(crate) u64);

impl Order {
    pub(crate) const FIRST: Order = Order(0);
    /// Orders from here on are at the back.
    pub(crate) const BACK: Order = Order(1 << 52);
    pub(crate) const END: Order = Order((1 << 53) - 1);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EntryKey(pub(crate) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LockKey(pub(crate) u32);

/// Modes that behave alike towards others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    Read = 0,
    Update = 1,
    Write = 2,
    Link = 3,
}

impl Class {
    pub(crate) fn of(mode: Mode) -> Class {
        match mode {
            Mode::Read | Mode::List => Class::Read,
            Mode::Update => Class::Update,
            Mode::Write => Class::Write,
            Mode::Link => Class::Link,
        }
    }

    /// The classes of other owners that this one cannot be beside; the same table as [`Mode::compatible`].
    pub(crate) fn rivals(self) -> &'static [Class] {
        match self {
            Class::Read => &[Class::Write, Class::Link],
            Class::Update => &[Class::Update, Class::Write, Class::Link],
            Class::Write => &[Class::Read, Class::Update, Class::Write, Class::Link],
            Class::Link => &[Class::Read, Class::Update, Class::Write],
        }
    }
}

/// How an entry's claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Held by its owner.
    Granted,
    /// Nothing is in its way, but the lock it belongs to is not complete yet.
    Free,
    /// Waits at least for this entry, the latest of those in its way.
    Behind(EntryKey),
    /// The entry it watched is gone; it must look again.
    Woken,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) lock: LockKey,
    pub(crate) owner: OwnerId,
    pub(crate) node: NodeKey,
    pub(crate) mode: Mode,
    pub(crate) depth: Depth,
    pub(crate) order: Order,
    pub(crate) claim: Claim,
    /// Belongs to the conversion of a lock rather than to the lock itself.
    pub(crate) converts: bool,
    pub(crate) watchers: Watchers,
}

/// A doubly linked list through the entries, so that a waiter leaves in constant time whatever the length.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// The first of those that watch this entry.
    pub(crate) first: Option<EntryKey>,
    /// This entry's neighbours among those that watch the same entry as it does.
    pub(crate) previous: Option<EntryKey>,
    pub(crate) next: Option<EntryKey>,
}

impl Entry {
    pub(crate) fn granted(&self) -> bool {
        self.claim == Claim::Granted
    }

    pub(crate) fn in_front(&self) -> bool {
        self.order < Order::BACK
    }

    pub(crate) fn place(&self) -> Place {
        Place { node: self.node, mode: self.mode, depth: self.depth, owner: self.owner }
    }
}

/// What a claim is about, before there is an entry for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) node: NodeKey,
    pub(crate) mode: Mode,
    pub(crate) depth: Depth,
    pub(crate) owner: OwnerId,
}

impl Place {
    pub(crate) fn new(node: NodeKey, resource: &Resource, owner: OwnerId) -> Place {
        Place { node, mode: resource.mode, depth: resource.depth, owner }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_say_the_same_as_modes() {
        for one in Mode::ALL {
            for other in Mode::ALL {
                let rivals = Class::of(one).rivals().contains(&Class::of(other));
                assert_eq!(rivals, !one.compatible(other), "{one} {other}");
            }
        }
    }
}
