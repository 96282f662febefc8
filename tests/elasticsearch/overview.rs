//! What people and clients ask before they begin: health, indexes, fields.

use crate::cluster::{Cluster, JSON, exchange};
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
fn health_is_waited_for_until_the_timeout() {
    let cluster = filled();
    for wanted in
        ["wait_for_nodes=%3E%3D3", "wait_for_nodes=ge(2)", "wait_for_nodes=2", "wait_for_active_shards=100"]
    {
        let path = format!("/_cluster/health?{wanted}&timeout=100ms");
        let health = cluster.ask("GET", &path, Value::Null).is(408);
        assert_eq!((&health["timed_out"], &health["number_of_nodes"]), (&json!(true), &json!(1)), "{wanted}");
    }
    for reached in ["wait_for_nodes=1", "wait_for_nodes=%3C%3D2", "wait_for_active_shards=15&timeout=0"] {
        let health = cluster.ask("GET", &format!("/_cluster/health?{reached}"), Value::Null).is(200);
        assert_eq!(health["timed_out"], false, "{reached}");
    }
    for wrong in ["wait_for_nodes=many", "wait_for_active_shards=some", "timeout=soon", "timeout=2"] {
        let path = format!("/_cluster/health?{wrong}");
        cluster.ask("GET", &path, Value::Null).fails(400, "illegal_argument_exception");
    }
    // What comes true meanwhile is answered then.
    std::thread::scope(|scope| {
        let wait =
            || cluster.ask("GET", "/_cluster/health?wait_for_active_shards=20&timeout=15s", Value::Null);
        let waiting = scope.spawn(wait);
        cluster.ask("PUT", "/another", Value::Null).is(200);
        assert_eq!(waiting.join().unwrap().is(200)["active_shards"], 20);
    });
}

#[test]
fn filter_path_leaves_out_what_is_not_wanted() {
    let cluster = filled();
    let ask = |path: &str| cluster.ask("GET", path, Value::Null);
    let found = ask("/fs/file/_search?filter_path=hits.hits._id,hits.total").is(200);
    assert_eq!(found, json!({ "hits": { "total": 2, "hits": [{ "_id": "1" }, { "_id": "2" }] } }));
    let found = ask("/fs/file/_search?filter_path=**.name,-took").is(200);
    let hits = json!([{ "_source": { "name": "a" } }, { "_source": { "name": "b" } }]);
    assert_eq!(found, json!({ "hits": { "hits": hits } }));
    assert_eq!(ask("/fs/file/1?filter_path=-_*,-found").is(200), json!({}));
    assert_eq!(ask("/_cat/indices/fs?format=json&filter_path=in*").is(200), json!([{ "index": "fs" }]));
    assert_eq!(ask("/_cluster/health?filter_path=status&pretty").text, "{\n  \"status\" : \"green\"\n}\n");
    let bulk = "{\"index\":{\"_index\":\"fs\",\"_type\":\"file\",\"_id\":\"9\"}}\n{}\n";
    let done =
        cluster.send("POST", "/_bulk?filter_path=errors,items.*.error", Some("application/json"), bulk);
    assert_eq!(done.is(200), json!({ "errors": false }));
    ask("/nothing/_search?filter_path=took").fails(404, "index_not_found_exception");
    let long = format!("/_search?filter_path={}", "a,".repeat(300));
    ask(&long).fails(400, "illegal_argument_exception");
}

#[test]
fn wildcards_are_expanded_as_asked() {
    let cluster = filled();
    let list = |query: &str| cluster.ask("GET", &format!("/_cat/indices{query}"), Value::Null);
    for (query, expected) in [
        ("?h=index&expand_wildcards=open", "empty\nfs   \nnotes\n"),
        ("?h=index&expand_wildcards=closed,all", "empty\nfs   \nnotes\n"),
        ("?h=index&expand_wildcards=closed", ""),
        ("?h=index&expand_wildcards=none", ""),
        ("/f*?h=index&expand_wildcards=closed", ""),
        ("/fs,n*?h=index&expand_wildcards=none&ignore_unavailable=true", "fs\n"),
    ] {
        assert_eq!(list(query).text, expected, "{query}");
    }
    list("/f*?expand_wildcards=none").fails(404, "index_not_found_exception");
    list("?expand_wildcards=some").fails(400, "illegal_argument_exception");
    let count = cluster.ask("GET", "/_all/_count?expand_wildcards=none", Value::Null).is(200);
    assert_eq!(count["count"], 0);
}

#[test]
fn indexes_are_sorted_as_asked() {
    let cluster = filled();
    let list = |query: &str| cluster.ask("GET", &format!("/_cat/indices?h=index{query}"), Value::Null);
    for (query, expected) in [
        ("&s=index", ["empty", "fs", "notes"]),
        ("&s=index:desc", ["notes", "fs", "empty"]),
        ("&s=docs.count:desc", ["fs", "notes", "empty"]),
        ("&s=pri,docs.count:asc", ["empty", "notes", "fs"]),
    ] {
        let reply = list(query);
        assert_eq!(reply.text.split_whitespace().collect::<Vec<_>>(), expected, "{query}");
    }
    for wrong in ["&s=x", "&s=index:up", "&s="] {
        list(wrong).fails(400, "illegal_argument_exception");
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
    for path in ["/_cat/indices?h=x", "/_cat/indices?health=red", "/_cat/indices?format=yaml"] {
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

/// However many documents there are, the first thousand of each type are looked at.
#[test]
fn mappings_of_many_documents_are_those_of_the_first() {
    let cluster = Cluster::start_with(&["--work-max", "10000"]);
    let mut body = String::new();
    for id in 1..=6000 {
        let source = if id == 6000 { json!({ "late": 1 }) } else { json!({ "n": id, "name": "x" }) };
        body += &format!("{}\n{source}\n", json!({ "index": { "_type": "file", "_id": id } }));
    }
    body += "{\"index\":{\"_type\":\"image\",\"_id\":1}}\n{\"wide\":true}\n";
    assert_eq!(cluster.send("POST", "/fs/_bulk", Some(JSON), &body).is(200)["errors"], false);
    let all = cluster.ask("GET", "/fs/_count", json!({ "query": { "exists": { "field": "name" } } }));
    assert_eq!(all.status, 422, "looking at all of them takes more than the budget: {all:?}");
    let mappings = json!({
        "file": { "properties": { "n": { "type": "long" }, "name": { "type": "keyword" } } },
        "image": { "properties": { "wide": { "type": "boolean" } } },
    });
    assert_eq!(cluster.ask("GET", "/fs", Value::Null).is(200)["fs"]["mappings"], mappings);
    assert_eq!(cluster.ask("GET", "/fs/_mapping", Value::Null).is(200)["fs"]["mappings"], mappings);
}
