//! The Locktopus facade, end to end: the real binary, its own client from npm, and raw frames.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "../harness/mod.rs"]
mod harness;

mod client;
mod raw;

mod abuse;
mod drain;
mod http;
mod limits;
mod npm;
mod protocol;
mod semantics;
mod settings;
mod shared_table;
