//! From one map to another while everything goes on.

use crate::{
    cluster::{Cluster, hosts},
    harness::eventually,
    spread_nodes::hash,
};
use serde_json::{Value, json};

/// Gives the driver a command.
fn tell(cluster: &Cluster, command: Value) -> Value {
    cluster.store(1, "_system").post("shard/transition", &command)
}

#[test]
fn documents_move_with_their_history_and_nothing_is_left_behind() {
    let cluster = Cluster::start_on(3, 2, hash(2));
    let store = cluster.store(1, "shop");
    for key in 1..=200u64 {
        store.create("user", key, json!({ "v": 1 }));
    }
    store.write(json!([{ "type": "update", "collection": "user", "key": 7, "fields": { "v": 2 } }]));
    store.write(json!([{ "type": "delete", "collection": "user", "key": 8 }]));
    for len in [3, 1, 2] {
        cluster.reshard(len, hash(len));
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

#[test]
fn an_abort_goes_back_and_keeps_what_was_written_meanwhile() {
    let cluster = Cluster::start_on(3, 2, hash(2));
    let store = cluster.store(2, "shop");
    for key in 1..=300u64 {
        store.create("user", key, json!({ "v": 1 }));
    }
    // So slow that it never comes to its end.
    cluster.begin(3, hash(3), Some(20));
    eventually("documents move", || cluster.step() == "copy");
    for key in (1..=300u64).step_by(3) {
        store.write(json!([{ "type": "update", "collection": "user", "key": key, "fields": { "v": 2 } }]));
    }
    for key in (2..=300u64).step_by(3) {
        store.write(json!([{ "type": "delete", "collection": "user", "key": key }]));
    }
    store.create("user", 301, json!({ "v": 3 }));
    tell(&cluster, json!({ "do": "throttle", "rate": null }));
    tell(&cluster, json!({ "do": "abort" }));
    cluster.await_end();
    let map = store.get("shard/map");
    assert_eq!(map["curr"]["shards"], 2, "{map}");
    for key in 1..=301u64 {
        let found = store.send("GET", &format!("documents/user/{key}"), "");
        match key % 3 {
            _ if key == 301 => assert_eq!(found.json()["document"]["value"]["v"], 3, "{key}: {}", found.body),
            1 => assert_eq!(found.json()["document"]["value"]["v"], 2, "{key}: {}", found.body),
            2 => assert_eq!(found.status, 404, "{key}: {}", found.body),
            _ => assert_eq!(found.json()["document"]["value"]["v"], 1, "{key}: {}", found.body),
        }
    }
    // And forward again, over what the abort left.
    cluster.reshard(3, hash(3));
    for key in 1..=301u64 {
        let found = store.send("GET", &format!("documents/user/{key}"), "");
        assert_eq!(found.status == 404, key % 3 == 2 && key != 301, "{key}: {}", found.body);
    }
}

#[test]
fn a_pause_holds_and_a_resume_goes_on() {
    let cluster = Cluster::start_on(2, 1, hash(1));
    let store = cluster.store(1, "shop");
    for key in 1..=100u64 {
        store.create("user", key, json!({ "v": 1 }));
    }
    cluster.begin(2, hash(2), Some(10));
    eventually("documents move", || cluster.step() == "copy");
    tell(&cluster, json!({ "do": "pause" }));
    let status = cluster.store(1, "_system").get("shard/transition");
    assert_eq!(status["paused"], true, "{status}");
    assert_eq!(status["throttle"], 10, "{status}");
    // Everything is served meanwhile.
    for key in 1..=100u64 {
        assert_eq!(store.send("GET", &format!("documents/user/{key}"), "").status, 200, "{key}");
    }
    store.write(json!([{ "type": "update", "collection": "user", "key": 1, "fields": { "v": 2 } }]));
    assert_eq!(cluster.step(), "copy");
    let again = cluster.store(1, "_system").send(
        "POST",
        "shard/transition",
        &json!({ "do": "reshard", "change": { "list": hosts(1), "curr": hash(1) } }).to_string(),
    );
    again.assert_problem(409, "resharding");
    tell(&cluster, json!({ "do": "throttle", "rate": null }));
    tell(&cluster, json!({ "do": "resume" }));
    cluster.await_end();
}

/// A write whose answer was lost is sent again, and done once, wherever its document is by then.
#[test]
fn an_idempotency_key_is_known_wherever_its_document_moves() {
    let cluster = Cluster::start_on(3, 2, hash(2));
    let call = |key: u64| {
        let put = json!({ "type": "put", "collection": "user", "key": key, "fields": { "v": 1 } });
        json!({ "events": [put], "idempotency_key": format!("call {key}") })
    };
    let store = cluster.store(1, "shop");
    let written: Vec<Value> = (0..40).map(|key| store.post("write", &call(key))).collect();
    for len in [3, 1, 3, 2] {
        cluster.reshard(len, hash(len));
        for (key, first) in (0..40).zip(&written) {
            let again = store.post("write", &call(key));
            assert_eq!(again["replayed"], true, "{key} on {len} shards");
            assert_eq!(again["position"], first["position"], "{key} on {len} shards");
        }
    }
}
