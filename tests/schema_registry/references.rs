//! References to anchors and addresses within one schema, as documents and later versions meet them.

use crate::{
    http,
    registry::{Registry, sent},
};
use serde_json::{Value, json};

fn person(age: &str, reference: &str) -> Value {
    json!({
        "$id": "https://example.org/person", "type": "object", "additionalProperties": false,
        "properties": { "age": { "$ref": reference }, "home": { "$ref": "address" } },
        "$defs": {
            "years": { "$anchor": "years", "type": age },
            "address": {
                "$id": "address", "type": "object", "additionalProperties": false,
                "properties": { "zip": { "$ref": "#zip" } },
                "$defs": { "zip": { "$anchor": "zip", "type": "string" } }
            }
        }
    })
}

#[test]
fn documents_are_held_to_what_anchors_and_ids_stand_for() {
    let registry = Registry::start();
    registry.register("person", &person("integer", "#years"));
    let put = |key: u32, document: Value| {
        let target = format!("/v1/default/documents/person/{key}");
        http::send(registry.server.native, "PUT", &target, &[], document.to_string().as_bytes())
    };
    assert_eq!(put(1, json!({ "age": 7, "home": { "zip": "12345" } })).status, 200);
    put(2, json!({ "age": "seven" })).assert_problem(400, "schema_mismatch");
    put(3, json!({ "home": { "zip": 12345 } })).assert_problem(400, "schema_mismatch");
    put(4, json!({ "home": { "zpi": "12345" } })).assert_problem(400, "unknown_field");
}

#[test]
fn versions_are_compared_through_anchors_and_ids() {
    let registry = Registry::start();
    registry.register("person", &person("integer", "#years"));
    // Another way to write the same reference breaks nothing.
    registry.register("person", &person("integer", "#/$defs/years"));
    registry.register("person", &person("number", "person#years"));
    let narrower = sent(&person("integer", "#years"));
    let message =
        registry.refuses("POST", "/subjects/person/versions", sent(&person("string", "#years")), 40901);
    assert!(message.contains("TYPE_CHANGED") && message.contains("#/$defs/years"), "{message}");
    assert_eq!(registry.ask("POST", "/subjects/person/versions", narrower)["version"], 1, "it is there");
}

#[test]
fn what_leads_out_of_a_schema_is_refused() {
    let registry = Registry::start();
    let refuses = |schema: Value, part: &str| {
        let message = registry.refuses("POST", "/subjects/a/versions", sent(&schema), 42201);
        assert!(message.contains(part), "{message}");
    };
    refuses(json!({ "items": { "$ref": "https://example.org/other" } }), "leads out of this schema");
    refuses(json!({ "items": { "$ref": "#nowhere" } }), "anchor that this schema does not have");
    refuses(
        json!({ "items": { "$dynamicRef": "#x" }, "$dynamicAnchor": "x" }),
        "$dynamicRef is not supported",
    );
    refuses(json!({ "$ref": "#x", "$defs": { "x": { "$anchor": "x", "$ref": "#x" } } }), "refers to itself");
}
