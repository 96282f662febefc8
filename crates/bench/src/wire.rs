//! One connection of a load generator, in each of the three protocols: as little work as possible on this
//! side, so that the server is what is measured. Knows nothing of measuring.

use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// How many different paths or keys a connection goes through.
const KEYS: usize = 64;

/// What is spoken, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Protocol {
    Locktopus(SocketAddr),
    Native(SocketAddr),
    Redis(SocketAddr),
}

/// The lock that is taken again and again.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) namespace: String,
    pub(crate) mode: &'static str,
    /// One path for all, or many of the connection's own.
    pub(crate) shared: bool,
    /// A namespace for each connection. Then lock numbers can be foretold, and this side need not spend
    /// time between an answer and the next request: on an idle virtual machine every microsecond spent
    /// there costs several more until the other side is awake again.
    pub(crate) apart: bool,
}

pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    protocol: Protocol,
    locks: Vec<Vec<u8>>,
    releases: Vec<Vec<u8>>,
    turn: usize,
    /// The number of the next lock, once it can be foretold.
    next_lock: Option<u64>,
}

impl Connection {
    pub(crate) async fn open(protocol: Protocol, target: &Target, number: usize) -> Connection {
        let address = match protocol {
            Protocol::Locktopus(address) | Protocol::Native(address) | Protocol::Redis(address) => address,
        };
        let stream = TcpStream::connect(address).await.expect("the server listens");
        stream.set_nodelay(true).expect("a socket option");
        let (locks, releases) = (Vec::new(), Vec::new());
        let buffer = Vec::new();
        let mut connection =
            Connection { stream, buffer, protocol, locks, releases, turn: 0, next_lock: None };
        let namespace = match target.apart {
            true => format!("{}-{number}", target.namespace),
            false => target.namespace.clone(),
        };
        connection.greet(&namespace).await;
        for key in 0..KEYS {
            let key = if target.shared { "one/and/only".to_owned() } else { format!("bench/{number}/{key}") };
            connection.prepare(target, &key);
        }
        connection
    }

    async fn greet(&mut self, namespace: &str) {
        match self.protocol {
            Protocol::Locktopus(_) => self.upgrade(&format!("/v1?namespace={namespace}")).await,
            Protocol::Native(_) => {
                self.upgrade(&format!("/v1/{namespace}/session")).await;
                self.send(&frame(r#"{"type":"hello","id":0,"name":"bench"}"#)).await;
                self.replies(1).await;
            }
            Protocol::Redis(_) => {
                let script = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
                self.send(&command(&["SCRIPT", "LOAD", script])).await;
                self.replies(2).await;
            }
        }
        self.buffer.clear();
    }

    async fn upgrade(&mut self, path: &str) {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        self.send(request.as_bytes()).await;
        while !self.buffer.ends_with(b"\r\n\r\n") {
            self.read().await;
        }
        assert!(self.buffer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&self.buffer));
        self.buffer.clear();
    }

    fn prepare(&mut self, target: &Target, key: &str) {
        let path = key.replace('/', "\",\"");
        let mode = target.mode;
        let (lock, release) = match self.protocol {
            Protocol::Locktopus(_) => (
                frame(&format!(r#"{{"action":"lock","resources":[{{"type":"{mode}","path":["{path}"]}}]}}"#)),
                frame(r#"{"action":"release"}"#),
            ),
            Protocol::Native(_) => (
                frame(&format!(
                    r#"{{"type":"lock","id":7,"resources":[{{"path":["{path}"],"mode":"{mode}"}}]}}"#
                )),
                Vec::new(),
            ),
            Protocol::Redis(_) => (
                command(&["SET", key, "token-of-this-client", "NX", "PX", "60000"]),
                command(&["EVALSHA", SCRIPT_SHA1, "1", key, "token-of-this-client"]),
            ),
        };
        self.locks.push(lock);
        self.releases.push(release);
    }

    /// Takes a lock and gives it back.
    pub(crate) async fn pair(&mut self) {
        let lock = std::mem::take(&mut self.locks[self.turn]);
        self.send(&lock).await;
        self.locks[self.turn] = lock;
        // Made while the server is at work.
        let foretold = self.next_lock.map(release_of);
        self.replies(1).await;
        match self.protocol {
            Protocol::Native(_) => {
                let release = foretold.unwrap_or_else(|| release_of(self.last_lock()));
                self.send(&release).await;
                self.next_lock = Some(self.last_lock() + 1);
            }
            _ => {
                let release = std::mem::take(&mut self.releases[self.turn]);
                self.send(&release).await;
                self.releases[self.turn] = release;
            }
        }
        self.turn = (self.turn + 1) % KEYS;
        self.buffer.clear();
        self.replies(1).await;
        debug_assert!(!self.buffer.windows(7).any(|part| part == b"unknown"), "the lock was foretold");
        self.buffer.clear();
    }

    /// Takes a lock and keeps it.
    pub(crate) async fn lock(&mut self) {
        let lock = std::mem::take(&mut self.locks[self.turn]);
        self.send(&lock).await;
        self.locks[self.turn] = lock;
        self.replies(1).await;
    }

    /// Takes and gives back many locks without waiting for each answer.
    pub(crate) async fn pipelined(&mut self, pairs: usize) {
        if let Protocol::Native(_) = self.protocol {
            return self.pipelined_by_number(pairs).await;
        }
        let mut batch = Vec::new();
        for _ in 0..pairs {
            batch.extend_from_slice(&self.locks[self.turn]);
            batch.extend_from_slice(&self.releases[self.turn]);
            self.turn = (self.turn + 1) % KEYS;
        }
        self.send(&batch).await;
        self.replies(2 * pairs).await;
        self.buffer.clear();
    }

    /// The same where a release must name the lock: all locks, then all releases.
    async fn pipelined_by_number(&mut self, pairs: usize) {
        let mut batch = Vec::new();
        for _ in 0..pairs {
            batch.extend_from_slice(&self.locks[self.turn]);
            self.turn = (self.turn + 1) % KEYS;
        }
        self.send(&batch).await;
        self.replies(pairs).await;
        let last = self.last_lock();
        self.buffer.clear();
        let releases = (last + 1 - pairs as u64..=last).flat_map(release_of);
        let batch: Vec<u8> = releases.collect();
        self.send(&batch).await;
        self.replies(pairs).await;
        self.buffer.clear();
    }

    /// Holds many locks on paths of their own; native protocol only.
    pub(crate) async fn hold_many(&mut self, count: usize) {
        for number in 0..count {
            let path = format!("held\",\"{}\",\"{number}", number % 100);
            let lock =
                format!(r#"{{"type":"lock","id":7,"resources":[{{"path":["{path}"],"mode":"write"}}]}}"#);
            self.send(&frame(&lock)).await;
            self.replies(1).await;
            assert!(self.buffer.windows(9).any(|part| part == b"\"granted\""), "held");
            self.buffer.clear();
        }
    }

    /// The number of the lock named last in what has been read.
    fn last_lock(&self) -> u64 {
        let name = b"\"lock\":";
        let at = self.buffer.windows(name.len()).rposition(|part| part == name);
        let digits = &self.buffer[at.expect("a lock is named") + name.len()..];
        let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the server reads");
    }

    async fn read(&mut self) {
        let count = self.stream.read_buf(&mut self.buffer).await.expect("the server answers");
        assert!(count > 0, "the server closed: {}", String::from_utf8_lossy(&self.buffer));
    }

    /// Reads until the buffer holds so many replies.
    async fn replies(&mut self, count: usize) {
        let mut seen = 0;
        let mut from = 0;
        loop {
            while let Some(len) = self.reply_len(from) {
                from += len;
                seen += 1;
                if seen == count {
                    return;
                }
            }
            self.read().await;
        }
    }

    /// The length of the reply that starts at `from`, if it is all there.
    fn reply_len(&self, from: usize) -> Option<usize> {
        let rest = &self.buffer[from..];
        match self.protocol {
            Protocol::Redis(_) => rest.iter().position(|byte| *byte == b'\n').map(|end| end + 1),
            Protocol::Locktopus(_) | Protocol::Native(_) => {
                let len = match *rest.get(1)? {
                    126 => 4 + usize::from(u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?])),
                    short => 2 + usize::from(short),
                };
                (rest.len() >= len).then_some(len)
            }
        }
    }
}

/// The digest under which Redis keeps the compare-and-delete script of `greet`.
const SCRIPT_SHA1: &str = "b998f9dfb154cdbea8cda65ad5177aadf0e945a2";

/// The native message that gives a lock back.
fn release_of(lock: u64) -> Vec<u8> {
    frame(&format!(r#"{{"type":"release","id":7,"lock":{lock}}}"#))
}

/// A masked text frame. The mask is all zeros, which saves this side the work and the server none.
fn frame(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81];
    match text.len() {
        len @ 0..=125 => frame.push(0x80 | len as u8),
        len => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&u16::try_from(len).expect("short messages").to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(text.as_bytes());
    frame
}

fn command(words: &[&str]) -> Vec<u8> {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let body: String = words.clone().collect();
    format!("*{}\r\n{body}", words.len()).into_bytes()
}
