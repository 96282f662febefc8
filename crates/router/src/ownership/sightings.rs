//! For how long the rows of owned shards have not been renewed, by this node's own clock. Knows nothing of the database's
//! clock, which may step: a virtual machine is resumed, a failover leads to a machine whose clock is ahead.

use super::Monotonic;
use crate::{
    RenewalMark, ShardEpoch, ShardNo, View,
    planted::{Fault, is_planted},
};
use std::collections::BTreeMap;

/// What the row of each owned shard said last, and when this node first saw it say so.
///
/// *Invariant:* a row whose observed age is `n` has been in the database, as it is, for at least `n` milliseconds: it was
/// read before the answer arrived from which its age counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Sightings(BTreeMap<ShardNo, Sighting>);

#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
struct Sighting {
    epoch: ShardEpoch,
    renewed: RenewalMark,
    since: Monotonic,
}

impl Sightings {
    /// Gives the rows of owned shards the age that this node has observed, in the place of that by the database's clock.
    pub(super) fn observe(&mut self, view: &mut View, received: Monotonic) {
        if is_planted(Fault::DatabaseClock) {
            return;
        }
        self.0.retain(|shard, _| view.shard(*shard).is_some_and(|row| row.owner.is_some()));
        for row in view.shards.iter_mut().filter(|row| row.owner.is_some()) {
            let fresh = Sighting { epoch: row.epoch, renewed: row.renewed, since: received };
            let seen = self.0.entry(row.shard).or_insert(fresh);
            if (seen.epoch, seen.renewed) != (fresh.epoch, fresh.renewed) {
                *seen = fresh;
            }
            row.age_ms = received.since(seen.since);
        }
    }
}
