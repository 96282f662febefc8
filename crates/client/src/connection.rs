//! One connection: opening it up to the welcome, then frames both ways. Knows nothing of what they mean.

use crate::{
    error::{Error, Refusal},
    session::Options,
    transport,
};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use lockwood_wire::{ClientMessage, Code, HeldLock, Problem, Reclaim, ServerMessage};
use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{net::TcpStream, time::Instant};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Error as SocketError, Message, protocol::WebSocketConfig},
};

/// A server that has not said welcome within this is none.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Messages are small and sessions may be many in one process.
const READ_BUFFER_SIZE: usize = 8 * 1024;

/// What takes up a session again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) session: String,
    pub(crate) secret: String,
}

/// An open connection, after the welcome.
pub(crate) struct Connection {
    socket: WebSocketStream<TcpStream>,
    /// A ping that could not be handed to the socket yet.
    ping: Option<u64>,
    /// Something was handed to the socket that may not have left it.
    unflushed: bool,
}

/// The fields of a welcome.
#[derive(Debug)]
pub(crate) struct Welcome {
    pub(crate) session: String,
    pub(crate) secret: String,
    pub(crate) abandon_timeout: Duration,
    pub(crate) locks: Vec<HeldLock>,
}

/// A connection with its welcome.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    pub(crate) welcome: Welcome,
    /// The server was alive at some moment after this one.
    pub(crate) greeted_at: Instant,
}

/// What comes over a connection.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A message.
    Message(ServerMessage),
    /// The answer to the ping of this number.
    Pong(u64),
    /// The answer to the message of this number, but none this client knows.
    Unreadable(u64, String),
    /// A sign of life without content.
    Noise,
}

/// Connects, and opens a session or takes up the given one.
pub(crate) async fn open(
    options: Options,
    id: u64,
    credentials: Option<Credentials>,
    locks: Vec<Reclaim>,
) -> Result<Opened, Error> {
    let greeting = match credentials {
        None => ClientMessage::Hello {
            id,
            name: options.name.clone(),
            abandon_timeout_ms: options.abandon_timeout_ms,
        },
        Some(Credentials { session, secret }) => ClientMessage::Attach {
            id,
            session,
            secret,
            name: options.name.clone(),
            abandon_timeout_ms: options.abandon_timeout_ms,
            locks,
        },
    };
    let unreachable = |reason: String| Error::Unreachable { address: options.address.clone(), reason };
    match tokio::time::timeout(OPEN_TIMEOUT, greet(&options, id, greeting)).await {
        Err(_) => Err(unreachable(format!("no welcome within {} s", OPEN_TIMEOUT.as_secs()))),
        Ok(Err(OpenError::Broken(reason))) => Err(unreachable(reason)),
        Ok(Err(OpenError::Refused(refusal))) => Err(refusal.into()),
        Ok(Ok(opened)) => Ok(opened),
    }
}

enum OpenError {
    Refused(Refusal),
    Broken(String),
}

impl From<SocketError> for OpenError {
    fn from(error: SocketError) -> OpenError {
        let SocketError::Http(response) = &error else { return OpenError::Broken(error.to_string()) };
        let body = response.body().as_deref().unwrap_or_default();
        match serde_json::from_slice::<Problem>(body) {
            Ok(problem) => OpenError::Refused(Refusal::new(problem.code, problem.detail)),
            Err(_) => OpenError::Broken(format!("it answers with HTTP status {}", response.status())),
        }
    }
}

async fn greet(options: &Options, id: u64, greeting: ClientMessage) -> Result<Opened, OpenError> {
    let stream =
        TcpStream::connect(&options.address).await.map_err(|error| OpenError::Broken(error.to_string()))?;
    stream.set_nodelay(true).map_err(|error| OpenError::Broken(error.to_string()))?;
    let url = format!("ws://{}/v1/{}/session", options.address, transport::escape(&options.namespace));
    let config = WebSocketConfig::default().read_buffer_size(READ_BUFFER_SIZE);
    let (mut socket, _) = client_async_with_config(url, stream, Some(config)).await?;
    let greeted_at = Instant::now();
    socket.send(Message::text(greeting.encode())).await?;
    loop {
        let frame = socket.next().await.ok_or(SocketError::ConnectionClosed)??;
        // Whatever else comes before the welcome is told again by the welcome's list of locks.
        let Heard::Message(message) = heard(&frame).map_err(OpenError::Broken)? else { continue };
        match Refusal::from_message(message) {
            Ok((answered, refusal)) if answered.is_none_or(|answered| answered == id) => {
                return Err(OpenError::Refused(refusal));
            }
            Err(ServerMessage::Welcome {
                id: answered, session, secret, abandon_timeout_ms, locks, ..
            }) if answered == id => {
                let abandon_timeout = Duration::from_millis(abandon_timeout_ms);
                let welcome = Welcome { session, secret, abandon_timeout, locks };
                let connection = Connection { socket, ping: None, unflushed: false };
                return Ok(Opened { connection, welcome, greeted_at });
            }
            Ok(_) | Err(_) => {}
        }
    }
}

impl Connection {
    /// Asks for a sign of life.
    pub(crate) fn ping(&mut self, number: u64) {
        self.ping = Some(number);
    }

    /// Sends what is in the outbox and waits for the next frame. Dropping the future loses nothing.
    pub(crate) async fn exchange(&mut self, outbox: &mut VecDeque<ClientMessage>) -> Result<Heard, String> {
        std::future::poll_fn(|context| self.poll(outbox, context)).await
    }

    fn poll(
        &mut self,
        outbox: &mut VecDeque<ClientMessage>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Heard, String>> {
        if let Poll::Ready(Err(error)) = self.poll_send(outbox, context) {
            return Poll::Ready(Err(error.to_string()));
        }
        let frame = match ready!(Pin::new(&mut self.socket).poll_next(context)) {
            None => Err("the server closed the connection".into()),
            Some(Err(error)) => Err(error.to_string()),
            Some(Ok(frame)) => heard(&frame),
        };
        Poll::Ready(frame)
    }

    /// Reading goes on while sending is stuck, so that two full pipes cannot wait for each other.
    fn poll_send(
        &mut self,
        outbox: &mut VecDeque<ClientMessage>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SocketError>> {
        let mut socket = Pin::new(&mut self.socket);
        while self.ping.is_some() || !outbox.is_empty() {
            ready!(socket.as_mut().poll_ready(context))?;
            let frame = match self.ping.take() {
                Some(number) => Message::Ping(number.to_be_bytes().to_vec().into()),
                None => Message::text(outbox.pop_front().expect("the loop's condition").encode()),
            };
            socket.as_mut().start_send(frame)?;
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(socket.poll_flush(context))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

fn heard(frame: &Message) -> Result<Heard, String> {
    match frame {
        Message::Text(text) => {
            Ok(serde_json::from_str(text).map_or_else(|error| unreadable(text, &error), Heard::Message))
        }
        Message::Pong(payload) => Ok(match <[u8; 8]>::try_from(&payload[..]) {
            Ok(number) => Heard::Pong(u64::from_be_bytes(number)),
            Err(_) => Heard::Noise,
        }),
        Message::Close(Some(reason)) if !reason.reason.is_empty() => {
            Err(format!("the server closed the connection: {}", reason.reason))
        }
        Message::Close(_) => Err("the server closed the connection".into()),
        Message::Ping(_) | Message::Binary(_) | Message::Frame(_) => Ok(Heard::Noise),
    }
}

/// A newer server may say what this client has no type for: a code, or a message. Whoever waits for an
/// answer must get one all the same, and a lost lock must not go unnoticed.
fn unreadable(text: &str, error: &serde_json::Error) -> Heard {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Outline {
        #[serde(rename = "type")]
        kind: String,
        id: Option<u64>,
        lock: Option<u64>,
        message: String,
    }
    let outline: Outline = serde_json::from_str(text).unwrap_or_default();
    match outline {
        Outline { id: Some(id), message, .. } => {
            Heard::Unreadable(id, format!("{error}; it says: {message}"))
        }
        Outline { kind, lock: Some(lock), message, .. } if kind == "lost" => {
            Heard::Message(ServerMessage::Lost { lock, code: Code::LockLost, message })
        }
        _ => Heard::Noise,
    }
}
