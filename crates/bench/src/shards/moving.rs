//! Measures how fast documents move from one node to another, alone and beside writers, and what the writers
//! notice. Knows nothing of protocols.

use crate::{
    figure::Figure,
    peer,
    stage::{
        Stage,
        cluster::Cluster,
        http::Http,
        load::{self, Client},
        lockwood::{self, Lockwood},
        random::Random,
        run::{REPETITIONS, Run, median},
    },
};
use std::{
    ops::Range,
    time::{Duration, Instant},
};

const NAMESPACE: &str = "moving";
const WRITERS: usize = 16;
/// So many records a second are aimed at while nothing else is done, and such a share of what writers do without a move.
const AIM_IDLE: u64 = 20_000;
const AIM_SHARE: f64 = 0.7;
/// The writers' own documents, a few of those that move.
const WRITTEN: u64 = 5_000;

/// Everything is on the first shard, or everything on the second.
fn constant(shard: u32) -> String {
    format!(r#"{{"function":"constant","shard":{shard}}}"#)
}

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    let len = if stage.is_quick() { 20_000 } else { 100_000 };
    let cluster = Cluster::start(stage, NAMESPACE, 2, &constant(1));
    let namespace = cluster.namespace(NAMESPACE);
    cluster.at(1).fill(&namespace, "user", 1, len);
    let mut target = 2;
    let mut figures = vec![idle(&cluster, len, &mut target)];
    figures.extend(beside_writers(stage, (&cluster, &namespace), len, &mut target));
    figures
}

/// Moves everything to the other shard; says how long it took until all was there and found equal.
fn go_over(cluster: &Cluster, target: &mut u32) -> Duration {
    let mut session = cluster.at(1).session();
    let start = Instant::now();
    cluster.reshard(2, &constant(*target));
    *target = 3 - *target;
    peer::wait_until("everything is copied", || cluster.is_copied(&mut session));
    let took = start.elapsed();
    peer::wait_until("everything is cleaned up", || cluster.is_over(&mut session));
    took
}

fn idle(cluster: &Cluster, len: u64, target: &mut u32) -> Figure {
    let rates: Vec<f64> =
        (0..REPETITIONS).map(|_| len as f64 / go_over(cluster, target).as_secs_f64()).collect();
    Figure::new("records moved and compared, idle", median(rates), "/s")
        .note(format!("{len} documents of 300 bytes, two nodes; aim: at least {AIM_IDLE}/s"))
}

/// Writers go on all the time; before each move they have a while for themselves, in which what is left of the move
/// before comes to an end too.
fn beside_writers(
    stage: &Stage,
    (cluster, namespace): (&Cluster, &str),
    len: u64,
    target: &mut u32,
) -> Vec<Figure> {
    let slice = stage.slice();
    // Looked up here, because asking for the owner waits in its own way.
    let nodes = [cluster.at(1), cluster.at(2)];
    let mut moves: Vec<Range<Instant>> = Vec::new();
    let mut rates = Vec::new();
    let done = load::beside(
        WRITERS,
        async |number| writer((nodes[number % nodes.len()], namespace), number).await,
        || {
            for _ in 0..REPETITIONS {
                std::thread::sleep(slice * 2);
                let start = Instant::now();
                rates.push(len as f64 / go_over(cluster, target).as_secs_f64());
                moves.push(start..Instant::now());
            }
        },
    );
    let before: Vec<Run> = moves.iter().map(|span| done.run(span.start - slice..span.start)).collect();
    let during: Vec<Run> = moves.iter().map(|span| done.run(span.clone())).collect();
    let of = |runs: &[Run], of: fn(&Run) -> f64| median(runs.iter().map(of));
    let share = median(before.iter().zip(&during).map(|(before, during)| during.rate / before.rate));
    let note = |runs: &[Run]| {
        let [p50, p99, max] = [of(runs, |run| run.p50), of(runs, |run| run.p99), of(runs, |run| run.max)];
        format!("p50 {p50:.0} us, p99 {p99:.0} us, longest {max:.0} us")
    };
    vec![
        Figure::new(format!("records moved and compared, {WRITERS} writers"), median(rates), "/s"),
        Figure::new(format!("{WRITERS} writers before a move"), of(&before, |run| run.rate), "/s")
            .note(note(&before)),
        Figure::new(format!("{WRITERS} writers during a move"), of(&during, |run| run.rate), "/s")
            .note(note(&during)),
        Figure::new("share of the writers' throughput during a move", share, "")
            .note(format!("aim: at least {AIM_SHARE}")),
    ]
}

async fn writer((node, namespace): (&Lockwood, &str), number: usize) -> Client<Http> {
    let mut random = Random::new(number);
    let namespace = namespace.to_owned();
    let next = move |_| lockwood::update(&namespace, "user", random.up_to(WRITTEN), 7);
    Client::new(node.connect().await, 0, next)
}
