//! Many writes in one request.

use crate::cluster::Cluster;
use serde_json::{Value, json};

const NDJSON: Option<&str> = Some("application/x-ndjson");

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

#[test]
fn every_action_at_every_level() {
    let cluster = Cluster::start();
    let body = lines(&[
        json!({ "index": { "_id": "1" } }),
        json!({ "a": 1 }),
        json!({ "create": { "_id": 2 } }),
        json!({ "a": 2 }),
        json!({ "create": { "_id": 2 } }),
        json!({ "a": 3 }),
        json!({ "update": { "_id": 2 } }),
        json!({ "doc": { "b": 1 } }),
        json!({ "update": { "_id": 9 } }),
        json!({ "doc": { "b": 1 } }),
        json!({ "delete": { "_id": 1 } }),
        json!({ "index": { "_index": "other", "_type": "file", "_id": 1 } }),
        json!([]),
    ]);
    for (method, path, kind) in [("POST", "/fs/file/_bulk", "file"), ("PUT", "/fs/_bulk", "_doc")] {
        let bulk = cluster.send(method, path, NDJSON, &body).is(200);
        assert_eq!(bulk["errors"], true);
        let items = bulk["items"].as_array().unwrap();
        let statuses: Vec<u64> = items
            .iter()
            .map(|item| item.as_object().unwrap().values().next().unwrap()["status"].as_u64().unwrap())
            .collect();
        assert_eq!(statuses, [201, 201, 409, 200, 404, 200, 400], "{bulk}");
        assert_eq!(items[2]["create"]["error"]["type"], "version_conflict_engine_exception");
        assert_eq!(items[4]["update"]["error"]["type"], "document_missing_exception");
        assert_eq!(items[6]["index"]["error"]["type"], "mapper_parsing_exception");
        let got = cluster.ask("GET", &format!("/fs/{kind}/2"), Value::Null).is(200);
        assert_eq!(got["_source"], json!({ "a": 2, "b": 1 }));
    }
    let named = lines(&[json!({ "index": { "_index": "x", "_id": 1 } }), json!({})]);
    let kind = Some("application/vnd.elasticsearch+x-ndjson; compatible-with=8");
    assert_eq!(cluster.send("PUT", "/_bulk", kind, &named).is(200)["errors"], false);
}

/// Locks and documents in one request, and writes of one document in their order.
#[test]
fn locks_and_documents() {
    let cluster = Cluster::start();
    let mut values = Vec::new();
    for number in 0..300 {
        values.extend([json!({ "index": { "_type": "file", "_id": 1 } }), json!({ "n": number })]);
        values.extend([json!({ "create": { "_type": "lock", "_id": number } }), json!({ "process_id": 7 })]);
    }
    let bulk = cluster.send("POST", "/fs/_bulk", NDJSON, &lines(&values)).is(200);
    assert_eq!(bulk["errors"], false, "{bulk}");
    assert_eq!(cluster.ask("GET", "/fs/file/1", Value::Null).is(200)["_source"]["n"], 299);
    assert_eq!(cluster.ask("GET", "/fs/lock/_count", Value::Null).is(200)["count"], 300);
    let deletes: Vec<Value> = (0..300).map(|number| json!({ "delete": { "_id": number } })).collect();
    let bulk = cluster.send("PUT", "/fs/lock/_bulk", NDJSON, &lines(&deletes)).is(200);
    assert_eq!(bulk["errors"], false, "{bulk}");
    assert_eq!(cluster.native("GET", "/v1/fs/locks", Value::Null).is(200)["locks"], json!([]));
}

#[test]
fn what_is_wrong_with_an_action_spoils_all() {
    let cluster = Cluster::start();
    for body in ["", "{}\n", "{\"index\":{\"_id\":1}}\n", "x\n", "{\"drop\":{\"_id\":1}}\n"] {
        let reply = cluster.send("POST", "/fs/_bulk", NDJSON, body);
        assert_eq!(reply.status, 400, "{body}: {reply:?}");
        assert!(reply.json()["error"]["type"].is_string(), "{reply:?}");
    }
    cluster
        .send("POST", "/_bulk", NDJSON, "{\"delete\":{\"_id\":1}}\n")
        .fails(400, "action_request_validation_exception");
}
