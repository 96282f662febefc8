//! GUIDs: the same schema has the same one in every context and in every registry.

use crate::registry::{Registry, sent};
use serde_json::{Value, json};

/// The MD5 of the text without white space.
const GUID: &str = "01fc056e-ed58-c88f-e1c5-07fcd84dd4b7";
const TEXT: &str = r#"{ "type" : "object" }"#;

#[test]
fn a_schema_is_found_by_its_guid() {
    let registry = Registry::start();
    registry.register("first", &json!({ "type": "string" }));
    let spaced = json!({ "schema": TEXT, "schemaType": "JSON" });
    let answer = registry.ask("POST", "/subjects/a/versions", spaced.clone());
    assert_eq!(answer["guid"], GUID);
    assert_eq!(registry.ask("POST", "/subjects/a", spaced.clone())["guid"], GUID);
    assert_eq!(registry.get("/subjects/a/versions/1")["guid"], GUID);
    assert_eq!(registry.get("/schemas/ids/2")["guid"], GUID);
    let expected = json!({ "guid": GUID, "schema": TEXT, "schemaType": "JSON" });
    assert_eq!(registry.get(&format!("/schemas/guids/{GUID}")), expected);
    assert_eq!(registry.get(&format!("/schemas/guids/{}", GUID.to_uppercase())), expected);
    assert_eq!(registry.get(&format!("/schemas/guids/{GUID}/ids")), json!([{ "context": ".", "id": 2 }]));
    registry.ask("POST", "/subjects/:.shop:b/versions", spaced);
    let ids = json!([{ "context": ".", "id": 2 }, { "context": ".shop", "id": 1 }]);
    assert_eq!(registry.get(&format!("/schemas/guids/{GUID}/ids")), ids);
    assert_eq!(registry.get(&format!("/contexts/.shop/schemas/guids/{GUID}")), expected);
    for guid in ["", "x", "1", "d41d8cd9-8f00-b204-e980-0998ecf8427e"] {
        registry.refuses("GET", &format!("/schemas/guids/{guid}/ids"), Value::Null, 40403);
    }
    registry.refuses("GET", "/schemas/guids/d41d8cd9-8f00-b204-e980-0998ecf8427e", Value::Null, 40403);
    registry.refuses("POST", &format!("/schemas/guids/{GUID}"), sent(&json!({})), 405);
}

/// GUIDs are not kept but computed, so they are the same after a restart, and for schemas from before there were any.
#[test]
fn guids_survive_a_restart() {
    let registry = Registry::start();
    registry.ask("POST", "/subjects/a/versions", json!({ "schema": TEXT, "schemaType": "JSON" }));
    let registry = registry.restarted();
    assert_eq!(registry.get(&format!("/schemas/guids/{GUID}"))["schema"], TEXT);
}
