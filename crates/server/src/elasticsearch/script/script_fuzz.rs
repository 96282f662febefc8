//! Scripts bent and broken at random: reading and running them never panics, and does little.
//!
//! `LOCKWOOD_FUZZ_COUNT` says how many (default 20,000), `LOCKWOOD_FUZZ_SEED` which ones.

use super::{Context, Script};
use crate::fuzz::{Case, Random, number};
use serde_json::{Map, Value, json};

const COUNT: u64 = 20_000;
const SEED: u64 = 0x5c21_9700;

const CORPUS: &[&str] = &[
    "if ( ctx._source.process_id != process_id ) { assert false }; ctx.op = 'noop';",
    "if (ctx._source.lock_type == 'exclusive') { assert false }; ctx._source.lock_count++",
    "if (--ctx._source.lock_count == 0) { ctx.op = 'delete' } else if (params.x?.y > 1.5e) { throw new E(\"x\") }",
    "ctx._source['a'] += 1; ctx._source.b = ctx._source // all\n assert a.b && !c || (1 <= -2) : 'm'",
    "",
    "/* é */ \"\\u00e9\\n\" == '\\\\'",
];

const PIECES: &[&[u8]] = &[
    b"if (",
    b") {",
    b"}",
    b"else ",
    b"assert ",
    b"throw new ",
    b"ctx",
    b"._source",
    b".op",
    b"?.",
    b"['",
    b"']",
    b"++",
    b"--",
    b"+=",
    b"== ",
    b"&& ",
    b"'",
    b"\"",
    b"\\u",
    b"//",
    b"/*",
    b"*/",
    b"\n",
    b";",
    b"1e9",
    b"9223372036854775807",
    b"0.1",
    b"\xc3\xa9",
    b"\xff",
    b"((((((((",
    b"!!!!!!!!",
    b"null",
    b"true",
];

#[test]
fn whatever_is_written_a_script_runs_or_is_refused() {
    let seed = number("LOCKWOOD_FUZZ_SEED", SEED);
    let count = number("LOCKWOOD_FUZZ_COUNT", COUNT);
    let mut random = Random::new(seed, CORPUS, PIECES);
    let params = json!({ "process_id": 1, "x": { "y": 2 }, "a": { "b": [] }, "c": "d" });
    let source = json!({ "process_id": 1, "lock_type": "shared", "lock_count": 2, "a": 1, "b": null });
    let mut ran = 0;
    for index in 0..count {
        let bytes = random.message();
        let case = Case { seed, count, index, bytes: &bytes };
        ran += u64::from(check(&String::from_utf8_lossy(&bytes), &params, &source));
        drop(case);
    }
    // A fuzzer that only ever makes rubbish proves little.
    assert!(count < 1000 || ran > count / 50, "only {ran} of {count} ran; seed {seed}");
}

fn check(text: &str, params: &Value, source: &Value) -> bool {
    let Ok(script) = Script::read(text) else { return false };
    let object = |value: &Value| value.as_object().unwrap().clone();
    let mut context = Context { op: "index".to_owned(), source: object(source), about: Map::new() };
    script.run(&mut context, &object(params)).is_ok()
}
