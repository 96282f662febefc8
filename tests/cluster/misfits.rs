//! What does not fit a schema is refused before it waits for a lock, on a cluster as on one server.

use crate::{
    cluster::Cluster,
    harness::Server,
    leaseholder::{HOUR, Leaseholder},
    spread_nodes::modulo,
    store::Store,
};
use serde_json::json;

const NAMESPACE: &str = "shop";
const KEYS: std::ops::RangeInclusive<u64> = 1..=6;

/// A schema, and documents that fit it.
fn prepare(store: &Store) {
    let properties = json!({ "name": { "type": "string" } });
    store.post("schemas/user", &json!({ "schema": { "type": "object", "properties": properties } }));
    for key in KEYS {
        store.create("user", key, json!({ "name": "Ann" }));
    }
}

/// That what fits no schema is refused although somebody else's lock is in the way.
fn check_refused_before_locks(store: &Store) {
    let ann = Leaseholder { store: store.clone(), owner: "ann".to_owned() };
    assert_eq!(ann.ask("write user", HOUR, 0).status, 201);
    for key in KEYS {
        for kind in ["put", "create"] {
            let event =
                json!({ "type": kind, "collection": "user", "key": key + 100, "fields": { "name": 7 } });
            let call = json!({ "events": [event], "wait_ms": 3000 });
            store.refuses("POST", "write", &call, 400, "schema_mismatch");
        }
        for (fields, code) in
            [(json!({ "name": 7 }), "schema_mismatch"), (json!({ "nick": "A" }), "unknown_field")]
        {
            let body = json!({ "collection": "user", "key": key, "fields": fields, "wait_ms": 3000 });
            store.refuses("POST", "shard/replace", &body, 400, code);
        }
        let fits = json!({ "collection": "user", "key": key, "fields": { "name": "Bob" }, "wait_ms": 0 });
        store.refuses("POST", "shard/replace", &fits, 423, "locked");
    }
}

#[test]
fn what_does_not_fit_is_refused_before_it_waits_for_a_lock() {
    let cluster = Cluster::start(3, modulo(3));
    let store = cluster.store(1, NAMESPACE);
    prepare(&store);
    check_refused_before_locks(&store);
}

#[test]
fn what_does_not_fit_is_refused_before_it_waits_for_a_lock_without_a_cluster() {
    let server = Server::start(&[]);
    let store = Store::new(&server, NAMESPACE);
    prepare(&store);
    check_refused_before_locks(&store);
}
