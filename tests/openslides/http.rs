//! Plain HTTP/1.1 without a library, on a connection that stays open. Knows nothing of routes.

use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

pub(crate) const JSON: &str = "application/json";

/// A connection for one request after the other.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

/// One request on a connection of its own, without a body.
pub(crate) fn once(address: SocketAddr, method: &str, path: &str) -> Reply {
    Connection::open(address).send(method, path, None, "")
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Connection {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection { stream: BufReader::new(stream), address }
    }

    pub(crate) fn send(&mut self, method: &str, path: &str, kind: Option<&str>, body: &str) -> Reply {
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.address);
        if let Some(kind) = kind {
            text += &format!("content-type: {kind}\r\n");
        }
        text += &format!("content-length: {}\r\n\r\n{body}", body.len());
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
        self.reply()
    }

    fn reply(&mut self) -> Reply {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let len = self.stream.read_line(&mut head).unwrap();
            assert!(len > 0, "the connection ended after {head:?}");
        }
        let head = head.to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head, body: String::new() };
        reply.body = if reply.header("transfer-encoding") == Some("chunked") {
            self.chunks()
        } else {
            let length = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
            self.text(length)
        };
        reply
    }

    fn chunks(&mut self) -> String {
        let mut body = String::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            let length = usize::from_str_radix(line.trim_end(), 16).unwrap();
            body += &self.text(length);
            assert_eq!(self.text(2), "\r\n");
            if length == 0 {
                return body;
            }
        }
    }

    fn text(&mut self, length: usize) -> String {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert!(self.header("content-type").is_some_and(|kind| kind.starts_with(JSON)), "{self:?}");
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}
