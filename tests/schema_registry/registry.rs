//! One server with the facade on it, and what is asked of it. Knows nothing of what it should say.

use crate::{
    harness::Server,
    http::{self, Reply},
};
use serde_json::{Value, json};
use std::net::SocketAddr;

pub(crate) const KIND: &str = "application/vnd.schemaregistry.v1+json";

pub(crate) struct Registry {
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
}

impl Registry {
    pub(crate) fn start() -> Registry {
        Registry::start_with(&[])
    }

    pub(crate) fn start_with(flags: &[&str]) -> Registry {
        let server = Server::start(&[&["--schema-registry", "127.0.0.1:0"], flags].concat());
        Registry { address: server.schema_registry(), server }
    }

    /// The same after a stop and a start.
    pub(crate) fn restarted(self) -> Registry {
        let server = self.server.stop().restart(&["--schema-registry", "127.0.0.1:0"]);
        Registry { address: server.schema_registry(), server }
    }

    pub(crate) fn send(&self, method: &str, target: &str, body: &str) -> Reply {
        http::send(self.address, method, target, &[("content-type", KIND)], body.as_bytes())
    }

    /// What a successful request says.
    #[track_caller]
    pub(crate) fn ask(&self, method: &str, target: &str, body: Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = self.send(method, target, &body);
        assert_eq!(reply.status, 200, "{method} {target} {body}: {}", reply.body);
        assert_eq!(reply.header("content-type"), Some(KIND));
        reply.json()
    }

    #[track_caller]
    pub(crate) fn get(&self, target: &str) -> Value {
        self.ask("GET", target, Value::Null)
    }

    /// That a request is refused with this code, whose first digits are the status.
    #[track_caller]
    pub(crate) fn refuses(&self, method: &str, target: &str, body: Value, code: u32) -> String {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = self.send(method, target, &body);
        let status = if code < 1000 { code } else { code / 100 };
        assert_eq!(u32::from(reply.status), status, "{method} {target}: {reply:?}");
        assert_eq!(reply.header("content-type"), Some(KIND));
        let answer = reply.json();
        assert_eq!(answer["error_code"], code, "{method} {target}: {answer}");
        answer["message"].as_str().filter(|message| !message.is_empty()).unwrap().to_owned()
    }

    /// Registers a schema; gives its id.
    #[track_caller]
    pub(crate) fn register(&self, subject: &str, schema: &Value) -> u64 {
        self.ask("POST", &format!("/subjects/{subject}/versions"), sent(schema))["id"].as_u64().unwrap()
    }
}

/// A schema as clients send it.
pub(crate) fn sent(schema: &Value) -> Value {
    json!({ "schema": schema.to_string(), "schemaType": "JSON" })
}

/// An object with a field of this type, and nothing else.
pub(crate) fn typed(kind: &str) -> Value {
    json!({ "type": "object", "properties": { "a": { "type": kind } }, "additionalProperties": false })
}
