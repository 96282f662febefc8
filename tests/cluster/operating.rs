//! What operators see of a cluster and do to it: followers, preferred hosts, drains, moves, nodes that are gone, alerts.

use crate::{
    followers::followers,
    harness::{BINARY, eventually, eventually_is},
    http,
    nodes::Nodes,
    spread_nodes::modulo,
};
use lockwood_test_support::{Fault, Postgres, Proxy};
use serde_json::{Value, json};
use std::process::{Command, Output};

fn lockwood(nodes: &Nodes, asked: usize, arguments: &[&str]) -> Output {
    let server = nodes.server(asked).native.to_string();
    let mut command = Command::new(BINARY);
    command.args(["cluster"]).args(arguments).args(["--server", &server]).output().unwrap()
}

#[track_caller]
fn done(nodes: &Nodes, asked: usize, arguments: &[&str]) -> Value {
    let output = lockwood(nodes, asked, &[arguments, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn refused(nodes: &Nodes, asked: usize, arguments: &[&str], code: i32, what: &str) {
    let output = lockwood(nodes, asked, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(said.contains(what), "{arguments:?}: {said}");
}

fn owners(status: &Value) -> Vec<String> {
    let shards = status["shards"].as_array().unwrap();
    shards.iter().map(|shard| shard["owner"].as_str().unwrap_or_default().to_owned()).collect()
}

fn alerts(nodes: &Nodes, asked: usize) -> String {
    nodes.status(asked)["alerts"].to_string()
}

#[test]
fn every_shard_has_a_follower_unless_there_is_one_node() {
    let mut nodes = Nodes::start_sharded(3, 3, &[]);
    eventually("each shard has one follower that is no owner", || {
        let status = nodes.status(1);
        let shards = status["shards"].as_array().unwrap();
        shards.iter().all(|shard| {
            let all = shard["followers"].as_array().unwrap();
            all.len() == 1 && all[0]["node"] != shard["owner"] && all[0]["lag_ms"].as_u64().unwrap() < 1_000
        })
    });
    nodes.stop(3);
    nodes.stop(2);
    eventually("the last node owns all and follows nothing", || {
        let status = nodes.status(1);
        owners(&status).iter().all(|owner| owner == "n1")
            && (1..=3).all(|shard| followers(&nodes, 1, shard).is_empty())
    });
}

#[test]
fn a_drained_node_owns_nothing_when_the_command_ends() {
    let nodes = Nodes::start_sharded(2, 4, &[]);
    let status = done(&nodes, 1, &["drain", "n2"]);
    assert_eq!(owners(&status), ["n1"; 4], "{status}");
    assert_eq!(status["nodes"][1]["drains"], true);
    // There is nothing left to give them to.
    refused(&nodes, 1, &["drain", "n1", "--timeout", "1s"], 75, "4 shards are not with another node");
    eventually("that is an alert", || alerts(&nodes, 1).contains("n1 drains, and no other node"));
    done(&nodes, 1, &["undrain", "n1"]);
    done(&nodes, 2, &["undrain", "n2"]);
    nodes.await_balance(4);
    refused(&nodes, 1, &["drain", "n9"], 66, "there is no node \"n9\"; there are n1, n2");
}

#[test]
fn a_moved_shard_stays_with_its_node() {
    let mut nodes = Nodes::start(3);
    let (owner, other) = (nodes.owner().unwrap(), nodes.other());
    let name = format!("n{other}");
    let status = done(&nodes, owner, &["move", "1", &name]);
    assert_eq!(owners(&status), [name.as_str()]);
    nodes.kill(other);
    let next = nodes.taken_over_from(other);
    eventually("the move is an alert", || alerts(&nodes, next).contains("shard 1 was moved to"));
    nodes.up(other);
    eventually("it gets the shard back", || nodes.owner_by(next) == Some(other));
    done(&nodes, owner, &["unmove", "1"]);
    refused(&nodes, owner, &["move", "1", "n9"], 66, "there is no node");
    refused(&nodes, owner, &["move", "7", &name], 70, "there is no shard 7");
}

#[test]
fn a_node_that_does_not_come_back_is_forgotten_and_a_live_one_is_not() {
    let mut nodes = Nodes::start(2);
    let (owner, other) = (nodes.owner().unwrap(), nodes.other());
    let name = format!("n{other}");
    refused(&nodes, owner, &["forget", &name], 70, "is live");
    nodes.kill(other);
    eventually("it is an alert that it is gone", || {
        alerts(&nodes, owner).contains(&format!("lockwood cluster forget {name}"))
    });
    done(&nodes, owner, &["forget", &name]);
    eventually("it is off the list", || nodes.status(owner)["nodes"].as_array().unwrap().len() == 1);
    assert!(!alerts(&nodes, owner).contains(&name), "{}", alerts(&nodes, owner));
    // It comes back as any other node.
    nodes.up(other);
    eventually("it is on the list", || nodes.status(owner)["nodes"].as_array().unwrap().len() == 2);
}

#[test]
fn a_node_without_its_database_is_not_ready_and_says_why() {
    let postgres = Postgres::shared();
    let database = postgres.create_database();
    let proxy = Proxy::start(postgres.port());
    let nodes = Nodes::start_on(&postgres.url(&database, proxy.port()), 1);
    let ready = || http::request(nodes.server(1).native, "GET", "/readyz", &[]);
    eventually("it is ready", || ready().status == 200);
    assert!(alerts(&nodes, 1).contains("on one machine only"), "{}", alerts(&nodes, 1));
    proxy.set(Fault::Refuse);
    eventually_is("it says why", || ready().json(), |reply| reply["status"] == "database_unreachable");
    assert!(alerts(&nodes, 1).contains("the database does not answer n1"), "{}", alerts(&nodes, 1));
    proxy.set(Fault::None);
    eventually("it is ready again", || ready().status == 200);
}

/// Lists name nodes by the addresses that they advertise.
#[test]
fn a_shard_prefers_its_rw_host_and_its_ro_hosts_follow_and_claim_first() {
    let mut nodes = Nodes::start_sharded(4, 2, &[]);
    let host = |mode: &str, node: usize| {
        let (address, port) = nodes.peer(node).rsplit_once(':').unwrap();
        json!([mode, 100, address, port.parse::<u16>().unwrap()])
    };
    let list = json!([[host("rw", 3), host("ro", 4)], [host("rw", 4), host("ro", 1), host("ro", 2)]]);
    let keeper = nodes.store_of(1, "_system");
    // A shard that moves at once may take the answer with it.
    let change = json!({ "list": list, "curr": modulo(2) }).to_string();
    eventually("the list is noted", || keeper.send("POST", "shard/config", &change).status == 200);
    let names = |nodes: &Nodes, asked: usize, shard: usize| {
        let all = followers(nodes, asked, shard);
        all.iter().map(|one| one["node"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    eventually("listed hosts own and follow", || {
        nodes.owner_of(1) == Some(3)
            && nodes.owner_of(2) == Some(4)
            && names(&nodes, 1, 1) == ["n4"]
            && names(&nodes, 1, 2) == ["n1", "n2"]
    });
    let map = keeper.get("shard/map");
    assert_eq!(map["shards"][0].as_array().unwrap().len(), 2, "{map}");
    let epochs = |nodes: &Nodes| {
        let status = nodes.status(1);
        [0, 1].map(|shard| status["shards"][shard]["epoch"].as_u64().unwrap())
    };
    let before = epochs(&nodes);
    nodes.kill(3);
    eventually("the follower takes over", || nodes.owner_of(1) == Some(4));
    nodes.up(3);
    eventually("the preferred owner gets it back", || nodes.owner_of(1) == Some(3));
    // A takeover is one claim, a handoff a release and a claim; the other shard stays where it is.
    let after = epochs(&nodes);
    assert_eq!((after[0] - before[0], after[1] - before[1]), (3, 0));
}
