//! Long work for one request: done off the serving threads, within a budget of steps and time, and cancelled when
//! its client leaves or the server stops. Knows nothing of what the work is.

use crate::{kernel::Kernel, limits::Limits, trouble::Trouble};
use lockwood_model::{Budget, Exhausted};
use lockwood_wire::Code;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, watch};

/// What all long work of a server shares.
pub struct Work {
    /// One permit for each piece of work at a time; none if the number is not limited.
    permits: Option<Arc<Semaphore>>,
    stopping: watch::Sender<bool>,
}

/// The long work of one request, all pieces of which share one budget of steps and time. Dropping it cancels the work:
/// the future of a request is dropped when its client leaves.
///
/// Most requests have no long work, so a new one costs nothing.
pub struct Job<'a> {
    kernel: &'a Kernel,
    budget: OnceLock<Budget>,
    /// How long was worked so far. What a request waits for besides, locks of others, does not count.
    worked_us: AtomicU64,
}

/// Why long work did not come to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfinished {
    /// It would take more steps than the limit allows.
    Spent(u64),
    /// It took more milliseconds than the limit allows.
    Late(u64),
    /// The server stops.
    Stopping,
    /// It panicked.
    Failed,
}

impl Work {
    /// Nodes of a cluster wait for each other's work, so a limit on its number could keep them waiting for ever.
    pub fn new(limits: &Limits, is_node: bool) -> Work {
        let len = usize::try_from(limits.jobs_max).unwrap_or(Semaphore::MAX_PERMITS);
        let permits = (!is_node).then(|| Arc::new(Semaphore::new(len.min(Semaphore::MAX_PERMITS))));
        Work { permits, stopping: watch::Sender::new(false) }
    }

    /// Cancels everything, now and later.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }
}

impl<'a> Job<'a> {
    /// A job that has cost nothing yet.
    pub fn new(kernel: &'a Kernel) -> Job<'a> {
        Job { kernel, budget: OnceLock::new(), worked_us: AtomicU64::new(0) }
    }

    /// The server it is done in.
    pub(crate) fn kernel(&self) -> &'a Kernel {
        self.kernel
    }

    /// What the work may still cost.
    pub fn budget(&self) -> &Budget {
        self.budget.get_or_init(|| Budget::new(self.kernel.config.limits.work_max))
    }

    /// Does a piece of the work when it is its turn. Waiting for that counts for the time too.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Budget) -> T + Send + 'static,
    ) -> Result<T, Unfinished> {
        let Work { permits, stopping } = &self.kernel.work;
        let mut stopping = stopping.subscribe();
        let started = Instant::now();
        let done = async {
            let permit = match permits {
                Some(permits) => {
                    Some(Arc::clone(permits).acquire_owned().await.map_err(|_| Unfinished::Stopping)?)
                }
                None => None,
            };
            let budget = self.budget().clone();
            let piece = move || {
                // Given back when the work has ended, which may be later than its request.
                let _permit = permit;
                work(&budget)
            };
            tokio::task::spawn_blocking(piece).await.map_err(|error| {
                tracing::error!(%error, "do long work");
                Unfinished::Failed
            })
        };
        tokio::select! {
            done = done => {
                let worked_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
                self.worked_us.fetch_add(worked_us, Relaxed);
                done
            }
            () = tokio::time::sleep(self.time_left()) => {
                Err(Unfinished::Late(self.kernel.config.limits.work_ms_max))
            }
            _ = stopping.wait_for(|stops| *stops) => Err(Unfinished::Stopping),
        }
    }

    fn time_left(&self) -> Duration {
        let worked = Duration::from_micros(self.worked_us.load(Relaxed));
        Duration::from_millis(self.kernel.config.limits.work_ms_max).saturating_sub(worked)
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if let Some(budget) = self.budget.get() {
            budget.cancel();
        }
    }
}

impl From<Exhausted> for Unfinished {
    fn from(exhausted: Exhausted) -> Unfinished {
        match exhausted {
            Exhausted::Spent(steps_max) => Unfinished::Spent(steps_max),
            // Who cancelled it knows why, and does not wait for this answer.
            Exhausted::Cancelled => Unfinished::Stopping,
        }
    }
}

impl From<Unfinished> for Trouble {
    fn from(unfinished: Unfinished) -> Trouble {
        let exceeded = |name: &str, limit, what: &str| {
            let Trouble { message, .. } = Trouble::over(name, limit, what);
            Trouble::new(Code::BudgetExceeded, message)
        };
        match unfinished {
            Unfinished::Spent(limit) => exceeded(
                "work_max",
                limit,
                "the request takes too much work, and was ended; ask for less at once: fewer or smaller documents, \
                 a shorter filter, a field with an index, a schema with fewer alternatives",
            ),
            Unfinished::Late(limit) => exceeded(
                "work_ms_max",
                limit,
                "the request took too long, and was ended; ask for less at once, or try again when the server has \
                 less to do",
            ),
            Unfinished::Stopping => Trouble::new(Code::Draining, "the server stops; try again later"),
            Unfinished::Failed => Trouble::storage_failed(),
        }
    }
}
