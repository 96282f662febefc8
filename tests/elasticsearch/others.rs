//! The locks of Elasticsearch's clients and those of everybody else are one and the same.

use crate::{cluster::Cluster, harness::eventually};
use serde_json::{Value, json};
use std::{thread, time::Duration};

const CONFLICT: &str = "version_conflict_engine_exception";

fn lease(path: &str, mode: &str) -> Value {
    json!({ "owner": "backup", "resources": [{ "path": path, "mode": mode }], "ttl_ms": 60_000 })
}

fn lock(cluster: &Cluster, id: &str, source: Value) -> crate::cluster::Reply {
    cluster.ask("PUT", &format!("/fs/lock/{id}/_create"), source)
}

#[test]
fn native_leases_are_in_the_way_of_lock_documents() {
    let cluster = Cluster::start();
    cluster.native("POST", "/v1/fs/locks", lease("lock/1", "write")).is(201);
    let reason = lock(&cluster, "1", json!({ "process_id": 123 })).fails(409, CONFLICT);
    assert!(
        reason.starts_with("[lock][1]: version conflict") && reason.contains("\"backup\" has held lock/1"),
        "{reason}"
    );
    let script = json!({ "file": "judge-lock", "params": { "process_id": 123 } });
    let update = json!({ "upsert": { "process_id": 123 }, "script": script });
    let reason = cluster.ask("POST", "/fs/lock/1/_update", update).fails(409, CONFLICT);
    assert!(reason.contains("backup"), "{reason}");
    // The same owner: it has the path, but not this document.
    lock(&cluster, "1", json!({ "process_id": "backup" })).fails(409, CONFLICT);
    assert_eq!(cluster.ask("GET", "/fs/lock/1", Value::Null).status, 404);
    let all = json!({ "owner": "backup" });
    cluster.native("POST", "/v1/fs/locks/release", all).is(200);
    lock(&cluster, "1", json!({ "process_id": 123 })).is(201);
    // What is read by many can be shared with those who read.
    cluster.native("POST", "/v1/fs/locks", lease("lock/2", "read")).is(201);
    lock(&cluster, "2", json!({ "lock_type": "exclusive" })).fails(409, CONFLICT);
    lock(&cluster, "2", json!({ "lock_type": "shared", "lock_count": 1 })).is(201);
}

#[test]
fn lock_documents_are_seen_and_respected_by_everybody() {
    let cluster = Cluster::start();
    let created = lock(&cluster, "1", json!({ "process_id": 123, "why": "test" })).is(201);
    let listed = cluster.native("GET", "/v1/fs/locks", Value::Null).is(200);
    let shown = &listed["locks"][0];
    assert_eq!((&shown["owner"]["name"], &shown["owner"]["via"]), (&"123".into(), &"elasticsearch".into()));
    assert_eq!(shown["note"], json!({ "process_id": 123, "why": "test" }));
    assert_eq!(shown["token"], created["_seq_no"]);
    let refused = cluster.native("POST", "/v1/fs/locks", lease("lock/1", "write")).is(423);
    assert_eq!(refused["blockers"][0]["name"], "123");
    let refused = cluster.native("PUT", "/v1/fs/documents/lock/1?wait_ms=0", json!({}));
    assert_eq!(refused.status, 423, "{refused:?}");
    // The process itself goes on natively, under its token.
    let path = format!("/v1/fs/documents/lock/1?wait_ms=0&token={}", shown["token"]);
    assert_eq!(cluster.native("PUT", &path, json!({})).status, 200);
    // What an operator ends is gone here too.
    let ended = cluster.native("DELETE", &format!("/v1/fs/locks/{}", shown["lock"]), Value::Null);
    assert!(ended.status < 300, "{ended:?}");
    assert_eq!(cluster.ask("GET", "/fs/lock/1", Value::Null).is(404)["found"], false);
}

#[test]
fn locks_are_in_the_way_of_documents() {
    let cluster = Cluster::start_with(&["--wait", "50ms"]);
    cluster.ask("PUT", "/fs/file/1", json!({ "a": 1, "b": 1 })).is(201);
    cluster.native("POST", "/v1/fs/locks", lease("file/1/a", "write")).is(201);
    for (method, path, body) in [
        ("PUT", "/fs/file/1", json!({ "a": 2 })),
        ("DELETE", "/fs/file/1", Value::Null),
        ("POST", "/fs/file/1/_update", json!({ "doc": { "a": 2 } })),
        ("DELETE", "/fs", Value::Null),
    ] {
        let reason = cluster.ask(method, path, body).fails(409, CONFLICT);
        assert!(reason.contains("backup") && reason.contains("since"), "{reason}");
    }
    // An update needs only what it writes.
    cluster.ask("POST", "/fs/file/1/_update", json!({ "doc": { "b": 2 } })).is(200);
    let bulk = "{\"delete\":{\"_id\":1}}\n";
    let bulk = cluster.send("POST", "/fs/file/_bulk", Some("application/json"), bulk).is(200);
    assert_eq!((&bulk["errors"], &bulk["items"][0]["delete"]["status"]), (&true.into(), &409.into()));
    // And documents are the same ones.
    let native = cluster.native("GET", "/v1/fs/documents/file/1", Value::Null).is(200);
    assert_eq!(native["document"]["value"], json!({ "a": 1, "b": 2 }), "{native}");
}

#[test]
fn lock_documents_outlive_the_server() {
    let cluster = Cluster::start();
    lock(&cluster, "1", json!({ "process_id": 123 })).is(201);
    cluster.ask("POST", "/fs/lock/1/_update", json!({ "doc": { "step": 2 } })).is(200);
    let cluster = cluster.crashed();
    let got = cluster.ask("GET", "/fs/lock/1", Value::Null).is(200);
    assert_eq!((&got["_version"], &got["_source"]), (&2.into(), &json!({ "process_id": 123, "step": 2 })));
    lock(&cluster, "1", json!({ "process_id": 234 })).fails(409, CONFLICT);
    cluster.ask("DELETE", "/fs/lock/1", Value::Null).is(200);
    lock(&cluster, "1", json!({ "process_id": 234 })).is(201);
}

/// The guide warns that a dead holder is not handled; a time to live handles it.
#[test]
fn a_lock_with_a_time_to_live_ends_by_itself() {
    let cluster = Cluster::start();
    lock(&cluster, "1", json!({ "process_id": 123, "ttl_ms": 600 })).is(201);
    lock(&cluster, "1", json!({ "process_id": 234 })).fails(409, CONFLICT);
    for beat in 0..4 {
        thread::sleep(Duration::from_millis(250));
        cluster.ask("POST", "/fs/lock/1/_update", json!({ "doc": { "beat": beat } })).is(200);
    }
    eventually("the lock ends", || cluster.ask("HEAD", "/fs/lock/1", Value::Null).status == 404);
    lock(&cluster, "1", json!({ "process_id": 234 })).is(201);
    for ttl in [json!(0), json!(-1), json!("1m"), json!(1e12)] {
        lock(&cluster, "2", json!({ "ttl_ms": ttl })).fails(400, "illegal_argument_exception");
    }
}

#[test]
fn a_lock_is_not_taken_by_writing_over_it() {
    let cluster = Cluster::start();
    lock(&cluster, "1", json!({ "process_id": 123 })).is(201);
    let reason = cluster.ask("PUT", "/fs/lock/1", json!({ "process_id": 234 })).fails(409, CONFLICT);
    assert!(
        reason.contains("\"123\" has held it") && reason.contains("delete the document first"),
        "{reason}"
    );
    cluster
        .ask("POST", "/fs/lock/1/_update", json!({ "doc": { "lock_type": "shared" } }))
        .fails(409, CONFLICT);
    let written = cluster.ask("PUT", "/fs/lock/1", json!({ "process_id": 123, "x": 1 })).is(200);
    assert_eq!((&written["result"], &written["_version"]), (&"updated".into(), &2.into()));
    cluster.ask("DELETE", "/fs/lock/1?version=1", Value::Null).fails(409, CONFLICT);
    cluster.ask("DELETE", "/fs/lock/1?if_seq_no=1", Value::Null).fails(400, "illegal_argument_exception");
    cluster.ask("DELETE", "/fs/lock/1?version=2", Value::Null).is(200);
}

#[test]
fn a_lock_document_that_is_written_again_gets_the_time_it_says() {
    let cluster = Cluster::start();
    let put = |source: Value| cluster.ask("PUT", "/fs/lock/1", source);
    let ends =
        || cluster.native("GET", "/v1/fs/locks", Value::Null).is(200)["locks"][0]["expires_at"].clone();
    put(json!({ "process_id": 1, "ttl_ms": 60_000 })).is(201);
    assert!(ends().is_string());
    assert!(put(json!({ "process_id": 1, "ttl_ms": 0 })).status == 400);
    let found = cluster.ask("GET", "/fs/lock/1", Value::Null).is(200);
    assert_eq!(
        (&found["_version"], &found["_source"]["ttl_ms"]),
        (&json!(1), &json!(60_000)),
        "nothing is half done"
    );
    put(json!({ "process_id": 1 })).is(200);
    assert_eq!(ends(), Value::Null, "without a time it is held until it is deleted");
}

#[test]
fn an_index_that_is_not_deleted_keeps_its_locks() {
    let cluster = Cluster::start();
    cluster.ask("PUT", "/fs/lock/1/_create", json!({ "process_id": 1 })).is(201);
    let lease = json!({ "owner": "ann", "ttl_ms": 60_000, "resources": [{ "path": ["other", "1"], "mode": "write" }] });
    cluster.native("POST", "/v1/fs/locks", lease).is(201);
    assert_eq!(cluster.ask("DELETE", "/fs", Value::Null).status, 409);
    cluster.ask("GET", "/fs/lock/1", Value::Null).is(200);
    cluster.native("POST", "/v1/fs/locks/release", json!({ "owner": "ann" })).is(200);
    cluster.ask("DELETE", "/fs", Value::Null).is(200);
    cluster.ask("GET", "/fs/lock/1", Value::Null).is(404);
}
