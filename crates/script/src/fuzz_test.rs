//! Texts of chance: compiling and running them never panics and always ends. Knows nothing of what is right.

use crate::{
    Invocation, Procedure, ScriptError, ScriptLimits, ShardFunction,
    scene::{Random, Shelf},
};
use lockwood_model::{Json, Key};

const SEEDS: u64 = 3_000;

/// Small, so that every limit is met often.
const LIMITS: ScriptLimits = ScriptLimits {
    memory_bytes_max: 100_000,
    steps_max: 3_000,
    source_bytes_max: 4_000,
    result_bytes_max: 2_000,
};

const TEXTS: [&str; 4] = [
    "local t = {} for i = 1, 20 do t[i] = { n = i, s = ('x'):rep(i) } end
     table.sort(t, function(a, b) return a.n > b.n end)
     db.put('a', key, { t = t, k = key }) return db.get('a', key)",
    "local ok, e = pcall(function() while #tostring(key) > 0 do db.update('a', 1, { n = db.null }) end end)
     for w in ('a,b,c'):gmatch('[^,]+') do db.insert('a', { w, 1 }, { w = w .. `{ok}` }) end
     return { ok, e or db.null, select('#', table.unpack({ 1, 2 })) }",
    "local mt = { __index = function(t, k) return rawget(t, k) or k end, __tostring = function() return 'm' end,
         __call = function(self, n) return if n <= 1 then 1 else n * self(n - 1) end }
     local o = setmetatable({}, mt) return { o(10), tostring(o), o.x, string.format('%s|%d', o, 5), key }",
    "local h = 5381 for i = 1, #tostring(key) do h = bit32.band(h * 33 + string.byte(tostring(key), i), 0xffff) end
     if db.delete('a', key) then db.fail('gone', 'there was one') end
     repeat h //= 2 until h < 3 return h",
];

const PIECES: [&str; 40] = [
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "'",
    "\"",
    "`",
    ",",
    ";",
    "=",
    "==",
    "..",
    "...",
    ":",
    "::",
    "%",
    "^",
    "#",
    "~=",
    "nil",
    "1e308",
    "-1",
    "0/0",
    "local ",
    "end ",
    "function() ",
    "return ",
    "while true do ",
    "for k in t do ",
    "pcall(",
    "db",
    "db.null",
    "key",
    "string.rep('x', 1e7)",
    "setmetatable({}, ",
    "error({})",
    "\0",
    "\\xff",
];

#[test]
fn damaged_texts_never_panic_and_always_end() {
    let key: Key = "a:5".parse().unwrap();
    let arguments = [Json::trusted("[1,{}]")];
    let (mut compiled, mut answered, mut stopped) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let body = damaged(&mut random);
        println!("seed {seed}: {body:?}");
        let source = format!("return function(db, key, argument)\n{body}\nend");
        let Ok(procedure) = Procedure::compile("fuzz", &source, LIMITS) else { continue };
        compiled += 1;
        for _ in 0..2 {
            let call = Invocation { key: Some(&key), arguments: &arguments };
            let outcome = procedure.run(&call, &mut Shelf::with("a/1", r#"{"n":1}"#));
            answered += usize::from(outcome.is_ok());
            stopped += usize::from(outcome.as_ref().is_err_and(ScriptError::is_limit));
            let _ = outcome.map_err(|error| error.to_string());
        }
    }
    println!("{compiled} compiled, {answered} answered, {stopped} stopped");
    assert!(compiled > 300 && answered > 100 && stopped > 50, "{compiled} {answered} {stopped}");
}

#[test]
fn soup_never_panics() {
    for seed in 0..SEEDS {
        let mut random = Random::new(seed ^ 0xF00D);
        let source: String = (0..random.below(40)).map(|_| *random.pick(&PIECES)).collect();
        println!("seed {seed}: {source:?}");
        if let Ok(function) = ShardFunction::compile("fuzz", &source, LIMITS) {
            let _ = function.shard("a", &Key::number(seed as i64));
        }
    }
}

fn damaged(random: &mut Random) -> String {
    let mut chars: Vec<char> = random.pick(&TEXTS).chars().collect();
    for _ in 0..random.below(4) {
        let start = random.below(chars.len());
        let end = (start + random.below(8)).min(chars.len());
        match random.below(4) {
            0 => drop(chars.drain(start..end)),
            1 => drop(chars.splice(start..end, random.pick(&PIECES).chars())),
            2 => {
                let copied: Vec<char> = chars[start..end].to_vec();
                let place = random.below(chars.len());
                chars.splice(place..place, copied);
            }
            // A letter or digit in place of another is what most often still is Luau.
            _ => chars[start] = *random.pick(&['a', 't', 'k', '0', '9', '1', '+', '%']),
        }
        if chars.is_empty() {
            return String::new();
        }
    }
    chars.into_iter().collect()
}
