//! User functions in Luau: where a key belongs, and what is done to documents at once. Each runs in a sandbox
//! with limits; knows nothing of shard maps, of the store or of who may register a function.

mod convert;
mod desk;
mod error;
mod limits;
mod pool;
mod procedure;
mod sandbox;
mod shard_function;
mod source;
mod vm;

#[cfg(test)]
mod conversion_test;
#[cfg(test)]
mod fuzz_test;
#[cfg(test)]
mod limits_test;
#[cfg(test)]
mod procedure_test;
#[cfg(test)]
mod sandbox_test;
#[cfg(test)]
mod scene;

pub use convert::VALUE_DEPTH_MAX;
pub use desk::Documents;
pub use error::ScriptError;
pub use limits::ScriptLimits;
pub use procedure::{Invocation, Procedure};
pub use shard_function::ShardFunction;
pub use source::hash;
