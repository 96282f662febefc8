//! Dumps of several shards, and dumps taken in by several shards.

use crate::{
    http::{self, Reply},
    spread_world::{COLLECTIONS, NAMESPACE, World},
    store::Store,
};
use serde_json::{Value, json};

const KIND: [(&str, &str); 1] = [("content-type", "application/x-ndjson")];

fn dump(store: &Store) -> String {
    let reply = store.send("GET", "dump", "");
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.body
}

fn load(store: &Store, lines: &str) -> Reply {
    http::send(store.native, "POST", &store.target("load"), &KIND, lines.as_bytes())
}

/// All documents with all that is known of them, and the same as of earlier positions.
fn everything(store: &Store, at: Option<u64>) -> Value {
    let all = COLLECTIONS.map(|collection| {
        let mut question = json!({ "collection": collection, "deleted": "with", "limit": 10_000 });
        if let Some(at) = at {
            question["at"] = json!(at);
        }
        store.post("filter", &question)["documents"].clone()
    });
    json!(all)
}

#[test]
fn a_dump_of_several_shards_can_be_loaded_by_one_server() {
    let mut world = World::new("dump", 3, json!({ "function": "hash", "shards": 3 }));
    world.write(250);
    world.cluster.store(1, NAMESPACE).ask("PUT", "indexes/user/a", &Value::Null);
    world.cluster.store(2, NAMESPACE).post("reserve", &json!({ "collection": "user", "amount": 500 }));
    let lines = dump(&world.any_node());
    let copy = Store { namespace: "copy".into(), ..world.alone() };
    let loaded = load(&copy, &lines);
    assert_eq!(loaded.status, 200, "{}", loaded.body);
    assert_eq!(everything(&copy, None), everything(&world.any_node(), None));
    assert_eq!(copy.get("indexes")["indexes"][0]["field"], "a");
    let next = copy.post("reserve", &json!({ "collection": "user", "amount": 1 }));
    assert!(next["first"].as_u64().unwrap() > 500, "{next}");
    // And by several again.
    let again = Store { namespace: "again".into(), ..world.any_node() };
    assert_eq!(load(&again, &lines).status, 200);
    assert_eq!(everything(&again, None), everything(&copy, None));
    let head: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let position = again.create("user", 10_000, json!({ "a": 1 }));
    assert!(position > head["position"].as_u64().unwrap(), "{position} {head}");
}

#[test]
fn a_dump_of_one_server_can_be_loaded_by_several_shards() {
    let mut world = World::new("load", 3, json!({ "function": "hash", "shards": 3 }));
    world.write(200);
    let schema = json!({ "schema": { "type": "object", "properties": { "a": {} } } });
    world.alone().post("schemas/free", &schema);
    // More than one document at a time.
    let event = |key: u64| json!({ "type": "put", "collection": "user", "key": key, "fields": { "a": key } });
    world.alone().write((1001..=1020).map(event).collect());
    let lines = dump(&world.alone());
    let copy = Store { namespace: "copy".into(), ..world.any_node() };
    let loaded = load(&copy, &lines);
    assert_eq!(loaded.status, 200, "{}", loaded.body);
    let position = world.alone().get("position")["position"].as_u64().unwrap();
    assert_eq!(loaded.json()["position"], json!(position));
    assert_eq!(loaded.json()["commits"], json!(position));
    for at in [None, Some(position), Some(position / 2), Some(7)] {
        assert_eq!(everything(&copy, at), everything(&world.alone(), at), "{at:?}");
    }
    for (collection, key) in world.keys.clone() {
        let path = format!("history/{collection}/{key}");
        let (ours, theirs) = (copy.send("GET", &path, ""), world.alone().send("GET", &path, ""));
        assert_eq!(ours.status, theirs.status, "{path}");
        assert_eq!(ours.json()["entries"], theirs.json()["entries"], "{path}");
    }
    let schemas = |store: &Store| store.get("schemas")["subjects"].clone();
    assert_eq!(schemas(&copy), schemas(&world.alone()));
    assert!(copy.create("user", 10_000, json!({})) > position);
    load(&copy, &lines).assert_problem(409, "namespace_not_empty");
}

#[test]
fn of_a_dump_that_makes_no_sense_nothing_is_kept() {
    let mut world = World::new("bad load", 3, json!({ "function": "hash", "shards": 3 }));
    world.write(80);
    let lines = dump(&world.alone());
    let cut = lines.trim_end().rsplit_once('\n').unwrap().0.to_owned();
    let twisted: Vec<&str> = lines.lines().collect();
    let twisted = [&twisted[..30], &twisted[31..]].concat().join("\n");
    let copy = Store { namespace: "copy".into(), ..world.any_node() };
    for bad in [cut.as_str(), &twisted, "{}", "", "nothing"] {
        load(&copy, bad).assert_problem(400, "bad_body");
        for node in 1..=3 {
            let store = world.cluster.store(node, "copy");
            assert_eq!(store.get("collections")["collections"], json!([]));
        }
    }
    let loaded = load(&copy, &lines);
    assert_eq!(loaded.status, 200, "{}", loaded.body);
    assert_eq!(everything(&copy, None), everything(&world.alone(), None));
}
