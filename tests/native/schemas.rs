//! The Schema Registry: registering, comparing and deleting schemas, and what they mean for documents.

use crate::{
    harness::{Server, eventually},
    http,
    peer::Peer,
    store::Store,
};
use serde_json::{Value, json};
use std::{thread, time::Duration};

/// Longer than any test takes: who waits that long has waited.
const LONG_MS: u64 = 30_000;

fn start() -> (Server, Store) {
    let server = Server::start(&[]);
    let store = Store::new(&server, "default");
    (server, store)
}

fn user() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string" },
            "age": { "type": "integer", "minimum": 0 },
            "tags": { "type": "array", "items": { "type": "string", "maxLength": 5 } },
            "address": { "type": "object", "properties": { "zip": { "type": "string" } } },
        },
        "required": ["name"],
        "additionalProperties": false,
    })
}

/// The same with one more property.
fn with(name: &str, property: Value) -> Value {
    let mut schema = user();
    schema["properties"][name] = property;
    schema
}

#[track_caller]
fn register(store: &Store, subject: &str, schema: &Value) -> Value {
    store.post(&format!("schemas/{subject}"), &json!({ "schema": schema }))
}

#[track_caller]
fn refuses_schema(store: &Store, subject: &str, schema: &Value, status: u16, code: &str) -> Value {
    store.refuses("POST", &format!("schemas/{subject}"), &json!({ "schema": schema }), status, code)
}

fn event(kind: &str, key: u64, fields: Value) -> Value {
    json!({ "events": [{ "type": kind, "collection": "user", "key": key, "fields": fields }] })
}

#[test]
fn schemas_are_registered_listed_and_shown() {
    let (_server, store) = start();
    assert_eq!(store.get("schemas"), json!({ "subjects": [] }));
    let first = json!({ "subject": "user", "version": 1, "id": 1, "new": true });
    assert_eq!(register(&store, "user", &user()), first);
    // As text, in another order, it is the same schema.
    let text = serde_json::to_string_pretty(&user()).unwrap();
    let again = store.post("schemas/user", &json!({ "schema": text }));
    assert_eq!(again, json!({ "subject": "user", "version": 1, "id": 1, "new": false }));
    // Under another name it has the same id.
    assert_eq!(register(&store, "guest", &user())["id"], 1);
    let second = with("mail", json!({ "type": "string" }));
    let answer = register(&store, "user", &second);
    assert_eq!((&answer["version"], &answer["id"]), (&json!(2), &json!(2)));
    let listed = store.get("schemas");
    let row = |subject: &str, version: u32, id: u32| {
        json!({ "subject": subject, "version": version, "id": id, "level": "BACKWARD", "policy": "STRICT",
            "mode": "READWRITE", "enforced": true })
    };
    assert_eq!(listed, json!({ "subjects": [row("guest", 1, 1), row("user", 2, 2)] }));
    let versions = store.get("schemas/user");
    assert_eq!(versions["versions"], json!([{ "version": 1, "id": 1 }, { "version": 2, "id": 2 }]));
    assert_eq!(store.get("schemas/user/latest")["schema"], second);
    assert_eq!(store.get("schemas/user/1")["schema"], user());
    let diff = store.get("schemas/user/diff");
    assert_eq!(diff["changes"], json!([{ "kind": "added", "path": "$.mail", "text": "string" }]));
    assert_eq!(store.get("schemas/user/diff?from=2&to=1")["changes"][0]["kind"], "removed");
}

#[test]
fn mistakes_have_codes() {
    let (_server, store) = start();
    register(&store, "user", &user());
    let missing = |path: &str, code: &str| store.refuses("GET", path, &json!(null), 404, code);
    missing("schemas/nobody", "no_subject");
    missing("schemas/nobody/latest", "no_subject");
    missing("schemas/user/7", "no_version");
    missing("schemas/user/diff", "no_version");
    store.refuses("GET", "schemas/user/first", &json!(null), 400, "bad_version");
    store.refuses("GET", "schemas/user?x=1", &json!(null), 400, "bad_query");
    store.refuses("POST", "schemas/user", &json!({}), 400, "bad_body");
    store.refuses("POST", "schemas/user", &json!({ "schema": {}, "x": 1 }), 400, "unknown_member");
    let problem = refuses_schema(&store, "x", &json!({ "type": "objekt" }), 400, "bad_schema");
    assert!(problem["detail"].as_str().unwrap().contains("#/type"), "{problem}");
    store.refuses("POST", "schemas/x", &json!({ "schema": "{" }), 400, "bad_schema");
    refuses_schema(&store, "x", &json!({ "type": "string" }), 400, "schema_not_objects");
    refuses_schema(&store, "_schemas", &user(), 400, "reserved_collection");
    refuses_schema(&store, "a%0Ab", &user(), 400, "bad_collection");
    store.refuses("PUT", "schemas/user/settings", &json!({ "level": "BOTH" }), 400, "bad_setting");
    store.refuses("PUT", "schema-settings", &json!({ "policy": "LAX" }), 400, "bad_setting");
    store.refuses("PUT", "schema-settings", &json!({ "mode": "IMPORT" }), 400, "bad_setting");
    // Nobody writes to where schemas are kept but the registry.
    let body = json!({ "events": [{ "type": "put", "collection": "_schemas", "key": 1, "fields": {} }] });
    store.refuses("POST", "write", &body, 400, "reserved_collection");
}

#[test]
fn an_incompatible_schema_is_refused_with_reasons() {
    let (_server, store) = start();
    register(&store, "user", &user());
    let mut narrow = user();
    narrow["properties"]["age"]["minimum"] = 18.into();
    let problem = refuses_schema(&store, "user", &narrow, 409, "schema_incompatible");
    let reason = &problem["reasons"][0];
    assert_eq!(
        (&reason["version"], &reason["kind"], &reason["path"], &reason["direction"]),
        (&json!(1), &json!("MINIMUM_INCREASED"), &json!("#/properties/age/minimum"), &json!("backward"))
    );
    assert!(!reason["reason"].as_str().unwrap().is_empty());
    let check = store.post("schemas/user/check", &json!({ "schema": narrow }));
    assert_eq!((&check["compatible"], &check["reasons"]), (&json!(false), &problem["reasons"]));
    assert_eq!(store.post("schemas/other/check", &json!({ "schema": narrow }))["compatible"], true);
    assert_eq!(store.get("schemas/user")["versions"].as_array().unwrap().len(), 1);
    // The level decides.
    let settings = store.ask("PUT", "schemas/user/settings", &json!({ "level": "none" }));
    assert_eq!((&settings["level"], &settings["own"]), (&json!("NONE"), &json!(["level"])));
    assert_eq!(register(&store, "user", &narrow)["version"], 2);
}

/// Each level on its own pair of schemas: what it lets pass and what it does not.
#[test]
fn levels_look_where_they_say() {
    let (_server, store) = start();
    let (wide, narrow) = (json!({ "type": "object", "properties": { "a": {} } }), {
        json!({ "type": "object", "properties": { "a": { "type": "string" } } })
    });
    for (level, widening, narrowing) in
        [("NONE", true, true), ("BACKWARD", true, false), ("FORWARD", false, true), ("FULL", false, false)]
    {
        for suffix in ["", "_TRANSITIVE"] {
            let level = if level == "NONE" { level.to_owned() } else { format!("{level}{suffix}") };
            for (first, second, passes) in [(&narrow, &wide, widening), (&wide, &narrow, narrowing)] {
                let subject = format!("{}{passes}{level}", first.to_string().len());
                store.ask("PUT", &format!("schemas/{subject}/settings"), &json!({ "level": level }));
                register(&store, &subject, first);
                let check = store.post(&format!("schemas/{subject}/check"), &json!({ "schema": second }));
                assert_eq!(check["compatible"], passes, "{level}: {check}");
            }
        }
    }
    // Only transitive levels look further back than the latest.
    for (level, passes) in [("BACKWARD", true), ("BACKWARD_TRANSITIVE", false)] {
        let subject = format!("t{level}");
        let set = |level: &str| {
            store.ask("PUT", &format!("schemas/{subject}/settings"), &json!({ "level": level }))
        };
        set("NONE");
        register(
            &store,
            &subject,
            &json!({ "type": "object", "properties": { "a": { "type": "integer" } } }),
        );
        register(&store, &subject, &narrow);
        set(level);
        let next = json!({ "type": "object", "properties": { "a": { "type": ["string", "null"] } } });
        let check = store.post(&format!("schemas/{subject}/check"), &json!({ "schema": next }));
        assert_eq!(check["compatible"], passes, "{level}: {check}");
        if !passes {
            assert_eq!(check["reasons"][0]["version"], 1, "{check}");
        }
    }
}

#[test]
fn a_lenient_policy_lets_open_models_grow() {
    let (_server, store) = start();
    let open = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    let more =
        json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": "string" } } });
    register(&store, "strict", &open);
    register(&store, "lenient", &open);
    let problem = refuses_schema(&store, "strict", &more, 409, "schema_incompatible");
    assert_eq!(problem["reasons"][0]["kind"], "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL");
    store.ask("PUT", "schemas/lenient/settings", &json!({ "policy": "LENIENT" }));
    assert_eq!(register(&store, "lenient", &more)["version"], 2);
    // For all that say nothing themselves.
    let all = store.ask("PUT", "schema-settings", &json!({ "policy": "LENIENT", "level": "FULL" }));
    assert_eq!((&all["policy"], &all["level"]), (&json!("LENIENT"), &json!("FULL")));
    assert_eq!(store.get("schemas/strict/settings")["level"], "FULL");
    assert_eq!(store.ask("DELETE", "schema-settings", &json!(null))["level"], "BACKWARD");
}

#[test]
fn deleting_is_first_soft_and_then_for_good() {
    let (_server, store) = start();
    register(&store, "user", &user());
    register(&store, "user", &with("mail", json!({})));
    let delete = |path: &str| store.ask("DELETE", path, &json!(null));
    let refuses = |path: &str, status, code: &str| store.refuses("DELETE", path, &json!(null), status, code);
    refuses("schemas/user/2?permanent=true", 409, "schema_not_deleted");
    refuses("schemas/user/9", 404, "no_version");
    refuses("schemas/other", 404, "no_subject");
    assert_eq!(delete("schemas/user/latest")["versions"], json!([2]));
    refuses("schemas/user/2", 409, "schema_deleted");
    assert_eq!(store.get("schemas/user/latest")["version"], 1);
    store.refuses("GET", "schemas/user/2", &json!(null), 404, "no_version");
    assert_eq!(store.get("schemas/user/2?deleted=true")["deleted"], true);
    // The collection is held to what is the latest now.
    store.refuses("POST", "write", &event("put", 1, json!({ "name": "a", "mail": 1 })), 400, "unknown_field");
    refuses("schemas/user?permanent=true", 409, "schema_not_deleted");
    assert_eq!(delete("schemas/user")["versions"], json!([1]));
    refuses("schemas/user", 409, "schema_deleted");
    assert_eq!(store.get("schemas"), json!({ "subjects": [] }));
    assert_eq!(store.get("schemas?deleted=true")["subjects"][0]["deleted"], true);
    // Nothing is enforced any more.
    store.post("write", &event("put", 1, json!({ "anything": 1 })));
    assert_eq!(delete("schemas/user?permanent=true")["versions"], json!([1, 2]));
    assert_eq!(store.get("schemas?deleted=true"), json!({ "subjects": [] }));
    // Numbers are not used again.
    let again = register(&store, "user", &user());
    assert_eq!((&again["version"], &again["id"]), (&json!(3), &json!(3)));
}

#[test]
fn a_read_only_registry_takes_no_changes() {
    let (_server, store) = start();
    register(&store, "user", &user());
    store.ask("PUT", "schemas/user/settings", &json!({ "mode": "readonly" }));
    refuses_schema(&store, "user", &with("x", json!({})), 409, "schema_read_only");
    store.refuses("DELETE", "schemas/user", &json!(null), 409, "schema_read_only");
    store.refuses("PUT", "schemas/user/settings", &json!({ "level": "NONE" }), 409, "schema_read_only");
    // What is there already is found, and documents go on.
    assert_eq!(register(&store, "user", &user())["new"], false);
    store.create("user", 1, json!({ "name": "a" }));
    store.ask("PUT", "schemas/user/settings", &json!({ "mode": null }));
    store.ask("PUT", "schema-settings", &json!({ "mode": "READONLY" }));
    refuses_schema(&store, "other", &user(), 409, "schema_read_only");
    store.ask("PUT", "schema-settings", &json!({ "mode": "READWRITE" }));
    register(&store, "other", &user());
}

#[test]
fn unknown_fields_are_refused_in_every_operation() {
    let (_server, store) = start();
    register(&store, "user", &user());
    store.create("user", 1, json!({ "name": "a", "age": 3 }));
    let refused = |method: &str, path: &str, body: Value| {
        let problem = store.refuses(method, path, &body, 400, "unknown_field");
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains("$.aeg") && detail.contains("did you mean age?"),
            "{method} {path}: {detail}"
        );
    };
    refused("POST", "write", event("create", 2, json!({ "name": "b", "aeg": 1 })));
    refused("POST", "write", event("update", 1, json!({ "aeg": 1 })));
    refused("POST", "write", event("put", 1, json!({ "name": "b", "aeg": 1 })));
    refused("PUT", "documents/user/1", json!({ "name": "b", "aeg": 1 }));
    let add = json!({ "type": "update", "collection": "user", "key": 1, "add": { "aeg": [1] } });
    refused("POST", "write", json!({ "events": [add] }));
    for lock in [
        json!({ "collection": "user", "key": 1, "field": "aeg", "position": 1 }),
        json!({ "collection": "user", "field": "aeg", "position": 1 }),
        json!({ "collection": "user", "field": "age", "position": 1,
            "filter": { "field": "aeg", "op": "=", "value": 1 } }),
    ] {
        let update = json!([{ "type": "update", "collection": "user", "key": 1, "fields": { "age": 1 } }]);
        refused("POST", "write", json!({ "events": update, "locks": [lock] }));
    }
    let filter = json!({ "field": "aeg", "op": "=", "value": 1 });
    refused("GET", "documents/user/1?fields=name,aeg", json!(null));
    refused("GET", "documents/user?fields=aeg", json!(null));
    refused("POST", "get", json!({ "documents": [{ "collection": "user", "key": 1, "fields": ["aeg"] }] }));
    refused("POST", "get", json!({ "documents": [{ "collection": "user", "key": 1 }], "fields": ["aeg"] }));
    refused("POST", "filter", json!({ "collection": "user", "filter": filter }));
    refused("POST", "filter", json!({ "collection": "user", "fields": ["aeg"] }));
    refused("POST", "filter", json!({ "collection": "user", "sort": [{ "field": "aeg" }] }));
    refused("POST", "count", json!({ "collection": "user", "filter": filter }));
    refused("POST", "exists", json!({ "collection": "user", "filter": filter }));
    refused("POST", "min", json!({ "collection": "user", "field": "aeg" }));
    refused("POST", "max", json!({ "collection": "user", "field": "age", "filter": filter }));
    let side = |field: &str| json!({ "collection": "user", "field": field });
    refused("POST", "join", json!({ "left": side("aeg"), "right": side("name") }));
    refused("POST", "join", json!({ "left": side("name"), "right": side("aeg") }));
    let mut projected = side("name");
    projected["fields"] = json!(["aeg"]);
    refused("POST", "join", json!({ "left": projected, "right": side("name") }));
    refused("GET", "changes?collection=user&field=name,aeg", json!(null));
    refused("GET", "documents/user/1?path=aeg", json!(null));
    refused("PUT", "documents/user/1?path=aeg", json!(1));
    // Names inside values count as well.
    let nested = event("update", 1, json!({ "address": { "zpi": "1" } }));
    let problem = store.refuses("POST", "write", &nested, 400, "unknown_field");
    assert!(problem["detail"].as_str().unwrap().contains("$.address.zpi"), "{problem}");
    // What the store says about documents is known everywhere, and other collections are open.
    store.post(
        "count",
        &json!({ "collection": "user", "filter": { "field": "meta_deleted", "op": "=", "value": false } }),
    );
    store.post("count", &json!({ "collection": "other", "filter": filter }));
    store.create("other", 1, json!({ "aeg": 1 }));
}

/// Somebody holds the lock, and the request would wait for it and then be told of that.
#[test]
fn unknown_fields_are_refused_before_any_lock_is_taken() {
    let (server, store) = start();
    register(&store, "user", &user());
    store.create("user", 1, json!({ "name": "a" }));
    let mut holder = Peer::open(&server, "holder");
    holder.hold("write user");
    for body in [
        event("update", 1, json!({ "aeg": 1 })),
        event("create", 2, json!({ "name": "b", "address": { "zpi": 1 } })),
    ] {
        let mut body = body;
        body["wait_ms"] = LONG_MS.into();
        store.refuses("POST", "write", &body, 400, "unknown_field");
    }
    store.refuses("PUT", "documents/user/1?wait_ms=30000", &json!({ "aeg": 1 }), 400, "unknown_field");
    let read = "documents/user/1?fields=aeg&isolation=locked&wait_ms=30000";
    store.refuses("GET", read, &json!(null), 400, "unknown_field");
    let listed = http::get_json(&server, "/v1/default/locks");
    assert_eq!(listed["locks"].as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn documents_are_validated_with_the_failing_path() {
    let (_server, store) = start();
    store.create("user", 9, json!({ "odd": true }));
    store.delete("user", 9);
    register(&store, "user", &user());
    store.create("user", 1, json!({ "name": "a", "tags": ["x"] }));
    let refused = |body: &Value, path: &str| {
        let problem = store.refuses("POST", "write", body, 400, "schema_mismatch");
        assert!(problem["detail"].as_str().unwrap().contains(path), "{path}: {problem}");
    };
    refused(&event("create", 2, json!({ "name": 3 })), "$.name");
    refused(&event("create", 2, json!({ "age": 3 })), "name");
    refused(&event("update", 1, json!({ "age": -1 })), "$.age");
    refused(&event("update", 1, json!({ "name": null })), "name");
    refused(&event("put", 1, json!({ "name": "b", "tags": ["x", "too long"] })), "$.tags[1]");
    refused(&event("update", 1, json!({ "address": { "zip": 5 } })), "$.address.zip");
    let add = json!({ "type": "update", "collection": "user", "key": 1, "add": { "tags": ["too long"] } });
    refused(&json!({ "events": [add] }), "$.tags[1]");
    // A document from before the schema does not come back as it was.
    let restore = json!({ "events": [{ "type": "restore", "collection": "user", "key": 9 }] });
    refused(&restore, "$.odd");
    // What counts is what the whole request makes of a document.
    store.write(json!([
        { "type": "update", "collection": "user", "key": 1, "fields": { "age": -1 } },
        { "type": "update", "collection": "user", "key": 1, "fields": { "age": 1 } },
    ]));
    let value = store.get("documents/user/1")["document"]["value"].clone();
    assert_eq!(value, json!({ "name": "a", "tags": ["x"], "age": 1 }));
}

#[test]
fn a_document_from_before_can_be_put_right() {
    let (_server, store) = start();
    store.create("user", 1, json!({ "name": "a", "odd": true }));
    register(&store, "user", &user());
    let problem =
        store.refuses("POST", "write", &event("update", 1, json!({ "age": 1 })), 400, "schema_mismatch");
    assert!(problem["detail"].as_str().unwrap().contains("$.odd"), "{problem}");
    store.update("user", 1, json!({ "odd": null, "age": 1 }));
    store.delete("user", 1);
}

/// A writer waits for somebody's lock; the schema that comes meanwhile is the one it is held to.
#[test]
fn a_schema_holds_for_writes_that_already_wait() {
    let (server, store) = start();
    store.create("user", 1, json!({ "name": "a" }));
    let mut holder = Peer::open(&server, "holder");
    let lock = holder.hold("write user/1");
    let waiting = {
        let store = store.clone();
        thread::spawn(move || {
            let mut body = event("update", 1, json!({ "age": -5 }));
            body["wait_ms"] = LONG_MS.into();
            store.send("POST", "write", &body.to_string())
        })
    };
    let waits = || {
        let listed = http::get_json(&server, "/v1/default/locks?state=waiting");
        !listed["locks"].as_array().unwrap().is_empty()
    };
    eventually("the write waits", waits);
    register(&store, "user", &user());
    holder.release(&lock);
    waiting.join().unwrap().assert_problem(400, "schema_mismatch");
    assert_eq!(store.get("documents/user/1")["document"]["value"], json!({ "name": "a" }));
}

/// Whatever comes after the schema in the log fits it, however many write at the same time.
#[test]
fn nothing_slips_in_beside_a_registration() {
    let (_server, store) = start();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let store = store.clone();
            thread::spawn(move || {
                for round in 0..60 {
                    let body = event("put", writer * 1000 + round, json!({ "wrong": true }));
                    store.send("POST", "write", &body.to_string());
                }
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(20));
    register(&store, "user", &user());
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let changes = store.get("changes?after=0&limit=1000");
    let collections: Vec<&str> = changes["commits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|commit| commit["events"][0]["collection"].as_str().unwrap())
        .collect();
    let registered = collections.iter().position(|name| *name == "_schemas").unwrap();
    assert!(registered > 0, "the writers had begun");
    assert_eq!(registered, collections.len() - 1, "{} came after", collections.len() - 1 - registered);
}

#[test]
fn registrations_at_the_same_time_do_not_share_numbers() {
    let (_server, store) = start();
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let store = store.clone();
            let schema = with(&format!("f{number}"), json!({ "type": "string" }));
            thread::spawn(move || {
                let own = register(&store, &format!("own{number}"), &schema);
                let same = register(&store, "same", &user());
                (own["id"].as_u64().unwrap(), same["version"].as_u64().unwrap())
            })
        })
        .collect();
    let mut ids: Vec<u64> = threads
        .into_iter()
        .map(|thread| {
            let (id, version) = thread.join().unwrap();
            assert_eq!(version, 1);
            id
        })
        .collect();
    ids.push(store.get("schemas/same/latest")["id"].as_u64().unwrap());
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 9, "{ids:?}");
}

fn indexes(store: &Store) -> Vec<String> {
    let found = store.get("indexes");
    let found = found["indexes"].as_array().unwrap().iter();
    found.map(|index| index["field"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn indexes_come_and_go_with_the_schema() {
    let server = Server::start(&["--looks-max", "5", "--indexes-max", "2"]);
    let store = Store::new(&server, "default");
    for key in 0..20 {
        store.create("user", key, json!({ "name": format!("n{key}"), "age": key }));
    }
    let search = json!({ "collection": "user", "filter": { "field": "age", "op": "=", "value": 7 } });
    store.refuses("POST", "filter", &search, 400, "over_limit");
    let mut indexed = user();
    indexed["properties"]["age"]["x-lockwood-index"] = true.into();
    register(&store, "user", &indexed);
    assert_eq!(indexes(&store), ["age"]);
    eventually("it is built", || store.get("indexes")["indexes"][0]["state"] == "ready");
    assert_eq!(store.found(&search), ["7"]);
    // Taken away by hand, it is there again after the next registration.
    store.ask("DELETE", "indexes/user/age", &json!(null));
    register(&store, "user", &indexed);
    assert_eq!(indexes(&store), ["age"]);
    // Too many: then neither the schema nor an index is there.
    let mut many = indexed.clone();
    for name in ["name", "tags"] {
        many["properties"][name]["x-lockwood-index"] = true.into();
    }
    refuses_schema(&store, "user", &many, 400, "over_limit");
    assert_eq!(
        (indexes(&store), store.get("schemas/user/latest")["version"].clone()),
        (vec!["age".into()], json!(1))
    );
    // Another version, another index; without that version the old one is back.
    let mut other = user();
    other["properties"]["name"]["x-lockwood-index"] = true.into();
    register(&store, "user", &other);
    assert_eq!(indexes(&store), ["name"]);
    store.ask("DELETE", "schemas/user/2", &json!(null));
    assert_eq!(indexes(&store), ["age"]);
    store.ask("DELETE", "schemas/user", &json!(null));
    assert_eq!(indexes(&store), Vec::<String>::new());
}

/// Everything there is to see of a registry.
fn look(store: &Store) -> Vec<Value> {
    [
        "schemas?deleted=true",
        "schemas/user?deleted=true",
        "schemas/user/latest",
        "schema-settings",
        "schemas/user/settings",
    ]
    .iter()
    .map(|path| store.get(path))
    .collect()
}

fn fill(store: &Store) {
    register(store, "user", &user());
    register(store, "user", &with("mail", json!({})));
    register(store, "gone", &user());
    store.ask("DELETE", "schemas/gone", &json!(null));
    store.ask("DELETE", "schemas/gone?permanent=true", &json!(null));
    register(store, "soft", &with("x", json!({})));
    store.ask("DELETE", "schemas/soft", &json!(null));
    store.ask("PUT", "schemas/user/settings", &json!({ "level": "FULL", "policy": "LENIENT" }));
    store.ask("PUT", "schema-settings", &json!({ "level": "NONE" }));
}

#[test]
fn a_registry_survives_a_restart_and_a_crash() {
    let (server, store) = start();
    fill(&store);
    let before = look(&store);
    let server = server.stop().restart(&[]);
    let store = Store::new(&server, "default");
    assert_eq!(look(&store), before);
    store.refuses("POST", "write", &event("put", 1, json!({ "aeg": 1 })), 400, "unknown_field");
    let server = server.kill().restart(&[]);
    let store = Store::new(&server, "default");
    assert_eq!(look(&store), before);
    // Ids go on where they were, also past what is gone.
    assert_eq!(register(&store, "next", &with("y", json!({})))["id"], 4);
    assert_eq!(register(&store, "gone", &user())["version"], 2);
}

#[test]
fn a_registry_is_dumped_and_loaded_with_its_namespace() {
    let (server, store) = start();
    fill(&store);
    store.create("user", 1, json!({ "name": "a" }));
    let dump = http::request(store.native, "GET", &store.target("dump"), &[]).body;
    let copy = Store::new(&server, "copy");
    let load = |store: &Store, text: &str| {
        let kind = ("content-type", "application/x-ndjson");
        http::send(store.native, "POST", &store.target("load"), &[kind], text.as_bytes())
    };
    // Asked before, so that it is known that there is nothing.
    assert_eq!(copy.get("schemas"), json!({ "subjects": [] }));
    assert_eq!(load(&copy, &dump).status, 200);
    assert_eq!(look(&copy), look(&store));
    copy.refuses("POST", "write", &event("put", 1, json!({ "aeg": 1 })), 400, "unknown_field");
    assert_eq!(register(&copy, "next", &with("y", json!({})))["id"], 4);
    // A registry that cannot be used is not taken in.
    let broken = Store::new(&server, "broken");
    let damaged = dump.replacen("\\\"type\\\":\\\"object\\\"", "\\\"type\\\":\\\"objekt\\\"", 1);
    assert_ne!(damaged, dump);
    let problem = load(&broken, &damaged).assert_problem(400, "bad_body");
    assert!(problem["detail"].as_str().unwrap().contains("schema"), "{problem}");
    broken.create("user", 1, json!({ "any": 1 }));
}

#[test]
fn a_registry_that_is_trimmed_stays() {
    let (server, store) = start();
    fill(&store);
    let before = look(&store);
    store.trim(0);
    assert_eq!(look(&store), before);
    let server = server.stop().restart(&[]);
    assert_eq!(look(&Store::new(&server, "default")), before);
}

/// What is there can be removed whether or not the schema knows it, so documents from before can be put right.
#[test]
fn removing_a_misspelt_field_is_an_unknown_field() {
    let (_server, store) = start();
    store.create("user", 1, json!({ "name": "Ann", "old": 1 }));
    store.ask("POST", "schemas/user", &json!({ "schema": user() }));
    let refused = store.refuses("DELETE", "documents/user/1/nam", &json!(null), 400, "unknown_field");
    assert!(refused["detail"].to_string().contains("did you mean name"), "{refused}");
    store.refuses("DELETE", "documents/user/1/age", &json!(null), 404, "no_node");
    let unset =
        |path: &str| json!({ "events": [{ "type": "unset", "collection": "user", "key": 1, "path": path }] });
    let refused = store.refuses("POST", "write", &unset("nam"), 400, "unknown_field");
    assert!(refused["detail"].to_string().contains("did you mean name"), "{refused}");
    store.refuses("POST", "write", &unset("address/zpi"), 400, "unknown_field");
    store.refuses("POST", "write", &unset("address/zip"), 404, "no_node");
    store.refuses("POST", "write", &unset("age"), 404, "no_node");
    assert!(store.ask("DELETE", "documents/user/1/old", &json!(null))["position"].is_u64());
}

#[test]
fn fields_that_a_later_schema_does_not_know_can_be_removed_one_by_one() {
    let (_server, store) = start();
    let fields =
        json!({ "name": "Ann", "old": 1, "older": 2, "oldest": 3, "address": { "zip": "1", "zpi": "2" } });
    store.create("user", 1, fields);
    store.ask("POST", "schemas/user", &json!({ "schema": user() }));
    let write = |event: Value| json!({ "events": [event] });
    let unset = |path: &str| write(json!({ "type": "unset", "collection": "user", "key": 1, "path": path }));
    store.ask("DELETE", "documents/user/1/old", &json!(null));
    store.post("write", &unset("address/zpi"));
    // What the schema knows is held to it as ever, alone or together with what it does not know.
    store.refuses("POST", "write", &unset("name"), 400, "schema_mismatch");
    let both = json!({ "type": "update", "collection": "user", "key": 1, "fields": { "older": null, "name": "Bob" } });
    store.refuses("POST", "write", &write(both), 400, "schema_mismatch");
    let nulls = json!({ "type": "update", "collection": "user", "key": 1, "fields": { "older": null } });
    store.post("write", &write(nulls));
    store.ask("DELETE", "documents/user/1/oldest", &json!(null));
    store.ask("PUT", "documents/user/1/name", &json!("Bob"));
    let found = store.get("documents/user/1")["document"]["value"].clone();
    assert_eq!(found, json!({ "name": "Bob", "address": { "zip": "1" } }));
}
