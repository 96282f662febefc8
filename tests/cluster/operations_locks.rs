//! Operations on single keys and procedures among the locks of others.

use crate::{
    http,
    operations::{ask, pair},
    procedures,
};
use serde_json::{Value, json};

#[test]
fn locks_of_others_are_respected_and_history_is_kept() {
    let cluster = pair();
    for key in [1, 2, 3, 4] {
        let store = cluster.store(1, "shop");
        ask(&store, "insert", json!(key), json!({ "fields": { "n": 1 }, "user": "ann", "note": "first" }));
        let lease = json!({ "owner": "me", "ttl_ms": 60000,
            "resources": [{ "path": ["line", key.to_string(), "n"], "mode": "write" }] });
        let taken = http::send(store.native, "POST", "/v1/shop/locks", &[], lease.to_string().as_bytes());
        assert_eq!(taken.status, 201, "{}", taken.body);
        let other = cluster.store(2, "shop");
        let update = |field: &str, more: Value| {
            let mut body = json!({ "collection": "line", "key": key, "format": "=p", "arguments": [field, 2],
                "wait_ms": 0 });
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        other.refuses("POST", "shard/update", &update("n", json!({})), 423, "locked");
        other.post("shard/update", &update("free", json!({})));
        let delete = json!({ "collection": "line", "key": key, "wait_ms": 0 });
        other.refuses("POST", "shard/delete", &delete, 423, "locked");
        let history = other.get(&format!("history/line/{key}"));
        assert_eq!(history["entries"][0]["user"], "ann", "{history}");
    }
}

#[test]
fn the_lock_of_another_is_in_the_way_and_a_token_is_the_way_in() {
    let cluster = procedures::pair();
    let store = cluster.store(2, "bank");
    procedures::register(&store, "transfer", procedures::TRANSFER);
    for key in [1, 2] {
        procedures::put(&store, json!(key), 100);
        // What it touches besides its key is locked as well.
        let lease = json!({ "owner": "me", "ttl_ms": 60000,
            "resources": [{ "path": ["account", format!("{key}:x")], "mode": "write" }] });
        let taken = http::send(store.native, "POST", "/v1/bank/locks", &[], lease.to_string().as_bytes());
        assert_eq!(taken.status, 201, "{}", taken.body);
        let body = |more: Value| {
            let mut body = procedures::call_of("rw", "transfer", json!(key), json!([[key, "x"], 40]));
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        store.refuses("POST", "shard/call", &body(json!({ "wait_ms": 0 })), 423, "locked");
        assert_eq!(procedures::balance(&store, json!(key)), 100);
        let token = taken.json()["token"].clone();
        store.post("shard/call", &body(json!({ "wait_ms": 0, "tokens": [token] })));
        assert_eq!(procedures::balance(&store, json!(key)), 60);
    }
}
