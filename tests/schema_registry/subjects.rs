//! Subjects: listing, looking up, deleting.

use crate::registry::{Registry, sent, typed};
use serde_json::{Value, json};

#[test]
fn subjects_are_listed() {
    let registry = Registry::start();
    assert_eq!(registry.get("/subjects"), json!([]));
    for subject in ["b", "a-value", "a-key"] {
        registry.register(subject, &typed("string"));
    }
    assert_eq!(registry.get("/subjects"), json!(["a-key", "a-value", "b"]));
    assert_eq!(registry.get("/subjects?subjectPrefix=a-"), json!(["a-key", "a-value"]));
    assert_eq!(registry.get("/subjects?offset=1&limit=1"), json!(["a-value"]));
    assert_eq!(registry.get("/subjects?deleted=False&unknown=1&limit=-1"), json!(["a-key", "a-value", "b"]));
    registry.ask("DELETE", "/subjects/b", Value::Null);
    assert_eq!(registry.get("/subjects"), json!(["a-key", "a-value"]));
    assert_eq!(registry.get("/subjects?deleted=True"), json!(["a-key", "a-value", "b"]));
    assert_eq!(registry.get("/subjects?deletedOnly=true"), json!(["b"]));
    assert_eq!(registry.get("/subjects?deleted_only=True"), json!(["b"]));
    registry.refuses("GET", "/subjects?limit=many", Value::Null, 400);
}

#[test]
fn a_schema_is_looked_up_under_a_subject() {
    let registry = Registry::start();
    let id = registry.register("a", &typed("string"));
    let found = registry.ask("POST", "/subjects/a?normalize=False&deleted=False", sent(&typed("string")));
    let text = typed("string").to_string();
    let guid = registry.get("/subjects/a/versions/1")["guid"].clone();
    let expected = json!({
        "subject": "a", "version": 1, "id": id, "guid": guid, "schemaType": "JSON", "schema": text
    });
    assert_eq!(found, expected);
    registry.refuses("POST", "/subjects/a", sent(&typed("integer")), 40403);
    registry.refuses("POST", "/subjects/b", sent(&typed("string")), 40401);
    registry.refuses("POST", "/subjects/a", sent(&typed("nonsense")), 42201);
    registry.ask("DELETE", "/subjects/a", Value::Null);
    registry.refuses("POST", "/subjects/a", sent(&typed("string")), 40401);
    assert_eq!(registry.ask("POST", "/subjects/a?deleted=true", sent(&typed("string"))), expected);
}

#[test]
fn a_subject_is_deleted_softly_first() {
    let registry = Registry::start();
    registry.register("a", &typed("integer"));
    registry.register("a", &typed("number"));
    registry.refuses("DELETE", "/subjects/nothing", Value::Null, 40401);
    registry.refuses("DELETE", "/subjects/a?permanent=true", Value::Null, 40405);
    assert_eq!(registry.ask("DELETE", "/subjects/a", Value::Null), json!([1, 2]));
    registry.refuses("DELETE", "/subjects/a", Value::Null, 40404);
    registry.refuses("GET", "/subjects/a/versions", Value::Null, 40401);
    assert_eq!(registry.ask("DELETE", "/subjects/a?permanent=True", Value::Null), json!([1, 2]));
    registry.refuses("DELETE", "/subjects/a?permanent=true", Value::Null, 40401);
    assert_eq!(registry.get("/subjects?deleted=true"), json!([]));
}

#[test]
fn names_that_cannot_be() {
    let registry = Registry::start();
    for name in ["a%0Ab", "_schemas", "%ff", &"x".repeat(257), ":.shop:"] {
        let target = format!("/subjects/{name}/versions");
        registry.refuses("POST", &target, sent(&typed("string")), 42208);
    }
    registry.register("a%2Fb%20c", &typed("string"));
    assert_eq!(registry.get("/subjects"), json!(["a/b c"]));
}

#[test]
fn there_is_nothing_else() {
    let registry = Registry::start();
    assert_eq!(registry.get("/"), json!({}));
    assert_eq!(registry.get("/schemas/types"), json!(["JSON"]));
    assert_eq!(registry.get("/v1/metadata/id")["id"], "");
    assert!(registry.get("/v1/metadata/version")["version"].is_string());
    registry.refuses("GET", "/associations/resources/-/topic", Value::Null, 404);
    registry.refuses("GET", "/nothing", Value::Null, 404);
    registry.refuses("PATCH", "/subjects", Value::Null, 405);
    registry.refuses("POST", "/subjects", Value::Null, 405);
    registry.refuses("GET", "/subjects/a", Value::Null, 405);
    let page =
        crate::http::request(registry.address, "GET", "/subjects", &[("origin", "http://evil.example")]);
    assert_eq!(page.status, 403);
}
