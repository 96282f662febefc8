//! `_delete_by_query`: releases the locks and deletes the documents that a query finds, and nothing that changed since.

use crate::cluster::Cluster;
use serde_json::{Value, json};

const CONFLICT: &str = "version_conflict_engine_exception";

fn all() -> Value {
    json!({ "query": { "match_all": {} } })
}

fn process(id: u64) -> Value {
    json!({ "query": { "term": { "process_id": id } } })
}

#[test]
fn deleting_the_locks_of_a_process_releases_them() {
    for (locks, typed) in [("/fs/lock", true), ("/fs-lock/_doc", false)] {
        let cluster = Cluster::start();
        for id in 1..=5 {
            cluster.ask("PUT", &format!("{locks}/{id}"), json!({ "process_id": id % 2 })).is(201);
        }
        let path = if typed { "/fs/lock/_delete_by_query" } else { "/fs-lock/_delete_by_query" };
        let mut released = cluster.ask("POST", path, process(1)).is(200);
        assert!(released["took"].take().is_u64());
        assert_eq!(
            released,
            json!({
                "took": null, "timed_out": false, "total": 3, "deleted": 3, "batches": 1, "version_conflicts": 0,
                "noops": 0, "retries": { "bulk": 0, "search": 0 }, "throttled_millis": 0,
                "requests_per_second": -1.0, "throttled_until_millis": 0, "failures": [],
            })
        );
        let index = locks.split('/').nth(1).unwrap();
        let listed = cluster.native("GET", &format!("/v1/{index}/locks"), Value::Null).is(200);
        let owners: Vec<&Value> =
            listed["locks"].as_array().unwrap().iter().map(|lock| &lock["owner"]["name"]).collect();
        assert_eq!(owners, ["0", "0"], "the locks of the other process stay");
        cluster.ask("PUT", &format!("{locks}/1"), json!({ "process_id": 7 })).is(201);
        let again = cluster.ask("POST", path, process(1)).is(200);
        assert_eq!(
            (&again["total"], &again["deleted"], &again["batches"]),
            (&json!(0), &json!(0), &json!(0))
        );
        // What was released stays so.
        let cluster = cluster.crashed();
        assert_eq!(cluster.ask("GET", &format!("{locks}/3"), Value::Null).status, 404);
        assert_eq!(cluster.ask("GET", &format!("{locks}/2"), Value::Null).status, 200);
    }
}

#[test]
fn documents_are_deleted_in_batches_up_to_a_number() {
    let cluster = Cluster::start();
    for id in 1..=10 {
        cluster.ask("PUT", &format!("/fs/file/{id}"), json!({ "odd": id % 2 == 1 })).is(201);
    }
    let path = "/fs/file/_delete_by_query";
    let done = cluster.ask("POST", &format!("{path}?max_docs=3&scroll_size=2"), all()).is(200);
    assert_eq!((&done["total"], &done["deleted"], &done["batches"]), (&json!(3), &json!(3), &json!(2)));
    let done = cluster.ask("POST", path, json!({ "query": { "term": { "odd": true } } })).is(200);
    assert_eq!(done["deleted"], 3);
    assert_eq!(cluster.ask("GET", "/fs/file/_count", Value::Null).is(200)["count"], 4);
    let done = cluster.ask("POST", "/fs/_delete_by_query?scroll_size=1", all()).is(200);
    assert_eq!((&done["deleted"], &done["batches"]), (&json!(4), &json!(4)));
    // Its history is kept, as with every delete.
    let history = cluster.native("GET", "/v1/fs/history/file/10", Value::Null);
    assert_eq!(history.status, 200, "{history:?}");
}

#[test]
fn several_indexes_are_named_one_by_one() {
    let cluster = Cluster::start();
    for index in ["a", "b", "c"] {
        cluster.ask("PUT", &format!("/{index}/file/1"), json!({})).is(201);
        cluster.ask("PUT", &format!("/{index}/lock/1"), json!({})).is(201);
    }
    for path in ["/_all/_delete_by_query", "/*/_delete_by_query", "/a*/lock/_delete_by_query"] {
        let reason = cluster.ask("POST", path, all()).fails(400, "illegal_argument_exception");
        assert!(reason.contains("name the indexes"), "{reason}");
    }
    cluster.ask("POST", "/a,nothing/_delete_by_query", all()).fails(404, "index_not_found_exception");
    assert_eq!(cluster.ask("POST", "/a,b/file,lock/_delete_by_query", all()).is(200)["deleted"], 4);
    assert_eq!(cluster.ask("GET", "/_count", Value::Null).is(200)["count"], 2);
}

#[test]
fn a_locked_document_is_a_conflict_that_names_the_holder() {
    let cluster = Cluster::start_with(&["--wait", "50ms"]);
    for id in 1..=3 {
        cluster.ask("PUT", &format!("/fs/file/{id}"), json!({})).is(201);
    }
    let lease =
        json!({ "owner": "backup", "resources": [{ "path": "file/2", "mode": "write" }], "ttl_ms": 60_000 });
    cluster.native("POST", "/v1/fs/locks", lease).is(201);
    let reply = cluster.ask("POST", "/fs/file/_delete_by_query", all()).is(409);
    assert_eq!((&reply["deleted"], &reply["version_conflicts"]), (&json!(2), &json!(1)));
    let failure = &reply["failures"][0];
    assert_eq!(
        (&failure["index"], &failure["type"], &failure["id"], &failure["status"], &failure["cause"]["type"]),
        (&json!("fs"), &json!("file"), &json!("2"), &json!(409), &json!(CONFLICT))
    );
    assert!(failure["cause"]["reason"].as_str().unwrap().contains("backup"), "{failure}");
    cluster.ask("PUT", "/fs/file/4", json!({})).is(201);
    let reply = cluster.ask("POST", "/fs/file/_delete_by_query?conflicts=proceed", all()).is(200);
    assert_eq!(
        (&reply["total"], &reply["deleted"], &reply["version_conflicts"], &reply["failures"]),
        (&json!(2), &json!(1), &json!(1), &json!([]))
    );
    cluster.ask("GET", "/fs/file/2", Value::Null).is(200);
}

/// However often locks are released and taken again meanwhile, none is taken away from a holder who is not meant.
#[test]
fn a_lock_that_changed_hands_is_not_released() {
    let cluster = Cluster::start();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..40 {
                cluster.ask("POST", "/fs/lock/_delete_by_query?conflicts=proceed", process(1));
            }
        });
        for _ in 0..40 {
            // The first may be released at any time; the second never is, so only its holder can delete it.
            cluster.ask("PUT", "/fs/lock/1/_create", json!({ "process_id": 1 }));
            cluster.ask("DELETE", "/fs/lock/1", Value::Null);
            cluster.ask("PUT", "/fs/lock/1/_create", json!({ "process_id": 2 })).is(201);
            cluster.ask("DELETE", "/fs/lock/1", Value::Null).is(200);
        }
    });
}

#[test]
fn deletions_that_make_no_sense() {
    let cluster = Cluster::start();
    cluster.ask("PUT", "/fs/lock/1", json!({})).is(201);
    for (path, body) in [
        ("/fs/lock/_delete_by_query", Value::Null),
        ("/fs/lock/_delete_by_query", json!({})),
        ("/fs/lock/_delete_by_query", json!({ "query": { "fuzzy": {} } })),
        ("/fs/lock/_delete_by_query", json!({ "query": { "match_all": {} }, "aggs": {} })),
        ("/fs/lock/_delete_by_query?conflicts=maybe", all()),
        ("/fs/lock/_delete_by_query?wait_for_completion=false", all()),
        ("/fs/lock/_delete_by_query?q=a", all()),
    ] {
        let reply = cluster.ask("POST", path, body);
        assert_eq!(reply.status, 400, "{path}: {reply:?}");
        assert!(reply.json()["error"]["reason"].is_string(), "{reply:?}");
    }
    let reply = cluster.ask("GET", "/fs/lock/_delete_by_query", all());
    assert_eq!(reply.status, 405, "{reply:?}");
    cluster.ask("POST", "/nothing/_delete_by_query", all()).fails(404, "index_not_found_exception");
    cluster.ask("GET", "/fs/lock/1", Value::Null).is(200);
}

/// Which of two queries is meant cannot be known, and what is deleted is gone.
#[test]
fn bodies_with_a_name_twice_are_refused() {
    let cluster = Cluster::start();
    cluster.ask("PUT", "/fs/file/1", json!({ "a": 1 })).is(201);
    for body in [
        r#"{"query":{"term":{"a":2}},"query":{"match_all":{}}}"#,
        r#"{"query":{"term":{"a":2,"a":1}}}"#,
        r#"{"query":{"bool":{"filter":[{"term":{"a":{"value":2,"value":1}}}]}}}"#,
    ] {
        for path in ["/fs/file/_delete_by_query", "/fs/file/_search"] {
            let reason =
                cluster.send("POST", path, Some("application/json"), body).fails(400, "parsing_exception");
            assert!(reason.contains("Duplicate field"), "{reason}");
        }
    }
    let reason = cluster
        .ask("POST", "/fs/file/_delete_by_query", json!({ "query": { "term": {} } }))
        .fails(400, "parsing_exception");
    assert_eq!(reason, r#"[term] query names no field; write {"term":{"FIELD":"VALUE"}}"#);
    assert_eq!(cluster.ask("GET", "/fs/file/1", Value::Null).status, 200);
}
