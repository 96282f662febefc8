//! Measures shards of a cluster over PostgreSQL: what a hop costs, a search over several shards, and how fast documents move,
//! idle and under writers; beside Tarantool for one shard. Knows nothing of how figures are printed.

mod moving;
mod routing;
mod search;

pub(crate) use moving::measure as moving;

use crate::stage::Part;

/// What can be measured by itself.
pub(crate) const PARTS: [Part; 3] =
    [("routing", routing::measure), ("search", search::measure), ("moving", moving::measure)];
