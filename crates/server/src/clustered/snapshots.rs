//! Saves snapshots of a shard that this node owns, so that a node without a cache need not fold its whole log. Knows nothing
//! of how they are read.

use crate::shared::Shared;
use lockwood_node::shard::SnapshotDue;
use lockwood_storage::Unsaved;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How often it is looked whether a snapshot is due.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A snapshot is due when so many records are not in the last one, however small they are.
const RECORDS: u64 = 100_000;
/// A piece takes so long at the most, as far as the pause after it is concerned.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Runs until it is dropped, at the end of the tenure.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let Some(bytes) = shared.config.node.as_ref().map(|node| node.snapshot_bytes) else { return };
    let due = SnapshotDue { records: RECORDS, bytes };
    let ending = Ending::default();
    let mut unsaved = Unsaved::default();
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let (ended, draining) = (Arc::clone(&ending.0), Arc::downgrade(&shared));
        let mut began = Instant::now();
        let begun = began;
        let go_on = move || {
            let is_over = || {
                let draining =
                    draining.upgrade().is_none_or(|shared| shared.draining.load(Ordering::Acquire));
                draining || ended.load(Ordering::Acquire)
            };
            if is_over() {
                return false;
            }
            // Half of the time is for clients: pieces go to the log between their writes.
            std::thread::sleep(began.elapsed().min(PAUSE_MAX));
            began = Instant::now();
            !is_over()
        };
        match shared.shard.keep_snapshot(unsaved, due, go_on).await {
            Ok((counted, saved)) => {
                unsaved = counted;
                if let Some(record) = saved {
                    let took_ms = begun.elapsed().as_millis();
                    tracing::info!(
                        record,
                        records = unsaved.records(),
                        took_ms,
                        "a snapshot of the shard is saved"
                    );
                }
            }
            Err(error) => tracing::warn!(?error, "save a snapshot of the shard"),
        }
    }
}

/// Ends what runs on a thread of its own when the task is dropped.
#[derive(Default)]
struct Ending(Arc<AtomicBool>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
