//! Position locks on what a search found, when documents of all shards could have been found.

use crate::{
    cluster::Cluster,
    harness::Server,
    spread_world::{NAMESPACE, World},
    store::Store,
};
use serde_json::{Value, json};
use std::thread;

fn search(name: &str) -> Value {
    json!({ "field": "name", "op": "=", "value": name })
}

/// Creates a document of this name unless there is one; says whether it did.
fn create_unique(store: &Store, key: u64, name: &str) -> bool {
    loop {
        let page = store.post("filter", &json!({ "collection": "user", "filter": search(name) }));
        if !page["documents"].as_array().unwrap().is_empty() {
            return false;
        }
        let event = json!({ "type": "create", "collection": "user", "key": key, "fields": { "name": name } });
        let lock = json!({ "collection": "user", "field": "name", "filter": search(name),
            "position": page["position"] });
        let call = json!({ "events": [event], "locks": [lock], "wait_ms": 20_000 });
        let reply = store.send("POST", "write", &call.to_string());
        match reply.status {
            200 => return true,
            _ => assert_eq!(reply.json()["code"], "position_locked", "{}", reply.body),
        }
    }
}

/// Everybody looks for a name and creates a document of that name if nobody has it, each on another shard.
#[test]
fn only_one_finds_nothing() {
    let world = World::new("names", 3, json!({ "function": "modulo", "shards": 3 }));
    for round in 0..8u64 {
        let name = format!("name {round}");
        let created: usize = thread::scope(|scope| {
            let creating: Vec<_> = (1..=3u64)
                .map(|node| {
                    let (store, name) = (world.cluster.store(node as usize, NAMESPACE), &name);
                    scope.spawn(move || create_unique(&store, round * 3 + node, name))
                })
                .collect();
            creating.into_iter().map(|done| usize::from(done.join().unwrap())).sum()
        });
        assert_eq!(created, 1, "{name}");
        let count = json!({ "collection": "user", "filter": search(&name) });
        assert_eq!(world.cluster.store(1, NAMESPACE).post("count", &count)["count"], 1);
    }
}

/// Locks on fields of a collection and on searches hold and break as on one server, whichever shard has changed.
#[test]
fn locks_hold_and_break_as_on_one_server() {
    let cluster = Cluster::start(3, json!({ "function": "modulo", "shards": 3 }));
    let single = Server::start(&[]);
    let (ours, theirs) = (cluster.store(2, "shop"), Store::new(&single, "shop"));
    let put = |key: u64, fields: Value| json!({ "type": "put", "collection": "user", "key": key, "fields": fields });
    for key in 1..=9u64 {
        ours.write(json!([put(key, json!({ "name": format!("n{key}"), "age": key }))]));
        theirs.write(json!([put(key, json!({ "name": format!("n{key}"), "age": key }))]));
    }
    let changes = [put(4, json!({ "name": "n4", "age": 40 })), put(5, json!({ "name": "other", "age": 5 }))];
    let locks = [
        json!({ "collection": "user", "field": "name" }),
        json!({ "collection": "user", "field": "age" }),
        json!({ "collection": "user", "field": "nothing" }),
        json!({ "collection": "order", "field": "name" }),
        json!({ "collection": "user", "field": "age", "filter": search("n5") }),
        json!({ "collection": "user", "field": "age", "filter": search("n6") }),
    ];
    for change in changes {
        for lock in &locks {
            for written in [1u64, 2, 3] {
                let code = |store: &Store| {
                    let position = store.post("count", &json!({ "collection": "user" }))["position"].clone();
                    let mut lock = lock.clone();
                    lock["position"] = position;
                    let event = json!({ "type": "update", "collection": "note", "key": written,
                        "fields": { "v": 1 } });
                    store.write(
                        json!([{ "type": "put", "collection": "note", "key": written, "fields": {} }]),
                    );
                    let call = json!({ "events": [event], "locks": [lock] }).to_string();
                    let before = store.send("POST", "write", &call);
                    assert_eq!(before.status, 200, "{call}: {}", before.body);
                    store.write(json!([change]));
                    store.send("POST", "write", &call).json()["code"].clone()
                };
                assert_eq!(code(&ours), code(&theirs), "{lock} {change} {written}");
            }
        }
    }
}

/// A write that was done is answered as it was then, also if its locks would not hold any more.
#[test]
fn what_was_done_is_not_judged_again() {
    let cluster = Cluster::start(3, json!({ "function": "modulo", "shards": 3 }));
    let store = cluster.store(1, "shop");
    let position = store.create("user", 1, json!({ "name": "x" }));
    let event = json!({ "type": "create", "collection": "user", "key": 2, "fields": {} });
    let lock = json!({ "collection": "user", "field": "name", "position": position });
    let call = json!({ "events": [event], "locks": [lock], "idempotency_key": "once" });
    let first = store.post("write", &call);
    store.update("user", 1, json!({ "name": "y" }));
    let again = cluster.store(3, "shop").post("write", &call);
    assert_eq!((&again["position"], &again["replayed"]), (&first["position"], &json!(true)), "{again}");
    let other = json!({ "events": [{ "type": "delete", "collection": "user", "key": 2 }], "locks": [lock] });
    store.refuses("POST", "write", &other, 409, "position_locked");
}
