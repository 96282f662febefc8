//! Owners that wait for each other's locks on documents of different shards: the request that closes the cycle is refused at
//! once, and requests in no cycle wait.

use crate::{
    cluster::Cluster,
    harness::eventually,
    leaseholder::{HOUR, Leaseholder, locks_in},
    peer::{Held, Peer, resources},
    spread_nodes::modulo,
};
use serde_json::{Value, json};
use std::{
    thread,
    time::{Duration, Instant},
};

const WAIT_MS: u64 = 60_000;
/// A cycle is found without waiting for anything.
const AT_ONCE: Duration = Duration::from_secs(10);

fn start(shards: usize) -> Cluster {
    Cluster::start(shards, modulo(shards))
}

/// Each owner but the last waits for what it asks for; the request of the last one closes the cycle and is refused. When
/// it has released its lock, the others get theirs in turn.
fn go_around(ring: &[(&Leaseholder, &str)]) {
    let (last, waiting) = ring.split_last().unwrap();
    thread::scope(|scope| {
        let mut turns = Vec::new();
        for (len, (owner, what)) in (1..).zip(waiting) {
            turns.push(scope.spawn(move || {
                let reply = owner.ask(what, HOUR, WAIT_MS);
                assert_eq!(owner.release_all().status, 200);
                reply.status
            }));
            eventually("the owner waits", || locks_in(&owner.store, "waiting").len() == len);
        }
        let begun = Instant::now();
        let problem = last.0.ask(last.1, HOUR, WAIT_MS).assert_problem(409, "deadlock");
        assert!(begun.elapsed() < AT_ONCE, "after {:?}", begun.elapsed());
        let detail = problem["detail"].as_str().unwrap();
        assert_eq!(detail.matches(" waits for ").count(), ring.len(), "{detail}");
        for (owner, _) in ring {
            assert!(detail.contains(&format!("{:?} waits for ", owner.owner)), "{detail}");
        }
        assert!(detail.contains("release a lock first"), "{detail}");
        assert_eq!(last.0.release_all().status, 200);
        assert!(turns.into_iter().all(|turn| turn.join().unwrap() == 201));
    });
}

#[test]
fn a_cycle_of_two_over_two_shards_is_refused() {
    let cluster = start(2);
    let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"));
    for (anns, bobs) in [
        ("write user/2", "write user/1"),
        // Each wants documents of both shards.
        ("write user/2, read user/5", "write user/1, read user/4"),
        // One of them wants a collection.
        ("write user/2", "write user"),
    ] {
        ann.take("write user/1");
        bob.take("write user/2");
        go_around(&[(&ann, anns), (&bob, bobs)]);
    }
    assert_eq!(locks_in(&ann.store, "granted"), Vec::<Value>::new());
}

#[test]
fn a_cycle_of_three_over_three_shards_is_refused() {
    let cluster = start(3);
    let (ann, bob, cid) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"), cluster.holder(3, "cid"));
    ann.take("write user/1");
    bob.take("write user/2");
    cid.take("write user/3");
    go_around(&[(&ann, "write user/2"), (&bob, "write user/3"), (&cid, "read user/1")]);
}

/// Each session waits for what the other one reads, and neither document is with both of them.
#[test]
fn a_cycle_of_conversions_of_sessions_is_refused() {
    let cluster = start(2);
    let (mut ann, mut bob) = (Peer::open(cluster.node(1), "ann"), Peer::open(cluster.node(2), "bob"));
    let (one, other) = (ann.hold("read user/1, read user/2"), bob.hold("read user/1, read user/2"));
    let convert = |peer: &mut Peer, held: &Held, what: &str| {
        peer.ask(
            json!({ "type": "convert", "lock": held.lock, "resources": resources(what), "wait": "forever" }),
        )
    };
    assert_eq!(convert(&mut ann, &one, "write user/1")["type"], "queued");
    let refused = convert(&mut bob, &other, "write user/2");
    assert_eq!(refused["code"], "deadlock", "{refused}");
    bob.release(&other);
    assert_eq!(ann.next()["type"], "converted");
    ann.release(&one);
}

#[test]
fn waiters_in_no_cycle_are_not_refused() {
    let cluster = start(2);
    let ann = cluster.holder(1, "ann");
    let held = ann.take("write user/1, write user/2");
    let wants = [
        "write user/1, write user/2",
        "write user/1",
        "write user/2",
        "write user",
        "read user/2, read user/1",
    ];
    thread::scope(|scope| {
        for (number, what) in wants.iter().enumerate() {
            let owner = cluster.holder(number % 2 + 1, &format!("owner {number}"));
            scope.spawn(move || {
                let reply = owner.ask(what, HOUR, WAIT_MS);
                assert_eq!(reply.status, 201, "{what}: {}", reply.body);
                assert_eq!(owner.release_all().status, 200);
            });
        }
        eventually("all wait", || locks_in(&ann.store, "waiting").len() == wants.len());
        assert_eq!(ann.release(held.lock, &json!({ "token": held.token })).status, 200);
    });
}
