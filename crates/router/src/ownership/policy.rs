//! The figures of ownership: when a node renews, stops serving, claims and retries. Knows nothing of nodes, shards or
//! states.

use crate::{
    NodeName, PolicyError, ShardNo,
    planted::{Fault, is_planted},
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Milliseconds by the monotonic clock of this process.
///
/// The clock must count the time in which the machine sleeps (`CLOCK_BOOTTIME` on Linux): a node that slept must not
/// believe that its ownership is fresh.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

/// When a node renews, stops serving, claims and retries.
///
/// `stale_after_ms` is the same for all nodes of a cluster: it belongs into the database, next to the rows.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Time between two renewals.
    pub renew_every_ms: u64,
    /// A node claims when it has seen the same renewal for this long, by its own clock.
    pub stale_after_ms: u64,
    /// How much slower than another node's clock this process's clock may run, in thousandths.
    pub drift_permille: u64,
    /// Stop serving earlier by this much: rounding of clocks, and the time between the check and its effect.
    pub margin_ms: u64,
    /// A call to the database without an answer counts as failed after this time.
    pub call_timeout_ms: u64,
    /// Listed nodes other than the planned owner claim a free shard after this time.
    pub follower_claim_delay_ms: u64,
    /// All other nodes claim a free shard after this time.
    pub other_claim_delay_ms: u64,
    /// Spreads claims of equal rank over this time.
    pub claim_jitter_ms: u64,
    /// A released shard waits this long for the node it was released to.
    pub handoff_wait_ms: u64,
    /// A node that could not reach the database leaves owners this long to renew before it takes them for dead.
    pub outage_grace_ms: u64,
    /// Admitted operations get this long to end before a release.
    pub drain_timeout_ms: u64,
    /// A hint renews at once, but not sooner than this after the last renewal was sent.
    pub hint_gap_ms: u64,
    /// Limits the moves of one plan; handoffs of a draining node do not count.
    pub moves_at_once: usize,
    /// Waits after failures: of a renewal, and of the claim or catch-up of a shard.
    pub backoff: Backoff,
}

/// Exponential waits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first_ms: u64,
    /// The longest wait.
    pub max_ms: u64,
}

/// Which nodes claim a free shard before others.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClaimRank {
    /// The plan or the last owner names this node.
    Planned,
    /// The host list names it.
    Listed,
    /// Any other node.
    Other,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            renew_every_ms: 1_000,
            stale_after_ms: 3_000,
            drift_permille: 10,
            margin_ms: 200,
            call_timeout_ms: 1_000,
            follower_claim_delay_ms: 100,
            other_claim_delay_ms: 500,
            claim_jitter_ms: 100,
            handoff_wait_ms: 1_000,
            outage_grace_ms: 1_500,
            drain_timeout_ms: 2_000,
            hint_gap_ms: 50,
            moves_at_once: 2,
            backoff: Backoff { first_ms: 100, max_ms: 5_000 },
        }
    }
}

impl Policy {
    /// Whether a node with these figures can own anything safely; the error names the figure that is wrong.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let positive = [("renew_every_ms", self.renew_every_ms), ("call_timeout_ms", self.call_timeout_ms)];
        if let Some((name, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Err(PolicyError::Zero(name));
        }
        if self.margin_ms < MARGIN_MS_MIN {
            return Err(PolicyError::Margin(self.margin_ms));
        }
        if self.fresh_for_ms() <= self.renew_every_ms {
            let (renew_every_ms, fresh_for_ms) = (self.renew_every_ms, self.fresh_for_ms());
            return Err(PolicyError::NeverFresh { renew_every_ms, fresh_for_ms });
        }
        Ok(())
    }

    /// How long a renewal counts, from when it was sent, by this process's clock.
    ///
    /// The database sets `renewed_at` after the renewal was sent, and lets another node claim `stale_after_ms` later
    /// by its own clock. In that time this process's clock advances by at least
    /// `stale_after_ms * (1 - drift)`, which is more than the result.
    pub fn fresh_for_ms(&self) -> u64 {
        if is_planted(Fault::NoMargin) {
            return self.stale_after_ms;
        }
        let slowest = self.stale_after_ms * 1_000_u64.saturating_sub(self.drift_permille) / 1_000;
        slowest.saturating_sub(self.margin_ms)
    }

    /// How long a view is recent enough to claim by: one renewal may be lost.
    pub(crate) fn view_ms(&self) -> u64 {
        2 * self.renew_every_ms
    }

    /// How long a node waits before it claims a free shard. Equal inputs give equal waits.
    pub(crate) fn claim_delay_ms(&self, rank: ClaimRank, node: &NodeName, shard: ShardNo) -> u64 {
        let jitter = || match self.claim_jitter_ms {
            0 => 0,
            width => xxh3_64_with_seed(node.as_str().as_bytes(), u64::from(shard.0)) % width,
        };
        match rank {
            ClaimRank::Planned => 0,
            ClaimRank::Listed => self.follower_claim_delay_ms + jitter(),
            ClaimRank::Other => self.other_claim_delay_ms + jitter(),
        }
    }
}

/// Both clocks are read in whole milliseconds: each reading may be almost 1 ms too low.
const MARGIN_MS_MIN: u64 = 2;

impl Backoff {
    /// The wait after so many failures in a row.
    pub fn wait_ms(&self, failures: u32) -> u64 {
        let doublings = failures.saturating_sub(1).min(32);
        let wait = self.first_ms.saturating_mul(1 << doublings).min(self.max_ms);
        if failures == 0 { 0 } else { wait }
    }
}

impl Monotonic {
    /// So much later.
    #[must_use]
    pub fn after(self, ms: u64) -> Monotonic {
        Monotonic(self.0.saturating_add(ms))
    }

    /// Time since `earlier`; 0 if that is later.
    pub fn since(self, earlier: Monotonic) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
