//! Addresses that name several indexes or types: answered from all of them or refused, never answered from none.

use crate::cluster::{Cluster, JSON};
use serde_json::{Value, json};

/// Documents and locks in two indexes, and an index whose name nothing else begins like.
fn filled() -> Cluster {
    let cluster = Cluster::start();
    for index in ["a1", "a2", "b"] {
        for (kind, count) in [("file", 3), ("image", 2), ("lock", 1)] {
            for id in 1..=count {
                cluster.ask("PUT", &format!("/{index}/{kind}/{id}"), json!({ "n": id })).is(201);
            }
        }
    }
    cluster
}

#[test]
fn searches_look_through_all_that_is_named() {
    let cluster = filled();
    for (path, count) in [
        ("/a1/file,image", 5),
        ("/a1/file,lock", 4),
        ("/a1,a2/file", 6),
        ("/a1,a2/file,lock", 8),
        ("/a1,a2,a1", 12),
        ("/a*/file", 6),
        ("/a*,b", 18),
        ("/*/file", 9),
        ("/_all/file,image", 15),
        ("/_all", 18),
        ("/*", 18),
        ("", 18),
        ("/b/_all", 6),
        ("/b/*", 6),
        ("/b/i*,lo*", 3),
        ("/a1/file,nothing", 3),
        // A pattern may fit nothing.
        ("/x*", 0),
        ("/a1,nothing/file", usize::MAX),
    ] {
        let counted = cluster.ask("GET", &format!("{path}/_count"), Value::Null);
        if count == usize::MAX {
            assert_eq!(counted.fails(404, "index_not_found_exception"), "no such index [nothing]");
            continue;
        }
        assert_eq!(counted.is(200)["count"], count, "{path}");
        let page = cluster
            .ask("GET", &format!("{path}/_search?size=100&rest_total_hits_as_int=true"), Value::Null)
            .is(200);
        assert_eq!(page["hits"]["total"], count, "{path}");
        assert_eq!(page["hits"]["hits"].as_array().unwrap().len(), count, "{path}");
    }
    let page = cluster.ask("GET", "/a1,b/file/_search", json!({ "query": { "term": { "n": 3 } } })).is(200);
    let found: Vec<&Value> =
        page["hits"]["hits"].as_array().unwrap().iter().map(|hit| &hit["_index"]).collect();
    assert_eq!(found, ["a1", "b"]);
    assert_eq!(page["_shards"]["total"], 10);
    cluster.ask("GET", "/a1,nothing/_search?ignore_unavailable=true", Value::Null).is(200);
    cluster
        .ask("GET", "/x*/_search?allow_no_indices=false", Value::Null)
        .fails(404, "index_not_found_exception");
    cluster.ask("POST", "/a1,b/_refresh", Value::Null).is(200);
    cluster.ask("POST", "/a1,nothing/_refresh", Value::Null).fails(404, "index_not_found_exception");
}

#[test]
fn a_scroll_goes_on_from_index_to_index() {
    let cluster = filled();
    let mut page = cluster.ask("POST", "/a1,a2,b/lock,file/_search?scroll=1m&size=5", Value::Null).is(200);
    let mut seen = Vec::new();
    while let Some(hits) = page["hits"]["hits"].as_array().filter(|hits| !hits.is_empty()) {
        seen.extend(hits.iter().map(|hit| format!("{}/{}/{}", hit["_index"], hit["_type"], hit["_id"])));
        page = cluster.ask("POST", "/_search/scroll", json!({ "scroll_id": page["_scroll_id"] })).is(200);
    }
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((count, seen.len()), (12, 12));
}

#[test]
fn one_document_is_in_one_index_and_of_one_type() {
    let cluster = filled();
    for (method, path) in [
        ("PUT", "/a1,a2"),
        ("DELETE", "/a1,a2"),
        ("DELETE", "/a*"),
        ("DELETE", "/_all"),
        ("DELETE", "/*"),
        ("GET", "/a1,a2"),
        ("GET", "/a1,a2/file/1"),
        ("PUT", "/a1,a2/file/1"),
        ("GET", "/a1/file,image/1"),
        ("PUT", "/a1/file,image/1"),
        ("DELETE", "/a1/fi*/1"),
        ("POST", "/a1/file,image"),
        ("POST", "/_all/file/1/_update"),
        ("PUT", "/_all/file/1"),
        ("GET", "/-a1/_search"),
        ("GET", "/a1/_x,file/_search"),
    ] {
        let reply = cluster.ask(method, path, json!({ "doc": {} }));
        assert_eq!(reply.status, 400, "{method} {path}: {reply:?}");
    }
    let bulk = "{\"delete\":{\"_id\":1}}\n";
    for path in ["/a1,a2/file/_bulk", "/a1/file,image/_bulk", "/_all/file/_bulk"] {
        assert_eq!(cluster.send("POST", path, Some(JSON), bulk).status, 400, "{path}");
    }
    for path in ["/a1,a2/file/_mget", "/a1/file,image/_mget"] {
        assert_eq!(cluster.ask("POST", path, json!({ "ids": [1] })).status, 400, "{path}");
    }
    assert_eq!(cluster.ask("GET", "/_count", Value::Null).is(200)["count"], 18);
}

/// What the server keeps for itself is no type of an index.
#[test]
fn collections_of_the_server_are_not_found() {
    let cluster = Cluster::start();
    cluster.ask("PUT", "/fs/file/1", json!({ "n": 1 })).is(201);
    let schema = json!({ "schema": { "type": "object" } });
    let made = cluster.native("POST", "/v1/fs/schemas/file", schema);
    assert!(made.status < 300, "{made:?}");
    assert_eq!(cluster.ask("GET", "/fs/_count", Value::Null).is(200)["count"], 1);
    assert_eq!(cluster.ask("GET", "/_all/_all/_count", Value::Null).is(200)["count"], 1);
}

/// Many names times many indexes are many comparisons.
#[test]
fn finding_what_an_address_means_is_paid_from_the_budget() {
    let cluster = Cluster::start_with(&["--work-max", "1000"]);
    for index in 0..40 {
        cluster.ask("PUT", &format!("/i{index}"), Value::Null).is(200);
    }
    let patterns = |len: usize| (0..len).map(|name| format!("x{name}*")).collect::<Vec<_>>().join(",");
    for (before, after) in
        [("/", "/_count"), ("/", "/_search"), ("/_cluster/health/", ""), ("/_cat/indices/", "")]
    {
        let ask = |len| cluster.ask("GET", &format!("{before}{}{after}", patterns(len)), Value::Null);
        assert_eq!(ask(10).status, 200, "{after}");
        let reason = ask(40).is(422)["error"]["reason"].clone();
        assert!(reason.as_str().unwrap().contains("work_max"), "{reason}");
    }
}
