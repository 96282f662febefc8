//! Sessions on a cluster: their locks hold on every shard, and they re-attach through any node.

use crate::{
    cluster::{self, Cluster},
    harness::eventually,
    leaseholder::{HOUR, Leaseholder, locks_in},
    peer::{Held, Peer, assert_error},
    spread_nodes::modulo,
};
use serde_json::{Value, json};

fn start(shards: usize) -> Cluster {
    Cluster::start(shards, modulo(shards))
}

fn write(holder: &Leaseholder, key: u64, tokens: &[u64]) -> u16 {
    cluster::write(holder, key, tokens).status
}

#[test]
fn a_session_locks_on_every_shard_through_any_node() {
    let cluster = start(2);
    let (bob, mut ann) = (cluster.holder(2, "bob"), Peer::open(cluster.node(1), "ann"));
    for what in ["write user/1", "write user/2", "write user/1, write user/2", "write user", "write /"] {
        let held = ann.hold(what);
        bob.is_refused("write user");
        let keys: Vec<u64> =
            (1..=2).filter(|key| what.len() != 12 || what.ends_with(&key.to_string())).collect();
        for key in keys {
            assert_eq!(write(&bob, key, &[]), 423, "{what}");
            assert_eq!(write(&bob, key, &[held.token]), 200, "{what}");
        }
        ann.release(&held);
        assert_eq!(write(&bob, 1, &[held.token]), 409, "{what}");
        assert_error(&ann.ask(json!({ "type": "release", "lock": held.lock })), "unknown_lock");
    }
    bob.take("write user");
    let refused = ann.lock("write user/1", 0);
    assert_error(&refused, "locked");
    assert_eq!(refused["blockers"][0]["name"], "bob", "{refused}");
    assert_eq!(ann.lock("write user/1", 50)["type"], "queued");
    assert_error(&ann.next(), "timeout");
    ann.bye();
}

/// Once a client is told that a lock has ended, or has another token, no shard accepts the token that it had.
#[test]
fn a_token_is_over_when_its_client_is_told() {
    let cluster = start(2);
    let bob = cluster.holder(2, "bob");
    assert_eq!((write(&bob, 1, &[]), write(&bob, 2, &[])), (200, 200));
    for turn in 0..40 {
        let mut ann = Peer::open(cluster.node(1), "ann");
        let held = ann.hold("read user");
        let strong = ann.convert(&held, "write", 0);
        assert_eq!(strong["type"], "converted", "{strong}");
        for key in 1..=2 {
            assert_eq!(write(&bob, key, &[held.token]), 409, "turn {turn}: a superseded token");
        }
        ann.bye();
        for key in 1..=2 {
            assert_eq!(write(&bob, key, &[strong["token"].as_u64().unwrap()]), 409, "turn {turn}: after bye");
        }
    }
}

#[test]
fn a_session_is_queued_and_granted_in_turn() {
    let cluster = start(2);
    let (bob, mut ann) = (cluster.holder(2, "bob"), Peer::open(cluster.node(1), "ann"));
    for what in ["write user/1", "write user/1, write user/2", "write user"] {
        let held = bob.take("write user/1");
        let queued = ann.queue(what);
        assert_eq!(
            (&queued["place"], &queued["blockers"][0]["name"]),
            (&json!(1), &json!("bob")),
            "{queued}"
        );
        ann.still_waits(&queued["lock"]);
        assert_eq!(locks_in(&bob.store, "waiting").len(), 1);
        assert_eq!(bob.release(held.lock, &json!({ "owner": "bob" })).status, 200);
        let granted = ann.granted();
        assert_eq!(json!(granted.lock), queued["lock"], "{what}");
        assert!(granted.token > held.token);
        assert_eq!(ann.place(&json!(granted.lock))["place"], 0);
        ann.release(&granted);
    }
    // A wait can be cancelled, and keeps no other owner from what it waited for.
    let held = bob.take("write user/1");
    for end in ["cancel", "release"] {
        let queued = ann.queue("write user/1, write user/2");
        let answer = ann.ask(json!({ "type": end, "lock": queued["lock"] }));
        assert_ne!(answer["type"], "error", "{answer}");
        eventually("nothing waits", || locks_in(&bob.store, "waiting").is_empty());
        let free = bob.take("write user/2");
        assert_eq!(bob.release(free.lock, &json!({ "owner": "bob" })).status, 200);
    }
    assert_eq!(bob.release(held.lock, &json!({ "owner": "bob" })).status, 200);
    let held = ann.hold("read user/1");
    assert_error(&ann.ask(json!({ "type": "cancel", "lock": held.lock })), "already_granted");
    // Two locks for the same are two.
    let again = ann.hold("read user/1");
    assert_ne!(again.lock, held.lock);
    ann.release(&again);
    bob.is_refused("write user/1");
    ann.bye();
    bob.take("write user/1");
}

#[test]
fn a_wait_of_a_session_ends_with_its_connection() {
    let cluster = start(2);
    let (bob, mut ann) = (cluster.holder(2, "bob"), Peer::open(cluster.node(1), "ann"));
    bob.take("write user/1");
    ann.queue("write user/1, write user/2");
    bob.is_refused("write user/2");
    drop(ann);
    eventually("the other document is free", || bob.ask("write user/2", HOUR, 0).status == 201);
    assert_eq!(locks_in(&bob.store, "waiting").len(), 0);
}

#[test]
fn a_session_re_attaches_through_any_node() {
    let mut cluster = start(3);
    let mut ann = Peer::open(cluster.node(2), "ann");
    let (one, all) = (ann.hold("write user/1"), ann.hold("write bill"));
    let mut stranger = Peer::connect(cluster.node(1), "default");
    let wrong = json!({ "type": "attach", "session": ann.session, "secret": "00", "locks": [] });
    assert_error(&stranger.ask(wrong), "wrong_secret");
    let (mut again, welcome) = ann.attach(cluster.node(1), &json!([]));
    let found = numbers(&welcome);
    assert!(found.len() == 2 && found.contains(&one) && found.contains(&all), "{welcome}");
    drop(ann);
    let home = cluster.owner(cluster.home());
    let bob = cluster.holder(home, "bob");
    bob.is_refused("write user/1");
    again.release(&one);
    bob.take("write user/1");
    bob.is_refused("write bill/1");
    // The node with the connection is killed; the home stays.
    let (away, other) = (home % 3 + 1, (home + 1) % 3 + 1);
    let (killed, _) = again.attach(cluster.node(away), &json!([]));
    cluster.kill(away);
    let (mut third, welcome) = killed.attach(cluster.node(other), &json!([]));
    assert_eq!(numbers(&welcome), [all], "{welcome}");
    bob.is_refused("write bill/3");
    third.release(&all);
    bob.take("write bill");
    third.bye();
}

/// Takes a session up at another node, with the time it had.
fn take_up(cluster: &Cluster, node: usize, session: &Peer, abandon_timeout_ms: u64) -> Peer {
    let mut attach = session.attach_message(&json!([]));
    attach["abandon_timeout_ms"] = abandon_timeout_ms.into();
    let mut peer = Peer::connect(cluster.node(node), "default");
    let welcome = peer.greet(attach);
    assert_eq!(numbers(&welcome).len(), 2, "{welcome}");
    peer
}

/// That a lock is held until it is so old.
fn stays_until(bob: &Leaseholder, held: &Held, age_ms: u64) {
    let path = format!("locks/{}", held.lock);
    eventually("it is old enough", || {
        let shown = bob.store.get(&path);
        assert_eq!((&shown["state"], &shown["token"]), (&json!("granted"), &json!(held.token)), "{shown}");
        shown["age_ms"].as_u64().unwrap() > age_ms
    });
}

#[test]
fn a_connection_that_ends_late_releases_no_lock_of_its_successor() {
    let cluster = start(2);
    let bob = cluster.holder(1, "bob");
    for abandon_timeout_ms in [0, 400] {
        let mut ann = Peer::open_for(cluster.node(1), "ann", abandon_timeout_ms);
        let (one, all) = (ann.hold("write user/1"), ann.hold("write bill"));
        let second = take_up(&cluster, 2, &ann, abandon_timeout_ms);
        drop(ann);
        stays_until(&bob, &one, 1500);
        stays_until(&bob, &all, 1500);
        // One that does not end is told.
        let mut third = take_up(&cluster, 1, &second, abandon_timeout_ms);
        let mut second = second;
        assert_error(&second.next(), "replaced");
        stays_until(&bob, &all, 2500);
        third.release(&one);
        third.bye();
        bob.take("write bill");
        assert_eq!(bob.release_all().status, 200);
    }
}

/// A session whose node dies loses what it waits for.
#[test]
fn a_wait_of_a_session_ends_with_its_node() {
    let mut cluster = start(2);
    let carl = cluster.holder(1, "carl");
    for what in ["write user/1", "write user/2"] {
        // It owns no shard.
        let node = cluster.add();
        let bob = cluster.holder(2, "bob");
        bob.take(what);
        let mut ann = Peer::open(cluster.node(node), "ann");
        ann.queue("write user/1, write user/2");
        cluster.kill(node);
        eventually("ann has left the queue", || locks_in(&bob.store, "waiting").is_empty());
        let (_again, welcome) = ann.attach(cluster.node(1), &json!([]));
        assert_eq!(numbers(&welcome), []);
        assert_eq!(bob.release_all().status, 200);
        eventually("nothing is left of it", || carl.ask("write user/1, write user/2", HOUR, 0).status == 201);
        assert_eq!(carl.release_all().status, 200);
    }
}

fn numbers(welcome: &Value) -> Vec<Held> {
    let number = |value: &Value| value.as_u64().unwrap();
    let held = |lock: &Value| Held { lock: number(&lock["lock"]), token: number(&lock["token"]) };
    welcome["locks"].as_array().unwrap().iter().map(held).collect()
}

#[test]
fn a_replaced_connection_is_told_and_releases_nothing() {
    let cluster = start(2);
    let mut ann = Peer::open_for(cluster.node(1), "ann", 0);
    let held = ann.hold("write user/1");
    let (mut again, welcome) = ann.attach(cluster.node(1), &json!([]));
    assert_eq!(numbers(&welcome), [held]);
    assert_error(&ann.next(), "replaced");
    assert_eq!(ann.closed(), 4001);
    let bob = cluster.holder(2, "bob");
    bob.is_refused("write user/1");
    again.release(&held);
    bob.take("write user/1");
}

#[test]
fn an_abandoned_session_loses_its_locks() {
    let cluster = start(2);
    let bob = cluster.holder(2, "bob");
    for timeout_ms in [0, 300] {
        let mut ann = Peer::open_for(cluster.node(1), "ann", timeout_ms);
        ann.hold("write user/1, write user/2");
        bob.is_refused("write user/1");
        drop(ann);
        eventually("it is free again", || bob.ask("write user", HOUR, 0).status == 201);
        assert_eq!(bob.release_all().status, 200);
    }
}

#[test]
fn a_session_is_told_that_an_operator_released_its_lock() {
    let cluster = start(2);
    let mut ann = Peer::open(cluster.node(1), "ann");
    let held = ann.hold("write user");
    let bob = cluster.holder(2, "bob");
    let target = bob.store.target(&format!("locks/{}", held.lock));
    let ended = crate::http::request(bob.store.native, "DELETE", &target, &[]);
    assert_eq!(ended.status, 200, "{}", ended.body);
    bob.take("write user/1");
    let lost = ann.next_of("lost");
    assert_eq!((&lost["lock"], &lost["code"]), (&json!(held.lock), &json!("released_by_operator")), "{lost}");
}

#[test]
fn a_session_locks_on_a_shard_that_left_the_map_and_returned() {
    let cluster = start(3);
    cluster.begin_at_first("default");
    let ann = Peer::open(cluster.node(1), "ann");
    // Other connections follow while the third shard is not in the map.
    let (ann, _) = ann.attach(cluster.node(2), &json!([]));
    cluster.reshard(2, modulo(2));
    let (mut ann, _) = ann.attach(cluster.node(1), &json!([]));
    cluster.reshard(3, modulo(3));
    for what in ["read user/2", "read user/1, read user/2", "read user"] {
        let held = ann.hold(what);
        let converted = ann.convert(&held, "write", 0);
        assert_eq!(converted["type"], "converted", "{what}: {converted}");
        ann.release(&held);
    }
}
