//! Finds the cycle a wait would close. Knows nothing of what is done about it.
//!
//! Owners wait for owners. The search starts at the owner that is about to wait and goes backwards: who
//! waits for something of its, who waits for those, and so on. If it meets a waiting request of the owner
//! itself, that is a cycle. Backwards is cheap where it matters: an owner with a single lock, however long
//! the queue it stands in, is waited for by nobody ahead of it.

use crate::{
    entry::{Class, Entry, EntryKey, LockKey, Order},
    fault::Fault,
    outcome::{Cycle, CycleStep},
    table::LockTable,
    tree::{Among, NodeKey},
};
use hashbrown::HashMap;
use lockwood_model::{Depth, OwnerId, Resource};
use std::collections::VecDeque;

/// `waiter` waits for `holder`, both entries.
#[derive(Debug, Clone, Copy)]
struct Edge {
    waiter: EntryKey,
    holder: EntryKey,
}

/// More entries than this on and below a node are a crowd.
const CROWD_LEN: usize = 8;

#[derive(Default)]
struct Search {
    /// How the search came to an owner: by this wait of the owner's.
    reached: HashMap<OwnerId, Edge, foldhash::quality::FixedState>,
    /// Owners reached and not yet looked at. First in, first out: the earlier a waiter, the more it leads to.
    frontier: VecDeque<OwnerId>,
    /// The earliest entry looked at, of those alike: whoever waits for a later one waits for it too, or owns
    /// it and has been reached. The starting owner's entries are counted apart: it is reached only by a wait
    /// for somebody else.
    earliest: HashMap<(bool, NodeKey, Class, Depth, bool), Order, foldhash::quality::FixedState>,
}

impl Search {
    /// False if all who wait for this entry have been reached already.
    fn is_news(&mut self, entry: &Entry, of_start: bool) -> bool {
        let alike = (of_start, entry.node, Class::of(entry.mode), entry.depth, entry.granted());
        let earliest = self.earliest.entry(alike).or_insert(Order::END);
        let news = entry.order < *earliest;
        *earliest = entry.order.min(*earliest);
        news
    }
}

impl LockTable {
    /// The cycle that the waiting of `lock`, or of its conversion, closes, if it closes one.
    pub(crate) fn find_cycle_by(&self, lock: LockKey) -> Option<Cycle> {
        self.search_cycle(self.lock_of(lock).owner, |waiter| waiter == lock)
    }

    /// A cycle through any of an owner's waiting locks and conversions.
    pub(crate) fn find_cycle_of(&self, owner: OwnerId) -> Option<Cycle> {
        self.search_cycle(owner, |_| true)
    }

    fn search_cycle(&self, start: OwnerId, closes: impl Fn(LockKey) -> bool) -> Option<Cycle> {
        if self.tree.faults.has(Fault::NoDeadlockCheck) || !self.can_be_waited_for(start) {
            return None;
        }
        let mut search = Search::default();
        search.frontier.push_back(start);
        while let Some(owner) = search.frontier.pop_front() {
            for owned in &self.owners[&owner].locks {
                for holder in self.lock_of(*owned).all_entries() {
                    if let Some(closing) = self.follow(start, &closes, holder, &mut search) {
                        return Some(self.trace(start, closing, &search));
                    }
                }
            }
        }
        None
    }

    /// False for an owner whose only lock is the newest request of all: nobody stands behind it.
    fn can_be_waited_for(&self, owner: OwnerId) -> bool {
        match self.owners.get(&owner).map(|owner| &owner.locks[..]) {
            None | Some([]) => false,
            Some([only]) => {
                let lock = self.lock_of(*only);
                lock.conversion.is_some() || lock.rank.overtakes()
            }
            Some(_) => true,
        }
    }

    /// Notes everyone who waits for `holder`; the wait that closes a cycle, if one does.
    fn follow(
        &self,
        start: OwnerId,
        closes: impl Fn(LockKey) -> bool,
        holder: EntryKey,
        search: &mut Search,
    ) -> Option<Edge> {
        let entry = self.entry(holder);
        // Where few stand it costs less to ask them than to remember having asked.
        let crowded = self.tree.here(entry.node).len() + self.tree.below(entry.node).len() > CROWD_LEN;
        if crowded && !search.is_news(entry, entry.owner == start) {
            return None;
        }
        let mut closing = None;
        self.each_waiter_behind(entry, |waiter| {
            let owner = self.entry(waiter).owner;
            let edge = Edge { waiter, holder };
            if owner == start {
                closing = closing.or(closes(self.entry(waiter).lock).then_some(edge));
            } else if !search.reached.contains_key(&owner) {
                search.reached.insert(owner, edge);
                search.frontier.push_back(owner);
            }
        });
        closing
    }

    /// Every waiting entry of other owners that cannot be granted as long as `holder` is there.
    fn each_waiter_behind(&self, holder: &Entry, mut visit: impl FnMut(EntryKey)) {
        let first = if holder.granted() { Order::FIRST } else { holder.order };
        self.tree.each_rival(holder.place(), Among::Waiting, first..Order::END, |key| {
            let waiter = self.entry(key);
            let behind = holder.granted() || !waiter.in_front();
            if waiter.owner != holder.owner && behind {
                visit(key);
            }
            true
        });
    }

    /// Follows the search back from the wait that closed the cycle.
    fn trace(&self, start: OwnerId, closing: Edge, search: &Search) -> Cycle {
        let mut steps = vec![self.step(closing)];
        let mut owner = self.entry(closing.holder).owner;
        while owner != start {
            let edge = search.reached[&owner];
            steps.push(self.step(edge));
            owner = self.entry(edge.holder).owner;
        }
        Cycle(steps)
    }

    fn step(&self, Edge { waiter, holder }: Edge) -> CycleStep {
        CycleStep {
            waiter: self.entry(waiter).owner,
            wants: self.resource(waiter),
            holder: self.entry(holder).owner,
            lock: self.lock_of(self.entry(holder).lock).id,
            has: self.resource(holder),
        }
    }

    pub(crate) fn resource(&self, key: EntryKey) -> Resource {
        let entry = self.entry(key);
        Resource::new(self.tree.path(entry.node), entry.mode, entry.depth)
    }
}
