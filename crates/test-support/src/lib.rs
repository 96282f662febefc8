//! What several crates' tests need: a PostgreSQL of their own, and a network that fails on command. Knows nothing of
//! Lockwood.

mod postgres;
mod proxy;

pub use postgres::Postgres;
pub use proxy::{Fault, Proxy};
