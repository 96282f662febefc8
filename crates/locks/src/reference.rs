//! The lock rules once more, written for the reader and not for speed: plain lists, every pair compared.
//! Shares no code with the table but the question whether two resources conflict.

use crate::outcome::{
    CancelOutcome, Change, ConvertError, ConvertOutcome, Effect, Outcome, Rank, Refusal, Waiters,
};
use lockwood_model::{LockId, Mode, OwnerId, Resource, Timestamp, Token, Wait};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) resource: Resource,
    /// Held by itself, although the lock may still wait: its owner had it already.
    pub(crate) held: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct RefConversion {
    number: u64,
    /// (index of the part, new mode)
    stronger: Vec<(usize, Mode)>,
    weaker: Vec<(usize, Mode)>,
    deadline: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub(crate) struct RefLock {
    pub(crate) id: LockId,
    pub(crate) owner: OwnerId,
    pub(crate) parts: Vec<Part>,
    pub(crate) token: Option<Token>,
    pub(crate) conversion: Option<RefConversion>,
    requested_at: Timestamp,
    granted_at: Timestamp,
    deadline: Option<Timestamp>,
    ttl_ms: Option<u64>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) rank: Rank,
}

#[derive(Debug, Clone)]
pub(crate) struct Reference {
    pub(crate) locks: Vec<RefLock>,
    away: BTreeMap<OwnerId, Timestamp>,
    numbers: u64,
    tokens: u64,
    conversions: u64,
    pub(crate) frozen: bool,
}

impl Reference {
    pub(crate) fn new() -> Reference {
        Reference {
            locks: Vec::new(),
            away: BTreeMap::new(),
            numbers: 0,
            tokens: 0,
            conversions: 0,
            frozen: false,
        }
    }

    pub(crate) fn lock(
        &mut self,
        owner: OwnerId,
        resources: &[Resource],
        wait: Wait,
        (ttl_ms, rank): (Option<u64>, Rank),
        now: Timestamp,
    ) -> Outcome {
        self.forget_the_lockless();
        let id = LockId(self.numbers);
        let parts: Vec<Part> =
            strongest(resources).into_iter().map(|resource| Part { resource, held: false }).collect();
        let deadline = wait.deadline(now);
        let mut lock = RefLock {
            id,
            owner,
            parts,
            token: None,
            conversion: None,
            requested_at: now,
            granted_at: now,
            deadline,
            ttl_ms,
            expires_at: None,
            rank,
        };
        let free = lock.parts.iter().all(|part| self.rivals_of_new(owner, &part.resource, rank).is_empty());
        if !free || self.frozen {
            for part in &mut lock.parts {
                part.held = self.has(owner, &part.resource);
            }
        }
        let open = lock.parts.iter().filter(|part| !part.held);
        let behind =
            open.map(|part| self.rivals_of_new(owner, &part.resource, rank)).any(|rivals| !rivals.is_empty());
        if !behind && !self.frozen {
            lock.parts.iter_mut().for_each(|part| part.held = true);
            self.locks.push(lock);
            if rank.overtakes() && self.in_cycle(owner) {
                self.locks.pop();
                return Outcome::Refused(Refusal::Deadlock(crate::Cycle(vec![])));
            }
            self.numbers += 1;
            let token = self.grant(id, now);
            return Outcome::Granted { lock: id, token };
        }
        if wait == Wait::Never {
            return Outcome::Refused(match self.frozen {
                true => Refusal::Frozen,
                false => Refusal::Busy { blockers: vec![] },
            });
        }
        self.numbers += 1;
        let overtakes_later = self.frozen && rank.overtakes();
        lock.rank = if overtakes_later { rank } else { rank.in_line() };
        self.locks.push(lock);
        if !overtakes_later && self.closes_cycle(id) {
            self.locks.pop();
            self.numbers -= 1;
            return Outcome::Refused(Refusal::Deadlock(crate::Cycle(vec![])));
        }
        Outcome::Queued { lock: id }
    }

    pub(crate) fn restore(
        &mut self,
        owner: OwnerId,
        resources: &[Resource],
        now: Timestamp,
    ) -> Option<LockId> {
        self.forget_the_lockless();
        let parts: Vec<Part> =
            strongest(resources).into_iter().map(|resource| Part { resource, held: true }).collect();
        let clash = |part: &Part| self.granted_rivals(owner, &part.resource).next().is_some();
        if parts.iter().any(clash) {
            return None;
        }
        let id = LockId(self.numbers);
        self.numbers += 1;
        let (conversion, deadline, token) = (None, None, Some(Token(0)));
        let (requested_at, granted_at) = (now, now);
        let (ttl_ms, expires_at) = (None, None);
        let lock = RefLock {
            id,
            owner,
            parts,
            token,
            conversion,
            requested_at,
            granted_at,
            deadline,
            ttl_ms,
            expires_at,
            rank: Rank::Ordinary,
        };
        self.locks.push(lock);
        Some(id)
    }

    /// Whether the owner could have all of it at once.
    pub(crate) fn admits(&self, owner: OwnerId, resources: &[Resource], rank: Rank) -> bool {
        let has = |resource: &Resource| self.has(owner, resource);
        let free = |resource: &Resource| self.rivals_of_new(owner, resource, rank).is_empty();
        let passes = resources.iter().all(|resource| has(resource) || free(resource));
        resources.iter().all(has) || (passes && !self.frozen)
    }

    /// Whether a lock of the owner has all of it; if one was found, whether that one has.
    pub(crate) fn holds(&self, owner: OwnerId, resources: &[Resource], found: Option<LockId>) -> bool {
        let has_all = |lock: &&RefLock| {
            lock.owner == owner
                && lock.token.is_some()
                && !lock.rank.is_operation()
                && found.is_none_or(|found| found == lock.id)
                && resources.iter().all(|wanted| lock.parts.iter().any(|part| part.resource.includes(wanted)))
        };
        self.locks.iter().any(|lock| has_all(&lock))
    }

    pub(crate) fn renew(&mut self, id: LockId, until: Option<Timestamp>) -> bool {
        let lock = self.find(id);
        if lock.token.is_some() {
            lock.expires_at = until;
        }
        lock.token.is_some()
    }

    pub(crate) fn thaw(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        self.frozen = false;
        self.let_overtake(now, effects);
        let holders: Vec<OwnerId> =
            self.locks.iter().filter(|lock| lock.token.is_some()).map(|lock| lock.owner).collect();
        let mut ids: Vec<LockId> = self.locks.iter().map(|lock| lock.id).rev().collect();
        ids.sort_by_key(|id| !holders.contains(&self.find(*id).owner));
        for id in ids {
            if !self.closes_cycle(id) {
                continue;
            }
            let (owner, cycle) = (self.find(id).owner, crate::Cycle(vec![]));
            if self.find(id).token.is_none() {
                self.remove(id);
                effects.push(Effect::Deadlocked { owner, lock: id, cycle });
            } else {
                self.find(id).conversion = None;
                effects.push(Effect::ConversionDeadlocked { owner, lock: id, cycle });
            }
        }
        let complete = |lock: &&RefLock| lock.token.is_none() && lock.parts.iter().all(|part| part.held);
        let ids: Vec<LockId> = self.locks.iter().filter(complete).map(|lock| lock.id).collect();
        for id in ids {
            self.grant_waiter(id, now, effects);
        }
        self.settle(now, effects);
    }

    fn let_overtake(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let overtakes = |lock: &&RefLock| lock.token.is_none() && lock.rank.overtakes();
        let ids: Vec<LockId> = self.locks.iter().filter(overtakes).map(|lock| lock.id).collect();
        for id in ids {
            let lock = self.locks.iter().find(|lock| lock.id == id).expect("the lock is there");
            let mut open = lock.parts.iter().filter(|part| !part.held);
            if open.any(|part| self.granted_rivals(lock.owner, &part.resource).next().is_some()) {
                let rank = lock.rank.in_line();
                self.find(id).rank = rank;
            } else {
                self.grant_waiter(id, now, effects);
            }
        }
    }

    pub(crate) fn release(&mut self, id: LockId, now: Timestamp, effects: &mut Vec<Effect>) {
        self.remove(id);
        self.settle(now, effects);
    }

    pub(crate) fn cancel(&mut self, id: LockId, now: Timestamp, effects: &mut Vec<Effect>) -> CancelOutcome {
        let lock = self.find(id);
        let outcome = match (lock.token, &lock.conversion) {
            (None, _) => CancelOutcome::Cancelled,
            (_, Some(_)) => CancelOutcome::ConversionCancelled,
            _ => return CancelOutcome::AlreadyGranted,
        };
        match outcome {
            CancelOutcome::Cancelled => self.remove(id),
            _ => lock.conversion = None,
        }
        self.settle(now, effects);
        outcome
    }

    pub(crate) fn convert(
        &mut self,
        id: LockId,
        change: &Change,
        wait: Wait,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> ConvertOutcome {
        let number = self.conversions;
        let lock = self.find(id);
        if lock.token.is_none() {
            return ConvertOutcome::Invalid(ConvertError::NotGranted);
        }
        if lock.conversion.is_some() {
            return ConvertOutcome::Invalid(ConvertError::AlreadyConverting);
        }
        let mut wanted: BTreeMap<usize, Mode> = BTreeMap::new();
        let nodes: Vec<usize> =
            (0..lock.parts.len()).filter(|index| !lock.parts[*index].resource.mode.on_child_list()).collect();
        match change {
            Change::All(mode) => wanted.extend(nodes.iter().map(|index| (*index, *mode))),
            Change::Paths(paths) => {
                for (path, mode) in paths {
                    let there = nodes.iter().filter(|index| lock.parts[**index].resource.path == *path);
                    let there: Vec<usize> = there.copied().collect();
                    if there.is_empty() {
                        return ConvertOutcome::Invalid(ConvertError::NoResourceAt(path.clone()));
                    }
                    wanted.extend(there.iter().map(|index| (*index, *mode)));
                }
            }
            Change::Modes(resources) => {
                for index in nodes {
                    let here = &lock.parts[index].resource;
                    let is_it = |other: &&Resource| other.path == here.path && other.depth == here.depth;
                    wanted.extend(resources.iter().rfind(is_it).map(|other| (index, other.mode)));
                }
            }
        }
        if wanted.values().any(|mode| mode.on_child_list()) {
            return ConvertOutcome::Invalid(ConvertError::ChildListMode);
        }
        wanted.retain(|index, mode| lock.parts[*index].resource.mode != *mode);
        let (weaker, stronger) =
            wanted.into_iter().partition(|(index, mode)| lock.parts[*index].resource.mode.includes(*mode));
        lock.conversion = Some(RefConversion { number, stronger, weaker, deadline: wait.deadline(now) });
        let owner = lock.owner;
        self.conversions += 1;
        let free = !self.frozen && self.conversion_blockers(id).is_empty();
        if free && !self.in_cycle(owner) {
            let token = self.finish(id, effects);
            self.settle(now, effects);
            return ConvertOutcome::Converted { token };
        }
        let refusal = match wait {
            _ if free => Some(Refusal::Deadlock(crate::Cycle(vec![]))),
            Wait::Never if self.frozen => Some(Refusal::Frozen),
            Wait::Never => Some(Refusal::Busy { blockers: vec![] }),
            _ if self.in_cycle(owner) => Some(Refusal::Deadlock(crate::Cycle(vec![]))),
            _ => None,
        };
        if let Some(refusal) = refusal {
            self.find(id).conversion = None;
            self.settle(now, effects);
            return ConvertOutcome::Refused(refusal);
        }
        ConvertOutcome::Queued
    }

    pub(crate) fn left(
        &mut self,
        owner: OwnerId,
        waiters: Waiters,
        until: Timestamp,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        self.away.remove(&owner);
        if waiters == Waiters::Leave {
            self.locks.retain(|lock| lock.owner != owner || lock.token.is_some() || lock.rank.is_operation());
            let own = |lock: &&mut RefLock| lock.owner == owner && !lock.rank.is_operation();
            for lock in self.locks.iter_mut().filter(own) {
                lock.conversion = None;
            }
        }
        if self.locks.iter().any(|lock| lock.owner == owner) {
            self.away.insert(owner, until);
        }
        self.settle(now, effects);
        self.expire(now, effects);
    }

    pub(crate) fn returned(&mut self, owner: OwnerId) {
        self.away.remove(&owner);
    }

    /// What is due happens in the order it is due; at one moment waits end before conversions do, those before
    /// locks do, and those before owners are given up.
    pub(crate) fn expire(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        loop {
            self.forget_the_lockless();
            let mut due: Vec<(Timestamp, u8, u64)> = Vec::new();
            for lock in &self.locks {
                if let (None, Some(at)) = (lock.token, lock.deadline) {
                    due.push((at, 0, lock.id.0));
                }
                if let Some(RefConversion { deadline: Some(at), .. }) = lock.conversion {
                    due.push((at, 1, lock.id.0));
                }
            }
            due.extend(self.locks.iter().filter_map(|lock| Some((lock.expires_at?, 2, lock.id.0))));
            due.extend(self.away.iter().map(|(owner, at)| (*at, 3, owner.0)));
            let Some((at, what, which)) = due.into_iter().min() else { return };
            if at > now {
                return;
            }
            match what {
                0 => {
                    let owner = self.find(LockId(which)).owner;
                    let blockers = self.blockers(LockId(which)).into_iter().map(|(_, id)| id).collect();
                    self.remove(LockId(which));
                    effects.push(Effect::TimedOut { owner, lock: LockId(which), blockers });
                }
                1 => {
                    let blockers =
                        self.conversion_blockers(LockId(which)).into_iter().map(|(_, id)| id).collect();
                    let lock = self.find(LockId(which));
                    lock.conversion = None;
                    effects.push(Effect::ConversionTimedOut { owner: lock.owner, lock: lock.id, blockers });
                }
                2 => {
                    let RefLock { owner, granted_at, .. } = *self.find(LockId(which));
                    self.remove(LockId(which));
                    let held_ms = now.since(granted_at);
                    effects.push(Effect::Expired { owner, lock: LockId(which), held_ms });
                }
                _ => self.give_up(OwnerId(which), now, effects),
            }
            self.settle(now, effects);
        }
    }

    /// Only owners with locks are known, and known to be away.
    fn forget_the_lockless(&mut self) {
        self.away.retain(|owner, _| self.locks.iter().any(|lock| lock.owner == *owner));
    }

    fn give_up(&mut self, owner: OwnerId, now: Timestamp, effects: &mut Vec<Effect>) {
        self.away.remove(&owner);
        for lock in self.locks.iter().filter(|lock| lock.owner == owner && !lock.rank.is_operation()) {
            let held_ms = lock.token.map(|_| now.since(lock.granted_at));
            effects.push(Effect::Abandoned { owner, lock: lock.id, held_ms });
        }
        self.locks.retain(|lock| lock.owner != owner || lock.rank.is_operation());
    }

    fn settle(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        while !self.frozen && self.settle_one(now, effects) {}
    }

    fn settle_one(&mut self, now: Timestamp, effects: &mut Vec<Effect>) -> bool {
        let mut conversions: Vec<(u64, LockId)> =
            self.locks.iter().filter_map(|lock| Some((lock.conversion.as_ref()?.number, lock.id))).collect();
        conversions.sort_unstable();
        for (_, id) in conversions {
            if self.conversion_blockers(id).is_empty() {
                let (owner, token) = (self.find(id).owner, self.finish(id, effects));
                effects.push(Effect::Converted { owner, lock: id, token });
                return true;
            }
        }
        let waiting: Vec<LockId> =
            self.locks.iter().filter(|lock| lock.token.is_none()).map(|lock| lock.id).collect();
        for id in waiting {
            if self.blockers(id).is_empty() {
                self.grant_waiter(id, now, effects);
                return true;
            }
        }
        false
    }

    fn grant_waiter(&mut self, id: LockId, now: Timestamp, effects: &mut Vec<Effect>) {
        let token = self.grant(id, now);
        let lock = self.find(id);
        let waited_ms = now.since(lock.requested_at);
        effects.push(Effect::Granted { owner: lock.owner, lock: id, token, waited_ms });
    }

    fn grant(&mut self, id: LockId, now: Timestamp) -> Token {
        let token = Token(self.tokens);
        self.tokens += 1;
        let lock = self.find(id);
        lock.token = Some(token);
        lock.expires_at = lock.ttl_ms.map(|ttl_ms| now.after(ttl_ms));
        lock.granted_at = now;
        token
    }

    fn finish(&mut self, id: LockId, effects: &mut Vec<Effect>) -> Token {
        let lock = self.find(id);
        let conversion = lock.conversion.take().expect("it converts");
        for (index, mode) in conversion.stronger.iter().chain(&conversion.weaker) {
            lock.parts[*index].resource.mode = *mode;
        }
        if conversion.stronger.is_empty() {
            return lock.token.expect("it is granted");
        }
        self.refuse_doomed(effects);
        let token = Token(self.tokens);
        self.tokens += 1;
        self.find(id).token = Some(token);
        token
    }

    fn refuse_doomed(&mut self, effects: &mut Vec<Effect>) {
        let mut others: Vec<(u64, LockId, OwnerId)> = self
            .locks
            .iter()
            .filter_map(|lock| Some((lock.conversion.as_ref()?.number, lock.id, lock.owner)))
            .collect();
        others.sort_unstable();
        for (_, lock, owner) in others {
            if self.closes_cycle(lock) {
                self.find(lock).conversion = None;
                let cycle = crate::Cycle(vec![]);
                effects.push(Effect::ConversionDeadlocked { owner, lock, cycle });
            }
        }
    }

    fn remove(&mut self, id: LockId) {
        self.locks.retain(|lock| lock.id != id);
    }

    fn find(&mut self, id: LockId) -> &mut RefLock {
        self.locks.iter_mut().find(|lock| lock.id == id).expect("the lock is there")
    }

    fn has(&self, owner: OwnerId, resource: &Resource) -> bool {
        self.held(|other| other == owner).any(|(_, held)| held.includes(resource))
    }

    /// Everything held by the owners chosen.
    fn held(&self, choose: impl Fn(OwnerId) -> bool) -> impl Iterator<Item = (&RefLock, &Resource)> {
        self.locks.iter().filter(move |lock| choose(lock.owner)).flat_map(|lock| {
            let held = lock.parts.iter().filter(|part| lock.token.is_some() || part.held);
            held.map(move |part| (lock, &part.resource))
        })
    }

    fn granted_rivals(&self, owner: OwnerId, resource: &Resource) -> impl Iterator<Item = (OwnerId, LockId)> {
        self.held(move |other| other != owner)
            .filter(|(_, held)| held.conflicts(resource))
            .map(|(lock, _)| (lock.owner, lock.id))
    }

    /// What a request that arrives now waits for.
    fn rivals_of_new(&self, owner: OwnerId, resource: &Resource, rank: Rank) -> BTreeSet<(OwnerId, LockId)> {
        match rank.overtakes() {
            true => self.granted_rivals(owner, resource).collect(),
            false => self.rivals(owner, resource, LockId(u64::MAX)),
        }
    }

    /// Held things, wanted conversions, and earlier waiters of others.
    fn rivals(&self, owner: OwnerId, resource: &Resource, before: LockId) -> BTreeSet<(OwnerId, LockId)> {
        let mut rivals: BTreeSet<(OwnerId, LockId)> = self.granted_rivals(owner, resource).collect();
        for lock in self.locks.iter().filter(|lock| lock.owner != owner) {
            let waits_ahead = lock.token.is_none() && lock.id < before;
            let ahead = waits_ahead && lock.parts.iter().any(|part| part.resource.conflicts(resource));
            if ahead || converted(lock).iter().any(|wanted| wanted.conflicts(resource)) {
                rivals.insert((lock.owner, lock.id));
            }
        }
        rivals
    }

    pub(crate) fn blockers(&self, id: LockId) -> BTreeSet<(OwnerId, LockId)> {
        let lock = self.locks.iter().find(|lock| lock.id == id).expect("the lock is there");
        let open = lock.parts.iter().filter(|part| !part.held);
        open.flat_map(|part| self.rivals(lock.owner, &part.resource, id)).collect()
    }

    pub(crate) fn conversion_blockers(&self, id: LockId) -> BTreeSet<(OwnerId, LockId)> {
        let lock = self.locks.iter().find(|lock| lock.id == id).expect("the lock is there");
        converted(lock).iter().flat_map(|wanted| self.granted_rivals(lock.owner, wanted)).collect()
    }

    /// True when the owner waits for itself through others.
    fn in_cycle(&self, owner: OwnerId) -> bool {
        self.locks.iter().filter(|lock| lock.owner == owner).any(|lock| self.closes_cycle(lock.id))
    }

    /// True when the owner waits for itself through others because of this lock.
    fn closes_cycle(&self, id: LockId) -> bool {
        let Some(lock) = self.locks.iter().find(|lock| lock.id == id) else { return false };
        let mut seen = BTreeSet::new();
        let mut next = self.waits_for(lock);
        while let Some(owner) = next.pop() {
            if owner == lock.owner {
                return true;
            }
            if seen.insert(owner) {
                let locks = self.locks.iter().filter(|other| other.owner == owner);
                next.extend(locks.flat_map(|other| self.waits_for(other)));
            }
        }
        false
    }

    fn waits_for(&self, lock: &RefLock) -> Vec<OwnerId> {
        let blockers = if lock.token.is_none() { self.blockers(lock.id) } else { BTreeSet::new() };
        blockers.into_iter().chain(self.conversion_blockers(lock.id)).map(|(owner, _)| owner).collect()
    }
}

/// The stronger resources a lock wants to be converted to.
fn converted(lock: &RefLock) -> Vec<Resource> {
    let stronger = lock.conversion.iter().flat_map(|conversion| &conversion.stronger);
    stronger.map(|(index, mode)| Resource { mode: *mode, ..lock.parts[*index].resource.clone() }).collect()
}

/// Of resources that differ only in mode, those not included in another one; in the order of their paths.
fn strongest(resources: &[Resource]) -> Vec<Resource> {
    let unique: BTreeSet<Resource> = resources.iter().cloned().collect();
    let same_place =
        |a: &Resource, b: &Resource| a.path == b.path && a.depth == b.depth && a.site() == b.site();
    unique
        .iter()
        .filter(|one| {
            !unique
                .iter()
                .any(|other| other != *one && same_place(one, other) && other.mode.includes(one.mode))
        })
        .cloned()
        .collect()
}
