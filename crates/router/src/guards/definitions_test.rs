//! Every order in which registrations, takeovers and messages can happen, over the real state machines: what was acknowledged to a
//! client holds wherever an owner serves. With any omission planted some order is wrong.

use super::{
    Action, DefinitionsNo, Home, HomeEpoch, HomeMessage, MapEpoch, Member, MemberMessage, MemberState,
    Ownership,
    fault::{Fault, plant},
};
use crate::{ShardEpoch, ShardNo};
use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    hash::Hash,
};
use xxhash_rust::xxh3::Xxh3;

const SHARD: ShardNo = ShardNo(1);
/// Joins and leaves of one owner of the shard.
const JOINS_MAX: u8 = 2;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Message {
    ToMember(HomeMessage),
    ToHome(MemberMessage),
    /// What is registered, on its way to an owner of the shard.
    Fetched(usize, DefinitionsNo),
}

/// A home and a shard, each with its owners so far: the last one is the current one, the others may not know.
#[derive(Clone, Hash)]
struct World {
    /// The last record of the home's log, which each registration adds to.
    log: DefinitionsNo,
    homes: Vec<Home>,
    owners: Vec<Owner>,
    messages: Vec<Message>,
    /// What clients have been told that it holds.
    acknowledged: DefinitionsNo,
    left: Bounds,
}

/// How much may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Bounds {
    registrations: u8,
    losses: u8,
    /// Messages under way at once.
    messages: usize,
}

#[derive(Clone, Hash)]
struct Owner {
    member: Member,
    has: DefinitionsNo,
    joins: u8,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Register,
    Deliver(usize),
    Lose(usize),
    Fetch(usize),
    Join(usize),
    HomeTaken,
    ShardTaken,
    /// PostgreSQL's word reaches an owner of the shard, or an owner of the home.
    HomeNamed(usize),
    OwnerNamed(usize),
}

impl World {
    fn new(bounds: Bounds) -> World {
        let mut home = Home::first(HomeEpoch(1), MapEpoch(1));
        home.redefined(DefinitionsNo(1));
        World {
            log: DefinitionsNo(1),
            homes: vec![home],
            owners: vec![Owner::new(1)],
            messages: Vec::new(),
            acknowledged: DefinitionsNo(0),
            left: bounds,
        }
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Register, Step::HomeTaken, Step::ShardTaken];
        for message in 0..self.messages.len() {
            steps.extend([Step::Deliver(message), Step::Lose(message)]);
        }
        for owner in 0..self.owners.len() {
            steps.extend([Step::Fetch(owner), Step::Join(owner), Step::HomeNamed(owner)]);
        }
        steps.extend((0..self.homes.len()).map(Step::OwnerNamed));
        steps
    }

    /// What comes of a step; none if it is not possible.
    fn after(&self, step: Step) -> Option<World> {
        let mut next = self.clone();
        next.take(step)?;
        next.look();
        next.messages.sort();
        (next.messages.len() <= self.left.messages).then_some(next)
    }

    fn take(&mut self, step: Step) -> Option<()> {
        match step {
            Step::Register => {
                self.left.registrations = self.left.registrations.checked_sub(1)?;
                self.log.0 += 1;
                self.homes.last_mut()?.redefined(self.log);
            }
            Step::Deliver(message) => {
                let message = self.messages.remove(message);
                self.deliver(message)?;
            }
            Step::Lose(message) => {
                self.left.losses = self.left.losses.checked_sub(1)?;
                self.messages.remove(message);
            }
            Step::Fetch(owner) => {
                let is_asked = |message: &Message| matches!(message, Message::Fetched(of, _) if *of == owner);
                self.owners[owner].member.behind().filter(|_| !self.messages.iter().any(is_asked))?;
                self.messages.push(Message::Fetched(owner, self.log));
            }
            Step::Join(owner) => {
                let Owner { member, .. } = &self.owners[owner];
                (member.state() == MemberState::Outside && !member.is_joining()).then_some(())?;
                let message = self.owners[owner].joins()?.join();
                self.messages.push(Message::ToHome(message));
            }
            Step::HomeTaken => {
                (self.homes.len() < 2).then_some(())?;
                let owners = BTreeMap::from([(SHARD, ShardEpoch(self.owners.len() as u64))]);
                let mut home = Home::takeover(HomeEpoch(2), MapEpoch(1), owners);
                home.redefined(self.log);
                home.sessions_over();
                self.homes.push(home);
            }
            Step::ShardTaken => {
                (self.owners.len() < 2).then_some(())?;
                self.owners.push(Owner::new(2));
            }
            Step::HomeNamed(owner) => {
                let home = HomeEpoch(self.homes.len() as u64);
                (self.owners[owner].member.home() < home).then_some(())?;
                let member = self.owners[owner].joins()?;
                member.home_changed(home);
                let message = member.reconnected();
                self.messages.push(Message::ToHome(message));
            }
            Step::OwnerNamed(home) => {
                let epoch = ShardEpoch(self.owners.len() as u64);
                self.homes[home].owner_changed(SHARD, epoch);
            }
        }
        Some(())
    }

    fn deliver(&mut self, message: Message) -> Option<()> {
        match message {
            Message::ToMember(message) => {
                let owner = self.owners.get_mut(message.stream.shard_epoch.0 as usize - 1)?;
                let answers = owner.member.receive(message);
                self.messages.extend(answers.into_iter().map(Message::ToHome));
            }
            Message::ToHome(message) => {
                self.homes.get_mut(message.stream.home.0 as usize - 1)?.receive(&message);
            }
            Message::Fetched(owner, definitions) => {
                let Owner { member, has, .. } = &mut self.owners[owner];
                *has = definitions.max(*has);
                let answer = member.caught_up(definitions);
                self.messages.extend(answer.map(Message::ToHome));
            }
        }
        Some(())
    }

    /// Homes send what they have to, and tell what is confirmed; a home that was replaced only tells.
    fn look(&mut self) {
        let current = self.homes.len() - 1;
        for (number, home) in self.homes.iter_mut().enumerate() {
            let ownership = if number == current { Ownership::Fresh } else { Ownership::Stale };
            for action in home.actions(ownership) {
                if let Action::Send(message) = action {
                    self.messages.push(Message::ToMember(message));
                }
            }
            self.acknowledged = self.acknowledged.max(home.defined().unwrap_or(DefinitionsNo(0)));
        }
    }

    /// Whether the owner of the shard, if it serves, goes by what clients have been told.
    fn is_right(&self) -> bool {
        let owner = self.owners.last().expect("the shard has an owner");
        !owner.member.is_defined() || owner.has >= self.acknowledged
    }
}

impl Owner {
    fn new(epoch: u64) -> Owner {
        let member = Member::new(SHARD, ShardEpoch(epoch), HomeEpoch(1));
        Owner { member, has: DefinitionsNo(0), joins: 0 }
    }

    fn joins(&mut self) -> Option<&mut Member> {
        self.joins += 1;
        (self.joins <= JOINS_MAX).then_some(&mut self.member)
    }
}

/// What an exploration came to.
struct Found {
    states: usize,
    /// In which everything that was registered is served and was acknowledged.
    finished: usize,
    is_right: bool,
}

/// Every order in which so much can happen.
fn explore(bounds: Bounds) -> Found {
    let digest = |world: &World| {
        let mut hasher = Xxh3::new();
        world.hash(&mut hasher);
        hasher.digest128()
    };
    let start = World::new(bounds);
    let (mut known, mut queue) = (HashSet::from([digest(&start)]), VecDeque::from([start]));
    let mut found = Found { states: 0, finished: 0, is_right: true };
    while let Some(world) = queue.pop_front() {
        found.states += 1;
        found.is_right = world.is_right();
        if !found.is_right {
            return found;
        }
        let serves = world.owners.last().is_some_and(|owner| owner.member.is_defined());
        let is_finished = world.left.registrations == 0 && world.acknowledged == world.log && serves;
        found.finished += usize::from(is_finished);
        let next = world.steps().into_iter().filter_map(|step| world.after(step));
        queue.extend(next.filter(|world| known.insert(digest(world))));
    }
    found
}

#[test]
fn what_was_acknowledged_holds_wherever_an_owner_serves() {
    for (registrations, losses, messages) in [(2, 0, 2), (1, 1, 2), (1, 0, 3)] {
        let bounds = Bounds { registrations, losses, messages };
        let Found { states, finished, is_right } = explore(bounds);
        println!("{bounds:?}: {states} states, {finished} of them finished");
        assert!(is_right, "{bounds:?}");
        assert!(finished > 100, "{bounds:?}: {finished} of {states}");
    }
}

#[test]
fn every_omission_is_noticed() {
    for fault in Fault::OF_DEFINITIONS {
        plant(Some(fault));
        let Found { states, is_right, .. } = explore(Bounds { registrations: 1, losses: 0, messages: 3 });
        plant(None);
        println!("{fault:?}: {states} states");
        assert!(!is_right, "{fault:?} is not noticed");
    }
}
