//! Measures how long a shard is not served when its owner is killed, and when it stops as planned. Knows nothing of
//! protocols.

use crate::{
    figure::Figure,
    stage::{Stage, lockwood, nodes::Nodes, run::median},
};
use std::{
    thread::sleep,
    time::{Duration, Instant},
};

const TIMES: usize = 7;
const SETTLED: Duration = Duration::from_millis(2_500);
const TIMES_QUICK: usize = 3;

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    let url = stage.postgres().url("takeover");
    let mut nodes = Nodes::start(&stage.directory("takeover"), url, 3);
    let times = if stage.is_quick() { TIMES_QUICK } else { TIMES };
    let mut keys = stage.fresh_keys()..;
    let mut killed: Vec<f64> = Vec::new();
    let mut stopped: Vec<f64> = Vec::new();
    for _ in 0..times {
        killed.push(gap(&mut nodes, keys.next().expect("no end"), Nodes::kill));
        stopped.push(gap(&mut nodes, keys.next().expect("no end"), Nodes::stop));
    }
    vec![
        figure("from kill -9 of the owner to the next acknowledged write", killed).aim("at most 5 s"),
        figure("from SIGTERM of the owner to the next acknowledged write", stopped).aim("at most 0.5 s"),
    ]
}

/// Seconds from the end of the owner to the answer to a write that is sent to another node right away.
fn gap(nodes: &mut Nodes, key: u64, end: fn(&mut Nodes, usize)) -> f64 {
    // Until every node has read the rows as they are now.
    sleep(SETTLED);
    let (owner, other) = (nodes.owner(), nodes.other());
    let mut session = nodes.node(other).session();
    // Everything is warm, and the owner has just been heard of.
    session.position(&lockwood::create("takeover", "warm", key));
    let begun = Instant::now();
    end(nodes, owner);
    while session.position(&lockwood::create("takeover", "user", key)) == 0 {}
    let gap = begun.elapsed().as_secs_f64();
    nodes.up(owner);
    gap
}

fn figure(name: &str, mut seconds: Vec<f64>) -> Figure {
    seconds.sort_by(f64::total_cmp);
    let note = format!("{:.2} to {:.2} s in {}", seconds[0], seconds[seconds.len() - 1], seconds.len());
    Figure::new(name, median(seconds), "s").note(note)
}
