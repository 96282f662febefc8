//! What procedures do to documents, what they see of their own writes, and how they end.

use crate::{
    Invocation, Procedure, ScriptError, ScriptLimits,
    scene::{Shelf, answer, given, procedure, run},
};
use lockwood_model::{Json, Key};

/// What a body answers and writes, on one document.
#[track_caller]
fn check(body: &str, expected: &str, writes: &[&str]) {
    let mut shelf = Shelf::with("orders/7", r#"{"lines":[1,2],"state":"open"}"#);
    assert_eq!(run(body, &mut shelf).as_deref(), Ok(expected), "{body}");
    assert_eq!(shelf.writes, writes, "{body}");
}

#[test]
fn reading() {
    check("return db.get('orders', key)", r#"{"lines":[1,2],"state":"open"}"#, &[]);
    check("return db.get('orders', '7').state", r#""open""#, &[]);
    check("return db.get('orders', { 7 }).state", r#""open""#, &[]);
    check("return db.get('orders', 8) == nil", "true", &[]);
    check("return db.get('orders', { 7, 8 }) == nil", "true", &[]);
}

#[test]
fn putting() {
    check(
        "db.put('orders', key, { state = 'new', gone = db.null }) return db.get('orders', key)",
        r#"{"state":"new"}"#,
        &[r#"put orders/7 state="new""#],
    );
    check("db.put('carts', 'a:b', {}) return db.get('carts', 'a:b')", "{}", &["put carts/a%3Ab"]);
    check(
        "db.put('carts', { 'a', 5, '6' }, { n = 1 }) return db.get('carts', { 'a', '5', 6 }).n",
        "1",
        &["put carts/a:5:6 n=1"],
    );
}

#[test]
fn inserting() {
    check(
        "db.insert('orders', 8, { n = 1 }) return db.get('orders', 8)",
        r#"{"n":1}"#,
        &["insert orders/8 n=1"],
    );
    check(
        "return { pcall(db.insert, 'orders', 7, {}) }",
        r#"[false,"there is a document orders/7 already"]"#,
        &[],
    );
    check(
        "db.insert('orders', 8, {}) local ok = pcall(db.insert, 'orders', 8, {}) return ok",
        "false",
        &["insert orders/8"],
    );
    check(
        "db.delete('orders', 7) db.insert('orders', 7, { n = 1 }) return db.get('orders', 7)",
        r#"{"n":1}"#,
        &["delete orders/7", "insert orders/7 n=1"],
    );
}

#[test]
fn updating() {
    check(
        "db.update('orders', key, { state = db.null, n = 1 })
         db.update('orders', key, { n = db.get('orders', key).n + 1 })
         return db.get('orders', key)",
        r#"{"lines":[1,2],"n":2}"#,
        &["update orders/7 n=1 state=null", "update orders/7 n=2"],
    );
    check("return select(2, pcall(db.update, 'orders', 8, {}))", r#""there is no document orders/8""#, &[]);
    check(
        "db.delete('orders', 7) return (pcall(db.update, 'orders', 7, { n = 1 }))",
        "false",
        &["delete orders/7"],
    );
}

#[test]
fn deleting() {
    check(
        "return { db.delete('orders', 7), db.delete('orders', 7), db.delete('orders', 8), db.get('orders', 7) == nil }",
        "[true,false,false,true]",
        &["delete orders/7"],
    );
}

#[test]
fn what_a_read_gives_is_a_copy() {
    check(
        "local order = db.get('orders', 7) order.state = 'changed' return db.get('orders', 7).state",
        r#""open""#,
        &[],
    );
}

#[test]
fn refusing_is_final() {
    let refused = ScriptError::Refused { code: "sold_out".to_owned(), message: "nothing left".to_owned() };
    for body in [
        "db.fail('sold_out', 'nothing left')",
        "pcall(db.fail, 'sold_out', 'nothing left') return 1",
        "pcall(pcall, db.fail, 'sold_out', 'nothing left') return db.get('orders', 7)",
        "db.put('a', 1, {}) db.fail('sold_out', 'nothing left')",
    ] {
        assert_eq!(answer(body), Err(refused.clone()), "{body}");
    }
    assert_eq!(refused.to_string(), "nothing left");
    let short = ScriptError::Refused { code: "no".to_owned(), message: "no".to_owned() };
    assert_eq!(answer("db.fail('no')"), Err(short));
    assert!(matches!(answer("db.fail(5)"), Err(ScriptError::Runtime { .. })));
}

#[test]
fn a_failure_of_the_store_is_final() {
    for body in ["db.put('a', 1, {})", "pcall(db.put, 'a', 1, {}) return 1"] {
        let mut shelf = Shelf { broken: Some("the disk is full".to_owned()), ..Shelf::default() };
        let failed = ScriptError::Documents { message: "the disk is full".to_owned() };
        assert_eq!(run(body, &mut shelf), Err(failed), "{body}");
    }
}

#[test]
fn what_is_wrong_with_a_call_is_said_with_its_line() {
    for (call, message) in [
        ("db.get(5, 1)", "the name of a collection is text, not integer"),
        ("db.get('a')", "a part of a key is a whole number or text, not nil"),
        ("db.get('a', {})", "a key must have a part: give a number, text, or a list of them"),
        ("db.get('a', 1.5)", "a part of a key is a whole number or text, not 1.5"),
        ("db.get('a', { 1, true })", "a part of a key is a whole number or text, not boolean"),
        (
            "db.get('a', 2^53 + 2)",
            "the number 9007199254740994 in a key may have been rounded; beyond 2^53 give it as text",
        ),
        ("db.get('a', '\\xff')", "the text \"\u{fffd}\" is not UTF-8; only UTF-8 can be kept"),
        ("db.put('a', 1)", "a document is a table of fields, not nil"),
        ("db.put('a', 1, { 1, 2 })", "a document is a table of fields with names, not a list"),
        ("db.put('a', 1, db.array({}))", "a document is a table of fields with names, not a list"),
        ("db.put('a', 1, { f = print or string.rep })", "f is a function, which JSON does not have"),
        ("db.update('a', 1, {})", "there is no document a/1"),
        ("db.array(5)", "db.array takes a table, not number"),
        ("db.fail(nil)", "db.fail takes a code and a message, both text"),
    ] {
        let refused = answer(&format!("\n\n{call}")).unwrap_err();
        assert_eq!(refused.to_string(), format!("line 3: {message}"), "{call}");
    }
}

#[test]
fn a_large_number_names_its_document_as_text() {
    let key = Key::number((1 << 53) + 1);
    let call = Invocation { key: Some(&key), arguments: &[] };
    let mut shelf = Shelf::with("orders/9007199254740993", r#"{"n":1}"#);
    let found = procedure("db.update('orders', key, { n = 2 }) return type(key)").unwrap();
    assert_eq!(found.run(&call, &mut shelf).unwrap().as_str(), "\"string\"");
    assert_eq!(shelf.writes, ["update orders/9007199254740993 n=2"]);
}

#[test]
fn keys_and_arguments() {
    let source =
        "return function(db, key, ...) return { key = key, len = select('#', ...), all = { ... } } end";
    let procedure = Procedure::compile("test", source, ScriptLimits::PROCEDURE).unwrap();
    let run = |key: Option<&str>, arguments: &[&str]| {
        let key: Option<Key> = key.map(|key| key.parse().unwrap());
        let arguments: Vec<Json> = arguments.iter().map(|text| Json::trusted(text)).collect();
        let call = Invocation { key: key.as_ref(), arguments: &arguments };
        procedure.run(&call, &mut Shelf::default()).map(|answer| answer.to_string())
    };
    assert_eq!(run(None, &[]).as_deref(), Ok(r#"{"all":{},"len":0}"#));
    assert_eq!(run(Some("a"), &["1"]).as_deref(), Ok(r#"{"all":[1],"key":"a","len":1}"#));
    let both = run(Some("a:5"), &["null", "[]", "{\"x\":[1]}"]);
    assert_eq!(both.as_deref(), Ok(r#"{"all":[null,[],{"x":[1]}],"key":["a",5],"len":3}"#));
    let refused = run(None, &["1", "[9007199254740993]"]).unwrap_err();
    assert!(matches!(refused, ScriptError::BadArgument { .. }), "{refused:?}");
    assert_eq!(
        refused.to_string(),
        "argument 2 has the number 9007199254740993, which a function cannot hold exactly; keep such numbers as text"
    );
}

#[test]
fn the_database_cannot_be_changed_or_kept() {
    for attack in ["db.get = nil", "db.null = 1", "rawset(db, 'x', 1)", "kept = db", "string.db = db"] {
        let outcome = answer(&format!("{attack} return 1"));
        assert!(matches!(outcome, Err(ScriptError::Runtime { .. })), "{attack}: {outcome:?}");
    }
}

#[test]
fn an_answer_that_is_no_json() {
    for (expression, message) in [
        ("0 / 0", "the answer is NaN, which JSON does not have; keep it as text"),
        ("math.huge", "the answer is inf, which JSON does not have; keep it as text"),
        ("{ a = { 1, -1 / 0 } }", "the answer.a[2] is -inf, which JSON does not have; keep it as text"),
        ("{ a = function() end }", "the answer.a is a function, which JSON does not have"),
        ("{ 1, nil, 3, x = 1 }", "the answer is both a list and an object: it has the name \"x\" too"),
        ("{ [5] = 1 }", "the answer is a list with a hole before 5; put db.null there"),
        ("{ [1.5] = 1 }", "the answer has a key that is neither a name nor a place in a list: number"),
        ("{ [true] = 1 }", "the answer has a key that is neither a name nor a place in a list: boolean"),
        ("'\\xff'", "the text \"\u{fffd}\" is not UTF-8; only UTF-8 can be kept"),
    ] {
        let refused = answer(&format!("return {expression}")).unwrap_err();
        assert!(matches!(refused, ScriptError::BadResult { .. }), "{expression}: {refused:?}");
        assert_eq!(refused.to_string(), message, "{expression}");
    }
    let refused = answer("local t = {} t.t = t return t").unwrap_err();
    assert_eq!(refused.to_string(), "tables are nested deeper than 120 levels; perhaps one holds itself");
}

#[test]
fn metatables_of_a_function_do_not_reach_into_answers() {
    let body = "local calls = 0
        local t = setmetatable({ a = 1 }, {
            __index = function() calls += 1 return 5 end,
            __iter = function() calls += 1 return next, {} end,
            __len = function() calls += 1 return 99 end,
        })
        db.put('a', 1, t)
        return { t, calls }";
    assert_eq!(answer(body).as_deref(), Ok(r#"[{"a":1},0]"#));
    assert_eq!(given("return argument", "[[],{}]").as_deref(), Ok("[[],{}]"));
}
