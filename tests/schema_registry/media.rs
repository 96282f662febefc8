//! Media types of bodies and answers.

use crate::{
    http::{self, Reply},
    registry::{KIND, Registry, sent, typed},
};

const DEFAULT: &str = "application/vnd.schemaregistry+json";
const JSON: &str = "application/json";

fn ask(registry: &Registry, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    http::send(registry.address, method, target, headers, body.as_bytes())
}

#[test]
fn answers_have_the_type_that_was_negotiated() {
    let registry = Registry::start();
    let get = |target: &str, accept: &[(&str, &str)]| ask(&registry, "GET", target, accept, "");
    let cases = [
        ("*/*", KIND),
        ("application/*", KIND),
        (
            "application/vnd.schemaregistry.v1+json, application/vnd.schemaregistry+json, application/json",
            KIND,
        ),
        (DEFAULT, DEFAULT),
        (JSON, JSON),
        ("application/json; charset=utf-8, text/html", JSON),
        ("application/vnd.schemaregistry.v1+json;q=0.5, application/json", JSON),
        ("text/html, */*;q=0.1", KIND),
    ];
    for (accept, kind) in cases {
        let reply = get("/subjects", &[("accept", accept)]);
        assert_eq!((reply.status, reply.header("content-type")), (200, Some(kind)), "{accept}");
        let reply = get("/subjects/x/versions", &[("accept", accept)]);
        assert_eq!((reply.status, reply.header("content-type")), (404, Some(kind)), "{accept}");
        assert_eq!(reply.json()["error_code"], 40401);
    }
    assert_eq!(get("/subjects", &[]).header("content-type"), Some(KIND));
    for accept in ["text/html", "application/json;q=0", "application/vnd.schemaregistry.v2+json"] {
        let reply = get("/subjects", &[("accept", accept)]);
        assert_eq!((reply.status, reply.header("content-type")), (406, Some(KIND)), "{accept}");
        assert_eq!(reply.json()["error_code"], 406);
        // What is not there at all is said first.
        assert_eq!(get("/nothing", &[("accept", accept)]).status, 404);
    }
}

#[test]
fn bodies_of_other_types_are_not_read() {
    let registry = Registry::start();
    let body = sent(&typed("string")).to_string();
    let post = |headers: &[(&str, &str)]| ask(&registry, "POST", "/subjects/a/versions", headers, &body);
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/vnd.schemaregistry.v2+json"]
    {
        let reply = post(&[("content-type", kind)]);
        assert_eq!((reply.status, reply.header("content-type")), (415, Some(KIND)), "{kind}");
        let answer = reply.json();
        assert_eq!(answer["error_code"], 415);
        assert!(answer["message"].as_str().unwrap().contains(kind), "{answer}");
        let config =
            ask(&registry, "PUT", "/config", &[("content-type", kind)], r#"{"compatibility":"NONE"}"#);
        assert_eq!(config.status, 415);
        assert_eq!(ask(&registry, "POST", "/subjects", &[("content-type", kind)], &body).status, 405);
    }
    assert_eq!(registry.get("/subjects"), serde_json::json!([]), "nothing was registered");
    for kind in [KIND, DEFAULT, JSON, "application/json; charset=utf-8", "application/octet-stream"] {
        assert_eq!(post(&[("content-type", kind)]).status, 200, "{kind}");
    }
    assert_eq!(post(&[]).status, 200, "without a type");
    assert_eq!(post(&[("content-type", JSON), ("accept", JSON)]).header("content-type"), Some(JSON));
}
