//! A lease that is all on this shard gets other modes. Knows nothing of other shards, nor of protocols.

use super::{
    Leases, Verdict, Which, get, lost,
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
use lockwood_locks::{Change, ConvertOutcome, Refusal};
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
    /// What it is to cover.
    pub(crate) whole: Vec<Resource>,
    pub(crate) wait: Wait,
    /// Whether it is waited for if it stands in line, rather than only said where; whoever asks comes back then.
    pub(crate) waits: bool,
}

/// How a conversion was answered.
#[derive(Debug)]
pub(crate) enum Converted {
    /// It has the new modes and this token, and that is on record.
    Done(Token),
    /// Others are in the way.
    Queued(Line),
}

/// How long a conversion stands in line that nobody waits for yet.
const COME_BACK: Duration = Duration::from_secs(10);

/// Gives a lease that its owner relies on other modes. It has no other parts.
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
    let Some(lease) = get(shared, name, conversion.lock) else {
        // By another map it may be elsewhere.
        drop(shared.cluster.pass(conversion.admitted)?);
        return Err(lost(conversion.lock));
    };
    Ok(Converted::Done(lease.token))
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

/// Gives up the conversion of a lease, if it waits.
pub(crate) fn unconvert(
    shared: &Arc<Shared>,
    name: &str,
    lock: LockId,
    (owner, seat): (&str, u64),
    admitted: Admitted,
) -> Result<(), Trouble> {
    let which = Which::Lock { lock, token: None, owner: Some(owner.to_owned()) };
    let meant = Meant { which: &which, admitted, settled: true };
    let stopped = on_leases(shared, name, meant, |state, now, _| {
        state.check_seated(shared, owner, seat).map(|()| state.stop_conversion(shared, lock, now))
    });
    match stopped {
        Ok((stopped, _)) => stopped,
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
        let Conversion { lock, whole, .. } = conversion;
        if self.leases.converting.get(lock) == Some(whole) {
            return Ok(self.wait_or_tell(conversion, now));
        }
        // Whoever wanted something else is gone.
        self.stop_conversion(shared, *lock, now);
        let is_full = self.table.pending_len() as u64 >= shared.config.limits.queue_len_max;
        let wait = if is_full { Wait::Never } else { conversion.wait };
        let view = self.table.view(*lock).expect("a lease is in the table");
        let change = Change::Modes(whole.clone());
        let mut effects = std::mem::take(&mut self.effects);
        let outcome = self.table.convert(view.owner, *lock, &change, wait, now, &mut effects);
        if let ConvertOutcome::Converted { .. } | ConvertOutcome::Queued = outcome {
            self.leases.converting.insert(*lock, whole.clone());
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

    fn wait_or_tell(&mut self, conversion: &Conversion, now: Timestamp) -> Begun {
        match conversion.waits {
            true => Begun::Waits(self.verdict_on(conversion.lock)),
            false => Begun::Queued(view::line(self, conversion.lock, now)),
        }
    }

    /// A lock has other modes; if it is a lease, that goes on record.
    pub(crate) fn lease_converted(&mut self, shared: &Shared, lock: LockId) {
        if self.leases.converting.remove(&lock).is_none() {
            return;
        }
        let view = self.table.view(lock).expect("it was just converted");
        let Some(mut lease) = self.leases.remove(lock) else { return };
        lease.resources = view.resources;
        lease.token = view.token.expect("only what is held is converted");
        lease.part = None;
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

    /// Another map is in force, and what is converted may be elsewhere by it.
    pub(super) fn stop_conversions(&mut self, shared: &Shared, now: Timestamp) {
        let locks: Vec<LockId> = self.leases.converting.keys().copied().collect();
        locks.into_iter().for_each(|lock| self.stop_conversion(shared, lock, now));
    }

    /// Whoever wanted something else of an owner's locks is gone.
    pub(super) fn stop_conversions_of(&mut self, shared: &Shared, owner: OwnerId, now: Timestamp) {
        let locks: Vec<LockId> = self.table.owned(owner).map(|view| view.id).collect();
        locks.into_iter().for_each(|lock| self.stop_conversion(shared, lock, now));
    }
}
