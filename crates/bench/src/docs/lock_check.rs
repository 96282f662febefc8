//! Measures what a lock on a field of a whole collection, narrowed by a filter, adds to a write when much has
//! happened there since. Knows nothing of protocols.

use crate::{
    figure::Figure,
    stage::{
        DOCUMENTS, Stage,
        http::Session,
        load::{micros, timed},
        lockwood::{self, BULK_LEN},
        run::{REPETITIONS, Run, median},
    },
};
use std::time::{Duration, Instant};

const NAMESPACE: &str = "lock-check";
/// The document the filter matches; it is not among those that change.
const MATCHING: u64 = DOCUMENTS + 1;

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    let position = newer_events(stage);
    let runs: Vec<[Run; 2]> = (0..REPETITIONS).map(|_| alternate(stage, position)).collect();
    let [with, without] = [0, 1].map(|which| median(runs.iter().map(|run| run[which].p50)));
    let added = median(runs.iter().map(|run| run[0].p50 - run[1].p50));
    let ratio = format!("x {:.2} of the write without", with / without);
    vec![
        Figure::new(format!("write under a filtered lock, {DOCUMENTS} newer events"), with, "us").note(ratio),
        Figure::new("the same write without a lock", without, "us"),
        Figure::new("what the lock adds", added, "us"),
    ]
}

/// The position before all documents but one had their number changed.
fn newer_events(stage: &Stage) -> u64 {
    stage.lockwood().fill(NAMESPACE, "user", 1, DOCUMENTS);
    let mut session = stage.lockwood().session();
    session.call(&lockwood::create(NAMESPACE, "target", 1));
    let position = session.position(&lockwood::create(NAMESPACE, "user", MATCHING));
    for first in (1..=DOCUMENTS).step_by(BULK_LEN as usize) {
        let keys = first..first + BULK_LEN;
        let events: Vec<String> = keys.map(|key| lockwood::update_event("user", key, 0)).collect();
        session.call(&lockwood::write(NAMESPACE, &format!(r#"{{"events":[{}]}}"#, events.join(","))));
    }
    position
}

/// Writes to a document of another collection, one with the lock and one without in turn.
fn alternate(stage: &Stage, position: u64) -> [Run; 2] {
    let filter = lockwood::filter_of("name", MATCHING);
    let lock = format!(r#"{{"collection":"user","field":"number","filter":{filter},"position":{position}}}"#);
    let mut session = stage.lockwood().session();
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let end = Instant::now() + 2 * stage.slice();
    let mut numbers = (MATCHING..).zip(MATCHING + 1..);
    while Instant::now() < end {
        let (first, second) = numbers.next().expect("no end");
        with.push(update(&mut session, first, &lock));
        without.push(update(&mut session, second, ""));
    }
    [with, without].map(|latencies| Run::new(latencies, Duration::from_secs(1)))
}

fn update(session: &mut Session, number: u64, lock: &str) -> f64 {
    let event = lockwood::update_event("target", 1, number);
    let request = lockwood::write(NAMESPACE, &format!(r#"{{"events":[{event}],"locks":[{lock}]}}"#));
    micros(timed(|| {
        session.call(&request);
    }))
}
