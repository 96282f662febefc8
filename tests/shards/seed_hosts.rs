//! The visible behaviours of box.shard that are about hosts.

use crate::{
    cluster::Cluster,
    seed::{Pair, curr, host},
};
use serde_json::{Value, json};

#[test]
fn behaviour_01_the_schema_is_valid_once_it_is_configured() {
    let pair = Pair(Cluster::nodes(2));
    assert!(!pair.is_valid(1) && !pair.is_valid(2));
    let body = json!({ "collection": "user", "key": "a" });
    pair.node(1).refuses("POST", "shard/select", &body, 503, "no_map");
    let list: Vec<Value> = pair.0.addresses.iter().map(|address| host(address)).collect();
    let done = pair.config(json!({ "list": list, "curr": curr() }));
    assert_eq!(done["ok"], 1, "{done}");
    assert!(pair.is_valid(1) && pair.is_valid(2));
}

#[test]
fn behaviour_02_a_node_with_a_wrong_number_says_so_at_once() {
    let mut pair = Pair::start();
    pair.0.kill(2);
    pair.0.restart_for(2, 1);
    assert!(pair.is_valid(1) && !pair.is_valid(2));
    let body = json!({ "collection": "user", "key": "a", "fields": {} });
    for node in [1, 2] {
        let problem = pair.node(node).refuses("POST", "shard/insert", &body, 421, "wrong_shard");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("can't redirect the request to shard 2 (ttl=0)"), "{detail}");
        assert!(detail.contains("--this 1"), "{detail}");
    }
    assert_eq!(pair.ask(2, "insert", "b", json!({ "fields": {} }))["key"], "b", "its own shard is served");
}
