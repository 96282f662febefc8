//! Purging: what is purged is gone, from every answer and from every byte of the files, and what stays says nothing of
//! it but that it was purged.

use crate::{
    harness::{BINARY, Ended, Server, eventually},
    http,
    isolation::Held,
    peer::Peer,
    store::{Store, timeless},
};
use serde_json::{Value, json};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Output},
    thread,
    time::Duration,
};

/// What must not be left: a value, a key, the name of a field, a note and the note of a lease.
const SECRETS: [&str; 5] = ["value-4711-x", "key-4711-x", "field-4711-x", "note-4711-x", "lease-4711-x"];
const KEY: &str = "key-4711-x";

/// The secrets that are in the files of a directory, each with the file.
fn left(directory: &Path) -> Vec<String> {
    let mut search = Command::new("grep");
    search
        .args(["-r", "-a", "-o", "-F"])
        .args(SECRETS.iter().flat_map(|secret| ["-e", secret]))
        .arg(directory);
    let output = search.output().unwrap();
    // What is removed meanwhile is no concern; that it looked is.
    assert!(output.status.code().is_some(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[track_caller]
fn assert_nothing_left(directory: &Path) {
    assert!(left(directory).is_empty(), "in the files: {:?}", left(directory));
}

/// Has a document with all the secrets in it, changed, deleted and restored, and another one that stays.
fn fill(shop: &Store) {
    shop.ask("PUT", "indexes/user/name", &json!({}));
    let both = json!({ "requests": [{
        "events": [
            { "type": "create", "collection": "user", "key": KEY,
              "fields": { "field-4711-x": "value-4711-x", "name": "value-4711-x" } },
            { "type": "create", "collection": "user", "key": "bob", "fields": { "name": "Bob" } },
        ],
        "user": "writer", "note": "note-4711-x",
    }], "idempotency_key": "key-4711-x" });
    shop.post("write", &both);
    for round in 0..20 {
        shop.update("user", KEY, json!({ "name": format!("value-4711-x {round}") }));
    }
    shop.delete("user", KEY);
    shop.send("POST", &format!("restore/user/{KEY}"), "");
    shop.update("user", "bob", json!({ "name": "Bobby" }));
    let lease = json!({ "owner": "o", "resources": [{ "mode": "write", "path": format!("user/{KEY}") }],
        "ttl_ms": 60_000, "note": "lease-4711-x" });
    let lease = shop.send("POST", "locks", &lease.to_string()).json();
    shop.post(&format!("locks/{}/release", lease["lock"]), &json!({ "token": lease["token"] }));
}

#[track_caller]
pub(crate) fn begin(shop: &Store, body: Value) -> Value {
    let reply = shop.send("POST", "purge", &body.to_string());
    assert_eq!(reply.status, 202, "{body}: {reply:?}");
    reply.json()
}

pub(crate) fn purges(shop: &Store) -> Vec<Value> {
    let reply = http::request(shop.native, "GET", "/v1/purges", &[]);
    reply.json()["purges"].as_array().unwrap().clone()
}

/// Purges and waits until that is complete.
#[track_caller]
pub(crate) fn purge(shop: &Store, mut body: Value) -> Value {
    body["user"] = "ann".into();
    let begun = begin(shop, body);
    eventually("the purge is complete", || purges(shop).is_empty());
    begun
}

fn lockwood(shop: &Store, args: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(args).env("LOCKWOOD_SERVER", shop.native.to_string()).env("USER", "ann").output().unwrap()
}

#[track_caller]
pub(crate) fn verify(ended: Ended) -> Ended {
    let verified = Command::new(BINARY).args(["verify", "--data"]).arg(ended.data()).output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
    ended
}

/// That no answer has anything of the document, whatever is asked, and that the other one is as it was.
#[track_caller]
fn assert_gone(shop: &Store) {
    shop.send("GET", &format!("documents/user/{KEY}"), "").assert_problem(404, "no_document");
    shop.send("GET", &format!("documents/user/{KEY}?deleted=with"), "").assert_problem(404, "no_document");
    shop.send("GET", &format!("documents/user/{KEY}?at=3"), "").assert_problem(404, "no_document");
    shop.send("GET", &format!("history/user/{KEY}"), "").assert_problem(404, "no_document");
    assert_eq!(shop.found(&json!({ "collection": "user", "deleted": "with" })), ["bob"]);
    let is = json!({ "field": "name", "op": "=", "value": "value-4711-x 19" });
    assert!(shop.found(&json!({ "collection": "user", "filter": is })).is_empty());
    let told = [
        shop.send("GET", "changes?after=0", "").body,
        shop.send("GET", "dump", "").body,
        shop.send("GET", "locks", "").body,
        shop.send("GET", "operator-log", "").body,
    ];
    for text in told {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
    assert_eq!(shop.get("documents/user/bob")["document"]["value"], json!({ "name": "Bobby" }));
    let history = shop.get("history/user/bob");
    let events: Vec<&Value> =
        history["entries"].as_array().unwrap().iter().map(|entry| &entry["event"]).collect();
    assert_eq!(events, ["created", "updated"], "{history}");
    assert_eq!(history["entries"][0]["user"], "writer", "{history}");
}

#[test]
fn a_purged_document_is_in_no_answer_and_in_no_byte_of_the_files() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    fill(&shop);
    assert!(!left(server.data()).is_empty(), "there is something to look for");
    let position = shop.get("position")["position"].as_u64().unwrap();
    let output = lockwood(&shop, &["purge", &format!("user/{KEY}"), "-n", "shop", "--note", "asked for it"]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{output:?}");
    let expected = format!("1 document of user purged at position {}; nothing of it is left", position + 1);
    assert!(text.starts_with(&expected) && text.contains("Earlier backups and dumps"), "{text}");
    assert_nothing_left(server.data());
    assert_gone(&shop);
    let server = verify(server.stop()).restart(&[]);
    assert_nothing_left(server.data());
    let shop = Store::new(&server, "shop");
    assert_gone(&shop);
    assert_eq!(shop.get("position")["position"], position + 1);
    shop.create("user", KEY, json!({ "name": "another life" }));
    assert_eq!(shop.get(&format!("history/user/{KEY}"))["entries"].as_array().unwrap().len(), 1);
}

/// Forgetting history saves a snapshot of everything.
#[test]
fn a_saved_snapshot_has_nothing_of_what_was_purged() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    fill(&shop);
    shop.trim(0);
    shop.update("user", KEY, json!({ "name": "value-4711-x" }));
    purge(&shop, json!({ "collection": "user", "keys": [KEY] }));
    assert_nothing_left(server.data());
    verify(server.stop());
}

#[test]
fn what_stays_is_who_purged_when_why_and_of_which_collection() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    fill(&shop);
    let position = shop.get("position")["position"].as_u64().unwrap();
    let begun = purge(&shop, json!({ "collection": "user", "keys": [KEY], "note": "asked for it" }));
    assert_eq!(begun["position"], position + 1);
    assert_eq!(begun["purged"], json!({ "collection": "user", "documents": 1 }));
    let commit = json!({ "position": position + 1, "at": "T", "user": "ann", "note": "asked for it", "events": [],
        "purged": { "collection": "user", "documents": 1 } });
    let check = |shop: &Store| {
        assert_eq!(timeless(shop.get(&format!("changes?after={position}")))["commits"], json!([commit]));
        assert_eq!(shop.get("changes?after=0&collection=other")["commits"], json!([]));
        let first = &shop.get("changes?after=0")["commits"][0];
        assert_eq!(first["events"].as_array().unwrap().len(), 1, "only what is about bob: {first}");
        assert_eq!((&first["user"], &first["note"]), (&json!("writer"), &Value::Null), "{first}");
    };
    check(&shop);
    let action = &shop.get("operator-log")["actions"][0];
    assert_eq!((&action["action"], &action["operator"]), (&json!("purge"), &json!("ann")), "{action}");
    assert_eq!(
        (&action["document"], &action["reason"]),
        (&json!("user"), &json!("asked for it")),
        "{action}"
    );
    // A dump tells of it too.
    let dump = shop.send("GET", "dump", "").body;
    let copy = Store::new(&server, "copy");
    let typed = [("content-type", "application/x-ndjson")];
    let loaded = http::send(copy.native, "POST", &copy.target("load"), &typed, dump.as_bytes());
    assert_eq!(loaded.status, 200, "{loaded:?}");
    check(&copy);
    assert!(purges(&copy).is_empty(), "what was purged elsewhere is not to be purged here");
    verify(server.stop());
}

#[test]
fn a_purge_respects_locks_and_says_who_holds_them() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    fill(&shop);
    let lock = Held::take(&shop, "bert", "write user/bob/name");
    let all = [
        json!({ "collection": "user", "keys": ["bob"] }),
        json!({ "collection": "user", "confirm": "user" }),
        json!({ "confirm": "shop" }),
    ];
    for mut body in all {
        body["user"] = "ann".into();
        body["wait_ms"] = 0.into();
        let refused = shop.refuses("POST", "purge", &body, 423, "locked");
        assert_eq!(refused["blockers"][0]["name"], "bert", "{refused}");
    }
    let output = lockwood(&shop, &["purge", "user", "--yes", "-n", "shop", "--wait", "0"]);
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("bert"), "{output:?}");
    assert_eq!(shop.get("documents/user/bob")["document"]["value"]["name"], "Bobby", "nothing was done");
    // Its own holder passes; a token that is over does not.
    let token = lock.token;
    purge(&shop, json!({ "collection": "user", "keys": ["bob"], "tokens": [token] }));
    lock.release();
    let body = json!({ "collection": "user", "keys": [KEY], "user": "ann", "tokens": [token] });
    shop.refuses("POST", "purge", &body, 409, "lock_lost");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_done() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    fill(&shop);
    let position = shop.get("position")["position"].clone();
    let check = |mut body: Value, status, code| {
        body["user"] = "ann".into();
        shop.refuses("POST", "purge", &body, status, code)
    };
    check(json!({ "collection": "user", "keys": ["nobody"] }), 404, "no_document");
    check(json!({ "collection": "user", "keys": [KEY, "nobody"] }), 404, "no_document");
    check(json!({ "collection": "none", "confirm": "none" }), 404, "no_collection");
    check(json!({ "collection": "user", "keys": [] }), 400, "bad_body");
    check(json!({ "keys": [KEY] }), 400, "bad_body");
    check(json!({ "collection": "_schemas", "confirm": "_schemas" }), 400, "reserved_collection");
    check(json!({ "collection": "_procedures", "keys": ["f"] }), 400, "reserved_collection");
    check(json!({ "collection": "user" }), 409, "force_needed");
    check(json!({ "collection": "user", "confirm": "shop" }), 409, "force_needed");
    let refused = check(json!({}), 409, "force_needed");
    assert!(refused["detail"].as_str().unwrap().contains(r#"{"confirm": "shop"}"#), "{refused}");
    shop.refuses("POST", "purge", &json!({ "collection": "user", "keys": [KEY] }), 400, "bad_body");
    Store::new(&server, "empty").refuses(
        "POST",
        "purge",
        &json!({ "confirm": "empty", "user": "ann" }),
        404,
        "unknown_namespace",
    );
    let output = lockwood(&shop, &["purge", "user", "-n", "shop"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--yes"), "{output:?}");
    assert_eq!(shop.get("position")["position"], position, "nothing was done");
    assert_eq!(shop.get("operator-log")["actions"], json!([]), "nothing is on record");
}

#[test]
fn a_position_lock_from_before_a_purge_does_not_hold() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    fill(&shop);
    shop.create("order", 1, json!({ "n": 1 }));
    let before = shop.get("position")["position"].clone();
    let purged = purge(&shop, json!({ "collection": "user", "keys": [KEY] }))["position"].clone();
    let locks = [
        json!({ "collection": "user", "key": KEY }),
        json!({ "collection": "user", "key": KEY, "field": "name" }),
        json!({ "collection": "user", "field": "name" }),
        json!({ "collection": "user", "field": "name", "filter": { "field": "name", "op": "=", "value": "x" } }),
    ];
    let write = |lock: &Value, at: &Value| {
        let mut lock = lock.clone();
        lock["position"] = at.clone();
        json!({ "events": [{ "type": "put", "collection": "order", "key": 1, "fields": { "n": 2 } }], "locks": [lock] })
    };
    for lock in &locks {
        let broken = shop.refuses("POST", "write", &write(lock, &before), 409, "position_locked");
        assert_eq!(broken["broken"][0]["position"], purged, "{lock}: {broken}");
        shop.post("write", &write(lock, &purged));
    }
    // It is another document that has its key now.
    let again = shop.create("user", KEY, json!({ "other": 1 }));
    for lock in &locks[..2] {
        shop.refuses("POST", "write", &write(lock, &before), 409, "position_locked");
        shop.post("write", &write(lock, &again.into()));
    }
    shop.post("write", &write(&json!({ "collection": "order", "field": "x" }), &before));
}

#[test]
fn a_purged_collection_is_in_no_list_and_can_come_again() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    fill(&shop);
    shop.create("order", 1, json!({ "n": 1 }));
    let schema = json!({ "schema": { "type": "object", "properties": { "name": { "type": "string" } } } });
    shop.send("POST", "schemas/user/versions", &schema.to_string());
    shop.post("reserve", &json!({ "collection": "user", "amount": 5 }));
    let begun = purge(&shop, json!({ "collection": "user", "confirm": "user" }));
    assert_eq!(begun["purged"], json!({ "collection": "user" }));
    assert_nothing_left(server.data());
    let check = |shop: &Store| {
        let collections = shop.get("collections")["collections"].clone();
        assert!(!collections.as_array().unwrap().contains(&json!("user")), "{collections}");
        assert_eq!(shop.get("indexes")["indexes"], json!([]));
        assert!(!shop.send("GET", "schemas", "").body.contains("user"), "no schema is bound to it");
        assert!(!shop.send("GET", "dump", "").body.contains("bob"));
        assert_eq!(shop.get("documents/order/1")["document"]["value"], json!({ "n": 1 }));
    };
    check(&shop);
    let server = verify(server.stop()).restart(&[]);
    let shop = Store::new(&server, "shop");
    check(&shop);
    shop.create("user", 1, json!({ "name": 7, "anything": true }));
    assert_eq!(shop.get("history/user/1")["entries"].as_array().unwrap().len(), 1);
}

#[test]
fn a_purged_namespace_begins_anew_behind_its_last_position() {
    let server = Server::start(&[]);
    let (shop, other) = (Store::new(&server, "shop"), Store::new(&server, "other"));
    fill(&shop);
    other.create("a", 1, json!({ "n": 1 }));
    let before = shop.get("position")["position"].as_u64().unwrap();
    let dump = shop.send("GET", "dump", "").body;
    let output = lockwood(&shop, &["purge", "/", "-n", "shop", "--yes", "--json"]);
    assert!(output.status.success(), "{output:?}");
    assert_nothing_left(server.data());
    let names = |store: &Store| http::request(store.native, "GET", "/v1/namespaces", &[]).body;
    assert!(!names(&shop).contains("shop"), "{}", names(&shop));
    assert_eq!(shop.get("operator-log")["actions"][0]["action"], "purge");
    let server = verify(server.stop()).restart(&[]);
    let shop = Store::new(&server, "shop");
    let typed = [("content-type", "application/x-ndjson")];
    let loaded = http::send(shop.native, "POST", &shop.target("load"), &typed, dump.as_bytes());
    loaded.assert_problem(409, "namespace_not_empty");
    assert_eq!(shop.create("user", 1, json!({ "n": 1 })), before + 2, "positions are never used again");
    let lock = json!({ "collection": "user", "key": 1, "position": before });
    let write = json!({ "events": [{ "type": "delete", "collection": "user", "key": 1 }], "locks": [lock] });
    shop.refuses("POST", "write", &write, 410, "position_too_old");
    shop.send("GET", &format!("changes?after={before}"), "").assert_problem(410, "position_too_old");
    assert_eq!(Store::new(&server, "other").get("documents/a/1")["document"]["value"], json!({ "n": 1 }));
    verify(server.stop());
}

/// A dump that nobody reads on keeps a view of what was there before.
#[test]
fn others_are_served_while_a_purge_waits_for_a_reader_of_the_past() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    fill(&shop);
    for key in 0..40 {
        shop.create("large", key, json!({ "text": "x".repeat(400_000) }));
    }
    let mut reader = TcpStream::connect(server.native).unwrap();
    write!(reader, "GET /v1/shop/dump HTTP/1.1\r\nhost: {}\r\n\r\n", server.native).unwrap();
    reader.read_exact(&mut [0; 64]).unwrap();
    begin(&shop, json!({ "collection": "user", "keys": [KEY], "user": "ann" }));
    for path in ["changes?after=0", "dump"] {
        let told = shop.send("GET", path, "").body;
        assert!(!told.contains("4711"), "{path} does not wait for the log to be erased: {told}");
    }
    eventually("the purge waits for the reader", || {
        purges(&shop).first().is_some_and(|purge| purge["step"] == "readers")
    });
    assert_gone(&shop);
    shop.create("order", 1, json!({ "n": 1 }));
    assert_eq!(shop.get("documents/order/1")["document"]["value"], json!({ "n": 1 }));
    shop.create("user", "eve", json!({ "name": "Eve" }));
    let trimmed = shop.trim(0);
    assert!(trimmed["trimmed"].as_u64().unwrap() > 0, "what is older than the purge: {trimmed}");
    let output = lockwood(&shop, &["purge"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("waiting for readers"), "{output:?}");
    drop(reader);
    eventually("the purge is complete", || purges(&shop).is_empty());
    assert_nothing_left(server.data());
    assert_eq!(shop.get("documents/user/eve")["document"]["value"], json!({ "name": "Eve" }));
}

/// Whenever the server is killed, it has not begun or is completed by the next start, and the log leads to the state.
#[test]
fn a_purge_that_was_cut_short_is_completed_by_the_next_start() {
    let bodies = [
        json!({ "collection": "user", "keys": [KEY] }),
        json!({ "collection": "user", "confirm": "user" }),
        json!({ "confirm": "shop" }),
    ];
    for (round, mut body) in bodies.into_iter().cycle().take(6).enumerate() {
        let server = Server::start(&[]);
        let shop = Store::new(&server, "shop");
        fill(&shop);
        let many: Vec<Value> = (0..1000)
            .map(|key| json!({ "type": "create", "collection": "user", "key": key, "fields": { "name": "value-4711-x" } }))
            .collect();
        for events in many.chunks(500) {
            shop.write(events.into());
        }
        if round % 2 == 0 {
            shop.trim(0);
        }
        body["user"] = "ann".into();
        begin(&shop, body.clone());
        // Later each time, to be cut short at other steps; some may be complete by then.
        thread::sleep(Duration::from_millis(80 * round as u64 * round as u64));
        let mut server = verify(server.kill()).restart(&[]);
        if round % 3 == 2 {
            server = verify(server.kill()).restart(&[]);
        }
        let shop = Store::new(&server, "shop");
        let whole = body.get("keys").is_none();
        eventually("the purge is complete", || purges(&shop).is_empty());
        shop.send("GET", &format!("documents/user/{KEY}"), "").assert_problem(404, "no_document");
        let found = left(server.data());
        let others = |line: &String| !whole && line.ends_with("value-4711-x");
        assert!(found.iter().all(others), "round {round}: {found:?}");
        let ended = verify(server.stop());
        if round == 0 {
            assert!(ended.log.contains("a purge was not complete when the server ended"), "{}", ended.log);
        }
    }
}

/// Puts some of what is being purged; notes what was acknowledged.
#[track_caller]
fn put_meanwhile(shop: &Store, tokens: &str, acknowledged: &mut Vec<String>) {
    for key in ["aaa", "zzz", "5"] {
        let reply =
            shop.send("PUT", &format!("documents/user/{key}?wait_ms=0{tokens}"), r#"{"name":"later"}"#);
        match reply.status {
            200 => acknowledged.push(key.to_owned()),
            409 => drop(reply.assert_problem(409, "purging")),
            _ => drop(reply.assert_problem(423, "locked")),
        }
    }
}

/// Whether a document was written, by a server that may be about to stop.
fn is_written(shop: &Store, path: &str) -> bool {
    let (target, body) = (shop.target(path), r#"{"name":"later"}"#);
    let Ok(mut tcp) = TcpStream::connect(shop.native) else { return false };
    let host = shop.native;
    let head = format!("PUT {target} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {}\r\n\r\n", body.len());
    let mut status = [0; 12];
    tcp.write_all(format!("{head}{body}").as_bytes()).is_ok()
        && tcp.read_exact(&mut status).is_ok()
        && status.ends_with(b"200")
}

fn fill_many(shop: &Store, len: usize) {
    let many: Vec<Value> = (0..len)
        .map(|key| json!({ "type": "create", "collection": "user", "key": key, "fields": { "name": "value-4711-x" } }))
        .collect();
    for events in many.chunks(500) {
        shop.write(events.into());
    }
}

#[test]
fn what_is_acknowledged_during_a_purge_stays_though_its_own_lock_would_let_it_in() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    fill_many(&shop, 3000);
    let held = Held::take(&shop, "ann", "write user");
    begin(&shop, json!({ "collection": "user", "confirm": "user", "user": "ann", "tokens": [held.token] }));
    let mut acknowledged = Vec::new();
    put_meanwhile(&shop, &format!("&token={}", held.token), &mut acknowledged);
    shop.send("POST", "reserve", r#"{"collection":"user","amount":3}"#);
    eventually("the purge is complete", || purges(&shop).is_empty());
    put_meanwhile(&shop, &format!("&token={}", held.token), &mut acknowledged);
    acknowledged.sort();
    acknowledged.dedup();
    let server = verify(server.stop()).restart(&[]);
    let shop = Store::new(&server, "shop");
    assert_eq!(shop.found(&json!({ "collection": "user" })).len(), acknowledged.len(), "{acknowledged:?}");
    let dump = shop.send("GET", "dump", "").body;
    let copy = Store::new(&server, "copy");
    let ndjson = [("content-type", "application/x-ndjson")];
    let loaded = http::send(copy.native, "POST", &copy.target("load"), &ndjson, dump.as_bytes());
    assert_eq!(loaded.status, 200, "{loaded:?}");
}

#[test]
fn what_is_acknowledged_while_a_server_stops_in_a_purge_stays() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    fill_many(&shop, 5000);
    // Keeps the server from stopping at once.
    let mut bob = Peer::open(&server, "bob");
    bob.hold("write x");
    begin(&shop, json!({ "collection": "user", "confirm": "user", "user": "ann" }));
    server.signal("-TERM");
    let mut acknowledged = Vec::new();
    for key in ["aaa", "zzz", "5"] {
        if is_written(&shop, &format!("documents/user/{key}?wait_ms=0")) {
            acknowledged.push(key);
        }
    }
    server.signal("-TERM");
    let server = verify(server.wait()).restart(&[]);
    let shop = Store::new(&server, "shop");
    eventually("the purge is complete", || purges(&shop).is_empty());
    assert_eq!(shop.found(&json!({ "collection": "user" })).len(), acknowledged.len(), "{acknowledged:?}");
    verify(server.stop());
}

/// Trims go their own way, but leave a purge what it is completed by.
#[test]
fn a_trim_during_a_purge_leaves_the_log_and_the_purge_whole() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    for _ in 0..3 {
        shop.send("PUT", &format!("documents/user/{KEY}"), r#"{"name":"value-4711-x"}"#);
        shop.create("order", 1, json!({ "n": 1 }));
        begin(&shop, json!({ "collection": "user", "keys": [KEY], "user": "ann" }));
        shop.trim(0);
        eventually("the purge is complete", || purges(&shop).is_empty());
        assert_nothing_left(server.data());
        shop.delete("order", 1);
        begin(&shop, json!({ "collection": "order", "confirm": "order", "user": "ann" }));
        eventually("the purge is complete", || purges(&shop).is_empty());
    }
    fill_many(&shop, 3000);
    begin(&shop, json!({ "collection": "user", "confirm": "user", "user": "ann" }));
    shop.trim(0);
    let server = verify(server.kill()).restart(&[]);
    let shop = Store::new(&server, "shop");
    eventually("the purge is complete", || purges(&shop).is_empty());
    assert!(shop.found(&json!({ "collection": "user", "deleted": "with" })).is_empty());
    assert_nothing_left(server.data());
    verify(server.stop());
}

/// A purge of a namespace erases the records of earlier purges in it.
#[test]
fn purges_that_follow_each_other_leave_a_sound_log() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    fill_many(&shop, 100);
    begin(&shop, json!({ "collection": "user", "keys": ["1", "2"], "user": "ann" }));
    begin(&shop, json!({ "collection": "user", "keys": ["3"], "user": "ann" }));
    let reply =
        shop.send("POST", "purge", &json!({ "confirm": "shop", "user": "ann", "wait_ms": 5000 }).to_string());
    assert!(matches!(reply.status, 202 | 409), "{reply:?}");
    eventually("the purges are complete", || purges(&shop).is_empty());
    verify(server.stop());
}
