//! Owners that wait for each other on different shards, which no shard sees by itself: one of them hears of it, and who
//! is in no ring waits in peace.

use crate::{
    cluster::Cluster,
    harness::{eventually, eventually_is},
    http::Reply,
    leaseholder::{HOUR, Leaseholder, locks_in},
    peer::{Held, Peer},
};
use serde_json::{Value, json};
use std::{thread, time::Duration};

/// Longer than anybody should have to wait here.
const PATIENCE_MS: u64 = 60_000;
/// By then everybody has looked whether it waits for itself.
const LOOKED: Duration = Duration::from_secs(4);

fn start(shards: usize) -> Cluster {
    Cluster::start(shards, json!({ "function": "modulo", "shards": shards }))
}

fn holder(cluster: &Cluster, node: usize, owner: &str) -> Leaseholder {
    Leaseholder::new(cluster.node(node), owner)
}

/// Everybody asks for something at once; whoever is refused because of the others gives back what it has, so that the
/// others get what they want. At least one is, and not all.
fn go_around(ring: &[(&Leaseholder, &str)]) {
    let turn = |(owner, what): &(&Leaseholder, &str)| -> bool {
        let reply = owner.ask(what, HOUR, PATIENCE_MS);
        match reply.status {
            201 => {}
            _ => is_a_ring(&reply, ring.len()),
        }
        assert_eq!(owner.release_all().status, 200);
        reply.status == 201
    };
    let got: Vec<bool> = thread::scope(|scope| {
        let turns: Vec<_> = ring.iter().map(|one| scope.spawn(move || turn(one))).collect();
        turns.into_iter().map(|turn| turn.join().unwrap()).collect()
    });
    assert!(got.contains(&false) && got.contains(&true), "{got:?}");
}

/// That a refusal names everybody in the ring, and says what to do.
#[track_caller]
fn is_a_ring(reply: &Reply, len: usize) {
    let problem = reply.assert_problem(409, "deadlock");
    let detail = problem["detail"].as_str().unwrap();
    assert_eq!(detail.matches(" waits for ").count(), len, "{detail}");
    assert!(detail.contains("\"ann\" waits for \"bob\" on user"), "{detail}");
    assert!(detail.contains("release a lock first"), "{detail}");
}

#[test]
fn two_that_wait_for_each_other_on_two_shards() {
    let cluster = start(2);
    let (ann, bob) = (holder(&cluster, 1, "ann"), holder(&cluster, 2, "bob"));
    ann.take("write user/1");
    bob.take("write user/2");
    go_around(&[(&ann, "write user/2"), (&bob, "write user/1")]);
    // The same if each wants something on both shards, and if one of them wants all there is.
    ann.take("write user/1");
    bob.take("write user/2");
    go_around(&[(&ann, "write user/2, read user/5"), (&bob, "write user/1, read user/4")]);
    ann.take("write user/1");
    bob.take("write user/2");
    go_around(&[(&ann, "write user/2"), (&bob, "write user")]);
    assert_eq!(locks_in(&ann.store, "granted"), Vec::<Value>::new());
}

#[test]
fn a_ring_of_three_on_three_shards() {
    let cluster = start(3);
    let (ann, bob, cid) =
        (holder(&cluster, 1, "ann"), holder(&cluster, 2, "bob"), holder(&cluster, 3, "cid"));
    ann.take("write user/1");
    bob.take("write user/2");
    cid.take("write user/3");
    go_around(&[(&ann, "write user/2"), (&bob, "write user/3"), (&cid, "read user/1")]);
}

#[test]
fn sessions_and_conversions_too() {
    let cluster = start(2);
    let (mut ann, mut bob) = (Peer::open(cluster.node(1), "ann"), Peer::open(cluster.node(2), "bob"));
    // Each waits for what the other reads, and neither document is with both of them.
    let (one, other) = (ann.hold("read user/1, read user/2"), bob.hold("read user/1, read user/2"));
    let ask = |peer: &mut Peer, held: &Held, what: &str| {
        let resources = crate::peer::resources(what);
        let id = peer
            .send(json!({ "type": "convert", "lock": held.lock, "resources": resources, "wait": "forever" }));
        let queued = peer.next();
        assert_eq!((&queued["type"], &queued["id"]), (&json!("queued"), &json!(id)), "{queued}");
    };
    ask(&mut ann, &one, "write user/1");
    ask(&mut bob, &other, "write user/2");
    let goes_on = |peer: &mut Peer, held: &Held| {
        let answer = peer.next();
        let is_refused = answer["type"] == "error";
        assert_eq!(
            answer[if is_refused { "code" } else { "type" }],
            if is_refused { "deadlock" } else { "converted" }
        );
        peer.release(held);
        is_refused
    };
    let refused = thread::scope(|scope| {
        let turns = [scope.spawn(|| goes_on(&mut ann, &one)), scope.spawn(|| goes_on(&mut bob, &other))];
        turns.map(|turn| turn.join().unwrap())
    });
    assert!(refused.contains(&true), "{refused:?}");
}

#[test]
fn who_is_in_no_ring_waits_in_peace() {
    let cluster = start(2);
    let ann = holder(&cluster, 1, "ann");
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
            let owner = holder(&cluster, number % 2 + 1, &format!("owner {number}"));
            scope.spawn(move || {
                let reply = owner.ask(what, HOUR, PATIENCE_MS);
                assert_eq!(reply.status, 201, "{what}: {}", reply.body);
                assert_eq!(owner.release_all().status, 200);
            });
        }
        eventually("all wait", || locks_in(&ann.store, "waiting").len() == wants.len());
        thread::sleep(LOOKED);
        assert_eq!(locks_in(&ann.store, "waiting").len(), wants.len());
        assert_eq!(ann.release(held.lock, &json!({ "token": held.token })).status, 200);
    });
}

/// Each shard gets what the other had, and while it does both have both, so that each sees the ring. Whoever is in it
/// waits for no answer at that moment.
#[test]
fn a_ring_that_a_move_brings_together() {
    let cluster = start(2);
    let (mut ann, mut bob) = (Peer::open(cluster.node(1), "ann"), Peer::open(cluster.node(2), "bob"));
    let (one, other) = (ann.hold("write user/1"), bob.hold("write user/10"));
    // Of two in a ring the one with the larger number goes.
    for _ in 0..10 {
        let held = ann.hold("read user/6");
        ann.release(&held);
    }
    let ask = |peer: &mut Peer, what: &str| {
        let resources = crate::peer::resources(what);
        peer.send(json!({ "type": "lock", "resources": resources, "wait": "forever" }));
        assert_eq!(peer.next()["type"], "queued");
    };
    ask(&mut bob, "write user/1");
    ask(&mut ann, "write user/10, write user/3");
    let swapped = json!({ "function": "range", "bounds": [{ "below": 10, "shard": 1 }, { "shard": 2 }] });
    let system = cluster.store(1, "_system");
    system.post("shard/transition", &json!({ "do": "reshard", "change": { "curr": swapped } }));
    let status = || system.get("shard/transition");
    eventually_is("the resharding is over", status, |status| status["step"] == "none");
    let refused = ann.next();
    assert_eq!((&refused["type"], &refused["code"]), (&json!("error"), &json!("deadlock")), "{refused}");
    ann.release(&one);
    assert_eq!(bob.next()["type"], "granted");
    bob.release(&other);
}
