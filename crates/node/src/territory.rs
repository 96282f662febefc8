//! What a shard asks about the other shards of its cluster: where a namespace is, which keys are this shard's, and who
//! decides about locks. A single server has no territory, and all is here. Knows nothing of how shards reach each other.

use crate::{gate::Terms, trouble::Trouble};
use futures_util::future::BoxFuture;
use lockwood_model::{DocumentKey, Resource};
use lockwood_router::{
    Epoch, ShardNo,
    guards::{Covered, Home, HomeMessage, MemberMessage},
};
use lockwood_wire::Code;
use parking_lot::MappedRwLockReadGuard;
use std::sync::Arc;

/// The namespace that every shard keeps for itself.
pub const SYSTEM: &str = "_system";

/// The other shards, as one tenure of a shard sees them. The cluster implements it.
pub trait Territory: Send + Sync {
    /// Where a namespace is, if that was asked before. It does not change from or to [`Placement::Home`] for one owner of this
    /// shard.
    fn remembered(&self, namespace: &str) -> Option<Placement>;

    /// Where a namespace is, if it is anywhere.
    fn find<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Option<Placement>, Trouble>>;

    /// That this shard may have documents of a namespace. A write makes it the home if there is none.
    fn check_home<'a>(&'a self, namespace: &'a str, wanted: Use) -> BoxFuture<'a, Result<(), Trouble>>;

    /// Makes sure that this shard may decide about keys of a spread namespace: it owns them, and knows what became of them.
    fn admit_keys<'a>(
        &'a self,
        namespace: &'a str,
        keys: &'a [&'a DocumentKey],
    ) -> BoxFuture<'a, Result<Admitted, Trouble>>;

    /// Keeps the map as it is, if it still has this epoch.
    fn pass(&self, epoch: Epoch) -> Option<Passage<'_>>;

    /// Admits an operation within the guards of a namespace, or else by a lock of its own at the home, which waits as long as
    /// the terms say. With no resources the home is only asked if the tokens of the terms are of locks that are held.
    fn admit_operation<'a>(
        &'a self,
        namespace: (&'a str, ShardNo),
        resources: &'a [Resource],
        terms: &'a Terms,
    ) -> BoxFuture<'a, Result<Admittance, Trouble>>;

    /// The home of a namespace that this tenure uses for the first time. Its shards have not been heard yet.
    fn take_over(&self, namespace: &str) -> Home;

    /// The shards that may store something that resources cover: by both maps while keys move.
    fn covered(&self, resources: &[Resource]) -> Covered;

    /// Sends a message to a member of a namespace whose home is here.
    fn send(&self, namespace: &Arc<str>, message: HomeMessage);

    /// Asks a shard what it is to a namespace whose home is here.
    fn hear<'a>(&'a self, namespace: &'a str, shard: ShardNo) -> BoxFuture<'a, Option<MemberMessage>>;

    /// Waits until everything that was sent so far to the members which resources cover has arrived, but not for long.
    fn arrived<'a>(&'a self, namespace: &'a Arc<str>, resources: &'a [Resource]) -> BoxFuture<'a, ()>;
}

/// Where a namespace is, as one shard sees it. All documents of a *whole* namespace are at its home; those of a *spread* one
/// are on the shards of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// It is whole, and its home is here.
    Here,
    /// It is whole, and its home is another shard.
    Elsewhere,
    /// It is spread, and its home is here: its locks are enforced by guards.
    Home,
    /// It is spread, and this shard, the home, decides about its locks.
    Member(ShardNo),
}

impl Placement {
    /// Whether the documents of the namespace are on the shards of the map.
    pub fn is_spread(self) -> bool {
        matches!(self, Placement::Home | Placement::Member(_))
    }

    /// The home of a spread namespace, if that is another shard.
    pub fn remote_home(self) -> Option<ShardNo> {
        match self {
            Placement::Member(home) => Some(home),
            Placement::Here | Placement::Elsewhere | Placement::Home => None,
        }
    }
}

/// What a request wants with a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// To look at what is there.
    Read,
    /// To change something, so the namespace is there afterwards.
    Write,
}

/// That some keys may be decided about here, as of one map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Admitted(Option<Epoch>);

impl Admitted {
    /// That everything may be decided about under the map of an epoch.
    pub fn under(epoch: Epoch) -> Admitted {
        Admitted(Some(epoch))
    }

    /// The epoch of the map, if one decides which keys are here.
    pub fn epoch(self) -> Option<Epoch> {
        self.0
    }
}

/// While this is held the map stays as it is.
#[derive(Default)]
pub struct Passage<'a> {
    _fence: Option<MappedRwLockReadGuard<'a, ()>>,
}

impl<'a> Passage<'a> {
    /// A passage through the fence that the map changes behind.
    pub fn through(fence: MappedRwLockReadGuard<'a, ()>) -> Passage<'a> {
        Passage { _fence: Some(fence) }
    }
}

/// That an operation was admitted by the guards of its namespace, or by the home. It is finished when this goes.
pub struct Admittance {
    /// The last record that the operation made.
    wrote: u64,
    /// Absent while this goes.
    finish: Option<Box<dyn FnOnce(u64) + Send + Sync>>,
}

impl Admittance {
    /// `finish` ends the operation, as soon as the record that it is given is durable.
    pub fn new(finish: impl FnOnce(u64) + Send + Sync + 'static) -> Admittance {
        Admittance { wrote: 0, finish: Some(Box::new(finish)) }
    }

    /// Everything up to a record is the operation's.
    pub(crate) fn wrote(&mut self, index: u64) {
        self.wrote = self.wrote.max(index);
    }
}

impl Drop for Admittance {
    fn drop(&mut self) {
        if let Some(finish) = self.finish.take() {
            finish(self.wrote);
        }
    }
}

/// That an interface other than the native one cannot have a namespace.
pub fn only_natively(namespace: &str) -> Trouble {
    let message = format!(
        "the documents of {namespace} are on several shards, and only the native interface finds them there; let this \
         interface begin a namespace of its own"
    );
    Trouble::new(Code::NotOnCluster, message)
}
