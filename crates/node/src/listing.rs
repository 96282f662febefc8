//! What this server shows of the locks it has: pages of them, one of them, the tree, who waits for whom. Knows
//! nothing of protocols, nor of what other servers have.

use crate::{kernel::Kernel, lease, namespace::State, trouble::Trouble, view::lock_state};
use lockwood_locks::LockView;
use lockwood_model::{LockId, Path};
use lockwood_wire::{LockInfo, LockList, LockState, Tree, WaitGraph};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Which locks are to be shown.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Selection {
    /// The session a lock belongs to, the name of that session, or the owner of a lease.
    pub owner: Option<String>,
    /// As text: only locks with a resource at or below this path.
    pub path: Option<String>,
    /// Only locks in this state.
    pub state: Option<LockState>,
    /// Only locks after this one.
    pub after: Option<u64>,
    /// How many locks are shown at most.
    pub len_max: usize,
}

/// A page of locks.
pub async fn page(kernel: &Kernel, name: &str, wanted: &Selection) -> Result<LockList, Trouble> {
    let path = wanted.path.as_deref().map(read_path).transpose()?;
    let Some(namespace) = kernel.registry.get(name) else {
        return Ok(LockList { locks: Vec::new(), next: None });
    };
    let is_wanted = |state: &State, view: &LockView| {
        let at_path = |path: &Path| view.resources.iter().any(|held| path.is_prefix_of(&held.path));
        owned_by(state, view, wanted.owner.as_deref())
            && path.as_ref().is_none_or(at_path)
            && wanted.state.is_none_or(|wanted| lock_state(view) == wanted)
    };
    let (locks, next) = namespace.list(kernel, wanted.after, wanted.len_max, is_wanted);
    // If the disk failed, whoever wants to know what is going on shall see it all the same.
    let _ = lease::settled(kernel, name).await;
    Ok(LockList { locks, next })
}

fn owned_by(state: &State, view: &LockView, owner: Option<&str>) -> bool {
    let Some(owner) = owner else { return true };
    if state.leases.describe(view.owner) == Some(owner) {
        return true;
    }
    let opening = state.sessions.get(&view.owner).map(|session| &session.opening);
    opening.is_some_and(|opening| opening.id == owner || opening.name.as_deref() == Some(owner))
}

/// One lock, if there is such a one; while it stands in line it is waited for as long as `patience` says.
pub async fn one(
    kernel: &Kernel,
    name: &str,
    lock: u64,
    patience: Option<Duration>,
) -> Result<Option<LockInfo>, Trouble> {
    let Some(namespace) = kernel.registry.get(name) else { return Ok(None) };
    if let Some(patience) = patience {
        lease::poll(kernel, name, LockId(lock), patience).await?;
    }
    let info = namespace.lock_info(kernel, lock);
    lease::settled(kernel, name).await?;
    Ok(info)
}

/// The nodes with locks on them at and below a path.
pub fn tree(kernel: &Kernel, name: &str, path: &Path) -> Tree {
    let namespace = kernel.registry.get(name);
    namespace.map_or(Tree { nodes: Vec::new(), truncated: false }, |namespace| namespace.tree(path))
}

/// Who waits for whom.
pub fn waits(kernel: &Kernel, name: &str) -> WaitGraph {
    let none = WaitGraph { edges: Vec::new(), truncated: false };
    kernel.registry.get(name).map_or(none, |namespace| namespace.wait_graph())
}

/// A path as it is written in addresses.
pub fn read_path(text: &str) -> Result<Path, Trouble> {
    text.parse().map_err(|error: lockwood_model::PathError| {
        Trouble::new(lockwood_wire::Code::BadPath, error.to_string())
    })
}
