//! Nodes that follow a shard: what they answer, what they leave to the owner, and how they become owners.

use crate::{
    harness::{eventually, eventually_is},
    http::{self, Reply},
    nodes::Nodes,
    peer::Peer,
};
use lockwood_test_support::{Fault, Postgres, Proxy};
use serde_json::{Value, json};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

/// The followers of a shard, as a node lists them: names, lags and last records.
pub(crate) fn followers(nodes: &Nodes, asked: usize, shard: usize) -> Vec<Value> {
    let status = nodes.status(asked);
    let shards = status["shards"].as_array().unwrap();
    let found = shards.iter().find(|found| found["shard"] == shard).unwrap();
    found["followers"].as_array().unwrap().clone()
}

/// Waits until a node follows the shard and has what was acknowledged before.
pub(crate) fn await_follower(nodes: &Nodes, node: usize) {
    // Two looks at the log begin after this.
    thread::sleep(Duration::from_millis(500));
    eventually("the node follows the shard", || {
        let all = followers(nodes, node, 1);
        all.iter().any(|one| one["node"] == format!("n{node}") && one["lag_ms"].as_u64().unwrap() < 500)
    });
}

fn lag(reply: &Reply) -> Option<u64> {
    reply.header("lockwood-lag-ms").map(|lag| lag.parse().unwrap())
}

/// Two nodes, the second of which reaches the database through a proxy; the first one owns the shard.
fn with_proxy() -> (Nodes, Proxy) {
    let postgres = Postgres::shared();
    let database = postgres.create_database();
    let proxy = Proxy::start(postgres.port());
    let mut nodes = Nodes::start_on(&postgres.url(&database, postgres.port()), 1);
    nodes.add_on(&postgres.url(&database, proxy.port()));
    assert_eq!(nodes.owner(), Some(1));
    (nodes, proxy)
}

#[test]
fn a_follower_answers_reads_that_tolerate_its_lag() {
    let nodes = Nodes::start(2);
    let (owner, other) = (nodes.owner().unwrap(), nodes.other());
    let (at_owner, at_other) = (nodes.store(owner), nodes.store(other));
    for key in 1..=20 {
        at_owner.create("user", key, json!({ "n": key, "group": key % 3 }));
    }
    at_owner.update("user", 7, json!({ "n": 70 }));
    at_owner.create("group", 1, json!({ "name": "one" }));
    await_follower(&nodes, other);
    let filter = json!({ "field": "n", "op": ">=", "value": 15 });
    let left = json!({ "collection": "user", "field": "group" });
    let right = json!({ "collection": "group", "field": "name" });
    let reads = [
        ("GET", "documents/user/7", Value::Null),
        ("GET", "documents/user/7/n", Value::Null),
        ("GET", "documents/user", Value::Null),
        ("GET", "history/user/7", Value::Null),
        ("GET", "position", Value::Null),
        ("GET", "collections", Value::Null),
        ("POST", "get", json!({ "documents": [{ "collection": "user", "key": 3 }] })),
        ("POST", "filter", json!({ "collection": "user", "filter": filter })),
        ("POST", "count", json!({ "collection": "user", "filter": filter })),
        ("POST", "exists", json!({ "collection": "user" })),
        ("POST", "max", json!({ "collection": "user", "field": "n" })),
        ("POST", "min", json!({ "collection": "user", "field": "n" })),
        ("POST", "join", json!({ "left": left, "right": right })),
    ];
    let send = |method: &str, path: &str, body: &Value| match method {
        "GET" => http::request(at_other.native, "GET", &at_other.target(path), &[]),
        _ => at_other.send(method, path, &body.to_string()),
    };
    let current: Vec<Reply> = reads.iter().map(|(method, path, body)| send(method, path, body)).collect();
    // Nothing but a copy can answer now.
    nodes.server(owner).signal("-STOP");
    let stale =
        reads.iter().map(|(method, path, body)| send(method, &format!("{path}?max_lag_ms=60000"), body));
    let stale: Vec<Reply> = stale.collect();
    nodes.server(owner).signal("-CONT");
    for ((current, stale), read) in current.iter().zip(&stale).zip(&reads) {
        assert_eq!(lag(current), None, "{read:?}");
        assert!(lag(stale).is_some(), "{read:?}: {stale:?}");
        assert_eq!((stale.status, &stale.body), (current.status, &current.body), "{read:?}");
    }
    assert_eq!(current[0].json()["document"]["value"]["n"], 70);
    // A single digit of the lag is not much to go by, so the owner says that it has none.
    let by_owner = at_owner.send("GET", "documents/user/7?max_lag_ms=5", "");
    assert_eq!((by_owner.status, lag(&by_owner)), (200, Some(0)));
    at_other.send("GET", "documents/user/7?max_lag_ms=soon", "").assert_problem(400, "bad_query");
    at_other.send("GET", "locks?max_lag_ms=5", "").assert_problem(400, "bad_query");
}

/// A copy that lags behind is never taken for what the owner has.
#[test]
fn a_read_that_does_not_tolerate_the_lag_is_answered_by_the_owner() {
    let (nodes, proxy) = with_proxy();
    let (owner, follower) = (nodes.store(1), nodes.store(2));
    owner.create("user", 1, json!({ "n": 1 }));
    await_follower(&nodes, 2);
    // Where the namespace is it has to know before it is cut off.
    follower.get("position");
    proxy.set(Fault::Refuse);
    owner.update("user", 1, json!({ "n": 2 }));
    owner.create("user", 2, json!({}));
    thread::sleep(Duration::from_millis(700));
    let read = |query: &str| {
        let reply = follower.send("GET", &format!("documents/user/1{query}"), "");
        assert_eq!(reply.status, 200, "{}", reply.body);
        (reply.json()["document"]["value"]["n"].clone(), lag(&reply))
    };
    assert_eq!(read(""), (json!(2), None));
    assert_eq!(read("?max_lag_ms=0"), (json!(2), Some(0)));
    assert_eq!(read("?max_lag_ms=500"), (json!(2), Some(0)));
    let (value, lag) = read("?max_lag_ms=600000");
    assert!(value == 1 && lag.is_some_and(|lag| lag >= 700), "{value} {lag:?}");
    let count = follower.post("count", &json!({ "collection": "user" }));
    assert_eq!(count["count"], 2);
    proxy.set(Fault::None);
    eventually_is(
        "the follower has caught up",
        || follower.send("GET", "documents/user/1?max_lag_ms=60000", "").json(),
        |reply| reply["document"]["value"]["n"] == 2,
    );
}

#[test]
fn reads_under_locks_are_answered_by_the_owner() {
    let nodes = Nodes::start(2);
    let (owner, other) = (nodes.owner().unwrap(), nodes.other());
    nodes.store(owner).create("user", 1, json!({ "n": 1 }));
    let mut ann = Peer::open_for(nodes.server(owner), "ann", 30_000);
    let held = ann.hold("write user/1");
    await_follower(&nodes, other);
    let read = |query: &str| {
        nodes.store(other).send("GET", &format!("documents/user/1?max_lag_ms=60000{query}"), "")
    };
    assert_eq!(read("").status, 200);
    for isolation in ["locked", "document"] {
        read(&format!("&wait_ms=0&isolation={isolation}")).assert_problem(423, "locked");
    }
    assert_eq!(read(&format!("&token={}", held.token)).status, 200);
    drop(ann);
    read("&token=999999").assert_problem(409, "lock_lost");
}

/// What is registered changes how a copy reads, as soon as the copy has the record of it.
#[test]
fn a_collection_that_is_read_under_locks_is_left_to_the_owner() {
    let nodes = Nodes::start(2);
    let (owner, other) = (nodes.owner().unwrap(), nodes.other());
    nodes.store(owner).create("user", 1, json!({ "n": 1 }));
    await_follower(&nodes, other);
    let read = || nodes.store(other).send("GET", "documents/user/1?max_lag_ms=60000", "");
    eventually("a copy answers", || lag(&read()).is_some_and(|lag| lag > 0));
    nodes.store(owner).ask("PUT", "schemas/user/settings", &json!({ "isolation": "locked" }));
    await_follower(&nodes, other);
    for _ in 0..20 {
        assert_eq!(lag(&read()), Some(0));
    }
}

#[test]
fn a_follower_that_becomes_the_owner_goes_on_with_its_copy() {
    let mut nodes = Nodes::start(2);
    let (owner, other) = (nodes.owner().unwrap(), nodes.other());
    for key in 1..=50 {
        nodes.store(owner).create("user", key, json!({ "n": key }));
    }
    await_follower(&nodes, other);
    nodes.kill(owner);
    nodes.taken_over_from(owner);
    let store = nodes.store(other);
    assert_eq!(store.post("count", &json!({ "collection": "user" }))["count"], 50);
    assert_eq!(store.create("user", 51, json!({})), 51);
    // It did not fill another cache for that.
    let caches = std::fs::read_dir(nodes.server(other).data()).unwrap();
    let caches = caches.map(|found| found.unwrap().file_name()).filter(|name| name != "shard-1");
    let caches: Vec<_> = caches.filter(|name| name.to_string_lossy().starts_with("shard-")).collect();
    assert!(caches.is_empty(), "{caches:?}");
    // The other way round, and as planned.
    nodes.up(owner);
    await_follower(&nodes, owner);
    eventually("the owner hears of it", || followers(&nodes, other, 1).len() == 1);
    nodes.stop(other);
    nodes.taken_over_from(other);
    assert_eq!(nodes.store(owner).post("count", &json!({ "collection": "user" }))["count"], 51);
}

/// The log that a follower has a part of goes on without the records in between.
#[test]
fn a_follower_that_missed_a_trim_starts_anew() {
    let (nodes, proxy) = with_proxy();
    let (owner, follower) = (nodes.store(1), nodes.store(2));
    owner.create("user", 1, json!({ "n": 1 }));
    await_follower(&nodes, 2);
    proxy.set(Fault::Refuse);
    for n in 2..30 {
        owner.update("user", 1, json!({ "n": n }));
    }
    owner.trim(0);
    owner.create("user", 2, json!({ "n": 30 }));
    proxy.set(Fault::None);
    await_follower(&nodes, 2);
    nodes.server(1).signal("-STOP");
    let reply = follower.send("GET", "documents/user/1?max_lag_ms=60000", "");
    let new = follower.send("GET", "documents/user/2?max_lag_ms=60000", "");
    nodes.server(1).signal("-CONT");
    assert_eq!(reply.json()["document"]["value"]["n"], 29, "{}", reply.body);
    assert_eq!(new.json()["document"]["value"]["n"], 30, "{}", new.body);
}

/// Which host answered an operation, and what it found.
fn answered_by(nodes: &Nodes, node: usize, operation: &str, body: &Value) -> (String, Option<u64>, Value) {
    let store = nodes.store_of(node, "wide");
    let reply = store.send("POST", &format!("shard/{operation}"), &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    let host = reply.header("lockwood-host").unwrap_or_default().to_owned();
    (host, lag(&reply), reply.json()["document"]["value"]["n"].clone())
}

#[test]
fn select_is_answered_by_ro_hosts_by_weight_and_rw_reads_by_the_owner() {
    let nodes = Nodes::start_sharded(4, 2, &[]);
    let host = |mode: &str, weight: u64, node: usize| {
        let (address, port) = nodes.peer(node).rsplit_once(':').unwrap();
        json!([mode, weight, address, port.parse::<u16>().unwrap()])
    };
    let list = json!([
        [host("rw", 1, 1), host("ro", 300, 2), host("ro", 700, 3), host("ro", 0, 4)],
        [host("rw", 1, 4)]
    ]);
    let curr = json!({ "function": "range", "bounds": [{ "below": 100, "shard": 1 }, { "shard": 2 }] });
    let keeper = nodes.store_of(1, "_system");
    // A shard that moves at once may take the answer with it.
    let change = json!({ "list": list, "curr": curr }).to_string();
    eventually("the list is noted", || keeper.send("POST", "shard/config", &change).status == 200);
    let store = nodes.store_of(4, "wide");
    store.post("shard/insert", &json!({ "collection": "line", "key": 1, "fields": { "n": 1 } }));
    store.post("shard/insert", &json!({ "collection": "line", "key": 100, "fields": { "n": 100 } }));
    let body = json!({ "collection": "line", "key": 1 });
    let mode = |mode: &str| json!({ "collection": "line", "key": 1, "mode": mode });
    let placed = || {
        let following =
            followers(&nodes, 1, 1).iter().map(|one| one["node"].as_str().unwrap().to_owned()).collect();
        (nodes.owner_of(1), nodes.owner_of(2), following)
    };
    eventually_is(
        "the owner has moved, and its ro hosts follow",
        placed,
        |(first, second, following): &(_, _, Vec<_>)| {
            (*first, *second, following.len()) == (Some(1), Some(4), 3)
        },
    );
    for reader in [2, 3] {
        eventually("an ro host answers", || {
            let (host, _, found) = answered_by(&nodes, 4, "select", &body);
            host == nodes.peer(reader) && found == 1
        });
    }
    let mut counts = [0; 5];
    for number in 0..200 {
        let asked = number % 4 + 1;
        let (host, lag, found) = match number % 2 {
            0 => answered_by(&nodes, asked, "select", &body),
            _ => answered_by(&nodes, asked, "eselect", &mode("ro")),
        };
        assert_eq!(found, 1);
        let node = (1..=4).find(|node| nodes.peer(*node) == host).unwrap_or(0);
        assert!(node == 0 || lag.is_some_and(|lag| lag <= 1_000), "{host} {lag:?}");
        counts[node] += 1;
    }
    // By weight, but for the few that the owner answers because a copy was busy.
    assert!(
        counts[2] > 20 && counts[3] > counts[2] && counts[1] + counts[4] == 0 && counts[0] < 60,
        "{counts:?}"
    );
    for asked in 1..=4 {
        let (host, lag, found) = answered_by(&nodes, asked, "eselect", &mode("rw"));
        assert_eq!((lag, found), (None, json!(1)));
        assert!((2..=3).all(|reader| host != nodes.peer(reader)), "{host}");
        // Without an ro host the owner answers.
        let (_, lag, found) =
            answered_by(&nodes, asked, "select", &json!({ "collection": "line", "key": 100 }));
        assert_eq!((lag, found), (None, json!(100)));
    }
    // What a copy has is not old enough to be missed for long, and never counts as what the owner has.
    store.post(
        "shard/update",
        &json!({ "collection": "line", "key": 1, "format": "+p", "arguments": ["n", 1] }),
    );
    assert_eq!(answered_by(&nodes, 2, "eselect", &mode("rw")).2, 2);
    let (_, none, found) = answered_by(&nodes, 2, "select?max_lag_ms=0", &body);
    assert!(none.is_none_or(|lag| lag == 0) && found == 2, "{none:?} {found}");
    // A document of a spread namespace, by the copy that its node has.
    eventually("the copy of n2 answers", || {
        let reply = nodes.store_of(2, "wide").send("GET", "documents/line/1?max_lag_ms=60000", "");
        lag(&reply).is_some_and(|lag| lag > 0) && reply.json()["document"]["value"]["n"] == 2
    });
}

/// Documents move from a shard whose copy is asked: no read finds less than was there when it began.
#[test]
fn copies_do_not_miss_documents_that_have_moved_away() {
    let nodes = Nodes::start_sharded(3, 3, &[]);
    let keeper = nodes.store_of(1, "_system");
    let list = crate::spread_nodes::list(3);
    let put = |curr: Value| keeper.post("shard/config", &json!({ "list": list, "curr": curr }));
    put(json!({ "function": "modulo", "shards": 1 }));
    let store = nodes.store_of(1, "wide");
    for key in 1..=30 {
        store.post("shard/insert", &json!({ "collection": "line", "key": key, "fields": { "n": key } }));
    }
    let (is_over, by_copies) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for node in 1..=3 {
            let (nodes, is_over, by_copies) = (&nodes, &is_over, &by_copies);
            scope.spawn(move || {
                let store = nodes.store_of(node, "wide");
                for key in (1..=30).cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let reply = store.send("GET", &format!("documents/line/{key}?max_lag_ms=5000"), "");
                    if reply.status == 503 {
                        continue;
                    }
                    assert_eq!(reply.status, 200, "line/{key} at n{node}: {}", reply.body);
                    by_copies.fetch_add(u64::from(lag(&reply).is_some_and(|lag| lag > 0)), Ordering::Relaxed);
                }
            });
        }
        let moving = || {
            for shards in [2, 3, 1, 3] {
                let curr = json!({ "function": "modulo", "shards": shards });
                let change = json!({ "list": list, "curr": curr });
                keeper.post("shard/transition", &json!({ "do": "reshard", "change": change }));
                eventually("the resharding is over", || {
                    let reply = keeper.send("GET", "shard/transition", "");
                    reply.status == 200 && reply.json()["step"] == "none"
                });
                thread::sleep(Duration::from_millis(700));
            }
        };
        let moved = std::panic::catch_unwind(std::panic::AssertUnwindSafe(moving));
        is_over.store(true, Ordering::Relaxed);
        moved.unwrap();
    });
    assert!(by_copies.into_inner() > 0, "copies were asked");
}
