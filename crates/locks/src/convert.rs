//! Conversion of granted locks: to weaker modes at once, to stronger ones when no other holder is in the
//! way. Knows nothing of how new locks queue.

use crate::{
    entry::{Claim, EntryKey, LockKey, Order, Place},
    fault::Fault,
    lock::{Conversion, Deadline, Pending, State},
    outcome::{Change, ConvertError, ConvertOutcome, Effect, Refusal},
    table::LockTable,
    tree::Among,
};
use lockwood_model::{LockId, Mode, OwnerId, Resource, Timestamp, Token, Wait};
use std::collections::BTreeMap;

impl LockTable {
    /// Gives a granted lock other modes, now or when the other holders are gone.
    ///
    /// A conversion goes ahead of every waiting lock. If it has to wait, the lock keeps its old modes
    /// meanwhile, and everything changes in one step at the end.
    pub fn convert(
        &mut self,
        owner: OwnerId,
        lock: LockId,
        change: &Change,
        wait: Wait,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> ConvertOutcome {
        let (key, changes) = match self.changes(owner, lock, change) {
            Ok(found) => found,
            Err(error) => return ConvertOutcome::Invalid(error),
        };
        self.begin_conversion(key, &changes, wait.deadline(now));
        let conversion = self.lock_of(key).conversion.as_ref().expect("it was just begun");
        let free = !self.frozen && conversion.pending.blocked == 0;
        // Even if nothing is in its way it may come to be in the way of those it waits for elsewhere.
        let refusal = match free {
            true => self.find_cycle_of(owner).map(Refusal::Deadlock),
            false => self.refuse_conversion(key, wait),
        };
        if free && refusal.is_none() {
            let token = self.finish_conversion(key, effects);
            self.settle(now, effects);
            return ConvertOutcome::Converted { token };
        }
        if let Some(refusal) = refusal {
            self.remove_conversion(key);
            self.settle(now, effects);
            return ConvertOutcome::Refused(refusal);
        }
        ConvertOutcome::Queued
    }

    /// The entries of a lock that get another mode.
    fn changes(
        &self,
        owner: OwnerId,
        lock: LockId,
        change: &Change,
    ) -> Result<(LockKey, Vec<(EntryKey, Mode)>), ConvertError> {
        let key = self.key_of(owner, lock).ok_or(ConvertError::UnknownLock)?;
        let lock = self.lock_of(key);
        if lock.is_waiting() {
            return Err(ConvertError::NotGranted);
        }
        if lock.conversion.is_some() {
            return Err(ConvertError::AlreadyConverting);
        }
        let before: Vec<Resource> = lock.entries.iter().map(|entry| self.resource(*entry)).collect();
        let after = change.applied_to(&before)?;
        let changed = |(entry, after): (&EntryKey, Resource)| (*entry, after.mode);
        let mut changes: Vec<(EntryKey, Mode)> = lock.entries.iter().zip(after).map(changed).collect();
        changes.retain(|(entry, mode)| self.entry(*entry).mode != *mode);
        Ok((key, changes))
    }

    fn begin_conversion(&mut self, key: LockKey, changes: &[(EntryKey, Mode)], deadline: Option<Timestamp>) {
        let mut conversion = Conversion {
            stronger: Vec::new(),
            weaker: Vec::new(),
            pending: Pending { blocked: 0, looked_at: 0, deadline },
        };
        for &(old, mode) in changes {
            if self.entry(old).mode.includes(mode) {
                conversion.weaker.push((old, mode));
                continue;
            }
            let place = Place { mode, ..self.entry(old).place() };
            let order = self.take_front();
            let new = self.insert_entry(key, place, order, Claim::Free, true);
            conversion.stronger.push((old, new));
            if let Some(rival) = self.find_blocker(new) {
                self.watch(new, rival);
                conversion.pending.blocked += 1;
            }
        }
        // Those who wait may have found nothing in their way so far; now they have.
        self.upheavals += 1;
        conversion.pending.looked_at = self.upheavals;
        let lock = self.lock_mut(key);
        lock.conversion = Some(Box::new(conversion));
        let id = lock.id;
        self.converting.insert(key);
        if let Some(at) = deadline {
            self.deadlines.insert((at, Deadline::Conversion(id)));
        }
    }

    fn refuse_conversion(&self, key: LockKey, wait: Wait) -> Option<Refusal> {
        let lock = self.lock_of(key);
        if wait == Wait::Never {
            let conversion = lock.conversion.as_ref().expect("a conversion is refused while it waits");
            let places: Vec<Place> =
                conversion.stronger.iter().map(|(_, new)| self.entry(*new).place()).collect();
            return Some(match self.frozen {
                true => Refusal::Frozen,
                false => Refusal::Busy { blockers: self.blockers_of(&places, Among::Granted) },
            });
        }
        self.find_cycle_of(lock.owner).map(Refusal::Deadlock)
    }

    /// Called when nothing is in the way of a waiting conversion any more.
    pub(crate) fn grant_conversion(&mut self, key: LockKey, effects: &mut Vec<Effect>) {
        let (owner, lock) = (self.lock_of(key).owner, self.lock_of(key).id);
        let token = self.finish_conversion(key, effects);
        effects.push(Effect::Converted { owner, lock, token });
    }

    /// Swaps the old entries for the new ones. What that wakes looks again in `settle`.
    fn finish_conversion(&mut self, key: LockKey, effects: &mut Vec<Effect>) -> Token {
        let conversion = self.take_conversion(key).expect("there is a conversion to finish");
        self.journal.note(self.lock_of(key).id);
        let replaced: BTreeMap<EntryKey, EntryKey> = conversion.stronger.iter().copied().collect();
        for entry in &mut self.lock_mut(key).entries {
            *entry = replaced.get(entry).copied().unwrap_or(*entry);
        }
        for &(old, new) in &conversion.stronger {
            self.set_granted(new);
            self.entry_mut(new).converts = false;
            self.remove_entry(old);
        }
        for &(entry, mode) in &conversion.weaker {
            self.weaken(entry, mode);
        }
        self.upheavals += 1;
        if !conversion.stronger.is_empty() {
            self.refuse_doomed(effects);
        }
        self.renew_token(key, !conversion.stronger.is_empty())
    }

    fn renew_token(&mut self, key: LockKey, stronger: bool) -> Token {
        let State::Granted { token, at } = self.lock_of(key).state else {
            unreachable!("only granted locks are converted")
        };
        if !stronger {
            return token;
        }
        // A larger token than any other lock of the same owner got while this one was weaker.
        self.by_token.remove(&token);
        let token = self.take_token();
        self.by_token.insert(token, key);
        self.lock_mut(key).state = State::Granted { token, at };
        token
    }

    fn weaken(&mut self, key: EntryKey, mode: Mode) {
        let entry = &mut self.entries[key.0 as usize];
        self.tree.remove(entry);
        entry.mode = mode;
        let watchers = entry.watchers.first.take();
        self.tree.insert(key, entry);
        if !self.tree.faults.has(Fault::SilentDowngrade) {
            self.wake(watchers);
        } else {
            self.entry_mut(key).watchers.first = watchers;
        }
    }

    /// A granted conversion can be in the way of another one that waits, without that one's having asked
    /// anything new. If this closes a cycle nobody else would ever notice.
    fn refuse_doomed(&mut self, effects: &mut Vec<Effect>) {
        let mut waiting: Vec<(Order, LockKey)> =
            self.converting.iter().map(|key| (self.conversion_order(*key), *key)).collect();
        waiting.sort_unstable();
        for (_, key) in waiting {
            let (owner, lock) = (self.lock_of(key).owner, self.lock_of(key).id);
            if let Some(cycle) = self.find_cycle_by(key) {
                self.remove_conversion(key);
                effects.push(Effect::ConversionDeadlocked { owner, lock, cycle });
            }
        }
    }

    pub(crate) fn conversion_order(&self, key: LockKey) -> Order {
        let conversion = self.lock_of(key).conversion.as_ref().expect("it is converting");
        conversion.stronger.first().map_or(Order::FIRST, |(_, new)| self.entry(*new).order)
    }

    /// Drops a pending conversion, if there is one; [`LockTable::settle`] must follow.
    pub(crate) fn remove_conversion(&mut self, key: LockKey) {
        if let Some(conversion) = self.take_conversion(key) {
            for (_, new) in conversion.stronger {
                self.remove_entry(new);
            }
        }
    }

    fn take_conversion(&mut self, key: LockKey) -> Option<Box<Conversion>> {
        let lock = self.lock_mut(key);
        let id = lock.id;
        let conversion = lock.conversion.take()?;
        self.converting.remove(&key);
        if let Some(at) = conversion.pending.deadline {
            self.deadlines.remove(&(at, Deadline::Conversion(id)));
        }
        Some(conversion)
    }
}
