//! What can be wrong with a map or a policy, and why a key has no shard: always with the name of the entry. Knows
//! nothing of how a map is read.

use crate::{EPOCH_MAX, Phase, ShardNo, Step, WEIGHT_MAX};

/// A map, or a change of one, that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{entry}: {problem}")]
pub struct MapError {
    /// Which entry, as a path from the top: `shards[0][2].weight`.
    pub entry: String,
    /// What is wrong with it.
    pub problem: MapProblem,
}

/// What is wrong with an entry of a map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MapProblem {
    /// No shards, or a shard without hosts.
    #[error("empty; {0} is needed")]
    Empty(&'static str),
    /// A shard that nobody may write to.
    #[error("no rw host; exactly one is needed")]
    NoRwHost,
    /// A shard with several hosts that write.
    #[error("{0} rw hosts; exactly one is needed")]
    ManyRwHosts(usize),
    /// Above the limit.
    #[error("{0} is more than {max}", max = WEIGHT_MAX)]
    WeightAbove(u64),
    /// Not `host:port`.
    #[error("{0:?} is not host:port")]
    Address(String),
    /// The same node twice.
    #[error("{address} is also the address of {other}")]
    SameAddress {
        /// The address.
        address: String,
        /// The entry that has it first.
        other: String,
    },
    /// More shards, or a higher shard, than the list has; or none.
    #[error("{found} is outside 1 to {len}, the shards of the list")]
    OutsideList {
        /// What the function names.
        found: u64,
        /// How many shards the list has.
        len: usize,
    },
    /// Ranges in an order that would hide some of them.
    #[error("{0} does not come after the bound before it")]
    BoundOrder(String),
    /// An open bound that is not the last one.
    #[error("no upper limit, and bounds after it; only the last bound is open")]
    BoundOpen,
    /// Keys above the last bound would have no shard.
    #[error("the last bound has an upper limit; leave `below` out, so that every key has a shard")]
    BoundClosed,
    /// Not the script that was hashed.
    #[error("the source's hash is {found}, not {written}")]
    ScriptHash {
        /// Of the source.
        found: String,
        /// What the map says.
        written: String,
    },
    /// Counted from 1, and small enough for every reader of JSON.
    #[error("{0} is outside 1 to {max}", max = EPOCH_MAX)]
    Epoch(u64),
    /// Phase, `prev` and `transition` do not fit together.
    #[error("{0}")]
    Phase(&'static str),
    /// Not the JSON that is expected here.
    #[error("{0}")]
    Json(String),
}

/// A key that a function gives no shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// A number of no shard.
    #[error(
        "{which} ({function}) answers {answer} for {key}, which is outside 1 to {len}, the shards of the list"
    )]
    Outside {
        /// `curr` or `prev`.
        which: &'static str,
        /// The function.
        function: String,
        /// Collection and key.
        key: String,
        /// What the function answered.
        answer: i64,
        /// How many shards there are.
        len: usize,
    },
    /// No answer.
    #[error("{which} ({function}) has no answer for {key}: {problem}")]
    NoAnswer {
        /// `curr` or `prev`.
        which: &'static str,
        /// The function.
        function: String,
        /// Collection and key.
        key: String,
        /// Why.
        problem: String,
    },
}

/// A change that is refused; nothing has been changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The map that it would make cannot be.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The first change has to name it.
    #[error("{0}: missing, and there is no map yet that could have it; the first change names list and curr")]
    Missing(&'static str),
    /// There is no map yet.
    #[error("prev: given, but there is no map yet to move away from; configure list and curr first")]
    PrevFirst,
    /// Another `curr` with `prev` off.
    #[error("prev: false together with another curr would leave every key that moves behind; leave prev out")]
    NothingWouldMove,
    /// Another `curr`, and a `prev` that is not what it replaces.
    #[error(
        "prev: keys are where {0} has them, and another curr can only move them from there; leave prev out, or \
         change curr in a step of its own"
    )]
    OtherPrev(String),
    /// `prev` off with another list.
    #[error("prev: false ends the transition; change the list in a step of its own")]
    DropAlone,
    /// Another function while keys move.
    #[error("{phase} towards {target} is under way; wait until it is steady, or abort it first")]
    UnderWay {
        /// How far it is.
        phase: Phase,
        /// The function it goes to.
        target: String,
    },
    /// Fewer shards than are in use.
    #[error("list: {len} shards, but {which} ({function}) uses {needs}; change curr together with the list")]
    DropsShards {
        /// `curr` or `prev`.
        which: &'static str,
        /// The function.
        function: String,
        /// How many shards it uses.
        needs: usize,
        /// How many the list has.
        len: usize,
    },
}

/// A command that a transition cannot follow now; it goes on as before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransitionError {
    /// `prev` is still needed.
    #[error("prev is still needed: {0}; wait for them, or force it and lose what is not copied")]
    NotFinished(String),
    /// Nothing is served by its new shard yet.
    #[error("keys have not begun to move ({0}); wait, or abort")]
    NotBegun(Step),
    /// The new shards are on their own.
    #[error("prev is gone ({0}); there is no way back, and nothing left to copy")]
    PrevGone(Step),
    /// Clean up only what nobody reads any more.
    #[error("prev is still set ({0}); drop it first, then clean up")]
    PrevSet(Step),
    /// It goes back already.
    #[error("it is going back already; wait until it is steady, then change the map again")]
    GoingBack,
    /// There is nothing to go back to.
    #[error(
        "prev was given by hand, and the shards serve as they did before; there is nothing to go back to: set prev \
         to false"
    )]
    ByHand,
    /// No keys come from there.
    #[error("shard {0} gives no keys away in this transition")]
    NoDonor(ShardNo),
}

/// Figures of ownership with which a node could not own anything safely.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A time that must not be zero.
    #[error("{0} is 0")]
    Zero(&'static str),
    /// Less than what clocks are rounded by.
    #[error("margin_ms is {0}; clocks are rounded by 1 ms each, so at least 2 are needed")]
    Margin(u64),
    /// A renewal counts for less time than passes until the next one.
    #[error(
        "renew_every_ms is {renew_every_ms}, but a renewal counts for {fresh_for_ms} ms only; raise stale_after_ms"
    )]
    NeverFresh {
        /// Time between two renewals.
        renew_every_ms: u64,
        /// How long one counts.
        fresh_for_ms: u64,
    },
}

impl MapError {
    pub(crate) fn new(entry: impl Into<String>, problem: MapProblem) -> MapError {
        MapError { entry: entry.into(), problem }
    }

    pub(crate) fn json(entry: impl Into<String>, problem: impl std::fmt::Display) -> MapError {
        MapError::new(entry, MapProblem::Json(problem.to_string()))
    }
}
