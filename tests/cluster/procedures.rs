//! Procedures: registered everywhere, run at the owner of their key, all or nothing, and stopped when they do not
//! end.

use crate::{
    cluster::Cluster,
    harness::{Server, eventually},
    http,
    leaseholder::Leaseholder,
    store::Store,
};
use serde_json::{Value, json};
use std::thread;

pub(crate) const TRANSFER: &str = "
return function(db, from, to, amount)
    local source = db.get('account', from) or db.fail('no_account', 'there is no account to take from')
    local target = db.get('account', to) or { balance = 0 }
    if source.balance < amount then db.fail('poor', 'only ' .. source.balance .. ' left') end
    db.update('account', from, { balance = source.balance - amount })
    db.put('account', to, { balance = target.balance + amount })
    return { left = source.balance - amount }
end";

/// Two nodes; keys with the same first part are together, and `1` and `2` are not.
pub(crate) fn pair() -> Cluster {
    let cluster = Cluster::nodes(2);
    cluster.config(2, json!({ "function": "modulo" }));
    cluster
}

pub(crate) fn register(store: &Store, name: &str, source: &str) -> Value {
    let target = store.target(&format!("shard/procedures/{name}"));
    let headers = [("content-type", "text/plain")];
    let reply = http::send(store.native, "PUT", &target, &headers, source.as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

pub(crate) fn call_of(mode: &str, procedure: &str, key: Value, arguments: Value) -> Value {
    json!({ "mode": mode, "procedure": procedure, "collection": "account", "key": key, "arguments": arguments })
}

#[track_caller]
pub(crate) fn call(store: &Store, procedure: &str, key: Value, arguments: Value) -> Value {
    store.post("shard/call", &call_of("rw", procedure, key, arguments))
}

pub(crate) fn put(store: &Store, key: Value, balance: u64) {
    let body = json!({ "collection": "account", "key": key, "fields": { "balance": balance } });
    store.post("shard/replace", &body);
}

pub(crate) fn balance(store: &Store, key: Value) -> Value {
    let body = json!({ "mode": "rw", "collection": "account", "key": key });
    store.post("shard/eselect", &body)["document"]["value"]["balance"].clone()
}

/// Nodes give a call a key before they send it, so that they can send it again if its outcome is unknown.
#[test]
fn a_call_that_was_done_is_answered_again_whatever_became_of_its_locks() {
    let server = Server::start(&[]);
    let store = Store::new(&server, "default");
    register(&store, "transfer", TRANSFER);
    put(&store, json!(1), 100);
    let leaseholder = Leaseholder::new(&server, "job");
    let held = leaseholder.take("write account/1");
    let ask = |key: &str, body: &Value| {
        let headers = [("content-type", "application/json"), ("lockwood-retry", key)];
        http::send(store.native, "POST", &store.target("shard/call"), &headers, body.to_string().as_bytes())
    };
    let body = |tokens: Value| {
        let mut body = call_of("rw", "transfer", json!(1), json!([[1, "savings"], 30]));
        (body["wait_ms"], body["tokens"]) = (json!(0), tokens);
        body
    };
    let under_lock = body(json!([held.token]));
    let done = ask("a", &under_lock);
    assert_eq!(done.status, 200, "{}", done.body);
    assert_eq!(leaseholder.release(held.lock, &json!({ "token": held.token })).status, 200);
    let anonymous = body(json!([]));
    assert_eq!(ask("b", &anonymous).status, 200);
    // Its lock is over, and another one is in its way.
    Leaseholder::new(&server, "eve").take("write account/1");
    for (key, body) in [("a", &under_lock), ("b", &anonymous)] {
        let again = ask(key, body);
        assert_eq!(again.status, 200, "{}", again.body);
    }
    assert_eq!(ask("c", &under_lock).json()["code"], "lock_lost");
    assert_eq!(ask("d", &anonymous).json()["code"], "locked");
    assert_eq!(balance(&store, json!(1)), 40);
}

#[test]
fn a_procedure_is_on_every_shard_and_runs_at_the_owner_of_its_key() {
    let cluster = pair();
    let first = register(&cluster.store(2, "bank"), "transfer", TRANSFER);
    assert_eq!((&first["name"], &first["version"]), (&json!("transfer"), &json!(1)));
    assert_eq!(
        register(&cluster.store(1, "bank"), "transfer", TRANSFER),
        first,
        "the same text changes nothing"
    );
    for node in 1..=2 {
        let store = cluster.store(node, "bank");
        let raw = store.post(
            "shard/raw/select?operator=test",
            &json!({ "collection": "_procedures", "key": "transfer" }),
        );
        assert_eq!(raw["document"]["value"]["hash"], first["hash"], "{raw}");
        assert_eq!(store.get("shard/procedures/transfer")["source"], TRANSFER);
        assert_eq!(store.get("shard/procedures")["procedures"], json!([first]));
        for key in [1, 2] {
            put(&store, json!(key), 100);
            let answer = call(&store, "transfer", json!(key), json!([[key, "savings"], 30]));
            assert_eq!((&answer["answer"], &answer["version"]), (&json!({ "left": 70 }), &json!(1)));
            assert!(answer["position"].is_u64(), "{answer}");
            assert_eq!(balance(&store, json!(key)), 70);
        }
    }
    assert_eq!(balance(&cluster.store(1, "bank"), json!([2, "savings"])), 60);
    let second = register(&cluster.store(1, "bank"), "transfer", "return function() return 7 end");
    assert_eq!(second["version"], 2);
    for key in [1, 2] {
        assert_eq!(call(&cluster.store(1, "bank"), "transfer", json!(key), json!([]))["answer"], 7);
    }
    let body = call_of("rw", "transfer", json!(1), json!([]));
    let deleted = cluster.store(2, "bank").ask("DELETE", "shard/procedures/transfer", &json!({}));
    assert_eq!(deleted["version"], 2);
    for node in 1..=2 {
        let store = cluster.store(node, "bank");
        store.refuses("POST", "shard/call", &body, 404, "no_procedure");
        store.refuses("GET", "shard/procedures/transfer", &json!({}), 404, "no_procedure");
        store.refuses("DELETE", "shard/procedures/transfer", &json!({}), 404, "no_procedure");
    }
    assert_eq!(register(&cluster.store(1, "bank"), "transfer", TRANSFER)["version"], 3);
}

#[test]
fn transfers_at_the_same_time_lose_and_make_nothing() {
    let cluster = pair();
    register(&cluster.store(1, "bank"), "transfer", TRANSFER);
    let accounts = ["a", "b", "c", "d"];
    for account in accounts {
        put(&cluster.store(1, "bank"), json!([1, account]), 1000);
    }
    thread::scope(|scope| {
        for worker in 0..8 {
            let store = cluster.store(1 + worker % 2, "bank");
            scope.spawn(move || {
                for turn in 0..20 {
                    let (from, to) =
                        (accounts[(worker + turn) % 4], accounts[(worker * 3 + turn * 2 + 1) % 4]);
                    if from != to {
                        let body = json!({ "mode": "rw", "procedure": "transfer", "collection": "account",
                            "key": [1, from], "arguments": [[1, to], 7], "wait_ms": 30000 });
                        store.post("shard/call", &body);
                    }
                }
            });
        }
    });
    let sum: u64 = accounts
        .iter()
        .map(|key| balance(&cluster.store(1, "bank"), json!([1, key])).as_u64().unwrap())
        .sum();
    assert_eq!(sum, 4000);
}

#[test]
fn what_fails_does_nothing_and_says_why() {
    let cluster = pair();
    let store = cluster.store(1, "bank");
    register(&store, "transfer", TRANSFER);
    for key in [1, 2] {
        put(&store, json!(key), 10);
        let refuses = |arguments: Value, status: u16, code: &str| {
            let body = call_of("rw", "transfer", json!(key), arguments);
            let problem = store.refuses("POST", "shard/call", &body, status, code);
            assert_eq!(balance(&store, json!(key)), 10);
            problem["detail"].as_str().unwrap().to_owned()
        };
        assert_eq!(refuses(json!([[key, "x"], 11]), 422, "procedure_failed"), "poor: only 10 left");
        // The other account is on the other shard.
        let detail = refuses(json!([key + 1, 1]), 409, "spans_shards");
        assert!(detail.contains("is on shard"), "{detail}");
        let detail = refuses(json!([[key, "x"]]), 422, "procedure_failed");
        assert!(detail.contains("line 5") && detail.contains("nothing was done"), "{detail}");
    }
    let write = "return function(db, key) db.put('account', key, { meta_position = 1 }) end";
    register(&store, "reserved", write);
    store.refuses(
        "POST",
        "shard/call",
        &call_of("rw", "reserved", json!(1), json!([])),
        400,
        "reserved_field",
    );
    register(&store, "own", "return function(db, key) db.put('_procedures', key, {}) end");
    let body = call_of("rw", "own", json!(1), json!([]));
    store.refuses("POST", "shard/call", &body, 400, "reserved_collection");
    store.refuses("POST", "shard/call", &call_of("x", "own", json!(1), json!([])), 400, "bad_mode");
    for source in ["return function(", "return 7", ""] {
        let target = store.target("shard/procedures/bad");
        let reply = http::send(store.native, "PUT", &target, &[], source.as_bytes());
        reply.assert_problem(400, "bad_script");
    }
}

#[test]
fn a_read_only_call_reads_and_does_not_write() {
    let cluster = pair();
    let store = cluster.store(1, "bank");
    register(&store, "transfer", TRANSFER);
    register(&store, "peek", "return function(db, key) return (db.get('account', key) or {}).balance end");
    for key in [1, 2] {
        put(&store, json!(key), 10);
        let peek = store.post("shard/call", &call_of("ro", "peek", json!(key), json!([])));
        assert_eq!((&peek["answer"], &peek["position"]), (&json!(10), &Value::Null));
        let body = call_of("r", "transfer", json!(key), json!([[key, "x"], 1]));
        let problem = store.refuses("POST", "shard/call", &body, 400, "bad_mode");
        assert!(problem["detail"].as_str().unwrap().contains("call it with rw"), "{problem}");
        assert_eq!(balance(&store, json!(key)), 10);
    }
}

#[test]
fn one_that_does_not_end_is_stopped_and_hurts_nobody() {
    let cluster = pair();
    let store = cluster.store(1, "bank");
    register(&store, "forever", "return function() while true do end end");
    register(&store, "hungry", "return function() local t = {} while true do t[#t + 1] = t end end");
    put(&store, json!(1), 5);
    thread::scope(|scope| {
        for worker in 0..4 {
            let store = cluster.store(1 + worker % 2, "bank");
            scope.spawn(move || {
                for name in ["forever", "hungry"] {
                    let body = call_of("rw", name, json!([worker, "x"]), json!([]));
                    let problem = store.refuses("POST", "shard/call", &body, 422, "procedure_failed");
                    let detail = problem["detail"].as_str().unwrap();
                    assert!(detail.contains("_max"), "{detail}");
                }
            });
        }
        for _ in 0..50 {
            assert_eq!(balance(&store, json!(1)), 5);
            put(&store, json!(2), 6);
        }
    });
}

#[test]
fn a_call_that_comes_twice_is_done_once_and_answered_alike() {
    let cluster = pair();
    let store = cluster.store(1, "bank");
    register(&store, "transfer", TRANSFER);
    for key in [1, 2] {
        put(&store, json!(key), 100);
        let body = call_of("rw", "transfer", json!(key), json!([[key, "x"], 40])).to_string();
        let retry = format!("once-{key}");
        let send = || {
            let target = store.target("shard/call");
            http::send(store.native, "POST", &target, &[("lockwood-retry", &retry)], body.as_bytes()).json()
        };
        let first = send();
        assert_eq!(first["answer"], json!({ "left": 60 }));
        assert_eq!(send(), first);
        assert_eq!(balance(&store, json!(key)), 60);
    }
}

#[test]
fn procedures_go_to_new_shards_and_work_while_documents_move() {
    let mut cluster = pair();
    register(&cluster.store(1, "bank"), "transfer", TRANSFER);
    for key in 1..=12 {
        put(&cluster.store(1, "bank"), json!(key), 100);
        put(&cluster.store(1, "bank"), json!([key, "x"]), 0);
    }
    cluster.add();
    let store = cluster.store(2, "bank");
    cluster.config(3, json!({ "function": "modulo" }));
    assert_eq!(cluster.step(), "copy");
    // Nothing is copied yet: what is needed is brought over.
    for key in 1..=6 {
        let done = call(&cluster.store(1 + key % 3, "bank"), "transfer", json!(key), json!([[key, "x"], 1]));
        assert_eq!(done["answer"]["left"], 99);
        let peek = "return function(db, key) return db.get('account', { key, 'x' }).balance end";
        register(&store, "peek", peek);
        let peek = store.post("shard/call", &call_of("ro", "peek", json!(key + 6), json!([])));
        assert_eq!(peek["answer"], 0);
    }
    cluster.drop_prev();
    cluster.clean_up();
    for key in 1..=12 {
        let done = call(&cluster.store(1 + key % 3, "bank"), "transfer", json!(key), json!([[key, "x"], 1]));
        assert_eq!(done["answer"]["left"], if key <= 6 { 98 } else { 99 });
    }
}

/// It is refused as long as its home has no owner; once it is told, it is everywhere.
#[test]
fn a_procedure_that_is_registered_while_an_owner_is_away_gets_everywhere() {
    let mut cluster = pair();
    let store = cluster.store(1, "bank");
    for key in [1, 2] {
        put(&store, json!(key), 5);
    }
    cluster.kill(2);
    let target = store.target("shard/procedures/transfer");
    eventually("it is registered", || {
        let reply = http::send(store.native, "PUT", &target, &[], TRANSFER.as_bytes());
        if reply.status != 200 {
            reply.assert_problem(503, "shard_unreachable");
        }
        reply.status == 200
    });
    for key in [1, 2] {
        let done = call(&store, "transfer", json!(key), json!([[key, "x"], 5]));
        assert_eq!((&done["answer"]["left"], &done["version"]), (&json!(0), &json!(1)));
    }
}

#[test]
fn procedures_work_without_a_cluster() {
    let server = Server::start(&[]);
    let store = Store::new(&server, "bank");
    register(&store, "transfer", TRANSFER);
    put(&store, json!("a"), 10);
    assert_eq!(call(&store, "transfer", json!("a"), json!(["b", 4]))["answer"]["left"], 6);
    assert_eq!(balance(&store, json!("b")), 4);
}
