//! Leases of the native interface hold for OpenSlides too: what somebody else has locked is MODEL_LOCKED.

use crate::{
    http::{Connection, JSON},
    store::{Store, WRITER, assert_is, assert_silent, create, delete, locked, request, update},
};
use serde_json::{Value, json};

/// Takes a lease in the namespace of the facade; gives its number.
fn take(store: &Store, path: &str, mode: &str) -> Value {
    let resources = json!([{ "path": path, "mode": mode }]);
    let body = json!({ "owner": "ann", "resources": resources, "ttl_ms": 3_600_000 }).to_string();
    let reply = Connection::open(store.server.native).send("POST", "/v1/openslides/locks", Some(JSON), &body);
    assert_eq!(reply.status, 201, "{}", reply.body);
    reply.json()["lock"].clone()
}

fn release(store: &Store, lock: &Value) {
    let (path, body) = (format!("/v1/openslides/locks/{lock}/release"), r#"{"owner":"ann"}"#);
    let reply = Connection::open(store.server.native).send("POST", &path, Some(JSON), body);
    assert_eq!(reply.status, 200, "{}", reply.body);
}

/// That a write is refused with these keys, and done once the lease is over.
#[track_caller]
fn check(store: &mut Store, (path, mode): (&str, &str), event: &Value, keys: &[&str]) {
    let lease = take(store, path, mode);
    let reply = store.write(&request(std::slice::from_ref(event)));
    assert_is(&reply, 400, &locked(keys));
    release(store, &lease);
    store.apply(std::slice::from_ref(event));
}

#[test]
fn what_others_have_locked_is_a_locked_model() {
    let mut store = Store::start_with(&["--wait", "0s"]);
    store.apply(&[create("a/1", &json!({ "f": 1, "g": 1 }))]);
    check(&mut store, ("a/1", "write"), &update("a/1", &json!({ "f": 2 })), &["a/1/f"]);
    check(&mut store, ("a/1/f", "read"), &update("a/1", &json!({ "f": 3, "g": 3 })), &["a/1/f"]);
    check(&mut store, ("a/1/f", "write"), &delete("a/1"), &["a/1"]);
    check(&mut store, ("a", "list"), &create("a/2", &json!({})), &["a"]);
    check(&mut store, ("a", "write"), &create("a/3", &json!({})), &["a/3"]);
    // The other field is free.
    take(&store, "a/2/f", "write");
    store.apply(&[update("a/2", &json!({ "g": 4 }))]);
    let position = store.position().as_u64().unwrap();
    store.has("a/2", &json!({ "g": 4 }), position);
}

#[test]
fn writes_wait_for_a_while() {
    let mut store = Store::start_with(&["--wait", "20s"]);
    let resources = json!([{ "path": "a/1", "mode": "write" }]);
    let body = json!({ "owner": "ann", "resources": resources, "ttl_ms": 300 }).to_string();
    Connection::open(store.server.native).send("POST", "/v1/openslides/locks", Some(JSON), &body);
    assert_eq!(store.apply(&[create("a/1", &json!({}))]), 1);
}

#[test]
fn nothing_is_truncated_under_a_lock() {
    let mut store = Store::start_with(&["--openslides-development", "--wait", "0s"]);
    store.apply(&[create("a/1", &json!({}))]);
    let lease = take(&store, "a/1/f", "read");
    let reply = store.writer.send("POST", &format!("{WRITER}/truncate_db"), None, "");
    assert_eq!((reply.status, &reply.json()["error"]["type_verbose"]), (400, &json!("MODEL_LOCKED")));
    store.has("a/1", &json!({}), 1);
    release(&store, &lease);
    let reply = store.writer.send("POST", &format!("{WRITER}/truncate_db"), None, "");
    assert_silent(&reply, 204);
    store.is_empty();
}
