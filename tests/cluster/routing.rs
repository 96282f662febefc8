//! Every document is at its owner, and every node finds it.

use crate::cluster::Cluster;
use serde_json::json;

#[test]
fn a_document_is_found_through_every_node() {
    let mut cluster = Cluster::start(2, json!({ "function": "modulo", "shards": 2 }));
    for key in 1..=6 {
        cluster.store(1 + key % 2, "shop").create("user", key as u64, json!({ "v": key }));
    }
    for node in 1..=2 {
        for key in 1..=6 {
            let found = cluster.store(node, "shop").get(&format!("documents/user/{key}"));
            assert_eq!(found["document"]["value"]["v"], json!(key), "{found}");
        }
    }
    cluster.kill(2);
    cluster.restart(2);
    let found = cluster.store(1, "shop").get("documents/user/3");
    assert_eq!(found["document"]["value"]["v"], json!(3), "{found}");
}

#[test]
fn a_write_that_spans_shards_is_refused_before_anything_happens() {
    let cluster = Cluster::start(2, json!({ "function": "modulo", "shards": 2 }));
    let create = |key: u64| json!({ "type": "create", "collection": "user", "key": key, "fields": {} });
    let store = cluster.store(1, "shop");
    let reply = store.send("POST", "write", &json!({ "events": [create(1), create(2)] }).to_string());
    assert_eq!(reply.json()["code"], "spans_shards", "{}", reply.body);
    assert_eq!(store.send("GET", "documents/user/1", "").status, 404);
    store.write(json!([create(1), create(3)]));
}
