//! Collections with a schema: what names a field that the schema does not know is refused, in this interface's words.

use crate::{
    http::{Connection, JSON},
    store::{INVALID_FORMAT, Store, assert_refused, create, equals, locking, request, update},
};
use serde_json::{Value, json};

fn with_schema(flags: &[&str]) -> Store {
    let store = Store::start_with(flags);
    let schema = json!({ "type": "object", "properties": { "f": { "type": "integer" }, "id": {} },
        "additionalProperties": false });
    for collection in ["a", "action_worker"] {
        let path = format!("/v1/openslides/schemas/{collection}");
        let body = json!({ "schema": schema }).to_string();
        let reply = Connection::open(store.server.native).send("POST", &path, Some(JSON), &body);
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    store
}

#[test]
fn unknown_fields_are_refused() {
    let mut store = with_schema(&[]);
    let before = store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    let filter = equals("g", &json!(1));
    let known = equals("f", &json!(1));
    let reads: [(&str, Value); 9] = [
        ("get", json!({ "fqid": "a/1", "mapped_fields": ["g"] })),
        ("get_many", json!({ "requests": ["a/1/g"] })),
        ("get_many", json!({ "requests": [{ "collection": "a", "ids": [1], "mapped_fields": ["g"] }] })),
        ("get_many", json!({ "requests": [{ "collection": "a", "ids": [1] }], "mapped_fields": ["g"] })),
        ("get_all", json!({ "collection": "a", "mapped_fields": ["g"] })),
        ("filter", json!({ "collection": "a", "filter": filter })),
        ("filter", json!({ "collection": "a", "filter": known, "mapped_fields": ["g"] })),
        ("count", json!({ "collection": "a", "filter": filter })),
        ("min", json!({ "collection": "a", "filter": known, "field": "g" })),
    ];
    for (route, body) in reads {
        assert_refused(&store.ask_reader(route, &body), INVALID_FORMAT, &body.to_string());
    }
    for body in [
        request(&[update("a/1", &json!({ "g": 1 }))]),
        request(&[update("a/1", &json!({ "f": "text" }))]),
        locking(&[update("a/1", &json!({ "f": 2 }))], &json!({ "a/1/g": before })),
        locking(&[update("a/1", &json!({ "f": 2 }))], &json!({ "a/g": before })),
    ] {
        assert_refused(&store.write(&body), INVALID_FORMAT, &body.to_string());
    }
    let volatile = json!([request(&[create("action_worker/1", &json!({ "g": 1 }))])]);
    assert_refused(&store.ask_writer("write_without_events", &volatile), INVALID_FORMAT, "volatile");
    store.has("a/1", &json!({ "f": 1 }), before);
    store.read("get", &json!({ "fqid": "a/1", "mapped_fields": ["f", "meta_position"] }));
    // Where schemas are kept is not shown as models.
    let everything = store.read("get_everything", &json!({}));
    assert_eq!(everything.as_object().unwrap().keys().collect::<Vec<_>>(), ["a"]);
}

/// A datastore that is emptied has no schemas either.
#[test]
fn truncating_takes_schemas_away() {
    let mut store = with_schema(&["--openslides-development"]);
    assert_refused(&store.write(&request(&[create("a/1", &json!({ "g": 1 }))])), INVALID_FORMAT, "held");
    assert_eq!(store.ask_writer("truncate_db", &json!({})).status, 204);
    store.apply(&[create("a/1", &json!({ "g": 1 }))]);
}
