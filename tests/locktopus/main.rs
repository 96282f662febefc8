//! The Locktopus facade, end to end: the real binary, its own client from npm, and raw frames.

#[path = "../harness/mod.rs"]
mod harness;
