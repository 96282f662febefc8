//! Locks of a namespace whose documents are on several shards: one table at the home decides, every shard enforces.

use crate::{
    harness::eventually,
    http::Reply,
    leaseholder::Leaseholder,
    peer::Peer,
    spread_nodes::{Spread, modulo},
    store::Store,
};
use serde_json::json;
use std::thread;

/// Keys 1 to 3 are on shards 2, 3 and 1.
const KEYS: [u64; 3] = [1, 2, 3];

fn start() -> Spread {
    let spread = Spread::start(3, 3, modulo(3));
    for key in KEYS {
        spread.store(1, "default").create("user", key, json!({ "n": 0 }));
    }
    spread
}

fn put(store: &Store, key: u64, query: &str) -> Reply {
    store.send("PUT", &format!("documents/user/{key}?{query}"), r#"{"n":1}"#)
}

#[track_caller]
fn is_refused(store: &Store, key: u64, blocker: &str) {
    let problem = put(store, key, "wait_ms=0").assert_problem(423, "locked");
    assert_eq!(problem["blockers"][0]["name"], blocker, "{problem}");
}

#[test]
fn a_lock_is_enforced_at_the_shard_of_every_document() {
    let spread = start();
    for (key, node) in KEYS.iter().flat_map(|key| (1..=3).map(move |node| (*key, node))) {
        let mut ann = Peer::open(spread.nodes.server(node), "ann");
        let held = ann.hold(&format!("write user/{key}"));
        for store in spread.stores("default") {
            is_refused(&store, key, "ann");
            let by_token = put(&store, key, &format!("token={}", held.token));
            assert_eq!(by_token.status, 200, "{}", by_token.body);
            let other = KEYS.into_iter().find(|other| *other != key).unwrap();
            assert_eq!(put(&store, other, "wait_ms=0").status, 200, "{other} is not locked");
        }
        ann.bye();
        eventually("it is released", || put(&spread.store(1, "default"), key, "wait_ms=0").status == 200);
    }
}

#[test]
fn a_lock_on_a_collection_covers_all_shards() {
    let spread = start();
    let holder = Leaseholder::new(spread.nodes.server(2), "job");
    let leased = holder.take_for("write user", 60_000);
    for store in spread.stores("default") {
        for key in KEYS {
            is_refused(&store, key, "job");
            assert_eq!(put(&store, key, &format!("token={}", leased.token)).status, 200);
        }
        let create =
            json!({ "events": [{ "type": "create", "collection": "user", "key": 77, "fields": {} }] });
        let refused =
            store.send("POST", "write", &json!({ "wait_ms": 0, "events": create["events"] }).to_string());
        assert_eq!(refused.status, 423, "{}", refused.body);
    }
    assert_eq!(holder.unlock("write user").status, 200);
    for key in KEYS {
        assert_eq!(put(&spread.store(3, "default"), key, "wait_ms=0").status, 200);
    }
}

#[test]
fn a_token_of_an_ended_lease_is_rejected_at_every_shard() {
    let spread = start();
    for key in KEYS {
        let holder = Leaseholder::new(spread.nodes.server(1), "job");
        let leased = holder.take_for(&format!("write user/{key}"), 60_000);
        assert_eq!(holder.unlock(&format!("write user/{key}")).status, 200);
        for store in spread.stores("default") {
            let refused = put(&store, key, &format!("token={}", leased.token));
            assert_eq!(refused.json()["code"], "lock_lost", "{}", refused.body);
            let foreign = put(&store, key, "token=987654321");
            assert_eq!(foreign.json()["code"], "lock_lost", "{}", foreign.body);
        }
    }
}

/// Writers queue at the home, whichever shard their document is on, and go on when the lock is released.
#[test]
fn a_writer_waits_in_the_queue_of_the_home() {
    let spread = start();
    for key in KEYS {
        let mut ann = Peer::open(spread.nodes.server(1), "ann");
        let held = ann.hold(&format!("write user/{key}"));
        let store = spread.store(2, "default");
        let writer = thread::spawn({
            let store = store.clone();
            move || put(&store, key, "wait_ms=30000")
        });
        eventually("the writer queues", || store.get("locks?state=waiting")["locks"] != json!([]));
        ann.release(&held);
        let written = writer.join().unwrap();
        assert_eq!(written.status, 200, "{}", written.body);
        eventually("its lock is given back", || store.get("locks")["locks"] == json!([]));
    }
}

/// Locks on documents of different shards are in one table, so a cycle is seen at once.
#[test]
fn a_deadlock_over_shards_is_refused_at_once() {
    let spread = start();
    let (mut ann, mut bob) =
        (Peer::open(spread.nodes.server(1), "ann"), Peer::open(spread.nodes.server(2), "bob"));
    ann.hold("write user/1");
    bob.hold("write user/2");
    ann.queue("write user/2");
    let refused = bob.lock("write user/1", "forever");
    assert_eq!(refused["code"], "deadlock", "{refused}");
}

#[test]
fn reads_under_locks_wait_for_writers_of_other_shards() {
    let spread = start();
    for key in KEYS {
        let mut ann = Peer::open(spread.nodes.server(1), "ann");
        let held = ann.hold(&format!("write user/{key}"));
        for store in spread.stores("default") {
            let filter = json!({ "collection": "user", "isolation": "locked", "wait_ms": 0 });
            let refused = store.send("POST", "filter", &filter.to_string());
            assert_eq!(refused.status, 423, "{key}: {}", refused.body);
            let page = store.post("filter", &json!({ "collection": "user" }));
            assert_eq!(page["documents"].as_array().unwrap().len(), KEYS.len(), "{page}");
        }
        ann.release(&held);
        let store = spread.store(3, "default");
        let filter = json!({ "collection": "user", "isolation": "locked", "wait_ms": 10000 });
        assert_eq!(store.post("filter", &filter)["documents"].as_array().unwrap().len(), KEYS.len());
        ann.bye();
    }
    let store = spread.store(1, "default");
    eventually("nothing is locked", || store.get("locks")["locks"] == json!([]));
}

/// The home and each shard are killed in turn: the lease guards on, with the token it had.
#[test]
fn a_lease_is_enforced_over_takeovers_of_homes_and_shards() {
    let mut spread = start();
    let holder = Leaseholder::new(spread.nodes.server(1), "job");
    let tokens: Vec<u64> =
        KEYS.iter().map(|key| holder.take_for(&format!("write user/{key}"), 300_000).token).collect();
    for shard in 1..=3 {
        let killed = spread.nodes.owner_of(shard).unwrap();
        spread.nodes.kill(killed);
        for store in spread.stores("default") {
            for (key, token) in KEYS.iter().zip(&tokens) {
                is_refused(&store, *key, "job");
                let written = put(&store, *key, &format!("token={token}"));
                assert_eq!(written.status, 200, "{}", written.body);
            }
        }
        spread.nodes.up(killed);
        spread.nodes.await_balance(3);
    }
}

/// A conversion is decided in the one table as well.
#[test]
fn a_conversion_is_enforced_at_the_shard_of_the_document() {
    let spread = start();
    for key in KEYS {
        let mut ann = Peer::open(spread.nodes.server(1), "ann");
        let held = ann.hold(&format!("read user/{key}"));
        let store = spread.store(2, "default");
        assert_eq!(
            store.get(&format!("documents/user/{key}?isolation=locked"))["document"]["key"],
            json!(key.to_string())
        );
        is_refused(&store, key, "ann");
        let converted = ann.convert(&held, "write", 0);
        assert_eq!(converted["type"], "converted", "{converted}");
        let read = store.send("GET", &format!("documents/user/{key}?isolation=locked&wait_ms=0"), "");
        assert_eq!(read.status, 423, "{}", read.body);
        ann.bye();
    }
}

/// Locks do not move when documents do.
#[test]
fn a_lock_is_enforced_while_its_document_moves_to_another_shard() {
    let spread = start();
    // That shard stays in the map.
    spread.move_home("default", 1);
    let holder = Leaseholder::new(spread.nodes.server(1), "job");
    let leases: Vec<_> =
        KEYS.iter().map(|key| (*key, holder.take_for(&format!("write user/{key}"), 300_000).token)).collect();
    let mut ann = Peer::open(spread.nodes.server(2), "ann");
    let listed = ann.hold("write user/4");
    for (shards, function) in [(2, modulo(2)), (3, modulo(3))] {
        spread.begin(shards, function, None);
        let mut tries = 0;
        while spread.step() != "none" || tries < 10 {
            tries += 1;
            let store = spread.store(1 + tries % 3, "default");
            for (key, token) in &leases {
                is_refused(&store, *key, "job");
                assert_eq!(put(&store, *key, &format!("token={token}")).status, 200);
            }
            is_refused(&store, 4, "ann");
        }
        for (key, _) in &leases {
            assert_eq!(put(&spread.store(3, "default"), key + 6, "wait_ms=0").status, 200);
        }
    }
    ann.release(&listed);
    assert_eq!(put(&spread.store(1, "default"), 4, "wait_ms=0").status, 200);
}
