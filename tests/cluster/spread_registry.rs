//! What every shard has as a whole: schemas and indexes.

use crate::spread_world::{NAMESPACE, World};
use serde_json::{Value, json};

fn keys_of(world: &World, collection: &str, field: &str) -> Vec<Value> {
    let indexes = world.cluster.store(2, NAMESPACE).get("indexes");
    let found = indexes["indexes"].as_array().unwrap().iter();
    found.filter(|index| index["collection"] == collection && index["field"] == field).cloned().collect()
}

#[test]
fn a_schema_holds_on_every_shard() {
    let world = World::new("schemas", 3, json!({ "function": "modulo", "shards": 3 }));
    let store = |node| world.cluster.store(node, NAMESPACE);
    let schema = |extra: &str| {
        json!({ "schema": { "type": "object", "properties": {
            "name": { "type": "string" }, extra: { "type": "integer" } }, "additionalProperties": false } })
    };
    let registered = store(2).post("schemas/user", &schema("age"));
    assert_eq!((&registered["version"], &registered["new"]), (&json!(1), &json!(true)), "{registered}");
    let again = store(3).post("schemas/user", &schema("age"));
    assert_eq!((&again["version"], &again["new"]), (&json!(1), &json!(false)), "{again}");
    for key in 1..=6u64 {
        let event = |fields: Value| json!({ "events": [{ "type": "put", "collection": "user", "key": key, "fields": fields }] });
        store(1).refuses("POST", "write", &event(json!({ "name": 1 })), 400, "schema_mismatch");
        store(1).post("write", &event(json!({ "name": "x", "age": 1 })));
    }
    // Names that the schema does not know are refused by every shard alike.
    let unknown = json!({ "collection": "user", "filter": { "field": "nam", "op": "=", "value": 1 } });
    store(3).refuses("POST", "filter", &unknown, 400, "unknown_field");
    for node in 1..=3 {
        assert_eq!(store(node).get("schemas/user")["versions"].as_array().unwrap().len(), 1);
        let page = store(node).post("filter", &json!({ "collection": "_schemas" }));
        assert_eq!(page["documents"].as_array().unwrap().len(), 1, "{page}");
    }
    store(2).ask("DELETE", "schemas/user", &json!({}));
    for key in 1..=6u64 {
        store(1).update("user", key, json!({ "free": key }));
    }
}

#[test]
fn an_index_is_on_every_shard() {
    let world = World::new("indexes", 3, json!({ "function": "modulo", "shards": 3 }));
    let store = |node| world.cluster.store(node, NAMESPACE);
    for key in 1..=30u64 {
        store(1).create("user", key, json!({ "city": key % 4 }));
    }
    store(3).ask("PUT", "indexes/user/city", &Value::Null);
    crate::harness::eventually("the index is ready", || {
        keys_of(&world, "user", "city").iter().any(|index| index["state"] == "ready")
    });
    let filter = json!({ "collection": "user", "filter": { "field": "city", "op": "=", "value": 3 } });
    assert_eq!(store(2).found(&filter), ["3", "7", "11", "15", "19", "23", "27"]);
    store(2).ask("DELETE", "indexes/user/city", &Value::Null);
    assert!(keys_of(&world, "user", "city").is_empty());
    store(1).refuses("DELETE", "indexes/user/city", &Value::Null, 404, "no_index");
    assert_eq!(store(2).found(&filter), ["3", "7", "11", "15", "19", "23", "27"]);
}
