//! Operations on what a node has, whichever node owns it: off by default, on record, and held to locks.

use crate::{harness::Server, leaseholder::Leaseholder, store::Store};
use serde_json::{Value, json};

const OPERATIONS: [&str; 4] = ["select", "insert", "delete", "len"];

fn body(operation: &str) -> Value {
    match operation {
        "len" => json!({}),
        "insert" => json!({ "collection": "user", "key": 42, "fields": { "name": "Eve" } }),
        _ => json!({ "collection": "user", "key": 42 }),
    }
}

fn actions(store: &Store) -> Vec<Value> {
    store.get("operator-log")["actions"].as_array().unwrap().clone()
}

#[test]
fn raw_operations_are_off_unless_the_server_is_started_with_them() {
    let server = Server::start(&[]);
    let store = Store::new(&server, "default");
    for operation in OPERATIONS {
        for target in
            [format!("shard/raw/{operation}"), format!("shard/raw/{operation}?operator=ann&force=true")]
        {
            let problem = store.refuses("POST", &target, &body(operation), 403, "raw_operations_off");
            assert!(problem["detail"].as_str().unwrap().contains("--raw-operations"), "{problem}");
        }
    }
    assert!(actions(&store).is_empty());
}

#[test]
fn raw_operations_are_on_record_under_the_name_of_an_operator() {
    let server = Server::start(&["--raw-operations"]);
    let store = Store::new(&server, "default");
    for operation in OPERATIONS {
        let target = format!("shard/raw/{operation}");
        let problem = store.refuses("POST", &target, &body(operation), 400, "bad_query");
        assert!(problem["detail"].as_str().unwrap().contains("?operator="), "{problem}");
        store.refuses("POST", &format!("{target}?operator="), &body(operation), 400, "bad_query");
    }
    assert!(actions(&store).is_empty(), "nothing was done");
    for operation in ["insert", "select", "len", "delete"] {
        store.post(&format!("shard/raw/{operation}?operator=ann&reason=a+test"), &body(operation));
    }
    let actions = actions(&store);
    let of = |name: &str| {
        let found = actions.iter().find(|action| action["action"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {actions:?}")).clone()
    };
    for name in ["raw_insert", "raw_select", "raw_delete"] {
        let action = of(name);
        assert_eq!((&action["operator"], &action["reason"]), (&json!("ann"), &json!("a test")), "{action}");
        assert_eq!(action["document"], "user/42", "{action}");
        assert_eq!(action.get("forced"), None, "{action}");
    }
    assert_eq!(of("raw_len")["operator"], "ann");
    assert_eq!(actions.len(), 4);
}

#[test]
fn raw_operations_respect_locks_unless_they_are_forced() {
    let server = Server::start(&["--raw-operations", "--wait", "50ms"]);
    let store = Store::new(&server, "default");
    let lease = Leaseholder::new(&server, "bob").take("write user/42");
    let problem = store.refuses("POST", "shard/raw/insert?operator=ann", &body("insert"), 423, "timeout");
    assert!(problem["detail"].as_str().unwrap().contains("bob"), "{problem}");
    store.refuses("POST", "shard/raw/delete?operator=ann", &body("delete"), 423, "timeout");
    assert!(actions(&store).is_empty(), "what was refused was not done");
    let mut with_token = body("insert");
    with_token["tokens"] = json!([lease.token]);
    store.post("shard/raw/insert?operator=ann", &with_token);
    let taken = store.post("shard/raw/delete?operator=ann&force=true", &body("delete"));
    assert_eq!(taken["document"]["value"]["name"], "Eve", "{taken}");
    assert_eq!(actions(&store)[0]["forced"], true);
}

#[test]
fn raw_operations_leave_collections_of_the_server_alone() {
    let server = Server::start(&["--raw-operations"]);
    let store = Store::new(&server, "default");
    for collection in ["_schemas", "_procedures"] {
        let body = json!({ "collection": collection, "key": "p", "fields": { "a": 2 } });
        let reply = store.send("POST", "shard/raw/insert?operator=ann", &body.to_string());
        assert_eq!(reply.json()["code"], "reserved_collection", "{reply:?}");
    }
    store.create("user", 1, json!({ "a": 1 }));
}
