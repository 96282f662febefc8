//! Bare HTTP and bare WebSocket frames, right or wrong, and exactly what comes back. Knows nothing of locks.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

pub(crate) const TEXT: u8 = 0x1;
pub(crate) const BINARY: u8 = 0x2;
pub(crate) const CLOSE: u8 = 0x8;
pub(crate) const PING: u8 = 0x9;
/// The bit of a frame that ends a message.
pub(crate) const FIN: u8 = 0x80;

/// Nothing here is measured by this; it only makes a test fail instead of hang.
const HANG: Duration = Duration::from_secs(60);

/// An answer to a plain HTTP request.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    /// The value of a header, whatever the case of its name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// Sends one request without a body and reads the answer.
pub(crate) fn request(address: SocketAddr, method: &str, target: &str, headers: &str) -> Response {
    let mut stream = reach(address);
    let head = format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
    stream.get_mut().write_all(head.as_bytes()).unwrap();
    let mut response = read_head(&mut stream);
    stream.read_to_string(&mut response.body).unwrap();
    response
}

/// The same with a body.
pub(crate) fn send(address: SocketAddr, method: &str, target: &str, body: &str) -> Response {
    let mut stream = reach(address);
    let head = format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    let head = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.get_mut().write_all(head.as_bytes()).unwrap();
    let mut response = read_head(&mut stream);
    stream.read_to_string(&mut response.body).unwrap();
    response
}

/// A request with GET and no headers.
pub(crate) fn get(address: SocketAddr, target: &str) -> Response {
    request(address, "GET", target, "")
}

/// The headers of a proper handshake, except `Connection`.
pub(crate) const UPGRADE: &str =
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// What the other side sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Text(String),
    Pong(Vec<u8>),
    /// With its code, if it had one, and its reason.
    Close(Option<u16>, String),
    /// The connection is over.
    End,
}

/// A WebSocket connection on which anything can be said.
pub(crate) struct Raw {
    stream: BufReader<TcpStream>,
    /// The answer to the handshake.
    pub(crate) response: Response,
}

impl Raw {
    pub(crate) fn open(address: SocketAddr, target: &str, headers: &str) -> Raw {
        let mut stream = reach(address);
        let head = format!(
            "GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\n{UPGRADE}{headers}\r\n"
        );
        stream.get_mut().write_all(head.as_bytes()).unwrap();
        let response = read_head(&mut stream);
        assert_eq!(response.status, 101, "{response:?}");
        // The key is the example of RFC 6455, and so is the answer to it.
        assert_eq!(response.header("Sec-WebSocket-Accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        Raw { stream, response }
    }

    /// Sends bytes as they are; the other side may have had enough of them already.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.get_mut().write_all(bytes);
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.send_bytes(&frame(FIN | TEXT, text.as_bytes()));
    }

    /// The next frame that is not a ping.
    pub(crate) fn next(&mut self) -> Seen {
        loop {
            let Some((first, payload)) = self.read_frame() else { return Seen::End };
            assert_eq!(first & 0xf0, FIN, "a server's frame is whole and has no extensions");
            match first & 0x0f {
                TEXT => return Seen::Text(String::from_utf8(payload).unwrap()),
                CLOSE => return close_seen(&payload),
                PING => {}
                0xa => return Seen::Pong(payload),
                other => panic!("opcode {other}"),
            }
        }
    }

    #[track_caller]
    pub(crate) fn text(&mut self) -> String {
        match self.next() {
            Seen::Text(text) => text,
            other => panic!("{other:?} instead of text"),
        }
    }

    /// The other side closes with this code and no reason; answers it, and sees the connection end.
    #[track_caller]
    pub(crate) fn expect_close(&mut self, expected: u16) {
        assert_eq!(self.next(), Seen::Close(Some(expected), String::new()));
        self.send_bytes(&frame(FIN | CLOSE, &expected.to_be_bytes()));
        assert_eq!(self.next(), Seen::End);
    }

    /// Says goodbye properly, and sees it answered.
    #[track_caller]
    pub(crate) fn close(&mut self, code: u16) {
        self.send_bytes(&frame(FIN | CLOSE, &code.to_be_bytes()));
        assert_eq!(self.next(), Seen::Close(Some(code), String::new()));
        assert_eq!(self.next(), Seen::End);
    }

    fn read_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        // A reset is an end too: it is what the other side's system sends when it had more to read.
        self.stream.read_exact(&mut head).ok()?;
        let len = match head[1] {
            126 => {
                let mut len = [0; 2];
                self.stream.read_exact(&mut len).unwrap();
                u64::from(u16::from_be_bytes(len))
            }
            127 => {
                let mut len = [0; 8];
                self.stream.read_exact(&mut len).unwrap();
                u64::from_be_bytes(len)
            }
            len => {
                assert!(len < 126, "a server does not mask");
                u64::from(len)
            }
        };
        let mut payload = vec![0; len as usize];
        self.stream.read_exact(&mut payload).unwrap();
        Some((head[0], payload))
    }
}

/// A frame as a client must send it; `first` is the byte with FIN and the opcode.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
    let mut bytes = head(first, 0x80, payload.len());
    bytes.extend(MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// A frame as only a server may send it.
pub(crate) fn unmasked_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = head(first, 0, payload.len());
    bytes.extend(payload);
    bytes
}

fn head(first: u8, mask_bit: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![first];
    match len {
        0..126 => bytes.push(mask_bit | len as u8),
        126..65_536 => {
            bytes.push(mask_bit | 126);
            bytes.extend((len as u16).to_be_bytes());
        }
        _ => {
            bytes.push(mask_bit | 127);
            bytes.extend((len as u64).to_be_bytes());
        }
    }
    bytes
}

fn close_seen(payload: &[u8]) -> Seen {
    match payload.split_first_chunk() {
        None => Seen::Close(None, String::new()),
        Some((code, reason)) => {
            Seen::Close(Some(u16::from_be_bytes(*code)), String::from_utf8(reason.to_vec()).unwrap())
        }
    }
}

fn reach(address: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream.set_write_timeout(Some(HANG)).unwrap();
    BufReader::new(stream)
}

fn read_head(stream: &mut BufReader<TcpStream>) -> Response {
    let mut line = || {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let status = line();
    let status = status.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let mut headers = Vec::new();
    while let Some((name, value)) = line().split_once(':') {
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    Response { status: status.expect("a status line"), headers, body: String::new() }
}
