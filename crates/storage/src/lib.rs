//! What must survive a restart, on disk. Knows nothing of locks, sessions or sockets.

mod ledger;

pub use ledger::{ACTIONS_LEN_MAX, Action, Ledger, OpenError, Recovered, WriteError};
