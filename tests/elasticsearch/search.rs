//! Searches, counts and scrolls.

use crate::cluster::Cluster;
use serde_json::{Value, json};
use std::{thread, time::Duration};

fn filled() -> Cluster {
    let cluster = Cluster::start();
    let mut body = String::new();
    for number in 1..=25 {
        let source = json!({ "n": number, "odd": number % 2 == 1, "name": format!("f{number}") });
        body += &format!("{}\n{source}\n", json!({ "index": { "_type": "file", "_id": number } }));
        body += &format!("{}\n{source}\n", json!({ "index": { "_id": number } }));
    }
    for number in 1..=5 {
        let source = json!({ "process_id": number % 2 });
        body += &format!("{}\n{source}\n", json!({ "create": { "_type": "lock", "_id": number } }));
    }
    assert_eq!(cluster.send("POST", "/fs/_bulk", Some("application/json"), &body).is(200)["errors"], false);
    cluster
}

fn ids(page: &Value) -> Vec<String> {
    let hits = page["hits"]["hits"].as_array().unwrap();
    hits.iter().map(|hit| hit["_id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn queries_and_pages() {
    let cluster = filled();
    let search = |body: Value| cluster.ask("POST", "/fs/file/_search", body).is(200);
    let page = search(Value::Null);
    assert_eq!((ids(&page).len(), &page["hits"]["total"]), (10, &25.into()));
    let page = search(json!({ "query": { "match_all": {} }, "from": 23, "size": 10, "sort": "_doc" }));
    assert_eq!(ids(&page), ["24", "25"]);
    let page = search(json!({ "query": { "term": { "name": "f7" } } }));
    assert_eq!(ids(&page), ["7"]);
    assert_eq!(page["hits"]["hits"][0]["_source"]["n"], 7);
    let filter =
        json!({ "bool": { "filter": [{ "term": { "odd": true } }, { "range": { "n": { "gt": 20 } } }] } });
    assert_eq!(
        ids(&search(json!({ "query": filter, "_source": false, "version": true }))),
        ["21", "23", "25"]
    );
    let none = search(json!({ "query": { "match": { "n": 99 } } }));
    assert_eq!(none["hits"], json!({ "total": 0, "max_score": null, "hits": [] }));
    let count = cluster.ask("POST", "/fs/_count", json!({ "query": { "term": { "n": 3 } } })).is(200);
    assert_eq!(count["count"], 2);
    // Everything of an index, its locks included.
    let all = cluster.ask("GET", "/fs/_search?size=100", Value::Null).is(200);
    assert_eq!(all["hits"]["total"], json!({ "value": 55, "relation": "eq" }));
    let all = cluster.ask("GET", "/fs/_search?size=0&rest_total_hits_as_int=true", Value::Null).is(200);
    assert_eq!(all["hits"]["total"], 55);
}

/// A dot leads into objects, and is part of a name where a field has it.
#[test]
fn fields_of_fields_can_be_chosen_from_the_source() {
    let cluster = Cluster::start();
    let source = json!({ "a": { "b": 1, "c": { "d": 2, "e": 3 } }, "x.y": 4, "x": { "y": 5 }, "z": [{ "n": 1, "m": 2 }] });
    cluster.ask("PUT", "/fs/file/1", source.clone()).is(201);
    cluster.ask("PUT", "/fs/lock/1", source).is(201);
    for kind in ["file", "lock"] {
        for (wanted, expected) in [
            ("a.b", json!({ "a": { "b": 1 } })),
            ("a.b,a.c.d", json!({ "a": { "b": 1, "c": { "d": 2 } } })),
            ("a.c", json!({ "a": { "c": { "d": 2, "e": 3 } } })),
            ("a.c.*", json!({ "a": { "c": { "d": 2, "e": 3 } } })),
            ("x.y", json!({ "x.y": 4 })),
            ("a.nothing,nothing.b", json!({})),
        ] {
            let page =
                cluster.ask("GET", &format!("/fs/{kind}/_search?_source={wanted}"), Value::Null).is(200);
            assert_eq!(page["hits"]["hits"][0]["_source"], expected, "{kind} {wanted}");
            let names: Vec<&str> = wanted.split(',').collect();
            let page =
                cluster.ask("POST", &format!("/fs/{kind}/_search"), json!({ "_source": names })).is(200);
            assert_eq!(page["hits"]["hits"][0]["_source"], expected, "{kind} {wanted}");
            let got = cluster.ask("GET", &format!("/fs/{kind}/1?_source={wanted}"), Value::Null).is(200);
            assert_eq!(got["_source"], expected, "{kind} {wanted}");
        }
    }
}

#[test]
fn scrolls_end_with_an_empty_page() {
    let cluster = filled();
    for (path, total) in [("/fs/_search", 55), ("/fs/file/_search", 25), ("/fs/lock/_search", 5)] {
        let mut page =
            cluster.ask("POST", &format!("{path}?scroll=1m&size=4"), json!({ "sort": ["_doc"] })).is(200);
        let id = page["_scroll_id"].as_str().unwrap().to_owned();
        let mut seen = 0;
        let mut turn = 0;
        while !ids(&page).is_empty() {
            assert!(ids(&page).len() == 4 || seen + ids(&page).len() == total, "{page}");
            seen += ids(&page).len();
            turn += 1;
            // The ways in which clients ask for more.
            page = match turn % 4 {
                0 => cluster.ask("POST", "/_search/scroll", json!({ "scroll_id": id, "scroll": "1m" })),
                1 => cluster.ask("GET", "/_search/scroll?scroll=5m", json!({ "scroll_id": id })),
                2 => cluster.ask("GET", &format!("/_search/scroll?scroll=5m&scroll_id={id}"), Value::Null),
                _ => cluster.ask("POST", &format!("/_search/scroll/{id}"), Value::Null),
            }
            .is(200);
        }
        assert_eq!(seen, total);
        let cleared = cluster.ask("DELETE", "/_search/scroll", json!({ "scroll_id": [id] })).is(200);
        assert_eq!(cleared, json!({ "succeeded": true, "num_freed": 1 }));
        assert_eq!(
            cluster.ask("DELETE", "/_search/scroll", json!({ "scroll_id": id })).is(404)["num_freed"],
            0
        );
        let gone = cluster.ask("POST", "/_search/scroll", json!({ "scroll_id": id }));
        gone.fails(404, "search_phase_execution_exception");
        assert_eq!(gone.json()["error"]["root_cause"][0]["type"], "search_context_missing_exception");
    }
}

/// A page that could not be made can be asked for again.
#[test]
fn scroll_stays_when_a_page_of_it_fails() {
    let cluster = Cluster::start_with(&["--work-max", "1000"]);
    for id in 1..=4 {
        cluster.ask("PUT", &format!("/fs/lock/{id}"), json!({ "tags": ["t0"] })).is(201);
    }
    let tags: Vec<String> = (0..20).map(|tag| format!("t{tag}")).collect();
    let query = json!({ "query": { "terms": { "tags": tags } } });
    let page = cluster.ask("POST", "/fs/lock/_search?scroll=1m&size=2", query).is(200);
    assert_eq!(ids(&page), ["1", "2"]);
    // Locks are shown as they are when they are asked for. Comparing so many tags takes too long.
    let many: Vec<String> = (0..100).map(|tag| format!("t{tag}")).collect();
    cluster.ask("PUT", "/fs/lock/3", json!({ "tags": many })).is(200);
    let next = || cluster.ask("POST", "/_search/scroll", json!({ "scroll_id": page["_scroll_id"] }));
    for _ in 0..2 {
        assert!(next().is(422)["error"]["reason"].as_str().unwrap().contains("work_max"));
    }
    cluster.ask("PUT", "/fs/lock/3", json!({ "tags": ["t0"] })).is(200);
    assert_eq!(ids(&next().is(200)), ["3", "4"]);
    assert!(ids(&next().is(200)).is_empty());
}

/// What is written meanwhile is not in it.
#[test]
fn a_scroll_shows_one_moment() {
    let cluster = filled();
    let page = cluster.ask("POST", "/fs/file/_search?scroll=1m&size=20", Value::Null).is(200);
    cluster.ask("PUT", "/fs/file/99", json!({ "n": 99 })).is(201);
    cluster.ask("DELETE", "/fs/file/25", Value::Null).is(200);
    let next = json!({ "scroll_id": page["_scroll_id"], "scroll": "1m" });
    assert_eq!(ids(&cluster.ask("POST", "/_search/scroll", next).is(200)), ["21", "22", "23", "24", "25"]);
}

#[test]
fn a_scroll_is_kept_as_long_as_it_says() {
    let cluster = filled();
    let page = cluster.ask("POST", "/fs/file/_search?scroll=200ms", Value::Null).is(200);
    let next = json!({ "scroll_id": page["_scroll_id"], "scroll": "200ms" });
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(50));
        cluster.ask("POST", "/_search/scroll", next.clone()).is(200);
    }
    thread::sleep(Duration::from_millis(250));
    cluster.ask("POST", "/_search/scroll", next).fails(404, "search_phase_execution_exception");
}

#[test]
fn searches_that_make_no_sense() {
    let cluster = filled();
    for (path, body) in [
        ("/fs/_search", json!({ "query": {} })),
        ("/fs/_search", json!({ "query": { "fuzzy": { "a": 1 } } })),
        ("/fs/_search", json!({ "aggs": {} })),
        ("/fs/_search", json!({ "size": -1 })),
        ("/fs/_search", json!({ "size": 10001 })),
        ("/fs/_search", json!({ "sort": "name" })),
        ("/fs/_search", json!([])),
        ("/fs/_search?q=a", Value::Null),
        ("/fs/_search?scroll=x", Value::Null),
        ("/fs/_search?scroll=1m&size=0", Value::Null),
        ("/fs/_search?format=yaml", Value::Null),
        ("/fs/_search?_source=n*", Value::Null),
        ("/fs/_search", json!({ "_source": ["a.*.b"] })),
        ("/_search/scroll", Value::Null),
    ] {
        let reply = cluster.ask("POST", path, body);
        assert_eq!(reply.status, 400, "{path}: {reply:?}");
        assert!(reply.json()["error"]["reason"].is_string(), "{reply:?}");
    }
    cluster.ask("GET", "/nothing/_search", Value::Null).fails(404, "index_not_found_exception");
}
