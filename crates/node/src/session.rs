//! A session as the server keeps it, and what it is told without having asked. Knows nothing of sockets or
//! protocols.

use foldhash::fast::FixedState;
use lockwood_locks::Waiters;
use lockwood_model::{LockId, Timestamp};
use lockwood_wire::{Code, Owner};
use std::{collections::HashMap, net::SocketAddr};
use tokio::sync::mpsc::UnboundedSender;

use crate::{kernel::Stay, trouble::Trouble};

/// Through which interface a session came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// Our own session protocol.
    Native,
    /// The session protocol of Locktopus.
    Locktopus,
}

impl Via {
    fn as_str(self) -> &'static str {
        match self {
            Via::Native => "native",
            Via::Locktopus => "locktopus",
        }
    }

    /// What becomes of its waiting locks when the connection is lost. Locktopus keeps them: its users rely
    /// on a lost waiter's being granted.
    pub(crate) fn waiters(self) -> Waiters {
        match self {
            Via::Native => Waiters::Leave,
            Via::Locktopus => Waiters::Stay,
        }
    }

    /// Whether the session can be taken up again, and so must outlive its connection even without locks.
    pub(crate) fn reattaches(self) -> bool {
        self == Via::Native
    }
}

/// What a session is opened with.
pub struct Opening {
    /// Its id, which nobody can guess.
    pub id: String,
    /// How the client calls itself.
    pub name: Option<String>,
    /// Through which interface it came.
    pub via: Via,
    /// Where its connection comes from.
    pub peer: SocketAddr,
    /// Also says how long its locks stay after the connection is lost.
    pub stay: Stay,
}

/// One owner of locks, connected or away.
pub(crate) struct Session {
    pub(crate) opening: Opening,
    /// Where notices go; nothing while the session is away.
    pub(crate) outbox: Option<UnboundedSender<Notice>>,
    /// Counts the connections the session has had; only the latest may speak for it.
    pub(crate) seat: u64,
    /// The client's numbers for its requests, by the locks they led to.
    pub(crate) requests: HashMap<LockId, u64, FixedState>,
    pub(crate) away_until: Option<Timestamp>,
}

impl Session {
    pub(crate) fn tell(&self, notice: Notice) {
        // A receiver that is gone is about to say so itself.
        let _ = self.outbox.as_ref().map(|outbox| outbox.send(notice));
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner {
            session: self.opening.id.clone(),
            name: self.opening.name.clone(),
            via: self.opening.via.as_str().to_owned(),
            peer: Some(self.opening.peer.to_string()),
            connected: self.outbox.is_some(),
        }
    }
}

/// What a session is told without having asked; bounded by the number of its locks.
#[derive(Debug)]
pub enum Notice {
    /// A lock that waited is held.
    ///
    /// Not to be told before the record `after` is durable.
    Granted {
        /// The client's number of the request.
        request: u64,
        /// The lock.
        lock: LockId,
        /// Its fencing token.
        token: u64,
        /// The record that has to be durable first.
        after: u64,
    },
    /// A conversion that waited is done.
    Converted {
        /// The client's number of the request.
        request: u64,
        /// The lock.
        lock: LockId,
        /// Its fencing token.
        token: u64,
        /// The record that has to be durable first.
        after: u64,
    },
    /// A lock that waited is gone, or its conversion.
    Refused {
        /// The client's number of the request.
        request: u64,
        /// The lock.
        lock: LockId,
        /// Why.
        trouble: Box<Trouble>,
    },
    /// A lock is gone.
    Lost {
        /// The lock.
        lock: LockId,
        /// Why, for programs.
        code: Code,
        /// Why, for people.
        message: &'static str,
    },
    /// The server is about to stop.
    Draining,
    /// The server stops now.
    Closing,
    /// Another connection speaks for the session from now on.
    Replaced,
}
