//! Everything at once: 2 → 3 → 5 → 2 shards under writers, readers and lockers, with nodes killed on the way; what
//! the clients saw must be explicable by one store that does one thing after the other.
//!
//! `LOCKWOOD_STORM_KILLS` says how many nodes are killed, `LOCKWOOD_STORM_SEED` what is done by whom.

use crate::{
    cluster::Cluster,
    linear::{self, Action, Answer, Operation, State, Verdict},
    random::Random,
};
use lockwood_client::{
    Code, DocumentKey, Error, PutIf, PutOptions, ReadOptions, Store,
    wire::{Deleted, DocumentInfo, Fields},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    env,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::{runtime::Runtime, task::JoinHandle};

/// How many shards there are, one after the other.
const STAGES: [usize; 4] = [2, 3, 5, 2];
const NODES_LEN: usize = 5;
const CLIENTS_LEN: usize = 16;
/// Documents that nobody touches, so that there is something to copy.
const COLD_LEN: u64 = 1200;
/// How many collections there are of each kind.
const COLLECTIONS_LEN: u64 = 6;
/// Clients fight over so many documents at a time.
const HOT_LEN: u64 = 40;
/// After so many operations a new document takes the place of an old one.
const HOT_OPERATIONS: u64 = 120;
/// How many documents a donor copies in a second, so that there is time for kills.
const THROTTLE: u64 = 150;
/// A transition that takes longer will never be over.
const STUCK: Duration = Duration::from_secs(180);
const KILLS_LEN: u64 = 4;
const SEED: u64 = 5;

fn setting(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn nothing_is_lost_in_a_storm() {
    storm(setting("LOCKWOOD_STORM_SEED", SEED), setting("LOCKWOOD_STORM_KILLS", KILLS_LEN));
}

fn storm(seed: u64, kills: u64) {
    println!("seed {seed}, {kills} kills");
    let runtime = Runtime::new().unwrap();
    let mut cluster = Cluster::nodes(NODES_LEN);
    cluster.put_map(&cluster.steady(1, STAGES[0], hash(STAGES[0])));
    let scene = Arc::new(Scene {
        addresses: cluster.addresses.clone(),
        started: Instant::now(),
        calm: AtomicBool::new(false),
        operations: AtomicU64::new(0),
    });
    runtime.block_on(fill(&scene));
    let clients = start(&runtime, &scene, seed);
    let mut driver = Driver { cluster: &mut cluster, random: Random(seed | 1 << 32), kills: Vec::new() };
    for (stage, len) in STAGES.into_iter().enumerate().skip(1) {
        let stages = STAGES.len() as u64 - 1;
        let kills = kills * stage as u64 / stages - kills * (stage as u64 - 1) / stages;
        driver.reshard(len, kills, Some(THROTTLE));
        let done = scene.operations.load(Ordering::Relaxed);
        println!(
            "{len} shards after {:?} and {done} operations; killed {:?}",
            scene.started.elapsed(),
            driver.kills
        );
    }
    scene.calm.store(true, Ordering::Relaxed);
    let seen = runtime.block_on(join(clients));
    let before = runtime.block_on(dump(&scene, &seen));
    check(&scene, seen, &before);
    driver.reshard(4, 0, None);
    let after = runtime.block_on(look_at_all(&scene, before.keys().copied().collect()));
    assert_eq!(before.len(), after.len());
    for (at, document) in &before {
        assert_eq!(*document, after[at], "{at:?} is another one after a quiet resharding");
    }
}

fn hash(shards: usize) -> Value {
    json!({ "function": "hash", "shards": shards })
}

/// What all clients share.
struct Scene {
    addresses: Vec<String>,
    started: Instant,
    /// Whether it is over.
    calm: AtomicBool,
    operations: AtomicU64,
}

impl Scene {
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap()
    }

    /// All nodes, with another one to begin with for every client.
    fn store(&self, client: usize) -> Store {
        let mut addresses = self.addresses.clone();
        addresses.rotate_left(client % self.addresses.len());
        Store::new(addresses.join(","), "storm")
    }
}

/// A document, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum At {
    Cold(u64),
    Hot(u64),
}

impl At {
    fn key(self) -> DocumentKey {
        let (kind, number) = match self {
            At::Cold(number) => ("cold", number),
            At::Hot(number) => ("hot", number),
        };
        DocumentKey::new(&format!("{kind}{}", number % COLLECTIONS_LEN), number.to_string().parse().unwrap())
    }
}

fn holds(value: u64) -> Fields {
    serde_json::from_value(json!({ "v": value, "text": "so that it weighs something" })).unwrap()
}

fn held(document: &DocumentInfo) -> u64 {
    serde_json::to_value(&document.value).unwrap()["v"].as_u64().unwrap()
}

async fn fill(scene: &Arc<Scene>) {
    let each = COLD_LEN / CLIENTS_LEN as u64;
    let filling = (0..CLIENTS_LEN).map(|client| {
        let scene = Arc::clone(scene);
        tokio::spawn(async move {
            let store = scene.store(client);
            for number in client as u64 * each..(client as u64 + 1) * each {
                store.put(&At::Cold(number).key(), &holds(number), &PutOptions::default()).await.unwrap();
            }
        })
    });
    for filled in filling.collect::<Vec<_>>() {
        filled.await.unwrap();
    }
}

/// What a client did and saw.
#[derive(Default)]
struct Seen {
    operations: Vec<(u64, Operation)>,
    /// What no client should ever see.
    errors: Vec<String>,
}

fn start(runtime: &Runtime, scene: &Arc<Scene>, seed: u64) -> Vec<JoinHandle<Seen>> {
    let clients = (0..CLIENTS_LEN).map(|number| {
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number as u64 + 1) << 20);
        let store = scene.store(number);
        let client =
            Client { number, scene: Arc::clone(scene), store, random, seen: Seen::default(), written: 0 };
        runtime.spawn(client.run())
    });
    clients.collect()
}

async fn join(clients: Vec<JoinHandle<Seen>>) -> Seen {
    let mut all = Seen::default();
    for client in clients {
        let seen = client.await.unwrap();
        all.operations.extend(seen.operations);
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
        let answer = read.as_ref().map(|found| Answer::Holds(found.as_ref().map(held))).map_err(Error::clone);
        self.note(hot, Action::Get, called, answer);
        let Ok(Some(document)) = read else { return };
        let options = PutOptions { position: Some(document.position), ..PutOptions::default() };
        let called = self.scene.now();
        let done = self.store.put(&At::Hot(hot).key(), &holds(value), &options).await;
        self.note(hot, Action::Swap(held(&document), value), called, answered(done.map(drop)));
    }

    fn note(&mut self, hot: u64, action: Action, called: u64, answer: Result<Answer, Error>) {
        let answered = match answer {
            Ok(answer) => Some((self.scene.now(), answer)),
            Err(error) => {
                self.seen.errors.push(format!("client {} {action:?} {hot}: {error}", self.number));
                None
            }
        };
        let operation = Operation { client: self.number, action, called, answered };
        self.seen.operations.push((hot, operation));
    }
}

async fn carry_out(store: &Store, hot: u64, action: Action) -> Result<Answer, Error> {
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
            return Ok(Answer::Holds(found.as_ref().map(held)));
        }
        Action::Look | Action::Add(_) | Action::Swap(..) => unreachable!("nobody asks for that here"),
    };
    answered(done.map(drop))
}

/// Refusals that a store in one place would give as well are answers.
fn answered(done: Result<(), Error>) -> Result<Answer, Error> {
    let Err(error) = done else { return Ok(Answer::Done) };
    match error.code() {
        Some(Code::DocumentExists) => Ok(Answer::Exists),
        Some(Code::DocumentDeleted) => Ok(Answer::Deleted),
        Some(Code::NoDocument) => Ok(Answer::Missing),
        Some(Code::NotDeleted) => Ok(Answer::NotDeleted),
        Some(Code::PositionLocked) => Ok(Answer::Changed),
        _ => Err(error),
    }
}

async fn look(store: &Store, at: At, deleted: Deleted) -> Result<Option<DocumentInfo>, Error> {
    let options = ReadOptions { deleted, ..ReadOptions::default() };
    match store.get(&at.key(), &options).await {
        Ok(answer) => Ok(Some(answer.document)),
        Err(error) if error.code() == Some(Code::NoDocument) => Ok(None),
        Err(error) => Err(error),
    }
}

type Dump = BTreeMap<At, Option<DocumentInfo>>;

/// Every document that there can be.
async fn dump(scene: &Arc<Scene>, seen: &Seen) -> Dump {
    let hot = seen.operations.iter().map(|(hot, _)| At::Hot(*hot));
    let mut all: Vec<At> = hot.chain((0..COLD_LEN).map(At::Cold)).collect();
    all.sort();
    all.dedup();
    look_at_all(scene, all).await
}

async fn look_at_all(scene: &Arc<Scene>, all: Vec<At>) -> Dump {
    let all = Arc::new(all);
    let looking = (0..CLIENTS_LEN).map(|client| {
        let (all, store) = (Arc::clone(&all), scene.store(client));
        tokio::spawn(async move {
            let mut found = Vec::new();
            for at in all.iter().skip(client).step_by(CLIENTS_LEN) {
                found.push((*at, look(&store, *at, Deleted::With).await.unwrap()));
            }
            found
        })
    });
    let mut dump = Dump::new();
    for looked in looking.collect::<Vec<_>>() {
        dump.extend(looked.await.unwrap());
    }
    dump
}

fn check(scene: &Scene, seen: Seen, dump: &Dump) {
    let mut histories: HashMap<u64, Vec<Operation>> = HashMap::new();
    println!("{} operations on {} documents", seen.operations.len(), dump.len() as u64 - COLD_LEN);
    for (hot, operation) in seen.operations {
        histories.entry(hot).or_default().push(operation);
    }
    let now = scene.now();
    let mut wrong = seen.errors;
    for (at, found) in dump {
        let state = found.as_ref().map_or(State::Unborn, |found| match found.deleted {
            true => State::Gone(held(found)),
            false => State::Live(held(found)),
        });
        match at {
            At::Cold(number) if state == State::Live(*number) => {}
            At::Cold(_) => wrong.push(format!("{at:?} is {state:?} in the end")),
            At::Hot(number) => {
                let history = histories.get_mut(number).unwrap();
                let answered = Some((now + 1, Answer::Is(state)));
                history.push(Operation { client: usize::MAX, action: Action::Look, called: now, answered });
                match linear::check(State::Unborn, history) {
                    Verdict::Linearizable => {}
                    Verdict::Impossible(story) => wrong.push(format!("{at:?} cannot be explained:\n{story}")),
                    Verdict::Undecided => {
                        wrong.push(format!("{at:?}: too many operations without an answer"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} things went wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Has the cluster reshard, and kills nodes meanwhile.
struct Driver<'a> {
    cluster: &'a mut Cluster,
    random: Random,
    /// In order.
    kills: Vec<usize>,
}

impl Driver<'_> {
    fn reshard(&mut self, len: usize, kills: u64, throttle: Option<u64>) {
        let list = self.cluster.steady(1, len, hash(len))["shards"].clone();
        let change = json!({ "list": list, "curr": hash(len) });
        let command = json!({ "do": "reshard", "change": change, "throttle": throttle });
        self.cluster.store(1, "_system").post("shard/transition", &command);
        for _ in 0..kills {
            self.pause(100, 900);
            let node = 1 + self.random.below(NODES_LEN as u64) as usize;
            self.cluster.kill(node);
            self.kills.push(node);
            self.pause(20, 700);
            self.cluster.restart(node);
        }
        let deadline = Instant::now() + STUCK;
        loop {
            let status = self.cluster.store(1, "_system").get("shard/transition");
            if status["step"] == "none" {
                return;
            }
            assert!(Instant::now() < deadline, "stuck on the way to {len} shards: {status:#}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn pause(&mut self, from_ms: u64, to_ms: u64) {
        thread::sleep(Duration::from_millis(from_ms + self.random.below(to_ms - from_ms)));
    }
}
