//! Waiting: who watches whom, who is woken, and who is granted then. Knows nothing of how requests come in.

use crate::{
    entry::{Claim, EntryKey, LockKey, Order, Watchers},
    fault::Fault,
    lock::{Deadline, End, Pending, State},
    outcome::Effect,
    table::LockTable,
    tree::Among,
};
use lockwood_model::{Timestamp, Token};
use smallvec::SmallVec;
use std::cmp::Reverse;

impl LockTable {
    pub(crate) fn watch(&mut self, key: EntryKey, rival: EntryKey) {
        let next = self.entry_mut(rival).watchers.first.replace(key);
        if let Some(next) = next {
            self.entry_mut(next).watchers.previous = Some(key);
        }
        let entry = self.entry_mut(key);
        entry.claim = Claim::Behind(rival);
        entry.watchers.previous = None;
        entry.watchers.next = next;
    }

    /// Takes an entry with these links out of the list of those that watch `rival`.
    pub(crate) fn unlink(&mut self, rival: EntryKey, links: &Watchers) {
        match links.previous {
            Some(previous) => self.entry_mut(previous).watchers.next = links.next,
            None => self.entry_mut(rival).watchers.first = links.next,
        }
        if let Some(next) = links.next {
            self.entry_mut(next).watchers.previous = links.previous;
        }
    }

    /// Marks a whole list of watchers as having to look again.
    pub(crate) fn wake(&mut self, first: Option<EntryKey>) {
        let mut current = first;
        while let Some(key) = current {
            let entry = self.entry_mut(key);
            current = entry.watchers.next.take();
            entry.watchers.previous = None;
            entry.claim = Claim::Woken;
            let order = entry.order;
            self.woken.push(Reverse((order, key)));
            if self.tree.faults.has(Fault::WakeOnlyOne) {
                return;
            }
        }
    }

    /// Those that would have gone ahead of the line, had the table not been frozen, go ahead of it now, unless something held
    /// is in their way.
    pub(crate) fn let_overtake(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let overtakes =
            |key: &LockKey| self.lock_of(*key).is_waiting() && self.lock_of(*key).rank.overtakes();
        let overtaking: Vec<LockKey> = self.by_id.values().copied().filter(overtakes).collect();
        for key in overtaking {
            let entries = self.lock_of(key).entries.clone();
            let is_held = |entry: &EntryKey| {
                let entry = self.entry(*entry);
                !entry.granted() && self.rival(entry.place(), Among::Granted, Order::END).is_some()
            };
            if entries.iter().any(is_held) {
                let rank = self.lock_of(key).rank.in_line();
                self.lock_mut(key).rank = rank;
                continue;
            }
            entries.into_iter().for_each(|entry| self.move_to_front(key, entry));
            self.grant_if_free(key, false, now, effects);
        }
    }

    /// Has an entry that waits in line wait for nothing in line. Those behind it stay behind it.
    fn move_to_front(&mut self, lock: LockKey, key: EntryKey) {
        if self.entry(key).granted() {
            return;
        }
        if let Claim::Behind(rival) = self.entry(key).claim {
            let links = std::mem::take(&mut self.entry_mut(key).watchers);
            self.unlink(rival, &links);
            self.entry_mut(key).watchers.first = links.first;
            self.lock_mut(lock).pending_mut(false).blocked -= 1;
        }
        let order = self.take_front();
        let entry = &mut self.entries[key.0 as usize];
        self.tree.remove(entry);
        (entry.order, entry.claim) = (order, Claim::Free);
        self.tree.insert(key, entry);
    }

    /// Requests that queued before others' locks were put back may wait for each other. The latest goes of an owner that
    /// holds something, if there is one: others could do nothing about it.
    pub(crate) fn break_cycles(&mut self, effects: &mut Vec<Effect>) {
        let pending = self.by_id.values().rev().copied().filter(|key| self.is_pending(*key));
        let (holding, others): (Vec<LockKey>, Vec<LockKey>) =
            pending.partition(|key| self.owned(self.lock_of(*key).owner).any(|view| view.token.is_some()));
        for key in holding.into_iter().chain(others) {
            let Some(cycle) = self.find_cycle_by(key) else { continue };
            let (owner, lock) = (self.lock_of(key).owner, self.lock_of(key).id);
            if self.lock_of(key).is_waiting() {
                self.remove_lock(key);
                effects.push(Effect::Deadlocked { owner, lock, cycle });
            } else {
                self.remove_conversion(key);
                effects.push(Effect::ConversionDeadlocked { owner, lock, cycle });
            }
        }
    }

    pub(crate) fn is_pending(&self, key: LockKey) -> bool {
        self.lock_of(key).is_waiting() || self.lock_of(key).conversion.is_some()
    }

    /// Lets the entries of a lock that were free look again; false if there are none that wait.
    pub(crate) fn wake_free(&mut self, key: LockKey) -> bool {
        let entries: SmallVec<[EntryKey; 8]> = self.lock_of(key).all_entries().collect();
        let waiting = entries.iter().any(|entry| !self.entry(*entry).granted());
        for entry in entries {
            if self.entry(entry).claim == Claim::Free {
                self.entry_mut(entry).claim = Claim::Woken;
                let (order, converts) = (self.entry(entry).order, self.entry(entry).converts);
                self.woken.push(Reverse((order, entry)));
                self.lock_mut(key).pending_mut(converts).blocked += 1;
            }
        }
        waiting
    }

    /// Lets every woken entry look again, the earliest first, and grants what is complete then.
    pub(crate) fn settle(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        while let Some(Reverse((order, key))) = self.woken.pop() {
            // The slot may have been emptied, and even filled again, since it was put on the list.
            let Some(entry) = self.entries.get(key.0 as usize) else { continue };
            if entry.order != order || entry.claim != Claim::Woken {
                continue;
            }
            match self.find_blocker(key) {
                Some(rival) => self.watch(key, rival),
                None => self.set_free(key, now, effects),
            }
        }
    }

    /// What is in the way of a waiting entry: the latest of it.
    pub(crate) fn find_blocker(&self, key: EntryKey) -> Option<EntryKey> {
        let entry = self.entry(key);
        match entry.in_front() {
            true if self.tree.faults.has(Fault::ConvertAtOnce) => None,
            true => self.rival(entry.place(), Among::Granted, Order::END),
            false => self.rival(entry.place(), self.ahead(), entry.order),
        }
    }

    fn set_free(&mut self, key: EntryKey, now: Timestamp, effects: &mut Vec<Effect>) {
        let entry = self.entry_mut(key);
        entry.claim = Claim::Free;
        let (lock, converts) = (entry.lock, entry.converts);
        self.lock_mut(lock).pending_mut(converts).blocked -= 1;
        self.grant_if_free(lock, converts, now, effects);
    }

    /// Grants a waiting lock, or conversion, if nothing is in its way.
    pub(crate) fn grant_if_free(
        &mut self,
        key: LockKey,
        converts: bool,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        if self.frozen {
            return;
        }
        self.look_again(key, converts);
        let in_part = self.tree.faults.has(Fault::GrantInPart);
        if self.lock_mut(key).pending_mut(converts).blocked > 0 && !in_part {
            return;
        }
        if converts {
            return self.grant_conversion(key, effects);
        }
        let lock = self.lock_of(key);
        let (owner, id, waited_ms) = (lock.owner, lock.id, now.since(lock.requested_at));
        let token = self.grant_lock(key, now);
        effects.push(Effect::Granted { owner, lock: id, token, waited_ms });
    }

    /// Free entries stay free as long as nothing overtakes them. If something may have, look again.
    fn look_again(&mut self, key: LockKey, converts: bool) {
        let now = self.upheavals;
        let seen = std::mem::replace(&mut self.lock_mut(key).pending_mut(converts).looked_at, now);
        if seen == now || self.tree.faults.has(Fault::TrustOldLook) {
            return;
        }
        let entries: SmallVec<[EntryKey; 8]> = self.lock_of(key).all_entries().collect();
        for entry in entries {
            if self.entry(entry).converts == converts
                && self.entry(entry).claim == Claim::Free
                && let Some(rival) = self.find_blocker(entry)
            {
                self.watch(entry, rival);
                self.lock_mut(key).pending_mut(converts).blocked += 1;
            }
        }
    }

    pub(crate) fn grant_lock(&mut self, key: LockKey, now: Timestamp) -> Token {
        let token = self.take_token();
        self.waiting_len -= 1;
        let lock = &mut self.locks[key.0 as usize];
        let before = std::mem::replace(&mut lock.state, State::Granted { token, at: now });
        let (id, entries) = (lock.id, lock.entries.clone());
        if let State::Waiting(Pending { deadline: Some(at), .. }) = before {
            self.deadlines.remove(&(at, Deadline::Wait(id)));
        }
        for entry in entries {
            self.set_granted(entry);
        }
        self.by_token.insert(token, key);
        self.journal.note(id);
        if self.lock_of(key).rank.overtakes() {
            self.upheavals += 1;
        }
        if let End::After(ttl_ms) = self.lock_of(key).end {
            self.set_end(key, Some(now.after(ttl_ms)));
        }
        token
    }

    /// From now on a held lock ends by itself at this moment, or not at all.
    pub(crate) fn set_end(&mut self, key: LockKey, at: Option<Timestamp>) {
        let lock = &mut self.locks[key.0 as usize];
        let before = std::mem::replace(&mut lock.end, at.map_or(End::Never, End::At));
        let deadline = Deadline::Expiry(lock.id);
        if let Some(before) = before.at() {
            self.deadlines.remove(&(before, deadline));
        }
        if let Some(at) = at {
            self.deadlines.insert((at, deadline));
        }
    }

    pub(crate) fn set_granted(&mut self, key: EntryKey) {
        let entry = &mut self.entries[key.0 as usize];
        if entry.granted() {
            return;
        }
        assert!(
            entry.claim == Claim::Free || cfg!(test),
            "only what nothing stands in the way of is granted, unless a test planted a fault"
        );
        self.tree.remove(entry);
        entry.claim = Claim::Granted;
        self.tree.insert(key, entry);
    }
}
