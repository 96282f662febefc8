//! The clock that ownership is counted by: monotonic, and going on while the machine sleeps. Knows nothing of what is
//! counted.

use lockwood_router::ownership::Monotonic;
use rustix::time::{ClockId, clock_gettime};

/// Now.
#[must_use]
pub fn monotonic() -> Monotonic {
    let now = clock_gettime(ClockId::Boottime);
    let ms = now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000;
    Monotonic(ms)
}
