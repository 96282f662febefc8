//! A lock is one lock, on however many shards its documents are, and from whichever node it is asked for. Key `n` is on shard
//! `n % shards + 1`.

use crate::{
    cluster::{Cluster, is_blocked, passes, write},
    harness::eventually,
    http,
    leaseholder::{HOUR, Leased, Leaseholder, locks_in},
    peer::resources,
    rooms::insist,
    spread_nodes::modulo,
};
use serde_json::{Value, json};
use std::{
    io::Write,
    net::TcpStream,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

#[test]
fn a_lock_on_a_document_holds_through_every_node() {
    let cluster = Cluster::start(2, modulo(2));
    let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"));
    let on_two = ann.take("write user/1");
    let on_one = ann.take("write user/2");
    for node in 1..=2 {
        let other = cluster.holder(node, "bob");
        other.is_refused("read user/1");
        other.is_refused("read user/2/name");
        is_blocked(&other, 1, "ann");
        is_blocked(&other, 2, "ann");
        let seen: Vec<u64> =
            cluster.holder(node, "ann").locks().iter().map(|lock| lock["lock"].as_u64().unwrap()).collect();
        assert!(seen.len() == 2 && seen.contains(&on_one.lock) && seen.contains(&on_two.lock), "{seen:?}");
        passes(&cluster.holder(node, "ann"), 1, &[on_two.token]);
    }
    let again = cluster.holder(2, "ann").ask("write user/1", HOUR, 0);
    assert_eq!((again.status, Leased::from(&again.json())), (200, on_two), "{}", again.body);
    let renewed = bob.renew(on_two.lock, &json!({ "ttl_ms": HOUR, "token": on_two.token }));
    assert_eq!(renewed.status, 200, "{}", renewed.body);
    bob.renew(on_two.lock, &json!({ "ttl_ms": HOUR, "token": 1 })).assert_problem(409, "lock_lost");
    assert_eq!(bob.release(on_two.lock, &json!({ "owner": "ann" })).status, 200);
    assert!(bob.take("write user/1").token > on_two.token);
    write(&ann, 1, &[on_two.token]).assert_problem(409, "lock_lost");
}

#[test]
fn a_lock_on_several_shards_is_one_lock() {
    let cluster = Cluster::start(3, modulo(3));
    let (ann, bob) = (cluster.holder(3, "ann"), cluster.holder(1, "bob"));
    let what = "write user/1, write user/2, read user/3";
    let held = ann.take(what);
    let shown = bob.store.get(&format!("locks/{}", held.lock));
    assert_eq!(Leased::from(&shown), held);
    assert_eq!(shown["resources"], sorted(what), "{shown}");
    for node in 1..=3 {
        let listed = cluster.holder(node, "ann").locks();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!((Leased::from(&listed[0]), &listed[0]["resources"]), (held, &sorted(what)));
        for key in 1..=3 {
            is_blocked(&cluster.holder(node, "bob"), key, "ann");
        }
        for key in 1..=2 {
            passes(&cluster.holder(node, "ann"), key, &[held.token]);
        }
    }
    let again = cluster.holder(2, "ann").ask(what, HOUR, 0);
    assert_eq!((again.status, Leased::from(&again.json())), (200, held), "{}", again.body);
    let renewed = bob.renew(held.lock, &json!({ "ttl_ms": 2 * HOUR, "owner": "ann" }));
    assert_eq!(renewed.json()["leases"][0]["resources"], sorted(what), "{}", renewed.body);
    bob.release(held.lock, &json!({ "owner": "bob" })).assert_problem(409, "lock_lost");
    let released = bob.release(held.lock, &json!({ "token": held.token }));
    assert_eq!(released.json()["leases"].as_array().unwrap().len(), 1, "{}", released.body);
    bob.release(held.lock, &json!({ "token": held.token })).assert_problem(409, "lock_lost");
    for key in 1..=3 {
        let next = bob.take(&format!("write user/{key}"));
        assert!(next.token > held.token, "{next:?} after {held:?}");
    }
}

/// As a lock shows its resources.
fn sorted(what: &str) -> Value {
    let mut list = resources(what).as_array().unwrap().clone();
    list.sort_by_key(|resource| resource["path"].to_string());
    for resource in &mut list {
        resource["path"] = resource["path"].as_str().unwrap().split('/').collect();
    }
    list.into()
}

#[test]
fn a_lock_on_a_collection_or_everything_holds_on_every_shard() {
    let cluster = Cluster::start(2, modulo(2));
    let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"));
    for what in ["write user", "write /"] {
        let held = ann.take(what);
        for key in 1..=2 {
            is_blocked(&bob, key, "ann");
            bob.is_refused(&format!("read user/{key}"));
            passes(&ann, key, &[held.token]);
            // What it covers its owner has already.
            let covered = ann.ask(&format!("write user/{key}"), HOUR, 0);
            assert_eq!((covered.status, Leased::from(&covered.json())), (200, held), "{}", covered.body);
        }
        let covered = ann.ask("write user/1, write user/2", HOUR, 0);
        assert_eq!((covered.status, Leased::from(&covered.json())), (200, held), "{}", covered.body);
        assert_eq!(ann.unlock(what).status, 200);
        passes(&bob, 1, &[]);
        passes(&bob, 2, &[]);
    }
    let two = bob.take("write user/2");
    let problem = ann.is_refused("write user");
    assert_eq!(
        (&problem["blockers"][0]["name"], &problem["blockers"][0]["lock"]),
        (&json!("bob"), &json!(two.lock))
    );
    assert_eq!(bob.release(two.lock, &json!({ "owner": "bob" })).status, 200);
    ann.take("write user");
}

#[test]
fn a_refused_lock_leaves_nothing_behind() {
    let cluster = Cluster::start(2, modulo(2));
    let (ann, bob, cid) = (cluster.holder(1, "ann"), cluster.holder(1, "bob"), cluster.holder(2, "cid"));
    let held = ann.take("write user/1");
    let problem = bob.is_refused("write user/1, write user/2");
    assert_eq!(problem["blockers"][0]["lock"], json!(held.lock), "{problem}");
    assert_eq!(locks_in(&bob.store, "waiting").len(), 0);
    let two = cid.take("write user/2");
    assert_eq!(cid.release(two.lock, &json!({ "token": two.token })).status, 200);
    let timed_out = bob.ask("write user/1, write user/2", HOUR, 50);
    timed_out.assert_problem(423, "timeout");
    cid.take("write user/2");
}

#[test]
fn a_lock_on_several_shards_is_granted_at_once_or_not_at_all() {
    let cluster = Cluster::start(2, modulo(2));
    let (ann, bob, cid) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"), cluster.holder(1, "cid"));
    let (one, two) = (ann.take("write user/2"), ann.take("write user/1"));
    let waiter = bob.clone();
    let waiting = thread::spawn(move || waiter.ask("write user/1, write user/2", HOUR, 60_000));
    eventually("bob waits", || locks_in(&bob.store, "waiting").len() == 1);
    assert_eq!(ann.release(one.lock, &json!({ "token": one.token })).status, 200);
    // One document is free now, and is not granted to other owners, as bob is before them in the queue.
    eventually("bob waits for the other", || {
        let waits = bob.store.get("waits");
        waits["edges"].as_array().unwrap().iter().any(|edge| edge["blocker"] == json!(two.lock))
    });
    let waits = locks_in(&bob.store, "waiting");
    assert_eq!((waits.len(), &waits[0]["token"]), (1, &Value::Null), "{waits:?}");
    assert_eq!(waits[0]["resources"], sorted("write user/1, write user/2"));
    cid.is_refused("write user/2");
    assert_eq!(ann.release(two.lock, &json!({ "token": two.token })).status, 200);
    let reply = waiting.join().unwrap();
    assert_eq!(reply.status, 201, "{}", reply.body);
    let held = Leased::from(&reply.json());
    assert!(held.token > one.token && held.token > two.token);
    passes(&cid, 1, &[held.token]);
    passes(&cid, 2, &[held.token]);
}

#[test]
fn a_wait_ends_with_its_request() {
    let cluster = Cluster::start(2, modulo(2));
    let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(1, "bob"));
    ann.take("write user/1");
    let body = json!({ "owner": "cid", "resources": resources("write user/1, write user/2"), "ttl_ms": HOUR,
        "wait_ms": 60_000 })
    .to_string();
    let native = cluster.node(1).native;
    let mut tcp = TcpStream::connect(native).unwrap();
    let head = format!(
        "POST /v1/default/locks HTTP/1.1\r\nhost: {native}\r\ncontent-type: application/json\r\ncontent-length: \
         {}\r\n\r\n{body}",
        body.len()
    );
    tcp.write_all(head.as_bytes()).unwrap();
    eventually("cid waits", || {
        let waits = bob.store.get("waits");
        !waits["edges"].as_array().unwrap().is_empty()
    });
    bob.is_refused("write user/2");
    drop(tcp);
    eventually("the document is free again", || bob.ask("write user/2", HOUR, 0).status == 201);
    assert_eq!(locks_in(&bob.store, "waiting").len(), 0);
}

#[test]
fn a_waiting_lock_is_polled_through_any_node() {
    let cluster = Cluster::start(2, modulo(2));
    let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"));
    for what in ["write user/1", "write user/1, write user/2", "write user"] {
        let held = ann.take("write user/1");
        let lock = bob.queue(what);
        let shown = ann.poll(lock, 0);
        assert_eq!(
            (shown.status, &shown.json()["state"]),
            (200, &json!("waiting")),
            "{what}: {}",
            shown.body
        );
        let poller = cluster.holder(1, "bob");
        let polling = thread::spawn(move || poller.poll(lock, 60_000));
        assert_eq!(ann.release(held.lock, &json!({ "owner": "ann" })).status, 200);
        let reply = polling.join().unwrap();
        let shown = reply.json();
        assert_eq!((reply.status, &shown["state"]), (200, &json!("granted")), "{what}: {}", reply.body);
        assert_eq!(shown["lock"], json!(lock));
        passes(&ann, 1, &[shown["token"].as_u64().unwrap()]);
        assert_eq!(bob.release_all().status, 200);
    }
    // A wait can be ended by its owner.
    ann.take("write user/1");
    let lock = bob.queue("write user/1, write user/2");
    assert_eq!(ann.release(lock, &json!({ "owner": "bob" })).status, 200);
    eventually("nothing is left of it", || locks_in(&ann.store, "waiting").is_empty());
    eventually("the other document is free", || ann.ask("write user/2", HOUR, 0).status == 201);
}

#[test]
fn all_leases_of_an_owner_are_renewed_and_released_together() {
    let cluster = Cluster::start(2, modulo(2));
    let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"));
    ann.take("write user/1");
    ann.take("write user/2");
    ann.take("write user/3, write user/4");
    bob.take("write bill");
    let renewed =
        bob.store.send("POST", "locks/renew", &json!({ "owner": "ann", "ttl_ms": HOUR }).to_string());
    assert_eq!(renewed.json()["leases"].as_array().unwrap().len(), 3, "{}", renewed.body);
    let released = ann.release_all();
    assert_eq!(released.json()["leases"].as_array().unwrap().len(), 3, "{}", released.body);
    ann.release_all().assert_problem(409, "lock_lost");
    assert_eq!(ann.locks().len(), 0);
    assert_eq!(bob.locks().len(), 1);
    ann.unlock("write user/9").assert_problem(409, "lock_lost");
}

#[test]
fn a_lock_on_several_shards_ends_on_all_of_them() {
    let cluster = Cluster::start(2, modulo(2));
    let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"));
    let held = ann.take_for("write user/1, write user/2", 300);
    eventually("it runs out", || bob.ask("write user", HOUR, 0).status == 201);
    write(&ann, 1, &[held.token]).assert_problem(409, "lock_lost");
    ann.renew(held.lock, &json!({ "ttl_ms": HOUR, "owner": "ann" })).assert_problem(409, "lock_lost");
}

#[test]
fn a_token_is_checked_at_every_shard() {
    let cluster = Cluster::start(2, modulo(2));
    let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"));
    // Whoever leads may write, whatever it writes and wherever that is.
    let leader = ann.take("write role/2");
    passes(&bob, 1, &[leader.token]);
    passes(&bob, 2, &[leader.token]);
    let second = ann.take("write role/1");
    passes(&ann, 1, &[leader.token, second.token]);
    let other = bob.take("write role/3");
    write(&ann, 2, &[leader.token, other.token]).assert_problem(409, "lock_lost");
    assert_eq!(ann.release(leader.lock, &json!({ "token": leader.token })).status, 200);
    for key in 1..=2 {
        write(&bob, key, &[leader.token]).assert_problem(409, "lock_lost");
    }
}

#[test]
fn listings_have_the_locks_of_all_shards() {
    let cluster = Cluster::start(2, modulo(2));
    let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"));
    for key in 1..=6 {
        ann.take(&format!("write user/{key}"));
    }
    ann.take("write user/7, write user/8");
    ann.take("read bill");
    let all: Vec<u64> = numbers(&bob.store.get("locks"));
    assert_eq!(all.len(), 8, "{all:?}");
    assert!(all.is_sorted(), "{all:?}");
    for limit in [1, 2, 3, 8, 100] {
        let mut found = Vec::new();
        let mut after = String::new();
        loop {
            let page = bob.store.get(&format!("locks?limit={limit}{after}"));
            assert!(page["locks"].as_array().unwrap().len() <= limit, "{page}");
            found.extend(numbers(&page));
            match page["next"].as_u64() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert_eq!(found, all, "by {limit}");
    }
    assert_eq!(numbers(&bob.store.get("locks?path=user/7")).len(), 1);
    let spread = &bob.store.get("locks?path=user/7")["locks"][0];
    assert_eq!(spread["resources"], sorted("write user/7, write user/8"), "{spread}");
    let tree = bob.store.get("tree");
    let nodes = tree["nodes"].as_array().unwrap();
    let root = nodes.iter().find(|node| node["path"] == json!([])).unwrap();
    assert_eq!(root["intents"], json!({ "read": 1, "change": 8 }), "{tree}");
    let bill = nodes.iter().find(|node| node["path"] == json!(["bill"])).unwrap();
    assert_eq!(bill["claims"].as_array().unwrap().len(), 1, "{tree}");
    assert_eq!(nodes.iter().filter(|node| node["path"][0] == "user").count(), 9, "{tree}");
}

fn numbers(page: &Value) -> Vec<u64> {
    page["locks"].as_array().unwrap().iter().map(|lock| lock["lock"].as_u64().unwrap()).collect()
}

#[test]
fn an_operator_ends_a_lock_on_all_shards() {
    let cluster = Cluster::start(2, modulo(2));
    let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"));
    let held = ann.take("write user");
    let target = bob.store.target(&format!("locks/{}?reason=stuck", held.lock));
    let reply = http::request(bob.store.native, "DELETE", &target, &[]);
    assert_eq!((reply.status, &reply.json()["reason"]), (200, &json!("stuck")), "{}", reply.body);
    http::request(bob.store.native, "DELETE", &target, &[]).assert_problem(404, "unknown_lock");
    passes(&bob, 1, &[]);
    passes(&bob, 2, &[]);
    for node in 1..=2 {
        let log = cluster.holder(node, "x").store.get("operator-log");
        assert_eq!(log["actions"].as_array().unwrap().len(), 1, "{log}");
        assert_eq!(log["actions"][0]["lock"]["lock"], json!(held.lock), "{log}");
    }
    let target = bob.store.target("locks/77");
    http::request(bob.store.native, "GET", &target, &[]).assert_problem(404, "unknown_lock");
}

#[test]
fn locks_and_the_growth_of_tokens_outlive_kills() {
    let mut cluster = Cluster::start(2, modulo(2));
    let first = cluster.holder(1, "ann").take("write user/1, write user/2");
    for node in [2, 1] {
        cluster.kill(node);
        cluster.restart(node);
        let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"));
        bob.is_refused("read user/1");
        bob.is_refused("read user/2");
        passes(&bob, 1, &[first.token]);
        passes(&bob, 2, &[first.token]);
        let again = ann.ask("write user/1, write user/2", HOUR, 0);
        assert_eq!((again.status, Leased::from(&again.json())), (200, first), "{}", again.body);
    }
    let (ann, bob) = (cluster.holder(1, "ann"), cluster.holder(2, "bob"));
    assert_eq!(ann.release_all().status, 200);
    let mut last = first.token;
    for key in [1, 2, 1] {
        let next = bob.take(&format!("write user/{key}"));
        assert!(next.token > first.token, "{next:?}");
        assert_eq!(bob.release_all().status, 200);
        let both = ann.take("write user/1, write user/2");
        assert!(both.token > next.token && both.token > last, "{both:?} {next:?} {last}");
        last = both.token;
        assert_eq!(ann.release_all().status, 200);
    }
}

/// A queue is in the memory of its home's owner: a request that waits there while that is killed has to be sent again, and
/// is the same request for the same owner. One whose document's owner is killed waits on.
#[test]
fn a_request_waits_on_over_kills_when_it_is_sent_again() {
    let mut cluster = Cluster::start(3, modulo(3));
    let held = cluster.holder(1, "ann").take("write user/1");
    cluster.pin();
    let home = cluster.owner(cluster.home());
    let [other, asked] = [home % 3 + 1, (home + 1) % 3 + 1];
    let bob = cluster.holder(asked, "bob");
    let waiter = bob.clone();
    let waiting = thread::spawn(move || {
        let attempts = AtomicUsize::new(0);
        let reply = insist(|| {
            attempts.fetch_add(1, Ordering::Relaxed);
            waiter.ask("write user/1, write user/2", HOUR, 60_000)
        });
        (reply, attempts.into_inner())
    });
    let waits = || {
        let reply = bob.store.send("GET", "waits", "");
        let waits = if reply.status == 200 { reply.json() } else { json!({ "edges": [] }) };
        waits["edges"].as_array().unwrap().iter().any(|edge| edge["blocker"] == json!(held.lock))
    };
    eventually("bob waits", waits);
    for node in [other, home] {
        cluster.kill(node);
        eventually("bob waits", waits);
        cluster.up(node);
    }
    let released = insist(|| bob.release(held.lock, &json!({ "token": held.token })));
    assert_eq!(released.status, 200, "{}", released.body);
    let (reply, attempts) = waiting.join().unwrap();
    assert_eq!(reply.status, 201, "{}", reply.body);
    assert!(attempts > 1, "its home was killed");
}

#[test]
fn overlapping_locks_are_granted_in_turn() {
    let cluster = Cluster::start(3, modulo(3));
    let whats = [
        "write user/1, write user/2",
        "write user/2, write user/1, write user/3",
        "write user/3, write user/1",
        "write user",
        "write user/2",
        "write user/4, write user/1",
    ];
    thread::scope(|scope| {
        for (number, what) in whats.into_iter().enumerate() {
            let owner = cluster.holder(number % 3 + 1, &format!("owner{number}"));
            scope.spawn(move || {
                let mut last = 0;
                for _ in 0..10 {
                    let reply = owner.ask(what, HOUR, 60_000);
                    assert_eq!(reply.status, 201, "{what}: {}", reply.body);
                    let held = Leased::from(&reply.json());
                    assert!(held.token > last, "{what}: {held:?} after {last}");
                    last = held.token;
                    let reply = owner.release(held.lock, &json!({ "token": held.token }));
                    assert_eq!(reply.status, 200, "{what}: {}", reply.body);
                }
            });
        }
    });
    assert_eq!(cluster.holder(1, "x").store.get("locks")["locks"], json!([]));
}

/// Locks are decided at the home, so they may cover keys that no shard can have.
#[test]
fn a_key_without_a_shard_can_be_locked_and_not_written() {
    let cluster = Cluster::start(2, modulo(2));
    let ann = cluster.holder(1, "ann");
    ann.take("write user/x");
    ann.store.refuses("PUT", "documents/user/x", &json!({}), 400, "no_shard");
    assert_eq!(ann.release_all().status, 200);
}

#[test]
fn mistakes_are_refused_before_any_lock_is_asked_for() {
    let cluster = Cluster::start(2, modulo(2));
    let ann = cluster.holder(1, "ann");
    let nobody = Leaseholder { owner: String::new(), ..ann.clone() };
    nobody.ask("write user", HOUR, 0).assert_problem(400, "bad_owner");
    ann.ask("write user", 0, 0).assert_problem(400, "bad_body");
    ann.ask("grab user", HOUR, 0).assert_problem(400, "bad_mode");
    assert_eq!(ann.locks().len(), 0);
}
