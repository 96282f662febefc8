//! Measures nodes over one PostgreSQL: how long a takeover and a handoff take, writes over its log beside its own, what a hop
//! costs, leases beside etcd, calls between nodes, and how fast documents move from one to another. Knows nothing of how
//! figures are printed.

mod calls;
mod hop;
mod pairs;
mod takeover;
mod writes;

use crate::{shards, stage::Part};

/// What can be measured by itself.
pub(crate) const PARTS: [Part; 6] = [
    ("takeover", takeover::measure),
    ("writes", writes::measure),
    ("hop", hop::measure),
    ("pairs", pairs::measure),
    ("calls", calls::measure),
    ("moving", shards::moving),
];
