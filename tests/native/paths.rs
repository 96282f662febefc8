//! A path means the same in commands, in addresses of the server and in locks.

use crate::{
    harness::{BINARY, Server},
    http,
    store::{Store, timeless},
};
use serde_json::{Value, json};
use std::process::{Command, Output};

fn start() -> (Server, Store) {
    let server = Server::start(&[]);
    let store = Store::new(&server, "default");
    store.create("user", 42, json!({ "name": "Ann" }));
    (server, store)
}

fn run(server: &Server, arguments: &[&str]) -> Output {
    Command::new(BINARY)
        .args(arguments)
        .env("LOCKWOOD_SERVER", server.native.to_string())
        .env_remove("LOCKWOOD_NAMESPACE")
        .env_remove("LOCKWOOD_TOKEN")
        .output()
        .unwrap()
}

#[track_caller]
fn done(server: &Server, arguments: &[&str]) -> String {
    let output = run(server, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// That a command is refused with this exit code; gives what it says.
#[track_caller]
fn refused(server: &Server, arguments: &[&str], code: i32) -> String {
    let output = run(server, arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn value(store: &Store) -> Value {
    store.get("documents/user/42")["document"]["value"].clone()
}

#[test]
fn every_command_reads_a_path_as_locks_do() {
    let (server, store) = start();
    assert_eq!(
        done(&server, &["put", "user/42/address", r#"{"zip":1}"#]),
        "user/42/address written at position 2\n"
    );
    assert_eq!(value(&store), json!({ "name": "Ann", "address": { "zip": 1 } }));
    assert_eq!(store.found(&json!({ "collection": "user" })), ["42"], "there is no second document");
    assert_eq!(done(&server, &["get", "user/42/address/zip"]), "1\n");
    done(&server, &["set", "user/42/address/zip", "2"]);
    let history = done(&server, &["history", "user/42/address/zip", "--json"]);
    let entries: Vec<Value> = history.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let changes: Vec<&Value> = entries.iter().map(|entry| &entry["changes"]["address/zip"]).collect();
    assert_eq!(changes, [&json!({ "after": 1 }), &json!({ "before": 1, "after": 2 })]);
    done(&server, &["delete", "user/42/address"]);
    assert_eq!(value(&store), json!({ "name": "Ann" }));
    assert_eq!(store.found(&json!({ "collection": "user" })), ["42"], "the document stays");
}

#[test]
fn a_leading_slash_means_the_same_collection_in_every_command() {
    let (server, store) = start();
    store.create("order", 1, json!({ "customer": "Ann" }));
    assert_eq!(done(&server, &["count", "/user"]), "1\n");
    assert_eq!(done(&server, &["filter", "/user", "--json"]), done(&server, &["filter", "user", "--json"]));
    let joined = done(&server, &["join", "/order.customer", "/user.name", "--json"]);
    assert_eq!(joined.lines().count(), 1, "{joined}");
    assert!(done(&server, &["index", "add", "/user", "name"]).starts_with("added the index of user by name"));
    done(&server, &["index", "drop", "/user", "name"]);
    done(&server, &["schema", "settings", "/user", "--isolation", "locked"]);
    assert!(done(&server, &["schema", "settings", "user"]).to_lowercase().contains("locked"));
    let schema = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(schema.path(), r#"{"type":"object"}"#).unwrap();
    let file = schema.path().to_str().unwrap();
    assert!(
        done(&server, &["schema", "register", file, "--subject", "/user"]).starts_with("user has version 1")
    );
    for command in [&["show", "/user"][..], &["check", file, "--subject", "/user"], &["delete", "/user"]] {
        done(&server, &[&["schema"], command].concat());
    }
    assert_eq!(store.get("indexes")["indexes"], json!([]));
    assert_eq!(store.get("schemas?deleted=true")["subjects"].as_array().unwrap().len(), 1, "user alone");
}

#[test]
fn what_is_no_collection_is_refused_where_a_collection_is_meant() {
    let (server, store) = start();
    for path in ["user/42", "/user/42", "user/", "/", ""] {
        for command in [
            &["count", path][..],
            &["filter", path],
            &["watch", path],
            &["index", "add", path, "name"],
            &["index", "drop", path, "name"],
            &["join", &format!("{path}.name"), "user.name"],
            &["schema", "show", path],
            &["schema", "delete", path],
            &["schema", "settings", path, "--isolation", "locked"],
        ] {
            let said = refused(&server, command, 2);
            assert!(said.contains("write "), "{command:?}: {said}");
        }
    }
    assert!(refused(&server, &["filter", "user/42"], 2).contains("write user"));
    store.create("a/b", 1, json!({}));
    assert_eq!(done(&server, &["count", "a%2Fb"]), "1\n", "a slash inside a name");
    assert_eq!(store.get("indexes")["indexes"], json!([]));
}

#[test]
fn a_lock_on_a_document_covers_what_is_put_below_its_path() {
    let (server, store) = start();
    let lock =
        json!({ "owner": "me", "ttl_ms": 60_000, "resources": [{ "path": "user/42", "mode": "write" }] });
    assert_eq!(store.send("POST", "locks", &lock.to_string()).status, 201);
    refused(&server, &["put", "user/42/address", "{}", "--wait", "0"], 75);
    refused(&server, &["delete", "user/42/name", "--wait", "0"], 75);
    done(&server, &["put", "user/43", "{}"]);
}

#[test]
fn a_lock_on_the_path_of_a_document_covers_exactly_this_document() {
    let (server, store) = start();
    for (path, sibling) in [
        ("line/a:1", "line/a"),
        ("line/a%2Fb", "line/a"),
        ("line/a%253Ab", "line/a:b"),
        ("line/%01", "line/x"),
    ] {
        let lock =
            json!({ "owner": path, "ttl_ms": 60_000, "resources": [{ "path": path, "mode": "write" }] });
        assert_eq!(store.send("POST", "locks", &lock.to_string()).status, 201);
        refused(&server, &["put", path, "{}", "--wait", "0"], 75);
        let address = format!("documents/{path}?wait_ms=0");
        store.send("PUT", &address, "{}").assert_problem(423, "locked");
        done(&server, &["put", sibling, "{}", "--wait", "0"]);
        store.post("locks/release", &json!({ "owner": path }));
    }
}

#[test]
fn a_document_cannot_be_reached_by_a_spelling_that_locks_on_it_do_not_have() {
    let (server, store) = start();
    for (path, right) in
        [("line/a%252Fb", "line/a%2Fb"), ("line/x%253a1", "line/x%253A1"), ("line/%2541", "line/A")]
    {
        for command in ["put", "get", "delete", "history"] {
            let value: &[&str] = if command == "put" { &["{}"] } else { &[] };
            let said = refused(&server, &[&[command, path], value].concat(), 2);
            assert!(said.contains(&format!("write {right}")), "{command}: {said}");
        }
        store.send("PUT", &format!("documents/{path}"), "{}").assert_problem(400, "bad_key");
        let lock =
            json!({ "owner": "ann", "ttl_ms": 60_000, "resources": [{ "path": path, "mode": "write" }] });
        store.send("POST", "locks", &lock.to_string()).assert_problem(400, "bad_key");
        let said = refused(&server, &["lock", "--write", path, "--", "true"], 70);
        assert!(said.contains(&format!("write {right}")), "lock: {said}");
        done(&server, &["put", right, "{}"]);
    }
}

/// Such a lock would guard nothing: no document can have the key.
#[test]
fn locks_on_what_no_key_can_be_are_refused() {
    let (server, store) = start();
    for path in ["user/100%25", "user/%_", "user/a::b"] {
        refused(&server, &["put", path, "{}"], 2);
        refused(&server, &["lock", "--write", path, "--", "true"], 70);
        let lock =
            json!({ "owner": "ann", "ttl_ms": 60_000, "resources": [{ "path": path, "mode": "write" }] });
        store.send("POST", "locks", &lock.to_string()).assert_problem(400, "bad_key");
    }
    done(&server, &["put", "user/100%2525", "{}"]);
    done(&server, &["lock", "--write", "user/100%2525", "--", "true"]);
}

#[test]
fn a_node_needs_its_document() {
    let (server, store) = start();
    let said = refused(&server, &["put", "user/43/name", "\"Bob\""], 66);
    assert!(said.contains("there is no document user/43"), "{said}");
    refused(&server, &["put", "user/42/address/zip", "1"], 66);
    refused(&server, &["put", "user/42/name", "1", "--if", "absent"], 70);
    assert_eq!(store.get("position")["position"], 1, "nothing was written");
}

#[test]
fn addresses_name_nodes_as_commands_do() {
    let (_server, store) = start();
    let node = "documents/user/42/address";
    store.ask("PUT", node, &json!({ "zip": 1, "a/b": 2 }));
    assert_eq!(store.get("documents/user/42/address/a%2Fb")["node"]["value"], 2);
    assert_eq!(store.get("documents/user/42/address/zip"), store.get("documents/user/42?path=/address/zip"));
    store.send("GET", "documents/user/42/nothing", "").assert_problem(404, "no_node");
    store.send("GET", "documents/user/42/address?path=/zip", "").assert_problem(400, "bad_query");
    store.ask("PUT", "documents/user/42/name", &json!("Anna"));
    let entries = timeless(store.get("history/user/42/address"))["entries"].take();
    assert_eq!(entries.as_array().unwrap().len(), 1, "{entries}");
    assert_eq!(entries[0]["changes"], json!({ "address": { "after": { "zip": 1, "a/b": 2 } } }));
    store.ask("DELETE", node, &json!(null));
    store.delete("user", 42);
    let page = store.get("history/user/42?path=/address&after=1");
    assert_eq!(page["entries"].as_array().unwrap().len(), 2, "it was gone when the document went: {page}");
    let page = store.get("history/user/42?path=/name");
    let kinds: Vec<&Value> =
        page["entries"].as_array().unwrap().iter().map(|entry| &entry["event"]).collect();
    assert_eq!(kinds, ["created", "updated", "deleted"]);
    let first = store.get("history/user/42/name?limit=1");
    assert_eq!((&first["entries"][0]["position"], &first["next"]), (&json!(1), &json!(1)));
}

#[test]
fn a_leading_slash_is_accepted_everywhere() {
    let (server, store) = start();
    done(&server, &["put", "/user/42", r#"{"a":1}"#]);
    done(&server, &["put", "/user/42/a", "2"]);
    assert_eq!(done(&server, &["get", "/user/42/a"]), "2\n");
    done(&server, &["history", "/user/42"]);
    done(&server, &["lock", "--write", "/user/42", "--", "true"]);
    done(&server, &["delete", "/user/42"]);
    done(&server, &["restore", "/user/42"]);
    assert_eq!(value(&store), json!({ "a": 2 }));
}

#[test]
fn an_empty_path_is_refused() {
    let (server, store) = start();
    let said = refused(&server, &["lock", "--write", "", "--", "true"], 2);
    assert!(said.contains("write / for the whole namespace"), "{said}");
    for arguments in [&["get", ""][..], &["put", "", "{}"], &["delete", ""], &["history", ""], &["locks", ""]]
    {
        refused(&server, arguments, 2);
    }
    let said = refused(&server, &["get", "user"], 2);
    assert!(said.contains("user is a collection"), "{said}");
    let lock = json!({ "owner": "me", "ttl_ms": 60_000, "resources": [{ "path": "", "mode": "write" }] });
    let problem = store.send("POST", "locks", &lock.to_string()).assert_problem(400, "bad_body");
    assert!(problem["detail"].to_string().contains("write / for the whole"), "{problem}");
    for path in ["tree?path=", "locks?path=", "documents/user/42?path="] {
        http::request(store.native, "GET", &store.target(path), &[]).assert_problem(400, "bad_path");
    }
    done(&server, &["lock", "--write", "/", "--", "true"]);
}
