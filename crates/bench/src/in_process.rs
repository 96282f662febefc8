//! Measures the lock table by itself: no server, no network, no clock but the stopwatch.
//!
//! Requests are built before the stopwatch starts, in batches small enough to stay in the cache, as those of
//! a server would be that has just decoded them. Every figure is the median of several repetitions.

use crate::figure::Figure;
use lockwood_locks::{Effect, LockTable, Outcome, Rank, Request};
use lockwood_model::{Depth, LockId, Mode, OwnerId, Path, Resource, Timestamp, Wait};
use std::{
    hint::black_box,
    time::{Duration, Instant},
};

const NOW: Timestamp = Timestamp(0);
/// Owners of what is measured come after those of what is merely there.
const OWNER: OwnerId = OwnerId(1 << 40);

const BATCH_LEN: u64 = 1_000;
const BATCHES: usize = 101;
const REPETITIONS: usize = 7;

const QUEUE_LEN: u64 = 10_000;
const CHURN_LEN: u64 = 50_000;
const CHURN_PART: u64 = 5_000;
const SET_LEN: u64 = 8;

/// All figures about the table.
pub(crate) fn measure() -> Vec<Figure> {
    let mut figures = Vec::new();
    // Memory first: later on the heap has holes that hide how much is needed.
    figures.extend(queue_memory());
    figures.extend(pairs_among_others());
    figures.push(set_pair());
    figures.extend(queue_and_drain());
    figures.extend(reader_churn());
    figures.extend(long_queue_questions());
    figures
}

/// A lock and its release beside many locks that have nothing to do with it.
fn pairs_among_others() -> Vec<Figure> {
    let mut memory = None;
    let mut tables = [0, 10_000, 1_000_000].map(|others| {
        let before = resident_bytes();
        let table = table_with(others);
        // The last and largest table is the one that counts.
        memory = growth(before).map(|bytes| bytes / others.max(1) as f64);
        (others, table, Vec::new())
    });
    // One after the other in turn, so that a busy moment of the machine meets all of them alike.
    for _ in 0..BATCHES {
        for (_, table, times) in &mut tables {
            time_pairs(table, write_batch(1));
            times.push(per_pair(time_pairs(table, write_batch(1)), BATCH_LEN));
        }
    }
    let [(_, _, alone), ..] = &tables;
    let figure = |others: &u64, times: &[f64]| {
        let name = format!("write lock + release beside {others} other locks");
        Figure::new(name, median(times), "ns").note(ratio(times, alone))
    };
    let mut figures: Vec<Figure> = tables.iter().map(|(others, _, times)| figure(others, times)).collect();
    figures.extend(memory.map(|bytes| Figure::new("memory for each of 1000000 held locks", bytes, "bytes")));
    figures
}

fn set_pair() -> Figure {
    let mut table = table_with(0);
    let mut time = || per_pair(time_pairs(&mut table, write_batch(SET_LEN)), BATCH_LEN);
    time();
    let times: Vec<f64> = (0..BATCHES).map(|_| time()).collect();
    Figure::new(format!("write lock + release of a set of {SET_LEN}"), median(&times), "ns")
}

/// Many writers on one node, then each hands over to the next.
fn queue_and_drain() -> [Figure; 2] {
    let (mut queueing, mut draining) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let mut table = table_with(0);
        let requests: Vec<Request> = (0..QUEUE_LEN).map(writer).collect();
        let (locks, time) = timed(|| requests.into_iter().map(|request| ask(&mut table, request)).collect());
        queueing.push(time.as_secs_f64());
        draining.push(drain(&mut table, locks).as_secs_f64());
    }
    let (queueing, draining) = (median(&queueing), median(&draining));
    let each = |seconds: f64| format!("{:.0} ns each", seconds * 1e9 / QUEUE_LEN as f64);
    [
        Figure::new(format!("queue {QUEUE_LEN} writers on one path"), queueing, "s").note(each(queueing)),
        Figure::new(format!("drain {QUEUE_LEN} writers by hand-over"), draining, "s").note(each(draining)),
    ]
}

fn drain(table: &mut LockTable, locks: Vec<LockId>) -> Duration {
    let mut effects = Vec::with_capacity(locks.len());
    let ((), time) = timed(|| {
        for (writer, lock) in (0..).zip(locks) {
            release(table, OwnerId(writer), lock, &mut effects);
        }
    });
    assert_eq!(effects.len() as u64, QUEUE_LEN - 1, "everybody but the first is handed the lock");
    time
}

/// The requests are built one by one here: a freed list of them would make room for the queue.
fn queue_memory() -> Option<Figure> {
    let mut table = table_with(0);
    let before = resident_bytes();
    for number in 0..QUEUE_LEN {
        ask(&mut table, writer(number));
    }
    let bytes = growth(before)?;
    black_box(table);
    let name = format!("memory for {QUEUE_LEN} writers queued on one path");
    let note = format!("{:.0} bytes each", bytes / QUEUE_LEN as f64);
    Some(Figure::new(name, bytes / f64::from(1 << 20), "MiB").note(note))
}

/// Readers that come and go beside one that stays: the last ones must not be slower than the first.
fn reader_churn() -> [Figure; 2] {
    let (mut firsts, mut lasts) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let mut table = table_with(0);
        ask(&mut table, Request { owner: OwnerId(0), ..reader() });
        let mut part = || {
            let batches = CHURN_PART / BATCH_LEN;
            let batch = || (0..BATCH_LEN).map(|_| reader()).collect();
            per_pair((0..batches).map(|_| time_pairs(&mut table, batch())).sum(), CHURN_PART)
        };
        let parts: Vec<f64> = (0..CHURN_LEN / CHURN_PART).map(|_| part()).collect();
        firsts.extend(parts.first());
        lasts.extend(parts.last());
    }
    let name = |which| format!("hot read + release, {which} {CHURN_PART} of {CHURN_LEN}");
    [
        Figure::new(name("first"), median(&firsts), "ns"),
        Figure::new(name("last"), median(&lasts), "ns").note(ratio(&lasts, &firsts)),
    ]
}

/// What a single call costs at worst when there are many who wait.
fn long_queue_questions() -> [Figure; 3] {
    let [mut refused, mut searched, mut moved] = [const { Vec::new() }; 3];
    for _ in 0..REPETITIONS {
        refused.push(refused_try().as_secs_f64() * 1e6);
        searched.push(deadlock_search().as_secs_f64() * 1e6);
        moved.push(reader_leaves_writers_below().as_secs_f64() * 1e6);
    }
    [
        Figure::new(format!("try refused behind {QUEUE_LEN} writers"), median(&refused), "us"),
        Figure::new(format!("wait of one whom {QUEUE_LEN} writers wait for"), median(&searched), "us")
            .note("a deadlock search that finds none"),
        Figure::new(format!("one of two readers leaves {QUEUE_LEN} writers below it"), median(&moved), "us")
            .note("all of them look again"),
    ]
}

fn refused_try() -> Duration {
    let mut table = table_with(0);
    for number in 0..QUEUE_LEN {
        ask(&mut table, writer(number));
    }
    let request = Request { wait: Wait::Never, ..writer(QUEUE_LEN) };
    let (outcome, time) = timed(|| table.lock(request, NOW));
    assert!(matches!(outcome, Outcome::Refused(_)), "the path is busy");
    time
}

fn deadlock_search() -> Duration {
    let mut table = table_with(0);
    for number in 0..QUEUE_LEN {
        ask(&mut table, writer(number));
    }
    let elsewhere = |owner| request(owner, vec![write(["elsewhere", "1", "name"])]);
    ask(&mut table, elsewhere(OWNER));
    let (_, time) = timed(|| ask(&mut table, elsewhere(OwnerId(0))));
    time
}

fn reader_leaves_writers_below() -> Duration {
    let mut table = table_with(0);
    let top = || Resource::new(Path::from_segments(["hot"]), Mode::Read, Depth::SUBTREE);
    ask(&mut table, request(OWNER, vec![top()]));
    let later = ask(&mut table, request(OWNER, vec![top()]));
    for number in 0..QUEUE_LEN {
        ask(&mut table, request(OwnerId(number), vec![write(["hot", &number.to_string(), "name"])]));
    }
    let mut effects = Vec::new();
    let ((), time) = timed(|| release(&mut table, OWNER, later, &mut effects));
    assert_eq!(effects, [], "the other reader is still there");
    time
}

/// A table in which `others` documents of one collection are locked, four by each owner.
fn table_with(others: u64) -> LockTable {
    let mut table = LockTable::new(1, 1);
    for other in 0..others {
        let resource = write(["user", &format!("held-{other}"), "name"]);
        let outcome = table.lock(request(OwnerId(other / 4), vec![resource]), NOW);
        assert!(matches!(outcome, Outcome::Granted { .. }), "nothing is in the way");
    }
    table
}

/// Requests for sets of `set_len` documents each, all different.
fn write_batch(set_len: u64) -> Vec<Request> {
    let resource = |number: u64| write(["user", &number.to_string(), "name"]);
    let set = |first: u64| (first..first + set_len).map(resource).collect();
    (0..BATCH_LEN).map(|number| request(OWNER, set(number * set_len))).collect()
}

/// One of a queue: a different owner each, all with the same wish.
fn writer(number: u64) -> Request {
    request(OwnerId(number), vec![write(["user", "42", "name"])])
}

fn reader() -> Request {
    let path = Path::from_segments(["user", "42", "name"]);
    request(OWNER, vec![Resource::new(path, Mode::Read, Depth::SUBTREE)])
}

fn write(segments: [&str; 3]) -> Resource {
    Resource::new(Path::from_segments(segments), Mode::Write, Depth::SUBTREE)
}

fn request(owner: OwnerId, resources: Vec<Resource>) -> Request {
    Request { owner, resources, wait: Wait::Forever, ttl_ms: None, rank: Rank::Ordinary }
}

/// The time it takes to lock and release each of a batch in turn.
fn time_pairs(table: &mut LockTable, requests: Vec<Request>) -> Duration {
    let mut effects = Vec::new();
    let ((), time) = timed(|| {
        for request in requests {
            let owner = request.owner;
            let lock = ask(table, request);
            release(table, owner, lock, &mut effects);
        }
    });
    assert_eq!(effects, [], "nobody waits for what is measured");
    time
}

fn ask(table: &mut LockTable, request: Request) -> LockId {
    match table.lock(request, NOW) {
        Outcome::Granted { lock, .. } | Outcome::Queued { lock } => lock,
        Outcome::Refused(refusal) => panic!("refused: {refusal:?}"),
    }
}

fn release(table: &mut LockTable, owner: OwnerId, lock: LockId, effects: &mut Vec<Effect>) {
    black_box(table.release(owner, lock, NOW, effects)).expect("the owner has the lock");
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = black_box(work());
    (result, start.elapsed())
}

fn per_pair(time: Duration, pairs: u64) -> f64 {
    time.as_secs_f64() * 1e9 / pairs as f64
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// How much slower one is than the other. What is compared was measured at nearly the same moment, so a
/// machine that is busy or slow for a while does not spoil it.
fn ratio(times: &[f64], bases: &[f64]) -> String {
    let ratios: Vec<f64> = times.iter().zip(bases).map(|(time, base)| time / base).collect();
    format!("x {:.2}", median(&ratios))
}

/// How much more memory is in use than before; nothing where that cannot be known.
fn growth(before: Option<u64>) -> Option<f64> {
    Some(resident_bytes()?.saturating_sub(before?) as f64)
}

/// What the kernel says this process occupies.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}
