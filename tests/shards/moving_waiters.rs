//! Whoever waits for a lock keeps its place in line while documents move, on however many shards the lock was, is, or
//! comes to be.

use crate::{
    cluster::Cluster,
    harness::eventually,
    http::Reply,
    leaseholder::{HOUR, Leased, Leaseholder, locks_in},
    moving_locks::{Change, constant, modulo, reshard},
    peer::Peer,
    store::Store,
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
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

/// Who was granted what, one after the other: each releases what it got before the next can have it.
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

/// A line that is waited in by threads.
struct Line {
    namespace: &'static str,
    grants: Grants,
    waiting: Vec<JoinHandle<Reply>>,
}

impl Line {
    fn new(namespace: &'static str) -> Line {
        Line { namespace, grants: Grants::default(), waiting: Vec::new() }
    }

    /// One more, asked for through a node; it stands in line when this is over.
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
        stands(&one, what);
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

/// Waits until an owner stands in line.
fn stands(owner: &Leaseholder, what: &str) {
    eventually(&format!("{} waits for {what}", owner.owner), || {
        let reply = owner.store.send("GET", &format!("locks?owner={}", owner.owner), "");
        let locks = reply.json()["locks"].clone();
        reply.status == 200 && locks.as_array().unwrap().iter().any(|lock| lock["place"].is_u64())
    });
}

/// Somebody holds everything there is to be had of each kind, and four wait for it.
struct Lines {
    held: Vec<Leased>,
    lines: Vec<Line>,
}

impl Lines {
    fn start(cluster: &Cluster, nodes: [usize; 4]) -> Lines {
        let (mut held, mut lines) = (Vec::new(), Vec::new());
        for (namespace, what) in KINDS {
            held.push(holder(cluster, 1, namespace, "ann").take(what));
            let mut line = Line::new(namespace);
            for (owner, node) in ["w1", "w2", "w3", "w4"].into_iter().zip(nodes) {
                line.add(cluster, node, owner, what);
            }
            lines.push(line);
        }
        Lines { held, lines }
    }

    /// One more in every line.
    fn add(&mut self, cluster: &Cluster, node: usize, owner: &str) {
        for ((_, what), line) in KINDS.iter().zip(&mut self.lines) {
            line.add(cluster, node, owner, what);
        }
    }

    #[track_caller]
    fn end(self, cluster: &Cluster, owners: &[&str]) {
        for (((namespace, what), line), held) in KINDS.iter().zip(self.lines).zip(self.held) {
            let waiting = locks_in(&holder(cluster, 1, namespace, "ann").store, "waiting");
            assert_eq!(waiting.len(), owners.len(), "{what}: {waiting:?}");
            let ann = holder(cluster, 1, namespace, "ann");
            let released = ann.release(held.lock, &json!({ "token": held.token }));
            assert_eq!(released.status, 200, "{what}: {}", released.body);
            line.ends(what, owners, held.token);
            eventually("nothing is left of it", || ann.store.get("locks")["locks"] == json!([]));
        }
    }
}

#[test]
fn lines_of_every_kind_stay_as_they_are() {
    let cluster = Cluster::nodes(3);
    cluster.put_map(&cluster.steady(1, 2, modulo(2)));
    let mut lines = Lines::start(&cluster, [1, 2, 1, 2]);
    reshard(&cluster, 3);
    lines.add(&cluster, 3, "late");
    reshard(&cluster, 2);
    lines.add(&cluster, 1, "later");
    lines.end(&cluster, &["w1", "w2", "w3", "w4", "late", "later"]);
}

#[test]
fn lines_stay_when_what_moved_is_granted_before_it_moves_back() {
    let cluster = Cluster::nodes(3);
    cluster.put_map(&cluster.steady(1, 2, modulo(2)));
    let mut lines = Lines::start(&cluster, [2, 2, 1, 1]);
    reshard(&cluster, 3);
    lines.add(&cluster, 2, "late");
    lines.end(&cluster, &["w1", "w2", "w3", "w4", "late"]);
}

#[test]
fn lines_stay_when_a_change_is_taken_back() {
    let cluster = Cluster::nodes(3);
    cluster.put_map(&cluster.steady(1, 2, modulo(2)));
    let mut lines = Lines::start(&cluster, [1, 2, 1, 2]);
    let change = Change::new(2, 3, modulo(2), modulo(3));
    change.prepare(&cluster);
    let exported = change.export(&cluster);
    change.import(&cluster, &exported);
    cluster.put_map(&cluster.steady(3, 3, modulo(2)));
    lines.add(&cluster, 2, "late");
    lines.end(&cluster, &["w1", "w2", "w3", "w4", "late"]);
}

#[test]
fn lines_stay_when_nodes_are_killed_while_they_are_taken_over() {
    let mut cluster = Cluster::nodes(3);
    cluster.put_map(&cluster.steady(1, 2, modulo(2)));
    let mut lines = Lines::start(&cluster, [1, 1, 1, 1]);
    let change = Change::new(2, 3, modulo(2), modulo(3));
    change.prepare(&cluster);
    let exported = change.export(&cluster);
    // Before anything came to it, and after that.
    cluster.kill(2);
    cluster.restart(2);
    change.import(&cluster, &exported);
    cluster.kill(3);
    cluster.restart(3);
    change.import(&cluster, &exported);
    change.reshard(&cluster);
    change.finish(&cluster);
    lines.add(&cluster, 3, "late");
    lines.end(&cluster, &["w1", "w2", "w3", "w4", "late"]);
}

/// Different locks that are in each other's way, in one line before the move and in several after it.
#[test]
fn different_locks_keep_their_order() {
    let cluster = Cluster::nodes(3);
    cluster.put_map(&cluster.steady(1, 2, modulo(2)));
    let held = holder(&cluster, 1, "default", "ann").take("write user");
    let mut line = Line::new("default");
    // All of these begin on shard 1, and each is in the way of the next.
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
        line.add(&cluster, number % 2 + 1, owner, what);
    }
    for len in [3, 1, 3, 2] {
        reshard(&cluster, len);
    }
    line.add(&cluster, 3, "late", "write user");
    assert_eq!(holder(&cluster, 2, "default", "ann").release_all().status, 200);
    let mut owners: Vec<&str> = owners.iter().map(String::as_str).collect();
    owners.push("late");
    line.ends("all", &owners, held.token);
}

/// What somebody had already of a lock that it waits for keeps others from it, also where it goes.
#[test]
fn what_is_half_taken_is_not_overtaken() {
    let cluster = Cluster::nodes(3);
    cluster.put_map(&cluster.steady(1, 2, modulo(2)));
    for (namespace, what) in [("a", "write user"), ("b", "write user/1, write user/2"), ("c", "write /")] {
        let held = holder(&cluster, 1, namespace, "ann").take("write user/1");
        let mut line = Line::new(namespace);
        // Bob has shard 1 and waits for shard 2; cid waits for bob.
        line.add(&cluster, 2, "bob", what);
        line.add(&cluster, 1, "cid", "write user/2");
        for len in [3, 1, 2] {
            reshard(&cluster, len);
            holder(&cluster, 2, namespace, "eve").is_refused("write user/2");
        }
        reshard(&cluster, 3);
        line.add(&cluster, 3, "dan", "write user/2");
        let released = holder(&cluster, 1, namespace, "ann").release_all();
        assert_eq!(released.status, 200, "{}", released.body);
        line.ends(what, &["bob", "cid", "dan"], held.token);
        reshard(&cluster, 2);
    }
}

/// Readers are granted together, and not before the writer that they stand behind.
#[test]
fn readers_stay_behind_the_writer_before_them() {
    let cluster = Cluster::nodes(3);
    cluster.put_map(&cluster.steady(1, 2, modulo(2)));
    let what = "user/2, read user/4";
    let ann = holder(&cluster, 1, "default", "ann");
    let held = ann.take(&format!("read {what}"));
    let mut line = Line::new("default");
    line.add(&cluster, 1, "writer", "write user/2, write user/4");
    let readers: Vec<JoinHandle<Reply>> = (1..=3)
        .map(|number| {
            let reader = holder(&cluster, 2, "default", &format!("reader{number}"));
            let (asks, asked) = (reader.clone(), format!("read {what}"));
            let waiting = thread::spawn(move || asks.ask(&asked, HOUR, WAIT));
            stands(&reader, what);
            waiting
        })
        .collect();
    reshard(&cluster, 3);
    assert_eq!(locks_in(&ann.store, "waiting").len(), 4);
    assert_eq!(ann.release_all().status, 200);
    line.waiting.drain(..).for_each(|writer| assert_eq!(writer.join().unwrap().status, 201));
    let mut last = line.grants.0.lock().unwrap()[0].1;
    assert!(last > held.token);
    for reader in readers {
        let reply = reader.join().unwrap();
        assert_eq!(reply.status, 201, "{}", reply.body);
        let token = Leased::from(&reply.json()).token;
        assert!(token > last);
        last = last.min(token);
    }
}

/// Nobody waits for the answer, but for those who look from time to time.
#[test]
fn a_lock_that_is_polled_keeps_its_place_and_its_number() {
    let cluster = Cluster::nodes(3);
    cluster.put_map(&cluster.steady(1, 2, modulo(2)));
    let mut waits = Vec::new();
    for (namespace, what) in KINDS {
        let held = holder(&cluster, 1, namespace, "ann").take(what);
        let (bob, cid) = (
            holder(&cluster, 1, namespace, "bob").queue(what),
            holder(&cluster, 2, namespace, "cid").queue(what),
        );
        waits.push((held, bob, cid));
    }
    reshard(&cluster, 3);
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
    reshard(&cluster, 2);
    reshard(&cluster, 3);
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

/// Nobody decides about what moves, but time goes on: what runs out then is the next one's.
#[test]
fn whoever_is_next_while_nobody_decides_gets_it_afterwards() {
    for back in [false, true] {
        let cluster = Cluster::nodes(3);
        cluster.put_map(&cluster.steady(1, 2, modulo(2)));
        let mut waits = Vec::new();
        for (namespace, what) in KINDS {
            let held = holder(&cluster, 1, namespace, "ann").take(what);
            let bob = holder(&cluster, 1, namespace, "bob").queue(what);
            let mut line = Line::new(namespace);
            line.add(&cluster, 2, "cid", what);
            waits.push((held, bob, line));
        }
        for ((namespace, what), (held, ..)) in KINDS.iter().zip(&waits) {
            let renewed = holder(&cluster, 2, namespace, "ann")
                .renew(held.lock, &json!({ "ttl_ms": 500, "token": held.token }));
            assert_eq!(renewed.status, 200, "{what}: {}", renewed.body);
        }
        let change = Change::new(2, 3, modulo(2), modulo(3));
        change.prepare(&cluster);
        let mut exported = Vec::new();
        eventually("everything has run out", || {
            exported = change.export(&cluster);
            exported.iter().all(|moving| moving["leases"] == json!([]))
        });
        change.import(&cluster, &exported);
        if back {
            cluster.put_map(&cluster.steady(3, 3, modulo(2)));
        } else {
            change.reshard(&cluster);
            change.finish(&cluster);
        }
        for ((namespace, what), (held, bob, line)) in KINDS.iter().zip(waits) {
            let ann = holder(&cluster, 3, namespace, "ann");
            eventually("bob has it", || ann.poll(bob, 10_000).json()["state"] == "granted");
            let token = ann.store.get(&format!("locks/{bob}"))["token"].as_u64().unwrap();
            assert!(token > held.token, "{what}");
            let left_ms = ann.store.get(&format!("locks/{bob}"))["expires_in_ms"].as_u64().unwrap();
            assert!(left_ms > HOUR / 2, "{what}: it is held for as long as was asked for, not {left_ms}");
            ann.is_refused(what);
            assert_eq!(ann.release(bob, &json!({ "token": token })).status, 200, "{what}");
            line.ends(what, &["cid"], token);
        }
    }
}

#[test]
fn a_session_keeps_its_place() {
    let cluster = Cluster::nodes(3);
    cluster.put_map(&cluster.steady(1, 2, modulo(2)));
    for (_, what) in KINDS {
        let ann = holder(&cluster, 1, "default", "ann");
        let held = ann.take(what);
        let (mut bob, mut cid) = (Peer::open(cluster.node(1), "bob"), Peer::open(cluster.node(2), "cid"));
        let (bobs, cids) = (bob.queue(what), cid.queue(what));
        reshard(&cluster, 3);
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
        reshard(&cluster, 2);
    }
}

/// A wait that is given up leaves nothing behind, wherever it had a place.
#[test]
fn a_wait_that_moved_can_be_given_up() {
    let cluster = Cluster::nodes(3);
    cluster.put_map(&cluster.steady(1, 2, modulo(2)));
    for (_, what) in KINDS {
        let ann = holder(&cluster, 1, "default", "ann");
        let held = ann.take(what);
        let mut bob = Peer::open(cluster.node(1), "bob");
        bob.queue(what);
        let carl = holder(&cluster, 2, "default", "carl");
        let lock = carl.queue(what);
        reshard(&cluster, 3);
        drop(bob);
        let released = carl.release(lock, &json!({ "owner": "carl" }));
        assert_eq!(released.status, 200, "{what}: {}", released.body);
        assert_eq!(ann.release(held.lock, &json!({ "token": held.token })).status, 200);
        eventually("nothing is left", || ann.store.get("locks")["locks"] == json!([]));
        reshard(&cluster, 2);
    }
}

/// The wait that is left goes on where it was, by the map that is in force again.
#[test]
fn lines_move_with_everything_to_another_shard_and_back() {
    let cluster = Cluster::start(3, constant(1));
    let mut lines = Lines::start(&cluster, [1, 2, 3, 1]);
    let functions: [Value; 5] = [constant(1), constant(2), modulo(3), constant(3), constant(1)];
    let mut epoch = 2;
    for pair in functions.windows(2) {
        Change::new(epoch, 3, pair[0].clone(), pair[1].clone()).run(&cluster);
        epoch += 4;
    }
    lines.add(&cluster, 2, "late");
    lines.end(&cluster, &["w1", "w2", "w3", "w4", "late"]);
}

/// A client that asks whether it could have what another of its processes waits for does not end that wait.
#[test]
fn asking_without_waiting_leaves_the_wait_for_the_same_alone() {
    let cluster = Cluster::start(2, modulo(2));
    for (_, what) in KINDS {
        let ann = holder(&cluster, 1, "default", "ann");
        let held = ann.take(what);
        let (bob, again) = (holder(&cluster, 1, "default", "bob"), holder(&cluster, 2, "default", "bob"));
        thread::scope(|scope| {
            let waits = scope.spawn(|| bob.ask(what, HOUR, 60_000));
            stands(&again, what);
            again.is_refused(what);
            assert_eq!(ann.release(held.lock, &json!({ "token": held.token })).status, 200);
            let reply = waits.join().unwrap();
            assert_eq!(reply.status, 201, "{what}: {}", reply.body);
        });
        assert_eq!(bob.release_all().status, 200, "{what}");
    }
}

/// What was said to stand in line does so when the map is in force, also if it was said while keys were about to move.
#[test]
fn what_is_polled_while_keys_are_about_to_move_stays_in_line() {
    let cluster = Cluster::nodes(3);
    cluster.put_map(&cluster.steady(1, 2, modulo(2)));
    let (ann, bob) = (holder(&cluster, 1, "default", "ann"), holder(&cluster, 1, "default", "bob"));
    let held = ann.take("write user/6");
    let change = Change::new(2, 3, modulo(2), modulo(3));
    let lock = thread::scope(|scope| {
        let body = json!({ "ttl_ms": HOUR, "wait_ms": 60_000, "poll_ms": 1_000 });
        let polled = scope.spawn(|| bob.ask_with("write user/6", body));
        stands(&bob, "write user/6");
        change.prepare(&cluster);
        let reply = polled.join().unwrap();
        assert_eq!(reply.status, 202, "{}", reply.body);
        reply.json()["lock"].clone()
    });
    let exported = change.export(&cluster);
    change.import(&cluster, &exported);
    change.reshard(&cluster);
    change.finish(&cluster);
    // Whoever would give it back does so when nothing moves any more.
    thread::sleep(Duration::from_millis(500));
    assert_eq!(ann.release(held.lock, &json!({ "token": held.token })).status, 200);
    let shown = ann.poll(lock.as_u64().unwrap(), 60_000).json();
    assert_eq!((&shown["state"], &shown["lock"]), (&json!("granted"), &lock), "{shown}");
}
