//! Random schemas with `unevaluated…` and `additionalItems`, with the validator as the judge: what is called
//! compatible must be so. Knows nothing of the rules.

use crate::{
    random::Random,
    soundness_test::{judge, parse},
};
use serde_json::{Value, json};

const SEEDS: u64 = 3_000;
const DRAFTS: [&str; 3] = [
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
];

#[test]
fn what_is_left_over_is_read_as_it_was_written() {
    let (mut compatible, mut judged) = (0, 0);
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let (old_draft, new_draft) = (*random.pick(&DRAFTS), *random.pick(&DRAFTS));
        let shape = random.clone();
        let old = root(&mut random, old_draft);
        // Often the same but for the draft and one change at the top.
        let mut new = if random.once_in(4) {
            root(&mut random, new_draft)
        } else {
            root(&mut shape.clone(), new_draft)
        };
        change(&mut random, &mut new, new_draft);
        let (old_schema, new_schema) = (parse(&old), parse(&new));
        judged += judge(seed, &mut random, (&old, &old_schema), (&new, &new_schema), &mut compatible);
        judged += judge(seed, &mut random, (&new, &new_schema), (&old, &old_schema), &mut compatible);
    }
    println!("{compatible} compatible pairs, {judged} documents judged");
    assert!(compatible > SEEDS / 10 && judged > 5_000, "it looks at too little: {compatible}, {judged}");
}

fn root(random: &mut Random, draft: &str) -> Value {
    let mut root = match random.once_in(2) {
        true => object(random, 2),
        false => list(random, draft, 2),
    };
    root["$schema"] = json!(draft);
    root
}

fn change(random: &mut Random, schema: &mut Value, draft: &str) {
    let is_list = schema["type"] == "array";
    let names: Vec<String> = schema.as_object().unwrap().keys().cloned().collect();
    let name = random.pick(&names).clone();
    match random.below(4) {
        0 if !["$schema", "type", "items"].contains(&name.as_str()) => drop(schema[&name].take()),
        1 if is_list => schema["unevaluatedItems"] = leaf(random),
        1 => schema["unevaluatedProperties"] = leaf(random),
        2 if is_list => schema["allOf"] = json!([list(random, draft, 0)]),
        2 => schema["allOf"] = json!([object(random, 0)]),
        _ => {}
    }
    schema.as_object_mut().unwrap().retain(|_, value| !value.is_null());
}

fn leaf(random: &mut Random) -> Value {
    let all = [
        json!(true),
        json!(false),
        json!({}),
        json!({ "type": "integer" }),
        json!({ "type": ["integer", "string"] }),
        json!({ "type": "string" }),
    ];
    random.pick(&all).clone()
}

fn object(random: &mut Random, depth: usize) -> Value {
    let mut schema = json!({ "type": "object" });
    for name in ["a", "b", "xa"] {
        if random.once_in(3) {
            schema["properties"][name] = leaf(random);
        }
    }
    if random.once_in(5) {
        schema["patternProperties"] = json!({ *random.pick(&["^x", "a$"]): leaf(random) });
    }
    if random.once_in(6) {
        schema["additionalProperties"] = leaf(random);
    }
    if random.once_in(3) {
        schema["required"] = json!([*random.pick(&["a", "b", "xa"])]);
    }
    if random.once_in(2) {
        schema["unevaluatedProperties"] = leaf(random);
    }
    parts(random, &mut schema, depth, &|random, depth| object(random, depth));
    schema
}

fn list(random: &mut Random, draft: &str, depth: usize) -> Value {
    let mut schema = json!({ "type": "array" });
    let places: Vec<Value> = (0..random.below(3)).map(|_| leaf(random)).collect();
    let rest = if random.once_in(3) { Some(leaf(random)) } else { None };
    let unevaluated = if random.once_in(2) { Some(leaf(random)) } else { None };
    let (first, further) =
        if draft == DRAFTS[2] { ("prefixItems", "items") } else { ("items", "additionalItems") };
    if !places.is_empty() {
        schema[first] = json!(places);
    }
    if let Some(rest) = rest {
        schema[further] = rest;
    }
    if let Some(unevaluated) = unevaluated {
        schema["unevaluatedItems"] = unevaluated;
    }
    if random.once_in(6) {
        schema["contains"] = leaf(random);
    }
    parts(random, &mut schema, depth, &|random, depth| list(random, draft, depth));
    schema
}

/// Schemas for the same value that may describe some of what would be left.
fn parts(random: &mut Random, schema: &mut Value, depth: usize, make: &dyn Fn(&mut Random, usize) -> Value) {
    if depth == 0 {
        return;
    }
    let part = |random: &mut Random| make(random, depth - 1);
    match random.below(7) {
        0 => schema["allOf"] = json!([part(random)]),
        1 => schema["allOf"] = json!([part(random), part(random)]),
        2 => schema["anyOf"] = json!([part(random), part(random)]),
        3 => schema["if"] = part(random),
        4 => {
            schema["if"] = part(random);
            schema["then"] = part(random);
            schema["else"] = part(random);
        }
        5 => schema["dependentSchemas"] = json!({ "a": part(random) }),
        _ => {}
    }
}
