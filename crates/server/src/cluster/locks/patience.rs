//! How long something is tried again that could not be done yet. Knows nothing of what it is.

use crate::trouble::Trouble;
use lockwood_wire::Code;
use std::time::{Duration, Instant};

/// How long it is tried without getting any further.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long to wait before trying again.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// An attempt that took longer than this got somewhere: it stood in line.
const PROGRESS: Duration = Duration::from_secs(1);

pub(super) struct Patience {
    since: Instant,
    tried: Instant,
    pause: Duration,
}

impl Patience {
    pub(super) fn new() -> Patience {
        let now = Instant::now();
        Patience { since: now, tried: now, pause: PAUSE }
    }

    /// Waits a moment if it is worth trying again after this; otherwise that is the end of it.
    pub(super) async fn endure(&mut self, trouble: Trouble) -> Result<(), Trouble> {
        let trouble = match trouble.code {
            Code::WrongEpoch => {
                Trouble::new(Code::Moving, "what is asked for is on its way to another shard; try again")
            }
            Code::ShardUnreachable => trouble,
            _ => return Err(trouble),
        };
        if self.tried.elapsed() > PROGRESS {
            (self.since, self.pause) = (Instant::now(), PAUSE);
        }
        if self.since.elapsed() > PATIENCE {
            return Err(trouble);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.tried = Instant::now();
        Ok(())
    }
}
