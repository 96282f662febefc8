//! Compatibility: what is refused, and how one can ask before.

use crate::registry::{Registry, sent, typed};
use serde_json::{Value, json};

#[test]
fn an_incompatible_schema_is_refused() {
    let registry = Registry::start();
    registry.register("a", &typed("integer"));
    let message = registry.refuses("POST", "/subjects/a/versions", sent(&typed("string")), 40901);
    assert!(message.contains("TYPE_CHANGED") && message.contains("#/properties/a"), "{message}");
    assert_eq!(registry.get("/subjects/a/versions"), json!([1]));
}

#[test]
fn one_can_ask_before() {
    let registry = Registry::start();
    let ask = |rest: &str, kind: &str| {
        registry.ask("POST", &format!("/compatibility/subjects/{rest}"), sent(&typed(kind)))
    };
    assert_eq!(
        ask("a/versions/latest", "string"),
        json!({ "is_compatible": true }),
        "nothing to compare with"
    );
    assert_eq!(ask("a/versions", "string"), json!({ "is_compatible": true }));
    registry.register("a", &typed("integer"));
    registry.register("a", &typed("number"));
    assert_eq!(ask("a/versions/latest", "integer"), json!({ "is_compatible": false }));
    assert_eq!(ask("a/versions/1?verbose=False", "integer"), json!({ "is_compatible": true }));
    assert_eq!(ask("a/versions/2", "integer"), json!({ "is_compatible": false }));
    let verbose = ask("a/versions?verbose=True", "integer");
    assert_eq!(verbose["is_compatible"], false);
    assert!(verbose["messages"][0].as_str().unwrap().starts_with("version 2: "), "{verbose}");
    assert_eq!(ask("a/versions/latest?verbose=true", "number")["messages"], json!([]));
    let target = |number: &str| format!("/compatibility/subjects/a/versions/{number}");
    registry.refuses("POST", &target("9"), sent(&typed("number")), 40402);
    registry.refuses("POST", &target("x"), sent(&typed("number")), 42202);
    registry.refuses("POST", &target("1"), sent(&typed("nonsense")), 42201);
    registry.refuses("POST", "/compatibility/subjects/none/versions/1", sent(&typed("number")), 40402);
    registry.refuses("GET", &target("1"), Value::Null, 405);
}
