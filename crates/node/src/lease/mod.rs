//! Leases: locks with a named owner, on record, so that they outlive connections and restarts. They are in
//! the same table as everybody else's locks. Knows nothing of protocols.

mod documents;
mod take;
mod which;

use crate::{kernel::Kernel, namespace::State, shard::Follow, trouble::Trouble};
use lockwood_locks::Recorded;
use lockwood_model::{Json, Lease, LeaseVia, LockId, OwnerId, Path};
use lockwood_storage::{Entry, StoreError};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

pub use documents::{at_path, below_path, others_in, release_unchanged, rewrite, settle};
pub(crate) use take::queue_full;
pub use take::{LeaseRequest, Taken, poll, take, take_and_poll};
pub use which::{Which, lost, release, renew};

/// How a wait for a lock outside of a session ended.
#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    /// It is held. Not to be told before the record `after` is durable.
    Granted { after: u64 },
    /// It is gone.
    Refused(Box<Trouble>),
}

/// The leases of one namespace. A part of its state.
#[derive(Default)]
pub(crate) struct Leases {
    owners: HashMap<Box<str>, OwnerId>,
    names: HashMap<OwnerId, Box<str>>,
    held: BTreeMap<LockId, Lease>,
    /// What is wanted by those that are not granted yet.
    asked: HashMap<LockId, Asked>,
    /// Lock documents by the path they stand for.
    by_path: HashMap<Path, LockId>,
    /// Over, but not on record yet.
    ended: Vec<LockId>,
}

struct Asked {
    owner: Box<str>,
    via: LeaseVia,
    note: Option<Json>,
    ttl_ms: Option<u64>,
    /// Whether it is wanted although nobody waits for the answer.
    stays: bool,
}

impl Leases {
    pub(crate) fn held_len(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn get(&self, lock: LockId) -> Option<&Lease> {
        self.held.get(&lock)
    }

    /// The owner's name and how its lock came to be, if the lock is a lease or is to become one.
    pub(crate) fn describe(&self, owner: OwnerId) -> Option<&str> {
        self.names.get(&owner).map(|name| &**name)
    }

    fn via(&self, lock: LockId) -> Option<LeaseVia> {
        let held = self.held.get(&lock).map(|lease| lease.via);
        held.or_else(|| self.asked.get(&lock).map(|asked| asked.via))
    }

    pub(crate) fn via_of(&self, lock: LockId) -> &'static str {
        self.via(lock).map_or("lease", LeaseVia::as_str)
    }

    fn insert(&mut self, lease: Lease) {
        if let (LeaseVia::Elasticsearch, [only]) = (lease.via, &lease.resources[..]) {
            self.by_path.insert(only.path.clone(), lease.lock);
        }
        self.held.insert(lease.lock, lease);
    }

    /// All leases end so much later.
    pub(crate) fn postpone_ends(&mut self, by_ms: u64) {
        for lease in self.held.values_mut() {
            lease.expires_at = lease.expires_at.map(|at| at.after(by_ms));
        }
    }

    fn remove(&mut self, lock: LockId) -> Option<Lease> {
        let lease = self.held.remove(&lock)?;
        if let [only] = &lease.resources[..]
            && self.by_path.get(&only.path) == Some(&lock)
        {
            self.by_path.remove(&only.path);
        }
        Some(lease)
    }
}

// What happens to leases, whoever brings it about.
impl State {
    fn lease_owner(&mut self, kernel: &Kernel, name: &str) -> OwnerId {
        if let Some(owner) = self.leases.owners.get(name) {
            return *owner;
        }
        let owner = kernel.next_owner();
        self.leases.owners.insert(name.into(), owner);
        self.leases.names.insert(owner, name.into());
        owner
    }

    /// An owner without locks is nobody.
    pub(crate) fn forget_lockless(&mut self, owner: OwnerId) {
        if self.table.owned_len(owner) == 0
            && let Some(name) = self.leases.names.remove(&owner)
        {
            self.leases.owners.remove(&name);
        }
    }

    /// A lock was granted; if it is a lease, that goes on record.
    pub(crate) fn lease_granted(&mut self, kernel: &Kernel, lock: LockId) {
        let Some(asked) = self.leases.asked.remove(&lock) else { return };
        let view = self.table.view(lock).expect("it was just granted");
        let Asked { owner, via, note, ttl_ms, .. } = asked;
        let lease = Lease {
            lock,
            token: view.token.expect("it was just granted"),
            owner,
            via,
            resources: view.resources,
            granted_at: view.granted_at.expect("it was just granted"),
            expires_at: view.expires_at,
            ttl_ms,
            note,
            version: 1,
        };
        self.record(kernel, &Entry::Leased { namespace: (&*self.name).into(), lease: lease.clone() });
        self.leases.insert(lease);
    }

    /// A lock is gone, however that came; if it was a lease, that has to go on record before anything that
    /// comes of it. True if it was one.
    pub(crate) fn lease_gone(&mut self, lock: LockId) -> bool {
        if let Some(asked) = self.leases.asked.remove(&lock) {
            self.forget_named(&asked.owner);
        }
        let Some(lease) = self.leases.remove(lock) else { return false };
        self.leases.ended.push(lock);
        self.forget_named(&lease.owner);
        true
    }

    fn forget_named(&mut self, name: &str) {
        if let Some(owner) = self.leases.owners.get(name).copied() {
            self.forget_lockless(owner);
        }
    }

    /// Puts on record which leases are over.
    pub(crate) fn note_ended(&mut self, kernel: &Kernel) {
        if !self.leases.ended.is_empty() {
            let locks = std::mem::take(&mut self.leases.ended);
            self.record(kernel, &Entry::LeasesEnded { namespace: (&*self.name).into(), locks });
        }
    }

    fn record(&mut self, kernel: &Kernel, entry: &Entry) {
        // A lock that ended may be one that is put on record again now.
        self.note_ended(kernel);
        match kernel.shard.append(entry, self.follow) {
            Ok(index) => self.written = self.written.max(index),
            Err(error) => {
                tracing::error!(?error, "record a lease");
                // Whoever waits for this record learns that it will never be there.
                self.written = u64::MAX;
            }
        }
    }

    /// Gives a lease its full time again, on record.
    fn restart_lease(&mut self, kernel: &Kernel, lease: &mut Lease) {
        let Some(ttl_ms) = lease.ttl_ms.filter(|_| lease.expires_at.is_some()) else { return };
        lease.expires_at = Some(kernel.clock.now().after(ttl_ms));
        let (namespace, lock, expires_at) = ((&*self.name).into(), lease.lock, lease.expires_at);
        self.record(kernel, &Entry::LeaseRenewed { namespace, lock, expires_at, ttl_ms: None });
    }

    /// Puts back what was held when the server stopped.
    fn restore_leases(&mut self, kernel: &Kernel, leases: Vec<Lease>, time: LeaseTime) {
        let was_frozen = self.table.is_frozen();
        self.table.freeze();
        for mut lease in leases {
            if self.leases.get(lease.lock).is_some() {
                continue;
            }
            if time == LeaseTime::Restarts {
                self.restart_lease(kernel, &mut lease);
            }
            let recorded = Recorded {
                lock: lease.lock,
                token: lease.token,
                owner: self.lease_owner(kernel, &lease.owner),
                resources: lease.resources.clone(),
                granted_at: lease.granted_at,
                expires_at: lease.expires_at,
            };
            match self.table.restore_recorded(recorded) {
                Ok(()) => self.leases.insert(lease),
                Err(_) => tracing::error!(namespace = ?self.name, lock = lease.lock.0, owner = ?lease.owner,
                    "a lease on record is in the way of another; it is not put back"),
            }
        }
        self.note_ended(kernel);
        self.guard(kernel);
        if !was_frozen {
            self.sessions_over(kernel);
            let now = kernel.clock.now();
            let mut effects = std::mem::take(&mut self.effects);
            self.table.thaw(now, &mut effects);
            self.deliver(effects, now, kernel);
        }
    }
}

/// How the time of leases goes on when their log has another owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseTime {
    /// They end when they would have.
    Continues,
    /// Each has its full time again: while there was no owner, no holder could renew, and clocks of two nodes differ.
    Restarts,
}

/// Puts back all leases on record. To be called before anybody can ask for anything.
pub fn restore(kernel: &Arc<Kernel>, time: LeaseTime) -> Result<(), StoreError> {
    let reading = kernel.shard.read();
    let mut by_namespace: BTreeMap<Box<str>, Vec<Lease>> = BTreeMap::new();
    for (namespace, lease) in reading.state().leases()? {
        by_namespace.entry(namespace).or_default().push(lease);
    }
    // Those of a namespace whose home is elsewhere are not in force here.
    by_namespace.retain(|name, _| !kernel.is_member(name));
    for (name, leases) in by_namespace {
        restore_in(kernel, &name, leases, time);
    }
    Ok(())
}

/// The leases of a namespace as records.
pub fn export(kernel: &Kernel, name: &str) -> Result<Vec<Entry>, StoreError> {
    let leases = kernel.shard.read().state().leases()?.into_iter();
    let own = leases.filter(|(namespace, _)| **namespace == *name);
    Ok(own.map(|(namespace, lease)| Entry::Leased { namespace, lease }).collect())
}

/// Makes the leases on record of a namespace whose home is elsewhere the same as those of the home; durable when it answers. They
/// are in force when this becomes the home.
pub async fn import(kernel: &Kernel, name: &str, leases: Vec<Entry>) -> Result<(), Trouble> {
    let known = kernel.shard.read().state().leases()?.into_iter();
    let locks: Vec<LockId> =
        known.filter(|(namespace, _)| **namespace == *name).map(|(_, lease)| lease.lock).collect();
    let ended = (!locks.is_empty()).then(|| Entry::LeasesEnded { namespace: name.into(), locks });
    let mut last = 0;
    for entry in ended.into_iter().chain(leases) {
        last = kernel.shard.append(&entry, Follow::Thread)?;
    }
    Ok(kernel.shard.shown(last).await?)
}

fn restore_in(kernel: &Arc<Kernel>, name: &str, leases: Vec<Lease>, time: LeaseTime) {
    loop {
        let namespace = kernel.registry.insert(kernel, name);
        let mut state = namespace.lock();
        // Time passes for it already, and it has nothing yet: it may have been dropped as unused.
        if state.is_closed() {
            continue;
        }
        state.restore_leases(kernel, leases, time);
        namespace.rearm(state);
        return;
    }
}

/// Waits until everything is durable that a look at the namespace can have shown by now.
pub async fn settled(kernel: &Kernel, namespace: &str) -> Result<(), Trouble> {
    let Some(namespace) = kernel.registry.get(namespace) else { return Ok(()) };
    let after = namespace.lock().written;
    Ok(kernel.shard.shown(after).await?)
}

/// A lease that is held.
pub fn get(kernel: &Kernel, namespace: &str, lock: LockId) -> Option<Lease> {
    kernel.registry.get(namespace)?.lock().leases.get(lock).cloned()
}
