//! What all listeners of a process share, whichever shards it serves: the settings, its connections, the account of the
//! memory that clients make it hold, and counts. Knows nothing of locks or documents.

use crate::{config::Config, memory::Account};
use lockwood_node::metrics::Metrics;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64},
};

pub(crate) struct Front {
    pub(crate) config: Config,
    pub(crate) memory: Arc<Account>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) connections: AtomicU64,
    /// There is one connection: no other client is kept waiting by the thread that serves it.
    pub(crate) has_one_caller: Arc<AtomicBool>,
}

impl Front {
    pub(crate) fn new(config: Config) -> Arc<Front> {
        Arc::new(Front {
            memory: Account::new(config.limits.held_bytes_max),
            config,
            metrics: Arc::default(),
            connections: AtomicU64::new(0),
            has_one_caller: Arc::default(),
        })
    }
}
