//! Which shard owns a key, and how that changes. Knows nothing of connections, time, storage or of who asks.

mod change;
mod fault;
mod function;
mod host;
mod map;
mod transition;

#[cfg(test)]
mod change_test;
#[cfg(test)]
mod function_test;
#[cfg(test)]
mod map_test;
#[cfg(test)]
mod protocol_test;
#[cfg(test)]
mod transition_model_test;
#[cfg(test)]
mod transition_test;

pub use change::{Change, Planned};
pub use fault::{ChangeError, MapError, MapProblem, RouteError, TransitionError};
pub use function::{Bound, By, Function, NoScripts, Scripts};
pub use host::{Host, HostMode, WEIGHT_MAX};
pub use map::{EPOCH_MAX, Epoch, Phase, Route, ShardMap, ShardNo};
pub use transition::{Action, Donor, Drive, Event, Step, Transition};
