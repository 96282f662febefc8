//! The numbers a table gives out, to locks and to grants: each larger than all before. Knows nothing of either.

use lockwood_model::{LockId, Token};

/// What comes next: both numbers are larger than everything given out.
#[derive(Debug)]
pub(crate) struct Counters {
    first: u64,
    lock: u64,
    token: u64,
    /// How many locks got a number.
    locks_len: u64,
}

impl Counters {
    pub(crate) fn new(first: u64) -> Counters {
        Counters { first, lock: first, token: first, locks_len: 0 }
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
        self.lock += 1;
        self.locks_len += 1;
        lock
    }

    /// The number of the last lock was told to no client, and is given out again.
    pub(crate) fn untake_lock(&mut self) {
        self.lock -= 1;
        self.locks_len -= 1;
    }

    /// The next token; the one after it is larger, unless a test wants it otherwise.
    pub(crate) fn take_token(&mut self, repeat: bool) -> Token {
        let token = Token(self.token);
        if !repeat {
            self.token += 1;
        }
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow() {
        let mut counters = Counters::new(100);
        let mut last = 99;
        for _ in 0..3 {
            let (lock, token) = (counters.take_lock().0, counters.take_token(false).0);
            assert!(lock > last && token > last, "{lock} {token} {last}");
            last = lock.max(token);
            assert!(counters.next() > last);
        }
    }

    #[test]
    fn a_number_nobody_heard_of_is_given_out_again() {
        let mut counters = Counters::new(0);
        counters.take_lock();
        let second = counters.take_lock();
        counters.untake_lock();
        assert_eq!((counters.take_lock(), counters.locks_len()), (second, 2));
    }
}
