//! Documents of a namespace on several shards: each is at its owner, and every node finds it.

use crate::spread_nodes::{Spread, hash, modulo};
use serde_json::json;

#[test]
fn documents_are_found_and_counted_through_every_node() {
    let spread = Spread::start(2, 3, modulo(3));
    for key in 1..=9u64 {
        spread.store(1 + key as usize % 2, "shop").create("user", key, json!({ "v": key }));
    }
    for store in spread.stores("shop") {
        for key in 1..=9u64 {
            let found = store.get(&format!("documents/user/{key}"));
            assert_eq!(found["document"]["value"]["v"], json!(key), "{found}");
        }
        let page = store.post("filter", &json!({ "collection": "user" }));
        assert_eq!(page["documents"].as_array().unwrap().len(), 9, "{page}");
        assert_eq!(store.post("count", &json!({ "collection": "user" }))["count"], 9);
    }
    let listed = spread.get(2, "/v1/namespaces").json();
    let names: Vec<&str> = listed["namespaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|info| info["namespace"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["_system", "shop"], "{listed}");
}

#[test]
fn a_write_that_spans_shards_is_refused_before_anything_happens() {
    let spread = Spread::start(2, 2, modulo(2));
    let create = |key: u64| json!({ "type": "create", "collection": "user", "key": key, "fields": {} });
    let store = spread.store(1, "shop");
    store.refuses("POST", "write", &json!({ "events": [create(1), create(2)] }), 409, "spans_shards");
    for key in [1, 2] {
        assert_eq!(store.send("GET", &format!("documents/user/{key}"), "").status, 404);
    }
    store.write(json!([create(1), create(3)]));
}

/// A write is on a shard that its home does not own, so the log of that shard has it.
#[test]
fn acknowledged_documents_survive_each_owner() {
    let mut spread = Spread::start(3, 3, modulo(3));
    for key in 1..=30u64 {
        spread.store(1 + key as usize % 3, "shop").create("user", key, json!({ "v": key }));
    }
    for shard in 1..=3 {
        let killed = spread.nodes.owner_of(shard).unwrap();
        spread.nodes.kill(killed);
        for store in spread.stores("shop") {
            for key in 1..=30u64 {
                let found = store.get(&format!("documents/user/{key}"));
                assert_eq!(found["document"]["value"]["v"], json!(key), "{found}");
            }
            assert_eq!(store.post("count", &json!({ "collection": "user" }))["count"], 30);
        }
        spread.nodes.up(killed);
        spread.nodes.await_balance(3);
    }
}

/// What began before there was a map stays at its home, map or not, and so do its positions.
#[test]
fn a_namespace_that_began_without_a_map_stays_whole() {
    let spread = Spread::without_map(2, 3, &[]);
    for number in 0..6 {
        spread.store(1, &format!("old{number}")).create("user", 1u64, json!({ "n": number }));
    }
    spread.config(3, modulo(3));
    for key in 1..=6u64 {
        spread.store(2, "new").create("user", key, json!({}));
    }
    // Reading all shards at one position raises those that are behind.
    spread.store(1, "new").post("filter", &json!({ "collection": "user" }));
    for number in 0..6 {
        let store = spread.store(2, &format!("old{number}"));
        // On one shard, so it can be written at once.
        let create = |key: u64| json!({ "type": "create", "collection": "user", "key": key, "fields": {} });
        let written = store.write(json!([create(2), create(3)]));
        assert_eq!(written, 2, "positions of whole namespaces are their own");
        assert_eq!(store.post("count", &json!({ "collection": "user" }))["count"], 3);
    }
    spread.reshard(2, modulo(2));
    for store in spread.stores("old3") {
        assert_eq!(store.post("count", &json!({ "collection": "user" }))["count"], 3);
    }
    assert_eq!(spread.store(1, "new").post("count", &json!({ "collection": "user" }))["count"], 6);
}

/// Shards that no map names have homes too, and are asked like all others.
#[test]
fn a_home_beside_the_map_finds_all_documents() {
    let spread = Spread::start(2, 4, hash(2));
    let names: Vec<String> = (0..12).map(|number| format!("shop{number}")).collect();
    for name in &names {
        for key in 1..=4u64 {
            spread.store(1, name).create("user", key, json!({ "v": key }));
        }
    }
    assert!(spread.homes()[2..].iter().any(|homes| *homes > 0), "{:?}", spread.homes());
    for name in &names {
        for store in spread.stores(name) {
            let page = store.post("filter", &json!({ "collection": "user" }));
            assert_eq!(page["documents"].as_array().unwrap().len(), 4, "{name}: {page}");
        }
    }
}

#[test]
fn the_map_shows_the_hosts_that_were_named() {
    let spread = Spread::without_map(2, 1, &[]);
    assert!(spread.store(2, "shop").get("shard/map").is_null());
    // A list makes the shards that are missing.
    spread.config(3, hash(3));
    for store in spread.stores("shop") {
        let map = store.get("shard/map");
        assert_eq!(map["shards"][2][0]["address"], "10.0.0.3:7117", "{map}");
        assert_eq!(store.get("shard/is_valid")["valid"], true);
    }
    // One node may be named for several shards.
    let same = json!([[["rw", 1, "a", 1]], [["rw", 1, "a", 1], ["ro", 1, "b", 1]], [["rw", 1, "c", 1]]]);
    spread.keeper().post("shard/config", &json!({ "list": same }));
    assert_eq!(spread.store(1, "shop").get("shard/map")["shards"][1][1]["address"], "b:1");
    let none = json!({ "list": [[["ro", 1, "a", 1]]] });
    spread.keeper().refuses("POST", "shard/config", &none, 400, "bad_map");
}

/// A client cannot pass for a node, whatever its headers say.
#[test]
fn headers_of_nodes_are_not_believed() {
    let spread = Spread::start(1, 2, modulo(2));
    spread.store(1, "shop").create("user", 1u64, json!({ "v": 1 }));
    let native = spread.nodes.server(1).native;
    let forged = [("lockwood-peer", "x"), ("lockwood-epoch", "1"), ("lockwood-frozen", "1")];
    for target in ["/internal/map", "/internal/everywhere?namespace=shop"] {
        let reply = crate::http::request(native, "GET", target, &forged);
        reply.assert_problem(403, "not_a_peer");
    }
    for key in [1, 2] {
        let target = format!("/v1/shop/documents/user/{key}");
        let (forged, plain) = (
            crate::http::request(native, "GET", &target, &forged),
            crate::http::request(native, "GET", &target, &[]),
        );
        assert_eq!((forged.status, forged.body), (plain.status, plain.body));
    }
}

/// A facade finds nothing of a namespace that is on several shards, and says so.
#[test]
fn facades_are_told_that_a_namespace_is_spread() {
    let spread = Spread::without_map(1, 2, &["--elasticsearch", "127.0.0.1:0"]);
    spread.config(2, hash(2));
    spread.store(1, "shop").create("user", 1u64, json!({}));
    let address = spread.nodes.server(1).elasticsearch();
    let reply =
        crate::http::send(address, "GET", "/shop/_count", &[("content-type", "application/json")], b"");
    assert!(reply.status == 409 && reply.body.contains("native interface"), "{}", reply.body);
    let json = [("content-type", "application/json")];
    let made = crate::http::send(address, "PUT", "/own/_doc/1", &json, br#"{"n":1}"#);
    assert_eq!(made.status, 201, "{}", made.body);
    let bulk = "{\"index\":{\"_index\":\"shop\",\"_id\":\"2\"}}\n{\"n\":3}\n";
    let bulk = crate::http::send(address, "POST", "/_bulk", &json, bulk.as_bytes());
    assert!(bulk.status == 409, "{}", bulk.body);
}
