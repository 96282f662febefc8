//! What is refused because of one host.

use crate::{
    harness::eventually,
    refusals::{count, fill, hash, reshard, step, tell, two_shards},
};
use serde_json::json;

#[test]
fn a_node_that_was_started_for_another_shard() {
    let mut cluster = two_shards();
    fill(&cluster, 40);
    cluster.kill(2);
    cluster.restart_for(2, 1);
    reshard(&cluster, 3, hash(3), None).assert_problem(421, "wrong_shard");
    assert_eq!(step(&cluster), "none");
    // Half of what there is would be a wrong answer.
    let part = count(&cluster, 1);
    assert_ne!(part.status, 200, "{}", part.body);
    assert!(part.body.contains("--this"), "{}", part.body);
    cluster.kill(2);
    cluster.restart_for(2, 2);
    assert_eq!(count(&cluster, 1).json()["count"], 40);
    assert_eq!(reshard(&cluster, 3, hash(3), None).status, 200);
    eventually("the resharding is over", || step(&cluster) == "none");
    assert_eq!(count(&cluster, 1).json()["count"], 40);
}

#[test]
fn going_back_while_a_node_is_away() {
    let mut cluster = two_shards();
    fill(&cluster, 200);
    assert_eq!(reshard(&cluster, 3, hash(3), Some(20)).status, 200);
    eventually("documents move", || step(&cluster) == "copy");
    cluster.kill(3);
    let refused = tell(&cluster, json!({ "do": "abort" }));
    refused.assert_problem(503, "shard_unreachable");
    assert!(refused.body.contains("nothing was changed"), "{}", refused.body);
    assert_eq!(step(&cluster), "copy");
    cluster.restart(3);
    assert_eq!(tell(&cluster, json!({ "do": "abort" })).status, 200);
    tell(&cluster, json!({ "do": "throttle", "rate": null }));
    eventually("it has gone back", || step(&cluster) == "none");
    assert_eq!(count(&cluster, 1).json()["count"], 200);
}
