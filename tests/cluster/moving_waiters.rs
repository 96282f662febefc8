//! Waiters keep their place in the queue while documents move, on however many shards the documents of a lock are before
//! and after that.

use crate::{
    cluster::Cluster,
    harness::eventually,
    http::Reply,
    leaseholder::{HOUR, Leased, Leaseholder, locks_in},
    moving_locks::constant,
    peer::Peer,
    spread_nodes::{Spread, modulo},
    store::Store,
};
use serde_json::json;
use std::{
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
};

/// A namespace of its own for every kind of lock, by what happens to it from two shards to three: key `n` goes from
/// shard `n % 2 + 1` to shard `n % 3 + 1`.
const KINDS: [(&str, &str); 9] = [
    ("one", "write user/2"),
    ("stays", "write user/1"),
    ("split", "write user/2, write user/4"),
    ("split-in-part", "write user/2, write user/12"),
    ("together", "write user/3, write user/6"),
    ("both", "write user/2, write user/3"),
    ("swapped", "write user/4, write user/9"),
    ("collection", "write user"),
    ("namespace", "write /"),
];

/// How long is waited; longer than any test takes.
const WAIT: u64 = 600_000;

fn holder(cluster: &Cluster, node: usize, namespace: &str, owner: &str) -> Leaseholder {
    Leaseholder { store: Store::new(cluster.node(node), namespace), owner: owner.to_owned() }
}

/// Owners and tokens in the order of their grants: each releases its lock before the next is granted.
#[derive(Default, Clone)]
struct Grants(Arc<Mutex<Vec<(String, u64)>>>);

impl Grants {
    fn note(&self, owner: &str, token: u64) {
        self.0.lock().unwrap().push((owner.to_owned(), token));
    }

    fn owners(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(owner, _)| owner.clone()).collect()
    }

    #[track_caller]
    fn assert(&self, what: &str, owners: &[&str], mut last: u64) {
        assert_eq!(self.owners(), owners, "{what}");
        for (owner, token) in &*self.0.lock().unwrap() {
            assert!(*token > last, "{what}: {owner} got {token} after {last}");
            last = *token;
        }
    }
}

/// A queue in which threads wait.
struct Queue {
    namespace: &'static str,
    grants: Grants,
    waiting: Vec<JoinHandle<Reply>>,
}

impl Queue {
    fn new(namespace: &'static str) -> Queue {
        Queue { namespace, grants: Grants::default(), waiting: Vec::new() }
    }

    /// One more waiter, which asks through a node; it is queued when this returns.
    fn add(&mut self, cluster: &Cluster, node: usize, owner: &str, what: &str) {
        let (one, grants) = (holder(cluster, node, self.namespace, owner), self.grants.clone());
        let (waiter, asked) = (one.clone(), what.to_owned());
        self.waiting.push(thread::spawn(move || {
            let reply = waiter.ask(&asked, HOUR, WAIT);
            if reply.status == 201 {
                let leased = Leased::from(&reply.json());
                grants.note(&waiter.owner, leased.token);
                let released = waiter.release(leased.lock, &json!({ "token": leased.token }));
                assert_eq!(released.status, 200, "{}", released.body);
            }
            reply
        }));
        is_queued(&one, what);
    }

    #[track_caller]
    fn ends(self, what: &str, owners: &[&str], last: u64) {
        for waiting in self.waiting {
            let reply = waiting.join().unwrap();
            assert_eq!(reply.status, 201, "{what}: {}", reply.body);
        }
        self.grants.assert(what, owners, last);
    }
}

/// Waits until an owner is queued.
fn is_queued(owner: &Leaseholder, what: &str) {
    eventually(&format!("{} waits for {what}", owner.owner), || {
        let reply = owner.store.send("GET", &format!("locks?owner={}", owner.owner), "");
        let locks = reply.json()["locks"].clone();
        reply.status == 200 && locks.as_array().unwrap().iter().any(|lock| lock["place"].is_u64())
    });
}

/// One owner holds a lock of each kind, and four wait for it.
struct Queues {
    held: Vec<Leased>,
    queues: Vec<Queue>,
}

impl Queues {
    fn start(cluster: &Cluster, nodes: [usize; 4]) -> Queues {
        let (mut held, mut queues) = (Vec::new(), Vec::new());
        for (namespace, what) in KINDS {
            held.push(holder(cluster, 1, namespace, "ann").take(what));
            let mut queue = Queue::new(namespace);
            for (owner, node) in ["w1", "w2", "w3", "w4"].into_iter().zip(nodes) {
                queue.add(cluster, node, owner, what);
            }
            queues.push(queue);
        }
        Queues { held, queues }
    }

    /// One more in every queue.
    fn add(&mut self, cluster: &Cluster, node: usize, owner: &str) {
        for ((_, what), queue) in KINDS.iter().zip(&mut self.queues) {
            queue.add(cluster, node, owner, what);
        }
    }

    #[track_caller]
    fn end(self, cluster: &Cluster, owners: &[&str]) {
        for (((namespace, what), queue), held) in KINDS.iter().zip(self.queues).zip(self.held) {
            let waiting = locks_in(&holder(cluster, 1, namespace, "ann").store, "waiting");
            assert_eq!(waiting.len(), owners.len(), "{what}: {waiting:?}");
            let ann = holder(cluster, 1, namespace, "ann");
            let released = ann.release(held.lock, &json!({ "token": held.token }));
            assert_eq!(released.status, 200, "{what}: {}", released.body);
            queue.ends(what, owners, held.token);
            eventually("nothing is left of it", || ann.store.get("locks")["locks"] == json!([]));
        }
    }
}

#[test]
fn queues_of_every_kind_stay_as_they_are() {
    let cluster = Cluster::start_on(3, 2, modulo(2));
    let mut queues = Queues::start(&cluster, [1, 2, 1, 2]);
    cluster.reshard(3, modulo(3));
    queues.add(&cluster, 3, "late");
    cluster.reshard(2, modulo(2));
    queues.add(&cluster, 1, "later");
    queues.end(&cluster, &["w1", "w2", "w3", "w4", "late", "later"]);
}

#[test]
fn queues_are_granted_in_order_after_a_move() {
    let cluster = Cluster::start_on(3, 2, modulo(2));
    let mut queues = Queues::start(&cluster, [2, 2, 1, 1]);
    cluster.reshard(3, modulo(3));
    queues.add(&cluster, 2, "late");
    queues.end(&cluster, &["w1", "w2", "w3", "w4", "late"]);
}

#[test]
fn queues_stay_when_a_change_is_aborted() {
    let cluster = Cluster::start_on(3, 2, modulo(2));
    let mut queues = Queues::start(&cluster, [1, 2, 1, 2]);
    cluster.config(3, modulo(3));
    cluster.abort();
    cluster.await_end();
    queues.add(&cluster, 2, "late");
    queues.end(&cluster, &["w1", "w2", "w3", "w4", "late"]);
}

/// A queue is in the memory of its home; owners of other shards come and go without it.
#[test]
fn queues_stay_when_owners_of_documents_are_killed_while_they_move() {
    let mut cluster = Cluster::start_on(3, 2, modulo(2));
    let what = "write user/1, write user/2";
    let held = cluster.holder(1, "ann").take(what);
    cluster.pin();
    let home = cluster.owner(cluster.home());
    let mut queue = Queue::new("default");
    ["w1", "w2", "w3"].iter().for_each(|owner| queue.add(&cluster, home, owner, what));
    cluster.begin(3, modulo(3), None);
    for node in (1..=3).filter(|node| *node != home) {
        cluster.kill(node);
        cluster.restart(node);
    }
    cluster.await_end();
    queue.add(&cluster, home % 3 + 1, "late", what);
    let released = cluster.holder(1, "ann").release(held.lock, &json!({ "token": held.token }));
    assert_eq!(released.status, 200, "{}", released.body);
    queue.ends(what, &["w1", "w2", "w3", "late"], held.token);
}

/// Each of these locks conflicts with the next.
#[test]
fn different_locks_keep_their_order() {
    let cluster = Cluster::start_on(3, 2, modulo(2));
    cluster.begin_at_first("default");
    let held = holder(&cluster, 1, "default", "ann").take("write user");
    let mut queue = Queue::new("default");
    let whats = [
        "write user/2, write user/4",
        "write user/2, write user/3",
        "write user",
        "write user/6/name, write user/1",
        "write user/6, write user/8",
        "write user/8",
        "write /",
        "write user/2",
        "write user/2/name, write user/3, write user/4",
    ];
    let owners: Vec<String> = (1..=whats.len()).map(|number| format!("w{number}")).collect();
    for (number, (owner, what)) in owners.iter().zip(whats).enumerate() {
        queue.add(&cluster, number % 2 + 1, owner, what);
    }
    for len in [3, 1, 3, 2] {
        cluster.reshard(len, modulo(len));
    }
    queue.add(&cluster, 3, "late", "write user");
    assert_eq!(holder(&cluster, 2, "default", "ann").release_all().status, 200);
    let mut owners: Vec<&str> = owners.iter().map(String::as_str).collect();
    owners.push("late");
    queue.ends("all", &owners, held.token);
}

/// A lock on several shards that waits for one of them is before later ones on the others.
#[test]
fn a_waiting_lock_on_several_shards_is_not_overtaken() {
    let cluster = Cluster::start_on(3, 2, modulo(2));
    for (namespace, what) in [("a", "write user"), ("b", "write user/1, write user/2"), ("c", "write /")] {
        cluster.begin_at_first(namespace);
        let held = holder(&cluster, 1, namespace, "ann").take("write user/1");
        let mut queue = Queue::new(namespace);
        // Bob waits for ann, cid waits for bob.
        queue.add(&cluster, 2, "bob", what);
        queue.add(&cluster, 1, "cid", "write user/2");
        for len in [3, 1, 2] {
            cluster.reshard(len, modulo(len));
            holder(&cluster, 2, namespace, "eve").is_refused("write user/2");
        }
        cluster.reshard(3, modulo(3));
        queue.add(&cluster, 3, "dan", "write user/2");
        let released = holder(&cluster, 1, namespace, "ann").release_all();
        assert_eq!(released.status, 200, "{}", released.body);
        queue.ends(what, &["bob", "cid", "dan"], held.token);
        cluster.reshard(2, modulo(2));
    }
}

/// Readers are granted together, and not before the writer ahead of them.
#[test]
fn readers_stay_behind_the_writer_before_them() {
    let cluster = Cluster::start_on(3, 2, modulo(2));
    let what = "user/2, read user/4";
    let ann = holder(&cluster, 1, "default", "ann");
    let held = ann.take(&format!("read {what}"));
    let mut queue = Queue::new("default");
    queue.add(&cluster, 1, "writer", "write user/2, write user/4");
    let readers: Vec<JoinHandle<Reply>> = (1..=3)
        .map(|number| {
            let reader = holder(&cluster, 2, "default", &format!("reader{number}"));
            let (asks, asked) = (reader.clone(), format!("read {what}"));
            let waiting = thread::spawn(move || asks.ask(&asked, HOUR, WAIT));
            is_queued(&reader, what);
            waiting
        })
        .collect();
    cluster.reshard(3, modulo(3));
    assert_eq!(locks_in(&ann.store, "waiting").len(), 4);
    assert_eq!(ann.release_all().status, 200);
    queue.waiting.drain(..).for_each(|writer| assert_eq!(writer.join().unwrap().status, 201));
    let mut last = queue.grants.0.lock().unwrap()[0].1;
    assert!(last > held.token);
    for reader in readers {
        let reply = reader.join().unwrap();
        assert_eq!(reply.status, 201, "{}", reply.body);
        let token = Leased::from(&reply.json()).token;
        assert!(token > last);
        last = last.min(token);
    }
}

#[test]
fn a_lock_that_is_polled_keeps_its_place_and_its_number() {
    let cluster = Cluster::start_on(3, 2, modulo(2));
    let mut waits = Vec::new();
    for (namespace, what) in KINDS {
        let held = holder(&cluster, 1, namespace, "ann").take(what);
        let (bob, cid) = (
            holder(&cluster, 1, namespace, "bob").queue(what),
            holder(&cluster, 2, namespace, "cid").queue(what),
        );
        waits.push((held, bob, cid));
    }
    cluster.reshard(3, modulo(3));
    for ((namespace, what), (_, bob, cid)) in KINDS.iter().zip(&waits) {
        for (lock, node) in [(bob, 3), (cid, 2)] {
            let shown = holder(&cluster, node, namespace, "x").poll(*lock, 0);
            assert_eq!(
                (shown.status, &shown.json()["state"]),
                (200, &json!("waiting")),
                "{what}: {}",
                shown.body
            );
        }
    }
    cluster.reshard(2, modulo(2));
    cluster.reshard(3, modulo(3));
    for ((namespace, what), (held, bob, cid)) in KINDS.iter().zip(waits) {
        let ann = holder(&cluster, 1, namespace, "ann");
        assert_eq!(ann.release_all().status, 200, "{what}");
        let mut last = held.token;
        for lock in [bob, cid] {
            let shown = ann.poll(lock, 60_000).json();
            assert_eq!(
                (&shown["state"], &shown["lock"]),
                (&json!("granted"), &json!(lock)),
                "{what}: {shown}"
            );
            let token = shown["token"].as_u64().unwrap();
            assert!(token > last, "{what}: {token} after {last}");
            last = token;
            assert_eq!(ann.release(lock, &json!({ "token": token })).status, 200, "{what}");
        }
    }
}

/// A lease that ends while its documents move is the next waiter's, for the whole time that it asked for.
#[test]
fn a_lease_that_ends_during_a_move_goes_to_the_next_waiter() {
    for back in [false, true] {
        let cluster = Cluster::start_on(3, 2, modulo(2));
        let mut waits = Vec::new();
        for (namespace, what) in KINDS {
            let held = holder(&cluster, 1, namespace, "ann").take(what);
            let bob = holder(&cluster, 1, namespace, "bob").queue(what);
            let mut queue = Queue::new(namespace);
            queue.add(&cluster, 2, "cid", what);
            waits.push((held, bob, queue));
        }
        for ((namespace, what), (held, ..)) in KINDS.iter().zip(&waits) {
            let renewed = holder(&cluster, 2, namespace, "ann")
                .renew(held.lock, &json!({ "ttl_ms": 500, "token": held.token }));
            assert_eq!(renewed.status, 200, "{what}: {}", renewed.body);
        }
        cluster.config(3, modulo(3));
        if back {
            cluster.abort();
            cluster.await_end();
        } else {
            cluster.drop_prev();
            cluster.clean_up();
        }
        for ((namespace, what), (held, bob, queue)) in KINDS.iter().zip(waits) {
            let ann = holder(&cluster, 3, namespace, "ann");
            eventually("bob has it", || ann.poll(bob, 10_000).json()["state"] == "granted");
            let token = ann.store.get(&format!("locks/{bob}"))["token"].as_u64().unwrap();
            assert!(token > held.token, "{what}");
            let left_ms = ann.store.get(&format!("locks/{bob}"))["expires_in_ms"].as_u64().unwrap();
            assert!(left_ms > HOUR / 2, "{what}: it is held for as long as was asked for, not {left_ms}");
            ann.is_refused(what);
            assert_eq!(ann.release(bob, &json!({ "token": token })).status, 200, "{what}");
            queue.ends(what, &["cid"], token);
        }
    }
}

#[test]
fn a_session_keeps_its_place_in_the_queue() {
    let cluster = Cluster::start_on(3, 2, modulo(2));
    for (_, what) in KINDS {
        let ann = holder(&cluster, 1, "default", "ann");
        let held = ann.take(what);
        let (mut bob, mut cid) = (Peer::open(cluster.node(1), "bob"), Peer::open(cluster.node(2), "cid"));
        let (bobs, cids) = (bob.queue(what), cid.queue(what));
        cluster.reshard(3, modulo(3));
        assert_eq!(ann.release(held.lock, &json!({ "token": held.token })).status, 200);
        let first = bob.granted();
        assert_eq!(json!(first.lock), bobs["lock"], "{what}");
        assert!(first.token > held.token);
        cid.still_waits(&cids["lock"]);
        bob.release(&first);
        let second = cid.granted();
        assert_eq!(json!(second.lock), cids["lock"], "{what}");
        assert!(second.token > first.token);
        bob.bye();
        cid.bye();
        cluster.reshard(2, modulo(2));
    }
}

#[test]
fn a_wait_can_be_cancelled_after_a_move() {
    let cluster = Cluster::start_on(3, 2, modulo(2));
    for (_, what) in KINDS {
        let ann = holder(&cluster, 1, "default", "ann");
        let held = ann.take(what);
        let mut bob = Peer::open(cluster.node(1), "bob");
        bob.queue(what);
        let carl = holder(&cluster, 2, "default", "carl");
        let lock = carl.queue(what);
        cluster.reshard(3, modulo(3));
        drop(bob);
        eventually("bob has left the queue", || locks_in(&ann.store, "waiting").len() == 1);
        let released = carl.release(lock, &json!({ "owner": "carl" }));
        assert_eq!(released.status, 200, "{what}: {}", released.body);
        assert_eq!(ann.release(held.lock, &json!({ "token": held.token })).status, 200);
        eventually("nothing is left", || ann.store.get("locks")["locks"] == json!([]));
        cluster.reshard(2, modulo(2));
    }
}

#[test]
fn queues_stay_when_all_documents_move_to_other_shards_and_back() {
    let cluster = Cluster::start(3, constant(1));
    let mut queues = Queues::start(&cluster, [1, 2, 3, 1]);
    for function in [constant(2), modulo(3), constant(3), constant(1)] {
        cluster.reshard(3, function);
    }
    queues.add(&cluster, 2, "late");
    queues.end(&cluster, &["w1", "w2", "w3", "w4", "late"]);
}

/// A request with a wait of 0 does not end the wait of another request of the same owner for the same lock.
#[test]
fn a_request_that_does_not_wait_leaves_the_same_ones_wait_alone() {
    let cluster = Cluster::start(2, modulo(2));
    for (_, what) in KINDS {
        let ann = holder(&cluster, 1, "default", "ann");
        let held = ann.take(what);
        let (bob, again) = (holder(&cluster, 1, "default", "bob"), holder(&cluster, 2, "default", "bob"));
        thread::scope(|scope| {
            let waits = scope.spawn(|| bob.ask(what, HOUR, 60_000));
            is_queued(&again, what);
            again.is_refused(what);
            assert_eq!(ann.release(held.lock, &json!({ "token": held.token })).status, 200);
            let reply = waits.join().unwrap();
            assert_eq!(reply.status, 201, "{what}: {}", reply.body);
        });
        assert_eq!(bob.release_all().status, 200, "{what}");
    }
}

/// What operations wait for is decided at the home; by the time they are let in, their document may be elsewhere.
#[test]
fn operations_that_wait_find_their_document_where_it_has_moved() {
    let spread = Spread::start(2, 2, modulo(2));
    let ann = Leaseholder { store: spread.store(1, "shop"), owner: "ann".to_owned() };
    // They move from shard 2 to shard 1 and the other way round.
    let keys = [1, 2];
    for key in keys {
        spread.store(1, "shop").create("user", key, json!({ "by": "nobody" }));
    }
    let held = ann.take("write user/1, write user/2");
    let ask = |node: usize, method: &'static str, target: String, body: &'static str| {
        let store = spread.store(node, "shop");
        thread::spawn(move || store.send(method, &target, body))
    };
    let waiting: Vec<_> = keys
        .iter()
        .flat_map(|key| (1..=2).map(move |node| (*key, node)))
        .map(|(key, node)| {
            let read = format!("documents/user/{key}?isolation=document&wait_ms=60000");
            let write = format!("documents/user/{key}/seen?wait_ms=60000");
            (key, ask(node, "GET", read, ""), ask(node, "PUT", write, "1"))
        })
        .collect();
    eventually("all wait", || locks_in(&ann.store, "waiting").len() == 8);
    spread.reshard(2, json!({ "function": "range", "bounds": [{ "below": 2, "shard": 1 }, { "shard": 2 }] }));
    for key in keys {
        let target = format!("documents/user/{key}?token={}", held.token);
        let written = spread.store(2, "shop").send("PUT", &target, r#"{"by":"ann"}"#);
        assert_eq!(written.status, 200, "{}", written.body);
    }
    assert_eq!(ann.release(held.lock, &json!({ "token": held.token })).status, 200);
    for (key, read, write) in waiting {
        let (read, write) = (read.join().unwrap(), write.join().unwrap());
        assert_eq!(read.status, 200, "user/{key}: {}", read.body);
        assert_eq!(read.json()["document"]["value"]["by"], "ann", "user/{key}: {}", read.body);
        assert_eq!(write.status, 200, "user/{key}: {}", write.body);
    }
}
