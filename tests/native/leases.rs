//! Leases over plain HTTP: every answer there is, and what of them outlives connections and servers.

use crate::{
    harness::{Server, eventually},
    http,
    leaseholder::{HOUR, Leased, Leaseholder, locks_in},
    peer::{Peer, resources},
    store::Store,
};
use serde_json::{Value, json};
use std::{io::Write, net::TcpStream, thread, time::Duration};

fn two(server: &Server) -> (Leaseholder, Leaseholder) {
    (Leaseholder::new(server, "ann"), Leaseholder::new(server, "bob"))
}

/// What must stay the same of a lease for as long as it is held.
fn essence(lock: &Value) -> Value {
    let mut kept = json!({});
    for member in ["lock", "token", "owner", "resources", "granted_at", "expires_at", "note", "state"] {
        kept[member] = lock[member].clone();
    }
    kept
}

#[test]
fn a_free_lease_is_granted_and_shown() {
    let server = Server::start(&[]);
    let ann = Leaseholder::new(&server, "ann");
    let note = json!({ "why": ["night run", 1.50] });
    let reply = ann.ask_with("write user/42, read bill:1", json!({ "ttl_ms": 60_000, "note": note }));
    assert_eq!(reply.status, 201, "{reply:?}");
    let answer = reply.json();
    assert_eq!(answer["outcome"], "granted");
    assert_eq!((&answer["state"], &answer["owner"]["name"]), (&json!("granted"), &json!("ann")));
    assert_eq!(answer["owner"]["via"], "lease");
    assert!(answer["token"].is_u64() && answer["lock"].is_u64(), "{answer}");
    assert!(answer["expires_in_ms"].as_u64().is_some_and(|left| left <= 60_000), "{answer}");
    assert_eq!(answer["note"], note);
    let listed = ann.store.get(&format!("locks/{}", answer["lock"]));
    assert_eq!(essence(&listed), essence(&answer));
}

#[test]
fn what_an_owner_has_is_held_already() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    let held = ann.take("write a, read b");
    for what in
        ["write a, read b", "write a", "read a", "update a/x", "write a/x/y:1", "list b", "read b/c:2"]
    {
        let reply = ann.ask(what, 1, 0);
        assert_eq!(reply.status, 200, "{what}: {}", reply.body);
        let answer = reply.json();
        assert_eq!((&answer["outcome"], Leased::from(&answer)), (&json!("held"), held), "{what}");
        assert!(answer["expires_in_ms"].as_u64().unwrap() > 60_000, "nothing was changed: {answer}");
    }
    // What it has not is another lease.
    assert_ne!(ann.take("write b").lock, held.lock);
    assert_ne!(ann.take("write a, write c").lock, held.lock);
    bob.is_refused("read a");
}

#[test]
fn who_waits_is_told_who_is_in_the_way_and_then_that_it_is_its_turn() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    let held = ann.take("write a");
    let reply = bob.ask_with("write a/b", json!({ "ttl_ms": HOUR, "wait_ms": 60_000, "poll_ms": 0 }));
    assert_eq!(reply.status, 202, "{reply:?}");
    let answer = reply.json();
    assert_eq!((&answer["outcome"], &answer["state"]), (&json!("queued"), &json!("waiting")));
    assert_eq!((&answer["token"], &answer["place"]), (&Value::Null, &json!(1)));
    let blocker = &answer["in_the_way"][0];
    assert_eq!((&blocker["lock"], &blocker["name"]), (&json!(held.lock), &json!("ann")), "{answer}");
    let lock = answer["lock"].as_u64().unwrap();
    assert_eq!(bob.poll(lock, 10).json()["state"], "waiting");
    // Two that poll hear of the same end.
    let polls: Vec<_> = (0..2)
        .map(|_| {
            let bob = bob.clone();
            thread::spawn(move || bob.poll(lock, 20_000))
        })
        .collect();
    assert_eq!(ann.release(held.lock, &json!({ "token": held.token })).status, 200);
    for poll in polls {
        let info = poll.join().unwrap().json();
        assert_eq!((&info["state"], &info["lock"]), (&json!("granted"), &json!(lock)), "{info}");
        assert!(info["token"].as_u64().unwrap() > held.token);
    }
}

#[test]
fn a_request_that_waits_is_answered_when_it_is_granted() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    let held = ann.take("write a");
    let waiting = thread::spawn(move || bob.ask("write a", HOUR, 60_000));
    eventually("bob waits", || !locks_in(&ann.store, "waiting").is_empty());
    // Whoever looks at the wait does not disturb it.
    let lock = locks_in(&ann.store, "waiting")[0]["lock"].as_u64().unwrap();
    assert_eq!(ann.poll(lock, 10).json()["state"], "waiting");
    ann.release(held.lock, &json!({ "owner": "ann" }));
    let reply = waiting.join().unwrap();
    assert_eq!((reply.status, Leased::from(&reply.json()).lock), (201, lock), "{reply:?}");
}

#[test]
fn a_refusal_names_holder_age_and_lock() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    let held = ann.take("write user/42");
    let refusals = [
        bob.is_refused("read user/42/name"),
        bob.ask("read user/42/name", HOUR, 30).assert_problem(423, "timeout"),
    ];
    for problem in refusals {
        let blocker = &problem["blockers"][0];
        assert_eq!((&blocker["name"], &blocker["lock"]), (&json!("ann"), &json!(held.lock)), "{problem}");
        assert!(blocker["age_ms"].is_u64() && blocker["since"].is_string(), "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("ann") && detail.contains(&held.lock.to_string()), "{detail}");
        assert!(detail.contains("wait longer"), "{detail}");
    }
    let problem = bob
        .ask_with("read user", json!({ "ttl_ms": 1, "wait_ms": 30, "poll_ms": 20_000 }))
        .assert_problem(423, "timeout");
    assert_eq!(problem["blockers"][0]["name"], "ann");
    let lock = bob.ask_with("read user", json!({ "ttl_ms": 1, "wait_ms": 300, "poll_ms": 1 })).json()["lock"]
        .clone();
    bob.poll(lock.as_u64().unwrap(), 20_000).assert_problem(423, "timeout");
    assert!(bob.locks().is_empty());
}

#[test]
fn a_deadlock_is_refused() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    ann.take("write a");
    bob.take("write b");
    ann.queue("write b");
    let problem = bob.ask("write a", HOUR, 60_000).assert_problem(409, "deadlock");
    assert!(problem["detail"].as_str().unwrap().contains("never end"), "{problem}");
    assert_eq!(bob.locks().len(), 1);
}

#[test]
fn only_its_owner_renews_and_releases_it() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    let (held, other) = (ann.take("write a"), bob.take("write b"));
    let ttl = 2 * HOUR;
    let fits = [
        json!({ "token": held.token }),
        json!({ "owner": "ann" }),
        json!({ "owner": "ann", "token": held.token }),
    ];
    for mut body in fits.clone() {
        body["ttl_ms"] = ttl.into();
        let reply = ann.renew(held.lock, &body);
        assert_eq!(reply.status, 200, "{reply:?}");
        let renewed = &reply.json()["leases"][0];
        assert_eq!((Leased::from(renewed), &renewed["owner"]), (held, &json!("ann")));
        assert_eq!(renewed["expires_at"], ann.locks()[0]["expires_at"]);
        assert!(ann.locks()[0]["expires_in_ms"].as_u64().unwrap() > HOUR);
    }
    let wrong = [
        json!({ "token": other.token }),
        json!({ "token": 999_999 }),
        json!({ "owner": "bob" }),
        json!({ "owner": "bob", "token": held.token }),
        json!({ "owner": "ann", "token": other.token }),
    ];
    for mut body in wrong {
        ann.release(held.lock, &body).assert_problem(409, "lock_lost");
        body["ttl_ms"] = ttl.into();
        ann.renew(held.lock, &body).assert_problem(409, "lock_lost");
    }
    for body in fits {
        let held = ann.take("write c");
        let body = if body["token"].is_null() { body } else { json!({ "token": held.token }) };
        let reply = ann.release(held.lock, &body);
        assert_eq!((reply.status, Leased::from(&reply.json()["leases"][0])), (200, held));
        ann.release(held.lock, &body).assert_problem(409, "lock_lost");
    }
    ann.release(held.lock, &json!({})).assert_problem(400, "bad_body");
    ann.renew(held.lock, &json!({ "ttl_ms": 1 })).assert_problem(400, "bad_body");
    let all = ann.store.post("locks/renew", &json!({ "owner": "ann", "ttl_ms": ttl }));
    assert_eq!(all["leases"].as_array().unwrap().len(), 1, "{all}");
}

#[test]
fn what_is_over_is_lost() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    let held = ann.take_for("write a", 50);
    eventually("the lease ends", || ann.locks().is_empty());
    let body = json!({ "token": held.token, "ttl_ms": HOUR });
    ann.renew(held.lock, &body).assert_problem(409, "lock_lost");
    ann.release(held.lock, &json!({ "owner": "ann" })).assert_problem(409, "lock_lost");
    ann.unlock("write a").assert_problem(409, "lock_lost");
    ann.release_all().assert_problem(409, "lock_lost");
    let renewal = json!({ "owner": "ann", "ttl_ms": 5 }).to_string();
    ann.store.send("POST", "locks/renew", &renewal).assert_problem(409, "lock_lost");
    assert!(bob.take("write a").token > held.token);
    // Also for those who took it under a name that somebody else has now.
    ann.renew(held.lock, &body).assert_problem(409, "lock_lost");
}

#[test]
fn a_lease_ends_early_if_it_is_renewed_for_less() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    let held = ann.take("write a");
    assert_eq!(ann.renew(held.lock, &json!({ "owner": "ann", "ttl_ms": 20 })).status, 200);
    assert_eq!(bob.ask("write a", HOUR, 20_000).status, 201);
}

#[test]
fn unlock_takes_what_lock_took() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    let held = ann.take("write a:1, read b");
    for other in
        ["write a:1", "write a, read b", "write a:2, read b", "read a:1, read b", "write a:1, read b, read c"]
    {
        ann.unlock(other).assert_problem(409, "lock_lost");
    }
    bob.unlock("write a:1, read b").assert_problem(409, "lock_lost");
    let ended = ann.unlock("read b, write a:1").json();
    assert_eq!(Leased::from(&ended["leases"][0]), held, "in any order: {ended}");
    bob.take("write a, write b");
    // However much of it was said twice.
    let held = ann.take("read c, write c, read c/d");
    assert_eq!(Leased::from(&ann.unlock("read c, write c, read c/d").json()["leases"][0]), held);
}

#[test]
fn all_of_an_owner_go_at_once() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    for n in 0..5 {
        ann.take(&format!("write a/{n}"));
    }
    bob.take("write b");
    ann.queue("write b");
    let ended = ann.release_all().json();
    assert_eq!(ended["leases"].as_array().unwrap().len(), 5, "{ended}");
    assert!(ann.locks().is_empty(), "and it waits for nothing either");
    assert_eq!(bob.locks().len(), 1);
    ann.release_all().assert_problem(409, "lock_lost");
}

#[test]
fn an_owner_can_leave_the_line() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    ann.take("write a");
    let lock = bob.queue("write a");
    ann.release(lock, &json!({ "owner": "ann" })).assert_problem(409, "lock_lost");
    let waiting = {
        let bob = bob.clone();
        thread::spawn(move || bob.poll(lock, 20_000))
    };
    // However far the poll has come by now.
    assert_eq!(bob.release(lock, &json!({ "owner": "bob" })).json(), json!({ "leases": [] }));
    assert!(waiting.join().unwrap().status >= 400);
    assert!(bob.locks().is_empty());
    bob.queue("write a");
    assert_eq!(bob.unlock("write a").json(), json!({ "leases": [] }));
    assert!(bob.locks().is_empty());
}

#[test]
fn an_operator_ends_a_lease_for_good() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    let (held, kept) = (ann.take("write a"), ann.take("write b"));
    let queued = bob.queue("write a");
    let target = format!("/v1/default/locks/{}?reason=stuck", held.lock);
    let reply = http::request(server.native, "DELETE", &target, &[]);
    assert_eq!((reply.status, &reply.json()["lock"]["owner"]["name"]), (200, &json!("ann")), "{reply:?}");
    assert_eq!(bob.poll(queued, 20_000).json()["state"], "granted");
    ann.renew(held.lock, &json!({ "token": held.token, "ttl_ms": 5 })).assert_problem(409, "lock_lost");
    let server = server.kill().restart(&[]);
    let ann = Leaseholder::new(&server, "ann");
    let left: Vec<Leased> = ann.locks().iter().map(Leased::from).collect();
    assert_eq!(left, [kept], "what an operator ended does not come back");
    let actions = http::get_json(&server, "/v1/default/operator-log");
    assert_eq!(actions["actions"][0]["reason"], "stuck");
}

/// Time passes for a namespace from the moment it is there, also before its leases are put back. Many namespaces, and
/// more than one restart, because it takes an unlucky moment to see that go wrong.
#[test]
fn no_lease_is_forgotten_in_any_namespace() {
    const NAMESPACES: usize = 1_000;
    let mut server = Server::start(&[]);
    let holder = |server: &Server, number: usize| Leaseholder {
        store: Store::new(server, &format!("n{number}")),
        owner: "ann".to_owned(),
    };
    let held: Vec<Leased> = (0..NAMESPACES).map(|number| holder(&server, number).take("write a")).collect();
    for _ in 0..8 {
        server = server.kill().restart(&[]);
        for (number, held) in held.iter().enumerate() {
            let found: Vec<Leased> = holder(&server, number).locks().iter().map(Leased::from).collect();
            assert_eq!(found, [*held], "namespace {number}");
        }
    }
}

#[test]
fn leases_are_listed_by_owner_and_path_page_by_page() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    for n in 0..7 {
        ann.take(&format!("write a/{n}/x"));
        bob.take(&format!("write b/{n}"));
    }
    let mut session = Peer::open(&server, "ann");
    session.hold("write c");
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = ann.store.get(&format!("locks?owner=ann&path=a&limit=3{after}"));
        found.extend(page["locks"].as_array().unwrap().clone());
        assert!(page["locks"].as_array().unwrap().len() <= 3);
        match page["next"].as_u64() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(found.len(), 7);
    assert!(found.iter().all(|lock| lock["owner"]["via"] == "lease"), "{found:?}");
    assert_eq!(ann.store.get("locks?path=a/3")["locks"].as_array().unwrap().len(), 1);
    assert_eq!(ann.store.get("locks?owner=bob&path=a")["locks"].as_array().unwrap().len(), 0);
    assert_eq!(ann.locks().len(), 8, "a session may have the same name");
}

#[test]
fn each_mistake_has_its_own_code() {
    let server = Server::start(&[]);
    let ann = Leaseholder::new(&server, "ann");
    let good = || json!({ "owner": "ann", "resources": resources("write a"), "ttl_ms": 5 });
    let with = |member: &str, value: Value| {
        let mut body = good();
        body[member] = value;
        body
    };
    let without = |member: &str| {
        let mut body = good();
        body.as_object_mut().unwrap().remove(member);
        body
    };
    let resource = |resource: Value| with("resources", json!([resource]));
    let wrong = [
        (json!([]), "bad_body"),
        (without("owner"), "bad_body"),
        (without("resources"), "bad_body"),
        (without("ttl_ms"), "bad_body"),
        (with("owner", json!("")), "bad_owner"),
        (with("owner", json!(5)), "bad_body"),
        (with("ttl_ms", json!(0)), "bad_body"),
        (with("ttl_ms", json!(-1)), "bad_body"),
        (with("ttl_ms", json!("5s")), "bad_body"),
        (with("wait_ms", json!("forever")), "bad_body"),
        (with("resources", json!([])), "no_resources"),
        (resource(json!({ "path": "a", "mode": "own" })), "bad_mode"),
        (resource(json!({ "path": "a", "mode": "write", "depth": 0 })), "bad_depth"),
        (resource(json!({ "path": "a", "mode": "write", "deep": 1 })), "unknown_member"),
        (with("ttl", json!(5)), "unknown_member"),
    ];
    for (body, code) in wrong {
        ann.store.refuses("POST", "locks", &body, 400, code);
    }
    ann.store.refuses(
        "POST",
        "locks",
        &resource(json!({ "path": "a//b", "mode": "write" })),
        400,
        "bad_body",
    );
    ann.store.send("POST", "locks", "{").assert_problem(400, "bad_body");
    for action in ["renew", "release"] {
        for body in [json!({ "ttl_ms": 5 }), json!({ "ttl_ms": 5, "owner": "ann", "token": 5 })] {
            let body = if action == "renew" { body } else { json!({ "token": body["token"].clone() }) };
            ann.store.refuses("POST", &format!("locks/{action}"), &body, 400, "bad_body");
        }
        ann.store.send("POST", &format!("locks/x/{action}"), r#"{"owner":"a","ttl_ms":1}"#);
    }
    ann.store.refuses("POST", "locks/x/release", &json!({ "owner": "ann" }), 404, "unknown_lock");
    ann.store.refuses(
        "POST",
        "locks/5/release",
        &json!({ "owner": "ann", "resources": [] }),
        400,
        "bad_body",
    );
    ann.store.refuses(
        "POST",
        "locks/release",
        &json!({ "owner": "ann", "resources": [] }),
        400,
        "no_resources",
    );
    ann.store.refuses("POST", "locks/release", &json!({ "owner": "nobody" }), 409, "lock_lost");
    assert!(ann.locks().is_empty());
}

#[test]
fn whoever_disconnects_leaves_the_line_at_once() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    let held = ann.take("read a");
    let body = json!({ "owner": "eve", "resources": resources("write a"), "ttl_ms": HOUR, "wait_ms": HOUR })
        .to_string();
    let mut tcp = TcpStream::connect(server.native).unwrap();
    let head = format!(
        "POST /v1/default/locks HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n",
        server.native,
        body.len()
    );
    tcp.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    eventually("eve waits", || locks_in(&ann.store, "waiting").len() == 1);
    bob.is_refused("read a");
    drop(tcp);
    eventually("eve is gone", || locks_in(&ann.store, "waiting").is_empty());
    bob.take("read a");
    ann.release(held.lock, &json!({ "owner": "ann" }));
}

#[test]
fn a_server_that_stops_tells_those_in_line_and_keeps_the_leases() {
    let server = Server::start(&["--drain-timeout", "1h"]);
    let (ann, bob) = two(&server);
    ann.take("write a");
    ann.ask_with("read b:2, list c", json!({ "ttl_ms": 7_000_000, "note": { "x": [1.0] } }));
    let waiting = thread::spawn(move || bob.ask("write a", HOUR, HOUR));
    eventually("bob waits", || locks_in(&ann.store, "waiting").len() == 1);
    let before: Vec<Value> = ann.locks().iter().map(essence).collect();
    let ended = server.stop();
    assert_eq!(ended.status.code(), Some(0), "leases keep nobody waiting: {}", ended.log);
    waiting.join().unwrap().assert_problem(503, "draining");
    let server = ended.restart(&[]);
    let ann = Leaseholder::new(&server, "ann");
    assert_eq!(ann.locks().iter().map(essence).collect::<Vec<_>>(), before);
    assert!(locks_in(&ann.store, "waiting").is_empty());
}

#[test]
fn leases_and_their_renewals_survive_a_crash() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    let held = ann.take("write a");
    let (short, released) = (ann.take_for("write b", 300), ann.take("write c"));
    let renewed = ann.renew(held.lock, &json!({ "token": held.token, "ttl_ms": 5 * HOUR })).json();
    ann.release(released.lock, &json!({ "owner": "ann" }));
    let last = bob.take("write d").token;
    let server = server.kill();
    thread::sleep(Duration::from_millis(400));
    let server = server.restart(&[]);
    let (ann, bob) = two(&server);
    let info = ann.store.get(&format!("locks/{}", held.lock));
    assert_eq!(Leased::from(&info), held);
    assert_eq!(info["expires_at"], renewed["leases"][0]["expires_at"], "neither earlier nor later");
    let token = bob.take("write b, write c").token;
    assert!(token > last, "tokens only go up");
    assert_eq!(ann.locks().len(), 1, "what was over does not come back");
    ann.renew(short.lock, &json!({ "token": short.token, "ttl_ms": 5 })).assert_problem(409, "lock_lost");
    bob.is_refused("write a");
    // It is as much its owner's as before.
    assert_eq!(ann.ask("write a", 5, 0).json()["outcome"], "held");
    let write =
        json!({ "events": [{ "type": "put", "collection": "a", "key": 1, "fields": {} }], "wait_ms": 0 });
    ann.store.refuses("POST", "write", &write, 423, "locked");
    let mut write = write;
    write["tokens"] = json!([held.token]);
    ann.store.post("write", &write);
    assert_eq!(ann.release(held.lock, &json!({ "token": held.token })).status, 200);
}

#[test]
fn leases_are_kept_while_sessions_are_waited_for_after_a_crash() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    let mut session = Peer::open_for(&server, "eve", 1500);
    session.hold("write s");
    let held = ann.take("write a");
    let server = server.kill().restart(&[]);
    let (ann, bob2) = two(&server);
    drop(bob);
    assert_eq!(ann.renew(held.lock, &json!({ "token": held.token, "ttl_ms": HOUR })).status, 200);
    // Whatever was held then may still be in use.
    bob2.ask("write b", HOUR, 0).assert_problem(503, "grace_period");
    assert_eq!(bob2.ask("write b", HOUR, 20_000).status, 201);
    assert_eq!(ann.locks().len(), 1);
}

#[test]
fn asking_again_while_in_line_keeps_the_one_place() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    ann.take("write a");
    assert_eq!(bob.queue("write a"), bob.queue("write a"));
    ann.release_all();
    eventually("bob holds it once", || {
        (locks_in(&bob.store, "granted").len(), locks_in(&bob.store, "waiting").len()) == (1, 0)
    });
}

/// Comparing each of them with each would take minutes.
#[test]
fn a_large_lease_is_found_again() {
    let server = Server::start(&[]);
    let ann = Leaseholder::new(&server, "ann");
    let many: Vec<Value> =
        (0..20_000).map(|n| json!({ "path": ["a", n.to_string()], "mode": "write" })).collect();
    let body = json!({ "owner": "ann", "resources": many, "ttl_ms": HOUR }).to_string();
    assert_eq!(ann.store.send("POST", "locks", &body).json()["outcome"], "granted");
    assert_eq!(ann.store.send("POST", "locks", &body).json()["outcome"], "held");
}

/// A client sends a request again when a node does not answer, and the first attempt is still in the queue then. The two are
/// one request: the second is not refused because of the first.
#[test]
fn an_equal_request_of_the_same_owner_is_no_deadlock() {
    let server = Server::start(&[]);
    let (ann, bob) = two(&server);
    let cid = Leaseholder::new(&server, "cid");
    let held = ann.take("write user/1");
    let first = bob.queue("write user/1");
    let behind = cid.queue("write user/1");
    thread::scope(|scope| {
        let again = scope.spawn(|| bob.ask("write user/1", HOUR, 60_000));
        thread::sleep(Duration::from_millis(300));
        assert_eq!(ann.release(held.lock, &json!({ "token": held.token })).status, 200);
        let reply = again.join().unwrap();
        assert!([200, 201].contains(&reply.status), "{first} {behind}: {}", reply.body);
    });
}
