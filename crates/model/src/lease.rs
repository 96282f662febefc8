//! A lock with a named owner that outlives connections and restarts. Knows nothing of the table it is in.

use crate::{Json, LockId, Resource, Timestamp, Token};

/// A lease as it is on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Which lock of its namespace.
    pub lock: LockId,
    /// The token of its grant.
    pub token: Token,
    /// Who has it, in the owner's own words.
    pub owner: Box<str>,
    /// Through which interface it was taken.
    pub via: LeaseVia,
    /// What it covers.
    pub resources: Vec<Resource>,
    /// When it was granted.
    pub granted_at: Timestamp,
    /// When it ends; none if it does not end by itself.
    pub expires_at: Option<Timestamp>,
    /// How long it lasts from its grant or its last renewal; none if it does not end by itself, or if that is not known.
    pub ttl_ms: Option<u64>,
    /// What its owner wrote on it.
    pub note: Option<Json>,
    /// Counts what its owner did to it, from 1.
    pub version: u64,
}

impl Lease {
    /// Whether its time is not over, whatever may have been done about it already.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| at > now)
    }
}

/// Through which interface a lease was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseVia {
    /// The native one.
    Native,
    /// The Elasticsearch facade: its lock documents.
    Elasticsearch,
}

impl LeaseVia {
    /// As listings show it.
    pub fn as_str(self) -> &'static str {
        match self {
            LeaseVia::Native => "lease",
            LeaseVia::Elasticsearch => "elasticsearch",
        }
    }
}
