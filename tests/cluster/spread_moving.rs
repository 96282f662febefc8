//! Questions about many documents while keys move: some have arrived at their new owner, some were changed or deleted
//! there, and some are still with their donor. Every node answers what one server would.

use crate::spread_world::{NAMESPACE, StopAtEnd, World};
use serde_json::json;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// Writes make keys known at their new owners one by one, as every write pulls what it is about.
#[test]
fn every_node_answers_what_one_server_would_while_keys_move() {
    let (old, new) = (json!({ "function": "hash", "shards": 2 }), json!({ "function": "jump", "shards": 3 }));
    let mut world = World::new("moving", 3, old);
    world.write(300);
    world.cluster.config(3, new);
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
    let mut world = World::new("arrival", 3, old);
    world.write(200);
    world.cluster.config(3, new);
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
    let mut world = World::new("back", 3, old);
    world.write(300);
    world.cluster.config(3, new);
    world.write(60);
    world.cluster.abort();
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
    let mut world = World::new("leftovers", 2, old);
    world.write(150);
    world.cluster.config(2, new);
    // Touches every document once.
    for (collection, key) in world.keys.clone() {
        for store in [world.any_node(), world.alone()] {
            let put = json!([{ "type": "put", "collection": collection, "key": key, "fields": { "a": 1 } }]);
            store.send("POST", "write", &json!({ "events": put }).to_string());
        }
    }
    world.cluster.drop_prev();
    (0..40).for_each(|_| world.ask());
    world.cluster.clean_up();
    (0..40).for_each(|_| world.ask());
    world.write(60);
    (0..40).for_each(|_| world.ask());
}

/// A question that is asked while no shard serves what moves waits until one does.
#[test]
fn a_question_waits_while_keys_change_hands() {
    let (old, new) = (json!({ "function": "hash", "shards": 2 }), json!({ "function": "jump", "shards": 2 }));
    let mut world = World::new("waits", 2, old);
    world.write(60);
    let expected = world.alone().post("count", &json!({ "collection": "user" }))["count"].clone();
    let (store, stop) = (world.cluster.store(2, NAMESPACE), AtomicBool::new(false));
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut answers = 0;
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(store.post("count", &json!({ "collection": "user" }))["count"], expected);
                answers += 1;
            }
            answers
        });
        let stopping = StopAtEnd(&stop);
        world.cluster.config(2, new);
        drop(stopping);
        assert!(asking.join().unwrap() > 0);
    });
}
