//! Time as data. Knows nothing of clocks: whoever has one passes the reading along.

/// Milliseconds since the Unix epoch, read from a clock that never runs backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// This moment plus `millis`, or the end of time if there is no such moment.
    pub fn after(self, millis: u64) -> Timestamp {
        Timestamp(self.0.saturating_add(millis))
    }

    /// Milliseconds from `earlier` to this moment; 0 if `earlier` is in fact later.
    pub fn since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// How long a request is willing to wait for its locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: now or never.
    Never,
    /// At most this many milliseconds.
    Millis(u64),
    /// Until it is granted, cancelled, or its owner is gone.
    Forever,
}

impl Wait {
    /// The moment the patience ends, if it ever does.
    pub fn deadline(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Wait::Never => Some(now),
            Wait::Millis(millis) => Some(now.after(millis)),
            Wait::Forever => None,
        }
    }
}
