//! Nodes that follow a shard: what they answer, what they leave to the owner, and how they become owners.

use crate::{
    harness::{eventually, eventually_is},
    http::{self, Reply},
    nodes::Nodes,
    peer::Peer,
};
use lockwood_test_support::{Fault, Postgres, Proxy};
use serde_json::{Value, json};
use std::{thread, time::Duration};

/// The followers of a shard, as a node lists them: names, lags and last records.
pub(crate) fn followers(nodes: &Nodes, asked: usize, shard: usize) -> Vec<Value> {
    let status = nodes.status(asked);
    let shards = status["shards"].as_array().unwrap();
    let found = shards.iter().find(|found| found["shard"] == shard).unwrap();
    found["followers"].as_array().unwrap().clone()
}

/// Waits until a node follows the shard and has what was acknowledged before.
fn await_follower(nodes: &Nodes, node: usize) {
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
    let filter = json!({ "field": "n", "operator": ">=", "value": 15 });
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
    let caches = std::fs::read_dir(nodes.server(other).data()).unwrap();
    let caches =
        caches.filter(|found| found.as_ref().unwrap().file_name().to_string_lossy().starts_with("shard-"));
    assert_eq!(caches.count(), 1);
    // The other way round, and as planned.
    nodes.up(owner);
    await_follower(&nodes, owner);
    assert_eq!(followers(&nodes, other, 1).len(), 1);
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
