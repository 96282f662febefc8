//! Aliases: a subject whose config names another one stands for that one.

use crate::registry::{Registry, sent, typed};
use serde_json::{Value, json};

#[test]
fn an_alias_stands_for_its_subject() {
    let registry = Registry::start();
    registry.register("orders-value", &typed("integer"));
    let alias = json!({ "alias": "orders-value" });
    assert_eq!(registry.ask("PUT", "/config/orders", alias.clone()), alias);
    let shown = json!({ "compatibilityLevel": "BACKWARD", "alias": "orders-value" });
    assert_eq!(registry.get("/config/orders"), shown);
    let registry = registry.restarted();
    let meant = registry.get("/subjects/orders-value/versions/1");
    assert_eq!(registry.get("/subjects/orders/versions"), json!([1]));
    assert_eq!(registry.get("/subjects/orders/versions/latest"), meant, "under the name that is meant");
    assert_eq!(registry.get("/subjects/orders/versions/1/schema"), typed("integer"));
    assert_eq!(registry.get("/subjects/orders/metadata"), meant);
    assert_eq!(registry.ask("POST", "/subjects/orders", sent(&typed("integer"))), meant);
    let check = "/compatibility/subjects/orders/versions/latest";
    assert_eq!(registry.ask("POST", check, sent(&typed("string"))), json!({ "is_compatible": false }));
    assert_eq!(registry.ask("POST", "/subjects/orders/versions", sent(&typed("number")))["version"], 2);
    assert_eq!(registry.get("/subjects"), json!(["orders-value"]));
    assert_eq!(registry.ask("DELETE", "/subjects/orders/versions/2", Value::Null), json!(2));
    assert_eq!(registry.get("/subjects/orders-value/versions"), json!([1]));
    // Its settings are its own.
    registry.ask("PUT", "/config/orders", json!({ "compatibility": "NONE" }));
    registry.refuses("GET", "/config/orders-value", Value::Null, 40408);
    assert_eq!(registry.ask("DELETE", "/config/orders", Value::Null)["alias"], "orders-value");
    registry.refuses("GET", "/subjects/orders/versions", Value::Null, 40401);
}

#[test]
fn aliases_lead_to_other_contexts_but_not_to_other_aliases() {
    let registry = Registry::start();
    registry.register(":.shop:a", &typed("integer"));
    registry.register(":.shop:b", &typed("string"));
    registry.ask("PUT", "/config/there", json!({ "alias": ":.shop:a" }));
    assert_eq!(registry.get("/subjects/there/versions/1")["subject"], ":.shop:a");
    assert_eq!(registry.get("/schemas/ids/1?subject=there")["schema"], typed("integer").to_string());
    registry.refuses("GET", "/schemas/ids/1", Value::Null, 40403);
    registry.ask("PUT", "/config/:.shop:c", json!({ "alias": "b" }));
    assert_eq!(registry.get("/subjects/:.shop:c/versions/1")["subject"], ":.shop:b", "in its own context");
    registry.ask("PUT", "/config/far", json!({ "alias": "there" }));
    registry.refuses("GET", "/subjects/far/versions", Value::Null, 40401);
    // In a circle each name stands for the other, once.
    registry.ask("PUT", "/config/x", json!({ "alias": "y" }));
    registry.ask("PUT", "/config/y", json!({ "alias": "x" }));
    let message = registry.refuses("GET", "/subjects/x/versions", Value::Null, 40401);
    assert!(message.contains("'y'"), "{message}");
    registry.ask("PUT", "/config/x", json!({ "alias": "" }));
    registry.refuses("GET", "/config/x", Value::Null, 40408);
    for alias in [json!("a"), json!(""), json!(null)] {
        let message = registry.refuses("PUT", "/config", json!({ "alias": alias }), 42205);
        assert!(message.contains("one subject"), "{message}");
    }
    registry.ask("PUT", "/config", json!({ "compatibility": "FULL", "alias": null }));
    assert_eq!(registry.get("/config"), json!({ "compatibilityLevel": "FULL" }));
    for alias in ["_schemas", "a\nb", ":.shop:", &"x".repeat(300)] {
        registry.refuses("PUT", "/config/z", json!({ "alias": alias }), 42208);
    }
}

/// A collection is held to the schema of its own name alone.
#[test]
fn documents_are_not_held_to_an_alias() {
    let registry = Registry::start();
    registry.register("user", &typed("integer"));
    registry.ask("PUT", "/config/person", json!({ "alias": "user" }));
    let target = "/v1/default/documents/person/1";
    let body = json!({ "a": "x" }).to_string();
    let reply = crate::http::send(registry.server.native, "PUT", target, &[], body.as_bytes());
    assert_eq!(reply.status, 200, "{reply:?}");
}
