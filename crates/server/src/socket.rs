//! A WebSocket connection: messages in, messages out, pings, and the end of it. Knows nothing of what the
//! messages say.

use crate::{config::Config, session::Notice};
use bytes::Bytes;
use futures_util::{FutureExt, SinkExt, StreamExt};
use std::{future::Future, pin::pin, time::Duration};
use tokio::{net::TcpStream, sync::mpsc::UnboundedReceiver, time::Instant};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message,
        error::{CapacityError, ProtocolError},
        protocol::{CloseFrame, Role, WebSocketConfig},
    },
};

/// The receive buffer of every connection; small, because most connections are idle most of the time.
const READ_BUFFER_BYTES: usize = 2048;
/// Answers are collected up to this size before they are written although more requests are at hand.
const WRITE_BUFFER_BYTES: usize = 16 * 1024;

/// What happens next on a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    /// The connection ends, with this code and reason in the close frame.
    Close(u16, &'static str),
}

/// Both sides of a protocol over a WebSocket; calls never wait.
pub(crate) trait Conversation {
    /// A message arrived. Replies are pushed to `replies`.
    fn heard(&mut self, message: &[u8], replies: &mut Vec<String>) -> Flow;
    /// Something happened to the session's locks.
    fn noticed(&mut self, notice: Notice, replies: &mut Vec<String>) -> Flow;
    /// The other side broke the rules of WebSocket, or sent too much.
    fn faulted(&mut self, fault: &Fault, replies: &mut Vec<String>) -> Flow;
    /// Where notices arrive.
    fn inbox(&mut self) -> &mut UnboundedReceiver<Notice>;
}

/// Why nothing more can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A message over the limit.
    TooLarge { bytes: usize, bytes_max: usize },
    /// A text frame that is not UTF-8.
    NotUtf8,
    /// Frames that are none.
    BadFrame,
}

enum Heard {
    Message(Bytes),
    Sign,
    Fault(Fault),
    Gone,
}

pub(crate) struct Socket {
    stream: WebSocketStream<TcpStream>,
    heard_at: Instant,
    ping_interval: Duration,
    silence_max: Duration,
}

impl Socket {
    /// Takes over a connection after its handshake; `received` is what the other side has already sent.
    pub(crate) async fn new(tcp: TcpStream, received: Vec<u8>, config: &Config) -> Socket {
        let bytes_max = config.limits.message_bytes_max as usize;
        let settings = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(WRITE_BUFFER_BYTES)
            .max_message_size(Some(bytes_max))
            .max_frame_size(Some(bytes_max));
        let stream = WebSocketStream::from_partially_read(tcp, received, Role::Server, Some(settings)).await;
        Socket {
            stream,
            heard_at: Instant::now(),
            ping_interval: config.ping_interval,
            silence_max: config.silence_max,
        }
    }

    /// The next message, if one arrives within `patience`. For the start of a conversation.
    pub(crate) async fn first(&mut self, patience: Duration) -> Result<Bytes, Option<Fault>> {
        let deadline = Instant::now() + patience;
        loop {
            match tokio::time::timeout_at(deadline, self.hear()).await {
                Ok(Heard::Message(message)) => return Ok(message),
                Ok(Heard::Sign) => {}
                Ok(Heard::Fault(fault)) => return Err(Some(fault)),
                Ok(Heard::Gone) | Err(_) => return Err(None),
            }
        }
    }

    /// Carries on a conversation until one side ends it.
    pub(crate) async fn converse(&mut self, conversation: &mut impl Conversation) {
        let mut replies = Vec::new();
        let mut timer = pin!(tokio::time::sleep_until(self.heard_at + self.ping_interval));
        loop {
            let flow = tokio::select! {
                biased;
                heard = self.hear() => self.answer(heard, conversation, &mut replies).await,
                Some(notice) = conversation.inbox().recv() => Some(conversation.noticed(notice, &mut replies)),
                () = &mut timer => {
                    timer.as_mut().reset(Instant::now() + self.ping_interval);
                    self.probe().await
                }
            };
            let Some(flow) = flow else { return };
            if self.send(&mut replies).await.is_err() {
                return;
            }
            if let Flow::Close(code, reason) = flow {
                return self.close(code, reason).await;
            }
        }
    }

    /// Answers a message and all that are already here behind it, so that they share one write.
    async fn answer(
        &mut self,
        first: Heard,
        conversation: &mut impl Conversation,
        replies: &mut Vec<String>,
    ) -> Option<Flow> {
        let mut heard = first;
        self.heard_at = Instant::now();
        loop {
            let flow = match heard {
                Heard::Message(message) => conversation.heard(&message, replies),
                Heard::Sign => Flow::Continue,
                Heard::Fault(fault) => conversation.faulted(&fault, replies),
                Heard::Gone => return None,
            };
            if flow != Flow::Continue {
                return Some(flow);
            }
            for reply in replies.drain(..) {
                self.feed(Message::text(reply)).await.ok()?;
            }
            match self.hear().now_or_never() {
                Some(next) => heard = next,
                None => return Some(Flow::Continue),
            }
        }
    }

    async fn hear(&mut self) -> Heard {
        match self.stream.next().await {
            Some(Ok(Message::Text(text))) => Heard::Message(text.into()),
            Some(Ok(Message::Binary(bytes))) => Heard::Message(bytes),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Heard::Sign,
            // The answering close frame is written by the next read, which then ends.
            Some(Ok(Message::Close(_))) => Heard::Sign,
            Some(Err(Error::Capacity(CapacityError::MessageTooLong { size, max_size }))) => {
                Heard::Fault(Fault::TooLarge { bytes: size, bytes_max: max_size })
            }
            Some(Err(Error::Utf8(_))) => Heard::Fault(Fault::NotUtf8),
            Some(Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => Heard::Gone,
            Some(Err(Error::Protocol(_))) => Heard::Fault(Fault::BadFrame),
            Some(Err(_)) | None => Heard::Gone,
        }
    }

    /// Pings a silent peer; nothing if it has been silent for too long.
    async fn probe(&mut self) -> Option<Flow> {
        let silence = self.heard_at.elapsed();
        if silence >= self.silence_max {
            return None;
        }
        if silence >= self.ping_interval {
            self.feed(Message::Ping(Bytes::new())).await.ok()?;
        }
        Some(Flow::Continue)
    }

    pub(crate) async fn send(&mut self, replies: &mut Vec<String>) -> Result<(), Error> {
        for reply in replies.drain(..) {
            self.feed(Message::text(reply)).await?;
        }
        let patience = self.silence_max;
        within(patience, self.stream.flush()).await
    }

    async fn feed(&mut self, message: Message) -> Result<(), Error> {
        let patience = self.silence_max;
        within(patience, self.stream.feed(message)).await
    }

    /// Says goodbye, and gives the other side a moment to say it too.
    pub(crate) async fn close(&mut self, code: u16, reason: &'static str) {
        const PATIENCE: Duration = Duration::from_secs(1);
        let frame = CloseFrame { code: code.into(), reason: reason.into() };
        if within(PATIENCE, self.stream.close(Some(frame))).await.is_ok() {
            let rest = async { while let Some(Ok(_)) = self.stream.next().await {} };
            let _ = tokio::time::timeout(PATIENCE, rest).await;
        }
    }
}

/// Waits for a write; sets a timer only if it cannot be done at once, which is rare.
async fn within(patience: Duration, write: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let mut write = pin!(write);
    if let Some(done) = write.as_mut().now_or_never() {
        return done;
    }
    tokio::time::timeout(patience, write).await.unwrap_or(Err(Error::ConnectionClosed))
}
