//! What several crates' tests need: a PostgreSQL of their own, certificates, and a network that fails on command. Knows nothing of
//! Lockwood.

mod certificates;
mod postgres;
mod proxy;

pub use certificates::{Authority, Issued};
pub use postgres::Postgres;
pub use proxy::{Fault, Proxy};
