//! The state: everything that can be asked, as a fold over the log. Knows nothing of who asks.

mod fold;
mod index;
mod keys;
mod moving;
mod past;
mod purge;
mod read;
mod rebuild;
mod record;

pub use fold::{Documents, Fold, Folded};
pub use index::{IndexInfo, IndexState};
pub use moving::Origin;
pub use purge::{Erasure, ErasureStep};
pub use read::{Answered, CommitAt, NamespaceId, See, State, Step};
pub use rebuild::{
    Difference, Unsaved, has_snapshot_before, rebuild, save_snapshot, save_snapshot_while, verify,
};
pub(crate) use rebuild::{LAST_PIECE, elsewhere, read_piece, snapshot_index};
pub use record::{DocumentRef, UndoFields, undo_fields};
