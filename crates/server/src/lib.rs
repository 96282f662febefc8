//! The shell around lock tables and documents: listeners, sessions, interfaces, shards, metrics. Decides nothing
//! about locks or documents.

mod arriving;
mod authority;
mod body;
mod clock;
mod cluster;
mod clustered;
mod config;
mod elasticsearch;
mod feeds;
mod frame;
mod front;
#[cfg(test)]
mod fuzz;
mod gate;
mod grace;
mod guard;
mod handshake;
mod lease;
mod limits;
mod listener;
mod listeners;
mod listing;
mod locktopus;
mod memory;
mod metrics;
mod namespace;
mod native;
mod numbers;
mod openslides;
mod operator;
mod outgoing;
mod peer_stream;
mod purge;
mod registry;
mod restore;
mod runtime;
mod schema_registry;
mod schemas;
mod seat;
mod secret;
mod serve;
mod session;
mod shard;
mod shared;
mod socket;
mod trouble;
mod verify;
mod view;
mod work;

pub use clustered::NodeConfig;
pub use config::{Config, ElasticsearchConfig, LocktopusConfig, OpenslidesConfig, SchemaRegistryConfig};
pub use limits::{LimitSpec, Limits};
pub use restore::{RestoreError, Restored, Restoring, check_backup, restore_backup};
pub use serve::{Bound, LeftOut, ServeError, Stopped, run};
pub use verify::{Verified, VerifyError, verify};
