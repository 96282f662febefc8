//! A dump taken in by several shards: each gets the lines about what it owns, and keeps them when all shards have got
//! theirs. Knows nothing of how a shard takes in a line.
//!
//! ```text
//!   dump ──► begin on every shard ──► lines to their owners ──► end on every shard ──► finish on every shard
//!                    │ anything wrong        │                        │                       │
//!                    └───────────────────────┴────► undo everywhere ◄─┴───────────────────────┘
//! ```
//!
//! A shard that hears nothing more for a while undoes its part by itself, and so does one that starts again.

use super::{
    super::Message,
    ask::{Asker, Reply, Stop},
    is_everywhere,
};
use crate::{
    body,
    cluster::{Current, dispatch::kind},
    clustered::confirmed,
    native::{Load, Native, check_dump_type, json_of, read_head, unread},
    shared::Shared,
};
use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
};
use lockwood_model::{DocumentKey, Position, Wait};
use lockwood_node::{
    gate::{self, Terms, Turn},
    secret,
    shard::Positions,
    territory::SYSTEM,
    trouble::Trouble,
};
use lockwood_router::{Phase, ShardNo};
use lockwood_storage::Entry;
use lockwood_wire::{
    Code,
    documents::{ChangeKind, DumpCommit, DumpHead, DumpLine, LoadAnswer, read_body},
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

/// Where a part of a dump is begun.
pub(crate) const BEGIN: &str = "/internal/load/begin";
/// Where lines of it are sent; what follows is its name.
pub(crate) const LINES: &str = "/internal/load/lines/";
/// Where all lines were sent, where it is kept, and where it is given up.
pub(crate) const END: &str = "/internal/load/end";
/// Where it is kept.
pub(crate) const FINISH: &str = "/internal/load/finish";
/// Where it is given up.
pub(crate) const UNDO: &str = "/internal/load/undo";

/// Lines are sent when there are so many bytes of them.
const BATCH_BYTES: usize = 512 * 1024;
/// A part of which nothing more is heard is undone after this.
const PATIENCE: Duration = Duration::from_secs(100);
/// So many parts that were kept are remembered.
const KEPT_LEN_MAX: usize = 100;

/// Into which namespace.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Beginning {
    pub(crate) namespace: String,
    /// Of the lock on the whole namespace, if there is one table for all shards.
    #[serde(default)]
    pub(crate) tokens: Vec<u64>,
}

/// The name of a part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Begun {
    pub(crate) load: String,
}

/// A part to be kept or given up.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ending {
    pub(crate) load: String,
    pub(crate) namespace: String,
    /// Where the dump ends.
    pub(crate) position: u64,
    /// Those of its [`Beginning`].
    #[serde(default)]
    pub(crate) tokens: Vec<u64>,
}

/// The parts of dumps that are being loaded here.
#[derive(Default)]
pub(crate) struct LoadTable {
    parts: Mutex<HashMap<String, Arc<Part>>>,
    /// The last few that were kept.
    kept: Mutex<VecDeque<String>>,
}

struct Part {
    load: tokio::sync::Mutex<Option<Load>>,
    heard: Mutex<Instant>,
}

impl LoadTable {
    /// Begins a part; it is undone if nothing is heard of it for long.
    pub(crate) async fn begin(shared: &Arc<Shared>, beginning: Beginning) -> Result<Begun, Trouble> {
        let Beginning { namespace, tokens } = beginning;
        let load = Load::begin(shared, &namespace, tokens, Positions::Some).await?;
        let name = secret::hex(&secret::random::<16>());
        let part = Part { load: tokio::sync::Mutex::new(Some(load)), heard: Mutex::new(Instant::now()) };
        let part = Arc::new(part);
        shared.cluster.loads.parts.lock().insert(name.clone(), Arc::clone(&part));
        let (shared, own) = (Arc::clone(shared), name.clone());
        tokio::spawn(async move {
            while part.heard.lock().elapsed() < PATIENCE
                && shared.cluster.loads.parts.lock().contains_key(&own)
            {
                tokio::time::sleep(PATIENCE / 100).await;
            }
            if let Err(trouble) = shared.cluster.loads.undo(&own).await {
                tracing::error!(why = trouble.message, "undo a load");
            }
        });
        Ok(Begun { load: name })
    }

    fn part(&self, name: &str) -> Result<Arc<Part>, Trouble> {
        let part = self.parts.lock().get(name).cloned();
        let part = part.ok_or_else(|| Trouble::new(Code::BadBody, "the load is over; begin it again"))?;
        *part.heard.lock() = Instant::now();
        Ok(part)
    }

    /// Takes in some lines.
    pub(crate) async fn take(&self, name: &str, lines: &[u8]) -> Result<(), Trouble> {
        let part = self.part(name)?;
        let mut load = part.load.lock().await;
        let load = load.as_mut().ok_or_else(over)?;
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            load.take(line).await?;
        }
        Ok(())
    }

    /// Whether all lines were there.
    pub(crate) async fn end(&self, name: &str) -> Result<LoadAnswer, Trouble> {
        let part = self.part(name)?;
        let mut load = part.load.lock().await;
        load.as_mut().ok_or_else(over)?.end().await
    }

    /// Keeps a part. Whatever is written later is after the end of the dump.
    pub(crate) async fn finish(&self, shared: &Shared, ending: &Ending) -> Result<LoadAnswer, Trouble> {
        shared.shard.raise(Position(ending.position)).await?;
        let part = self.part(&ending.load)?;
        let load = part.load.lock().await.take().ok_or_else(over)?;
        self.parts.lock().remove(&ending.load);
        let answer = LoadAnswer { position: ending.position, documents: 0, commits: 0 };
        let answer = load.close(Ok(answer)).await?;
        let mut kept = self.kept.lock();
        kept.push_back(ending.load.clone());
        if kept.len() > KEPT_LEN_MAX {
            kept.pop_front();
        }
        Ok(answer)
    }

    /// Whether a part was kept just now.
    pub(crate) fn is_kept(&self, name: &str) -> bool {
        self.kept.lock().iter().any(|kept| kept == name)
    }

    /// Gives a part up.
    pub(crate) async fn undo(&self, name: &str) -> Result<(), Trouble> {
        let Some(part) = self.parts.lock().remove(name) else { return Ok(()) };
        let Some(load) = part.load.lock().await.take() else { return Ok(()) };
        match load.close(Err(over())).await {
            Err(trouble) if trouble.code != Code::BadBody => Err(trouble),
            _ => Ok(()),
        }
    }
}

fn over() -> Trouble {
    Trouble::new(Code::BadBody, "the load was given up")
}

/// Takes away what a part has left that was kept while another one was not.
pub(crate) async fn empty(shared: &Arc<Shared>, namespace: &str, tokens: Vec<u64>) -> Result<(), Trouble> {
    let terms = Terms { tokens, ..Terms::anonymous(Wait::Millis(shared.config.wait_ms)) };
    Ok(gate::record(shared, namespace, Entry::Emptied { namespace: namespace.into() }, &terms).await?)
}

/// Takes in a dump on all shards.
pub(crate) async fn load(
    native: &Native,
    shared: &Arc<Shared>,
    request: Request,
) -> Result<Response, Trouble> {
    let current = shared.cluster.current().ok_or_else(crate::cluster::no_map)?;
    let namespace = kind::namespace(request.uri()).unwrap_or_default();
    let is_alone = current.map.shards.len() == 1 && current.map.phase == Phase::Steady;
    let own = Asker { native, shared, current: &current }.is_own(Asker::first());
    if request.method() != hyper::Method::POST || namespace == SYSTEM {
        return Ok(native.local(request).await);
    }
    if is_alone && own {
        let answer = native.local(request).await;
        confirmed(shared, &namespace).await?;
        return Ok(answer);
    }
    check_dump_type(request.headers())?;
    if current.map.phase != Phase::Steady {
        let message = "a dump cannot be loaded while documents move to other shards; try again afterwards";
        return Err(Trouble::new(Code::Resharding, message));
    }
    let (native, shared) = (native.clone(), Arc::clone(shared));
    let mut body = request.into_body();
    // In a task of its own, so that it is brought to an end also if nobody waits for the answer any more.
    let work = tokio::spawn(async move {
        let ask = Asker { native: &native, shared: &shared, current: &current };
        let loaded = load_all(&ask, &current, &namespace, &mut body).await;
        // Also if it was undone: a shard may have asked meanwhile what is registered.
        let confirmed = confirmed(&shared, &namespace).await;
        if loaded.is_err() {
            body::drain(body).await;
        }
        match loaded {
            Ok(answer) => confirmed.map(|()| json_of(&answer)),
            Err(Stop::Reply(reply)) => Ok(reply.into_response()),
            Err(Stop::Trouble(trouble)) => Err(*trouble),
        }
    });
    work.await.unwrap_or_else(|error| {
        tracing::error!(%error, "load a dump");
        Err(Trouble::storage_failed())
    })
}

async fn load_all(
    ask: &Asker<'_>,
    current: &Current,
    namespace: &str,
    body: &mut Body,
) -> Result<LoadAnswer, Stop> {
    let mut split = Split::begin(ask, current, namespace).await?;
    let loaded = match split.take_all(body).await {
        Ok(()) => split.end().await,
        Err(stop) => Err(stop),
    };
    match loaded {
        Ok(answer) => split.finish(answer).await,
        Err(stop) => {
            split.undo().await;
            Err(stop)
        }
    }
}

/// A dump on its way to several shards.
struct Split<'a> {
    ask: &'a Asker<'a>,
    current: &'a Current,
    namespace: &'a str,
    parts: BTreeMap<ShardNo, Outgoing>,
    head: Option<DumpHead>,
    answer: LoadAnswer,
    lines: u64,
    ended: bool,
    /// The lock on the whole namespace, if there is one table for all shards.
    turn: Option<Turn>,
}

/// What one shard gets.
struct Outgoing {
    load: String,
    batch: Vec<u8>,
    lines: u64,
}

impl<'a> Split<'a> {
    async fn begin(ask: &'a Asker<'a>, current: &'a Current, namespace: &'a str) -> Result<Split<'a>, Stop> {
        let answer = LoadAnswer { position: 0, documents: 0, commits: 0 };
        let (parts, head) = (BTreeMap::new(), None);
        let turn = match ask.shared.membership {
            Some(_) => {
                let terms = Terms::anonymous(Wait::Millis(ask.shared.config.wait_ms));
                let held = gate::hold_all(ask.shared, namespace, &terms).await;
                Some(held.map_err(Trouble::from)?)
            }
            None => None,
        };
        let tokens: Vec<u64> = turn.as_ref().and_then(Turn::token).into_iter().collect();
        let mut split = Split { ask, current, namespace, parts, head, answer, lines: 0, ended: false, turn };
        // What is registered goes to the home, also if it is on no shard of the map.
        let this = ask.shared.cluster.this();
        let home = ask.shared.remote_home(namespace).await?.unwrap_or(this);
        let shards: BTreeSet<ShardNo> = current.map.shard_numbers().chain([home]).collect();
        for shard in shards {
            let beginning = Beginning { namespace: namespace.to_owned(), tokens: tokens.clone() };
            let begun = ask.one(shard, &Message::json(BEGIN, &beginning)).await;
            match begun.map_err(Stop::from).and_then(Reply::read) {
                Ok(Begun { load }) => {
                    drop(split.parts.insert(shard, Outgoing { load, batch: Vec::new(), lines: 0 }));
                }
                Err(stop) => {
                    split.undo().await;
                    return Err(stop);
                }
            }
        }
        Ok(split)
    }

    async fn take_all(&mut self, body: &mut Body) -> Result<(), Stop> {
        let mut lines = body::Lines::new(self.ask.shared, body);
        while let Some(line) = lines.next().await.map_err(|error| unread(error, self.lines + 1))? {
            self.take(line).await?;
        }
        Ok(())
    }

    /// A trouble about the next line.
    fn wrong(&self, message: &str) -> Trouble {
        Trouble::new(Code::BadBody, format!("line {}: {message}", self.lines + 1))
    }

    async fn take(&mut self, line: &[u8]) -> Result<(), Stop> {
        let number = self.lines + 1;
        let about =
            |trouble: Trouble| Trouble { message: format!("line {number}: {}", trouble.message), ..trouble };
        let Some(head) = &self.head else {
            let head = read_head(line).map_err(about)?;
            self.answer.position = head.horizon;
            self.head = Some(head);
            self.lines = number;
            return self.give_all(line).await;
        };
        if self.ended {
            return Err(self.wrong("this line is not where such lines are in a dump").into());
        }
        let read: DumpLine = read_body(line).map_err(|error| about(error.into()))?;
        match read {
            DumpLine::Document(document) => {
                let at = DocumentKey::new(&document.collection, document.key.0.clone());
                self.answer.documents += 1;
                self.give_owner(&at, line).await?;
            }
            DumpLine::Commit(commit) => {
                let expected = self.answer.position + 1;
                if commit.position != expected || commit.position > head.position {
                    let message = format!("the commit {} is where {expected} should be", commit.position);
                    return Err(self.wrong(&message).into());
                }
                self.answer.position = commit.position;
                self.answer.commits += 1;
                self.commit(commit).await?;
            }
            DumpLine::Counter { .. } | DumpLine::Index { .. } => self.give_all(line).await?,
            DumpLine::End { lines } if lines == self.lines => {
                self.ended = true;
                let shards: Vec<ShardNo> = self.parts.keys().copied().collect();
                for shard in shards {
                    let end = DumpLine::End { lines: self.parts[&shard].lines };
                    self.give(shard, &serde_json::to_vec(&end).expect("lines can be written")).await?;
                }
            }
            DumpLine::End { lines } => {
                let message = format!("the dump had {lines} lines before this; there are {}", self.lines);
                return Err(self.wrong(&message).into());
            }
        }
        self.lines = number;
        Ok(())
    }

    /// Each shard gets what was done to its documents.
    async fn commit(&mut self, commit: DumpCommit) -> Result<(), Stop> {
        let mut parts: BTreeMap<ShardNo, DumpCommit> = BTreeMap::new();
        // Nodes of a cluster purge nothing, so what was purged elsewhere is not on record there.
        let DumpCommit { position, at, user, note, events, purged: _ } = commit;
        for event in events {
            if event.kind == ChangeKind::Created {
                self.answer.documents += 1;
            }
            let key = DocumentKey::new(&event.collection, event.key.0.clone());
            for shard in self.owners(&key)? {
                let part = parts.entry(shard).or_insert_with(|| DumpCommit {
                    position,
                    at,
                    user: user.clone(),
                    note: note.clone(),
                    events: Vec::new(),
                    purged: None,
                });
                part.events.push(event.clone());
            }
        }
        for (shard, part) in parts {
            let line = serde_json::to_vec(&DumpLine::Commit(part)).expect("lines can be written");
            self.give(shard, &line).await?;
        }
        Ok(())
    }

    fn owners(&self, at: &DocumentKey) -> Result<Vec<ShardNo>, Trouble> {
        match is_everywhere(&at.collection) {
            true => Ok(self.parts.keys().copied().collect()),
            false => Ok(vec![self.current.owner(at)?]),
        }
    }

    async fn give_owner(&mut self, at: &DocumentKey, line: &[u8]) -> Result<(), Stop> {
        for shard in self.owners(at)? {
            self.give(shard, line).await?;
        }
        Ok(())
    }

    async fn give_all(&mut self, line: &[u8]) -> Result<(), Stop> {
        let shards: Vec<ShardNo> = self.parts.keys().copied().collect();
        for shard in shards {
            self.give(shard, line).await?;
        }
        Ok(())
    }

    async fn give(&mut self, shard: ShardNo, line: &[u8]) -> Result<(), Stop> {
        let Some(part) = self.parts.get_mut(&shard) else { return Ok(()) };
        part.batch.extend_from_slice(line);
        part.batch.push(b'\n');
        part.lines += 1;
        if part.batch.len() >= BATCH_BYTES { self.send(shard).await } else { Ok(()) }
    }

    async fn send(&mut self, shard: ShardNo) -> Result<(), Stop> {
        let Some(part) = self.parts.get_mut(&shard) else { return Ok(()) };
        let batch = std::mem::take(&mut part.batch);
        let message = Message::post(&format!("{LINES}{}", part.load), batch);
        self.ask.one(shard, &message).await?.bytes()?;
        Ok(())
    }

    /// Whether all shards have all of theirs.
    async fn end(&mut self) -> Result<LoadAnswer, Stop> {
        let Some(head) = self.head.as_ref().filter(|_| self.ended) else {
            return Err(self.wrong("the last line of the dump is missing; it was cut off").into());
        };
        if self.answer.position != head.position {
            let message = format!(
                "line 1: the dump says that it ends at {}, and it ends at {}",
                head.position, self.answer.position
            );
            return Err(Trouble::new(Code::BadBody, message).into());
        }
        let shards: Vec<ShardNo> = self.parts.keys().copied().collect();
        for shard in &shards {
            self.send(*shard).await?;
        }
        for shard in &shards {
            let begun = Begun { load: self.parts[shard].load.clone() };
            let _: LoadAnswer = self.ask.one(*shard, &Message::json(END, &begun)).await?.read()?;
        }
        Ok(self.answer)
    }

    /// All shards keep what they have got; if one does not, none does.
    async fn finish(&mut self, answer: LoadAnswer) -> Result<LoadAnswer, Stop> {
        for (shard, ending) in self.endings() {
            let finished = self.ask.one(shard, &Message::json(FINISH, &ending)).await;
            if let Err(stop) = finished.map_err(Stop::from).and_then(Reply::bytes) {
                self.undo().await;
                return Err(stop);
            }
        }
        Ok(answer)
    }

    /// Whoever cannot be told undoes it by itself, unless it has kept it already.
    async fn undo(&mut self) {
        for (shard, ending) in self.endings() {
            let undone = self.ask.tell(shard, &Message::json(UNDO, &ending)).await;
            if let Err(stop) = undone.map_err(Stop::from).and_then(Reply::bytes) {
                let why = match stop {
                    Stop::Trouble(trouble) => trouble.message,
                    Stop::Reply(reply) => reply.into_trouble().message,
                };
                tracing::warn!(shard = shard.0, why, "a part of a load could not be undone at once");
            }
        }
    }

    fn endings(&self) -> Vec<(ShardNo, Ending)> {
        let ending = |(shard, part): (&ShardNo, &Outgoing)| {
            let (load, namespace) = (part.load.clone(), self.namespace.to_owned());
            let tokens = self.turn.as_ref().and_then(Turn::token).into_iter().collect();
            (*shard, Ending { load, namespace, position: self.answer.position, tokens })
        };
        self.parts.iter().map(ending).collect()
    }
}
