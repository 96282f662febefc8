//! How one node stands to one shard: a state, and what each state implies. Knows nothing of what leads from one state to
//! another.

use super::{ClaimRule, Monotonic, StepDownReason};
use crate::{NodeName, ShardEpoch};

/// How this process stands to a shard.
///
/// ```text
///  Idle ⇄ Following ─► Claiming ─► CatchingUp ─► Serving ⇄ Suspended
///    ▲        ▲                        │            │          │
///    │        │                        └────────────┼──────────┘
///    │        ├── Releasing ◄── Draining ◄──────────┤   planned handoff
///    └────────┴── SteppingDown ◄────────────────────┘   fenced, superseded
///                      └─► Reclaiming ─► Claiming       outcome of an append unknown; a tenure that was drained to reopen
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Hold {
    /// Nothing to do with it.
    #[default]
    Idle,
    /// Tails the log.
    Following,
    /// A claim is on its way.
    Claiming {
        /// Names the call.
        sent: Monotonic,
        /// The epoch that the claim replaces.
        expected: ShardEpoch,
        /// What the row must fulfil.
        rule: ClaimRule,
    },
    /// Owns it; the local store is not equal to the log yet.
    CatchingUp(Tenure),
    /// Owns it and serves, while fresh.
    Serving(Tenure),
    /// Owned it when the last successful renewal was sent, which is too long ago: serves nothing, keeps its state.
    Suspended(Tenure),
    /// Owns it, admits nothing more, waits for admitted operations to end.
    Draining {
        /// Still renewed.
        tenure: Tenure,
        /// The node that is to claim it.
        to: Option<NodeName>,
        /// Releases then at the latest.
        until: Monotonic,
    },
    /// A release is on its way.
    Releasing {
        /// The epoch that ends.
        epoch: ShardEpoch,
        /// The node that is to claim it.
        to: Option<NodeName>,
        /// When the release was sent first.
        since: Monotonic,
        /// When it is sent again.
        retry_at: Monotonic,
    },
    /// Abandons a tenure.
    SteppingDown {
        /// The epoch that ends.
        epoch: ShardEpoch,
        /// The reason.
        why: StepDownReason,
    },
    /// Held this epoch, has stepped down, and claims again after a wait.
    Reclaiming {
        /// The epoch that ended.
        held: ShardEpoch,
    },
}

/// The ownership of a shard under one epoch.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tenure {
    /// Of the claim.
    pub epoch: ShardEpoch,
    /// When the claim was answered; only renewals that were sent later name this epoch.
    pub since: Monotonic,
    /// No other node can claim before this.
    pub fresh_until: Monotonic,
}

impl Hold {
    /// The tenure that has not ended.
    pub fn tenure(&self) -> Option<&Tenure> {
        match self {
            Hold::CatchingUp(tenure) | Hold::Serving(tenure) | Hold::Suspended(tenure) => Some(tenure),
            Hold::Draining { tenure, .. } => Some(tenure),
            _ => None,
        }
    }

    /// The epoch to renew: also while a tenure ends of which this process is going to be the successor.
    pub(super) fn renewed_epoch(&self) -> Option<ShardEpoch> {
        match self {
            Hold::SteppingDown { epoch, why: StepDownReason::UnknownAppend } => Some(*epoch),
            _ => self.tenure().map(|tenure| tenure.epoch),
        }
    }

    /// Whether this process neither owns the shard nor is about to, and has nothing to give up.
    pub fn is_unowned(&self) -> bool {
        matches!(self, Hold::Idle | Hold::Following)
    }

    pub(super) fn tenure_mut(&mut self) -> Option<&mut Tenure> {
        match self {
            Hold::CatchingUp(tenure) | Hold::Serving(tenure) | Hold::Suspended(tenure) => Some(tenure),
            Hold::Draining { tenure, .. } => Some(tenure),
            _ => None,
        }
    }
}
