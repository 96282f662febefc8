//! The shard's side of guards, for one namespace: which operations it admits, and when it acknowledges a guard. Knows
//! nothing of documents, logs or queues: an operation is a set of resources with a beginning and an end.
//!
//! | state | admits |
//! | --- | --- |
//! | [`MemberState::Outside`] | nothing: the shard joins first |
//! | [`MemberState::Holding`] | nothing: a new owner joined a home in grace and cannot know what sessions hold |
//! | [`MemberState::Serving`] | what conflicts with no guard of another owner |
//!
//! A member that loses its home, or joins another one, keeps its state and its guards: nothing that conflicts with an
//! operation it admits can be granted without its acknowledgement.

use super::{
    fault::{Fault, is_planted},
    index::Index,
    message::{
        DefinitionsNo, Guard, GuardId, GuardNo, GuardState, HomeContent, HomeEpoch, HomeMessage, JoinNo,
        MapEpoch, MemberContent, MemberMessage, OperationId, Phase, SequenceNo, Stream,
    },
};
use crate::{ShardEpoch, ShardNo};
use lockwood_model::{LockId, OwnerId, Resource, Token};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a shard serves a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// No member, and never was under this owner; or it has left.
    Outside,
    /// A member of a home in grace, with a new owner that never served.
    Holding,
    /// Serves within its guards.
    Serving,
}

/// The owner that an operation runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// No lock holder.
    Anonymous,
    /// An owner that a home vouches for: a session, an operation that has queued there, or the owner of a token that was
    /// verified there. Owners are numbered by their home.
    Owner(HomeEpoch, OwnerId),
    /// The holder of locks with these tokens, all of one owner.
    Tokens(Vec<Token>),
}

/// A read or write of documents that asks to be admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Its name until it is finished.
    pub id: OperationId,
    /// The owner that it runs as.
    pub caller: Caller,
    /// What it reads and changes at this shard.
    pub resources: Vec<Resource>,
    /// The first map by which this shard has all of the keys without interruption; that of the `Preparing` map for keys
    /// that arrive.
    pub map: MapEpoch,
}

/// The answer to an operation. Only an admitted one is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It may run; [`Member::finished`] follows.
    Admitted,
    /// A lock of another owner is in the way: queue at the home, then ask again as the owner the home names.
    QueueAtHome {
        /// The guard in the way.
        guard: GuardId,
        /// Its lock.
        lock: LockId,
    },
    /// Ask again when the state or the map has changed.
    Hold(HoldReason),
    /// Join first, then ask again.
    MustJoin,
    /// No guard here has this token: verify it at the home, then ask again as its owner.
    VerifyTokenAtHome(Token),
    /// This token belongs to another owner than the ones before it; reject the operation.
    ForeignToken(Token),
}

/// Why nothing is admitted for the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldReason {
    /// The home is in grace, and this owner of the shard is new.
    Grace,
    /// This owner of the shard is new, and does not know yet what is registered.
    Definitions,
    /// The guards of arriving keys have not come.
    Map {
        /// The map whose guards are here.
        has: MapEpoch,
    },
}

/// One shard's guards for one namespace, under one owner of the shard.
///
/// Between two calls these hold, and `check_invariants` asserts them:
/// - `index` and `tokens` have exactly the guards, `running_index` exactly the running operations;
/// - a draining guard is here, and the operations it waits for are running and conflict with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Member {
    shard: ShardNo,
    epoch: ShardEpoch,
    state: MemberState,
    /// The newest home known. Everything from earlier ones is ignored.
    home: HomeEpoch,
    inbox: Inbox,
    /// Guards of a snapshot that has arrived in part.
    parts: Vec<Guard>,
    join_last: JoinNo,
    map: MapEpoch,
    guards: BTreeMap<GuardId, Guard>,
    index: Index<GuardId>,
    tokens: BTreeSet<(Token, GuardId)>,
    running: BTreeMap<OperationId, Running>,
    running_index: Index<OperationId>,
    /// Guards to be acknowledged, with the operations that come first.
    draining: BTreeMap<GuardNo, BTreeSet<OperationId>>,
    definitions: Definitions,
}

/// How far a member is with what is registered in the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Definitions {
    /// It goes by these, or by later ones.
    has: DefinitionsNo,
    /// Those that the home announced last.
    wanted: DefinitionsNo,
    /// It serves nothing before it has these: those of its first join.
    needed: DefinitionsNo,
    /// Whether the home waits for a confirmation of those that are wanted.
    is_awaited: bool,
}

/// What the member expects from its home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Inbox {
    /// Nothing: it has not joined this home.
    Closed,
    /// The snapshot that answers this join, or the next part of it.
    Asked(JoinNo, SequenceNo),
    /// The next message of this stream.
    Open(JoinNo, SequenceNo),
}

/// Those whose guards let an operation pass, by the homes that numbered them.
type Owners = Vec<(HomeEpoch, OwnerId)>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Running {
    owners: Owners,
    resources: Vec<Resource>,
}

impl Member {
    /// A shard under a new owner. It admits nothing before it has joined `home` or a later one.
    pub fn new(shard: ShardNo, epoch: ShardEpoch, home: HomeEpoch) -> Member {
        Member {
            shard,
            epoch,
            state: MemberState::Outside,
            home,
            inbox: Inbox::Closed,
            parts: Vec::new(),
            join_last: JoinNo(0),
            map: MapEpoch(0),
            guards: BTreeMap::new(),
            index: Index::new(),
            tokens: BTreeSet::new(),
            running: BTreeMap::new(),
            running_index: Index::new(),
            draining: BTreeMap::new(),
            definitions: Definitions::NONE,
        }
    }

    /// Whether it serves.
    pub fn state(&self) -> MemberState {
        self.state
    }

    /// The newest home it knows.
    pub fn home(&self) -> HomeEpoch {
        self.home
    }

    /// Whether it has joined the newest home it knows.
    pub fn has_joined(&self) -> bool {
        matches!(self.inbox, Inbox::Open(..))
    }

    /// Whether it has asked the newest home it knows, and has no answer yet.
    pub fn is_joining(&self) -> bool {
        matches!(self.inbox, Inbox::Asked(..))
    }

    /// Whether it knows what is registered, at least as of when it began to serve: it may answer reads that no lock concerns.
    pub fn is_defined(&self) -> bool {
        self.state != MemberState::Outside && self.definitions.suffice()
    }

    /// Whether it has taken in a message, which it does in order; those of earlier memberships it ignores.
    pub fn has_taken_in(&self, stream: &Stream, sequence: SequenceNo) -> bool {
        let is_addressed =
            (stream.home, stream.shard, stream.shard_epoch) == (self.home, self.shard, self.epoch);
        match self.inbox {
            Inbox::Asked(join, next) | Inbox::Open(join, next) => {
                is_addressed && join == stream.join && sequence < next
            }
            Inbox::Closed => false,
        }
    }

    /// The version of what is registered that it has to catch up with, if it is behind.
    pub fn behind(&self) -> Option<DefinitionsNo> {
        let Definitions { has, wanted, .. } = self.definitions;
        (has < wanted).then_some(wanted)
    }

    /// It goes by a version of what is registered from now on, or by a later one. Answers what is to be sent to the home.
    pub fn caught_up(&mut self, definitions: DefinitionsNo) -> Option<MemberMessage> {
        self.definitions.has = definitions.max(self.definitions.has);
        self.confirm_definitions()
    }

    /// The guards it keeps.
    pub fn guards(&self) -> impl Iterator<Item = &Guard> {
        self.guards.values()
    }

    // Operations.

    /// Admits an operation, or says what comes first. Costs one search by path for each of its resources.
    pub fn admit(&mut self, operation: Operation) -> Admission {
        assert!(!self.running.contains_key(&operation.id), "{:?} is admitted once", operation.id);
        match self.judge(&operation) {
            Err(admission) => admission,
            Ok(owners) => {
                let Operation { id, resources, .. } = operation;
                self.running_index.insert(id, &resources);
                self.running.insert(id, Running { owners, resources });
                Admission::Admitted
            }
        }
    }

    pub(super) fn judge(&self, operation: &Operation) -> Result<Owners, Admission> {
        let Operation { caller, resources, map, .. } = operation;
        match self.state {
            MemberState::Outside if !is_planted(Fault::NoJoin) => return Err(Admission::MustJoin),
            MemberState::Holding => return Err(Admission::Hold(HoldReason::Grace)),
            MemberState::Outside | MemberState::Serving => {}
        }
        if !self.definitions.suffice() {
            return Err(Admission::Hold(HoldReason::Definitions));
        }
        if *map > self.map && !is_planted(Fault::IgnoreMap) && self.state == MemberState::Serving {
            return Err(Admission::Hold(HoldReason::Map { has: self.map }));
        }
        let owners = self.owners_of(caller)?;
        let mut rivals = self.index.conflicts(resources).map(|id| &self.guards[&id]);
        match rivals.find(|guard| !passes(&owners, guard) && !self.is_open(guard)) {
            Some(guard) => Err(Admission::QueueAtHome { guard: guard.id, lock: guard.lock }),
            None => Ok(owners),
        }
    }

    fn is_open(&self, guard: &Guard) -> bool {
        is_planted(Fault::OpenWhileDraining) && self.draining.contains_key(&guard.id.number)
    }

    fn owners_of(&self, caller: &Caller) -> Result<Owners, Admission> {
        let tokens = match caller {
            Caller::Anonymous => return Ok(Owners::new()),
            Caller::Owner(home, owner) => return Ok(vec![(*home, *owner)]),
            Caller::Tokens(tokens) => tokens,
        };
        let mut owners = Owners::new();
        for token in tokens {
            let guard = self.guard_with(*token).ok_or(Admission::VerifyTokenAtHome(*token))?;
            let owner = guard.owner_id();
            if owners.iter().any(|known| known.0 == owner.0 && known.1 != owner.1) {
                return Err(Admission::ForeignToken(*token));
            }
            owners.push(owner);
        }
        Ok(owners)
    }

    fn guard_with(&self, token: Token) -> Option<&Guard> {
        let mut found = self.tokens.range((token, GUARD_FIRST)..=(token, GUARD_LAST));
        found.next_back().map(|(_, id)| &self.guards[id])
    }

    /// An admitted operation is durable or rejected. Answers what is to be sent to the home.
    pub fn finished(&mut self, operation: OperationId) -> Vec<MemberMessage> {
        let Some(running) = self.running.remove(&operation) else { return Vec::new() };
        self.running_index.remove(operation, &running.resources);
        for awaited in self.draining.values_mut() {
            awaited.remove(&operation);
        }
        self.acknowledge_drained()
    }

    /// Guards that are drained. Between two memberships nothing is acknowledged: the next snapshot asks again.
    fn acknowledge_drained(&mut self) -> Vec<MemberMessage> {
        let drained: Vec<GuardNo> = self
            .draining
            .iter()
            .filter(|(_, awaited)| awaited.is_empty())
            .map(|(number, _)| *number)
            .collect();
        self.draining.retain(|_, awaited| !awaited.is_empty());
        if is_planted(Fault::LostGuard) {
            drained.iter().for_each(|number| self.remove_guard(GuardId { home: self.home, number: *number }));
        }
        let Inbox::Open(join, _) = self.inbox else { return Vec::new() };
        drained.into_iter().map(|number| self.message(join, MemberContent::Acknowledge(number))).collect()
    }

    // The home.

    /// PostgreSQL names a newer owner of the home. [`Member::join`] or [`Member::leave`] follows: the home waits for it.
    pub fn home_changed(&mut self, home: HomeEpoch) {
        if home > self.home {
            self.home = home;
            self.inbox = Inbox::Closed;
            self.parts.clear();
            self.draining.clear();
            self.definitions.is_awaited = false;
        }
    }

    /// Asks the home for membership. Repeat it when no answer comes; only the answer to the last one counts.
    pub fn join(&mut self) -> MemberMessage {
        self.join_last.0 += 1;
        self.inbox = Inbox::Asked(self.join_last, SequenceNo(0));
        self.parts.clear();
        self.definitions.is_awaited = false;
        self.message(self.join_last, MemberContent::Join)
    }

    /// Tells the home that the shard stores nothing of the namespace. None while operations are running: they may be
    /// about to store something.
    pub fn leave(&mut self) -> Option<MemberMessage> {
        if !self.running.is_empty() {
            return None;
        }
        self.join_last.0 += 1;
        (self.state, self.inbox) = (MemberState::Outside, Inbox::Closed);
        self.parts.clear();
        self.replace_guards(Vec::new());
        Some(self.message(self.join_last, MemberContent::Leave))
    }

    /// The connection to the home was lost, and something sent over it may have been too: tells the home again where the
    /// shard stands.
    pub fn reconnected(&mut self) -> MemberMessage {
        let has_left = self.state == MemberState::Outside && self.inbox == Inbox::Closed;
        let left = if has_left { self.leave() } else { None };
        left.unwrap_or_else(|| self.join())
    }

    /// A home has sent something. Answers what is to be sent to the home.
    pub fn receive(&mut self, message: HomeMessage) -> Vec<MemberMessage> {
        let HomeMessage { stream, sequence, content } = message;
        match self.place(&stream, sequence, &content) {
            Place::Next => {}
            Place::Stale => return Vec::new(),
            Place::Gap => return vec![self.join()],
        }
        let next = SequenceNo(sequence.0 + 1);
        self.inbox = match (self.inbox, &content) {
            (Inbox::Asked(join, _), HomeContent::Part(_)) => Inbox::Asked(join, next),
            _ => Inbox::Open(stream.join, next),
        };
        match content {
            HomeContent::Part(guards) => self.parts.extend(guards),
            HomeContent::Snapshot { phase, map, definitions, guards } => {
                self.await_definitions(definitions);
                let mut all = std::mem::take(&mut self.parts);
                all.extend(guards);
                self.take_snapshot(phase, map, all);
            }
            HomeContent::Guard(guard) => self.take_guard(guard),
            HomeContent::Lift(number) => self.remove_guard(GuardId { home: self.home, number }),
            HomeContent::Map(map) => self.map = map,
            HomeContent::Definitions(definitions) => self.await_definitions(definitions),
        }
        let mut answers = self.acknowledge_drained();
        answers.extend(self.confirm_definitions());
        answers
    }

    /// A member that serves goes on by what it has: nothing newer is acknowledged to a client before the member confirms it.
    fn await_definitions(&mut self, announced: DefinitionsNo) {
        let is_new = self.state != MemberState::Serving;
        let Definitions { wanted, needed, is_awaited, .. } = &mut self.definitions;
        *wanted = announced;
        *is_awaited = announced > DefinitionsNo(0);
        if is_new {
            *needed = announced;
        }
    }

    fn confirm_definitions(&mut self) -> Option<MemberMessage> {
        let Inbox::Open(join, _) = self.inbox else { return None };
        let Definitions { has, wanted, is_awaited, .. } = &mut self.definitions;
        let is_behind = *has < *wanted && !is_planted(Fault::EarlyDefined);
        if is_behind || !std::mem::take(is_awaited) {
            return None;
        }
        let has = if is_planted(Fault::EarlyDefined) { *wanted } else { *has };
        Some(self.message(join, MemberContent::Defined(has)))
    }

    /// Where a message stands in what is expected.
    fn place(&self, stream: &Stream, sequence: SequenceNo, content: &HomeContent) -> Place {
        let addressed = (stream.home, stream.shard, stream.shard_epoch);
        if addressed != (self.home, self.shard, self.epoch) {
            return Place::Stale;
        }
        let next = match self.inbox {
            Inbox::Asked(join, next) | Inbox::Open(join, next) if join == stream.join => next,
            _ => return Place::Stale,
        };
        if is_planted(Fault::IgnoreGaps) && self.has_joined() && sequence > next {
            return Place::Next;
        }
        let begins = matches!(content, HomeContent::Part(_) | HomeContent::Snapshot { .. });
        match sequence.cmp(&next) {
            std::cmp::Ordering::Less => Place::Stale,
            std::cmp::Ordering::Greater => Place::Gap,
            // A stream that does not begin with a snapshot is out of order as well.
            std::cmp::Ordering::Equal if self.is_joining() && !begins => Place::Gap,
            std::cmp::Ordering::Equal => Place::Next,
        }
    }

    /// During grace the home does not know all locks: what this member has of earlier homes stays, and arriving keys wait.
    fn take_snapshot(&mut self, phase: Phase, map: MapEpoch, guards: Vec<Guard>) {
        let wants_answer = is_planted(Fault::BareAck);
        match phase {
            Phase::Serving => {
                self.state = MemberState::Serving;
                self.map = map;
                self.replace_guards(guards);
            }
            Phase::Grace => {
                if self.state == MemberState::Outside {
                    self.state = MemberState::Holding;
                }
                if is_planted(Fault::ServeInGrace) {
                    (self.state, self.map) = (MemberState::Serving, map);
                }
                if is_planted(Fault::MapInGrace) {
                    self.map = self.map.max(map);
                }
                let is_kept = |guard: &&Guard| guard.id.home < self.home && !is_planted(Fault::DropInGrace);
                let kept: Vec<Guard> = self.guards.values().filter(is_kept).cloned().collect();
                self.replace_guards(kept);
                guards.into_iter().for_each(|guard| self.take_guard(guard));
            }
        }
        if wants_answer {
            self.draining.entry(GuardNo(0)).or_default();
        }
    }

    fn replace_guards(&mut self, guards: Vec<Guard>) {
        self.guards.clear();
        self.index = Index::new();
        self.tokens.clear();
        self.draining.clear();
        guards.into_iter().for_each(|guard| self.insert_guard(guard));
    }

    /// A re-attached lock has the token it had: its new guard takes the place of the one from the earlier home.
    fn take_guard(&mut self, guard: Guard) {
        let same = self.tokens.range((guard.token, GUARD_FIRST)..=(guard.token, GUARD_LAST));
        let earlier: Vec<GuardId> = same.map(|(_, id)| *id).filter(|id| id.home < guard.id.home).collect();
        self.insert_guard(guard);
        earlier.into_iter().for_each(|id| self.remove_guard(id));
    }

    /// Closes the shard to new operations at once, and begins to drain.
    fn insert_guard(&mut self, guard: Guard) {
        if guard.state == GuardState::Pending && guard.id.home == self.home {
            self.draining.insert(guard.id.number, self.to_drain(&guard));
        }
        self.index.insert(guard.id, &guard.resources);
        self.tokens.insert((guard.token, guard.id));
        self.guards.insert(guard.id, guard);
    }

    fn to_drain(&self, guard: &Guard) -> BTreeSet<OperationId> {
        let running = self.running_index.conflicts(&guard.resources);
        let awaited = running.filter(|id| !passes(&self.running[id].owners, guard));
        if is_planted(Fault::EarlyAck) { BTreeSet::new() } else { awaited.collect() }
    }

    fn remove_guard(&mut self, id: GuardId) {
        let Some(guard) = self.guards.remove(&id) else { return };
        self.index.remove(id, &guard.resources);
        self.tokens.remove(&(guard.token, id));
        if id.home == self.home {
            self.draining.remove(&id.number);
        }
    }

    fn message(&self, join: JoinNo, content: MemberContent) -> MemberMessage {
        let stream = Stream { home: self.home, shard: self.shard, shard_epoch: self.epoch, join };
        MemberMessage { stream, content }
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        let (mut index, mut running_index, mut tokens) = (Index::new(), Index::new(), BTreeSet::new());
        for (id, guard) in &self.guards {
            index.insert(*id, &guard.resources);
            tokens.insert((guard.token, *id));
        }
        for (id, running) in &self.running {
            running_index.insert(*id, &running.resources);
        }
        assert_eq!((&self.index, &self.running_index, &self.tokens), (&index, &running_index, &tokens));
        for (number, awaited) in &self.draining {
            let guard = &self.guards[&GuardId { home: self.home, number: *number }];
            for id in awaited {
                let running = &self.running[id].resources;
                let conflict = |one: &Resource| guard.resources.iter().any(|other| one.conflicts(other));
                assert!(running.iter().any(conflict), "{number:?} waits for {id:?}");
            }
        }
    }
}

impl Definitions {
    const NONE: Definitions = Definitions {
        has: DefinitionsNo(0),
        wanted: DefinitionsNo(0),
        needed: DefinitionsNo(0),
        is_awaited: false,
    };

    fn suffice(&self) -> bool {
        self.has >= self.needed || is_planted(Fault::ServeUndefined)
    }
}

/// Where a message of a home stands.
enum Place {
    /// It is the one that is expected.
    Next,
    /// It is of another membership, or was received before.
    Stale,
    /// One before it is missing.
    Gap,
}

const GUARD_FIRST: GuardId = GuardId { home: HomeEpoch(0), number: GuardNo(0) };
const GUARD_LAST: GuardId = GuardId { home: HomeEpoch(u64::MAX), number: GuardNo(u64::MAX) };

/// Whether a guard is one of an operation's own.
fn passes(owners: &[(HomeEpoch, OwnerId)], guard: &Guard) -> bool {
    if is_planted(Fault::BareOwner) {
        return owners.iter().any(|owner| owner.1 == guard.owner);
    }
    owners.contains(&guard.owner_id())
}
