//! Whether this process may speak for its shard right now. A single server always may; a node of a cluster may for as
//! long as its ownership is fresh. Knows nothing of how ownership is renewed.

use crate::clock::monotonic;
use lockwood_router::ownership::Monotonic;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Asked before a grant is told and before an answer that claims to be current is sent. Written by the task that renews
/// the ownership.
#[derive(Debug)]
pub struct Authority {
    /// By the monotonic clock, in milliseconds; [`u64::MAX`] is for ever.
    fresh_until: AtomicU64,
    /// Changes together with `fresh_until`.
    stale: Mutex<Stale>,
    follows: bool,
}

/// For how long an ownership was not fresh.
#[derive(Debug)]
struct Stale {
    /// In periods that are over.
    counted_ms: u64,
    /// When the current period began, or is going to begin.
    from: u64,
}

impl Authority {
    /// That of a single server: for ever.
    pub fn sole() -> Authority {
        Authority::new(u64::MAX, u64::MAX, false)
    }

    /// None yet.
    pub fn none() -> Authority {
        Authority::new(0, monotonic().0, false)
    }

    /// None, ever: what is here is a copy of a shard that another node owns, and may be stale.
    pub fn follower() -> Authority {
        Authority::new(0, u64::MAX, true)
    }

    fn new(fresh_until: u64, stale_from: u64, follows: bool) -> Authority {
        let stale = Stale { counted_ms: 0, from: stale_from };
        Authority { fresh_until: AtomicU64::new(fresh_until), stale: Mutex::new(stale), follows }
    }

    /// Whether this is that of a copy, which knows nothing of locks.
    pub fn follows(&self) -> bool {
        self.follows
    }

    /// Whether no other process can have it.
    pub fn is_sole(&self) -> bool {
        self.fresh_until.load(Ordering::Acquire) == u64::MAX
    }

    /// Whether the ownership is fresh now.
    pub fn is_fresh(&self) -> bool {
        match self.fresh_until.load(Ordering::Acquire) {
            u64::MAX => true,
            until => monotonic().0 < until,
        }
    }

    /// Fresh up to this moment, and no longer.
    pub fn set_fresh_until(&self, until: Option<Monotonic>) {
        let mut stale = self.stale.lock();
        let (before, now) = (self.fresh_until.load(Ordering::Acquire), monotonic().0);
        let until = until.map_or(0, |until| until.0.min(u64::MAX - 1));
        match until {
            // It may have become stale earlier.
            0 => stale.from = stale.from.min(now),
            // It is as stale as it was.
            until if until <= now && before < now => return,
            until => {
                stale.counted_ms += now.saturating_sub(stale.from);
                stale.from = until;
            }
        }
        self.fresh_until.store(until, Ordering::Release);
    }

    /// For how long it was not fresh, and is not, in milliseconds: holders of locks could not renew meanwhile.
    pub(crate) fn stale_ms(&self) -> u64 {
        let stale = self.stale.lock();
        stale.counted_ms + monotonic().0.saturating_sub(stale.from)
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

    /// Waits until the monotonic clock is past a moment.
    fn pass(until: Monotonic) {
        while monotonic() <= until {
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_time_without_a_fresh_ownership_is_counted() {
        let begun = monotonic();
        let authority = Authority::none();
        pass(begun.after(10));
        assert!(authority.stale_ms() >= 10, "leases are restored before the first renewal");
        authority.set_fresh_until(Some(monotonic().after(60_000)));
        let (opened, ended) = (authority.stale_ms(), monotonic());
        authority.set_fresh_until(Some(ended.after(1)));
        pass(ended.after(20));
        assert!(authority.stale_ms() >= opened + 19 && !authority.is_fresh());
        // A renewal that was too slow changes nothing.
        authority.set_fresh_until(Some(ended.after(10)));
        assert!(authority.stale_ms() >= opened + 19 && !authority.is_fresh());
        authority.set_fresh_until(Some(monotonic().after(60_000)));
        let counted = authority.stale_ms();
        assert!(counted >= opened + 19 && authority.is_fresh());
        authority.set_fresh_until(Some(monotonic().after(70_000)));
        assert_eq!(authority.stale_ms(), counted);
        assert_eq!((Authority::sole().stale_ms(), Authority::follower().stale_ms()), (0, 0));
    }

    #[test]
    fn the_time_of_a_suspended_ownership_is_counted_however_often_that_is_noticed() {
        let authority = Authority::none();
        authority.set_fresh_until(Some(monotonic().after(60_000)));
        let before = authority.stale_ms();
        let suspended = monotonic();
        for waited_ms in [10, 20, 30] {
            authority.set_fresh_until(None);
            pass(suspended.after(waited_ms));
            assert!(authority.stale_ms() >= before + waited_ms);
        }
        authority.set_fresh_until(Some(monotonic().after(60_000)));
        let counted = authority.stale_ms();
        assert!(counted >= before + 30);
        assert_eq!(authority.stale_ms(), counted);
    }
}
