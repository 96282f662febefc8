//! Shards whose machine loses power, whose disk fails, and whose disk takes its time: what was acknowledged
//! is there afterwards, and nothing is answered that could still be lost.
//!
//! `LOCKWOOD_MODEL_HISTORIES` and `LOCKWOOD_MODEL_SEED` make the random ones longer or start them elsewhere; a
//! history that fails prints its seed.

use super::{Call, Find, Selection, Shard, ShardError, ShardLimits, Written};
use lockwood_engine::{Action, Intent, PutIf, Refused, Request};
use lockwood_model::{
    Budget, Condition, DocumentKey, FieldPath, FieldValue, Filter, Json, Key, Operator, Position, Timestamp,
};
use lockwood_storage::{
    Answer, Batch, Durability, Entry, Failing, Failure, Forgetful, IndexState, Memory, Snapshot, Space,
    State, Store, StoreError, verify,
};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::task::JoinHandle;

const LIMITS: ShardLimits = ShardLimits { pending_bytes_max: 1 << 30, namespaces_max: 10 };
const NAMESPACE: &str = "n";

fn open(store: Arc<dyn Store>) -> Arc<Shard> {
    Arc::new(Shard::open(store, LIMITS).unwrap())
}

fn at(key: u64) -> DocumentKey {
    DocumentKey::new("c", Key::number(key as i64))
}

fn fields(pairs: &[(&str, u64)]) -> Vec<FieldValue> {
    pairs.iter().map(|(name, value)| ((*name).into(), Json::trusted(&value.to_string()))).collect()
}

fn request(intents: impl IntoIterator<Item = (u64, Action)>) -> Request {
    let intents = intents.into_iter().map(|(key, action)| Intent { at: at(key), action });
    Request { intents: intents.collect(), ..Request::default() }
}

fn create(key: u64) -> Request {
    request([(key, Action::Create { fields: fields(&[("f", key)]) })])
}

fn call(requests: Vec<Request>) -> Call {
    Call { requests, ..Call::default() }
}

fn named(requests: Vec<Request>, key: &str, digest: u8) -> Call {
    let answer = Answer { key: key.into(), fingerprint: [digest; 16] };
    Call { answer: Some(answer), ..call(requests) }
}

async fn write(shard: &Shard, call: &Call) -> Result<Written, ShardError> {
    shard.write(NAMESPACE, call, Timestamp(1)).await
}

fn positions(written: &Written) -> Vec<u64> {
    written.positions.iter().map(|position| position.0).collect()
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build();
    runtime.unwrap().block_on(test)
}

#[track_caller]
fn verified(store: &dyn Store) {
    assert_eq!(verify(&*store.snapshot(), &Memory::default(), &mut |_, _| {}).unwrap(), []);
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// Says which seed it was if the test fails while it is alive.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Seed(seed) = self;
            eprintln!("to see it again: LOCKWOOD_MODEL_SEED={seed} LOCKWOOD_MODEL_HISTORIES=1");
        }
    }
}

fn for_seeds(histories: u64, history: impl Fn(Random)) {
    let setting = |name: &str, default| {
        std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
    };
    let first = setting("LOCKWOOD_MODEL_SEED", 0);
    for seed in first..first + setting("LOCKWOOD_MODEL_HISTORIES", histories) {
        let _seed = Seed(seed);
        history(Random(seed));
    }
}

/// What is on the disk and what is not, both as the store shows it: a disk that takes a while to sync, so
/// that power can be lost just then.
#[derive(Clone)]
struct Slow(Forgetful);

impl Store for Slow {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        self.0.snapshot()
    }

    fn commit(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        std::thread::sleep(Duration::from_micros(300));
        self.0.commit(batch, durability)
    }

    fn is_poisoned(&self) -> bool {
        self.0.is_poisoned()
    }
}

/// A disk that syncs when it is told to, and counts.
#[derive(Default)]
struct Gate {
    memory: Memory,
    closed: Mutex<bool>,
    opened: Condvar,
    commits: AtomicU64,
    fails: AtomicBool,
}

impl Gate {
    fn close(&self) {
        *self.closed.lock() = true;
    }

    fn open(&self) {
        *self.closed.lock() = false;
        self.opened.notify_all();
    }

    /// How many commits were started.
    fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// Waits until so many commits were started.
    async fn reached(&self, commits: u64) {
        while self.commits() < commits {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Store for Gate {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        self.memory.snapshot()
    }

    fn commit(&self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        let mut closed = self.closed.lock();
        // Not forever, so that a test that fails meanwhile also ends.
        while *closed && !self.opened.wait_for(&mut closed, Duration::from_secs(5)).timed_out() {}
        if self.fails.load(Ordering::SeqCst) {
            return Err(StoreError::Failed("the disk failed, as it was told to".to_owned()));
        }
        self.memory.commit(batch, durability)
    }

    fn is_poisoned(&self) -> bool {
        false
    }
}

/// A shard on a disk whose first batch, the creation of document 1, is being synced and does not end.
async fn stuck() -> (Arc<Gate>, Arc<Shard>, JoinHandle<Result<Written, ShardError>>) {
    let gate = Arc::new(Gate::default());
    let shard = open(Arc::clone(&gate) as Arc<dyn Store>);
    gate.close();
    let before = gate.commits();
    let first = spawn(&shard, call(vec![create(1)]));
    gate.reached(before + 1).await;
    (gate, shard, first)
}

fn spawn(shard: &Arc<Shard>, call: Call) -> JoinHandle<Result<Written, ShardError>> {
    let shard = Arc::clone(shard);
    tokio::spawn(async move { write(&shard, &call).await })
}

/// Long enough for an answer that does not wait for the disk.
async fn a_while() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[test]
fn while_one_batch_is_synced_all_further_calls_go_into_one_next_batch() {
    run(async {
        let (gate, shard, first) = stuck().await;
        let before = gate.commits();
        let later: Vec<_> = (2..30).map(|key| spawn(&shard, call(vec![create(key)]))).collect();
        a_while().await;
        assert!(!first.is_finished() && later.iter().all(|call| !call.is_finished()));
        assert!(
            shard.read().namespace(NAMESPACE).unwrap().is_none(),
            "nothing is shown before it is durable"
        );
        gate.open();
        let mut all = positions(&first.await.unwrap().unwrap());
        for call in later {
            all.extend(positions(&call.await.unwrap().unwrap()));
        }
        assert_eq!(gate.commits(), before + 1, "one batch for all of them");
        all.sort_unstable();
        assert_eq!(all, (1..30).collect::<Vec<_>>());
        verified(&gate.memory);
    });
}

#[test]
fn a_refusal_waits_for_what_it_rests_on() {
    run(async {
        let (gate, shard, first) = stuck().await;
        let exists = spawn(&shard, call(vec![create(1)]));
        a_while().await;
        assert!(!exists.is_finished(), "the document it is refused for could still be lost");
        // Now it rests on the batch after the one in flight.
        let second = spawn(&shard, call(vec![create(2)]));
        a_while().await;
        let gone = spawn(&shard, call(vec![request([(2, Action::Create { fields: vec![] })])]));
        a_while().await;
        assert!(!gone.is_finished() && !second.is_finished());
        gate.open();
        first.await.unwrap().unwrap();
        second.await.unwrap().unwrap();
        for refused in [exists, gone] {
            let refused = refused.await.unwrap();
            let Err(ShardError::Refused(refused)) = refused else { panic!("{refused:?}") };
            assert!(matches!(*refused, Refused::Exists { deleted: false, .. }), "{refused:?}");
        }
    });
}

#[test]
fn a_refusal_that_rests_on_what_was_lost_is_no_refusal() {
    run(async {
        let (gate, shard, first) = stuck().await;
        let exists = spawn(&shard, call(vec![create(1)]));
        let other = spawn(&shard, call(vec![create(2)]));
        a_while().await;
        gate.fails.store(true, Ordering::SeqCst);
        gate.open();
        for call in [first, exists, other] {
            let answer = call.await.unwrap();
            assert!(matches!(answer, Err(ShardError::Store(_))), "{answer:?}");
        }
        assert!(shard.is_poisoned());
        let answer = write(&shard, &call(vec![create(3)])).await;
        assert!(matches!(answer, Err(ShardError::Store(StoreError::Poisoned))), "{answer:?}");
    });
}

#[test]
fn a_repeated_call_gets_the_first_answer_even_before_there_is_one() {
    run(async {
        let (gate, shard, first) = stuck().await;
        let again = || named(vec![create(2), create(3)], "again", 1);
        let original = spawn(&shard, again());
        a_while().await;
        let repeated = spawn(&shard, again());
        let different = spawn(&shard, named(vec![create(4)], "again", 2));
        a_while().await;
        assert!(!original.is_finished() && !repeated.is_finished() && !different.is_finished());
        gate.open();
        first.await.unwrap().unwrap();
        let original = original.await.unwrap().unwrap();
        assert_eq!((positions(&original), original.replayed), (vec![2, 3], false));
        let repeated = repeated.await.unwrap().unwrap();
        assert_eq!((positions(&repeated), repeated.replayed), (vec![2, 3], true));
        assert!(matches!(different.await.unwrap(), Err(ShardError::IdempotencyMismatch)));
        // The same after a restart, when only the store knows.
        drop(shard);
        let shard = open(Arc::clone(&gate) as Arc<dyn Store>);
        let repeated = write(&shard, &again()).await.unwrap();
        assert_eq!((positions(&repeated), repeated.replayed), (vec![2, 3], true));
        let different = write(&shard, &named(vec![create(4)], "again", 2)).await;
        assert!(matches!(different, Err(ShardError::IdempotencyMismatch)));
        assert_eq!(shard.read().namespace(NAMESPACE).unwrap().unwrap().1, Position(3));
    });
}

#[test]
fn a_call_with_one_refused_request_does_nothing() {
    run(async {
        let store = Memory::default();
        let shard = open(Arc::new(store.clone()));
        write(&shard, &call(vec![create(1)])).await.unwrap();
        let refused = write(&shard, &named(vec![create(2), create(1)], "k", 1)).await;
        assert!(matches!(refused, Err(ShardError::Refused(_))), "{refused:?}");
        let done = write(&shard, &named(vec![create(2)], "k", 2)).await.unwrap();
        assert_eq!((positions(&done), done.replayed), (vec![2], false));
        verified(&store);
    });
}

#[test]
fn more_than_may_wait_for_the_disk_is_turned_away() {
    run(async {
        let gate = Arc::new(Gate::default());
        let limits = ShardLimits { pending_bytes_max: 1000, namespaces_max: 2 };
        let shard = Arc::new(Shard::open(Arc::clone(&gate) as Arc<dyn Store>, limits).unwrap());
        gate.close();
        let calls: Vec<_> = (1..100).map(|key| spawn(&shard, call(vec![create(key)]))).collect();
        a_while().await;
        gate.open();
        let mut refused = 0;
        for call in calls {
            match call.await.unwrap() {
                Ok(_) => {}
                Err(ShardError::TooMuchPending(1000)) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(refused > 0);
        write(&shard, &call(vec![create(1000)])).await.unwrap();
    });
}

#[test]
fn namespaces_that_were_emptied_do_not_count() {
    run(async {
        let limits = ShardLimits { pending_bytes_max: 1 << 20, namespaces_max: 2 };
        let shard = Shard::open(Arc::new(Memory::default()), limits).unwrap();
        let put = Action::Put { fields: Vec::new(), when: PutIf::Always };
        for _ in 0..4 {
            for name in ["a", "b"] {
                shard.write(name, &call(vec![request([(1, put.clone())])]), Timestamp(1)).await.unwrap();
            }
            let third = shard.write("c", &call(vec![create(1)]), Timestamp(1)).await;
            assert!(matches!(third, Err(ShardError::TooManyNamespaces(2))), "{third:?}");
            shard.record(Entry::Emptied { namespace: "a".into() }).await.unwrap();
        }
        shard.write("c", &call(vec![create(1)]), Timestamp(1)).await.unwrap();
        shard.write("b", &call(vec![create(2)]), Timestamp(1)).await.unwrap();
    });
}

/// What one writer knows of its own documents, nobody else writing them: each of its calls sets the same
/// number in two documents, once in one request and once in two.
struct Known {
    writer: u64,
    /// The numbers that were acknowledged, with their positions.
    acknowledged: Vec<(u64, Vec<u64>)>,
    /// Numbers up to here were sent.
    sent: u64,
}

fn put(writer: u64, number: u64) -> Call {
    let both = |name: &'static str| {
        let action = || Action::Put { fields: fields(&[("f", number), (name, number)]), when: PutIf::Always };
        request([(writer * 2, action()), (writer * 2 + 1, action())])
    };
    let requests = if number.is_multiple_of(2) { vec![both("x")] } else { vec![both("x"), both("y")] };
    named(requests, &format!("{writer}/{number}"), number as u8)
}

async fn keep_writing(shard: Arc<Shard>, writer: u64, len: u64, stop: Arc<AtomicBool>) -> Known {
    let mut known = Known { writer, acknowledged: Vec::new(), sent: 0 };
    while known.sent < len && !stop.load(Ordering::SeqCst) {
        known.sent += 1;
        match write(&shard, &put(writer, known.sent)).await {
            // Looked at right after the answer, which is when it must hold.
            Ok(_) if stop.load(Ordering::SeqCst) => break,
            Ok(written) => known.acknowledged.push((known.sent, positions(&written))),
            Err(_) => break,
        }
    }
    known
}

fn content(store: &dyn Store, key: u64) -> (u64, BTreeMap<String, String>) {
    let snapshot = store.snapshot();
    let state = State::new(&*snapshot);
    let Some(namespace) = state.namespace(NAMESPACE).unwrap() else { return Default::default() };
    let Some(document) = state.document(namespace, &at(key)).unwrap() else { return Default::default() };
    let fields = document.present().map(|(name, value)| (name.to_owned(), value.as_str().to_owned()));
    (document.position.0, fields.collect())
}

/// Everything acknowledged is there, everything else is whole or absent.
fn check(store: &dyn Store, writers: &[Known]) {
    let snapshot = store.snapshot();
    let state = State::new(&*snapshot);
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    let namespace = state.namespace(NAMESPACE).unwrap();
    let last = namespace.map_or(0, |namespace| state.position(namespace).unwrap().0);
    for known in writers {
        let (acknowledged, reached) =
            known.acknowledged.last().map_or((0, 0), |(number, at)| (*number, *at.last().unwrap()));
        let (position, one) = content(store, known.writer * 2);
        assert_eq!(
            (position, &one),
            (content(store, known.writer * 2 + 1).0, &content(store, known.writer * 2 + 1).1)
        );
        let number: u64 = one.get("f").map_or(0, |number| number.parse().unwrap());
        assert!(number >= acknowledged, "{acknowledged} was acknowledged, {number} is there");
        assert!(number <= acknowledged + 1 && number <= known.sent, "{number} of {}", known.sent);
        assert!(position >= reached);
        // The second request of a call ends with "y", so half a call would show.
        let name = if number.is_multiple_of(2) { "x" } else { "y" };
        assert!(number == 0 || one.len() == 2 && one[name] == one["f"], "{one:?}");
        for (number, positions) in &known.acknowledged {
            assert_eq!(positions.len(), if number.is_multiple_of(2) { 1 } else { 2 });
            assert!(positions.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{positions:?} are together");
            for position in positions {
                assert_eq!(seen.insert(*position, *number), None, "{position} was given twice");
            }
        }
    }
    if let Some(namespace) = namespace {
        let commits = state.commits(namespace, Position(1), None);
        let kept: Vec<u64> = commits.map(|commit| commit.unwrap().commit.position.0).collect();
        let first = kept.first().copied().unwrap_or(last + 1);
        assert_eq!(kept, (first..=last).collect::<Vec<_>>(), "positions are dense");
    }
    assert!(seen.keys().all(|position| *position <= last));
    verified(store);
}

/// The next run goes on where the last one stopped, with the same calls.
async fn continue_on(store: Arc<dyn Store>, writers: &[Known]) {
    let shard = open(Arc::clone(&store));
    for known in writers {
        for (number, expected) in known.acknowledged.iter().rev().take(3) {
            let again = write(&shard, &put(known.writer, *number)).await.unwrap();
            assert_eq!((&positions(&again), again.replayed), (expected, true));
        }
        let next = write(&shard, &put(known.writer, known.sent + 1)).await.unwrap();
        assert!(!next.replayed);
    }
    drop(shard);
    verified(&*store);
}

#[test]
fn what_was_acknowledged_survives_a_loss_of_power() {
    for_seeds(40, |mut random| {
        run(async {
            let disk = Forgetful::default();
            let shard = open(Arc::new(Slow(disk.clone())));
            let stop = Arc::new(AtomicBool::new(false));
            let writers: Vec<_> = (0..6)
                .map(|writer| tokio::spawn(keep_writing(Arc::clone(&shard), writer, 500, Arc::clone(&stop))))
                .collect();
            tokio::time::sleep(Duration::from_micros(random.below(30_000))).await;
            // Whoever was answered before this line must find it later.
            stop.store(true, Ordering::SeqCst);
            let survived = disk.lose_power();
            let mut known = Vec::new();
            for writer in writers {
                known.push(writer.await.unwrap());
            }
            check(&survived, &known);
            continue_on(Arc::new(survived), &known).await;
        });
    });
}

#[test]
fn a_failed_disk_acknowledges_nothing_and_loses_nothing() {
    for failure in [Failure::Before, Failure::After] {
        for commits in 1..=30 {
            run(fail_after(commits, failure));
        }
    }
}

async fn fail_after(commits: u64, failure: Failure) {
    let disk = Forgetful::default();
    let shard = open(Arc::new(Failing::new(disk.clone(), commits, failure)));
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|writer| tokio::spawn(keep_writing(Arc::clone(&shard), writer, 1000, Arc::clone(&stop))))
        .collect();
    let mut known = Vec::new();
    for writer in writers {
        let writer = writer.await.unwrap();
        assert!(writer.acknowledged.len() < 1000, "the disk failed");
        known.push(writer);
    }
    assert!(shard.is_poisoned());
    refused(&shard).await;
    let survived = disk.lose_power();
    check(&survived, &known);
    drop(shard);
    continue_on(Arc::new(survived), &known).await;
}

async fn refused(shard: &Arc<Shard>) {
    let written = write(shard, &call(vec![create(7777)])).await;
    assert!(matches!(written, Err(ShardError::Store(_))), "{written:?}");
    let repeated = write(shard, &put(0, 1)).await;
    assert!(matches!(repeated, Err(ShardError::Store(_))), "{repeated:?}");
    let reserved = shard.reserve(NAMESPACE, "c", 1).await;
    assert!(matches!(reserved, Err(ShardError::Store(_))), "{reserved:?}");
    let recorded = shard.record(Entry::Emptied { namespace: NAMESPACE.into() }).await;
    assert!(matches!(recorded, Err(ShardError::Store(_))), "{recorded:?}");
}

#[test]
fn a_disk_that_fails_during_a_trim_loses_nothing() {
    for failure in [Failure::Before, Failure::After] {
        for commits in 21..=32 {
            run(fail_while_trimming(commits, failure));
        }
    }
}

async fn fail_while_trimming(commits: u64, failure: Failure) {
    let disk = Forgetful::default();
    let shard = open(Arc::new(Failing::new(disk.clone(), commits, failure)));
    let mut known = Known { writer: 0, acknowledged: Vec::new(), sent: 0 };
    for _ in 0..20 {
        known.sent += 1;
        let written = write(&shard, &put(0, known.sent)).await.unwrap();
        known.acknowledged.push((known.sent, positions(&written)));
    }
    // One by one, so that it is known which commit fails.
    let _ = shard.trim(Timestamp(2)).await;
    let _ = shard.trim(Timestamp(2)).await;
    known.sent += 1;
    if let Ok(written) = write(&shard, &put(0, known.sent)).await {
        known.acknowledged.push((known.sent, positions(&written)));
    }
    drop(shard);
    let survived = disk.lose_power();
    check(&survived, std::slice::from_ref(&known));
    let shard = open(Arc::new(survived.clone()));
    shard.trim(Timestamp(2)).await.unwrap();
    let next = write(&shard, &put(0, known.sent + 1)).await.unwrap();
    assert!(!next.replayed);
    drop(shard);
    verified(&survived);
}

#[test]
fn ids_are_handed_out_once_even_if_the_power_goes() {
    for_seeds(5, |mut random| {
        run(async {
            let mut disk = Forgetful::default();
            let mut given = std::collections::BTreeSet::new();
            for _ in 0..3 {
                let shard = open(Arc::new(Slow(disk.clone())));
                let stop = Arc::new(AtomicBool::new(false));
                let reserve = |amount: u64| {
                    let (shard, stop) = (Arc::clone(&shard), Arc::clone(&stop));
                    tokio::spawn(async move {
                        let mut got = Vec::new();
                        while let Ok(first) = shard.reserve(NAMESPACE, "c", amount).await {
                            if stop.load(Ordering::SeqCst) {
                                break;
                            }
                            got.extend(first..first + amount);
                        }
                        got
                    })
                };
                let tasks: Vec<_> = (1..5).map(reserve).collect();
                tokio::time::sleep(Duration::from_micros(random.below(8_000))).await;
                stop.store(true, Ordering::SeqCst);
                let survived = disk.lose_power();
                for task in tasks {
                    for id in task.await.unwrap() {
                        assert!(given.insert(id), "{id} was handed out twice");
                    }
                }
                disk = survived;
            }
            verified(&disk);
        });
    });
}

#[test]
fn an_index_that_is_built_while_others_write_finds_what_a_scan_finds() {
    run(async {
        let store = Memory::default();
        let shard = open(Arc::new(store.clone()));
        let many = (100..2700).map(create).collect();
        write(&shard, &call(many)).await.unwrap();
        let indexed = Entry::Indexed {
            namespace: NAMESPACE.into(),
            collection: "c".into(),
            field: FieldPath::name("f"),
            wanted: true,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> =
            (0..3).map(|writer| tokio::spawn(churn(Arc::clone(&shard), writer, Arc::clone(&stop)))).collect();
        shard.record(indexed).await.unwrap();
        shard.fill_indexes().await.unwrap();
        stop.store(true, Ordering::SeqCst);
        for writer in writers {
            writer.await.unwrap();
        }
        searches_agree(&shard);
        drop(shard);
        verified(&store);
    });
}

/// Changes, deletes and restores documents all over the collection.
async fn churn(shard: Arc<Shard>, writer: u64, stop: Arc<AtomicBool>) {
    let mut random = Random(writer);
    while !stop.load(Ordering::SeqCst) {
        let key = 90 + random.below(2700);
        let action = match random.below(5) {
            0 => Action::Delete,
            1 => Action::Restore,
            2 => Action::Create { fields: fields(&[("f", random.below(50))]) },
            3 => Action::Update { set: vec![("f".into(), Json::null())], lists: vec![] },
            _ => Action::Update { set: fields(&[("f", random.below(50))]), lists: vec![] },
        };
        match write(&shard, &call(vec![request([(key, action)])])).await {
            Ok(_) | Err(ShardError::Refused(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn searches_agree(shard: &Shard) {
    let reading = shard.read();
    let (namespace, _) = reading.namespace(NAMESPACE).unwrap().unwrap();
    let indexes = reading.state().indexes(namespace, "c").unwrap();
    assert!(indexes.iter().all(|index| index.state == IndexState::Ready) && indexes.len() == 1);
    for number in (0..50).chain([100, 1500, 2699]) {
        let operator = if number < 25 { Operator::Equal } else { Operator::Less };
        let condition =
            Condition::new(FieldPath::name("f"), operator, Json::trusted(&number.to_string())).unwrap();
        let filter = |wrap: fn(Filter) -> Filter| Find {
            namespace,
            collection: "c".into(),
            filter: Some(wrap(Filter::Is(condition.clone()))),
            deleted: Selection::With,
            at: None,
            looks_max: u64::MAX,
            budget: Budget::unlimited(),
            custody: None,
        };
        let keys = |find: &Find| -> Vec<DocumentKey> {
            let page = {
                let mut pager = crate::shard::Pager::new(Vec::new(), None, usize::MAX);
                reading.gather(find, &mut pager).unwrap();
                pager.finish()
            };
            page.documents.into_iter().map(|found| found.at).collect()
        };
        // An index does not help with a choice of two.
        let scanned = filter(|filter| Filter::Any(vec![filter.clone(), filter]));
        assert_eq!(keys(&filter(|filter| filter)), keys(&scanned), "{condition:?}");
    }
}

#[test]
fn history_is_trimmed_while_others_write() {
    run(async {
        let disk = Forgetful::default();
        let shard = open(Arc::new(disk.clone()));
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..3)
            .map(|writer| tokio::spawn(keep_writing(Arc::clone(&shard), writer, 60, Arc::clone(&stop))))
            .collect();
        let mut trimmed = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            trimmed += shard.trim(Timestamp(2)).await.unwrap();
        }
        assert!(trimmed > 0);
        let mut known = Vec::new();
        for writer in writers {
            known.push(writer.await.unwrap());
            assert_eq!(known.last().unwrap().sent, 60);
        }
        check(&disk, &known);
        check(&disk.lose_power(), &known);
        shard.trim(Timestamp(2)).await.unwrap();
        let records = |disk: &Forgetful| {
            let all = lockwood_storage::with_prefix(b"");
            disk.snapshot().scan(Space::Log, all, lockwood_storage::Order::Forward).count()
        };
        assert_eq!(records(&disk), 1, "only the note of the trim itself is left");
        assert_eq!(shard.trim(Timestamp(2)).await.unwrap(), 0, "there is nothing more to forget");
        assert_eq!(records(&disk), 1);
        let survived = disk.lose_power();
        check(&survived, &known);
        let shard = open(Arc::new(survived.clone()));
        write(&shard, &put(0, 61)).await.unwrap();
        drop(shard);
        verified(&survived);
    });
}

#[test]
fn what_somebody_still_has_to_read_is_not_trimmed() {
    run(async {
        let shard = open(Arc::new(Memory::default()));
        for now in 1..=6 {
            shard.write(NAMESPACE, &put(0, 2 * now), Timestamp(now)).await.unwrap();
        }
        shard.hold_after(2);
        assert_eq!(shard.trim(Timestamp(9)).await.unwrap(), 2);
        assert!(shard.read().state().entry(3).unwrap().is_some());
        shard.hold_after(6);
        assert_eq!(shard.trim(Timestamp(9)).await.unwrap(), 4);
    });
}

#[test]
fn what_is_younger_is_not_trimmed() {
    run(async {
        let store = Memory::default();
        let shard = open(Arc::new(store.clone()));
        for now in 1..=6 {
            shard.write(NAMESPACE, &put(0, now), Timestamp(now)).await.unwrap();
        }
        assert_eq!(shard.trim(Timestamp(4)).await.unwrap(), 5, "odd numbers are two requests");
        let reading = shard.read();
        let (namespace, position) = reading.namespace(NAMESPACE).unwrap().unwrap();
        // Odd numbers take two positions, so the third call ended at 5.
        assert_eq!((reading.state().horizon(namespace).unwrap(), position), (Position(5), Position(9)));
        let history = reading.state().history(namespace, &at(0), Position::START, 100).unwrap();
        assert_eq!(history.iter().map(|step| step.position.0).collect::<Vec<_>>(), [6, 7, 8, 9]);
        let repeated = shard.write(NAMESPACE, &put(0, 4), Timestamp(9)).await.unwrap();
        assert!(repeated.replayed, "an answer lives as long as the history");
        verified(&store);
    });
}

#[test]
fn two_owners_of_one_log_do_not_both_write() {
    run(async {
        let store = Memory::default();
        let first = open(Arc::new(store.clone()));
        write(&first, &call(vec![create(1)])).await.unwrap();
        let second = open(Arc::new(store.clone()));
        write(&second, &call(vec![create(2)])).await.unwrap();
        let late = write(&first, &call(vec![create(3)])).await;
        assert!(matches!(late, Err(ShardError::Store(_))), "{late:?}");
        write(&second, &call(vec![create(4)])).await.unwrap();
        verified(&store);
    });
}

#[test]
fn a_state_that_is_not_where_the_log_is_is_not_served() {
    run(async {
        let store = Memory::default();
        let shard = open(Arc::new(store.clone()));
        write(&shard, &call(vec![create(1)])).await.unwrap();
        write(&shard, &call(vec![create(2)])).await.unwrap();
        drop(shard);
        let mut batch = Batch::default();
        batch.remove(Space::Log, 2u64.to_be_bytes());
        store.commit(&batch, Durability::Synced).unwrap();
        let error = Shard::open(Arc::new(store), LIMITS).map(drop).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    });
}
