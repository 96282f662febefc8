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
    Asked, HOLD_MS, Lease, LeasePart, Leases, Verdict, Which, lost,
    moving::gone,
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
use lockwood_locks::{Change, ConvertOutcome, Effect, RecordedWait, Refusal};
use lockwood_model::{LockId, Resource, Timestamp, Token, Wait};
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
    /// What it is to cover with all its parts.
    pub(crate) whole: Vec<Resource>,
    /// Whether there are no other parts.
    pub(crate) alone: bool,
    pub(crate) wait: Wait,
    /// Whether it is waited for if it stands in line, rather than only said where; whoever asks comes back then.
    pub(crate) waits: bool,
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
#[derive(PartialEq, Eq)]
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

/// Gives up a conversion of a lease, with whatever is stronger already than its owner knows; says which token it has.
pub(crate) async fn unconvert(
    shared: &Arc<Shared>,
    name: &str,
    which: &Which,
    admitted: Admitted,
) -> Result<Option<Token>, Trouble> {
    let meant = Meant { which, admitted, settled: true };
    let undone = on_leases(shared, name, meant, |state, now, locks| {
        locks.iter().for_each(|lock| state.unconvert(shared, *lock, now));
        locks.first().and_then(|lock| state.leases.get(*lock)).map(|lease| lease.token)
    });
    match undone {
        Ok((token, after)) => {
            shared.shard.shown(after).await?;
            Ok(token)
        }
        Err(trouble) if trouble.code == Code::LockLost => Ok(None),
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
        if shared.is_poisoned() || !shared.numbers.suffice(self.table.next_number()) {
            return Err(Trouble::storage_failed());
        }
        let Conversion { lock, whole, alone, .. } = conversion;
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
                self.send_back(shared, *lock, now);
                Ok(self.wait_or_tell(conversion, now))
            }
            ConvertOutcome::Refused(Refusal::Busy { .. }) if is_full => Err(queue_full(shared)),
            ConvertOutcome::Refused(refusal) => Err(view::refused(shared, self, &refusal, None, now)),
            ConvertOutcome::Invalid(error) => Err(invalid_conversion(*lock, error)),
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

    /// Parts that are not settled and in the way of a conversion go back to the head of the line. Whoever takes them may
    /// wait on another shard for the one that converts, and nobody would see that.
    fn send_back(&mut self, shared: &Shared, lock: LockId, now: Timestamp) {
        let Some(view) = self.table.view(lock) else { return };
        let wanted = view.converting_to.unwrap_or_default();
        let conflicts = |held: &Resource| wanted.iter().any(|wanted| wanted.conflicts(held));
        let is_meant = |lease: &&Lease| {
            let is_part = !lease.is_settled() && !self.leases.unclaimed.contains_key(&lease.lock);
            is_part
                && self.leases.owner(&lease.owner) != Some(view.owner)
                && lease.resources.iter().any(conflicts)
        };
        let meant: Vec<Lease> = self.leases.held.values().filter(is_meant).cloned().collect();
        if meant.is_empty() || self.table.is_frozen() {
            return;
        }
        self.table.freeze();
        let line: Vec<LockId> = meant.iter().map(|lease| lease.lock).collect();
        meant.into_iter().for_each(|lease| self.wait_again(shared, lease, now));
        self.table.line_up(&line, now);
        let mut effects = std::mem::take(&mut self.effects);
        self.table.thaw(now, &mut effects);
        self.deliver(effects, now, shared);
    }

    /// A part that nobody relies on stands in line again, for as long as it would have been held. The table is frozen.
    fn wait_again(&mut self, shared: &Shared, lease: Lease, now: Timestamp) {
        self.take_out(lease.lock, now);
        let whole = lease.whole().to_vec();
        let wait = RecordedWait {
            lock: lease.lock,
            owner: self.lease_owner(shared, &lease.owner),
            resources: lease.resources,
            asked_at: lease.granted_at,
            until: lease.expires_at,
            ttl_ms: Some(HOLD_MS),
        };
        let Lease { lock, owner, via, note, .. } = lease;
        let asked =
            Asked { owner, via, note, ttl_ms: Some(HOLD_MS), whole: Some(whole), alone: None, stays: false };
        self.leases.put_asked(lock, asked);
        self.table.restore_wait(wait);
    }

    /// A lock has other modes; if it is a lease, that goes on record.
    pub(crate) fn lease_converted(&mut self, shared: &Shared, lock: LockId) {
        let Some(goal) = self.leases.converting.remove(&lock) else { return };
        let Some(lease) = self.leases.get(lock) else { return };
        let (whole, token) = (lease.whole().to_vec(), lease.token);
        if goal.alone {
            let token = self.table.view(lock).and_then(|view| view.token).unwrap_or(token);
            self.put_converted(shared, lock, goal.whole, token);
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
        self.note_ended(shared);
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

    /// Another map is in force, or about to be. What is converted may be elsewhere by then, and what comes here may not
    /// find in its way what nobody relies on; whoever converts it begins anew.
    pub(super) fn stop_conversions(&mut self, shared: &Shared, now: Timestamp) {
        let is_odd = |lease: &&Lease| self.leases.converting.contains_key(&lease.lock) || is_half_done(lease);
        let locks: Vec<LockId> = self.leases.held.values().filter(is_odd).map(|lease| lease.lock).collect();
        locks.into_iter().for_each(|lock| self.unconvert(shared, lock, now));
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

    /// A part that is strong enough is what it is to be; its owner is about to hear of it. What that sets free is not
    /// to be handed over before this is on record.
    pub(super) fn reshape(
        &mut self,
        lock: LockId,
        whole: &[Resource],
        now: Timestamp,
    ) -> Result<Vec<Effect>, Trouble> {
        let lease = self.leases.get(lock).ok_or_else(|| lost(lock))?;
        let wanted = with_modes(&lease.resources, whole);
        let is_strong = |(has, wants): (&Resource, &Resource)| has.mode.includes(wants.mode);
        if !lease.resources.iter().zip(&wanted).all(is_strong) {
            let message = "a part of the lock is not strong enough any more; ask again";
            return Err(Trouble::new(Code::WrongEpoch, message));
        }
        let effects = self.weaken(lock, whole, now);
        let view = self.table.view(lock).expect("a lease is in the table");
        if let Some(mut lease) = self.leases.remove(lock) {
            lease.resources = view.resources;
            lease.part = Some(Box::new(LeasePart { whole: whole.to_vec(), settled: true }));
            self.leases.insert(lease);
        }
        Ok(effects)
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
fn is_half_done(lease: &Lease) -> bool {
    lease.is_settled()
        && lease.part.is_some()
        && with_modes(&lease.resources, lease.whole()) != lease.resources
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
