//! Locks guard documents: what others have locked is not written, the holder's own writes pass with its token, and
//! a token whose lock is over opens nothing.

use crate::{
    harness::{Server, eventually},
    http::{self, Reply},
    leaseholder::{Leaseholder, locks_in},
    peer::Peer,
    store::Store,
};
use serde_json::{Value, json};
use std::thread;

fn event(kind: &str, key: impl Into<Value>, fields: Value) -> Value {
    let mut event = json!({ "type": kind, "collection": "user", "key": key.into() });
    if !fields.is_null() {
        event["fields"] = fields;
    }
    event
}

fn update(fields: Value) -> Value {
    event("update", 42, fields)
}

/// A call that waits for nobody.
fn call(event: &Value, tokens: &[u64]) -> Value {
    json!({ "events": [event], "tokens": tokens, "wait_ms": 0 })
}

struct Scene {
    server: Server,
    store: Store,
}

impl Scene {
    /// `user/42` is there.
    fn start() -> Scene {
        Scene::start_with(&[])
    }

    fn start_with(flags: &[&str]) -> Scene {
        let server = Server::start(flags);
        let store = Store::new(&server, "default");
        store.create("user", 42, json!({ "name": "Ann", "age": 1 }));
        Scene { server, store }
    }

    fn leaseholder(&self, name: &str) -> Leaseholder {
        Leaseholder::new(&self.server, name)
    }

    fn write(&self, event: &Value, tokens: &[u64]) -> Reply {
        self.store.send("POST", "write", &call(event, tokens).to_string())
    }

    #[track_caller]
    fn passes(&self, event: &Value, tokens: &[u64]) {
        let reply = self.write(event, tokens);
        assert_eq!(reply.status, 200, "{event}: {}", reply.body);
    }

    /// That a write is refused because of somebody's lock.
    #[track_caller]
    fn blocked_by(&self, holder: &str, event: &Value, tokens: &[u64]) -> Value {
        let problem = self.write(event, tokens).assert_problem(423, "locked");
        assert_eq!(problem["blockers"][0]["name"], holder, "{problem}");
        assert!(problem["blockers"][0]["age_ms"].is_u64(), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(holder), "{problem}");
        problem
    }

    #[track_caller]
    fn lost(&self, event: &Value, tokens: &[u64]) {
        self.write(event, tokens).assert_problem(409, "lock_lost");
    }

    fn value(&self) -> Value {
        self.store.get("documents/user/42")["document"]["value"].clone()
    }
}

/// Every way to write the document.
fn writes() -> Vec<Value> {
    vec![update(json!({ "age": 2 })), event("put", 42, json!({ "age": 2 })), event("delete", 42, Value::Null)]
}

#[test]
fn a_session_lock_keeps_others_from_writing() {
    let scene = Scene::start();
    let mut ann = Peer::open(&scene.server, "ann");
    let held = ann.hold("write user/42");
    for write in writes() {
        let problem = scene.blocked_by("ann", &write, &[]);
        assert_eq!(problem["blockers"][0]["lock"], held.lock);
        assert!(!problem["paths"].as_array().unwrap().is_empty(), "{problem}");
    }
    let put = scene.store.send("PUT", "documents/user/42?wait_ms=0", "{}");
    put.assert_problem(423, "locked");
    let target = scene.store.target("documents/user/42?wait_ms=0");
    http::request(scene.store.native, "DELETE", &target, &[]).assert_problem(423, "locked");
    assert_eq!(scene.value(), json!({ "name": "Ann", "age": 1 }));
    // Its own writes pass, by its token.
    scene.passes(&update(json!({ "age": 3 })), &[held.token]);
    let put = scene.store.send("PUT", &format!("documents/user/42?token={}", held.token), r#"{"age":4}"#);
    assert_eq!(put.status, 200, "{put:?}");
    ann.release(&held);
    scene.lost(&update(json!({ "age": 5 })), &[held.token]);
    scene.passes(&update(json!({ "age": 6 })), &[]);
}

#[test]
fn a_lease_keeps_others_from_writing() {
    let scene = Scene::start();
    let (ann, bob) = (scene.leaseholder("ann"), scene.leaseholder("bob"));
    let held = ann.take("write user/42");
    let other = bob.take("write bill");
    for write in writes() {
        scene.blocked_by("ann", &write, &[]);
        scene.blocked_by("ann", &write, &[other.token]);
        scene.lost(&write, &[held.token, other.token]);
        scene.lost(&write, &[held.token + 100_000]);
    }
    for write in writes() {
        scene.passes(&write, &[held.token]);
    }
    // A second lease of hers is as good.
    let second = ann.take("write x");
    scene.passes(&event("restore", 42, Value::Null), &[second.token]);
    ann.release(held.lock, &json!({ "owner": "ann" }));
    scene.lost(&update(json!({ "age": 5 })), &[held.token, second.token]);
    scene.passes(&update(json!({ "age": 5 })), &[]);
}

#[test]
fn a_write_waits_until_it_is_free() {
    let scene = Scene::start();
    let mut session = Peer::open(&scene.server, "ann");
    let held = session.hold("write user/42");
    let writer = |scene: &Scene| {
        let store = scene.store.clone();
        let body = json!({ "events": [update(json!({ "age": 7 }))], "wait_ms": 60_000 });
        thread::spawn(move || store.send("POST", "write", &body.to_string()))
    };
    let waiting = writer(&scene);
    eventually("the write waits", || locks_in(&scene.store, "waiting").len() == 1);
    assert_eq!(locks_in(&scene.store, "waiting")[0]["owner"]["via"], "operation");
    session.release(&held);
    assert_eq!(waiting.join().unwrap().status, 200);
    assert_eq!(scene.value()["age"], 7);
    // For the end of a lease too.
    scene.leaseholder("bob").take_for("write user", 300);
    assert_eq!(writer(&scene).join().unwrap().status, 200);
    let bob = scene.leaseholder("bob");
    bob.take("write user/42");
    let body = json!({ "events": [update(json!({ "age": 7 }))], "wait_ms": 30 });
    scene.store.refuses("POST", "write", &body, 423, "timeout");
    assert!(locks_in(&scene.store, "waiting").is_empty());
    bob.release_all();
    eventually("nothing is left", || locks_in(&scene.store, "granted").is_empty());
}

#[test]
fn the_server_says_how_long_a_write_waits_unless_told() {
    let scene = Scene::start_with(&["--wait", "0s"]);
    scene.leaseholder("ann").take("write user/42");
    let body = json!({ "events": [update(json!({ "age": 7 }))] });
    scene.store.refuses("POST", "write", &body, 423, "locked");
}

#[test]
fn readers_keep_writers_out() {
    let scene = Scene::start();
    let ann = scene.leaseholder("ann");
    let held = ann.take("read user/42");
    for write in writes() {
        scene.blocked_by("ann", &write, &[]);
    }
    scene.leaseholder("bob").take("read user/42");
    // Reading is all she asked for; a write of hers has to wait for the other reader.
    scene.blocked_by("bob", &update(json!({ "age": 2 })), &[held.token]);
}

#[test]
fn fields_are_guarded_one_by_one() {
    let scene = Scene::start();
    let held = scene.leaseholder("ann").take("write user/42/name");
    scene.passes(&update(json!({ "age": 2 })), &[]);
    let problem = scene.blocked_by("ann", &update(json!({ "age": 3, "name": "Bob" })), &[]);
    assert_eq!(problem["paths"], json!([["user", "42", "name"]]));
    for write in &writes()[1..] {
        scene.blocked_by("ann", write, &[]);
    }
    scene.passes(&update(json!({ "name": "Anna" })), &[held.token]);
    assert_eq!(scene.value(), json!({ "name": "Anna", "age": 2 }));
    let inner = scene.leaseholder("bob").take("write user/42/age/years");
    scene.blocked_by("bob", &update(json!({ "age": 3 })), &[]);
    scene.passes(&update(json!({ "age": 3 })), &[inner.token]);
}

#[test]
fn collections_and_namespaces_are_guarded() {
    let scene = Scene::start();
    let ann = scene.leaseholder("ann");
    for what in ["write user", "write /", "read user", "read /"] {
        ann.take(what);
        for write in writes() {
            scene.blocked_by("ann", &write, &[]);
        }
        scene.blocked_by("ann", &event("create", 43, json!({})), &[]);
        assert_eq!(ann.unlock(what).status, 200);
    }
    ann.take("write bill");
    scene.passes(&update(json!({ "age": 2 })), &[]);
}

#[test]
fn whoever_holds_the_list_of_a_collection_keeps_it_as_it_is() {
    let scene = Scene::start();
    let ann = scene.leaseholder("ann");
    for what in ["list user", "read user:2"] {
        let held = ann.take(what);
        scene.blocked_by("ann", &event("create", 43, json!({})), &[]);
        scene.blocked_by("ann", &event("delete", 42, Value::Null), &[]);
        scene.blocked_by("ann", &event("put", 44, json!({})), &[]);
        scene.passes(&update(json!({ "age": 2 })), &[]);
        ann.release(held.lock, &json!({ "owner": "ann" }));
    }
    // Two that add to it do not disturb each other.
    ann.take("link user");
    scene.passes(&event("create", 43, json!({})), &[]);
    scene.leaseholder("bob").is_refused("list user");
}

#[test]
fn a_lock_of_the_node_alone_guards_nothing_below() {
    let scene = Scene::start();
    scene.leaseholder("ann").take("write user/42:1");
    scene.passes(&update(json!({ "age": 2 })), &[]);
    scene.blocked_by("ann", &event("put", 42, json!({})), &[]);
}

#[test]
fn positions_and_tokens_in_one_request() {
    let scene = Scene::start();
    let ann = scene.leaseholder("ann");
    let held = ann.take("write user/42");
    let position = scene.store.get("documents/user/42")["document"]["position"].as_u64().unwrap();
    let body = |position: u64, token: u64, age: u64| {
        let lock = json!({ "collection": "user", "key": 42, "position": position });
        json!({ "events": [update(json!({ "age": age }))], "locks": [lock], "tokens": [token], "wait_ms": 0 })
    };
    scene.store.post("write", &body(position, held.token, 2));
    scene.store.refuses("POST", "write", &body(position, held.token, 3), 409, "position_locked");
    scene.store.refuses("POST", "write", &body(position + 1, held.token + 9, 3), 409, "lock_lost");
    ann.release(held.lock, &json!({ "owner": "ann" }));
    scene.store.refuses("POST", "write", &body(position + 1, held.token, 3), 409, "lock_lost");
    assert_eq!(scene.value()["age"], 2);
}

#[test]
fn a_write_that_was_done_is_answered_so_even_when_its_lease_is_over() {
    let scene = Scene::start();
    let (ann, bob) = (scene.leaseholder("ann"), scene.leaseholder("bob"));
    let held = ann.take("write user/42");
    let body = |age: u64, key: &str| {
        let events = json!([update(json!({ "age": age }))]);
        json!({ "events": events, "tokens": [held.token], "idempotency_key": key, "wait_ms": 0 })
    };
    let first = scene.store.post("write", &body(2, "k"));
    ann.release(held.lock, &json!({ "owner": "ann" }));
    bob.take("write user/42");
    let again = scene.store.post("write", &body(2, "k"));
    assert_eq!((&again["position"], &again["replayed"]), (&first["position"], &json!(true)));
    scene.store.refuses("POST", "write", &body(2, "another"), 409, "lock_lost");
    let other = scene.store.send("POST", "write", &body(3, "k").to_string());
    assert!(other.status == 409, "{other:?}");
    assert_eq!(scene.value()["age"], 2);
}

#[test]
fn nothing_is_loaded_under_somebodys_lock() {
    let scene = Scene::start();
    let dump = http::request(scene.store.native, "GET", &scene.store.target("dump"), &[]).body;
    let other = Store::new(&scene.server, "other");
    let ann = Leaseholder { store: other.clone(), owner: "ann".into() };
    let load = || {
        let headers = [("content-type", "application/x-ndjson")];
        http::send(other.native, "POST", &other.target("load"), &headers, dump.as_bytes())
    };
    ann.take("read user/1/x");
    let problem = load().assert_problem(423, "timeout");
    assert_eq!(problem["blockers"][0]["name"], "ann", "{problem}");
    ann.release_all();
    assert_eq!(load().status, 200);
    assert_eq!(other.get("documents/user/42")["document"]["value"]["name"], "Ann");
}

#[test]
fn a_write_of_many_documents_is_refused_as_a_whole() {
    let scene = Scene::start();
    let held = scene.leaseholder("ann").take("write user/700");
    // More than are looked at beside the mutex of the namespace.
    let events: Vec<Value> = (100..1000).map(|key| event("put", key, json!({ "n": key }))).collect();
    let body = |tokens: &[u64]| json!({ "events": events, "tokens": tokens, "wait_ms": 0 });
    let problem = scene.store.refuses("POST", "write", &body(&[]), 423, "locked");
    assert_eq!(problem["paths"], json!([["user", "700"]]), "{problem}");
    assert_eq!(scene.store.post("count", &json!({ "collection": "user" }))["count"], 1);
    scene.store.post("write", &body(&[held.token]));
    assert_eq!(scene.store.post("count", &json!({ "collection": "user" }))["count"], 901);
    eventually("its own lock is given back", || locks_in(&scene.store, "granted").len() == 1);
}

#[test]
fn bad_tokens_are_bad_requests() {
    let scene = Scene::start();
    scene.store.send("PUT", "documents/user/1?token=x", "{}").assert_problem(400, "bad_query");
    let body = json!({ "events": [update(json!({}))], "tokens": ["x"] });
    scene.store.refuses("POST", "write", &body, 400, "bad_body");
    let body = json!({ "events": [update(json!({}))], "tokens": [] , "wait_ms": -1 });
    scene.store.refuses("POST", "write", &body, 400, "bad_body");
    let ended = scene.leaseholder("ann").take_for("write z", 100);
    eventually("it ends", || scene.leaseholder("ann").locks().is_empty());
    scene.lost(&update(json!({ "age": 9 })), &[ended.token]);
    assert_eq!(scene.value()["age"], 1);
}

// Holders whose locks others wait for, and operations whose owners go.

/// Waits until so many locks stand in line.
fn in_line(store: &Store, count: usize) {
    eventually("they stand in line", || locks_in(store, "waiting").len() == count);
}

#[test]
fn a_holder_goes_on_writing_while_others_wait_for_it() {
    let scene = Scene::start();
    let ann = scene.leaseholder("ann");
    let held = ann.take("write user/42");
    let store = Store::new(&scene.server, "default");
    let search = thread::spawn(move || store.get("documents/user?isolation=locked&wait_ms=20000"));
    in_line(&scene.store, 1);
    for write in writes() {
        scene.passes(&write, &[held.token]);
    }
    scene.passes(&event("restore", 42, Value::Null), &[held.token]);
    let many: Vec<Value> = (0..800).map(|_| update(json!({ "age": 9 }))).collect();
    let many = json!({ "events": many, "tokens": [held.token], "wait_ms": 0 });
    assert_eq!(scene.store.send("POST", "write", &many.to_string()).status, 200);
    ann.release_all();
    assert_eq!(search.join().unwrap()["documents"][0]["value"]["age"], 9);
}

#[test]
fn an_operation_of_a_session_that_goes_is_answered() {
    let scene = Scene::start();
    let bob = scene.leaseholder("bob");
    bob.take("write user/42");
    let mut ann = Peer::open(&scene.server, "ann");
    let held = ann.hold("write x");
    let store = Store::new(&scene.server, "default");
    let call = json!({ "events": [update(json!({ "age": 7 }))], "tokens": [held.token], "wait_ms": 20_000 });
    let write = thread::spawn(move || store.send("POST", "write", &call.to_string()));
    in_line(&scene.store, 1);
    ann.ask(json!({ "type": "bye" }));
    bob.release_all();
    write.join().unwrap().assert_problem(409, "lock_lost");
    assert_eq!(scene.value()["age"], 1);
    eventually("nothing is left", || scene.store.get("locks")["locks"] == json!([]));
}

/// The lock of a long call is its own: that its session ends does not end it half-way.
#[test]
fn a_long_write_is_done_before_anybody_else_has_the_lock() {
    let scene = Scene::start();
    for round in 0..5 {
        let mut ann = Peer::open(&scene.server, "ann");
        let held = ann.hold("write user");
        let mut bob = Peer::open(&scene.server, "bob");
        bob.queue("write user");
        let events: Vec<Value> = (0..5000).map(|n| update(json!({ "age": round * 10_000 + n }))).collect();
        let call = json!({ "events": events, "tokens": [held.token] }).to_string();
        let store = Store::new(&scene.server, "default");
        let write = thread::spawn(move || store.send("POST", "write", &call));
        thread::sleep(std::time::Duration::from_millis(20 * round));
        ann.ask(json!({ "type": "bye" }));
        bob.granted();
        let before = scene.value();
        write.join().unwrap();
        assert_eq!(scene.value(), before, "round {round}: it changed under bob's lock");
        bob.ask(json!({ "type": "bye" }));
    }
}
