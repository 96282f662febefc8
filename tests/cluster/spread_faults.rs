//! Owners that die while documents move: what was acknowledged is there, once, and the move comes to its end.

use crate::{
    harness::eventually,
    http,
    spread_nodes::{Spread, hash},
    spread_world::StopAtEnd,
    store::Store,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

const KEYS: u64 = 400;
const WRITERS: u64 = 4;

/// Adds one to a document, through any node that answers; the same write until it is answered.
fn add(nodes: &[SocketAddr], key: u64, retry: &str) -> u64 {
    let body = json!({ "collection": "line", "key": key, "format": "+p", "arguments": ["n", 1] }).to_string();
    for turn in 0..2000 {
        let node = nodes[(key as usize + turn) % nodes.len()];
        let Some(reply) = try_post(node, "/v1/shop/shard/update", retry, &body) else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        let json: Value = serde_json::from_str(&reply.body).unwrap_or_default();
        match json["code"].as_str() {
            None if reply.status == 200 => return json["document"]["value"]["n"].as_u64().unwrap(),
            Some("moving" | "shard_unreachable" | "wrong_epoch" | "draining") | None => {
                thread::sleep(Duration::from_millis(20));
            }
            Some(_) => panic!("{key}: {json}"),
        }
    }
    panic!("{key} is never answered");
}

/// A request with a key to be known by; none if the node is gone before it has answered.
fn try_post(node: SocketAddr, target: &str, retry: &str, body: &str) -> Option<http::Reply> {
    let mut tcp = TcpStream::connect(node).ok()?;
    tcp.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    let head = format!(
        "POST {target} HTTP/1.1\r\nhost: {node}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         lockwood-retry: {retry}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    tcp.write_all(head.as_bytes()).ok()?;
    let mut received = Vec::new();
    tcp.read_to_end(&mut received).ok()?;
    http::is_complete(&received).then(|| http::read(received))
}

fn fill(spread: &Spread) {
    let store = spread.store(1, "shop");
    for chunk in (0..KEYS).collect::<Vec<_>>().chunks(50) {
        for key in chunk {
            store.create("line", *key, json!({ "n": 0 }));
        }
    }
}

/// What writers have added by key.
type Added = BTreeMap<u64, u64>;

/// Adds to all documents while something is done to the nodes; what was added must be what is there.
fn while_writing(spread: &mut Spread, act: impl FnOnce(&mut Spread)) {
    fill(spread);
    let nodes: Vec<SocketAddr> =
        spread.nodes.running().map(|node| spread.nodes.server(node).native).collect();
    let (stop, total) = (AtomicBool::new(false), Mutex::new(Added::new()));
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (nodes, stop, total) = (&nodes, &stop, &total);
            scope.spawn(move || {
                let mut added = Added::new();
                for turn in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    // Each has keys of its own, so that what a write answers is known.
                    let key = (turn * 7 % (KEYS / WRITERS)) * WRITERS + writer;
                    let count = added.entry(key).or_default();
                    *count += 1;
                    let seen = add(nodes, key, &format!("{writer}-{turn}"));
                    assert_eq!(seen, *count, "{key} by {writer}");
                }
                total.lock().unwrap().append(&mut added);
            });
        }
        let _stop = StopAtEnd(&stop);
        act(spread);
    });
    let total = total.into_inner().unwrap();
    assert!(total.values().sum::<u64>() > 20, "hardly anything was written");
    for store in spread.stores("shop") {
        check(&store, &total);
    }
}

fn check(store: &Store, total: &Added) {
    let page = store.post("filter", &json!({ "collection": "line", "limit": 1000 }));
    let documents = page["documents"].as_array().unwrap();
    assert_eq!(documents.len() as u64, KEYS);
    for document in documents {
        let key: u64 = document["key"].as_str().unwrap().parse().unwrap();
        let expected = total.get(&key).copied().unwrap_or_default();
        assert_eq!(document["value"]["n"], expected, "{key}: {document}");
    }
    assert_eq!(store.post("count", &json!({ "collection": "line" }))["count"], KEYS);
}

/// Nothing of what moved is left behind at the shards that gave it away.
fn nothing_is_left(spread: &Spread, shards: usize) {
    let store = spread.store(1, "shop");
    let len = |shard| {
        let path = format!("shard/raw/len?operator=test&shard={shard}");
        store.post(&path, &json!({ "collection": "line" }))["len"].as_u64().unwrap()
    };
    assert_eq!((1..=shards).map(len).sum::<u64>(), KEYS);
}

fn start(nodes: usize, shards: usize, in_map: usize) -> Spread {
    let spread = Spread::without_map(nodes, shards, &["--raw-operations"]);
    spread.config(in_map, hash(in_map));
    spread
}

#[test]
fn a_reshard_survives_every_owner_in_turn() {
    let mut spread = start(3, 3, 2);
    while_writing(&mut spread, |spread| {
        spread.begin(3, hash(3), Some(100));
        eventually("documents move", || spread.step() == "copy");
        for shard in [2, 3] {
            let killed = spread.owner(shard);
            spread.nodes.kill(killed);
            eventually("another owner", || spread.nodes.owner_of(shard).is_some_and(|owner| owner != killed));
            spread.nodes.up(killed);
        }
        spread.await_end();
    });
    nothing_is_left(&spread, 3);
}

/// The owner of shard 1 drives; its successor finds in the log how far it was.
#[test]
fn the_next_owner_of_the_first_shard_drives_on() {
    let mut spread = start(3, 4, 2);
    while_writing(&mut spread, |spread| {
        for shards in [4, 2, 3] {
            spread.begin(shards, hash(shards), Some(300));
            thread::sleep(Duration::from_millis(150 * shards as u64));
            let killed = spread.owner(1);
            spread.nodes.kill(killed);
            eventually("another driver", || spread.nodes.owner_of(1).is_some_and(|owner| owner != killed));
            spread.await_end();
            spread.nodes.up(killed);
            let map = spread.keeper().get("shard/map");
            assert_eq!(map["curr"]["shards"], shards, "{map}");
        }
    });
    nothing_is_left(&spread, 4);
}

/// All nodes at once: what the next ones open is by the map that was in force.
#[test]
fn a_reshard_goes_on_when_all_nodes_come_back() {
    let mut spread = start(2, 3, 2);
    fill(&spread);
    spread.begin(3, hash(3), Some(50));
    eventually("documents move", || spread.step() == "copy");
    for node in [1, 2] {
        spread.nodes.kill(node);
    }
    for node in [1, 2] {
        spread.nodes.up(node);
    }
    spread.nodes.await_balance(3);
    eventually("it goes on", || {
        let reply = spread.keeper().send("GET", "shard/transition", "");
        reply.status == 200 && ["copy", "clean", "none"].contains(&reply.json()["step"].as_str().unwrap())
    });
    spread.keeper().post("shard/transition", &json!({ "do": "throttle", "rate": null }));
    spread.await_end();
    for store in spread.stores("shop") {
        check(&store, &Added::new());
    }
    nothing_is_left(&spread, 3);
}

/// A planned stop hands shards off while documents move.
#[test]
fn planned_stops_lose_nothing_while_documents_move() {
    let mut spread = start(3, 3, 3);
    while_writing(&mut spread, |spread| {
        spread.begin(2, hash(2), Some(200));
        for node in [1, 2, 3] {
            assert_eq!(spread.nodes.stop(node), Some(0));
            spread.nodes.up(node);
        }
        spread.await_end();
    });
    nothing_is_left(&spread, 3);
}
