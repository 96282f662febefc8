//! Clients that write, read and count under locks while shards come and go and nodes, connections and the database fail:
//! what they saw of every document can be explained by one store that does one thing after the other, and no two hold a lock
//! at a time.

use crate::{
    faults::Faults,
    register_check::{check, dump, look_at_all},
    register_clients::{Scene, fill, join, start},
    spread_nodes::{Spread, hash},
};
use std::sync::Arc;
use tokio::runtime::Runtime;

const NODES_LEN: usize = 3;
const SHARDS_LEN: usize = 5;
const BEGIN_LEN: usize = 2;

#[test]
fn registers_are_linearizable_in_a_storm() {
    let mut faults = Faults::from_environment("registers", SHARDS_LEN).with_reshardings();
    let runtime = Runtime::new().unwrap();
    let mut spread = Spread::exposed(NODES_LEN, SHARDS_LEN);
    spread.config(BEGIN_LEN, hash(BEGIN_LEN));
    let addresses = spread.stores("storm").iter().map(|store| store.native.to_string()).collect();
    let scene = Arc::new(Scene::new(addresses));
    runtime.block_on(fill(&scene));
    let clients = start(&runtime, &scene, faults.seed);
    let stop = scene.calm_at_end();
    faults.strike_all(&mut spread);
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
