//! Operations on single keys: composite keys, formats, terms, errors, and who answers.

use crate::{
    cluster::{Cluster, hosts},
    harness::Server,
    http,
    spread_world::StopAtEnd,
    store::Store,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

pub(crate) fn jump() -> Value {
    json!({ "function": "jump", "by": "first" })
}

/// Two nodes that spread keys by their first part.
pub(crate) fn pair() -> Cluster {
    let cluster = Cluster::nodes(2);
    cluster.config(2, jump());
    cluster
}

#[track_caller]
pub(crate) fn ask(store: &Store, operation: &str, key: Value, more: Value) -> Value {
    let mut body = json!({ "collection": "line", "key": key });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    store.post(&format!("shard/{operation}"), &body)
}

#[test]
fn composite_keys_work_in_every_operation() {
    let cluster = pair();
    for order in 1..=6 {
        for line in ["x", "y"] {
            let (key, text) = (json!([order, line]), format!("{order}:{line}"));
            let store = cluster.store(1 + order % 2, "shop");
            let inserted = ask(&store, "insert", key.clone(), json!({ "fields": { "n": 1 } }));
            assert_eq!(inserted["document"]["key"], json!(text));
            assert_eq!(inserted["position"], inserted["document"]["position"]);
            let update = json!({ "format": "+p", "arguments": ["n", 41] });
            assert_eq!(ask(&store, "update", json!(text), update)["document"]["value"], json!({ "n": 42 }));
            assert_eq!(
                ask(&store, "select", key.clone(), json!({}))["document"]["value"],
                json!({ "n": 42 })
            );
            let replace = json!({ "fields": { "m": 1 } });
            assert_eq!(ask(&store, "replace", key.clone(), replace)["document"]["value"], json!({ "m": 1 }));
            assert_eq!(ask(&store, "delete", key.clone(), json!({}))["document"]["key"], json!(text));
            assert_eq!(ask(&store, "delete", key, json!({}))["document"], Value::Null);
        }
    }
    // The lines of an order are together.
    let store = cluster.store(1, "shop");
    let create =
        |line: &str| json!({ "type": "create", "collection": "line2", "key": [7, line], "fields": {} });
    store.write(json!([create("x"), create("y"), create("z")]));
}

#[test]
fn every_operation_of_a_format_works_through_another_node() {
    let cluster = pair();
    let fields = json!({ "n": 12, "text": "hello", "gone": 1, "f": 0.5 });
    for key in 1..=4 {
        let store = cluster.store(1, "shop");
        ask(&store, "insert", json!(key), json!({ "fields": fields }));
        let update = json!({ "format": "=p+p-p&p|p^p:p!p#p+p", "arguments": [
            "set", [1, { "a": null }], "n", 3, "n", 5, "n", 14, "n", 1, "n", 3, "text", [0, 2, "HE"],
            "new", true, "gone", 0, "f", 1] });
        let updated = ask(&store, "update", json!(key), update);
        // 12 + 3 - 5 = 10, & 14 = 10, | 1 = 11, ^ 3 = 8.
        let expected = json!({ "n": 8, "text": "HEllo", "f": 1.5, "set": [1, { "a": null }], "new": true });
        assert_eq!(updated["document"]["value"], expected);
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_a_code_and_changes_nothing() {
    let cluster = pair();
    for node in 1..=2 {
        let store = cluster.store(node, "shop");
        ask(&store, "replace", json!(1), json!({ "fields": { "n": 1, "t": "x" } }));
        let refuses = |operation: &str, body: Value, code: &str| {
            store.refuses("POST", &format!("shard/{operation}"), &body, 400, code)["detail"].clone()
        };
        let at = |more: Value| {
            let mut body = json!({ "collection": "line", "key": 1 });
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        for mode in ["", "w", "RW", "wr"] {
            let detail = refuses("eselect", at(json!({ "mode": mode })), "bad_mode");
            assert!(detail.as_str().unwrap().contains(&format!("{mode:?}")), "{detail}");
        }
        refuses("eselect", at(json!({})), "bad_body");
        refuses("select", json!({ "collection": "line" }), "bad_body");
        refuses("select", json!({ "collection": "line", "key": [] }), "bad_key");
        refuses("select", json!({ "collection": "", "key": 1 }), "bad_collection");
        refuses("select", at(json!({ "keys": 1 })), "unknown_member");
        refuses("insert", at(json!({ "fields": { "meta_position": 1 } })), "reserved_field");
        refuses("insert", at(json!({ "fields": [] })), "bad_body");
        let update = |format: &str, arguments: Value| at(json!({ "format": format, "arguments": arguments }));
        for (format, arguments, part) in [
            ("", json!([]), "there is no format"),
            ("=", json!(["n", 1]), "write =p"),
            ("?p", json!(["n", 1]), "is no operation"),
            ("=p", json!(["n"]), "an odd number"),
            ("=p=p", json!(["n", 1]), "need 4"),
            ("=p", json!([1, 1]), "name of a field"),
            ("+p", json!(["t", 1]), "works on a number"),
            ("=p!p", json!(["n", 7, "t", 1]), "there is \"t\" already"),
        ] {
            let detail = refuses("update", update(format, arguments), "bad_update");
            assert!(detail.as_str().unwrap().contains(part), "{format}: {detail}");
        }
        refuses("update", update("=p", json!(["meta_deleted", 1])), "reserved_field");
        let found = ask(&store, "select", json!(1), json!({}));
        assert_eq!(found["document"]["value"], json!({ "n": 1, "t": "x" }));
        // Without a document a format must make sense all the same.
        let none = json!({ "collection": "line", "key": 9, "format": "?p", "arguments": ["n", 1] });
        refuses("update", none, "bad_update");
        let reserved = json!({ "collection": "_procedures", "key": 1, "fields": {} });
        refuses("replace", reserved, "reserved_collection");
    }
}

#[test]
fn a_write_that_comes_twice_is_done_once() {
    let cluster = pair();
    for (key, node) in [(1, 1), (2, 1), (3, 2), (4, 2)] {
        let native = cluster.node(node).native;
        let send = |operation: &str, retry: &str, more: Value| {
            let mut body = json!({ "collection": "line", "key": key });
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let target = format!("/v1/shop/shard/{operation}");
            let headers = [("lockwood-retry", retry)];
            let reply = http::send(native, "POST", &target, &headers, body.to_string().as_bytes());
            assert_eq!(reply.status, 200, "{}", reply.body);
            reply.json()
        };
        for (operation, more) in [
            ("insert", json!({ "fields": { "n": 1 } })),
            ("update", json!({ "format": "+p", "arguments": ["n", 1] })),
            ("delete", json!({})),
        ] {
            let retry = format!("{operation}-{key}");
            let first = send(operation, &retry, more.clone());
            assert_eq!(send(operation, &retry, more), first, "{operation}");
            assert_ne!(first["document"], Value::Null);
        }
        assert_eq!(send("select", "", json!({}))["document"], Value::Null);
    }
}

#[test]
fn a_single_server_is_one_shard() {
    let server = Server::start(&["--raw-operations"]);
    let store = Store::new(&server, "shop");
    ask(&store, "insert", json!([1, "x"]), json!({ "fields": { "n": 1 } }));
    let update = json!({ "format": "+p", "arguments": ["n", 1] });
    assert_eq!(ask(&store, "update", json!("1:x"), update)["document"]["value"], json!({ "n": 2 }));
    assert_eq!(ask(&store, "eselect", json!([1, "x"]), json!({ "mode": "rw" }))["document"]["value"]["n"], 2);
    assert_eq!(ask(&store, "select", json!([1, "x"]), json!({}))["document"]["value"]["n"], 2);
    let replaced = ask(&store, "replace", json!([2, "y"]), json!({ "fields": { "m": 1 } }));
    assert_eq!(replaced["document"]["value"], json!({ "m": 1 }));
    let again = json!({ "collection": "line", "key": "1:x", "fields": {} });
    store.refuses("POST", "shard/insert", &again, 409, "document_exists");
    let raw =
        |operation: &str, body: Value| store.post(&format!("shard/raw/{operation}?operator=test"), &body);
    assert_eq!(raw("len", json!({ "collection": "line" })), json!({ "len": 2 }));
    // No write spans shards.
    let create = |key: u64| json!({ "type": "create", "collection": "user", "key": key, "fields": {} });
    store.write((1..=9).map(create).collect());
    assert_eq!(ask(&store, "delete", json!([1, "x"]), json!({}))["document"]["value"]["n"], 2);
    assert_eq!(ask(&store, "delete", json!([1, "x"]), json!({}))["document"], Value::Null);
    assert_eq!(store.get("shard/is_valid")["valid"], false);
    for (method, path) in [("POST", "copy"), ("POST", "cleanup"), ("POST", "config"), ("GET", "transition")] {
        store.refuses(method, &format!("shard/{path}"), &json!({}), 409, "not_sharded");
    }
}

#[test]
fn a_change_of_the_map_names_what_is_wrong_and_changes_nothing_else() {
    let cluster = pair();
    let store = cluster.store(2, "shop");
    let before = store.get("shard/map");
    let wrong = |change: Value, code: &str, start: &str| {
        let detail = store.refuses("POST", "shard/config", &change, 400, code)["detail"].clone();
        assert!(detail.as_str().unwrap().starts_with(start), "{change}: {detail}");
        assert_eq!(store.get("shard/map"), before);
    };
    wrong(json!({ "list": 7 }), "bad_map", "list: not a list");
    wrong(json!({ "list": [[["ro", 1, "a", 1]]] }), "bad_map", "list[0]:");
    wrong(json!({ "list": [[["rw", 1001, "a", 1]]] }), "bad_map", "list[0][0].weight: 1001");
    wrong(json!({ "curr": { "function": "nothing" } }), "bad_map", "curr:");
    wrong(json!({ "curr": { "function": "constant", "shard": 3 } }), "bad_map", "curr.shard: 3");
    wrong(json!({ "prev": true }), "bad_map", "prev:");
    wrong(json!({ "this": "1" }), "bad_map", "this: the number of the shard");
    wrong(json!({ "force": 1 }), "bad_map", "force:");
    let script = |source: &str| json!({ "function": "script", "name": "f", "version": 1, "source": source });
    wrong(json!({ "curr": script("return function(") }), "bad_script", "curr.source: line 1");
    wrong(json!({ "prev": script("return 7") }), "bad_script", "prev.source:");
    assert_eq!(store.post("shard/config", &json!({}))["step"], "none");
    assert_eq!(store.get("shard/map"), before);
}

#[test]
fn what_a_node_keeps_for_itself_cannot_be_reached_as_raw_documents() {
    let cluster = pair();
    let system = cluster.store(1, "_system");
    let map = json!({ "collection": "shards", "key": "map" });
    let mut stored = map.clone();
    stored["fields"] = json!({ "map": 1 });
    for (operation, body) in [("select", &map), ("insert", &stored), ("delete", &map), ("len", &json!({}))] {
        system.refuses(
            "POST",
            &format!("shard/raw/{operation}?operator=test"),
            body,
            400,
            "reserved_namespace",
        );
    }
    assert_eq!(cluster.store(1, "shop").post("shard/raw/len?operator=test", &json!({})), json!({ "len": 0 }));
}

#[test]
fn a_script_that_answers_nonsense_refuses_its_keys_only() {
    let cluster = Cluster::nodes(2);
    let source = "return function(collection, key) if key == 'bad' then return 9 end return 2 end";
    let curr = json!({ "function": "script", "name": "f", "version": 3, "source": source });
    let store = cluster.store(1, "shop");
    store.post("shard/config", &json!({ "list": hosts(2), "curr": curr }));
    ask(&store, "insert", json!("good"), json!({ "fields": {} }));
    let body = json!({ "collection": "line", "key": "bad" });
    let problem = store.refuses("POST", "shard/select", &body, 400, "no_shard");
    assert!(problem["detail"].as_str().unwrap().contains("answers 9 for line/bad"), "{problem}");
}

/// Sends a write until it is done, always as the same one.
fn insist(store: &Store, operation: &str, retry: &str, body: &Value) -> Value {
    let target = store.target(&format!("shard/{operation}"));
    for _ in 0..100 {
        let headers = [("lockwood-retry", retry)];
        let reply = http::send(store.native, "POST", &target, &headers, body.to_string().as_bytes());
        let json = reply.json();
        match json["code"].as_str() {
            None => return json,
            Some("moving" | "shard_unreachable" | "wrong_epoch") => thread::sleep(Duration::from_millis(20)),
            Some(_) => panic!("{operation} {body}: {json}"),
        }
    }
    panic!("{operation} {body} is never answered");
}

#[test]
fn nothing_is_lost_or_done_twice_while_documents_move_and_a_node_dies() {
    let mut cluster = pair();
    cluster.add();
    let keys = 20u64;
    for key in 0..keys {
        ask(&cluster.store(1, "shop"), "insert", json!(key), json!({ "fields": { "n": 0 } }));
    }
    let is_over = AtomicBool::new(false);
    let stores: Vec<Store> = (1..=2).map(|node| cluster.store(node, "shop")).collect();
    let counts: Vec<BTreeMap<u64, u64>> = thread::scope(|scope| {
        let writers: Vec<_> = (0..4u64)
            .map(|worker| {
                let (stores, is_over) = (&stores, &is_over);
                scope.spawn(move || {
                    let mut counts = BTreeMap::new();
                    let mut turn = 0u64;
                    while !is_over.load(Ordering::Relaxed) || turn < keys {
                        let key = (worker * 7 + turn) % keys;
                        let store = &stores[(worker + turn) as usize % 2];
                        let update =
                            json!({ "collection": "line", "key": key, "format": "+p", "arguments": ["n", 1] });
                        let done = insist(store, "update", &format!("{worker}-{turn}"), &update);
                        assert!(done["document"]["value"]["n"].as_u64() > Some(0), "{done}");
                        // One of their own is deleted and inserted over and over; each finds what the other left.
                        let own = json!({ "collection": "line", "key": ["own", worker] });
                        let deleted = insist(store, "delete", &format!("d{worker}-{turn}"), &own);
                        let left = if turn == 0 { Value::Null } else { json!(turn - 1) };
                        assert_eq!(deleted["document"]["value"]["turn"], left);
                        let insert = json!({ "collection": "line", "key": ["own", worker],
                            "fields": { "turn": turn } });
                        insist(store, "insert", &format!("i{worker}-{turn}"), &insert);
                        *counts.entry(key).or_default() += 1;
                        turn += 1;
                    }
                    counts
                })
            })
            .collect();
        let stop = StopAtEnd(&is_over);
        for len in [3, 1, 2] {
            cluster.begin(len, jump(), None);
            if len == 3 {
                cluster.kill(3);
                cluster.restart(3);
            }
            cluster.await_end();
        }
        drop(stop);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    for key in 0..keys {
        let expected: u64 = counts.iter().filter_map(|counts| counts.get(&key)).sum();
        let found = ask(&cluster.store(2, "shop"), "eselect", json!(key), json!({ "mode": "rw" }));
        assert_eq!(found["document"]["value"]["n"], expected, "{key}");
    }
}
