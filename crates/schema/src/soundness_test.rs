//! Random schemas and documents: what is called compatible must be so, with the validator as the judge. Knows
//! nothing of the rules.

use crate::{Level, Policy, Schema, check, random::Random};
use serde_json::{Map, Value, json};

const SEEDS: u64 = 4_000;
const DOCUMENTS: usize = 40;
const DRAFTS: [&str; 3] = [
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
];
const NAMES: [&str; 4] = ["a", "b", "xa", "xb"];

#[test]
fn compatible_schemas_read_what_was_written() {
    let (mut compatible, mut judged) = (0, 0);
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let old = schema(&mut random, 3);
        let new = mutated(&mut random, &old);
        let (old_schema, new_schema) = (parse(&old), parse(&new));
        judged += judge(seed, &mut random, (&old, &old_schema), (&new, &new_schema), &mut compatible);
        judged += judge(seed, &mut random, (&new, &new_schema), (&old, &old_schema), &mut compatible);
    }
    println!("{compatible} compatible pairs, {judged} documents judged");
    assert!(
        compatible > SEEDS / 5 && judged > 10_000,
        "the test looks at too little: {compatible}, {judged}"
    );
}

/// How many documents of `old` were put before `new`.
pub(super) fn judge(
    seed: u64,
    random: &mut Random,
    (old_value, old): (&Value, &Schema),
    (new_value, new): (&Value, &Schema),
    compatible: &mut u64,
) -> usize {
    let found = check(Level::Backward, Policy::Strict, new, &[old]);
    assert_eq!(found.len(), check(Level::Forward, Policy::Strict, old, &[new]).len(), "seed {seed}: mirror");
    assert_eq!(check(Level::Full, Policy::Strict, old, &[old]), [], "seed {seed}: with itself");
    if !found.is_empty() {
        return 0;
    }
    *compatible += 1;
    let mut judged = 0;
    for _ in 0..DOCUMENTS {
        let guide = if random.once_in(3) { new_value } else { old_value };
        let document = document(random, guide, old_value, 4);
        if old.judge(&document).is_ok() {
            judged += 1;
            let verdict = new.judge(&document);
            assert!(verdict.is_ok(), "seed {seed}: {document} fits {old:?} and not {new:?}: {verdict:?}");
        }
    }
    judged
}

pub(super) fn parse(value: &Value) -> Schema {
    Schema::parse(&value.to_string()).unwrap_or_else(|invalid| panic!("{value}: {invalid}"))
}

/// At the top there are definitions to refer to; references only stand below properties and items.
fn schema(random: &mut Random, depth: usize) -> Value {
    let mut root = node(random, depth);
    if root.is_boolean() {
        root = json!({});
    }
    root["$defs"] = json!({ "d": node(random, 1) });
    if random.once_in(3) {
        // What a draft does not know must not be taken for a reason; a change may leave this away.
        root["$schema"] = json!(*random.pick(&DRAFTS));
    }
    root
}

fn node(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 5 } else { 14 }) {
        0 => numbers(random),
        1 => texts(random),
        2 => json!({ "enum": values(random) }),
        3 => json!({ "type": *random.pick(&["null", "boolean", "integer", "string", "object", "array"]) }),
        4 => random.pick(&[json!(true), json!({}), json!(false), json!({"const": 1})]).clone(),
        5..=8 => object(random, depth),
        9 => list(random, depth),
        10 => json!({ "anyOf": [node(random, depth - 1), node(random, depth - 1)] }),
        11 => {
            // Variants that exclude each other; that others may not is an exception that is meant.
            let variants = [texts(random), numbers(random), json!({ "type": "null" })];
            json!({ "oneOf": variants[..2 + random.below(2)] })
        }
        12 => json!({ "allOf": [node(random, depth - 1), node(random, depth - 1)] }),
        _ => rare(random, depth),
    }
}

fn rare(random: &mut Random, depth: usize) -> Value {
    let below = |random: &mut Random| node(random, depth - 1);
    match random.below(7) {
        0 => json!({ "not": below(random) }),
        1 => json!({ "if": below(random), "then": below(random), "else": below(random) }),
        2 => json!({ "dependentSchemas": { "a": below(random) } }),
        3 => {
            json!({ "dependentRequired": { "a": ["b"] }, "propertyNames": { "maxLength": 1 + random.below(2) } })
        }
        4 => {
            json!({ "contains": below(random), "minContains": random.below(3), "maxContains": 1 + random.below(3) })
        }
        5 => json!({ "dependencies": { "a": ["b"], "b": below(random) } }),
        _ => {
            json!({ "type": "object", "properties": { "a": below(random) }, "unevaluatedProperties": false })
        }
    }
}

fn numbers(random: &mut Random) -> Value {
    let mut schema = json!({ "type": *random.pick(&["integer", "number"]) });
    for keyword in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"] {
        if random.once_in(4) {
            schema[keyword] = json!(random.below(6));
        }
    }
    if random.once_in(4) {
        schema["multipleOf"] = json!(1 + random.below(4));
    }
    schema
}

fn texts(random: &mut Random) -> Value {
    let mut schema = json!({ "type": "string" });
    for keyword in ["minLength", "maxLength"] {
        if random.once_in(3) {
            schema[keyword] = json!(random.below(4));
        }
    }
    if random.once_in(5) {
        schema["pattern"] = json!(*random.pick(&["^x", "a", "b$"]));
    }
    schema
}

fn values(random: &mut Random) -> Vec<Value> {
    let all = [
        json!(null),
        json!(true),
        json!(1),
        json!(2.5),
        json!(4),
        json!("a"),
        json!("xb"),
        json!([]),
        json!({}),
    ];
    (0..=random.below(4)).map(|_| random.pick(&all).clone()).collect::<Vec<_>>().into_iter().fold(
        Vec::new(),
        |mut once, value| {
            if !once.contains(&value) {
                once.push(value);
            }
            once
        },
    )
}

fn below(random: &mut Random, depth: usize) -> Value {
    if random.once_in(8) {
        return json!({ "$ref": *random.pick(&["#", "#/$defs/d"]) });
    }
    node(random, depth - 1)
}

fn object(random: &mut Random, depth: usize) -> Value {
    let mut schema = json!({ "properties": {} });
    if !random.once_in(4) {
        schema["type"] = json!("object");
    }
    for name in NAMES {
        if random.once_in(2) {
            schema["properties"][name] = below(random, depth);
        }
        if random.once_in(5) {
            let mut required: Vec<Value> = schema["required"].as_array().cloned().unwrap_or_default();
            required.push(json!(name));
            schema["required"] = json!(required);
        }
    }
    if random.once_in(2) {
        schema["additionalProperties"] = if random.once_in(3) { below(random, depth) } else { json!(false) };
    }
    if random.once_in(4) {
        schema["patternProperties"] = json!({ *random.pick(&["^x", "a$"]): below(random, depth) });
    }
    if random.once_in(6) {
        schema["dependentRequired"] = json!({ "a": [*random.pick(&NAMES)] });
    }
    for keyword in ["minProperties", "maxProperties"] {
        if random.once_in(8) {
            schema[keyword] = json!(random.below(4));
        }
    }
    schema
}

fn list(random: &mut Random, depth: usize) -> Value {
    let mut schema = json!({ "type": "array" });
    if random.once_in(2) {
        schema["items"] = below(random, depth);
    }
    if random.once_in(3) {
        schema["prefixItems"] = (0..=random.below(2)).map(|_| below(random, depth)).collect();
    }
    for keyword in ["minItems", "maxItems"] {
        if random.once_in(5) {
            schema[keyword] = json!(random.below(3));
        }
    }
    if random.once_in(6) {
        schema["uniqueItems"] = json!(true);
    }
    schema
}

/// A schema like the first: something was added, removed or replaced somewhere.
fn mutated(random: &mut Random, schema: &Value) -> Value {
    let mut changed = schema.clone();
    for _ in 0..=random.below(2) {
        mutate(random, &mut changed);
    }
    changed
}

fn mutate(random: &mut Random, schema: &mut Value) {
    let Value::Object(object) = schema else {
        *schema = node(random, 1);
        return;
    };
    let keywords: Vec<String> = object.keys().cloned().collect();
    let Some(keyword) = keywords.get(random.below(keywords.len().max(1))).cloned() else {
        *schema = node(random, 1);
        return;
    };
    match (keyword.as_str(), &mut object[&keyword]) {
        (
            "$defs" | "properties" | "patternProperties" | "dependentSchemas" | "dependencies",
            Value::Object(named),
        ) => {
            let is_fixed = keyword == "$defs";
            mutate_named(random, named, is_fixed);
        }
        ("anyOf" | "allOf" | "prefixItems", Value::Array(schemas)) => match random.below(4) {
            0 => schemas.push(node(random, 1)),
            1 if schemas.len() > 1 => drop(schemas.remove(0)),
            _ => {
                let index = random.below(schemas.len());
                mutate(random, &mut schemas[index]);
            }
        },
        ("items" | "additionalProperties" | "not" | "if" | "then" | "else" | "contains", inner)
            if !random.once_in(3) =>
        {
            mutate(random, inner);
        }
        (_, Value::Number(number)) if keyword != "multipleOf" && keyword != "const" => {
            let changed = number.as_u64().unwrap_or(0).saturating_add_signed(random.below(3) as i64 - 1);
            object[&keyword] = json!(changed);
        }
        ("dependentRequired", needed) if random.once_in(2) => {
            *needed = json!({ "a": [*random.pick(&NAMES)] });
        }
        ("enum", Value::Array(list)) if list.len() > 1 && random.once_in(2) => drop(list.pop()),
        ("$ref" | "oneOf" | "if" | "then", _) => {}
        _ => drop(object.remove(&keyword)),
    }
}

fn mutate_named(random: &mut Random, named: &mut Map<String, Value>, is_fixed: bool) {
    let names: Vec<String> = named.keys().cloned().collect();
    let is_empty = names.is_empty();
    match random.below(3) {
        0 if !is_fixed => drop(named.insert("b".to_owned(), node(random, 1))),
        1 if !is_fixed && !is_empty => drop(named.remove(random.pick(&names))),
        _ if !is_empty => {
            let name = random.pick(&names);
            mutate(random, &mut named[name]);
        }
        _ => {}
    }
}

/// A document that often fits: it follows a schema where it can.
pub(super) fn document(random: &mut Random, schema: &Value, root: &Value, depth: usize) -> Value {
    if depth == 0 || random.once_in(12) {
        return anything(random);
    }
    if let Some(target) = schema["$ref"].as_str() {
        let target = root.pointer(&target[1..]).unwrap_or(root);
        return document(random, target, root, depth - 1);
    }
    for keyword in ["anyOf", "oneOf", "allOf"] {
        if let Some(variants) = schema[keyword].as_array() {
            let variant = random.pick(variants);
            return document(random, variant, root, depth);
        }
    }
    if let Some(list) = schema["enum"].as_array() {
        return random.pick(list).clone();
    }
    if let Some(value) = schema.get("const") {
        return value.clone();
    }
    let looks_like_object = ["properties", "patternProperties", "dependentSchemas", "dependentRequired"]
        .iter()
        .any(|keyword| schema.get(keyword).is_some());
    match schema["type"].as_str() {
        Some("null") => Value::Null,
        Some("boolean") => json!(random.once_in(2)),
        Some("integer") => json!(random.below(8)),
        Some("number") => random.pick(&[json!(0), json!(1), json!(2.5), json!(4), json!(6.0)]).clone(),
        Some("string") => text(random),
        Some("array") => elements(random, schema, root, depth),
        Some("object") => members(random, schema, root, depth),
        _ if looks_like_object => members(random, schema, root, depth),
        _ if schema.get("contains").is_some() => elements(random, schema, root, depth),
        _ => anything(random),
    }
}

fn members(random: &mut Random, schema: &Value, root: &Value, depth: usize) -> Value {
    let mut object = Map::new();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for name in NAMES.iter().chain(&["y"]) {
        let is_required = required.iter().any(|one| one == name);
        let described = schema["properties"].get(name);
        let wanted = is_required || random.once_in(if described.is_some() { 2 } else { 8 });
        if wanted {
            let others = schema.get("additionalProperties").filter(|others| others.is_object());
            let inner = described.or(others).unwrap_or(&Value::Null);
            object.insert((*name).to_owned(), document(random, inner, root, depth - 1));
        }
    }
    Value::Object(object)
}

fn elements(random: &mut Random, schema: &Value, root: &Value, depth: usize) -> Value {
    let element = |random: &mut Random, index: usize| {
        let placed = schema["prefixItems"].get(index).or(schema["items"].get(index));
        let items = schema.get("items").filter(|items| !items.is_array());
        let inner = placed.or(items).or(schema.get("contains"));
        document(random, inner.unwrap_or(&Value::Null), root, depth - 1)
    };
    (0..random.below(4)).map(|index| element(random, index)).collect()
}

fn text(random: &mut Random) -> Value {
    json!(*random.pick(&["", "a", "x", "ab", "xa", "xab", "abab", "b"]))
}

fn anything(random: &mut Random) -> Value {
    match random.below(8) {
        0 => json!(null),
        1 => json!(random.once_in(2)),
        2 => json!(random.below(9)),
        3 => json!(2.5),
        4 => text(random),
        5 => json!([1, "a"]),
        6 => json!({ *random.pick(&NAMES): random.below(3) }),
        _ => json!({ "a": "x", "xb": null, "y": 1 }),
    }
}
