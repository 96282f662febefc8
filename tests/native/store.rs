//! The documents of one namespace, over plain HTTP. Knows nothing of what a server should say.

use crate::{
    harness::Server,
    http::{self, Reply},
};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// One namespace of a server.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) native: SocketAddr,
    pub(crate) namespace: String,
}

impl Store {
    pub(crate) fn new(server: &Server, namespace: &str) -> Store {
        Store { native: server.native, namespace: namespace.to_owned() }
    }

    pub(crate) fn target(&self, path: &str) -> String {
        format!("/v1/{}/{path}", self.namespace)
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> Reply {
        http::send(self.native, method, &self.target(path), &[], body.as_bytes())
    }

    /// What a successful request says.
    #[track_caller]
    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let reply = self.send(method, path, &body.to_string());
        assert_eq!(reply.status, 200, "{method} {path} {body}: {}", reply.body);
        assert_eq!(reply.header("content-type"), Some("application/json"));
        reply.json()
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        let reply = http::request(self.native, "GET", &self.target(path), &[]);
        assert_eq!(reply.status, 200, "GET {path}: {}", reply.body);
        reply.json()
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", path, body)
    }

    /// Does one write request of these events; gives its position.
    #[track_caller]
    pub(crate) fn write(&self, events: Value) -> u64 {
        self.post("write", &json!({ "events": events }))["position"].as_u64().unwrap()
    }

    #[track_caller]
    pub(crate) fn create(&self, collection: &str, key: impl Into<Value>, fields: Value) -> u64 {
        let key = key.into();
        self.write(json!([{ "type": "create", "collection": collection, "key": key, "fields": fields }]))
    }

    #[track_caller]
    pub(crate) fn update(&self, collection: &str, key: impl Into<Value>, fields: Value) -> u64 {
        let key = key.into();
        self.write(json!([{ "type": "update", "collection": collection, "key": key, "fields": fields }]))
    }

    #[track_caller]
    pub(crate) fn delete(&self, collection: &str, key: impl Into<Value>) -> u64 {
        self.write(json!([{ "type": "delete", "collection": collection, "key": key.into() }]))
    }

    /// That a request is refused so.
    #[track_caller]
    pub(crate) fn refuses(&self, method: &str, path: &str, body: &Value, status: u16, code: &str) -> Value {
        self.send(method, path, &body.to_string()).assert_problem(status, code)
    }

    /// The keys a filter finds.
    #[track_caller]
    pub(crate) fn found(&self, body: &Value) -> Vec<String> {
        let page = self.post("filter", body);
        let documents = page["documents"].as_array().unwrap().iter();
        documents.map(|document| document["key"].as_str().unwrap().to_owned()).collect()
    }

    /// Forgets all history.
    pub(crate) fn trim(&self, keep_ms: u64) -> Value {
        let body = json!({ "keep_ms": keep_ms }).to_string();
        let reply = http::send(self.native, "POST", "/v1/trim", &[], body.as_bytes());
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }
}

/// The same with `T` for every time.
pub(crate) fn timeless(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                let is_time = name == "at" && member.as_str().is_some_and(|text| text.ends_with('Z'));
                *member = if is_time { "T".into() } else { timeless(member.take()) };
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = timeless(item.take())),
        _ => {}
    }
    value
}
