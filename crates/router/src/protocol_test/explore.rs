//! Every schedule of a scenario, each counted, each moment visited once. Knows nothing of what a step does.

use super::{
    history::{Truth, is_linearizable},
    world::{Scenario, World},
};
use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    iter::Sum,
};

/// How many schedules there are, and how many of them end with something no client could explain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) schedules: u64,
    pub(super) bad: u64,
    /// How many end with the document on no shard.
    pub(super) lost: u64,
    pub(super) scenarios: u64,
    pub(super) moments: u64,
}

impl Sum for Found {
    fn sum<I: Iterator<Item = Found>>(found: I) -> Found {
        found.fold(Found::default(), |sum, found| Found {
            schedules: sum.schedules + found.schedules,
            bad: sum.bad + found.bad,
            lost: sum.lost + found.lost,
            scenarios: sum.scenarios + found.scenarios,
            moments: sum.moments + found.moments,
        })
    }
}

/// Runs all schedules of `scenario`; also the end of one that is bad, if there is one.
pub(super) fn explore(scenario: &Scenario) -> (Found, Option<World>) {
    let start = World::new(scenario);
    let known = HashMap::with_hasher(BuildHasherDefault::default());
    let mut explorer = Explorer { scenario, truth: start.truth(), known, example: None };
    let found = explorer.from(&start);
    let moments = explorer.known.len() as u64;
    (Found { scenarios: 1, moments, ..found }, explorer.example)
}

struct Explorer<'a> {
    scenario: &'a Scenario,
    truth: Truth,
    known: HashMap<World, Found, BuildHasherDefault<Quick>>,
    example: Option<World>,
}

impl Explorer<'_> {
    /// What there is to find from `world` on.
    fn from(&mut self, world: &World) -> Found {
        if let Some(found) = self.known.get(world) {
            return *found;
        }
        let threads = 0..self.scenario.threads.len();
        let mut next: Vec<World> = threads.filter_map(|thread| world.step(self.scenario, thread)).collect();
        let end = next.is_empty().then(|| self.end(world));
        next.extend(world.late(self.scenario));
        let found = end.into_iter().chain(next.iter().map(|next| self.from(next))).sum();
        self.known.insert(*world, found);
        found
    }

    /// A thread that waits for ever is as bad as a wrong answer.
    fn end(&mut self, world: &World) -> Found {
        let mut end = *world;
        let stuck = !end.is_over(self.scenario);
        if !stuck {
            end.conclude(self.scenario);
        }
        let bad = stuck || !is_linearizable(end.records(), self.truth);
        if bad {
            self.example.get_or_insert(end);
        }
        let lost = end.nodes.iter().all(|node| node.doc.is_none());
        Found { schedules: 1, bad: u64::from(bad), lost: u64::from(lost), ..Found::default() }
    }
}

/// Not a good hash, but worlds are compared whole, and there are many of them.
#[derive(Default)]
struct Quick(u64);

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x517C_C1B7_2722_0A95);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}
