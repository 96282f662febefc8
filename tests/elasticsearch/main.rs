//! The Elasticsearch facade, end to end: the real binary, plain HTTP, and the official clients for Python as they
//! are. Knows nothing of how the facade does it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]
#![expect(
    clippy::needless_pass_by_value,
    reason = "`json!` borrows what it is given, and tests give it what they just made"
)]

#[path = "../harness/mod.rs"]
mod harness;

mod cluster;

mod bulk;
mod clients;
mod delete_by_query;
mod documents;
mod flows;
mod http;
mod others;
mod overview;
mod purge;
mod scripts;
mod search;
mod seed;
mod several;
