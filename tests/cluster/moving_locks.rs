//! Locks of a namespace stay while its documents move to other shards: holders keep holding, waiters keep waiting.

use crate::{
    cluster::{Cluster, is_blocked, passes, write},
    harness::eventually,
    http::Reply,
    leaseholder::{HOUR, Leased, Leaseholder, locks_in},
    rooms::{Rooms, insist},
    spread_nodes::modulo,
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
};

pub(crate) fn constant(shard: u32) -> Value {
    json!({ "function": "constant", "shard": shard })
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
fn holders_and_waiters_stay_in_every_step_of_a_move() {
    let cluster = Cluster::start(2, constant(1));
    let (ann, bob, cid) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"), cluster.holder(1, "cid"));
    let held = ann.take("write user/1");
    let stays = ann.take("read user/3");
    let second = wait(&bob, "write user/1");
    eventually("bob waits", || locks_in(&bob.store, "waiting").len() == 1);
    let third = wait(&cid, "write user/1/name");
    eventually("cid waits", || locks_in(&bob.store, "waiting").len() == 2);
    let queued = cluster.holder(2, "dan").queue("read user/1");
    let steps: [fn(&Cluster); 3] =
        [|cluster| cluster.config(2, constant(2)), Cluster::drop_prev, Cluster::clean_up];
    for step in steps {
        step(&cluster);
        for node in 1..=2 {
            let other = cluster.holder(node, "eve");
            is_blocked(&other, 1, "ann");
            other.is_refused("read user/1");
            passes(&cluster.holder(node, "ann"), 1, &[held.token, stays.token]);
            let shown = other.store.get(&format!("locks/{}", held.lock));
            assert_eq!(Leased::from(&shown), held);
        }
        let again = bob.renew(held.lock, &json!({ "ttl_ms": HOUR, "token": held.token }));
        assert_eq!(again.status, 200, "{}", again.body);
        assert_eq!(locks_in(&bob.store, "waiting").len(), 3);
    }
    assert_eq!(ann.release_all().status, 200);
    let bobs = granted(second);
    assert!(bobs.token > held.token && bobs.token > stays.token, "{bobs:?}");
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
fn a_lock_on_several_documents_is_one_lock_wherever_they_move() {
    let cluster = Cluster::start(3, constant(1));
    let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"));
    let what = "write user/1, write user/2, write user/3, write user/4";
    let held = ann.take(what);
    let functions = [constant(1), modulo(3), modulo(2), constant(3), modulo(3), constant(1)];
    for pair in functions.windows(2) {
        cluster.reshard(3, pair[1].clone());
        for node in 1..=3 {
            let listed = cluster.holder(node, "ann").locks();
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
fn a_lock_on_a_collection_covers_shards_that_are_new() {
    let cluster = Cluster::start_on(3, 1, modulo(1));
    let ann = cluster.holder(1, "ann");
    let held = ann.take("write user");
    cluster.reshard(2, modulo(2));
    let bob = cluster.holder(2, "bob");
    for key in 1..=2 {
        is_blocked(&bob, key, "ann");
        bob.is_refused(&format!("read user/{key}"));
        passes(&bob, key, &[held.token]);
    }
    assert_eq!(bob.locks().len(), 0);
    assert_eq!(cluster.holder(2, "ann").locks().len(), 1);
    // One more that comes while bob waits for the collection, and goes while it is free.
    let waiting = wait(&bob, "write user");
    eventually("bob waits", || locks_in(&bob.store, "waiting").len() == 1);
    cluster.reshard(3, modulo(3));
    is_blocked(&bob, 2, "ann");
    assert_eq!(ann.release_all().status, 200);
    let bobs = granted(waiting);
    assert!(bobs.token > held.token);
    for key in 1..=3 {
        is_blocked(&ann, key, "bob");
        passes(&ann, key, &[bobs.token]);
    }
    // Shard 3 leaves the map while bob holds the lock, and comes back when it is released.
    cluster.reshard(2, modulo(2));
    assert_eq!(bob.release_all().status, 200);
    cluster.reshard(3, modulo(3));
    for key in 1..=3 {
        passes(&ann, key, &[]);
    }
    assert!(ann.take("write user").token > bobs.token);
}

#[test]
fn locks_stay_when_a_change_is_aborted() {
    let cluster = Cluster::start(2, constant(1));
    let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"));
    let held = ann.take("write user/1");
    let waiting = wait(&bob, "write user/1");
    eventually("bob waits", || locks_in(&bob.store, "waiting").len() == 1);
    cluster.config(2, constant(2));
    passes(&ann, 1, &[held.token]);
    cluster.abort();
    cluster.await_end();
    is_blocked(&bob, 1, "ann");
    passes(&bob, 1, &[held.token]);
    assert_eq!(locks_in(&bob.store, "waiting").len(), 1);
    assert_eq!(ann.release_all().status, 200);
    let bobs = granted(waiting);
    assert!(bobs.token > held.token);
    assert_eq!(bob.release_all().status, 200);
    // The other shard keeps nothing of what it knew meanwhile.
    cluster.reshard(2, constant(2));
    passes(&bob, 1, &[]);
    assert!(bob.take("write user/1").token > bobs.token);
}

/// Each owner is killed in each step, so that what it knew of locks comes from the home again.
#[test]
fn locks_hold_when_owners_are_killed_while_documents_move() {
    let mut cluster = Cluster::start(2, constant(1));
    let held = cluster.holder(1, "ann").take("write user/1");
    let spread = cluster.holder(1, "ann").take("write bill");
    let steps: [fn(&Cluster); 3] =
        [|cluster| cluster.config(2, constant(2)), Cluster::drop_prev, Cluster::clean_up];
    for step in steps {
        step(&cluster);
        for node in 1..=2 {
            cluster.kill(node);
            cluster.restart(node);
            let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"));
            is_blocked(&bob, 1, "ann");
            bob.is_refused("read bill/1");
            passes(&bob, 1, &[held.token, spread.token]);
            let listed: Vec<Leased> = ann.locks().iter().map(Leased::from).collect();
            assert_eq!(listed, [held, spread]);
        }
    }
    let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"));
    assert_eq!(ann.release_all().json()["leases"].as_array().unwrap().len(), 2);
    for what in ["write user/1", "write bill"] {
        assert!(bob.take(what).token > spread.token);
    }
}

#[test]
fn tokens_of_a_free_document_grow_when_it_moves() {
    let cluster = Cluster::start(2, constant(1));
    let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"));
    let mut last = 0;
    for _ in 0..20 {
        last = ann.take("write user/1").token;
        assert_eq!(ann.release_all().status, 200);
    }
    cluster.reshard(2, constant(2));
    let next = bob.take("write user/1");
    assert!(next.token > last, "{next:?} after {last}");
}

#[test]
fn a_shard_that_comes_back_has_none_of_the_locks_it_had() {
    let cluster = Cluster::start(3, modulo(3));
    cluster.begin_at_first("default");
    let (ann, bob, eve) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"), cluster.holder(3, "eve"));
    let held = ann.take("write bill/2");
    thread::scope(|scope| {
        let bob = &bob;
        let taking = scope.spawn(move || bob.ask("write bill", HOUR, 60_000));
        eventually("bob waits", || locks_in(&ann.store, "waiting").len() == 1);
        cluster.reshard(1, modulo(1));
        assert_eq!(ann.release(held.lock, &json!({ "token": held.token })).status, 200);
        let reply = taking.join().unwrap();
        assert_eq!(reply.status, 201, "{}", reply.body);
    });
    assert_eq!(bob.release_all().json()["leases"].as_array().unwrap().len(), 1);
    cluster.reshard(3, modulo(3));
    assert_eq!(cluster.store(1, "default").get("locks")["locks"], json!([]));
    eve.take("write bill");
    for key in 1..=3 {
        passes(&bob, key, &[]);
    }
}

/// Takes and releases locks of three kinds in turn, until it is told to stop.
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
        let reply = insist(|| owner.ask(&what, HOUR, 60_000));
        assert!(reply.status == 201 || reply.status == 200, "{what}: {}", reply.body);
        let taken = Leased::from(&reply.json());
        assert!(taken.token > last[kind], "{what}: {taken:?} after {last:?}");
        last[kind] = taken.token;
        rooms.visit(kind, || {
            if kind < 2 {
                let reply = insist(|| write(owner, 6 + kind as u64, &[taken.token]));
                assert_eq!(reply.status, 200, "{}", reply.body);
            }
        });
        let reply = insist(|| owner.release(taken.lock, &json!({ "token": taken.token })));
        // A release that was sent again may have been carried out the first time.
        assert!(reply.status == 200 || reply.status == 409, "{what}: {}", reply.body);
    }
}

#[test]
fn locks_exclude_each_other_while_the_cluster_grows_and_shrinks() {
    let cluster = Cluster::start_on(4, 2, modulo(2));
    cluster.begin_at_first("default");
    let ann = cluster.holder(1, "ann");
    let whats = ["write user/1", "write user/2", "write user/3, write user/4", "read bill", "write user/5/x"];
    let held: Vec<Leased> = whats.iter().map(|what| ann.take(what)).collect();
    let rooms = Rooms::default();
    thread::scope(|scope| {
        for number in 0..4u64 {
            let owner = cluster.holder(number as usize % 2 + 1, &format!("worker{number}"));
            let rooms = &rooms;
            scope.spawn(move || work(&owner, number, rooms));
        }
        let _stop = rooms.close_at_end();
        for len in [3, 4, 1, 2] {
            cluster.reshard(len, modulo(len));
            rooms.go_on();
        }
    });
    let bob = cluster.holder(2, "bob");
    let listed: Vec<Leased> = cluster.holder(2, "ann").locks().iter().map(Leased::from).collect();
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
fn locks_exclude_each_other_while_nodes_are_killed_and_keys_move() {
    let mut cluster = Cluster::start_on(3, 2, modulo(2));
    let rooms = Arc::new(Rooms::default());
    let stop = rooms.close_at_end();
    let workers: Vec<_> = (0..3)
        .map(|number| {
            let (owner, rooms) = (cluster.holder(1, &format!("worker{number}")), Arc::clone(&rooms));
            thread::spawn(move || work(&owner, number, &rooms))
        })
        .collect();
    for len in [3, 2, 3] {
        cluster.begin(len, modulo(len), None);
        for node in [2, 3] {
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
