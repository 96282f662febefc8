//! Clients of a storm: they write, read, and count under leases and locks of sessions, and note what they see. Knows nothing
//! of shards, nor of what may be seen.

use crate::{
    linear::{Action, Answer, Operation},
    random::Random,
    spread_world::StopAtEnd,
};
use lockwood_client::{
    Code, Depth, DocumentKey, Error, Lease, LeaseRequest, Leases, Lock, LockId, Mode, Nodes, Options, Path,
    PutIf, PutOptions, ReadOptions, Request, Resource, Session, Store, Terms, Token, Wait,
    wire::{Deleted, DocumentInfo, Fields, Written},
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{runtime::Runtime, task::JoinHandle, time::sleep};

pub(crate) const NAMESPACE: &str = "storm";
pub(crate) const CLIENTS_LEN: usize = 16;
/// Clients that count up under leases and under locks of sessions, and how many counters there are.
const LOCKERS_LEN: usize = 6;
const COUNTERS_LEN: u64 = 5;
/// How long a lease outlives its owner, and how long a lock is waited for.
const LEASE_MS: u64 = 20_000;
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
    fn nodes(&self, client: usize) -> Nodes {
        let mut addresses = self.addresses.clone();
        addresses.rotate_left(client % self.addresses.len());
        addresses.join(",").into()
    }

    pub(crate) fn store(&self, client: usize) -> Store {
        Store::new(self.nodes(client), NAMESPACE)
    }

    async fn session(&self, client: usize) -> Session {
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

    fn note(&mut self, hot: u64, action: Action, called: u64, answer: Result<Answered, Error>) {
        self.seen.note(&self.scene, At::Hot(hot), (self.number, action, called), answer);
    }
}

/// Counts up under locks until it is calm. Reading and writing are two requests: only the lock keeps others away.
struct Locker {
    number: usize,
    scene: Arc<Scene>,
    store: Store,
    keys: Keys,
    random: Random,
    seen: Seen,
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

/// How a locker locks.
enum Keys {
    Leases(Leases),
    Session(Session),
}

/// How a session takes a lock for writing.
#[derive(Clone, Copy)]
enum Way {
    AtOnce,
    /// It reads first, with others.
    Converting,
    /// It has another lock already, on a counter that it only reads.
    Holding(u64),
}

/// A lock that is held.
enum Grip {
    Lease(Lease),
    Lock(Lock),
    /// The second while the first was held.
    Locks(Lock, Lock),
}

impl Grip {
    fn lock(&self) -> LockId {
        match self {
            Grip::Lease(lease) => lease.lock(),
            Grip::Lock(lock) | Grip::Locks(_, lock) => lock.id(),
        }
    }

    fn token(&self) -> Token {
        match self {
            Grip::Lease(lease) => lease.token(),
            Grip::Lock(lock) | Grip::Locks(_, lock) => lock.token(),
        }
    }

    async fn release(self) -> Result<(), Error> {
        match self {
            Grip::Lease(lease) => lease.release().await,
            Grip::Lock(lock) => lock.release().await,
            Grip::Locks(first, second) => {
                second.release().await?;
                first.release().await
            }
        }
    }
}

impl Locker {
    async fn start(number: usize, scene: Arc<Scene>, random: Random) -> Seen {
        let keys = match number % 2 {
            0 => Keys::Leases(Leases::new(scene.nodes(number + 1), NAMESPACE)),
            _ => Keys::Session(scene.session(number).await),
        };
        let store = scene.store(number);
        Locker { number, scene, store, keys, random, seen: Seen::default() }.run().await
    }

    async fn run(mut self) -> Seen {
        while !self.scene.calm.load(Ordering::Relaxed) {
            let (counters, paths) = self.choose();
            let (number, called) = (self.number, self.scene.now());
            let way = match self.random.below(3) {
                0 => Way::Converting,
                1 => Way::Holding(self.random.below(COUNTERS_LEN)),
                _ => Way::AtOnce,
            };
            match self.take(&paths, way).await {
                Ok(Some(grip)) => self.count(&counters, grip, called).await,
                Ok(None) => {}
                Err(error) if may_happen(&error) => self.begin_anew().await,
                Err(error) => {
                    self.seen.errors.push(format!("client {number} {counters:?} since {called}: {error}"));
                }
            }
        }
        self.seen
    }

    /// After a lock was lost. A session that was away for too long is over, and another one takes its place.
    async fn begin_anew(&mut self) {
        if matches!(self.keys, Keys::Session(_)) {
            self.keys = Keys::Session(self.scene.session(self.number).await);
        }
    }

    /// One counter, two of them, which may be on two shards, or one with its whole collection, which is on all shards.
    fn choose(&mut self) -> (Vec<At>, Vec<Path>) {
        let first = self.random.below(COUNTERS_LEN);
        let second = (first + 1 + self.random.below(COUNTERS_LEN - 1)) % COUNTERS_LEN;
        match self.random.below(10) {
            0 => (vec![At::Counter(first)], vec![Path::from_segments([At::Counter(first).key().collection])]),
            1..4 => (vec![At::Counter(first), At::Counter(second)], vec![path_of(first), path_of(second)]),
            _ => (vec![At::Counter(first)], vec![path_of(first)]),
        }
    }

    /// Takes locks for writing; nothing if a session that has one already is in the way of those in its way.
    async fn take(&self, paths: &[Path], way: Way) -> Result<Option<Grip>, Error> {
        let session = match &self.keys {
            Keys::Leases(leases) => {
                return self.lease(leases, paths).await.map(|lease| Some(Grip::Lease(lease)));
            }
            Keys::Session(session) => session,
        };
        let (first, second) = match way {
            Way::AtOnce => return Ok(Some(Grip::Lock(session.lock(request(paths, Mode::Write)).await?))),
            Way::Converting => {
                let lock = session.lock(request(paths, Mode::Read)).await?;
                let converted = lock.convert(Mode::Write, Wait::Millis(LEASE_MS)).await;
                (lock, converted.map(|_| None))
            }
            Way::Holding(number) => {
                let first = session.lock(request(&[path_of(number)], Mode::Read)).await?;
                (first, session.lock(request(paths, Mode::Write)).await.map(Some))
            }
        };
        match second {
            Ok(None) => Ok(Some(Grip::Lock(first))),
            Ok(Some(second)) => Ok(Some(Grip::Locks(first, second))),
            Err(error) if error.code() == Some(Code::Deadlock) => first.release().await.map(|()| None),
            Err(error) => Err(error),
        }
    }

    /// Each has an owner of its own: of an earlier one that was lost it is not known whether it is over.
    async fn lease(&self, leases: &Leases, paths: &[Path]) -> Result<Lease, Error> {
        let resources = paths.iter().map(|path| Resource::new(path.clone(), Mode::Write, Depth::SUBTREE));
        let request = LeaseRequest {
            owner: format!("locker {} at {}", self.number, self.scene.now()),
            resources: resources.map(|resource| (&resource).into()).collect(),
            ttl_ms: LEASE_MS,
            wait_ms: Some(LEASE_MS),
            poll_ms: None,
            note: None,
        };
        leases.hold(&request).await
    }

    async fn count(&mut self, counters: &[At], grip: Grip, asked: u64) {
        let (number, lock, token, from) = (self.number, grip.lock().0, grip.token(), self.scene.now());
        for at in counters {
            let called = self.scene.now();
            let counted = self.add(*at, Terms::default().token(token)).await;
            let counted = counted.map(|count| (Answer::Holds(Some(count)), None));
            self.seen.note(&self.scene, *at, (number, Action::Add(1), called), counted);
        }
        let to = self.scene.now();
        match grip.release().await {
            Ok(()) => {}
            // How long it was held is unknown. What was done under it is in the history all the same.
            Err(error) if may_happen(&error) => return self.begin_anew().await,
            Err(error) => {
                self.seen.errors.push(format!("client {number} gives back {counters:?} at {to}: {error}"));
            }
        }
        let free = self.scene.now();
        let held = Held { client: number, lock, token: token.0, asked, from, to, free };
        self.seen.held.extend(counters.iter().map(|at| (*at, held)));
    }

    async fn add(&self, at: At, terms: Terms) -> Result<u64, Error> {
        let options = ReadOptions { terms: terms.clone(), ..ReadOptions::default() };
        let count = held(&self.store.get(&at.key(), &options).await?.document) + 1;
        let options = PutOptions { terms, ..PutOptions::default() };
        self.store.put(&at.key(), &holds(count), &options).await?;
        Ok(count)
    }
}

fn path_of(counter: u64) -> Path {
    let DocumentKey { collection, key } = At::Counter(counter).key();
    Path::from_segments([&*collection, &key.to_string()])
}

fn request(paths: &[Path], mode: Mode) -> Request {
    let resources = paths.iter().map(|path| Resource::new(path.clone(), mode, Depth::SUBTREE));
    resources.fold(Request::new(), Request::with).wait(Wait::Millis(LEASE_MS))
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
