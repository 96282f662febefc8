//! Measures leases: pairs beside etcd and PostgreSQL, what locks cost those who read and write, search and
//! join under them, and very many leases that end at once.
//!
//! Everything that is acknowledged has been synced, to the same disk; servers share the cores with their
//! clients. Knows nothing of how figures are printed.

mod enforcement;
mod expiry;
mod join;
mod pairs;
mod search;

use crate::stage::Part;

/// What can be measured by itself.
pub(crate) const PARTS: [Part; 5] = [
    ("pairs", pairs::measure),
    ("enforcement", enforcement::measure),
    ("search", search::measure),
    ("join", join::measure),
    ("expiry", expiry::measure),
];
