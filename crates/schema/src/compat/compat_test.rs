//! The rules of compatibility, one line each, in both directions. Knows nothing of how they are worked out.

use super::*;

fn parse(text: &str) -> Schema {
    Schema::parse(text).unwrap_or_else(|invalid| panic!("{text}: {invalid}"))
}

fn kinds(level: Level, policy: Policy, old: &Schema, new: &Schema) -> String {
    let found = check(level, policy, new, &[old]);
    found.iter().map(|one| format!("{} {}", one.kind, one.path)).collect::<Vec<_>>().join("; ")
}

/// What stands in the way from `old` to `new` and back, and that FORWARD is the mirror.
#[track_caller]
fn check_pair(policy: Policy, old: &str, new: &str, there: &str, back: &str) {
    let (old, new) = (parse(old), parse(new));
    let row = format!("{old:?} -> {new:?}");
    assert_eq!(kinds(Level::Backward, policy, &old, &new), there, "{row}");
    assert_eq!(kinds(Level::Backward, policy, &new, &old), back, "{row}, back");
    assert_eq!(kinds(Level::Forward, policy, &old, &new), back, "{row}, forward");
    let full = kinds(Level::Full, policy, &old, &new);
    assert_eq!(full.is_empty(), there.is_empty() && back.is_empty(), "{row}, full: {full}");
    assert_eq!(kinds(Level::None, policy, &old, &new), "");
}

#[track_caller]
fn strict(old: &str, new: &str, there: &str, back: &str) {
    check_pair(Policy::Strict, old, new, there, back);
}

#[test]
fn types() {
    strict(r#"{"type":"string"}"#, "{}", "", "TYPE_NARROWED #");
    strict(r#"{"type":"string"}"#, "true", "", "TYPE_NARROWED #");
    strict(r#"{"type":"string"}"#, r#"{"type":["string","null"]}"#, "", "TYPE_NARROWED #");
    strict(r#"{"type":"integer"}"#, r#"{"type":"number"}"#, "", "TYPE_NARROWED #");
    strict(r#"{"type":"string"}"#, r#"{"type":"number"}"#, "TYPE_CHANGED #", "TYPE_CHANGED #");
    strict(r#"{"type":"string"}"#, "false", "SCHEMA_BECAME_FALSE #", "");
    strict("true", "false", "SCHEMA_BECAME_FALSE #", "");
    strict("true", "{}", "", "");
}

#[test]
fn annotations_never_matter() {
    strict(
        r#"{"type":"string","title":"a","default":1,"$id":"https://example.org/a"}"#,
        r#"{"type":"string","description":"b","examples":[1],"format":"date","x-lockwood-note":1}"#,
        "",
        "",
    );
}

#[test]
fn listed_values() {
    strict(r#"{"enum":["a"]}"#, r#"{"enum":["a","b"]}"#, "", "ENUM_NARROWED #/enum");
    strict(r#"{"enum":["a","b"]}"#, r#"{"type":"string"}"#, "", "ENUM_ADDED #/enum");
    strict(r#"{"enum":[1,2]}"#, r#"{"type":"integer","maximum":2}"#, "", "ENUM_ADDED #/enum");
    strict(r#"{"const":1}"#, r#"{"enum":[1.0,2]}"#, "", "CONST_CHANGED #/const");
    strict(r#"{"const":1}"#, r#"{"const":2}"#, "CONST_CHANGED #/const", "CONST_CHANGED #/const");
    strict(r#"{"type":"boolean"}"#, r#"{"enum":[true,false,null]}"#, "", "TYPE_NARROWED #");
    strict(r#"{"enum":["ab"]}"#, r#"{"pattern":"^a","type":"string"}"#, "", "ENUM_ADDED #/enum");
}

#[test]
fn numbers() {
    let n = |rest: &str| format!(r#"{{"type":"number"{rest}}}"#);
    let row = |old: &str, new: &str, there, back| strict(&n(old), &n(new), there, back);
    row(r#","maximum":5"#, r#","maximum":6"#, "", "MAXIMUM_DECREASED #/maximum");
    row(r#","maximum":5"#, "", "", "MAXIMUM_ADDED #/maximum");
    row(r#","minimum":5"#, r#","minimum":4"#, "", "MINIMUM_INCREASED #/minimum");
    row(r#","minimum":5"#, "", "", "MINIMUM_ADDED #/minimum");
    row(r#","exclusiveMaximum":5"#, r#","maximum":5"#, "", "EXCLUSIVE_MAXIMUM_DECREASED #/exclusiveMaximum");
    row(r#","exclusiveMinimum":5"#, "", "", "EXCLUSIVE_MINIMUM_ADDED #/exclusiveMinimum");
    row(
        r#","exclusiveMinimum":5"#,
        r#","exclusiveMinimum":4.5"#,
        "",
        "EXCLUSIVE_MINIMUM_INCREASED #/exclusiveMinimum",
    );
    row(r#","multipleOf":6"#, r#","multipleOf":3"#, "", "MULTIPLE_OF_CHANGED #/multipleOf");
    row(r#","multipleOf":6"#, "", "", "MULTIPLE_OF_ADDED #/multipleOf");
    row(
        r#","maximum":9007199254740992"#,
        r#","maximum":9007199254740993"#,
        "",
        "MAXIMUM_DECREASED #/maximum",
    );
    let draft4 = r#""$schema":"http://json-schema.org/draft-04/schema#","maximum":5"#;
    strict(
        &format!("{{{draft4},\"exclusiveMaximum\":true}}"),
        &format!("{{{draft4}}}"),
        "",
        "MAXIMUM_DECREASED #/maximum",
    );
}

#[test]
fn text_and_sizes() {
    let row = |old: &str, new: &str, back: &str| strict(old, new, "", back);
    row(r#"{"maxLength":5}"#, r#"{"maxLength":6}"#, "MAX_LENGTH_DECREASED #/maxLength");
    row(r#"{"maxLength":5}"#, "{}", "MAX_LENGTH_ADDED #/maxLength");
    row(r#"{"minLength":5}"#, r#"{"minLength":4}"#, "MIN_LENGTH_INCREASED #/minLength");
    row(r#"{"minLength":5}"#, "{}", "MIN_LENGTH_ADDED #/minLength");
    row(r#"{"minLength":0}"#, "{}", "");
    row(r#"{"pattern":"a"}"#, "{}", "PATTERN_ADDED #/pattern");
    strict(
        r#"{"pattern":"a"}"#,
        r#"{"pattern":"b"}"#,
        "PATTERN_CHANGED #/pattern",
        "PATTERN_CHANGED #/pattern",
    );
    row(r#"{"maxItems":5}"#, r#"{"maxItems":6}"#, "MAX_ITEMS_DECREASED #/maxItems");
    row(r#"{"minItems":5}"#, "{}", "MIN_ITEMS_ADDED #/minItems");
    row(r#"{"uniqueItems":true}"#, "{}", "UNIQUE_ITEMS_ADDED #/uniqueItems");
    row(r#"{"maxProperties":5}"#, r#"{"maxProperties":6}"#, "MAX_PROPERTIES_DECREASED #/maxProperties");
    row(r#"{"minProperties":5}"#, r#"{"minProperties":4}"#, "MIN_PROPERTIES_INCREASED #/minProperties");
    row(
        r#"{"required":["a","b"]}"#,
        r#"{"minProperties":2}"#,
        "REQUIRED_ATTRIBUTE_ADDED #/properties/a; REQUIRED_ATTRIBUTE_ADDED #/properties/b",
    );
    strict(r#"{"type":"integer"}"#, r#"{"type":"integer","maxLength":1,"pattern":"x"}"#, "", "");
}

#[test]
fn required() {
    let properties = r#""type":"object","properties":{"a":{"type":"string"}}"#;
    strict(
        &format!("{{{properties}}}"),
        &format!("{{{properties},\"required\":[\"a\"]}}"),
        "REQUIRED_ATTRIBUTE_ADDED #/properties/a",
        "",
    );
    strict(
        &format!("{{{properties}}}"),
        r#"{"type":"object","properties":{"a":{"type":"string","default":""}},"required":["a"]}"#,
        "",
        "",
    );
    strict(
        r#"{"type":"object","additionalProperties":false}"#,
        r#"{"type":"object","properties":{"a":{"type":"string","default":""}},"required":["a"],"additionalProperties":false}"#,
        "",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a",
    );
}

const OPEN: &str = r#"{"type":"object"}"#;
const OPEN_WITH: &str = r#"{"type":"object","properties":{"a":{"type":"string"}}}"#;
const CLOSED: &str = r#"{"type":"object","additionalProperties":false}"#;
const CLOSED_WITH: &str =
    r#"{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}"#;
const PARTIAL: &str = r#"{"type":"object","additionalProperties":{"type":"string"}}"#;
const PARTIAL_WITH: &str = r#"{"type":"object","properties":{"a":{"type":"string","maxLength":3}},"additionalProperties":{"type":"string"}}"#;
const PARTIAL_WITH_OTHER: &str =
    r#"{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"}}"#;

#[test]
fn content_models() {
    strict(OPEN, OPEN_WITH, "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a", "");
    strict(OPEN, r#"{"type":"object","properties":{"a":{}}}"#, "", "");
    strict(CLOSED, CLOSED_WITH, "", "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a");
    strict(OPEN, CLOSED, "ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties", "");
    strict(OPEN, PARTIAL, "ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties", "");
    strict(CLOSED, PARTIAL, "", "ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties");
    strict(
        PARTIAL,
        r#"{"type":"object","additionalProperties":{"type":["string","null"]}}"#,
        "",
        "ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties",
    );
    let covered = r#"{"type":"object","properties":{"a":{"type":["string","null"]}},"additionalProperties":{"type":"string"}}"#;
    strict(
        PARTIAL,
        covered,
        "",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
    );
    strict(
        PARTIAL,
        PARTIAL_WITH,
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
        "",
    );
    strict(
        PARTIAL,
        PARTIAL_WITH_OTHER,
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
    );
    strict(
        r#"{"properties":{"a":{"type":"string"}}}"#,
        r#"{"properties":{"a":{"type":"integer"}}}"#,
        "TYPE_CHANGED #/properties/a",
        "TYPE_CHANGED #/properties/a",
    );
}

#[test]
fn lenient_policy() {
    let lenient = |old, new, there, back| check_pair(Policy::Lenient, old, new, there, back);
    lenient(OPEN, OPEN_WITH, "", "");
    lenient(OPEN, CLOSED, "", "");
    lenient(OPEN_WITH, CLOSED_WITH, "", "");
    lenient(OPEN, PARTIAL, "", "");
    lenient(CLOSED, CLOSED_WITH, "", "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a");
    lenient(OPEN_WITH, CLOSED, "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a", "");
    lenient(
        OPEN,
        r#"{"type":"object","properties":{"a":{}},"required":["a"]}"#,
        "REQUIRED_ATTRIBUTE_ADDED #/properties/a",
        "",
    );
    lenient(
        OPEN_WITH,
        r#"{"type":"object","properties":{"a":{"type":"null"}}}"#,
        "TYPE_CHANGED #/properties/a",
        "TYPE_CHANGED #/properties/a",
    );
}

#[test]
fn patterns_of_names() {
    let with =
        |inner: &str| format!(r#"{{"patternProperties":{{"^x":{inner}}},"additionalProperties":false}}"#);
    strict(
        &with(r#"{"type":"integer"}"#),
        &with("{}"),
        "",
        "PATTERN_PROPERTY_NARROWED #/patternProperties/^x",
    );
    strict(
        r#"{"additionalProperties":false}"#,
        &with("{}"),
        "",
        "PATTERN_PROPERTY_REMOVED #/patternProperties/^x",
    );
    strict(
        "{}",
        r#"{"patternProperties":{"^x":{"type":"null"}}}"#,
        "PATTERN_PROPERTY_ADDED #/patternProperties/^x",
        "",
    );
    strict(
        &with(r#"{"type":"integer"}"#),
        r#"{"patternProperties":{"^x":{"type":"integer"}},"properties":{"x1":{"type":"number"}},"additionalProperties":false}"#,
        "",
        "",
    );
    strict(
        r#"{"properties":{"x1":{"type":"integer"},"y":{"type":"null"}},"additionalProperties":false}"#,
        r#"{"properties":{"y":{}},"patternProperties":{"^x":{"type":"number"}},"additionalProperties":false}"#,
        "",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/x1; TYPE_NARROWED #/properties/y; PATTERN_PROPERTY_REMOVED #/patternProperties/^x",
    );
    strict(r#"{"propertyNames":{"maxLength":3}}"#, "{}", "", "PROPERTY_NAMES_CHANGED #/propertyNames");
}

#[test]
fn dependencies() {
    strict(r#"{"dependentRequired":{"a":["b"]}}"#, "{}", "", "DEPENDENCY_ADDED #/dependentRequired/a");
    strict(
        r#"{"dependentRequired":{"a":["b","c"]}}"#,
        r#"{"dependentRequired":{"a":["b"]}}"#,
        "",
        "DEPENDENCY_NARROWED #/dependentRequired/a",
    );
    strict(
        r#"{"required":["b"]}"#,
        r#"{"dependentRequired":{"a":["b"]}}"#,
        "",
        "REQUIRED_ATTRIBUTE_ADDED #/properties/b",
    );
    strict(
        r#"{"dependentSchemas":{"a":{"required":["b"]}}}"#,
        "{}",
        "",
        "DEPENDENCY_ADDED #/dependentSchemas/a",
    );
    let seven = r#""$schema":"http://json-schema.org/draft-07/schema#""#;
    strict(
        &format!(r#"{{{seven},"dependencies":{{"a":["b"],"c":{{"required":["d"]}}}}}}"#),
        &format!(r#"{{{seven},"dependencies":{{"a":["b"]}}}}"#),
        "",
        "DEPENDENCY_ADDED #/dependencies/c",
    );
}

#[test]
fn lists() {
    strict(r#"{"items":{"type":"integer"}}"#, r#"{"items":{"type":"number"}}"#, "", "TYPE_NARROWED #/items");
    strict(r#"{"items":{"type":"integer"}}"#, "{}", "", "ADDITIONAL_ITEMS_NARROWED #/items");
    strict(r#"{"items":false}"#, "{}", "", "ADDITIONAL_ITEMS_REMOVED #/items");
    strict(
        "{}",
        r#"{"prefixItems":[{"type":"null"}]}"#,
        "ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/prefixItems/0",
        "",
    );
    strict(
        r#"{"items":{"type":"string"}}"#,
        r#"{"prefixItems":[{"type":"null"}],"items":{"type":"string"}}"#,
        "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/prefixItems/0",
        "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items",
    );
    strict(
        r#"{"items":false}"#,
        r#"{"prefixItems":[{"type":"null"}],"items":false}"#,
        "",
        "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items",
    );
    strict(r#"{"maxItems":1}"#, r#"{"prefixItems":[{}],"items":false}"#, "", "MAX_ITEMS_ADDED #/maxItems");
    let seven = r#""$schema":"http://json-schema.org/draft-07/schema#""#;
    strict(
        &format!(r#"{{{seven},"items":[{{"type":"integer"}}],"additionalItems":false}}"#),
        r#"{"prefixItems":[{"type":"number"}],"items":{"type":"null"}}"#,
        "",
        "TYPE_NARROWED #/items/0; ADDITIONAL_ITEMS_REMOVED #/additionalItems",
    );
    strict(
        r#"{"contains":{"type":"integer"}}"#,
        r#"{"contains":{"type":"number"}}"#,
        "",
        "CONTAINS_NARROWED #/contains",
    );
    strict(r#"{"contains":{"type":"integer"}}"#, "{}", "", "CONTAINS_ADDED #/contains");
    strict(
        r#"{"contains":{"const":1},"minContains":0,"maxContains":2}"#,
        r#"{"contains":{"const":1},"minContains":0,"maxContains":3}"#,
        "",
        "CONTAINS_NARROWED #/maxContains",
    );
}

#[test]
fn sums() {
    for keyword in ["anyOf", "oneOf"] {
        let sum = |variants: &str| format!(r#"{{"{keyword}":[{variants}]}}"#);
        let (string, integer) = (r#"{"type":"string"}"#, r#"{"type":"integer"}"#);
        let both = sum(&format!("{string},{integer}"));
        let narrowed = format!("SUM_TYPE_NARROWED #/{keyword}");
        strict(&sum(string), &both, "", &narrowed);
        strict(string, &both, "", "TYPE_CHANGED #");
        strict(&both, &sum(&format!("{integer},{string}")), "", "");
        strict(&both, r#"{"type":["string","integer"]}"#, "", "");
        strict(&both, &sum(&format!(r#"{string},{{"type":"number"}}"#)), "", &narrowed);
        let longer = sum(&format!(r#"{{"type":"string","maxLength":3}},{integer}"#));
        strict(&both, &longer, &format!("MAX_LENGTH_ADDED #/{keyword}/0/maxLength"), "");
    }
    let twice = r#"{"oneOf":[{"type":"integer"},{"type":"number"}]}"#;
    strict(r#"{"type":"integer"}"#, twice, "ONE_OF_AMBIGUOUS #/oneOf", "TYPE_NARROWED #");
    strict(twice, twice, "", "");
}

#[test]
fn parts_exclusions_and_conditions() {
    let all = |parts: &str| format!(r#"{{"allOf":[{parts}]}}"#);
    let (string, short) = (r#"{"type":"string"}"#, r#"{"maxLength":3}"#);
    strict(&all(&format!("{string},{short}")), &all(string), "", "MAX_LENGTH_ADDED #/allOf/1/maxLength");
    strict(&all(&format!("{string},{short}")), r#"{"type":"string","maxLength":3}"#, "", "");
    strict(r#"{"not":{"type":"number"}}"#, r#"{"not":{"type":"integer"}}"#, "", "NOT_EXTENDED #/not");
    strict(r#"{"not":{"type":"number"}}"#, "{}", "", "NOT_ADDED #/not");
    strict(string, r#"{"not":{"type":"number"}}"#, "", "TYPE_NARROWED #");
    let condition = |then: &str| format!(r#"{{"if":{{"required":["a"]}},"then":{then}}}"#);
    strict(
        &condition(r#"{"required":["b","c"]}"#),
        &condition(r#"{"required":["b"]}"#),
        "",
        "CONDITION_CHANGED #/then",
    );
}

#[test]
fn additional_items() {
    for draft in ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2019-09/schema"] {
        let list = |items: &str, rest: &str| format!(r#"{{"$schema":"{draft}","items":{items}{rest}}}"#);
        let tuple = |rest: &str| list(r#"[{"type":"string"}]"#, rest);
        let (open, closed) = (tuple(""), tuple(r#","additionalItems":false"#));
        let (text, number) =
            (r#","additionalItems":{"type":"string"}"#, r#","additionalItems":{"type":"number"}"#);
        strict(&closed, &open, "", "ADDITIONAL_ITEMS_REMOVED #/additionalItems");
        strict(&tuple(text), &open, "", "ADDITIONAL_ITEMS_NARROWED #/additionalItems");
        strict(&closed, &tuple(text), "", "ADDITIONAL_ITEMS_REMOVED #/additionalItems");
        let changed = "ADDITIONAL_ITEMS_NARROWED #/additionalItems";
        strict(&tuple(text), &tuple(number), changed, changed);
        let two =
            |second: &str, rest: &str| list(&format!(r#"[{{"type":"string"}},{{"type":"{second}"}}]"#), rest);
        strict(&tuple(text), &two("string", text), "", "");
        let not_covered = "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1";
        let removed = "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/additionalItems";
        strict(&tuple(text), &two("null", text), not_covered, removed);
        // Without a list of places the keyword means nothing.
        let one = |rest: &str| list(r#"{"type":"string"}"#, rest);
        strict(&one(""), &one(r#","additionalItems":false"#), "", "");
    }
}

#[test]
fn unevaluated_properties() {
    let model = |rest: &str| format!(r#"{{"properties":{{"a":{{"type":"string"}}}}{rest}}}"#);
    let unevaluated = |schema: &str| model(&format!(r#","unevaluatedProperties":{schema}"#));
    let removed = "UNEVALUATED_PROPERTIES_REMOVED #/unevaluatedProperties";
    let narrowed = "UNEVALUATED_PROPERTIES_NARROWED #/unevaluatedProperties";
    strict(&unevaluated("false"), &model(""), "", removed);
    strict(&unevaluated("true"), &model(""), "", "");
    strict(&unevaluated(r#"{"type":"null"}"#), &model(""), "", narrowed);
    strict(&unevaluated("false"), &unevaluated(r#"{"type":"null"}"#), "", removed);
    // Alone it says what additionalProperties says.
    let closed = model(r#","additionalProperties":false"#);
    strict(&unevaluated("false"), &closed, "", "");
    let both = model(r#","additionalProperties":{"type":"null"},"unevaluatedProperties":false"#);
    strict(&both, &model(r#","additionalProperties":{"type":"null"}"#), "", "");
    let more = r#"{"properties":{"a":{"type":"string"},"b":{"type":"null"}},"unevaluatedProperties":false}"#;
    let gone = "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/b";
    strict(&unevaluated("false"), more, "", gone);
    strict(&unevaluated(r#"{"type":"null"}"#), more, removed, "");
}

#[test]
fn unevaluated_properties_see_through_parts_that_have_to_fit() {
    let base = r##""$defs":{"base":{"properties":{"a":{"type":"string"}}}}"##;
    let extended = |rest: &str| {
        format!(
            r##"{{"allOf":[{{"$ref":"#/$defs/base"}}],"properties":{{"b":true{rest}}},"unevaluatedProperties":false,{base}}}"##
        )
    };
    let flat = r#"{"properties":{"a":{"type":"string"},"b":true},"additionalProperties":false}"#;
    strict(&extended(""), flat, "", "");
    strict(
        &extended(""),
        &extended(r#","c":true"#),
        "",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/c",
    );
    // A property that only a variant describes may be left over, and may be not: neither side may rely on it.
    let variants = r#"{"anyOf":[{"required":["k"],"properties":{"k":true,"v":{"type":"null"}}},{"required":["z"]}],"unevaluatedProperties":false}"#;
    strict(variants, variants, "", "");
    let wide = r#"{"properties":{"k":true,"v":true,"z":true},"additionalProperties":false}"#;
    strict(
        variants,
        wide,
        "",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/k; PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/v; PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/z; SUM_TYPE_NARROWED #/anyOf",
    );
}

#[test]
fn unevaluated_items() {
    let list = |rest: &str| format!(r#"{{"prefixItems":[{{"type":"string"}}]{rest}}}"#);
    let unevaluated = |schema: &str| list(&format!(r#","unevaluatedItems":{schema}"#));
    let removed = "UNEVALUATED_ITEMS_REMOVED #/unevaluatedItems";
    strict(&unevaluated("false"), &list(""), "", removed);
    strict(&unevaluated("false"), &list(r#","items":false"#), "", "");
    strict(
        &unevaluated(r#"{"type":"null"}"#),
        &list(""),
        "",
        "UNEVALUATED_ITEMS_NARROWED #/unevaluatedItems",
    );
    strict(&unevaluated("false"), &unevaluated(r#"{"type":"null"}"#), "", removed);
    strict(
        &list(r#","items":{"type":"null"},"unevaluatedItems":false"#),
        &list(r#","items":{"type":"null"}"#),
        "",
        "",
    );
    let seen = r#"{"allOf":[{"prefixItems":[true,true]}],"unevaluatedItems":false}"#;
    strict(seen, r#"{"maxItems":2}"#, "MAX_ITEMS_ADDED #/maxItems", "");
    strict(
        &unevaluated("false"),
        seen,
        "",
        "TYPE_NARROWED #/prefixItems/0; ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/unevaluatedItems",
    );
    // What `contains` finds counts as looked at, so nothing is certain of any element.
    let found = r#"{"contains":{"type":"string"},"unevaluatedItems":{"type":"null"}}"#;
    strict(
        found,
        r#"{"items":{"type":["null","string"]}}"#,
        "ADDITIONAL_ITEMS_NARROWED #/items",
        "TYPE_NARROWED #/unevaluatedItems; CONTAINS_ADDED #/contains",
    );
}

#[test]
fn references_and_recursion() {
    let tree = |value: &str| {
        format!(
            r##"{{"type":"object","properties":{{"value":{value},"children":{{"type":"array","items":{{"$ref":"#"}}}}}}}}"##
        )
    };
    strict(
        &tree(r#"{"type":"integer"}"#),
        &tree(r#"{"type":"number"}"#),
        "",
        "TYPE_NARROWED #/properties/value",
    );
    let by_reference = r##"{"$ref":"#/$defs/s","$defs":{"s":{"type":"string","maxLength":3}}}"##;
    strict(by_reference, r#"{"type":"string"}"#, "", "MAX_LENGTH_ADDED #/$defs/s/maxLength");
    let mutual = |leaf: &str| {
        format!(
            r##"{{"$ref":"#/definitions/a","definitions":{{
                "a":{{"type":"object","properties":{{"b":{{"$ref":"#/definitions/b"}}}},"additionalProperties":false}},
                "b":{{"anyOf":[{{"type":"{leaf}"}},{{"$ref":"#/definitions/a"}}]}}}}}}"##
        )
    };
    strict(&mutual("integer"), &mutual("number"), "", "SUM_TYPE_NARROWED #/definitions/b/anyOf");
}

/// While `y` is compared, what is in its `x` looks compatible, because that leads to `y` again; but `y` is not.
/// The second variant meets `x` again, without `y` around it.
#[test]
fn an_assumption_that_failed_is_not_remembered() {
    let writer = parse(
        r##"{"allOf":[{"$ref":"#/$defs/w"},{"properties":{"l":{"allOf":[{"$ref":"#/$defs/w/properties/y"},
                {"properties":{"zz":{"type":"integer"}}}]}}}],
            "$defs":{"w":{"type":"object","properties":{"y":{"type":"object","properties":{
                "x":{"$ref":"#/$defs/w"},"zz":{"type":"string"}}}}}}}"##,
    );
    let reader = parse(
        r##"{"anyOf":[{"$ref":"#/$defs/a"},{"type":"object","properties":{"l":{"$ref":"#/$defs/b"}}}],
            "$defs":{"a":{"type":"object","properties":{"y":{"$ref":"#/$defs/b"}}},
                "b":{"type":"object","properties":{"x":{"$ref":"#/$defs/a"},"zz":{"type":"integer"}}}}}"##,
    );
    let document = serde_json::json!({"y": {"zz": "s"}, "l": {"x": {"y": {"zz": "s"}}}});
    assert_eq!(writer.judge(&document), Ok(()));
    assert!(reader.judge(&document).is_err());
    assert_ne!(kinds(Level::Backward, Policy::Strict, &writer, &reader), "");
}

#[test]
fn levels_choose_versions_and_directions() {
    let versions = [r#"{"maxLength":9}"#, r#"{"maxLength":5}"#, r#"{"maxLength":7}"#].map(parse);
    let new = parse(r#"{"maxLength":8}"#);
    let earlier: Vec<&Schema> = versions.iter().collect();
    let expect = |level, expected: &[(usize, Direction)]| {
        let found = check(level, Policy::Strict, &new, &earlier);
        let found: Vec<_> = found.iter().map(|one| (one.earlier, one.direction)).collect();
        assert_eq!(found, expected, "{level}");
    };
    use Direction::{Backward, Forward};
    expect(Level::None, &[]);
    expect(Level::Backward, &[]);
    expect(Level::BackwardTransitive, &[(0, Backward)]);
    expect(Level::Forward, &[(2, Forward)]);
    expect(Level::ForwardTransitive, &[(1, Forward), (2, Forward)]);
    expect(Level::Full, &[(2, Forward)]);
    expect(Level::FullTransitive, &[(0, Backward), (1, Forward), (2, Forward)]);
    assert!(check(Level::FullTransitive, Policy::Strict, &new, &[]).is_empty());
}

#[test]
fn what_is_too_complex_is_incompatible() {
    let sums = |limit: usize| {
        let sum = |index: usize| {
            format!(
                r#"{{"anyOf":[{{"properties":{{"a{index}":{{"type":"string"}}}}}},{{"required":["b{index}"]}}]}}"#
            )
        };
        let parts: Vec<String> = (0..18).map(sum).collect();
        format!(r#"{{"maxProperties":{limit},"allOf":[{}]}}"#, parts.join(","))
    };
    let found = check(Level::Backward, Policy::Strict, &parse(&sums(50)), &[&parse(&sums(51))]);
    assert_eq!(found.iter().map(|one| one.kind).collect::<Vec<_>>(), [Kind::TooComplex]);
}

/// What would take a step for every pair of two long lists is sorted, or counted and ended.
#[test]
fn long_lists_are_not_compared_pair_by_pair() {
    let list = |first: usize| {
        let values: Vec<String> = (first..first + 10_000).map(|n| n.to_string()).collect();
        format!(r#"{{"enum":[{}]}}"#, values.join(","))
    };
    strict(&list(0), &list(0).replace("[0,", "[0.0,"), "", "");
    strict(&list(0), &list(1), "ENUM_NARROWED #/enum", "ENUM_NARROWED #/enum");
    let names = |prefix: &str| -> String {
        (0..2_000).map(|n| format!(r#""{prefix}{n}":{{"type":"null"}}"#)).collect::<Vec<_>>().join(",")
    };
    let (named, matched) = (
        format!(r#"{{"properties":{{{}}}}}"#, names("a")),
        format!(r#"{{"patternProperties":{{{}}}}}"#, names("^b")),
    );
    strict(&named, &matched, "TOO_COMPLEX #", "TOO_COMPLEX #");
    let branches: Vec<String> = (0..1_000).map(|n| format!(r#"{{"properties":{{"b{n}":true}}}}"#)).collect();
    let left = |rest: &str| {
        let properties: Vec<String> =
            (0..500).map(|n| format!(r##""p{n}":{{"$ref":"#/$defs/x"}}"##)).collect();
        let definition = format!(r#"{{"anyOf":[{}],"unevaluatedProperties":{rest}}}"#, branches.join(","));
        format!(r#"{{"properties":{{{}}},"$defs":{{"x":{definition}}}}}"#, properties.join(","))
    };
    let (closed, narrow) = (parse(&left("false")), parse(&left(r#"{"type":"null"}"#)));
    assert_eq!(kinds(Level::Backward, Policy::Strict, &closed, &narrow), "TOO_COMPLEX #");
}

/// Many parts that are nearly what the reading schema is: each of them would be gone through to the end.
#[test]
fn parts_that_are_nearly_the_same_are_not_gone_through_for_ever() {
    let schema = |last: usize| {
        let parts: Vec<String> = (0..1_000)
            .map(|n| format!(r##"{{"title":"{n}","$ref":"#/$defs/big","unevaluatedProperties":false}}"##))
            .collect();
        let big: Vec<String> = (0..1_500).map(|n| format!(r#""p{n}":{{"maxLength":{last}}}"#)).collect();
        let big = format!(r#""$defs":{{"big":{{"properties":{{{}}}}}}}"#, big.join(","));
        format!(r#"{{"allOf":[{}],{big}}}"#, parts.join(","))
    };
    let (old, new) =
        (parse(&schema(1)), parse(&schema(1).replace(r#""p0":{"maxLength":1}"#, r#""p0":{"maxLength":2}"#)));
    let found = kinds(Level::Backward, Policy::Strict, &old, &new);
    assert!(["", "TOO_COMPLEX #"].contains(&found.as_str()), "{found}");
}

#[test]
fn a_reason_is_a_sentence_with_a_place() {
    let found = check(Level::Backward, Policy::Strict, &parse(OPEN_WITH), &[&parse(OPEN)]);
    assert_eq!(
        found[0].to_string(),
        "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at #/properties/a: the new schema cannot read every document of \
         the earlier one: \"a\" is described here, and documents may have anything there"
    );
}

#[test]
fn names_of_kinds_are_distinct() {
    let names: std::collections::BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(names.len(), Kind::ALL.len());
}
