//! Purges of what the facade keeps: documents, types, indexes and scrolls show nothing of it, locks hold, and everything can
//! come again.

use crate::{
    cluster::{Cluster, Reply},
    harness::eventually,
};
use serde_json::{Value, json};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

fn purge(cluster: &Cluster, mut body: Value) -> Reply {
    body["user"] = "ann".into();
    cluster.native("POST", "/v1/fs/purge", body)
}

#[track_caller]
fn purge_whole(cluster: &Cluster, body: Value) {
    assert_eq!(purge(cluster, body.clone()).status, 202, "{body}");
    eventually("the purge is complete", || {
        cluster.native("GET", "/v1/purges", Value::Null).is(200)["purges"] == json!([])
    });
}

fn fill(cluster: &Cluster) {
    for id in 0..20 {
        cluster.ask("PUT", &format!("/fs/file/{id}"), json!({ "name": format!("secret {id}") })).is(201);
    }
    cluster.ask("PUT", "/fs/folder/1", json!({ "title": "stays" })).is(201);
}

#[test]
fn a_purged_type_is_in_no_answer_and_comes_again() {
    let cluster = Cluster::start();
    fill(&cluster);
    purge_whole(&cluster, json!({ "collection": "file", "confirm": "file" }));
    assert_eq!(cluster.ask("GET", "/fs/file/1", Value::Null).is(404)["found"], false);
    for path in ["/fs/_search?size=100", "/fs/_mapping", "/_all/_search?size=100", "/fs/file/_search"] {
        let reply = cluster.ask("GET", path, Value::Null);
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        assert!(!reply.text.contains("secret") && !reply.text.contains("name\":\"s"), "{path}: {reply:?}");
    }
    assert_eq!(cluster.ask("GET", "/fs/_count", Value::Null).is(200)["count"], 1);
    assert_eq!(cluster.ask("PUT", "/fs/file/1", json!({ "name": 7 })).is(201)["_version"], 1);
    assert_eq!(cluster.ask("PUT", "/fs/file/1", json!({ "name": 8 })).is(200)["_version"], 2);
}

#[test]
fn a_purged_index_is_not_there_and_comes_again() {
    let mut cluster = Cluster::start();
    fill(&cluster);
    purge_whole(&cluster, json!({ "confirm": "fs" }));
    for restart in [false, true] {
        if restart {
            cluster = cluster.crashed();
        }
        assert_eq!(cluster.ask("HEAD", "/fs", Value::Null).status, 404);
        for path in ["/fs/file/1", "/fs/_search", "/fs/_mapping", "/fs/_count"] {
            cluster.ask("GET", path, Value::Null).fails(404, "index_not_found_exception");
        }
        assert!(!cluster.ask("GET", "/_cat/indices?format=json", Value::Null).text.contains("fs"));
    }
    for (version, status) in [(1, 201), (2, 200)] {
        let written = cluster.ask("PUT", "/fs/file/1", json!({ "n": version })).is(status);
        assert_eq!(written["_version"], version, "{written}");
    }
    let body = json!({ "script": { "source": "ctx._source.n += 1" } });
    cluster.ask("POST", "/fs/file/1/_update", body).is(200);
    assert_eq!(cluster.ask("GET", "/fs/file/1", Value::Null).is(200)["_source"]["n"], 3);
    let bulk = "{\"index\":{\"_id\":\"2\"}}\n{\"n\":1}\n{\"delete\":{\"_id\":\"1\"}}\n";
    assert_eq!(
        cluster.send("POST", "/fs/file/_bulk", Some("application/x-ndjson"), bulk).is(200)["errors"],
        false
    );
    cluster.ask("DELETE", "/fs", Value::Null).is(200);
    assert_eq!(cluster.ask("PUT", "/fs/file/9", json!({})).is(201)["_version"], 1);
}

#[test]
fn a_lock_of_an_index_is_in_the_way_of_its_purge_and_can_be_taken_again_after_it() {
    let cluster = Cluster::start();
    fill(&cluster);
    cluster.ask("PUT", "/fs/lock/global/_create", json!({ "by": "bert" })).is(201);
    let refused = purge(&cluster, json!({ "confirm": "fs", "wait_ms": 0 })).is(423);
    assert_eq!(refused["code"], "locked", "{refused}");
    assert_eq!(cluster.ask("GET", "/fs/file/1", Value::Null).is(200)["_source"]["name"], "secret 1");
    cluster.ask("DELETE", "/fs/lock/global", Value::Null).is(200);
    purge_whole(&cluster, json!({ "confirm": "fs" }));
    let cluster = cluster.crashed();
    assert_eq!(cluster.ask("HEAD", "/fs", Value::Null).status, 404);
    assert_eq!(cluster.ask("PUT", "/fs/lock/global/_create", json!({ "by": "eve" })).is(201)["_version"], 1);
    cluster.ask("PUT", "/fs/lock/global/_create", json!({})).fails(409, "version_conflict_engine_exception");
    let found = cluster.ask("GET", "/fs/lock/_search", Value::Null).is(200);
    assert_eq!(found["hits"]["hits"][0]["_source"]["by"], "eve", "{found}");
}

/// A scroll keeps a view of the past, for as long as its client asked for.
#[test]
fn a_scroll_ends_when_something_it_looks_through_is_purged() {
    let cluster = Cluster::start();
    fill(&cluster);
    cluster.ask("PUT", "/other/file/1", json!({})).is(201);
    let open = |path: &str| {
        let page = cluster.ask("POST", path, json!({ "sort": ["_doc"] })).is(200);
        page["_scroll_id"].as_str().unwrap().to_owned()
    };
    let scroll = open("/fs/file/_search?scroll=1h&size=5");
    let next = |id: &str| cluster.ask("POST", "/_search/scroll", json!({ "scroll_id": id, "scroll": "1h" }));
    assert!(next(&scroll).text.contains("secret"));
    // It does not keep the purge waiting for an hour either.
    purge_whole(&cluster, json!({ "collection": "file", "confirm": "file" }));
    let reply = next(&scroll);
    assert_eq!(reply.status, 404, "{reply:?}");
    assert!(reply.text.contains("search_context_missing_exception"), "{reply:?}");
    let again = open("/fs/_search?scroll=1h&size=5");
    assert!(!next(&again).text.contains("secret"));
    let others = open("/other/_search?scroll=1h&size=5");
    assert_eq!(purge(&cluster, json!({ "collection": "folder", "keys": ["1"] })).status, 202);
    next(&others).is(200);
    assert_eq!(next(&again).status, 404, "its index was purged");
}

#[test]
fn clients_get_no_server_error_while_their_index_is_purged_again_and_again() {
    let cluster = Cluster::start();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = |name: &'static str| {
            let (cluster, stop) = (&cluster, &stop);
            move || {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let id = number % 7;
                    let replies = [
                        cluster.ask("PUT", &format!("/fs/{name}/{id}"), json!({ "n": number })),
                        cluster.ask("GET", "/fs/_search", Value::Null),
                        cluster.ask("PUT", &format!("/fs/lock/{name}/_create"), json!({})),
                        cluster.ask("GET", &format!("/fs/{name}/_count"), Value::Null),
                        cluster.ask("DELETE", &format!("/fs/lock/{name}"), Value::Null),
                    ];
                    for reply in replies {
                        assert!(reply.status < 500, "{reply:?}");
                    }
                }
            }
        };
        let writers = [scope.spawn(writer("file")), scope.spawn(writer("folder"))];
        for round in 0..6 {
            let body = match round % 2 {
                0 => json!({ "collection": "file", "confirm": "file", "wait_ms": 10_000 }),
                _ => json!({ "confirm": "fs", "wait_ms": 10_000 }),
            };
            let reply = purge(&cluster, body);
            assert!(matches!(reply.status, 202 | 404 | 409 | 423), "{reply:?}");
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    eventually("the purges are complete", || {
        cluster.native("GET", "/v1/purges", Value::Null).is(200)["purges"] == json!([])
    });
    let ended = cluster.server.stop();
    assert!(!ended.log.contains("panicked"), "{}", ended.log);
}
