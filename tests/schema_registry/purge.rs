//! Purges of what a registry belongs to: nothing of its subjects, versions, ids and settings is told any more, documents are
//! not held to them, and it can be filled again.

use crate::{
    harness::{Server, eventually},
    http,
    registry::{Registry, sent, typed},
};
use serde_json::{Value, json};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

fn native(server: &Server, method: &str, target: &str, body: Value) -> http::Reply {
    http::send(server.native, method, target, &[], body.to_string().as_bytes())
}

#[track_caller]
fn purge(registry: &Registry, mut body: Value) {
    body["user"] = "ann".into();
    let reply = native(&registry.server, "POST", "/v1/default/purge", body);
    assert_eq!(reply.status, 202, "{reply:?}");
    eventually("the purge is complete", || {
        http::get_json(&registry.server, "/v1/purges")["purges"] == json!([])
    });
}

fn put(registry: &Registry, collection: &str, value: Value) -> u16 {
    native(&registry.server, "PUT", &format!("/v1/default/documents/{collection}/1"), value).status
}

fn fill(registry: &Registry) {
    registry.register("user", &typed("string"));
    registry.register("order", &typed("number"));
    registry.ask("PUT", "/config", json!({ "compatibility": "NONE" }));
    registry.ask("PUT", "/config/user", json!({ "compatibility": "FULL" }));
    assert_eq!(put(registry, "user", json!({ "a": 1 })), 400, "documents are held to it");
    assert_eq!(put(registry, "user", json!({ "a": "text" })), 200);
}

#[test]
fn a_purged_namespace_has_no_subjects_ids_or_settings_and_can_be_registered_in_again() {
    let mut registry = Registry::start();
    fill(&registry);
    purge(&registry, json!({ "confirm": "default" }));
    for restart in [false, true] {
        if restart {
            registry = registry.restarted();
        }
        assert_eq!(registry.get("/subjects?deleted=true"), json!([]));
        assert_eq!(registry.get("/schemas"), json!([]));
        assert_eq!(registry.get("/config")["compatibilityLevel"], "BACKWARD");
        registry.refuses("GET", "/schemas/ids/1", Value::Null, 40403);
        registry.refuses("GET", "/schemas/ids/2", Value::Null, 40403);
        registry.refuses("GET", "/subjects/user/versions", Value::Null, 40401);
        registry.refuses("GET", "/subjects/user/versions/1", Value::Null, 40401);
        registry.refuses("POST", "/subjects/user", sent(&typed("string")), 40401);
    }
    assert_eq!(put(&registry, "user", json!({ "a": 1, "b": 2 })), 200, "nothing is held to what is gone");
    registry.register("order", &typed("boolean"));
    assert_eq!(registry.get("/subjects"), json!(["order"]));
    assert_eq!(registry.get("/subjects/order/versions"), json!([1]));
    assert_eq!(put(&registry, "order", json!({ "a": 1 })), 400);
}

#[test]
fn a_purged_collection_has_no_subject_and_its_ids_are_not_given_to_others() {
    let mut registry = Registry::start();
    fill(&registry);
    purge(&registry, json!({ "collection": "user", "confirm": "user" }));
    for restart in [false, true] {
        if restart {
            registry = registry.restarted();
        }
        assert_eq!(registry.get("/subjects?deleted=true"), json!(["order"]));
        registry.refuses("GET", "/schemas/ids/1", Value::Null, 40403);
        registry.refuses("GET", "/config/user", Value::Null, 40408);
        assert_eq!(registry.get("/config")["compatibilityLevel"], "NONE");
    }
    assert_eq!(put(&registry, "user", json!({ "a": 1, "b": 2 })), 200, "nothing is held to what is gone");
    assert_eq!(registry.register("user", &typed("integer")), 3);
}

/// Nothing was ever written to it, so the registry is all there is of it.
#[test]
fn a_collection_that_has_only_a_schema_or_settings_can_be_purged() {
    let mut registry = Registry::start();
    registry.register("user", &typed("string"));
    registry.register("order", &typed("number"));
    registry.ask("PUT", "/config/later", json!({ "compatibility": "FULL" }));
    for collection in ["user", "later"] {
        purge(&registry, json!({ "collection": collection, "confirm": collection }));
    }
    for restart in [false, true] {
        if restart {
            registry = registry.restarted();
        }
        assert_eq!(registry.get("/subjects?deleted=true"), json!(["order"]));
        registry.refuses("GET", "/schemas/ids/1", Value::Null, 40403);
        registry.refuses("GET", "/config/later", Value::Null, 40408);
        for collection in ["user", "later", "none"] {
            let body = json!({ "collection": collection, "confirm": collection, "user": "ann" });
            let again = native(&registry.server, "POST", "/v1/default/purge", body);
            again.assert_problem(404, "no_collection");
        }
    }
    assert_eq!(put(&registry, "user", json!({ "a": 1, "b": 2 })), 200, "nothing is held to what is gone");
    let ended = registry.server.stop();
    assert!(ended.status.success(), "{}", ended.log);
}

/// Indexes that a schema asks for go with the collection, not one after the other with its versions.
#[test]
fn a_schema_with_indexes_is_gone_with_its_collection() {
    let registry = Registry::start();
    for kind in ["string", "number"] {
        let schema =
            json!({ "type": "object", "properties": { "a": { "type": kind, "x-lockwood-index": true } } });
        registry.ask("PUT", "/config/user", json!({ "compatibility": "NONE" }));
        registry.register("user", &schema);
    }
    assert_eq!(put(&registry, "user", json!({ "a": 7 })), 200);
    purge(&registry, json!({ "collection": "user", "confirm": "user" }));
    assert_eq!(registry.get("/subjects?deleted=true"), json!([]));
    registry.refuses("GET", "/schemas/ids/1", Value::Null, 40403);
    assert_eq!(http::get_json(&registry.server, "/v1/default/indexes")["indexes"], json!([]));
    let ended = registry.server.stop();
    assert!(!ended.log.contains("take away the schema"), "{}", ended.log);
}

#[test]
fn clients_get_no_server_error_while_their_registry_is_purged_again_and_again() {
    let registry = Registry::start();
    fill(&registry);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let client = |subject: &'static str| {
            let (registry, stop) = (&registry, &stop);
            move || {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let schema = typed(if number % 2 == 0 { "string" } else { "number" });
                    let versions = format!("/subjects/{subject}/versions");
                    let replies = [
                        registry.send("POST", &versions, &sent(&schema).to_string()),
                        registry.send("GET", "/subjects", ""),
                        registry.send("GET", "/schemas/ids/1", ""),
                        registry.send("PUT", "/config", r#"{"compatibility":"NONE"}"#),
                        registry.send("DELETE", &format!("/subjects/{subject}"), ""),
                    ];
                    for reply in replies {
                        // A wait for a lock may be over on a slow machine.
                        let is_patient = reply.status == 503 && reply.json()["error_code"] == 50002;
                        assert!(reply.status < 500 || is_patient, "{reply:?}");
                    }
                }
            }
        };
        let clients = [scope.spawn(client("user")), scope.spawn(client("order"))];
        for round in 0..6 {
            let body = match round % 2 {
                0 => json!({ "collection": "user", "confirm": "user", "user": "ann", "wait_ms": 10_000 }),
                _ => json!({ "confirm": "default", "user": "ann", "wait_ms": 10_000 }),
            };
            let reply = native(&registry.server, "POST", "/v1/default/purge", body);
            assert!(matches!(reply.status, 202 | 404 | 409 | 423), "{reply:?}");
        }
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    eventually("the purges are complete", || {
        http::get_json(&registry.server, "/v1/purges")["purges"] == json!([])
    });
    purge_if_there(&registry);
    assert_eq!(registry.get("/subjects?deleted=true"), json!([]));
    let ended = registry.server.stop();
    assert!(!ended.log.contains("panicked"), "{}", ended.log);
}

fn purge_if_there(registry: &Registry) {
    let body = json!({ "confirm": "default", "user": "ann" });
    let reply = native(&registry.server, "POST", "/v1/default/purge", body);
    assert!(matches!(reply.status, 202 | 404), "{reply:?}");
    eventually("the purge is complete", || {
        http::get_json(&registry.server, "/v1/purges")["purges"] == json!([])
    });
}
