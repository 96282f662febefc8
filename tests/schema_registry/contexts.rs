//! Contexts are namespaces, and subjects are collections: what one interface registers, the other enforces.

use crate::{
    http,
    registry::{Registry, sent, typed},
};
use serde_json::{Value, json};

#[test]
fn namespaces_are_contexts() {
    let registry = Registry::start_with(&["--schema-registry-namespace", "main"]);
    assert_eq!(registry.get("/contexts"), json!(["."]));
    assert_eq!(registry.register("a", &typed("integer")), 1);
    assert_eq!(registry.register(":.shop:a", &typed("string")), 1, "ids are a namespace's own");
    assert_eq!(registry.register("%3A.shop%3Ab", &typed("number")), 2);
    assert_eq!(registry.get("/contexts"), json!([".", ".shop"]));
    assert_eq!(registry.get("/subjects"), json!(["a", ":.shop:a", ":.shop:b"]));
    assert_eq!(registry.get("/subjects?subjectPrefix=:*:"), registry.get("/subjects"));
    assert_eq!(registry.get("/subjects?subjectPrefix=:.shop:"), json!([":.shop:a", ":.shop:b"]));
    assert_eq!(registry.get("/subjects?subjectPrefix=:.shop:b"), json!([":.shop:b"]));
    assert_eq!(registry.get("/subjects?subjectPrefix=:.:"), json!(["a"]));
    assert_eq!(registry.get("/contexts/.shop/subjects"), json!([":.shop:a", ":.shop:b"]));
    assert_eq!(registry.get("/subjects/:.shop:a/versions/1")["subject"], ":.shop:a");
    assert_eq!(registry.get("/subjects/:.main:a/versions/1")["subject"], "a");
    assert_eq!(registry.get("/contexts/.shop/subjects/a/versions/latest/schema"), typed("string"));
    assert_eq!(registry.get("/schemas/ids/1?subject=:.shop:")["schema"], typed("string").to_string());
    assert_eq!(registry.get("/schemas/ids/1")["schema"], typed("integer").to_string());
    registry.ask("PUT", "/config/:.shop:", json!({ "compatibility": "NONE" }));
    assert_eq!(
        registry.get("/config/:.shop:a?defaultToGlobal=true"),
        json!({ "compatibilityLevel": "NONE" })
    );
    assert_eq!(registry.get("/config"), json!({ "compatibilityLevel": "BACKWARD" }));
    assert_eq!(registry.ask("DELETE", "/subjects/:.shop:a", Value::Null), json!([1]));
}

#[test]
fn what_is_registered_here_holds_everywhere() {
    let registry = Registry::start();
    registry.register("user", &typed("integer"));
    registry.register("words", &json!({ "type": "string" }));
    let native = registry.server.native;
    let write = |collection: &str, value: Value| {
        let target = format!("/v1/default/documents/{collection}/1");
        http::send(native, "PUT", &target, &[], json!({ "a": value }).to_string().as_bytes())
    };
    assert_eq!(write("user", json!(1)).status, 200);
    write("user", json!("x")).assert_problem(400, "schema_mismatch");
    // A schema that is not about objects is kept for its clients, and no document is held to it.
    assert_eq!(write("words", json!("x")).status, 200);
    let listed = http::get_json(&registry.server, "/v1/default/schemas");
    assert_eq!(
        (&listed["subjects"][0]["enforced"], &listed["subjects"][1]["enforced"]),
        (&json!(true), &json!(false))
    );
    // And the other way round.
    let schema = json!({ "schema": typed("number") }).to_string();
    assert_eq!(http::send(native, "POST", "/v1/default/schemas/user", &[], schema.as_bytes()).status, 200);
    assert_eq!(registry.get("/subjects/user/versions"), json!([1, 2]));
    let found = registry.ask("POST", "/subjects/user", sent(&typed("number")));
    assert_eq!(found["version"], 2);
}
