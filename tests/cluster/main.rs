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

mod cluster;
mod nodes;
mod spread_nodes;

mod database;
mod doors;
mod failover;
mod followers;
mod guide;
mod homes;
mod lock_storm;
mod namespace_locks;
mod operating;
mod script;
mod spread_faults;
mod spread_placing;
mod storm;

// What users see of the older cluster, of this one.
#[path = "../shards/operations.rs"]
mod operations;
#[path = "../shards/operations_locks.rs"]
mod operations_locks;
#[path = "../shards/procedures.rs"]
mod procedures;
#[path = "../shards/refusals.rs"]
mod refusals;
#[path = "../shards/reshard.rs"]
mod reshard;
#[path = "../shards/retries.rs"]
mod retries;
#[path = "../shards/routing.rs"]
mod routing;
#[path = "../shards/seed.rs"]
mod seed;
#[path = "../shards/spread_dump.rs"]
mod spread_dump;
#[path = "../shards/spread_feed.rs"]
mod spread_feed;
#[path = "../shards/spread_locks.rs"]
mod spread_locks;
#[path = "../shards/spread_moving.rs"]
mod spread_moving;
#[path = "../shards/spread_registry.rs"]
mod spread_registry;
#[path = "../shards/spread_searches.rs"]
mod spread_searches;
#[path = "../shards/spread_steady.rs"]
mod spread_steady;
#[path = "../shards/spread_storm.rs"]
mod spread_storm;
#[path = "../shards/spread_world.rs"]
mod spread_world;
