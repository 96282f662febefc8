//! JSON Schema documents: what they allow, which names they know, how two of them differ. Knows nothing of
//! the store, of collections or of who registers a schema.

mod compat;
mod cost;
mod diff;
mod draft;
mod failure;
mod fields;
mod guid;
mod json_path;
mod nearest;
mod node;
mod pattern;
mod places;
mod references;
mod schema;
mod spelling;
mod survey;
mod types;

#[cfg(test)]
mod fuzz_test;
#[cfg(test)]
mod random;
#[cfg(test)]
mod soundness_test;
#[cfg(test)]
mod unevaluated_test;

pub use compat::{
    COMPARE_DEPTH_MAX, COMPARE_WORK_MAX, Direction, Incompatibility, Kind, Level, LevelError, Policy, check,
};
pub use diff::{Change, ChangeKind, DIFF_LEN_MAX, diff};
pub use draft::Draft;
pub use failure::{FAILURES_LEN_MAX, Failure};
pub use fields::{FieldKnown, UNKNOWN_FIELDS_LEN_MAX, UnknownField};
pub use guid::{Guid, GuidError};
pub use nearest::NEAREST_LEN_MAX;
pub use schema::{Invalid, PLACE_BYTES_MAX, PLACES_BYTES_MAX, SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX, Schema};
pub use survey::{IN_PLACE_DEPTH_MAX, IN_PLACE_LEN_MAX, INDEX_KEYWORD, NODES_LEN_MAX};
