//! Random damage to schemas: reading them never panics, nor does anything that is done with what was read.
//! Knows nothing of what is right.

use crate::{Level, Policy, Schema, check, diff, random::Random};
use lockwood_model::Budget;
use serde_json::json;

const SEEDS: u64 = 4_000;

const TEXTS: [&str; 4] = [
    r##"{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/n","definitions":{"n":{"type":"object","properties":{"v":{"type":"integer","minimum":1},"n":{"$ref":"#"}},"dependencies":{"v":["n"]}}}}"##,
    r#"{"type":"object","required":["a"],"properties":{"a":{"enum":[1,"x",null]},"b":{"type":["string","null"],"pattern":"^a+$"}},"patternProperties":{"^x":{"type":"array","items":{"maxLength":3}}},"additionalProperties":false}"#,
    r#"{"anyOf":[{"type":"string"},{"not":{"const":3}}],"allOf":[true],"if":{"type":"object"},"then":{"minProperties":1},"else":{"multipleOf":0.5}}"#,
    r##"{"$defs":{"t":{"prefixItems":[{"$ref":"#/$defs/t"},{"$ref":"#"}],"items":false,"contains":{},"maxContains":2}},"unevaluatedItems":{"$ref":"#/$defs/t"},"properties":{"i":{"x-lockwood-index":true}}}"##,
];

const PIECES: [&str; 14] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ",",
    ":",
    "true",
    "-1",
    "1e999",
    "\"$ref\":\"#\"",
    "\"type\":{}",
    "\\u0000",
    "\"items\":[]",
];

#[test]
fn damaged_schemas_never_panic() {
    let undamaged: Vec<Schema> = TEXTS.iter().map(|text| Schema::parse(text).unwrap()).collect();
    let mut read = 0;
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let text = damaged(&mut random);
        println!("seed {seed}: {text}");
        if let Ok(schema) = Schema::parse(&text) {
            read += 1;
            use_everywhere(&schema, random.pick(&undamaged));
        }
    }
    assert!(read > SEEDS / 20, "only {read} could be read");
}

fn damaged(random: &mut Random) -> String {
    let mut chars: Vec<char> = random.pick(&TEXTS).chars().collect();
    for _ in 0..=random.below(2) {
        let start = random.below(chars.len());
        let end = (start + random.below(6)).min(chars.len());
        match random.below(4) {
            0 => drop(chars.drain(start..end)),
            1 => drop(chars.splice(start..end, random.pick(&PIECES).chars())),
            2 => {
                let copied: Vec<char> = chars[start..end].to_vec();
                let place = random.below(chars.len());
                chars.splice(place..place, copied);
            }
            // A letter or digit in place of another is what most often still is a schema.
            _ => chars[start] = *random.pick(&['a', 'n', 'v', '0', '7', 'x', '#', '/']),
        }
        if chars.is_empty() {
            return String::new();
        }
    }
    chars.into_iter().collect()
}

fn use_everywhere(schema: &Schema, other: &Schema) {
    for document in
        [json!({"a": 1, "v": {"n": [1]}, "xx": ["long text"]}), json!([[[]], 1]), json!("a"), json!(1.5)]
    {
        let _ = schema.judge(&document);
        let _ = schema.unknown_fields(&document, &Budget::unlimited());
    }
    let _ = schema.field(&["v", "0", "n"], &Budget::unlimited());
    let _ = (schema.describes_objects(), schema.indexed_fields(), schema.fingerprint());
    let _ = check(Level::Full, Policy::Strict, schema, &[other, schema]);
    let _ = check(Level::Full, Policy::Lenient, schema, &[other]);
    let _ = diff(schema, other);
    assert_eq!(Schema::parse(schema.canonical()).as_ref(), Ok(schema));
}
