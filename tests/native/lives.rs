//! Lives of documents: what is deleted can be restored, or put again and begin a new life.

use crate::{
    harness::{BINARY, Server},
    store::{Store, timeless},
};
use serde_json::{Value, json};
use std::process::Command;

/// A namespace with the document a/1, created at 1 and deleted at 2.
fn start() -> (Server, Store) {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "default");
    shop.create("a", 1, json!({ "x": 1, "y": 2 }));
    shop.delete("a", 1);
    (server, shop)
}

fn value(shop: &Store) -> Value {
    shop.get("documents/a/1")["document"]["value"].clone()
}

#[test]
fn a_deleted_document_can_be_put_again() {
    let (_server, shop) = start();
    assert_eq!(shop.ask("PUT", "documents/a/1", &json!({ "x": 3 }))["position"], 3);
    assert_eq!(value(&shop), json!({ "x": 3 }), "nothing of the last life comes back");
    shop.delete("a", 1);
    assert_eq!(shop.ask("PUT", "documents/a/1?if=absent", &json!({ "z": 1 }))["position"], 5);
    shop.refuses("PUT", "documents/a/1?if=absent", &json!({}), 409, "document_exists");
    shop.delete("a", 1);
    shop.create("a", 1, json!({ "created": true }));
    assert_eq!(value(&shop), json!({ "created": true }));
}

#[test]
fn the_history_has_every_life() {
    let (server, shop) = start();
    shop.ask("PUT", "documents/a/1", &json!({ "x": 3 }));
    let check = |shop: &Store| {
        let entries = timeless(shop.get("history/a/1"))["entries"].take();
        let kinds: Vec<&Value> = entries.as_array().unwrap().iter().map(|entry| &entry["event"]).collect();
        assert_eq!(kinds, ["created", "deleted", "created"]);
        assert_eq!(entries[2]["changes"], json!({ "x": { "before": 1, "after": 3 }, "y": { "before": 2 } }));
        assert_eq!(shop.get("documents/a/1?at=1")["document"]["value"], json!({ "x": 1, "y": 2 }));
        shop.send("GET", "documents/a/1?at=2", "").assert_problem(404, "no_document");
        let event = json!({ "type": "created", "collection": "a", "key": "1", "fields": { "x": 3 }, "removed": ["y"] });
        assert_eq!(shop.get("changes?after=2")["commits"][0]["events"], json!([event]));
    };
    check(&shop);
    let server = server.kill().restart(&[]);
    let shop = Store::new(&server, "default");
    check(&shop);
    // A dump carries the lives along.
    let dump = shop.send("GET", "dump", "").body;
    let copy = Store::new(&server, "copy");
    let typed = [("content-type", "application/x-ndjson")];
    let loaded = crate::http::send(copy.native, "POST", &copy.target("load"), &typed, dump.as_bytes());
    assert_eq!(loaded.status, 200, "{loaded:?}");
    check(&copy);
}

#[test]
fn a_new_life_breaks_locks_on_what_the_last_one_had() {
    let (_server, shop) = start();
    shop.ask("PUT", "documents/a/1", &json!({ "z": 3 }));
    for field in ["x", "y", "z", "meta_deleted"] {
        let lock = json!([{ "collection": "a", "key": 1, "field": field, "position": 2 }]);
        let events = json!([{ "type": "put", "collection": "b", "key": 1, "fields": {} }]);
        let body = json!({ "locks": lock, "events": events });
        shop.refuses("POST", "write", &body, 409, "position_locked");
    }
    let filter = json!({ "field": "x", "op": "=", "value": 1 });
    let lock = json!([{ "collection": "a", "field": "x", "filter": filter, "position": 2 }]);
    let events = json!([{ "type": "put", "collection": "b", "key": 1, "fields": {} }]);
    shop.refuses("POST", "write", &json!({ "locks": lock, "events": events }), 409, "position_locked");
}

#[test]
fn a_deleted_document_is_restored() {
    let (server, shop) = start();
    assert_eq!(shop.ask("POST", "restore/a/1?user=ann&note=oops", &json!(null))["position"], 3);
    assert_eq!(value(&shop), json!({ "x": 1, "y": 2 }));
    shop.refuses("POST", "restore/a/1", &json!(null), 409, "not_deleted");
    shop.refuses("POST", "restore/a/2", &json!(null), 404, "no_document");
    shop.delete("a", 1);
    let run = |path: &str| {
        Command::new(BINARY)
            .args(["restore", path, "--note", "by hand"])
            .env("LOCKWOOD_SERVER", server.native.to_string())
            .output()
            .unwrap()
    };
    let done = run("a/1");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "a/1 restored at position 5\n", "{done:?}");
    assert_eq!(value(&shop), json!({ "x": 1, "y": 2 }));
    assert_eq!(run("a/1").status.code(), Some(70), "it is not deleted any more");
    assert_eq!(run("a/2").status.code(), Some(66));
}

/// The version of a deleted document is the position it was deleted at.
#[test]
fn a_restore_heeds_if_match() {
    let (_server, shop) = start();
    let restore = |header: (&str, &str)| {
        crate::http::send(shop.native, "POST", &shop.target("restore/a/1"), &[header], b"")
    };
    let deleted_at = shop.get("documents/a/1?deleted=only")["position"].as_u64().unwrap();
    let tag = |position: u64| format!("\"{position}\"");
    restore(("if-match", &tag(deleted_at - 1))).assert_problem(412, "precondition_failed");
    restore(("if-none-match", &tag(deleted_at))).assert_problem(412, "precondition_failed");
    restore(("if-match", "*")).assert_problem(412, "precondition_failed");
    restore(("if-match", "1")).assert_problem(400, "bad_query");
    assert_eq!(restore(("if-match", &tag(deleted_at))).status, 200);
    assert_eq!(value(&shop), json!({ "x": 1, "y": 2 }));
}
