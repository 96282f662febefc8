//! Everything at once: 2 → 3 → 5 → 2 shards under writers, readers and lockers, with nodes killed on the way; what
//! the clients saw must be explicable by one store that does one thing after the other.
//!
//! `LOCKWOOD_STORM_KILLS` says how many nodes are killed, `LOCKWOOD_STORM_SEED` what is done by whom.

use crate::{
    cluster::Cluster,
    random::Random,
    storm_check::{check, dump, look_at_all},
    storm_clients::{Scene, fill, join, start},
};
use serde_json::{Value, json};
use std::{
    env,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

const NODES_LEN: usize = 5;
const BEGIN_LEN: usize = 2;
/// How many documents a donor copies in a second, so that there is time for kills.
const THROTTLE: u64 = 150;
/// A transition that takes longer will never be over.
const STUCK: Duration = Duration::from_secs(180);
const KILLS_LEN: u64 = 4;
/// With this one a read found nothing where a write had just pulled the document from its old shard.
const SEED: u64 = 5;

/// One change of the shards.
#[derive(Debug, Clone, Copy)]
enum Leg {
    /// To so many.
    To(usize),
    /// The same, but half way back to what it was.
    AndBack(usize),
}

#[test]
fn nothing_is_lost_in_a_storm() {
    storm(&[Leg::To(3), Leg::To(5), Leg::To(2)], setting("LOCKWOOD_STORM_KILLS", KILLS_LEN));
}

#[test]
fn nothing_is_lost_in_a_storm_that_turns() {
    let kills = setting("LOCKWOOD_STORM_KILLS", KILLS_LEN) / 2;
    storm(&[Leg::AndBack(3), Leg::To(4), Leg::AndBack(2)], kills);
}

fn setting(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn storm(legs: &[Leg], kills: u64) {
    let seed = setting("LOCKWOOD_STORM_SEED", SEED);
    println!("seed {seed}, {kills} kills, {legs:?}");
    let runtime = Runtime::new().unwrap();
    let mut cluster = Cluster::nodes(NODES_LEN);
    cluster.put_map(&cluster.steady(1, BEGIN_LEN, hash(BEGIN_LEN)));
    let scene = Arc::new(Scene::new(cluster.addresses.clone()));
    runtime.block_on(fill(&scene));
    let clients = start(&runtime, &scene, seed);
    let mut driver = Driver {
        cluster: &mut cluster,
        random: Random(seed | 1 << 32),
        len: BEGIN_LEN,
        started: scene.started,
        kills: Vec::new(),
    };
    let len = legs.len() as u64;
    for (place, leg) in (0..).zip(legs) {
        driver.go(*leg, kills * (place + 1) / len - kills * place / len, Some(THROTTLE));
        let (done, passed) = (scene.operations.load(Ordering::Relaxed), scene.started.elapsed());
        println!("{leg:?} after {passed:.1?} and {done} operations; killed {:.2?}", driver.kills);
    }
    scene.calm.store(true, Ordering::Relaxed);
    let seen = runtime.block_on(join(clients));
    let before = runtime.block_on(dump(&scene, &seen));
    check(&scene, seen, &before);
    let quiet = if driver.len == 4 { 3 } else { 4 };
    driver.go(Leg::To(quiet), 0, None);
    let after = runtime.block_on(look_at_all(&scene, before.keys().copied().collect()));
    assert_eq!(before.len(), after.len());
    for (at, document) in &before {
        assert_eq!(*document, after[at], "{at:?} is another one after a quiet resharding");
    }
}

fn hash(shards: usize) -> Value {
    json!({ "function": "hash", "shards": shards })
}

/// Has the cluster reshard, and kills nodes meanwhile.
struct Driver<'a> {
    cluster: &'a mut Cluster,
    random: Random,
    /// How many shards there are.
    len: usize,
    started: Instant,
    /// Which nodes, in order, and when each was down.
    kills: Vec<(usize, Duration, Duration)>,
}

impl Driver<'_> {
    fn go(&mut self, leg: Leg, kills: u64, throttle: Option<u64>) {
        let (Leg::To(len) | Leg::AndBack(len)) = leg;
        let list = self.cluster.steady(1, len, hash(len))["shards"].clone();
        let change = json!({ "list": list, "curr": hash(len) });
        self.tell(json!({ "do": "reshard", "change": change, "throttle": throttle }));
        match leg {
            Leg::To(len) => {
                self.kill(kills, len);
                self.len = len;
            }
            Leg::AndBack(len) => {
                self.kill(kills.div_ceil(2), len);
                self.wait_for("copy");
                self.pause(100, 500);
                self.tell(json!({ "do": "abort" }));
                self.kill(kills / 2, len);
            }
        }
        self.wait_for("none");
    }

    fn tell(&self, command: Value) {
        self.cluster.store(1, "_system").post("shard/transition", &command);
    }

    /// Kills so many nodes on the way to so many shards, one after the other.
    fn kill(&mut self, kills: u64, len: usize) {
        for _ in 0..kills {
            self.pause(100, 900);
            let node = 1 + self.random.below(self.len.max(len) as u64) as usize;
            let from = self.started.elapsed();
            self.cluster.kill(node);
            self.pause(20, 700);
            self.cluster.restart(node);
            self.kills.push((node, from, self.started.elapsed()));
        }
    }

    fn wait_for(&self, step: &str) {
        let deadline = Instant::now() + STUCK;
        loop {
            let status = self.cluster.store(1, "_system").get("shard/transition");
            if status["step"] == step {
                return;
            }
            assert!(Instant::now() < deadline, "{step} never comes: {status:#}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn pause(&mut self, from_ms: u64, to_ms: u64) {
        thread::sleep(Duration::from_millis(from_ms + self.random.below(to_ms - from_ms)));
    }
}
