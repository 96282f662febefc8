//! Locks of sessions that get other modes, on documents of one shard, of several and of all, while keys move and nodes die.

use crate::{
    cluster::{self, Cluster},
    harness::eventually,
    leaseholder::{HOUR, Leased, Leaseholder, locks_in},
    peer::{Held, Peer, assert_error, resources},
    rooms::{Rooms, insist},
    spread_nodes::modulo,
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, atomic::Ordering},
    thread,
};

/// What is locked: a document of the second shard, documents of both, a collection, everything.
const KINDS: [&str; 4] = ["read user/1", "read user/1, read user/2", "read user", "read /"];

fn start(shards: usize) -> Cluster {
    Cluster::start(shards, modulo(shards))
}

fn write(holder: &Leaseholder, key: u64, tokens: &[u64]) -> u16 {
    let reply = cluster::write(holder, key, tokens);
    assert_ne!(reply.status, 503, "{}", reply.body);
    reply.status
}

/// The lock as it is from now on.
#[track_caller]
fn converted(answer: &Value, held: &Held) -> Held {
    assert_eq!((&answer["type"], &answer["lock"]), (&json!("converted"), &json!(held.lock)), "{answer}");
    Held { lock: held.lock, token: answer["token"].as_u64().unwrap() }
}

#[track_caller]
fn queued(peer: &mut Peer, held: &Held, mode: &str) -> Value {
    let answer = peer.convert(held, mode, "forever");
    assert_eq!((&answer["type"], &answer["lock"]), (&json!("queued"), &json!(held.lock)), "{answer}");
    answer
}

#[track_caller]
fn release(holder: &Leaseholder, leased: Leased) {
    assert_eq!(holder.release(leased.lock, &json!({ "token": leased.token })).status, 200);
}

/// That another owner may read this, so that nothing is stronger than it should be.
#[track_caller]
fn is_shared(cluster: &Cluster, what: &str) {
    let eve = cluster.holder(1, "eve");
    let leased = eve.take(what);
    release(&eve, leased);
}

/// The same, once what is under way is over.
fn becomes_shared(cluster: &Cluster, what: &str) {
    let eve = cluster.holder(1, "eve");
    eventually("nothing is stronger than it should be", || eve.ask(what, HOUR, 0).status == 201);
    assert_eq!(eve.release_all().status, 200);
}

#[test]
fn a_lock_gets_stronger_and_weaker() {
    let cluster = start(2);
    let (bob, mut ann) = (cluster.holder(2, "bob"), Peer::open(cluster.node(1), "ann"));
    for what in KINDS {
        let held = ann.hold(what);
        // A conversion that is refused changes nothing.
        let reads = bob.take("read user/1");
        let refused = ann.convert(&held, "write", 0);
        assert_error(&refused, "locked");
        assert_eq!(refused["blockers"][0]["name"], "bob", "{refused}");
        is_shared(&cluster, what);
        release(&bob, reads);
        let strong = converted(&ann.convert(&held, "write", 0), &held);
        assert!(strong.token > held.token, "{what}");
        bob.is_refused(what);
        for key in 1..=2 {
            if what.len() > 11 || key == 1 {
                assert_eq!(write(&bob, key, &[]), 423, "{what}");
                assert_eq!(write(&bob, key, &[held.token]), 409, "{what}");
                assert_eq!(write(&bob, key, &[strong.token]), 200, "{what}");
            }
        }
        let shown = bob.store.get(&format!("locks/{}", held.lock));
        assert_eq!((&shown["state"], &shown["token"]), (&json!("granted"), &json!(strong.token)), "{shown}");
        assert_eq!(shown["resources"][0]["mode"], "write", "{shown}");
        // What is the same already needs nothing.
        assert_eq!(converted(&ann.convert(&strong, "write", 0), &held), strong);
        let weak = converted(&ann.convert(&strong, "read", 0), &held);
        assert_eq!(weak.token, strong.token, "{what}");
        let reads = bob.take(what);
        release(&bob, reads);
        ann.release(&weak);
        assert_eq!(write(&bob, 1, &[strong.token]), 409, "{what}");
    }
    ann.bye();
}

#[test]
fn some_paths_of_a_lock_get_stronger_and_others_weaker() {
    let cluster = start(2);
    let (bob, mut ann) = (cluster.holder(2, "bob"), Peer::open(cluster.node(1), "ann"));
    let held = ann.hold("write user/1, read user/2, read user/3, read user/4");
    let ask = |what: &str, wait: u64| json!({ "type": "convert", "lock": held.lock, "resources": resources(what), "wait": wait });
    // Nothing becomes weaker either if something does not become stronger.
    let reads = bob.take("read user/4");
    assert_error(&ann.ask(ask("read user/1, write user/2, write user/4", 0)), "locked");
    bob.is_refused("read user/1");
    is_shared(&cluster, "read user/2");
    release(&bob, reads);
    let strong = converted(&ann.ask(ask("read user/1, write user/2, write user/4", 0)), &held);
    assert!(strong.token > held.token);
    is_shared(&cluster, "read user/1, read user/3");
    bob.is_refused("read user/2");
    bob.is_refused("read user/4");
    assert_eq!(write(&bob, 4, &[strong.token]), 200);
    let refused = ann.ask(ask("read user/1, write user/9", 0));
    assert_error(&refused, "no_such_resource");
    assert_error(&ann.ask(ask("link user/1", 0)), "bad_mode");
    assert_error(&ann.convert(&held, "strong", 0), "bad_mode");
    assert_error(&ann.ask(json!({ "type": "convert", "lock": held.lock })), "bad_message");
    assert_error(&ann.convert(&Held { lock: 77, token: 1 }, "write", 0), "unknown_lock");
    ann.release(&strong);
    assert_error(&ann.convert(&held, "write", 0), "unknown_lock");
    bob.take("write user/1, write user/2");
}

#[test]
fn a_conversion_waits_for_holders_only() {
    let cluster = start(2);
    let (bob, carl) = (cluster.holder(2, "bob"), cluster.holder(1, "carl"));
    let mut ann = Peer::open(cluster.node(1), "ann");
    for what in KINDS {
        let (held, reads) = (ann.hold(what), bob.take(what));
        carl.queue(&what.replace("read", "write"));
        let answer = queued(&mut ann, &held, "write");
        assert_eq!(answer["blockers"][0]["name"], "bob", "{answer}");
        assert_error(&ann.convert(&held, "write", "forever"), "already_converting");
        eventually("it is shown", || locks_in(&bob.store, "converting").len() == 1);
        let answer = ann.ask(json!({ "type": "cancel", "lock": held.lock }));
        assert_eq!((&answer["type"], &answer["held"]), (&json!("cancelled"), &json!(true)), "{answer}");
        assert_error(&ann.ask(json!({ "type": "cancel", "lock": held.lock })), "already_granted");
        assert_eq!(locks_in(&bob.store, "converting").len(), 0);
        queued(&mut ann, &held, "write");
        release(&bob, reads);
        let strong = converted(&ann.next(), &held);
        assert_eq!(locks_in(&bob.store, "waiting").len(), 1, "{what}");
        ann.release(&strong);
        eventually("carl is next", || carl.locks()[0]["state"] == "granted");
        assert!(carl.locks()[0]["token"].as_u64().unwrap() > strong.token);
        assert_eq!(carl.release_all().status, 200);
    }
}

#[test]
fn a_conversion_that_fails_changes_nothing() {
    let cluster = start(2);
    let bob = cluster.holder(2, "bob");
    let (mut ann, mut bea) = (Peer::open(cluster.node(1), "ann"), Peer::open(cluster.node(2), "bea"));
    for what in KINDS {
        let (held, other) = (ann.hold(what), bea.hold(what));
        assert_eq!(ann.convert(&held, "write", 50)["type"], "queued");
        assert_error(&ann.next(), "timeout");
        is_shared(&cluster, what);
        queued(&mut ann, &held, "write");
        let refused = bea.convert(&other, "write", "forever");
        assert_error(&refused, "deadlock");
        bea.release(&other);
        let strong = converted(&ann.next(), &held);
        // What it gives up is there for those who wait.
        let waits = bob.queue(what);
        assert_eq!(converted(&ann.convert(&strong, "read", 0), &held), strong);
        eventually("bob reads", || bob.locks()[0]["state"] == "granted");
        release(&bob, Leased::from(&bob.store.get(&format!("locks/{waits}"))));
        // Released while it waits.
        let other = bea.hold(what);
        queued(&mut ann, &held, "write");
        ann.release(&held);
        bea.release(&other);
        let all = bob.take(&what.replace("read", "write"));
        release(&bob, all);
    }
}

/// A session that re-attaches keeps what it waits for; one whose node dies loses that.
#[test]
fn a_conversion_waits_on_over_a_re_attachment_and_ends_with_its_node() {
    let mut cluster = start(2);
    // It owns no shard.
    let node = cluster.add();
    let bob = cluster.holder(2, "bob");
    let reads = bob.take("read user/1");
    let mut ann = Peer::open(cluster.node(1), "ann");
    let held = ann.hold("read user/1, read user/2");
    queued(&mut ann, &held, "write");
    let (again, welcome) = ann.attach(cluster.node(node), &json!([]));
    assert_eq!(welcome["locks"][0]["token"], held.token, "{welcome}");
    assert_error(&ann.next(), "replaced");
    assert_eq!(ann.closed(), 4001);
    assert_eq!(locks_in(&bob.store, "converting").len(), 1);
    cluster.kill(node);
    becomes_shared(&cluster, "read user/1, read user/2");
    let (mut last, welcome) = again.attach(cluster.node(1), &json!([]));
    assert_eq!(welcome["locks"][0]["token"], held.token, "{welcome}");
    // Nothing of what earlier connections asked for comes about.
    release(&bob, reads);
    let shown = bob.store.get(&format!("locks/{}", held.lock));
    assert_eq!(
        (&shown["token"], &shown["resources"][0]["mode"]),
        (&json!(held.token), &json!("read")),
        "{shown}"
    );
    last.release(&held);
    bob.take("write user/2");
}

#[test]
fn a_conversion_is_before_all_who_wait() {
    let cluster = start(2);
    let mut ann = Peer::open(cluster.node(1), "ann");
    for (bobs, what) in [("read user/2, write user/1", "user/1, read user/2"), ("write user", "user")] {
        let held = ann.hold(&format!("read {what}"));
        thread::scope(|scope| {
            let bob = cluster.holder(2, "bob");
            let asking = scope.spawn(move || {
                let reply = bob.ask(bobs, HOUR, 60_000);
                assert_eq!(reply.status, 201, "{}", reply.body);
                let all = Leased::from(&reply.json());
                release(&bob, all);
                all.token
            });
            let store = cluster.holder(1, "eve").store;
            eventually("bob waits", || locks_in(&store, "waiting").len() == 1);
            let strong = converted(&ann.convert(&held, "write", 0), &held);
            assert_eq!(locks_in(&store, "waiting").len(), 1, "{what}");
            let weak = converted(&ann.convert(&strong, "read", 0), &held);
            let strong = converted(&ann.convert(&weak, "write", "forever"), &held);
            ann.release(&strong);
            assert!(asking.join().unwrap() > strong.token, "{what}");
        });
    }
}

#[test]
fn pipelined_conversions_are_answered_in_order() {
    let cluster = start(2);
    for (node, what) in [(1, "read user/1, read user/3"), (2, "read user/1, read user/2")] {
        let mut ann = Peer::open(cluster.node(node), "ann");
        let held = ann.hold(what);
        for _ in 0..20 {
            let modes = ["write", "read", "update", "write", "read"];
            let ids: Vec<u64> = modes
                .iter()
                .map(|mode| {
                    ann.send(json!({ "type": "convert", "lock": held.lock, "mode": mode, "wait": 0 }))
                })
                .collect();
            for id in ids {
                let answer = ann.next();
                assert_eq!((&answer["type"], &answer["id"]), (&json!("converted"), &json!(id)), "{answer}");
            }
        }
        ann.release(&held);
        ann.bye();
    }
}

#[test]
fn a_conversion_waits_on_while_keys_move_and_owners_of_documents_restart() {
    let mut cluster = Cluster::start_on(3, 2, modulo(2));
    cluster.begin_at_first("default");
    cluster.store(1, "default").create("user", 1, json!({}));
    cluster.pin();
    let home = cluster.owner(cluster.home());
    let other = home % 3 + 1;
    let mut ann = Peer::open(cluster.node(home), "ann");
    for what in KINDS {
        let bob = cluster.holder(home, "bob");
        let (held, reads) = (ann.hold(what), bob.take("read user/1"));
        queued(&mut ann, &held, "write");
        for len in [3, 1, 2] {
            cluster.reshard(len, modulo(len));
            assert_eq!(bob.locks().len(), 1, "{what}");
        }
        cluster.kill(other);
        cluster.restart(other);
        release(&bob, reads);
        let strong = converted(&ann.next(), &held);
        assert!(strong.token > held.token.max(reads.token), "{what}");
        bob.is_refused(what);
        assert_eq!(write(&bob, 1, &[strong.token]), 200, "{what}");
        cluster.reshard(3, modulo(3));
        bob.is_refused(what);
        assert_eq!(write(&bob, 1, &[held.token]), 409, "{what}");
        assert_eq!(write(&bob, 1, &[strong.token]), 200, "{what}");
        cluster.reshard(2, modulo(2));
        ann.release(&strong);
        let all = bob.take(&what.replace("read", "write"));
        assert!(all.token > strong.token, "{what}");
        release(&bob, all);
    }
}

/// Reads together with others and then writes alone, on documents of one shard, of two and of all in turn.
fn work(mut peer: Peer, writer: &Leaseholder, number: u64, rooms: &Rooms) {
    let mut last = [0; 3];
    for kind in (0..3).cycle() {
        if rooms.closed.load(Ordering::SeqCst) {
            return peer.bye();
        }
        let what = [
            "read user/6".to_owned(),
            format!("read user/7, read user/{}", 8 + number),
            "read order".to_owned(),
        ];
        let mut answer = peer.lock(&what[kind], "forever");
        while answer["type"] == "queued" {
            answer = peer.next();
        }
        assert_eq!(answer["type"], "granted", "{answer}");
        let held = Held { lock: answer["lock"].as_u64().unwrap(), token: answer["token"].as_u64().unwrap() };
        let mut answer = peer.convert(&held, "write", "forever");
        while answer["type"] == "queued" {
            answer = peer.next();
        }
        if answer["type"] == "converted" {
            let token = converted(&answer, &held).token;
            assert!(token > held.token && token > last[kind], "{token} after {held:?} and {last:?}");
            last[kind] = token;
            rooms.visit(kind, || {
                if kind < 2 {
                    let reply = insist(|| cluster::write(writer, 6 + kind as u64, &[token]));
                    assert_eq!(reply.status, 200, "{}: {}", what[kind], reply.body);
                }
            });
        } else {
            assert_error(&answer, "deadlock");
        }
        peer.release(&held);
    }
}

#[test]
fn conversions_exclude_each_other_while_the_cluster_grows_and_shrinks() {
    let cluster = Cluster::start_on(4, 2, modulo(2));
    cluster.begin_at_first("default");
    let rooms = Rooms::default();
    thread::scope(|scope| {
        for number in 0..4u64 {
            let node = number as usize % 2 + 1;
            let peer = Peer::open(cluster.node(node), &format!("worker{number}"));
            let (writer, rooms) = (cluster.holder(node, "writer"), &rooms);
            scope.spawn(move || work(peer, &writer, number, rooms));
        }
        let _stop = rooms.close_at_end();
        for len in [3, 4, 1, 2] {
            cluster.reshard(len, modulo(len));
            rooms.go_on();
        }
    });
    assert_eq!(cluster.store(1, "default").get("locks")["locks"], json!([]));
}

/// Sessions are connected to the owner of their home; owners of other shards die meanwhile.
#[test]
fn conversions_exclude_each_other_while_owners_of_documents_are_killed_and_keys_move() {
    let mut cluster = Cluster::start_on(3, 2, modulo(2));
    cluster.store(1, "default").create("user", 1, json!({}));
    cluster.pin();
    let home = cluster.owner(cluster.home());
    let rooms = Arc::new(Rooms::default());
    let stop = rooms.close_at_end();
    let workers: Vec<_> = (0..3)
        .map(|number| {
            let peer = Peer::open(cluster.node(home), &format!("worker{number}"));
            let (writer, rooms) = (cluster.holder(home, "writer"), Arc::clone(&rooms));
            thread::spawn(move || work(peer, &writer, number, &rooms))
        })
        .collect();
    for len in [3, 2] {
        cluster.begin(len, modulo(len), None);
        for node in (1..=3).filter(|node| *node != home) {
            cluster.kill(node);
            cluster.restart(node);
            rooms.go_on();
        }
        cluster.await_end();
        rooms.go_on();
    }
    drop(stop);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert_eq!(cluster.store(1, "default").get("locks")["locks"], json!([]));
}
