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
fn a_node_owns_the_shard_that_it_prefers_and_a_proxy_none() {
    let mut nodes = Nodes::start_sharded(3, 3, &[]);
    let prefers = |nodes: &Nodes, asked: usize, this: &str| {
        let server = nodes.server(asked).native.to_string();
        let mut command = Command::new(BINARY);
        command.args(["shard", "config", "--this", this, "--server", &server]).output().unwrap()
    };
    let noted = |nodes: &Nodes, asked: usize, this: &str, said: &str| {
        // A shard that moves at once may take the answer with it.
        eventually_is(
            "it is noted",
            || String::from_utf8(prefers(nodes, asked, this).stdout).unwrap(),
            |printed| printed == said,
        );
    };
    noted(&nodes, 3, "1", "n3 prefers to own shard 1\n");
    noted(&nodes, 2, "0", "n2 prefers to own no shard\n");
    let owned_by = |nodes: &Nodes, asked: usize, node: usize| nodes.status(asked)["nodes"][node - 1].clone();
    eventually("nodes own what they prefer", || {
        nodes.owner_of(1) == Some(3)
            && owned_by(&nodes, 1, 2)["shards"] == json!([])
            && owned_by(&nodes, 1, 2)["this"] == 0
            && owned_by(&nodes, 1, 3)["this"] == 1
    });
    let shown = String::from_utf8(lockwood(&nodes, 2, &["status"]).stdout).unwrap();
    assert!(shown.contains("no shard") && shown.contains("shard 1"), "{shown}");
    let refused = prefers(&nodes, 1, "4");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("there are shards 1 to 3"), "{refused:?}");

    nodes.kill(3);
    eventually("another node takes over, and not the proxy", || nodes.owner_of(1) == Some(1));
    nodes.up(3);
    eventually("it gets the shard back", || nodes.owner_of(1) == Some(3));
    nodes.kill(1);
    nodes.kill(3);
    eventually("the proxy owns what no other node can", || owners(&nodes.status(2)) == ["n2"; 3]);
    done(&nodes, 2, &["forget", "n3"]);
    let kept = "select string_agg(name, ' ') from lockwood.setting where name like 'this/%'";
    assert_eq!(nodes.sql(kept), "this/n2");
}

#[test]
fn status_names_the_namespaces_of_each_home() {
    let nodes = Nodes::start_sharded(2, 2, &[]);
    for name in 0..8 {
        nodes.store_of(1, &format!("ns{name}")).create("user", 1, json!({}));
    }
    let all = done(&nodes, 2, &["status", "--homes", "100"]);
    let names = |shard: &Value| shard["homes"].as_array().unwrap().len() as u64;
    let shards = all["shards"].as_array().unwrap();
    assert_eq!(shards.iter().map(names).sum::<u64>(), 8, "{all}");
    assert!(shards.iter().all(|shard| shard["namespaces"] == names(shard)), "{all}");
    let one = done(&nodes, 1, &["status", "--homes", "1"]);
    for (few, all) in one["shards"].as_array().unwrap().iter().zip(shards) {
        assert_eq!(few["namespaces"], all["namespaces"], "they are all counted");
        assert_eq!(few["homes"][0], all["homes"][0]);
        assert!(names(few) <= 1, "{few}");
    }
    let most = shards.iter().max_by_key(|shard| names(shard)).unwrap();
    let shown = String::from_utf8(lockwood(&nodes, 1, &["status", "--homes", "1"]).stdout).unwrap();
    let line = format!(
        "homes on {}  {} and {} more",
        most["shard"],
        most["homes"][0].as_str().unwrap(),
        names(most) - 1
    );
    assert!(shown.contains(&line), "{line} is missing in {shown}");
    assert!(done(&nodes, 1, &["status"])["shards"][0].get("homes").is_none(), "names are not asked for");
}

#[test]
fn a_node_that_knows_no_owner_or_no_map_is_not_ready() {
    let mut nodes = Nodes::start(2);
    let (owner, other) = (nodes.owner().unwrap(), nodes.other());
    let ready = |nodes: &Nodes| {
        let reply = http::request(nodes.server(other).native, "GET", "/readyz", &[]);
        (reply.status, reply.json()["status"].as_str().unwrap().to_owned())
    };
    eventually_is("it is ready", || ready(&nodes), |found| found.0 == 200);
    nodes.sql("insert into lockwood.map (epoch, map) values (7, 'no map')");
    eventually_is("it cannot read the map", || ready(&nodes), |found| *found == (503, "no_map".into()));
    nodes.sql("delete from lockwood.map");
    eventually_is("there is none", || ready(&nodes), |found| *found == (200, "ready".into()));
    // It takes nothing, so nothing has an owner.
    done(&nodes, owner, &["drain", &format!("n{other}")]);
    nodes.kill(owner);
    eventually_is("there is no owner", || ready(&nodes), |found| *found == (503, "no_owner".into()));
    done(&nodes, other, &["undrain", &format!("n{other}")]);
    eventually_is("it owns the shard", || ready(&nodes), |found| *found == (200, "ready".into()));
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
