//! Requests for a key go straight to the owner of its shard, so a shard that is away delays its own keys only.

use crate::{
    cluster::{passes, write},
    harness::{eventually, eventually_is},
    http::{self, Reply},
    leaseholder::{HOUR, Leased, Leaseholder},
    nodes::Nodes,
    peer::Peer,
    spread_nodes::{Spread, modulo},
};
use lockwood_test_support::{Fault, Proxy};
use serde_json::{Value, json};
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

/// What calls between nodes for requests of clients are counted as.
const KINDS: [&str; 3] = ["request", "shard", "guards"];

/// A request for a shard that is away waits for another owner, 5 s by design, and no longer.
const MISSING_AFTER: std::ops::Range<Duration> = Duration::from_secs(2)..Duration::from_secs(18);

/// Three nodes, each with one of three shards, and documents on all of them. Key `n` is on shard `n % 3 + 1`.
pub(crate) struct World {
    pub(crate) spread: Spread,
}

impl World {
    fn start() -> World {
        World::of(Spread::start(3, 3, modulo(3)))
    }

    /// The same with a proxy before each node, through which the others reach it.
    pub(crate) fn apart() -> (World, Vec<Proxy>) {
        let (nodes, proxies) = Nodes::start_apart(3, 3);
        let spread = Spread { nodes };
        spread.config(3, modulo(3));
        (World::of(spread), proxies)
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

    pub(crate) fn ann(&self, node: usize) -> Leaseholder {
        Leaseholder::new(self.spread.nodes.server(node), "ann")
    }

    /// Takes a lock on a document and releases it.
    fn locked(&self, node: usize, key: u64) {
        let Leased { lock, .. } = self.ann(node).take(&format!("write user/{key}"));
        assert_eq!(self.ann(node).release(lock, &json!({ "owner": "ann" })).status, 200);
    }

    pub(crate) fn put(&self, node: usize, key: u64, v: u64) -> Reply {
        let path = format!("documents/user/{key}?wait_ms=0");
        self.ann(node).store.send("PUT", &path, &json!({ "v": v }).to_string())
    }

    pub(crate) fn get(&self, node: usize, key: u64) -> Reply {
        self.ann(node).store.send("GET", &format!("documents/user/{key}"), "")
    }

    pub(crate) fn post(&self, node: usize, path: &str, body: &Value) -> Reply {
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

    pub(crate) fn owner(&self, shard: usize) -> usize {
        self.spread.owner(shard)
    }

    /// The shard that has the locks of the namespace.
    pub(crate) fn home(&self) -> usize {
        let homes = self.spread.homes();
        homes.iter().position(|count| *count == 1).unwrap() + 1
    }

    /// From now on no shard gets another owner.
    fn forbid_claims(&self) {
        self.spread.nodes.sql(
            "create function lockwood.stay() returns trigger language plpgsql as $$ begin return null; end $$;
             create trigger stay before update on lockwood.shard for each row when (new.epoch > old.epoch)
             execute function lockwood.stay()",
        );
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
pub(crate) fn key_on(shard: usize) -> u64 {
    [3, 1, 2][shard - 1]
}

/// That a request waits for the shard, not for long, and names it.
#[track_caller]
fn is_missing(request: impl FnOnce() -> Reply, shard: usize) {
    let begun = Instant::now();
    let reply = request();
    let waited = begun.elapsed();
    let problem = reply.assert_problem(503, "shard_unreachable");
    assert_eq!(problem["shard"], shard, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains(&format!("shard {shard}")), "{problem}");
    assert!(MISSING_AFTER.contains(&waited), "{waited:?}: {problem}");
}

#[track_caller]
pub(crate) fn is_done(reply: &Reply) {
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
    let (world, proxies) = World::apart();
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

/// Nobody asks the home first any more, so it has to hear of the map by itself.
#[test]
fn a_home_that_the_map_does_not_name_lets_the_others_serve() {
    let spread = Spread::without_map(3, 3, &[]);
    spread.config(2, modulo(2));
    // By now every node has read the map, and sends requests to the shards of their keys.
    std::thread::sleep(Duration::from_secs(3));
    for namespace in ["a", "b", "c", "d", "e", "f", "g", "shop"] {
        for key in 1..=2 {
            is_done(&spread.store(key, namespace).send(
                "PUT",
                &format!("documents/user/{key}"),
                r#"{"v":1}"#,
            ));
        }
    }
    assert_eq!(spread.homes()[2], 0, "homes begin on shards of the map");
    for namespace in ["a", "b", "shop"] {
        spread.move_home(namespace, 3);
        for key in 1..=2 {
            is_done(&spread.store(key, namespace).send(
                "PUT",
                &format!("documents/user/{key}"),
                r#"{"v":2}"#,
            ));
        }
    }
    assert_eq!(spread.homes()[2], 3);
}

/// Everything but what the missing shard has is served, and what needs it says so.
#[track_caller]
pub(crate) fn others_are_served_without(world: &World, away: usize, asked: usize) {
    for shard in (1..=3).filter(|shard| *shard != away) {
        let key = key_on(shard);
        is_done(&world.get(asked, key));
        is_done(&world.put(asked, key, 6));
        is_done(&write(&world.ann(asked), key, &[]));
        is_done(&world.post(asked, "get", &json!({ "documents": [{ "collection": "user", "key": key }] })));
    }
    let user = json!({ "collection": "user" });
    let requests: [&(dyn Fn() -> Reply + Sync); 6] = [
        &|| world.get(asked, key_on(away)),
        &|| world.put(asked, key_on(away), 6),
        &|| world.post(asked, "count", &user),
        &|| world.post(asked, "filter", &user),
        &|| world.ann(asked).store.send("GET", "collections", ""),
        &|| http::get(world.spread.nodes.server(asked), "/v1/namespaces"),
    ];
    // Each of them waits for the shard, so they wait together.
    std::thread::scope(|scope| {
        let asked = requests.map(|request| scope.spawn(move || is_missing(request, away)));
        asked.into_iter().for_each(|missing| missing.join().unwrap());
    });
}

/// A node that does not own a shard, and one that may: another owner is not to be had.
fn asked_beside(world: &World, away: usize) -> usize {
    world.spread.nodes.running().find(|node| *node != away).unwrap()
}

#[test]
fn a_killed_home_delays_its_own_keys_only() {
    let mut world = World::start();
    let (home, kept) = (world.home(), world.home() % 3 + 1);
    let held = world.ann(1).take(&format!("write user/{}", key_on(kept)));
    world.forbid_claims();
    let owner = world.owner(home);
    world.spread.nodes.kill(owner);
    let asked = asked_beside(&world, owner);
    // The guard knows the token, and the home is needed to wait for its holder.
    is_done(&write(&world.ann(asked), key_on(kept), &[held.token]));
    is_missing(|| write(&world.ann(asked), key_on(kept), &[]), home);
    is_done(&world.get(asked, key_on(kept)));
    let free = (1..=3).find(|shard| ![home, kept].contains(shard)).unwrap();
    is_done(&world.put(asked, key_on(free), 7));
    is_missing(|| world.get(asked, key_on(home)), home);
    is_missing(|| world.post(asked, "count", &json!({ "collection": "user" })), home);
    is_missing(|| world.ann(asked).ask("write user/9", HOUR, 0), home);
}

#[test]
fn a_killed_shard_delays_its_own_keys_only() {
    let mut world = World::start();
    let away = world.home() % 3 + 1;
    world.forbid_claims();
    let owner = world.owner(away);
    world.spread.nodes.kill(owner);
    others_are_served_without(&world, away, asked_beside(&world, owner));
}

#[test]
fn a_paused_shard_delays_its_own_keys_only() {
    let world = World::start();
    for away in [world.home(), world.home() % 3 + 1] {
        let owner = world.owner(away);
        if away == world.home() {
            world.forbid_claims();
        }
        let paused = world.spread.nodes.server(owner);
        paused.signal("-STOP");
        let asked = asked_beside(&world, owner);
        others_are_served_without(&world, away, asked);
        paused.signal("-CONT");
        eventually("the shard is served again", || world.get(asked, key_on(away)).status == 200);
    }
}

/// An owner that is paused never ends its answer; its reader is told to come back, and finds another owner.
#[test]
fn a_feed_of_a_paused_owner_breaks_off() {
    let world = World::start();
    let home = world.home();
    let owner = world.owner(home);
    let asked = asked_beside(&world, owner);
    let address = world.spread.nodes.server(asked).native;
    let mut feed = TcpStream::connect(address).unwrap();
    feed.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let request =
        format!("GET /v1/default/changes HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n");
    feed.write_all(request.as_bytes()).unwrap();
    let mut chunk = [0; 4096];
    assert!(feed.read(&mut chunk).unwrap() > 0);
    let paused = world.spread.nodes.server(owner);
    paused.signal("-STOP");
    let mut read = || {
        feed.read(&mut chunk).unwrap_or_else(|error| {
            assert_ne!(error.kind(), ErrorKind::WouldBlock, "it goes on waiting for an owner that is paused");
            0
        })
    };
    while read() > 0 {}
    eventually("another node takes over", || {
        let successor = world.spread.nodes.status(asked)["shards"][home - 1]["owner"].clone();
        !successor.is_null() && successor != format!("n{owner}")
    });
    paused.signal("-CONT");
    eventually_is(
        "the namespace is served",
        || world.get(asked, key_on(home)).status,
        |status| *status == 200,
    );
}
