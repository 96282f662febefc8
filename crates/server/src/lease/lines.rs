//! Makes one line of the lines of several shards, in which everybody stands behind those it stood behind in any of
//! them. Knows nothing of how the lines came to be, nor of what they are for.
//!
//! ```text
//!   shard 1:  held A │ waiting B, C          one line:  A, B, D, C
//!   shard 2:  held B │ waiting D
//! ```
//!
//! Parts are taken in the order of the shards, so nobody waits on two shards at once unless it got its places from
//! such a line; therefore no two lines contradict each other. If they do all the same, whoever asked first goes first.

use lockwood_model::Resource;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

/// Where a request stands on one shard.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    /// The same for all parts of it.
    pub(super) lock: u64,
    /// Whether it has this part already, so that only those behind it matter that want the same.
    pub(super) held: bool,
    pub(super) resources: Vec<Resource>,
    /// In milliseconds since 1970.
    pub(super) asked_at: u64,
}

impl Spot {
    fn is_in_the_way(&self, other: &Spot) -> bool {
        self.resources.iter().any(|one| other.resources.iter().any(|another| one.conflicts(another)))
    }
}

/// One line of several, each in the order of its shard. Nothing but the lines, and between those that never met the
/// time at which they asked, says who is before whom.
pub(super) fn one_line(lines: &[Vec<Spot>]) -> Vec<u64> {
    let mut sorting = Sorting::default();
    for line in lines {
        sorting.add(line);
    }
    sorting.sorted()
}

#[derive(Default)]
struct Sorting {
    asked_at: BTreeMap<u64, u64>,
    /// Who comes after whom.
    after: BTreeMap<u64, BTreeSet<u64>>,
    /// How many come before each.
    before_len: BTreeMap<u64, usize>,
}

impl Sorting {
    fn add(&mut self, line: &[Spot]) {
        for spot in line {
            let asked_at = self.asked_at.entry(spot.lock).or_insert(spot.asked_at);
            *asked_at = spot.asked_at.min(*asked_at);
        }
        let (held, waiting): (Vec<&Spot>, Vec<&Spot>) = line.iter().partition(|spot| spot.held);
        for pair in waiting.windows(2) {
            self.put_after(pair[0].lock, pair[1].lock);
        }
        for spot in held {
            // Whoever stands behind that one comes after this one too.
            if let Some(first) = waiting.iter().find(|other| spot.is_in_the_way(other)) {
                self.put_after(spot.lock, first.lock);
            }
        }
    }

    fn put_after(&mut self, one: u64, other: u64) {
        if one != other && self.after.entry(one).or_default().insert(other) {
            *self.before_len.entry(other).or_default() += 1;
        }
    }

    fn sorted(mut self) -> Vec<u64> {
        let mut left: BTreeSet<(u64, u64)> = self.asked_at.iter().map(|(lock, at)| (*at, *lock)).collect();
        let mut next: BinaryHeap<Reverse<(u64, u64)>> = left
            .iter()
            .filter(|(_, lock)| !self.before_len.contains_key(lock))
            .copied()
            .map(Reverse)
            .collect();
        let mut sorted = Vec::with_capacity(left.len());
        while let Some(spot) = next.pop().map(|Reverse(spot)| spot).or_else(|| left.first().copied()) {
            if !left.remove(&spot) {
                continue;
            }
            sorted.push(spot.1);
            for lock in self.after.remove(&spot.1).unwrap_or_default() {
                let len = self.before_len.entry(lock).or_default();
                *len = len.saturating_sub(1);
                if *len == 0 {
                    next.push(Reverse((self.asked_at[&lock], lock)));
                }
            }
        }
        sorted
    }
}

/// Puts those that come into the line there is, each right behind the one before it in `order`; those that are not in
/// `order` keep their places.
pub(super) fn joined(line: &[u64], order: &[u64]) -> Vec<u64> {
    let here: BTreeSet<u64> = line.iter().copied().collect();
    let ordered: BTreeSet<u64> = order.iter().copied().collect();
    let mut joined = Vec::with_capacity(line.len() + order.len());
    let mut coming = order.iter().copied().peekable();
    let is_new = |lock: &u64| !here.contains(lock);
    joined.extend(std::iter::from_fn(|| coming.next_if(is_new)));
    for lock in line {
        if !ordered.contains(lock) {
            joined.push(*lock);
            continue;
        }
        // Whoever is next in order takes this place, and those who come go with it.
        joined.extend(coming.next());
        joined.extend(std::iter::from_fn(|| coming.next_if(is_new)));
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_model::{Depth, Mode};

    /// A line as `held, held | waiting, waiting`, each a number, when it asked, and a path: `3@7 a/b`.
    fn line(text: &str) -> Vec<Spot> {
        let (held, waiting) = text.split_once('|').unwrap();
        let spots = |text: &'static str, held: bool| {
            text.split(',').map(str::trim).filter(|spot| !spot.is_empty()).map(move |spot| {
                let (number, path) = spot.split_once(' ').unwrap();
                let (lock, asked_at) = number.split_once('@').unwrap();
                let resources = vec![Resource::new(path.parse().unwrap(), Mode::Write, Depth::SUBTREE)];
                Spot { lock: lock.parse().unwrap(), held, resources, asked_at: asked_at.parse().unwrap() }
            })
        };
        let (held, waiting): (&'static str, &'static str) =
            (String::from(held).leak(), String::from(waiting).leak());
        spots(held, true).chain(spots(waiting, false)).collect()
    }

    #[track_caller]
    fn check(lines: &[&str], expected: &[u64]) {
        let lines: Vec<Vec<Spot>> = lines.iter().map(|text| line(text)).collect();
        assert_eq!(one_line(&lines), expected);
    }

    #[test]
    fn lines_go_by_their_order_and_otherwise_by_time() {
        check(&["| 5@9 a, 3@1 a, 4@2 a"], &[5, 3, 4]);
        check(&["| 1@1 a, 3@3 a", "| 2@2 b, 4@4 b"], &[1, 2, 3, 4]);
        // Who is held up by what somebody has comes after it, however early it asked.
        check(&["1@7 a | 2@3 a/b, 3@1 c", "| 9@8 b, 1@9 b"], &[9, 1, 2, 3]);
        // What is not in its way says nothing.
        check(&["1@7 a | 2@3 b"], &[2, 1]);
        check(&["2@5 a | 3@1 a", "1@6 b | 2@7 b", "| 1@8 c"], &[1, 2, 3]);
    }

    #[test]
    fn lines_that_contradict_each_other_are_one_all_the_same() {
        check(&["| 1@1 a, 2@2 a", "| 2@2 b, 1@1 b, 3@5 b"], &[1, 2, 3]);
    }

    #[test]
    fn who_comes_stands_behind_the_one_before_it() {
        assert_eq!(joined(&[1, 2, 3], &[]), [1, 2, 3]);
        assert_eq!(joined(&[], &[1, 2]), [1, 2]);
        assert_eq!(joined(&[70, 1, 71, 2, 72], &[8, 1, 9, 2, 10, 11]), [8, 70, 1, 9, 71, 2, 10, 11, 72]);
        assert_eq!(joined(&[70, 2, 71, 1], &[1, 9, 2]), [70, 1, 9, 71, 2]);
    }
}
