//! Measures documents: our server beside PostgreSQL and Tarantool, in turn, in one run.
//!
//! All of them sync what they acknowledge, to the same disk, and share the cores with their clients. Every
//! figure is the median of a few repetitions. Knows nothing of how figures are printed.

mod disk;
mod document;
mod feed;
mod http;
mod load;
mod lock_check;
mod lockwood;
mod million;
mod postgres;
mod reads;
mod run;
mod stage;
mod tarantool;
mod writes;

use crate::figure::Figure;
use stage::Stage;
use std::time::Duration;

const REPETITIONS: usize = 3;
/// How long a stretch of load is; whole seconds, which is what pgbench can.
const SLICE: Duration = Duration::from_secs(2);
const SLICE_QUICK: Duration = Duration::from_secs(1);
/// How many documents there are in what is read.
const DOCUMENTS: u64 = 10_000;
/// How many there are in other collections when there are many.
const OTHERS: u64 = 1_000_000;
const OTHERS_QUICK: u64 = 100_000;

type Part = fn(&Stage) -> Vec<Figure>;

/// What can be measured by itself.
pub(crate) const PARTS: [(&str, Part); 11] = [
    ("disk", disk::measure),
    ("create", writes::create),
    ("update", writes::update),
    ("bulk", writes::bulk),
    ("get", reads::get),
    ("filter", reads::filter),
    ("all", reads::all),
    ("as-of", reads::as_of),
    ("feed", feed::measure),
    ("lock-check", lock_check::measure),
    ("million", million::measure),
];

/// All figures about documents, or those of one part; `quick` for a first look.
pub(crate) fn measure(quick: bool, only: Option<&str>) -> Vec<Figure> {
    let stage = Stage::new(quick);
    let mut figures = vec![stage.machine()];
    for (name, part) in PARTS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        eprintln!("measuring {name}");
        figures.extend(part(&stage));
    }
    figures
}
