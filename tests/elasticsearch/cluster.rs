//! A server with the Elasticsearch facade, and plain HTTP to both of its interfaces: one request, one connection.

use crate::harness::Server;
use serde_json::Value;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

const FACADE: [&str; 2] = ["--elasticsearch", "127.0.0.1:0"];
pub(crate) const JSON: &str = "application/json";

pub(crate) struct Cluster {
    pub(crate) server: Server,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) text: String,
}

impl Cluster {
    pub(crate) fn start() -> Cluster {
        Cluster::start_with(&[])
    }

    pub(crate) fn start_with(flags: &[&str]) -> Cluster {
        Cluster { server: Server::start(&[&FACADE, flags].concat()) }
    }

    /// Kills it and starts it again on the same data.
    pub(crate) fn crashed(self) -> Cluster {
        Cluster { server: self.server.kill().restart(&FACADE) }
    }

    /// A request with a body that is JSON; none if it is null.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Value) -> Reply {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, Some(JSON), &text)
    }

    pub(crate) fn send(&self, method: &str, path: &str, kind: Option<&str>, body: &str) -> Reply {
        let kind = kind.map(|kind| format!("content-type: {kind}\r\n")).unwrap_or_default();
        exchange(self.server.elasticsearch(), method, path, &kind, body)
    }

    /// A request to the native interface.
    pub(crate) fn native(&self, method: &str, path: &str, body: Value) -> Reply {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        exchange(self.server.native, method, path, "content-type: application/json\r\n", &text)
    }
}

pub(crate) fn exchange(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> Reply {
    let mut tcp = TcpStream::connect(address).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let length = body.len();
    let text = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    );
    tcp.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, head: head.to_ascii_lowercase(), text: text.to_owned() }
}

impl Reply {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body of an answer with this status.
    #[track_caller]
    pub(crate) fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

    /// That it is an error of this type, in the shape that clients look for; gives its reason.
    #[track_caller]
    pub(crate) fn fails(&self, status: u16, kind: &str) -> String {
        let body = self.is(status);
        assert_eq!((&body["error"]["type"], &body["status"]), (&kind.into(), &status.into()), "{body}");
        assert!(body["error"]["root_cause"][0]["reason"].is_string(), "{body}");
        body["error"]["reason"].as_str().unwrap().to_owned()
    }
}
