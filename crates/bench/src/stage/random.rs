//! Numbers that look random and are the same in every run. Knows nothing of what they are for.

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(client: usize) -> Random {
        Random(0x9e37_79b9_7f4a_7c15 ^ (client as u64 + 1))
    }

    /// From 1 to `last`.
    pub(crate) fn up_to(&mut self, last: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        1 + self.0 % last
    }
}
