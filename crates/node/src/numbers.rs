//! Keeps lock ids and tokens from ever being given out twice, without a disk write per lock. Knows nothing
//! of locks.
//!
//! The ledger holds a *ceiling*: no number at or above it has been given out. It is raised long before it
//! is reached, so a lock never waits for the disk; after a restart numbers start at the ceiling.

use lockwood_storage::{Ledger, StoreError};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::Notify;

/// How far the ceiling is raised at a time.
const STEP: u64 = 1 << 20;
/// The ceiling is raised when fewer numbers than this are left. More than [`WAITERS_CAP`], so that every
/// waiter can still be granted if the disk fails in between.
const MARGIN: u64 = 1 << 19;
/// The most waiting locks any namespace can have.
const WAITERS_CAP: u64 = 250_000;

const _: () = assert!(WAITERS_CAP < MARGIN);

/// The numbers that are set aside for lock ids and tokens.
pub struct Numbers {
    ledger: Arc<Ledger>,
    ceiling: AtomicU64,
    /// Where the table of a new namespace starts.
    first: AtomicU64,
    low: Notify,
    /// One at a time puts a ceiling on record, so that a lower one never comes after a higher.
    raising: Mutex<()>,
}

impl Numbers {
    /// Continues after everything given out below `ceiling` by earlier runs.
    pub fn start(ledger: Arc<Ledger>, ceiling: u64) -> Result<Numbers, StoreError> {
        let next = ceiling + STEP;
        ledger.raise_ceiling(next)?;
        Ok(Numbers {
            ledger,
            ceiling: AtomicU64::new(next),
            first: AtomicU64::new(ceiling),
            low: Notify::new(),
            raising: Mutex::new(()),
        })
    }

    /// The first number for a new namespace: larger than any its predecessor of the same name gave out.
    pub fn first(&self) -> u64 {
        self.first.load(Ordering::Acquire)
    }

    /// A namespace is gone that gave out everything below `next`.
    pub(crate) fn retire(&self, next: u64) {
        self.first.fetch_max(next, Ordering::AcqRel);
    }

    /// Whether a table that has come to `next` may take another lock. On a disk that failed, what is set aside may
    /// be set aside again by the next server, so nothing of it is given out any more.
    pub(crate) fn suffice(&self, next: u64) -> bool {
        if self.ledger.is_poisoned() {
            return false;
        }
        let ceiling = self.ceiling.load(Ordering::Acquire);
        if next + MARGIN > ceiling {
            self.low.notify_one();
        }
        next + WAITERS_CAP < ceiling
    }

    /// Raises the ceiling whenever it comes near. Ends when the disk fails.
    pub async fn keep_ahead(self: Arc<Numbers>) {
        loop {
            self.low.notified().await;
            let next = self.ceiling.load(Ordering::Acquire) + STEP;
            if let Err(error) = self.lift(next).await {
                return tracing::error!(%error, "raise the ceiling of lock numbers");
            }
        }
    }

    /// Everything below `ceiling` was given out by another shard for a namespace that comes here: the next run begins above it.
    pub async fn begin_above(self: &Arc<Numbers>, ceiling: u64) -> Result<(), StoreError> {
        self.lift(ceiling + STEP).await
    }

    /// Puts a ceiling on record, unless a higher one is.
    async fn lift(self: &Arc<Numbers>, ceiling: u64) -> Result<(), StoreError> {
        let numbers = Arc::clone(self);
        let lifting = tokio::task::spawn_blocking(move || {
            let _raising = numbers.raising.lock();
            if numbers.ceiling.load(Ordering::Acquire) < ceiling {
                numbers.ledger.raise_ceiling(ceiling)?;
                numbers.ceiling.store(ceiling, Ordering::Release);
            }
            Ok(())
        });
        lifting.await.unwrap_or_else(|error| Err(StoreError::Failed(error.to_string())))
    }
}
