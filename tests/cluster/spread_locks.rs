//! How questions about many documents stand to locks, on several shards.

use crate::{
    cluster::Cluster,
    leaseholder::{HOUR, Leased, Leaseholder},
    spread_world::{Dice, StopAtEnd},
};
use serde_json::{Value, json};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// With this function key `n` is on shard `n % 3 + 1`.
fn cluster() -> Cluster {
    let cluster = Cluster::start(3, json!({ "function": "modulo", "shards": 3 }));
    for key in 1..=9u64 {
        cluster.store(1, "default").create("user", key, json!({ "v": 10 }));
    }
    cluster
}

fn questions(isolation: &str, tokens: &[u64]) -> Vec<(&'static str, Value)> {
    let with = |mut question: Value| {
        (question["isolation"], question["tokens"], question["wait_ms"]) =
            (json!(isolation), json!(tokens), json!(0));
        question
    };
    let side = json!({ "collection": "user", "field": "v" });
    let all: Vec<Value> = (1..=9).map(|key| json!({ "collection": "user", "key": key })).collect();
    vec![
        ("filter", with(json!({ "collection": "user" }))),
        ("count", with(json!({ "collection": "user", "filter": { "field": "v", "op": ">", "value": 1 } }))),
        ("max", with(json!({ "collection": "user", "field": "v" }))),
        ("get", with(json!({ "documents": all }))),
        ("join", with(json!({ "left": side, "right": side }))),
    ]
}

/// Which questions are answered, and that the others are refused because of the lock.
#[track_caller]
fn check(cluster: &Cluster, isolation: &str, tokens: &[u64], answered: bool) {
    for (word, question) in questions(isolation, tokens) {
        for node in 1..=3 {
            let reply = cluster.store(node, "default").send("POST", word, &question.to_string());
            match answered {
                true => assert_eq!(reply.status, 200, "{word} {question}: {}", reply.body),
                false => drop(reply.assert_problem(423, "locked")),
            }
        }
    }
}

#[test]
fn a_lock_on_any_shard_is_in_the_way_of_who_asks_for_all() {
    let cluster = cluster();
    let ann = Leaseholder::new(cluster.node(2), "ann");
    for what in ["write user/2", "write user", "write user/3, write user/4"] {
        check(&cluster, "locked", &[], true);
        check(&cluster, "document", &[], true);
        let held = ann.take(what);
        check(&cluster, "snapshot", &[], true);
        check(&cluster, "locked", &[], false);
        check(&cluster, "document", &[], false);
        // Whoever holds it is not in its own way.
        check(&cluster, "locked", &[held.token], true);
        check(&cluster, "document", &[held.token], true);
        check(&cluster, "snapshot", &[held.token], true);
        assert_eq!(ann.release(held.lock, &json!({ "owner": "ann" })).status, 200);
        for (word, question) in questions("snapshot", &[held.token]) {
            let store = cluster.store(1, "default");
            store.refuses("POST", word, &question, 409, "lock_lost");
        }
    }
}

/// What is asked for with locks is given back, whatever came of it.
#[test]
fn nothing_stays_locked() {
    let cluster = cluster();
    let ann = Leaseholder::new(cluster.node(1), "ann");
    let held = ann.take("write user/2");
    for _ in 0..3 {
        check(&cluster, "locked", &[], false);
    }
    assert_eq!(ann.release(held.lock, &json!({ "owner": "ann" })).status, 200);
    check(&cluster, "locked", &[], true);
    let bob = Leaseholder::new(cluster.node(3), "bob");
    let reply = bob.ask("write user", HOUR, 20_000);
    assert_eq!(reply.status, 201, "{}", reply.body);
}

/// Money goes from one document to another on another shard, in two writes under one lock; whoever asks with locks
/// never sees it on its way.
#[test]
fn what_is_done_under_a_lock_is_seen_whole() {
    let cluster = cluster();
    // So many that it takes a while to read them.
    for shard in 0..3u64 {
        let keys = (100..4000u64).filter(|key| key % 3 == shard);
        let event = |key| json!({ "type": "create", "collection": "user", "key": key, "fields": { "v": 0 } });
        cluster.store(1, "default").write(keys.map(event).collect());
    }
    let stop = AtomicBool::new(false);
    let mut dice = Dice::new("transfers");
    thread::scope(|scope| {
        for node in 1..=2 {
            let (cluster, stop) = (&cluster, &stop);
            let mut dice = Dice(dice.below(1 << 30) as u64);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    transfer(cluster, node, &mut dice);
                }
            });
        }
        let _stop = StopAtEnd(&stop);
        for round in 0..30 {
            let node = 1 + round % 3;
            let mut question =
                json!({ "collection": "user", "isolation": "locked", "wait_ms": 20_000, "limit": 10_000 });
            let values: Vec<Value> = match dice.below(2) {
                0 => {
                    let page = cluster.store(node, "default").post("filter", &question);
                    page["documents"].as_array().unwrap().clone()
                }
                _ => {
                    let side = json!({ "collection": "user", "field": "id" });
                    (question["left"], question["right"], question["kind"]) =
                        (side.clone(), side, json!("left"));
                    question.as_object_mut().unwrap().remove("collection");
                    let page = cluster.store(node, "default").post("join", &question);
                    page["rows"].as_array().unwrap().iter().map(|row| row["left"].clone()).collect()
                }
            };
            let sum: i64 = values.iter().map(|document| document["value"]["v"].as_i64().unwrap()).sum();
            assert_eq!((values.len(), sum), (3909, 90));
        }
    });
}

fn transfer(cluster: &Cluster, node: usize, dice: &mut Dice) {
    let owner = Leaseholder::new(cluster.node(node), &format!("owner {node}"));
    let (from, to) = (1 + dice.below(9), 1 + dice.below(9));
    if from == to {
        return;
    }
    let reply = owner.ask(&format!("write user/{from}, write user/{to}"), HOUR, 20_000);
    assert_eq!(reply.status, 201, "{}", reply.body);
    let held = Leased::from(&reply.json());
    for (key, by) in [(from, -1), (to, 1)] {
        let value =
            owner.store.get(&format!("documents/user/{key}"))["document"]["value"]["v"].as_i64().unwrap();
        let event =
            json!({ "type": "update", "collection": "user", "key": key, "fields": { "v": value + by } });
        owner.store.post("write", &json!({ "events": [event], "tokens": [held.token] }));
    }
    assert_eq!(owner.release(held.lock, &json!({ "owner": owner.owner })).status, 200);
}

/// Each namespace is asked about through one node only, so the other one hears of it by the question itself.
#[test]
fn a_node_that_hears_of_a_namespace_for_the_first_time_respects_its_locks() {
    let cluster = Cluster::start(2, json!({ "function": "modulo", "shards": 2 }));
    for number in 0..8 {
        let name = format!("shop{number}");
        let store = cluster.store(number % 2 + 1, &name);
        let ann = Leaseholder { store: store.clone(), owner: "ann".to_owned() };
        ann.take("write user");
        for key in 1..=2 {
            let target = format!("documents/user/{key}?isolation=locked&wait_ms=0");
            let reply = store.send("GET", &target, "");
            reply.assert_problem(423, "locked");
        }
    }
}
