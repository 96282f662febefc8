//! Ordinary documents: written, updated and deleted, with types and without.

use crate::cluster::Cluster;
use serde_json::{Value, json};

const CONFLICT: &str = "version_conflict_engine_exception";

#[test]
fn written_read_and_deleted() {
    let cluster = Cluster::start();
    for (path, kind) in [("/shop/order/1", json!("order")), ("/shop/_doc/1", Value::Null)] {
        let missing = cluster.ask("GET", path, Value::Null);
        assert_eq!(missing.status, 404, "{missing:?}");
        let written = cluster.ask("PUT", path, json!({ "a": 1 })).is(201);
        assert_eq!((&written["result"], &written["_version"]), (&"created".into(), &1.into()));
        assert_eq!((&written["_type"], &written["_primary_term"]), (&kind, &1.into()));
        assert!(written["_seq_no"].is_u64(), "{written}");
        let written = cluster.ask("POST", path, json!({ "b": [1.50, "x"] })).is(200);
        assert_eq!((&written["result"], &written["_version"]), (&"updated".into(), &2.into()));
        let got = cluster.ask("GET", path, Value::Null).is(200);
        assert_eq!(got["_source"], json!({ "b": [1.5, "x"] }));
        assert_eq!((&got["found"], &got["_type"]), (&true.into(), &kind));
        assert_eq!(cluster.ask("HEAD", path, Value::Null).status, 200);
        let deleted = cluster.ask("DELETE", path, Value::Null).is(200);
        assert_eq!((&deleted["result"], &deleted["_version"]), (&"deleted".into(), &3.into()));
        assert_eq!(cluster.ask("HEAD", path, Value::Null).status, 404);
        let missing = cluster.ask("GET", path, Value::Null).is(404);
        assert_eq!((&missing["found"], &missing["_id"]), (&false.into(), &"1".into()));
        assert_eq!(cluster.ask("DELETE", path, Value::Null).is(404)["result"], "not_found");
        // Versions go on.
        let written = cluster.ask("PUT", path, json!({ "c": 1 })).is(201);
        assert_eq!((&written["result"], &written["_version"]), (&"created".into(), &4.into()));
        assert_eq!(cluster.ask("GET", path, Value::Null).is(200)["_source"], json!({ "c": 1 }));
    }
}

#[test]
fn created_only_if_it_is_not_there() {
    let cluster = Cluster::start();
    for path in ["/shop/order/1/_create", "/shop/_create/1", "/shop/_doc/2?op_type=create"] {
        cluster.ask("PUT", path, json!({})).is(201);
        let reason = cluster.ask("PUT", path, json!({})).fails(409, CONFLICT);
        assert!(
            reason.ends_with("version conflict, document already exists (current version [1])"),
            "{reason}"
        );
    }
    let new = cluster.ask("POST", "/shop/_doc", json!({ "x": 1 })).is(201);
    let path = format!("/shop/_doc/{}", new["_id"].as_str().unwrap());
    assert_eq!(cluster.ask("GET", &path, Value::Null).is(200)["_source"], json!({ "x": 1 }));
}

#[test]
fn partial_updates() {
    let cluster = Cluster::start();
    let update = |body: Value| cluster.ask("POST", "/shop/_update/1", body);
    update(json!({ "doc": {} })).fails(404, "document_missing_exception");
    let upsert = json!({ "doc": { "a": 1 }, "doc_as_upsert": true });
    assert_eq!(update(upsert.clone()).is(201)["result"], "created");
    assert_eq!(update(upsert).is(200)["result"], "noop");
    let forced = json!({ "doc": { "a": 1 }, "detect_noop": false });
    assert_eq!(update(forced).is(200)["_version"], 2);
    update(json!({ "doc": { "deep": { "x": 1, "y": { "z": 1 } }, "list": [1] } })).is(200);
    update(json!({ "doc": { "deep": { "y": { "w": 2 } }, "list": [2] } })).is(200);
    let got = cluster.ask("GET", "/shop/_doc/1", Value::Null).is(200);
    assert_eq!(got["_source"], json!({ "a": 1, "deep": { "x": 1, "y": { "w": 2, "z": 1 } }, "list": [2] }));
    assert_eq!(cluster.ask("GET", "/shop/_source/1", Value::Null).is(200), got["_source"]);
    assert_eq!(
        cluster.ask("GET", "/shop/_doc/1?_source=a,list", Value::Null).is(200)["_source"],
        json!({ "a": 1, "list": [2] })
    );
    assert_eq!(cluster.ask("GET", "/shop/_doc/1?_source=false", Value::Null).is(200)["_source"], Value::Null);
}

#[test]
fn numbers_stay_as_they_were_written() {
    let cluster = Cluster::start();
    let text = r#"{"big":123456789012345678901234567890,"float":1.10}"#;
    cluster.send("PUT", "/shop/_doc/1", Some("application/json"), text);
    cluster.ask("POST", "/shop/_update/1", json!({ "doc": { "other": 1 } })).is(200);
    let got = cluster.ask("GET", "/shop/_doc/1", Value::Null);
    assert!(got.text.contains(r#""big":123456789012345678901234567890,"float":1.10"#), "{got:?}");
}

#[test]
fn writes_that_expect_something() {
    let cluster = Cluster::start();
    let first = cluster.ask("PUT", "/shop/file/1", json!({ "a": 1 })).is(201);
    let seq_no = first["_seq_no"].as_u64().unwrap();
    let put = |query: &str| cluster.ask("PUT", &format!("/shop/file/1?{query}"), json!({ "a": 2 }));
    put("version=2").fails(409, CONFLICT);
    put("version=1").is(200);
    put(&format!("if_seq_no={seq_no}&if_primary_term=1")).fails(409, CONFLICT);
    put("if_seq_no=2&if_primary_term=2").fails(409, CONFLICT);
    put("if_seq_no=2&if_primary_term=1").is(200);
    put("version=x").fails(400, "illegal_argument_exception");
    put("version=1&version_type=external").fails(400, "illegal_argument_exception");
    cluster.ask("DELETE", "/shop/file/1?version=1", Value::Null).fails(409, CONFLICT);
    cluster.ask("DELETE", "/shop/file/1?version=3", Value::Null).is(200);
}

#[test]
fn ids_are_any_text() {
    let cluster = Cluster::start();
    for id in ["007", "a b", "50%", "order:42", "a/b", "é"] {
        let written: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/shop/_doc/{written}");
        assert_eq!(cluster.ask("PUT", &path, json!({ "id": id })).is(201)["_id"], id);
        let got = cluster.ask("GET", &path, Value::Null).is(200);
        assert_eq!((&got["_id"], &got["_source"]["id"]), (&id.into(), &id.into()));
    }
    let found = cluster.ask("GET", "/shop/_search?size=100", Value::Null).is(200);
    let mut ids: Vec<&str> =
        found["hits"]["hits"].as_array().unwrap().iter().map(|hit| hit["_id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["007", "50%", "a b", "a/b", "order:42", "é"]);
}

#[test]
fn many_at_once() {
    let cluster = Cluster::start();
    cluster.ask("PUT", "/shop/file/1", json!({ "a": 1 })).is(201);
    cluster.ask("PUT", "/shop/lock/1/_create", json!({ "process_id": 9 })).is(201);
    let docs = json!({ "docs": [
        { "_index": "shop", "_type": "file", "_id": 1 },
        { "_index": "shop", "_type": "lock", "_id": "1" },
        { "_index": "shop", "_type": "file", "_id": "2" },
    ] });
    let got = cluster.ask("POST", "/_mget", docs).is(200);
    let found: Vec<&Value> = got["docs"].as_array().unwrap().iter().map(|doc| &doc["_source"]).collect();
    assert_eq!(found, [&json!({ "a": 1 }), &json!({ "process_id": 9 }), &Value::Null]);
    let got = cluster.ask("GET", "/shop/file/_mget", json!({ "ids": [1, "2"] })).is(200);
    assert_eq!((&got["docs"][0]["found"], &got["docs"][1]["found"]), (&true.into(), &false.into()));
    cluster.ask("POST", "/_mget", json!({ "ids": [1] })).fails(400, "action_request_validation_exception");
}
