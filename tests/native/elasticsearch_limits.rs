//! The limits of the Elasticsearch facade: what is at the limit is taken, what is one past it is refused by name.

use crate::{
    harness::Server,
    http::{self, Reply},
    limits::Limit,
};
use serde_json::json;

pub(crate) const COVERED: &[&str] =
    &["script_bytes_max", "bulk_items_max", "names_per_address_max", "scrolls_max", "scroll_ttl_ms_max"];

fn start(limit: &Limit) -> Server {
    let flag = format!("--{}", limit.name.replace('_', "-"));
    Server::start(&["--elasticsearch", "127.0.0.1:0", &flag, &limit.value.to_string()])
}

fn post(server: &Server, target: &str, body: &str) -> Reply {
    http::send(server.elasticsearch(), "POST", target, &[], body.as_bytes())
}

#[track_caller]
fn assert_refused(limit: &Limit, reply: &Reply, status: u16) {
    assert_eq!(reply.status, status, "{reply:?}");
    limit.assert_named(reply.json()["error"]["reason"].as_str().unwrap());
}

#[test]
fn script_bytes_max() {
    let limit = Limit { name: "script_bytes_max", value: 30 };
    let server = start(&limit);
    let update = |script: &str| json!({ "upsert": {}, "script": script }).to_string();
    let script = format!("{:<30}", "ctx.op = 'none'");
    assert_eq!(post(&server, "/fs/file/1/_update", &update(&script)).status, 201);
    assert_refused(&limit, &post(&server, "/fs/file/1/_update", &update(&(script + " "))), 400);
}

#[test]
fn bulk_items_max() {
    let limit = Limit { name: "bulk_items_max", value: 2 };
    let server = start(&limit);
    let line = "{\"delete\":{\"_id\":1}}\n";
    assert_eq!(post(&server, "/fs/file/_bulk", &line.repeat(2)).status, 200);
    assert_refused(&limit, &post(&server, "/fs/file/_bulk", &line.repeat(3)), 400);
}

#[test]
fn names_per_address_max() {
    let limit = Limit { name: "names_per_address_max", value: 2 };
    let server = start(&limit);
    for index in ["a", "b", "c"] {
        post(&server, &format!("/{index}/file"), "{}");
    }
    for (taken, refused, action) in [
        ("/a,b", "/a,b,c", "_search"),
        ("/a*,b", "/a*,b*,c", "_count"),
        ("/a/file,lock", "/a/file,lock,x*", "_search"),
        ("/a,b", "/a,b,c", "_refresh"),
        ("/_cluster/health/a,b", "/_cluster/health/a,b,c", ""),
        ("/_cat/indices/a,b", "/_cat/indices/a,b,c", ""),
        ("/a,b/_mapping", "/a,b,c/_mapping", ""),
    ] {
        let ask = |path: &str| {
            let target = format!("{path}/{action}");
            http::send(server.elasticsearch(), "GET", target.trim_end_matches('/'), &[], b"")
        };
        assert_eq!(ask(taken).status, 200, "{taken}");
        assert_refused(&limit, &ask(refused), 400);
    }
    let all = json!({ "query": { "match_all": {} } }).to_string();
    assert_refused(&limit, &post(&server, "/a,b,c/_delete_by_query", &all), 400);
    let deleted = post(&server, "/a,b/_delete_by_query", &all);
    assert_eq!(deleted.json()["deleted"], 2, "{deleted:?}");
}

#[test]
fn scrolls_max() {
    let limit = Limit { name: "scrolls_max", value: 2 };
    let server = start(&limit);
    post(&server, "/fs/file", "{}");
    let open = |keep: &str| post(&server, &format!("/fs/_search?scroll={keep}"), "");
    let first = open("1m").json()["_scroll_id"].clone();
    assert_eq!(open("50ms").status, 200);
    assert_refused(&limit, &open("1m"), 429);
    // One that nobody asked for in time makes room, and so does one that is cleared.
    std::thread::sleep(std::time::Duration::from_millis(60));
    assert_eq!(open("1m").status, 200);
    let body = json!({ "scroll_id": first }).to_string();
    let cleared = http::send(server.elasticsearch(), "DELETE", "/_search/scroll", &[], body.as_bytes());
    assert_eq!(cleared.status, 200, "{cleared:?}");
    assert_eq!(open("1m").status, 200);
}

#[test]
fn scroll_ttl_ms_max() {
    let limit = Limit { name: "scroll_ttl_ms_max", value: 1000 };
    let server = start(&limit);
    post(&server, "/fs/file", "{}");
    assert_eq!(post(&server, "/fs/_search?scroll=1s", "").status, 200);
    assert_refused(&limit, &post(&server, "/fs/_search?scroll=1001ms", ""), 400);
}
