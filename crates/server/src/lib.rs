//! The shell around the lock tables: listeners, sessions, interfaces, metrics. Decides nothing about locks.

mod clock;
mod config;
mod feeds;
mod frame;
mod grace;
mod handshake;
mod limits;
mod listener;
mod locktopus;
mod metrics;
mod namespace;
mod native;
mod numbers;
mod registry;
mod seat;
mod secret;
mod serve;
mod session;
mod shard;
mod shared;
mod socket;
mod trouble;
mod view;

pub use config::{Config, LocktopusConfig};
pub use limits::{LimitSpec, Limits};
pub use serve::{Bound, ServeError, Stopped, run};
