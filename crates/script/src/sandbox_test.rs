//! That functions find nothing but what they may, keep nothing, and answer the same everywhere.

use crate::{
    ScriptError, ScriptLimits, ShardFunction,
    scene::{Random, answer, shard, shard_function},
};
use lockwood_model::{Key, KeyPart};

#[test]
fn what_reaches_outside_is_not_there() {
    for name in [
        "io",
        "os",
        "debug",
        "require",
        "loadstring",
        "load",
        "loadfile",
        "dofile",
        "getfenv",
        "setfenv",
        "newproxy",
        "collectgarbage",
        "gcinfo",
        "print",
        "xpcall",
        "coroutine",
        "buffer",
        "vector",
        "integer",
        "class",
        "package",
        "_G",
        "_VERSION",
        "math.random",
        "math.randomseed",
        "math.noise",
        "string.pack",
        "string.dump",
        "table.foreach",
    ] {
        assert_eq!(shard(&format!("return if {name} == nil then 1 else 2")), Ok(1), "{name}");
    }
}

/// The compiler calls some functions without looking for them.
#[test]
fn what_was_removed_cannot_be_called_by_name_either() {
    for call in [
        "math.sin(1)",
        "math.cos(1)",
        "math.tan(1)",
        "math.asin(1)",
        "math.acos(1)",
        "math.atan(1)",
        "math.atan2(1, 2)",
        "math.sinh(1)",
        "math.cosh(1)",
        "math.tanh(1)",
        "math.exp(1)",
        "math.log(2)",
        "math.log10(2)",
        "math.pow(2, 3)",
        "math.noise(1)",
        "math.random(5)",
        "vector.create(1, 2, 3)",
        "integer.create(1)",
        "integer.fromstring('1')",
        "buffer.create(8)",
        "newproxy(true)",
    ] {
        let outcome = shard(&format!("local found = {call} return 1"));
        assert!(matches!(outcome, Err(ScriptError::Runtime { .. })), "{call}: {outcome:?}");
    }
}

/// Whatever Luau adds in a later release, only what is named here is there.
#[test]
fn nothing_else_is_there() {
    let names = "for name in getmetatable('').__index do end
        local names = {}
        for _, library in { { 'bit32', bit32 }, { 'math', math }, { 'string', string }, { 'table', table }, { 'utf8', utf8 } } do
            for name in library[2] do table.insert(names, library[1] .. '.' .. name) end
        end
        table.sort(names)
        return table.concat(names, ' ')";
    assert_eq!(
        answer(names).unwrap().trim_matches('"'),
        "bit32.arshift bit32.band bit32.bnot bit32.bor bit32.btest bit32.bxor bit32.byteswap bit32.countlz \
         bit32.countrz bit32.extract bit32.lrotate bit32.lshift bit32.replace bit32.rrotate bit32.rshift \
         math.abs math.ceil math.clamp math.deg math.floor math.fmod math.frexp math.huge math.isfinite \
         math.isinf math.isnan math.ldexp math.lerp math.map math.max math.min math.modf math.pi math.rad \
         math.round math.sign math.sqrt string.byte string.char string.find string.format string.gmatch \
         string.gsub string.len string.lower string.match string.rep string.reverse string.split string.sub \
         string.upper table.clear table.clone table.concat table.create table.find table.freeze \
         table.insert table.isfrozen table.maxn table.move table.pack table.remove table.sort table.unpack \
         utf8.char utf8.charpattern utf8.codepoint utf8.codes utf8.len utf8.offset"
    );
}

#[test]
fn nothing_can_be_changed_for_others() {
    for attack in [
        "count = 1",
        "string.format = nil",
        "math.floor = function() return 3 end",
        "rawset(string, 'format', nil)",
        "rawset(getmetatable(''), '__index', nil)",
        "getmetatable('').__index = {}",
        "table.insert(math, 1)",
        "setmetatable(string, {})",
        "setmetatable(math, { __index = string })",
        "table.clear(string)",
    ] {
        let outcome = shard(&format!("{attack} return 1"));
        assert!(matches!(outcome, Err(ScriptError::Runtime { .. })), "{attack}: {outcome:?}");
    }
}

#[test]
fn a_global_is_refused_with_advice() {
    let refused = shard("\ncount = 1\nreturn count").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "line 2: attempt to modify a readonly table; write `local` before the name of a variable, nothing is \
         kept between calls"
    );
}

#[test]
fn nothing_outlives_a_call() {
    let source = "local calls, seen = 0, {}
        return function(collection, key)
            calls += 1
            seen[key] = true
            local n = 0
            for _ in seen do n += 1 end
            return calls * 10 + n
        end";
    let function = ShardFunction::compile("test", source, ScriptLimits::SHARD_FUNCTION).unwrap();
    for number in 0..100 {
        assert_eq!(function.shard("orders", &Key::number(number)), Ok(11));
    }
}

#[test]
fn addresses_do_not_show() {
    let kinds = [
        ("{}", "table"),
        ("setmetatable({}, { __metatable = false })", "table"),
        ("setmetatable({}, { __metatable = { __tostring = function() return 'own' end } })", "own"),
        ("setmetatable({}, { __tostring = function() return 'own' end })", "own"),
        ("function() end", "function"),
        ("string.rep", "function"),
        ("db.null", "null"),
        ("nil", "nil"),
        ("1.5", "1.5"),
    ];
    for (value, text) in kinds {
        for way in ["tostring(v)", "string.format('%s', v)", "('%*'):format(v)", "`{v}`"] {
            let body = format!("local v = {value} return {way}");
            assert_eq!(answer(&body).as_deref(), Ok(format!("\"{text}\"").as_str()), "{body}");
        }
    }
    let raised = shard("error({})").unwrap_err();
    assert_eq!(raised.to_string(), "line 1: a table was raised as an error; raise text");
    let raised =
        shard("error(setmetatable({}, { __tostring = function() return 'own words' end }))").unwrap_err();
    assert!(raised.to_string().ends_with("own words"), "{raised}");
}

#[test]
fn wrapped_functions_still_do_their_work() {
    for (expression, expected) in [
        ("string.format('%d %s %5.2f %q', 1, true, 2.5, 'x')", r#""1 true  2.50 \"x\"""#),
        ("('a-b-c'):gsub('-', '+')", r#""a+b+c""#),
        ("('key=value'):match('(%w+)=(%w+)')", r#""key""#),
        ("('abc'):find('b', 1, true)", "2"),
        ("select(2, pcall(error, 'own', 0))", r#""own""#),
        ("select(2, pcall(error, { code = 5 })).code", "5"),
        ("select('#', pcall(function() return 1, nil, 3 end))", "4"),
        ("(function() local t = { 3, 1, 2 } table.sort(t) return t end)()", "[1,2,3]"),
        (
            "(function() local t = { 3, 1, 2 } table.sort(t, function(a, b) return a > b end) return t end)()",
            "[3,2,1]",
        ),
    ] {
        assert_eq!(answer(&format!("return ({expression})")).as_deref(), Ok(expected), "{expression}");
    }
}

#[test]
fn errors_name_the_line_of_the_text() {
    for (body, message) in [
        ("\n\nerror('own')", "line 3: own"),
        ("\nlocal t = nil\nreturn t.x", "line 3: attempt to index nil with 'x'"),
        ("\nreturn os.time()", "line 2: attempt to index nil with 'time'"),
        ("\n\nreturn string.rep()", "line 3: missing argument #1 to 'rep' (string expected)"),
        ("\n\nreturn ('x'):find({})", "line 3: invalid argument #2 to 'find' (string expected, got table)"),
        (
            "\nreturn ('x'):find(('y'):rep(300))",
            "line 2: the pattern for string.find has 300 bytes, at most 256 are allowed",
        ),
    ] {
        assert_eq!(shard(body).unwrap_err().to_string(), message, "{body}");
    }
}

#[test]
fn a_text_that_is_no_function() {
    for (source, found) in [("local a = 1", "nil"), ("return 5", "integer"), ("return {}", "table")] {
        let refused = ShardFunction::compile("test", source, ScriptLimits::SHARD_FUNCTION).unwrap_err();
        assert!(matches!(refused, ScriptError::BadResult { .. }), "{refused:?}");
        assert!(refused.to_string().ends_with(&format!("found {found}")), "{refused}");
    }
    let refused = ShardFunction::compile("test", "error('no')", ScriptLimits::SHARD_FUNCTION).unwrap_err();
    assert_eq!(refused, ScriptError::Runtime { message: "no".to_owned(), line: Some(1) });
}

#[test]
fn a_shard_is_a_whole_number() {
    for (answer, found) in
        [("nil", "nothing (nil)"), ("1.5", "1.5"), ("'1'", "a string"), ("{}", "a table"), ("0 / 0", "NaN")]
    {
        let refused = shard(&format!("return {answer}")).unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("the shard function test answered {found} for orders/7; it must answer a whole number")
        );
    }
    assert_eq!(shard("return 3.0"), Ok(3));
    assert_eq!(shard("return -1, 2"), Ok(-1));
}

#[test]
fn keys_as_functions_see_them() {
    let kinds = shard_function(
        "if type(key) == 'number' then return key end
         if type(key) == 'string' then return #key end
         return #key * 100 + #key[1]",
    )
    .unwrap();
    let of = |key: &Key| kinds.shard("orders", key).unwrap();
    assert_eq!(of(&Key::number(-5)), -5);
    assert_eq!(of(&Key::number(1 << 53)), 1 << 53);
    // It is text from here on: no two keys become the same.
    assert_eq!(of(&Key::number((1 << 53) + 1)), 16);
    assert_eq!(of(&Key::number(i64::MIN)), 20);
    assert_eq!(of(&"abc".parse().unwrap()), 3);
    assert_eq!(of(&"a%3Ab".parse().unwrap()), 3);
    assert_eq!(of(&"order:42:x".parse().unwrap()), 305);
}

/// The function uses what could differ: iteration, weak tables, sorting, text of numbers, arithmetic.
const MANY_SIDED: &str = "
local weights = {}
for i = 1, 50 do weights['w' .. i] = i * 1.1 end
return function(collection, key)
    local weak = setmetatable({}, { __mode = 'kv' })
    local h = #collection
    for name, weight in weights do
        weak[{ name }] = { weight }
        for i = 1, #name do h = (h * 31 + string.byte(name, i) + weight) % 2147483647 end
    end
    for _ in pairs(weak) do h += 1 end
    for word in tostring(key):gmatch('%w') do h = bit32.bxor(h * 33 % 4294967296, string.byte(word)) end
    local order = { 'b', 'a', tostring(h), string.format('%g', h / 7) }
    table.sort(order)
    return (h + #table.concat(order, ' ', 1, 4) + #tostring({}) + string.byte(order[1])) % 64 + 1
end";

#[test]
fn the_same_answer_in_every_sandbox() {
    let mut random = Random::new(5);
    let keys: Vec<Key> = (0..50)
        .map(|_| {
            let parts = (0..=random.below(2)).map(|_| random.below(1 << 31) as i64);
            Key::new(parts.map(KeyPart::Number).collect::<Vec<_>>()).unwrap()
        })
        .chain(["müller".parse().unwrap(), "a:b:c".parse().unwrap()])
        .filter(|key: &Key| key.parts().len() == 1)
        .collect();
    let compile = || ShardFunction::compile("test", MANY_SIDED, ScriptLimits::SHARD_FUNCTION).unwrap();
    let all = |function: &ShardFunction| -> Vec<i64> {
        keys.iter().map(|key| function.shard("orders", key).unwrap()).collect()
    };
    let first = compile();
    let expected = all(&first);
    assert!(expected.iter().any(|shard| *shard != expected[0]), "it depends on the key");
    for _ in 0..40 {
        assert_eq!(all(&compile()), expected, "in a new sandbox");
    }
    for _ in 0..40 {
        assert_eq!(all(&first), expected, "in one that has run");
    }
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..10).for_each(|_| assert_eq!(all(&first), expected, "on several threads")));
        }
    });
}

#[test]
fn functions_are_shared_between_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<ShardFunction>();
    is_shared::<crate::Procedure>();
}

/// What a release must not change, or keys would be looked for on other shards.
#[test]
fn the_same_answer_in_every_release() {
    let function = ShardFunction::compile("test", MANY_SIDED, ScriptLimits::SHARD_FUNCTION).unwrap();
    let shards: Vec<i64> =
        (0..12).map(|number| function.shard("orders", &Key::number(number)).unwrap()).collect();
    assert_eq!(shards, [22, 21, 20, 19, 26, 25, 24, 23, 30, 29, 5, 6]);
}
