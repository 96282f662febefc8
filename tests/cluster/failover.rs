//! An owner that is killed, paused or stopped: another node takes over, and nothing that was acknowledged is missing.

use crate::{
    followers::await_follower,
    harness::eventually,
    http,
    leaseholder::{HOUR, Leaseholder},
    nodes::Nodes,
    peer::Peer,
    random::Random,
};
use lockwood_test_support::{Fault, Postgres, Proxy};
use serde_json::json;
use std::{
    io::Write,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

/// Far more than a takeover takes, and than a planned handoff: 5 s and 0.5 s by design.
const TAKEOVER_MAX: Duration = Duration::from_secs(20);
const HANDOFF_MAX: Duration = Duration::from_secs(15);

/// What was acknowledged before the owner ended, and has to be there afterwards.
fn fill(nodes: &Nodes, len: u64) {
    let stores: Vec<_> = nodes.running().map(|number| nodes.store(number)).collect();
    for key in 1..=len {
        stores[key as usize % stores.len()].create("user", key, json!({ "n": key }));
    }
}

fn all_there(nodes: &Nodes, len: u64) {
    for number in nodes.running() {
        let count = nodes.store(number).post("count", &json!({ "collection": "user" }));
        assert_eq!(count["count"], len, "on n{number}");
    }
}

#[test]
fn what_was_acknowledged_survives_the_kill_of_its_owner() {
    let mut nodes = Nodes::start(3);
    fill(&nodes, 60);
    let leased = Leaseholder::new(nodes.server(nodes.other()), "job").take_for("write user/7", 60_000);
    let owner = nodes.owner().unwrap();
    nodes.kill(owner);
    let killed = Instant::now();
    let other = nodes.running().next().unwrap();
    eventually("a write is acknowledged", || {
        nodes.store(other).send("PUT", "documents/user/1", r#"{"n":1}"#).status == 200
    });
    assert!(killed.elapsed() < TAKEOVER_MAX, "{:?}", killed.elapsed());
    let next = nodes.taken_over_from(owner);
    all_there(&nodes, 60);
    // The lease is held, by the same token.
    let store = nodes.store(next);
    let lock = http::request(store.native, "GET", &store.target(&format!("locks/{}", leased.lock)), &[]);
    assert_eq!((lock.status, &lock.json()["token"]), (200, &json!(leased.token)), "{}", lock.body);
    let by_token = format!("documents/user/7?token={}", leased.token);
    assert_eq!(store.send("PUT", &by_token, r#"{"n":8}"#).status, 200);
    let refused = store.send("PUT", "documents/user/7?wait_ms=0", r#"{"n":9}"#);
    assert_eq!(refused.status, 423, "{}", refused.body);
    // And the killed one comes back as another node of the cluster.
    nodes.up(owner);
    all_there(&nodes, 60);
}

/// The only node that is left has nothing but the log to become the owner by.
#[test]
fn a_takeover_needs_no_cache() {
    let mut nodes = Nodes::start(2);
    fill(&nodes, 20);
    let (owner, other) = (nodes.owner().unwrap(), nodes.other());
    await_follower(&nodes, other);
    let cache = nodes.server(other).data().join("shard-1");
    nodes.stop(other);
    std::fs::remove_dir_all(&cache).unwrap();
    nodes.kill(owner);
    nodes.up(other);
    nodes.taken_over_from(owner);
    all_there(&nodes, 20);
    assert!(cache.exists(), "it has a cache of its own again");
}

/// The owner is stopped by a signal for longer than its ownership lasts, and goes on as if nothing had happened.
#[test]
fn a_paused_owner_neither_writes_nor_answers_when_it_goes_on() {
    let nodes = Nodes::start(3);
    fill(&nodes, 5);
    let (owner, other) = (nodes.owner().unwrap(), nodes.other());
    nodes.server(owner).signal("-STOP");
    // A request that the paused owner got, and never answers, is done by the next one.
    let position = nodes.store(other).create("user", 6, json!({ "n": 6 }));
    assert_eq!(position, 6);
    nodes.server(owner).signal("-CONT");
    // The first thing that it is asked when it goes on.
    let found = nodes.store(owner).send("GET", "documents/user/6", "");
    assert_eq!((found.status, &found.json()["document"]["value"]["n"]), (200, &json!(6)), "{}", found.body);
    assert_ne!(nodes.owner(), Some(owner));
    nodes.store(owner).create("user", 7, json!({ "n": 7 }));
    all_there(&nodes, 7);
}

/// No other node takes the shard, so the paused owner goes on with what it had.
#[test]
fn the_time_of_a_lease_stands_still_while_its_owner_is_paused() {
    let nodes = Nodes::start(1);
    let holder = Leaseholder::new(nodes.server(1), "job");
    let leased = holder.take_for("write user/7", 10_000);
    let epoch = || nodes.status(1)["shards"][0]["epoch"].clone();
    let before = epoch();
    nodes.server(1).signal("-STOP");
    // Longer than the lease lasts.
    thread::sleep(Duration::from_secs(11));
    nodes.server(1).signal("-CONT");
    eventually("it serves again", || holder.poll(leased.lock, 0).status != 503);
    let renewed = holder.renew(leased.lock, &json!({ "ttl_ms": HOUR, "token": leased.token }));
    assert_eq!(renewed.status, 200, "{}", renewed.body);
    assert_eq!(epoch(), before, "it is the same ownership");
    let refused = nodes.store(1).send("PUT", "documents/user/7?wait_ms=0", "{}");
    refused.assert_problem(423, "locked");
}

#[test]
fn the_time_of_a_lease_stands_still_while_the_database_is_away() {
    let postgres = Postgres::shared();
    let database = postgres.create_database();
    let proxy = Proxy::start(postgres.port());
    let nodes = Nodes::start_on(&postgres.url(&database, proxy.port()), 1);
    let holder = Leaseholder::new(nodes.server(1), "job");
    let leased = holder.take_for("write user/7", 6_000);
    proxy.set(Fault::Refuse);
    // Longer than the lease lasts. The owner goes on running, and looks again and again.
    thread::sleep(Duration::from_secs(9));
    proxy.set(Fault::None);
    eventually("it serves again", || holder.poll(leased.lock, 0).status != 503);
    let renewed = holder.renew(leased.lock, &json!({ "ttl_ms": HOUR, "token": leased.token }));
    assert_eq!(renewed.status, 200, "{}", renewed.body);
    let refused = nodes.store(1).send("PUT", "documents/user/7?wait_ms=0", "{}");
    refused.assert_problem(423, "locked");
}

#[test]
fn a_session_keeps_its_lock_over_a_takeover() {
    let mut nodes = Nodes::start(3);
    let (owner, other) = (nodes.owner().unwrap(), nodes.other());
    let mut ann = Peer::open_for(nodes.server(other), "ann", 30_000);
    let held = ann.ask(json!({ "type": "lock", "resources": [{ "path": "user/42", "mode": "write" }] }));
    let lock = json!([{ "lock": held["lock"], "token": held["token"],
        "resources": [{ "path": ["user", "42"], "mode": "write" }] }]);
    nodes.kill(owner);
    // The tunnel ends with the owner.
    assert_eq!(ann.try_next(), None);
    nodes.taken_over_from(owner);
    let (_ann, welcome) = ann.attach(nodes.server(other), &lock);
    assert_eq!(welcome["locks"][0]["token"], held["token"], "{welcome}");
    // No other client gets it.
    let refused = nodes.store(other).send("PUT", "documents/user/42?wait_ms=0", "{}");
    assert!([423, 503].contains(&refused.status), "{}", refused.body);
}

/// A planned stop notes who holds locks, so grace lasts until all of them are back, and no longer.
#[test]
fn grace_after_a_planned_handoff_ends_when_all_sessions_are_back() {
    let mut nodes = Nodes::start(3);
    let (owner, other) = (nodes.owner().unwrap(), nodes.other());
    let hold = |name: &str, path: &str| {
        let mut peer = Peer::open_for(nodes.server(other), name, 300_000);
        let held = peer.hold(&format!("write {path}"));
        (peer, json!([held.reclaim(&format!("write {path}"))]))
    };
    let ((ann, of_ann), (bob, of_bob)) = (hold("ann", "user/1"), hold("bob", "user/2"));
    assert_eq!(nodes.stop(owner), Some(0));
    nodes.taken_over_from(owner);
    let store = nodes.store(other);
    let put = |key: u64| store.send("PUT", &format!("documents/user/{key}?wait_ms=0"), "{}");
    let (_ann, welcome) = ann.attach(nodes.server(other), &of_ann);
    assert_eq!(welcome["locks"].as_array().unwrap().len(), 1, "{welcome}");
    put(3).assert_problem(503, "grace_period");
    let (_bob, welcome) = bob.attach(nodes.server(other), &of_bob);
    assert_eq!(welcome["locks"].as_array().unwrap().len(), 1, "{welcome}");
    eventually("the grace period is over", || put(3).status == 200);
    put(1).assert_problem(423, "locked");
    put(2).assert_problem(423, "locked");
}

#[test]
fn tokens_grow_over_takeovers() {
    let mut nodes = Nodes::start(2);
    let mut last = 0;
    for _ in 0..3 {
        let holder = Leaseholder::new(nodes.server(nodes.other()), "job");
        let leased = holder.take_for("write user/1", 60_000);
        assert!(leased.token > last, "{} after {last}", leased.token);
        last = leased.token;
        assert_eq!(holder.unlock("write user/1").status, 200);
        let owner = nodes.owner().unwrap();
        nodes.kill(owner);
        nodes.taken_over_from(owner);
        nodes.up(owner);
    }
}

#[test]
fn a_planned_stop_hands_off_before_the_node_ends() {
    let mut nodes = Nodes::start(2);
    fill(&nodes, 10);
    let owner = nodes.owner().unwrap();
    assert_eq!(nodes.stop(owner), Some(0));
    // The node said goodbye, so nothing has to become stale before the other one takes over.
    let begun = Instant::now();
    all_there(&nodes, 10);
    assert!(begun.elapsed() < HANDOFF_MAX, "{:?}", begun.elapsed());
    let next = nodes.taken_over_from(owner);
    nodes.store(next).create("user", 11, json!({ "n": 11 }));
}

/// A lease with a time that is over long before another node has taken over: its holder could not renew it meanwhile.
#[test]
fn a_takeover_gives_every_lease_its_full_time_again() {
    let mut nodes = Nodes::start(2);
    let (owner, other) = (nodes.owner().unwrap(), nodes.other());
    let leased = Leaseholder::new(nodes.server(other), "job").take_for("write user/7", 2_000);
    nodes.kill(owner);
    nodes.taken_over_from(owner);
    let store = nodes.store(other);
    let lock = http::request(store.native, "GET", &store.target(&format!("locks/{}", leased.lock)), &[]);
    assert_eq!((lock.status, &lock.json()["token"]), (200, &json!(leased.token)), "{}", lock.body);
    // And then it ends, as no one renews it.
    eventually("the lease ends", || {
        http::request(store.native, "GET", &store.target(&format!("locks/{}", leased.lock)), &[]).status
            == 404
    });
    let lost = store.send("PUT", &format!("documents/user/7?token={}", leased.token), "{}");
    assert_eq!(lost.json()["code"], "lock_lost", "{}", lost.body);
}

#[test]
fn an_operator_drains_a_node_and_moves_a_shard() {
    let mut nodes = Nodes::start(3);
    fill(&nodes, 5);
    let owner = nodes.owner().unwrap();
    let change = |method: &str, target: &str| {
        let reply = http::send(nodes.server(1).native, method, &format!("/v1/cluster/{target}"), &[], b"");
        assert_eq!(reply.status, 200, "{target}: {}", reply.body);
    };
    change("PUT", &format!("nodes/n{owner}/drain"));
    let next = nodes.taken_over_from(owner);
    let third = (1..=3).find(|number| ![owner, next].contains(number)).unwrap();
    change("PUT", &format!("shards/1/owner/n{third}"));
    eventually("the shard is moved", || nodes.owner() == Some(third));
    all_there(&nodes, 5);
    // It comes back to the node that it is pinned to.
    nodes.kill(third);
    nodes.taken_over_from(third);
    nodes.up(third);
    eventually("the shard comes back", || nodes.owner() == Some(third));
    all_there(&nodes, 5);
    for (target, code) in [("nodes/nobody/drain", "no_node"), ("shards/7/owner/n1", "no_shard")] {
        let reply = http::send(nodes.server(1).native, "PUT", &format!("/v1/cluster/{target}"), &[], b"");
        assert_eq!(reply.json()["code"], code, "{}", reply.body);
    }
}

/// Has a node own the shard.
fn move_to(nodes: &Nodes, number: usize) {
    let target = format!("/v1/cluster/shards/1/owner/n{number}");
    let asked = nodes.running().next().unwrap();
    let reply = http::send(nodes.server(asked).native, "PUT", &target, &[], b"");
    assert_eq!(reply.status, 200, "{}", reply.body);
    eventually("the shard is moved", || nodes.owner() == Some(number));
}

/// Ownership goes to and fro, and leases are renewed, released and granted by the owner between.
#[test]
fn an_owner_that_returns_goes_by_what_became_of_locks() {
    let nodes = Nodes::start(2);
    let (first, second) = (nodes.owner().unwrap(), nodes.other());
    let holder = |owner| Leaseholder::new(nodes.server(second), owner);
    let (ann, bob) = (holder("ann"), holder("bob"));
    let renewed = ann.take_for("write user/1", 3_000);
    let released = ann.take("write user/2");
    move_to(&nodes, second);
    assert_eq!(ann.renew(renewed.lock, &json!({ "token": renewed.token, "ttl_ms": HOUR })).status, 200);
    assert_eq!(ann.release(released.lock, &json!({ "token": released.token })).status, 200);
    let next = bob.take("write user/2");
    eventually("the first time of the lease is over", || {
        ann.store.get(&format!("locks/{}", renewed.lock))["age_ms"].as_u64().unwrap() > 3_000
    });
    move_to(&nodes, first);
    bob.is_refused("write user/1");
    ann.is_refused("write user/2");
    let again = ann.renew(renewed.lock, &json!({ "token": renewed.token, "ttl_ms": HOUR }));
    assert_eq!(again.status, 200, "{}", again.body);
    assert_eq!(bob.release(next.lock, &json!({ "token": next.token })).status, 200);
    let now = ann.take("write user/2");
    assert!(now.token > next.token && now.lock > next.lock, "{now:?} after {next:?}");
}

#[test]
fn a_node_that_is_killed_during_a_planned_move_loses_nothing() {
    let mut nodes = Nodes::start(2);
    let seed = 0x5eed_0006;
    println!("seed {seed:x}");
    let mut random = Random(seed);
    for round in 1..=4 {
        let (owner, other) = (nodes.owner().unwrap(), nodes.other());
        let puts: Vec<_> = (1..=30)
            .map(|key| json!({ "type": "put", "collection": "user", "key": key, "fields": { "v": round } }))
            .collect();
        nodes.store(other).write(puts.into());
        let victim = [owner, other][random.below(2) as usize];
        let native = nodes.server(1).native;
        let asking = thread::spawn(move || {
            let target = format!("/v1/cluster/shards/1/owner/n{other}");
            // The one that is asked may be the one that is killed.
            let mut tcp = TcpStream::connect(native).unwrap();
            let _ = write!(tcp, "PUT {target} HTTP/1.1\r\nhost: {native}\r\ncontent-length: 0\r\n\r\n");
            tcp
        });
        thread::sleep(Duration::from_millis(random.below(120)));
        nodes.kill(victim);
        drop(asking.join().unwrap());
        nodes.up(victim);
        for reader in [1, 2] {
            for key in 1..=30 {
                let found = nodes.store(reader).get(&format!("documents/user/{key}"));
                assert_eq!(found["document"]["value"]["v"], round, "{key} through n{reader}: {found}");
            }
        }
        eventually("the shard has an owner", || nodes.owner().is_some());
    }
}

/// A request that waits, an answer that is read slowly and a body that never ends keep no node from owning the shard again.
#[test]
fn what_clients_have_under_way_keeps_no_shard_from_being_served() {
    let mut nodes = Nodes::start(2);
    fill(&nodes, 5);
    let (owner, other) = (nodes.owner().unwrap(), nodes.other());
    let leased = Leaseholder::new(nodes.server(owner), "job").take_for("write user/1", 60_000);
    let waiter = {
        let store = nodes.store(owner);
        thread::spawn(move || store.send("PUT", "documents/user/1?wait_ms=60000", r#"{"n":9}"#))
    };
    let mut slow = TcpStream::connect(nodes.server(owner).native).unwrap();
    slow.write_all(b"POST /v1/default/write HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        .unwrap();
    let (namespace, path) = ("default", "locks?state=waiting");
    eventually("the writer waits", || {
        let target = format!("/v1/{namespace}/{path}");
        http::request(nodes.server(owner).native, "GET", &target, &[]).body.contains("waiting")
    });
    nodes.server(owner).signal("-STOP");
    eventually("the other node takes over", || nodes.owner_by(other) == Some(other));
    nodes.server(owner).signal("-CONT");
    // The first node serves again, though the slow client is still there.
    nodes.kill(other);
    eventually("the first node serves again", || {
        nodes.store(owner).send("GET", "documents/user/5", "").status == 200
    });
    let refused = nodes.store(owner).send("PUT", "documents/user/1?wait_ms=0", "{}");
    assert_eq!(refused.status, 423, "{}", refused.body);
    let by_token = format!("documents/user/1?token={}", leased.token);
    assert_eq!(nodes.store(owner).send("PUT", &by_token, r#"{"n":1}"#).status, 200);
    // What waited is sent again to each owner and waits there, unless there was none for too long.
    assert_eq!(Leaseholder::new(nodes.server(owner), "job").unlock("write user/1").status, 200);
    let told = waiter.join().unwrap();
    assert!([200, 503].contains(&told.status), "{}", told.body);
    drop(slow);
}
