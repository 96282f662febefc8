//! Nodes over one PostgreSQL, end to end: the real binary, a real database, real kills and pauses.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]
#![expect(
    clippy::needless_pass_by_value,
    reason = "`json!` borrows what it is given, and tests give it what they just made"
)]

#[path = "../harness/mod.rs"]
mod harness;
#[allow(dead_code, reason = "shared with other test binaries")]
#[path = "../native/http.rs"]
mod http;
#[allow(dead_code, reason = "shared with other test binaries")]
#[path = "../native/leaseholder.rs"]
mod leaseholder;
#[allow(dead_code, reason = "shared with other test binaries")]
#[path = "../native/peer.rs"]
mod peer;
#[allow(dead_code, reason = "shared with other test binaries")]
#[path = "../native/store.rs"]
mod store;

mod nodes;
mod spread_nodes;

mod database;
mod doors;
mod failover;
mod guide;
mod homes;
mod script;
mod spread_locks;
mod spread_routing;
mod spread_storm;
mod storm;
