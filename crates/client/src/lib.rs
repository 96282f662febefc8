//! The Rust client: documents, sessions whose locks survive a lost connection, leases that outlive it, and the
//! plain HTTP interface.
//!
//! ```no_run
//! # async fn example() -> Result<(), lockwood_client::Error> {
//! use lockwood_client::{Mode, Options, Request, Session};
//!
//! let session = Session::open(Options { name: Some("importer".into()), ..Options::default() }).await?;
//! let request = Request::new().subtree("user/42".parse().expect("a path"), Mode::Write);
//! let lock = session.lock(request).await?;
//! tokio::select! {
//!     () = work_with(lock.token()) => lock.release().await?,
//!     loss = lock.lost() => eprintln!("stopped: {loss}"),
//! }
//! session.close().await?;
//! # Ok(())
//! # }
//! # async fn work_with(_: lockwood_client::Token) {}
//! ```

mod actor;
mod backup;
mod connection;
mod documents;
#[cfg(test)]
mod documents_test;
mod dump;
mod error;
mod feed;
mod http;
mod lease;
mod ledger;
mod lock;
mod nodes;
#[cfg(test)]
mod nodes_test;
mod schemas;
mod session;
mod shards;
mod sse;
pub mod text;
mod transport;

#[cfg(test)]
mod session_test;

pub use backup::Backup;
pub use documents::{Pages, PutIf, PutOptions, ReadOptions, Store};
pub use dump::Dump;
pub use error::{Error, Loss, Refusal};
pub use feed::{Feed, FeedStep, Subject};
pub use http::{Admin, ClusterChange, LockFilter};
pub use lease::{Lease, Leases, Terms};
pub use lock::Lock;
pub use lockwood_model::{
    AddressError, Depth, DocumentKey, FieldPath, Filter, Key, LockId, Mode, NodeAddress, Path, PathError,
    Position, Resource, Token, Wait,
};
pub use lockwood_wire::{
    Blocker, Code, LeaseAnswer, LeaseInfo, LeaseOutcome, LeaseRequest, LockInfo, ReleaseRequest,
    RenewRequest, documents as wire, shards as shard_wire,
};
pub use nodes::Nodes;
pub use schemas::Schemas;
pub use session::{Draining, Options, Queued, Request, Session, Step, Waiting};
pub use shards::{ShardMode, ShardOptions, Shards};
