//! Bodies bent and broken at random: reading them, and the schemas in them, never panics.
//!
//! `LOCKWOOD_FUZZ_COUNT` says how many bodies (default 5,000), `LOCKWOOD_FUZZ_SEED` which ones.

use super::request::{read_config, read_mode, read_schema};
use crate::fuzz::{Case, Random, number};
use lockwood_node::schemas::{self, For};
use lockwood_wire::{SchemaRequest, documents::read_body};

const COUNT: u64 = 5_000;
const SEED: u64 = 0x5c4e_3a5e;

const CORPUS: &[&str] = &[
    r#"{"schema":"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"string\",\"null\"],\"maxLength\":5}}}","schemaType":"JSON"}"#,
    r##"{"schema":"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"enum\":[1,\"x\"]}}}","schemaType":"JSON","references":[],"id":-1,"version":0}"##,
    r#"{"schema":{"type":"object","required":["a"],"properties":{"a":{"pattern":"^a+$"}},"additionalProperties":false}}"#,
    r#"{"schema":"{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":3}],\"if\":true}"}"#,
    r#"{"schema":true}"#,
    r#"{"compatibility":"FULL_TRANSITIVE","compatibilityPolicy":"LENIENT"}"#,
    r#"{"mode":"READONLY"}"#,
    "null",
    "",
];

const PIECES: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"\"",
    b"\\\"",
    b"\\ud83e",
    b"null",
    b"-1",
    b"1e309",
    b"\0",
    b"\xff",
    b"\\\"$ref\\\":\\\"#\\\",",
    b"\"schemaType\":\"JSON\",",
    b"\"references\":[{}],",
    b"{\\\"not\\\":",
];

#[test]
fn whatever_is_sent_is_read_or_refused() {
    let seed = number("LOCKWOOD_FUZZ_SEED", SEED);
    let count = number("LOCKWOOD_FUZZ_COUNT", COUNT);
    let mut random = Random::new(seed, CORPUS, PIECES);
    let mut read = 0;
    for index in 0..count {
        let bytes = random.message();
        let case = Case { seed, count, index, bytes: &bytes };
        let given = read_schema(&bytes).map(|given| given.text);
        let native = read_body::<SchemaRequest>(&bytes).map(|request| request.text());
        for text in [given.ok(), native.ok()].into_iter().flatten() {
            read += 1;
            let _ = schemas::read_schema(&text, For::Documents);
        }
        let _ = (read_config(&bytes), read_mode(&bytes));
        drop(case);
    }
    // A fuzzer that only ever makes rubbish proves little.
    assert!(count < 1000 || read > count / 50, "only {read} of {count} were read; seed {seed}");
}
