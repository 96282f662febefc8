//! Several nodes over one PostgreSQL: who owns which shard, and calls between nodes. Knows nothing of documents, locks
//! or interfaces; what serves a shard is a [`Host`].

mod answer;
mod database;
mod driver;
mod peers;
mod proof;
mod pulse;
mod tls;
mod topology;

pub use answer::Answer;
pub use database::{Database, DatabaseError, Placed};
pub use driver::{Doing, Driver, HINT, Host, Reports, hint};
pub use peers::{BEAT, Call, CallError, CallKind, Peers, now_ms};
pub use proof::{BodyDigest, Covered, INCARNATION, Incarnation, PROOF, ProofError, Prover};
pub use tls::{Encrypted, PeerTls, Refused, TLS_REQUIRED, TlsError, TlsFiles, requires_tls, speaks_tls};
pub use topology::Topology;
