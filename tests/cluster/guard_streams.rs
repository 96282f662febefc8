//! What shards tell each other about locks: much at once, much in one piece, and of namespaces that are refused. Key `n` is on
//! shard `n % 2 + 1`.

use crate::{
    harness::eventually,
    http,
    leaseholder::{HOUR, Leaseholder},
    peer::{Held, Peer},
    spread_nodes::{Spread, modulo},
    store::Store,
};
use serde_json::{Value, json};

/// Two nodes with two shards and these flags.
fn start(flags: &[&str]) -> Spread {
    let spread = Spread::without_map(2, 2, flags);
    spread.config(2, modulo(2));
    spread
}

/// Names of namespaces whose home is the first shard.
fn homed_at_first(spread: &Spread, len: usize) -> Vec<String> {
    let mut names = Vec::new();
    for number in 0.. {
        let name = format!("shop{number}");
        let before = spread.homes();
        // What cannot be read begins the namespace, and does nothing in it.
        let refused = spread.store(1, &name).send("POST", "write", "{");
        assert_eq!(refused.status, 400, "{}", refused.body);
        let mut counts = before.clone();
        eventually("it has a home", || {
            counts = spread.homes();
            counts != before
        });
        if counts[0] > before[0] {
            names.push(name);
        }
        if names.len() == len {
            break;
        }
    }
    names
}

fn holder(store: Store) -> Leaseholder {
    Leaseholder { store, owner: "bob".to_owned() }
}

fn put(store: &Store, key: u64) -> http::Reply {
    store.send("PUT", &format!("documents/user/{key}?wait_ms=0"), "{}")
}

/// The home may have as many namespaces as it is to have for clients, and guards those of members all the same.
#[test]
fn a_namespace_too_many_keeps_no_other_one_waiting() {
    let spread = start(&["--namespaces-max", "6"]);
    let mut names = homed_at_first(&spread, 10).into_iter();
    let (used, late) = (names.next().unwrap(), names.next().unwrap());
    assert_eq!(put(&spread.store(1, &used), 1).status, 200);
    let mut sessions = Vec::new();
    let is_full = names.any(|name| {
        let mut peer = Peer::connect(spread.nodes.server(1), &name);
        let answer = peer.ask(json!({ "type": "hello" }));
        sessions.push(peer);
        answer["code"] == "too_many"
    });
    assert!(is_full, "the home is to have no room");
    let written = put(&spread.store(1, &late), 1);
    assert_eq!(written.status, 200, "{}", written.body);
    let bob = holder(spread.store(2, &used));
    let leased = bob.take("write user/1");
    put(&spread.store(1, &used), 1).assert_problem(423, "locked");
    assert_eq!(bob.release(leased.lock, &json!({ "token": leased.token })).status, 200);
    assert_eq!(put(&spread.store(1, &used), 1).status, 200);
}

/// Fields of a document, with names that are as long as they may be: about 150,000 bytes in one lock.
fn large(number: u64, key: u64) -> Value {
    let path =
        |field: u64| json!(["user", key.to_string(), format!("{number}-{field}-{}", "x".repeat(1000))]);
    (0..150).map(|field| json!({ "path": path(field), "mode": "write" })).collect()
}

/// Takes many large locks at once, and waits until all are held.
fn take_large(peer: &mut Peer, len: u64, key: u64) -> Vec<Held> {
    for number in 0..len {
        peer.send(json!({ "type": "lock", "resources": large(number, key), "wait": "forever" }));
    }
    let mut held = Vec::new();
    while held.len() < len as usize {
        let answer = peer.next();
        assert!(["granted", "queued"].contains(&answer["type"].as_str().unwrap()), "{answer}");
        if answer["type"] == "granted" {
            let number = |name: &str| answer[name].as_u64().unwrap();
            held.push(Held { lock: number("lock"), token: number("token") });
        }
    }
    held
}

/// All of it weighs several times what one call between nodes may bring.
#[test]
fn locks_that_no_call_can_bring_at_once_are_enforced() {
    let spread = start(&["--peer-body-bytes-max", "1500000"]);
    let mut ann = Peer::open(spread.nodes.server(1), "ann");
    let first = ann.hold("write bill/1");
    let home = spread.homes().iter().position(|count| *count == 1).unwrap() as u64 + 1;
    // On the other shard.
    let (key, other) = (home, home + 2);
    let store = spread.store(2, "default");
    // The shard of the documents hears of them in a snapshot.
    let held = take_large(&mut ann, 20, key);
    let written = put(&store, other);
    assert_eq!(written.status, 200, "{}", written.body);
    put(&store, key).assert_problem(423, "locked");
    // And of these one after another.
    let mut bob = Peer::open(spread.nodes.server(2), "bob");
    let more = take_large(&mut bob, 20, other);
    put(&store, other).assert_problem(423, "locked");
    for held in held.iter().chain([&first]) {
        ann.release(held);
    }
    for held in &more {
        bob.release(held);
    }
    for key in [key, other] {
        let written = put(&store, key);
        assert_eq!(written.status, 200, "{}", written.body);
    }
    let again = holder(store).ask("write user", HOUR, 0);
    assert_eq!(again.status, 201, "{}", again.body);
}
