//! Numbers with a meaning. Knows nothing of who hands them out.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// Names one lock, granted or waiting, within its namespace. Never reused, not even across restarts.
    LockId
}

number! {
    /// Names whoever asks for locks: one session, one lease owner, one running request.
    OwnerId
}

number! {
    /// A fencing token: every grant in a namespace gets a larger one than all grants before it.
    Token
}
