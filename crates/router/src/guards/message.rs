//! What a home and its members tell each other, and the numbers that name it. Knows nothing of how it is encoded or
//! delivered.

use super::fault::{Fault, is_planted};
use crate::{Epoch, ShardEpoch, ShardNo};
use lockwood_model::{LockId, OwnerId, Resource, Token};
use std::sync::Arc;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($number:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $number);
    };
}

number! {
    /// The epoch of a namespace's home: the change of homes that brought it to its shard, and the epoch of the owner of that
    /// shard, as PostgreSQL has them. Compared in this order, so that a home is later than all at shards that it has left.
    HomeEpoch(u64)
}

/// The bits of a number that are counted anew at each shard; those above say by which change a home came there.
const SHARD_BITS: u32 = 40;

/// A number of one shard, after all numbers of the shards at which the home was before.
fn after_moves(moved: u64, number: u64) -> u64 {
    assert!(moved < 1 << (u64::BITS - SHARD_BITS), "homes were moved {moved} times");
    assert!(number < 1 << SHARD_BITS, "a shard counted to {number}");
    let moved = if is_planted(Fault::BareHome) { 0 } else { moved };
    moved << SHARD_BITS | number
}

impl HomeEpoch {
    /// Of a home that a change has brought to its shard, and of the owner of that shard.
    pub fn new(moved: u64, owner: ShardEpoch) -> HomeEpoch {
        HomeEpoch(after_moves(moved, owner.0))
    }

    /// The change that brought the home to its shard; 0 if none did.
    pub fn moved(self) -> u64 {
        self.0 >> SHARD_BITS
    }

    /// The epoch of the owner of the shard.
    pub fn owner(self) -> ShardEpoch {
        ShardEpoch(self.0 & ((1 << SHARD_BITS) - 1))
    }
}

number! {
    /// The epoch of a shard map.
    MapEpoch(Epoch)
}

number! {
    /// Numbers the guards of one home epoch, strictly increasing.
    GuardNo(u64)
}

number! {
    /// Numbers the joins and leaves of one owner of a shard, strictly increasing over all homes.
    JoinNo(u64)
}

number! {
    /// The place of a message in its stream; the first one is 0.
    SequenceNo(u64)
}

number! {
    /// A version of what is registered in a namespace: all of it as of a record of the home's log. Later than all versions of
    /// the shards that the home has left.
    DefinitionsNo(u64)
}

impl DefinitionsNo {
    /// As of a record of the log of this home.
    pub fn new(home: HomeEpoch, record: u64) -> DefinitionsNo {
        DefinitionsNo(after_moves(home.moved(), record))
    }
}

number! {
    /// Names an operation while it is admitted at its shard.
    OperationId(u64)
}

/// A guard's name. Numbers start again with each home epoch, and a member keeps guards of an earlier one during grace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuardId {
    /// The home that made it.
    pub home: HomeEpoch,
    /// Its number there.
    pub number: GuardNo,
}

/// What a shard keeps of a lock: nothing of another owner that conflicts with it is admitted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guard {
    /// Its name.
    pub id: GuardId,
    /// The lock it enforces.
    pub lock: LockId,
    /// Whose operations pass. Owner numbers mean something within one home epoch only: compare [`Guard::owner_id`].
    pub owner: OwnerId,
    /// The token of the lock; operations that present it pass.
    pub token: Token,
    /// What the lock covers.
    pub resources: Arc<[Resource]>,
    /// Whether the home waits for an acknowledgement.
    pub state: GuardState,
}

impl Guard {
    /// The owner, unambiguous across takeovers of the home.
    pub fn owner_id(&self) -> (HomeEpoch, OwnerId) {
        (self.id.home, self.owner)
    }

    /// About how many bytes it has.
    pub fn weight(&self) -> usize {
        let weight =
            |resource: &Resource| 32 + resource.path.segments().map(|name| 4 + name.len()).sum::<usize>();
        128 + self.resources.iter().map(weight).sum::<usize>()
    }
}

/// How far the lock of a guard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GuardState {
    /// Decided, not granted: the home waits for acknowledgements.
    Pending,
    /// Granted.
    Held,
}

/// Whether a home grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Sessions re-attach; nothing new is granted.
    Grace,
    /// It grants.
    Serving,
}

/// One membership: everything a home and an owner of a shard tell each other because of one join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    /// The home that is addressed, or that speaks.
    pub home: HomeEpoch,
    /// The shard.
    pub shard: ShardNo,
    /// Its owner.
    pub shard_epoch: ShardEpoch,
    /// The join that began it.
    pub join: JoinNo,
}

/// From a member to its home.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberMessage {
    /// Of which membership.
    pub stream: Stream,
    /// What it says.
    pub content: MemberContent,
}

/// What a member tells its home.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberContent {
    /// The shard is about to serve operations of the namespace, or continues to.
    Join,
    /// The shard stores nothing of the namespace, and joins again before it does.
    Leave,
    /// The shard is closed to operations that conflict with this guard, and those it had admitted are finished.
    Acknowledge(GuardNo),
    /// The shard goes by this version of what is registered, or by a later one.
    Defined(DefinitionsNo),
}

/// From a home to a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HomeMessage {
    /// Of which membership.
    pub stream: Stream,
    /// Its place there.
    pub sequence: SequenceNo,
    /// What it says.
    pub content: HomeContent,
}

/// What a home tells a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HomeContent {
    /// Some of the guards of the snapshot that follows, if that is too large for one message. Nothing comes in between.
    Part(Vec<Guard>),
    /// All guards that concern the shard: the answer to a join, and again when grace ends.
    Snapshot {
        /// Whether the set is complete: during grace a member keeps what it had besides.
        phase: Phase,
        /// The map by which the guards were chosen. During grace the guards of arriving keys are not complete by it.
        map: MapEpoch,
        /// What is registered by now; to be acknowledged.
        definitions: DefinitionsNo,
        /// The guards, without those of the parts before.
        guards: Vec<Guard>,
    },
    /// One more guard.
    Guard(Guard),
    /// A guard less. Needs no acknowledgement.
    Lift(GuardNo),
    /// From here on the shard has the guards of all keys it has by this map.
    Map(MapEpoch),
    /// Something was registered or removed. To be acknowledged.
    Definitions(DefinitionsNo),
}
