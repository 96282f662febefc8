//! Leases that are there already: renewed, released, found by whoever may. Knows nothing of how they came to be.

use super::{Lease, Verdict, take::check_ttl};
use crate::{cluster::Admitted, namespace::State, shard::Follow, shared::Shared, trouble::Trouble};
use lockwood_locks::{LockView, merge};
use lockwood_model::{LockId, OwnerId, Resource, Timestamp};
use lockwood_storage::Entry;
use lockwood_wire::Code;
use std::sync::Arc;

/// Which of an owner's leases are meant.
#[derive(Debug, Clone)]
pub(crate) enum Which {
    /// This one, which must have this token, and belong to this owner, as far as they are given.
    Lock { lock: LockId, token: Option<u64>, owner: Option<String> },
    /// Those of this owner that have exactly these resources.
    Like { owner: String, resources: Vec<Resource> },
    /// All of this owner. If a connection speaks for it, only as long as no other one has begun to.
    All { owner: String, seat: Option<u64> },
}

impl Which {
    /// Whether requests that stand in line can be meant: they have no token yet.
    fn may_wait(&self) -> bool {
        !matches!(self, Which::Lock { token: Some(_), .. } | Which::Lock { owner: None, .. })
    }
}

pub(crate) fn lost(lock: LockId) -> Trouble {
    let message = format!(
        "lock {lock} is over: it ran out, was released, or was ended by an operator; what it guarded may have \
         changed, so take it anew and read again"
    );
    Trouble::new(Code::LockLost, message)
}

/// Changes when leases end; gives them as they are then.
pub(crate) async fn renew(
    shared: &Arc<Shared>,
    name: &str,
    which: &Which,
    ttl_ms: u64,
) -> Result<Vec<Lease>, Trouble> {
    check_ttl(shared, Some(ttl_ms))?;
    let meant = Meant { which, admitted: shared.cluster.admit_now(name)?, settled: true };
    let (leases, after) = on_leases(shared, name, meant, |state, _, found| {
        let until = shared.clock.now().after(ttl_ms);
        for lock in &found {
            let owner = state.table.owner_of(*lock).expect("a lease is in the table");
            let renewed = state.table.renew(owner, *lock, Some(until));
            debug_assert!(renewed.is_ok(), "a lease that is held can be renewed");
            if let Some(lease) = state.leases.held.get_mut(lock) {
                (lease.expires_at, lease.ttl_ms) = (Some(until), Some(ttl_ms));
            }
            let namespace = (&*state.name).into();
            let (lock, expires_at) = (*lock, Some(until));
            state.record(shared, &Entry::LeaseRenewed { namespace, lock, expires_at, ttl_ms: Some(ttl_ms) });
        }
        found.iter().filter_map(|lock| state.leases.get(*lock).cloned()).collect::<Vec<_>>()
    })?;
    shared.shard.shown(after).await?;
    Ok(leases)
}

/// What was released.
#[derive(Debug, Default)]
pub(crate) struct Released {
    /// Leases, as they were.
    pub(crate) leases: Vec<Lease>,
    /// Requests that stood in line: their numbers, and what they were for.
    pub(crate) waits: Vec<(LockId, Vec<Resource>)>,
}

/// Ends leases; says which. Those of them that stand in line leave it.
pub(crate) async fn release(shared: &Arc<Shared>, name: &str, which: &Which) -> Result<Released, Trouble> {
    let admitted = shared.cluster.admit_now(name)?;
    let waits = if which.may_wait() { leave_line(shared, name, which, admitted)? } else { Vec::new() };
    if !waits.is_empty() && is_nothing_held(shared, name, which) {
        return Ok(Released { leases: Vec::new(), waits });
    }
    let meant = Meant { which, admitted, settled: false };
    let released = on_leases(shared, name, meant, |state, now, found| {
        let ended = found.iter().filter_map(|lock| state.leases.get(*lock).cloned()).collect::<Vec<_>>();
        for lock in found {
            state.leases.note_over(lock, &lost(lock));
            state.end(shared, lock, now);
        }
        ended
    });
    let (leases, after) = match released {
        Ok(released) => released,
        Err(trouble) => {
            // That it is over may have come about just now.
            shared.shard.shown(shared.shard.last_index()).await?;
            return Err(trouble);
        }
    };
    shared.shard.shown(after).await?;
    Ok(Released { leases, waits })
}

/// Ends the waits of an owner that says who it is; gives what they were for.
fn leave_line(
    shared: &Arc<Shared>,
    name: &str,
    which: &Which,
    admitted: Admitted,
) -> Result<Vec<(LockId, Vec<Resource>)>, Trouble> {
    let Some(namespace) = shared.registry.get(name) else { return Ok(Vec::new()) };
    let mut state = namespace.lock();
    let passage = shared.cluster.pass(admitted)?;
    state.check_seat(shared, which)?;
    let waiting = state.find_waiting(which);
    let wants = |lock| state.table.view(lock).map(|view| view.resources).unwrap_or_default();
    let waits: Vec<_> = waiting.iter().map(|(_, lock)| (*lock, wants(*lock))).collect();
    waits.iter().try_for_each(|(_, resources)| shared.cluster.check_locks(&passage, resources))?;
    drop(passage);
    let whole = |(lock, wants): (LockId, _)| {
        let whole = state.leases.asked.get(&lock).and_then(|asked| asked.whole.clone());
        (lock, whole.unwrap_or(wants))
    };
    let waits = waits.into_iter().map(whole).collect();
    for (owner, lock) in &waiting {
        let trouble = Trouble::new(Code::LockLost, "its owner ended the wait for this lock");
        state.leases.note_over(*lock, &trouble);
        state.tell_waiters(*lock, &Verdict::Refused(Box::new(trouble)));
        state.give_back(shared, *owner, *lock);
    }
    namespace.rearm(state);
    shared.registry.drop_if_unused(shared, &namespace);
    Ok(waits)
}

fn is_nothing_held(shared: &Arc<Shared>, name: &str, which: &Which) -> bool {
    let now = shared.clock.now();
    shared.registry.get(name).is_none_or(|namespace| namespace.lock().find_leases(which, now, false).is_err())
}

/// Which leases are meant, and under which map.
#[derive(Clone, Copy)]
pub(super) struct Meant<'a> {
    pub(super) which: &'a Which,
    pub(super) admitted: Admitted,
    /// Whether only those are meant that their owner may rely on.
    pub(super) settled: bool,
}

/// Does something with leases that are held; gives what came of it, and the record that has to be durable
/// before it is told.
pub(super) fn on_leases<T>(
    shared: &Arc<Shared>,
    name: &str,
    meant: Meant<'_>,
    act: impl FnOnce(&mut State, Timestamp, Vec<LockId>) -> T,
) -> Result<(T, u64), Trouble> {
    let Meant { which, admitted, settled } = meant;
    let Some(namespace) = shared.registry.get(name) else {
        // By another map it may be elsewhere.
        drop(shared.cluster.pass(admitted)?);
        return Err(nothing_held(which));
    };
    let mut state = namespace.lock();
    let passage = shared.cluster.pass(admitted)?;
    let now = shared.clock.now();
    state.expire(shared, now);
    state.check_seat(shared, which)?;
    let found = state.find_leases(which, now, settled)?;
    let mut leases = found.iter().filter_map(|lock| state.leases.get(*lock));
    leases.try_for_each(|lease| shared.cluster.check_locks(&passage, &lease.resources))?;
    state.follow = Follow::Caller;
    let done = act(&mut state, now, found);
    state.follow = Follow::Thread;
    let after = state.written;
    state.linger(shared);
    namespace.rearm(state);
    Ok((done, after))
}

pub(crate) fn nothing_held(which: &Which) -> Trouble {
    match which {
        Which::Lock { lock, .. } => lost(*lock),
        Which::Like { owner, .. } => {
            let message =
                format!("{owner:?} has no lease with exactly these resources; list its locks to see");
            Trouble::new(Code::LockLost, message)
        }
        Which::All { owner, .. } => Trouble::new(
            Code::LockLost,
            format!("{owner:?} has no lease; what it had has run out or was released"),
        ),
    }
}

impl State {
    /// That no other connection speaks for the owner, as far as this node has heard.
    fn check_seat(&self, shared: &Shared, which: &Which) -> Result<(), Trouble> {
        match which {
            Which::All { owner, seat: Some(seat) } => self.check_seated(shared, owner, *seat),
            _ => Ok(()),
        }
    }

    /// The same for one connection. Whoever takes its place gives back what it took, once this is not held any more.
    pub(super) fn check_seated(&self, shared: &Shared, owner: &str, seat: u64) -> Result<(), Trouble> {
        shared.cluster.seats.check(&self.name, owner, seat)
    }

    /// The leases meant, if there is at least one and its time is not over.
    fn find_leases(&self, which: &Which, now: Timestamp, settled: bool) -> Result<Vec<LockId>, Trouble> {
        let is_meant = |lease: &&Lease| lease.is_alive(now) && (!settled || lease.is_settled());
        let of = |owner: &str| {
            let owner = self.leases.owners.get(owner).copied();
            let locks = owner.into_iter().flat_map(|owner| self.table.owned(owner)).map(|view| view.id);
            locks.filter_map(|lock| self.leases.get(lock)).filter(is_meant)
        };
        let found: Vec<LockId> = match which {
            Which::Lock { lock, token, owner } => {
                let lease = self.leases.get(*lock).filter(is_meant).ok_or_else(|| lost(*lock))?;
                if token.is_some_and(|token| token != lease.token.0)
                    || owner.as_ref().is_some_and(|owner| **owner != *lease.owner)
                {
                    return Err(foreign(lease));
                }
                vec![*lock]
            }
            Which::All { owner, .. } => of(owner).map(|lease| lease.lock).collect(),
            Which::Like { owner, resources } => {
                let wanted = merged(resources);
                of(owner).filter(|lease| lease.whole() == wanted).map(|lease| lease.lock).collect()
            }
        };
        if found.is_empty() { Err(nothing_held(which)) } else { Ok(found) }
    }

    /// The requests meant that stand in line still, with their owners. A wait has no token, so its owner is
    /// known by name.
    pub(super) fn find_waiting(&self, which: &Which) -> Vec<(OwnerId, LockId)> {
        let (name, lock, wanted) = match which {
            Which::Lock { lock, owner: Some(owner), .. } => (owner, Some(*lock), None),
            Which::Lock { owner: None, .. } => return Vec::new(),
            Which::Like { owner, resources } => (owner, None, Some(merged(resources))),
            Which::All { owner, .. } => (owner, None, None),
        };
        let Some(owner) = self.leases.owners.get(&**name).copied() else { return Vec::new() };
        let is_meant = |view: &LockView| {
            let Some(asked) = self.leases.asked.get(&view.id) else { return false };
            let whole = asked.whole.as_ref().unwrap_or(&view.resources);
            lock.is_none_or(|lock| view.id == lock) && wanted.as_ref().is_none_or(|wanted| whole == wanted)
        };
        self.table.owned(owner).filter(is_meant).map(|view| (owner, view.id)).collect()
    }

    /// Ends a lock of whoever it is, and hands it over.
    pub(super) fn end(&mut self, shared: &Shared, lock: LockId, now: Timestamp) {
        let mut effects = std::mem::take(&mut self.effects);
        tracing::debug!(namespace = %self.name, lock = lock.0, "a lease is released");
        if let Ok(ended) = self.table.revoke(lock, now, &mut effects) {
            ended.held_ms.into_iter().for_each(|held| shared.metrics.hold_time.observe(held));
        }
        self.lease_gone(lock);
        self.deliver(effects, now, shared);
    }
}

/// As the table has them, so that they can be compared.
pub(crate) fn merged(resources: &[Resource]) -> Vec<Resource> {
    let mut merged = resources.to_vec();
    merge(&mut merged);
    merged
}

fn foreign(lease: &Lease) -> Trouble {
    let message = format!(
        "lock {} belongs to {:?} under another token; only its owner can do this, or an operator by ending it",
        lease.lock, lease.owner
    );
    Trouble::new(Code::LockLost, message)
}
