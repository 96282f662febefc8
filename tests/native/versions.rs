//! Versions of documents: positions that are not there yet are refused, and ETags are what HTTP makes of positions.

use crate::{
    harness::Server,
    http::{self, Reply},
    store::Store,
};
use serde_json::{Value, json};

/// A namespace at position 2, with the document a/1 at position 1.
fn start() -> (Server, Store) {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    shop.create("a", 1, json!({ "x": 1 }));
    shop.create("b", 1, json!({ "x": 1 }));
    (server, shop)
}

#[track_caller]
fn assert_ahead(reply: &Reply) {
    let detail = reply.assert_problem(409, "position_ahead")["detail"].to_string();
    assert!(detail.contains("the namespace is at position 2"), "{detail}");
}

#[test]
fn a_write_that_depends_on_a_future_position_is_refused() {
    let (_server, shop) = start();
    let write = |position: u64| {
        let locks = json!([{ "collection": "a", "key": 1, "position": position }]);
        let events = json!([{ "type": "update", "collection": "b", "key": 1, "fields": { "x": 2 } }]);
        shop.send("POST", "write", &json!({ "locks": locks, "events": events }).to_string())
    };
    assert_ahead(&write(3));
    assert_ahead(&write(u64::MAX));
    assert_ahead(&shop.send("PUT", "documents/a/1?position=3", "{}"));
    assert_ahead(&shop.send("DELETE", "documents/a/1?position=3", ""));
    assert_eq!(shop.get("position")["position"], 2, "nothing was written");
    assert_eq!(write(2).status, 200, "the present position is no future one");
}

#[test]
fn a_read_as_of_a_future_position_is_refused() {
    let (_server, shop) = start();
    assert_ahead(&shop.send("GET", "documents/a/1?at=3", ""));
    assert_ahead(&shop.send("GET", "documents/a?at=3", ""));
    assert_ahead(&shop.send("GET", "history/a/1?after=3", ""));
    let side = json!({ "collection": "a", "field": "x" });
    let questions = [
        ("get", json!({ "documents": [{ "collection": "a", "key": 1 }], "at": 3 })),
        ("filter", json!({ "collection": "a", "at": 3 })),
        ("count", json!({ "collection": "a", "at": 3 })),
        ("max", json!({ "collection": "a", "field": "x", "at": 3 })),
        ("join", json!({ "left": side, "right": side, "at": 3 })),
    ];
    for (path, mut body) in questions {
        assert_ahead(&shop.send("POST", path, &body.to_string()));
        body["at"] = 2.into();
        shop.post(path, &body);
    }
}

#[test]
fn a_feed_from_a_future_position_is_refused() {
    let (_server, shop) = start();
    let ask =
        |path: &str, headers: &[(&str, &str)]| http::request(shop.native, "GET", &shop.target(path), headers);
    let events = ("accept", "text/event-stream");
    assert_ahead(&ask("changes?after=3", &[]));
    assert_ahead(&ask("changes?after=3", &[events]));
    assert_ahead(&ask("changes", &[events, ("last-event-id", "3")]));
    let handshake = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ];
    assert_ahead(&ask("changes?after=3", &handshake));
    assert_eq!(ask("changes?after=2", &[]).status, 200);
}

fn send(shop: &Store, method: &str, condition: (&str, &str), body: &Value) -> Reply {
    let body = if method == "PUT" { body.to_string() } else { String::new() };
    http::send(shop.native, method, &shop.target("documents/a/1"), &[condition], body.as_bytes())
}

#[test]
fn a_document_has_its_position_as_etag() {
    let (_server, shop) = start();
    let tag = |reply: &Reply| reply.header("etag").map(str::to_owned);
    assert_eq!(tag(&shop.send("GET", "documents/a/1", "")).unwrap(), "\"1\"");
    let put = shop.send("PUT", "documents/a/1", r#"{"x":2}"#);
    assert_eq!(tag(&put).unwrap(), "\"3\"", "{put:?}");
    for path in ["documents/a/1", "documents/a/1?path=/x", "documents/a/1?fields=x"] {
        assert_eq!(tag(&shop.send("GET", path, "")).unwrap(), "\"3\"", "{path}");
    }
    assert_eq!(tag(&shop.send("GET", "documents/a/1?at=2", "")).unwrap(), "\"1\"", "as of then");
}

#[test]
fn a_read_of_a_known_version_is_not_modified() {
    let (_server, shop) = start();
    let read = |condition| send(&shop, "GET", condition, &Value::Null);
    for known in ["\"1\"", "W/\"1\"", "\"7\", \"1\"", "*"] {
        let reply = read(("if-none-match", known));
        assert_eq!((reply.status, reply.body.as_str()), (304, ""), "{known}");
        assert_eq!(reply.header("etag"), Some("\"1\""));
    }
    assert_eq!(read(("if-none-match", "\"7\"")).status, 200);
    assert_eq!(read(("if-match", "\"1\"")).status, 200);
    read(("if-match", "\"7\"")).assert_problem(412, "precondition_failed");
    read(("if-match", "7")).assert_problem(400, "bad_query");
}

#[test]
fn a_write_is_refused_unless_the_etag_matches() {
    let (_server, shop) = start();
    for method in ["PUT", "DELETE"] {
        for unmet in [
            ("if-match", "\"2\""),
            ("if-match", "W/\"1\""),
            ("if-none-match", "\"1\""),
            ("if-none-match", "*"),
        ] {
            let problem = send(&shop, method, unmet, &json!({})).assert_problem(412, "precondition_failed");
            assert!(problem["detail"].to_string().contains("has the ETag"), "{problem}");
        }
    }
    assert_eq!(shop.get("position")["position"], 2, "nothing was written");
    assert_eq!(send(&shop, "PUT", ("if-match", "\"9\", \"1\""), &json!({ "x": 2 })).status, 200);
    assert_eq!(send(&shop, "DELETE", ("if-match", "\"3\""), &Value::Null).status, 200);
    let gone = send(&shop, "PUT", ("if-match", "*"), &json!({}));
    gone.assert_problem(412, "precondition_failed");
}

/// A node has the ETag of its document.
#[test]
fn a_write_of_a_node_is_refused_unless_the_etag_of_its_document_matches() {
    let (_server, shop) = start();
    shop.ask("PUT", "documents/a/1/address", &json!({ "zip": "53113" }));
    let node = |method: &str, condition: (&str, &str), body: &str| {
        http::send(
            shop.native,
            method,
            &shop.target("documents/a/1/address/zip"),
            &[condition],
            body.as_bytes(),
        )
    };
    for (method, body) in [("PUT", "\"53115\""), ("DELETE", "")] {
        for unmet in [("if-match", "\"1\""), ("if-match", "W/\"3\""), ("if-none-match", "\"3\"")] {
            let problem = node(method, unmet, body).assert_problem(412, "precondition_failed");
            assert!(problem["detail"].to_string().contains("has the ETag"), "{method} {unmet:?}: {problem}");
        }
    }
    assert_eq!(shop.get("position")["position"], 3, "nothing was written");
    let read = http::request(shop.native, "GET", &shop.target("documents/a/1/address/zip"), &[]);
    assert_eq!(read.header("etag"), Some("\"3\""), "{read:?}");
    assert_eq!(node("PUT", ("if-match", "\"3\""), "\"53115\"").status, 200);
    node("DELETE", ("if-match", "\"3\""), "").assert_problem(412, "precondition_failed");
    assert_eq!(node("DELETE", ("if-match", "\"4\""), "").status, 200);
    assert_eq!(shop.get("documents/a/1")["document"]["value"], json!({ "x": 1, "address": {} }));
}

#[test]
fn if_none_match_with_a_star_creates_only() {
    let (_server, shop) = start();
    let create =
        || http::send(shop.native, "PUT", &shop.target("documents/c/1"), &[("if-none-match", "*")], b"{}");
    assert_eq!(create().status, 200);
    let problem = create().assert_problem(412, "precondition_failed");
    assert!(problem["detail"].to_string().contains("creates documents only"), "{problem}");
}
