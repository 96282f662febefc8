//! Random messages for tests: good ones, bent and broken. Knows nothing of what is done with them.

/// Splices would let messages grow for ever.
const MESSAGE_BYTES_MAX: usize = 4096;

/// Tells how to see a failure again, when there is one.
pub(crate) struct Case<'a> {
    pub(crate) seed: u64,
    pub(crate) count: u64,
    pub(crate) index: u64,
    pub(crate) bytes: &'a [u8],
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "LOCKWOOD_FUZZ_SEED={} LOCKWOOD_FUZZ_COUNT={}, message {}: {}",
                self.seed,
                self.count,
                self.index,
                self.bytes.escape_ascii()
            );
        }
    }
}

/// A setting from the environment.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a whole number"))
}

/// SplitMix64: the same numbers for the same seed, everywhere.
pub(crate) struct Random {
    state: u64,
    /// Messages to start from.
    corpus: &'static [&'static str],
    /// Pieces that are likely to make a difference where they are put.
    pieces: &'static [&'static [u8]],
}

impl Random {
    pub(crate) fn new(
        seed: u64,
        corpus: &'static [&'static str],
        pieces: &'static [&'static [u8]],
    ) -> Random {
        Random { state: seed, corpus, pieces }
    }

    pub(crate) fn message(&mut self) -> Vec<u8> {
        let mut bytes = self.pick(self.corpus).as_bytes().to_vec();
        for _ in 0..self.below(5) {
            self.bend(&mut bytes);
        }
        bytes.truncate(MESSAGE_BYTES_MAX);
        bytes
    }

    fn bend(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        match self.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            1 if at < bytes.len() => bytes[at] = self.next() as u8,
            2 => bytes.truncate(at),
            3 => {
                let end = at + self.below(bytes.len() - at + 1);
                bytes.drain(at..end);
            }
            4 => {
                let end = at + self.below(bytes.len() - at + 1);
                let repeated = bytes[at..end].repeat(1 + self.below(4));
                bytes.splice(at..at, repeated);
            }
            5 => {
                let other = self.pick(self.corpus).as_bytes();
                let start = self.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend(&other[start..]);
            }
            _ => {
                let piece = self.pick(self.pieces);
                bytes.splice(at..at, piece.iter().copied());
            }
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
