//! Requests and answers over HTTP, whole or as streams, one attempt each. Knows nothing of what they say, nor of
//! asking again.
//!
//! Every call is a connection of its own.

use crate::error::Error;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited, combinators::UnsyncBoxBody};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
    header,
};
use hyper_util::rt::TokioIo;
use lockwood_wire::{Code, Problem};
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt::Write, time::Duration};
use tokio::{net::TcpStream, task::JoinHandle, time::timeout};

/// A server that cannot be reached within this is none.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An answer that takes longer is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// A stream in which nothing comes for longer is given up; a live one says something now and then.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// An answer that is larger is refused.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

type Failure = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Body = UnsyncBoxBody<Bytes, Failure>;

/// A request, to be sent as often as it takes.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) accept: &'static str,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) last_event_id: Option<u64>,
    /// By which a server knows a write that it has done already.
    pub(crate) retry_key: Option<String>,
    /// Whether it must not be sent again if it may have been carried out.
    pub(crate) once: bool,
    pub(crate) body: Bytes,
}

impl Call {
    /// A request without a body, for JSON.
    pub(crate) fn new(method: Method, target: String) -> Call {
        Call {
            method,
            target,
            accept: "application/json",
            content_type: None,
            last_event_id: None,
            retry_key: None,
            once: false,
            body: Bytes::new(),
        }
    }

    /// A request with a JSON body.
    pub(crate) fn with_json(method: Method, target: String, body: &impl Serialize) -> Call {
        let text = serde_json::to_vec(body).expect("bodies can be written");
        Call { content_type: Some("application/json"), body: text.into(), ..Call::new(method, target) }
    }

    /// The same for what changes something: it is done once, however often it is sent.
    pub(crate) fn with_retry_key(self) -> Call {
        // Without randomness it cannot be told from others, so it is not sent again.
        match getrandom::u64().and_then(|high| Ok((high, getrandom::u64()?))) {
            Ok((high, low)) => Call { retry_key: Some(format!("client-{high:016x}{low:016x}")), ..self },
            Err(_) => self.once(),
        }
    }

    /// The same for what may not be done twice.
    pub(crate) fn once(self) -> Call {
        Call { once: true, ..self }
    }

    fn request(&self, address: &str, body: Body) -> Result<Request<Body>, hyper::http::Error> {
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(&self.target)
            .header(header::HOST, address)
            .header(header::ACCEPT, self.accept);
        if let Some(content_type) = self.content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        if let Some(id) = self.last_event_id {
            request = request.header("last-event-id", id);
        }
        if let Some(key) = &self.retry_key {
            request = request.header("lockwood-retry", key);
        }
        request.body(body)
    }

    fn body(&self) -> Body {
        Full::new(self.body.clone()).map_err(|never| match never {}).boxed_unsync()
    }
}

/// An attempt that came to nothing.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: Error,
    /// Whether the request was sent, or a part of it.
    sent: bool,
}

impl Failed {
    fn unsent(error: Error) -> Failed {
        Failed { error, sent: false }
    }

    fn sent(error: Error) -> Failed {
        Failed { error, sent: true }
    }

    /// Whether the request may have been carried out all the same.
    pub(crate) fn may_be_done(&self) -> bool {
        match self.error.code() {
            // The node that was asked asked another one.
            Some(code) => code == Code::ShardUnreachable,
            None => self.sent,
        }
    }
}

/// An answer that is still coming.
pub(crate) struct Streaming {
    address: String,
    headers: Box<HeaderMap>,
    body: Incoming,
    connection: JoinHandle<()>,
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// The answer to a call, if it is a good one. The server may wait so long with it.
pub(crate) async fn ask<T: DeserializeOwned>(
    address: &str,
    call: &Call,
    wait: Duration,
) -> Result<T, Failed> {
    let (status, body) = exchange(address, call, wait).await?;
    judge(status, &body).map_err(Failed::sent)
}

/// The answer to a call, whatever it is.
pub(crate) async fn exchange(
    address: &str,
    call: &Call,
    wait: Duration,
) -> Result<(StatusCode, Bytes), Failed> {
    let connection = connect(address).await.map_err(Failed::unsent)?;
    let answer = async {
        let (status, mut stream) = connection.send(call, call.body()).await?;
        let body = stream.collect().await?;
        Ok((status, body))
    };
    within(address, ANSWER_TIMEOUT.saturating_add(wait), answer).await.map_err(Failed::sent)
}

/// The answer to a call with a body that comes bit by bit, if it is a good one. It may take any time.
pub(crate) async fn upload<T: DeserializeOwned>(address: &str, call: &Call, body: Body) -> Result<T, Error> {
    let (status, mut stream) = connect(address).await?.send(call, body).await?;
    judge(status, &stream.collect().await?)
}

/// The answer to a call as a stream, if it is a good one.
pub(crate) async fn open(address: &str, call: &Call) -> Result<Streaming, Failed> {
    let connection = connect(address).await.map_err(Failed::unsent)?;
    let opened = async {
        let (status, mut stream) = connection.send(call, call.body()).await?;
        match status.is_success() {
            true => Ok(stream),
            false => Err(problem(status, &stream.collect().await?)),
        }
    };
    within(address, ANSWER_TIMEOUT, opened).await.map_err(Failed::sent)
}

fn judge<T: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<T, Error> {
    match status.is_success() {
        true => read(body),
        false => Err(problem(status, body)),
    }
}

async fn within<T>(
    address: &str,
    patience: Duration,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match timeout(patience, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(unreachable(address, format!("no answer within {} s", patience.as_secs()))),
    }
}

/// A connection that nothing was sent over yet.
struct Connection {
    address: String,
    sender: SendRequest<Body>,
    connection: JoinHandle<()>,
}

async fn connect(address: &str) -> Result<Connection, Error> {
    let connecting = async {
        let failed = |error: &(dyn std::error::Error + 'static)| unreachable(address, causes(error));
        let stream = TcpStream::connect(address).await.map_err(|error| failed(&error))?;
        let opened = handshake(TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(|error| failed(&error))?;
        // What goes wrong with the connection is told to whoever waits for the answer.
        let connection = tokio::spawn(async { drop(connection.await) });
        Ok(Connection { address: address.to_owned(), sender, connection })
    };
    within(address, CONNECT_TIMEOUT, connecting).await
}

impl Connection {
    async fn send(mut self, call: &Call, body: Body) -> Result<(StatusCode, Streaming), Error> {
        match self.exchange(call, body).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                let (address, headers) = (self.address, Box::new(head.headers));
                Ok((head.status, Streaming { address, headers, body, connection: self.connection }))
            }
            Err(error) => {
                self.connection.abort();
                Err(unreachable(&self.address, causes(&*error)))
            }
        }
    }

    async fn exchange(&mut self, call: &Call, body: Body) -> Result<Response<Incoming>, Failure> {
        let request = call.request(&self.address, body)?;
        Ok(self.sender.send_request(request).await?)
    }
}

impl Streaming {
    /// The number that a header says, if it is there and one.
    pub(crate) fn number(&self, header: &str) -> Option<u64> {
        self.headers.get(header)?.to_str().ok()?.parse().ok()
    }

    /// What comes next; none at the end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let frame = match timeout(SILENCE_MAX, self.body.frame()).await {
                Err(_) => return Err(self.broken(format!("silent for {} s", SILENCE_MAX.as_secs()))),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(self.broken(causes(&error))),
                Ok(Some(Ok(frame))) => frame,
            };
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    async fn collect(&mut self) -> Result<Bytes, Error> {
        match Limited::new(&mut self.body, ANSWER_BYTES_MAX).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) => Err(self.broken(causes(&*error))),
        }
    }

    /// The error of a stream that cannot go on.
    pub(crate) fn broken(&self, reason: String) -> Error {
        unreachable(&self.address, reason)
    }
}

/// A stream cut into lines, which come without their ends.
pub(crate) struct Lines {
    stream: Streaming,
    held: BytesMut,
    /// So much of what is held has no end of a line in it.
    searched: usize,
}

impl Lines {
    pub(crate) fn new(stream: Streaming) -> Lines {
        Lines { stream, held: BytesMut::new(), searched: 0 }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(line) = self.held_line() {
                return Ok(Some(line));
            }
            match self.stream.chunk().await? {
                Some(chunk) => self.held.extend_from_slice(&chunk),
                None if self.held.is_empty() => return Ok(None),
                None => {
                    self.searched = 0;
                    return Ok(Some(self.held.split().freeze()));
                }
            }
            if self.held.len() > ANSWER_BYTES_MAX && self.held_end().is_none() {
                return Err(Error::BadAnswer(format!("a line of more than {ANSWER_BYTES_MAX} bytes")));
            }
        }
    }

    fn held_line(&mut self) -> Option<Bytes> {
        let Some(end) = self.held_end() else {
            self.searched = self.held.len();
            return None;
        };
        let mut line = self.held.split_to(end + 1);
        line.truncate(end);
        self.searched = 0;
        Some(line.freeze())
    }

    fn held_end(&self) -> Option<usize> {
        let at = self.held[self.searched..].iter().position(|byte| *byte == b'\n')?;
        Some(self.searched + at)
    }
}

/// An error with what is behind it; hyper's own words alone say little.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        write!(text, ": {error}").expect("a string takes all");
        source = error.source();
    }
    text
}

fn unreachable(address: &str, reason: String) -> Error {
    Error::Unreachable { address: address.to_owned(), reason }
}

fn problem(status: StatusCode, body: &[u8]) -> Error {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => problem.into(),
        Err(_) => Error::BadAnswer(format!("HTTP status {status}")),
    }
}

pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| Error::BadAnswer(error.to_string()))
}

/// A request target under a namespace.
pub(crate) struct Target {
    pub(crate) text: String,
    /// What comes before the next query parameter.
    separator: char,
}

impl Target {
    pub(crate) fn new(namespace: &str, rest: &str) -> Target {
        Target { text: format!("/v1/{}/{rest}", escape(namespace)), separator: '?' }
    }

    pub(crate) fn query(mut self, name: &str, value: Option<impl ToString>) -> Target {
        if let Some(value) = value {
            let (separator, value) = (self.separator, escape(&value.to_string()));
            write!(self.text, "{separator}{name}={value}").expect("a string takes all");
            self.separator = '&';
        }
        self
    }

    /// Names with commas between them; nothing if there are none.
    pub(crate) fn names(self, name: &str, values: &[String]) -> Target {
        self.query(name, (!values.is_empty()).then(|| values.join(",")))
    }
}

/// Text as one segment of a URL.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            _ => write!(out, "%{byte:02X}").expect("a string takes all"),
        }
    }
    out
}
