//! The numbers a table gives out, to locks and to grants: each larger than all before. Knows nothing of either.

use lockwood_model::{LockId, Token};

/// Which numbers a table gives out: all, or every so-manyth, so that no two tables ever give out the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    step: u64,
    offset: u64,
}

impl Series {
    /// All numbers.
    pub const ALL: Series = Series { step: 1, offset: 0 };

    /// The numbers that leave `offset` when they are divided by `step`.
    pub const fn new(step: u64, offset: u64) -> Series {
        assert!(offset < step, "a remainder is smaller than what is divided by");
        Series { step, offset }
    }

    /// How far apart they are.
    pub fn step(self) -> u64 {
        self.step
    }

    /// The first of them that is not below `number`.
    pub fn at_least(self, number: u64) -> u64 {
        number + (self.offset + self.step - number % self.step) % self.step
    }
}

/// What comes next.
///
/// Both numbers are always of the series, and larger than everything given out or [heard of](Counters::raise).
#[derive(Debug)]
pub(crate) struct Counters {
    series: Series,
    first: u64,
    lock: u64,
    token: u64,
    /// How many locks got a number.
    locks_len: u64,
}

impl Counters {
    pub(crate) fn new(first: u64, series: Series) -> Counters {
        let first = series.at_least(first);
        Counters { series, first, lock: first, token: first, locks_len: 0 }
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Larger than everything given out.
    pub(crate) fn next(&self) -> u64 {
        self.lock.max(self.token)
    }

    pub(crate) fn locks_len(&self) -> u64 {
        self.locks_len
    }

    pub(crate) fn take_lock(&mut self) -> LockId {
        let lock = LockId(self.lock);
        self.lock += self.series.step;
        self.locks_len += 1;
        lock
    }

    /// Nobody has heard of the last lock.
    pub(crate) fn untake_lock(&mut self) {
        self.lock -= self.series.step;
        self.locks_len -= 1;
    }

    /// The next token; the one after it is larger, unless a test wants it otherwise.
    pub(crate) fn take_token(&mut self, repeat: bool) -> Token {
        let token = Token(self.token);
        if !repeat {
            self.token += self.series.step;
        }
        token
    }

    /// Everything given out from now on is larger than `number`.
    pub(crate) fn raise(&mut self, number: u64) {
        let next = self.series.at_least(number + 1);
        self.lock = self.lock.max(next);
        self.token = self.token.max(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_of_the_series_and_grow() {
        for (step, offset) in [(1, 0), (7, 0), (7, 6), (1024, 3)] {
            let series = Series::new(step, offset);
            let mut counters = Counters::new(100, series);
            let mut last = 99;
            for raised in [0, 50, 100, 2000, 2047, 2048, 5000] {
                counters.raise(raised);
                let (lock, token) = (counters.take_lock().0, counters.take_token(false).0);
                assert!(
                    lock > last && token > last && lock > raised && token > raised,
                    "{series:?} {raised}"
                );
                assert_eq!((lock % step, token % step), (offset, offset));
                last = lock.max(token);
                assert!(counters.next() > last);
            }
        }
    }

    #[test]
    fn a_number_nobody_heard_of_is_given_out_again() {
        let mut counters = Counters::new(0, Series::new(10, 3));
        counters.take_lock();
        let second = counters.take_lock();
        counters.untake_lock();
        assert_eq!((counters.take_lock(), counters.locks_len()), (second, 2));
    }
}
