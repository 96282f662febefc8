//! That nothing a function does takes more than it may, and that a function that was stopped can be called
//! again.

use crate::{
    Invocation, ScriptError, ScriptLimits,
    scene::{Shelf, answer, procedure, procedure_within, shard, shard_function},
};
use lockwood_model::{Budget, Key};

const STEPS: ScriptError = ScriptError::OutOfSteps { limit: 100_000 };
const MEMORY: ScriptError = ScriptError::OutOfMemory { limit: 1 << 20 };

#[test]
fn what_does_not_end_is_stopped() {
    for body in [
        "while true do end",
        "repeat until false",
        "for i = 1, math.huge do end",
        "for i = 1, 1e9 do local x = i * 2 end",
        "for _ in function() return 1 end do end",
        "('a'):rep(30):match(('a?'):rep(30) .. ('a'):rep(30)) while true do end",
        "('a'):rep(1000):find(('.-'):rep(20) .. 'b')",
        "('x'):rep(100):gsub('x', function() while true do end end)",
        "table.sort({ 3, 2, 1 }, function() while true do end end)",
        "local t = {} for i = 1, 3000 do t[i] = i % 7 end while true do table.sort(t) end",
        "local t = setmetatable({}, { __tostring = function() while true do end end }) return tostring(t)",
        "error(setmetatable({}, { __tostring = function() while true do end end }))",
        "local t = setmetatable({}, { __lt = function() while true do end end }) return if t < t then 1 else 2",
    ] {
        assert_eq!(shard(body), Err(STEPS), "{body}");
    }
}

/// Work that the library does by itself is paid for by the memory it needs.
#[test]
fn long_work_of_the_library_is_stopped() {
    for body in [
        "local t = {} while true do table.insert(t, 1, 0) end",
        "local t = table.create(30000, 'x') while true do table.find(t, 'y') end",
        "local t = table.create(30000, '') while true do table.concat(t) end",
        "local s = ('x'):rep(300000) while true do s:find('y') end",
        "local s = ('('):rep(300000) while true do s:find('%b()') end",
        "local s = ('a'):rep(200000) while true do s:find(('a'):rep(255) .. 'b', 1, true) end",
        "local a, b = ('x'):rep(200000) .. 'a', ('x'):rep(200000) .. 'b' while true do local c = a < b end",
        "local t = {} for i = 1, 8000 do t[i .. ''] = 1 end for k in t do t[k] = nil end while true do next(t) end",
    ] {
        let outcome = shard(body);
        assert!(outcome == Err(STEPS) || outcome == Err(MEMORY), "{body}: {outcome:?}");
    }
}

/// Arithmetic without calls is paid for by the length of the text it is written in.
#[test]
fn a_long_text_pays_for_what_it_does_between_two_steps() {
    let rounds = |text: &str| {
        let body = format!("local n, x = 0, 1.5 while n < 100000 do n += 1 {text} end return n");
        procedure(&body).unwrap().run(&Invocation { key: None, arguments: &[] }, &mut Shelf::default())
    };
    assert_eq!(rounds("x = x * x").unwrap().as_str(), "100000");
    let long = "x = x * x + x ".repeat(4_000);
    assert_eq!(rounds(&long), Err(ScriptError::OutOfSteps { limit: 1_000_000 }));
}

#[test]
fn a_call_that_nobody_waits_for_is_stopped() {
    let budget = Budget::unlimited();
    budget.cancel();
    let call = Invocation { key: None, arguments: &[] };
    let forever = procedure("while true do end").unwrap();
    assert_eq!(forever.run_within(&call, &mut Shelf::default(), &budget), Err(ScriptError::Cancelled));
}

#[test]
fn what_takes_too_much_memory_is_stopped() {
    for body in [
        "local t = {} while true do t[#t + 1] = {} end",
        "return #('x'):rep(1e8)",
        "local s = 'x' while true do s = s .. s end",
        "local s = '' for i = 1, 1e9 do s = s .. 'x' end",
        "return #table.create(1e7, 0)",
        "local t = {} for i = 1, 1e9 do t[i .. ''] = i end",
        "return #string.format('%050d', 1):rep(1e5)",
        "local function f() return f() end return f()",
        "return #('x'):rep(1000):gsub('x', ('y'):rep(10000))",
        "local t = {} for i = 1, 1e9 do t[i] = function() return t end end",
        "return #table.concat(table.create(1000, ('x'):rep(1000)), ('y'):rep(1000))",
        "local function f(...) return f(1, ...) end return f()",
        "return #('x '):rep(400000):split(' ')",
    ] {
        assert_eq!(shard(body), Err(MEMORY), "{body}");
    }
}

#[test]
fn a_limit_cannot_be_caught() {
    for (body, expected) in [
        ("pcall(function() while true do end end) return 1", STEPS),
        ("while true do pcall(function() while true do end end) end", STEPS),
        ("return if pcall(pcall, function() while true do end end) then 1 else 2", STEPS),
        ("local function f() pcall(f) return 1 end while true do f() end", STEPS),
        ("local ok = pcall(string.rep, 'x', 1e8) return if ok then 1 else 2", MEMORY),
        ("pcall(pcall, string.rep, 'x', 1e8) return 1", MEMORY),
        ("pcall(function() local t = {} while true do t[#t + 1] = {} end end) return 1", MEMORY),
        ("pcall(table.sort, { 2, 1 }, function() return #('x'):rep(1e8) > 1 end) return 1", MEMORY),
        (
            "local t = setmetatable({}, { __index = function() while true do end end })
             pcall(function() return t.x end)
             return 1",
            STEPS,
        ),
    ] {
        assert_eq!(shard(body), Err(expected), "{body}");
    }
    // What is no limit can be.
    assert_eq!(shard("return if pcall(error, 'x') then 1 else 2"), Ok(2));
    let too_deep = "local function f() return f() + 1 end return select(2, pcall(f))";
    assert_eq!(answer(too_deep).as_deref(), Ok("\"script:1: stack overflow\""));
}

#[test]
fn a_function_that_was_stopped_can_be_called_again() {
    let function = shard_function(
        "if key == 1 then while true do end end
         if key == 2 then return #('x'):rep(1e8) end
         if key == 3 then local t = {} while true do t[#t + 1] = {} end end
         if key == 4 then error('own') end
         if key == 5 then local function f() return 1 + f() end return f() end
         return 100 + key",
    )
    .unwrap();
    let of = |number| function.shard("orders", &Key::number(number));
    for _ in 0..5 {
        assert_eq!(of(1), Err(STEPS));
        assert_eq!(of(9), Ok(109));
        assert_eq!(of(2), Err(MEMORY));
        assert_eq!(of(9), Ok(109));
        assert_eq!(of(3), Err(MEMORY));
        assert!(matches!(of(4), Err(ScriptError::Runtime { .. })));
        assert_eq!(of(5), Err(MEMORY));
        assert_eq!(of(9), Ok(109));
    }
}

#[test]
fn what_one_call_leaves_does_not_count_for_the_next() {
    let function = shard_function("return #('x'):rep(100000 + key)").unwrap();
    for number in 0..1000 {
        assert_eq!(function.shard("orders", &Key::number(number)), Ok(100_000 + number));
    }
}

#[test]
fn others_are_not_hurt_while_one_is_stopped() {
    let function = shard_function("while key == 1 do end return key").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope
                .spawn(|| (0..20).for_each(|_| assert_eq!(function.shard("a", &Key::number(1)), Err(STEPS))));
        }
        for number in 2..5 {
            let function = &function;
            scope.spawn(move || {
                (0..2000).for_each(|_| assert_eq!(function.shard("a", &Key::number(number)), Ok(number)));
            });
        }
    });
}

/// Deep recursion through every way into itself that there is.
#[test]
fn deep_recursion_ends() {
    for body in [
        "local function f(n) return 1 + f(n + 1) end return f(1)",
        "local function f() return select(2, pcall(f)) end return f() or 1",
        "local function f(s) return (s:gsub('.', f)) end f('x') return 1",
        "local function f() table.sort({ 1, 2 }, f) end f() return 1",
        "local t t = setmetatable({}, { __tostring = function() return tostring(t) end }) return #tostring(t)",
        "local t t = setmetatable({}, { __index = function(_, k) return t[k + 1] end }) return t[1]",
        "local t t = setmetatable({}, { __eq = function(a, b) return setmetatable({}, getmetatable(a)) == b end }) return if t == setmetatable({}, getmetatable(t)) then 1 else 2",
    ] {
        let outcome = shard(body);
        assert!(!matches!(outcome, Err(ScriptError::BadArgument { .. })), "{body}: {outcome:?}");
    }
    let nested = |open: &str, close: &str| format!("return {}1{}", open.repeat(9000), close.repeat(9000));
    for (open, close) in [
        ("(", ")"),
        ("{", "}"),
        ("-", ""),
        ("not ", ""),
        ("1 + ", ""),
        ("1 .. ", ""),
        ("a.", ""),
        ("f(", ")"),
    ] {
        let _ = shard(&nested(open, close));
    }
    for part in ["do ", "if 1 then ", "while 1 do ", "for i = 1, 2 do ", "return function() ", "local t: {"] {
        let _ = shard(&part.repeat(5000));
    }
}

#[test]
fn documents_cost_steps_by_their_size() {
    let key = Key::number(7);
    let call = Invocation { key: Some(&key), arguments: &[] };
    let forever = procedure("while true do db.get('a', 1) end").unwrap();
    let stopped = Err(ScriptError::OutOfSteps { limit: 1_000_000 });
    assert_eq!(forever.run(&call, &mut Shelf::default()), stopped);
    let large = format!("{{\"x\":{:?}}}", "y".repeat(1 << 20));
    assert_eq!(
        procedure(
            "while true do db.delete('a', 1) db.put('a', 1, { x = 1 }) pcall(db.insert, 'b', 1, {}) end"
        )
        .unwrap()
        .run(&call, &mut Shelf::with("b/1", &large)),
        stopped
    );
}

#[test]
fn what_is_written_has_a_limit_of_its_own() {
    let limit = ScriptError::TooLarge {
        what: "what the function answers and writes",
        name: "result_bytes_max",
        limit: 4 << 20,
    };
    for body in [
        "return ('x'):rep(5e6)",
        "local t = { ('x'):rep(1e6) } for i = 1, 1e4 do db.put('a', i, t[1] and { x = t[1] }) end",
        // Each of thirty tables holds the one before it twice.
        "local t = {} for i = 1, 30 do t = { a = t, b = t } end return t",
        "local t = {} for i = 1, 30 do t = { t, t } end pcall(db.put, 'a', 1, { x = t }) return 1",
    ] {
        assert_eq!(answer(body), Err(limit.clone()), "{body}");
    }
}

/// Whichever piece of memory is not to be had, the outcome is either the same or that it was not.
#[test]
fn memory_may_run_out_anywhere() {
    let body = "local document = db.get('orders', 7)
        table.insert(document.lines, { sku = 'x' .. 9, amount = 2.5 })
        db.update('orders', key, { lines = document.lines, note = db.null })
        local ok, problem = pcall(db.insert, 'orders', 7, {})
        local words = {}
        for word in ('a b c'):gmatch('%a') do table.insert(words, `{word}!`) end
        table.sort(words)
        return { ok = ok, problem = problem, total = string.format('%05.1f', #document.lines), words = words }";
    let fields = r#"{"lines":[{"sku":"a","amount":1}],"note":"old"}"#;
    let key = Key::number(7);
    let call = Invocation { key: Some(&key), arguments: &[] };
    let whole = procedure(body).unwrap().run(&call, &mut Shelf::with("orders/7", fields)).unwrap();
    let (mut stopped, mut done) = (0, 0);
    for memory_bytes_max in (0..80_000).step_by(112) {
        let limits = ScriptLimits { memory_bytes_max, ..ScriptLimits::PROCEDURE };
        let outcome = procedure_within(body, limits)
            .and_then(|procedure| procedure.run(&call, &mut Shelf::with("orders/7", fields)));
        match outcome {
            Ok(answer) => {
                assert_eq!(answer, whole);
                done += 1;
            }
            Err(error) => {
                assert_eq!(error, ScriptError::OutOfMemory { limit: memory_bytes_max });
                stopped += 1;
            }
        }
    }
    assert!(stopped > 10 && done > 10, "{stopped} stopped, {done} done");
}
