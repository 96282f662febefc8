//! Plain HTTP without a library: one request, one connection. Knows nothing of routes.

use crate::harness::Server;
use serde_json::Value;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

pub(crate) fn get(server: &Server, target: &str) -> Reply {
    request(server.native, "GET", target, &[])
}

/// What a successful `GET` says.
#[track_caller]
pub(crate) fn get_json(server: &Server, target: &str) -> Value {
    let reply = get(server, target);
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

/// A request whose `Host` is right unless `headers` have another.
pub(crate) fn request(native: SocketAddr, method: &str, target: &str, headers: &[(&str, &str)]) -> Reply {
    let mut text = format!("{method} {target} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        text += &format!("host: {native}\r\n");
    }
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("connection")) {
        text += "connection: close\r\n";
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += "\r\n";
    exchange(native, text.as_bytes())
}

/// A request with a body; JSON unless `headers` say otherwise.
pub(crate) fn send(
    native: SocketAddr,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    let mut text = format!("{method} {target} HTTP/1.1\r\nhost: {native}\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        text += "content-type: application/json\r\n";
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("content-length: {}\r\n\r\n", body.len());
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(body);
    exchange(native, &bytes)
}

/// Sends bytes and reads the one reply to them.
pub(crate) fn exchange(native: SocketAddr, bytes: &[u8]) -> Reply {
    let mut tcp = TcpStream::connect(native).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    tcp.write_all(bytes).unwrap();
    let mut received = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < deadline, "endless: {:?}", String::from_utf8_lossy(&received));
        let mut chunk = [0; 64 * 1024];
        match tcp.read(&mut chunk) {
            Ok(0) => break,
            Ok(len) => received.extend(&chunk[..len]),
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&received)),
        }
        if is_complete(&received) {
            break;
        }
    }
    read(received)
}

/// The reply that these bytes are.
pub(crate) fn read(received: Vec<u8>) -> Reply {
    let text = String::from_utf8(received).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("not HTTP: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let head = head.to_ascii_lowercase();
    let chunked = head.contains("transfer-encoding: chunked");
    Reply { status, body: if chunked { joined(body) } else { body.to_owned() }, head }
}

/// A body that came in chunks, all of which must be there.
fn joined(mut rest: &str) -> String {
    let mut body = String::new();
    loop {
        let (len, after) = rest.split_once("\r\n").unwrap_or_else(|| panic!("cut off: {rest:?}"));
        let len = usize::from_str_radix(len, 16).unwrap();
        if len == 0 {
            return body;
        }
        body += &after[..len];
        rest = &after[len + 2..];
    }
}

/// A connection that stays open ends a reply by its length.
pub(crate) fn is_complete(received: &[u8]) -> bool {
    let text = String::from_utf8_lossy(received);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.is_some_and(|length| body.len() >= length.parse().unwrap())
}

impl Reply {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// That it is an error as errors are, with this status and code.
    #[track_caller]
    pub(crate) fn assert_problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], status, "{problem}");
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["type"], format!("urn:lockwood:{code}"), "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
        problem
    }
}
