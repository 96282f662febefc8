//! Questions about many documents, of a cluster in which nothing moves: every node answers what one server would.

use crate::{
    spread_world::{NAMESPACE, StopAtEnd, World},
    store::Store,
};
use serde_json::json;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

#[test]
fn every_node_answers_what_one_server_would() {
    let mut world = World::new("steady", 3, json!({ "function": "hash", "shards": 3 }));
    for _ in 0..8 {
        world.write(60);
        for _ in 0..60 {
            world.ask();
        }
    }
}

/// What was read over all shards at one position has not changed as long as locks at that position hold.
#[test]
fn a_position_is_one_number_for_all_shards() {
    let world = World::new("positions", 3, json!({ "function": "modulo", "shards": 3 }));
    let store = |node| world.cluster.store(node, NAMESPACE);
    let mut last = 0;
    for key in 1..=30u64 {
        // Most of it goes to one shard, so that the others are far behind.
        let key = if key % 10 == 0 { key } else { key * 3 };
        store(1).write(json!([{ "type": "put", "collection": "user", "key": key, "fields": { "v": 1 } }]));
        let page = store(2).post("filter", &json!({ "collection": "user" }));
        let position = page["position"].as_u64().unwrap();
        assert!(position > last, "{position} after {last}");
        last = position;
        for document in page["documents"].as_array().unwrap() {
            assert!(document["position"].as_u64().unwrap() <= position, "{page}");
        }
    }
    // Keys 1 and 2 are on shards that have seen nothing for long.
    let position = store(3).post("count", &json!({ "collection": "user" }))["position"].as_u64().unwrap();
    for key in [1u64, 2, 3] {
        let lock = json!([{ "collection": "user", "key": key, "position": position }]);
        let events = json!([{ "type": "put", "collection": "user", "key": key, "fields": { "v": 2 } }]);
        let written = store(1).post("write", &json!({ "events": events, "locks": lock }));
        assert!(written["position"].as_u64().unwrap() > position, "{written}");
        let again = json!({ "events": events, "locks": lock });
        store(2).refuses("POST", "write", &again, 409, "position_locked");
    }
    // The past is still there.
    let then = store(1).post("filter", &json!({ "collection": "user", "at": position }));
    assert_eq!(then["position"], json!(position));
    assert!(
        then["documents"].as_array().unwrap().iter().all(|document| document["value"]["v"] == 1),
        "{then}"
    );
    assert_eq!(store(2).post("count", &json!({ "collection": "user", "at": u64::MAX >> 12 }))["count"], 32);
}

#[test]
fn what_makes_no_sense_is_refused_as_on_one_server() {
    let mut world = World::new("refusals", 2, json!({ "function": "hash", "shards": 2 }));
    world.write(40);
    let questions = [
        ("filter", json!({ "collection": "user", "limit": 0 })),
        ("filter", json!({ "collection": "user", "limit": 1_000_000_000 })),
        ("filter", json!({ "collection": "user", "cursor": "00" })),
        ("filter", json!({ "collection": "" })),
        ("filter", json!({ "collection": "user", "sort": [{ "field": "" }] })),
        ("filter", json!({ "collection": "user", "fields": ["meta_position"] })),
        ("filter", json!({ "collection": "user", "filter": { "field": "a", "op": "?", "value": 1 } })),
        ("filter", json!({ "collection": "user", "what": 1 })),
        ("filter", json!({ "collection": "user", "isolation": "locked", "at": 1 })),
        ("count", json!([])),
        ("min", json!({ "collection": "user", "field": "" })),
        ("get", json!({ "documents": [{ "collection": "user", "key": 1.5 }] })),
        ("join", json!({ "left": { "collection": "user", "field": "a" } })),
        ("reserve", json!({ "collection": "user", "amount": 0 })),
        ("reserve", json!({ "collection": "user", "amount": u64::MAX })),
        ("nothing", json!({})),
    ];
    for (word, body) in questions {
        let (ours, theirs) = (
            world.any_node().send("POST", word, &body.to_string()),
            world.alone().send("POST", word, &body.to_string()),
        );
        let (status, code) = (theirs.status, theirs.json()["code"].as_str().unwrap().to_owned());
        assert_ne!(status, 200, "{body}");
        ours.assert_problem(status, &code);
    }
    for path in ["documents/user?limit=0", "documents/user?what=1", "documents/user?cursor=zz"] {
        let theirs = world.alone().send("GET", path, "").json();
        let ours = world.any_node().send("GET", path, "").json();
        assert_eq!(ours["code"], theirs["code"], "{path}");
    }
}

#[test]
fn ids_are_handed_out_once() {
    let world = World::new("ids", 3, json!({ "function": "modulo", "shards": 3 }));
    let store = |node| world.cluster.store(node, NAMESPACE);
    let reserve = |node: usize, amount: u64| {
        let reserved = store(node).post("reserve", &json!({ "collection": "user", "amount": amount }));
        (reserved["first"].as_u64().unwrap(), reserved["last"].as_u64().unwrap())
    };
    assert_eq!(reserve(2, 5), (1, 5));
    assert_eq!(reserve(3, 1), (6, 6));
    // On a shard that does not hand out ids.
    store(1).create("user", 100, json!({}));
    assert_eq!(reserve(3, 10), (101, 110));
    assert_eq!(reserve(1, 1), (111, 111));
}

#[test]
fn what_there_is_is_what_any_shard_has() {
    let world = World::new("catalog", 3, json!({ "function": "modulo", "shards": 3 }));
    let store = |node| world.cluster.store(node, NAMESPACE);
    for key in 1..=9u64 {
        store(1).create(&format!("c{}", key % 5), key, json!({ "f": key }));
    }
    let collections = store(2).get("collections");
    assert_eq!(collections["collections"], json!(["c0", "c1", "c2", "c3", "c4"]));
    let position = store(3).get("position");
    assert!(
        position["position"].as_u64().unwrap() >= collections["position"].as_u64().unwrap(),
        "{position}"
    );
    assert_eq!(position["horizon"], 0);
    let reply = crate::http::get(world.cluster.node(3), "/v1/namespaces").json();
    let found = reply["namespaces"].as_array().unwrap().iter().find(|found| found["namespace"] == NAMESPACE);
    assert_eq!(found.unwrap()["position"], position["position"], "{reply}");
    // Each shard has commits of its own to forget; maps are some too.
    assert!(store(2).trim(0)["trimmed"].as_u64().unwrap() > 9);
    let horizon = store(1).get("position")["horizon"].as_u64().unwrap();
    assert!(horizon > 0);
    store(1).refuses("POST", "count", &json!({ "collection": "c1", "at": 1 }), 410, "position_too_old");
}

/// Everybody counts up what a search found, with a lock at the position of the search; no step is lost, though other
/// shards are always a little ahead.
#[test]
fn position_locks_of_a_search_lose_nothing() {
    let world = World::new("counters", 3, json!({ "function": "modulo", "shards": 3 }));
    let store = |node| world.cluster.store(node, NAMESPACE);
    (1..=3u64).for_each(|key| assert!(store(1).create("counter", key, json!({ "v": 0 })) > 0));
    let stop = AtomicBool::new(false);
    let done: u64 = thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for key in [1u64, 2] {
            let (store, stop) = (store(key as usize), &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    store.update("counter", key, json!({ "w": 1 }));
                }
            });
        }
        let counting = (1..=4).map(|node| {
            let store = store(node);
            scope.spawn(move || (0..50).filter(|_| count_up(&store)).count() as u64)
        });
        let counting: Vec<_> = counting.collect();
        counting.into_iter().map(|count| count.join().unwrap()).sum()
    });
    let found = store(2).get("documents/counter/3");
    assert!(done > 0);
    assert_eq!(found["document"]["value"]["v"], done);
}

/// Whether nobody was in between.
fn count_up(store: &Store) -> bool {
    let page = store.post("filter", &json!({ "collection": "counter" }));
    let found = &page["documents"][2];
    let (key, count) = (&found["key"], found["value"]["v"].as_u64().unwrap());
    let event =
        json!({ "type": "update", "collection": "counter", "key": key, "fields": { "v": count + 1 } });
    let lock = json!({ "collection": "counter", "key": key, "position": page["position"] });
    let reply = store.send("POST", "write", &json!({ "events": [event], "locks": [lock] }).to_string());
    assert!(reply.status == 200 || reply.json()["code"] == "position_locked", "{}", reply.body);
    reply.status == 200
}
