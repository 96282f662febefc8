//! Groups O and P: the routes beside reading and writing, addresses and methods, and many connections at once.

use crate::{
    harness::BINARY,
    http::{Connection, JSON, once},
    store::{
        INVALID_REQUEST, READER, Store, WRITER, assert_is, assert_refused, assert_silent, create, delete,
        missing, request, with,
    },
};
use serde_json::{Value, json};
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

/// Browsers say on whose behalf they ask, and no backend does.
#[test]
fn o10_web_pages_are_refused() {
    let mut store = development();
    store.apply(&[create("a/1", &json!({}))]);
    let kind = "application/json\r\norigin: http://127.0.0.1:9011";
    for route in ["write", "truncate_db", "delete_history_information"] {
        let reply = store.writer.send("POST", &format!("{WRITER}/{route}"), Some(kind), "[]");
        assert_eq!(reply.status, 403, "{route}");
    }
    let reply = store.reader.send("POST", &format!("{READER}/get_everything"), Some(kind), "{}");
    assert_eq!(reply.status, 403);
    store.has("a/1", &json!({}), 1);
}

#[test]
fn o11_what_is_too_much_is_refused_with_the_name_of_the_limit() {
    let flags = [
        ["--body-bytes-max", "2000"],
        ["--events-per-call-max", "2"],
        ["--requests-per-call-max", "2"],
        ["--position-locks-per-call-max", "2"],
        ["--document-bytes-max", "100"],
        ["--fields-per-document-max", "3"],
        ["--json-depth-max", "3"],
        ["--note-bytes-max", "16"],
        ["--filter-conditions-max", "2"],
        ["--filter-depth-max", "2"],
        ["--documents-per-get-max", "2"],
        ["--looks-max", "2"],
        ["--reserve-max", "2"],
        ["--answer-bytes-max", "1024"],
    ];
    let mut store = Store::start_with(&flags.concat());
    let one = request(&[create("a/1", &json!({ "f": 1 }))]);
    let events: Vec<Value> = (1..4).map(|id| create(&format!("a/{id}"), &json!({}))).collect();
    let deep = json!([[[[1]]]]);
    let writes = [
        ("body_bytes_max", with(&one, "x", &json!("x".repeat(2000)))),
        ("events_per_call_max", request(&events)),
        ("requests_per_call_max", json!([one, one, one])),
        (
            "position_locks_per_call_max",
            with(&one, "locked_fields", &json!({ "a/1": 1, "a/2": 1, "a/f": 1 })),
        ),
        ("document_bytes_max", request(&[create("a/1", &json!({ "f": "x".repeat(100) }))])),
        ("fields_per_document_max", request(&[create("a/1", &json!({ "f": 1, "g": 1, "h": 1, "i": 1 }))])),
        ("json_depth_max", request(&[create("a/1", &json!({ "f": deep }))])),
        ("json_depth_max", with(&one, "information", &deep)),
        ("note_bytes_max", with(&one, "information", &json!("x".repeat(20)))),
    ];
    for (limit, body) in writes {
        // A body that is too long may cost the connection.
        let mut connection = Connection::open(store.server.openslides_writer());
        let reply = connection.send("POST", &format!("{WRITER}/write"), Some(JSON), &body.to_string());
        assert_refused(&reply, INVALID_REQUEST, limit);
        assert!(reply.body.contains(limit), "{limit}: {reply:?}");
    }
    let volatile = json!([request(&[create("action_worker/1", &json!({ "f": "x".repeat(100) }))])]);
    let reply = store.ask_writer("write_without_events", &volatile);
    assert_refused(&reply, INVALID_REQUEST, "document_bytes_max");
    let reply = store.ask_writer("reserve_ids", &json!({ "collection": "a", "amount": 3 }));
    assert_refused(&reply, INVALID_REQUEST, "reserve_max");
    store.is_empty();
    for id in 1..=30 {
        store.apply(&[create(&format!("b/{id}"), &json!({ "f": "x".repeat(40) }))]);
        store.apply(&[create(&format!("c_{}/1", "c".repeat(id)), &json!({ "f": "x".repeat(40) }))]);
    }
    let is = |field: &str| json!({ "field": field, "operator": "=", "value": 1 });
    let not = |filter: &Value| json!({ "not_filter": filter });
    let many = json!({ "and_filter": [is("f"), is("g"), is("h")] });
    let reads = [
        ("filter_conditions_max", "count", json!({ "collection": "b", "filter": many })),
        ("filter_depth_max", "filter", json!({ "collection": "b", "filter": not(&not(&is("f"))) })),
        ("looks_max", "filter", json!({ "collection": "b", "filter": is("f") })),
        (
            "documents_per_get_max",
            "get_many",
            json!({ "requests": [{ "collection": "b", "ids": [1, 2, 3] }] }),
        ),
        ("documents_per_get_max", "get_many", json!({ "requests": ["b/1/f", "b/2/f", "b/3/f"] })),
        ("documents_per_get_max", "history_information", json!({ "fqids": ["b/1", "b/2", "b/3"] })),
    ];
    for (limit, route, body) in reads {
        let reply = store.ask_reader(route, &body);
        assert_refused(&reply, INVALID_REQUEST, limit);
        assert!(reply.body.contains(limit), "{limit}: {reply:?}");
    }
    let mut store = store.crashed(&["--answer-bytes-max", "1024"]);
    for (route, body) in [("get_all", json!({ "collection": "b" })), ("get_everything", json!({}))] {
        let reply = store.ask_reader(route, &body);
        assert_refused(&reply, INVALID_REQUEST, route);
        assert!(reply.body.contains("answer_bytes_max"), "{route}: {reply:?}");
    }
}

#[test]
fn o12_each_namespace_is_a_datastore_of_its_own() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    let mut store = store.crashed(&["--openslides-namespace", "another"]);
    store.is_empty();
    assert_eq!(store.apply(&[create("a/1", &json!({ "f": 2 }))]), 1);
    store.crashed(&[]).has("a/1", &json!({ "f": 1 }), 1);
}

#[test]
fn o13_unsafe_and_senseless_flags_are_refused() {
    let cases: [(&[&str], &str); 5] = [
        (&["--openslides", "0.0.0.0:0,127.0.0.1:0"], "--insecure"),
        (&["--openslides", "127.0.0.1:0,0.0.0.0:0"], "--insecure"),
        (&["--openslides", "127.0.0.1:0"], "two addresses"),
        (&["--openslides", "127.0.0.1:0,127.0.0.1:0", "--openslides-redis", "nowhere"], "a host and a port"),
        (&["--openslides-development"], "--openslides"),
    ];
    for (flags, hint) in cases {
        let folder = tempfile::TempDir::new().unwrap();
        let mut command = std::process::Command::new(BINARY);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path()).args(flags);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(hint), "{flags:?}: {text}");
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
