//! Finds waits that would never end because they wait for each other on different shards: each shard sees its own and
//! refuses what closes a ring there, but no shard sees these. Whoever waits looks, from time to time, whom it waits for,
//! and whom those wait for. Knows nothing of how locks are taken or converted.
//!
//! ```text
//!   shard 1:  ann has a, bob waits for it        ann ──► bob ──► ann: whoever looks first is refused
//!   shard 2:  bob has b, ann waits for it
//! ```
//!
//! What different shards say is of different moments. A ring that is there, wait by wait, when all have been asked again
//! was there as a whole in between.

use super::{
    all,
    letter::{self, Edge, Order},
};
use crate::{cluster::Current, shared::Shared, trouble::Trouble, view};
use lockwood_model::Resource;
use lockwood_wire::{Code, CycleStep, LockState};
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// When to look for the first time; most waits are over by then. Each owner has a moment of its own, so that not all in a
/// ring look at once and all are refused.
const FIRST: Duration = Duration::from_millis(1000);
const FIRST_SPREAD_MS: u64 = 500;
/// How long a ring has to last: whoever takes a lock on several shards may be about to give parts back, because a node died
/// or keys moved.
const LASTS: Duration = Duration::from_secs(2);
/// The same for whoever has nothing that it could release: another one in the ring has, and goes before.
const YIELDS: Duration = Duration::from_secs(8);
/// How much longer to wait each time before looking again, and how long at most.
const SLOWER: u32 = 3;
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How many owners a look goes to before it is given up: a ring is small.
const OWNERS_MAX: usize = 500;

/// Somebody who waits, and looks whether that can end.
pub(super) struct Watch {
    shared: Arc<Shared>,
    namespace: String,
    owner: String,
    next: Option<Instant>,
    pause: Duration,
    /// A ring, by which locks wait for which, and since when it is known.
    sighted: Option<(Instant, Vec<(u64, u64)>)>,
    /// Since when a shard says that this waits for itself, although it might not.
    doubted: Option<Instant>,
    /// Whether that was looked into.
    is_sure: bool,
}

impl Watch {
    pub(super) fn new(shared: &Arc<Shared>, namespace: &str, owner: &str) -> Watch {
        let mut hasher = DefaultHasher::new();
        owner.hash(&mut hasher);
        let pause = FIRST + Duration::from_millis(hasher.finish() % FIRST_SPREAD_MS);
        let (namespace, owner) = (namespace.to_owned(), owner.to_owned());
        Watch {
            shared: Arc::clone(shared),
            namespace,
            owner,
            next: None,
            pause,
            sighted: None,
            doubted: None,
            is_sure: false,
        }
    }

    /// What a shard says at once of a ring holds if the owner has a lock that is in the way of others. If it is something
    /// that is just being given back, or that came with a move, it is tried again for a while.
    pub(super) async fn doubt(&mut self, trouble: Trouble) -> Trouble {
        if trouble.code != Code::Deadlock || self.is_sure {
            return trouble;
        }
        let now = Instant::now();
        // What was doubted long ago was another ring.
        let since = self.doubted.filter(|since| now - *since < YIELDS).unwrap_or(now);
        self.doubted = Some(since);
        if now - since > LASTS || self.holds(&trouble).await {
            return trouble;
        }
        Trouble::new(Code::WrongEpoch, "what is in the way of others may be gone in a moment; ask again")
    }

    /// Whether the last of a ring waits for a lock that the first relies on.
    async fn holds(&self, trouble: &Trouble) -> bool {
        let Some(last) = trouble.cycle.last() else { return true };
        let lock = all::one(&self.shared, &self.namespace, last.lock, None).await;
        lock.is_ok_and(|lock| lock.is_some_and(|lock| lock.state != LockState::Waiting))
    }

    /// Waits for as long as the wait for these, by the lock of this number if it has one yet, may end. May be dropped and
    /// begun again.
    pub(super) async fn deadlock(&mut self, lock: Option<u64>, wanted: &[Resource]) -> Trouble {
        loop {
            let next = *self.next.get_or_insert_with(|| Instant::now() + self.pause);
            tokio::time::sleep_until(next).await;
            // If this is interrupted, or somebody does not answer, it is not given up.
            self.next = Some(Instant::now() + FIRST);
            match self.ring(lock, wanted).await {
                Ok(Some(ring)) if self.has_lasted(&ring) => {
                    self.is_sure = true;
                    self.shared.metrics.deadlocks.add(1);
                    return view::never_ends(ring.iter().map(Edge::step).collect());
                }
                Ok(None) => {
                    self.sighted = None;
                    self.pause = (self.pause * SLOWER).min(PAUSE_MAX);
                    self.next = Some(Instant::now() + self.pause);
                }
                _ => {}
            }
        }
    }

    /// Whether a ring has been there for long enough; otherwise it is looked at again when it would have been.
    fn has_lasted(&mut self, ring: &[Edge]) -> bool {
        let now = Instant::now();
        let waits: Vec<(u64, u64)> = ring.iter().map(|edge| (edge.lock, edge.held)).collect();
        let since = self.sighted.take().filter(|(_, known)| *known == waits).map_or(now, |(since, _)| since);
        self.sighted = Some((since, waits));
        let holds = ring.last().is_some_and(|edge| edge.settled);
        let until = since + if holds { LASTS } else { YIELDS };
        self.next = Some(until);
        until <= now
    }

    /// The waits by which this one waits for itself, if it does.
    async fn ring(&self, lock: Option<u64>, wanted: &[Resource]) -> Result<Option<Vec<Edge>>, Trouble> {
        let Some(current) = self.shared.cluster.current() else { return Ok(None) };
        let mut search = Search::new(&self.owner);
        while let Some(owners) = search.next() {
            let edges = self.edges(&current, owners).await?;
            let is_wanted = |edge: &Edge| wanted.iter().any(|wanted| edge.wants == wanted.into());
            let is_this = |edge: &Edge| lock.map_or_else(|| is_wanted(edge), |lock| edge.lock == lock);
            let is_meant = |edge: &Edge| edge.waiter != self.owner || is_this(edge);
            if let Some(ring) = search.add(edges.into_iter().filter(is_meant)) {
                return Ok(Some(ring));
            }
        }
        Ok(None)
    }

    /// Whom owners wait for, on all shards.
    async fn edges(&self, current: &Current, owners: Vec<String>) -> Result<Vec<Edge>, Trouble> {
        let order = Order::Edges { owners };
        let asking = current.map.shard_numbers().map(|shard| {
            let order = (&*self.namespace, order.clone());
            letter::ask::<Vec<Edge>>(&self.shared, current, shard, order, Duration::ZERO)
        });
        let edges = futures_util::future::join_all(asking).await;
        let edges: Vec<Vec<Edge>> = edges.into_iter().collect::<Result<_, _>>()?;
        Ok(edges.into_iter().flatten().collect())
    }
}

/// Goes from an owner to those it waits for, and from those to others, until it comes back.
struct Search {
    start: String,
    /// By owner, the wait by which it was come to.
    reached: BTreeMap<String, Edge>,
    frontier: Vec<String>,
    seen: BTreeSet<String>,
}

impl Search {
    fn new(start: &str) -> Search {
        let start = start.to_owned();
        let (frontier, seen) = (vec![start.clone()], BTreeSet::from([start.clone()]));
        Search { start, reached: BTreeMap::new(), frontier, seen }
    }

    /// The owners to ask about next, if there are any and it is worth it.
    fn next(&mut self) -> Option<Vec<String>> {
        let owners = std::mem::take(&mut self.frontier);
        (!owners.is_empty() && self.seen.len() <= OWNERS_MAX).then_some(owners)
    }

    /// Adds what those wait for; the ring, if that closes one.
    fn add(&mut self, edges: impl Iterator<Item = Edge>) -> Option<Vec<Edge>> {
        let mut edges: Vec<Edge> = edges.collect();
        // The same ring each time, if there are several, and one by a lock that is held, if there is one.
        edges.sort_by_key(|edge| (!edge.settled, edge.lock, edge.held));
        for edge in edges {
            if edge.holder == self.start {
                return (edge.waiter != self.start).then(|| self.trace(edge));
            }
            if self.seen.insert(edge.holder.clone()) {
                self.frontier.push(edge.holder.clone());
                self.reached.insert(edge.holder.clone(), edge);
            }
        }
        None
    }

    /// From the start around to it.
    fn trace(&self, last: Edge) -> Vec<Edge> {
        let mut ring = vec![last];
        while let Some(edge) = self.reached.get(&ring[ring.len() - 1].waiter) {
            ring.push(edge.clone());
        }
        ring.reverse();
        ring
    }
}

impl Edge {
    fn step(&self) -> CycleStep {
        CycleStep {
            session: String::new(),
            name: Some(self.waiter.clone()),
            wants: self.wants.clone(),
            lock: self.held,
            has: self.has.clone(),
            holder: String::new(),
            holder_name: Some(self.holder.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_model::{Depth, Mode};
    use lockwood_wire::WireResource;

    fn edge(waiter: &str, holder: &str) -> Edge {
        let resource: WireResource =
            (&Resource::new("a".parse().unwrap(), Mode::Write, Depth::SUBTREE)).into();
        let (waiter, holder) = (waiter.to_owned(), holder.to_owned());
        Edge { waiter, lock: 1, wants: resource.clone(), holder, held: 2, has: resource, settled: true }
    }

    /// The ring that is found from `a` if these wait for these.
    fn ring(pairs: &[(&str, &str)]) -> Option<String> {
        let mut search = Search::new("a");
        while let Some(owners) = search.next() {
            let asked = pairs.iter().filter(|(waiter, _)| owners.iter().any(|owner| owner == waiter));
            if let Some(ring) = search.add(asked.map(|(waiter, holder)| edge(waiter, holder))) {
                let names: Vec<String> = ring.iter().map(|edge| edge.waiter.clone()).collect();
                return Some(names.concat());
            }
        }
        None
    }

    #[test]
    fn a_ring_goes_from_the_start_around_to_it() {
        assert_eq!(ring(&[("a", "b"), ("b", "a")]).as_deref(), Some("ab"));
        assert_eq!(
            ring(&[("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("b", "x")]).as_deref(),
            Some("abcd")
        );
        assert_eq!(ring(&[("a", "b"), ("a", "c"), ("c", "a"), ("b", "d")]).as_deref(), Some("ac"));
    }

    #[test]
    fn what_the_start_is_not_in_is_no_ring() {
        assert_eq!(ring(&[]), None);
        assert_eq!(ring(&[("a", "b"), ("b", "c")]), None);
        assert_eq!(ring(&[("a", "b"), ("b", "c"), ("c", "b")]), None);
        assert_eq!(ring(&[("b", "a"), ("c", "b")]), None);
        let long: Vec<(String, String)> =
            (0..2 * OWNERS_MAX).map(|at| (at.to_string(), (at + 1).to_string())).collect();
        let mut pairs: Vec<(&str, &str)> = long.iter().map(|(one, other)| (&**one, &**other)).collect();
        pairs.push(("a", "0"));
        assert_eq!(ring(&pairs), None);
    }
}
