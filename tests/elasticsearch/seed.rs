//! The transcript of the tutorial on document locks, point by point.

use crate::cluster::{Cluster, Reply};
use serde_json::{Value, json};

const CONFLICT: &str = "version_conflict_engine_exception";

fn lock(cluster: &Cluster, process: u64) -> Reply {
    let script = json!({ "lang": "groovy", "file": "judge-lock", "params": { "process_id": process } });
    let body = json!({ "upsert": { "process_id": process }, "script": script });
    cluster.ask("POST", "/fs/lock/1/_update", body)
}

/// Without what newer servers say besides.
#[track_caller]
fn assert_shows(found: &Value, expected: Value) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&found[name], value, "{name} of {found}");
    }
}

#[test]
fn the_whole_transcript() {
    let cluster = Cluster::start();
    let done = json!({ "total": 2, "successful": 1, "failed": 0 });

    let created = lock(&cluster, 123).is(201);
    let names = json!({ "_index": "fs", "_type": "lock", "_id": "1" });
    assert_shows(&created, names.clone());
    assert_shows(&created, json!({ "_version": 1, "result": "created", "_shards": done }));

    let got = cluster.ask("GET", "/fs/lock/1", Value::Null).is(200);
    assert_shows(&got, names.clone());
    assert_shows(&got, json!({ "_version": 1, "found": true, "_source": { "process_id": 123 } }));

    let refused = lock(&cluster, 234).is(400);
    let cause = json!({
        "type": "script_exception",
        "reason": "error evaluating judge-lock",
        "caused_by": { "type": "power_assertion_error", "reason": "assert false\n" },
        "script_stack": [],
        "script": "",
        "lang": "groovy",
    });
    assert_eq!(refused["status"], 400);
    assert_shows(
        &refused["error"],
        json!({ "type": "illegal_argument_exception", "reason": "failed to execute script", "caused_by": cause }),
    );
    assert_eq!(refused["error"]["root_cause"].as_array().unwrap().len(), 1);
    assert_eq!(refused["error"]["root_cause"][0]["type"], "remote_transport_exception");
    let got = cluster.ask("GET", "/fs/lock/1", Value::Null).is(200);
    assert_shows(&got, json!({ "_version": 1, "_source": { "process_id": 123 } }));

    let nothing = json!({ "total": 0, "successful": 0, "failed": 0 });
    assert_shows(
        &lock(&cluster, 123).is(200),
        json!({ "_version": 1, "result": "noop", "_shards": nothing }),
    );

    for version in 1..=3 {
        let written = cluster.ask("PUT", "/fs/file/1", json!({ "name": format!("{version}"), "size": 7 }));
        assert_eq!(written.json()["_version"], version);
    }
    let updated =
        cluster.ask("POST", "/fs/file/1/_update", json!({ "doc": { "name": "README1.txt" } })).is(200);
    assert_shows(&updated, json!({ "_type": "file", "_version": 4, "result": "updated", "_shards": done }));
    let got = cluster.ask("GET", "/fs/file/1", Value::Null).is(200);
    assert_eq!(got["_source"], json!({ "name": "README1.txt", "size": 7 }));

    let refreshed = cluster.ask("POST", "/fs/_refresh", Value::Null).is(200);
    assert_eq!(refreshed.as_object().unwrap().keys().collect::<Vec<_>>(), ["_shards"]);

    let query = json!({ "query": { "term": { "process_id": 123 } } });
    let page = cluster.ask("GET", "/fs/lock/_search?scroll=1m", query).is(200);
    assert!(page["_scroll_id"].is_string() && page["took"].is_u64(), "{page}");
    assert_shows(&page, json!({ "timed_out": false }));
    assert_shows(&page["_shards"], json!({ "total": 5, "successful": 5, "failed": 0 }));
    let hit =
        json!({ "_index": "fs", "_type": "lock", "_id": "1", "_score": 1, "_source": { "process_id": 123 } });
    assert_eq!(page["hits"], json!({ "total": 1, "max_score": 1, "hits": [hit] }));
    let next = json!({ "scroll": "1m", "scroll_id": page["_scroll_id"] });
    let page = cluster.ask("POST", "/_search/scroll", next).is(200);
    assert_eq!(page["hits"]["hits"], json!([]));

    // As it is typed: a number for an id, and no line break at the end.
    let bulk =
        cluster.send("PUT", "/fs/lock/_bulk", Some("application/json"), "{ \"delete\": { \"_id\": 1}}");
    let bulk = bulk.is(200);
    assert!(bulk["took"].is_u64() && bulk["errors"] == false, "{bulk}");
    let item = &bulk["items"][0]["delete"];
    assert_shows(item, names);
    assert_shows(
        item,
        json!({ "found": true, "_version": 2, "result": "deleted", "_shards": done, "status": 200 }),
    );

    assert_eq!(lock(&cluster, 234).is(201)["result"], "created");
}

/// Point 8: what is not there is not deleted, and that is no error.
#[test]
fn deleting_what_is_not_there() {
    let cluster = Cluster::start();
    for kind in ["lock", "file"] {
        let line = "{\"delete\":{\"_id\":1}}\n";
        let bulk =
            cluster.send("POST", &format!("/fs/{kind}/_bulk"), Some("application/x-ndjson"), line).is(200);
        assert_eq!(bulk["errors"], false);
        assert_shows(
            &bulk["items"][0]["delete"],
            json!({ "found": false, "result": "not_found", "status": 404 }),
        );
    }
}

/// Point 10: the document is read and then written, and in between somebody else may write.
#[test]
fn an_update_that_is_overtaken() {
    let cluster = Cluster::start();
    cluster.ask("PUT", "/fs/file/1", json!({ "count": 0 })).is(201);
    let add = json!({ "script": { "source": "ctx._source.count++" } });
    let race = |query: &str| -> Vec<u16> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let path = format!("/fs/file/1/_update{query}");
                        let ask = || cluster.ask("POST", &path, add.clone()).status;
                        (0..10).map(|_| ask()).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        })
    };
    let statuses = race("");
    let done = statuses.iter().filter(|status| **status == 200).count();
    assert!(statuses.iter().all(|status| [200, 409].contains(status)), "{statuses:?}");
    let got = cluster.ask("GET", "/fs/file/1", Value::Null).is(200);
    assert_eq!(got["_source"]["count"], done, "every update that was confirmed counts");
    let statuses = race("?retry_on_conflict=1000");
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let got = cluster.ask("GET", "/fs/file/1", Value::Null).is(200);
    assert_eq!(got["_source"]["count"], done + 80);
    assert_eq!(got["_version"], done + 81);
}

/// Point 11: the first samples of the tutorial have a comma missing, and one mixes two processes.
#[test]
fn the_samples_that_are_wrong() {
    let cluster = Cluster::start();
    let script = "if ( ctx._source.process_id != process_id ) { assert false }; ctx.op = 'noop';";
    let text = format!(
        r#"{{"upsert": {{ "process_id": 123 }}, "script": "{script}" "params": {{"process_id": 123}}}}"#
    );
    cluster.send("POST", "/fs/lock/1/_update", Some("application/json"), &text).fails(400, "parse_exception");
    let body = |params: u64| json!({ "upsert": { "process_id": 123 }, "script": script, "params": { "process_id": params } });
    // The upsert is what is stored, whatever the parameters say; they are what is compared.
    assert_eq!(cluster.ask("POST", "/fs/lock/1/_update", body(234)).is(201)["result"], "created");
    cluster.ask("POST", "/fs/lock/1/_update", body(234)).fails(400, "illegal_argument_exception");
    assert_eq!(cluster.ask("POST", "/fs/lock/1/_update", body(123)).is(200)["result"], "noop");
}

#[test]
fn only_one_of_many_gets_the_lock() {
    let cluster = Cluster::start();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=12)
            .map(|process| {
                scope.spawn({
                    let cluster = &cluster;
                    move || lock(cluster, process)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap().status).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [201, 400, 409].contains(status)), "{statuses:?}");
    let reason = cluster.ask("PUT", "/fs/lock/1/_create", json!({})).fails(409, CONFLICT);
    assert_eq!(reason, "[lock][1]: version conflict, document already exists (current version [1])");
}
