//! How long something is tried again that could not be done yet. Knows nothing of what it is.

use crate::trouble::Trouble;
use lockwood_model::Wait;
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
    /// How long it is tried while what is asked for moves.
    moving: Duration,
    /// How long it is tried while a node does not answer.
    away: Duration,
}

impl Patience {
    pub(super) fn new() -> Patience {
        let now = Instant::now();
        Patience { since: now, tried: now, pause: PAUSE, moving: PATIENCE, away: PATIENCE }
    }

    /// For something that has to be brought to an end.
    pub(super) fn endless() -> Patience {
        Patience { moving: Duration::MAX, away: Duration::MAX, ..Patience::new() }
    }

    /// For something that waits anyhow: it does not matter what for.
    pub(super) fn waiting(wait: Wait) -> Patience {
        let moving = match wait {
            Wait::Never => PATIENCE,
            Wait::Millis(millis) => PATIENCE.max(Duration::from_millis(millis)),
            Wait::Forever => Duration::MAX,
        };
        Patience { moving, ..Patience::new() }
    }

    /// Waits a moment if it is worth trying again after this; otherwise that is the end of it.
    pub(super) async fn endure(&mut self, trouble: Trouble) -> Result<(), Trouble> {
        let (trouble, patience) = match trouble.code {
            Code::WrongEpoch | Code::Moving => {
                let message = "what is asked for is on its way to another shard; try again";
                (Trouble::new(Code::Moving, message), self.moving)
            }
            Code::ShardUnreachable => (trouble, self.away),
            _ => return Err(trouble),
        };
        if self.tried.elapsed() > PROGRESS {
            (self.since, self.pause) = (Instant::now(), PAUSE);
        }
        if self.since.elapsed() > patience {
            return Err(trouble);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.tried = Instant::now();
        Ok(())
    }
}
