//! Every order in which a transition can go, over small clusters: requests and answers late, lost or repeated,
//! the keeper crashing at any point, and commands at any point.

use crate::{
    Action, By, Change, Drive, Epoch, Event, Function, Host, HostMode, Phase, Planned, ShardMap, ShardNo,
    Step, Transition,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use xxhash_rust::xxh3::xxh3_128;

/// What was sent and can arrive at any time from then on, any number of times or never.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Request {
    Publish(usize, Seen),
    Export(usize, Epoch),
    Import(usize, Epoch),
    Copy(usize, Epoch, u32),
    Verify(usize, Epoch, u32),
    Clean(usize, Epoch),
}

/// What a node remembers of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    epoch: Epoch,
    /// 0 steady, 1 preparing, 2 resharding, 3 finishing.
    phase: u8,
    transition: Epoch,
}

/// What is durable on a node. A node is the one host of a shard.
#[derive(Clone, Debug, Default)]
struct Node {
    seen: Seen,
    /// The epochs of the preparing maps for which it took floors and leases.
    imported: BTreeSet<Epoch>,
    /// The transitions in which it has copied, was verified, has cleaned up.
    copied: BTreeSet<Epoch>,
    verified: BTreeSet<Epoch>,
    cleaned: BTreeSet<Epoch>,
}

/// Commands that may still come.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    aborts: u8,
    forces: u8,
    pauses: u8,
    differences: u8,
}

#[derive(Clone, Debug)]
struct World {
    keeper: Transition,
    nodes: Vec<Node>,
    requests: BTreeSet<Request>,
    events: BTreeSet<Event>,
    maps: BTreeMap<Epoch, Seen>,
    forced: BTreeSet<Epoch>,
    budget: Budget,
}

impl World {
    fn new(before: u32, after: u32, budget: Budget) -> World {
        let shards = |count: u32| (1..=count).map(host).collect::<Vec<_>>();
        let hash = |shards| Function::Hash { shards, by: By::Key };
        let old = ShardMap::steady(1, shards(before), hash(before));
        let change = Change { list: Some(shards(after)), curr: Some(hash(after)), prev: None };
        let Ok(Planned::Transition { preparing, keep }) = change.apply(Some(&old)) else { panic!() };
        World {
            keeper: Transition::start(&old, preparing, keep, Drive::Whole),
            nodes: vec![
                Node { seen: Seen { epoch: 1, ..Seen::default() }, ..Node::default() };
                before.max(after) as usize
            ],
            requests: BTreeSet::new(),
            events: BTreeSet::new(),
            maps: BTreeMap::new(),
            forced: BTreeSet::new(),
            budget,
        }
    }

    /// The same world, told apart from all others. The keeper as it is kept, and what it has in memory.
    fn key(&self) -> u128 {
        let kept = serde_json::to_string(&self.keeper).unwrap();
        let rest = (&self.keeper.exported, &self.nodes, &self.requests, &self.events, self.budget);
        xxh3_128(format!("{kept}{rest:?}").as_bytes())
    }

    /// The worlds that can come next.
    fn next(&self) -> Vec<World> {
        let mut worlds = Vec::new();
        worlds.extend(self.sends().into_iter().filter_map(|request| self.sent(request)));
        worlds.extend(self.requests.iter().flat_map(|request| self.handled(request)));
        worlds.extend(self.events.iter().map(|event| {
            self.with(|world| {
                world.keeper.apply(event.clone());
            })
        }));
        worlds.push(self.with(World::crash));
        worlds.extend(self.commands());
        worlds
    }

    fn with(&self, change: impl FnOnce(&mut World)) -> World {
        let mut world = self.clone();
        change(&mut world);
        world
    }

    /// The keeper begins anew with what it has kept.
    fn crash(&mut self) {
        let kept = serde_json::to_string(&self.keeper).unwrap();
        self.keeper = serde_json::from_str(&kept).unwrap();
    }

    fn sends(&self) -> Vec<Request> {
        let (map, transition) = (&self.keeper.map, self.keeper.map.transition);
        let mut sends = Vec::new();
        for action in self.keeper.actions() {
            match action {
                Action::Publish { map, to } => {
                    sends.extend(to.iter().map(|to| Request::Publish(index(to), seen(&map))));
                }
                Action::Export { from } => sends.push(Request::Export(index(&from), map.epoch)),
                Action::Import { to } => sends.push(Request::Import(index(&to), map.epoch)),
                Action::Copy { donor, round } => sends.push(Request::Copy(at(donor), transition, round)),
                Action::Verify { donor, round } => sends.push(Request::Verify(at(donor), transition, round)),
                Action::Clean { donor } => sends.push(Request::Clean(at(donor), transition)),
                Action::Done => {}
            }
        }
        sends
    }

    fn sent(&self, request: Request) -> Option<World> {
        if self.requests.contains(&request) {
            return None;
        }
        Some(self.with(|world| {
            if let Request::Publish(_, seen) = request {
                let other = world.maps.insert(seen.epoch, seen);
                assert!(
                    other.is_none_or(|other| other == seen),
                    "two maps with one epoch: {other:?}, {seen:?}"
                );
            }
            world.requests.insert(request);
        }))
    }

    /// What a node makes of a request, whenever it arrives.
    fn handled(&self, request: &Request) -> Vec<World> {
        match *request {
            Request::Publish(node, seen) => vec![self.with(|world| {
                let known = &mut world.nodes[node].seen;
                *known = (*known).max(seen);
                let epoch = known.epoch;
                world.events.insert(Event::Acknowledged { node: name(node), epoch });
            })],
            Request::Export(node, epoch) if self.nodes[node].seen.epoch == epoch => {
                vec![self.answer(Event::Exported { node: name(node), epoch })]
            }
            Request::Import(node, epoch) if self.nodes[node].seen.epoch == epoch => {
                vec![self.with(|world| {
                    world.nodes[node].imported.insert(epoch);
                    world.events.insert(Event::Imported { node: name(node), epoch });
                })]
            }
            Request::Copy(node, transition, round) if self.is(node, 2, transition) => {
                vec![self.with(|world| {
                    world.nodes[node].copied.insert(transition);
                    let done = Event::Copied {
                        donor: shard(node),
                        transition,
                        round,
                        copied: 1,
                        total: None,
                        done: true,
                    };
                    world.events.insert(done);
                })]
            }
            Request::Verify(node, transition, round) if self.is(node, 2, transition) => {
                self.verify(node, transition, round)
            }
            Request::Clean(node, transition) if self.is(node, 3, transition) => vec![self.with(|world| {
                let finishing = world.nodes[node].seen.epoch;
                let all = world.nodes.iter().all(|node| node.seen.epoch >= finishing);
                assert!(all, "cleaned while somebody may still ask the donor");
                world.nodes[node].cleaned.insert(transition);
                world.events.insert(Event::Cleaned {
                    donor: shard(node),
                    transition,
                    removed: 1,
                    done: true,
                });
            })],
            _ => Vec::new(),
        }
    }

    fn verify(&self, node: usize, transition: Epoch, round: u32) -> Vec<World> {
        let donor = shard(node);
        let equal = self.with(|world| {
            assert!(world.nodes[node].copied.contains(&transition), "verified before it was copied");
            world.nodes[node].verified.insert(transition);
            world.events.insert(Event::Verified { donor, transition, round });
        });
        let differs = (self.budget.differences > 0).then(|| {
            self.with(|world| {
                world.budget.differences -= 1;
                world.events.insert(Event::Differs { donor, transition, round, problem: String::new() });
            })
        });
        std::iter::once(equal).chain(differs).collect()
    }

    fn answer(&self, event: Event) -> World {
        self.with(|world| {
            world.events.insert(event);
        })
    }

    fn is(&self, node: usize, phase: u8, transition: Epoch) -> bool {
        let seen = self.nodes[node].seen;
        seen.phase == phase && seen.transition == transition
    }

    fn commands(&self) -> Vec<World> {
        let mut worlds = Vec::new();
        if self.budget.aborts > 0 {
            let mut world = self.with(|world| world.budget.aborts -= 1);
            worlds.extend(world.keeper.abort().is_ok().then_some(world));
        }
        if self.budget.forces > 0 {
            let mut world = self.with(|world| world.budget.forces -= 1);
            world.forced.insert(world.keeper.map.transition);
            worlds.extend(world.keeper.drop_prev(true).is_ok().then_some(world));
        }
        if self.budget.pauses > 0 && !self.keeper.paused {
            worlds.push(self.with(|world| {
                world.budget.pauses -= 1;
                world.keeper.pause();
            }));
        }
        if self.keeper.paused {
            worlds.push(self.with(|world| world.keeper.resume()));
        }
        worlds
    }

    /// What has to hold in every world.
    fn check(&self) {
        for seen in self.nodes.iter().map(|node| node.seen) {
            match seen.phase {
                2 => self.check_resharding(seen.transition),
                3 => self.check_finishing(seen.transition),
                _ => {}
            }
        }
        self.keeper.map.validate().unwrap();
        if self.keeper.is_over() {
            let epoch = self.keeper.map.epoch;
            assert!(
                self.nodes.iter().all(|node| node.seen.epoch == epoch && node.seen.phase == 0),
                "{self:?}"
            );
            let last = self.maps.values().rfind(|seen| seen.phase == 3).map(|seen| seen.transition);
            let donors = self.keeper.donors.iter().map(|donor| at(donor.shard));
            let clean =
                |transition| donors.into_iter().all(|donor| self.nodes[donor].cleaned.contains(&transition));
            assert!(last.is_none_or(clean), "over before donors are clean");
        }
    }

    fn check_resharding(&self, transition: Epoch) {
        for node in &self.nodes {
            assert!(
                node.seen.epoch >= transition - 1,
                "an owner serves while a donor has not stopped: {self:?}"
            );
            assert!(
                node.imported.contains(&(transition - 1)),
                "an owner serves without the leases: {self:?}"
            );
        }
    }

    fn check_finishing(&self, transition: Epoch) {
        let donors = || self.keeper.donors.iter().map(|donor| &self.nodes[at(donor.shard)]);
        let ready =
            donors().all(|node| node.copied.contains(&transition) && node.verified.contains(&transition));
        assert!(ready || self.forced.contains(&transition), "prev is gone before its data is: {self:?}");
    }
}

fn host(shard: u32) -> Vec<Host> {
    vec![Host { mode: HostMode::Rw, weight: 1, address: name(shard as usize - 1) }]
}

fn name(node: usize) -> String {
    format!("n:{}", node + 1)
}

fn index(name: &str) -> usize {
    name[2..].parse::<usize>().unwrap() - 1
}

fn at(shard: ShardNo) -> usize {
    shard.0 as usize - 1
}

fn shard(node: usize) -> ShardNo {
    ShardNo(node as u32 + 1)
}

fn seen(map: &ShardMap) -> Seen {
    let phase = match map.phase {
        Phase::Steady => 0,
        Phase::Preparing => 1,
        Phase::Resharding => 2,
        Phase::Finishing => 3,
    };
    Seen { epoch: map.epoch, phase, transition: map.transition }
}

/// Visits every world that can be reached, and makes sure that the end can be reached from each of them
/// without any further command. Answers how many there are.
fn explore(start: World) -> usize {
    let mut indexes = HashMap::from([(start.key(), 0_usize)]);
    let mut open = vec![(0, start)];
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let mut ends = Vec::new();
    while let Some((index, world)) = open.pop() {
        world.check();
        if world.keeper.step == Step::Done {
            ends.push(index);
        }
        for next in world.next() {
            let count = indexes.len();
            let found = *indexes.entry(next.key()).or_insert(count);
            if found == count {
                before.push(Vec::new());
                open.push((found, next));
            }
            before[found].push(index);
        }
    }
    let mut reached = vec![false; before.len()];
    while let Some(index) = ends.pop() {
        if !std::mem::replace(&mut reached[index], true) {
            ends.extend(&before[index]);
        }
    }
    assert!(reached.iter().all(|reached| *reached), "there are worlds from which the end is not reached");
    reached.len()
}

#[track_caller]
fn check(name: &str, start: World) {
    println!("{name}: {} worlds", explore(start));
}

#[test]
fn growing_and_shrinking() {
    check("1 to 2", World::new(1, 2, Budget::default()));
    check("2 to 1", World::new(2, 1, Budget::default()));
    check("2 to 3", World::new(2, 3, Budget::default()));
}

#[test]
fn with_commands() {
    let none = Budget::default();
    check("abort", World::new(2, 1, Budget { aborts: 1, ..none }));
    check("force", World::new(2, 1, Budget { forces: 1, ..none }));
    check("pause", World::new(2, 1, Budget { pauses: 1, ..none }));
    check("difference", World::new(2, 1, Budget { differences: 1, ..none }));
    check("all of them", World::new(1, 2, Budget { aborts: 1, forces: 1, pauses: 1, differences: 1 }));
}
