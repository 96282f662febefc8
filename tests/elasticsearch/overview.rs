//! What people and clients ask before they begin: health, indexes, fields.

use crate::cluster::{Cluster, exchange};
use serde_json::{Value, json};

fn filled() -> Cluster {
    let cluster = Cluster::start();
    cluster.ask("PUT", "/fs/file/1", json!({ "name": "a", "size": 1, "at": { "x": 1.5 } })).is(201);
    cluster.ask("PUT", "/fs/file/2", json!({ "name": "b", "tags": ["x"], "on": true })).is(201);
    cluster.ask("PUT", "/fs/lock/1", json!({ "process_id": 123 })).is(201);
    cluster.ask("PUT", "/notes/_doc/1", json!({ "text": "t" })).is(201);
    cluster.ask("PUT", "/empty", Value::Null).is(200);
    cluster
}

#[test]
fn the_health_of_the_server() {
    let cluster = filled();
    let health = cluster.ask("GET", "/_cluster/health", Value::Null).is(200);
    assert_eq!((&health["status"], &health["timed_out"]), (&json!("green"), &json!(false)));
    assert_eq!((&health["number_of_nodes"], &health["active_primary_shards"]), (&json!(1), &json!(15)));
    let health =
        cluster.ask("GET", "/_cluster/health/fs?wait_for_status=green&timeout=1s", Value::Null).is(200);
    assert_eq!(health["active_shards"], 5);
    for path in ["/_cluster/health?wait_for_status=blue", "/_cluster/health?level=shards"] {
        cluster.ask("GET", path, Value::Null).fails(400, "illegal_argument_exception");
    }
    cluster.ask("GET", "/_cluster/health/nothing", Value::Null).fails(404, "index_not_found_exception");
    for path in ["/_cluster/state", "/_cluster", "/_nodes"] {
        cluster.ask("GET", path, Value::Null).is(400);
    }
}

#[test]
fn indexes_are_listed_with_their_documents() {
    let cluster = filled();
    let reply = cluster.ask("GET", "/_cat/indices?v", Value::Null);
    assert!(reply.head.contains("content-type: text/plain"), "{reply:?}");
    let rows: Vec<Vec<&str>> = reply.text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..4], ["health", "status", "index", "uuid"]);
    assert_eq!(rows[0].len(), 10);
    let indexes: Vec<(&str, &str)> = rows[1..].iter().map(|row| (row[2], row[6])).collect();
    assert_eq!(indexes, [("empty", "0"), ("fs", "3"), ("notes", "1")]);
    let plain = cluster.ask("GET", "/_cat/indices/f*,notes?h=index,docs.count", Value::Null);
    assert_eq!(plain.text, "fs    3\nnotes 1\n");
    let rows = cluster.ask("GET", "/_cat/indices/fs?format=json", Value::Null).is(200);
    assert_eq!((&rows[0]["index"], &rows[0]["docs.count"]), (&json!("fs"), &json!("3")));
    let reply = exchange(
        cluster.server.elasticsearch(),
        "GET",
        "/_cat/indices?pretty",
        "accept: application/json\r\n",
        "",
    );
    assert_eq!(reply.is(200).as_array().unwrap().len(), 3);
    assert!(reply.text.starts_with("[\n"), "{reply:?}");
    for path in ["/_cat/indices?h=x", "/_cat/indices?s=index", "/_cat/indices?format=yaml"] {
        cluster.ask("GET", path, Value::Null).fails(400, "illegal_argument_exception");
    }
    cluster.ask("GET", "/_cat/indices/nothing", Value::Null).fails(404, "index_not_found_exception");
}

#[test]
fn mappings_are_what_documents_have() {
    let cluster = filled();
    let file = json!({ "properties": {
        "at": { "properties": { "x": { "type": "float" } } },
        "name": { "type": "keyword" },
        "on": { "type": "boolean" },
        "size": { "type": "long" },
        "tags": { "type": "keyword" },
    } });
    let lock = json!({ "properties": { "process_id": { "type": "long" } } });
    let ask = |path: &str| cluster.ask("GET", path, Value::Null);
    assert_eq!(ask("/fs/_mapping").is(200), json!({ "fs": { "mappings": { "file": file, "lock": lock } } }));
    for path in ["/fs/_mapping/file", "/fs/file/_mapping", "/_mapping/file", "/f*/_mappings/fi*"] {
        let found = ask(path).is(200);
        assert_eq!(found["fs"]["mappings"], json!({ "file": file }), "{path}");
    }
    let notes = json!({ "properties": { "text": { "type": "keyword" } } });
    assert_eq!(ask("/notes/_mapping").is(200)["notes"]["mappings"], notes);
    let typed = ask("/notes/_mapping?include_type_name=true").is(200);
    assert_eq!(typed["notes"]["mappings"], json!({ "_doc": notes }));
    assert_eq!(ask("/empty/_mapping").is(200), json!({ "empty": { "mappings": {} } }));
    assert_eq!(ask("/_mapping").is(200).as_object().unwrap().len(), 3);
    assert_eq!(ask("/fs").is(200)["fs"]["mappings"]["lock"], lock);
    let reason = ask("/fs/_mapping/nothing").fails(404, "type_missing_exception");
    assert_eq!(reason, "type[[nothing]] missing");
    ask("/nothing/_mapping").fails(404, "index_not_found_exception");
    // There is nothing that could be kept of one.
    assert_eq!(cluster.ask("PUT", "/fs/_mapping/file", json!({})).status, 405);
}
