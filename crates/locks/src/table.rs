//! The lock table: who holds what, who waits for whom. Knows nothing of connections, clocks or storage;
//! time is an argument, and a call never blocks.
//!
//! How a queue works. Every resource of a lock is an *entry* at its node of the tree, with an order number.
//! An entry is free when no entry of another owner that conflicts with it has a smaller number; a lock is
//! granted when all its entries are free. A blocked entry watches just one of those in its way, the latest,
//! and looks again when that one is gone:
//!
//! ```text
//! order   1 W    2 W    3 R    4 R    5 W          all on one node, 1 is granted
//! watches        1      2      2      4
//! ```
//!
//! When 1 goes, only 2 looks again. When 2 goes, 3 and 4 look again and are granted together. When 4 goes,
//! 5 looks again and watches 3. So a queue of n costs n numbers, and a hand-over costs one look.
//!
//! Two kinds of entry do not go to the end of the line but to the front: those of a *conversion*, which
//! wait for granted entries only, and those a *repeated request* makes for what its owner already holds,
//! which are granted at once.

use crate::{
    counters::Counters,
    entry::{Claim, Entry, EntryKey, LockKey, Order, Place, Watchers},
    fault::Fault,
    journal::Journal,
    lock::{Deadline, End, Lock, Owner, Pending, State},
    outcome::{
        CancelOutcome, Counts, Cycle, Effect, Ended, Outcome, Rank, Recorded, Refusal, Request, UnknownLock,
        Waiters,
    },
    tree::{Among, Tree},
};
use foldhash::quality::FixedState;
use hashbrown::HashMap;
use lockwood_model::{LockId, OwnerId, Resource, Timestamp, Token, Wait};
use slab::Slab;
use smallvec::SmallVec;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

/// How many of the locks in a waiter's way are named; their number is always given.
pub const BLOCKERS_LEN_MAX: usize = 16;

/// All locks of one namespace.
///
/// Between two calls these hold, and `check_invariants` asserts them:
/// - no two granted entries of different owners conflict;
/// - a waiting entry is blocked exactly as long as it watches an entry that is alive and in its way;
/// - a granted entry that is in the way of a waiting one at the back has a smaller order;
/// - no owner waits for itself through others.
#[derive(Debug)]
pub struct LockTable {
    pub(crate) tree: Tree,
    pub(crate) entries: Slab<Entry>,
    pub(crate) locks: Slab<Lock>,
    pub(crate) by_id: BTreeMap<LockId, LockKey>,
    /// The locks that are held, by the token of their last grant.
    pub(crate) by_token: HashMap<Token, LockKey, foldhash::fast::FixedState>,
    pub(crate) owners: HashMap<OwnerId, Owner, FixedState>,
    pub(crate) deadlines: BTreeSet<(Timestamp, Deadline)>,
    /// Locks with a pending conversion.
    pub(crate) converting: BTreeSet<LockKey>,
    /// Entries that must look again, the earliest first.
    pub(crate) woken: BinaryHeap<Reverse<(Order, EntryKey)>>,
    /// Counts the events that can put something in the way of an entry that was free before.
    pub(crate) upheavals: u64,
    pub(crate) frozen: bool,
    pub(crate) waiting_len: usize,
    pub(crate) counters: Counters,
    pub(crate) journal: Journal,
    next_back: Order,
    next_front: Order,
}

impl LockTable {
    /// An empty table whose lock ids and tokens are all at least `first_number`.
    ///
    /// `hash_seed` should be unpredictable to whoever chooses the paths.
    pub fn new(first_number: u64, hash_seed: u64) -> LockTable {
        LockTable {
            tree: Tree::new(hash_seed),
            entries: Slab::new(),
            locks: Slab::new(),
            by_id: BTreeMap::new(),
            by_token: HashMap::default(),
            owners: HashMap::with_hasher(FixedState::with_seed(hash_seed)),
            deadlines: BTreeSet::new(),
            converting: BTreeSet::new(),
            woken: BinaryHeap::new(),
            upheavals: 0,
            frozen: false,
            waiting_len: 0,
            counters: Counters::new(first_number),
            journal: Journal::default(),
            next_back: Order::BACK,
            next_front: Order::FIRST,
        }
    }

    /// Takes a set of resources, queues for it, or says why not. Grants nothing to others.
    pub fn lock(&mut self, request: Request, now: Timestamp) -> Outcome {
        let Request { owner, mut resources, wait, ttl_ms, rank } = request;
        let end = ttl_ms.map_or(End::Never, End::After);
        let repeated_segments = merge_counting(&mut resources);
        let places = self.places(owner, &resources);
        let mut wanted: SmallVec<[Wanted; 2]> = places.iter().map(|place| self.judge(*place, rank)).collect();
        if !self.is_complete(&wanted) {
            self.claim_held(&places, &mut wanted);
        }
        if self.is_complete(&wanted) {
            let lock = self.new_lock(owner, now, None, (end, rank));
            self.locks[lock.0 as usize].repeated_segments = repeated_segments;
            self.insert_entries(lock, &places, &wanted);
            // It may come to be in the way of those its owner waits for elsewhere.
            if rank.overtakes()
                && let Some(cycle) = self.find_cycle_of(owner)
            {
                return self.undo_lock(lock, cycle);
            }
            let token = self.grant_lock(lock, now);
            return Outcome::Granted { lock: self.lock_of(lock).id, token };
        }
        if wait == Wait::Never {
            let refusal = self.refuse(&places, rank);
            places.iter().for_each(|place| self.tree.prune(place.node));
            return Outcome::Refused(refusal);
        }
        for (place, wanted) in places.iter().zip(&mut wanted) {
            if *wanted != Wanted::Held {
                *wanted = self.judge(*place, rank.in_line());
            }
        }
        let lock = self.new_lock(owner, now, wait.deadline(now), (end, rank.in_line()));
        self.locks[lock.0 as usize].repeated_segments = repeated_segments;
        self.insert_entries(lock, &places, &wanted);
        if self.frozen && rank.overtakes() {
            // The thaw lets it go ahead. Until then those in line may wait for its owner: that is no cycle.
            self.lock_mut(lock).rank = rank;
            return Outcome::Queued { lock: self.lock_of(lock).id };
        }
        match self.find_cycle_by(lock) {
            Some(cycle) => self.undo_lock(lock, cycle),
            None => Outcome::Queued { lock: self.lock_of(lock).id },
        }
    }

    fn undo_lock(&mut self, lock: LockKey, cycle: Cycle) -> Outcome {
        self.remove_lock(lock);
        debug_assert!(self.woken.is_empty(), "nobody can be behind the newest request");
        // The number was told to no client yet.
        self.counters.untake_lock();
        Outcome::Refused(Refusal::Deadlock(cycle))
    }

    /// Puts back a lock that was held before a restart, with the token it had. Only for a frozen table.
    ///
    /// Fails with the locks in the way if others have been put back that conflict with it.
    pub fn restore(
        &mut self,
        owner: OwnerId,
        mut resources: Vec<Resource>,
        token: Token,
        now: Timestamp,
    ) -> Result<LockId, Vec<LockId>> {
        assert!(self.frozen, "locks are put back before anything is granted");
        merge(&mut resources);
        let places = self.places(owner, &resources);
        if places.iter().any(|place| self.rival(*place, Among::Granted, Order::END).is_some()) {
            let blockers = self.blockers_of(&places, Among::Granted);
            places.iter().for_each(|place| self.tree.prune(place.node));
            return Err(blockers);
        }
        let lock = self.new_lock(owner, now, None, (End::Never, Rank::Ordinary));
        self.put_back(lock, &places, token, now);
        Ok(self.lock_of(lock).id)
    }

    /// Puts back a lock that was recorded when it was granted, under the number it had. Only for a frozen
    /// table. Fails with the locks in the way; then the record is wrong, or that of another.
    pub fn restore_recorded(&mut self, recorded: Recorded) -> Result<(), Vec<LockId>> {
        assert!(self.frozen, "locks are put back before anything is granted");
        let Recorded { lock: id, token, owner, mut resources, granted_at, expires_at } = recorded;
        merge(&mut resources);
        let places = self.places(owner, &resources);
        if places.iter().any(|place| self.rival(*place, Among::Granted, Order::END).is_some()) {
            let blockers = self.blockers_of(&places, Among::Granted);
            places.iter().for_each(|place| self.tree.prune(place.node));
            return Err(blockers);
        }
        let lock = self.insert_lock(id, owner, granted_at, None, (End::Never, Rank::Ordinary));
        self.put_back(lock, &places, token, granted_at);
        self.set_end(lock, expires_at);
        Ok(())
    }

    fn put_back(&mut self, lock: LockKey, places: &[Place], token: Token, at: Timestamp) {
        self.insert_entries(lock, places, &vec![Wanted::Held; places.len()]);
        self.upheavals += 1;
        self.waiting_len -= 1;
        self.lock_mut(lock).state = State::Granted { token, at };
        self.by_token.insert(token, lock);
        self.journal.note(self.lock_of(lock).id);
    }

    /// Whether an owner could have these resources at once: with nothing of others in the way, held or
    /// waiting, or because it has them already. Changes nothing.
    pub fn admits(&mut self, owner: OwnerId, resources: &[Resource], rank: Rank) -> Result<(), Refusal> {
        if self.locks.is_empty() && !self.frozen {
            return Ok(());
        }
        let places = self.places(owner, resources);
        let mut wanted: SmallVec<[Wanted; 2]> = places.iter().map(|place| self.judge(*place, rank)).collect();
        if !self.is_complete(&wanted) {
            self.claim_held(&places, &mut wanted);
        }
        let has_all = wanted.iter().all(|wanted| *wanted == Wanted::Held);
        let admitted = match self.is_complete(&wanted) || has_all {
            true => Ok(()),
            false => Err(self.refuse(&places, rank)),
        };
        places.iter().for_each(|place| self.tree.prune(place.node));
        admitted
    }

    /// From now on a held lock of `owner` ends by itself at this moment, or not at all.
    pub fn renew(
        &mut self,
        owner: OwnerId,
        lock: LockId,
        until: Option<Timestamp>,
    ) -> Result<(), UnknownLock> {
        let key =
            self.key_of(owner, lock).filter(|key| !self.lock_of(*key).is_waiting()).ok_or(UnknownLock)?;
        self.set_end(key, until);
        Ok(())
    }

    pub(crate) fn places(&mut self, owner: OwnerId, resources: &[Resource]) -> SmallVec<[Place; 2]> {
        let place = |resource| Place::new(self.tree.ensure(resource), resource, owner);
        resources.iter().map(place).collect()
    }

    /// Ends a lock of `owner`, held or waiting, and hands it over.
    pub fn release(
        &mut self,
        owner: OwnerId,
        lock: LockId,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> Result<Ended, UnknownLock> {
        let key = self.key_of(owner, lock).ok_or(UnknownLock)?;
        Ok(self.end_lock(key, now, effects))
    }

    /// Ends a lock whoever owns it.
    pub fn revoke(
        &mut self,
        lock: LockId,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> Result<Ended, UnknownLock> {
        let key = *self.by_id.get(&lock).ok_or(UnknownLock)?;
        Ok(self.end_lock(key, now, effects))
    }

    /// Ends the waiting of a lock or of its conversion.
    pub fn cancel(
        &mut self,
        owner: OwnerId,
        lock: LockId,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> CancelOutcome {
        let Some(key) = self.key_of(owner, lock) else { return CancelOutcome::UnknownLock };
        if self.lock_of(key).is_waiting() {
            self.end_lock(key, now, effects);
            return CancelOutcome::Cancelled;
        }
        if self.lock_of(key).conversion.is_some() {
            self.remove_conversion(key);
            self.settle(now, effects);
            return CancelOutcome::ConversionCancelled;
        }
        CancelOutcome::AlreadyGranted
    }

    /// Ends all locks of an owner but those of its operations; says how many there were.
    pub fn release_all(&mut self, owner: OwnerId, now: Timestamp, effects: &mut Vec<Effect>) -> Vec<Ended> {
        let ended = self.own(owner).into_iter().map(|key| self.ended(key, now)).collect();
        self.settle(now, effects);
        ended
    }

    /// The owner cannot be reached. Its locks stay until `until` unless it comes back.
    pub fn owner_left(
        &mut self,
        owner: OwnerId,
        waiters: Waiters,
        until: Timestamp,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        self.owner_returned(owner);
        if waiters == Waiters::Leave {
            self.stop_waiting(owner);
        }
        if let Some(state) = self.owners.get_mut(&owner) {
            state.away_until = Some(until);
            self.deadlines.insert((until, Deadline::Owner(owner)));
        }
        self.settle(now, effects);
        self.expire(now, effects);
    }

    /// The owner is back; says how many locks it still has.
    pub fn owner_returned(&mut self, owner: OwnerId) -> usize {
        let Some(state) = self.owners.get_mut(&owner) else { return 0 };
        if let Some(until) = state.away_until.take() {
            self.deadlines.remove(&(until, Deadline::Owner(owner)));
        }
        state.locks.len()
    }

    /// Carries out what was due by `now`.
    pub fn expire(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        self.expire_some(now, usize::MAX, effects);
    }

    /// Carries out some of what was due by `now`, the earliest first; the rest is still due.
    pub fn expire_some(&mut self, now: Timestamp, len_max: usize, effects: &mut Vec<Effect>) {
        for _ in 0..len_max {
            let Some(&(_, deadline)) = self.deadlines.first().filter(|(at, _)| *at <= now) else { return };
            self.deadlines.pop_first();
            match deadline {
                Deadline::Wait(lock) => self.end_wait(lock, effects),
                Deadline::Conversion(lock) => self.end_conversion_wait(lock, effects),
                Deadline::Expiry(lock) => self.end_time(lock, now, effects),
                Deadline::Owner(owner) => self.give_up(owner, now, effects),
            }
            self.settle(now, effects);
        }
    }

    /// Time stood still for holders: locks that end by themselves, or with an absent owner, end so much later. Waits are not
    /// prolonged.
    pub fn postpone_ends(&mut self, by_ms: u64) {
        let is_end = |deadline: Deadline| matches!(deadline, Deadline::Expiry(_) | Deadline::Owner(_));
        let (ends, rest) = std::mem::take(&mut self.deadlines).into_iter().partition(|(_, due)| is_end(*due));
        self.deadlines = rest;
        let ends: BTreeSet<(Timestamp, Deadline)> = ends;
        for (at, deadline) in ends {
            let at = at.after(by_ms);
            match deadline {
                Deadline::Expiry(lock) => self.locks[self.by_id[&lock].0 as usize].end = End::At(at),
                Deadline::Owner(owner) => {
                    self.owners.get_mut(&owner).expect("an owner that is away has locks").away_until =
                        Some(at);
                }
                Deadline::Wait(_) | Deadline::Conversion(_) => unreachable!("these are no ends"),
            }
            self.deadlines.insert((at, deadline));
        }
    }

    /// When [`LockTable::expire`] has something to do next.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// From now on nothing is granted; requests queue, and locks can be [restored](LockTable::restore).
    pub fn freeze(&mut self) {
        self.frozen = true;
    }

    /// The end of [`LockTable::freeze`]: whoever has nothing in the way is granted.
    pub fn thaw(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        self.frozen = false;
        self.let_overtake(now, effects);
        self.break_cycles(effects);
        let pending: Vec<LockKey> =
            self.by_id.values().copied().filter(|key| self.is_pending(*key)).collect();
        for key in pending {
            if !self.wake_free(key) {
                let converts = !self.lock_of(key).is_waiting();
                self.grant_if_free(key, converts, now, effects);
            }
        }
        self.settle(now, effects);
    }

    /// True while nothing is granted.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// A number larger than every lock id and token given out so far.
    pub fn next_number(&self) -> u64 {
        self.counters.next()
    }

    /// The number this table started from.
    pub fn first_number(&self) -> u64 {
        self.counters.first()
    }

    /// How many locks there have been, refused ones aside.
    pub fn locks_total(&self) -> u64 {
        self.counters.locks_len()
    }

    /// True when there is no lock at all.
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// How many locks there are, held and waiting.
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// How many locks stand in line.
    pub fn waiting_len(&self) -> usize {
        self.waiting_len
    }

    /// How many locks stand in line, and how many conversions.
    pub fn pending_len(&self) -> usize {
        self.waiting_len + self.converting.len()
    }

    /// How many locks an owner has, held and waiting.
    pub fn owned_len(&self, owner: OwnerId) -> usize {
        self.owners.get(&owner).map_or(0, |owner| owner.locks.len())
    }

    /// The owners that hold a lock, in no particular order.
    pub fn holders(&self) -> impl Iterator<Item = OwnerId> {
        let holds = |owner: &Owner| owner.locks.iter().any(|key| !self.lock_of(*key).is_waiting());
        self.owners.iter().filter(move |(_, owner)| holds(owner)).map(|(id, _)| *id)
    }

    /// How many resources an owner's locks have together.
    pub fn owned_resources_len(&self, owner: OwnerId) -> usize {
        self.owners.get(&owner).map_or(0, |owner| owner.resources_len)
    }

    /// How many nodes have something on or below them, the root included.
    pub fn nodes_len(&self) -> usize {
        self.tree.len()
    }

    /// How many resources all locks have together, and all conversions that wait.
    pub fn resources_len(&self) -> usize {
        self.entries.len()
    }

    /// Counts what is there. Takes time in proportion to it.
    pub fn counts(&self) -> Counts {
        let resources_granted = self.entries.iter().filter(|(_, entry)| entry.granted()).count();
        Counts {
            locks_granted: self.locks.len() - self.waiting_len,
            locks_waiting: self.waiting_len,
            resources_granted,
            resources_waiting: self.entries.len() - resources_granted,
            nodes: self.tree.len(),
            owners: self.owners.len(),
        }
    }
}

/// What stands against one resource of a new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Nothing.
    Free,
    /// Its owner holds it already, so whoever is in the way waits for that owner anyhow.
    Held,
    /// At least this.
    Behind(EntryKey),
}

// Requests.
impl LockTable {
    pub(crate) fn judge(&self, place: Place, rank: Rank) -> Wanted {
        let among = if rank.overtakes() { Among::Granted } else { self.ahead() };
        match self.rival(place, among, Order::END) {
            None => Wanted::Free,
            Some(rival) => Wanted::Behind(rival),
        }
    }

    /// True when the request can be granted at once.
    fn is_complete(&self, wanted: &[Wanted]) -> bool {
        !self.frozen && wanted.iter().all(|wanted| !matches!(wanted, Wanted::Behind(_)))
    }

    /// A request that would have to wait need not wait for what its owner holds already.
    pub(crate) fn claim_held(&self, places: &[Place], wanted: &mut [Wanted]) {
        for (place, wanted) in places.iter().zip(wanted) {
            if self.holds(*place) {
                *wanted = Wanted::Held;
            }
        }
    }

    /// Whom a request at the back waits for.
    pub(crate) fn ahead(&self) -> Among {
        if self.tree.faults.has(Fault::SkipQueue) { Among::Granted } else { Among::All }
    }

    /// The latest entry of another owner that is in the way of `place`.
    pub(crate) fn rival(&self, place: Place, among: Among, before: Order) -> Option<EntryKey> {
        let selfish = self.tree.faults.has(Fault::ConflictWithSelf);
        let lax = self.tree.faults.has(Fault::PassConversion);
        self.tree.latest_rival(place, among, before, |key| {
            let entry = self.entry(key);
            (entry.owner != place.owner || selfish) && !(lax && entry.converts)
        })
    }

    /// True when a lock of the owner already has all of `place`.
    fn holds(&self, place: Place) -> bool {
        let Some(owner) = self.owners.get(&place.owner) else { return false };
        let covers = |key: EntryKey| {
            let entry = self.entry(key);
            entry.owner == place.owner && entry.granted() && self.includes(entry, place)
        };
        // Whichever is less: all that the owner has, or all that stands on the way up from here.
        if owner.resources_len <= self.tree.len_above(place.node) {
            owner.locks.iter().flat_map(|lock| &self.lock_of(*lock).entries).any(|key| covers(*key))
        } else {
            self.tree.above(place.node).any(|node| self.tree.here(node).iter().any(covers))
        }
    }

    fn refuse(&self, places: &[Place], rank: Rank) -> Refusal {
        let among = if rank.overtakes() { Among::Granted } else { Among::All };
        match self.frozen {
            true => Refusal::Frozen,
            false => Refusal::Busy { blockers: self.blockers_of(places, among) },
        }
    }

    /// A new lock, waiting and without entries.
    fn new_lock(
        &mut self,
        owner: OwnerId,
        now: Timestamp,
        deadline: Option<Timestamp>,
        kind: (End, Rank),
    ) -> LockKey {
        let id = self.counters.take_lock();
        self.insert_lock(id, owner, now, deadline, kind)
    }

    pub(crate) fn insert_lock(
        &mut self,
        id: LockId,
        owner: OwnerId,
        now: Timestamp,
        deadline: Option<Timestamp>,
        (end, rank): (End, Rank),
    ) -> LockKey {
        debug_assert!(!self.by_id.contains_key(&id), "a lock of this number is here already");
        let pending = Pending { blocked: 0, looked_at: self.upheavals, deadline };
        let lock = Lock {
            id,
            owner,
            slot: 0,
            entries: SmallVec::new(),
            repeated_segments: 0,
            state: State::Waiting(pending),
            requested_at: now,
            conversion: None,
            end,
            rank,
        };
        let key = LockKey(u32::try_from(self.locks.insert(lock)).expect("fewer than 2^32 locks"));
        let list = &mut self.owners.entry(owner).or_default().locks;
        self.locks[key.0 as usize].slot = list.len() as u32;
        list.push(key);
        self.by_id.insert(id, key);
        self.waiting_len += 1;
        if let Some(at) = deadline {
            self.deadlines.insert((at, Deadline::Wait(id)));
        }
        key
    }

    /// Gives a new lock its entries. If none of them is behind another the caller must grant it.
    pub(crate) fn insert_entries(&mut self, lock: LockKey, places: &[Place], wanted: &[Wanted]) {
        let complete = self.is_complete(wanted);
        let owner = self.lock_of(lock).owner;
        self.owners.get_mut(&owner).expect("a lock has an owner").resources_len += places.len();
        for (place, wanted) in places.iter().zip(wanted) {
            let reentrant = *wanted == Wanted::Held && !self.tree.faults.has(Fault::ReentrantAtBack);
            let in_front = reentrant || self.lock_of(lock).rank.overtakes();
            let order = if in_front { self.take_front() } else { self.take_back() };
            let claim = if complete || *wanted == Wanted::Held { Claim::Granted } else { Claim::Free };
            let key = self.insert_entry(lock, *place, order, claim, false);
            self.lock_mut(lock).entries.push(key);
            if let Wanted::Behind(rival) = wanted {
                self.watch(key, *rival);
                self.lock_mut(lock).pending_mut(false).blocked += 1;
            }
        }
    }

    pub(crate) fn insert_entry(
        &mut self,
        lock: LockKey,
        place: Place,
        order: Order,
        claim: Claim,
        converts: bool,
    ) -> EntryKey {
        let Place { node, mode, depth, owner } = place;
        let watchers = Watchers::default();
        let entry = Entry { lock, owner, node, mode, depth, order, claim, converts, watchers };
        let slot = self.entries.vacant_entry();
        let key = EntryKey(u32::try_from(slot.key()).expect("fewer than 2^32 entries"));
        self.tree.insert(key, &entry);
        slot.insert(entry);
        key
    }

    pub(crate) fn take_back(&mut self) -> Order {
        let order = self.next_back;
        self.next_back = Order(order.0 + 1);
        order
    }

    pub(crate) fn take_front(&mut self) -> Order {
        let order = self.next_front;
        self.next_front = Order(order.0 + 1);
        order
    }

    pub(crate) fn take_token(&mut self) -> Token {
        self.counters.take_token(self.tree.faults.has(Fault::RepeatToken))
    }
}

// Endings.
impl LockTable {
    fn end_lock(&mut self, key: LockKey, now: Timestamp, effects: &mut Vec<Effect>) -> Ended {
        let ended = self.ended(key, now);
        self.settle(now, effects);
        ended
    }

    fn ended(&mut self, key: LockKey, now: Timestamp) -> Ended {
        let lock = self.lock_of(key);
        let ended = Ended { owner: lock.owner, held_ms: lock.held_ms(now) };
        self.remove_lock(key);
        ended
    }

    /// Removes a lock and wakes those behind it; [`LockTable::settle`] must follow.
    pub(crate) fn remove_lock(&mut self, key: LockKey) {
        self.remove_conversion(key);
        let lock = self.locks.remove(key.0 as usize);
        match &lock.state {
            State::Waiting(pending) => {
                self.waiting_len -= 1;
                if let Some(at) = pending.deadline {
                    self.deadlines.remove(&(at, Deadline::Wait(lock.id)));
                }
            }
            State::Granted { token, .. } => {
                // With a fault planted two grants share a token, and it is the other's by now.
                self.by_token.remove(token);
                self.journal.note(lock.id);
            }
        }
        if let Some(at) = lock.end.at() {
            self.deadlines.remove(&(at, Deadline::Expiry(lock.id)));
        }
        self.forget_owned(lock.owner, lock.slot, lock.entries.len());
        for entry in lock.entries {
            self.remove_entry(entry);
        }
        self.by_id.remove(&lock.id);
    }

    fn forget_owned(&mut self, owner: OwnerId, slot: u32, resources_len: usize) {
        let state = self.owners.get_mut(&owner).expect("a lock has an owner");
        state.resources_len -= resources_len;
        state.locks.swap_remove(slot as usize);
        if let Some(moved) = state.locks.get(slot as usize) {
            self.locks[moved.0 as usize].slot = slot;
        } else if state.locks.is_empty() {
            if let Some(until) = state.away_until {
                self.deadlines.remove(&(until, Deadline::Owner(owner)));
            }
            self.owners.remove(&owner);
        }
    }

    pub(crate) fn remove_entry(&mut self, key: EntryKey) {
        let entry = self.entries.remove(key.0 as usize);
        if let Claim::Behind(rival) = entry.claim {
            self.unlink(rival, &entry.watchers);
        }
        self.tree.remove(&entry);
        self.tree.prune(entry.node);
        if !entry.granted() && self.tree.faults.has(Fault::ForgetWaiterOnCancel) {
            return;
        }
        self.wake(entry.watchers.first);
    }

    /// The locks that go with an owner: not those of its operations, which end by themselves.
    fn own(&self, owner: OwnerId) -> SmallVec<[LockKey; 2]> {
        let locks = self.owners.get(&owner).map(|owner| &owner.locks[..]).unwrap_or_default();
        locks.iter().copied().filter(|key| !self.lock_of(*key).rank.is_operation()).collect()
    }

    fn stop_waiting(&mut self, owner: OwnerId) {
        for key in self.own(owner) {
            match self.lock_of(key).is_waiting() {
                true => self.remove_lock(key),
                false => self.remove_conversion(key),
            }
        }
    }

    fn end_wait(&mut self, lock: LockId, effects: &mut Vec<Effect>) {
        let key = self.by_id[&lock];
        let owner = self.lock_of(key).owner;
        let blockers = self.some_blockers(key);
        self.lock_mut(key).pending_mut(false).deadline = None;
        if !self.tree.faults.has(Fault::KeepTimedOut) {
            self.remove_lock(key);
        }
        effects.push(Effect::TimedOut { owner, lock, blockers });
    }

    fn end_conversion_wait(&mut self, lock: LockId, effects: &mut Vec<Effect>) {
        let key = self.by_id[&lock];
        let owner = self.lock_of(key).owner;
        let blockers = self.some_blockers(key);
        self.lock_mut(key).pending_mut(true).deadline = None;
        self.remove_conversion(key);
        effects.push(Effect::ConversionTimedOut { owner, lock, blockers });
    }

    fn end_time(&mut self, lock: LockId, now: Timestamp, effects: &mut Vec<Effect>) {
        let key = self.by_id[&lock];
        self.lock_mut(key).end = End::Never;
        if self.tree.faults.has(Fault::KeepExpired) {
            return;
        }
        let Ended { owner, held_ms } = self.ended(key, now);
        effects.push(Effect::Expired { owner, lock, held_ms: held_ms.unwrap_or_default() });
    }

    fn give_up(&mut self, owner: OwnerId, now: Timestamp, effects: &mut Vec<Effect>) {
        let state = self.owners.get_mut(&owner).expect("an owner that is away has locks");
        state.away_until = None;
        if self.tree.faults.has(Fault::KeepAbandoned) {
            return;
        }
        for key in self.own(owner) {
            let lock = self.lock_of(key).id;
            let ended = self.ended(key, now);
            effects.push(Effect::Abandoned { owner, lock, held_ms: ended.held_ms });
        }
    }
}

// Access.
impl LockTable {
    pub(crate) fn key_of(&self, owner: OwnerId, lock: LockId) -> Option<LockKey> {
        self.by_id.get(&lock).copied().filter(|key| self.lock_of(*key).owner == owner)
    }

    pub(crate) fn entry(&self, key: EntryKey) -> &Entry {
        &self.entries[key.0 as usize]
    }

    pub(crate) fn entry_mut(&mut self, key: EntryKey) -> &mut Entry {
        &mut self.entries[key.0 as usize]
    }

    pub(crate) fn lock_of(&self, key: LockKey) -> &Lock {
        &self.locks[key.0 as usize]
    }

    pub(crate) fn lock_mut(&mut self, key: LockKey) -> &mut Lock {
        &mut self.locks[key.0 as usize]
    }
}

/// [`merge`] that says how many segments the paths it drops have.
fn merge_counting(resources: &mut Vec<Resource>) -> u32 {
    if resources.len() < 2 {
        return 0;
    }
    let segments = |resources: &[Resource]| resources.iter().map(|one| one.path.len() as u32).sum::<u32>();
    let asked = segments(resources);
    merge(resources);
    asked - segments(resources)
}

/// Sorts resources and keeps, of those that differ only in strength, the strongest. Locks have their resources
/// so, however they were asked for.
pub fn merge(resources: &mut Vec<Resource>) {
    if resources.len() < 2 {
        return;
    }
    let place = |resource: &Resource| (resource.depth, resource.mode.on_child_list());
    resources.sort_unstable_by(|a, b| {
        a.path.cmp(&b.path).then_with(|| place(a).cmp(&place(b))).then_with(|| b.mode.cmp(&a.mode))
    });
    // `later` is dropped when the kept one before it includes it: write, update and read sort in that order.
    resources.dedup_by(|later, kept| {
        later.path == kept.path && place(later) == place(kept) && kept.mode.includes(later.mode)
    });
}
