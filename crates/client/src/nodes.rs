//! Which nodes can be asked, and asking again: another node, or the same one later. Knows nothing of what is
//! asked.

use crate::{
    error::Error,
    transport::{self, Call, Failed, Streaming},
};
use bytes::Bytes;
use hyper::StatusCode;
use lockwood_wire::Code;
use serde::de::DeserializeOwned;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// How long a request is tried again, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(30);
/// The only node there is gets its shard map soon, or not without somebody's help.
const NO_MAP_PATIENCE: Duration = Duration::from_secs(2);
/// The first pause between two attempts, each further one is twice as long,
const PAUSE_FIRST: Duration = Duration::from_millis(10);
/// up to this.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The nodes of a cluster, each of which can answer everything; or one server.
///
/// What passes by itself is asked again for 30 seconds, or as long as [`Nodes::patience`] says:
///
/// | what | then |
/// | --- | --- |
/// | a node cannot be reached, does not answer or is about to stop | the next node is asked |
/// | `shard_unreachable`, `no_map` | the next node is asked, after a pause |
/// | `wrong_epoch`, `moving`, `grace_period` | the same node is asked, after a pause |
///
/// A lone node without a map is asked again for two seconds at most.
///
/// The only server there is, if it is gone or grants nothing yet, is not asked again unless a patience is given:
/// whoever gave a wrong address should hear of it.
#[derive(Clone)]
pub struct Nodes {
    addresses: Arc<[String]>,
    /// Which one is asked next; shared with all clones, so that nobody asks a dead node twice.
    next: Arc<AtomicUsize>,
    patience: Option<Duration>,
}

impl Nodes {
    /// The nodes at some addresses, host and port with commas between them.
    pub fn new(addresses: &str) -> Nodes {
        let mut addresses: Vec<String> =
            addresses.split(',').map(|address| address.trim().to_owned()).collect();
        if addresses.len() > 1 {
            addresses.retain(|address| !address.is_empty());
        }
        Nodes { addresses: addresses.into(), next: Arc::default(), patience: None }
    }

    /// How long a request is tried again.
    pub fn patience(mut self, patience: Duration) -> Nodes {
        self.patience = Some(patience);
        self
    }

    /// Their addresses.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The answer to a call, if it is a good one.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        self.ask_within(call, Duration::ZERO).await
    }

    /// The same for what a node may wait so long with before it answers.
    pub(crate) async fn ask_within<T: DeserializeOwned>(
        &self,
        call: &Call,
        wait: Duration,
    ) -> Result<T, Error> {
        self.ask_surely(call, wait).await.map_err(|(error, _)| error)
    }

    /// The same; an error comes with whether an attempt before the last one may have been carried out.
    pub(crate) async fn ask_surely<T: DeserializeOwned>(
        &self,
        call: &Call,
        wait: Duration,
    ) -> Result<T, (Error, bool)> {
        let mut attempts = Attempts::new(self, wait);
        loop {
            let before = attempts.unsure;
            match transport::ask(attempts.address(), call, wait).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => attempts.fail(failed, call).await.map_err(|error| (error, before))?,
            }
        }
    }

    /// The answer to a call as a stream, if it is a good one.
    pub(crate) async fn open(&self, call: &Call) -> Result<Streaming, Error> {
        let mut attempts = Attempts::new(self, Duration::ZERO);
        loop {
            match transport::open(attempts.address(), call).await {
                Ok(stream) => return Ok(stream),
                Err(failed) => attempts.fail(failed, call).await?,
            }
        }
    }

    /// The answer to a call, whatever it is, from the node that is asked next.
    pub(crate) async fn exchange(&self, call: &Call) -> Result<(StatusCode, Bytes), Error> {
        transport::exchange(self.address(), call, Duration::ZERO).await.map_err(|failed| failed.error)
    }

    /// The node that is asked next.
    pub(crate) fn address(&self) -> &str {
        &self.addresses[self.place()]
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Another node is asked next than this one.
    pub(crate) fn skip(&self, address: &str) {
        let place = self.place();
        if self.addresses[place] == address {
            self.leave(place);
        }
    }

    fn place(&self) -> usize {
        self.next.load(Ordering::Relaxed) % self.addresses.len()
    }

    /// Whoever asks from now on asks another node than this one.
    fn leave(&self, place: usize) {
        let next = (place + 1) % self.addresses.len();
        // Somebody else may have been faster.
        let _ = self.next.compare_exchange(place, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// How a call went so far.
struct Attempts<'a> {
    nodes: &'a Nodes,
    /// The node of the attempt under way.
    place: usize,
    started: Instant,
    /// How long each attempt may take by right.
    wait: Duration,
    pause: Duration,
    /// How many failed.
    failed: usize,
    /// Whether one of them may have been carried out.
    unsure: bool,
}

/// What to do after an attempt that failed.
#[derive(Debug, PartialEq, Eq)]
enum Advice {
    GiveUp,
    /// Ask another node; if there is none left, ask again for so long.
    Elsewhere(Duration),
    /// Ask another node, but not before a pause.
    ElsewhereLater(Duration),
    /// Ask the same node.
    Later(Duration),
}

impl<'a> Attempts<'a> {
    fn new(nodes: &'a Nodes, wait: Duration) -> Attempts<'a> {
        let (place, started) = (nodes.place(), Instant::now());
        Attempts { nodes, place, started, wait, pause: PAUSE_FIRST, failed: 0, unsure: false }
    }

    fn address(&self) -> &'a str {
        &self.nodes.addresses[self.place]
    }

    /// Waits for the moment of the next attempt; an error if there is none.
    async fn fail(&mut self, failed: Failed, call: &Call) -> Result<(), Error> {
        self.failed += 1;
        self.unsure |= failed.may_be_done();
        let len = self.nodes.addresses.len();
        let (patience, leaves, pauses) = match self.nodes.advice(&failed, call) {
            Advice::GiveUp => return Err(failed.error),
            Advice::Elsewhere(patience) => (patience, true, self.failed.is_multiple_of(len)),
            Advice::ElsewhereLater(patience) => (patience, true, true),
            Advice::Later(patience) => (patience, false, true),
        };
        // Every node gets its chance, however long the first ones took to fail.
        let is_fresh = leaves && self.failed < len;
        if !is_fresh && self.started.elapsed() + self.pause > patience.saturating_add(self.wait) {
            return Err(failed.error);
        }
        if leaves {
            self.nodes.leave(self.place);
        }
        if pauses {
            sleep(self.pause).await;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        self.place = self.nodes.place();
        Ok(())
    }
}

impl Nodes {
    fn advice(&self, failed: &Failed, call: &Call) -> Advice {
        if call.once && failed.may_be_done() {
            return Advice::GiveUp;
        }
        let patience = self.patience.unwrap_or(PATIENCE);
        let away = match self.addresses.len() {
            1 => self.patience.unwrap_or_default(),
            _ => patience,
        };
        match (&failed.error, failed.error.code()) {
            (Error::Unreachable { .. }, _) | (_, Some(Code::Draining)) => Advice::Elsewhere(away),
            (_, Some(Code::ShardUnreachable)) => Advice::ElsewhereLater(patience),
            (_, Some(Code::NoMap)) if self.addresses.len() > 1 => Advice::ElsewhereLater(patience),
            (_, Some(Code::NoMap)) => Advice::Later(patience.min(NO_MAP_PATIENCE)),
            (_, Some(Code::WrongEpoch | Code::Moving)) => Advice::Later(patience),
            (_, Some(Code::GracePeriod)) => Advice::Later(away),
            _ => Advice::GiveUp,
        }
    }
}

impl From<&str> for Nodes {
    fn from(addresses: &str) -> Nodes {
        Nodes::new(addresses)
    }
}

impl From<&String> for Nodes {
    fn from(addresses: &String) -> Nodes {
        Nodes::new(addresses)
    }
}

impl From<String> for Nodes {
    fn from(addresses: String) -> Nodes {
        Nodes::new(&addresses)
    }
}

impl PartialEq for Nodes {
    fn eq(&self, other: &Nodes) -> bool {
        (&self.addresses, self.patience) == (&other.addresses, other.patience)
    }
}

impl Eq for Nodes {}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Nodes").field(&self.addresses).finish()
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.addresses.join(","))
    }
}
