//! Web pages of other sites, and what nobody may see.

use crate::{
    harness::Server,
    http::{Reply, get, request},
    peer::Peer,
};
use serde_json::json;

const HANDSHAKE: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

fn handshake(server: &Server, headers: &[(&str, &str)]) -> Reply {
    let headers: Vec<_> = HANDSHAKE.iter().chain(headers).copied().collect();
    request(server.native, "GET", "/v1/default/session", &headers)
}

#[test]
fn a_request_for_another_host_is_refused() {
    let server = Server::start(&[]);
    for host in ["evil.example", "localhost.evil.example:7117", "192.0.2.1", ""] {
        for target in ["/v1/namespaces", "/v1/default/locks", "/metrics", "/nowhere"] {
            request(server.native, "GET", target, &[("host", host)]).assert_problem(403, "foreign_host");
        }
        let reply = request(server.native, "DELETE", "/v1/default/locks/1", &[("host", host)]);
        reply.assert_problem(403, "foreign_host");
    }
}

#[test]
fn a_request_on_behalf_of_a_foreign_page_is_refused() {
    let server = Server::start(&[]);
    for origin in ["http://evil.example", "null", "http://localhost:1", "file://"] {
        let headers = [("origin", origin)];
        request(server.native, "GET", "/v1/namespaces", &headers).assert_problem(403, "foreign_origin");
        let reply = request(server.native, "DELETE", "/v1/default/locks/1", &headers);
        reply.assert_problem(403, "foreign_origin");
    }
}

#[test]
fn own_names_and_own_pages_are_welcome() {
    let server = Server::start(&["--allow-host", "locks.example", "--host", "old.example"]);
    let port = server.native.port();
    let own = [
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        "locks.example".into(),
        "old.example".into(),
    ];
    for host in own {
        let origin = format!("http://{host}");
        let headers = [("host", host.as_str()), ("origin", origin.as_str())];
        assert_eq!(request(server.native, "GET", "/v1/namespaces", &headers).status, 200, "{host}");
    }
}

#[test]
fn a_handshake_for_another_host_or_a_foreign_page_is_refused() {
    let server = Server::start(&[]);
    handshake(&server, &[("host", "evil.example")]).assert_problem(403, "foreign_host");
    handshake(&server, &[("origin", "http://evil.example")]).assert_problem(403, "foreign_origin");
}

#[test]
fn what_is_no_handshake_is_told_so() {
    let server = Server::start(&[]);
    get(&server, "/v1/default/session").assert_problem(400, "not_websocket");
    let without = |name: &str| {
        let headers: Vec<_> = HANDSHAKE.iter().filter(|(found, _)| *found != name).copied().collect();
        request(server.native, "GET", "/v1/default/session", &headers)
    };
    for name in ["upgrade", "sec-websocket-version", "sec-websocket-key"] {
        without(name).assert_problem(400, "not_websocket");
    }
    let reply = request(server.native, "POST", "/v1/default/session", &HANDSHAKE);
    reply.assert_problem(405, "method_not_allowed");
}

#[test]
fn secrets_are_in_no_listing_and_no_log() {
    let server = Server::start_with_env(&["--drain-timeout", "0"], &[("RUST_LOG", "trace")]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write a");
    let queued = bob.queue("write a");
    let mut thief = Peer::connect(&server, "default");
    let mut attach = ann.attach_message(&json!([]));
    attach["session"] = bob.session.clone().into();
    thief.ask(attach);
    let (again, _) = ann.attach(&server, &json!([]));
    let secrets = [ann.secret.clone(), bob.secret.clone()];
    let refusal = Peer::open(&server, "eve").lock("write a", 0);
    let mut seen = vec![queued.to_string(), refusal.to_string()];
    let one = format!("/v1/default/locks/{}", held.lock);
    for target in [
        "/v1/namespaces",
        "/v1/default/locks",
        &one,
        "/v1/default/tree",
        "/v1/default/waits",
        "/metrics",
        "/readyz",
    ] {
        seen.push(get(&server, target).body);
    }
    seen.push(request(server.native, "DELETE", &one, &[]).body);
    seen.push(get(&server, "/v1/default/operator-log").body);
    drop((ann, bob, again));
    let ended = server.stop();
    assert!(ended.log.contains("an operator ended a lock"), "the log is on: {}", ended.log);
    seen.push(ended.log);
    for text in seen {
        assert!(secrets.iter().all(|secret| !text.contains(secret)), "a secret in {text}");
    }
}
