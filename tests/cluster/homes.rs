//! Namespaces on several shards: each has a home, any node finds it, and one that is away keeps only its own namespaces
//! waiting.

use crate::{harness::eventually, http, nodes::Nodes, peer::Peer};
use lockwood_test_support::Postgres;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const NAMESPACES: usize = 12;

fn name(number: usize) -> String {
    format!("shop{number}")
}

/// One document in each namespace, written through different nodes.
fn fill(nodes: &Nodes) {
    let running: Vec<usize> = nodes.running().collect();
    for number in 0..NAMESPACES {
        let store = nodes.store_of(running[number % running.len()], &name(number));
        store.create("user", 1, json!({ "n": number }));
    }
}

fn all_there(nodes: &Nodes) {
    for (node, number) in nodes.running().flat_map(|node| (0..NAMESPACES).map(move |number| (node, number))) {
        let found = nodes.store_of(node, &name(number)).get("documents/user/1");
        assert_eq!(found["document"]["value"]["n"], number, "n{node} reads {found}");
    }
}

/// The names that a node lists.
fn listed(nodes: &Nodes, node: usize) -> Vec<String> {
    let reply = http::request(nodes.server(node).native, "GET", "/v1/namespaces", &[]);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let list = reply.json()["namespaces"].as_array().unwrap().clone();
    list.iter()
        .map(|info| info["namespace"].as_str().unwrap().to_owned())
        .filter(|name| name != "_system")
        .collect()
}

/// The namespaces on each shard, as the status counts them.
fn counts(status: &Value) -> Vec<u64> {
    status["shards"].as_array().unwrap().iter().map(|shard| shard["namespaces"].as_u64().unwrap()).collect()
}

#[test]
fn namespaces_are_spread_over_shards_and_nodes() {
    let nodes = Nodes::start_sharded(3, 4, &[]);
    fill(&nodes);
    all_there(&nodes);
    let status = nodes.status(2);
    let counts = counts(&status);
    assert_eq!(counts.iter().sum::<u64>(), NAMESPACES as u64, "{status}");
    assert!(counts.iter().filter(|count| **count > 0).count() > 1, "all are on one shard: {status}");
    let names: BTreeSet<String> = (0..NAMESPACES).map(name).collect();
    for node in 1..=3 {
        assert_eq!(listed(&nodes, node), names.iter().cloned().collect::<Vec<_>>(), "by n{node}");
    }
}

/// While one owner is dead and not replaced yet, namespaces of other shards are served.
#[test]
fn a_shard_without_an_owner_keeps_no_other_waiting() {
    let mut nodes = Nodes::start_sharded(3, 3, &[]);
    fill(&nodes);
    let asked = nodes.owner_of(1).unwrap();
    let killed = nodes.owner_of(2).unwrap();
    assert_ne!(asked, killed);
    nodes.kill(killed);
    let served: Vec<bool> = (0..NAMESPACES)
        .map(|number| {
            // One that waits for the takeover answers in the end, but not before it.
            let target = format!("/v1/{}/documents/user/1", name(number));
            let reply = http::request(nodes.server(asked).native, "GET", &target, &[]);
            assert_eq!(reply.status, 200, "{}", reply.body);
            nodes.owner_of(2) == Some(killed)
        })
        .collect();
    assert!(served.contains(&true), "every request waited until the dead owner was replaced");
    all_there(&nodes);
    eventually("all shards have living owners", || {
        (1..=3).all(|shard| nodes.owner_of(shard).is_some_and(|owner| owner != killed))
    });
    nodes.up(killed);
    nodes.await_balance(3);
    all_there(&nodes);
}

/// Locks of a namespace are in one table, whichever nodes its sessions are connected to.
#[test]
fn locks_of_every_namespace_exclude_each_other_over_nodes() {
    let nodes = Nodes::start_sharded(3, 3, &[]);
    fill(&nodes);
    for number in 0..NAMESPACES {
        let (ann_at, bob_at) = (number % 3 + 1, (number + 1) % 3 + 1);
        let mut ann = Peer::open_with(nodes.server(ann_at), &name(number), json!({ "name": "ann" }));
        let held = ann.ask(json!({ "type": "lock", "resources": [{ "path": "user/1", "mode": "write" }] }));
        assert_eq!(held["type"], "granted", "{held}");
        let store = nodes.store_of(bob_at, &name(number));
        let problem = store.send("PUT", "documents/user/1?wait_ms=0", "{}").assert_problem(423, "locked");
        assert_eq!(problem["blockers"][0]["name"], "ann", "{problem}");
        let token = held["token"].as_u64().unwrap();
        let own = store.send(
            "PUT",
            &format!("documents/user/1?token={token}"),
            &json!({ "n": number }).to_string(),
        );
        assert_eq!(own.status, 200, "{}", own.body);
    }
}

#[test]
fn shards_that_are_added_take_new_namespaces_and_old_ones_stay() {
    let postgres = Postgres::shared();
    let database = postgres.create_database();
    let mut nodes = Nodes::start_with(&postgres.url(&database, postgres.port()), 1, &[]);
    fill(&nodes);
    nodes.set_flags(&["--shards", "3"]);
    nodes.add();
    nodes.await_balance(3);
    all_there(&nodes);
    let before = counts(&nodes.status(1));
    assert_eq!(before, [NAMESPACES as u64, 0, 0]);
    for number in 0..NAMESPACES {
        nodes.store_of(number % 2 + 1, &format!("later{number}")).create("user", 1, json!({}));
    }
    let after = counts(&nodes.status(2));
    assert_eq!(after.iter().sum::<u64>(), 2 * NAMESPACES as u64, "{after:?}");
    assert!(after[0] >= before[0] && (after[1] > 0 || after[2] > 0), "{after:?}");
    all_there(&nodes);
    // A node that is told of fewer takes none away.
    nodes.set_flags(&["--shards", "1"]);
    nodes.stop(1);
    nodes.up(1);
    nodes.await_balance(3);
    all_there(&nodes);
}

#[test]
fn a_plain_read_of_a_namespace_that_is_not_there_leaves_no_trace() {
    let nodes = Nodes::start_sharded(2, 2, &[]);
    for node in 1..=2 {
        let reply = nodes.store_of(node, "nowhere").send("GET", "documents/user/1", "");
        assert_eq!(reply.status, 404, "{}", reply.body);
    }
    assert_eq!(counts(&nodes.status(1)), [0, 0]);
}

#[test]
fn a_node_starts_again_with_all_its_shards() {
    let mut nodes = Nodes::start_sharded(1, 4, &[]);
    fill(&nodes);
    nodes.kill(1);
    nodes.up(1);
    nodes.await_balance(4);
    all_there(&nodes);
    assert_eq!(nodes.stop(1), Some(0));
    nodes.up(1);
    nodes.await_balance(4);
    all_there(&nodes);
}

#[test]
fn several_shards_are_backed_up_with_their_database() {
    let nodes = Nodes::start_sharded(1, 2, &[]);
    let reply = http::request(nodes.server(1).native, "GET", "/v1/backup", &[]);
    let problem = reply.assert_problem(409, "not_on_cluster");
    assert!(problem["detail"].as_str().unwrap().contains("pg_dump"), "{problem}");
}

/// Indexes that the Elasticsearch facade makes are together, so that it can search all of them. One that was made elsewhere
/// is served by its own name.
#[test]
fn indexes_are_searched_together_unless_they_were_made_elsewhere() {
    let nodes = Nodes::start_sharded(2, 4, &["--elasticsearch", "127.0.0.1:0"]);
    let es = |node: usize, method: &str, target: &str, body: &str| {
        let address = nodes.server(node).elasticsearch();
        http::send(address, method, target, &[("content-type", "application/json")], body.as_bytes())
    };
    for number in 0..6 {
        let made = es(number % 2 + 1, "PUT", &format!("/i{number}/_doc/1?refresh=true"), r#"{"n":1}"#);
        assert_eq!(made.status, 201, "{}", made.body);
    }
    for node in 1..=2 {
        for target in ["/_all/_count", "/i*/_count", "/i0,i1,i2,i3,i4,i5/_count"] {
            let count = es(node, "GET", target, "");
            assert_eq!((count.status, &count.json()["count"]), (200, &json!(6)), "{target}: {}", count.body);
        }
    }
    // Natively made, on whichever shard its name says; some name is not on the first one.
    let elsewhere = (0..).map(|number| format!("native{number}")).find(|name| {
        nodes.store_of(1, name).create("_doc", "1", json!({ "n": 2 }));
        counts(&nodes.status(1))[1..].iter().any(|count| *count > 0)
    });
    let elsewhere = elsewhere.unwrap();
    for node in 1..=2 {
        let found = es(node, "GET", &format!("/{elsewhere}/_doc/1"), "");
        assert_eq!((found.status, &found.json()["_source"]["n"]), (200, &json!(2)), "{}", found.body);
        let both = es(node, "GET", &format!("/i0,{elsewhere}/_count"), "");
        assert!(both.status == 409 && both.body.contains("send a request for each"), "{}", both.body);
        let lines = format!("{{\"index\":{{\"_index\":\"{elsewhere}\",\"_id\":\"2\"}}}}\n{{\"n\":3}}\n");
        let bulk = es(node, "POST", "/_bulk", &lines);
        assert!(bulk.status == 409 && bulk.body.contains("send a request for each"), "{}", bulk.body);
        let bulk = es(node, "POST", &format!("/{elsewhere}/_bulk"), &lines);
        assert_eq!((bulk.status, &bulk.json()["errors"]), (200, &json!(false)), "{}", bulk.body);
    }
}

#[test]
fn an_operator_moves_one_of_several_shards() {
    let nodes = Nodes::start_sharded(2, 2, &[]);
    fill(&nodes);
    let (kept, moved) = (nodes.owner_of(1).unwrap(), nodes.owner_of(2).unwrap());
    let reply =
        http::send(nodes.server(1).native, "PUT", &format!("/v1/cluster/shards/2/owner/n{kept}"), &[], b"");
    assert_eq!(reply.status, 200, "{}", reply.body);
    eventually("the shard is moved", || nodes.owner_of(2) == Some(kept));
    assert_ne!(kept, moved);
    all_there(&nodes);
}
