//! The addresses of the facade over plain HTTP: the handshake and its refusals, statistics, the status page.

use crate::{
    client::{Client, check_usable, stat},
    harness::Server,
    raw::{Raw, Response, UPGRADE, get, request},
};

#[track_caller]
fn check_400(server: &Server, query: &str, named: &str) {
    // Whether the rest is a handshake makes no difference: these are looked at first.
    for headers in ["", UPGRADE] {
        let response = request(server.locktopus, "GET", &format!("/v1{query}"), headers);
        assert_eq!(response.status, 400, "{query}: {response:?}");
        assert!(response.body.contains(named), "{query}: {response:?}");
        assert!(response.header("Content-Type").unwrap().starts_with("text/plain"), "{query}: {response:?}");
    }
}

#[test]
fn the_namespace_is_required() {
    let server = Server::start(&[]);
    for query in ["", "?", "?namespace", "?namespace=", "?Namespace=n", "?x=1", "?namespace=&namespace=n"] {
        check_400(&server, query, "'namespace'");
    }
    check_usable(&server, "n");
}

#[test]
fn the_abandon_timeout_is_a_number_from_0() {
    let server = Server::start(&[]);
    let wrong = ["", "-1", "x", "1x", "1.5", "1e3", "0x10", "%201", "1%20", "9223372036854775808"];
    for value in wrong.into_iter().chain(["99999999999999999999", "-9223372036854775808"]) {
        check_400(&server, &format!("?namespace=n&abandon-timeout-ms={value}"), "'abandon-timeout-ms'");
    }
    for value in ["0", "1", "007", "%2B5", "86400000", "9223372036854775807"] {
        Client::connect_with(&server, &format!("namespace=n&abandon-timeout-ms={value}")).close(1000);
    }
    // The first of several counts.
    check_400(&server, "?namespace=n&abandon-timeout-ms=x&abandon-timeout-ms=1", "'abandon-timeout-ms'");
    Client::connect_with(&server, "namespace=n&abandon-timeout-ms=1&abandon-timeout-ms=x").close(1000);
}

#[test]
fn mistakes_are_reported_in_order() {
    let server = Server::start(&[]);
    check_400(&server, "?abandon-timeout-ms=x", "'namespace'");
    check_400(&server, "?namespace=n&abandon-timeout-ms=x", "'abandon-timeout-ms'");
    let response = request(server.locktopus, "POST", "/v1?namespace=n&abandon-timeout-ms=x", UPGRADE);
    assert_eq!(response.status, 400, "{response:?}");
    let response = request(server.locktopus, "POST", "/v1", UPGRADE);
    assert_eq!(response.status, 400, "{response:?}");
}

#[test]
fn what_is_no_handshake() {
    let server = Server::start(&[]);
    let connect = "Connection: Upgrade\r\n";
    let whole = format!("{connect}{UPGRADE}");
    let without = |part: &str| {
        assert!(whole.contains(part));
        whole.replace(part, "")
    };
    let cases = [
        String::new(),
        UPGRADE.to_owned(),
        without("Upgrade: websocket\r\n"),
        without("Sec-WebSocket-Version: 13\r\n"),
        without("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"),
        whole.replace("Version: 13", "Version: 12"),
        whole.replace("Version: 13", "Version: x"),
        whole.replace("Upgrade: websocket", "Upgrade: h2c"),
    ];
    for headers in cases {
        let response = request(server.locktopus, "GET", "/v1?namespace=n", &headers);
        assert_eq!(response.status, 400, "{headers}: {response:?}");
        assert_eq!(response.header("Sec-Websocket-Version"), Some("13"), "{headers}: {response:?}");
    }
    for method in ["POST", "PUT", "DELETE"] {
        let response = request(server.locktopus, method, "/v1?namespace=n", &whole);
        assert_eq!(response.status, 405, "{method}: {response:?}");
    }
    // No refusal made the namespace.
    assert_eq!(get(server.locktopus, "/stats_v1?namespace=n").status, 404);
    check_usable(&server, "n");
}

#[test]
fn nothing_offered_is_negotiated() {
    let server = Server::start(&[]);
    let offers = "Sec-WebSocket-Protocol: locktopus, chat\r\n\
                  Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
    let raw = Raw::open(server.locktopus, "/v1?namespace=n&x=y", offers);
    assert_eq!(raw.response.header("Sec-WebSocket-Protocol"), None);
    assert_eq!(raw.response.header("Sec-WebSocket-Extensions"), None);
}

#[test]
fn namespaces_are_decoded_and_the_first_counts() {
    let server = Server::start(&[]);
    let mut first = Client::connect_with(&server, "namespace=a%20b%2Fc&namespace=other");
    assert_eq!(first.lock("w x"), "acquired");
    let mut same = Client::connect_with(&server, "other=1&namespace=a+b/c");
    assert_eq!(same.lock("w x"), "enqueued");
    let mut other = Client::connect_with(&server, "namespace=other");
    assert_eq!(other.lock("w x"), "acquired");
    assert_eq!(stat(&server, "a%20b%2Fc&namespace=other", "GroupsAcquired"), 1);
    first.release();
    same.granted();
}

#[test]
fn a_namespace_is_there_right_after_the_handshake() {
    let server = Server::start(&[]);
    for index in 0..50 {
        let namespace = format!("n{index}");
        assert_eq!(get(server.locktopus, &format!("/stats_v1?namespace={namespace}")).status, 404);
        let _client = Client::connect(&server, &namespace);
        assert_eq!(get(server.locktopus, &format!("/stats_v1?namespace={namespace}")).status, 200);
    }
}

const STATS: [&str; 9] = [
    "LastGroupID",
    "GroupsPending",
    "GroupsAcquired",
    "LocksPending",
    "LocksAcquired",
    "LockrefCount",
    "TokensTotal",
    "TokensUnique",
    "PathCount",
];

#[track_caller]
fn check_stats(server: &Server, expected: &[(&str, u64)]) {
    let response = get(server.locktopus, "/stats_v1?namespace=n");
    assert_eq!(response.status, 200, "{response:?}");
    let stats: serde_json::Value = serde_json::from_str(&response.body).unwrap();
    let stats = stats.as_object().unwrap();
    let mut names: Vec<&str> = stats.keys().map(String::as_str).collect();
    let mut wanted = STATS.to_vec();
    names.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(names, wanted);
    assert!(stats.values().all(serde_json::Value::is_u64), "{response:?}");
    for (name, value) in expected {
        assert_eq!(stats[*name].as_u64(), Some(*value), "{name}: {response:?}");
    }
}

#[test]
fn statistics() {
    let server = Server::start(&[]);
    for query in ["", "?", "?namespace=", "?x=1"] {
        let response = get(server.locktopus, &format!("/stats_v1{query}"));
        assert_eq!(response.status, 400, "{response:?}");
        assert!(response.body.contains("'namespace'"), "{response:?}");
    }
    assert_eq!(get(server.locktopus, "/stats_v1?namespace=n").status, 404);
    let mut holder = Client::connect(&server, "n");
    check_stats(
        &server,
        &[("LastGroupID", 0), ("GroupsAcquired", 0), ("TokensTotal", 1), ("TokensUnique", 1)],
    );
    check_stats(&server, &[("PathCount", 0), ("LockrefCount", 0)]);
    assert_eq!(holder.lock("w a/b, r c"), "acquired");
    let mut waiter = Client::connect(&server, "n");
    assert_eq!(waiter.lock("w a, w c, w d"), "enqueued");
    check_stats(&server, &[("LastGroupID", 2), ("GroupsAcquired", 1), ("GroupsPending", 1)]);
    check_stats(&server, &[("LocksAcquired", 2), ("LocksPending", 3)]);
    holder.release();
    waiter.granted();
    check_stats(&server, &[("LastGroupID", 2), ("GroupsAcquired", 1), ("GroupsPending", 0)]);
    waiter.release();
    check_stats(
        &server,
        &[("LastGroupID", 2), ("GroupsAcquired", 0), ("TokensTotal", 1), ("TokensUnique", 1)],
    );
    for method in ["POST", "PUT"] {
        assert_eq!(request(server.locktopus, method, "/stats_v1?namespace=n", "").status, 200, "{method}");
    }
}

#[test]
fn the_status_page() {
    let server = Server::start(&["--locktopus-default-abandon-timeout", "12345"]);
    let page = get(server.locktopus, "/");
    assert_eq!(page.status, 200);
    assert!(page.header("Content-Type").unwrap().starts_with("text/plain"), "{page:?}");
    assert_eq!(page.header("Access-Control-Allow-Origin"), None);
    for part in ["/v1", "/stats_v1", "default abandon timeout: 12345 ms", "No namespaces are open"] {
        assert!(page.body.contains(part), "{part}: {}", page.body);
    }
    let _client = Client::connect(&server, "some%0Aspace");
    let page = get(server.locktopus, "/");
    assert!(page.body.contains("  some\\nspace\n"), "{}", page.body);
    assert_eq!(request(server.locktopus, "POST", "/", "").status, 200);
}

#[test]
fn pages_of_other_sites_take_no_locks() {
    let server = Server::start(&[]);
    let origin = "Origin: http://example.com\r\n";
    let handshake = format!("Connection: Upgrade\r\n{UPGRADE}{origin}");
    for (target, headers) in
        [("/v1?namespace=n", handshake.as_str()), ("/stats_v1?namespace=n", origin), ("/", origin)]
    {
        let response = request(server.locktopus, "GET", target, headers);
        assert_eq!(response.status, 403, "{target}: {response:?}");
        assert!(response.header("Content-Type").unwrap().starts_with("text/plain"), "{response:?}");
        assert!(response.body.contains("--allow-origin http://example.com"), "{response:?}");
    }
    let preflight = format!("{origin}Access-Control-Request-Method: GET\r\n");
    assert_eq!(request(server.locktopus, "OPTIONS", "/v1?namespace=n", &preflight).status, 403);
    // No refusal made the namespace.
    assert_eq!(get(server.locktopus, "/stats_v1?namespace=n").status, 404);
    check_usable(&server, "n");
}

#[test]
fn pages_of_allowed_sites_take_locks() {
    let server = Server::start(&["--allow-origin", "http://example.com"]);
    let origin = "Origin: http://example.com\r\n";
    let allowed =
        |response: &Response| response.header("Access-Control-Allow-Origin") == Some("http://example.com");
    let raw = Raw::open(server.locktopus, "/v1?namespace=n", origin);
    assert!(allowed(&raw.response), "{:?}", raw.response);
    for (target, status) in [("/v1", 400), ("/stats_v1?namespace=n", 200), ("/nothing", 404)] {
        let response = request(server.locktopus, "GET", target, origin);
        assert_eq!(response.status, status, "{target}");
        assert!(allowed(&response), "{target}: {response:?}");
    }
}

#[test]
fn there_is_nothing_else() {
    let server = Server::start(&[]);
    for target in ["/v1/", "/v1/?namespace=n", "/V1?namespace=n", "/stats", "/stats_v1/", "/v2", "//", "/x"] {
        for headers in ["", UPGRADE] {
            let response = request(server.locktopus, "GET", target, headers);
            assert_eq!(response.status, 404, "{target}: {response:?}");
            assert!(response.header("Content-Type").unwrap().starts_with("text/plain"), "{response:?}");
        }
    }
    check_usable(&server, "n");
}

/// The numbers that a running Locktopus gives for the same locks.
#[test]
fn statistics_count_as_the_original_does() {
    let cases: [(&str, [u64; 5]); 6] = [
        ("w a/b/c", [1, 4, 4, 4, 4]),
        ("w a/b/a, w a/b/c", [2, 5, 7, 4, 5]),
        ("r a/x, r b/x", [2, 6, 5, 4, 5]),
        ("r a, w a/b", [2, 4, 4, 3, 3]),
        ("w a, w a/b, w a/b/c", [1, 2, 7, 4, 2]),
        ("w a, w a", [1, 2, 3, 2, 2]),
    ];
    let server = Server::start(&[]);
    let mut client = Client::connect(&server, "n");
    for (lock, [locks, lockrefs, tokens, unique, paths]) in cases {
        assert_eq!(client.lock(lock), "acquired");
        check_stats(&server, &[("LocksAcquired", locks), ("LockrefCount", lockrefs), ("PathCount", paths)]);
        check_stats(&server, &[("TokensTotal", tokens), ("TokensUnique", unique)]);
        client.release();
    }
    assert_eq!(client.lock("w a/b"), "acquired");
    let mut other = Client::connect(&server, "n");
    assert_eq!(other.lock("r a/c"), "acquired");
    check_stats(&server, &[("LocksAcquired", 2), ("LockrefCount", 6), ("PathCount", 4), ("TokensTotal", 5)]);
    client.release();
    other.release();
    check_stats(&server, &[("LocksAcquired", 0), ("LockrefCount", 0), ("PathCount", 0), ("TokensTotal", 1)]);
}
