//! Versions and ids: registering, reading, deleting.

use crate::registry::{Registry, sent, typed};
use serde_json::{Value, json};

#[test]
fn schemas_are_registered_under_ids() {
    let registry = Registry::start();
    let schema = typed("string");
    let text = schema.to_string();
    let answer = registry.ask("POST", "/subjects/a/versions?normalize=False", sent(&schema));
    let guid = answer["guid"].clone();
    let expected = json!({ "id": 1, "version": 1, "guid": guid, "schemaType": "JSON", "schema": text });
    assert_eq!(answer, expected);
    assert_eq!(registry.register("a", &schema), 1, "again");
    assert_eq!(registry.register("b", &schema), 1, "the same under another subject");
    assert_eq!(registry.get("/subjects/a/versions"), json!([1]));
    let version =
        json!({ "subject": "a", "version": 1, "id": 1, "guid": guid, "schemaType": "JSON", "schema": text });
    for number in ["1", "latest", "-1"] {
        assert_eq!(registry.get(&format!("/subjects/a/versions/{number}")), version);
    }
    assert_eq!(registry.get("/subjects/a/versions/1/schema"), schema);
    assert_eq!(registry.get("/subjects/a/versions/1/referencedby"), json!([]));
    assert_eq!(registry.get("/subjects/a/metadata")["version"], 1);
    assert_eq!(registry.get("/schemas/ids/1"), json!({ "guid": guid, "schema": text, "schemaType": "JSON" }));
    assert_eq!(registry.get("/schemas/ids/1?fetchMaxId=true")["maxId"], 1);
    assert_eq!(registry.get("/schemas/ids/1/schema"), schema);
    assert_eq!(registry.get("/schemas/ids/1/subjects"), json!(["a", "b"]));
    let uses = json!([{ "subject": "a", "version": 1 }, { "subject": "b", "version": 1 }]);
    assert_eq!(registry.get("/schemas/ids/1/versions"), uses);
    assert_eq!(registry.get("/schemas").as_array().unwrap().len(), 2);
    assert_eq!(registry.get("/schemas?subjectPrefix=b&latestOnly=True")[0]["subject"], "b");
    for target in ["/schemas/ids/9", "/schemas/ids/x", "/schemas/ids/9/subjects", "/schemas/ids/9/versions"] {
        registry.refuses("GET", target, Value::Null, 40403);
    }
    registry.refuses("GET", "/subjects/x/versions", Value::Null, 40401);
    registry.refuses("GET", "/subjects/x/versions/1", Value::Null, 40401);
    registry.refuses("GET", "/subjects/a/versions/2", Value::Null, 40402);
    registry.refuses("GET", "/subjects/a/versions/2/referencedby", Value::Null, 40402);
    for number in ["0", "-2", "first", "2147483648"] {
        registry.refuses("GET", &format!("/subjects/a/versions/{number}"), Value::Null, 42202);
    }
}

#[test]
fn what_is_not_kept_is_refused_with_a_reason() {
    let registry = Registry::start();
    let refuses = |body: Value, code: u32, part: &str| {
        let message = registry.refuses("POST", "/subjects/a/versions", body, code);
        assert!(message.contains(part), "{message}");
    };
    refuses(json!({ "schema": "{}" }), 42201, "schemaType");
    refuses(json!({ "schema": "\"string\"", "schemaType": "AVRO" }), 42201, "JSON");
    refuses(json!({ "schema": "message A {}", "schemaType": "PROTOBUF" }), 42201, "JSON");
    refuses(json!({ "schemaType": "JSON" }), 42201, "Empty");
    refuses(json!({ "schema": "{\"type\":\"objekt\"}", "schemaType": "JSON" }), 42201, "#/type");
    let reference = json!([{ "name": "x", "subject": "x", "version": 1 }]);
    refuses(json!({ "schema": "{}", "schemaType": "JSON", "references": reference }), 42201, "references");
    refuses(json!({ "schema": "{}", "schemaType": "JSON", "id": 5 }), 42205, "id");
    refuses(json!({ "schema": "{}", "schemaType": "JSON", "version": 5 }), 42201, "next version is 1");
    assert_eq!(registry.send("POST", "/subjects/a/versions", "{").status, 400);
    let empty = json!({ "schema": "{}", "schemaType": "JSON", "references": [], "version": 1, "extra": {} });
    assert_eq!(registry.ask("POST", "/subjects/a/versions", empty)["version"], 1);
}

#[test]
fn too_much_is_refused() {
    let registry = Registry::start_with(&[
        "--schemas-max",
        "2",
        "--schema-bytes-max",
        "200",
        "--body-bytes-max",
        "2000",
    ]);
    let long = json!({ "title": "x".repeat(300) });
    assert!(
        registry.refuses("POST", "/subjects/a/versions", sent(&long), 42209).contains("schema_bytes_max")
    );
    let longer = json!({ "title": "x".repeat(3000) });
    assert!(
        registry.refuses("POST", "/subjects/a/versions", sent(&longer), 42209).contains("body_bytes_max")
    );
    registry.register("a", &typed("string"));
    registry.register("b", &typed("string"));
    let message = registry.refuses("POST", "/subjects/c/versions", sent(&typed("string")), 42205);
    assert!(message.contains("schemas_max"), "{message}");
}

#[test]
fn a_version_is_deleted_softly_first() {
    let registry = Registry::start();
    registry.register("a", &typed("integer"));
    registry.register("a", &typed("number"));
    registry.refuses("DELETE", "/subjects/a/versions/3", Value::Null, 40402);
    registry.refuses("DELETE", "/subjects/x/versions/1", Value::Null, 40401);
    registry.refuses("DELETE", "/subjects/a/versions/x", Value::Null, 42202);
    registry.refuses("DELETE", "/subjects/a/versions/1?permanent=true", Value::Null, 40407);
    assert_eq!(registry.ask("DELETE", "/subjects/a/versions/1", Value::Null), json!(1));
    registry.refuses("DELETE", "/subjects/a/versions/1", Value::Null, 40406);
    assert_eq!(registry.get("/subjects/a/versions"), json!([2]));
    assert_eq!(registry.get("/subjects/a/versions?deleted=true"), json!([1, 2]));
    assert_eq!(registry.get("/subjects/a/versions?deletedOnly=true"), json!([1]));
    registry.refuses("GET", "/subjects/a/versions/1", Value::Null, 40402);
    assert_eq!(registry.get("/subjects/a/versions/1?deleted=true")["id"], 1);
    assert_eq!(registry.get("/schemas/ids/1")["schemaType"], "JSON", "by its id it is still found");
    assert_eq!(registry.get("/schemas/ids/1/subjects"), json!([]));
    assert_eq!(registry.get("/schemas/ids/1/subjects?deleted=true"), json!(["a"]));
    assert_eq!(registry.ask("DELETE", "/subjects/a/versions/1?permanent=true", Value::Null), json!(1));
    registry.refuses("GET", "/schemas/ids/1", Value::Null, 40403);
    assert_eq!(registry.ask("DELETE", "/subjects/a/versions/latest", Value::Null), json!(2));
    registry.refuses("GET", "/subjects/a/versions/latest", Value::Null, 40401);
    // A schema that is deleted, but not for good, comes back with its id and a new version.
    let again = registry.ask("POST", "/subjects/a/versions", sent(&typed("number")));
    assert_eq!((&again["id"], &again["version"]), (&json!(2), &json!(3)));
}
