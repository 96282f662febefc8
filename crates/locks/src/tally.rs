//! What is in a table, counted as Locktopus counts it. Knows nothing of how the numbers are shown.
//!
//! Locktopus keeps a stack of references at every prefix of every path: *heads* of the resources that end there
//! and *tails* of those that lead on. The resources of one lock share references:
//!
//! | a resource meets, of its own lock | and leaves there |
//! | --- | --- |
//! | a head that includes it | nothing, neither there nor further down |
//! | the tail of a write | nothing |
//! | tails of reads | itself in their place if it is a write, otherwise one more |
//! | nothing | itself |
//!
//! A resource that leaves nothing anywhere is redundant and is not counted. Parents come before their children,
//! as [`merge`](crate::merge) sorts them.

use crate::{
    entry::EntryKey,
    lock::Lock,
    table::LockTable,
    tree::{NodeKey, Tree},
};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use lockwood_model::Mode;

/// How much there is in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Resources of locks that are held, without the redundant ones.
    pub resources_granted: usize,
    /// Resources of locks that wait, without the redundant ones.
    pub resources_waiting: usize,
    /// References at all prefixes.
    pub references: usize,
    /// Prefixes with references, the root included.
    pub prefixes: usize,
    /// Segments of all paths that were asked for, as often as they were asked for.
    pub segments: usize,
    /// Different segments among them, empty ones left out.
    pub distinct_segments: usize,
}

impl LockTable {
    /// Counts what is there. Takes time in proportion to the segments of all paths.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally { distinct_segments: self.tree.distinct_segments(), ..Tally::default() };
        let mut prefixes = HashSet::with_hasher(FixedState::default());
        for (_, lock) in &self.locks {
            let counted = self.tally_lock(lock, &mut tally, &mut prefixes);
            match lock.is_waiting() {
                true => tally.resources_waiting += counted,
                false => tally.resources_granted += counted,
            }
        }
        tally.prefixes = prefixes.len();
        tally
    }

    fn tally_lock(
        &self,
        lock: &Lock,
        tally: &mut Tally,
        prefixes: &mut HashSet<NodeKey, FixedState>,
    ) -> usize {
        let mut met: HashMap<NodeKey, Met, FixedState> = HashMap::default();
        let mut counted = 0;
        tally.segments += lock.repeated_segments as usize;
        for EntryKey(entry) in &lock.entries {
            let entry = &self.entries[*entry as usize];
            let is_write = matches!(entry.mode, Mode::Write | Mode::Update);
            tally.segments += self.tree.level(entry.node);
            let mut leaves_something = false;
            for prefix in down_to(&self.tree, entry.node) {
                let met = met.entry(prefix).or_default();
                if met.head.is_some_and(|head_is_write| head_is_write || !is_write) {
                    break;
                }
                prefixes.insert(prefix);
                let left = met.leave(is_write, prefix == entry.node);
                tally.references += left.added;
                leaves_something |= left.anything;
            }
            counted += usize::from(leaves_something);
        }
        counted
    }
}

/// The prefixes of a path, the root first.
fn down_to(tree: &Tree, node: NodeKey) -> impl Iterator<Item = NodeKey> {
    let mut prefixes: Vec<NodeKey> = tree.above(node).collect();
    prefixes.reverse();
    prefixes.into_iter()
}

/// The references of one lock at one prefix.
#[derive(Default)]
struct Met {
    /// Whether a resource ends here, and is a write.
    head: Option<bool>,
    write_tails: usize,
    read_tails: usize,
}

struct Leaves {
    anything: bool,
    added: usize,
}

impl Met {
    fn leave(&mut self, is_write: bool, is_head: bool) -> Leaves {
        if is_head {
            self.head = Some(is_write);
            return Leaves { anything: true, added: 1 };
        }
        if self.write_tails > 0 {
            return Leaves { anything: false, added: 0 };
        }
        if is_write && self.read_tails > 0 {
            self.write_tails = std::mem::take(&mut self.read_tails);
            return Leaves { anything: true, added: 0 };
        }
        let tails = if is_write { &mut self.write_tails } else { &mut self.read_tails };
        *tails += 1;
        Leaves { anything: true, added: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{A, B, Scene};

    /// Expected are resources, references, prefixes, segments and distinct segments of one lock.
    #[track_caller]
    fn check(lock: &str, expected: [usize; 5]) {
        let scene = Scene::new().held(A, lock);
        let tally = scene.table.tally();
        let found = [
            tally.resources_granted,
            tally.references,
            tally.prefixes,
            tally.segments,
            tally.distinct_segments,
        ];
        assert_eq!(found, expected, "{lock}");
    }

    #[test]
    fn resources_of_one_lock_share_references_as_in_locktopus() {
        check("write a/b/c", [1, 4, 4, 3, 3]);
        check("write /", [1, 1, 1, 0, 0]);
        check("write a/b/a, write a/b/c", [2, 5, 5, 6, 3]);
        check("write a/b, read c", [2, 4, 4, 3, 3]);
        check("read a/x, read b/x", [2, 6, 5, 4, 3]);
        check("read a, write a/b", [2, 4, 3, 3, 2]);
        check("write %_", [1, 2, 2, 1, 0]);
    }

    #[test]
    fn redundant_resources_are_not_counted_but_their_segments_are() {
        check("write a, write a/b, write a/b/c", [1, 2, 2, 6, 3]);
        check("write a, read a/b", [1, 2, 2, 3, 2]);
        check("write a/b, write a/b, read a/b", [1, 3, 3, 6, 2]);
        // A read below a read leaves a tail above both.
        check("read a, read a/b", [2, 3, 2, 3, 2]);
    }

    #[test]
    fn locks_count_each_for_itself() {
        let mut scene = Scene::new().held(A, "write a/b").waits(B, "read a, read c");
        let tally = Tally {
            resources_granted: 1,
            resources_waiting: 2,
            references: 3 + 4,
            prefixes: 4,
            segments: 4,
            distinct_segments: 3,
        };
        assert_eq!(scene.table.tally(), tally);
        scene.release(A, 1);
        scene.release(B, 2);
        assert_eq!(scene.table.tally(), Tally::default());
    }
}
