//! The one place that reads the clocks. Knows nothing of what the time is for.

use lockwood_model::Timestamp;
use lockwood_router::ownership::Monotonic;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Wall-clock time as of the start, moved on by a clock that never goes backwards.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    start_at: Timestamp,
}

impl Clock {
    /// A clock that begins now.
    pub fn start() -> Clock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { start: Instant::now(), start_at: Timestamp(wall.as_millis() as u64) }
    }

    /// This moment, never before one that was told.
    pub fn now(&self) -> Timestamp {
        self.start_at.after(self.start.elapsed().as_millis() as u64)
    }

    /// When `at` is on the clock timers use. A moment too far away for it is far away all the same.
    pub(crate) fn instant(&self, at: Timestamp) -> tokio::time::Instant {
        const FAR: Duration = Duration::from_secs(30 * 24 * 3600);
        // Timers round down to a millisecond; one more makes sure that `at` has come when they fire.
        let offset = Duration::from_millis(at.since(self.start_at).saturating_add(1));
        let ahead = (self.start + offset.min(FAR + self.start.elapsed())).into();
        tokio::time::Instant::max(ahead, tokio::time::Instant::now())
    }
}

/// The clock that ownership is counted by: monotonic, and going on while the machine sleeps.
#[must_use]
pub fn monotonic() -> Monotonic {
    let now = clock_gettime(ClockId::Boottime);
    let ms = now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000;
    Monotonic(ms)
}

/// A moment as people and programs read it.
pub fn rfc3339(at: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(at.0 as i64) {
        Ok(moment) => format!("{moment:.3}"),
        Err(_) => "9999-12-31T23:59:59.999Z".to_owned(),
    }
}
