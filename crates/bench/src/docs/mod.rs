//! Measures documents: our server beside PostgreSQL and Tarantool, in turn, in one run.
//!
//! All of them sync what they acknowledge, to the same disk, and share the cores with their clients. Every
//! figure is the median of a few repetitions. Knows nothing of how figures are printed.

mod feed;
mod lock_check;
mod million;
mod reads;
mod writes;

use crate::stage::{Part, disk};

/// What can be measured by itself.
pub(crate) const PARTS: [Part; 11] = [
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
