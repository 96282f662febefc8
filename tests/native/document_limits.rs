//! The limits of documents, and what people get wrong: each mistake has its own code, and none hurts.

use crate::{
    harness::{Server, eventually},
    http::{self, Reply},
    limits::{Limit, limits},
    store::Store,
};
use serde_json::{Value, json};
use std::net::TcpStream;

fn shop(server: &Server) -> Store {
    Store::new(server, "shop")
}

fn event(kind: &str, key: impl Into<Value>, fields: Value) -> Value {
    json!({ "type": kind, "collection": "a", "key": key.into(), "fields": fields })
}

fn write(events: Value) -> Value {
    json!({ "events": events })
}

impl Limit {
    /// That the limit is named in a refusal.
    #[track_caller]
    pub(crate) fn refuses(&self, reply: &Reply, status: u16, code: &str) {
        let problem = reply.assert_problem(status, code);
        self.assert_named(problem["detail"].as_str().unwrap());
    }

    /// Posts what is at the limit and what is over it.
    #[track_caller]
    pub(crate) fn check_post(&self, store: &Store, path: &str, fits: &Value, over: &Value) {
        store.post(path, fits);
        self.refuses(&store.send("POST", path, &over.to_string()), 400, "over_limit");
    }
}

limits! {
    schemas_max = 2, |server, limit| {
        let shop = shop(server);
        let schema = json!({ "schema": { "type": "object" } });
        shop.post("schemas/a", &schema);
        // What is said about a subject counts as well.
        shop.ask("PUT", "schemas/b/settings", &json!({ "level": "NONE" }));
        shop.ask("PUT", "schemas/b/settings", &json!({ "level": "FULL" }));
        limit.refuses(&shop.send("POST", "schemas/b", &schema.to_string()), 400, "over_limit");
        limit.refuses(&shop.send("PUT", "schemas/c/settings", r#"{"level":"NONE"}"#), 400, "over_limit");
        shop.ask("DELETE", "schemas/a", &json!(null));
        limit.refuses(&shop.send("POST", "schemas/b", &schema.to_string()), 400, "over_limit");
        shop.ask("DELETE", "schemas/a?permanent=true", &json!(null));
        shop.post("schemas/b", &schema);
    };
    schema_bytes_max = 100, |server, limit| {
        let shop = shop(server);
        let schema = |len: usize| json!({ "schema": format!("{:<len$}", r#"{"type":"object"}"#) });
        limit.check_post(&shop, "schemas/a", &schema(100), &schema(101));
        limit.check_post(&shop, "schemas/a/check", &schema(100), &schema(101));
    };
    subject_bytes_max = 4, |server, limit| {
        let shop = shop(server);
        let schema = json!({ "schema": { "type": "object" } });
        shop.post("schemas/aaaa", &schema);
        limit.refuses(&shop.send("POST", "schemas/aaaaa", &schema.to_string()), 400, "over_limit");
        limit.refuses(&shop.send("PUT", "schemas/aaaaa/settings", r#"{"level":"NONE"}"#), 400, "over_limit");
    };
    body_bytes_max = 2000, |server, limit| {
        let shop = shop(server);
        let body = write(json!([event("put", 1, json!({}))])).to_string();
        assert_eq!(shop.send("POST", "write", &format!("{body:<2000}")).status, 200);
        limit.refuses(&shop.send("POST", "write", &format!("{body:<2001}")), 400, "over_limit");
        limit.refuses(&shop.send("PUT", "documents/a/1", &format!("{{{}}}", " ".repeat(3_000_000))), 400, "over_limit");
        assert_eq!(shop.get("position")["position"], 1);
    };
    line_bytes_max = 2000, |server, limit| {
        let shop = shop(server);
        let head = r#"{"lockwood":"dump","format":1,"namespace":"x","position":0,"horizon":0}"#;
        let load = |head: &str| {
            let text = format!("{head}\n{}\n", r#"{"end":{"lines":1}}"#);
            http::send(shop.native, "POST", &shop.target("load"), &[("content-type", "application/x-ndjson")], text.as_bytes())
        };
        limit.refuses(&load(&format!("{head:<2001}")), 400, "over_limit");
        assert_eq!(load(&format!("{head:<2000}")).status, 200);
        let endless = http::send(shop.native, "POST", &shop.target("load"), &[("content-type", "application/x-ndjson")], &vec![b' '; 1_000_000]);
        limit.refuses(&endless, 400, "over_limit");
    };
    answer_bytes_max = 2000, |server, limit| {
        let shop = shop(server);
        shop.create("a", 1, json!({ "x": "x".repeat(1000) }));
        shop.create("a", 2, json!({ "x": "x".repeat(1000) }));
        let both = json!({ "documents": [{ "collection": "a", "key": 1 }, { "collection": "a", "key": 2 }] });
        limit.refuses(&shop.send("POST", "get", &both.to_string()), 400, "over_limit");
        limit.refuses(&shop.send("POST", "filter", r#"{"collection":"a"}"#), 400, "over_limit");
        limit.refuses(&shop.send("GET", "documents/a", ""), 400, "over_limit");
        shop.post("filter", &json!({ "collection": "a", "limit": 1 }));
        // A page of changes ends earlier instead.
        let page = shop.get("changes");
        assert_eq!((&page["next"], page["commits"].as_array().unwrap().len()), (&1.into(), 1));
        assert_eq!(shop.get("changes?after=1")["next"], 2);
    };
    collection_bytes_max = 4, |server, limit| {
        let (fits, over) = limit.texts();
        let body = |collection: &str| json!({ "collection": collection });
        limit.check_post(&shop(server), "count", &body(&fits), &body(&over));
        let put = |collection: &str| shop(server).send("PUT", &format!("documents/{collection}/1"), "{}");
        assert_eq!(put(&fits).status, 200);
        limit.refuses(&put(&over), 400, "over_limit");
    };
    key_bytes_max = 9, |server, limit| {
        let body = |key: Value| write(json!([event("put", key, json!({}))]));
        limit.check_post(&shop(server), "write", &body("x".repeat(8).into()), &body("x".repeat(9).into()));
        limit.check_post(&shop(server), "write", &body(json!(i64::MAX)), &body(json!([1, 2])));
        limit.refuses(&shop(server).send("GET", "documents/a/abcdefghi", ""), 400, "over_limit");
    };
    field_bytes_max = 4, |server, limit| {
        let (fits, over) = limit.texts();
        let body = |field: &str| write(json!([event("put", 1, json!({ field: 1 }))]));
        limit.check_post(&shop(server), "write", &body(&fits), &body(&over));
        let body = |field: &str| json!({ "collection": "a", "filter": { "field": field, "op": "=", "value": 1 } });
        limit.check_post(&shop(server), "count", &body(&fits), &body(&over));
        let reply = shop(server).send("PUT", &format!("indexes/a/{over}"), "");
        limit.refuses(&reply, 400, "over_limit");
    };
    fields_per_document_max = 2, |server, limit| {
        let shop = shop(server);
        shop.create("a", 1, json!({ "x": 1, "y": 1, "gone": null }));
        limit.check_post(&shop, "write",
            &write(json!([event("update", 1, json!({ "x": null, "z": 1 }))])),
            &write(json!([event("update", 1, json!({ "x": 1 }))])));
    };
    document_bytes_max = 100, |server, limit| {
        let body = |len: usize| write(json!([event("put", 1, json!({ "x": "x".repeat(len) }))]));
        limit.check_post(&shop(server), "write", &body(97), &body(98));
    };
    json_depth_max = 3, |server, limit| {
        let shop = shop(server);
        shop.create("a", 1, json!({ "x": [[[1]]] }));
        for body in [write(json!([event("put", 1, json!({ "x": [[[[1]]]] }))])),
            json!({ "events": [event("put", 1, json!({}))], "note": { "a": { "a": { "a": {} } } } })] {
            let problem = shop.refuses("POST", "write", &body, 400, "json_too_deep");
            assert!(problem["detail"].as_str().unwrap().contains(&limit.value.to_string()), "{problem}");
        }
        shop.refuses("PUT", "documents/a/1", &json!({ "x": [[[[1]]]] }), 400, "json_too_deep");
        let filter = json!({ "field": "x", "op": "=", "value": [[[[1]]]] });
        shop.refuses("POST", "count", &json!({ "collection": "a", "filter": filter }), 400, "json_too_deep");
    };
    events_per_call_max = 2, |server, limit| {
        let one = event("put", 1, json!({}));
        limit.check_post(&shop(server), "write", &write(json!([one, one])), &write(json!([one, one, one])));
        // All requests together.
        let requests = json!({ "requests": [write(json!([one, one])), write(json!([one]))] });
        limit.refuses(&shop(server).send("POST", "write", &requests.to_string()), 400, "over_limit");
    };
    requests_per_call_max = 2, |server, limit| {
        let one = write(json!([event("put", 1, json!({}))]));
        let body = |len: usize| json!({ "requests": vec![one.clone(); len] });
        limit.check_post(&shop(server), "write", &body(2), &body(3));
    };
    position_locks_per_call_max = 2, |server, limit| {
        let lock = json!({ "collection": "b", "key": 1, "position": 0 });
        let body = |len: usize| json!({ "locks": vec![lock.clone(); len], "events": [event("put", 1, json!({}))] });
        limit.check_post(&shop(server), "write", &body(2), &body(3));
    };
    note_bytes_max = 16, |server, limit| {
        let body = |name: &str, len: usize| json!({ name: "x".repeat(len), "events": [event("put", 1, json!({}))] });
        for name in ["user", "note"] {
            limit.check_post(&shop(server), "write", &body(name, 14), &body(name, 15));
        }
        let put = |len: usize| shop(server).send("PUT", &format!("documents/a/1?note={}", "x".repeat(len)), "{}");
        assert_eq!(put(14).status, 200);
        limit.refuses(&put(15), 400, "over_limit");
    };
    idempotency_key_bytes_max = 4, |server, limit| {
        let (fits, over) = limit.texts();
        let body = |key: &str| json!({ "idempotency_key": key, "events": [event("put", 1, json!({}))] });
        limit.check_post(&shop(server), "write", &body(&fits), &body(&over));
    };
    filter_conditions_max = 2, |server, limit| {
        let is = json!({ "field": "x", "op": "=", "value": 1 });
        let body = |len: usize| json!({ "collection": "a", "filter": { "or": vec![is.clone(); len] } });
        limit.check_post(&shop(server), "count", &body(2), &body(3));
    };
    filter_depth_max = 3, |server, limit| {
        let is = json!({ "field": "x", "op": "=", "value": 1 });
        let nested = |depth: usize| (1..depth).fold(is.clone(), |filter, _| json!({ "not": filter }));
        let body = |depth: usize| json!({ "collection": "a", "filter": nested(depth) });
        limit.check_post(&shop(server), "count", &body(3), &body(4));
    };
    documents_per_get_max = 2, |server, limit| {
        let body = |len: usize| json!({ "documents": vec![json!({ "collection": "a", "key": 1 }); len] });
        limit.check_post(&shop(server), "get", &body(2), &body(3));
    };
    documents_per_page_max = 2, |server, limit| {
        let shop = shop(server);
        for key in 0..3 {
            shop.create("a", key, json!({}));
        }
        let body = |len: usize| json!({ "collection": "a", "limit": len });
        limit.check_post(&shop, "filter", &body(2), &body(3));
        assert_eq!(shop.found(&json!({ "collection": "a" })).len(), 2);
        assert_eq!(shop.get("changes")["next"], 2);
        for path in ["documents/a?limit=3", "changes?limit=3", "history/a/1?limit=3"] {
            limit.refuses(&shop.send("GET", path, ""), 400, "over_limit");
        }
    };
    join_rows_max = 2, |server, limit| {
        let shop = shop(server);
        let join = |left: &str, right: &str| json!({ "left": { "collection": left, "field": "x" },
            "right": { "collection": right, "field": "x" } });
        for key in 1..=3 {
            shop.create("three", key, json!({ "x": 1 }));
        }
        shop.create("two", 1, json!({ "x": 1 }));
        shop.create("two", 2, json!({ "x": 1 }));
        // What has no value need not be remembered.
        shop.create("two", 3, json!({ "y": 1 }));
        limit.check_post(&shop, "join", &join("three", "two"), &join("two", "three"));
    };
    looks_max = 2, |server, limit| {
        let shop = shop(server);
        for key in 0..3 {
            shop.create("a", key, json!({ "x": key }));
        }
        let filter = json!({ "field": "x", "op": "=", "value": 2 });
        let body = json!({ "collection": "a", "filter": filter });
        for path in ["filter", "count", "exists"] {
            limit.refuses(&shop.send("POST", path, &body.to_string()), 400, "over_limit");
        }
        // With an index there is less to look at.
        shop.ask("PUT", "indexes/a/x", &json!(null));
        eventually("it is built", || shop.get("indexes")["indexes"][0]["state"] == "ready");
        assert_eq!(shop.post("count", &body)["count"], 1);
    };
    sort_fields_max = 2, |server, limit| {
        let body = |len: usize| json!({ "collection": "a", "sort": vec![json!({ "field": "x" }); len] });
        limit.check_post(&shop(server), "filter", &body(2), &body(3));
    };
    reserve_max = 10, |server, limit| {
        let body = |amount: u64| json!({ "collection": "a", "amount": amount });
        limit.check_post(&shop(server), "reserve", &body(10), &body(11));
        limit.refuses(&shop(server).send("POST", "reserve", &body(u64::MAX).to_string()), 400, "over_limit");
    };
    indexes_max = 2, |server, limit| {
        let shop = shop(server);
        shop.ask("PUT", "indexes/a/x", &json!(null));
        shop.ask("PUT", "indexes/b/x", &json!(null));
        shop.ask("PUT", "indexes/b/x", &json!(null));
        limit.refuses(&shop.send("PUT", "indexes/a/y", ""), 400, "over_limit");
        shop.ask("DELETE", "indexes/b/x", &json!(null));
        shop.ask("PUT", "indexes/a/y", &json!(null));
        Store::new(server, "other").ask("PUT", "indexes/a/x", &json!(null));
    };
    feeds_max = 2, |server, limit| {
        let shop = shop(server);
        let follow = || {
            let tcp = TcpStream::connect(shop.native).unwrap();
            let url = format!("ws://{}{}", shop.native, shop.target("changes"));
            tokio_tungstenite::tungstenite::client(url, tcp).unwrap().0
        };
        let followers = (follow(), follow());
        let accept = [("accept", "text/event-stream")];
        let third = || http::request(shop.native, "GET", &shop.target("changes"), &accept);
        limit.refuses(&third(), 503, "too_many");
        assert_eq!(shop.get("changes")["next"], 0, "a page is no feed");
        drop(followers);
        eventually("there is room again", || crate::metrics::value(server, "lockwood_feeds") == 0.0);
        follow();
    };
    pending_bytes_max = 1024, |server, limit| {
        let shop = shop(server);
        // Not every write meets another one; sooner or later one does.
        let writers: Vec<_> = (0..16).map(|writer| {
            let shop = shop.clone();
            std::thread::spawn(move || {
                let body = json!({ "x": "x".repeat(100_000) }).to_string();
                (0..200).map(|_| shop.send("PUT", &format!("documents/a/{writer}"), &body)).find(|reply| reply.status != 200)
            })
        }).collect();
        let refused: Vec<Reply> = writers.into_iter().filter_map(|writer| writer.join().unwrap()).collect();
        assert!(!refused.is_empty(), "nobody was refused");
        refused.iter().for_each(|reply| limit.refuses(reply, 503, "too_many"));
        shop.create("b", 1, json!({}));
    };
}

/// Namespaces with documents are limited whatever first makes them.
#[test]
fn namespaces_with_documents_are_limited() {
    let server = Server::start(&["--namespaces-max", "2"]);
    let limit = Limit { name: "namespaces_max", value: 2 };
    let store = |name: &str| Store::new(&server, name);
    store("one").create("a", 1, json!({}));
    store("two").post("reserve", &json!({ "collection": "a", "amount": 1 }));
    let three = store("three");
    let create = write(json!([event("create", 1, json!({}))])).to_string();
    limit.refuses(&three.send("POST", "write", &create), 503, "too_many");
    limit.refuses(&three.send("POST", "reserve", r#"{"collection":"a","amount":1}"#), 503, "too_many");
    limit.refuses(&three.send("PUT", "indexes/a/x", ""), 503, "too_many");
    let dump = http::request(server.native, "GET", &store("one").target("dump"), &[]).body;
    let reply = http::send(
        server.native,
        "POST",
        &three.target("load"),
        &[("content-type", "application/x-ndjson")],
        dump.as_bytes(),
    );
    limit.refuses(&reply, 503, "too_many");
    assert_eq!(three.get("position")["position"], 0, "asking is free");
}

#[test]
fn mistakes_have_their_own_codes() {
    let server = Server::start(&[]);
    let shop = shop(&server);
    shop.create("a", 1, json!({ "x": 1 }));
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let put = |key: &str, fields: &str| {
        format!(r#"{{"events":[{{"type":"put","collection":"a","key":{key},"fields":{fields}}}]}}"#)
    };
    let filter = |filter: &str| format!(r#"{{"collection":"a","filter":{filter}}}"#);
    let huge_list = format!("[{}1]", "1,".repeat(5_000_000));
    let cases = [
        ("POST", "write", "{".to_owned(), "bad_body"),
        ("POST", "write", String::new(), "bad_body"),
        ("POST", "write", "{}".to_owned(), "bad_body"),
        ("POST", "write", "[]".to_owned(), "bad_body"),
        ("POST", "write", "\u{0}".to_owned(), "bad_body"),
        ("POST", "write", r#"{"events":[]}"#.to_owned(), "bad_events"),
        (
            "POST",
            "write",
            r#"{"events":[{"type":"explode","collection":"a","key":1}]}"#.to_owned(),
            "bad_events",
        ),
        ("POST", "write", r#"{"event":[]}"#.to_owned(), "unknown_member"),
        (
            "POST",
            "write",
            r#"{"events":[{"type":"delete","collection":"a","key":1,"field":{}}]}"#.to_owned(),
            "unknown_member",
        ),
        ("POST", "write", put("1.5", "{}"), "bad_key"),
        ("POST", "write", put("\"a::b\"", "{}"), "bad_key"),
        ("POST", "write", put("[]", "{}"), "bad_key"),
        ("POST", "write", put("1", r#"{"":1}"#), "bad_field"),
        ("POST", "write", put("1", r#"{"a\u0000":1}"#), "bad_field"),
        ("POST", "write", put("1", r#"{"meta_position":1}"#), "reserved_field"),
        ("POST", "write", put("1", r#"{"x":1,"x":2}"#), "bad_body"),
        ("POST", "write", put("1", r#"{"x":"\ud800"}"#), "bad_body"),
        ("POST", "write", put("1", &format!(r#"{{"x":{deep}}}"#)), "json_too_deep"),
        ("POST", "write", put("1", &format!(r#"{{"x":{huge_list}}}"#)), "over_limit"),
        ("POST", "write", put("1", &format!(r#"{{"x":"{}"}}"#, "x".repeat(20_000_000))), "over_limit"),
        (
            "POST",
            "write",
            r#"{"events":[{"type":"delete","collection":"","key":1}]}"#.to_owned(),
            "bad_collection",
        ),
        (
            "POST",
            "write",
            r#"{"events":[{"type":"update","collection":"a","key":1}]}"#.to_owned(),
            "bad_events",
        ),
        (
            "POST",
            "write",
            r#"{"events":[{"type":"update","collection":"a","key":1,"add":{"x":[1.5]}}]}"#.to_owned(),
            "not_a_list",
        ),
        ("POST", "filter", filter("1"), "bad_filter"),
        ("POST", "filter", filter("{}"), "bad_filter"),
        ("POST", "filter", filter(r#"{"field":"x","op":"==","value":1}"#), "bad_filter"),
        ("POST", "filter", filter(r#"{"field":"x","op":"=","value":1,"not":{}}"#), "bad_filter"),
        ("POST", "filter", filter(r#"{"field":"","op":"=","value":1}"#), "bad_field"),
        ("POST", "filter", filter(&format!(r#"{{"field":"x","op":"=","value":{deep}}}"#)), "json_too_deep"),
        ("POST", "filter", r#"{"collection":"a","colour":1}"#.to_owned(), "unknown_member"),
        ("POST", "filter", r#"{"collection":"a","cursor":"nonsense"}"#.to_owned(), "bad_cursor"),
        ("POST", "filter", r#"{"collection":"a","cursor":"7b7d"}"#.to_owned(), "bad_cursor"),
        ("POST", "filter", r#"{"collection":"a","limit":0}"#.to_owned(), "bad_body"),
        ("POST", "filter", r#"{"collection":"a","limit":-1}"#.to_owned(), "bad_body"),
        ("POST", "filter", r#"{"collection":"a","deleted":"maybe"}"#.to_owned(), "bad_body"),
        ("POST", "get", r#"{"documents":[{"collection":"a"}]}"#.to_owned(), "bad_body"),
        ("POST", "get", r#"{"documents":[],"fields":["meta_deleted"]}"#.to_owned(), "reserved_field"),
        ("POST", "min", r#"{"collection":"a"}"#.to_owned(), "bad_body"),
        ("POST", "reserve", r#"{"collection":"a","amount":-1}"#.to_owned(), "bad_body"),
        ("GET", "documents/a/1?colour=red", String::new(), "bad_query"),
        ("GET", "documents/a/1?at=x", String::new(), "bad_query"),
        ("GET", "documents/a/1?fields=", String::new(), "bad_field"),
        ("GET", "documents/a/%25zz", String::new(), "bad_key"),
        ("GET", "documents/a/%FF", String::new(), "bad_path"),
        ("GET", "documents/a?cursor=zz", String::new(), "bad_cursor"),
        ("GET", "changes?limit=0", String::new(), "bad_query"),
        ("GET", "history/a/1?limit=0", String::new(), "bad_query"),
        ("GET", "documents/a?limit=0", String::new(), "bad_query"),
        ("GET", "changes?after=-1", String::new(), "bad_query"),
        ("GET", "changes?after=1&colour=red", String::new(), "bad_query"),
        ("GET", "changes?collection=", String::new(), "bad_collection"),
        ("GET", "changes?field=a,,b", String::new(), "bad_field"),
        ("GET", "history/a/1?after=x", String::new(), "bad_query"),
        ("GET", "history/a/a::b", String::new(), "bad_key"),
        ("PUT", "documents/a/1", "[]".to_owned(), "bad_body"),
        ("PUT", "documents/a/1?colour=red", "{}".to_owned(), "bad_query"),
    ];
    for (method, path, body, code) in &cases {
        let reply = shop.send(method, path, body);
        let shown: String = body.chars().take(80).collect();
        assert_eq!(reply.json()["code"], *code, "{method} {path} {shown}: {}", reply.body);
        reply.assert_problem(400, code);
    }
    let typed = [("content-type", "text/plain")];
    let reply = http::send(shop.native, "POST", &shop.target("write"), &typed, b"{}");
    reply.assert_problem(415, "unsupported_media_type");
    let reply = http::send(shop.native, "POST", "/v1/trim", &[], br#"{"keep":1}"#);
    reply.assert_problem(400, "unknown_member");
    for (method, path) in
        [("PATCH", "documents/a/1"), ("GET", "write"), ("DELETE", "changes"), ("POST", "dump")]
    {
        shop.send(method, path, "{}").assert_problem(405, "method_not_allowed");
    }
    // The largest positions there are.
    let most = u64::MAX;
    for path in [
        format!("changes?after={most}"),
        format!("history/a/1?after={most}"),
        format!("documents/a/1?at={most}"),
    ] {
        shop.send("GET", &path, "").assert_problem(409, "position_ahead");
    }
    assert_eq!(shop.get("position")["position"], 1, "nothing was written");
}

/// A generator of pseudo-random numbers, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % below.max(1)
    }

    /// The text with a few bytes or members changed.
    fn damaged(&mut self, text: &str) -> Vec<u8> {
        const PIECES: [&str; 22] = [
            "null",
            "-1",
            "1e999",
            "18446744073709551616",
            "\"\"",
            "[]",
            "{}",
            "[[[[",
            "\\ud800",
            "\u{0}",
            "\"meta_deleted\"",
            "\"type\":",
            "\"not\":",
            "true",
            ",",
            ":",
            "\"",
            "{\"and\":[",
            "\u{fffd}",
            "%",
            "9223372036854775807",
            "\"%=\"",
        ];
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..=self.next(3) {
            let at = self.next(bytes.len() + 1);
            let end = (at + self.next(6)).min(bytes.len());
            match self.next(5) {
                0 => drop(bytes.drain(at..end)),
                1 => drop(bytes.splice(at..end, PIECES[self.next(PIECES.len())].bytes()).count()),
                2 => {
                    let copy = bytes[at..(at + self.next(40)).min(bytes.len())].to_vec();
                    bytes.splice(at..at, copy);
                }
                3 if at < bytes.len() => bytes[at] = self.next(256) as u8,
                _ => bytes.truncate(at.max(1)),
            }
        }
        bytes
    }
}

/// Thousands of damaged requests: an answer to each, never one that says that the server is at fault.
#[test]
fn damaged_requests_do_no_harm() {
    let count: usize = std::env::var("LOCKWOOD_FUZZ_COUNT").map_or(3000, |text| text.parse().unwrap());
    let seed: u64 = std::env::var("LOCKWOOD_FUZZ_SEED").map_or(1, |text| text.parse().unwrap());
    let server = Server::start(&[]);
    let shop = shop(&server);
    let whole = [
        (
            "write",
            r#"{"events":[{"type":"create","collection":"a","key":["x",7],"fields":{"a":1.5,"b":[1,"x"],"c":null}}],"user":{"id":7},"note":"n","idempotency_key":"k"}"#,
        ),
        (
            "write",
            r#"{"requests":[{"events":[{"type":"put","collection":"a","key":"x:7","fields":{}}],"locks":[{"collection":"a","key":1,"field":"x","position":3}]},{"events":[{"type":"delete","collection":"a","key":7}]}]}"#,
        ),
        (
            "write",
            r#"{"events":[{"type":"update","collection":"a","key":7,"fields":{"x":null},"add":{"b":[2,"y"]},"remove":{"b":[1]}},{"type":"restore","collection":"a","key":8}],"locks":[{"collection":"a","field":"b","filter":{"field":"x","op":">","value":3},"position":1}]}"#,
        ),
        (
            "filter",
            r#"{"collection":"a","filter":{"or":[{"and":[{"field":"x","op":">=","value":1.5},{"not":{"field":"b","op":"%=","value":"_%"}}]},{"field":"c","op":"=","value":null}]},"sort":[{"field":"x","descending":true}],"limit":5,"deleted":"with","fields":["x"],"at":3}"#,
        ),
        ("count", r#"{"collection":"a","filter":{"field":"b","op":"~=","value":"\u00e9"},"at":0}"#),
        (
            "max",
            r#"{"collection":"a","field":"x","filter":{"not":{"not":{"field":"b","op":"!=","value":[1,2]}}}}"#,
        ),
        (
            "get",
            r#"{"documents":[{"collection":"a","key":7,"fields":["x"]},{"collection":"a","key":"x:7"}],"deleted":"only"}"#,
        ),
        ("reserve", r#"{"collection":"a","amount":3}"#),
        (
            "load",
            "{\"lockwood\":\"dump\",\"format\":1,\"namespace\":\"x\",\"position\":2,\"horizon\":1}\n{\"document\":{\"collection\":\"a\",\"key\":\"1\",\"created\":1,\"position\":1,\"existence\":1,\"deleted\":false,\"version\":1,\"fields\":{\"x\":1}}}\n{\"commit\":{\"position\":2,\"at\":9,\"events\":[{\"type\":\"updated\",\"collection\":\"a\",\"key\":\"1\",\"fields\":{\"x\":2},\"removed\":[\"y\"]}]}}\n{\"counter\":{\"collection\":\"a\",\"next\":9}}\n{\"end\":{\"lines\":4}}\n",
        ),
    ];
    let mut random = Random(seed);
    let mut taken = 0;
    for round in 0..count {
        let (path, text) = whole[random.next(whole.len())];
        let body = random.damaged(text);
        let (target, kind) = match path {
            "load" => (format!("/v1/load{round}/load"), "application/x-ndjson"),
            path => (shop.target(path), "application/json"),
        };
        let reply = http::send(shop.native, "POST", &target, &[("content-type", kind)], &body);
        let shown = String::from_utf8_lossy(&body).into_owned();
        assert!(reply.status == 200 || (400..500).contains(&reply.status), "{path} {shown}: {reply:?}");
        assert!(serde_json::from_str::<Value>(&reply.body).is_ok(), "{path} {shown}: {reply:?}");
        taken += usize::from(reply.status == 200);
    }
    assert!(taken > count / 100, "{taken} of {count} were good after all");
    // It still answers, and what was written is sound.
    shop.create("after", 1, json!({}));
    let position = shop.get("position")["position"].as_u64().unwrap();
    assert_eq!(shop.get("changes?after=0")["position"], position);
    let dump = http::request(shop.native, "GET", &shop.target("dump"), &[]).body;
    let copy = Store { namespace: "copy".into(), ..shop };
    let loaded = http::send(
        copy.native,
        "POST",
        &copy.target("load"),
        &[("content-type", "application/x-ndjson")],
        dump.as_bytes(),
    );
    assert_eq!(loaded.json()["position"], position, "{loaded:?}");
}

/// Addresses that nobody meant to send.
#[test]
fn odd_addresses_do_no_harm() {
    let server = Server::start(&[]);
    let shop = shop(&server);
    shop.create("a", 1, json!({ "x": 1 }));
    let mut random = Random(7);
    let pieces = [
        "a",
        "1",
        "%00",
        "%FF",
        "%25",
        "%2F",
        "..",
        "%25_",
        ":",
        "::",
        "%3A",
        "é",
        "documents",
        "history",
        "x".repeat(600).as_str(),
        "?at=0",
        "?at=18446744073709551615",
        "?fields=x",
        "?limit=1",
        "?after=18446744073709551615",
        "?cursor=00",
        "&",
        "=",
        ",",
    ]
    .map(str::to_owned);
    for _ in 0..500 {
        let mut target = "/v1/shop".to_owned();
        for _ in 0..=random.next(5) {
            if random.next(3) > 0 && !target.contains('?') {
                target.push('/');
            }
            target += &pieces[random.next(pieces.len())];
        }
        let target: String = target
            .chars()
            .map(|char| if char.is_ascii() { char.to_string() } else { "%C3%A9".into() })
            .collect();
        let reply = http::request(shop.native, "GET", &target, &[]);
        assert!(reply.status == 200 || (400..500).contains(&reply.status), "{target}: {reply:?}");
    }
    assert_eq!(shop.get("position")["position"], 1);
}
