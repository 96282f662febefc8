//! Questions about many documents while keys move: some have arrived at their new owner, some were changed or deleted
//! there, and some are still with their donor. Every node answers what one server would.

use crate::{
    cluster::Cluster,
    http,
    spread_world::{NAMESPACE, World},
};
use serde_json::{Value, json};

/// A map that moves keys from one function to another.
fn moving(cluster: &Cluster, epoch: u64, phase: &str, (curr, prev): (&Value, &Value)) -> Value {
    // The last node only passes requests on.
    let mut map = cluster.steady(epoch, cluster.addresses.len() - 1, curr.clone());
    let transition = if phase == "preparing" { epoch + 1 } else { epoch };
    map["phase"] = json!(phase);
    map["prev"] = prev.clone();
    map["transition"] = json!(transition);
    map
}

fn reshard(cluster: &Cluster, epoch: u64, functions: (&Value, &Value)) {
    cluster.put_map(&moving(cluster, epoch, "preparing", functions));
    cluster.put_map(&moving(cluster, epoch + 1, "resharding", functions));
}

/// Writes make keys known at their new owners one by one, as every write pulls what it is about.
#[test]
fn every_node_answers_what_one_server_would_while_keys_move() {
    let (old, new) = (json!({ "function": "hash", "shards": 2 }), json!({ "function": "jump", "shards": 3 }));
    let mut world = World::new("moving", 3, old.clone());
    world.write(300);
    reshard(&world.cluster, 2, (&new, &old));
    for _ in 0..10 {
        for _ in 0..40 {
            world.ask();
        }
        world.write(20);
    }
}

/// Three shards of which one has never heard of the namespace, and documents that are all with their donors.
#[test]
fn a_new_shard_answers_for_what_has_not_arrived() {
    let (old, new) =
        (json!({ "function": "constant", "shard": 1 }), json!({ "function": "constant", "shard": 3 }));
    let mut world = World::new("arrival", 3, old.clone());
    world.write(200);
    reshard(&world.cluster, 2, (&new, &old));
    for _ in 0..60 {
        world.ask();
    }
    // What is left behind at the donor does not count any more when the transition is over, and neither do marks.
    world.write(200);
    for _ in 0..60 {
        world.ask();
    }
}

/// A transition that is taken back: what had not arrived counts where it always was, what had is where it went.
#[test]
fn a_transition_can_be_taken_back_half_way() {
    let (old, new) = (json!({ "function": "hash", "shards": 2 }), json!({ "function": "jump", "shards": 3 }));
    let mut world = World::new("back", 3, old.clone());
    world.write(300);
    reshard(&world.cluster, 2, (&new, &old));
    world.write(60);
    for (epoch, phase) in [(4, "preparing"), (5, "resharding")] {
        let mut map = moving(&world.cluster, epoch, phase, (&old, &new));
        map["reverses"] = json!(3);
        world.cluster.put_map(&map);
    }
    for _ in 0..10 {
        for _ in 0..30 {
            world.ask();
        }
        world.write(20);
    }
}

/// What a donor has left counts for nobody once all has arrived.
#[test]
fn leftovers_are_not_shown() {
    let (old, new) = (json!({ "function": "hash", "shards": 2 }), json!({ "function": "jump", "shards": 2 }));
    let mut world = World::new("leftovers", 2, old.clone());
    world.write(150);
    reshard(&world.cluster, 2, (&new, &old));
    // Touches every document once.
    for (collection, key) in world.keys.clone() {
        for store in [world.any_node(), world.alone()] {
            let put = json!([{ "type": "put", "collection": collection, "key": key, "fields": { "a": 1 } }]);
            store.send("POST", "write", &json!({ "events": put }).to_string());
        }
    }
    let mut map = world.cluster.steady(4, 2, new.clone());
    (map["phase"], map["transition"]) = (json!("finishing"), json!(3));
    world.cluster.put_map(&map);
    (0..40).for_each(|_| world.ask());
    world.cluster.put_map(&world.cluster.steady(5, 2, new));
    (0..40).for_each(|_| world.ask());
    world.write(60);
    (0..40).for_each(|_| world.ask());
}

/// A question that is asked while nobody serves what moves waits until somebody does.
#[test]
fn a_question_waits_while_keys_change_hands() {
    let (old, new) = (json!({ "function": "hash", "shards": 2 }), json!({ "function": "jump", "shards": 2 }));
    let mut world = World::new("waits", 2, old.clone());
    world.write(60);
    world.cluster.put_map(&moving(&world.cluster, 2, "preparing", (&new, &old)));
    let node = world.cluster.node(2).native;
    let asking = std::thread::spawn(move || {
        let body = json!({ "collection": "user" }).to_string();
        http::send(node, "POST", &format!("/v1/{NAMESPACE}/count"), &[], body.as_bytes())
    });
    world.cluster.put_map(&moving(&world.cluster, 3, "resharding", (&new, &old)));
    let reply = asking.join().unwrap();
    assert_eq!(reply.status, 200, "{}", reply.body);
    let expected = world.alone().post("count", &json!({ "collection": "user" }));
    assert_eq!(reply.json()["count"], expected["count"]);
}
