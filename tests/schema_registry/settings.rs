//! Config and mode, for all subjects and for one.

use crate::registry::{Registry, sent, typed};
use serde_json::{Value, json};

#[test]
fn the_level_is_put_as_one_member_and_got_as_another() {
    let registry = Registry::start();
    assert_eq!(registry.get("/config"), json!({ "compatibilityLevel": "BACKWARD" }));
    let full = json!({ "compatibility": "FULL" });
    assert_eq!(registry.ask("PUT", "/config", full.clone()), full);
    assert_eq!(registry.get("/config"), json!({ "compatibilityLevel": "FULL" }));
    registry.refuses("GET", "/config/a", Value::Null, 40408);
    assert_eq!(registry.get("/config/a?defaultToGlobal=True"), json!({ "compatibilityLevel": "FULL" }));
    registry.ask("PUT", "/config/a", json!({ "compatibility": "none", "defaultMetadata": null }));
    assert_eq!(registry.get("/config/a"), json!({ "compatibilityLevel": "NONE" }));
    assert_eq!(registry.ask("DELETE", "/config/a", Value::Null), json!({ "compatibilityLevel": "NONE" }));
    registry.refuses("GET", "/config/a", Value::Null, 40408);
    registry.refuses("DELETE", "/config/a", Value::Null, 40401);
    assert_eq!(registry.ask("DELETE", "/config", Value::Null), json!({ "compatibilityLevel": "FULL" }));
    assert_eq!(registry.get("/config"), json!({ "compatibilityLevel": "BACKWARD" }));
    for body in [json!({ "compatibility": "BOTH" }), json!({}), json!({ "compatibilityPolicy": "LAX" })] {
        registry.refuses("PUT", "/config/a", body, 42203);
    }
}

#[test]
fn config_members_that_are_not_supported_are_refused_by_name() {
    let registry = Registry::start();
    let members = [
        ("validateFields", json!(true)),
        ("validateNewSchemas", json!(false)),
        ("validateRules", json!(true)),
        ("compatibilityGroup", json!("application.version")),
        ("defaultMetadata", json!({ "properties": { "owner": "ann" } })),
        ("overrideMetadata", json!({})),
        ("defaultRuleSet", json!({ "domainRules": [] })),
        ("overrideRuleSet", json!({})),
        ("compatibillity", json!("NONE")),
    ];
    for target in ["/config", "/config/a"] {
        for (name, value) in &members {
            let body = json!({ "compatibility": "NONE", (*name): value });
            let message = registry.refuses("PUT", target, body, 42205);
            assert!(message.contains(name), "{message}");
        }
    }
    // Nothing was done halfway.
    assert_eq!(registry.get("/config"), json!({ "compatibilityLevel": "BACKWARD" }));
    registry.refuses("GET", "/config/a", Value::Null, 40408);
}

#[test]
fn the_policy_can_be_lenient() {
    let registry = Registry::start();
    let open = |names: &[&str]| {
        let properties: Value =
            names.iter().map(|name| ((*name).to_owned(), json!({ "type": "string" }))).collect();
        json!({ "type": "object", "properties": properties })
    };
    registry.register("a", &open(&["x"]));
    let message = registry.refuses("POST", "/subjects/a/versions", sent(&open(&["x", "y"])), 40901);
    assert!(message.contains("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"), "{message}");
    registry.ask("PUT", "/config/a", json!({ "compatibilityPolicy": "LENIENT" }));
    let expected = json!({ "compatibilityLevel": "BACKWARD", "compatibilityPolicy": "LENIENT" });
    assert_eq!(registry.get("/config/a"), expected);
    registry.register("a", &open(&["x", "y"]));
}

#[test]
fn a_subject_can_be_closed() {
    let registry = Registry::start();
    registry.register("a", &typed("integer"));
    assert_eq!(registry.get("/mode"), json!({ "mode": "READWRITE" }));
    registry.refuses("GET", "/mode/a", Value::Null, 40409);
    assert_eq!(registry.get("/mode/a?defaultToGlobal=true"), json!({ "mode": "READWRITE" }));
    let closed = json!({ "mode": "READONLY" });
    assert_eq!(registry.ask("PUT", "/mode/a?force=False", closed.clone()), closed);
    assert_eq!(registry.get("/mode/a"), closed);
    registry.refuses("POST", "/subjects/a/versions", sent(&typed("number")), 42205);
    registry.refuses("DELETE", "/subjects/a", Value::Null, 42205);
    registry.refuses("PUT", "/config/a", json!({ "compatibility": "NONE" }), 42205);
    assert_eq!(registry.ask("DELETE", "/mode/a", Value::Null), closed);
    registry.refuses("DELETE", "/mode/a", Value::Null, 40401);
    registry.ask("PUT", "/mode", closed);
    registry.refuses("POST", "/subjects/b/versions", sent(&typed("number")), 42205);
    registry.ask("PUT", "/mode", json!({ "mode": "READWRITE" }));
    registry.register("b", &typed("number"));
    for mode in ["IMPORT", "FORWARD", "READONLY_OVERRIDE", ""] {
        registry.refuses("PUT", "/mode", json!({ "mode": mode }), 42204);
    }
}
