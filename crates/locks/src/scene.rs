//! What the tests of the table share: a table with a clock, and short ways to write what is expected of it.
//!
//! Locks and tokens are numbered from 1 in the order of requests and of grants. Resources are written
//! `write a/b:1, read c`; without a number the whole subtree is meant.

use crate::{
    CancelOutcome, Change, Claimed, ConvertOutcome, Counts, Cycle, CycleStep, Effect, LockTable, LockView,
    NodeView, Outcome, Refusal, Request, Standing, Waiters,
};
use lockwood_model::{Depth, LockId, Mode, OwnerId, Path, Resource, Timestamp, Token, Wait};

pub(crate) const A: OwnerId = OwnerId(0xA);
pub(crate) const B: OwnerId = OwnerId(0xB);
pub(crate) const C: OwnerId = OwnerId(0xC);
pub(crate) const D: OwnerId = OwnerId(0xD);
pub(crate) const E: OwnerId = OwnerId(0xE);

pub(crate) const START: Timestamp = Timestamp(1000);

/// A table and a clock. Every call is followed by a check of what must always be true.
pub(crate) struct Scene {
    pub(crate) table: LockTable,
    pub(crate) now: Timestamp,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene::starting_at(1)
    }

    pub(crate) fn starting_at(first_number: u64) -> Scene {
        Scene { table: LockTable::new(first_number, 1), now: START }
    }

    pub(crate) fn frozen(mut self) -> Scene {
        self.table.freeze();
        self
    }

    #[track_caller]
    pub(crate) fn held(mut self, owner: OwnerId, resources: &str) -> Scene {
        let outcome = self.lock(owner, resources);
        assert!(matches!(outcome, Outcome::Granted { .. }), "{resources}: {outcome:?}");
        self
    }

    #[track_caller]
    pub(crate) fn waits(mut self, owner: OwnerId, resources: &str) -> Scene {
        let outcome = self.lock(owner, resources);
        assert!(matches!(outcome, Outcome::Queued { .. }), "{resources}: {outcome:?}");
        self
    }

    pub(crate) fn lock(&mut self, owner: OwnerId, resources: &str) -> Outcome {
        self.lock_within(owner, resources, Wait::Forever)
    }

    pub(crate) fn lock_within(&mut self, owner: OwnerId, text: &str, wait: Wait) -> Outcome {
        let request =
            Request { owner, resources: resources(text), wait, ttl_ms: None, rank: crate::Rank::Ordinary };
        self.act(|table, now, _| table.lock(request, now)).0
    }

    #[track_caller]
    pub(crate) fn release(&mut self, owner: OwnerId, lock: u64) -> Vec<Effect> {
        let (ended, effects) =
            self.act(|table, now, effects| table.release(owner, LockId(lock), now, effects));
        assert!(ended.is_ok(), "{owner:?} has no lock {lock}");
        effects
    }

    pub(crate) fn cancel(&mut self, owner: OwnerId, lock: u64) -> (CancelOutcome, Vec<Effect>) {
        self.act(|table, now, effects| table.cancel(owner, LockId(lock), now, effects))
    }

    pub(crate) fn convert(&mut self, owner: OwnerId, lock: u64, mode: Mode) -> (ConvertOutcome, Vec<Effect>) {
        self.convert_within(owner, lock, &Change::All(mode), Wait::Forever)
    }

    pub(crate) fn convert_within(
        &mut self,
        owner: OwnerId,
        lock: u64,
        change: &Change,
        wait: Wait,
    ) -> (ConvertOutcome, Vec<Effect>) {
        self.act(|table, now, effects| table.convert(owner, LockId(lock), change, wait, now, effects))
    }

    pub(crate) fn leave(&mut self, owner: OwnerId, waiters: Waiters, for_ms: u64) -> Vec<Effect> {
        self.act(|table, now, effects| table.owner_left(owner, waiters, now.after(for_ms), now, effects)).1
    }

    pub(crate) fn restore(&mut self, owner: OwnerId, text: &str, token: u64) -> Result<LockId, Vec<LockId>> {
        self.act(|table, now, _| table.restore(owner, resources(text), Token(token), now)).0
    }

    pub(crate) fn thaw(&mut self) -> Vec<Effect> {
        self.act(|table, now, effects| table.thaw(now, effects)).1
    }

    pub(crate) fn pass(&mut self, millis: u64) -> Vec<Effect> {
        self.now = self.now.after(millis);
        self.act(|table, now, effects| table.expire(now, effects)).1
    }

    pub(crate) fn act<T>(
        &mut self,
        act: impl FnOnce(&mut LockTable, Timestamp, &mut Vec<Effect>) -> T,
    ) -> (T, Vec<Effect>) {
        let mut effects = Vec::new();
        let answer = act(&mut self.table, self.now, &mut effects);
        self.table.check_invariants();
        (answer, effects)
    }

    #[track_caller]
    pub(crate) fn view(&self, lock: u64) -> LockView {
        self.table.view(LockId(lock)).unwrap()
    }

    pub(crate) fn standing(&self, lock: u64) -> Option<Standing> {
        self.table.standing(LockId(lock))
    }
}

pub(crate) fn granted(lock: u64, token: u64) -> Outcome {
    Outcome::Granted { lock: LockId(lock), token: Token(token) }
}

pub(crate) fn queued(lock: u64) -> Outcome {
    Outcome::Queued { lock: LockId(lock) }
}

pub(crate) fn busy(blockers: &[u64]) -> Outcome {
    Outcome::Refused(Refusal::Busy { blockers: ids(blockers) })
}

pub(crate) fn deadlock(cycle: &[CycleStep]) -> Outcome {
    Outcome::Refused(Refusal::Deadlock(Cycle(cycle.to_vec())))
}

pub(crate) fn step(waiter: OwnerId, wants: &str, holder: OwnerId, lock: u64, has: &str) -> CycleStep {
    CycleStep { waiter, wants: resource(wants), holder, lock: LockId(lock), has: resource(has) }
}

pub(crate) fn converted(token: u64) -> ConvertOutcome {
    ConvertOutcome::Converted { token: Token(token) }
}

pub(crate) fn given(owner: OwnerId, lock: u64, token: u64) -> Effect {
    given_after(0, owner, lock, token)
}

pub(crate) fn given_after(waited_ms: u64, owner: OwnerId, lock: u64, token: u64) -> Effect {
    Effect::Granted { owner, lock: LockId(lock), token: Token(token), waited_ms }
}

pub(crate) fn timed_out(owner: OwnerId, lock: u64, blockers: &[u64]) -> Effect {
    Effect::TimedOut { owner, lock: LockId(lock), blockers: ids(blockers) }
}

pub(crate) fn abandoned(owner: OwnerId, lock: u64, held_ms: Option<u64>) -> Effect {
    Effect::Abandoned { owner, lock: LockId(lock), held_ms }
}

pub(crate) fn standing(place: usize, blockers: &[u64]) -> Standing {
    Standing { place, blockers: ids(blockers), blockers_len: blockers.len() }
}

pub(crate) fn ids(locks: &[u64]) -> Vec<LockId> {
    locks.iter().copied().map(LockId).collect()
}

pub(crate) fn claim(owner: OwnerId, lock: u64, mode: Mode, depth: Depth, granted: bool) -> Claimed {
    Claimed { lock: LockId(lock), owner, mode, depth, granted }
}

pub(crate) fn node(at: &str, (intent_read, intent_change): (usize, usize), claims: &[Claimed]) -> NodeView {
    NodeView { path: path(at), claims: claims.to_vec(), intent_read, intent_change }
}

/// The counts of an empty table: only the root is there.
pub(crate) fn nothing() -> Counts {
    Counts { nodes: 1, ..Counts::default() }
}

pub(crate) fn resources(text: &str) -> Vec<Resource> {
    text.split(", ").filter(|part| !part.is_empty()).map(resource).collect()
}

pub(crate) fn resource(text: &str) -> Resource {
    let (mode, rest) = text.split_once(' ').unwrap();
    let (at, depth) = rest.split_once(':').unwrap_or((rest, ""));
    let depth = depth.parse().map_or(Depth::SUBTREE, |levels| Depth::levels(levels).unwrap());
    Resource::new(path(at), mode.parse().unwrap(), depth)
}

pub(crate) fn path(text: &str) -> Path {
    text.parse().unwrap()
}
