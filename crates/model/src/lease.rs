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
    /// What it is a part of, if the rest is elsewhere, or if it is not settled yet that nothing is.
    pub part: Option<Box<LeasePart>>,
}

/// What a lease is a part of. All parts have the same number, and once they are settled the same token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasePart {
    /// What all parts cover together.
    pub whole: Vec<Resource>,
    /// Whether all parts are held and their owner may rely on it.
    pub settled: bool,
}

impl Lease {
    /// Whether its time is not over, whatever may have been done about it already.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| at > now)
    }

    /// What it covers together with its other parts.
    pub fn whole(&self) -> &[Resource] {
        self.part.as_ref().map_or(&self.resources, |part| &part.whole)
    }

    /// Whether its owner may rely on it: it is not one of several parts that are still being taken.
    pub fn is_settled(&self) -> bool {
        self.part.as_ref().is_none_or(|part| part.settled)
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
