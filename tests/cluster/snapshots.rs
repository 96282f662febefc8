//! Snapshots that owners save by themselves: a node without a cache starts from the last one, and nothing is forgotten.

use crate::{
    harness::{eventually, eventually_is},
    http,
    nodes::Nodes,
};
use lockwood_test_support::Postgres;
use serde_json::{Value, json};

/// What clients can see of the past.
const PAST: [&str; 5] = [
    "documents/user/1",
    "documents/user/1?at=1",
    "history/user/1",
    "history/user/700",
    "changes?after=0&limit=5",
];

#[test]
fn a_node_without_a_cache_starts_from_a_snapshot_and_has_the_whole_past() {
    let postgres = Postgres::shared();
    let database = postgres.create_database();
    let sql = |sql: &str| postgres.sql(&database, sql);
    let url = postgres.url(&database, postgres.port());
    let mut nodes = Nodes::start_with(&url, 1, &["--snapshot-mib", "1"]);
    let store = nodes.store(1);
    let text = "x".repeat(1_000);
    for hundred in 0..15_u64 {
        let event =
            |key: u64| json!({ "type": "create", "collection": "user", "key": key, "fields": { "t": text } });
        let events: Vec<Value> = (1..=100).map(|one| event(hundred * 100 + one)).collect();
        store.write(json!(events));
    }
    store.update("user", 1, json!({ "t": "second" }));
    let complete = "select count(*) from lockwood.snapshot where part = 4294967295";
    eventually_is("a snapshot is saved", || sql(complete), |count| count == "1");
    store.update("user", 700, json!({ "t": "behind the snapshot" }));
    assert_eq!(sql(r#"select min("index") from lockwood.log"#), "1", "the log is the history");
    let past = |nodes: &Nodes, number: usize| {
        let store = nodes.store(number);
        let read = |path: &&str| http::request(store.native, "GET", &store.target(path), &[]);
        PAST.iter().map(read).map(|reply| (reply.status, reply.body)).collect::<Vec<_>>()
    };
    let before = past(&nodes, 1);
    assert!(before.iter().all(|(status, _)| *status == 200), "{before:?}");
    nodes.kill_owner(1);
    // Its data directory is empty.
    nodes.add();
    eventually("the other node takes over", || nodes.owner_by(2) == Some(2));
    eventually_is("all of the past is there", || past(&nodes, 2), |found| *found == before);
    assert_eq!(nodes.store(2).post("count", &json!({ "collection": "user" }))["count"], 1_500);
    let verified = nodes.store(2);
    verified.create("user", 2_000, json!({}));
    assert_eq!(sql(complete), "1");
}

/// Without the flag a small log is folded, and no snapshot is written for it.
#[test]
fn a_small_log_has_no_snapshot() {
    let postgres = Postgres::shared();
    let database = postgres.create_database();
    let nodes = Nodes::start_on(&postgres.url(&database, postgres.port()), 1);
    for key in 1..=50 {
        nodes.store(1).create("user", key, json!({ "n": key }));
    }
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    assert_eq!(postgres.sql(&database, "select count(*) from lockwood.snapshot"), "0");
}
