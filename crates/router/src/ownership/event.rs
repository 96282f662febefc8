//! What a node's shell reports and what it is told to do, as far as ownership is concerned. Knows nothing of states.

use super::Monotonic;
use crate::{NodeName, Preferences, RenewalMark, ShardEpoch, ShardNo, View};

/// What has happened. Answers may be lost, late or repeated: each names what it answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Time has passed: [`super::Ownership::wake_at`] is reached.
    Tick,
    /// A row may have changed, says a notification. Saves time; nothing depends on it.
    Hint,
    /// The host lists of the map in force.
    Listed(Preferences),
    /// The process is asked to stop: release everything, then deregister.
    Stop,
    /// A tenure is to end as planned, and this process to begin the next one: what a shard has to know when it opens has changed.
    Reopen {
        /// The shard.
        shard: ShardNo,
        /// The tenure that ends.
        epoch: ShardEpoch,
    },
    /// Answer to [`Action::Renew`].
    Renewed {
        /// Of the action.
        sent: Monotonic,
        /// Read after the update, in the same call.
        view: View,
    },
    /// A renewal failed, or its outcome is unknown.
    RenewFailed {
        /// Of the action.
        sent: Monotonic,
    },
    /// Answer to [`Action::Claim`]: this process owns the shard.
    Claimed {
        /// The shard.
        shard: ShardNo,
        /// Of the action.
        sent: Monotonic,
        /// The new epoch.
        epoch: ShardEpoch,
    },
    /// A claim was refused, failed, or its outcome is unknown.
    ClaimFailed {
        /// The shard.
        shard: ShardNo,
        /// Of the action.
        sent: Monotonic,
    },
    /// [`Action::CatchUp`] is done: the local store equals the log, read after the claim.
    CaughtUp {
        /// The shard.
        shard: ShardNo,
        /// Of the action.
        epoch: ShardEpoch,
    },
    /// [`Action::CatchUp`] failed.
    CatchUpFailed {
        /// The shard.
        shard: ShardNo,
        /// Of the action.
        epoch: ShardEpoch,
    },
    /// The guard of an append rejected it: the epoch is not the current one.
    AppendFenced {
        /// The shard.
        shard: ShardNo,
        /// The append's epoch.
        epoch: ShardEpoch,
    },
    /// The connection broke before an append was answered: it may be in the log or not, now or later.
    AppendUnknown {
        /// The shard.
        shard: ShardNo,
        /// The append's epoch.
        epoch: ShardEpoch,
    },
    /// [`Action::StopAdmitting`] is done: all admitted operations are durable or rejected.
    Drained {
        /// The shard.
        shard: ShardNo,
        /// Of the action.
        epoch: ShardEpoch,
    },
    /// Answer to [`Action::Release`]: the row does not have our name with this epoch, now and forever.
    Released {
        /// The shard.
        shard: ShardNo,
        /// Of the action.
        epoch: ShardEpoch,
    },
    /// A release failed, or its outcome is unknown.
    ReleaseFailed {
        /// The shard.
        shard: ShardNo,
        /// Of the action.
        epoch: ShardEpoch,
    },
    /// [`Action::StepDown`] is done.
    SteppedDown {
        /// The shard.
        shard: ShardNo,
        /// Of the action.
        epoch: ShardEpoch,
    },
}

/// What the shell is to do now.
///
/// | action | guarded update in the database |
/// | --- | --- |
/// | `Renew` | insert or update the node; for each named shard `renewed_at` if owner and epoch match; then read all rows |
/// | `Claim` | epoch + 1, owner, `renewed_at`; if the epoch is `expected` and [`ClaimRule`] holds; a handoff target is removed |
/// | `Release` | no owner, `renewed_at`, a handoff target unless the shard is pinned; if owner and epoch match |
/// | `Deregister` | delete the node's row |
///
/// `renewed_at` is taken from the database clock at the time of the statement (`clock_timestamp()`), so that each statement
/// leaves another mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Renew this node and its shards, and read all rows: one call.
    Renew {
        /// Names the call.
        sent: Monotonic,
        /// Whether this process stops. Written by every renewal, so a late one of an earlier process does not last; an
        /// operator's drain is another column, and [`crate::NodeRow::drains`] is either of them.
        stops: bool,
        /// What this process holds.
        shards: Vec<(ShardNo, ShardEpoch)>,
    },
    /// Claim a shard.
    Claim {
        /// The shard.
        shard: ShardNo,
        /// Names the call.
        sent: Monotonic,
        /// The row's epoch; another one refuses the claim, so a repeated call claims once.
        expected: ShardEpoch,
        /// What the row must fulfil.
        rule: ClaimRule,
    },
    /// Make the local store equal to the log, and join homes; admit nothing yet.
    CatchUp {
        /// The shard.
        shard: ShardNo,
        /// Names the tenure.
        epoch: ShardEpoch,
    },
    /// Admit operations from now on, as long as [`super::Ownership::is_fresh`] says so.
    Serve {
        /// The shard.
        shard: ShardNo,
        /// Names the tenure.
        epoch: ShardEpoch,
    },
    /// Grant nothing, answer no linearizable read, stop lease clocks; keep all state.
    Suspend {
        /// The shard.
        shard: ShardNo,
        /// Names the tenure.
        epoch: ShardEpoch,
    },
    /// Continue where [`Action::Suspend`] stopped.
    Resume {
        /// The shard.
        shard: ShardNo,
        /// Names the tenure.
        epoch: ShardEpoch,
    },
    /// Admit nothing more, or abandon the catch-up; report when admitted operations have ended.
    StopAdmitting {
        /// The shard.
        shard: ShardNo,
        /// Names the tenure.
        epoch: ShardEpoch,
    },
    /// Give the shard up in the database.
    Release {
        /// The shard.
        shard: ShardNo,
        /// Names the tenure.
        epoch: ShardEpoch,
        /// The node that claims it at once.
        to: Option<NodeName>,
    },
    /// Abandon the tenure: reject waiting operations, drop in-memory state.
    StepDown {
        /// The shard.
        shard: ShardNo,
        /// Names the tenure.
        epoch: ShardEpoch,
        /// The reason.
        why: StepDownReason,
    },
    /// Tail the log. Repeated when it is already tailed.
    Follow {
        /// The shard.
        shard: ShardNo,
    },
    /// Stop tailing the log.
    Unfollow {
        /// The shard.
        shard: ShardNo,
    },
    /// Delete the node's row: everything is released, the process may end.
    Deregister,
}

/// What a row must fulfil for a claim, beside the expected epoch.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClaimRule {
    /// No owner, or the last renewal is this one, which the node has seen for `stale_after_ms`.
    Free(RenewalMark),
    /// This node is the owner: the process that held the expected epoch, and has stopped serving, claims again.
    Holder,
}

/// Why an owner abandons its tenure.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum StepDownReason {
    /// An append was rejected.
    Fenced,
    /// The outcome of an append is unknown.
    UnknownAppend,
    /// The row has another owner or epoch.
    Superseded,
}
