//! Leases that are there already: renewed, released, found by whoever may. Knows nothing of how they came to be.

use super::{Lease, Verdict, take::check_ttl};
use crate::{guards::lifted, kernel::Kernel, namespace::State, shard::Follow, trouble::Trouble};
use lockwood_locks::{LockView, merge};
use lockwood_model::{LockId, OwnerId, Resource, Timestamp};
use lockwood_storage::Entry;
use lockwood_wire::Code;
use std::sync::Arc;

/// Which of an owner's leases are meant.
#[derive(Debug, Clone)]
pub enum Which {
    /// This one, which must have this token, and belong to this owner, as far as they are given.
    Lock {
        /// Its id.
        lock: LockId,
        /// The token it must have.
        token: Option<u64>,
        /// The owner it must belong to.
        owner: Option<String>,
    },
    /// Those of this owner that have exactly these resources.
    Like {
        /// The name of the owner.
        owner: String,
        /// What the lease covers.
        resources: Vec<Resource>,
    },
    /// All of this owner.
    All {
        /// The name of the owner.
        owner: String,
    },
}

impl Which {
    /// Whether requests that stand in line can be meant: they have no token yet.
    fn may_wait(&self) -> bool {
        !matches!(self, Which::Lock { token: Some(_), .. } | Which::Lock { owner: None, .. })
    }
}

/// That a lock has ended, and what to do about it.
pub fn lost(lock: LockId) -> Trouble {
    let message = format!(
        "lock {lock} is over: it ran out, was released, or was ended by an operator; what it guarded may have \
         changed, so take it anew and read again"
    );
    Trouble::new(Code::LockLost, message)
}

/// Changes when leases end; gives them as they are then.
pub async fn renew(
    kernel: &Arc<Kernel>,
    name: &str,
    which: &Which,
    ttl_ms: u64,
) -> Result<Vec<Lease>, Trouble> {
    check_ttl(kernel, Some(ttl_ms))?;
    let (leases, after) = on_leases(kernel, name, which, |state, _, found| {
        let until = kernel.clock.now().after(ttl_ms);
        for lock in &found {
            let owner = state.table.owner_of(*lock).expect("a lease is in the table");
            let renewed = state.table.renew(owner, *lock, Some(until));
            debug_assert!(renewed.is_ok(), "a lease that is held can be renewed");
            if let Some(lease) = state.leases.held.get_mut(lock) {
                (lease.expires_at, lease.ttl_ms) = (Some(until), Some(ttl_ms));
            }
            let namespace = (&*state.name).into();
            let (lock, expires_at) = (*lock, Some(until));
            state.record(kernel, &Entry::LeaseRenewed { namespace, lock, expires_at, ttl_ms: Some(ttl_ms) });
        }
        found.iter().filter_map(|lock| state.leases.get(*lock).cloned()).collect::<Vec<_>>()
    })?;
    kernel.shard.shown(after).await?;
    Ok(leases)
}

/// Ends leases; gives them as they were. Those of them that stand in line leave it.
pub async fn release(kernel: &Arc<Kernel>, name: &str, which: &Which) -> Result<Vec<Lease>, Trouble> {
    let waited = which.may_wait() && leave_line(kernel, name, which);
    if waited && is_nothing_held(kernel, name, which) {
        return Ok(Vec::new());
    }
    let released = on_leases(kernel, name, which, |state, now, found| {
        let ended = found.iter().filter_map(|lock| state.leases.get(*lock).cloned()).collect::<Vec<_>>();
        for lock in found {
            state.end(kernel, lock, now);
        }
        ended
    });
    let (leases, after) = match released {
        Ok(released) => released,
        Err(trouble) => {
            // That it is over may have come about just now.
            kernel.shard.shown(kernel.shard.last_index()).await?;
            return Err(trouble);
        }
    };
    kernel.shard.shown(after).await?;
    lifted(kernel, name, leases.iter().flat_map(|lease| &lease.resources)).await?;
    Ok(leases)
}

/// Ends the waits of an owner that says who it is; true if there were any.
fn leave_line(kernel: &Arc<Kernel>, name: &str, which: &Which) -> bool {
    let Some(namespace) = kernel.registry.get(name) else { return false };
    let mut state = namespace.lock();
    let waiting = state.find_waiting(which);
    for (owner, lock) in &waiting {
        let trouble = Trouble::new(Code::LockLost, "its owner ended the wait for this lock");
        state.tell_waiters(*lock, &Verdict::Refused(Box::new(trouble)));
        state.give_back(kernel, *owner, *lock);
    }
    namespace.rearm(state);
    kernel.registry.drop_if_unused(kernel, &namespace);
    !waiting.is_empty()
}

fn is_nothing_held(kernel: &Arc<Kernel>, name: &str, which: &Which) -> bool {
    let now = kernel.clock.now();
    kernel.registry.get(name).is_none_or(|namespace| namespace.lock().find_leases(which, now).is_err())
}

/// Does something with leases that are held; gives what came of it, and the record that has to be durable
/// before it is told.
pub(super) fn on_leases<T>(
    kernel: &Arc<Kernel>,
    name: &str,
    which: &Which,
    act: impl FnOnce(&mut State, Timestamp, Vec<LockId>) -> T,
) -> Result<(T, u64), Trouble> {
    let Some(namespace) = kernel.registry.get(name) else { return Err(nothing_held(which)) };
    let mut state = namespace.lock();
    let now = kernel.clock.now();
    state.expire(kernel, now);
    let found = state.find_leases(which, now)?;
    state.follow = Follow::Caller;
    let done = act(&mut state, now, found);
    state.follow = Follow::Thread;
    let after = state.written;
    state.linger(kernel);
    namespace.rearm(state);
    Ok((done, after))
}

fn nothing_held(which: &Which) -> Trouble {
    match which {
        Which::Lock { lock, .. } => lost(*lock),
        Which::Like { owner, .. } => {
            let message =
                format!("{owner:?} has no lease with exactly these resources; list its locks to see");
            Trouble::new(Code::LockLost, message)
        }
        Which::All { owner } => Trouble::new(
            Code::LockLost,
            format!("{owner:?} has no lease; what it had has run out or was released"),
        ),
    }
}

impl State {
    /// The leases meant, if there is at least one and its time is not over.
    fn find_leases(&self, which: &Which, now: Timestamp) -> Result<Vec<LockId>, Trouble> {
        let is_meant = |lease: &&Lease| lease.is_alive(now);
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
            Which::All { owner } => of(owner).map(|lease| lease.lock).collect(),
            Which::Like { owner, resources } => {
                let wanted = merged(resources);
                of(owner).filter(|lease| lease.resources == wanted).map(|lease| lease.lock).collect()
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
            Which::All { owner } => (owner, None, None),
        };
        let Some(owner) = self.leases.owners.get(&**name).copied() else { return Vec::new() };
        let is_meant = |view: &LockView| {
            self.leases.asked.contains_key(&view.id)
                && lock.is_none_or(|lock| view.id == lock)
                && wanted.as_ref().is_none_or(|wanted| view.resources == *wanted)
        };
        self.table.owned(owner).filter(is_meant).map(|view| (owner, view.id)).collect()
    }

    /// Ends a lock of whoever it is, and hands it over.
    pub(super) fn end(&mut self, kernel: &Kernel, lock: LockId, now: Timestamp) {
        let mut effects = std::mem::take(&mut self.effects);
        tracing::debug!(namespace = %self.name, lock = lock.0, "a lease is released");
        if let Ok(ended) = self.table.revoke(lock, now, &mut effects) {
            ended.held_ms.into_iter().for_each(|held| kernel.metrics.hold_time.observe(held));
        }
        self.lease_gone(lock);
        self.deliver(effects, now, kernel);
    }
}

/// As the table has them, so that they can be compared.
fn merged(resources: &[Resource]) -> Vec<Resource> {
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
