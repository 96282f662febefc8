//! What scripts do, and how they fail.

use super::{Context, Failure, Script};
use serde_json::{Map, Value, json};

const PARAMS: &str = r#"{"process_id":123,"name":"ann","deep":{"x":{"y":1}},"list":[1]}"#;

fn run(script: &str, source: &str) -> Result<Context, Failure> {
    let params: Map<String, Value> = serde_json::from_str(PARAMS).unwrap();
    let source: Map<String, Value> = serde_json::from_str(source).unwrap();
    let about = json!({ "_id": "1", "_version": 7 }).as_object().unwrap().clone();
    let mut context = Context { op: "index".to_owned(), source, about };
    let script = Script::read(script).unwrap_or_else(|error| panic!("{script}: {error:?}"));
    script.run(&mut context, &params).map(|()| context)
}

#[track_caller]
fn check(script: &str, source: &str, op: &str, after: &str) {
    let context = run(script, source).unwrap_or_else(|failure| panic!("{script}: {failure:?}"));
    assert_eq!(context.op, op, "{script}");
    assert_eq!(Value::Object(context.source), serde_json::from_str::<Value>(after).unwrap(), "{script}");
}

#[track_caller]
fn check_fails(script: &str, source: &str, kind: &str, reason: &str) {
    let failure = run(script, source).expect_err(script);
    assert_eq!((&*failure.kind, &*failure.reason), (kind, reason), "{script}");
}

#[track_caller]
fn check_misread(script: &str, reason: &str) {
    let misread = Script::read(script).expect_err(script);
    assert!(misread.reason.contains(reason), "{script}: {misread:?}");
}

/// A condition, true or not.
#[track_caller]
fn check_true(condition: &str, expected: bool) {
    let op = if expected { "yes" } else { "no" };
    let script = format!("if ({condition}) {{ ctx.op = 'yes' }} else {{ ctx.op = 'no' }}");
    check(&script, r#"{"a":1}"#, op, r#"{"a":1}"#);
}

const JUDGE: &str = "if ( ctx._source.process_id != process_id ) { assert false }; ctx.op = 'noop';";

#[test]
fn the_document_lock() {
    check(JUDGE, r#"{"process_id":123}"#, "noop", r#"{"process_id":123}"#);
    check_fails(JUDGE, r#"{"process_id":234}"#, "power_assertion_error", "assert false\n");
    check_fails(JUDGE, "{}", "power_assertion_error", "assert false\n");
    let painless = JUDGE.replace("!= process_id", "!= params.process_id");
    check(&painless, r#"{"process_id":123.0}"#, "noop", r#"{"process_id":123.0}"#);
    check_fails(&painless, r#"{"process_id":"123"}"#, "power_assertion_error", "assert false\n");
}

#[test]
fn the_tree_lock() {
    let lock = "if (ctx._source.lock_type == 'exclusive') { assert false }; ctx._source.lock_count++";
    check(
        lock,
        r#"{"lock_type":"shared","lock_count":1}"#,
        "index",
        r#"{"lock_type":"shared","lock_count":2}"#,
    );
    check_fails(lock, r#"{"lock_type":"exclusive"}"#, "power_assertion_error", "assert false\n");
    for unlock in [
        "if (--ctx._source.lock_count == 0) { ctx.op = 'delete' }",
        "ctx._source.lock_count -= 1; if (ctx._source.lock_count == 0) { ctx.op = 'delete' }",
        "ctx._source.lock_count--\nif (ctx._source.lock_count == 0) ctx.op = \"delete\"",
    ] {
        check(unlock, r#"{"lock_count":2}"#, "index", r#"{"lock_count":1}"#);
        check(unlock, r#"{"lock_count":1}"#, "delete", r#"{"lock_count":0}"#);
    }
}

#[test]
fn conditions() {
    for (condition, expected) in [
        ("1 == 1.0", true),
        ("1 == '1'", false),
        ("ctx._source.a == 1 && ctx._source.b == null", true),
        ("ctx._source.b", false),
        ("!ctx._source.b || missing", true),
        ("1 < 2 && 2 <= 2 && 3 > 2 && 3 >= 3", true),
        ("'a' < 'b'", true),
        ("1 + 2 - 3 == 0", true),
        ("-1 < 0", true),
        ("(1 == 2) == false", true),
        ("name == 'ann' && params['name'] == \"ann\"", true),
        ("params.deep.x.y == 1 && deep.x.y == 1", true),
        ("params.nothing?.at?.all == null", true),
        ("list == params.list", true),
        ("ctx._id == '1' && ctx._version == 7", true),
        ("'it\\'s \\u0041' == \"it's A\"", true),
        ("5L == 5", true),
        ("1.5 == 1.5d /* a comment */", true),
        ("'' || 0 || null", false),
    ] {
        check_true(condition, expected);
    }
}

#[test]
fn statements() {
    check("", "{}", "index", "{}");
    check(";;", "{}", "index", "{}");
    check(
        "// nothing\nctx._source.a = 1 // one\nctx._source['b'] = 'x'",
        "{}",
        "index",
        r#"{"a":1,"b":"x"}"#,
    );
    check("ctx._source.a = deep; ctx._source.a.x.y += 1.5", "{}", "index", r#"{"a":{"x":{"y":2.5}}}"#);
    check("if (false) ctx.op = 'a'; else if (true) { ctx.op = 'b' } else { ctx.op = 'c' }", "{}", "b", "{}");
    check("ctx._source.a = ctx._source.b++", r#"{"b":1}"#, "index", r#"{"a":1,"b":2}"#);
    check("ctx._source.a = ++ctx._source.b", r#"{"b":1}"#, "index", r#"{"a":2,"b":2}"#);
    check("assert true : 'fine'", "{}", "index", "{}");
}

#[test]
fn text_is_joined_by_plus() {
    for (expression, expected) in [
        ("'a' + 'b'", "ab"),
        ("'a' + 1 + 2", "a12"),
        ("1 + 2 + 'a'", "3a"),
        ("'n' + null + true", "nnulltrue"),
        ("'v' + 1.5", "v1.5"),
        ("name + '-' + params.process_id", "ann-123"),
        ("'a' + (1 + 2) + ctx._source.b", "a3x"),
    ] {
        let after = json!({ "b": "x", "a": expected }).to_string();
        check(&format!("ctx._source.a = {expression}"), r#"{"b":"x"}"#, "index", &after);
    }
    check("ctx._source.a += '!'", r#"{"a":"x"}"#, "index", r#"{"a":"x!"}"#);
    check("ctx._source.a += 'x'", r#"{"a":1}"#, "index", r#"{"a":"1x"}"#);
    check("ctx.op = 'no' + 'op'", "{}", "noop", "{}");
    check_true("'ann' == name && 'an' + 'n' == name", true);
}

#[test]
fn failures() {
    check_fails("assert 1 == 2", "{}", "power_assertion_error", "assert 1 == 2\n");
    check_fails("assert false : 'held'", "{}", "power_assertion_error", "held. Expression: false");
    check_fails("throw new IllegalStateException('held')", "{}", "illegal_state_exception", "held");
    check_fails("throw new Exception()", "{}", "exception", "");
    check_fails("nobody == 1", "{}", "missing_property_exception", "No such property: nobody");
    let reason = "Cannot get property 'b' on null object";
    check_fails("ctx._source.a.b == 1", "{}", "null_pointer_exception", reason);
    check_fails(
        "ctx._source.a++",
        "{}",
        "null_pointer_exception",
        "only numbers can be added and subtracted",
    );
    check_fails(
        "ctx._source.a -= 'x'",
        r#"{"a":"x"}"#,
        "class_cast_exception",
        "only numbers can be added and subtracted",
    );
    check_fails(
        "ctx._source.a++",
        r#"{"a":"x"}"#,
        "class_cast_exception",
        "only numbers can be added and subtracted",
    );
    let reason = "only text, numbers, booleans and null can be added to text";
    for object in ["'a' + deep", "list + 'a'"] {
        check_fails(object, "{}", "class_cast_exception", reason);
    }
    check_fails("null + 1", "{}", "null_pointer_exception", "only numbers can be added and subtracted");
    check_fails("9223372036854775807 + 1", "{}", "arithmetic_exception", "the number is too large");
    for place in ["ctx", "ctx._source", "ctx._id", "params.x", "process_id"] {
        let failure = run(&format!("{place} = 1"), "{}").expect_err(place);
        assert_eq!(failure.kind, "illegal_argument_exception");
    }
}

#[test]
fn what_is_no_script_here() {
    check_misread("if (true { }", "[)] is missing");
    check_misread("if (true) {", "[}] is missing");
    check_misread("ctx.op = ", "ends too early");
    check_misread("ctx.op = 'x", "does not end");
    check_misread("/* x", "does not end");
    check_misread("'\\q'", "unknown escape");
    check_misread("a b", "unexpected [b]");
    check_misread("1 = 2", "can be assigned");
    check_misread("while (true) {}", "not supported");
    check_misread("for (i in 1) {}", "not supported");
    check_misread("ctx._source.list.add(1)", "calls are not supported");
    check_misread("99999999999999999999", "invalid number");
    check_misread("}", "unexpected [}]");
    check_misread("a # b", "unexpected character [#]");
}

#[test]
fn a_small_script_cannot_make_much() {
    let script = "ctx._source.a = ctx._source; ctx._source.b = ctx._source; ".repeat(100);
    let failure = run(&script, r#"{"x":"0123456789"}"#).expect_err("too much");
    assert_eq!(failure.kind, "circuit_breaking_exception");
    let script = "ctx._source.a += ctx._source.a; ".repeat(100);
    let failure = run(&script, r#"{"a":"0123456789"}"#).expect_err("too much");
    assert_eq!(failure.kind, "circuit_breaking_exception");
    let script = "ctx._source.a = ctx._source; ".repeat(500);
    assert!(run(&script, "{}").is_ok());
}

#[test]
fn deep_scripts_are_refused() {
    for (open, close) in
        [("(", ")"), ("!", ""), ("-", ""), ("if (true) { ", "}"), ("if (true) ", ""), ("1 + ", "")]
    {
        let script = format!("{}1{}", open.repeat(50_000), close.repeat(50_000));
        assert!(Script::read(&script).is_err(), "{open}");
    }
    assert!(Script::read(&format!("a{}", ".b".repeat(50_000))).is_err());
    assert!(Script::read(&"if (true) {} else ".repeat(50_000)).is_err());
}
