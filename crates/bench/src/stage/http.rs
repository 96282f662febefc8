//! A connection that speaks as much HTTP as the load needs: one request at a time, an answer with a length or
//! in chunks, a stream of events. Knows nothing of what is asked.

use super::load::{self, Exchange};
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Runtime,
};

/// Most answers fit; longer ones make it grow once.
const BUFFER_LEN: usize = 1 << 16;

pub(crate) struct Http {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Http {
    pub(crate) async fn open(address: SocketAddr) -> Http {
        let stream = TcpStream::connect(address).await.expect("the server listens");
        stream.set_nodelay(true).expect("a socket option");
        Http { stream, buffer: Vec::with_capacity(BUFFER_LEN) }
    }

    /// The body of an answer that says all went well.
    pub(crate) async fn call(&mut self, request: &[u8]) -> &str {
        let (status, body) = self.answer(request).await;
        assert!((200..300).contains(&status), "{status} {body}, asked {}", beginning(request));
        body
    }

    /// The status and the body of whatever the answer is.
    pub(crate) async fn answer(&mut self, request: &[u8]) -> (u16, &str) {
        self.send(request).await;
        let head_len = self.head().await;
        let head = text(&self.buffer[..head_len]);
        let status = head[9..12].parse().expect("a status");
        match number_after(&head.to_ascii_lowercase(), "content-length: ") {
            Some(len) => self.read_until(|buffer| buffer.len() as u64 >= head_len as u64 + len).await,
            None => self.read_until(|buffer| buffer.ends_with(b"\r\n0\r\n\r\n")).await,
        }
        (status, text(&self.buffer[head_len..]))
    }

    /// Asks for a stream of events.
    pub(crate) async fn follow(&mut self, request: &[u8]) {
        self.send(request).await;
        let head_len = self.head().await;
        assert!(self.buffer.starts_with(b"HTTP/1.1 200"), "{}", text(&self.buffer));
        self.buffer.drain(..head_len);
    }

    /// The id of the next event with data; an id alone says how far the stream has looked. The sizes of chunks are lines like any other that says nothing.
    pub(crate) async fn event(&mut self) -> u64 {
        loop {
            self.read_until(|buffer| event_len(buffer).is_some()).await;
            let len = event_len(&self.buffer).expect("it is all there");
            let event = text(&self.buffer[..len]);
            let has_data = event.lines().any(|line| line.starts_with("data:"));
            let id = event.lines().find_map(|line| line.strip_prefix("id:")).filter(|_| has_data);
            let id = id.map(|id| id.trim().parse().expect("a position"));
            self.buffer.drain(..len);
            if let Some(id) = id {
                return id;
            }
        }
    }

    async fn send(&mut self, request: &[u8]) {
        self.buffer.clear();
        self.stream.write_all(request).await.expect("the server reads");
    }

    async fn head(&mut self) -> usize {
        let end = |buffer: &[u8]| buffer.windows(4).position(|part| part == b"\r\n\r\n");
        self.read_until(|buffer| end(buffer).is_some()).await;
        end(&self.buffer).expect("it is all there") + 4
    }

    async fn read_until(&mut self, enough: impl Fn(&[u8]) -> bool) {
        while !enough(&self.buffer) {
            let count = self.stream.read_buf(&mut self.buffer).await.expect("the server answers");
            assert!(count > 0, "the server closed: {}", beginning(&self.buffer));
        }
    }
}

impl Exchange for Http {
    async fn exchange(&mut self, request: &[u8]) -> u64 {
        number_after(self.call(request).await, "\"position\":").unwrap_or_default()
    }
}

/// A connection for one thread that waits for each answer.
pub(crate) struct Session {
    runtime: Runtime,
    http: Http,
}

impl Session {
    pub(crate) fn open(address: SocketAddr) -> Session {
        let runtime = load::runtime();
        let http = runtime.block_on(Http::open(address));
        Session { runtime, http }
    }

    pub(crate) fn call(&mut self, request: &[u8]) -> &str {
        self.runtime.block_on(self.http.call(request))
    }

    /// The position in the answer.
    pub(crate) fn position(&mut self, request: &[u8]) -> u64 {
        self.runtime.block_on(self.http.exchange(request))
    }

    pub(crate) fn status(&mut self, request: &[u8]) -> u16 {
        self.runtime.block_on(self.http.answer(request)).0
    }
}

pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()
}

pub(crate) fn get_events(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n").into_bytes()
}

pub(crate) fn put(path: &str) -> Vec<u8> {
    format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

pub(crate) fn post(path: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The number that follows the first `name`.
pub(crate) fn number_after(text: &str, name: &str) -> Option<u64> {
    let rest = &text[text.find(name)? + name.len()..];
    let end = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

fn event_len(buffer: &[u8]) -> Option<usize> {
    buffer.windows(2).position(|part| part == b"\n\n").map(|end| end + 2)
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn beginning(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(500)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_counts() {
        assert_eq!(number_after(r#"{"position":8,"positions":[9]}"#, "\"position\":"), Some(8));
        assert_eq!(number_after(r#"{"documents":[]}"#, "\"position\":"), None);
    }

    #[test]
    fn an_event_ends_with_an_empty_line() {
        assert_eq!(event_len(b"1f\r\nid: 7\nevent: commit\ndata: {}\n"), None);
        assert_eq!(event_len(b"1f\r\nid: 7\ndata: {}\n\n\r\n"), Some(20));
    }
}
