//! A schema: read once, shared by everybody, never changed. Knows nothing of where it is kept.

use crate::{
    cost::Costs,
    draft::Draft,
    failure::{FAILURES_LEN_MAX, Failure},
    guid::Guid,
    node::{Node, Source, is_schema},
    places::Places,
    spelling,
    survey::{INDEX_KEYWORD, pattern_options, survey},
    types::Types,
};
use jsonschema::Validator;
use lockwood_model::{Budget, Exhausted, FieldPath};
use serde_json::{Map, Value};
use std::{fmt, sync::Arc};

/// The text of a schema has at most this many bytes.
pub const SCHEMA_BYTES_MAX: usize = 512 * 1024;

/// Lists and objects in a schema are inside each other at most so many times.
pub const SCHEMA_DEPTH_MAX: usize = 64;

/// The place of something in a schema, written as a JSON pointer, has at most this many bytes: a place is written down
/// for every schema that is looked at.
pub const PLACE_BYTES_MAX: usize = 8 * 1024;

/// All places in a schema together have at most this many bytes.
pub const PLACES_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A JSON Schema that can be used; a clone of it is another handle on the same one.
#[derive(Clone)]
pub struct Schema(Arc<Read>);

struct Read {
    source: Source,
    canonical: String,
    guid: Guid,
    validator: Validator,
    costs: Costs,
    places: Places,
}

/// The text is not a schema that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (at {})", pointer.escape_debug())]
pub struct Invalid {
    /// Where in the schema, as a JSON pointer: `#/properties/age`.
    pub pointer: String,
    /// What is wrong there, as a sentence.
    pub reason: String,
}

impl Invalid {
    pub(crate) fn new(pointer: &str, reason: impl Into<String>) -> Invalid {
        Invalid { pointer: pointer.to_owned(), reason: reason.into() }
    }
}

impl Schema {
    /// Reads a schema. Refuses what is no schema, what leads out of the text, and what could cost too much.
    pub fn parse(text: &str) -> Result<Schema, Invalid> {
        let root = read_json(text)?;
        let draft = draft_of(&root)?;
        let canonical = sorted(&root).to_string();
        let guid = Guid::of(&spelling::compact(text).unwrap_or_default());
        let source = survey(root, draft)?;
        let validator = compile(&source)?;
        let (costs, places) = (Costs::of(&source), Places::of(&source));
        Ok(Schema(Arc::new(Read { source, canonical, guid, validator, costs, places })))
    }

    /// Whether a value that takes so many bytes as JSON fits, if the budget suffices to find out; if it does not fit,
    /// why, in at most [`FAILURES_LEN_MAX`] places.
    pub fn validate(
        &self,
        value: &Value,
        bytes: usize,
        budget: &Budget,
    ) -> Result<Result<(), Vec<Failure>>, Exhausted> {
        self.pay(value, bytes, budget)?;
        Ok(self.judge(value))
    }

    /// The same, paid for by nobody.
    pub(crate) fn judge(&self, value: &Value) -> Result<(), Vec<Failure>> {
        // Most documents fit, and asking for that alone is much cheaper than listing reasons.
        if self.0.validator.is_valid(value) {
            return Ok(());
        }
        let errors = self.0.validator.iter_errors(value).take(FAILURES_LEN_MAX);
        Err(errors.map(|error| Failure::of(value, &error)).collect())
    }

    /// The same schema with sorted names and no white space: equal texts are the same schema.
    pub fn canonical(&self) -> &str {
        &self.0.canonical
    }

    /// XXH3 (128 bits) of [`Schema::canonical`]. It never changes, but it can be forged: compare the texts
    /// before two schemas are taken for one.
    pub fn fingerprint(&self) -> u128 {
        xxhash_rust::xxh3::xxh3_128(self.0.canonical.as_bytes())
    }

    /// What the text it was read from is called in every registry: white space does not matter, the order of members
    /// does. It can be forged.
    pub fn guid(&self) -> Guid {
        self.0.guid
    }

    /// The text of a schema with sorted members and no white space, everything else as it is spelled; none if it is not
    /// JSON.
    pub fn normalized(text: &str) -> Option<String> {
        spelling::normalized(text)
    }

    /// The edition of JSON Schema it is written in.
    pub fn draft(&self) -> Draft {
        self.0.source.draft
    }

    /// Whether every value it allows is an object, as the documents of a collection are. A schema that says
    /// no type but names properties is taken to mean objects.
    pub fn describes_objects(&self) -> bool {
        let root = self.root();
        let types = allowed_types(&root);
        let names_properties = || root.branches().iter().any(|node| node.get("properties").is_some());
        types == Types::OBJECT || (types == Types::ALL && names_properties())
    }

    /// The fields, and what is inside objects, that ask for an index with `"x-lockwood-index": true`, sorted.
    pub fn indexed_fields(&self) -> Vec<FieldPath> {
        let mut fields = Vec::new();
        collect_indexed(&self.root(), &mut Vec::new(), &mut fields);
        fields.sort_unstable();
        fields
    }

    pub(crate) fn root(&self) -> Node<'_> {
        self.0.source.root()
    }

    pub(crate) fn costs(&self) -> &Costs {
        &self.0.costs
    }

    pub(crate) fn places(&self) -> &Places {
        &self.0.places
    }

    /// Whether both are handles on one schema.
    pub fn is_same(&self, other: &Schema) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// As deep as the schema is nested, which has a limit.
fn collect_indexed<'a>(node: &Node<'a>, path: &mut Vec<&'a str>, fields: &mut Vec<FieldPath>) {
    for (name, property) in node.entries("properties") {
        path.push(name);
        // Also beside a `$ref`, where drafts hide everything else: the keyword is ours, not theirs.
        if property.value.get(INDEX_KEYWORD) == Some(&Value::Bool(true)) {
            fields.extend(FieldPath::from_names(&*path));
        }
        collect_indexed(&property, path, fields);
        path.pop();
    }
}

/// Two schemas are equal when they say the same in another order.
impl PartialEq for Schema {
    fn eq(&self, other: &Schema) -> bool {
        self.0.canonical == other.0.canonical
    }
}

impl Eq for Schema {}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", self.0.canonical)
    }
}

fn read_json(text: &str) -> Result<Value, Invalid> {
    if text.len() > SCHEMA_BYTES_MAX {
        let reason = format!("the schema has {} bytes; at most {SCHEMA_BYTES_MAX} are allowed", text.len());
        return Err(Invalid::new("#", reason));
    }
    let root: Value = serde_json::from_str(text)
        .map_err(|error| Invalid::new("#", format!("the schema is not JSON: {error}")))?;
    if depth(&root) > SCHEMA_DEPTH_MAX {
        let reason = format!("the schema is nested deeper than {SCHEMA_DEPTH_MAX} levels");
        return Err(Invalid::new("#", reason));
    }
    if !is_schema(&root) {
        return Err(Invalid::new("#", "a schema is an object, or true or false"));
    }
    let mut places_len = 0;
    if longest_place(&root, 1, &mut places_len) > PLACE_BYTES_MAX || places_len > PLACES_BYTES_MAX {
        let reason = "the names in it are too long: the places of the schemas in it are written with them";
        return Err(Invalid::new("#", reason));
    }
    Ok(root)
}

/// The length of the longest place in a value that has a place of this length itself; adds up all of them.
fn longest_place(value: &Value, len: usize, total: &mut usize) -> usize {
    *total += len;
    let below =
        |(name, value): (usize, &Value), total: &mut usize| longest_place(value, len + 1 + name, total);
    match value {
        Value::Array(list) => list.iter().map(|value| below((8, value), total)).max().unwrap_or(len),
        Value::Object(object) => {
            object.iter().map(|(name, value)| below((name.len(), value), total)).max().unwrap_or(len)
        }
        _ => len,
    }
}

/// The text was read by a parser with a limit of its own, so this cannot go too deep.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(object) => 1 + object.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn draft_of(root: &Value) -> Result<Draft, Invalid> {
    let Some(named) = root.get("$schema") else { return Ok(Draft::default()) };
    named.as_str().and_then(Draft::named).ok_or_else(|| {
        let reason = format!("$schema is {named}; drafts 04, 06, 07, 2019-09 and 2020-12 are known");
        Invalid::new("#/$schema", reason)
    })
}

/// Whether maps keep their order depends on who else is compiled in, so names are sorted here.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(list) => list.iter().map(sorted).collect(),
        Value::Object(object) => {
            let mut members: Vec<_> = object.iter().collect();
            members.sort_unstable_by_key(|(name, _)| name.as_str());
            let sorted: Map<String, Value> =
                members.into_iter().map(|(name, value)| (name.clone(), sorted(value))).collect();
            Value::Object(sorted)
        }
        _ => value.clone(),
    }
}

fn compile(source: &Source) -> Result<Validator, Invalid> {
    let options = jsonschema::options()
        .with_draft(source.draft.of_validator())
        .with_pattern_options(pattern_options())
        .should_validate_formats(false)
        .without_content_encoding_support("base64")
        .without_content_media_type_support("application/json")
        .offline();
    options.build(&source.root).map_err(|error| {
        // The schema is the value that was validated here, against the schema of schemas.
        Invalid { pointer: format!("#{}", error.instance_path().as_str()), reason: error.to_string() }
    })
}

/// The types a value can have, as far as `type`, `enum` and `const` tell.
pub(crate) fn allowed_types(node: &Node<'_>) -> Types {
    counted_types(node, &mut 0)
}

/// The same; counts the schemas that were looked at.
pub(crate) fn counted_types(node: &Node<'_>, looked_at: &mut usize) -> Types {
    *looked_at += 1;
    if node.is_nothing() {
        return Types::NONE;
    }
    let mut types = node.types().and(listed_types(node));
    if let Some(target) = node.reference() {
        types = types.and(counted_types(&target, looked_at));
    }
    for part in node.children("allOf") {
        types = types.and(counted_types(&part, looked_at));
    }
    for keyword in ["anyOf", "oneOf"] {
        let variants = node.children(keyword);
        if !variants.is_empty() {
            let each = variants.iter().map(|variant| counted_types(variant, looked_at));
            types = types.and(each.fold(Types::NONE, Types::or));
        }
    }
    types
}

/// The types of the values in `enum` and `const`.
pub(crate) fn listed_types(node: &Node<'_>) -> Types {
    let mut types = Types::ALL;
    if let Some(Value::Array(values)) = node.get("enum") {
        types = types.and(values.iter().map(Types::of).fold(Types::NONE, Types::or));
    }
    if let Some(value) = node.get("const") {
        types = types.and(Types::of(value));
    }
    types
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::{IN_PLACE_DEPTH_MAX, NODES_LEN_MAX};
    use serde_json::json;

    #[track_caller]
    fn refused(text: &str, pointer: &str, part: &str) {
        let invalid = Schema::parse(text).expect_err(text);
        assert!(invalid.reason.contains(part), "{text}: {invalid}");
        assert_eq!(invalid.pointer, pointer, "{invalid}");
    }

    fn parse(text: &str) -> Schema {
        Schema::parse(text).unwrap_or_else(|invalid| panic!("{text}: {invalid}"))
    }

    fn is_shared<T: Send + Sync + Clone>() {}

    #[test]
    fn order_and_space_do_not_make_another_schema() {
        is_shared::<Schema>();
        let (a, b) =
            (parse(r#"{"type": "object", "title": "t"}"#), parse(r#"{"title":"t","type":"object"}"#));
        assert_eq!(a, b);
        assert_eq!(a.canonical(), r#"{"title":"t","type":"object"}"#);
        assert_eq!(a.fingerprint(), b.fingerprint());
        // Written down once: it must never change.
        assert_eq!(format!("{:032x}", parse("{}").fingerprint()), "dc7048f8f8747f561349cde127705c16");
    }

    #[test]
    fn guids_are_those_of_other_registries() {
        let guid = |text: &str| parse(text).guid().to_string();
        assert_eq!(guid(r#"{ "type" : "object" }"#), "01fc056e-ed58-c88f-e1c5-07fcd84dd4b7");
        let (one, other) = (r#"{"type":"object","title":"t"}"#, r#"{"title":"t","type":"object"}"#);
        assert_ne!(guid(one), guid(other));
        assert_eq!(Schema::normalized(one).as_deref(), Some(other));
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_its_place() {
        refused("{", "#", "not JSON");
        refused("3", "#", "an object, or true or false");
        refused(r#"{"type":"strin"}"#, "#/type", "strin");
        refused(r#"{"properties":{"a":{"minimum":"x"}}}"#, "#/properties/a/minimum", "x");
        refused(r#"{"$schema":"https://example.org/mine"}"#, "#/$schema", "drafts 04");
        refused(
            r#"{"items":{"$ref":"https://example.org/a#/b"}}"#,
            "#/items/$ref",
            "leads out of this schema",
        );
        refused(r#"{"items":{"$ref":"other.json"}}"#, "#/items/$ref", "leads out of this schema");
        refused(r##"{"items":{"$ref":"#name"}}"##, "#/items/$ref", "anchor");
        refused(r##"{"items":{"$ref":"#/gone"}}"##, "#/items/$ref", "leads to nothing");
        refused(r##"{"items":{"$ref":"#/x"},"x":3}"##, "#/items/$ref", "not a schema");
        refused(r##"{"items":{"$dynamicRef":"#x"}}"##, "#/items/$dynamicRef", "not supported");
        let other = "http://json-schema.org/draft-07/schema#";
        refused(&format!(r#"{{"items":{{"$schema":"{other}"}}}}"#), "#/items/$schema", "another draft");
        refused(r#"{"pattern":"(?=a)"}"#, "#/pattern", "look-around");
        refused(r#"{"pattern":"(a)\\1"}"#, "#/pattern", "back-references");
        refused(r#"{"patternProperties":{"(":{}}}"#, "#/patternProperties/(", "regular expression");
        refused(r#"{"pattern":"a{1000}{1000}{1000}"}"#, "#/pattern", "too large");
    }

    #[test]
    fn circles_are_refused_and_recursion_is_not() {
        refused(r##"{"$ref":"#"}"##, "#", "refers to itself");
        refused(r##"{"anyOf":[{"type":"string"},{"not":{"$ref":"#"}}]}"##, "#", "refers to itself");
        parse(r##"{"properties":{"next":{"$ref":"#"}}}"##);
    }

    #[test]
    fn limits_hold() {
        refused(&" ".repeat(SCHEMA_BYTES_MAX + 1), "#", "bytes");
        let nested = |levels| format!("{}{{}}{}", "{\"not\":".repeat(levels), "}".repeat(levels));
        parse(&nested(SCHEMA_DEPTH_MAX - 1));
        refused(&nested(SCHEMA_DEPTH_MAX), "#", "nested deeper");
        refused(&nested(200), "#", "recursion limit");
        let many = vec!["true"; NODES_LEN_MAX].join(",");
        assert!(
            Schema::parse(&format!(r#"{{"prefixItems":[{many}]}}"#))
                .unwrap_err()
                .reason
                .contains("more than")
        );
    }

    /// Definitions that each refer to the next, `inner` times, in a way that `write` writes.
    fn chain(len: usize, write: impl Fn(&str) -> String) -> String {
        let define = |index| format!(r##""d{index}":{}"##, write(&format!("#/$defs/d{}", index + 1)));
        let all: Vec<String> = (0..len).map(define).collect();
        format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{},"d{len}":{{"type":"integer"}}}}}}"##, all.join(","))
    }

    #[test]
    fn short_schemas_cannot_take_for_ever() {
        let plain = |target: &str| format!(r#"{{"$ref":"{target}"}}"#);
        parse(&chain(IN_PLACE_DEPTH_MAX / 2, plain));
        assert!(Schema::parse(&chain(5_000, plain)).unwrap_err().reason.contains("refer to each other"));
        let twice = |target: &str| format!(r#"{{"allOf":[{{"$ref":"{target}"}},{{"$ref":"{target}"}}]}}"#);
        assert!(Schema::parse(&chain(25, twice)).unwrap_err().reason.contains("looked at more than"));
    }

    #[test]
    fn long_ways_through_definitions_are_walked() {
        let below = |target: &str| format!(r#"{{"properties":{{"n":{{"$ref":"{target}"}}}}}}"#);
        let schema = parse(&chain(6_000, below));
        assert!(schema.judge(&json!({"n": {"n": 1}})).is_ok());
    }

    /// A place is written down for every schema inside, so one long name above many would fill the memory.
    #[test]
    fn long_names_above_many_schemas_are_refused() {
        let named =
            |len: usize, inner: &str| format!(r#"{{"properties":{{"{}":{inner}}}}}"#, "x".repeat(len));
        let many: Vec<String> = (0..15_000).map(|n| format!(r#""{n}":true"#)).collect();
        let many = format!(r#"{{"properties":{{{}}}}}"#, many.join(","));
        parse(&named(1000, &many));
        refused(&named(200_000, &many), "#", "too long");
        refused(&named(7_000, &many), "#", "too long");
        refused(&named(9_000, "true"), "#", "too long");
    }

    #[test]
    fn drafts_are_honoured() {
        let four = parse(
            r#"{"$schema":"http://json-schema.org/draft-04/schema#","maximum":5,"exclusiveMaximum":true}"#,
        );
        assert_eq!(four.draft(), Draft::Draft4);
        assert!(four.judge(&json!(5)).is_err());
        let seven = parse(
            r#"{"$schema":"http://json-schema.org/draft-07/schema","items":[{"type":"null"}],"format":"date"}"#,
        );
        assert!(seven.judge(&json!([1])).is_err());
        assert!(seven.judge(&json!("not a date")).is_ok(), "formats are annotations");
        assert_eq!(parse("true").draft(), Draft::Draft202012);
    }

    #[test]
    fn failures_say_where_and_what() {
        let schema = parse(
            r#"{"type":"object","required":["id"],"properties":{"age":{"type":"integer","maximum":150},
                "tags":{"items":{"maxLength":3}},"address":{"properties":{"zip":{"pattern":"^[0-9]+$"}}}},
                "additionalProperties":false}"#,
        );
        let failures = schema
            .judge(&json!({"age": 200, "tags": ["long one"], "address": {"zip": "x"}, "more": 1}))
            .unwrap_err();
        let mut lines: Vec<String> = failures.iter().map(Failure::to_string).collect();
        lines.sort_unstable();
        let expected = [
            "$.address.zip: expected text that matches \"^[0-9]+$\", found \"x\"",
            "$.age: expected at most 150, found 200",
            "$.tags[0]: expected at most 3 characters, found \"long one\"",
            "$: no other fields are allowed here, found \"more\"",
            "$: the field \"id\" is required and missing",
        ];
        assert_eq!(lines, expected);
        assert_eq!(schema.judge(&json!(["x"])).unwrap_err()[0].reason, "expected object, found [\"x\"]");
        assert!(schema.judge(&json!({"id": 1})).is_err());
    }

    #[test]
    fn failures_are_limited() {
        let schema = parse(r#"{"items":{"type":"null"}}"#);
        let failures = schema.judge(&Value::from(vec![1; 100])).unwrap_err();
        assert_eq!(failures.len(), FAILURES_LEN_MAX);
    }

    #[test]
    fn collections_need_objects() {
        let describes = |text| parse(text).describes_objects();
        assert!(describes(r#"{"type":"object"}"#));
        assert!(describes(r#"{"properties":{}}"#));
        assert!(describes(r##"{"$ref":"#/$defs/o","$defs":{"o":{"type":"object"}}}"##));
        assert!(describes(r#"{"oneOf":[{"type":"object"},{"type":"object","required":["a"]}]}"#));
        assert!(!describes("{}"));
        assert!(!describes(r#"{"type":["object","null"]}"#));
        assert!(!describes(r#"{"type":"string"}"#));
        assert!(!describes(r#"{"anyOf":[{"type":"object"},{"type":"array"}]}"#));
    }

    #[test]
    fn indexes_are_declared_by_properties_at_any_depth() {
        let schema = parse(
            r##"{"properties":{"b":{"x-lockwood-index":true},"a":{"$ref":"#/$defs/s","x-lockwood-index":true},
                "c":{"x-lockwood-index":false},"d":{}},"$defs":{"s":{"type":"string"}}}"##,
        );
        let indexed = |schema: Schema| -> Vec<String> {
            schema.indexed_fields().iter().map(ToString::to_string).collect()
        };
        assert_eq!(indexed(schema), ["a", "b"]);
        let nested = parse(
            r#"{"properties":{"a":{"x-lockwood-index":true,"properties":{"b.c":{"x-lockwood-index":true},
                "d":{"properties":{"properties":{"x-lockwood-index":true}}}}},"z":{}}}"#,
        );
        assert_eq!(indexed(nested), ["a", "a.\"b.c\"", "a.d.properties"]);
        refused(
            r#"{"properties":{"a":{"items":{"properties":{"b":{"x-lockwood-index":true}}}}}}"#,
            "#/properties/a/items/properties/b/x-lockwood-index",
            "only fields and what is inside objects can be indexed",
        );
        refused(
            r#"{"$defs":{"a":{"x-lockwood-index":true}}}"#,
            "#/$defs/a/x-lockwood-index",
            "only fields and what is inside objects can be indexed",
        );
        refused(
            r#"{"properties":{"a":{"x-lockwood-index":1}}}"#,
            "#/properties/a/x-lockwood-index",
            "true or false",
        );
        parse(r#"{"properties":{"x-lockwood-index":{"type":"string"}}}"#);
    }
}
