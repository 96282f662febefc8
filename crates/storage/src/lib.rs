//! The log, the state built from it, and where both are kept. Knows nothing of locks, sessions or sockets, and
//! decides nothing.

mod acknowledged;
mod backup;
mod embedded;
mod entry;
mod grace;
mod journal;
mod lease;
mod ledger;
mod log;
mod memory;
mod moved;
mod overlay;
mod permissions;
pub mod postgres;
mod restoring;
mod seal;
mod state;
mod store;
#[cfg(test)]
mod suite;
mod tables;

pub use backup::{BackupError, BackupWriter, Head as BackupHead, check_backup, restore_backup};
pub use embedded::{Embedded, OpenError, is_there};
pub use entry::{Answer, Entry};
pub use grace::{GraceBook, GraceRecord};
pub use ledger::{ACTIONS_LEN_MAX, Action, Ledger, Recovered};
pub use log::{Appended, Claim, Epoch, LocalLog, Log};
pub use memory::{Failing, Failure, Forgetful, Memory};
pub use moved::{Moved, MovedAnswer, MovedStep};
pub use overlay::Overlay;
pub use permissions::restrict;
pub use restoring::{BeginError, Unfinished, check_restorable};
pub use state::{
    Answered, CommitAt, Difference, DocumentRef, Documents, Erasure, ErasureStep, Fold, Folded, IndexInfo,
    IndexState, NamespaceId, Origin, See, State, Step, UndoFields, Unsaved, has_snapshot_before, rebuild,
    save_snapshot, save_snapshot_while, undo_fields, verify,
};
pub use store::{
    Batch, Durability, Order, Pair, Range, Scrubbing, Slice, Snapshot, Space, Store, StoreError, with_prefix,
};
