//! PostgreSQL as the place of truth for several nodes: the log, the directory of nodes and shards, and a local cache of
//! each shard. Knows nothing of what nodes do with their shards, and decides nothing.
//!
//! ```text
//!   Ledger, LocalLog, Shard ──► Clustered ──► ShardLog ──► Link ──► PostgreSQL      one round trip per commit
//!                                   └───────► cache (Embedded), unsynced
//!   cluster ──────────────────► Directory ───────────────► Link
//! ```

mod address;
mod cache;
#[cfg(test)]
mod cache_test;
mod change;
mod directory;
mod durability;
mod filling;
mod follower;
mod homes;
mod link;
mod log;
mod note;
#[cfg(test)]
pub(crate) mod postgres_test;
mod schema;
mod shown;
mod store;
mod tenure;
mod tls;

pub use address::{Address, AddressError};
pub use cache::{CacheError, CacheOutcome, CacheReport, Discarded, LogShorterThanAcknowledged, open_cache};
pub use change::Change;
pub use directory::{Claimed, Directory, HomeRow, NodeRow, ShardRow};
pub use durability::DurabilityReport;
pub use follower::{Advanced, Follower};
pub use link::{CallError, Link};
pub use log::{Head, Hints, Record, ShardLog};
pub use schema::{SchemaError, ensure_schema};
pub use shown::Shown;
pub use store::Clustered;
pub use tenure::{ClaimIf, Renewal, Rows};
