//! Clients on all nodes while nodes, connections and the database fail, and shards and documents move: every acknowledged
//! write is there once, no two hold a lock at a time, no write passes over a lock, and no copy is older than it says. The
//! number of faults and the seed come from the environment.

use crate::{
    faults::{Clients, Faults},
    harness::eventually_is,
    spread_nodes::{Spread, hash},
    storm_clients::Storm,
};
use std::sync::Arc;

const NODES_LEN: usize = 3;
const WRITERS: u64 = 4;
const LOCKERS: u64 = 3;
const INTRUDERS: u64 = 2;
const READERS: u64 = 2;

#[test]
fn nothing_is_lost_or_doubled_in_a_storm() {
    storm(Faults::from_environment("1 shard", 1));
}

#[test]
fn nothing_is_lost_or_doubled_in_a_storm_over_several_shards() {
    storm(Faults::from_environment("4 shards", 4));
}

#[test]
fn nothing_is_lost_or_doubled_in_a_storm_of_reshardings() {
    storm(Faults::from_environment("reshardings", 3).with_reshardings());
}

fn storm(mut faults: Faults) {
    let mut spread = Spread::exposed(NODES_LEN, faults.shards);
    if faults.has_reshardings {
        spread.config(faults.shards, hash(faults.shards));
    }
    let storm = Arc::new(Storm::new(&spread, WRITERS));
    let mut clients = Clients::default();
    let mut start = |len: u64, turn: fn(&Storm, u64, u64)| {
        for number in 0..len {
            let storm = Arc::clone(&storm);
            clients.start(move |round| turn(&storm, number, round));
        }
    };
    start(WRITERS, Storm::write);
    start(LOCKERS, Storm::lock);
    start(INTRUDERS, Storm::intrude);
    start(READERS, Storm::read);
    faults.strike_all(&mut spread);
    eventually_grows("all clients are served again", || storm.progress());
    clients.stop();
    storm.check(&spread);
}

/// Waits until all of these figures have grown.
fn eventually_grows(what: &str, figures: impl Fn() -> Vec<u64>) {
    let before = figures();
    eventually_is(what, &figures, |now| now.iter().zip(&before).all(|(now, before)| now > before));
}
