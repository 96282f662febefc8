//! Changes of the shards that would end badly, and are not begun with; and ways out of those that did.

use crate::{
    cluster::{Cluster, hosts},
    harness::eventually,
    http::Reply,
    spread_nodes::hash,
};
use serde_json::{Value, json};

fn two_shards() -> Cluster {
    Cluster::start_on(3, 2, hash(2))
}

fn fill(cluster: &Cluster, len: u64) {
    let store = cluster.store(1, "shop");
    for key in 1..=len {
        store.create("user", key, json!({ "v": key }));
    }
}

fn tell(cluster: &Cluster, command: Value) -> Reply {
    cluster.store(1, "_system").send("POST", "shard/transition", &command.to_string())
}

fn reshard(cluster: &Cluster, len: usize, curr: Value, throttle: Option<u64>) -> Reply {
    let change = json!({ "list": hosts(len), "curr": curr });
    tell(cluster, json!({ "do": "reshard", "change": change, "throttle": throttle }))
}

fn step(cluster: &Cluster) -> Value {
    cluster.store(1, "_system").get("shard/transition")["step"].clone()
}

fn count(cluster: &Cluster, node: usize) -> Reply {
    cluster.store(node, "shop").send("POST", "count", r#"{"collection":"user"}"#)
}

#[test]
fn a_function_without_an_answer_for_what_is_there() {
    let cluster = two_shards();
    fill(&cluster, 40);
    cluster.store(1, "shop").create("user", "abc", json!({ "v": 0 }));
    let scripts = ["return function(collection, key) return nil end", "return function() return 9 end"];
    let scripts =
        scripts.map(|source| json!({ "function": "script", "name": "mine", "version": 1, "source": source }));
    for curr in [json!({ "function": "modulo" })].into_iter().chain(scripts) {
        let refused = reshard(&cluster, 3, curr, None);
        refused.assert_problem(400, "no_shard");
        assert!(refused.body.contains("nothing was changed"), "{}", refused.body);
        assert_eq!(step(&cluster), "none");
    }
    assert_eq!(count(&cluster, 2).json()["count"], 41);
}

#[test]
fn old_places_that_were_given_up_by_force_can_be_asked_again() {
    let cluster = two_shards();
    fill(&cluster, 40);
    let config = |change: Value| {
        let command = json!({ "do": "config", "change": change, "force": true });
        let done = tell(&cluster, command);
        assert_eq!(done.status, 200, "{}", done.body);
    };
    config(json!({ "list": hosts(2), "curr": { "function": "constant", "shard": 1 } }));
    eventually("new shards serve", || step(&cluster) == "copy");
    config(json!({ "prev": null }));
    for shard in [1, 2] {
        tell(&cluster, json!({ "do": "cleanup", "shard": shard }));
    }
    eventually("it is over all the same", || step(&cluster) == "none");
    let left = count(&cluster, 1).json()["count"].as_u64().unwrap();
    assert!(left < 40, "{left} of 40 are on the first shard");
    // What was not copied is still where it was.
    config(json!({ "prev": hash(2) }));
    eventually("the old places are asked again", || step(&cluster) == "copy");
    assert_eq!(count(&cluster, 2).json()["count"], 40);
}

/// It may be refused as long as a shard has no owner, and then nothing is changed.
#[test]
fn a_change_is_aborted_although_an_owner_dies() {
    let mut cluster = two_shards();
    fill(&cluster, 200);
    assert_eq!(reshard(&cluster, 3, hash(3), Some(20)).status, 200);
    eventually("documents move", || step(&cluster) == "copy");
    let owner = [2, 3].map(|shard| cluster.owner(shard)).into_iter().find(|owner| *owner != 1).unwrap();
    cluster.kill(owner);
    eventually("it goes back", || {
        let reply = tell(&cluster, json!({ "do": "abort" }));
        if reply.status != 200 {
            reply.assert_problem(503, "shard_unreachable");
        }
        reply.status == 200
    });
    cluster.restart(owner);
    tell(&cluster, json!({ "do": "throttle", "rate": null }));
    cluster.await_end();
    let map = cluster.store(1, "_system").get("shard/map");
    assert_eq!(map["curr"]["shards"], 2, "{map}");
    assert_eq!(count(&cluster, 1).json()["count"], 200);
}

/// Other nodes have copies that the one that is asked does not reach.
#[test]
fn a_node_does_not_purge() {
    let cluster = two_shards();
    fill(&cluster, 1);
    for node in 1..=3 {
        let body = json!({ "collection": "user", "keys": [1], "user": "ann" });
        let refused = cluster.store(node, "shop").send("POST", "purge", &body.to_string());
        refused.assert_problem(409, "not_on_cluster");
    }
    assert_eq!(count(&cluster, 2).json()["count"], 1);
}
