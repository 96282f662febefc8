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
#[cfg(test)]
mod schema_test;
mod shown;
mod store;
mod tenure;
#[cfg(test)]
mod tenure_test;
mod tls;

pub use address::{Address, AddressError};
pub use cache::{CacheError, CacheOutcome, CacheReport, Discarded, LostRecords, open_cache};
pub use change::Change;
pub use directory::{Directory, HomeRow, NodeRow, ShardRow};
pub use durability::{DurabilityReport, Standby};
pub use follower::{Advanced, Follower};
pub use link::{CallError, Link};
pub use log::{Head, Hints, Record, ShardLog};
pub use schema::{SchemaError, ensure_schema};
pub use shown::Shown;
pub use store::Clustered;
pub use tenure::{ClaimIf, Claimant, Renewal, Rows, Tenure};
