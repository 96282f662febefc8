//! A budget: how much work one request may still cause, and whether it was cancelled. Knows nothing of clocks,
//! connections, or what a step is spent on.
//!
//! A step is about what comparing a short value takes: less than a microsecond on a usual machine.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

/// Comparing so many bytes takes as long as one step.
const BYTES_PER_STEP: usize = 256;

/// The work that one request may cause. A clone is another handle on the same budget.
///
/// The steps are counted by the one thread that works for the request; any thread may cancel it.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Shares>);

#[derive(Debug)]
struct Shares {
    steps_max: u64,
    left: AtomicU64,
    cancelled: AtomicBool,
}

/// Why work has to end before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Exhausted {
    /// All steps are used.
    #[error("the request takes more than {0} steps of work")]
    Spent(u64),
    /// The client left, the request's time is over, or the server stops.
    #[error("the request was cancelled")]
    Cancelled,
}

impl Budget {
    /// A budget of so many steps.
    pub fn new(steps_max: u64) -> Budget {
        Budget(Arc::new(Shares {
            steps_max,
            left: AtomicU64::new(steps_max),
            cancelled: AtomicBool::new(false),
        }))
    }

    /// A budget that only cancellation ends.
    pub fn unlimited() -> Budget {
        Budget::new(u64::MAX)
    }

    /// Pays for work that is about to be done.
    pub fn spend(&self, steps: u64) -> Result<(), Exhausted> {
        if self.is_cancelled() {
            return Err(Exhausted::Cancelled);
        }
        // Not one operation, because only one thread counts; that is cheaper.
        let left = self.0.left.load(Relaxed).saturating_sub(steps);
        self.0.left.store(left, Relaxed);
        if left == 0 { Err(Exhausted::Spent(self.0.steps_max)) } else { Ok(()) }
    }

    /// Pays for going through so many bytes, at least one step.
    pub fn spend_bytes(&self, bytes: usize) -> Result<(), Exhausted> {
        self.spend(1 + (bytes / BYTES_PER_STEP) as u64)
    }

    /// How many steps are left.
    pub fn left(&self) -> u64 {
        self.0.left.load(Relaxed)
    }

    /// How many steps there were at first.
    pub fn steps_max(&self) -> u64 {
        self.0.steps_max
    }

    /// Ends the work at its next step.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Relaxed);
    }

    /// Whether somebody cancelled it.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_budget_stays_spent() {
        let budget = Budget::new(10);
        assert_eq!(budget.spend(9), Ok(()));
        assert_eq!(budget.spend_bytes(0), Err(Exhausted::Spent(10)));
        assert_eq!(budget.spend(0), Err(Exhausted::Spent(10)));
        assert_eq!((budget.left(), budget.steps_max()), (0, 10));
    }

    #[test]
    fn a_cancelled_budget_pays_for_nothing() {
        let budget = Budget::unlimited();
        let other = budget.clone();
        other.cancel();
        assert_eq!(budget.spend(0), Err(Exhausted::Cancelled));
        assert!(other.is_cancelled());
    }
}
