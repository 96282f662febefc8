//! What a user's function does to documents, all of it or nothing. Knows nothing of where documents are, or of
//! how its writes are done.

use crate::{
    convert::{self, Misfit, Writer},
    desk::{Desk, Documents},
    error::ScriptError,
    limits::ScriptLimits,
    pool::Pool,
    source,
    source::Code,
    vm::Vm,
};
use lockwood_model::{Budget, Json, Key};
use mlua::{MultiValue, Value};
use std::fmt;

/// A function that reads and writes documents.
///
/// Its text is Luau and returns the function: `return function(db, key, …) … end`. What it answers becomes
/// JSON. `db` has
///
/// - `db.get(collection, key)`: the fields as a table, or nil;
/// - `db.put(collection, key, fields)`: creates the document or replaces it;
/// - `db.insert(collection, key, fields)`: creates it, an error if there is one;
/// - `db.update(collection, key, fields)`: sets fields, `db.null` removes one, an error if there is no document;
/// - `db.delete(collection, key)`: whether there was one;
/// - `db.fail(code, message)`: ends the run, nothing is written;
/// - `db.null`, and `db.array(table)`, which makes a table a list even when it is empty.
///
/// A key is a whole number, text that is one part, or a list of parts. The run sees what it has written. Errors
/// of `insert` and `update` can be caught with `pcall`; limits, `db.fail` and failures of the store cannot.
pub struct Procedure {
    name: Box<str>,
    hash: String,
    pool: Pool,
}

/// What a procedure is called with.
#[derive(Debug, Clone, Copy)]
pub struct Invocation<'a> {
    /// The key it is called for; without one the function gets nil.
    pub key: Option<&'a Key>,
    /// What comes after the key.
    pub arguments: &'a [Json],
}

/// An operation and what comes with it.
type Asked = (Value, Value, Value, Value);

impl Procedure {
    /// Compiles a text, and runs it once to see that it returns a function.
    pub fn compile(name: &str, source: &str, limits: ScriptLimits) -> Result<Procedure, ScriptError> {
        let pool = Pool::start(Code::compile(source, limits)?)?;
        Ok(Procedure { name: name.into(), hash: source::hash(source), pool })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version of its text, see [`hash`](crate::hash).
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Runs it. If it fails, none of the writes that `documents` was given must be done.
    pub fn run(&self, call: &Invocation<'_>, documents: &mut dyn Documents) -> Result<Json, ScriptError> {
        self.pool.call(|vm, code| run(vm, code.limits, call, (documents, None)))
    }

    /// The same for a caller that may cancel it.
    pub fn run_within(
        &self,
        call: &Invocation<'_>,
        documents: &mut dyn Documents,
        caller: &Budget,
    ) -> Result<Json, ScriptError> {
        self.pool.call(|vm, code| run(vm, code.limits, call, (documents, Some(caller))))
    }
}

fn run(
    vm: &Vm,
    limits: ScriptLimits,
    call: &Invocation<'_>,
    (documents, caller): (&mut dyn Documents, Option<&Budget>),
) -> Result<Json, ScriptError> {
    let mut desk = Desk::new(documents, Writer::new(limits.result_bytes_max));
    let outcome = vm.run_within(limits.memory_bytes_max, caller, || {
        let answer: Value = vm.lua.scope(|scope| {
            let serve = scope.create_function_mut(|_, asked: Asked| desk.serve(vm, &asked.into()))?;
            let mut given = MultiValue::new();
            given.push_back(vm.database.call(serve)?);
            given.push_back(call.key.map_or(Ok(Value::Nil), |key| convert::key_to_lua(&vm.lua, key))?);
            for (index, argument) in call.arguments.iter().enumerate() {
                let place = format!("argument {}", index + 1);
                given.push_back(convert::to_lua(&vm.lua, &vm.list, &place, argument).map_err(bad_argument)?);
            }
            vm.entry.call(given)
        })?;
        Ok(answer)
    });
    let answer = match desk.over.take() {
        Some(over) => Err(over),
        None => outcome,
    }?;
    desk.writer.value(&vm.list, "the answer", &answer).map_err(|misfit| match misfit {
        Misfit::Said(message) => ScriptError::BadResult { message },
        Misfit::Over(over) => over,
        Misfit::Lua(error) => ScriptError::BadResult { message: error.to_string() },
    })
}

fn bad_argument(misfit: Misfit) -> mlua::Error {
    match misfit {
        Misfit::Said(message) => mlua::Error::external(ScriptError::BadArgument { message }),
        Misfit::Over(over) => mlua::Error::external(over),
        Misfit::Lua(error) => error,
    }
}

impl fmt::Debug for Procedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Procedure").field("name", &self.name).field("hash", &self.hash).finish()
    }
}
