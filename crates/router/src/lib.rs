//! Which shard owns a key, which node owns a shard, and how both change. Knows nothing of connections, clocks, storage
//! or of who asks.

mod change;
mod fault;
mod function;
pub mod guards;
mod host;
mod map;
pub mod ownership;
pub mod placement;
mod planted;
mod staleness;
mod transition;
mod view;

#[cfg(test)]
mod change_test;
#[cfg(test)]
mod function_test;
#[cfg(test)]
mod map_test;
#[cfg(test)]
mod ownership_explore_test;
#[cfg(test)]
mod ownership_model_test;
#[cfg(test)]
mod ownership_test;
#[cfg(test)]
mod placement_test;
#[cfg(test)]
mod protocol_test;
#[cfg(test)]
mod transition_model_test;
#[cfg(test)]
mod transition_test;

pub use change::{Change, Planned};
pub use fault::{ChangeError, MapError, MapProblem, PolicyError, RouteError, TransitionError};
pub use function::{Bound, By, Function, NoScripts, Scripts, pick_home};
pub use host::{Host, HostMode, WEIGHT_MAX};
pub use map::{EPOCH_MAX, Epoch, Phase, Route, ShardMap, ShardNo, check_hosts};
pub use staleness::Staleness;
pub use transition::{Action, Donor, Drive, Event, Step, Transition};
pub use view::{NodeName, NodeRow, Preferences, RenewalMark, ShardEpoch, ShardRow, Target, This, View};
