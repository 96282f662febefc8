//! The nouns every other crate speaks in. Knows nothing of tables, wires, disks or clocks.

mod address;
mod budget;
mod document;
mod event;
mod field_path;
mod filter;
mod filter_text;
mod id;
mod json;
mod key;
mod lease;
mod mode;
pub mod node;
mod path;
mod pattern;
mod position;
mod resource;
mod time;

pub use address::{AddressError, NodeAddress};
pub use budget::{Budget, Exhausted};
pub use document::{Document, Field, REMOVED_FIELDS_LEN_MAX};
pub use event::{Change, Commit, Event, FieldValue, META_DELETED, META_POSITION, Purged};
pub use field_path::{FieldPath, FieldPathError, Projection};
pub use filter::{Condition, Fields, Filter, FilterError, Operator};
pub use filter_text::{FILTER_TEXT_DEPTH_MAX, FilterTextError};
pub use id::{LockId, OwnerId, Token};
pub use json::{Json, JsonError, Number, Scalar};
pub use key::{DocumentKey, Key, KeyError, KeyPart};
pub use lease::{Lease, LeaseVia};
pub use mode::{Mode, ModeError};
pub use path::{PATH_SEGMENTS_CAP, Path, PathError};
pub use position::Position;
pub use resource::{Depth, Resource, Site};
pub use time::{Timestamp, Wait};
