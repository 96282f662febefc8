//! The native interface, the client and the command line, end to end: the real binary, real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]
#![expect(
    clippy::needless_pass_by_value,
    reason = "`json!` borrows what it is given, and tests give it what they just made"
)]

#[path = "../harness/mod.rs"]
mod harness;

mod http;
mod leaseholder;
mod peer;
mod random;
mod store;

mod as_of;
mod backup;
mod budgets;
mod client;
mod command_line;
mod connection_loss;
mod crash;
mod damage;
mod data_directory;
mod depth;
mod document_crash;
mod document_limits;
mod documents;
mod documents_command_line;
mod drain;
mod dump;
mod elasticsearch_limits;
mod enforcement;
mod feed;
mod forced_release;
mod grace;
mod guard;
mod held_memory;
mod indexes;
mod internal_routes;
mod isolation;
mod join;
mod lease_crash;
mod lease_expiry;
mod lease_limits;
mod lease_matrix;
mod leases;
mod leases_command_line;
mod limits;
mod listeners;
mod listing;
mod lives;
mod logs;
mod messages;
mod metrics;
mod nested_fields;
mod nested_locks;
mod openapi;
mod paths;
mod paused_holder;
mod positions;
mod purge;
mod purge_model;
mod purge_others;
mod purge_storm;
mod raw_operations;
mod schema_command_line;
mod schemas;
mod schemas_and_locks;
mod session;
mod start;
mod versions;
