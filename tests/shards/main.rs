//! Several nodes as one store, end to end: the real binary, real sockets, real kills.

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
#[path = "../native/leaseholder.rs"]
mod leaseholder;
#[allow(dead_code, reason = "shared with other test binaries")]
#[path = "../native/peer.rs"]
mod peer;
#[allow(dead_code, reason = "shared with other test binaries")]
#[path = "../native/store.rs"]
mod store;

mod cluster;
mod linear;
mod random;
mod storm_check;
mod storm_clients;

mod command_line;
mod conversions;
mod crash_points;
mod deadlocks;
mod guide;
mod locks;
mod moving_locks;
mod moving_waiters;
mod operations;
mod operations_hosts;
mod operations_locks;
mod procedures;
mod procedures_hosts;
mod refusals;
mod refusals_hosts;
mod replicas;
mod reshard;
mod retries;
mod routing;
mod seed;
mod seed_hosts;
mod sessions;
mod spread_dump;
mod spread_feed;
mod spread_locks;
mod spread_moving;
mod spread_registry;
mod spread_searches;
mod spread_steady;
mod spread_storm;
mod spread_world;
mod storm;
