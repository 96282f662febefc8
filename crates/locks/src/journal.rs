//! Which held locks are other than they were when that was last asked. Knows nothing of what they became.

use crate::table::LockTable;
use lockwood_model::LockId;
use std::collections::BTreeSet;

/// Absent while nothing wants to know.
#[derive(Debug, Default)]
pub(crate) struct Journal(Option<BTreeSet<LockId>>);

impl Journal {
    #[inline]
    pub(crate) fn note(&mut self, lock: LockId) {
        if let Some(changed) = &mut self.0 {
            changed.insert(lock);
        }
    }
}

impl LockTable {
    /// From now on the table notes which locks are granted, converted or end.
    pub fn keep_journal(&mut self) {
        self.journal.0.get_or_insert_default();
    }

    /// The locks that were granted, put back, converted, or held and ended, since this was last asked.
    pub fn take_changes(&mut self) -> BTreeSet<LockId> {
        self.journal.0.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Outcome, Rank, Request};
    use lockwood_model::{Depth, Mode, OwnerId, Resource, Timestamp, Token, Wait};

    fn request(owner: u64, path: &str, mode: Mode) -> Request {
        let resources = vec![Resource::new(path.parse().unwrap(), mode, Depth::SUBTREE)];
        Request { owner: OwnerId(owner), resources, wait: Wait::Forever, ttl_ms: None, rank: Rank::Ordinary }
    }

    #[test]
    fn every_grant_conversion_and_end_of_a_held_lock_is_noted_and_no_wait() {
        let mut table = LockTable::new(1, 0);
        let (now, mut effects) = (Timestamp(1), Vec::new());
        table.lock(request(1, "before", Mode::Write), now);
        table.keep_journal();
        assert!(table.take_changes().is_empty());

        let Outcome::Granted { lock: held, .. } = table.lock(request(1, "a", Mode::Write), now) else {
            panic!("nothing is in its way")
        };
        assert_eq!(table.take_changes(), BTreeSet::from([held]));
        let Outcome::Queued { lock: waiting } = table.lock(request(2, "a", Mode::Write), now) else {
            panic!("the first one is in its way")
        };
        assert!(table.take_changes().is_empty(), "a wait is no change");
        table.convert(OwnerId(1), held, &Change::All(Mode::Read), Wait::Never, now, &mut effects);
        assert_eq!(table.take_changes(), BTreeSet::from([held]));
        table.release(OwnerId(1), held, now, &mut effects).unwrap();
        assert_eq!(table.take_changes(), BTreeSet::from([held, waiting]), "one ends, the next is granted");

        table.freeze();
        let resources = request(3, "b", Mode::Write).resources;
        let restored = table.restore(OwnerId(3), resources, Token(77), now).unwrap();
        assert_eq!(table.take_changes(), BTreeSet::from([restored]));
    }
}
