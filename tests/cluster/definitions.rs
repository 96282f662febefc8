//! What is registered in a spread namespace holds on every shard as soon as it was told, whatever happens to owners meanwhile.

use crate::{
    cluster::Cluster,
    faults::Clients,
    harness::{Server, eventually},
    http::{self, Reply},
    procedures::{call_of, register},
    spread_nodes::{Spread, modulo},
    store::Store,
};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

const NAMESPACE: &str = "shop";
const KEYS: std::ops::RangeInclusive<u64> = 1..=6;

/// Three nodes and shards, with documents on each shard.
fn start() -> Spread {
    let spread = Spread::start(3, 3, modulo(3));
    fill(&spread.store(1, NAMESPACE));
    spread
}

fn fill(store: &Store) {
    for key in KEYS {
        store.create("user", key, json!({ "name": "Ann" }));
    }
}

/// The shard that is the home of the only namespace.
fn home(spread: &Spread) -> usize {
    spread.homes().iter().position(|count| *count == 1).unwrap() + 1
}

/// A shard that is not the home, and has another owner.
fn other_shard(spread: &Spread) -> usize {
    let home = home(spread);
    (1..=3).find(|shard| spread.owner(*shard) != spread.owner(home)).unwrap()
}

/// A node that owns neither of two shards.
fn bystander(spread: &Spread, shards: [usize; 2]) -> usize {
    let owners = shards.map(|shard| spread.owner(shard));
    spread.nodes.running().find(|node| !owners.contains(node)).unwrap()
}

fn schema() -> Value {
    json!({ "schema": { "type": "object", "properties": { "name": { "type": "string" }, "age": { "type": "integer" } } } })
}

fn put(store: &Store, key: u64, name: Value) -> Reply {
    let event = json!({ "type": "put", "collection": "user", "key": key, "fields": { "name": name } });
    store.send("POST", "write", &json!({ "events": [event] }).to_string())
}

/// What a request is answered once there is an owner to answer it.
fn answered(send: impl Fn() -> Reply) -> Reply {
    loop {
        let reply = send();
        if reply.status != 503 {
            return reply;
        }
    }
}

/// That every node refuses, under every shard, what does not fit the schema; and takes what does.
fn check_held(stores: &[Store]) {
    for store in stores {
        for key in KEYS {
            answered(|| put(store, key, json!(7))).assert_problem(400, "schema_mismatch");
            let body = json!({ "collection": "user", "key": key, "fields": { "name": 7 } }).to_string();
            let replaced = answered(|| store.send("POST", "shard/replace", &body));
            replaced.assert_problem(400, "schema_mismatch");
            let unknown = answered(|| store.send("GET", &format!("documents/user/{key}?fields=nick"), ""));
            unknown.assert_problem(400, "unknown_field");
            assert_eq!(answered(|| put(store, key, json!("Bob"))).status, 200);
        }
    }
}

fn check_open(stores: &[Store]) {
    for (store, key) in stores.iter().flat_map(|store| KEYS.map(move |key| (store, key))) {
        let reply = answered(|| put(store, key, json!(7)));
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
}

/// Registers through nodes of which some shard has no owner that answers: told when it holds, and not before.
fn change(store: &Store, method: &str, path: &str, body: &str) {
    let reply = answered(|| store.send(method, path, body));
    assert_eq!(reply.status, 200, "{method} {path}: {}", reply.body);
}

#[test]
fn a_schema_that_is_registered_while_an_owner_is_killed_holds_once_it_is_told() {
    let mut spread = start();
    let shard = other_shard(&spread);
    let (asked, gone) = (bystander(&spread, [shard, shard]), spread.owner(shard));
    spread.nodes.kill(gone);
    change(&spread.store(asked, NAMESPACE), "POST", "schemas/user", &schema().to_string());
    check_held(&spread.stores(NAMESPACE));
    spread.nodes.up(gone);
    check_held(&spread.stores(NAMESPACE));
    let gone = spread.owner(other_shard(&spread));
    let asked = spread.nodes.running().find(|node| *node != gone).unwrap();
    spread.nodes.kill(gone);
    change(&spread.store(asked, NAMESPACE), "DELETE", "schemas/user", "{}");
    check_open(&spread.stores(NAMESPACE));
}

#[test]
fn a_paused_owner_neither_keeps_a_schema_from_holding_nor_breaks_it_when_it_goes_on() {
    let spread = start();
    let shard = other_shard(&spread);
    let (asked, paused) = (bystander(&spread, [shard, shard]), spread.owner(shard));
    spread.nodes.server(paused).signal("-STOP");
    change(&spread.store(asked, NAMESPACE), "POST", "schemas/user", &schema().to_string());
    let all = spread.stores(NAMESPACE);
    let awake: Vec<Store> =
        (1..=3).filter(|node| *node != paused).map(|node| all[node - 1].clone()).collect();
    check_held(&awake);
    spread.nodes.server(paused).signal("-CONT");
    check_held(&all);
}

#[test]
fn a_schema_outlives_its_home_and_its_shards_right_after_it_is_told() {
    let mut spread = start();
    let asked = spread.store(spread.owner(other_shard(&spread)), NAMESPACE);
    asked.post("schemas/user", &schema());
    let killed = spread.owner(home(&spread));
    spread.nodes.kill(killed);
    check_held(&spread.stores(NAMESPACE));
    spread.nodes.up(killed);
    spread.nodes.await_balance(3);
    spread.stores(NAMESPACE)[0].ask("DELETE", "schemas/user", &json!({}));
    let killed = spread.owner(other_shard(&spread));
    spread.nodes.kill(killed);
    check_open(&spread.stores(NAMESPACE));
}

#[test]
fn procedures_and_indexes_are_everywhere_once_they_are_told() {
    let mut spread = start();
    let shard = other_shard(&spread);
    let asked = spread.store(bystander(&spread, [shard, shard]), NAMESPACE);
    register(&asked, "answer", "return function(db) return 1 end");
    let gone = spread.owner(shard);
    spread.nodes.kill(gone);
    let target = asked.target("shard/procedures/answer");
    let text = b"return function(db) return 2 end";
    assert_eq!(answered(|| http::send(asked.native, "PUT", &target, &[], text)).status, 200);
    for (store, key) in spread.stores(NAMESPACE).iter().flat_map(|store| KEYS.map(move |key| (store, key))) {
        let body = call_of("rw", "answer", json!(key), json!([])).to_string();
        let answer = answered(|| store.send("POST", "shard/call", &body)).json();
        assert_eq!((&answer["answer"], &answer["version"]), (&json!(2), &json!(2)), "{answer}");
    }
    spread.nodes.up(gone);
    spread.nodes.await_balance(3);
    let gone = spread.owner(other_shard(&spread));
    let asked = spread.store(spread.nodes.running().find(|node| *node != gone).unwrap(), NAMESPACE);
    spread.nodes.kill(gone);
    change(&asked, "PUT", "indexes/user/name", "");
    // An index is ready when each of the shards has it, and has built it.
    eventually("the index is ready", || {
        let listed = asked.send("GET", "indexes", "");
        listed.status == 200 && listed.json()["indexes"][0]["state"] == "ready"
    });
    change(&asked, "DELETE", "indexes/user/name", "");
    change(&asked, "DELETE", "shard/procedures/answer", "");
    for store in spread.stores(NAMESPACE) {
        let listed = answered(|| store.send("GET", "indexes", "")).json();
        assert_eq!(listed["indexes"], json!([]));
        for key in KEYS {
            let body = call_of("rw", "answer", json!(key), json!([])).to_string();
            answered(|| store.send("POST", "shard/call", &body)).assert_problem(404, "no_procedure");
        }
    }
}

/// Its home may be on no shard of the map, and a shard that is new to the map knows nothing.
#[test]
fn shards_that_are_new_to_the_map_know_what_is_registered() {
    let spread = Spread::without_map(3, 3, &[]);
    spread.config(2, modulo(2));
    fill(&spread.store(1, NAMESPACE));
    spread.move_home(NAMESPACE, 3);
    let store = |node| spread.store(node, NAMESPACE);
    store(1).post("schemas/user", &schema());
    register(&store(2), "answer", "return function(db) return 1 end");
    let stores: Vec<Store> = (1..=3).map(store).collect();
    check_held(&stores);
    spread.reshard(3, modulo(3));
    check_held(&stores);
    for key in KEYS {
        let body = call_of("rw", "answer", json!(key), json!([]));
        assert_eq!(store(1).post("shard/call", &body)["answer"], 1);
    }
}

/// Changes are told one after the other while others write: whoever begins after one was told goes by it.
#[test]
fn writes_that_begin_after_a_change_was_told_go_by_it() {
    let spread = start();
    let shard = other_shard(&spread);
    let (asked, paused) = (bystander(&spread, [shard, shard]), spread.owner(shard));
    // Odd while the schema holds, even while it does not; 0 while it changes.
    let told = Arc::new(AtomicU64::new(2));
    let mut clients = Clients::default();
    for node in (1..=3).filter(|node| *node != paused) {
        for key in KEYS {
            let (store, told) = (spread.store(node, NAMESPACE), Arc::clone(&told));
            clients.start(move |_| {
                let before = told.load(Ordering::SeqCst);
                let reply = put(&store, key, json!(7));
                let is_same = before != 0 && told.load(Ordering::SeqCst) == before;
                if is_same && reply.status != 503 {
                    let expected = if before % 2 == 1 { 400 } else { 200 };
                    assert_eq!(reply.status, expected, "{key} through n{node}: {}", reply.body);
                }
            });
        }
    }
    let store = spread.store(asked, NAMESPACE);
    for round in 1..=8u64 {
        told.store(0, Ordering::SeqCst);
        if round == 3 {
            spread.nodes.server(paused).signal("-STOP");
        }
        match round % 2 {
            1 => change(&store, "POST", "schemas/user", &schema().to_string()),
            _ => change(&store, "DELETE", "schemas/user", "{}"),
        }
        told.store(round + 2, Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(100));
        if round == 4 {
            spread.nodes.server(paused).signal("-CONT");
        }
    }
    clients.stop();
}

/// Documents from before a schema stay, as on one server: they are held to it when they are written.
#[test]
fn documents_from_before_a_schema_stay_as_on_one_server() {
    let cluster = Cluster::start(3, modulo(3));
    let single = Server::start(&[]);
    for store in [cluster.store(1, NAMESPACE), Store::new(&single, NAMESPACE)] {
        for key in KEYS {
            store.create("user", key, json!({ "name": 7, "age": 1 }));
        }
        assert_eq!(store.post("schemas/user", &schema())["new"], true);
        for key in KEYS {
            let found = store.get(&format!("documents/user/{key}"));
            assert_eq!(found["document"]["value"]["name"], 7, "{found}");
            let aged = json!({ "type": "update", "collection": "user", "key": key, "fields": { "age": 2 } });
            store.refuses("POST", "write", &json!({ "events": [aged] }), 400, "schema_mismatch");
            store.update("user", key, json!({ "name": "Ann" }));
        }
    }
}
