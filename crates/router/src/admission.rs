//! Operations at a shard that the home of their namespace admits: how a home that was replaced admits nothing more, and how
//! its successor learns that nothing it had admitted is still under way. Knows nothing of locks, requests or time.
//!
//! ```text
//!  writer ─► shard ──may I?──► home: takes the operation's lock ──yes, epoch 7──► shard: [`Barrier::enter`] ─► append ─► leave
//!                                                                                      ▲
//!  next home, epoch 8 ──[`Takeover`]──► every shard: [`Barrier::raise`], done when what entered earlier has left
//! ```
//!
//! A home grants and admits when its [`Takeover`] is complete. Then every operation of an earlier home has left its shard, or
//! is rejected there: by the barrier, or, if the shard has a new owner, by the epoch of its log. What the caller has to guarantee:
//!
//! - An operation leaves after it is durable or rejected, and appends are guarded by the shard's epoch.
//! - A home answers "yes" only while its ownership is fresh, and keeps the operation's lock until the shard has told it that
//!   the operation left, or PostgreSQL names another owner of the shard.
//! - A home admits an operation for one owner of the shard, and a takeover is made with owners that were read from PostgreSQL
//!   *after* the claim of the home. So the barrier of a new owner can begin empty: what an earlier home admitted was for an
//!   earlier owner.

use crate::{ShardEpoch, ShardNo, ShardRow};
use std::collections::BTreeMap;

/// What one owner of a shard knows of the homes that admit operations there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Barrier {
    homes: BTreeMap<ShardNo, Admitted>,
}

/// Operations by the home that admitted them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Admitted {
    /// The lowest epoch that counts.
    epoch: ShardEpoch,
    /// Operations under way, by the epoch that admitted them; no entry is 0.
    running: BTreeMap<ShardEpoch, u64>,
}

/// The home was replaced by one with this epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the home of the namespace has epoch {} by now", .epoch.0)]
pub struct Replaced {
    /// Of the latest home known.
    pub epoch: ShardEpoch,
}

/// Whether operations of earlier homes are under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Earlier {
    /// They are; ask again when one has left.
    Running,
    /// They are not, and none will begin.
    Over,
}

impl Barrier {
    /// An operation that a home has admitted begins.
    pub fn enter(&mut self, home: ShardNo, epoch: ShardEpoch) -> Result<(), Replaced> {
        let admitted = self.known(home, epoch)?;
        *admitted.running.entry(epoch).or_default() += 1;
        Ok(())
    }

    /// An operation that entered is durable or rejected.
    pub fn leave(&mut self, home: ShardNo, epoch: ShardEpoch) {
        let Some(admitted) = self.homes.get_mut(&home) else { return };
        let Some(running) = admitted.running.get_mut(&epoch) else { return };
        *running -= 1;
        if *running == 0 {
            admitted.running.remove(&epoch);
        }
    }

    /// A home with this epoch takes over: no operation of an earlier one enters any more.
    pub fn raise(&mut self, home: ShardNo, epoch: ShardEpoch) -> Result<Earlier, Replaced> {
        let admitted = self.known(home, epoch)?;
        match admitted.running.range(..epoch).next() {
            Some(_) if !is_planted(Fault::RaiseAtOnce) => Ok(Earlier::Running),
            _ => Ok(Earlier::Over),
        }
    }

    /// A home that is not an earlier one than those known.
    fn known(&mut self, home: ShardNo, epoch: ShardEpoch) -> Result<&mut Admitted, Replaced> {
        let admitted = self.homes.entry(home).or_default();
        if epoch < admitted.epoch && !is_planted(Fault::EnterAnyway) {
            return Err(Replaced { epoch: admitted.epoch });
        }
        admitted.epoch = admitted.epoch.max(epoch);
        Ok(admitted)
    }
}

/// The shards that a new home has not heard from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Takeover {
    owners: BTreeMap<ShardNo, ShardEpoch>,
}

impl Takeover {
    /// By the rows that the owner of the home read after its claim. A shard without an owner is not waited for: its next
    /// one knows of this home.
    pub fn new(home: ShardNo, rows: &[ShardRow]) -> Takeover {
        let others = rows.iter().filter(|row| row.shard != home && row.owner.is_some());
        Takeover { owners: others.map(|row| (row.shard, row.epoch)).collect() }
    }

    /// The shards to be told, with their owners' epochs.
    pub fn pending(&self) -> impl Iterator<Item = (ShardNo, ShardEpoch)> + '_ {
        self.owners.iter().map(|(shard, epoch)| (*shard, *epoch))
    }

    /// The owner of a shard with this epoch says that operations of earlier homes are [`Earlier::Over`].
    pub fn confirmed(&mut self, shard: ShardNo, epoch: ShardEpoch) {
        if self.owners.get(&shard).is_some_and(|known| *known <= epoch) {
            self.owners.remove(&shard);
        }
    }

    /// PostgreSQL names the epoch of a shard. A later owner than the one that was waited for knows of this home.
    pub fn observed(&mut self, shard: ShardNo, epoch: ShardEpoch) {
        if self.owners.get(&shard).is_some_and(|known| *known < epoch) {
            self.owners.remove(&shard);
        }
    }

    /// Whether the home may admit and grant.
    pub fn is_complete(&self) -> bool {
        self.owners.is_empty() || is_planted(Fault::AdmitAtOnce)
    }
}

/// Something that is left out, to show that the exploration notices it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A shard does not wait for the operations that entered.
    RaiseAtOnce,
    /// A shard lets operations of replaced homes enter.
    EnterAnyway,
    /// A home admits and grants before it has heard from all shards.
    AdmitAtOnce,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

#[cfg(test)]
fn is_planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

#[cfg(not(test))]
#[inline]
fn is_planted(_: Fault) -> bool {
    false
}
