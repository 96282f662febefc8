//! Requests for a key go straight to the owner of its shard, and need no other node.

use crate::{
    cluster::passes,
    harness::eventually,
    http::{self, Reply},
    leaseholder::{Leased, Leaseholder},
    nodes::Nodes,
    peer::Peer,
    spread_nodes::{Spread, modulo},
};
use lockwood_test_support::Fault;
use serde_json::{Value, json};
use std::time::Duration;

/// What calls between nodes for requests of clients are counted as.
const KINDS: [&str; 3] = ["request", "shard", "guards"];

/// Three nodes, each with one of three shards, and documents on all of them. Key `n` is on shard `n % 3 + 1`.
struct World {
    spread: Spread,
}

impl World {
    fn start() -> World {
        World::of(Spread::start(3, 3, modulo(3)))
    }

    fn of(spread: Spread) -> World {
        let world = World { spread };
        for (node, shard) in (1..=3).flat_map(|node| (1..=3).map(move |shard| (node, shard))) {
            let key = key_on(shard);
            passes(&world.ann(node), key, &[]);
            world.locked(node, key);
            let expected = u64::from(world.owner(shard) != node);
            let goes_straight = || world.calls(|| is_done(&world.put(node, key, 1))) == expected;
            eventually("the node has read the map", goes_straight);
        }
        world
    }

    fn ann(&self, node: usize) -> Leaseholder {
        Leaseholder::new(self.spread.nodes.server(node), "ann")
    }

    /// Takes a lock on a document and releases it.
    fn locked(&self, node: usize, key: u64) {
        let Leased { lock, .. } = self.ann(node).take(&format!("write user/{key}"));
        assert_eq!(self.ann(node).release(lock, &json!({ "owner": "ann" })).status, 200);
    }

    fn put(&self, node: usize, key: u64, v: u64) -> Reply {
        let path = format!("documents/user/{key}?wait_ms=0");
        self.ann(node).store.send("PUT", &path, &json!({ "v": v }).to_string())
    }

    fn get(&self, node: usize, key: u64) -> Reply {
        self.ann(node).store.send("GET", &format!("documents/user/{key}"), "")
    }

    fn post(&self, node: usize, path: &str, body: &Value) -> Reply {
        self.ann(node).store.send("POST", path, &body.to_string())
    }

    /// How many calls nodes make to each other while something is done, and for it.
    fn calls(&self, done: impl FnOnce()) -> u64 {
        let before = self.made();
        done();
        self.made() - before
    }

    fn made(&self) -> u64 {
        let count = |node| KINDS.iter().map(|kind| made(&self.spread, node, kind)).sum::<u64>();
        self.spread.nodes.running().map(count).sum()
    }

    fn owner(&self, shard: usize) -> usize {
        self.spread.owner(shard)
    }

    /// The shard that has the locks of the namespace.
    fn home(&self) -> usize {
        let homes = self.spread.homes();
        homes.iter().position(|count| *count == 1).unwrap() + 1
    }
}

/// How many calls of a kind a node has made.
fn made(spread: &Spread, node: usize, kind: &str) -> u64 {
    let text = http::get(spread.nodes.server(node), "/metrics").body;
    let name = format!("lockwood_peer_calls_total{{kind=\"{kind}\"}} ");
    let found = text.lines().find_map(|line| line.strip_prefix(&name));
    found.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

/// A key of a shard.
fn key_on(shard: usize) -> u64 {
    [3, 1, 2][shard - 1]
}

#[track_caller]
fn is_done(reply: &Reply) {
    assert_eq!(reply.status, 200, "{}", reply.body);
}

#[test]
fn a_request_for_a_key_is_one_call_at_most() {
    let world = World::start();
    for shard in 1..=3 {
        let key = key_on(shard);
        for node in 1..=3 {
            let expected = u64::from(world.owner(shard) != node);
            let named = json!({ "collection": "user", "key": key });
            let event = json!({ "type": "put", "collection": "user", "key": key, "fields": { "v": 3 } });
            let update = json!({ "collection": "user", "key": key, "format": "+p", "arguments": ["v", 1] });
            let requests: [(&str, &dyn Fn() -> Reply); 8] = [
                ("PUT", &|| world.put(node, key, 2)),
                ("GET", &|| world.get(node, key)),
                ("GET history", &|| world.ann(node).store.send("GET", &format!("history/user/{key}"), "")),
                ("write", &|| world.post(node, "write", &json!({ "events": [event] }))),
                ("get", &|| world.post(node, "get", &json!({ "documents": [named] }))),
                ("locked get", &|| {
                    world.post(node, "get", &json!({ "documents": [named], "isolation": "locked" }))
                }),
                ("select", &|| world.post(node, "shard/select", &named)),
                ("update", &|| world.post(node, "shard/update", &update)),
            ];
            for (name, request) in requests {
                let calls = world.calls(|| is_done(&request()));
                assert_eq!(calls, expected, "{name} of shard {shard} through n{node}");
            }
        }
    }
}

#[test]
fn a_lock_on_a_document_is_two_calls_at_most() {
    let world = World::start();
    let (home, mut most) = (world.owner(world.home()), 0);
    for shard in 1..=3 {
        for node in 1..=3 {
            let expected = u64::from(node != home) + u64::from(world.owner(shard) != home);
            let mut held = None;
            let what = format!("write user/{}", key_on(shard));
            let calls = world.calls(|| held = Some(world.ann(node).take(&what)));
            assert_eq!(calls, expected, "lock on shard {shard} through n{node}");
            most = most.max(calls);
            let calls = world.calls(|| {
                let released = world.ann(node).release(held.unwrap().lock, &json!({ "owner": "ann" }));
                is_done(&released);
            });
            assert_eq!(calls, expected, "release on shard {shard} through n{node}");
        }
    }
    assert_eq!(most, 2, "no node was asked that has neither the home nor the document");
}

/// The home comes in when a guard is in the way, and knows of the end before the client does: even if calls take long.
#[test]
fn an_operation_that_waited_for_a_lock_is_in_nobodys_way_when_it_is_answered() {
    let (nodes, proxies) = Nodes::start_apart(3, 3);
    let spread = Spread { nodes };
    spread.config(3, modulo(3));
    let world = World::of(spread);
    let (home, shard) = (world.home(), world.home() % 3 + 1);
    let (at_home, at_shard, key) = (world.owner(home), world.owner(shard), key_on(shard));
    let mut bob = Peer::open(world.spread.nodes.server(at_home), "bob");
    let resources = json!([{ "path": format!("user/{key}"), "mode": "write" }]);
    let held = bob.ask(json!({ "type": "lock", "resources": resources }));
    assert_eq!(held["type"], "granted", "{held}");
    proxies.iter().for_each(|proxy| proxy.set(Fault::Delay(Duration::from_millis(300))));
    std::thread::scope(|scope| {
        let path = format!("documents/user/{key}?wait_ms=60000");
        let store = world.ann(at_shard).store;
        let waiting = scope.spawn(move || store.send("PUT", &path, r#"{"v":4}"#));
        let queue = world.ann(at_home).store;
        let waits = || queue.get("locks?state=waiting")["locks"].as_array().unwrap().len();
        eventually("the write waits at the home", || waits() == 1);
        bob.ask(json!({ "type": "release", "lock": held["lock"] }));
        is_done(&waiting.join().unwrap());
    });
    world.locked(at_home, key);
}
