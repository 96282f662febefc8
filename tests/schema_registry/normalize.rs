//! Normal forms: the text that is kept has sorted members and no white space if the client or the config says so.

use crate::registry::Registry;
use serde_json::{Value, json};

const SPELLED: &str =
    r#"{ "type": "object",  "properties": { "b": {"maximum": 1.50, "type": "number"}, "a": {} } }"#;
const NORMAL: &str = r#"{"properties":{"a":{},"b":{"maximum":1.50,"type":"number"}},"type":"object"}"#;

fn body(text: &str) -> Value {
    json!({ "schema": text, "schemaType": "JSON" })
}

#[test]
fn a_schema_is_kept_in_its_normal_form_on_request() {
    let registry = Registry::start();
    let answer = registry.ask("POST", "/subjects/a/versions?normalize=True", body(SPELLED));
    assert_eq!((&answer["schema"], &answer["id"]), (&json!(NORMAL), &json!(1)));
    assert_eq!(registry.get("/subjects/a/versions/1")["schema"], NORMAL);
    assert_eq!(registry.get("/schemas/ids/1/schema").to_string(), NORMAL.replace("1.50", "1.5"));
    // In another spelling it is the same schema, also without the flag, and its id is the same elsewhere.
    let again = registry.ask("POST", "/subjects/a/versions", body(SPELLED));
    assert_eq!((&again["id"], &again["version"], &again["schema"]), (&json!(1), &json!(1), &json!(NORMAL)));
    let elsewhere = registry.ask("POST", "/subjects/b/versions?normalize=false", body(SPELLED));
    assert_eq!((&elsewhere["id"], &elsewhere["schema"]), (&json!(1), &json!(SPELLED)));
    for flag in ["", "?normalize=true"] {
        assert_eq!(registry.ask("POST", &format!("/subjects/a{flag}"), body(SPELLED))["version"], 1);
    }
    registry.refuses("POST", "/subjects/a/versions?normalize=true", body("{"), 42201);
}

/// Flags of the original are true if they say so, in any letter case, and otherwise false.
#[test]
fn a_flag_that_is_neither_true_nor_false_is_false() {
    let registry = Registry::start();
    for (number, flag) in ["banana", "", "1", "yes"].into_iter().enumerate() {
        let versions = format!("/subjects/s{number}/versions?normalize={flag}");
        assert_eq!(registry.ask("POST", &versions, body(SPELLED))["schema"], SPELLED, "{flag:?}");
    }
    assert_eq!(registry.ask("POST", "/subjects/t/versions?normalize=TRUE", body(SPELLED))["schema"], NORMAL);
}

#[test]
fn the_config_says_whether_schemas_are_normalized() {
    let registry = Registry::start();
    let on = json!({ "normalize": true });
    assert_eq!(registry.ask("PUT", "/config", on.clone()), on);
    let shown = json!({ "compatibilityLevel": "BACKWARD", "normalize": true });
    assert_eq!(registry.get("/config"), shown);
    assert_eq!(registry.get("/config/a?defaultToGlobal=true"), shown);
    registry.ask("PUT", "/config/b", json!({ "normalize": false }));
    assert_eq!(registry.get("/config/b"), json!({ "compatibilityLevel": "BACKWARD", "normalize": false }));
    let registry = registry.restarted();
    let kept = |subject: &str| {
        registry.ask("POST", &format!("/subjects/{subject}/versions"), body(SPELLED))["schema"].clone()
    };
    assert_eq!((kept("a"), kept("b")), (json!(NORMAL), json!(SPELLED)));
    assert_eq!(registry.ask("DELETE", "/config/b", Value::Null)["normalize"], false);
    registry.refuses("GET", "/config/b", Value::Null, 40408);
    registry.ask("PUT", "/config", json!({ "normalize": null }));
    assert_eq!(registry.get("/config"), json!({ "compatibilityLevel": "BACKWARD" }));
    registry.refuses("PUT", "/config", json!({ "normalize": "yes" }), 400);
}
