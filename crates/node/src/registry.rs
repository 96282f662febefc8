//! The namespaces in use: made when first needed, dropped when unused. Knows nothing of what is in them.

use crate::{
    guards::{HomeGuards, hear_all},
    kernel::Kernel,
    namespace::{Namespace, keep_time},
    secret::random,
    trouble::Trouble,
};
use lockwood_locks::LockTable;
use lockwood_wire::Code;
use parking_lot::RwLock;
use std::{collections::BTreeMap, sync::Arc};

/// Locked before any namespace, never after one.
#[derive(Default)]
pub struct Registry {
    namespaces: RwLock<BTreeMap<Arc<str>, Arc<Namespace>>>,
}

impl Registry {
    /// The namespace of this name, if it is in use.
    pub fn get(&self, name: &str) -> Option<Arc<Namespace>> {
        self.namespaces.read().get(name).cloned()
    }

    /// The namespace of this name, made if need be.
    pub fn ensure(&self, kernel: &Arc<Kernel>, name: &str) -> Result<Arc<Namespace>, Trouble> {
        self.ensure_within(kernel, name, kernel.config.limits.namespaces_max)
    }

    /// The same for a member of a namespace whose home is here, however many there are: the limit is for clients, and the
    /// member has let some in already.
    pub fn ensure_home(&self, kernel: &Arc<Kernel>, name: &str) -> Result<Arc<Namespace>, Trouble> {
        self.ensure_within(kernel, name, u64::MAX)
    }

    fn ensure_within(&self, kernel: &Arc<Kernel>, name: &str, limit: u64) -> Result<Arc<Namespace>, Trouble> {
        if let Some(namespace) = self.get(name).filter(|namespace| fits(kernel, namespace)) {
            return Ok(namespace);
        }
        let mut namespaces = self.namespaces.write();
        if let Some(namespace) = namespaces.get(name).cloned() {
            if fits(kernel, &namespace) {
                return Ok(namespace);
            }
            let Some(next) = namespace.close_if_unused() else { return Err(just_placed(name)) };
            kernel.numbers.retire(next);
            namespaces.remove(name);
        }
        if namespaces.len() as u64 >= limit {
            return Err(Trouble::too_many("namespaces_max", limit, "there are too many namespaces in use"));
        }
        let made = make(kernel, &mut namespaces, name);
        // It has no leases: those were put back before anything was asked for.
        made.begin(kernel);
        Ok(made)
    }

    /// The namespace of this name for what was there before a restart, however many there are.
    pub fn insert(&self, kernel: &Arc<Kernel>, name: &str) -> Arc<Namespace> {
        let mut namespaces = self.namespaces.write();
        match namespaces.get(name) {
            Some(namespace) => Arc::clone(namespace),
            None => make(kernel, &mut namespaces, name),
        }
    }

    /// Does something while nobody can begin to use a namespace that is not in use; none if it is.
    pub(crate) fn while_unused<T>(&self, name: &str, work: impl FnOnce() -> T) -> Option<T> {
        let namespaces = self.namespaces.read();
        (!namespaces.contains_key(name)).then(work)
    }

    /// Must not be called with the namespace locked.
    pub(crate) fn drop_if_unused(&self, kernel: &Kernel, namespace: &Namespace) {
        // Most of the time it is in use; then the registry need not stop for it.
        let (sessions, held, waiting) = namespace.sizes();
        if namespace.is_guarded || sessions + held + waiting > 0 {
            return;
        }
        let mut namespaces = self.namespaces.write();
        if let Some(next) = namespace.close_if_unused() {
            kernel.numbers.retire(next);
            namespaces.remove(&namespace.name);
        }
    }

    /// Lets go of all namespaces, and ends the tasks that keep their time.
    pub fn abandon(&self) {
        let namespaces = std::mem::take(&mut *self.namespaces.write());
        namespaces.values().for_each(|namespace| namespace.abandon());
    }

    /// All namespaces in use.
    pub fn all(&self) -> Vec<Arc<Namespace>> {
        self.namespaces.read().values().cloned().collect()
    }
}

/// Whether the locks of a namespace are enforced as its documents need it. They are not if it was used before anything was in
/// it, and was placed on several shards since.
fn fits(kernel: &Kernel, namespace: &Namespace) -> bool {
    namespace.is_guarded || !kernel.is_home(&namespace.name)
}

fn just_placed(name: &str) -> Trouble {
    let message = format!("{name} was placed on several shards at this moment; try again");
    Trouble::new(Code::ShardUnreachable, message)
}

fn make(
    kernel: &Arc<Kernel>,
    namespaces: &mut BTreeMap<Arc<str>, Arc<Namespace>>,
    name: &str,
) -> Arc<Namespace> {
    let numbers = &kernel.numbers;
    let mut table = LockTable::new(numbers.first(), u64::from_be_bytes(random()));
    // Sessions come back to the home, so grace is for that alone.
    if kernel.grace.left_ms(name) > 0 && !kernel.is_member(name) {
        table.freeze();
    }
    // What was written while nobody looked must be visible before the first lock is granted.
    let cover = kernel.grace.cover_of(name);
    let guards = kernel.territory.as_ref().filter(|_| kernel.is_home(name)).map(|territory| {
        table.keep_journal();
        Box::new(HomeGuards::new(territory, name, kernel.shard.last_index()))
    });
    let namespace = Namespace::new(name.into(), table, (kernel.shard.last_index(), cover), guards);
    // Only what it has from now on is postponed.
    namespace.lock().postponed_ms = kernel.authority.stale_ms();
    let namespace = Arc::new(namespace);
    namespaces.insert(Arc::clone(&namespace.name), Arc::clone(&namespace));
    tokio::spawn(keep_time(Arc::downgrade(&namespace), Arc::clone(kernel)));
    if namespace.is_guarded {
        tokio::spawn(hear_all(Arc::clone(kernel), Arc::clone(&namespace.name)));
    }
    namespace
}
