//! Homes of spread namespaces that move to another shard: sessions, leases, tokens and what is registered go along, and there is
//! exactly one home whatever happens meanwhile.

use crate::{
    faults::Clients,
    harness::eventually,
    http::{self, Reply},
    leaseholder::{HOUR, Leaseholder},
    nodes::Nodes,
    peer::{Held, Peer},
    spread_nodes::{Spread, modulo},
    store::Store,
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const NAMESPACE: &str = "shop";
/// Two on each shard.
const KEYS: std::ops::RangeInclusive<u64> = 1..=6;

fn start() -> Spread {
    let spread = Spread::start(3, 3, modulo(3));
    for key in KEYS {
        spread.store(1, NAMESPACE).create("user", key, json!({ "name": "Ann" }));
    }
    spread
}

fn ask(nodes: &Nodes, method: &str, target: &str) -> Reply {
    let asked = nodes.running().next().unwrap();
    http::send(nodes.server(asked).native, method, &format!("/v1/{NAMESPACE}/shard/{target}"), &[], b"")
}

/// The home on record.
fn home(nodes: &Nodes) -> usize {
    let reply = ask(nodes, "GET", "home");
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()["home"].as_u64().unwrap() as usize
}

fn move_to(spread: &Spread, shard: usize) {
    spread.move_home(NAMESPACE, shard);
    assert_eq!(home(&spread.nodes), shard);
    // A session that comes through a node with older rows is cut off once more, when that node has read them anew.
    eventually("all nodes know the owners", || {
        let epochs = |node| -> Vec<Value> {
            let shards = spread.nodes.status(node)["shards"].clone();
            shards.as_array().unwrap().iter().map(|shard| shard["epoch"].clone()).collect()
        };
        let first = epochs(1);
        spread.nodes.running().all(|node| epochs(node) == first)
    });
}

/// Another shard than the home, whose owner is another node.
fn elsewhere(spread: &Spread) -> usize {
    let home = home(&spread.nodes);
    (1..=3).find(|shard| *shard != home && spread.owner(*shard) != spread.owner(home)).unwrap()
}

fn put(store: &Store, key: u64, query: &str) -> Reply {
    store.send("PUT", &format!("documents/user/{key}?{query}"), r#"{"name":"Bob"}"#)
}

/// What a request is answered once there is a home to answer it.
fn answered(send: impl Fn() -> Reply) -> Reply {
    let mut last = None;
    eventually("the home answers", || {
        let reply = send();
        let is_answer = reply.status != 503;
        last = Some(reply);
        is_answer
    });
    last.unwrap()
}

#[track_caller]
fn is_refused(spread: &Spread, key: u64, blocker: &str) {
    for store in spread.stores(NAMESPACE) {
        let problem = answered(|| put(&store, key, "wait_ms=0")).assert_problem(423, "locked");
        assert_eq!(problem["blockers"][0]["name"], blocker, "{problem}");
    }
}

#[track_caller]
fn passes(spread: &Spread, key: u64, token: u64) {
    for store in spread.stores(NAMESPACE) {
        let reply = answered(|| put(&store, key, &format!("token={token}")));
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
}

fn open(spread: &Spread, node: usize, name: &str) -> Peer {
    let fields = json!({ "name": name, "abandon_timeout_ms": 60_000 });
    Peer::open_with(spread.nodes.server(node), NAMESPACE, fields)
}

/// Takes a session up again through a node, as clients do; it may meet the home on its way.
fn attach(spread: &Spread, node: usize, (name, session): (&str, &Peer), locks: &Value) -> Peer {
    let mut attach = session.attach_message(locks);
    (attach["name"], attach["abandon_timeout_ms"]) = (name.into(), 60_000.into());
    let mut found = None;
    eventually("the session is attached", || {
        let Ok(mut peer) = Peer::try_connect_to(spread.nodes.server(node).native, NAMESPACE) else {
            return false;
        };
        let welcome = peer.try_ask(attach.clone());
        let is_back = welcome.as_ref().is_some_and(|welcome| welcome["type"] == "welcome");
        if is_back {
            let welcome = welcome.unwrap();
            (peer.session, peer.secret) = (session.session.clone(), session.secret.clone());
            assert_eq!(
                welcome["locks"].as_array().unwrap().len(),
                locks.as_array().unwrap().len(),
                "{welcome}"
            );
            found = Some(peer);
        }
        is_back
    });
    found.unwrap()
}

fn leaseholder(spread: &Spread, node: usize, owner: &str) -> Leaseholder {
    let mut holder = Leaseholder::new(spread.nodes.server(node), owner);
    holder.store = spread.store(node, NAMESPACE);
    holder
}

fn holding(spread: &Spread, node: usize, name: &str, what: &str) -> (Peer, Held, Value) {
    let mut peer = open(spread, node, name);
    let held = peer.hold(what);
    let locks = json!([held.reclaim(what)]);
    (peer, held, locks)
}

#[test]
fn a_session_and_a_lease_keep_their_locks_when_the_home_moves() {
    let spread = start();
    let (ann, of_ann, reclaim) = holding(&spread, 1, "ann", "write user/1");
    let job = leaseholder(&spread, 2, "job");
    let leased = job.take_for("write user/2, write user/3", 600_000);
    let to = elsewhere(&spread);
    move_to(&spread, to);
    let mut ann = attach(&spread, 3, ("ann", &ann), &reclaim);
    is_refused(&spread, 1, "ann");
    is_refused(&spread, 2, "job");
    is_refused(&spread, 3, "job");
    passes(&spread, 1, of_ann.token);
    passes(&spread, 2, leased.token);
    passes(&spread, 3, leased.token);
    // The new home goes on where the previous one was.
    let renewed = answered(|| job.renew(leased.lock, &json!({ "ttl_ms": HOUR, "token": leased.token })));
    assert_eq!(renewed.status, 200, "{}", renewed.body);
    let next = ann.hold("write user/4");
    assert!(next.token > of_ann.token.max(leased.token), "{next:?} after {of_ann:?}, {leased:?}");
    assert_eq!(job.unlock("write user/2, write user/3").status, 200);
    assert_eq!(answered(|| put(&spread.store(1, NAMESPACE), 2, "wait_ms=0")).status, 200);
}

/// One that was registered before is enforced on every shard all the time, and the next one is registered at the new home.
#[test]
fn a_schema_holds_while_the_home_moves_and_the_next_one_is_registered_there() {
    let spread = start();
    let schema = |of_age: &str| json!({ "schema": { "type": "object", "properties": { "name": { "type": "string" }, "age": { "type": of_age } } } });
    let register = |schema: Value| {
        answered(|| spread.store(1, NAMESPACE).send("POST", "schemas/user", &schema.to_string()))
    };
    let registered = register(schema("integer"));
    assert_eq!(registered.status, 200, "{}", registered.body);
    let write = |store: &Store, key: u64, fields: Value| {
        let event = json!({ "type": "put", "collection": "user", "key": key, "fields": fields });
        answered(|| store.send("POST", "write", &json!({ "events": [event] }).to_string()))
    };
    let check = |age: Value, expected: u16| {
        for store in spread.stores(NAMESPACE) {
            for key in KEYS {
                write(&store, key, json!({ "name": 7 })).assert_problem(400, "schema_mismatch");
                let reply = write(&store, key, json!({ "name": "Ann", "age": age }));
                assert_eq!(reply.status, expected, "{}", reply.body);
            }
        }
    };
    let mut clients = Clients::default();
    for store in spread.stores(NAMESPACE) {
        clients.start(move |turn| {
            let event =
                json!({ "type": "put", "collection": "user", "key": turn % 6 + 1, "fields": { "name": 7 } });
            let reply = store.send("POST", "write", &json!({ "events": [event] }).to_string());
            assert!([400, 503].contains(&reply.status), "the schema does not hold: {}", reply.body);
        });
    }
    for _ in 0..2 {
        move_to(&spread, elsewhere(&spread));
        check(json!(7), 200);
    }
    clients.stop();
    let changed = register(schema("number"));
    assert_eq!(changed.status, 200, "{}", changed.body);
    check(json!(7.5), 200);
    let versions = spread.store(2, NAMESPACE).get("schemas/user");
    assert_eq!(versions["versions"].as_array().unwrap().len(), 2, "{versions}");
}

/// Writers that hold no lock go on, and writers that have to wait for one do, wherever the home is.
#[test]
fn writers_go_on_while_the_home_moves() {
    let spread = start();
    let job = leaseholder(&spread, 1, "job");
    let leased = job.take_for("write user/1", 600_000);
    let (written, mut clients) = (Arc::new(AtomicU64::new(0)), Clients::default());
    for (number, store) in spread.stores(NAMESPACE).into_iter().enumerate() {
        let written = Arc::clone(&written);
        let collection = format!("log{number}");
        clients.start(move |turn| {
            let event = json!({ "type": "create", "collection": collection, "key": turn + 1, "fields": { "n": turn } });
            let reply = store.send("POST", "write", &json!({ "events": [event] }).to_string());
            if reply.status == 200 {
                written.fetch_add(1, Ordering::AcqRel);
            } else {
                assert_eq!(reply.status, 503, "{}", reply.body);
            }
            let refused = put(&store, 1, "wait_ms=0");
            assert!([423, 503].contains(&refused.status), "a lease was passed by: {}", refused.body);
        });
    }
    for shard in [1, 2, 3, 1] {
        let (before, begun) = (written.load(Ordering::Acquire), Instant::now());
        move_to(&spread, shard);
        println!("the home moved to shard {shard} within {} ms", begun.elapsed().as_millis());
        eventually("writers go on", || written.load(Ordering::Acquire) > before + 10);
    }
    clients.stop();
    passes(&spread, 1, leased.token);
    let count = |number: usize| {
        let question = json!({ "collection": format!("log{number}") });
        spread.store(2, NAMESPACE).post("count", &question)["count"].as_u64().unwrap()
    };
    let found: u64 = (0..3).map(count).sum();
    assert!(found >= written.load(Ordering::Acquire), "{found} of {written:?} acknowledged documents");
}

#[test]
fn a_move_that_meets_the_death_of_an_owner_leaves_one_home_and_loses_nothing() {
    for of_old in [true, false] {
        let mut spread = start();
        let from = home(&spread.nodes);
        let to = elsewhere(&spread);
        let killed = spread.owner(if of_old { from } else { to });
        let job = leaseholder(&spread, killed % 3 + 1, "job");
        let leased = job.take_for("write user/2, write user/3", 600_000);
        let asked = spread.nodes.server(killed % 3 + 1).native;
        let moving = thread::spawn(move || {
            http::send(asked, "PUT", &format!("/v1/{NAMESPACE}/shard/home/{to}"), &[], b"").status
        });
        // At another moment each time; what holds is the same.
        thread::sleep(Duration::from_millis(30));
        spread.nodes.kill_owner(killed);
        moving.join().unwrap();
        is_refused(&spread, 2, "job");
        is_refused(&spread, 3, "job");
        passes(&spread, 2, leased.token);
        spread.nodes.up(killed);
        move_to(&spread, to);
        is_refused(&spread, 2, "job");
        passes(&spread, 3, leased.token);
        let job = leaseholder(&spread, 1, "other");
        let next = answered(|| job.ask("write user/5", 600_000, 0));
        assert_eq!(next.status, 201, "{}", next.body);
        assert!(next.json()["token"].as_u64().unwrap() > leased.token, "{}", next.body);
    }
}

#[test]
fn a_shard_that_leaves_the_map_gives_its_homes_away() {
    let spread = Spread::start(3, 3, modulo(3));
    let names: Vec<String> = (0..6).map(|number| format!("shop{number}")).collect();
    for name in &names {
        spread.store(1, name).create("user", 1, json!({}));
    }
    let mut leases = Vec::new();
    for name in &names {
        let mut job = Leaseholder::new(spread.nodes.server(2), "job");
        job.store = spread.store(2, name);
        leases.push((name, job.take_for("write user/1", 600_000)));
    }
    assert!(spread.homes()[2] > 0, "none is at shard 3: {:?}", spread.homes());
    spread.reshard(2, modulo(2));
    eventually("no home is left at shard 3", || spread.homes()[2] == 0);
    assert_eq!(spread.homes().iter().sum::<u64>(), 6);
    for (name, leased) in leases {
        let store = spread.store(3, name);
        answered(|| put(&store, 1, "wait_ms=0")).assert_problem(423, "locked");
        let by_token = answered(|| put(&store, 1, &format!("token={}", leased.token)));
        assert_eq!(by_token.status, 200, "{}", by_token.body);
    }
    // New ones begin on a shard of the map.
    for number in 0..6 {
        spread.store(1, &format!("later{number}")).create("user", 1, json!({}));
    }
    assert_eq!(spread.homes()[2], 0);
}

#[test]
fn a_home_that_cannot_move_says_why() {
    let spread = Spread::without_map(2, 2, &[]);
    spread.store(1, NAMESPACE).create("user", 1, json!({}));
    let refused = ask(&spread.nodes, "PUT", "home/2").assert_problem(409, "whole_namespace");
    assert!(refused["detail"].as_str().unwrap().contains("lockwood cluster move"), "{refused}");
    let nowhere = http::send(spread.nodes.server(1).native, "GET", "/v1/nowhere/shard/home", &[], b"");
    nowhere.assert_problem(404, "unknown_namespace");
    spread.config(2, modulo(2));
    spread.store(1, "spread").create("user", 1, json!({}));
    let none = http::send(spread.nodes.server(1).native, "PUT", "/v1/spread/shard/home/7", &[], b"");
    let none = none.assert_problem(400, "no_shard");
    assert!(none["detail"].as_str().unwrap().contains("there are 1, 2"), "{none}");
}
