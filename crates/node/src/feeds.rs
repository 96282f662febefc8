//! How many follow the changes, and how they learn that the server stops. Knows nothing of what they are told.

use crate::{kernel::Kernel, trouble::Trouble};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::watch;

/// All change feeds of a server.
#[derive(Debug, Default)]
pub struct Feeds {
    open: AtomicU64,
    closing: watch::Sender<bool>,
}

/// One change feed, for as long as this lives.
pub struct Follower {
    kernel: Arc<Kernel>,
    /// Becomes true when the feed has to end.
    pub closing: watch::Receiver<bool>,
}

impl Feeds {
    /// How many feeds are open.
    pub fn open_len(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    /// Ends all of them.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }
}

impl Follower {
    /// Makes room for one more.
    pub fn enter(kernel: &Arc<Kernel>) -> Result<Follower, Trouble> {
        let limit = kernel.config.limits.feeds_max;
        let before = kernel.feeds.open.fetch_add(1, Ordering::AcqRel);
        let closing = kernel.feeds.closing.subscribe();
        let follower = Follower { kernel: Arc::clone(kernel), closing };
        if before >= limit {
            return Err(Trouble::too_many("feeds_max", limit, "there are too many change feeds"));
        }
        if *follower.closing.borrow() {
            return Err(Trouble::draining());
        }
        Ok(follower)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.kernel.feeds.open.fetch_sub(1, Ordering::AcqRel);
    }
}
