//! A WebSocket connection: messages in, messages out, pings, and the end of it. Knows nothing of what the
//! messages say.

use crate::{
    frame::{Decoder, Encoder, Event, Fault},
    memory::{Account, FREE_BYTES, Share},
    shared::Shared,
    stream::Stream,
};
use lockwood_node::session::Notice;
use std::{io, pin::pin, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc::UnboundedReceiver,
    time::Instant,
};

/// Answers are collected up to this size before they are written although more requests are at hand.
const WRITE_BYTES: usize = 32 * 1024;
/// A connection's buffer up to this size is not counted in the account of memory.
const HELD_FREE_BYTES: usize = 64 * 1024;
/// How long the other side may take to say goodbye.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// The close code and the reason when there is no memory for what is to be said or heard.
pub(crate) const CLOSE_TRY_LATER: u16 = 1013;
/// The close code when nothing can be promised any more.
const CLOSE_STORAGE_FAILED: u16 = 1011;
pub(crate) const NO_MEMORY: &str = "memory_in_use";

/// What happens next on a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    /// The connection ends, with this code and reason in the close frame.
    Close(u16, &'static str),
}

/// Both sides of a protocol over a WebSocket; but for one, calls never wait.
pub(crate) trait Conversation {
    /// A message arrived.
    fn heard(&mut self, message: &[u8], replies: &mut Encoder) -> Flow;
    /// Something happened to the session's locks.
    fn noticed(&mut self, notice: Notice, replies: &mut Encoder) -> Flow;
    /// The other side broke the rules of WebSocket, or sent too much.
    fn faulted(&mut self, fault: Fault, replies: &mut Encoder) -> Flow;
    /// Waits until what was said can be told; the connection ends if that will never be.
    fn settled(&mut self) -> impl Future<Output = Result<(), Goodbye>> + Send;
    /// Where notices arrive.
    fn inbox(&mut self) -> &mut UnboundedReceiver<Notice>;
}

/// Something that has more and more to say, whatever the other side says.
pub(crate) trait Source {
    /// Says what there is to say now; true if there is more already.
    fn say(&mut self, out: &mut Encoder) -> impl Future<Output = Result<bool, Goodbye>> + Send;
    /// Waits until there is more to say. Can be given up and begun again.
    fn wait(&mut self) -> impl Future<Output = ()> + Send;
}

/// How a conversation ended: with this in the close frame.
#[derive(Debug)]
pub(crate) struct Goodbye {
    code: Option<u16>,
    reason: &'static str,
}

/// The connection is over; there is nobody to tell.
#[derive(Debug)]
pub(crate) struct Gone;

impl From<io::Error> for Gone {
    fn from(_: io::Error) -> Gone {
        Gone
    }
}

pub(crate) struct Socket {
    stream: Stream,
    decoder: Decoder,
    pub(crate) replies: Encoder,
    heard_at: Instant,
    /// Since when a message has been incomplete.
    partial_since: Option<Instant>,
    account: Arc<Account>,
    /// For what has arrived of a large message.
    share: Option<Share>,
    ping_interval: Duration,
    silence_max: Duration,
    body_timeout: Duration,
}

impl Socket {
    /// Takes over a connection after its handshake; `received` is what the other side has already sent.
    pub(crate) fn new(stream: Stream, received: &[u8], shared: &Shared) -> Socket {
        let config = &shared.config;
        Socket {
            stream,
            decoder: Decoder::new(received, config.limits.message_bytes_max as usize),
            replies: Encoder::default(),
            heard_at: Instant::now(),
            partial_since: None,
            account: Arc::clone(&shared.memory),
            share: None,
            ping_interval: config.ping_interval,
            silence_max: config.silence_max,
            body_timeout: config.body_timeout,
        }
    }

    /// The first message, if one arrives within `patience`.
    pub(crate) async fn first(&mut self, patience: Duration) -> Result<Vec<u8>, Option<Fault>> {
        let deadline = Instant::now() + patience;
        loop {
            while let Some(event) = self.decoder.next().map_err(Some)? {
                match event {
                    Event::Message(message) => return Ok(message.to_vec()),
                    Event::Ping(body) => self.replies.pong(body),
                    Event::Pong => {}
                    Event::Close(_) => return Err(None),
                }
            }
            self.flush().await.map_err(|Gone| None)?;
            if Instant::now() >= deadline {
                return Err(None);
            }
            let read = tokio::time::timeout_at(deadline, self.read());
            read.await.ok().and_then(Result::ok).ok_or(None)?;
            self.hold().map_err(Some)?;
        }
    }

    /// Carries on a conversation until one side ends it. If there is something left to say, [`Socket::close`]
    /// says it; by then the conversation, and all it held, can be gone.
    pub(crate) async fn converse(&mut self, conversation: &mut impl Conversation) -> Result<Goodbye, Gone> {
        let mut timer = pin!(tokio::time::sleep_until(self.heard_at + self.ping_interval));
        loop {
            if let Some(goodbye) = self.answer(conversation).await? {
                return Ok(goodbye);
            }
            let flow = tokio::select! {
                biased;
                // Notices first: a connection that has been replaced must hear of it however much it says.
                Some(notice) = conversation.inbox().recv() => conversation.noticed(notice, &mut self.replies),
                read = self.read() => {
                    read?;
                    match self.hold() {
                        Ok(()) => Flow::Continue,
                        Err(fault) => conversation.faulted(fault, &mut self.replies),
                    }
                }
                () = &mut timer => {
                    timer.as_mut().reset(Instant::now() + self.ping_interval);
                    self.probe()?;
                    match self.is_late() {
                        false => Flow::Continue,
                        true => conversation.faulted(Fault::TooSlow, &mut self.replies),
                    }
                }
            };
            if let Flow::Close(code, reason) = flow {
                return Ok(self.last(conversation, Goodbye { code: Some(code), reason }).await);
            }
        }
    }

    /// What was answered before the end is told with it, so it has to hold by then.
    async fn last(&mut self, conversation: &mut impl Conversation, goodbye: Goodbye) -> Goodbye {
        match conversation.settled().await {
            Ok(()) => goodbye,
            Err(goodbye) => self.take_back(goodbye),
        }
    }

    /// Passes on what a source says until one side ends it, as fast as the other side takes it.
    pub(crate) async fn broadcast(&mut self, source: &mut impl Source) -> Result<Goodbye, Gone> {
        let mut timer = pin!(tokio::time::sleep_until(self.heard_at + self.ping_interval));
        loop {
            if let Some(goodbye) = self.listen() {
                return Ok(goodbye);
            }
            let more = source.say(&mut self.replies).await;
            self.flush().await?;
            match more {
                Err(goodbye) => return Ok(goodbye),
                Ok(true) => self.read_ready()?,
                Ok(false) => tokio::select! {
                    () = source.wait() => {}
                    read = self.read() => read?,
                    () = &mut timer => {
                        timer.as_mut().reset(Instant::now() + self.ping_interval);
                        self.probe()?;
                    }
                },
            }
            if self.hold().is_err() {
                return Ok(Goodbye::new(CLOSE_TRY_LATER, NO_MEMORY));
            }
        }
    }

    /// Answers pings and takes notice of the end; what else the other side says is of no interest.
    fn listen(&mut self) -> Option<Goodbye> {
        loop {
            match self.decoder.next() {
                Ok(None) => return None,
                Ok(Some(Event::Ping(body))) => self.replies.pong(body),
                Ok(Some(Event::Message(_) | Event::Pong)) => {}
                Ok(Some(Event::Close(code))) => return Some(Goodbye { code, reason: "" }),
                Err(Fault::TooLarge { .. }) => return Some(Goodbye::new(1009, "message too large")),
                Err(Fault::BadFrame(reason)) => return Some(Goodbye::new(1002, reason)),
                Err(Fault::NoMemory | Fault::TooSlow) => {
                    return Some(Goodbye::new(CLOSE_TRY_LATER, NO_MEMORY));
                }
            }
        }
    }

    /// Reads what is here, without waiting.
    fn read_ready(&mut self) -> Result<(), Gone> {
        match self.stream.try_read_buf(self.decoder.room()) {
            Ok(0) => Err(Gone),
            Ok(_) => {
                self.heard_at = Instant::now();
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers all messages that are here, with one write.
    async fn answer(&mut self, conversation: &mut impl Conversation) -> Result<Option<Goodbye>, Gone> {
        loop {
            let next = self.decoder.next();
            if let Ok(Some(_)) = next {
                self.partial_since = None;
            }
            let flow = match next {
                Ok(None) => break,
                Ok(Some(Event::Message(message))) => conversation.heard(message, &mut self.replies),
                Ok(Some(Event::Ping(body))) => {
                    self.replies.pong(body);
                    Flow::Continue
                }
                Ok(Some(Event::Pong)) => Flow::Continue,
                Ok(Some(Event::Close(code))) => {
                    return Ok(Some(self.last(conversation, Goodbye { code, reason: "" }).await));
                }
                Err(fault) => conversation.faulted(fault, &mut self.replies),
            };
            if let Flow::Close(code, reason) = flow {
                return Ok(Some(self.last(conversation, Goodbye { code: Some(code), reason }).await));
            }
            if self.replies.bytes.len() > WRITE_BYTES {
                if let Err(goodbye) = conversation.settled().await {
                    return Ok(Some(self.take_back(goodbye)));
                }
                self.flush().await?;
            }
        }
        match self.decoder.is_partial() {
            true => self.partial_since = self.partial_since.or(Some(self.heard_at)),
            // The next read gives back what a large message needed.
            false => self.share = None,
        }
        if let Err(goodbye) = conversation.settled().await {
            return Ok(Some(self.take_back(goodbye)));
        }
        self.flush().await?;
        Ok(None)
    }

    /// Counts what has arrived of a large message in the account of memory.
    fn hold(&mut self) -> Result<(), Fault> {
        let bytes = self.decoder.held_bytes();
        if bytes <= HELD_FREE_BYTES {
            self.share = None;
            return Ok(());
        }
        let held = self.share.get_or_insert_with(|| self.account.charge(0));
        held.resize(bytes).map_err(|_| Fault::NoMemory)
    }

    /// Whether a message that was begun should be complete by now.
    fn is_late(&self) -> bool {
        self.partial_since.is_some_and(|since| since.elapsed() >= self.body_timeout)
    }

    /// What was to be said is not true.
    fn take_back(&mut self, goodbye: Goodbye) -> Goodbye {
        self.replies.clear();
        goodbye
    }

    async fn read(&mut self) -> Result<(), Gone> {
        match self.stream.read_buf(self.decoder.room()).await? {
            0 => Err(Gone),
            _ => {
                self.heard_at = Instant::now();
                Ok(())
            }
        }
    }

    /// Pings a silent peer, and gives up one that has been silent for too long.
    fn probe(&mut self) -> Result<(), Gone> {
        let silence = self.heard_at.elapsed();
        if silence >= self.silence_max {
            return Err(Gone);
        }
        if silence >= self.ping_interval {
            self.replies.ping();
        }
        Ok(())
    }

    /// Writes what is to be said. A peer that takes nothing for too long is given up by the connection itself.
    async fn flush(&mut self) -> Result<(), Gone> {
        if self.replies.bytes.is_empty() {
            return Ok(());
        }
        let written = match self.stream.try_write(&self.replies.bytes) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        if written < self.replies.bytes.len() {
            let waiting = self.replies.bytes.capacity();
            let _share = (waiting > FREE_BYTES).then(|| self.account.charge(waiting));
            self.stream.write_all(&self.replies.bytes[written..]).await?;
            self.stream.flush().await?;
        }
        self.replies.clear();
        Ok(())
    }

    /// Says goodbye, and gives the other side a moment to say it too. What it still sends is read and thrown
    /// away: a connection that is closed with something unread is reset, and the last words are lost.
    pub(crate) async fn close(&mut self, goodbye: Goodbye) -> Result<(), Gone> {
        self.replies.close(goodbye.code, goodbye.reason);
        self.flush().await?;
        self.stream.shutdown().await?;
        let rest = async {
            let mut scrap = [0; 4096];
            while self.stream.read(&mut scrap).await.is_ok_and(|count| count > 0) {}
        };
        let _ = tokio::time::timeout(CLOSE_PATIENCE, rest).await;
        Ok(())
    }
}

impl Goodbye {
    /// What was answered cannot be told: the disk of a single server failed, or another node may own the shard by now.
    pub(crate) fn unsettled(is_sole: bool) -> Goodbye {
        match is_sole {
            true => Goodbye::new(CLOSE_STORAGE_FAILED, "the disk failed"),
            false => Goodbye::new(CLOSE_TRY_LATER, "shard_unreachable"),
        }
    }

    pub(crate) fn new(code: u16, reason: &'static str) -> Goodbye {
        Goodbye { code: Some(code), reason }
    }
}
