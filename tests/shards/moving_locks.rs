//! Locks move with what they are on: whoever holds them goes on holding them, whoever waits goes on waiting.

use crate::{
    cluster::Cluster,
    harness::{eventually, eventually_is},
    http::{self, Reply},
    leaseholder::{HOUR, Leased, Leaseholder, locks_in},
    peer::resources,
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

/// What proves to nodes with the key of the tests that a request comes from a node.
const PEER: &str = "3b44f960d110d4519790e6609f84f52444e285ee0b9df9722cdef406e17a2e48";

pub(crate) fn modulo(shards: u32) -> Value {
    json!({ "function": "modulo", "shards": shards })
}

pub(crate) fn constant(shard: u32) -> Value {
    json!({ "function": "constant", "shard": shard })
}

fn holder(cluster: &Cluster, node: usize, owner: &str) -> Leaseholder {
    Leaseholder::new(cluster.node(node), owner)
}

fn write(holder: &Leaseholder, key: u64, tokens: &[u64]) -> Reply {
    let event = json!({ "type": "put", "collection": "user", "key": key, "fields": { "v": 1 } });
    let call = json!({ "events": [event], "tokens": tokens, "wait_ms": 0 });
    holder.store.send("POST", "write", &call.to_string())
}

#[track_caller]
fn passes(holder: &Leaseholder, key: u64, tokens: &[u64]) {
    let reply = write(holder, key, tokens);
    assert_eq!(reply.status, 200, "{}", reply.body);
}

#[track_caller]
fn is_blocked(holder: &Leaseholder, key: u64, by: &str) {
    let problem = write(holder, key, &[]).assert_problem(423, "locked");
    assert_eq!(problem["blockers"][0]["name"], by, "{problem}");
}

/// A change from one function to another, step by step and by hand.
pub(crate) struct Change {
    epoch: u64,
    nodes: usize,
    prev: Value,
    curr: Value,
}

impl Change {
    pub(crate) fn new(epoch: u64, nodes: usize, prev: Value, curr: Value) -> Change {
        Change { epoch, nodes, prev, curr }
    }

    fn publish(&self, cluster: &Cluster, step: u64, phase: &str, moves: bool, transition: u64) {
        let mut map = cluster.steady(self.epoch + step, self.nodes, self.curr.clone());
        map["phase"] = phase.into();
        map["prev"] = if moves { self.prev.clone() } else { Value::Null };
        map["transition"] = transition.into();
        cluster.put_map(&map);
    }

    pub(crate) fn prepare(&self, cluster: &Cluster) {
        self.publish(cluster, 0, "preparing", true, self.epoch + 1);
    }

    /// What nodes have that goes elsewhere.
    pub(crate) fn export(&self, cluster: &Cluster) -> Vec<Value> {
        let epoch = self.epoch.to_string();
        (1..=self.nodes).map(|node| internal(cluster, node, "export", &epoch, &Value::Null)).collect()
    }

    pub(crate) fn import(&self, cluster: &Cluster, exported: &[Value]) {
        let epoch = self.epoch.to_string();
        let moving = together(exported);
        for node in 1..=self.nodes {
            internal(cluster, node, "import", &epoch, &moving);
        }
    }

    pub(crate) fn reshard(&self, cluster: &Cluster) {
        self.publish(cluster, 1, "resharding", true, self.epoch + 1);
    }

    pub(crate) fn finish(&self, cluster: &Cluster) {
        self.publish(cluster, 2, "finishing", false, self.epoch + 1);
        self.publish(cluster, 3, "steady", false, 0);
    }

    pub(crate) fn run(&self, cluster: &Cluster) {
        self.prepare(cluster);
        let exported = self.export(cluster);
        self.import(cluster, &exported);
        self.reshard(cluster);
        self.finish(cluster);
    }
}

/// What several nodes have, as one.
fn together(exported: &[Value]) -> Value {
    let all = |list: &str| -> Value {
        exported.iter().flat_map(|moving| moving[list].as_array().unwrap().clone()).collect()
    };
    let floor = exported.iter().map(|moving| moving["floor"].as_u64().unwrap()).max();
    let everywhere = exported.iter().any(|moving| moving["everywhere"] == true);
    json!({ "floor": floor, "everywhere": everywhere, "leases": all("leases"), "waits": all("waits") })
}

#[track_caller]
fn internal(cluster: &Cluster, node: usize, what: &str, epoch: &str, body: &Value) -> Value {
    send(cluster, node, &format!("/{what}"), epoch, body)
}

/// Has a shard do something about its locks, as a node would; gives its answer.
#[track_caller]
pub(crate) fn order(cluster: &Cluster, node: usize, epoch: u64, order: &Value) -> Value {
    let letter = json!({ "namespace": "default", "epoch": epoch, "order": order });
    let reply = send(cluster, node, "", &epoch.to_string(), &letter);
    assert!(reply["done"] != Value::Null, "{reply}");
    reply["done"].clone()
}

#[track_caller]
fn send(cluster: &Cluster, node: usize, what: &str, epoch: &str, body: &Value) -> Value {
    let headers = [("lockwood-peer", PEER), ("lockwood-epoch", epoch)];
    let target = format!("/internal/locks{what}");
    let reply = http::send(cluster.node(node).native, "POST", &target, &headers, body.to_string().as_bytes());
    assert_eq!(reply.status, 200, "{what} on {node}: {}", reply.body);
    reply.json()
}

/// Waits for a lease in a thread of its own.
fn wait(holder: &Leaseholder, what: &'static str) -> JoinHandle<Reply> {
    let holder = holder.clone();
    thread::spawn(move || holder.ask(what, HOUR, 60_000))
}

#[track_caller]
fn granted(waiting: JoinHandle<Reply>) -> Leased {
    let reply = waiting.join().unwrap();
    assert!(reply.status == 201 || reply.status == 200, "{}", reply.body);
    Leased::from(&reply.json())
}

#[test]
fn a_lease_moves_with_its_document_and_so_do_those_who_wait() {
    let cluster = Cluster::start(2, constant(1));
    let (ann, bob, cid) =
        (holder(&cluster, 1, "ann"), holder(&cluster, 2, "bob"), holder(&cluster, 1, "cid"));
    let held = ann.take("write user/1");
    let stays = ann.take("read user/3");
    let second = wait(&bob, "write user/1");
    eventually("bob waits", || locks_in(&bob.store, "waiting").len() == 1);
    let third = wait(&cid, "write user/1/name");
    eventually("cid waits", || locks_in(&bob.store, "waiting").len() == 2);
    let queued = holder(&cluster, 2, "dan").queue("read user/1");

    let change = Change::new(2, 2, constant(1), constant(2));
    change.prepare(&cluster);
    let exported = change.export(&cluster);
    let names = |list: &str| -> Vec<Value> {
        exported[0][list].as_array().unwrap().iter().map(|found| found["owner"].clone()).collect()
    };
    assert_eq!(names("leases"), ["ann", "ann"]);
    assert_eq!(names("waits"), ["bob", "cid", "dan"]);
    assert_eq!(exported[1]["leases"], json!([]));
    change.import(&cluster, &exported);
    change.import(&cluster, &exported);
    change.reshard(&cluster);

    // The new owner goes by what was decided on the old one.
    for node in 1..=2 {
        let other = holder(&cluster, node, "eve");
        is_blocked(&other, 1, "ann");
        other.is_refused("read user/1");
        passes(&holder(&cluster, node, "ann"), 1, &[held.token, stays.token]);
        let shown = other.store.get(&format!("locks/{}", held.lock));
        assert_eq!(Leased::from(&shown), held);
    }
    let again = bob.renew(held.lock, &json!({ "ttl_ms": HOUR, "token": held.token }));
    assert_eq!(again.status, 200, "{}", again.body);
    change.finish(&cluster);
    eventually("all are in line", || locks_in(&bob.store, "waiting").len() == 3);
    assert_eq!(ann.release_all().status, 200);
    let bobs = granted(second);
    assert!(bobs.token > held.token && bobs.token > stays.token, "{bobs:?}");
    assert_eq!(bobs.token % 1024, 2);
    passes(&cid, 1, &[bobs.token]);
    assert_eq!(locks_in(&bob.store, "waiting").len(), 2);
    assert_eq!(bob.release_all().status, 200);
    let cids = granted(third);
    assert!(cids.token > bobs.token);
    assert_eq!(bob.poll(queued, 0).json()["state"], "waiting");
    assert_eq!(cid.release_all().status, 200);
    let dans = bob.poll(queued, 20_000).json();
    assert_eq!((&dans["state"], &dans["lock"]), (&json!("granted"), &json!(queued)), "{dans}");
    assert!(dans["token"].as_u64().unwrap() > cids.token);
    write(&ann, 1, &[held.token]).assert_problem(409, "lock_lost");
}

#[test]
fn a_lock_on_several_documents_is_split_and_put_together() {
    let cluster = Cluster::start(3, constant(1));
    let (ann, bob) = (holder(&cluster, 1, "ann"), holder(&cluster, 2, "bob"));
    let what = "write user/1, write user/2, write user/3, write user/4";
    let held = ann.take(what);
    let functions = [constant(1), modulo(3), modulo(2), constant(3), modulo(3), constant(1)];
    let mut epoch = 2;
    for pair in functions.windows(2) {
        Change::new(epoch, 3, pair[0].clone(), pair[1].clone()).run(&cluster);
        epoch += 4;
        for node in 1..=3 {
            let listed = holder(&cluster, node, "ann").locks();
            assert_eq!(listed.len(), 1, "{pair:?}: {listed:?}");
            assert_eq!(Leased::from(&listed[0]), held, "{pair:?}");
            assert_eq!(listed[0]["resources"].as_array().unwrap().len(), 4, "{pair:?}: {listed:?}");
        }
        for key in 1..=4 {
            is_blocked(&bob, key, "ann");
            passes(&ann, key, &[held.token]);
        }
        let again =
            bob.store.send("POST", "locks/renew", &json!({ "owner": "ann", "ttl_ms": HOUR }).to_string());
        assert_eq!(again.json()["leases"].as_array().unwrap().len(), 1, "{pair:?}: {}", again.body);
        let again = ann.ask(what, HOUR, 0);
        assert_eq!((again.status, Leased::from(&again.json())), (200, held), "{pair:?}: {}", again.body);
    }
    assert_eq!(bob.release(held.lock, &json!({ "token": held.token })).status, 200);
    for key in 1..=4 {
        assert!(bob.take(&format!("write user/{key}")).token > held.token);
    }
}

#[test]
fn a_lock_on_a_collection_comes_to_shards_that_are_new() {
    let mut cluster = Cluster::nodes(2);
    cluster.put_map(&cluster.steady(1, 1, modulo(1)));
    let ann = holder(&cluster, 1, "ann");
    let held = ann.take("write user");
    Change::new(2, 2, modulo(1), modulo(2)).run(&cluster);
    let bob = holder(&cluster, 2, "bob");
    for key in 1..=2 {
        is_blocked(&bob, key, "ann");
        bob.is_refused(&format!("read user/{key}"));
        passes(&bob, key, &[held.token]);
    }
    assert_eq!(bob.locks().len(), 0);
    assert_eq!(holder(&cluster, 2, "ann").locks().len(), 1);
    // One more that comes while somebody waits for the collection, and goes while nobody has it.
    let waiting = wait(&bob, "write user");
    eventually("bob waits", || locks_in(&bob.store, "waiting").len() == 1);
    cluster.add();
    Change::new(6, 3, modulo(2), modulo(3)).run(&cluster);
    is_blocked(&bob, 2, "ann");
    assert_eq!(ann.release_all().status, 200);
    let bobs = granted(waiting);
    assert!(bobs.token > held.token);
    for key in 1..=3 {
        is_blocked(&ann, key, "bob");
        passes(&ann, key, &[bobs.token]);
    }
    // Shard 3 leaves with a part of it, and comes back when it is over.
    Change::new(10, 3, modulo(3), modulo(2)).run(&cluster);
    cluster.put_map(&cluster.steady(14, 2, modulo(2)));
    assert_eq!(bob.release_all().status, 200);
    Change::new(15, 3, modulo(2), modulo(3)).run(&cluster);
    for key in 1..=3 {
        passes(&ann, key, &[]);
    }
    assert!(ann.take("write user").token > bobs.token);
}

#[test]
fn a_change_that_is_taken_back_leaves_everything_where_it_was() {
    let cluster = Cluster::start(2, constant(1));
    let (ann, bob) = (holder(&cluster, 1, "ann"), holder(&cluster, 2, "bob"));
    let held = ann.take("write user/1");
    let waiting = wait(&bob, "write user/1");
    eventually("bob waits", || locks_in(&bob.store, "waiting").len() == 1);
    let change = Change::new(2, 2, constant(1), constant(2));
    change.prepare(&cluster);
    let exported = change.export(&cluster);
    change.import(&cluster, &exported);
    cluster.put_map(&cluster.steady(3, 2, constant(1)));
    is_blocked(&bob, 1, "ann");
    passes(&bob, 1, &[held.token]);
    eventually("bob is in line again", || locks_in(&bob.store, "waiting").len() == 1);
    assert_eq!(ann.release_all().status, 200);
    let bobs = granted(waiting);
    assert!(bobs.token > held.token);
    assert_eq!(bob.release_all().status, 200);
    // What came to the other shard meanwhile is gone from there.
    Change::new(4, 2, constant(1), constant(2)).run(&cluster);
    passes(&bob, 1, &[]);
    assert!(bob.take("write user/1").token > bobs.token);
}

#[test]
fn moves_go_on_after_kills() {
    let mut cluster = Cluster::start(2, constant(1));
    let held = holder(&cluster, 1, "ann").take("write user/1");
    let spread = holder(&cluster, 1, "ann").take("write bill");
    let change = Change::new(2, 2, constant(1), constant(2));
    change.prepare(&cluster);
    cluster.kill(1);
    cluster.restart(1);
    let exported = change.export(&cluster);
    change.import(&cluster, &exported);
    cluster.kill(2);
    cluster.restart(2);
    change.import(&cluster, &exported);
    change.reshard(&cluster);
    for node in 1..=2 {
        cluster.kill(node);
        cluster.restart(node);
        let (ann, bob) = (holder(&cluster, 1, "ann"), holder(&cluster, 2, "bob"));
        is_blocked(&bob, 1, "ann");
        bob.is_refused("read bill/1");
        passes(&bob, 1, &[held.token, spread.token]);
        let listed: Vec<Leased> = ann.locks().iter().map(Leased::from).collect();
        assert_eq!(listed, [held, spread]);
    }
    change.finish(&cluster);
    let (ann, bob) = (holder(&cluster, 1, "ann"), holder(&cluster, 2, "bob"));
    assert_eq!(ann.release_all().json()["leases"].as_array().unwrap().len(), 2);
    for what in ["write user/1", "write bill"] {
        assert!(bob.take(what).token > spread.token);
    }
}

#[test]
fn tokens_grow_on_documents_that_nobody_has_when_they_move() {
    let cluster = Cluster::start(2, constant(1));
    let (ann, bob) = (holder(&cluster, 1, "ann"), holder(&cluster, 2, "bob"));
    let mut last = 0;
    for _ in 0..20 {
        last = ann.take("write user/1").token;
        assert_eq!(ann.release_all().status, 200);
    }
    Change::new(2, 2, constant(1), constant(2)).run(&cluster);
    let next = bob.take("write user/1");
    assert!(next.token > last, "{next:?} after {last}");
}

/// Waits until a host that only reads has what is written now.
fn follows(cluster: &Cluster, reader: usize, holder: &Leaseholder, key: u64) {
    passes(holder, key, &[]);
    let body = json!({ "collection": "user", "key": key }).to_string();
    eventually("the reader has followed", || {
        let target = "/v1/default/shard/select";
        let reply = http::send(holder.store.native, "POST", target, &[], body.as_bytes());
        let is_it = reply.header("lockwood-host") == Some(&*cluster.addresses[reader - 1]);
        is_it && !reply.json()["document"].is_null()
    });
}

#[test]
fn a_host_that_only_read_takes_over_the_leases_of_the_one_that_wrote() {
    let mut cluster = Cluster::nodes(2);
    let reader = cluster.add_for(2);
    let list = |hosts: &[(&str, usize)]| -> Value {
        let host = |(mode, node): &(&str, usize)| json!({ "mode": mode, "weight": 1, "address": cluster.addresses[node - 1] });
        hosts.iter().map(host).collect()
    };
    let mut map = cluster.steady(1, 2, modulo(2));
    map["shards"][1] = list(&[("rw", 2), ("ro", reader)]);
    let mut next = cluster.steady(2, 2, modulo(2));
    next["shards"][1] = list(&[("rw", reader)]);
    cluster.put_map(&map);
    let ann = holder(&cluster, 1, "ann");
    let short = ann.take_for("write user/1", 2000);
    let spread = ann.take("write bill");
    follows(&cluster, reader, &ann, 3);
    cluster.kill(reader);
    cluster.restart(reader);
    // What it has on record of the lease ends, were it not for this.
    let ann = holder(&cluster, 1, "ann");
    assert_eq!(ann.renew(short.lock, &json!({ "ttl_ms": HOUR, "token": short.token })).status, 200);
    eventually("it would have ended", || {
        let shown = ann.store.get(&format!("locks/{}", short.lock));
        shown["age_ms"].as_u64().is_some_and(|age_ms| age_ms > 2100)
    });
    follows(&cluster, reader, &ann, 5);
    cluster.kill(2);
    cluster.put_map(&next);
    let bob = holder(&cluster, 1, "bob");
    is_blocked(&bob, 1, "ann");
    bob.is_refused("read bill/1");
    passes(&bob, 1, &[short.token, spread.token]);
    assert_eq!(ann.release_all().json()["leases"].as_array().unwrap().len(), 2);
    assert!(bob.take("write user/1").token > short.token);
    assert!(bob.take("write bill").token > spread.token);
}

pub(crate) fn reshard(cluster: &Cluster, len: usize) {
    let list = cluster.steady(1, len, modulo(1))["shards"].clone();
    let change = json!({ "list": list, "curr": modulo(len as u32) });
    cluster.store(1, "_system").post("shard/transition", &json!({ "do": "reshard", "change": change }));
    let status = || cluster.store(1, "_system").get("shard/transition");
    eventually_is("the resharding is over", status, |status| status["step"] == "none");
}

#[test]
fn a_shard_that_comes_back_has_nothing_of_what_it_had() {
    let cluster = Cluster::nodes(3);
    cluster.put_map(&cluster.steady(1, 3, modulo(3)));
    let (ann, bob, eve) =
        (holder(&cluster, 1, "ann"), holder(&cluster, 2, "bob"), holder(&cluster, 3, "eve"));
    // The last shard, so that the others have parts of what is waited for.
    let last = ann.take("write bill/2");
    thread::scope(|scope| {
        let bob = &bob;
        let taking = scope.spawn(move || bob.ask("write bill", HOUR, 60_000));
        eventually("parts are taken", || locks_in(&ann.store, "waiting").len() == 1);
        reshard(&cluster, 1);
        assert_eq!(ann.release(last.lock, &json!({ "token": last.token })).status, 200);
        let reply = taking.join().unwrap();
        assert!(reply.status == 200 || reply.status == 201, "{}", reply.body);
    });
    assert_eq!(bob.release_all().json()["leases"].as_array().unwrap().len(), 1);
    reshard(&cluster, 3);
    let list = cluster.store(1, "default").get("locks");
    assert_eq!(list["locks"], json!([]));
    eve.take("write bill");
}

/// Who has what, as the test sees it: never two at once.
#[derive(Default)]
pub(crate) struct Rooms {
    visitors: [AtomicUsize; 3],
    visits: AtomicUsize,
    pub(crate) closed: AtomicBool,
}

impl Rooms {
    pub(crate) fn visit(&self, kind: usize, work: impl FnOnce()) {
        assert_eq!(self.visitors[kind].fetch_add(1, Ordering::SeqCst), 0, "two have {kind}");
        work();
        self.visitors[kind].fetch_sub(1, Ordering::SeqCst);
        self.visits.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until a few more have been there.
    pub(crate) fn go_on(&self) {
        let before = self.visits.load(Ordering::SeqCst);
        eventually("others go on", || self.visits.load(Ordering::SeqCst) > before + 6);
    }
}

/// Takes and releases locks of three kinds in turn.
fn work(owner: &Leaseholder, number: u64, rooms: &Rooms) {
    let mut last = [0; 3];
    for kind in (0..3).cycle() {
        if rooms.closed.load(Ordering::SeqCst) {
            return;
        }
        let what = match kind {
            0 => "write user/6".to_owned(),
            1 => format!("write user/7, write user/{}", 8 + number),
            _ => "write order".to_owned(),
        };
        let reply = owner.ask(&what, HOUR, 60_000);
        assert!(reply.status == 201 || reply.status == 200, "{what}: {}", reply.body);
        let taken = Leased::from(&reply.json());
        assert!(taken.token > last[kind], "{what}: {taken:?} after {last:?}");
        last[kind] = taken.token;
        rooms.visit(kind, || {
            if kind < 2 {
                passes(owner, 6 + kind as u64, &[taken.token]);
            }
        });
        let reply = owner.release(taken.lock, &json!({ "token": taken.token }));
        assert_eq!(reply.status, 200, "{what}: {}", reply.body);
    }
}

#[test]
fn locks_go_on_while_the_cluster_grows_and_shrinks() {
    let cluster = Cluster::nodes(4);
    cluster.put_map(&cluster.steady(1, 2, modulo(2)));
    let ann = holder(&cluster, 1, "ann");
    let whats = ["write user/1", "write user/2", "write user/3, write user/4", "read bill", "write user/5/x"];
    let held: Vec<Leased> = whats.iter().map(|what| ann.take(what)).collect();
    let rooms = Rooms::default();
    thread::scope(|scope| {
        let worker = |number: u64| {
            let owner = holder(&cluster, number as usize % 2 + 1, &format!("worker{number}"));
            let rooms = &rooms;
            move || work(&owner, number, rooms)
        };
        let workers: Vec<_> = (0..4).map(|number| scope.spawn(worker(number))).collect();
        for len in [3, 4, 1, 2] {
            reshard(&cluster, len);
            rooms.go_on();
        }
        rooms.closed.store(true, Ordering::SeqCst);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    let bob = holder(&cluster, 2, "bob");
    let listed: Vec<Leased> = holder(&cluster, 2, "ann").locks().iter().map(Leased::from).collect();
    let mut expected = held.clone();
    expected.sort_by_key(|leased| leased.lock);
    assert_eq!(listed, expected);
    for key in 1..=4 {
        is_blocked(&bob, key, "ann");
    }
    bob.is_refused("write bill/9");
    assert_eq!(ann.release_all().json()["leases"].as_array().unwrap().len(), whats.len());
    let last = held.iter().map(|leased| leased.token).max().unwrap();
    for what in whats {
        assert!(bob.take(what).token > last);
    }
}

#[test]
fn locks_go_on_while_nodes_are_killed_and_keys_move() {
    let mut cluster = Cluster::nodes(3);
    cluster.put_map(&cluster.steady(1, 2, modulo(2)));
    let rooms = Arc::new(Rooms::default());
    let workers: Vec<_> = (0..3)
        .map(|number| {
            let (owner, rooms) = (holder(&cluster, 1, &format!("worker{number}")), Arc::clone(&rooms));
            thread::spawn(move || work(&owner, number, &rooms))
        })
        .collect();
    for len in [3, 2, 3] {
        let list = cluster.steady(1, len, modulo(1))["shards"].clone();
        let change = json!({ "list": list, "curr": modulo(len as u32) });
        cluster.store(1, "_system").post("shard/transition", &json!({ "do": "reshard", "change": change }));
        for node in [2, 3] {
            cluster.kill(node);
            cluster.restart(node);
            rooms.go_on();
        }
        eventually("the resharding is over", || {
            cluster.store(1, "_system").get("shard/transition")["step"] == "none"
        });
        rooms.go_on();
    }
    rooms.closed.store(true, Ordering::SeqCst);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert_eq!(holder(&cluster, 1, "x").store.get("locks")["locks"], json!([]));
}

/// A lock that has a part here gets another one, and a request that is being carried out is in the way of that one: what
/// is here stays.
#[test]
fn a_part_that_is_here_stays_while_another_one_cannot_come() {
    let cluster = Cluster::start(2, modulo(2));
    let (ann, bob) = (holder(&cluster, 1, "ann"), holder(&cluster, 1, "bob"));
    let held = ann.take("write bill/2, write user/1");
    let peer = |what: &str, epoch: &str, body: &Value| {
        let headers = [("lockwood-peer", PEER), ("lockwood-epoch", epoch)];
        let target = format!("/internal/{what}");
        http::send(cluster.node(1).native, "POST", &target, &headers, body.to_string().as_bytes())
    };
    let reads =
        json!({ "namespace": "default", "resources": resources("read user"), "tokens": [], "wait_ms": 0 });
    let hold = peer("hold", "1", &reads);
    assert_eq!(hold.status, 200, "{}", hold.body);
    let change = Change::new(2, 2, modulo(2), constant(1));
    change.prepare(&cluster);
    let exported = change.export(&cluster);
    let refused = peer("locks/import", "2", &together(&exported));
    assert_ne!(refused.status, 200, "{}", refused.body);
    bob.is_refused("write bill/2");
    assert_eq!(peer("release", "2", &hold.json()).status, 200);
    change.import(&cluster, &exported);
    change.reshard(&cluster);
    change.finish(&cluster);
    bob.is_refused("write bill/2");
    bob.is_refused("write user/1");
    assert_eq!(ann.release(held.lock, &json!({ "token": held.token })).status, 200);
    bob.take("write bill/2, write user/1");
}
