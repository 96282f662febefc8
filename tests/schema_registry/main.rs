//! The Schema Registry facade, end to end: the real binary, plain HTTP, and Confluent's own client. Knows nothing of
//! how the facade does it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]
#![expect(
    clippy::needless_pass_by_value,
    reason = "`json!` borrows what it is given, and tests give it what they just made"
)]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../native/http.rs"]
mod http;

mod aliases;
mod client;
mod compatibility;
mod contexts;
mod guids;
mod media;
mod normalize;
mod purge;
mod references;
mod registry;
mod settings;
mod subjects;
mod versions;
