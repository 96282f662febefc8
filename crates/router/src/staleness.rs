//! How stale a follower's copy of a shard may be, and whether it may answer a read. Knows nothing of records, requests or
//! clocks: time is an argument.
//!
//! A copy is compared with the log by one call to the database. The log may grow while the answer is on its way, so the copy
//! is known to have everything that was in the log when the call was *sent*, and nothing more. From then on its lag grows,
//! by the clock of this process, until the next call is answered.

use crate::{
    ownership::Monotonic,
    planted::{Fault, is_planted},
};

/// What a follower knows of its copy of a shard.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Staleness {
    /// The copy has everything that was in the log at this moment.
    as_of: Option<Monotonic>,
}

impl Staleness {
    /// A call that was sent at `sent` was answered at `now`, and the copy has everything that it found.
    pub fn compared(&mut self, sent: Monotonic, now: Monotonic) {
        let as_of = if is_planted(Fault::LagFromAnswer) { now } else { sent };
        self.as_of = self.as_of.max(Some(as_of));
    }

    /// The copy is given up; what comes in its place is compared anew.
    pub fn reset(&mut self) {
        self.as_of = None;
    }

    /// So much may be missing in the copy; none if it was never compared.
    pub fn lag_ms(self, now: Monotonic) -> Option<u64> {
        self.as_of.map(|as_of| now.since(as_of))
    }

    /// The lag, if a read may be answered by the copy: it has said how much it tolerates, and the lag is no more. A read that
    /// says nothing wants what the owner knows.
    pub fn answers(self, max_lag_ms: Option<u64>, now: Monotonic) -> Option<u64> {
        let lag_ms = self.lag_ms(now)?;
        let tolerated = match max_lag_ms {
            None => is_planted(Fault::FollowerForOwner),
            Some(max_lag_ms) => lag_ms <= max_lag_ms,
        };
        tolerated.then_some(lag_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted::plant;

    /// A log that grows by one record at a time, and a follower that asks now and then.
    struct World {
        random: u64,
        now: u64,
        /// When each record was committed, in order.
        commits: Vec<u64>,
        /// How many of them the copy has.
        copied: usize,
        /// When the call under way was sent and is answered, and how many records it found.
        call: Option<(u64, u64, usize)>,
        known: Staleness,
    }

    impl World {
        fn below(&mut self, limit: u64) -> u64 {
            // SplitMix64.
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.random;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) % limit
        }

        fn step(&mut self) {
            self.now += 1;
            if self.below(4) == 0 {
                self.commits.push(self.now);
            }
            let (looks, asks) = (self.below(3) == 0, self.below(5) == 0);
            match self.call {
                Some((sent, answered, found)) if answered <= self.now => {
                    self.copied = found;
                    self.known.compared(Monotonic(sent), Monotonic(self.now));
                    self.call = None;
                }
                Some((sent, answered, found)) if found < self.commits.len() && looks => {
                    // The database has not looked yet.
                    self.call = Some((sent, answered, self.commits.len()));
                }
                Some(_) => {}
                None if asks => {
                    let answered = self.now + 1 + self.below(40);
                    self.call = Some((self.now, answered, self.commits.len()));
                }
                None => {}
            }
        }

        /// What is wrong with a read that is made now, if anything is.
        fn read(&mut self) -> Option<String> {
            let max_lag_ms = match self.below(3) {
                0 => None,
                _ => Some(self.below(60)),
            };
            let lag_ms = self.known.answers(max_lag_ms, Monotonic(self.now))?;
            let must_have = |age: u64| self.commits.iter().filter(|at| **at + age < self.now).count();
            let tolerated = max_lag_ms.unwrap_or(0);
            (self.copied < must_have(tolerated) || self.copied < must_have(lag_ms))
                .then(|| format!("{max_lag_ms:?} at {}: {} of {:?}", self.now, self.copied, self.commits))
        }
    }

    fn violation() -> Option<String> {
        for random in 0..200 {
            let known = Staleness::default();
            let mut world = World { random, now: 0, commits: Vec::new(), copied: 0, call: None, known };
            for _ in 0..300 {
                world.step();
                if let Some(found) = world.read() {
                    return Some(format!("seed {random}: {found}"));
                }
            }
        }
        None
    }

    #[test]
    fn a_read_misses_nothing_older_than_it_tolerates() {
        assert_eq!(violation(), None);
    }

    #[test]
    fn planted_faults_are_noticed() {
        for fault in [Fault::LagFromAnswer, Fault::FollowerForOwner] {
            plant(Some(fault));
            let found = violation();
            plant(None);
            assert!(found.is_some(), "{fault:?} is not noticed");
        }
    }

    #[test]
    fn a_copy_that_was_never_compared_answers_nothing() {
        let mut known = Staleness::default();
        assert_eq!(known.answers(Some(u64::MAX), Monotonic(5)), None);
        known.compared(Monotonic(5), Monotonic(7));
        assert_eq!(known.answers(Some(3), Monotonic(8)), Some(3));
        assert_eq!(known.answers(Some(2), Monotonic(8)), None);
        assert_eq!(known.answers(None, Monotonic(5)), None);
        // A late answer to an earlier call makes it no older.
        known.compared(Monotonic(2), Monotonic(9));
        assert_eq!(known.lag_ms(Monotonic(9)), Some(4));
        known.reset();
        assert_eq!(known.lag_ms(Monotonic(9)), None);
    }
}
