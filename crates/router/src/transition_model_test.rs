//! Every order in which a transition can go, over small clusters: requests and answers late, lost or repeated,
//! the keeper crashing at any point, and commands at any point.

use crate::{
    Action, By, Change, Drive, Epoch, Event, Function, Host, HostMode, Phase, Planned, ShardMap, ShardNo,
    Step, Transition,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::Hash,
    rc::Rc,
};
use xxhash_rust::xxh3::Xxh3Default;

/// What was sent and can arrive at any time from then on, any number of times or never.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Request {
    Publish(usize, Seen),
    Export(usize, Epoch),
    Import(usize, Epoch),
    Copy(usize, Epoch, u32),
    Verify(usize, Epoch, u32),
    Clean(usize, Epoch),
}

/// What a node remembers of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Seen {
    epoch: Epoch,
    /// 0 steady, 1 preparing, 2 resharding, 3 finishing.
    phase: u8,
    transition: Epoch,
}

/// What is durable on a node. A node is the one host of a shard.
#[derive(Clone, Debug, Default, Hash)]
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
#[derive(Clone, Copy, Debug, Hash)]
struct Budget {
    aborts: u8,
    forces: u8,
    pauses: u8,
    differences: u8,
}

#[derive(Clone, Debug, Hash)]
struct World {
    keeper: Rc<Transition>,
    nodes: Vec<Node>,
    requests: Rc<BTreeSet<Request>>,
    events: Rc<BTreeSet<Event>>,
    maps: Rc<BTreeMap<Epoch, Seen>>,
    forced: BTreeSet<Epoch>,
    budget: Budget,
}

impl World {
    fn new(before: u32, after: u32, budget: Budget) -> World {
        let shards = |count: u32| (1..=count).map(host).collect::<Vec<_>>();
        let hash = |shards| Function::Hash { shards, by: By::Key };
        let old = ShardMap::steady(1, shards(before), hash(before));
        let change = Change { list: Some(shards(after)), curr: Some(hash(after)), prev: None, this: None };
        let Ok(Planned::Transition { preparing, keep }) = change.apply(Some(&old)) else { panic!() };
        World {
            keeper: Rc::new(Transition::start(&old, preparing, keep, Drive::Whole)),
            nodes: vec![
                Node { seen: Seen { epoch: 1, ..Seen::default() }, ..Node::default() };
                before.max(after) as usize
            ],
            requests: Rc::default(),
            events: Rc::default(),
            maps: Rc::default(),
            forced: BTreeSet::new(),
            budget,
        }
    }

    /// The worlds that can come next.
    fn next(&self) -> Vec<World> {
        let mut worlds = Vec::new();
        worlds.extend(self.sends().into_iter().filter_map(|request| self.sent(request)));
        let unheard = self.requests.iter().filter(|request| !self.is_answered(request));
        worlds.extend(unheard.flat_map(|request| self.handled(request)));
        worlds.extend(self.events.iter().map(|event| {
            self.with(|world| {
                world.keeper().apply(event.clone());
            })
        }));
        worlds.extend((!self.keeper.exported.is_empty()).then(|| self.with(World::crash)));
        worlds.extend(self.commands());
        worlds
    }

    fn with(&self, change: impl FnOnce(&mut World)) -> World {
        let mut world = self.clone();
        change(&mut world);
        world.forget();
        world
    }

    /// Drops what is too late to change anything from now on, which keeps the number of worlds small.
    fn forget(&mut self) {
        let (nodes, keeper) = (&self.nodes, &self.keeper);
        let over = |request: &Request| match *request {
            Request::Publish(..) => false,
            Request::Export(node, epoch) | Request::Import(node, epoch) => nodes[node].seen.epoch > epoch,
            Request::Copy(node, transition, _) | Request::Verify(node, transition, _) => {
                nodes[node].seen >= Seen { epoch: transition + 1, phase: 3, transition }
            }
            Request::Clean(node, transition) => nodes[node].seen.epoch > transition + 1,
        };
        if self.requests.iter().any(over) {
            Rc::make_mut(&mut self.requests).retain(|request| !over(request));
        }
        let late = |event: &Event| match *event {
            Event::Acknowledged { epoch, .. }
            | Event::Exported { epoch, .. }
            | Event::Imported { epoch, .. } => epoch < keeper.map.epoch,
            _ => false,
        };
        for event in self.events.iter().filter(|event| late(event)) {
            let mut same = Transition::clone(keeper);
            same.apply(event.clone());
            assert_eq!(same, **keeper, "{event:?} is too late and still counts");
        }
        if self.events.iter().any(late) {
            Rc::make_mut(&mut self.events).retain(|event| !late(event));
        }
    }

    /// The keeper begins anew with what it has kept; that this is everything else, [`kept`] makes sure.
    fn crash(&mut self) {
        self.keeper().exported.clear();
    }

    fn keeper(&mut self) -> &mut Transition {
        Rc::make_mut(&mut self.keeper)
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
                let other = Rc::make_mut(&mut world.maps).insert(seen.epoch, seen);
                assert!(
                    other.is_none_or(|other| other == seen),
                    "two maps with one epoch: {other:?}, {seen:?}"
                );
            }
            Rc::make_mut(&mut world.requests).insert(request);
        }))
    }

    /// Whether the node has done this already, and its answer can arrive at any time: once more is the same.
    fn is_answered(&self, request: &Request) -> bool {
        match *request {
            Request::Publish(node, seen) => {
                let epoch = self.nodes[node].seen.epoch;
                epoch >= seen.epoch && self.events.contains(&Event::Acknowledged { node: name(node), epoch })
            }
            Request::Export(node, epoch) => {
                self.events.contains(&Event::Exported { node: name(node), epoch })
            }
            Request::Import(node, epoch) => {
                self.events.contains(&Event::Imported { node: name(node), epoch })
            }
            Request::Copy(..) | Request::Verify(..) | Request::Clean(..) => false,
        }
    }

    /// What a node makes of a request, whenever it arrives.
    fn handled(&self, request: &Request) -> Vec<World> {
        match *request {
            Request::Publish(node, seen) => vec![self.with(|world| {
                let known = &mut world.nodes[node].seen;
                *known = (*known).max(seen);
                let epoch = known.epoch;
                Rc::make_mut(&mut world.events).insert(Event::Acknowledged { node: name(node), epoch });
            })],
            Request::Export(node, epoch) if self.nodes[node].seen.epoch == epoch => {
                vec![self.answer(Event::Exported { node: name(node), epoch })]
            }
            Request::Import(node, epoch) if self.nodes[node].seen.epoch == epoch => {
                vec![self.with(|world| {
                    world.nodes[node].imported.insert(epoch);
                    Rc::make_mut(&mut world.events).insert(Event::Imported { node: name(node), epoch });
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
                    Rc::make_mut(&mut world.events).insert(done);
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
                Rc::make_mut(&mut world.events).insert(Event::Cleaned {
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
            Rc::make_mut(&mut world.events).insert(Event::Verified { donor, transition, round });
        });
        let differs = (self.budget.differences > 0).then(|| {
            self.with(|world| {
                world.budget.differences -= 1;
                Rc::make_mut(&mut world.events).insert(Event::Differs {
                    donor,
                    transition,
                    round,
                    problem: String::new(),
                });
            })
        });
        std::iter::once(equal).chain(differs).collect()
    }

    fn answer(&self, event: Event) -> World {
        self.with(|world| {
            Rc::make_mut(&mut world.events).insert(event);
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
            worlds.extend(world.keeper().abort().is_ok().then_some(world));
        }
        if self.budget.forces > 0 {
            let mut world = self.with(|world| world.budget.forces -= 1);
            world.forced.insert(world.keeper.map.transition);
            worlds.extend(world.keeper().drop_prev(true).is_ok().then_some(world));
        }
        if self.budget.pauses > 0 && !self.keeper.paused {
            worlds.push(self.with(|world| {
                world.budget.pauses -= 1;
                world.keeper().pause();
            }));
        }
        if self.keeper.paused {
            worlds.push(self.with(|world| world.keeper().resume()));
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
            let last =
                |phase| self.maps.values().rfind(|seen| seen.phase == phase).map(|seen| seen.transition);
            assert!(last(2) <= last(3), "keys that have begun to move were left where they are: {self:?}");
            let last = last(3);
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
    let mut indexes = HashMap::from([(key(&start), 0_usize)]);
    let mut keepers = HashSet::new();
    let mut open = vec![(0, start)];
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let mut ends = Vec::new();
    while let Some((index, world)) = open.pop() {
        world.check();
        if keepers.insert(key(&world.keeper)) {
            kept(&world.keeper);
        }
        if world.keeper.step == Step::Done {
            ends.push(index);
        }
        for next in world.next() {
            let count = indexes.len();
            let found = *indexes.entry(key(&next)).or_insert(count);
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

/// Tells any two worlds apart.
fn key(world: &impl Hash) -> u128 {
    let mut hasher = Xxh3Default::new();
    world.hash(&mut hasher);
    hasher.digest128()
}

/// What is kept is all there is, but for the exports at hand.
fn kept(keeper: &Transition) {
    let read: Transition = serde_json::from_str(&serde_json::to_string(keeper).unwrap()).unwrap();
    assert_eq!(read, Transition { exported: BTreeSet::new(), ..keeper.clone() });
}

#[track_caller]
fn check(name: &str, start: World) {
    println!("{name}: {} worlds", explore(start));
}

#[test]
fn growing_and_shrinking() {
    check("1 to 2", World::new(1, 2, NONE));
    check("2 to 1", World::new(2, 1, NONE));
    check("2 to 3", World::new(2, 3, NONE));
}

const NONE: Budget = Budget { aborts: 0, forces: 0, pauses: 0, differences: 0 };

#[test]
fn with_a_command() {
    check("abort", World::new(2, 1, Budget { aborts: 1, ..NONE }));
    check("force", World::new(2, 1, Budget { forces: 1, ..NONE }));
    check("pause", World::new(2, 1, Budget { pauses: 1, ..NONE }));
    check("difference", World::new(2, 1, Budget { differences: 1, ..NONE }));
}

#[test]
fn with_two_commands() {
    check("abort, pause", World::new(1, 2, Budget { aborts: 1, pauses: 1, ..NONE }));
    check("abort, difference", World::new(1, 2, Budget { aborts: 1, differences: 1, ..NONE }));
}

#[test]
fn with_an_abort_and_force() {
    check("abort, force", World::new(1, 2, Budget { aborts: 1, forces: 1, ..NONE }));
}
