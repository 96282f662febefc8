//! The lock table of one namespace: grants, queues, conversions, deadlocks. Knows nothing of connections,
//! clocks or storage.

mod check;
mod convert;
mod counters;
mod deadlock;
mod entry;
mod entry_set;
mod fault;
mod holding;
mod journal;
mod lock;
mod outcome;
mod queue;
mod table;
mod tally;
mod tree;
mod view;

#[cfg(test)]
mod matrix_test;
#[cfg(test)]
mod model_test;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod table_test;
#[cfg(test)]
mod view_test;

pub use outcome::{
    CancelOutcome, Change, Claimed, ConvertError, ConvertOutcome, Counts, Cycle, CycleStep, Effect, Ended,
    LockView, NodeView, Outcome, Rank, Recorded, Refusal, Request, Standing, UnknownLock, Waiters,
};
pub use table::{BLOCKERS_LEN_MAX, LockTable, merge};
pub use tally::Tally;
