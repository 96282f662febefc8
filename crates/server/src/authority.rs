//! Whether this process may speak for its shard right now. A single server always may; a node of a cluster may for as
//! long as its ownership is fresh. Knows nothing of how ownership is renewed.

use lockwood_cluster::monotonic;
use lockwood_router::ownership::Monotonic;
use std::sync::atomic::{AtomicU64, Ordering};

/// Asked before a grant is told and before an answer that claims to be current is sent. Written by the task that renews
/// the ownership.
#[derive(Debug)]
pub(crate) struct Authority {
    /// By the monotonic clock, in milliseconds; [`u64::MAX`] is for ever.
    fresh_until: AtomicU64,
    follows: bool,
}

impl Authority {
    /// That of a single server: for ever.
    pub(crate) fn sole() -> Authority {
        Authority { fresh_until: AtomicU64::new(u64::MAX), follows: false }
    }

    /// None yet.
    pub(crate) fn none() -> Authority {
        Authority { fresh_until: AtomicU64::new(0), follows: false }
    }

    /// None, ever: what is here is a copy of a shard that another node owns, and may be stale.
    pub(crate) fn follower() -> Authority {
        Authority { fresh_until: AtomicU64::new(0), follows: true }
    }

    /// Whether this is that of a copy, which knows nothing of locks.
    pub(crate) fn follows(&self) -> bool {
        self.follows
    }

    /// Whether no other process can have it.
    pub(crate) fn is_sole(&self) -> bool {
        self.fresh_until.load(Ordering::Acquire) == u64::MAX
    }

    pub(crate) fn is_fresh(&self) -> bool {
        match self.fresh_until.load(Ordering::Acquire) {
            u64::MAX => true,
            until => monotonic().0 < until,
        }
    }

    /// Fresh up to this moment, and no longer.
    pub(crate) fn set_fresh_until(&self, until: Option<Monotonic>) {
        let until = until.map_or(0, |until| until.0.min(u64::MAX - 1));
        self.fresh_until.store(until, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_server_is_always_fresh_and_an_owner_until_its_time() {
        assert!(Authority::sole().is_fresh());
        let authority = Authority::none();
        assert!(!authority.is_fresh());
        authority.set_fresh_until(Some(monotonic().after(60_000)));
        assert!(authority.is_fresh());
        authority.set_fresh_until(Some(monotonic()));
        assert!(!authority.is_fresh());
        authority.set_fresh_until(None);
        assert!(!authority.is_fresh());
    }
}
