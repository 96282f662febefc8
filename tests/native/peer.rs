//! A client without a library: one WebSocket, JSON out, JSON in. Knows nothing of what a server should say.

use crate::harness::Server;
use serde_json::{Value, json};
use std::{
    error::Error,
    io::Write,
    net::{SocketAddr, TcpStream},
    time::Duration,
};
use tokio_tungstenite::tungstenite::{
    Bytes, Message, WebSocket, client,
    protocol::frame::{
        Frame,
        coding::{Data, OpCode},
    },
};

/// Nothing a server says takes this long.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Peer {
    socket: WebSocket<TcpStream>,
    /// The number of the next message that brings none.
    id: u64,
    /// What `welcome` said.
    pub(crate) session: String,
    pub(crate) secret: String,
}

impl Peer {
    /// A connection on which nothing was said yet.
    pub(crate) fn connect(server: &Server, namespace: &str) -> Peer {
        Peer::connect_to(server.native, namespace)
    }

    #[track_caller]
    pub(crate) fn connect_to(native: SocketAddr, namespace: &str) -> Peer {
        Peer::try_connect_to(native, namespace).unwrap()
    }

    /// The same where the server may be gone, or refuse.
    pub(crate) fn try_connect_to(native: SocketAddr, namespace: &str) -> Result<Peer, Box<dyn Error>> {
        let tcp = TcpStream::connect(native)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        tcp.set_nodelay(true)?;
        let (socket, _) = client(format!("ws://{native}/v1/{namespace}/session"), tcp)?;
        Ok(Peer { socket, id: 1, session: String::new(), secret: String::new() })
    }

    /// A session of this name in the namespace `default`.
    pub(crate) fn open(server: &Server, name: &str) -> Peer {
        Peer::open_with(server, "default", json!({ "name": name }))
    }

    /// The same with an abandon timeout.
    pub(crate) fn open_for(server: &Server, name: &str, abandon_timeout_ms: u64) -> Peer {
        let fields = json!({ "name": name, "abandon_timeout_ms": abandon_timeout_ms });
        Peer::open_with(server, "default", fields)
    }

    /// A session with these fields in its `hello`.
    pub(crate) fn open_with(server: &Server, namespace: &str, fields: Value) -> Peer {
        let mut peer = Peer::connect(server, namespace);
        let mut hello = fields;
        hello["type"] = "hello".into();
        peer.greet(hello);
        peer
    }

    /// Another connection for the session of `self`, wherever that is now; returns the welcome too.
    pub(crate) fn attach(&self, server: &Server, locks: &Value) -> (Peer, Value) {
        let mut peer = Peer::connect(server, "default");
        let welcome = peer.greet(self.attach_message(locks));
        (peer, welcome)
    }

    pub(crate) fn attach_message(&self, locks: &Value) -> Value {
        json!({ "type": "attach", "session": self.session, "secret": self.secret, "locks": locks })
    }

    #[track_caller]
    pub(crate) fn greet(&mut self, message: Value) -> Value {
        let welcome = self.ask(message);
        assert_eq!(welcome["type"], "welcome", "{welcome}");
        self.session = text(&welcome["session"]);
        self.secret = text(&welcome["secret"]);
        welcome
    }

    /// Sends a message; one without a number gets the next.
    pub(crate) fn send(&mut self, mut message: Value) -> u64 {
        if message["id"].is_null() {
            message["id"] = self.id.into();
            self.id += 1;
        }
        self.send_text(&message.to_string());
        message["id"].as_u64().unwrap()
    }

    pub(crate) fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).unwrap();
    }

    pub(crate) fn send_binary(&mut self, bytes: &[u8]) {
        self.socket.send(Message::binary(bytes.to_vec())).unwrap();
    }

    /// A frame of a message, with any content.
    pub(crate) fn send_frame(&mut self, bytes: &[u8], kind: Data, last: bool) {
        let frame = Frame::message(bytes.to_vec(), OpCode::Data(kind), last);
        self.socket.send(Message::Frame(frame)).unwrap();
    }

    /// Bytes that need not be frames.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.socket.get_mut().write_all(bytes).unwrap();
    }

    /// Sends a message again and again, without reading, until it cannot be sent for a while.
    pub(crate) fn flood(&mut self, text: &str) {
        self.socket.get_mut().set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        while self.socket.send(Message::text(text)).is_ok() {}
    }

    pub(crate) fn ping(&mut self, content: &'static [u8]) {
        self.socket.send(Message::Ping(Bytes::from_static(content))).unwrap();
    }

    /// The content of the pong that must come next.
    pub(crate) fn pong(&mut self) -> Vec<u8> {
        match self.socket.read().unwrap() {
            Message::Pong(content) => content.to_vec(),
            other => panic!("not a pong: {other:?}"),
        }
    }

    /// Sends a message and returns what comes next, which must be the answer to it.
    #[track_caller]
    pub(crate) fn ask(&mut self, message: Value) -> Value {
        let id = self.send(message);
        let answer = self.next();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// The next message.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Value {
        match self.heard() {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("not a message: {other:?}"),
        }
    }

    /// The same for a server that may be gone, as nothing then.
    pub(crate) fn try_ask(&mut self, mut message: Value) -> Option<Value> {
        message["id"] = self.id.into();
        self.id += 1;
        self.socket.send(Message::text(message.to_string())).ok()?;
        self.try_next()
    }

    /// The next message of a server that may be gone.
    pub(crate) fn try_next(&mut self) -> Option<Value> {
        loop {
            match self.socket.read().ok()? {
                Message::Text(text) => return Some(serde_json::from_str(&text).unwrap()),
                Message::Close(_) => return None,
                _ => {}
            }
        }
    }

    /// The next message, which must be of this type.
    #[track_caller]
    pub(crate) fn next_of(&mut self, kind: &str) -> Value {
        let message = self.next();
        assert_eq!(message["type"], kind, "{message}");
        message
    }

    /// The code of the close frame that must come next.
    #[track_caller]
    pub(crate) fn closed(&mut self) -> u16 {
        match self.heard() {
            Message::Close(Some(frame)) => {
                // A server waits for the answer to its close frame.
                let _ = self.socket.flush();
                frame.code.into()
            }
            other => panic!("not the end: {other:?}"),
        }
    }

    /// Answers so many pings and says nothing else.
    pub(crate) fn answer_pings(&mut self, count: usize) {
        let mut heard = 0;
        while heard < count {
            match self.socket.read().unwrap() {
                Message::Ping(_) => heard += 1,
                other => panic!("not a ping: {other:?}"),
            }
        }
        self.socket.flush().unwrap();
    }

    #[track_caller]
    fn heard(&mut self) -> Message {
        loop {
            match self.socket.read() {
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                Ok(message) => return message,
                Err(error) => panic!("nothing came: {error}"),
            }
        }
    }

    /// Asks for a lock and returns the first answer. Resources are written `write a/b:1, read c`; the number
    /// is the depth.
    #[track_caller]
    pub(crate) fn lock(&mut self, what: &str, wait: impl Into<Value>) -> Value {
        self.ask(json!({ "type": "lock", "resources": resources(what), "wait": wait.into() }))
    }

    /// Takes a lock that must be free.
    #[track_caller]
    pub(crate) fn hold(&mut self, what: &str) -> Held {
        Held::from(&self.lock(what, 0))
    }

    /// Asks for a lock that must have to wait.
    #[track_caller]
    pub(crate) fn queue(&mut self, what: &str) -> Value {
        let answer = self.lock(what, "forever");
        assert_eq!(answer["type"], "queued", "{answer}");
        answer
    }

    /// The next message, which must be a grant.
    #[track_caller]
    pub(crate) fn granted(&mut self) -> Held {
        Held::from(&self.next())
    }

    #[track_caller]
    pub(crate) fn release(&mut self, lock: &Held) {
        let answer = self.ask(json!({ "type": "release", "lock": lock.lock }));
        assert_eq!(answer["type"], "released", "{answer}");
        assert_eq!(answer["lock"], lock.lock, "{answer}");
    }

    #[track_caller]
    pub(crate) fn place(&mut self, lock: &Value) -> Value {
        let answer = self.ask(json!({ "type": "place", "lock": lock }));
        assert_eq!(answer["type"], "place", "{answer}");
        answer
    }

    /// That a lock waits is shown by its place, whatever else may have been under way.
    #[track_caller]
    pub(crate) fn still_waits(&mut self, lock: &Value) {
        assert_ne!(self.place(lock)["place"], 0);
    }

    #[track_caller]
    pub(crate) fn convert(&mut self, lock: &Held, mode: &str, wait: impl Into<Value>) -> Value {
        self.ask(json!({ "type": "convert", "lock": lock.lock, "mode": mode, "wait": wait.into() }))
    }

    #[track_caller]
    pub(crate) fn bye(mut self) {
        let answer = self.ask(json!({ "type": "bye" }));
        assert_eq!(answer["type"], "bye", "{answer}");
        assert_eq!(self.closed(), 1000);
    }
}

/// A granted lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) lock: u64,
    pub(crate) token: u64,
}

impl Held {
    #[track_caller]
    fn from(message: &Value) -> Held {
        assert_eq!(message["type"], "granted", "{message}");
        Held { lock: message["lock"].as_u64().unwrap(), token: message["token"].as_u64().unwrap() }
    }

    /// What brings it back after a restart of the server.
    pub(crate) fn reclaim(&self, what: &str) -> Value {
        json!({ "lock": self.lock, "token": self.token, "resources": resources(what) })
    }
}

/// `write a/b:1, read c` as JSON.
pub(crate) fn resources(what: &str) -> Value {
    what.split(", ").map(resource).collect()
}

fn resource(what: &str) -> Value {
    let (mode, path) = what.split_once(' ').unwrap();
    match path.split_once(':') {
        Some((path, depth)) => json!({ "path": path, "mode": mode, "depth": depth.parse::<u64>().unwrap() }),
        None => json!({ "path": path, "mode": mode }),
    }
}

/// The text in a JSON string.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not text: {value}")).to_owned()
}

#[track_caller]
pub(crate) fn assert_error(message: &Value, code: &str) {
    assert_eq!(message["type"], "error", "{message}");
    assert_eq!(message["code"], code, "{message}");
    assert!(message["message"].as_str().is_some_and(|text| !text.is_empty()), "{message}");
}
