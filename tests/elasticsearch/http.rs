//! What every client needs besides documents: who is there, which indexes, and errors in the shape that is known.

use crate::cluster::{Cluster, exchange};
use serde_json::{Value, json};

#[test]
fn who_is_there() {
    let cluster = Cluster::start();
    let info = cluster.ask("GET", "/", Value::Null);
    assert!(info.is(200)["version"]["number"].as_str().unwrap().starts_with("7.17."), "{info:?}");
    assert_eq!(info.json()["tagline"], "You Know, for Search");
    let head = cluster.ask("HEAD", "/", Value::Null);
    assert_eq!((head.status, head.text.as_str()), (200, ""));
    for (method, path) in
        [("GET", "/"), ("HEAD", "/"), ("GET", "/nothing"), ("GET", "/_x"), ("POST", "/"), ("PUT", "/a/b/c")]
    {
        let reply = cluster.ask(method, path, Value::Null);
        assert!(reply.head.contains("x-elastic-product: elasticsearch"), "{path}: {reply:?}");
        assert!(reply.head.contains("content-type: application/json"), "{path}: {reply:?}");
    }
}

#[test]
fn indexes() {
    let cluster = Cluster::start();
    for method in ["GET", "DELETE"] {
        let reason = cluster.ask(method, "/fs", Value::Null).fails(404, "index_not_found_exception");
        assert_eq!(reason, "no such index [fs]");
    }
    assert_eq!(cluster.ask("HEAD", "/fs", Value::Null).status, 404);
    cluster.ask("POST", "/fs/_refresh", Value::Null).fails(404, "index_not_found_exception");
    let made = cluster.ask("PUT", "/fs", json!({ "settings": {} })).is(200);
    assert_eq!((&made["acknowledged"], &made["index"]), (&true.into(), &"fs".into()));
    cluster.ask("PUT", "/fs", Value::Null).fails(400, "resource_already_exists_exception");
    assert_eq!(cluster.ask("HEAD", "/fs", Value::Null).status, 200);
    cluster.ask("POST", "/fs/_refresh", Value::Null).is(200);
    assert_eq!(cluster.ask("GET", "/fs/_search", Value::Null).is(200)["hits"]["hits"], json!([]));
    cluster.ask("PUT", "/fs/file/1", json!({})).is(201);
    cluster.ask("PUT", "/fs/lock/1/_create", json!({})).is(201);
    let cluster = cluster.crashed();
    assert_eq!(cluster.ask("DELETE", "/fs", Value::Null).is(200), json!({ "acknowledged": true }));
    assert_eq!(cluster.ask("HEAD", "/fs", Value::Null).status, 404);
    cluster.ask("GET", "/fs/file/1", Value::Null).fails(404, "index_not_found_exception");
    assert_eq!(cluster.ask("PUT", "/fs/lock/1/_create", json!({})).is(201)["_version"], 1);
    // An index stays when its last lock goes.
    cluster.ask("DELETE", "/fs/lock/1", Value::Null).is(200);
    assert_eq!(cluster.ask("GET", "/fs/lock/_search", Value::Null).is(200)["hits"]["total"], 0);
    for name in ["_fs", "a,b", "a*", "%20"] {
        let reply = cluster.ask("PUT", &format!("/{name}"), Value::Null);
        assert_eq!(reply.status, 400, "{reply:?}");
    }
}

#[test]
fn unknown_endpoint_below_a_type_is_no_document_and_no_lock() {
    let cluster = Cluster::start();
    cluster.ask("PUT", "/fs", Value::Null).is(200);
    for path in ["/fs/lock/_validate", "/fs/file/_update_by_query", "/fs/lock/_nothing", "/fs/_doc/_explain"]
    {
        for method in ["POST", "PUT"] {
            let reply = cluster.ask(method, path, json!({ "query": { "match_all": {} } })).is(400);
            assert_eq!(reply["error"], format!("no handler found for uri [{path}] and method [{method}]"));
        }
    }
    assert_eq!(cluster.ask("GET", "/fs/_search", Value::Null).is(200)["hits"]["total"]["value"], 0);
    assert_eq!(cluster.ask("GET", "/fs/lock/_search", Value::Null).is(200)["hits"]["total"], 0);
    // Without types an id may begin with an underscore.
    cluster.ask("PUT", "/fs/_doc/_mine", json!({})).is(201);
}

#[test]
fn mistakes_are_told() {
    let cluster = Cluster::start();
    let reply = cluster.ask("GET", "/_cat/nodes", Value::Null).is(400);
    assert_eq!(reply["error"], "no handler found for uri [/_cat/nodes] and method [GET]");
    let reply = cluster.ask("PATCH", "/fs/file/1", json!({}));
    assert_eq!(reply.status, 405, "{reply:?}");
    assert!(reply.head.contains("allow: get, head, put, post, delete"), "{reply:?}");
    for body in ["", "[]", "{", "{\"a\":1,\"a\":2}", "{\"a\":1}x", "\u{feff}{}", "{\"meta_position\":1}"] {
        let reply = cluster.send("PUT", "/fs/file/1", Some("application/json"), body);
        assert_eq!(reply.status, 400, "{body}: {reply:?}");
        assert!(reply.json()["error"]["root_cause"][0]["reason"].is_string(), "{reply:?}");
    }
    cluster.ask("PUT", "/fs/_type/1", json!({})).is(400);
    cluster
        .ask("PUT", &format!("/fs/file/{}", "x".repeat(600)), json!({}))
        .fails(400, "illegal_argument_exception");
    let reply = cluster.send("PUT", "/fs/file/1", Some("text/plain"), "{}");
    reply.fails(406, "media_type_header_exception");
    for kind in [
        None,
        Some("application/json; charset=utf-8"),
        Some("application/vnd.elasticsearch+json; compatible-with=9"),
    ] {
        let reply = cluster.send("PUT", "/fs/file/1", kind, "{}");
        assert!(reply.status < 300, "{kind:?}: {reply:?}");
    }
    let headers = "content-type: application/json\r\norigin: http://example.com\r\n";
    let reply = exchange(cluster.server.elasticsearch(), "GET", "/", headers, "");
    reply.fails(403, "security_exception");
}

/// What `curl -d` says of every body. Versions before 6 did not mind; addresses without types are of later ones.
#[test]
fn bodies_that_curl_calls_forms_are_read_where_old_versions_did() {
    let cluster = Cluster::start();
    let send = |method: &str, path: &str, body: &str| {
        cluster.send(method, path, Some("application/x-www-form-urlencoded"), body)
    };
    send("PUT", "/fs/file/1", r#"{"name":"a"}"#).is(201);
    send("POST", "/fs/file/1/_update", r#"{"doc":{"name":"b"}}"#).is(200);
    send("PUT", "/fs/lock/_bulk", "{\"create\":{\"_id\":1}}\n{\"process_id\":123}\n").is(200);
    let found = send("GET", "/fs/lock/_search", r#"{"query":{"term":{"process_id":123}}}"#).is(200);
    assert_eq!(found["hits"]["total"], 1);
    for (method, path) in [("PUT", "/fs/_doc/1"), ("PUT", "/fs/_create/1"), ("POST", "/fs/_update/1")] {
        let reason = send(method, path, "{}").fails(406, "media_type_header_exception");
        assert!(reason.contains("curl -H 'content-type: application/json'"), "{reason}");
    }
}

#[test]
fn every_answer_can_be_laid_out_for_people() {
    let cluster = Cluster::start();
    cluster.ask("PUT", "/fs/file/1?pretty", json!({ "a": { "b": [] } })).is(201);
    let reply = cluster.ask("GET", "/fs/file/1/_source?pretty", Value::Null);
    assert_eq!(reply.text, "{\n  \"a\" : {\n    \"b\" : [ ]\n  }\n}\n");
    for (method, path, status) in [
        ("GET", "/?pretty", 200),
        ("GET", "/fs/_search?pretty=true", 200),
        ("GET", "/nothing/file/1?pretty", 404),
        ("POST", "/fs/file/_nothing?pretty", 400),
        ("PATCH", "/fs/file/1?pretty", 405),
        ("GET", "/fs/_search?q=x&pretty", 400),
        ("GET", "/_cluster/health?pretty", 200),
    ] {
        let reply = cluster.ask(method, path, Value::Null);
        reply.is(status);
        assert!(reply.text.starts_with("{\n  \"") && reply.text.ends_with("\n}\n"), "{path}: {reply:?}");
    }
    let plain = cluster.ask("GET", "/fs/file/1/_source?pretty=false", Value::Null);
    assert_eq!(plain.text, r#"{"a":{"b":[]}}"#);
}

#[test]
fn bodies_have_a_limit() {
    let cluster = Cluster::start_with(&["--body-bytes-max", "1024"]);
    let reply = cluster.ask("PUT", "/fs/file/1", json!({ "a": "x".repeat(2000) }));
    assert!(reply.fails(413, "content_too_long_exception").contains("body_bytes_max is 1024"), "{reply:?}");
}

#[test]
fn it_is_off_unless_asked_for() {
    let server = crate::harness::Server::start(&[]);
    assert!(!server.greeting.contains("elasticsearch"), "{}", server.greeting);
}
