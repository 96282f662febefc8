//! What a registry says about locks: which fields can be locked, and which reads wait for locks.

use crate::{
    harness::{BINARY, Server},
    http,
    isolation::Held,
    peer::Peer,
    store::Store,
};
use serde_json::{Value, json};
use std::process::Command;

/// A server whose collection user has a schema and the document user/1.
fn start() -> (Server, Store) {
    let server = Server::start(&[]);
    let store = Store::new(&server, "default");
    let address = json!({ "type": "object", "properties": { "zip": { "type": "string" } } });
    let properties = json!({ "name": { "type": "string" }, "address": address });
    let schema = json!({ "type": "object", "properties": properties });
    store.post("schemas/user", &json!({ "schema": schema }));
    store.create("user", 1, json!({ "name": "Ann" }));
    store.create("open", 1, json!({ "x": "Ann" }));
    (server, store)
}

fn lease(path: &str) -> Value {
    json!({ "owner": "me", "ttl_ms": 60_000, "wait_ms": 30_000, "resources": [{ "path": path, "mode": "write" }] })
}

#[test]
fn a_lock_on_a_field_the_schema_does_not_know_is_refused_before_it_waits() {
    let (server, store) = start();
    // Whoever waited would wait for this one.
    let _held = Held::take(&store, "holder", "write user");
    let problem = store.refuses("POST", "locks", &lease("user/1/nmae"), 400, "unknown_field");
    assert!(problem["detail"].to_string().contains("did you mean name?"), "{problem}");
    store.refuses("POST", "locks", &lease("user/1/address/zpi"), 400, "unknown_field");
    let mut peer = Peer::open(&server, "session");
    let reply = peer.ask(json!({ "type": "lock", "resources": [{ "path": "user/1/nmae", "mode": "read" }] }));
    assert_eq!(reply["code"], "unknown_field", "{reply}");
    let output = Command::new(BINARY)
        .args(["lock", "--write", "user/1/nmae", "--", "true"])
        .env("LOCKWOOD_SERVER", server.native.to_string())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(70), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean name?"), "{output:?}");
}

#[test]
fn a_conversion_at_a_field_the_schema_does_not_know_is_refused_with_the_nearest_names() {
    let server = Server::start(&[]);
    let store = Store::new(&server, "default");
    let mut peer = Peer::open(&server, "session");
    let resources = |paths: &[&str], mode: &str| -> Vec<Value> {
        paths.iter().map(|path| json!({ "path": path, "mode": mode })).collect()
    };
    let held = ["user/1/name", "user/1/older"];
    let lock = peer.ask(json!({ "type": "lock", "resources": resources(&held, "write") }))["lock"].clone();
    let properties = json!({ "name": { "type": "string" }, "age": { "type": "integer" } });
    store.post("schemas/user", &json!({ "schema": { "type": "object", "properties": properties } }));
    let mut convert = |path: &str| {
        peer.ask(json!({ "type": "convert", "lock": lock, "resources": resources(&[path], "read") }))
    };
    let reply = convert("user/1/nmae");
    assert_eq!(reply["code"], "unknown_field", "{reply}");
    assert!(reply["message"].to_string().contains("did you mean name?"), "{reply}");
    assert_eq!(convert("user/1/age")["code"], "no_such_resource");
    assert_eq!(convert("user/1/older")["type"], "converted", "what is held is older than the schema");
    assert_eq!(convert("user/1/name")["type"], "converted");
}

#[test]
fn known_fields_and_open_collections_are_locked_as_ever() {
    let (server, store) = start();
    let mut peer = Peer::open(&server, "session");
    for path in ["user", "user/1", "user/1/name", "user/2/address/zip", "user/1/meta_deleted", "other/1/nmae"]
    {
        let reply = peer.ask(json!({ "type": "lock", "resources": [{ "path": path, "mode": "read" }] }));
        assert_eq!(reply["type"], "granted", "{path}: {reply}");
    }
    peer.bye();
    // A session that found no schema hears of the first one.
    let schema = json!({ "type": "object", "properties": { "total": { "type": "number" } } });
    let other = Store::new(&server, "other");
    let mut peer = Peer::open_with(&server, "other", json!({ "name": "early" }));
    let lock = json!({ "type": "lock", "resources": [{ "path": "order/1/totla", "mode": "read" }] });
    assert_eq!(peer.ask(lock.clone())["type"], "granted");
    other.post("schemas/order", &json!({ "schema": schema }));
    assert_eq!(peer.ask(lock)["code"], "unknown_field");
    store.ask("PUT", "schemas/user/settings", &json!({ "policy": "LENIENT" }));
    let taken = store.send("POST", "locks", &lease("user/2/nmae").to_string());
    assert_eq!(taken.status, 201, "{taken:?}");
}

/// Every read of the collection user.
fn reads() -> Vec<(&'static str, &'static str, Value)> {
    let side = json!({ "collection": "user", "field": "name" });
    vec![
        ("GET", "documents/user/1?wait_ms=0", Value::Null),
        ("GET", "documents/user/1/name?wait_ms=0", Value::Null),
        ("GET", "documents/user?wait_ms=0", Value::Null),
        ("POST", "get", json!({ "documents": [{ "collection": "user", "key": 1 }], "wait_ms": 0 })),
        ("POST", "filter", json!({ "collection": "user", "wait_ms": 0 })),
        ("POST", "count", json!({ "collection": "user", "wait_ms": 0 })),
        ("POST", "max", json!({ "collection": "user", "field": "name", "wait_ms": 0 })),
        (
            "POST",
            "join",
            json!({ "left": side, "right": { "collection": "open", "field": "x" }, "wait_ms": 0 }),
        ),
    ]
}

/// The statuses of all reads, with an isolation of their own if one is given.
fn statuses(store: &Store, isolation: Option<&str>) -> Vec<u16> {
    let read = |(method, path, mut body): (&str, &str, Value)| match (method, isolation) {
        ("GET", Some(isolation)) => store.send("GET", &format!("{path}&isolation={isolation}"), "").status,
        ("GET", None) => store.send("GET", path, "").status,
        (_, isolation) => {
            isolation.into_iter().for_each(|isolation| body["isolation"] = isolation.into());
            store.send(method, path, &body.to_string()).status
        }
    };
    reads().into_iter().map(read).collect()
}

#[test]
fn a_collection_can_be_set_to_read_under_locks() {
    let (server, store) = start();
    let reads_len = reads().len();
    let held = Held::take(&store, "holder", "write user/1");
    assert_eq!(statuses(&store, None), vec![200; reads_len]);
    let settings = store.ask("PUT", "schemas/user/settings", &json!({ "isolation": "locked" }));
    assert_eq!((&settings["isolation"], &settings["own"]), (&json!("locked"), &json!(["isolation"])));
    assert_eq!(statuses(&store, None), vec![423; reads_len]);
    assert_eq!(statuses(&store, Some("snapshot")), vec![200; reads_len], "a request's own value counts more");
    assert_eq!(store.send("GET", "documents/user/1?at=2", "").status, 200, "the past is not locked");
    let server = server.stop().restart(&[]);
    let store = Store::new(&server, "default");
    assert_eq!(statuses(&store, None), vec![423; reads_len], "it is durable, and so is the lease");
    store.post(&format!("locks/{}/release", held.lock), &json!({ "owner": "holder" }));
    assert_eq!(statuses(&store, None), vec![200; reads_len]);
}

/// As docs/schemas.md says: only reads that can say otherwise are held to the setting.
#[test]
fn reads_without_an_isolation_of_their_own_are_not_held_to_the_setting() {
    let server =
        Server::start(&["--elasticsearch", "127.0.0.1:0", "--openslides", "127.0.0.1:0,127.0.0.1:0"]);
    for namespace in ["default", "openslides"] {
        let store = Store::new(&server, namespace);
        store.create("user", 1, json!({ "name": "Ann" }));
        store.ask("PUT", "schemas/user/settings", &json!({ "isolation": "locked" }));
        let _held = Held::take(&store, "holder", "write user/1");
        store.refuses("GET", "documents/user/1?wait_ms=0", &Value::Null, 423, "locked");
        let at = json!({ "collection": "user", "key": 1 });
        assert_eq!(store.post("shard/select", &at)["document"]["value"]["name"], "Ann");
        for mode in ["ro", "rw"] {
            let mut asked = at.clone();
            asked["mode"] = mode.into();
            assert_eq!(store.post("shard/eselect", &asked)["document"]["value"]["name"], "Ann", "{mode}");
        }
        let source = "return function(db, key) return db.get('user', key).name end";
        let headers = [("content-type", "text/plain")];
        let target = store.target("shard/procedures/name");
        assert_eq!(http::send(store.native, "PUT", &target, &headers, source.as_bytes()).status, 200);
        let call = |mode: &str| {
            let mut called = at.clone();
            (called["mode"], called["procedure"], called["wait_ms"]) = (mode.into(), "name".into(), 0.into());
            called
        };
        assert_eq!(store.post("shard/call", &call("ro"))["answer"], "Ann");
        for isolation in ["locked", "snapshot"] {
            store.ask("PUT", "schemas/user/settings", &json!({ "isolation": isolation }));
            store.refuses("POST", "shard/call", &call("rw"), 423, "locked");
        }
    }
    let found = http::send(server.elasticsearch(), "GET", "/default/user/1", &[], b"");
    assert_eq!(found.json()["_source"]["name"], "Ann", "{found:?}");
    let headers = [("content-type", "application/json")];
    let get = "/internal/datastore/reader/get";
    let model = http::send(server.openslides_reader(), "POST", get, &headers, br#"{"fqid":"user/1"}"#);
    assert_eq!(model.json()["name"], "Ann", "{model:?}");
}

#[test]
fn a_namespace_can_be_set_to_read_under_locks() {
    let (server, store) = start();
    let run = |arguments: &[&str]| {
        let output = Command::new(BINARY)
            .args(arguments)
            .env("LOCKWOOD_SERVER", server.native.to_string())
            .env_remove("LOCKWOOD_NAMESPACE")
            .output()
            .unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let (_, said) = run(&["schema", "settings", "--isolation", "document"]);
    assert!(said.contains("isolation  document   set here"), "{said}");
    let _held = Held::take(&store, "holder", "write user/1");
    assert_eq!(statuses(&store, None), vec![423; reads().len()]);
    assert_eq!(run(&["get", "user/1", "--wait", "0"]).0, 75);
    assert_eq!(run(&["get", "user/1", "--isolation", "snapshot"]).0, 0);
    for collection in ["user", "open"] {
        store.ask("PUT", &format!("schemas/{collection}/settings"), &json!({ "isolation": "snapshot" }));
    }
    assert_eq!(statuses(&store, None), vec![200; reads().len()], "the collections say otherwise");
    store.refuses("PUT", "schema-settings", &json!({ "isolation": "loose" }), 400, "bad_setting");
    assert_eq!(store.ask("DELETE", "schema-settings", &json!(null))["isolation"], "snapshot");
}
