//! Several nodes over one PostgreSQL: who owns which shard, and calls between nodes. Knows nothing of documents, locks
//! or interfaces; what serves a shard is a [`Host`].

mod clock;
mod database;
mod driver;
mod peers;
mod proof;
mod topology;

pub use clock::monotonic;
pub use database::{Database, DatabaseError, Placed};
pub use driver::{Doing, Driver, HINT, Host, Reports};
pub use peers::{Answer, Call, CallError, CallKind, Peers, now_ms};
pub use proof::{BodyDigest, Covered, INCARNATION, Incarnation, PROOF, ProofError, Prover};
pub use topology::Topology;
