//! The shell around a node: listeners, connections, interfaces, and the requests of a cluster. Decides nothing about locks
//! or documents.

mod arriving;
mod body;
mod cluster;
mod clustered;
mod config;
mod elasticsearch;
mod frame;
mod front;
#[cfg(test)]
mod fuzz;
mod guard;
mod handshake;
mod listener;
mod listeners;
mod locktopus;
mod memory;
mod native;
mod openslides;
mod outgoing;
mod peer_stream;
mod restore;
mod runtime;
mod schema_registry;
mod serve;
mod shared;
mod socket;
mod stream;
mod verify;

pub use clustered::NodeConfig;
pub use config::{Config, ElasticsearchConfig, LocktopusConfig, OpenslidesConfig, SchemaRegistryConfig};
pub use lockwood_cluster::TlsFiles;
pub use lockwood_node::limits::{LimitSpec, Limits};
pub use restore::{RestoreError, Restored, Restoring, check_backup, restore_backup};
pub use serve::{Bound, LeftOut, ServeError, Stopped, run};
pub use verify::{Verified, VerifyError, verify};
