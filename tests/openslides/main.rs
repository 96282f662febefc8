//! The OpenSlides facade, end to end: the real binary, plain HTTP and a real Redis. Names of tests begin with
//! the group and number of the behaviour they show; knows nothing of how the facade does it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "../harness/mod.rs"]
mod harness;

mod http;
mod postgres;
mod redis;
mod store;

mod aggregate;
mod as_original;
mod bus;
mod filter;
mod get;
mod get_all;
mod get_many;
mod history;
mod import;
mod leases;
mod locks;
mod others;
mod reserve_ids;
mod schemas;
mod volatile;
mod write;
mod writers;
