//! Groups O and P: the routes beside reading and writing, addresses and methods, and many connections at once.

use crate::{
    http::{Connection, JSON, once},
    store::{
        INVALID_REQUEST, READER, Store, WRITER, assert_is, assert_refused, assert_silent, create, delete,
        missing, request, with,
    },
};
use serde_json::json;
use std::thread;

const READS: [&str; 10] = [
    "get",
    "get_many",
    "get_all",
    "get_everything",
    "filter",
    "exists",
    "count",
    "min",
    "max",
    "history_information",
];
const WRITES: [&str; 4] = ["write", "reserve_ids", "write_without_events", "delete_history_information"];

fn development() -> Store {
    Store::start_with(&["--openslides-development"])
}

#[test]
fn o01_history_information_can_be_deleted() {
    let mut store = Store::start();
    let asked = json!({ "fqids": ["a/1", "a/2"] });
    for fqid in ["a/1", "a/2"] {
        store.written(&with(&request(&[create(fqid, &json!({ "f": 1 }))]), "information", &json!(["note"])));
    }
    assert_eq!(store.read("history_information", &asked).as_object().unwrap().len(), 2);
    let reply = store.writer.send("POST", &format!("{WRITER}/delete_history_information"), None, "");
    assert_silent(&reply, 204);
    assert_eq!(store.read("history_information", &asked), json!({}));
    store.has("a/1", &json!({ "f": 1 }), 1);
    assert_eq!(store.position(), json!(2));
    store.written(&with(&request(&[delete("a/2")]), "information", &json!(["later"])));
    assert_eq!(store.read("history_information", &asked)["a/2"][0]["position"], 3);
    let mut store = store.crashed(&[]);
    assert_eq!(store.read("history_information", &asked)["a/2"].as_array().unwrap().len(), 1);
}

#[test]
fn o01_the_body_of_it_is_ignored() {
    let mut store = Store::start();
    for body in [json!(null), json!([1]), json!({ "x": 1 })] {
        assert_silent(&store.ask_writer("delete_history_information", &body), 204);
    }
}

#[test]
fn o02_truncate_leaves_nothing() {
    let mut store = development();
    store.apply(&[create("a/5", &json!({ "f": 1 }))]);
    store.apply(&[delete("a/5")]);
    let volatile = json!([request(&[create("action_worker/1", &json!({}))])]);
    assert_silent(&store.ask_writer("write_without_events", &volatile), 201);
    store.reserve("b", 3);
    let reply = store.writer.send("POST", &format!("{WRITER}/truncate_db"), None, "");
    assert_silent(&reply, 204);
    store.is_empty();
    let reply = store.ask_reader("get", &json!({ "fqid": "a/5", "get_deleted_models": 3 }));
    assert_is(&reply, 400, &missing("a/5"));
    assert_eq!(store.reserve("b", 1), json!({ "ids": [1] }));
    let first = with(&request(&[create("a/5", &json!({ "f": 2 }))]), "migration_index", &json!(3));
    assert_eq!(store.written(&first), 1);
    store.has("a/5", &json!({ "f": 2 }), 1);
    let reply = store.ask_reader("get", &json!({ "fqid": "a/5", "position": 1 }));
    assert_eq!(reply.json()["f"], 2);
}

#[test]
fn o02_what_is_truncated_does_not_come_back() {
    let mut store = development();
    store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    assert_silent(&store.ask_writer("truncate_db", &json!({ "x": 1 })), 204);
    let mut store = store.crashed(&[]);
    store.is_empty();
    assert_eq!(store.apply(&[create("a/1", &json!({}))]), 1);
}

#[test]
fn o03_truncate_is_not_there_outside_development() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    assert_eq!(store.ask_writer("truncate_db", &json!({})).status, 404);
    store.has("a/1", &json!({ "f": 1 }), 1);
}

#[test]
fn o04_both_sides_are_healthy() {
    let mut store = Store::start();
    assert_silent(&store.reader.send("GET", &format!("{READER}/health"), None, ""), 200);
    assert_silent(&store.writer.send("GET", &format!("{WRITER}/health"), None, ""), 200);
}

#[test]
fn o05_wrong_methods_are_405() {
    let store = Store::start();
    let (reader, writer) = (store.server.openslides_reader(), store.server.openslides_writer());
    for method in ["GET", "PUT", "DELETE"] {
        for route in READS {
            assert_eq!(once(reader, method, &format!("{READER}/{route}")).status, 405, "{method} {route}");
        }
        for route in WRITES {
            assert_eq!(once(writer, method, &format!("{WRITER}/{route}")).status, 405, "{method} {route}");
        }
    }
    assert_eq!(once(reader, "POST", &format!("{READER}/health")).status, 405);
    assert_eq!(once(writer, "POST", &format!("{WRITER}/health")).status, 405);
}

#[test]
fn o06_unknown_addresses_are_404() {
    let store = Store::start();
    let (reader, writer) = (store.server.openslides_reader(), store.server.openslides_writer());
    for method in ["GET", "POST"] {
        for path in ["/", "/get", "/internal/datastore/reader", "/internal/datastore/reader/nothing"] {
            assert_eq!(once(reader, method, path).status, 404, "{method} {path}");
        }
        for path in ["/", "/write", "/internal/datastore/writer", "/internal/datastore/writer/nothing"] {
            assert_eq!(once(writer, method, path).status, 404, "{method} {path}");
        }
        assert_eq!(once(reader, method, &format!("{WRITER}/write")).status, 404);
        assert_eq!(once(writer, method, &format!("{READER}/get")).status, 404);
    }
}

#[test]
fn o07_a_trailing_slash_is_accepted() {
    let mut store = Store::start();
    let body = request(&[create("a/1", &json!({}))]);
    assert_silent(&store.ask_writer("write/", &body), 201);
    assert_eq!(store.ask_reader("get/", &json!({ "fqid": "a/1" })).status, 200);
    assert_silent(&store.reader.send("GET", &format!("{READER}/health/"), None, ""), 200);
}

#[test]
fn o08_the_content_type_is_json_with_or_without_parameters() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({}))]);
    let path = format!("{READER}/get");
    let body = json!({ "fqid": "a/1" }).to_string();
    for kind in [JSON, "application/json; charset=utf-8", "Application/JSON"] {
        assert_eq!(store.reader.send("POST", &path, Some(kind), &body).status, 200, "{kind}");
    }
    for kind in [None, Some("text/plain"), Some("application/jsonx")] {
        let reply = store.reader.send("POST", &path, kind, &body);
        assert_refused(&reply, INVALID_REQUEST, &format!("{kind:?}"));
    }
}

#[test]
fn o09_every_reading_route_refuses_what_is_not_json() {
    let mut store = Store::start();
    for route in READS {
        let path = format!("{READER}/{route}");
        assert_refused(&store.reader.send("POST", &path, None, "{}"), INVALID_REQUEST, route);
        for body in ["", "{", "x=1", "null", "[]", "1", "\"a\""] {
            let reply = store.reader.send("POST", &path, Some(JSON), body);
            assert_refused(&reply, INVALID_REQUEST, &format!("{route} of {body:?}"));
        }
    }
}

/// There is no pool that could run out: who waits with an open connection is in nobody's way.
#[test]
fn p01_idle_connections_delay_nobody() {
    let mut store = Store::start();
    let (reader, writer) = (store.server.openslides_reader(), store.server.openslides_writer());
    let idle: Vec<_> = (0..64).map(|_| (Connection::open(reader), Connection::open(writer))).collect();
    store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    store.has("a/1", &json!({ "f": 1 }), 1);
    drop(idle);
}

#[test]
fn p02_many_requests_at_once_are_all_answered() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    let reader = store.server.openslides_reader();
    let ask = move || {
        let mut connection = Connection::open(reader);
        for _ in 0..20 {
            let body = json!({ "fqid": "a/1" }).to_string();
            assert_eq!(connection.send("POST", &format!("{READER}/get"), Some(JSON), &body).status, 200);
        }
    };
    let threads: Vec<_> = (0..16).map(|_| thread::spawn(ask)).collect();
    for thread in threads {
        thread.join().unwrap();
    }
}
