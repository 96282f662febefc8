//! Whether this process may speak for its shard right now. A single server always may; a node of a cluster may for as
//! long as its ownership is fresh. Knows nothing of how ownership is renewed.

use lockwood_cluster::monotonic;
use lockwood_router::ownership::Monotonic;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Asked before a grant is told and before an answer that claims to be current is sent. Written by the task that renews
/// the ownership.
#[derive(Debug)]
pub(crate) struct Authority {
    /// By the monotonic clock, in milliseconds; [`u64::MAX`] is for ever.
    fresh_until: AtomicU64,
    /// For how many milliseconds it was not fresh before `fresh_until` was set, which is done under this mutex.
    stale_ms: Mutex<u64>,
    follows: bool,
}

impl Authority {
    /// That of a single server: for ever.
    pub(crate) fn sole() -> Authority {
        Authority::until(u64::MAX, false)
    }

    /// None yet.
    pub(crate) fn none() -> Authority {
        Authority::until(0, false)
    }

    /// None, ever: what is here is a copy of a shard that another node owns, and may be stale.
    pub(crate) fn follower() -> Authority {
        Authority::until(0, true)
    }

    fn until(fresh_until: u64, follows: bool) -> Authority {
        Authority { fresh_until: AtomicU64::new(fresh_until), stale_ms: Mutex::new(0), follows }
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
        let mut stale_ms = self.stale_ms.lock();
        let (before, now) = (self.fresh_until.load(Ordering::Acquire), monotonic().0);
        if 0 < until && until <= now && before < now {
            // It is as stale as it was.
            return;
        }
        *stale_ms += stale_since(before, now);
        self.fresh_until.store(until, Ordering::Release);
    }

    /// For how long it was not fresh, and is not, since it was for the first time, in milliseconds: holders of locks could
    /// not renew meanwhile.
    pub(crate) fn stale_ms(&self) -> u64 {
        let stale_ms = self.stale_ms.lock();
        *stale_ms + stale_since(self.fresh_until.load(Ordering::Acquire), monotonic().0)
    }
}

/// For how long an ownership is not fresh that was until a moment; none of the time if it never was.
fn stale_since(until: u64, now: u64) -> u64 {
    if until == 0 { 0 } else { now.saturating_sub(until) }
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

    #[test]
    fn the_time_without_a_fresh_ownership_is_counted() {
        let authority = Authority::none();
        let ended = monotonic();
        authority.set_fresh_until(Some(ended.after(1)));
        assert_eq!(authority.stale_ms(), 0, "no clock has run before");
        while monotonic().0 < ended.0 + 20 {
            std::thread::yield_now();
        }
        assert!(authority.stale_ms() >= 19 && !authority.is_fresh());
        // A renewal that was too slow changes nothing.
        authority.set_fresh_until(Some(ended.after(10)));
        assert!(authority.stale_ms() >= 19 && !authority.is_fresh());
        authority.set_fresh_until(Some(monotonic().after(60_000)));
        let counted = authority.stale_ms();
        assert!(counted >= 19 && authority.is_fresh());
        authority.set_fresh_until(Some(monotonic().after(70_000)));
        assert_eq!(authority.stale_ms(), counted);
        assert_eq!(Authority::sole().stale_ms(), 0);
    }
}
