//! Measures nodes over one PostgreSQL: how long a takeover and a handoff take, writes over its log beside its own, and what
//! a hop costs. Knows nothing of how figures are printed.

mod hop;
mod takeover;
mod writes;

use crate::stage::Part;

/// What can be measured by itself.
pub(crate) const PARTS: [Part; 3] =
    [("takeover", takeover::measure), ("writes", writes::measure), ("hop", hop::measure)];
