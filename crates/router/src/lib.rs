//! Which shard owns a key, and how that changes. Knows nothing of connections, time, storage or of who asks.

mod change;
mod fault;
mod function;
mod host;
mod map;

#[cfg(test)]
mod function_test;
#[cfg(test)]
mod map_test;

pub use change::Change;
pub use fault::{MapError, MapProblem, RouteError};
pub use function::{Bound, By, Function, NoScripts, Scripts};
pub use host::{Host, HostMode, WEIGHT_MAX};
pub use map::{Epoch, Phase, Route, ShardMap, ShardNo};
