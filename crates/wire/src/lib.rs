//! The native protocol as types, and their conversions to and from the model. Knows nothing of sockets.

mod cluster;
mod code;
pub mod documents;
#[cfg(test)]
mod fuzz;
mod http;
mod lease;
mod resource;
mod schema;
mod session;
#[cfg(test)]
mod session_fuzz;
pub mod shards;

pub use cluster::{
    ClusterFollowerInfo, ClusterNodeInfo, ClusterShardInfo, ClusterStatus, ClusterTransitionInfo,
    DatabaseInfo, NamespaceHome, StandbyInfo,
};
pub use code::Code;
pub use http::{
    ABOUT_BYTES_HEADER, Blocker, CycleStep, GraceInfo, GraceList, Intents, Interface, LockInfo, LockList,
    LockState, NamespaceInfo, NamespaceList, NodeClaim, NodeInfo, OperatorAction, OperatorDeed, OperatorLog,
    Owner, Problem, Readiness, ServerStatus, Tree, WaitEdge, WaitGraph,
};
pub use lease::{
    LeaseAnswer, LeaseInfo, LeaseList, LeaseOutcome, LeaseRequest, ReleaseRequest, RenewRequest,
};
pub use resource::{ResourceError, WirePath, WireResource, WireWait};
pub use schema::{
    SchemaChange, SchemaCheck, SchemaDeleted, SchemaDiff, SchemaInfo, SchemaReason, SchemaRegistered,
    SchemaRequest, SettingsAnswer, SettingsRequest, SubjectInfo, SubjectList, VersionInfo, VersionList,
};
pub use session::{ClientMessage, DecodeError, HeldLock, Reclaim, ServerMessage};
