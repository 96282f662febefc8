//! Values that go into a function and come back are the same, or are refused.

use crate::{
    ScriptError,
    scene::{Random, answer, given},
};
use lockwood_model::Json;

#[test]
fn values_come_back_the_same() {
    let texts = [
        "null",
        "true",
        "false",
        "0",
        "-1",
        "1.5",
        "-2.25e-7",
        "1e300",
        "9007199254740992",
        "-9007199254740992",
        "\"\"",
        "\"ü\\n\\\"\\u0000𝄞\"",
        "[]",
        "{}",
        "[[]]",
        "[{}]",
        "[null]",
        "[null,1,null]",
        "{\"\":1}",
        "{\"1\":1}",
        "{\"a\":null,\"b\":[],\"c\":{}}",
        "[1,[2,[3,[4]]]]",
        "\"9007199254740993\"",
        "{\"9007199254740993\":\"-1e999\"}",
    ];
    for text in texts {
        assert_eq!(given("return argument", text), Ok(canonical(text)), "{text}");
    }
}

fn canonical(text: &str) -> String {
    serde_json::from_str::<serde_json::Value>(text).unwrap().to_string()
}

#[test]
fn numbers_that_would_be_rounded_are_refused() {
    for number in ["9007199254740993", "-9007199254740993", "18446744073709551616", "1e400"] {
        for text in
            [number.to_owned(), format!("[1,\"x\",{number}]"), format!("{{\"a\\\"1\":{{\"b\":{number}}}}}")]
        {
            let refused = given("return 1", &text).unwrap_err();
            assert!(matches!(refused, ScriptError::BadArgument { .. }), "{text}: {refused:?}");
        }
    }
}

#[test]
fn numbers_that_a_function_makes() {
    for (expression, text) in [
        ("3.0", "3"),
        ("-0.0", "0"),
        ("2^53", "9007199254740992"),
        ("2^53 + 2", "9007199254740994.0"),
        ("2^70", "1.1805916207174113e+21"),
        ("0.1 + 0.2", "0.30000000000000004"),
        ("1e-320", "1e-320"),
    ] {
        assert_eq!(answer(&format!("return {expression}")).as_deref(), Ok(text), "{expression}");
    }
}

#[test]
fn lists_and_objects() {
    for (expression, text) in [
        ("{}", "{}"),
        ("db.array({})", "[]"),
        ("db.array(db.array({}))", "[]"),
        ("db.array({ 1, 2 })", "[1,2]"),
        ("{ 1, 2, 3 }", "[1,2,3]"),
        ("{ db.null, 2 }", "[null,2]"),
        ("{ a = {}, b = db.array({}) }", r#"{"a":{},"b":[]}"#),
        ("{ b = 1, a = 2, ['ä'] = 3 }", r#"{"a":2,"b":1,"ä":3}"#),
        ("{ ['1'] = 1, ['2'] = 2 }", r#"{"1":1,"2":2}"#),
        ("nil", "null"),
    ] {
        assert_eq!(answer(&format!("return {expression}")).as_deref(), Ok(text), "{expression}");
    }
    // A list stays one when it becomes empty.
    assert_eq!(given("table.remove(argument) return argument", "[1]").as_deref(), Ok("[]"));
    let mixed = given("argument.name = 1 return argument", "[]").unwrap_err();
    assert!(mixed.to_string().contains("both a list and an object"), "{mixed}");
}

#[test]
fn values_are_as_deep_as_documents_may_be() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(given("return argument", &nested(120)), Ok(nested(120)));
    assert!(given("return { argument }", &nested(120)).is_err());
    assert!(given("return argument", &nested(150)).is_err());
}

#[test]
fn random_values_come_back_the_same() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let value = random_value(&mut random, 4);
        let text = Json::from(value.clone()).to_string();
        let back = given("return argument", &text).unwrap();
        let same: serde_json::Value = serde_json::from_str(&back).unwrap();
        assert_eq!(same, value, "seed {seed}: {text} came back as {back}");
    }
}

fn random_value(random: &mut Random, depth: usize) -> serde_json::Value {
    use serde_json::{Value, json};
    let len = random.below(5);
    match random.below(if depth == 0 { 5 } else { 8 }) {
        0 => Value::Null,
        1 => json!(random.below(2) == 0),
        2 => json!(random.below(1 << 31) as i64 * random.below(1 << 22) as i64 - (1 << 40)),
        3 => json!(random.below(1000) as f64 / 7.0 + 0.01),
        4 => {
            json!((0..len).map(|_| *random.pick(&['a', '"', '\\', '\n', 'ß', '𝄞', '\0'])).collect::<String>())
        }
        5 | 6 => Value::Array((0..len).map(|_| random_value(random, depth - 1)).collect()),
        _ => {
            let names = ["a", "b", "1", "ü\"", ""];
            let members =
                (0..len).map(|_| ((*random.pick(&names)).to_owned(), random_value(random, depth - 1)));
            Value::Object(members.collect())
        }
    }
}
