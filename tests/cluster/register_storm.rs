//! Clients that write, read and count under locks while shards come and go (2, 3, 5, 2) and nodes, connections and the
//! database fail: what they saw of every document can be explained by one store that does one thing after the other, and no
//! two hold a lock at a time.

use crate::{
    faults::Faults,
    register_check::{check, dump, look_at_all},
    register_clients::{Scene, fill, join, start},
    spread_nodes::{Spread, hash},
};
use serde_json::json;
use std::sync::{Arc, atomic::Ordering};
use tokio::runtime::Runtime;

const NODES_LEN: usize = 3;
const SHARDS_LEN: usize = 5;
const BEGIN_LEN: usize = 2;
/// How many documents a donor copies in a second, so that there is time for faults.
const THROTTLE: u64 = 150;

/// One change of the shards.
#[derive(Debug, Clone, Copy)]
enum Leg {
    /// To so many.
    To(usize),
    /// The same, but half way back to what it was.
    AndBack(usize),
}

#[test]
fn registers_are_linearizable_in_a_storm() {
    storm("registers", &[Leg::To(3), Leg::To(5), Leg::To(2)]);
}

#[test]
fn registers_are_linearizable_in_a_storm_with_aborts() {
    storm("registers with aborts", &[Leg::AndBack(3), Leg::To(4), Leg::AndBack(2)]);
}

fn storm(name: &str, legs: &[Leg]) {
    let mut faults = Faults::from_environment(name, SHARDS_LEN);
    let runtime = Runtime::new().unwrap();
    let mut spread = Spread::exposed(NODES_LEN, SHARDS_LEN);
    spread.config(BEGIN_LEN, hash(BEGIN_LEN));
    let addresses = spread.stores("storm").iter().map(|store| store.native.to_string()).collect();
    let scene = Arc::new(Scene::new(addresses));
    runtime.block_on(fill(&scene));
    let clients = start(&runtime, &scene, faults.seed);
    let stop = scene.calm_at_end();
    let len = legs.len() as u64;
    for (place, leg) in (0..).zip(legs) {
        let strikes = faults.len * (place + 1) / len - faults.len * place / len;
        go(&mut spread, *leg, strikes, &mut faults);
        let (done, passed) = (scene.operations.load(Ordering::Relaxed), scene.started.elapsed());
        println!("{leg:?} after {passed:.1?}, {done} operations and {strikes} faults");
    }
    drop(stop);
    let seen = runtime.block_on(join(clients));
    let before = runtime.block_on(dump(&scene, &seen));
    check(&scene, seen, &before);
    spread.reshard(1, hash(1));
    let after = runtime.block_on(look_at_all(&scene, before.keys().copied().collect()));
    assert_eq!(before.len(), after.len());
    for (at, document) in &before {
        assert_eq!(*document, after[at], "{at:?} is another one after a quiet resharding");
    }
}

/// Has shards come or go, and strikes meanwhile.
fn go(spread: &mut Spread, leg: Leg, strikes: u64, faults: &mut Faults) {
    let (Leg::To(len) | Leg::AndBack(len)) = leg;
    // A command whose owner is struck is answered as unknown, so it is given between faults.
    spread.nodes.await_owners(SHARDS_LEN);
    spread.begin(len, hash(len), Some(THROTTLE));
    for strike in 0..strikes {
        if strike == strikes / 2 && matches!(leg, Leg::AndBack(_)) {
            spread.nodes.await_owners(SHARDS_LEN);
            spread.keeper().send("POST", "shard/transition", &json!({ "do": "abort" }).to_string());
        }
        faults.strike(spread);
    }
    spread.unthrottle();
    spread.await_end();
}
