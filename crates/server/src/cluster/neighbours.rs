//! The territory of a tenure: what its kernel asks about the other shards, answered by the homes on record, the map in force
//! and the members of the cluster. Knows nothing of what operations do.

use super::{Cluster, Current, no_map, pull};
use crate::{
    clustered::{Membership, admit},
    shared::Shared,
};
use futures_util::future::BoxFuture;
use lockwood_model::{DocumentKey, NodeAddress, Resource};
use lockwood_node::{
    gate::Terms,
    territory::{Admittance, Admitted, Passage, Placement, Territory, Use},
    trouble::Trouble,
};
use lockwood_router::{
    Epoch, Route, ShardNo,
    guards::{Covered, Home, HomeMessage, MapEpoch, MemberMessage},
};
use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock, Weak},
};

/// The other shards, for the kernel of one tenure.
pub(crate) struct Neighbours {
    membership: Arc<Membership>,
    cluster: Arc<Cluster>,
    /// Set before anything is asked that needs it. It has this, so this does not keep it.
    shared: OnceLock<Weak<Shared>>,
}

impl Neighbours {
    /// Those of a cluster, if the shard is one of several.
    pub(crate) fn of(cluster: &Arc<Cluster>) -> Option<Arc<Neighbours>> {
        let membership = Arc::clone(cluster.membership()?);
        Some(Arc::new(Neighbours { membership, cluster: Arc::clone(cluster), shared: OnceLock::new() }))
    }

    /// The tenure is about to begin.
    pub(crate) fn serve(&self, shared: &Arc<Shared>) {
        let is_first = self.shared.set(Arc::downgrade(shared)).is_ok();
        assert!(is_first, "a kernel has one tenure");
    }

    fn shared(&self) -> Result<Arc<Shared>, Trouble> {
        self.shared.get().and_then(Weak::upgrade).ok_or_else(Trouble::draining)
    }
}

impl Territory for Neighbours {
    fn remembered(&self, namespace: &str) -> Option<Placement> {
        let placed = self.membership.node.homes.remembered(namespace)?;
        self.membership.placement(placed)
    }

    fn find<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Option<Placement>, Trouble>> {
        Box::pin(async move {
            let found = self.membership.node.homes.find(namespace).await?;
            let comes = || comes_here(self.membership.shard);
            found.map(|placed| self.membership.placement(placed).ok_or_else(comes)).transpose()
        })
    }

    fn check_home<'a>(&'a self, namespace: &'a str, wanted: Use) -> BoxFuture<'a, Result<(), Trouble>> {
        Box::pin(self.membership.node.homes.check(namespace, self.membership.shard, wanted))
    }

    fn admit_keys<'a>(
        &'a self,
        namespace: &'a str,
        keys: &'a [&'a DocumentKey],
    ) -> BoxFuture<'a, Result<Admitted, Trouble>> {
        Box::pin(async move {
            let current = self.cluster.current().ok_or_else(no_map)?;
            pull::ensure_known(&self.shared()?, &current, namespace, keys).await?;
            Ok(Admitted::under(current.map.epoch))
        })
    }

    fn pass(&self, epoch: Epoch) -> Option<Passage<'_>> {
        self.cluster.pass(epoch)
    }

    fn admit_operation<'a>(
        &'a self,
        (namespace, home): (&'a str, ShardNo),
        resources: &'a [Resource],
        terms: &'a Terms,
    ) -> BoxFuture<'a, Result<Admittance, Trouble>> {
        Box::pin(async move {
            admit(&self.shared()?, &self.membership, (namespace, home), resources, terms).await
        })
    }

    fn take_over(&self, namespace: &str) -> Home {
        self.membership.take_over(namespace, MapEpoch(self.cluster.epoch()))
    }

    fn covered(&self, resources: &[Resource]) -> Covered {
        covered(self.cluster.current().as_deref(), resources)
    }

    fn send(&self, namespace: &Arc<str>, message: HomeMessage) {
        self.membership.send_to_member(namespace, message);
    }

    fn hear<'a>(&'a self, namespace: &'a str, shard: ShardNo) -> BoxFuture<'a, Option<MemberMessage>> {
        Box::pin(self.membership.ask_to_hear(namespace, shard))
    }

    fn arrived<'a>(&'a self, namespace: &'a Arc<str>, resources: &'a [Resource]) -> BoxFuture<'a, ()> {
        let covered = self.covered(resources);
        let shards = self.membership.node.shards().into_iter();
        let others = shards.filter(move |shard| *shard != self.membership.shard && covered.contains(*shard));
        Box::pin(self.membership.arrived(namespace, others))
    }
}

/// Why a shard does not speak of a namespace whose home has come to it.
fn comes_here(shard: ShardNo) -> Trouble {
    let message = format!("the home of this namespace comes to shard {} at this moment; try again", shard.0);
    Trouble::unreachable(shard, message)
}

/// The shards that may store something that resources cover: by both functions while keys move.
pub(super) fn covered(current: Option<&Current>, resources: &[Resource]) -> Covered {
    let Some(current) = current else { return Covered::All };
    let mut shards = BTreeSet::new();
    for resource in resources {
        let Ok(address) = NodeAddress::of(&resource.path) else { return Covered::All };
        // Every shard has those.
        if address.document.collection.starts_with('_') {
            return Covered::All;
        }
        match current.route(&address.document) {
            Ok(Route::Owner(owner)) => drop(shards.insert(owner)),
            Ok(Route::Pulled { owner, donor, .. }) => shards.extend([owner, donor]),
            Ok(Route::Moving { .. }) | Err(_) => return Covered::All,
        }
    }
    Covered::Shards(shards)
}
