//! Locks that are parts of a larger one, spread over several tables, and that move from one to another. Knows
//! nothing of the other tables.

use crate::{
    entry::{Claim, EntryKey, LockKey, Order},
    lock::{Deadline, End, State},
    outcome::{Effect, Outcome, Rank, Request, UnknownLock},
    table::{LockTable, Wanted, merge},
};
use lockwood_model::{LockId, OwnerId, Resource, Timestamp, Token};
use std::{cmp::Reverse, collections::BTreeSet};

/// A request that stood in line in another table.
#[derive(Debug, Clone)]
pub struct RecordedWait {
    /// The number it has.
    pub lock: LockId,
    /// Whose it is.
    pub owner: OwnerId,
    /// What it is for, here.
    pub resources: Vec<Resource>,
    /// When it was asked for.
    pub asked_at: Timestamp,
    /// When the wait ends; none if it does not.
    pub until: Option<Timestamp>,
    /// How long it is held once it is granted; none if for ever.
    pub ttl_ms: Option<u64>,
}

/// What is left of a lock that gave up some of its resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// All of it.
    Whole,
    /// Some of it.
    Part,
    /// Nothing, so it is gone.
    Nothing,
}

impl LockTable {
    /// Like [`LockTable::lock`], with a number that another table gave out. There must be no such lock here.
    pub fn lock_as(&mut self, lock: LockId, request: Request, now: Timestamp) -> Outcome {
        assert!(!self.by_id.contains_key(&lock), "a lock of this number is here already");
        self.lock_numbered(Some(lock), request, now)
    }

    /// Puts a request at the end of the line, under the number it had elsewhere. Only for a frozen table, where nothing
    /// is granted and the thaw sees to it that nobody waits for itself. There must be no such lock here.
    pub fn restore_wait(&mut self, wait: RecordedWait) {
        assert!(self.frozen, "lines are put together before anything is granted");
        let RecordedWait { lock, owner, mut resources, asked_at, until, ttl_ms } = wait;
        assert!(!self.by_id.contains_key(&lock), "a lock of this number is here already");
        merge(&mut resources);
        let places = self.places(owner, &resources);
        let judge = |place| self.judge(place, Rank::Ordinary);
        let mut wanted: Vec<Wanted> = places.iter().copied().map(judge).collect();
        self.claim_held(&places, &mut wanted);
        let end = ttl_ms.map_or(End::Never, End::After);
        let key = self.insert_lock(lock, owner, asked_at, until, (end, Rank::Ordinary));
        self.insert_entries(key, &places, &wanted);
    }

    /// Locks that wait stand in this order from now on; those that are not named come after them, in the order they
    /// have. Only for a frozen table.
    pub fn line_up(&mut self, line: &[LockId], now: Timestamp) {
        assert!(self.frozen, "lines are put together before anything is granted");
        let named: BTreeSet<LockId> = line.iter().copied().collect();
        let rest = self.line();
        let rest = rest.iter().filter(|lock| !named.contains(lock));
        let keys: Vec<LockKey> =
            line.iter().chain(rest).filter_map(|lock| self.by_id.get(lock).copied()).collect();
        let entries: Vec<EntryKey> = keys
            .into_iter()
            .filter(|key| self.lock_of(*key).is_waiting())
            .flat_map(|key| self.behind(key))
            .collect();
        for entry in &entries {
            self.stop_watching(*entry);
        }
        for key in entries {
            let order = self.take_back();
            let entry = &mut self.entries[key.0 as usize];
            self.tree.remove(entry);
            entry.order = order;
            self.tree.insert(key, entry);
            self.woken.push(Reverse((order, key)));
        }
        let mut effects = Vec::new();
        self.settle(now, &mut effects);
        debug_assert!(effects.is_empty(), "a frozen table grants nothing");
    }

    /// The entries of a waiting lock that wait at the back.
    fn behind(&self, key: LockKey) -> Vec<EntryKey> {
        let waits = |entry: &EntryKey| !self.entry(*entry).granted() && !self.entry(*entry).in_front();
        self.lock_of(key).entries.iter().copied().filter(waits).collect()
    }

    /// An entry that waits must look again.
    fn stop_watching(&mut self, key: EntryKey) {
        let entry = self.entry_mut(key);
        let lock = entry.lock;
        match std::mem::replace(&mut entry.claim, Claim::Woken) {
            Claim::Behind(rival) => {
                let first = entry.watchers.first.take();
                let links = std::mem::take(&mut entry.watchers);
                entry.watchers.first = first;
                self.unlink(rival, &links);
            }
            Claim::Free => self.lock_mut(lock).pending_mut(false).blocked += 1,
            Claim::Woken | Claim::Granted => {}
        }
    }

    /// Everything given out from now on is larger than `number`.
    pub fn raise(&mut self, number: u64) {
        self.counters.raise(number);
    }

    /// Gives a held lock another token, one that it has in other tables too.
    pub fn give_token(&mut self, lock: LockId, token: Token) -> Result<(), UnknownLock> {
        let key = *self.by_id.get(&lock).ok_or(UnknownLock)?;
        let State::Granted { token: before, at } = self.lock_of(key).state else { return Err(UnknownLock) };
        self.by_token.remove(&before);
        self.by_token.insert(token, key);
        self.lock_mut(key).state = State::Granted { token, at };
        self.raise(token.0);
        Ok(())
    }

    /// A number that no lock has, for somebody who asks for a lock by it later on.
    pub fn draw_lock(&mut self) -> LockId {
        self.counters.take_lock()
    }

    /// A token larger than all before it, for somebody who gives it to a lock later on.
    pub fn draw_token(&mut self) -> Token {
        self.take_token()
    }

    /// From now on a waiting lock waits until this moment, or for ever.
    pub fn set_wait(&mut self, lock: LockId, until: Option<Timestamp>) -> Result<(), UnknownLock> {
        let key = *self.by_id.get(&lock).filter(|key| self.lock_of(**key).is_waiting()).ok_or(UnknownLock)?;
        let before = std::mem::replace(&mut self.lock_mut(key).pending_mut(false).deadline, until);
        if let Some(before) = before {
            self.deadlines.remove(&(before, Deadline::Wait(lock)));
        }
        if let Some(until) = until {
            self.deadlines.insert((until, Deadline::Wait(lock)));
        }
        Ok(())
    }

    /// From now on a waiting lock is held for so long once it is granted, or for ever.
    pub fn set_ttl(&mut self, lock: LockId, ttl_ms: Option<u64>) -> Result<(), UnknownLock> {
        let key = *self.by_id.get(&lock).filter(|key| self.lock_of(**key).is_waiting()).ok_or(UnknownLock)?;
        self.lock_mut(key).end = ttl_ms.map_or(End::Never, End::After);
        Ok(())
    }

    /// The locks that wait, in the order they stand in line.
    pub fn line(&self) -> Vec<LockId> {
        let waiting = self.by_id.iter().filter(|(_, key)| self.lock_of(**key).is_waiting());
        let order = |key: LockKey| {
            let entries = self.lock_of(key).entries.iter().map(|entry| self.entry(*entry));
            entries.filter(|entry| !entry.granted()).map(|entry| entry.order).min()
        };
        let mut line: Vec<(Option<Order>, LockId)> = waiting.map(|(id, key)| (order(*key), *id)).collect();
        line.sort_unstable();
        line.into_iter().map(|(_, id)| id).collect()
    }

    /// A lock gives up the resources that are not to be kept, and hands them over. If it waits for the others it goes on
    /// waiting where it stands.
    pub fn narrow(
        &mut self,
        lock: LockId,
        keep: impl Fn(&Resource) -> bool,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> Result<Left, UnknownLock> {
        let key = *self.by_id.get(&lock).ok_or(UnknownLock)?;
        let stays = |entry: &EntryKey| keep(&self.resource(*entry));
        let (kept, gone): (Vec<EntryKey>, Vec<EntryKey>) =
            self.lock_of(key).entries.iter().partition(|entry| stays(entry));
        if gone.is_empty() {
            return Ok(Left::Whole);
        }
        self.remove_conversion(key);
        if kept.is_empty() {
            self.remove_lock(key);
            self.settle(now, effects);
            return Ok(Left::Nothing);
        }
        let owner = self.lock_of(key).owner;
        self.owners.get_mut(&owner).expect("a lock has an owner").resources_len -= gone.len();
        self.lock_mut(key).entries = kept.into_iter().collect();
        let is_waiting = self.lock_of(key).is_waiting();
        for entry in gone {
            if is_waiting && matches!(self.entry(entry).claim, Claim::Behind(_)) {
                self.lock_mut(key).pending_mut(false).blocked -= 1;
            }
            self.remove_entry(entry);
        }
        if is_waiting {
            self.grant_if_free(key, false, now, effects);
        }
        self.settle(now, effects);
        Ok(Left::Part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Refusal, Series,
        scene::{A, B, C, START, resources},
    };
    use lockwood_model::{OwnerId, Wait};

    fn request(owner: OwnerId, text: &str) -> Request {
        let resources = resources(text);
        Request { owner, resources, wait: Wait::Forever, ttl_ms: None, rank: crate::Rank::Ordinary }
    }

    #[test]
    fn a_lock_keeps_the_number_another_table_gave_it() {
        let mut table = LockTable::with_series(1, 1, Series::new(10, 1));
        let granted = table.lock_as(LockId(52), request(A, "write a"), START);
        assert_eq!(granted, Outcome::Granted { lock: LockId(52), token: Token(1) });
        assert_eq!(
            table.lock_as(LockId(33), request(B, "write a"), START),
            Outcome::Queued { lock: LockId(33) }
        );
        assert_eq!(table.give_token(LockId(33), Token(99)), Err(UnknownLock), "it has none yet");
        table.give_token(LockId(52), Token(99)).unwrap();
        assert_eq!(table.granted(Token(99)), Some((LockId(52), A)));
        assert_eq!(table.granted(Token(1)), None);
        let mut effects = Vec::new();
        table.release(A, LockId(52), START, &mut effects).unwrap();
        let (owner, lock, waited_ms) = (B, LockId(33), 0);
        assert_eq!(effects, [Effect::Granted { owner, lock, token: Token(101), waited_ms }]);
        table.check_invariants();
    }

    #[test]
    fn a_number_of_another_table_that_is_refused_does_not_come_back() {
        let mut table = LockTable::with_series(1, 1, Series::new(10, 1));
        assert!(matches!(table.lock(request(A, "write a"), START), Outcome::Granted { .. }));
        assert!(matches!(table.lock(request(B, "write b"), START), Outcome::Granted { .. }));
        assert_eq!(table.lock(request(A, "write b"), START), Outcome::Queued { lock: LockId(21) });
        let doomed = table.lock_as(LockId(1011), request(B, "write a"), START);
        assert!(matches!(doomed, Outcome::Refused(Refusal::Deadlock(_))), "{doomed:?}");
        let next = table.lock(request(C, "write c"), START);
        assert_eq!(next, Outcome::Granted { lock: LockId(31), token: Token(21) });
        table.check_invariants();
    }

    #[test]
    fn a_wait_can_be_made_longer_and_the_line_is_seen_in_its_order() {
        let mut table = LockTable::new(100, 1);
        table.lock(request(A, "write a"), START);
        table.lock_as(LockId(9), Request { wait: Wait::Millis(10), ..request(B, "write a") }, START);
        table.lock_as(LockId(3), request(C, "write a"), START);
        assert_eq!(table.line(), [LockId(9), LockId(3)]);
        table.set_wait(LockId(9), Some(START.after(50))).unwrap();
        assert_eq!(table.set_wait(LockId(100), None), Err(UnknownLock), "it does not wait");
        let mut effects = Vec::new();
        table.expire(START.after(49), &mut effects);
        assert_eq!(effects, []);
        table.expire(START.after(50), &mut effects);
        assert!(matches!(effects[..], [Effect::TimedOut { lock: LockId(9), .. }]), "{effects:?}");
        table.set_wait(LockId(3), Some(START.after(60))).unwrap();
        table.set_wait(LockId(3), None).unwrap();
        assert_eq!((table.next_deadline(), table.line()), (None, vec![LockId(3)]));
        table.check_invariants();
    }

    #[test]
    fn what_is_given_up_goes_to_those_who_wait_for_it() {
        let mut table = LockTable::new(1, 1);
        table.lock(request(A, "write a, write b"), START);
        table.lock(request(B, "write a"), START);
        table.lock(request(C, "write b"), START);
        let mut effects = Vec::new();
        let keep = |text: &'static str| move |resource: &Resource| resource.path == text.parse().unwrap();
        assert_eq!(table.narrow(LockId(1), |_| true, START, &mut effects), Ok(Left::Whole));
        assert_eq!(effects, []);
        assert_eq!(table.narrow(LockId(1), keep("b"), START, &mut effects), Ok(Left::Part));
        let granted = |effects: &[Effect]| match effects {
            [Effect::Granted { lock, .. }] => Some(*lock),
            _ => None,
        };
        assert_eq!(granted(&effects), Some(LockId(2)));
        effects.clear();
        assert_eq!(table.narrow(LockId(1), |_| false, START, &mut effects), Ok(Left::Nothing));
        assert_eq!(granted(&effects), Some(LockId(3)));
        assert_eq!(table.narrow(LockId(1), |_| false, START, &mut effects), Err(UnknownLock));
        table.check_invariants();
    }

    fn wait(lock: u64, owner: OwnerId, text: &str) -> RecordedWait {
        let (lock, resources) = (LockId(lock), resources(text));
        RecordedWait { lock, owner, resources, asked_at: START, until: None, ttl_ms: None }
    }

    fn granted(effects: &[Effect]) -> Vec<u64> {
        let number = |effect: &Effect| match effect {
            Effect::Granted { lock, .. } => Some(lock.0),
            _ => None,
        };
        effects.iter().filter_map(number).collect()
    }

    #[test]
    fn lines_are_put_together_in_any_order() {
        let mut table = LockTable::new(1, 1);
        table.lock(request(A, "write a, write b"), START);
        table.lock(request(B, "write a"), START);
        table.lock(request(C, "write a, write c"), START);
        table.freeze();
        let (late, later) = (OwnerId(77), OwnerId(78));
        table.restore_wait(wait(70, late, "write a, write c"));
        table.restore_wait(wait(71, later, "write c"));
        assert_eq!(table.line(), [2, 3, 70, 71].map(LockId));
        table.line_up(&[71, 70, 2].map(LockId), START);
        assert_eq!(table.line(), [71, 70, 2, 3].map(LockId));
        table.check_invariants();
        let mut effects = Vec::new();
        table.thaw(START, &mut effects);
        assert_eq!(granted(&effects), [71]);
        table.check_invariants();
        for (owner, lock, next) in
            [(A, 1, vec![]), (later, 71, vec![70]), (late, 70, vec![2]), (B, 2, vec![3])]
        {
            effects.clear();
            table.release(owner, LockId(lock), START, &mut effects).unwrap();
            assert_eq!(granted(&effects), next, "after {lock}");
            table.check_invariants();
        }
    }

    #[test]
    fn a_wait_that_would_never_end_is_found_at_the_thaw() {
        let mut table = LockTable::new(1, 1);
        table.lock(request(A, "write a"), START);
        table.lock(request(B, "write b"), START);
        table.lock(request(A, "write b"), START);
        table.freeze();
        table.restore_wait(wait(70, B, "write a"));
        let mut effects = Vec::new();
        table.thaw(START, &mut effects);
        assert!(matches!(effects[..], [Effect::Deadlocked { lock: LockId(70), .. }]), "{effects:?}");
        table.check_invariants();
    }

    #[test]
    fn whoever_holds_nothing_is_not_the_one_to_go() {
        let mut table = LockTable::new(1, 1);
        table.lock(request(A, "write a"), START);
        table.freeze();
        table.restore_wait(wait(70, A, "write b"));
        table.restore_wait(wait(71, B, "write a, write b"));
        table.line_up(&[71, 70].map(LockId), START);
        let mut effects = Vec::new();
        table.thaw(START, &mut effects);
        assert!(matches!(effects[..], [Effect::Deadlocked { lock: LockId(70), .. }]), "{effects:?}");
        table.check_invariants();
    }

    #[test]
    fn what_waits_can_do_with_less() {
        let mut table = LockTable::new(1, 1);
        table.lock(request(A, "write a"), START);
        table.lock(request(B, "write a, write b, write c"), START);
        table.lock(request(C, "write b"), START);
        let mut effects = Vec::new();
        let only = |text: &'static str| move |resource: &Resource| resource.path == text.parse().unwrap();
        assert_eq!(table.narrow(LockId(2), |held| !only("c")(held), START, &mut effects), Ok(Left::Part));
        assert_eq!(effects, []);
        table.check_invariants();
        table.set_ttl(LockId(2), Some(7)).unwrap();
        assert_eq!(table.narrow(LockId(2), only("b"), START, &mut effects), Ok(Left::Part));
        assert_eq!(granted(&effects), [2]);
        assert_eq!(table.next_deadline(), Some(START.after(7)));
        assert_eq!(table.narrow(LockId(3), |_| false, START, &mut effects), Ok(Left::Nothing));
        table.check_invariants();
    }
}
