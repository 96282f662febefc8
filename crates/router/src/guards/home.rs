//! The home's side of guards: which shards are members, which guards they have, and when a lock may be granted. Knows
//! nothing of queues, sessions or time: the lock table decides, and its decisions come here before a client hears of them.
//!
//! | event | what follows |
//! | --- | --- |
//! | [`Home::decided`] | guards for covered members; granted when all have acknowledged, at once if there are none |
//! | [`Home::converted`] | stronger: guarded, then granted, then the old guard lifted; weaker: granted, guarded, lifted |
//! | [`Home::restored`] | during grace: a re-attached lock or a recorded lease is held and guarded |
//! | [`Home::released`] | lifts |
//! | [`Home::receive`] | a join is answered with a snapshot, an acknowledgement may complete a grant |
//! | [`Home::owner_changed`] | the previous owner is no member any more: its appends are rejected, its successor joins |
//! | [`Home::sessions_over`] | grace ends when every shard has been heard from |
//! | [`Home::map_changed`] | members receive guards for arriving keys, then the map's epoch |
//! | [`Home::redefined`] | members catch up and confirm; [`Home::defined`] says by which version all of them go |

use super::{
    coverage::{Coverage, Covered},
    fault::{Fault, is_planted},
    message::{
        DefinitionsNo, Guard, GuardId, GuardNo, GuardState, HomeContent, HomeEpoch, HomeMessage, JoinNo,
        MapEpoch, MemberContent, MemberMessage, Phase, SequenceNo, Stream,
    },
};
use crate::{ShardEpoch, ShardNo};
use lockwood_model::{LockId, OwnerId, Resource, Token};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

/// How much the guards of one message weigh at the most: a part of a snapshot travels in less than a call.
const PART_WEIGHT_MAX: usize = 128 * 1024;

/// Whether a home may still act as the owner, at the moment it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// The last renewal is recent: PostgreSQL has named no other owner.
    Fresh,
    /// Another owner may have been named.
    Stale,
}

/// A lock that the table has decided to grant, or to convert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The lock.
    pub lock: LockId,
    /// Its owner.
    pub owner: OwnerId,
    /// The token of this grant.
    pub token: Token,
    /// All that the lock covers from then on.
    pub resources: Vec<Resource>,
}

/// What the owner of the home does next, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send this; messages to one shard arrive in the order of their numbers, or not at all.
    Send(HomeMessage),
    /// Record the grant or conversion if it is a lease, and tell the client.
    Granted {
        /// The lock.
        lock: LockId,
        /// The token of the grant.
        token: Token,
    },
    /// Answer a join or leave that is addressed to another home, or comes from a previous owner of the shard.
    Reject(Stream),
    /// Let the lock table grant again; locks that were not restored by now are lost.
    GraceEnded,
}

/// The guards of one namespace, while one node owns its home.
///
/// Between two calls these hold, and `check_invariants` asserts them:
/// - a guard awaits acknowledgements of members only, and a held guard of none;
/// - every guard belongs to a lock, and a lock has one guard, or two while it is upgraded;
/// - a pending guard is in `confirmed` exactly if it awaits nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Home {
    epoch: HomeEpoch,
    term: Term,
    map: MapEpoch,
    /// The owner of each shard, as PostgreSQL named it, or as it said itself.
    owners: BTreeMap<ShardNo, ShardEpoch>,
    /// The shards whose current owner has been heard from.
    heard: BTreeMap<ShardNo, Heard>,
    guards: BTreeMap<GuardNo, Entry>,
    locks: BTreeMap<LockId, LockGuards>,
    pending: BTreeSet<GuardNo>,
    /// Pending guards that await nothing: granted as soon as the ownership is fresh.
    confirmed: BTreeSet<GuardNo>,
    last: GuardNo,
    /// What is registered in the namespace by now.
    definitions: DefinitionsNo,
    actions: Vec<Action>,
}

/// How far the home is in its term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Term {
    /// Sessions may still re-attach.
    Sessions,
    /// Sessions have had their time; shards have not been heard from.
    Shards,
    Serving,
}

/// What the owner of a shard said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Heard {
    Member {
        epoch: ShardEpoch,
        join: JoinNo,
        next: SequenceNo,
        /// The last version that it has confirmed since it joined.
        defined: DefinitionsNo,
    },
    /// It stores nothing of the namespace.
    Absent { epoch: ShardEpoch, join: JoinNo },
}

impl Heard {
    fn last(&self) -> (ShardEpoch, JoinNo) {
        match *self {
            Heard::Member { epoch, join, .. } | Heard::Absent { epoch, join } => (epoch, join),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Entry {
    guard: Guard,
    /// Only grows: a guard too many is harmless, and a shard may be behind with its map.
    covered: Covered,
    /// Members that have not acknowledged.
    awaits: BTreeSet<ShardNo>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LockGuards {
    One(GuardNo),
    Upgrading { held: GuardNo, next: GuardNo },
}

impl Home {
    /// The home of a namespace that was never used before: no shard can be a member, so there is no grace.
    pub fn first(epoch: HomeEpoch, map: MapEpoch) -> Home {
        Home::new(epoch, Term::Serving, map, BTreeMap::new())
    }

    /// The home under a new owner, in grace. `owners` are those of all shards, read after the home was claimed. After a
    /// clean handoff, with no session to wait for, [`Home::sessions_over`] follows at once; shards are heard in any case.
    pub fn takeover(epoch: HomeEpoch, map: MapEpoch, owners: BTreeMap<ShardNo, ShardEpoch>) -> Home {
        Home::new(epoch, Term::Sessions, map, owners)
    }

    fn new(epoch: HomeEpoch, term: Term, map: MapEpoch, owners: BTreeMap<ShardNo, ShardEpoch>) -> Home {
        Home {
            epoch,
            term,
            map,
            owners,
            heard: BTreeMap::new(),
            guards: BTreeMap::new(),
            locks: BTreeMap::new(),
            pending: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            last: GuardNo(0),
            definitions: DefinitionsNo(0),
            actions: Vec::new(),
        }
    }

    /// What is to be done now. Call this after every event and after every renewal of the ownership.
    ///
    /// On stale ownership a home does nothing at all. A grant could contradict the next home; a lift or a snapshot
    /// could open a shard that has not joined the next home to what a session holds there.
    pub fn actions(&mut self, ownership: Ownership) -> Vec<Action> {
        if ownership == Ownership::Stale {
            return self.actions_of_a_stale_home();
        }
        self.grant_confirmed();
        mem::take(&mut self.actions)
    }

    /// Whether members may keep guards that are to go: lifts wait for the ownership to be fresh, and in grace members keep
    /// what they have of earlier homes, also of locks that have ended since.
    pub fn is_held_up(&self) -> bool {
        self.phase() == Phase::Grace || !self.actions.is_empty() || !self.confirmed.is_empty()
    }

    fn actions_of_a_stale_home(&mut self) -> Vec<Action> {
        if is_planted(Fault::ZombieHome) {
            let kept = mem::take(&mut self.actions);
            self.grant_confirmed();
            return mem::replace(&mut self.actions, kept);
        }
        if is_planted(Fault::StaleLift) {
            return mem::take(&mut self.actions);
        }
        Vec::new()
    }

    fn grant_confirmed(&mut self) {
        for number in mem::take(&mut self.confirmed) {
            self.pending.remove(&number);
            let guard = &mut self.guards.get_mut(&number).expect("a confirmed guard exists").guard;
            guard.state = GuardState::Held;
            let (lock, token) = (guard.lock, guard.token);
            self.actions.push(Action::Granted { lock, token });
            if let Some(LockGuards::Upgrading { held, .. }) = self.locks.insert(lock, LockGuards::One(number))
            {
                self.lift(held);
            }
        }
    }

    /// The epoch of this home.
    pub fn epoch(&self) -> HomeEpoch {
        self.epoch
    }

    /// Whether it grants.
    pub fn phase(&self) -> Phase {
        match self.term {
            Term::Sessions | Term::Shards => Phase::Grace,
            Term::Serving => Phase::Serving,
        }
    }

    /// The shards that grace waits for, with the owners that have not been heard from.
    pub fn unheard(&self) -> impl Iterator<Item = (ShardNo, ShardEpoch)> + '_ {
        let unheard = |(shard, epoch): &(&ShardNo, &ShardEpoch)| {
            self.heard.get(shard).is_none_or(|heard| heard.last().0 != **epoch)
        };
        self.owners.iter().filter(unheard).map(|(shard, epoch)| (*shard, *epoch))
    }

    /// Whether locks that were held before this home may be [restored](Home::restored).
    pub fn restores(&self) -> bool {
        self.term == Term::Sessions
    }

    /// Whether a lock, or a conversion of it, was decided and is not granted yet.
    pub fn is_pending(&self, lock: LockId) -> bool {
        self.numbers_of(lock).iter().any(|number| self.pending.contains(number))
    }

    /// Whether a lock was decided, and not granted at all yet.
    pub fn is_new(&self, lock: LockId) -> bool {
        matches!(self.locks.get(&lock), Some(LockGuards::One(number)) if self.pending.contains(number))
    }

    /// The members that have not acknowledged the guards of a lock: why it is not granted yet.
    pub fn awaited(&self, lock: LockId) -> BTreeSet<ShardNo> {
        let numbers = self.numbers_of(lock);
        numbers.iter().flat_map(|number| &self.guards[number].awaits).copied().collect()
    }

    // Locks.

    /// The table has decided to grant a new lock.
    pub fn decided(&mut self, decision: Decision, coverage: &impl Coverage) {
        assert!(self.term == Term::Serving, "a frozen table grants nothing");
        assert!(!self.locks.contains_key(&decision.lock), "{:?} is decided once", decision.lock);
        let lock = decision.lock;
        let number = self.insert(decision, GuardState::Pending, coverage);
        self.locks.insert(lock, LockGuards::One(number));
    }

    /// A session has re-attached with a lock it held, or the log has a lease: it is held without asking anybody. Every
    /// shard either has acknowledged its guard to an earlier home and keeps it, or admits nothing before grace ends.
    pub fn restored(&mut self, decision: Decision, coverage: &impl Coverage) {
        assert!(self.term != Term::Serving, "locks are restored during grace");
        assert!(!self.locks.contains_key(&decision.lock), "{:?} is restored once", decision.lock);
        let lock = decision.lock;
        let number = self.insert(decision, GuardState::Held, coverage);
        self.locks.insert(lock, LockGuards::One(number));
    }

    /// The table has decided to convert a held lock. A second conversion comes after the first one is granted.
    ///
    /// A weaker lease is recorded before this call; a stronger one after [`Action::Granted`].
    pub fn converted(&mut self, decision: Decision, coverage: &impl Coverage) {
        let lock = decision.lock;
        let held = match self.locks.get(&lock) {
            Some(LockGuards::One(held)) if !self.pending.contains(held) => *held,
            _ => panic!("{lock:?} is converted while it is held, one conversion at a time"),
        };
        let has = &self.guards[&held].guard.resources;
        let is_weaker = decision.resources.iter().all(|new| has.iter().any(|old| old.includes(new)));
        match is_weaker || is_planted(Fault::UpgradeAtOnce) {
            true => self.downgrade(held, decision, coverage),
            false => {
                let next = self.insert(decision, GuardState::Pending, coverage);
                self.locks.insert(lock, LockGuards::Upgrading { held, next });
            }
        }
    }

    /// Members are closed for more than this already, so nothing has to drain.
    fn downgrade(&mut self, held: GuardNo, decision: Decision, coverage: &impl Coverage) {
        let (lock, token) = (decision.lock, decision.token);
        self.actions.push(Action::Granted { lock, token });
        if is_planted(Fault::LiftFirst) {
            self.lift(held);
        }
        let number = self.insert(decision, GuardState::Held, coverage);
        self.locks.insert(lock, LockGuards::One(number));
        if !is_planted(Fault::LiftFirst) {
            self.lift(held);
        }
    }

    /// A conversion that is not granted yet was given up. The lock stays as it was.
    pub fn conversion_cancelled(&mut self, lock: LockId) {
        if let Some(LockGuards::Upgrading { held, next }) = self.locks.get(&lock).copied() {
            self.locks.insert(lock, LockGuards::One(held));
            self.lift(next);
        }
    }

    /// A lock has ended, granted or not. The end of a lease is recorded before this call.
    pub fn released(&mut self, lock: LockId) {
        for number in self.numbers_of(lock) {
            self.lift(number);
        }
        self.locks.remove(&lock);
    }

    fn numbers_of(&self, lock: LockId) -> Vec<GuardNo> {
        match self.locks.get(&lock) {
            None => Vec::new(),
            Some(LockGuards::One(number)) => vec![*number],
            Some(LockGuards::Upgrading { held, next }) => vec![*held, *next],
        }
    }

    fn insert(&mut self, decision: Decision, state: GuardState, coverage: &impl Coverage) -> GuardNo {
        self.last.0 += 1;
        let Decision { lock, owner, token, resources } = decision;
        let (number, covered) = (self.last, coverage.covered(&resources));
        let id = GuardId { home: self.epoch, number };
        let guard = Guard { id, lock, owner, token, resources: Arc::from(resources), state };
        let members: BTreeSet<ShardNo> = self.members(&covered).collect();
        for shard in &members {
            self.send(*shard, HomeContent::Guard(guard.clone()));
        }
        let awaits = match state {
            GuardState::Pending => members,
            GuardState::Held => BTreeSet::new(),
        };
        if state == GuardState::Pending {
            self.pending.insert(number);
            if awaits.is_empty() {
                self.confirmed.insert(number);
            }
        }
        self.guards.insert(number, Entry { guard, covered, awaits });
        number
    }

    fn lift(&mut self, number: GuardNo) {
        let Some(entry) = self.guards.remove(&number) else { return };
        self.pending.remove(&number);
        self.confirmed.remove(&number);
        for shard in self.members(&entry.covered).collect::<Vec<_>>() {
            self.send(shard, HomeContent::Lift(number));
        }
    }

    fn members(&self, covered: &Covered) -> impl Iterator<Item = ShardNo> {
        let member = |(shard, heard): (&ShardNo, &Heard)| {
            (matches!(heard, Heard::Member { .. }) && covered.contains(*shard)).then_some(*shard)
        };
        self.heard.iter().filter_map(member)
    }

    fn send(&mut self, shard: ShardNo, content: HomeContent) {
        let Some(Heard::Member { epoch, join, next, .. }) = self.heard.get_mut(&shard) else { return };
        let stream = Stream { home: self.epoch, shard, shard_epoch: *epoch, join: *join };
        let sequence = *next;
        next.0 += 1;
        self.actions.push(Action::Send(HomeMessage { stream, sequence, content }));
    }

    // Shards.

    /// A shard has sent something.
    pub fn receive(&mut self, message: &MemberMessage) {
        let MemberMessage { stream, content } = message;
        match content {
            MemberContent::Acknowledge(number) => self.acknowledge(stream, *number),
            MemberContent::Defined(definitions) => self.confirm_definitions(stream, *definitions),
            MemberContent::Join | MemberContent::Leave if !self.accepts(stream) => {
                self.actions.push(Action::Reject(*stream));
            }
            // A repeated or late one: the shard has sent another since, or has its answer.
            _ if self.heard.get(&stream.shard).is_some_and(|heard| heard.last().1 >= stream.join) => {}
            MemberContent::Join => self.join(stream),
            MemberContent::Leave => self.leave(stream),
        }
    }

    /// Whether a join is addressed to this home and comes from the current owner of the shard.
    fn accepts(&mut self, stream: &Stream) -> bool {
        if stream.home != self.epoch {
            return false;
        }
        self.owner_changed(stream.shard, stream.shard_epoch);
        self.owners.get(&stream.shard) == Some(&stream.shard_epoch)
    }

    /// In one step the shard becomes a member and receives all guards; it must acknowledge those that are pending.
    fn join(&mut self, stream: &Stream) {
        let &Stream { shard, shard_epoch: epoch, join, .. } = stream;
        let (next, defined) = (SequenceNo(0), DefinitionsNo(0));
        self.heard.insert(shard, Heard::Member { epoch, join, next, defined });
        for number in &self.pending {
            let entry = self.guards.get_mut(number).expect("a pending guard exists");
            if entry.covered.contains(shard) {
                entry.awaits.insert(shard);
                self.confirmed.remove(number);
            }
        }
        self.send_snapshot(shard);
        self.end_grace();
    }

    fn leave(&mut self, stream: &Stream) {
        let &Stream { shard, shard_epoch: epoch, join, .. } = stream;
        self.heard.insert(shard, Heard::Absent { epoch, join });
        self.await_no_longer(shard);
        self.end_grace();
    }

    fn send_snapshot(&mut self, shard: ShardNo) {
        let covering = self.guards.values().filter(|entry| entry.covered.contains(shard));
        let (parts, guards) = in_parts(covering.map(|entry| entry.guard.clone()), part_weight_max());
        for part in parts {
            self.send(shard, HomeContent::Part(part));
        }
        let (phase, map, definitions) = (self.phase(), self.map, self.definitions);
        self.send(shard, HomeContent::Snapshot { phase, map, definitions, guards });
    }

    /// An acknowledgement counts for the guard it names, within the membership it names.
    fn acknowledge(&mut self, stream: &Stream, number: GuardNo) {
        if !self.is_of_member(stream) {
            return;
        }
        if is_planted(Fault::BareAck) {
            return self.await_no_longer(stream.shard);
        }
        self.confirm(stream.shard, number);
    }

    fn is_of_member(&self, stream: &Stream) -> bool {
        let said = (stream.shard_epoch, stream.join);
        let heard = self.heard.get(&stream.shard);
        let is_member = matches!(heard, Some(heard @ Heard::Member { .. }) if heard.last() == said);
        stream.home == self.epoch && is_member
    }

    fn confirm(&mut self, shard: ShardNo, number: GuardNo) {
        if let Some(entry) = self.guards.get_mut(&number).filter(|_| self.pending.contains(&number)) {
            entry.awaits.remove(&shard);
            if entry.awaits.is_empty() {
                self.confirmed.insert(number);
            }
        }
    }

    fn await_no_longer(&mut self, shard: ShardNo) {
        for number in self.pending.clone() {
            self.confirm(shard, number);
        }
    }

    /// PostgreSQL names the owner of a shard; also for a shard that is new.
    ///
    /// A previous owner is no member any more, and no grant waits for it: its appends are rejected, and the new owner
    /// joins before it serves.
    pub fn owner_changed(&mut self, shard: ShardNo, epoch: ShardEpoch) {
        if self.owners.get(&shard).is_some_and(|known| *known >= epoch) {
            return;
        }
        self.owners.insert(shard, epoch);
        if self.heard.remove(&shard).is_some() {
            self.await_no_longer(shard);
        }
    }

    // Grace.

    /// The time in which sessions may re-attach is over. Grace ends when every shard has been heard from.
    pub fn sessions_over(&mut self) {
        if self.term == Term::Sessions {
            self.term = Term::Shards;
            self.end_grace();
        }
    }

    /// A shard that has not been heard from may still be a member of the previous home, and admit what that one allows.
    fn end_grace(&mut self) {
        let all_heard = self.unheard().next().is_none() || is_planted(Fault::NoAsk);
        if self.term != Term::Shards || !all_heard {
            return;
        }
        self.term = Term::Serving;
        for shard in self.members(&Covered::All).collect::<Vec<_>>() {
            self.send_snapshot(shard);
        }
        self.actions.push(Action::GraceEnded);
    }

    // The map.

    /// The home has a newer map. Members that are covered from now on receive the guards, then the map's epoch: before
    /// that they do not serve arriving keys. During grace the epoch waits for the complete set, since sessions that have
    /// not re-attached may hold arriving keys. Nothing is lifted: a shard may be behind with its map.
    pub fn map_changed(&mut self, map: MapEpoch, coverage: &impl Coverage) {
        if map <= self.map {
            return;
        }
        self.map = map;
        for number in self.guards.keys().copied().collect::<Vec<_>>() {
            self.cover(number, coverage);
        }
        if self.phase() == Phase::Serving {
            for shard in self.members(&Covered::All).collect::<Vec<_>>() {
                self.send(shard, HomeContent::Map(map));
            }
        }
    }

    fn cover(&mut self, number: GuardNo, coverage: &impl Coverage) {
        let entry = self.guards.get_mut(&number).expect("the guard was just listed");
        let before = entry.covered.clone();
        entry.covered.extend(coverage.covered(&entry.guard.resources));
        let (guard, covered) = (entry.guard.clone(), entry.covered.clone());
        let arrived: Vec<ShardNo> = self.members(&covered).filter(|shard| !before.contains(*shard)).collect();
        for shard in arrived {
            self.send(shard, HomeContent::Guard(guard.clone()));
            if guard.state == GuardState::Pending {
                self.guards.get_mut(&number).expect("it is still there").awaits.insert(shard);
                self.confirmed.remove(&number);
            }
        }
    }

    // What is registered.

    /// Something was registered or removed, and is durable: the home itself goes by it from now on. All members are told.
    pub fn redefined(&mut self, definitions: DefinitionsNo) {
        if definitions <= self.definitions {
            return;
        }
        self.definitions = definitions;
        for shard in self.members(&Covered::All).collect::<Vec<_>>() {
            self.send(shard, HomeContent::Definitions(definitions));
        }
    }

    /// The version by which all shards go at least, from now on: members have confirmed it, and other owners join before
    /// they serve. None during grace, as members of an earlier home may not have been heard from.
    pub fn defined(&self) -> Option<DefinitionsNo> {
        let confirmed = self.heard.values().filter_map(|heard| match heard {
            Heard::Member { defined, .. } => Some(*defined),
            Heard::Absent { .. } => None,
        });
        let least = confirmed.min().filter(|_| !is_planted(Fault::UnawaitedDefined));
        let least = least.unwrap_or(self.definitions).min(self.definitions);
        let all_heard = self.phase() == Phase::Serving || is_planted(Fault::DefinedInGrace);
        all_heard.then_some(least)
    }

    /// The members that have not confirmed a version.
    pub fn undefined(&self, definitions: DefinitionsNo) -> BTreeSet<ShardNo> {
        let behind = |(shard, heard): (&ShardNo, &Heard)| match heard {
            Heard::Member { defined, .. } if *defined < definitions => Some(*shard),
            _ => None,
        };
        self.heard.iter().filter_map(behind).collect()
    }

    fn confirm_definitions(&mut self, stream: &Stream, definitions: DefinitionsNo) {
        if !self.is_of_member(stream) {
            return;
        }
        if let Some(Heard::Member { defined, .. }) = self.heard.get_mut(&stream.shard) {
            *defined = definitions.max(*defined);
        }
    }

    #[cfg(test)]
    pub(super) fn forget_actions(&mut self) {
        self.actions.clear();
    }

    #[cfg(test)]
    pub(super) fn waits_for_sessions(&self) -> bool {
        self.term == Term::Sessions
    }

    #[cfg(test)]
    pub(super) fn owner(&self, shard: ShardNo) -> Option<ShardEpoch> {
        self.owners.get(&shard).copied()
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        for (number, entry) in &self.guards {
            let is_pending = entry.guard.state == GuardState::Pending;
            assert_eq!(self.pending.contains(number), is_pending, "{number:?}");
            assert_eq!(self.confirmed.contains(number), is_pending && entry.awaits.is_empty(), "{number:?}");
            assert!(self.numbers_of(entry.guard.lock).contains(number), "{number:?} belongs to no lock");
            for shard in &entry.awaits {
                assert!(is_pending, "{number:?} is held and awaits {shard:?}");
                assert!(matches!(self.heard.get(shard), Some(Heard::Member { .. })), "{number:?}, {shard:?}");
                assert!(entry.covered.contains(*shard), "{number:?}, {shard:?}");
            }
        }
        let numbers = self.locks.keys().map(|lock| self.numbers_of(*lock).len()).sum::<usize>();
        assert_eq!(numbers, self.guards.len(), "every guard of a lock exists");
    }
}

/// Guards in parts that each weigh no more than this, unless it is one guard; the last part by itself.
fn in_parts(guards: impl Iterator<Item = Guard>, weight_max: usize) -> (Vec<Vec<Guard>>, Vec<Guard>) {
    let (mut parts, mut part, mut weight) = (Vec::new(), Vec::new(), 0);
    for guard in guards {
        let more = guard.weight();
        if weight + more > weight_max && !part.is_empty() {
            parts.push(mem::take(&mut part));
            weight = 0;
        }
        weight += more;
        part.push(guard);
    }
    (parts, part)
}

#[cfg(not(test))]
fn part_weight_max() -> usize {
    PART_WEIGHT_MAX
}

#[cfg(test)]
thread_local! {
    static PART_WEIGHT: std::cell::Cell<usize> = const { std::cell::Cell::new(PART_WEIGHT_MAX) };
}

/// From now on snapshots of this thread have parts of one guard, or of the size that they have.
#[cfg(test)]
pub(super) fn set_small_parts(are_small: bool) {
    PART_WEIGHT.set(if are_small { 1 } else { PART_WEIGHT_MAX });
}

#[cfg(test)]
fn part_weight_max() -> usize {
    PART_WEIGHT.get()
}
