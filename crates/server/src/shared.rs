//! What a shard that is served here shares with its interfaces and its cluster, beyond its kernel. Knows nothing of protocols.

use crate::{
    cluster::Cluster,
    clustered::{Membership, lost},
    config::Config,
    front::Front,
    memory::Account,
};
use lockwood_model::Timestamp;
use lockwood_node::{kernel::Kernel, metrics::Gauges, trouble::Trouble};
use lockwood_wire::{Code, Interface};
use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A kernel with what interfaces and the cluster need besides.
pub(crate) struct Shared {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) config: Config,
    /// Where each interface listens, the native one first.
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) started_at: Timestamp,
    /// Its part in a cluster over PostgreSQL; none if everything is here.
    pub(crate) membership: Option<Arc<Membership>>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) memory: Arc<Account>,
    pub(crate) front: Arc<Front>,
    /// How many backups are being taken.
    pub(crate) backups: AtomicU64,
}

impl Deref for Shared {
    type Target = Arc<Kernel>;

    fn deref(&self) -> &Arc<Kernel> {
        &self.kernel
    }
}

impl Shared {
    /// A refusal as the client of a session is told of it. The log of a node fails when another node owns the shard, or is
    /// about to; no disk did.
    pub(crate) fn told(&self, trouble: Trouble) -> Trouble {
        match &self.membership {
            Some(membership) if trouble.code == Code::StorageFailed => lost(membership.shard),
            _ => trouble,
        }
    }

    /// What there is at this moment, with what the process has.
    pub(crate) fn gauges(&self) -> Gauges {
        Gauges {
            connections: self.front.connections.load(Ordering::Relaxed),
            held_bytes: self.memory.held(),
            held_refusals: self.memory.refusals(),
            ..self.kernel.gauges()
        }
    }
}
