//! Sections that clients enter under locks, never two at once. Knows nothing of locks.

use crate::{harness::eventually, http::Reply, spread_world::StopAtEnd};
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// So often a request is sent again that reached no owner.
const ATTEMPTS_MAX: usize = 200;

#[derive(Default)]
pub(crate) struct Rooms {
    visitors: [AtomicUsize; 3],
    visits: AtomicUsize,
    pub(crate) closed: AtomicBool,
}

impl Rooms {
    pub(crate) fn visit(&self, kind: usize, work: impl FnOnce()) {
        assert_eq!(self.visitors[kind].fetch_add(1, Ordering::SeqCst), 0, "two have {kind}");
        work();
        self.visitors[kind].fetch_sub(1, Ordering::SeqCst);
        self.visits.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until there were a few more visits.
    pub(crate) fn go_on(&self) {
        let before = self.visits.load(Ordering::SeqCst);
        eventually("others go on", || self.visits.load(Ordering::SeqCst) > before + 6);
    }

    /// Has workers stop when what this gives goes, also if that is because the test panics.
    pub(crate) fn close_at_end(&self) -> StopAtEnd<'_> {
        StopAtEnd(&self.closed)
    }
}

/// Sends a request again as long as no owner answers it, as clients should.
pub(crate) fn insist(send: impl Fn() -> Reply) -> Reply {
    for _ in 0..ATTEMPTS_MAX {
        let reply = send();
        if reply.status != 503 {
            return reply;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("never answered");
}
