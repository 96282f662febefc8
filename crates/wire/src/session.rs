//! The messages of a session, both ways. Knows nothing of the order in which they may come.
//!
//! Every client message carries an `id` of the client's choice; every answer to it carries the same `id`,
//! also the late one to a lock that had to queue.

use crate::{Blocker, Code, CycleStep, WireResource, WireWait, documents::in_words};
use lockwood_model::Wait;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What a client says.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientMessage {
    /// Opens a session; the first message of a connection, unless it is an `attach`.
    Hello {
        /// The client's number for this message.
        id: u64,
        /// How the session is called in listings.
        name: Option<String>,
        /// How long its locks stay after the connection is lost.
        abandon_timeout_ms: Option<u64>,
    },
    /// Takes up a session again after its connection was lost.
    Attach {
        /// The client's number for this message.
        id: u64,
        /// Which session.
        session: String,
        /// What `welcome` gave for it.
        secret: String,
        /// As in `hello`; needed if the server restarted meanwhile.
        name: Option<String>,
        /// As in `hello`; needed if the server restarted meanwhile.
        abandon_timeout_ms: Option<u64>,
        /// The locks the client held; put back if the server restarted meanwhile.
        locks: Vec<Reclaim>,
    },
    /// Takes a set of resources.
    Lock {
        /// The client's number for this message.
        id: u64,
        /// What to take.
        resources: Vec<WireResource>,
        /// How long to wait.
        wait: Wait,
    },
    /// Ends a lock, held or waiting.
    Release {
        /// The client's number for this message.
        id: u64,
        /// Which lock.
        lock: u64,
    },
    /// Ends the waiting of a lock or of its conversion.
    Cancel {
        /// The client's number for this message.
        id: u64,
        /// Which lock.
        lock: u64,
    },
    /// Gives a held lock another mode.
    Convert {
        /// The client's number for this message.
        id: u64,
        /// Which lock.
        lock: u64,
        /// The mode for all its resources; or
        mode: Option<String>,
        /// the modes for some of them.
        resources: Option<Vec<WireResource>>,
        /// How long to wait.
        wait: Wait,
    },
    /// Asks where a waiting lock stands.
    Place {
        /// The client's number for this message.
        id: u64,
        /// Which lock.
        lock: u64,
    },
    /// Ends the session and all its locks.
    Bye {
        /// The client's number for this message.
        id: u64,
    },
}

/// A lock to be put back after a restart of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reclaim {
    /// The number the lock had.
    pub lock: u64,
    /// Its token.
    pub token: u64,
    /// What it covered.
    pub resources: Vec<WireResource>,
}

/// What the server says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerMessage {
    /// The session is open.
    Welcome {
        /// The number of the `hello` or `attach`.
        id: u64,
        /// The session's public name, to be used in `attach` together with
        session: String,
        /// its secret, which no listing or log shows.
        secret: String,
        /// How long locks stay after the connection is lost.
        abandon_timeout_ms: u64,
        /// How long the server will not grant anything yet because it restarted without warning.
        grace_ms: u64,
        /// The locks the session has.
        locks: Vec<HeldLock>,
    },
    /// The lock is held.
    Granted {
        /// The number of the `lock`.
        id: u64,
        /// The lock.
        lock: u64,
        /// Its fencing token.
        token: u64,
    },
    /// The lock, or its conversion, has to wait.
    Queued {
        /// The number of the `lock` or `convert`.
        id: u64,
        /// The lock.
        lock: u64,
        /// 1 for the next in line.
        place: usize,
        /// How many locks are in the way.
        blockers_len: usize,
        /// Some of them, holders first.
        blockers: Vec<Blocker>,
    },
    /// Where a lock stands now.
    Place {
        /// The number of the `place`.
        id: u64,
        /// The lock.
        lock: u64,
        /// 1 for the next in line; 0 if it does not wait.
        place: usize,
        /// How many locks are in the way.
        blockers_len: usize,
        /// Some of them, holders first.
        blockers: Vec<Blocker>,
    },
    /// The lock has its new modes.
    Converted {
        /// The number of the `convert`.
        id: u64,
        /// The lock.
        lock: u64,
        /// Its token from now on.
        token: u64,
    },
    /// The lock is gone, as asked.
    Released {
        /// The number of the `release`.
        id: u64,
        /// The lock.
        lock: u64,
    },
    /// The waiting is over, as asked.
    Cancelled {
        /// The number of the `cancel`.
        id: u64,
        /// The lock.
        lock: u64,
        /// True if it was a conversion that waited: the lock itself is still held, with its old modes.
        held: bool,
    },
    /// A lock is gone, not as asked.
    Lost {
        /// The lock.
        lock: u64,
        /// Why.
        code: Code,
        /// In words, and what to do.
        message: String,
    },
    /// The server is about to stop.
    Draining {
        /// How long it waits for locks to be released.
        timeout_ms: u64,
        /// In words, and what to do.
        message: String,
    },
    /// What was asked for was not done.
    Error {
        /// The number of the message, as far as it could be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<u64>,
        /// Why.
        code: Code,
        /// In words, and what to do.
        message: String,
        /// The lock it is about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lock: Option<u64>,
        /// Some of those in the way, for `locked` and `timeout`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        blockers: Vec<Blocker>,
        /// Who waits for whom, for `deadlock`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        cycle: Vec<CycleStep>,
    },
    /// The session is over.
    Bye {
        /// The number of the `bye`.
        id: u64,
    },
}

/// A lock a session has when it is taken up again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldLock {
    /// The lock.
    pub lock: u64,
    /// The number of the `lock` message that asked for it, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<u64>,
    /// Its token; nothing if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// The number it had before the server restarted, if it was put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<u64>,
    /// What it covers.
    pub resources: Vec<WireResource>,
}

/// A message that is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// The number of the message, as far as it could be read.
    pub id: Option<u64>,
    /// What is wrong and what to send instead.
    pub message: String,
}

/// All fields of all messages. One flat shape decodes in one pass, without a copy of the message in between.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Flat<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    abandon_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locks: Option<Vec<Reclaim>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<Vec<WireResource>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<WireWait>,
}

impl ClientMessage {
    /// Reads a message. An absent `wait` means for ever.
    pub fn decode(text: &[u8]) -> Result<ClientMessage, DecodeError> {
        // Without this an array of the values in the right order would do as well.
        if text.trim_ascii_start().first() != Some(&b'{') {
            return Err(DecodeError { id: None, message: "not a message: a JSON object is expected".into() });
        }
        let flat: Flat<'_> = serde_json::from_slice(text).map_err(|error| {
            let message = format!("not a message: {}", in_words::<Flat<'_>>(text, &error));
            DecodeError { id: id_of(text), message }
        })?;
        let id =
            flat.id.ok_or_else(|| DecodeError { id: None, message: "the field id is missing".into() })?;
        flat.into_message(id).map_err(|message| DecodeError { id: Some(id), message })
    }

    /// Writes a message.
    pub fn encode(self) -> String {
        serde_json::to_string(&Flat::from(self)).expect("a message is always valid JSON")
    }
}

/// The number of a message that is otherwise unreadable, so that its sender can tell which one it was.
fn id_of(text: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Numbered {
        id: u64,
    }
    serde_json::from_slice::<Numbered>(text).ok().map(|message| message.id)
}

impl Flat<'_> {
    fn into_message(self, id: u64) -> Result<ClientMessage, String> {
        let wait = self.wait.map_or(Wait::Forever, |WireWait(wait)| wait);
        let lock = self.lock;
        let the_lock = || lock.ok_or("the field lock is missing: the number of a lock of this session");
        Ok(match &*self.kind {
            "hello" => {
                ClientMessage::Hello { id, name: self.name, abandon_timeout_ms: self.abandon_timeout_ms }
            }
            "attach" => ClientMessage::Attach {
                id,
                session: self.session.ok_or("the field session is missing: welcome gave it")?,
                secret: self.secret.ok_or("the field secret is missing: welcome gave it")?,
                name: self.name,
                abandon_timeout_ms: self.abandon_timeout_ms,
                locks: self.locks.unwrap_or_default(),
            },
            "lock" => ClientMessage::Lock {
                id,
                resources: self.resources.ok_or("the field resources is missing: a list of path and mode")?,
                wait,
            },
            "release" => ClientMessage::Release { id, lock: the_lock()? },
            "cancel" => ClientMessage::Cancel { id, lock: the_lock()? },
            "convert" => ClientMessage::Convert {
                id,
                lock: the_lock()?,
                mode: self.mode,
                resources: self.resources,
                wait,
            },
            "place" => ClientMessage::Place { id, lock: the_lock()? },
            "bye" => ClientMessage::Bye { id },
            "" => return Err("the field type is missing: hello, attach, lock, release, ...".into()),
            other => {
                return Err(format!(
                    "there is no message of type {other:?}; there are hello, attach, lock, release, cancel, \
                     convert, place and bye"
                ));
            }
        })
    }
}

impl From<ClientMessage> for Flat<'static> {
    fn from(message: ClientMessage) -> Flat<'static> {
        let flat =
            |kind: &'static str, id: u64| Flat { kind: Cow::Borrowed(kind), id: Some(id), ..Flat::default() };
        match message {
            ClientMessage::Hello { id, name, abandon_timeout_ms } => {
                Flat { name, abandon_timeout_ms, ..flat("hello", id) }
            }
            ClientMessage::Attach { id, session, secret, name, abandon_timeout_ms, locks } => Flat {
                session: Some(session),
                secret: Some(secret),
                name,
                abandon_timeout_ms,
                locks: Some(locks),
                ..flat("attach", id)
            },
            ClientMessage::Lock { id, resources, wait } => {
                Flat { resources: Some(resources), wait: Some(WireWait(wait)), ..flat("lock", id) }
            }
            ClientMessage::Release { id, lock } => Flat { lock: Some(lock), ..flat("release", id) },
            ClientMessage::Cancel { id, lock } => Flat { lock: Some(lock), ..flat("cancel", id) },
            ClientMessage::Convert { id, lock, mode, resources, wait } => {
                Flat { lock: Some(lock), mode, resources, wait: Some(WireWait(wait)), ..flat("convert", id) }
            }
            ClientMessage::Place { id, lock } => Flat { lock: Some(lock), ..flat("place", id) },
            ClientMessage::Bye { id } => flat("bye", id),
        }
    }
}

impl ServerMessage {
    /// Writes a message. The two most frequent ones have nothing in them that needs an encoder.
    pub fn encode(&self) -> String {
        match self {
            ServerMessage::Granted { id, lock, token } => {
                format!(r#"{{"type":"granted","id":{id},"lock":{lock},"token":{token}}}"#)
            }
            ServerMessage::Released { id, lock } => {
                format!(r#"{{"type":"released","id":{id},"lock":{lock}}}"#)
            }
            other => serde_json::to_string(other).expect("a message is always valid JSON"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WirePath;

    fn resource(path: &str, mode: &'static str, depth: Option<u64>) -> WireResource {
        WireResource { path: WirePath(path.parse().unwrap()), mode: Cow::Borrowed(mode), depth }
    }

    #[test]
    fn messages_round_trip() {
        let messages = [
            ClientMessage::Hello { id: 1, name: Some("a".into()), abandon_timeout_ms: Some(5) },
            ClientMessage::Attach {
                id: 2,
                session: "s".into(),
                secret: "x".into(),
                name: None,
                abandon_timeout_ms: None,
                locks: vec![Reclaim {
                    lock: 4,
                    token: 7,
                    resources: vec![resource("a/b", "write", Some(2))],
                }],
            },
            ClientMessage::Lock { id: 3, resources: vec![resource("/", "read", None)], wait: Wait::Never },
            ClientMessage::Lock { id: 4, resources: vec![], wait: Wait::Millis(10) },
            ClientMessage::Release { id: 5, lock: 9 },
            ClientMessage::Cancel { id: 6, lock: 9 },
            ClientMessage::Convert {
                id: 7,
                lock: 9,
                mode: Some("write".into()),
                resources: None,
                wait: Wait::Forever,
            },
            ClientMessage::Place { id: 8, lock: 9 },
            ClientMessage::Bye { id: 9 },
        ];
        for message in messages {
            assert_eq!(ClientMessage::decode(message.clone().encode().as_bytes()), Ok(message));
        }
    }

    #[test]
    fn what_is_written_by_hand_is_what_the_encoder_writes() {
        let granted = ServerMessage::Granted { id: 1, lock: 2, token: u64::MAX };
        for message in [granted, ServerMessage::Released { id: 0, lock: 3 }] {
            assert_eq!(message.encode(), serde_json::to_string(&message).unwrap());
        }
    }

    #[test]
    fn paths_are_arrays_or_text() {
        let text = br#"{"type":"lock","id":1,"resources":[{"path":"user/4%2F2","mode":"read"},{"path":["user","4/2"],"mode":"read"}]}"#;
        let Ok(ClientMessage::Lock { resources, wait: Wait::Forever, .. }) = ClientMessage::decode(text)
        else {
            panic!("a lock");
        };
        assert_eq!(resources[0], resources[1]);
    }

    #[track_caller]
    fn check_error(text: &str, id: Option<u64>, part: &str) {
        let error = ClientMessage::decode(text.as_bytes()).unwrap_err();
        assert_eq!(error.id, id, "{text}");
        assert!(error.message.contains(part), "{text}: {}", error.message);
    }

    #[test]
    fn mistakes_are_explained() {
        check_error("", None, "not a message");
        check_error("[1]", None, "not a message");
        check_error("{}", None, "id is missing");
        check_error(r#"{"id":3}"#, Some(3), "type is missing");
        check_error(r#"{"id":3,"type":"lok"}"#, Some(3), "no message of type");
        check_error(r#"{"id":3,"type":"lock","resource":[]}"#, Some(3), "unknown field");
        check_error(r#"{"id":3,"type":"lock"}"#, Some(3), "resources is missing");
        check_error(r#"{"id":3,"type":"release"}"#, Some(3), "lock is missing");
        check_error(r#"{"id":3,"type":"lock","resources":[],"wait":-1}"#, Some(3), "a wait");
        check_error(r#"{"id":3,"type":"lock","resources":[{"path":"a//b","mode":"read"}]}"#, Some(3), "%_");
    }
}
