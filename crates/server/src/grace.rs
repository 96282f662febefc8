//! Remembers on disk how long the locks of this run could outlive it. Knows nothing of the locks.
//!
//! What is recorded is never less than the largest abandon timeout of a session that may hold a lock. It is
//! raised before a session opens, and lowered in the background some time after the last one that needed it.

use lockwood_storage::{Ledger, StoreError};
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const LOWER_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) struct Grace {
    ledger: Arc<Ledger>,
    book: Mutex<Book>,
    /// Held while the disk is written, so that writes arrive in order.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Book {
    in_use: BTreeMap<u64, usize>,
    recorded: u64,
}

impl Book {
    fn needed(&self) -> u64 {
        self.in_use.last_key_value().map_or(0, |(timeout, _)| *timeout)
    }
}

impl Grace {
    pub(crate) fn new(ledger: Arc<Ledger>, recorded: u64) -> Grace {
        let book = Mutex::new(Book { in_use: BTreeMap::new(), recorded });
        Grace { ledger, book, writing: tokio::sync::Mutex::new(()) }
    }

    /// A session with this abandon timeout is about to open.
    pub(crate) fn enter(&self, timeout_ms: u64) {
        *self.book.lock().in_use.entry(timeout_ms).or_default() += 1;
    }

    /// Once this returns, a session that has entered with this abandon timeout may open.
    pub(crate) async fn record(&self, timeout_ms: u64) -> Result<(), StoreError> {
        if timeout_ms <= self.book.lock().recorded {
            return Ok(());
        }
        let _turn = self.writing.lock().await;
        if timeout_ms <= self.book.lock().recorded {
            return Ok(());
        }
        self.write(timeout_ms).await?;
        self.book.lock().recorded = timeout_ms;
        Ok(())
    }

    /// A session with this abandon timeout is gone, and so are its locks.
    pub(crate) fn leave(&self, timeout_ms: u64) {
        let mut book = self.book.lock();
        if let Some(count) = book.in_use.get_mut(&timeout_ms) {
            *count -= 1;
            if *count == 0 {
                book.in_use.remove(&timeout_ms);
            }
        }
    }

    /// Lowers what is recorded when less is needed. Ends when the disk fails.
    pub(crate) async fn keep_low(self: Arc<Grace>) {
        loop {
            tokio::time::sleep(LOWER_INTERVAL).await;
            if let Err(error) = self.lower().await {
                return tracing::error!(%error, "lower the grace period");
            }
        }
    }

    /// After a clean stop there is nothing to wait for.
    pub(crate) async fn lower(&self) -> Result<(), StoreError> {
        let _turn = self.writing.lock().await;
        let needed = {
            let mut book = self.book.lock();
            let needed = book.needed();
            if needed >= book.recorded {
                return Ok(());
            }
            // Before the write: whoever enters from here on needs more than this and waits for its own.
            book.recorded = needed;
            needed
        };
        self.write(needed).await
    }

    async fn write(&self, grace_ms: u64) -> Result<(), StoreError> {
        let ledger = Arc::clone(&self.ledger);
        let written = tokio::task::spawn_blocking(move || ledger.set_grace(grace_ms)).await;
        written.unwrap_or(Err(StoreError::Poisoned))
    }
}
