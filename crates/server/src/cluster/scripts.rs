//! Shard functions of the user's own, compiled when a map comes into force. Knows nothing of what they answer.

use lockwood_model::Key;
use lockwood_router::{Function, Scripts, ShardMap};
use lockwood_script::{ScriptLimits, ShardFunction};

/// The scripts of one map, by their text; or why they cannot be run.
pub(super) struct Compiled(Vec<(String, Result<ShardFunction, String>)>);

impl Compiled {
    pub(super) fn of(map: &ShardMap) -> Compiled {
        let functions = [Some(&map.curr), map.prev.as_ref()].into_iter().flatten();
        let compiled = functions.filter_map(|function| match function {
            Function::Script { source, .. } => Some((source.clone(), compile(function)?)),
            _ => None,
        });
        Compiled(compiled.collect())
    }
}

impl Scripts for Compiled {
    fn shard(&self, function: &Function, collection: &str, key: &Key) -> Result<i64, String> {
        let Function::Script { source, .. } = function else { return Err("it is no script".to_owned()) };
        let found = self.0.iter().find(|(known, _)| known == source);
        match found {
            Some((_, Ok(function))) => function.shard(collection, key).map_err(|error| error.to_string()),
            Some((_, Err(why))) => Err(why.clone()),
            None => Err("it is in no map".to_owned()),
        }
    }
}

/// A function that is a script, or why it cannot be run; none if it is none.
pub(crate) fn compile(function: &Function) -> Option<Result<ShardFunction, String>> {
    let Function::Script { name, source, .. } = function else { return None };
    let compiled = ShardFunction::compile(name, source, ScriptLimits::SHARD_FUNCTION);
    Some(compiled.map_err(|error| error.to_string()))
}
