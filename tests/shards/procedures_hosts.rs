//! Procedures while a host is away.

use crate::{
    http,
    procedures::{TRANSFER, call, pair, put, register},
};
use serde_json::json;

#[test]
fn a_shard_that_was_away_gets_it_when_it_is_registered_again() {
    let mut cluster = pair();
    cluster.kill(2);
    let store = cluster.store(1, "bank");
    let target = store.target("shard/procedures/transfer");
    let reply = http::send(store.native, "PUT", &target, &[], TRANSFER.as_bytes());
    let problem = reply.assert_problem(503, "shard_unreachable");
    assert!(problem["detail"].as_str().unwrap().contains("do the same again"), "{problem}");
    cluster.restart(2);
    assert_eq!(register(&cluster.store(1, "bank"), "transfer", TRANSFER)["version"], 1);
    put(&store, json!(1), 5);
    assert_eq!(call(&store, "transfer", json!(1), json!([[1, "x"], 5]))["answer"]["left"], 0);
}
