//! Which shard a document belongs to, decided by a user's function. Knows nothing of how many shards there are.

use crate::{convert, error::ScriptError, limits::ScriptLimits, pool::Pool, source, source::Code};
use lockwood_model::Key;
use mlua::Value;
use std::fmt;

/// A function from collection and key to the number of a shard.
///
/// Its text is Luau and returns the function: `return function(collection, key) … return number end`. The key
/// is a number or text if it has one part, else a list of them; whole numbers that a Luau number does not hold
/// exactly, those beyond 2⁵³, are given as text. The whole text is run for every call, so nothing outlives a
/// call, and the same question has the same answer on every machine.
pub struct ShardFunction {
    name: Box<str>,
    hash: String,
    pool: Pool,
}

impl ShardFunction {
    /// Compiles a text, and runs it once to see that it returns a function.
    pub fn compile(name: &str, source: &str, limits: ScriptLimits) -> Result<ShardFunction, ScriptError> {
        let pool = Pool::start(Code::compile(source, limits)?)?;
        Ok(ShardFunction { name: name.into(), hash: source::hash(source), pool })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version of its text, see [`hash`](crate::hash).
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The number of the shard; whether there is such a shard is for the caller to see.
    pub fn shard(&self, collection: &str, key: &Key) -> Result<i64, ScriptError> {
        let answer = self.pool.call(|vm, code| {
            vm.run(code.limits.memory_bytes_max, || {
                let key = convert::key_to_lua(&vm.lua, key)?;
                vm.entry.call::<Value>((collection, key)).map(|answer| described(&answer))
            })
        })?;
        answer.map_err(|found| ScriptError::BadResult {
            message: format!(
                "the shard function {} answered {found} for {collection}/{key}; it must answer a whole number",
                self.name
            ),
        })
    }
}

/// The number, or what it is instead.
fn described(answer: &Value) -> Result<i64, String> {
    match answer {
        Value::Integer(number) => Ok(*number),
        Value::Number(number) => Err(number.to_string()),
        Value::Nil => Err("nothing (nil)".to_owned()),
        other => Err(format!("a {}", other.type_name())),
    }
}

impl fmt::Debug for ShardFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardFunction").field("name", &self.name).field("hash", &self.hash).finish()
    }
}
