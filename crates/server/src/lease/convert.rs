//! A lease gets other modes, as far as one shard is concerned. Knows nothing of the other shards, nor of protocols.
//!
//! ```text
//!   on one shard:       stronger and weaker at once, with another token
//!   on several shards:  stronger, shard by shard ──► settled: another token, and what is to be weaker becomes weaker
//!                                │ refused elsewhere
//!                                ▼
//!                            as it was
//! ```
//!
//! Until it is settled its owner goes by the old token and by what it had, so there is nothing to take back but modes.

use super::{
    Asked, Lease, LeasePart, Leases, Verdict, Which, lost,
    moving::gone,
    part::HOLD_MS,
    queue_full,
    which::{Meant, on_leases},
};
use crate::{
    cluster::Admitted,
    namespace::{Namespace, State},
    seat::invalid_conversion,
    shared::Shared,
    trouble::Trouble,
    view::{self, Line},
};
use lockwood_locks::{Change, ConvertOutcome, Effect, Recorded, RecordedWait, Refusal};
use lockwood_model::{LockId, OwnerId, Resource, Timestamp, Token, Wait};
use lockwood_storage::Entry;
use lockwood_wire::Code;
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// What a lease is to become.
#[derive(Debug, Clone)]
pub(crate) struct Conversion {
    pub(crate) admitted: Admitted,
    pub(crate) lock: LockId,
    pub(crate) owner: String,
    /// Which connection of the owner wants it.
    pub(crate) seat: u64,
    /// What it is to cover with all its parts.
    pub(crate) whole: Vec<Resource>,
    /// Whether there are no other parts.
    pub(crate) alone: bool,
    pub(crate) wait: Wait,
    /// Whether it is waited for if it stands in line, rather than only said where; whoever asks comes back then.
    pub(crate) waits: bool,
    /// Which of the conversions that its connection wants; a later one has a larger number.
    pub(crate) turn: u64,
}

/// How a conversion was answered.
#[derive(Debug)]
pub(crate) enum Converted {
    /// It is strong enough here, and that is on record. The token is that of the lease if there are no other parts,
    /// otherwise one that it may get.
    Done(Token),
    /// Others are in the way.
    Queued(Line),
}

/// What a conversion that waits leads to.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Goal {
    whole: Vec<Resource>,
    alone: bool,
}

/// How long a conversion stands in line that nobody waits for yet.
const COME_BACK: Duration = Duration::from_secs(10);

/// Gives a lease that its owner relies on other modes. If there are other parts, it gets no weaker here.
pub(crate) async fn convert(
    shared: &Arc<Shared>,
    name: &str,
    conversion: &Conversion,
) -> Result<Converted, Trouble> {
    let which = conversion.which();
    let meant = Meant { which: &which, admitted: conversion.admitted, settled: true };
    let (begun, after) =
        on_leases(shared, name, meant, |state, now, _| state.begin_conversion(shared, conversion, now))?;
    match begun? {
        Begun::Done => shared.shard.shown(after).await?,
        Begun::Queued(line) => {
            tokio::spawn(stop_unless_awaited(Arc::clone(shared), name.to_owned(), conversion.lock));
            return Ok(Converted::Queued(line));
        }
        Begun::Waits(verdict) => wait_for(shared, name, conversion.lock, verdict).await?,
    }
    let Some(token) = token(shared, name, conversion) else {
        // By another map it may be elsewhere.
        drop(shared.cluster.pass(conversion.admitted)?);
        return Err(lost(conversion.lock));
    };
    Ok(Converted::Done(token))
}

async fn stop_unless_awaited(shared: Arc<Shared>, name: String, lock: LockId) {
    tokio::time::sleep(COME_BACK).await;
    if let Some(namespace) = shared.registry.get(&name) {
        stop_if_unawaited(&shared, &namespace, lock);
    }
}

fn stop_if_unawaited(shared: &Shared, namespace: &Namespace, lock: LockId) {
    let mut state = namespace.lock();
    if !state.is_awaited(lock) {
        state.stop_conversion(shared, lock, shared.clock.now());
    }
    namespace.rearm(state);
}

async fn wait_for(
    shared: &Arc<Shared>,
    name: &str,
    lock: LockId,
    verdict: oneshot::Receiver<Verdict>,
) -> Result<(), Trouble> {
    let Some(namespace) = shared.registry.get(name) else { return Err(gone()) };
    let waiting = Waiting { shared, namespace, lock };
    let verdict = verdict.await;
    drop(waiting);
    match verdict {
        Ok(Verdict::Granted { after }) => Ok(shared.shard.shown(after).await?),
        Ok(Verdict::Refused(trouble)) => Err(*trouble),
        Err(_) => Err(lost(lock)),
    }
}

/// Somebody who waits for a conversion. It is given up when this goes.
struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    namespace: Arc<Namespace>,
    lock: LockId,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        stop_if_unawaited(self.shared, &self.namespace, self.lock);
    }
}

fn token(shared: &Shared, name: &str, conversion: &Conversion) -> Option<Token> {
    let namespace = shared.registry.get(name)?;
    let mut state = namespace.lock();
    let token = state.leases.get(conversion.lock)?.token;
    Some(if conversion.alone { token } else { state.table.draw_token() })
}

/// Gives up conversions of leases, with whatever is stronger already than their owner knows.
pub(crate) async fn unconvert(
    shared: &Arc<Shared>,
    name: &str,
    which: &Which,
    (owner, seat, turn): (&str, u64, u64),
    admitted: Admitted,
) -> Result<(), Trouble> {
    let meant = Meant { which, admitted, settled: true };
    let undone = on_leases(shared, name, meant, |state, now, locks| {
        state.check_seated(shared, owner, seat)?;
        for lock in locks {
            state.unconvert(shared, lock, now);
            state.leases.given_up.insert(lock, (seat, turn));
        }
        Ok::<(), Trouble>(())
    });
    match undone {
        Ok((undone, after)) => {
            undone?;
            Ok(shared.shard.shown(after).await?)
        }
        Err(trouble) if trouble.code == Code::LockLost => Ok(()),
        Err(trouble) => Err(trouble),
    }
}

impl Conversion {
    fn which(&self) -> Which {
        Which::Lock { lock: self.lock, token: None, owner: Some(self.owner.clone()) }
    }
}

impl Leases {
    /// A conversion came to nothing.
    pub(crate) fn forget_conversion(&mut self, lock: LockId) {
        self.converting.remove(&lock);
    }
}

enum Begun {
    Done,
    Queued(Line),
    Waits(oneshot::Receiver<Verdict>),
}

impl State {
    fn begin_conversion(
        &mut self,
        shared: &Shared,
        conversion: &Conversion,
        now: Timestamp,
    ) -> Result<Begun, Trouble> {
        self.check_seated(shared, &conversion.owner, conversion.seat)?;
        if shared.is_poisoned() || !shared.numbers.suffice(self.table.next_number()) {
            return Err(Trouble::storage_failed());
        }
        let Conversion { lock, whole, alone, .. } = conversion;
        if self
            .leases
            .given_up
            .get(lock)
            .is_some_and(|(seat, turn)| *seat == conversion.seat && *turn >= conversion.turn)
        {
            // This was long on its way, and nobody would ever take it back.
            return Err(gone());
        }
        let goal = Goal { whole: whole.clone(), alone: *alone };
        if self.leases.converting.get(lock) == Some(&goal) {
            return Ok(self.wait_or_tell(conversion, now));
        }
        // Whoever wanted something else is gone.
        self.stop_conversion(shared, *lock, now);
        let is_full = self.table.pending_len() as u64 >= shared.config.limits.queue_len_max;
        let wait = if is_full { Wait::Never } else { conversion.wait };
        let view = self.table.view(*lock).expect("a lease is in the table");
        let modes = if *alone { whole.clone() } else { raised(&view.resources, whole) };
        if self.goes_past(shared, (view.owner, *lock), (&modes, &goal), wait, now) {
            return Ok(self.wait_or_tell(conversion, now));
        }
        let mut effects = std::mem::take(&mut self.effects);
        let outcome = self.table.convert(view.owner, *lock, &Change::Modes(modes), wait, now, &mut effects);
        if let ConvertOutcome::Converted { .. } | ConvertOutcome::Queued = outcome {
            self.leases.converting.insert(*lock, goal);
        }
        if let ConvertOutcome::Converted { .. } = outcome {
            // On record before anybody has what it gave up.
            self.lease_converted(shared, *lock);
        }
        self.deliver(effects, now, shared);
        match outcome {
            ConvertOutcome::Converted { .. } => Ok(Begun::Done),
            ConvertOutcome::Queued => {
                shared.metrics.waits.add(1);
                Ok(self.wait_or_tell(conversion, now))
            }
            ConvertOutcome::Refused(Refusal::Busy { .. }) if is_full => Err(queue_full(shared)),
            ConvertOutcome::Refused(refusal) => Err(view::refused(shared, self, &refusal, None, now)),
            ConvertOutcome::Invalid(error) => Err(invalid_conversion(*lock, error)),
        }
    }

    /// Parts that nobody relies on yet and that are in the way of a conversion go back to the line, where it goes ahead
    /// of everybody: whoever takes them may wait on another shard for the one that converts, and no shard would see
    /// that. True if it waits for somebody else then.
    fn goes_past(
        &mut self,
        shared: &Shared,
        (owner, lock): (OwnerId, LockId),
        (modes, goal): (&[Resource], &Goal),
        wait: Wait,
        now: Timestamp,
    ) -> bool {
        let parts = self.unsettled_against(owner, modes);
        if parts.is_empty() || self.table.is_frozen() {
            return false;
        }
        let patience = if wait == Wait::Never { Wait::Forever } else { wait };
        let change = Change::Modes(modes.to_vec());
        self.send_back(shared, parts, now, |state, effects| {
            let outcome = state.table.convert(owner, lock, &change, patience, now, effects);
            if outcome == ConvertOutcome::Queued {
                state.leases.converting.insert(lock, goal.clone());
            }
        });
        if wait == Wait::Never {
            self.stop_conversion(shared, lock, now);
        }
        self.leases.converting.contains_key(&lock)
    }

    /// The parts of other owners' locks that nobody relies on yet and that conflict with these modes.
    fn unsettled_against(&self, owner: OwnerId, modes: &[Resource]) -> Vec<Lease> {
        let conflicts = |held: &Resource| modes.iter().any(|wanted| wanted.conflicts(held));
        let is_meant = |lease: &&Lease| {
            !lease.is_settled()
                && !self.leases.unclaimed.contains_key(&lease.lock)
                && self.leases.owner(&lease.owner) != Some(owner)
                && lease.resources.iter().any(conflicts)
        };
        self.leases.held.values().filter(is_meant).cloned().collect()
    }

    /// Parts that nobody relies on go to the head of the line; what is granted then is decided after `also`.
    fn send_back(
        &mut self,
        shared: &Shared,
        parts: Vec<Lease>,
        now: Timestamp,
        also: impl FnOnce(&mut State, &mut Vec<Effect>),
    ) {
        self.table.freeze();
        let line: Vec<LockId> = parts.iter().map(|lease| lease.lock).collect();
        parts.into_iter().for_each(|lease| self.wait_again(shared, lease, now));
        self.table.line_up(&line, now);
        let mut effects = std::mem::take(&mut self.effects);
        also(self, &mut effects);
        self.table.thaw(now, &mut effects);
        self.deliver(effects, now, shared);
    }

    /// A part that nobody relies on stands in line again, for as long as it would have been held. The table is frozen.
    fn wait_again(&mut self, shared: &Shared, lease: Lease, now: Timestamp) {
        let taker = self.leases.taker(lease.lock);
        self.take_out(lease.lock, now);
        let whole = Some(lease.whole().to_vec());
        let Lease { lock, owner, via, note, resources, granted_at, expires_at, .. } = lease;
        let wait = RecordedWait {
            lock,
            owner: self.lease_owner(shared, &owner),
            resources,
            asked_at: granted_at,
            until: expires_at,
            ttl_ms: Some(HOLD_MS),
        };
        let asked = Asked { owner, via, note, ttl_ms: Some(HOLD_MS), whole, alone: None, stays: false };
        self.leases.put_asked(lock, asked);
        taker.into_iter().for_each(|taker| self.leases.note_taker(lock, taker));
        self.table.restore_wait(wait);
    }

    /// A part is not settled any more, because others of its lock are not held. Whoever converts goes past it.
    pub(super) fn unsettle(&mut self, shared: &Shared, lock: LockId, now: Timestamp) {
        let Some(mut lease) = self.leases.remove(lock) else { return };
        lease.part = Some(Box::new(LeasePart { whole: lease.whole().to_vec(), settled: false }));
        self.leases.insert(lease);
        let (token, until) = (self.table.draw_token(), now.after(HOLD_MS));
        self.hold_until(shared, lock, token, Some(until));
        let lease = self.leases.held[&lock].clone();
        let is_in_the_way = |converting: &LockId| {
            let view = self.table.view(*converting).expect("a lease is in the table");
            let wanted = view.converting_to.unwrap_or_default();
            self.leases.owner(&lease.owner) != Some(view.owner)
                && wanted.iter().any(|wanted| lease.resources.iter().any(|held| wanted.conflicts(held)))
        };
        if self.leases.converting.keys().any(is_in_the_way) && !self.table.is_frozen() {
            self.send_back(shared, vec![lease], now, |_, _| {});
        }
    }

    /// A conversion waits, unless it is done by now.
    fn wait_or_tell(&mut self, conversion: &Conversion, now: Timestamp) -> Begun {
        let lock = conversion.lock;
        match conversion.waits {
            _ if !self.leases.converting.contains_key(&lock) => Begun::Done,
            true => Begun::Waits(self.verdict_on(lock)),
            false => Begun::Queued(view::line(self, lock, now)),
        }
    }

    /// A lock has other modes; if it is a lease, that goes on record.
    pub(crate) fn lease_converted(&mut self, shared: &Shared, lock: LockId) {
        let Some(goal) = self.leases.converting.remove(&lock) else { return };
        // It may have run out at the same time.
        let Some(lease) = self.leases.get(lock).filter(|_| self.table.owner_of(lock).is_some()) else {
            return;
        };
        let (whole, token) = (lease.whole().to_vec(), lease.token);
        if goal.alone {
            let mut given = self.table.view(lock).and_then(|view| view.token).unwrap_or(token);
            let is_more = |(had, has): (&Resource, &Resource)| !had.mode.includes(has.mode);
            if given == token && whole.iter().zip(&goal.whole).any(is_more) {
                // It was made stronger when it was on several shards, and its owner has not heard of that.
                given = self.table.draw_token();
                let changed = self.table.give_token(lock, given);
                debug_assert!(changed.is_ok(), "a lease is in the table");
            }
            self.put_converted(shared, lock, goal.whole, given);
        } else {
            // Its owner goes by what it had until it is as strong everywhere.
            let given = self.table.give_token(lock, token);
            debug_assert!(given.is_ok(), "a lease is in the table");
            self.put_converted(shared, lock, whole, token);
        }
    }

    /// A lease has what the table says, and its owner relies on this.
    fn put_converted(&mut self, shared: &Shared, lock: LockId, whole: Vec<Resource>, token: Token) {
        let view = self.table.view(lock).expect("a lease is in the table");
        let Some(mut lease) = self.leases.remove(lock) else { return };
        lease.resources = view.resources;
        lease.token = token;
        lease.part = (whole != lease.resources).then(|| Box::new(LeasePart { whole, settled: true }));
        self.record(shared, &Entry::Leased { namespace: (&*self.name).into(), lease: lease.clone() });
        self.leases.insert(lease);
    }

    /// A conversion that waits is over, and whoever waits for it is to ask again.
    fn stop_conversion(&mut self, shared: &Shared, lock: LockId, now: Timestamp) {
        if self.leases.converting.remove(&lock).is_none() {
            return;
        }
        self.tell_waiters(lock, &Verdict::Refused(Box::new(gone())));
        let Some(owner) = self.table.owner_of(lock) else { return };
        let mut effects = std::mem::take(&mut self.effects);
        self.table.cancel(owner, lock, now, &mut effects);
        self.deliver(effects, now, shared);
    }

    /// Another map is in force, or about to be, and what is converted may be elsewhere by then; whoever converts it
    /// begins anew.
    pub(super) fn stop_conversions(&mut self, shared: &Shared, now: Timestamp) {
        let locks: Vec<LockId> = self.leases.converting.keys().copied().collect();
        locks.into_iter().for_each(|lock| self.stop_conversion(shared, lock, now));
    }

    /// Whoever wanted something else of an owner's locks is gone.
    pub(super) fn stop_conversions_of(&mut self, shared: &Shared, owner: OwnerId, now: Timestamp) {
        let locks: Vec<LockId> = self.table.owned(owner).map(|view| view.id).collect();
        locks.into_iter().for_each(|lock| self.stop_conversion(shared, lock, now));
    }

    /// A lease is what its owner relies on, and nothing is going to be made of it.
    pub(super) fn unconvert(&mut self, shared: &Shared, lock: LockId, now: Timestamp) {
        self.stop_conversion(shared, lock, now);
        let Some(lease) = self.leases.get(lock) else { return };
        let (whole, token) = (lease.whole().to_vec(), lease.token);
        if is_half_done(lease) {
            let effects = self.weaken(lock, &whole, now);
            self.put_converted(shared, lock, whole, token);
            self.deliver(effects, now, shared);
        }
    }

    /// The owner of a part that is strong enough is about to hear what it may rely on. The part gets no weaker before the
    /// owner has heard.
    pub(super) fn reshape(
        &mut self,
        shared: &Shared,
        lock: LockId,
        whole: &[Resource],
        now: Timestamp,
    ) -> Result<(), Trouble> {
        self.stop_conversion(shared, lock, now);
        let lease = self.leases.get(lock).ok_or_else(|| lost(lock))?;
        let wanted = with_modes(&lease.resources, whole);
        let is_strong = |(has, wants): (&Resource, &Resource)| has.mode.includes(wants.mode);
        if !lease.resources.iter().zip(&wanted).all(is_strong) {
            let message = "a part of the lock is not strong enough any more; ask again";
            return Err(Trouble::new(Code::Locked, message));
        }
        if let Some(mut lease) = self.leases.remove(lock) {
            lease.part = Some(Box::new(LeasePart { whole: whole.to_vec(), settled: true }));
            self.leases.insert(lease);
        }
        Ok(())
    }

    /// Makes a lease what its owner relies on, if it is stronger than that. The table is frozen.
    pub(super) fn lower(&mut self, shared: &Shared, lock: LockId, now: Timestamp) -> bool {
        let Some(owner) = self.table.owner_of(lock) else { return false };
        if !self.leases.get(lock).is_some_and(is_half_done) {
            return false;
        }
        let Some(mut lease) = self.leases.remove(lock) else { return false };
        lowered(&mut lease);
        let mut effects: Vec<Effect> = Vec::new();
        let revoked = self.table.revoke(lock, now, &mut effects);
        let recorded = Recorded {
            lock,
            token: lease.token,
            owner,
            resources: lease.resources.clone(),
            granted_at: lease.granted_at,
            expires_at: lease.expires_at,
        };
        let restored = self.table.restore_recorded(recorded);
        debug_assert!(revoked.is_ok() && restored.is_ok(), "what was in nobody's way is less so now");
        self.record(shared, &Entry::Leased { namespace: (&*self.name).into(), lease: lease.clone() });
        self.leases.insert(lease);
        true
    }

    fn weaken(&mut self, lock: LockId, modes: &[Resource], now: Timestamp) -> Vec<Effect> {
        let owner = self.table.owner_of(lock).expect("a lease is in the table");
        let mut effects = std::mem::take(&mut self.effects);
        let change = Change::Modes(modes.to_vec());
        let outcome = self.table.convert(owner, lock, &change, Wait::Never, now, &mut effects);
        debug_assert!(
            matches!(outcome, ConvertOutcome::Converted { .. }),
            "nothing is in the way: {outcome:?}"
        );
        effects
    }
}

/// Whether a lease is stronger than its owner knows.
pub(super) fn is_half_done(lease: &Lease) -> bool {
    let relied_on = with_modes(&lease.resources, lease.whole());
    let includes = |(has, relies): (&Resource, &Resource)| has.mode.includes(relies.mode);
    lease.is_settled() && relied_on != lease.resources && lease.resources.iter().zip(&relied_on).all(includes)
}

/// Makes a lease what its owner knows it to be.
pub(super) fn lowered(lease: &mut Lease) {
    let whole = lease.whole().to_vec();
    lease.resources = with_modes(&lease.resources, &whole);
    lease.part = (whole != lease.resources).then(|| Box::new(LeasePart { whole, settled: true }));
}

/// Resources with the modes that they have in others.
pub(super) fn with_modes(resources: &[Resource], modes: &[Resource]) -> Vec<Resource> {
    let changed = Change::Modes(modes.to_vec()).applied_to(resources);
    changed.expect("what is about a child list is not what is about a node")
}

/// Resources with the modes that they have in others, where those are stronger.
fn raised(resources: &[Resource], modes: &[Resource]) -> Vec<Resource> {
    let mut raised = with_modes(resources, modes);
    for (wants, has) in raised.iter_mut().zip(resources) {
        if has.mode.includes(wants.mode) {
            wants.mode = has.mode;
        }
    }
    raised
}
