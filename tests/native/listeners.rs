//! `Host` and `Origin` are checked alike on every listener, WebSocket handshakes included.

use crate::{
    harness::Server,
    http::{Reply, request},
};
use std::net::SocketAddr;

const ORIGIN: &str = "https://app.example:8443";

/// A listener, an address on it that answers, and how it writes a refusal.
struct Listener {
    name: &'static str,
    address: SocketAddr,
    target: &'static str,
    refusal: &'static str,
}

fn all_listeners(server: &Server) -> [Listener; 6] {
    let listener = |name, address, target, refusal| Listener { name, address, target, refusal };
    [
        listener("native", server.native, "/v1/namespaces", "\"code\":\"foreign_"),
        listener("locktopus", server.locktopus, "/", ""),
        listener("reader", server.openslides_reader(), "/internal/datastore/reader/health", "{\"error\":\""),
        listener("writer", server.openslides_writer(), "/internal/datastore/writer/health", "{\"error\":\""),
        listener("elasticsearch", server.elasticsearch(), "/", "\"type\":\"security_exception\""),
        listener("schema registry", server.schema_registry(), "/subjects", "\"error_code\":403"),
    ]
}

fn start(flags: &[&str]) -> Server {
    let facades = [
        "--openslides",
        "127.0.0.1:0,127.0.0.1:0",
        "--elasticsearch",
        "127.0.0.1:0",
        "--schema-registry",
        "127.0.0.1:0",
    ];
    Server::start(&[&facades[..], flags].concat())
}

fn ask(listener: &Listener, headers: &[(&str, &str)]) -> Reply {
    request(listener.address, "GET", listener.target, headers)
}

#[test]
fn every_listener_refuses_a_foreign_host_and_a_foreign_page() {
    let server = start(&[]);
    for listener in all_listeners(&server) {
        assert_eq!(ask(&listener, &[]).status, 200, "{}", listener.name);
        let own = format!("http://{}", listener.address);
        assert_eq!(ask(&listener, &[("origin", &own)]).status, 200, "{}", listener.name);
        let foreign = [("host", "evil.example"), ("origin", "http://evil.example"), ("origin", "null")];
        for header in foreign {
            let reply = ask(&listener, &[header]);
            assert_eq!(reply.status, 403, "{} {header:?}: {reply:?}", listener.name);
            assert!(reply.body.contains(listener.refusal), "{}: {reply:?}", listener.name);
            assert!(reply.body.contains("--allow-"), "{}: {reply:?}", listener.name);
        }
    }
}

#[test]
fn every_listener_admits_allowed_hosts_and_lets_allowed_pages_see_answers() {
    let server = start(&["--allow-host", "store.example", "--allow-origin", ORIGIN]);
    for listener in all_listeners(&server) {
        assert_eq!(ask(&listener, &[("host", "store.example")]).status, 200, "{}", listener.name);
        let reply = ask(&listener, &[("origin", ORIGIN)]);
        assert_eq!(reply.status, 200, "{}: {reply:?}", listener.name);
        let allowed = format!("access-control-allow-origin: {ORIGIN}");
        assert!(reply.head.contains(&allowed), "{}: {reply:?}", listener.name);
        assert_eq!(ask(&listener, &[("origin", "https://app.example")]).status, 403, "{}", listener.name);
        let preflight = [
            ("origin", ORIGIN),
            ("access-control-request-method", "PUT"),
            ("access-control-request-headers", "content-type,x-own"),
        ];
        let reply = request(listener.address, "OPTIONS", listener.target, &preflight);
        assert_eq!(reply.status, 204, "{}: {reply:?}", listener.name);
        for line in [
            allowed.as_str(),
            "access-control-allow-methods: put",
            "access-control-allow-headers: content-type,x-own",
        ] {
            assert!(reply.head.contains(line), "{} {line}: {reply:?}", listener.name);
        }
    }
}

#[test]
fn an_origin_with_a_path_is_refused_at_the_start() {
    let wrong = ["https://app.example/", "app.example", "https://", ""];
    for origin in wrong {
        let mut command = std::process::Command::new(crate::harness::BINARY);
        let output =
            command.args(["serve", "--data", "/nonexistent/data", "--allow-origin", origin]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2), "{origin:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("without a path"), "{origin:?}: {said}");
    }
}
