//! Measures locks over the network: both of our protocols beside Redis, in turn, in one run.
//!
//! A pair is a lock and its release, each with its answer. The load generator is one thread with raw
//! sockets, the same for all three. Peers take turns within every round, and every figure is the median over
//! the rounds, so that a busy moment of the machine meets all of them alike.

use crate::{
    figure::Figure,
    peer::{self, Peer},
    wire::{Connection, Protocol, Target},
};
use std::{
    future::Future,
    net::SocketAddr,
    time::{Duration, Instant},
};

/// How often everything is measured unless `LOCKWOOD_BENCH_ROUNDS` says otherwise.
const ROUNDS: usize = 9;
const SLICE: Duration = Duration::from_millis(700);
const PIPELINE: usize = 32;
const HELD: usize = 10_000;
const CHURN: usize = 50_000;
const CHURN_PART: usize = 5_000;
const IDLE: usize = 4_000;

struct Peers {
    lockwood: Peer,
    native: SocketAddr,
    locktopus: SocketAddr,
    redis: Peer,
    redis_address: SocketAddr,
}

/// All figures about the network.
pub(crate) fn measure() -> Vec<Figure> {
    raise_file_limit();
    peer::leave_first_core();
    block_on(async {
        let mut figures = idle_connections().await;
        let peers = Peers::start();
        figures.extend(pairs_beside_redis(&peers).await);
        figures.extend(among_held(&peers).await);
        figures.extend(reader_churn(&peers).await);
        figures
    })
}

/// Only pairs beside Redis, for a quick look.
pub(crate) fn measure_pairs() -> Vec<Figure> {
    peer::leave_first_core();
    block_on(async { pairs_beside_redis(&Peers::start()).await })
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

impl Peers {
    fn start() -> Peers {
        let (lockwood, native, locktopus) = Peer::lockwood();
        let (redis, redis_address) = Peer::redis();
        Peers { lockwood, native, locktopus, redis, redis_address }
    }
}

async fn pairs_beside_redis(peers: &Peers) -> Vec<Figure> {
    let mut figures = Vec::new();
    for load in [Load::Connections(1), Load::Connections(32), Load::Pipelined] {
        figures.extend(side_by_side(peers, load).await);
    }
    figures
}

#[derive(Debug, Clone, Copy)]
enum Load {
    Connections(usize),
    Pipelined,
}

impl Load {
    fn name(self) -> String {
        match self {
            Load::Connections(1) => "1 connection".to_owned(),
            Load::Connections(count) => format!("{count} connections"),
            Load::Pipelined => format!("1 connection, {PIPELINE} pairs pipelined"),
        }
    }
}

/// What a slice of load came to.
struct Slice {
    per_second: f64,
    cpu_us: f64,
}

async fn side_by_side(peers: &Peers, load: Load) -> Vec<Figure> {
    let protocols = [
        ("locktopus", Protocol::Locktopus(peers.locktopus), &peers.lockwood),
        ("native", Protocol::Native(peers.native), &peers.lockwood),
        ("redis", Protocol::Redis(peers.redis_address), &peers.redis),
    ];
    let target = Target { namespace: "bench".into(), mode: "write", shared: false, apart: true };
    let mut results: Vec<Vec<Slice>> = vec![Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds() {
        for ((_, protocol, peer), results) in protocols.iter().zip(&mut results) {
            results.push(run_slice(*protocol, peer, &target, load).await);
        }
    }
    let per_second = |slices: &[Slice]| slices.iter().map(|slice| slice.per_second).collect::<Vec<_>>();
    let redis = per_second(&results[2]);
    let mut figures = Vec::new();
    for ((name, ..), slices) in protocols.iter().zip(&results) {
        let rates = per_second(slices);
        let ratios: Vec<f64> = rates.iter().zip(&redis).map(|(rate, redis)| rate / redis).collect();
        let note = format!("x {:.2} of Redis", median(&ratios));
        figures.push(Figure::new(format!("{name}, {}", load.name()), median(&rates), "pairs/s").note(note));
        let cpu: Vec<f64> = slices.iter().map(|slice| slice.cpu_us).collect();
        figures.push(Figure::new(format!("{name}, {}: server CPU", load.name()), median(&cpu), "us/pair"));
    }
    figures
}

async fn run_slice(protocol: Protocol, peer: &Peer, target: &Target, load: Load) -> Slice {
    let count = if let Load::Connections(count) = load { count } else { 1 };
    let mut connections = Vec::new();
    for number in 0..count {
        connections.push(Connection::open(protocol, target, number).await);
    }
    let (cpu, start) = (peer.cpu(), Instant::now());
    let mut tasks = tokio::task::JoinSet::new();
    for mut connection in connections {
        tasks.spawn(async move {
            let mut pairs = 0;
            while start.elapsed() < SLICE {
                match load {
                    Load::Connections(_) => {
                        connection.pair().await;
                        pairs += 1;
                    }
                    Load::Pipelined => {
                        connection.pipelined(PIPELINE).await;
                        pairs += PIPELINE;
                    }
                }
            }
            (pairs, connection)
        });
    }
    let done = tasks.join_all().await;
    let elapsed = start.elapsed();
    let cpu = peer.cpu() - cpu;
    let pairs: usize = done.iter().map(|(pairs, _)| pairs).sum();
    Slice { per_second: pairs as f64 / elapsed.as_secs_f64(), cpu_us: cpu.as_secs_f64() * 1e6 / pairs as f64 }
}

/// The same pair in a namespace with many locks held, and in an empty one.
async fn among_held(peers: &Peers) -> Vec<Figure> {
    let full = Target { namespace: "full".into(), mode: "write", shared: false, apart: false };
    let empty = Target { namespace: "empty".into(), mode: "write", shared: false, apart: false };
    let mut holder = Connection::open(Protocol::Native(peers.native), &full, 0).await;
    holder.hold_many(HELD).await;
    let protocol = Protocol::Locktopus(peers.locktopus);
    let (mut with, mut without, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..2 * rounds() {
        let load = Load::Connections(1);
        // Each of them is first every other time.
        let order = if round % 2 == 0 { [&full, &empty] } else { [&empty, &full] };
        let first = run_slice(protocol, &peers.lockwood, order[0], load).await.per_second;
        let second = run_slice(protocol, &peers.lockwood, order[1], load).await.per_second;
        let (full_rate, empty_rate) = if round % 2 == 0 { (first, second) } else { (second, first) };
        with.push(full_rate);
        without.push(empty_rate);
        ratios.push(full_rate / empty_rate);
    }
    drop(holder);
    vec![
        Figure::new("locktopus, 1 connection, empty namespace", median(&without), "pairs/s"),
        Figure::new(format!("locktopus, 1 connection, {HELD} locks held"), median(&with), "pairs/s")
            .note(format!("x {:.2} of the empty one", median(&ratios))),
    ]
}

/// Many pairs of one read beside the same read held for long.
async fn reader_churn(peers: &Peers) -> Vec<Figure> {
    let target = Target { namespace: "churn".into(), mode: "read", shared: true, apart: false };
    let protocol = Protocol::Locktopus(peers.locktopus);
    let (mut first, mut last, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let mut holder = Connection::open(protocol, &target, 0).await;
        holder.lock().await;
        let mut connection = Connection::open(protocol, &target, 1).await;
        let mut parts = Vec::new();
        for _ in 0..CHURN / CHURN_PART {
            let start = Instant::now();
            for _ in 0..CHURN_PART {
                connection.pair().await;
            }
            parts.push(CHURN_PART as f64 / start.elapsed().as_secs_f64());
        }
        first.push(parts[0]);
        last.push(parts[parts.len() - 1]);
        ratios.push(parts[parts.len() - 1] / parts[0]);
    }
    vec![
        Figure::new("same read beside a held one, first 5,000 of 50,000", median(&first), "pairs/s"),
        Figure::new("same read beside a held one, last 5,000", median(&last), "pairs/s")
            .note(format!("x {:.2} of the first", median(&ratios))),
    ]
}

/// Memory of connections that do nothing, each kind in a server of its own.
async fn idle_connections() -> Vec<Figure> {
    let mut figures = Vec::new();
    let target = Target { namespace: "idle".into(), mode: "write", shared: false, apart: false };
    for name in ["locktopus", "native"] {
        let (peer, native, locktopus) = Peer::lockwood();
        let protocol =
            if name == "native" { Protocol::Native(native) } else { Protocol::Locktopus(locktopus) };
        // One first, so that what the server keeps once is not counted.
        let mut connections = vec![Connection::open(protocol, &target, 0).await];
        let before = peer.resident_bytes();
        for number in 0..IDLE {
            connections.push(Connection::open(protocol, &target, number).await);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        let grown = peer.resident_bytes().saturating_sub(before);
        let figure =
            Figure::new(format!("{name}, idle connection"), grown as f64 / IDLE as f64 / 1024.0, "KiB");
        figures.push(figure.note(format!("server memory, {IDLE} of them")));
    }
    figures
}

fn rounds() -> usize {
    std::env::var("LOCKWOOD_BENCH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
