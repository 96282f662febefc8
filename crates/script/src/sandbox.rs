//! What a function finds when it runs: a list of what is there, everything else is taken away. Knows nothing of
//! what functions are for.

use crate::vm::Meter;
use mlua::{
    Error, Function, Lua, LuaOptions, Result, StdLib, Table, Value,
    chunk::{ChunkMode, Compiler},
};
use std::sync::{Arc, LazyLock};

/// Everything a function can name: no files, no network, no clock, no chance; nothing that loads code; nothing
/// whose answer depends on where things are in memory, on what was reclaimed, or on the machine's own way of
/// computing sines and logarithms.
const GLOBALS: [&str; 23] = [
    "assert",
    "bit32",
    "error",
    "getmetatable",
    "ipairs",
    "math",
    "next",
    "pairs",
    "pcall",
    "rawequal",
    "rawget",
    "rawlen",
    "rawset",
    "select",
    "setmetatable",
    "string",
    "table",
    "tonumber",
    "tostring",
    "type",
    "typeof",
    "unpack",
    "utf8",
];

/// What is left of the libraries; those not named here are left whole.
const MEMBERS: [(&str, &[&str]); 3] = [
    (
        "math",
        &[
            "abs", "ceil", "clamp", "deg", "floor", "fmod", "frexp", "huge", "isfinite", "isinf", "isnan",
            "ldexp", "lerp", "map", "max", "min", "modf", "pi", "rad", "round", "sign", "sqrt",
        ],
    ),
    (
        "string",
        &[
            "byte", "char", "find", "format", "gmatch", "gsub", "len", "lower", "match", "rep", "reverse",
            "split", "sub", "upper",
        ],
    ),
    (
        "table",
        &[
            "clear", "clone", "concat", "create", "find", "freeze", "insert", "isfrozen", "maxn", "move",
            "pack", "remove", "sort", "unpack",
        ],
    ),
];

/// What the compiler must not call by itself, because it is not in the tables.
pub(crate) const REMOVED_BUILTINS: [&str; 18] = [
    "math.acos",
    "math.asin",
    "math.atan",
    "math.atan2",
    "math.cos",
    "math.cosh",
    "math.exp",
    "math.log",
    "math.log10",
    "math.noise",
    "math.pow",
    "math.sin",
    "math.sinh",
    "math.tan",
    "math.tanh",
    "vector.create",
    "integer.create",
    "integer.fromstring",
];

static PRELUDE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let compiler = Compiler::new().set_debug_level(0);
    compiler.compile(include_str!("prelude.luau")).expect("our own text is Luau")
});

/// What our own text hands out.
pub(crate) struct Prelude {
    /// Takes the loaded text, gives the function that runs it and calls what it returns.
    pub(crate) entry: Function,
    /// Takes what reads and writes documents, gives what procedures call `db`.
    pub(crate) database: Function,
    /// Marks tables that are lists even when they are empty.
    pub(crate) list: Table,
}

/// A state with the sandbox in place: whatever is loaded from now on cannot change it.
pub(crate) fn start(meter: &Arc<Meter>) -> Result<(Lua, Prelude)> {
    let libraries = StdLib::BIT | StdLib::MATH | StdLib::STRING | StdLib::TABLE | StdLib::UTF8;
    let lua = Lua::new_with(libraries, LuaOptions::default())?;
    let text = lua.load(&**PRELUDE).set_name("=prelude").set_mode(ChunkMode::Binary);
    let meter = Arc::clone(meter);
    let take = lua.create_function(move |_, steps: u64| meter.take(steps).map_err(Error::external))?;
    let (entry, database, list) = text.call((Value::NULL, take))?;
    let globals = lua.globals();
    keep(&globals, &GLOBALS)?;
    for (library, members) in MEMBERS {
        keep(&globals.get(library)?, members)?;
    }
    lua.sandbox(true)?;
    // The sandbox puts a table for the function's own globals in front. Nothing may be kept there from one
    // call to the next, so it is closed too.
    lua.globals().set_readonly(true);
    Ok((lua, Prelude { entry, database, list }))
}

fn keep(table: &Table, members: &[&str]) -> Result<()> {
    let names = table.pairs().map(|pair| pair.map(|(name, _): (String, Value)| name));
    let names: Vec<String> = names.collect::<Result<_>>()?;
    for name in names.iter().filter(|name| !members.contains(&&***name)) {
        table.raw_set(name.as_str(), mlua::Nil)?;
    }
    Ok(())
}
