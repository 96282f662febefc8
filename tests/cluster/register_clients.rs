//! Clients of a storm that write and read, and note what they see. Knows nothing of shards, nor of what may be seen.

use crate::{
    linear::{Action, Answer, Operation},
    random::Random,
    register_lockers::Locker,
    spread_world::StopAtEnd,
    storm_clients::try_send,
};
use lockwood_client::{
    Code, DocumentKey, Error, Nodes, Options, PutIf, PutOptions, ReadOptions, Session, Store,
    wire::{Deleted, DocumentInfo, Fields, Written},
};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    runtime::Runtime,
    task::{JoinHandle, spawn_blocking},
    time::sleep,
};

pub(crate) const NAMESPACE: &str = "storm";
pub(crate) const CLIENTS_LEN: usize = 16;
/// Clients that count up under leases and under locks of sessions, and how many counters there are.
const LOCKERS_LEN: usize = 6;
pub(crate) const COUNTERS_LEN: u64 = 5;
/// How long a session outlives its connection; as long its namespace is in grace after a takeover of its home.
const ABANDON_MS: u64 = 8_000;
/// So often a session is opened that no node answers for.
const OPENINGS_MAX: usize = 600;
/// Documents that no client touches, so that there is something to copy.
pub(crate) const COLD_LEN: u64 = 1200;
/// How many collections there are of each kind.
const COLLECTIONS_LEN: u64 = 6;
/// Clients fight over so many documents at a time.
const HOT_LEN: u64 = 40;
/// After so many operations a new document takes the place of an old one.
const HOT_OPERATIONS: u64 = 120;
/// How old an answer of a copy may be.
const TOLERATED_MS: [u64; 3] = [0, 400, 10_000];

/// What all clients share.
pub(crate) struct Scene {
    addresses: Vec<String>,
    pub(crate) started: Instant,
    /// Whether it is over.
    pub(crate) calm: AtomicBool,
    pub(crate) operations: AtomicU64,
}

impl Scene {
    pub(crate) fn new(addresses: Vec<String>) -> Scene {
        let (calm, operations) = (AtomicBool::new(false), AtomicU64::new(0));
        Scene { addresses, started: Instant::now(), calm, operations }
    }

    /// Has clients stop when what this gives goes, also if that is because the test panics.
    pub(crate) fn calm_at_end(&self) -> StopAtEnd<'_> {
        StopAtEnd(&self.calm)
    }

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap()
    }

    /// All nodes, with another one to begin with for every client.
    pub(crate) fn nodes(&self, client: usize) -> Nodes {
        let mut addresses = self.addresses.clone();
        addresses.rotate_left(client % self.addresses.len());
        addresses.join(",").into()
    }

    pub(crate) fn store(&self, client: usize) -> Store {
        Store::new(self.nodes(client), NAMESPACE)
    }

    pub(crate) async fn session(&self, client: usize) -> Session {
        let options = Options {
            address: self.nodes(client).to_string(),
            namespace: NAMESPACE.into(),
            name: Some(format!("locker {client}")),
            abandon_timeout_ms: Some(ABANDON_MS),
        };
        for _ in 0..OPENINGS_MAX {
            match Session::open(options.clone()).await {
                Ok(session) => return session,
                Err(error) => assert!(may_happen(&error), "client {client} opens a session: {error}"),
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("client {client} gets no session");
    }
}

/// A document, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum At {
    Cold(u64),
    Counter(u64),
    Hot(u64),
}

impl At {
    pub(crate) fn key(self) -> DocumentKey {
        let (kind, number) = match self {
            At::Cold(number) => ("cold", number),
            At::Counter(number) => ("counter", number),
            At::Hot(number) => ("hot", number),
        };
        DocumentKey::new(&format!("{kind}{}", number % COLLECTIONS_LEN), number.to_string().parse().unwrap())
    }
}

pub(crate) fn holds(value: u64) -> Fields {
    serde_json::from_value(json!({ "v": value, "text": "so that it weighs something" })).unwrap()
}

pub(crate) fn held(document: &DocumentInfo) -> u64 {
    serde_json::to_value(&document.value).unwrap()["v"].as_u64().unwrap()
}

pub(crate) async fn fill(scene: &Arc<Scene>) {
    let each = COLD_LEN / CLIENTS_LEN as u64;
    let filling = (0..CLIENTS_LEN).map(|client| {
        let scene = Arc::clone(scene);
        tokio::spawn(async move {
            let store = scene.store(client);
            for number in (0..COUNTERS_LEN).filter(|number| *number == client as u64) {
                store.put(&At::Counter(number).key(), &holds(0), &PutOptions::default()).await.unwrap();
            }
            for number in client as u64 * each..(client as u64 + 1) * each {
                store.put(&At::Cold(number).key(), &holds(number), &PutOptions::default()).await.unwrap();
            }
        })
    });
    for filled in filling.collect::<Vec<_>>() {
        filled.await.unwrap();
    }
}

/// What a client was answered, and the position of what was done or read, if that was said.
pub(crate) type Answered = (Answer, Option<u64>);

/// What a client did and saw.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) operations: Vec<(At, Operation)>,
    pub(crate) held: Vec<(At, Held)>,
    /// Answers of copies that may have been old.
    pub(crate) from_copies: u64,
    /// What no client should ever see.
    pub(crate) errors: Vec<String>,
}

/// A lock, from when its holder knew of it until it began to give it back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) client: usize,
    pub(crate) lock: u64,
    pub(crate) token: u64,
    /// When it was asked for.
    pub(crate) asked: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// When it was given back.
    pub(crate) free: u64,
}

impl Held {
    pub(crate) fn story(&self) -> String {
        let Held { client, lock, token, asked, from, to, free } = self;
        format!(
            "client {client} asked at {asked}, had lock {lock} with token {token} from {from} to {to}, free at {free}"
        )
    }
}

impl Seen {
    pub(crate) fn note(
        &mut self,
        scene: &Scene,
        at: At,
        (client, action, called): (usize, Action, u64),
        answer: Result<Answered, Error>,
    ) {
        let (answered, position) = match answer {
            Ok((answer, position)) => (Some((scene.now(), answer)), position),
            Err(error) => {
                if !may_happen(&error) {
                    self.errors.push(format!("client {client} {action:?} {at:?} since {called}: {error}"));
                }
                (None, None)
            }
        };
        self.operations.push((at, Operation { client, action, called, answered, position }));
    }
}

pub(crate) fn start(runtime: &Runtime, scene: &Arc<Scene>, seed: u64) -> Vec<JoinHandle<Seen>> {
    let random = |number: usize| Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number as u64 + 1) << 20);
    let clients = (0..CLIENTS_LEN).map(|number| {
        let (scene, store) = (Arc::clone(scene), scene.store(number));
        let client =
            Client { number, scene, store, random: random(number), seen: Seen::default(), written: 0 };
        runtime.spawn(client.run())
    });
    let lockers = (CLIENTS_LEN..CLIENTS_LEN + LOCKERS_LEN)
        .map(|number| runtime.spawn(Locker::start(number, Arc::clone(scene), random(number))));
    clients.chain(lockers).collect()
}

pub(crate) async fn join(clients: Vec<JoinHandle<Seen>>) -> Seen {
    let mut all = Seen::default();
    for client in clients {
        let seen = client.await.unwrap();
        all.operations.extend(seen.operations);
        all.held.extend(seen.held);
        all.from_copies += seen.from_copies;
        all.errors.extend(seen.errors);
    }
    all
}

/// Writes and reads until it is calm.
struct Client {
    number: usize,
    scene: Arc<Scene>,
    store: Store,
    random: Random,
    seen: Seen,
    written: u64,
}

impl Client {
    async fn run(mut self) -> Seen {
        while !self.scene.calm.load(Ordering::Relaxed) {
            let done = self.scene.operations.fetch_add(1, Ordering::Relaxed);
            let hot = done / HOT_OPERATIONS + self.random.below(HOT_LEN);
            let value = self.fresh();
            match self.random.below(100) {
                0..15 => self.act(hot, Action::Insert(value)).await,
                15..30 => self.act(hot, Action::Replace(value)).await,
                30..45 => self.act(hot, Action::Update(value)).await,
                45..60 => self.swap(hot, value).await,
                60..70 => self.act(hot, Action::Delete).await,
                70..80 => self.act(hot, Action::Restore).await,
                80..90 => self.read_from_copy(hot).await,
                _ => self.act(hot, Action::Get).await,
            }
        }
        self.seen
    }

    /// A number that nobody else writes.
    fn fresh(&mut self) -> u64 {
        self.written += 1;
        self.number as u64 * 1_000_000 + self.written
    }

    async fn act(&mut self, hot: u64, action: Action) {
        let called = self.scene.now();
        let answer = carry_out(&self.store, hot, action).await;
        self.note(hot, action, called, answer);
    }

    /// Reads, and writes only if nobody wrote since.
    async fn swap(&mut self, hot: u64, value: u64) {
        let called = self.scene.now();
        let read = look(&self.store, At::Hot(hot), Deleted::Without).await;
        let answer = read.as_ref().map(|found| found_as(found.as_ref())).map_err(Error::clone);
        self.note(hot, Action::Get, called, answer);
        let Ok(Some(document)) = read else { return };
        let options = PutOptions { position: Some(document.position), ..PutOptions::default() };
        let called = self.scene.now();
        let done = self.store.put(&At::Hot(hot).key(), &holds(value), &options).await;
        self.note(hot, Action::Swap(document.position, value), called, answered(done));
    }

    /// Asks a node for what it has itself, and that may be old. By what it says of that, everything that was acknowledged so
    /// long before is in the answer: the read may have come as early as that, and no earlier.
    async fn read_from_copy(&mut self, hot: u64) {
        let tolerated_ms = TOLERATED_MS[self.random.below(TOLERATED_MS.len() as u64) as usize];
        let DocumentKey { collection, key } = At::Hot(hot).key();
        let target = format!("/v1/{NAMESPACE}/documents/{collection}/{key}?max_lag_ms={tolerated_ms}");
        let asked = self.random.below(self.scene.addresses.len() as u64) as usize;
        let native: SocketAddr = self.scene.addresses[asked].parse().unwrap();
        let called = self.scene.now();
        let reply = spawn_blocking(move || try_send(native, "GET", &target, &Value::Null)).await.unwrap();
        let Some(reply) = reply else { return };
        let (lag_ms, json) =
            (reply.header("lockwood-lag-ms").map_or(0, |lag| lag.parse().unwrap()), reply.json());
        let answer = match (reply.status, json["code"].as_str()) {
            (200, _) => found_as(Some(&serde_json::from_value(json["document"].clone()).unwrap())),
            (404, Some("no_document")) => found_as(None),
            (503, _) => return,
            _ => return self.seen.errors.push(format!("a read of a copy is answered with {}", reply.body)),
        };
        if lag_ms > tolerated_ms {
            self.seen
                .errors
                .push(format!("{:?} is {lag_ms} ms old, and {tolerated_ms} are tolerated", At::Hot(hot)));
        }
        self.seen.from_copies += u64::from(lag_ms > 0);
        // Milliseconds are rounded down.
        let called = called.saturating_sub((lag_ms + 1) * 1_000_000);
        self.note(hot, Action::Get, called, Ok(answer));
    }

    fn note(&mut self, hot: u64, action: Action, called: u64, answer: Result<Answered, Error>) {
        self.seen.note(&self.scene, At::Hot(hot), (self.number, action, called), answer);
    }
}

/// Whether an error is one that clients have to expect when an owner is lost: a lock that is lost, or that could not be had in
/// time, and an outcome that is not known.
pub(crate) fn may_happen(error: &Error) -> bool {
    match error {
        Error::Lost(_) | Error::Unreachable { .. } | Error::Disconnected { .. } => true,
        _ => error.code().is_some_and(|code| {
            [Code::LockLost, Code::Timeout, Code::ShardUnreachable, Code::GracePeriod, Code::Draining]
                .contains(&code)
        }),
    }
}

pub(crate) async fn carry_out(store: &Store, hot: u64, action: Action) -> Result<Answered, Error> {
    let at = At::Hot(hot).key();
    let event = |kind: &str, fields: Value| {
        let key = at.key.to_string();
        let event = json!({ "type": kind, "collection": at.collection, "key": key });
        let Value::Object(mut event) = event else { unreachable!("it was just made") };
        if !fields.is_null() {
            event.insert("fields".into(), fields);
        }
        serde_json::from_value(json!({ "events": [event] })).unwrap()
    };
    let options = PutOptions::default();
    let done = match action {
        Action::Insert(value) => {
            let options = PutOptions { only_if: Some(PutIf::Absent), ..options };
            store.put(&at, &holds(value), &options).await
        }
        Action::Replace(value) => store.put(&at, &holds(value), &options).await,
        Action::Update(value) => store.write(&event("update", json!({ "v": value }))).await,
        Action::Delete => store.delete(&at, &options).await,
        Action::Restore => store.write(&event("restore", Value::Null)).await,
        Action::Get => {
            let found = look(store, At::Hot(hot), Deleted::Without).await?;
            return Ok(found_as(found.as_ref()));
        }
        Action::Look | Action::Add(_) | Action::Swap(..) => unreachable!("nobody asks for that here"),
    };
    answered(done)
}

fn found_as(found: Option<&DocumentInfo>) -> Answered {
    (Answer::Holds(found.map(held)), found.map(|found| found.position))
}

/// Refusals that a store in one place would give as well are answers.
fn answered(done: Result<Written, Error>) -> Result<Answered, Error> {
    let error = match done {
        Ok(written) => return Ok((Answer::Done, Some(written.position))),
        Err(error) => error,
    };
    let refused = match error.code() {
        Some(Code::DocumentExists) => Answer::Exists,
        Some(Code::DocumentDeleted) => Answer::Deleted,
        Some(Code::NoDocument) => Answer::Missing,
        Some(Code::NotDeleted) => Answer::NotDeleted,
        Some(Code::PositionLocked) => Answer::Changed,
        _ => return Err(error),
    };
    Ok((refused, None))
}

pub(crate) async fn look(store: &Store, at: At, deleted: Deleted) -> Result<Option<DocumentInfo>, Error> {
    let options = ReadOptions { deleted, ..ReadOptions::default() };
    match store.get(&at.key(), &options).await {
        Ok(answer) => Ok(Some(answer.document)),
        Err(error) if error.code() == Some(Code::NoDocument) => Ok(None),
        Err(error) => Err(error),
    }
}
