//! A database that is compatible with PostgreSQL, but does not do all that PostgreSQL does: it notifies nobody, or does not
//! show its settings.

use crate::{
    followers::await_follower,
    harness::{eventually, eventually_is},
    http,
    nodes::Nodes,
};
use lockwood_test_support::{Postgres, Proxy};
use serde_json::json;

/// Nodes find by polling alone what is new and who is gone.
#[test]
fn followers_and_takeovers_need_no_notifications() {
    let postgres = Postgres::shared();
    let database = postgres.create_database();
    let proxy = Proxy::start(postgres.port());
    proxy.replace(b"listen lockwood_log", b"listen lockwood_nil");
    let mut nodes = Nodes::start_on(&postgres.url(&database, proxy.port()), 2);
    // Three links each.
    assert!(proxy.replaced() >= 6);
    let (owner, other) = (nodes.owner().unwrap(), nodes.other());
    nodes.store(owner).create("user", 1, json!({ "n": 1 }));
    await_follower(&nodes, other);
    nodes.store(owner).update("user", 1, json!({ "n": 2 }));
    let store = nodes.store(other);
    eventually_is(
        "the follower has the write",
        || store.send("GET", "documents/user/1?max_lag_ms=60000", "").json(),
        |reply| reply["document"]["value"]["n"] == 2,
    );
    nodes.kill_owner(owner);
    eventually_is(
        "the other node takes over",
        || store.send("PUT", "documents/user/2?wait_ms=0", "{}").status,
        |status| *status == 200,
    );
    assert_eq!(store.post("count", &json!({ "collection": "user" }))["count"], 2);
    nodes.up(owner);
    await_follower(&nodes, owner);
    assert_eq!(nodes.stop(other), Some(0));
    let store = nodes.store(owner);
    eventually_is(
        "the shard is handed off",
        || store.send("PUT", "documents/user/3?wait_ms=0", "{}").status,
        |status| *status == 200,
    );
}

#[test]
fn a_node_starts_on_a_database_that_does_not_show_its_settings_and_says_so() {
    let postgres = Postgres::shared();
    let database = postgres.create_database();
    postgres.sql(
        &database,
        &format!(
            "create role plain login; grant create on database {database} to plain;
             revoke execute on function pg_is_in_recovery() from public"
        ),
    );
    let url = postgres.url(&database, postgres.port()).replace("postgres://postgres@", "postgres://plain@");
    let nodes = Nodes::start_on(&url, 1);
    nodes.store(1).create("user", 1, json!({}));
    let ready = http::get(nodes.server(1), "/readyz");
    assert_eq!(ready.status, 200, "{}", ready.body);
    let durability = ready.json()["durability"].as_str().unwrap().to_owned();
    assert!(durability.starts_with("cannot tell on how many machines"), "{durability}");
    eventually("the status says so, too", || {
        nodes.status(1)["database"]["durability"].as_str().is_some_and(|told| told.starts_with("cannot tell"))
    });
}

/// The tables as a node of version 1 left them when it was killed.
#[test]
fn a_node_opens_tables_of_version_1_and_has_all_their_data() {
    let postgres = Postgres::shared();
    let database = postgres.create_database();
    postgres.sql(&database, include_str!("../../crates/storage/src/postgres/version_1.sql"));
    let nodes = Nodes::start_on(&postgres.url(&database, postgres.port()), 2);
    let store = nodes.store(1);
    assert_eq!(store.post("count", &json!({ "collection": "user" }))["count"], 6);
    assert_eq!(store.get("documents/user/1")["document"]["value"], json!({ "n": 10 }));
    assert_eq!(store.get("documents/user/1?at=1")["document"]["value"], json!({ "n": 1 }));
    let refused = store.send("PUT", "documents/user/7?wait_ms=0", "{}");
    assert_eq!(refused.assert_problem(423, "locked")["blockers"][0]["name"], "job");
    store.create("user", 8, json!({}));
}
