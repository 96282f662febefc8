//! Decides what a write request changes. Command and state view in, events or a refusal out; knows nothing of
//! clocks, disks, connections or other requests under way.

mod fault;
pub mod format;
mod list;
mod position_lock;
mod recent;
mod request;
mod view;
mod write;

#[cfg(test)]
mod model_test;
#[cfg(test)]
mod position_lock_test;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod write_test;
#[cfg(test)]
mod writer;

pub use position_lock::{Broken, BrokenBy};
pub use recent::Recent;
pub use request::{
    Action, Expectation, Intent, Limits, ListChange, Misfit, NoRules, PositionLock, Precondition, PutIf,
    Refused, Request, Rules, Target,
};
pub use view::{ChangeSeen, Looks, Origin, View};
pub use write::{decide, decide_all};
