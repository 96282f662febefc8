//! Measures a server of its own with very many documents: how fast they come in, what they occupy, whether a
//! filter elsewhere notices them, and how long a restart takes. Knows nothing of protocols.

use super::reads;
use crate::{
    figure::Figure,
    peer,
    stage::{
        DOCUMENTS, Stage, http,
        load::timed,
        lockwood::{self, Lockwood},
    },
};
use std::{
    thread,
    time::{Duration, Instant},
};

const COLLECTIONS: [&str; 10] =
    ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
/// The namespace of the filter that shall not notice.
const NAMESPACE: &str = "filter";
const IDLE: Duration = Duration::from_secs(2);

pub(crate) fn measure(stage: &Stage) -> Vec<Figure> {
    let lockwood = Lockwood::start(stage.directory("lockwood-many"));
    let mut figures = vec![memory("of a server without documents", &lockwood, 0)];
    figures.push(load(stage, &lockwood));
    figures.push(memory("after the load", &lockwood, stage.others()));
    thread::sleep(IDLE);
    figures.push(memory(&format!("{} s later", IDLE.as_secs()), &lockwood, stage.others()));
    figures.extend(reads::filter_among_others(stage, &lockwood));
    figures.extend(restart(stage, lockwood));
    figures
}

fn load(stage: &Stage, lockwood: &Lockwood) -> Figure {
    let each = stage.others() / COLLECTIONS.len() as u64;
    let time = timed(|| COLLECTIONS.iter().for_each(|name| lockwood.fill(NAMESPACE, name, 1, each)));
    let rate = stage.others() as f64 / time.as_secs_f64();
    let note = format!("{} a request, {:.1} s", lockwood::BULK_LEN, time.as_secs_f64());
    Figure::new(format!("load of {} documents", stage.others()), rate, "documents/s").note(note)
}

fn memory(when: &str, lockwood: &Lockwood, documents: u64) -> Figure {
    let bytes = lockwood.peer.resident_bytes() as f64;
    let figure = Figure::new(format!("resident memory {when}"), bytes / f64::from(1 << 20), "MiB");
    if documents == 0 {
        figure
    } else {
        figure.note(format!("{:.0} bytes a document", bytes / documents as f64))
    }
}

/// From the start of the process to the first document read.
fn restart(stage: &Stage, lockwood: Lockwood) -> Vec<Figure> {
    let asked = Instant::now();
    let stopped = lockwood.stop();
    let end = asked.elapsed();
    let start = Instant::now();
    let lockwood = Lockwood::start(stopped);
    let listening = start.elapsed();
    let mut session = lockwood.session();
    peer::wait_until("the server is ready", || session.status(&http::get("/readyz")) == 200);
    let ready = start.elapsed();
    session.call(&lockwood::get(NAMESPACE, COLLECTIONS[0], 1));
    let read = start.elapsed();
    let note = format!(
        "listening after {:.2} s, ready after {:.2} s, stopped in {:.2} s",
        listening.as_secs_f64(),
        ready.as_secs_f64(),
        end.as_secs_f64()
    );
    let title = format!("restart with {} documents until one is read", stage.others());
    vec![
        Figure::new(title, read.as_secs_f64(), "s").note(note),
        memory("after the restart", &lockwood, stage.others() + DOCUMENTS),
    ]
}
