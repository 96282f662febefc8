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
#[path = "../native/random.rs"]
mod random;
#[allow(dead_code, reason = "shared with other test binaries")]
#[path = "../native/store.rs"]
mod store;

mod cluster;
mod faults;
mod linear;
mod network;
mod nodes;
mod register_check;
mod register_clients;
mod register_lockers;
mod rooms;
mod shown;
mod spread_nodes;
mod spread_world;
mod storm_clients;

mod command_line;
mod conversions;
mod crash_points;
mod cut_links;
mod database;
mod database_failover;
mod deadlocks;
mod definitions;
mod direct;
mod doors;
mod facades;
mod failover;
mod followers;
mod guard_streams;
mod guide;
mod home_moves;
mod homes;
mod locks;
mod migration;
mod misfits;
mod moving_locks;
mod moving_waiters;
mod namespace_locks;
mod operating;
mod operations;
mod operations_locks;
mod peer_tls;
#[cfg_attr(not(feature = "planted"), expect(dead_code, reason = "nodes have no faults to be planted in"))]
mod planted;
mod planted_stage;
mod procedures;
mod refusals;
mod register_storm;
mod reshard;
mod restoring;
mod script;
mod seed;
mod sessions;
mod shards_guide;
mod silent_database;
mod snapshots;
mod spread_dump;
mod spread_faults;
mod spread_feed;
mod spread_locks;
mod spread_moving;
mod spread_placing;
mod spread_registry;
mod spread_searches;
mod spread_steady;
mod spread_storm;
mod storm;
mod strangers;
mod ten_machines;
