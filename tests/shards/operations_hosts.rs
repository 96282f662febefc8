//! Operations on single keys where it matters which host of a shard answers.

use crate::{
    cluster::Cluster,
    harness::eventually,
    http,
    operations::{ask, jump},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[test]
fn a_map_is_put_in_force_as_it_is_only_if_nothing_can_be_lost() {
    let cluster = Cluster::nodes(2);
    let put = |cluster: &Cluster, node: usize, map: &Value, more: &str| {
        cluster.store(node, "shop").send("PUT", &format!("shard/map{more}"), &map.to_string())
    };
    let mut map = cluster.steady(1, 2, jump());
    map["curr"]["shards"] = 2.into();
    assert_eq!(put(&cluster, 1, &map, "").status, 200, "the first one");
    assert_eq!(put(&cluster, 2, &map, "").status, 200, "the one in force");
    let mut other = map.clone();
    other["epoch"] = 2.into();
    other["curr"] = json!({ "function": "constant", "shard": 1 });
    for map in [&other, &cluster.steady(2, 1, json!({ "function": "constant", "shard": 1 }))] {
        put(&cluster, 1, map, "").assert_problem(409, "force_needed");
        put(&cluster, 2, map, "?force=false").assert_problem(409, "force_needed");
    }
    put(&cluster, 1, &other, "?force=maybe").assert_problem(400, "bad_query");
    assert_eq!(put(&cluster, 1, &other, "?force=true").status, 200);
    let epoch = |node: usize| cluster.store(node, "shop").get("shard/map")["epoch"].clone();
    assert_eq!((epoch(1), epoch(2)), (json!(2), json!(2)));
}

/// Shard 1 has two hosts that only read, with these weights.
fn with_replicas(weights: [u64; 2]) -> Cluster {
    let mut cluster = Cluster::nodes(2);
    cluster.add_for(1);
    cluster.add_for(1);
    let host = |mode: &str, weight: u64, node: usize| json!({ "mode": mode, "weight": weight, "address": cluster.addresses[node - 1] });
    let list = json!([
        [host("rw", 1000, 1), host("ro", weights[0], 3), host("ro", weights[1], 4)],
        [host("rw", 1, 2)]
    ]);
    let curr = json!({ "function": "range", "bounds": [{ "below": 100, "shard": 1 }, { "shard": 2 }] });
    cluster.store(1, "shop").post("shard/config", &json!({ "list": list, "curr": curr }));
    cluster
}

/// Which node answered.
fn answered_by(cluster: &Cluster, node: usize, operation: &str, body: &Value) -> (usize, Value) {
    let target = format!("/v1/shop/shard/{operation}");
    let reply = http::send(cluster.node(node).native, "POST", &target, &[], body.to_string().as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.body);
    let host = reply.header("lockwood-host").unwrap();
    let place = cluster.addresses.iter().position(|address| address == host).unwrap();
    (place + 1, reply.json())
}

#[test]
fn reads_are_shared_by_weight_and_rw_reads_only_ask_the_owner() {
    let cluster = with_replicas([300, 700]);
    ask(&cluster.store(2, "shop"), "insert", json!(1), json!({ "fields": { "n": 1 } }));
    let body = json!({ "collection": "line", "key": 1 });
    for replica in [3, 4] {
        eventually("the hosts that only read have followed", || {
            let (host, found) = answered_by(&cluster, 2, "select", &body);
            host == replica && found["document"]["value"]["n"] == 1
        });
    }
    let mut hosts: BTreeMap<usize, u32> = BTreeMap::new();
    for _ in 0..1000 {
        let (host, found) = answered_by(&cluster, 2, "select", &body);
        assert_eq!(found["document"]["value"]["n"], 1);
        *hosts.entry(host).or_default() += 1;
    }
    // The mean is 300, and five standard deviations are 73.
    assert!(hosts.keys().eq([3, 4].iter()), "{hosts:?}");
    assert!((227..=373).contains(&hosts[&3]), "{hosts:?}");
    for replica in [3, 4] {
        for step in ["copy", "cleanup"] {
            let done = cluster.store(replica, "shop").post(&format!("shard/{step}"), &json!({}));
            assert_eq!(done, json!([]), "a host that only reads does nothing");
        }
    }
    for node in 1..=4 {
        for (mode, owner) in [("rw", true), ("r", false)] {
            let body = json!({ "collection": "line", "key": 1, "mode": mode });
            for _ in 0..20 {
                let (host, _) = answered_by(&cluster, node, "eselect", &body);
                assert_eq!(host == 1, owner, "{mode} through {node}");
            }
        }
        let update = json!({ "collection": "line", "key": 1, "format": "+p", "arguments": ["n", 1] });
        let (host, updated) = answered_by(&cluster, node, "update", &update);
        assert_eq!((host, &updated["document"]["value"]["n"]), (1, &json!(node + 1)));
    }
}

#[test]
fn without_its_readers_a_shard_is_read_from_its_writer() {
    let mut cluster = with_replicas([0, 5]);
    ask(&cluster.store(2, "shop"), "insert", json!(1), json!({ "fields": { "n": 1 } }));
    let body = json!({ "collection": "line", "key": 1 });
    eventually("the reader has followed", || answered_by(&cluster, 2, "select", &body).0 == 4);
    cluster.kill(4);
    let (host, found) = answered_by(&cluster, 2, "select", &body);
    assert_eq!((host, &found["document"]["value"]["n"]), (1, &json!(1)));
}
