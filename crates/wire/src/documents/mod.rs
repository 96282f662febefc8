//! The bodies of the document interface, and their conversions to and from the model. Knows nothing of routes
//! or of how documents are kept.
//!
//! Requests refuse members they do not know, because a misspelt one must not be overlooked. Answers do not, so
//! that an older client can read what a newer server says.

mod body;
#[cfg(test)]
mod body_fuzz;
mod dump;
mod feed;
mod filter;
mod key;
mod purge;
mod query;
mod value;
mod write;

pub(crate) use body::in_words;
pub use body::{BodyError, read_body};
pub use dump::{DumpCommit, DumpDocument, DumpEvent, DumpHead, DumpLine};
pub use feed::{
    ChangeKind, Changes, Collections, CommitEvent, FieldDiff, History, HistoryEntry, IndexInfo, IndexState,
    Indexes, LoadAnswer, PositionAnswer, ReserveRequest, Reserved, TrimAnswer, TrimRequest, WireCommit,
};
pub use filter::{FilterLimits, WireFilter, read_field};
pub use key::WireKey;
pub use purge::{PurgeAnswer, PurgeInfo, PurgeList, PurgeRequest, PurgeStep, PurgedInfo};
pub use query::{
    CountAnswer, CountRequest, Deleted, DocumentAnswer, DocumentInfo, DocumentPage, Documents, ExistsAnswer,
    ExtremeRequest, FilterRequest, GetRequest, Isolation, JoinKind, JoinPage, JoinRequest, JoinRow, JoinSide,
    MaxAnswer, MinAnswer, NodeAnswer, NodeInfo, Sort, Wanted,
};
pub use value::{Fields, Named, WireValue};
pub use write::{BrokenLock, LockTarget, WireEvent, WireLock, WriteCall, WriteRequest, Written};
