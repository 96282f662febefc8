//! The nouns every other crate speaks in. Knows nothing of tables, wires, disks or clocks.

mod id;
mod mode;
mod path;
mod resource;
mod time;

pub use id::{LockId, OwnerId, Token};
pub use mode::{Mode, ModeError};
pub use path::{PATH_SEGMENTS_CAP, Path, PathError};
pub use resource::{Depth, Resource, Site};
pub use time::{Timestamp, Wait};
