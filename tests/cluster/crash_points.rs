//! Every owner killed in every step of a change of the shards: the change comes to its end all the same, and nothing is lost.

use crate::{cluster::Cluster, random::Random, spread_nodes::hash, store::Store};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    env, thread,
    time::{Duration, Instant},
};

/// So many documents there are at first; each round adds some.
const DOCUMENTS_LEN: u64 = 90;
/// So many of them are looked at in a second, so that steps last long enough to be hit.
const THROTTLE: u64 = 120;
/// A step that is not reached by then will never be.
const STUCK: Duration = Duration::from_secs(120);
/// A request that a node refuses for the moment is sent again.
const ATTEMPTS_MAX: usize = 400;
/// As many as shards, which are 2 or 3.
const NODES_LEN: usize = 3;

/// Where a change can be when an owner dies. Those in capitals last longer than others.
const STEPS: [&str; 8] = ["prepare", "import", "activate", "COPY", "VERIFY", "finish", "CLEAN", "settle"];

/// The owner that is killed.
#[derive(Debug, Clone, Copy)]
enum Role {
    /// Of the first shard, which drives; it gives documents away or takes some, too.
    Driver,
    /// Of another shard that gives documents away.
    Donor,
    /// Of another shard that takes documents.
    Receiver,
}

#[test]
fn a_driver_dies_in_every_step() {
    in_every_step(Role::Driver);
}

#[test]
fn a_donor_dies_in_every_step() {
    in_every_step(Role::Donor);
}

#[test]
fn a_receiver_dies_in_every_step() {
    in_every_step(Role::Receiver);
}

fn in_every_step(role: Role) {
    let rounds: u64 = env::var("LOCKWOOD_CRASH_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    let mut scene = Scene::new(role);
    for _ in 0..rounds {
        for step in STEPS {
            scene.die_in(step);
        }
    }
    println!("{role:?} was killed in {:?}", scene.hits);
    let missed: Vec<_> =
        STEPS.iter().filter(|step| lasts(step) && !scene.hits.contains_key(**step)).collect();
    assert!(missed.is_empty(), "no owner was killed in {missed:?}: {:?}", scene.hits);
}

struct Scene {
    cluster: Cluster,
    role: Role,
    random: Random,
    /// How many shards there are.
    len: usize,
    /// What each document holds, and whether it is deleted.
    model: BTreeMap<u64, (u64, bool)>,
    /// How many numbers were written.
    written: u64,
    /// How many calls were made.
    called: u64,
    /// In which steps an owner was killed.
    hits: BTreeMap<String, u64>,
}

impl Scene {
    fn new(role: Role) -> Scene {
        let cluster = Cluster::start_on(NODES_LEN, 2, hash(2));
        let (model, hits) = (BTreeMap::new(), BTreeMap::new());
        let mut scene =
            Scene { cluster, role, random: Random(11), len: 2, model, written: 0, called: 0, hits };
        (0..DOCUMENTS_LEN).for_each(|key| scene.put(1, key));
        scene
    }

    /// Starts a change, and kills an owner as soon as it is in a step.
    fn die_in(&mut self, step: &str) {
        (0..4).for_each(|_| self.change());
        let before = self.len;
        self.len = if before == 2 { 3 } else { 2 };
        let node = self.cluster.owner(self.victim(before));
        self.cluster.begin(self.len, hash(self.len), Some(THROTTLE));
        let started = Instant::now();
        let mut reached = self.reach(step);
        if lasts(&reached) {
            // While it is on its way, documents change, come and go.
            (0..4).for_each(|_| self.change());
            reached = self.reach(step);
        }
        self.cluster.kill(node);
        println!("{:?} to {} shards dies in {reached} after {:?}", self.role, self.len, started.elapsed());
        *self.hits.entry(reached).or_default() += 1;
        thread::sleep(Duration::from_millis(self.random.below(150)));
        self.cluster.up(node);
        (0..4).for_each(|_| self.change());
        self.cluster.await_end();
        println!("over after {:?}", started.elapsed());
        self.check();
        self.cluster.await_balance();
    }

    /// The shard whose owner is killed.
    fn victim(&self, before: usize) -> usize {
        match (self.role, before) {
            (Role::Driver, _) => 1,
            (Role::Donor, 2) | (Role::Receiver, 3) => 2,
            (Role::Donor, _) | (Role::Receiver, _) => 3,
        }
    }

    /// Waits until the change is in a step, or beyond it; gives the one it is in.
    fn reach(&self, step: &str) -> String {
        let wanted = STEPS.iter().position(|known| *known == step).unwrap();
        let deadline = Instant::now() + STUCK;
        loop {
            let (_, status) = insist(&self.cluster.store(1, "_system"), "GET", "shard/transition", "");
            assert!(Instant::now() < deadline, "stuck before {step}: {status:#}");
            let now = step_of(&status);
            let place = STEPS.iter().position(|known| *known == now);
            match place {
                None => return "over".to_owned(),
                Some(place) if place >= wanted => return now.to_owned(),
                Some(_) => {}
            }
        }
    }

    /// Does something to some document, through some node.
    fn change(&mut self) {
        let node = 1 + self.random.below(NODES_LEN as u64) as usize;
        let key = self.random.below(self.model.len() as u64 + 4);
        match (self.model.get(&key), self.random.below(3)) {
            (Some((value, true)), _) => {
                let value = *value;
                self.write(node, json!({ "type": "restore", "collection": collection(key), "key": key }));
                self.model.insert(key, (value, false));
            }
            (Some((value, false)), 0) => {
                let value = *value;
                self.write(node, json!({ "type": "delete", "collection": collection(key), "key": key }));
                self.model.insert(key, (value, true));
            }
            _ => self.put(node, key),
        }
    }

    fn put(&mut self, node: usize, key: u64) {
        self.written += 1;
        let value = self.written;
        let fields = json!({ "v": value });
        self.write(
            node,
            json!({ "type": "put", "collection": collection(key), "key": key, "fields": fields }),
        );
        self.model.insert(key, (value, false));
    }

    fn write(&mut self, node: usize, event: Value) {
        self.called += 1;
        let body = json!({ "events": [event], "idempotency_key": format!("call {}", self.called) });
        let sent = insist(&self.cluster.store(node, "shop"), "POST", "write", &body.to_string());
        assert_eq!(sent.0, 200, "{body}: {}", sent.1);
    }

    /// Every document is what it should be, through every node.
    fn check(&self) {
        for node in 1..=NODES_LEN {
            let store = self.cluster.store(node, "shop");
            for (key, (value, deleted)) in &self.model {
                let path = format!("documents/{}/{key}?deleted=with", collection(*key));
                let (status, found) = insist(&store, "GET", &path, "");
                assert_eq!(status, 200, "{key} through {node}: {found}");
                let document = &found["document"];
                let is = (&document["value"]["v"], &document["deleted"]);
                assert_eq!(is, (&json!(value), &json!(deleted)), "{key} through {node}: {found}");
            }
        }
    }
}

/// Sends a request until it is neither refused for the moment nor lost.
fn insist(store: &Store, method: &str, path: &str, body: &str) -> (u16, Value) {
    let passing: BTreeSet<&str> = ["moving", "wrong_epoch", "shard_unreachable", "no_map"].into();
    for _ in 0..ATTEMPTS_MAX {
        let reply = store.send(method, path, body);
        let json = reply.json();
        if json["code"].as_str().is_none_or(|code| !passing.contains(code)) {
            return (reply.status, json);
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("{method} {path} is never answered");
}

/// Whether a step lasts long enough to be hit for certain.
fn lasts(step: &str) -> bool {
    step.chars().all(char::is_uppercase)
}

fn collection(key: u64) -> String {
    format!("user{}", key % 3)
}

/// Copying and verifying are one step for the driver.
fn step_of(status: &Value) -> &'static str {
    let name = status["step"].as_str().unwrap();
    let copied = || status["donors"].as_array().unwrap().iter().all(|donor| donor["done"] == true);
    match name {
        "copy" if copied() => "VERIFY",
        _ => STEPS.into_iter().find(|step| step.eq_ignore_ascii_case(name)).unwrap_or("over"),
    }
}
