//! Leases for interfaces whose documents stand for them. Knows nothing of those interfaces.

use super::{
    LeaseRequest, Which,
    take::{check_note, check_ttl},
    which::on_leases,
};
use crate::{kernel::Kernel, namespace::State, trouble::Trouble, view};
use lockwood_model::{Json, Lease, LeaseVia, LockId, Path, Timestamp};
use lockwood_storage::Entry;
use std::sync::Arc;

/// Writes something else on a lease that is still as it was at `version`, and sets its end anew; gives it as it
/// is then.
pub async fn rewrite(
    kernel: &Arc<Kernel>,
    name: &str,
    (lock, version): (LockId, u64),
    note: Json,
    ttl_ms: Option<u64>,
) -> Result<Option<Lease>, Trouble> {
    check_note(kernel, Some(&note))?;
    check_ttl(kernel, ttl_ms)?;
    let which = Which::Lock { lock, token: None, owner: None };
    let (lease, after) = on_leases(kernel, name, &which, |state, now, _| {
        let expires_at = ttl_ms.map(|ttl_ms| now.after(ttl_ms));
        let lease = state.leases.held.get_mut(&lock).filter(|lease| lease.version == version)?;
        lease.note = Some(note);
        lease.version += 1;
        (lease.expires_at, lease.ttl_ms) = (expires_at, ttl_ms);
        let lease = lease.clone();
        let owner = state.table.owner_of(lock).expect("a lease is in the table");
        let renewed = state.table.renew(owner, lock, expires_at);
        debug_assert!(renewed.is_ok(), "a lease that is held can be renewed");
        state.record(kernel, &Entry::Leased { namespace: (&*state.name).into(), lease: lease.clone() });
        Some(lease)
    })?;
    kernel.shard.shown(after).await?;
    Ok(lease)
}

/// Somebody who has a lock in the namespace that no document of the Elasticsearch facade stands for.
pub fn others_in(kernel: &Kernel, name: &str) -> Option<Trouble> {
    let namespace = kernel.registry.get(name)?;
    let state = namespace.lock();
    let is_other = |lock: LockId| state.leases.via(lock) != Some(LeaseVia::Elasticsearch);
    let other = state.table.views(None).find(|view| view.token.is_some() && is_other(view.id))?;
    Some(view::busy(&state, &[other.id], None, kernel.clock.now()))
}

/// The lease that stands for the document at this path, if its time is not over.
pub fn at_path(kernel: &Kernel, namespace: &str, path: &Path) -> Option<Lease> {
    let namespace = kernel.registry.get(namespace)?;
    let mut state = namespace.lock();
    state.postpone_ends(kernel);
    let now = kernel.clock.now();
    let lease = state.leases.get(*state.leases.by_path.get(path)?)?;
    lease.is_alive(now).then(|| lease.clone())
}

/// The leases that stand for documents below this path, in the order they were granted.
pub fn below_path(kernel: &Kernel, namespace: &str, path: &Path) -> Vec<Lease> {
    let Some(namespace) = kernel.registry.get(namespace) else { return Vec::new() };
    let mut state = namespace.lock();
    state.postpone_ends(kernel);
    let now = kernel.clock.now();
    let is_meant = |lease: &&Lease| {
        lease.via == LeaseVia::Elasticsearch
            && lease.is_alive(now)
            && lease.resources.iter().any(|resource| path.is_prefix_of(&resource.path))
    };
    state.leases.held.values().filter(is_meant).cloned().collect()
}

/// Waits until everything that could be seen of the leases of a namespace is durable.
pub async fn settle(kernel: &Kernel, name: &str) -> Result<(), Trouble> {
    let Some(namespace) = kernel.registry.get(name) else { return Ok(()) };
    let after = namespace.lock().written;
    Ok(kernel.shard.shown(after).await?)
}

/// Ends a lease that is still as it was at `version`; gives it as it was.
pub async fn release_unchanged(
    kernel: &Arc<Kernel>,
    name: &str,
    lock: LockId,
    version: u64,
) -> Result<Option<Lease>, Trouble> {
    let which = Which::Lock { lock, token: None, owner: None };
    let (ended, after) = on_leases(kernel, name, &which, |state, now, _| {
        let lease = state.leases.get(lock).filter(|lease| lease.version == version).cloned()?;
        state.end(kernel, lock, now);
        Some(lease)
    })?;
    kernel.shard.shown(after).await?;
    Ok(ended)
}

impl State {
    /// The lease that stands for the document which a request would make, whoever has it.
    pub(super) fn document_there(&self, request: &LeaseRequest, now: Timestamp) -> Option<&Lease> {
        let [only] = &request.resources[..] else { return None };
        let lock = self.leases.by_path.get(&only.path).filter(|_| request.via == LeaseVia::Elasticsearch)?;
        self.leases.get(*lock).filter(|lease| lease.expires_at.is_none_or(|at| at > now))
    }
}
