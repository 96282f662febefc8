//! One process's share of the store: shards with their documents, namespaces with their lock tables, sessions and leases,
//! the gate where documents meet locks, and the schemas in force. Knows nothing of protocols, nor of clusters: what it has
//! to know of other shards it asks a [`territory::Territory`].

pub mod authority;
pub mod clock;
pub mod feeds;
pub mod gate;
pub mod grace;
pub mod guards;
pub mod kernel;
pub mod lease;
pub mod limits;
pub mod listing;
pub mod metrics;
pub mod namespace;
pub mod numbers;
pub mod operator;
pub mod procedures;
pub mod purge;
pub mod refusals;
pub mod registry;
pub mod schemas;
pub mod seat;
pub mod secret;
pub mod session;
pub mod shard;
pub mod territory;
pub mod trouble;
pub mod view;
pub mod work;
