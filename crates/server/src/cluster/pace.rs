//! How much of a node's time a move may take: all of it while nobody else wants any, a part of it otherwise. Knows
//! nothing of what moves.

use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Clients that ask for more than this in a second are given way to.
const BUSY_RATE: f64 = 100.0;
/// While there are such clients a move works one part of so many of the time.
const PARTS: u32 = 16;
/// How often it is counted anew what clients ask for.
const INTERVAL: Duration = Duration::from_millis(100);
/// However long a step took, a move does not rest for longer.
const REST_MAX: Duration = Duration::from_millis(500);

/// What clients ask a node for.
pub(crate) struct Load {
    asked: AtomicU64,
    sample: Mutex<Sample>,
}

struct Sample {
    since: Instant,
    asked: u64,
    is_busy: bool,
}

impl Load {
    pub(crate) fn new() -> Load {
        let sample = Sample { since: Instant::now(), asked: 0, is_busy: false };
        Load { asked: AtomicU64::new(0), sample: Mutex::new(sample) }
    }

    /// That a client asks for something.
    pub(crate) fn count(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether clients ask for much.
    pub(crate) fn is_busy(&self) -> bool {
        let mut sample = self.sample.lock();
        let elapsed = sample.since.elapsed();
        if elapsed >= INTERVAL {
            let asked = self.asked.load(Ordering::Relaxed);
            let rate = (asked - sample.asked) as f64 / elapsed.as_secs_f64();
            *sample = Sample { since: Instant::now(), asked, is_busy: rate > BUSY_RATE };
        }
        sample.is_busy
    }
}

/// Rests after a step that took so long, so that others have the rest of the time.
pub(crate) async fn give_way(took: Duration) {
    tokio::time::sleep((took * (PARTS - 1)).min(REST_MAX)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if so many had asked in the second that has just passed.
    fn is_busy(asked: u64) -> bool {
        let load = Load::new();
        (0..asked).for_each(|_| load.count());
        load.sample.lock().since -= Duration::from_secs(1);
        load.is_busy()
    }

    #[test]
    fn a_few_questions_are_not_much() {
        assert!(!is_busy(0));
        assert!(!is_busy(50));
        assert!(is_busy(1000));
    }

    #[test]
    fn what_was_asked_before_does_not_count() {
        let load = Load::new();
        (0..1000).for_each(|_| load.count());
        load.sample.lock().since -= Duration::from_secs(1);
        assert!(load.is_busy());
        load.sample.lock().since -= Duration::from_secs(1);
        assert!(!load.is_busy());
    }
}
