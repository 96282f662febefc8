//! One connection of the Locktopus protocol: one lock at a time, ready, enqueued or acquired. Decodes, calls,
//! encodes.

use super::message::{BadResource, Message};
use crate::{
    frame::{Encoder, Fault},
    shared::Shared,
    socket::{Conversation, Flow, Goodbye, Socket},
    stream::Stream,
};
use lockwood_model::LockId;
use lockwood_node::{
    metrics::Interface,
    seat::{Answer, Seat},
    session::Notice,
    trouble::Trouble,
};
use lockwood_wire::Code;
use tokio::sync::mpsc::UnboundedReceiver;

/// The close code of the original for everything it does not like.
const CLOSE_ERROR: u16 = 3000;
const CLOSE_GOING_AWAY: u16 = 1001;
const CLOSE_BAD_FRAME: u16 = 1002;

/// Carries on a connection until it ends.
pub(crate) async fn run(shared: &Shared, seat: Seat, log_locks: bool, stream: Stream, received: &[u8]) {
    let first_number = seat.namespace().first_number();
    let mut socket = Socket::new(stream, received, shared);
    // The seat is given up here, before the last words are said.
    let ending =
        socket.converse(&mut Talk { shared, seat, first_number, turn: Turn::Ready, log_locks }).await;
    if let Ok(goodbye) = ending {
        let _ = socket.close(goodbye).await;
    }
}

/// Where the one lock of a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Ready,
    Enqueued(LockId),
    Acquired(LockId),
}

impl Turn {
    fn as_str(self) -> &'static str {
        match self {
            Turn::Ready => "ready",
            Turn::Enqueued(_) => "enqueued",
            Turn::Acquired(_) => "acquired",
        }
    }
}

struct Talk<'a> {
    shared: &'a Shared,
    seat: Seat,
    /// Locks are numbered from 1 in every namespace here.
    first_number: u64,
    turn: Turn,
    log_locks: bool,
}

/// Why a client is given up: in words for the client, by a code for the metrics.
struct Complaint {
    code: Code,
    reason: String,
}

impl Complaint {
    /// A message that the protocol does not have.
    fn bad_message(reason: String) -> Complaint {
        Complaint { code: Code::BadMessage, reason }
    }
}

impl From<Trouble> for Complaint {
    fn from(trouble: Trouble) -> Complaint {
        Complaint { code: trouble.code, reason: trouble.message }
    }
}

impl Conversation for Talk<'_> {
    fn heard(&mut self, message: &[u8], replies: &mut Encoder) -> Flow {
        match self.obey(message) {
            Ok(reply) => {
                replies.text(&reply);
                Flow::Continue
            }
            Err(Complaint { code, reason }) => self.give_up(code, &reason, replies),
        }
    }

    fn noticed(&mut self, notice: Notice, replies: &mut Encoder) -> Flow {
        match notice {
            Notice::Granted { lock, after, .. } if self.turn == Turn::Enqueued(lock) => {
                self.seat.granted(after);
                self.turn = Turn::Acquired(lock);
                replies.text(&self.state("lock", lock));
                Flow::Continue
            }
            Notice::Lost { lock, code, message } if self.turn == Turn::Acquired(lock) => {
                self.give_up(code, message, replies)
            }
            Notice::Refused { lock, trouble, .. } if self.turn == Turn::Enqueued(lock) => {
                self.give_up(trouble.code, &trouble.message, replies)
            }
            Notice::Closing => Flow::Close(CLOSE_GOING_AWAY, ""),
            // The protocol has no words for the rest, and its clients would take any for an error.
            _ => Flow::Continue,
        }
    }

    fn faulted(&mut self, fault: Fault, replies: &mut Encoder) -> Flow {
        match fault {
            Fault::TooLarge { bytes_max } => {
                let reason = format!("the message has more than {bytes_max} bytes (message_bytes_max)");
                self.give_up(Code::OverLimit, &reason, replies)
            }
            Fault::BadFrame(reason) => Flow::Close(CLOSE_BAD_FRAME, reason),
            Fault::NoMemory => self.give_up(
                Code::MemoryInUse,
                "unfinished requests and unread answers hold as much memory as they may (held_bytes_max); try later",
                replies,
            ),
            Fault::TooSlow => {
                let reason = "the message took too long to arrive (--body-timeout)";
                self.give_up(Code::BodyTimeout, reason, replies)
            }
        }
    }

    async fn settled(&mut self) -> Result<(), Goodbye> {
        match self.seat.settled().await {
            true => Ok(()),
            false => Err(Goodbye::unsettled(self.seat.is_sole())),
        }
    }

    fn inbox(&mut self) -> &mut UnboundedReceiver<Notice> {
        &mut self.seat.inbox
    }
}

impl Talk<'_> {
    fn obey(&mut self, bytes: &[u8]) -> Result<String, Complaint> {
        let message = Message::decode(bytes).map_err(Complaint::bad_message)?;
        match (message.action.as_str(), self.turn) {
            ("lock", Turn::Ready) => self.lock(message),
            ("release", Turn::Enqueued(lock) | Turn::Acquired(lock)) => Ok(self.release(lock)),
            ("lock" | "release", turn) => {
                let reason = format!("invalid action: {} [{}]", message.action, turn.as_str());
                Err(Complaint::bad_message(reason))
            }
            (other, _) => {
                let reason = format!("invalid action: {}; use lock or release", other.escape_debug());
                Err(Complaint::bad_message(reason))
            }
        }
    }

    fn lock(&mut self, message: Message) -> Result<String, Complaint> {
        let resources = message.into_resources().map_err(|error| match error {
            BadResource::Type(reason) => Complaint { code: Code::BadMode, reason },
            BadResource::TooDeep(len) => self.seat.too_deep(len).into(),
        })?;
        self.seat.check_names(&resources)?;
        let (lock, turn) = match self.seat.lock_plainly(resources)? {
            Answer::Done { lock, .. } => (lock, Turn::Acquired(lock)),
            Answer::Queued { lock, line: () } | Answer::Closing { lock } => (lock, Turn::Enqueued(lock)),
        };
        self.turn = turn;
        if self.log_locks {
            tracing::info!(namespace = ?self.seat.namespace().name, lock = lock.0, state = turn.as_str(), "locktopus lock");
        }
        Ok(self.state("lock", lock))
    }

    /// The lock is free before the answer is sent.
    fn release(&mut self, lock: LockId) -> String {
        // It may be gone already, ended by an operator; then there is nothing left to release.
        let _ = self.seat.release(lock);
        self.turn = Turn::Ready;
        if self.log_locks {
            tracing::info!(namespace = ?self.seat.namespace().name, lock = lock.0, "locktopus release");
        }
        self.state("release", lock)
    }

    /// The one form of message there is, with the newline the original ends it with.
    fn state(&self, action: &str, lock: LockId) -> String {
        let (id, state) = (lock.0 - self.first_number + 1, self.turn.as_str());
        format!("{{\"id\":\"{id}\",\"action\":\"{action}\",\"state\":\"{state}\"}}\n")
    }

    fn give_up(&self, code: Code, reason: &str, replies: &mut Encoder) -> Flow {
        self.shared.metrics.requests.refused(Interface::Locktopus, code);
        replies.text(&format!("communication error: {reason}"));
        Flow::Close(CLOSE_ERROR, "")
    }
}
