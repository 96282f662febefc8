//! From one map to another while everything goes on.

use crate::{cluster::Cluster, harness::eventually};
use serde_json::{Value, json};

fn hash(shards: u32) -> Value {
    json!({ "function": "hash", "shards": shards })
}

/// Tells the keeper something.
fn tell(cluster: &Cluster, command: Value) -> Value {
    cluster.store(1, "_system").post("shard/transition", &command)
}

fn list(cluster: &Cluster, len: usize) -> Value {
    cluster.steady(1, len, hash(1))["shards"].clone()
}

fn is_over(cluster: &Cluster) -> bool {
    let status = cluster.store(1, "_system").get("shard/transition");
    status["step"] == "none"
}

fn reshard(cluster: &Cluster, len: usize) {
    let change = json!({ "list": list(cluster, len), "curr": hash(len as u32) });
    tell(cluster, json!({ "do": "reshard", "change": change }));
    eventually("the resharding is over", || is_over(cluster));
}

#[test]
fn documents_move_with_their_history_and_nothing_is_left_behind() {
    let cluster = Cluster::nodes(3);
    cluster.put_map(&cluster.steady(1, 2, hash(2)));
    let store = cluster.store(1, "shop");
    for key in 1..=200u64 {
        store.create("user", key, json!({ "v": 1 }));
    }
    store.write(json!([{ "type": "update", "collection": "user", "key": 7, "fields": { "v": 2 } }]));
    store.write(json!([{ "type": "delete", "collection": "user", "key": 8 }]));
    for len in [3, 1, 2] {
        reshard(&cluster, len);
        for node in 1..=3 {
            let store = cluster.store(node, "shop");
            for key in 1..=200u64 {
                let found = store.send("GET", &format!("documents/user/{key}"), "");
                let expected = if key == 8 { 404 } else { 200 };
                assert_eq!(found.status, expected, "{key} on {len} shards through {node}: {}", found.body);
            }
            let history = store.get("history/user/7");
            assert_eq!(history["entries"].as_array().unwrap().len(), 2, "{history}");
        }
    }
}
