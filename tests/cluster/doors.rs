//! Every node answers every request, and only nodes get through the door for nodes.

use crate::{
    harness::{BINARY, Server, eventually, eventually_is},
    http,
    leaseholder::Leaseholder,
    nodes::Nodes,
    peer::Peer,
};
use lockwood_test_support::Postgres;
use serde_json::json;
use std::{path::Path, process::Command};

#[test]
fn any_node_reads_what_any_node_wrote() {
    let nodes = Nodes::start(3);
    for writer in 1..=3 {
        nodes.store(writer).create("user", writer, json!({ "by": writer }));
        for reader in 1..=3 {
            let found = nodes.store(reader).get(&format!("documents/user/{writer}"));
            assert_eq!(found["document"]["value"]["by"], writer, "n{reader} reads {found}");
        }
    }
}

#[test]
fn locks_of_sessions_on_different_nodes_exclude_each_other() {
    let nodes = Nodes::start(3);
    let mut ann = Peer::open(nodes.server(1), "ann");
    let held = ann.ask(json!({ "type": "lock", "resources": [{ "path": "user/42", "mode": "write" }] }));
    assert_eq!(held["type"], "granted", "{held}");
    for number in 2..=3 {
        let mut bob = Peer::open(nodes.server(number), "bob");
        let refused =
            bob.ask(json!({ "type": "lock", "resources": [{ "path": "user", "mode": "read" }], "wait": 0 }));
        assert_eq!(refused["code"], "locked", "{refused}");
        assert_eq!(refused["blockers"][0]["name"], "ann", "{refused}");
    }
}

#[test]
fn a_lease_taken_through_one_node_guards_writes_through_another() {
    let nodes = Nodes::start(2);
    let leased = Leaseholder::new(nodes.server(1), "job").take_for("write user/42", 60_000);
    let refused = nodes.store(2).send("PUT", "documents/user/42?wait_ms=0", r#"{"a":1}"#);
    let problem = refused.assert_problem(423, "locked");
    assert_eq!(problem["blockers"][0]["name"], "job", "{problem}");
    let by_token = format!("documents/user/42?wait_ms=0&token={}", leased.token);
    assert_eq!(nodes.store(2).send("PUT", &by_token, r#"{"a":1}"#).status, 200);
}

#[test]
fn a_node_says_what_the_cluster_is_made_of() {
    let nodes = Nodes::start(2);
    eventually("both nodes are listed", || {
        let status = http::request(nodes.server(1).native, "GET", "/v1/cluster", &[]).json();
        status["nodes"].as_array().unwrap().len() == 2
    });
    let status = http::request(nodes.server(2).native, "GET", "/v1/cluster", &[]).json();
    assert_eq!(status["node"], "n2", "{status}");
    assert_eq!(status["shards"][0]["shard"], 1, "{status}");
    for number in 1..=2 {
        // It reads the rows and the map after it has begun to answer.
        let ready = || http::request(nodes.server(number).native, "GET", "/readyz", &[]);
        eventually_is("it is ready", ready, |ready| ready.status == 200 && ready.json()["status"] == "ready");
        assert!(http::get(nodes.server(number), "/metrics").body.contains("\nlockwood_ready 1\n"));
    }
}

#[test]
fn a_node_says_everywhere_on_how_many_machines_a_write_is() {
    let postgres = Postgres::start(&["fsync=off"]);
    let database = postgres.create_database();
    let mut nodes = Nodes::start_on(&postgres.url(&database, postgres.port()), 1);
    let get = |nodes: &Nodes, path: &str| http::request(nodes.server(1).native, "GET", path, &[]).json();
    let told = |nodes: &Nodes| {
        let (cluster, ready) = (get(nodes, "/v1/cluster"), get(nodes, "/readyz"));
        let status = get(nodes, "/v1/status");
        [&cluster["database"]["durability"], &ready["durability"], &status["durability"]]
            .map(|told| told.as_str().unwrap().to_owned())
    };
    for text in told(&nodes) {
        assert!(text.contains("on 1 machine,"), "{text}");
    }
    // A change of the settings is told without a restart of the node.
    postgres.sql("postgres", "alter system set synchronous_commit = 'local'");
    postgres.sql("postgres", "select pg_reload_conf()");
    eventually("readiness says so", || told(&nodes)[1].contains("synchronous_commit local"));
    for text in told(&nodes) {
        assert!(text.contains("on 1 machine,") && text.contains("synchronous_commit local"), "{text}");
    }
    let log = nodes.log_of_stopped(1);
    assert!(log.contains("an acknowledged write is on 1 machine"), "{log}");
}

#[test]
fn nodes_reach_each_other_by_host_names() {
    let mut nodes = Nodes::start(1);
    nodes.add_advertised("localhost");
    let owner = nodes.owner().unwrap();
    let away = 3 - owner;
    assert_eq!(nodes.store(away).send("PUT", "documents/user/42", r#"{"a":1}"#).status, 200);
    // The other way round, too.
    nodes.kill_owner(owner);
    assert_eq!(nodes.taken_over_from(owner), away);
    nodes.up(owner);
    let found = nodes.store(owner).send("GET", "documents/user/42", "");
    assert_eq!(found.json()["document"]["value"]["a"], 1, "{}", found.body);
    let status = nodes.status(owner);
    let is_named = |node: &serde_json::Value| node["address"].as_str().unwrap().starts_with("localhost:");
    assert!(status["nodes"].as_array().unwrap().iter().any(is_named), "{status}");
}

#[test]
fn the_door_for_nodes_answers_nobody_without_a_proof() {
    let nodes = Nodes::start(2);
    let owner = nodes.owner().unwrap();
    let door = nodes.peer(owner).parse().unwrap();
    for (method, target) in [
        ("GET", "/native/v1/shop/locks"),
        ("POST", "/native/v1/shop/write"),
        ("GET", "/healthz"),
        ("GET", "/"),
    ] {
        let reply = http::send(door, method, target, &[], b"");
        assert_eq!(reply.status, 401, "{method} {target}: {}", reply.body);
        assert_eq!(reply.json()["code"], "not_a_peer");
        let forged = [("lockwood-proof", "1.00.00.0.1.00"), ("lockwood-client", "127.0.0.1:1")];
        let reply = http::send(door, method, target, &forged, b"");
        assert_eq!(reply.status, 401, "{method} {target}: {}", reply.body);
    }
    // And clients have no door that leads to another node's.
    let reply = http::request(nodes.server(1).native, "GET", "/native/v1/shop/locks", &[]);
    assert_eq!(reply.status, 404, "{}", reply.body);
}

#[test]
fn a_node_without_its_database_is_not_ready_and_says_so() {
    let postgres = Postgres::start(&["fsync=off"]);
    let database = postgres.create_database();
    let nodes = Nodes::start_on(&postgres.url(&database, postgres.port()), 1);
    drop(postgres);
    eventually("the node is not ready", || {
        let ready = http::request(nodes.server(1).native, "GET", "/readyz", &[]);
        ready.status == 503 && ready.body.contains("database_unreachable")
    });
    // What a load balancer and an alert go by is the same.
    assert!(http::get(nodes.server(1), "/metrics").body.contains("\nlockwood_ready 0\n"));
    let refused = nodes.store(1).send("GET", "documents/user/1", "");
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (503, &json!("shard_unreachable")),
        "{}",
        refused.body
    );
}

#[test]
fn data_of_a_single_server_and_caches_of_nodes_are_not_mixed_up() {
    let single = Server::start(&[]);
    single.signal("-TERM");
    let ended = single.wait();
    let postgres = Postgres::shared();
    let url = postgres.url(&postgres.create_database(), postgres.port());
    let refused = refusal(ended.data(), &["--cluster", &url]);
    assert!(refused.contains("has the data of a single server"), "{refused}");
    let mut nodes = Nodes::start_on(&url, 1);
    let data = nodes.server(1).data().to_owned();
    nodes.stop(1);
    let refused = refusal(&data, &[]);
    assert!(refused.contains("has the cache of a node of a cluster"), "{refused}");
}

#[test]
fn a_database_that_cannot_be_used_is_told_as_such() {
    let data = tempfile::tempdir().unwrap();
    let postgres = Postgres::shared();
    let missing = postgres.url("missing", postgres.port());
    for (url, part) in
        [("nonsense", "invalid PostgreSQL address"), (missing.as_str(), "\"missing\" does not exist")]
    {
        let refused = refusal(data.path(), &["--cluster", url]);
        assert!(refused.contains(part), "{url}: {refused}");
    }
    let refused = refusal(data.path(), &["--advertise", "127.0.0.1:1"]);
    assert!(refused.contains("it goes with --cluster"), "{refused}");
}

#[test]
fn two_nodes_of_one_name_are_refused() {
    let postgres = Postgres::shared();
    let url = postgres.url(&postgres.create_database(), postgres.port());
    let mut nodes = Nodes::start_on(&url, 1);
    let data = tempfile::tempdir().unwrap();
    let refused = refusal(data.path(), &["--cluster", &url, "--node", "n1"]);
    assert!(refused.contains("another node called n1 is running"), "{refused}");
    assert_eq!(nodes.store(1).create("user", 1, json!({})), 1);
    // The name is free when its node has stopped, and soon after it was killed.
    nodes.kill(1);
    nodes.up(1);
    eventually("the node serves again", || nodes.store(1).send("GET", "documents/user/1", "").status == 200);
}

/// What a server says that does not start.
fn refusal(data: &Path, flags: &[&str]) -> String {
    let mut command = Command::new(BINARY);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(flags);
    let said = command.output().unwrap();
    assert!(!said.status.success());
    String::from_utf8(said.stderr).unwrap()
}
