//! Homes, shards, clients and writers around the state machines, one step at a time: whatever can happen next is a
//! [`Choice`]. Knows nothing of the order in which choices are made.
//!
//! Clients hold locks, writers run operations without one. The lock table is a plain list, the log a flag. Old owners of
//! home and shards go on as before; PostgreSQL's word reaches everybody late. What one side sends the other arrives in
//! order, or is lost.

use super::{
    Action, Admission, Caller, Decision, Home, HomeEpoch, HomeMessage, MapEpoch, Member, MemberMessage,
    MemberState, Operation, OperationId, Ownership, Phase,
    fault::{Fault, is_planted},
    scenario_test::{By, Covering, Scenario, Step, Writer, conflict, owner_id, shard_no, wants},
};
use crate::{ShardEpoch, ShardNo};
use lockwood_model::{LockId, Token};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::{Hash, Hasher},
    rc::Rc,
};

/// What can happen next. Homes and owners of shards are named by their epoch less one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Choice {
    /// A client does its next step at its home.
    Act(usize),
    /// A client gives up what it waits for, and goes on with the next step.
    Cancel(usize),
    /// A client that holds a lock re-attaches to a new home in grace.
    Reattach(usize),
    /// A client that waits for a lock learns that the home has changed.
    AskFails(usize),
    /// A previous home ends the lock of a client: its session has not come back to it.
    Abandon(usize, usize),
    HomeTakeover,
    SessionsOver,
    LearnOwner(usize, usize),
    LearnMapHome(usize),
    ShardTakeover(usize),
    LearnHome(usize, usize),
    LearnMapShard(usize, usize),
    Join(usize, usize),
    Leave(usize, usize),
    Reconnect(usize, usize),
    PublishMap,
    /// A writer's operation arrives at an owner of a shard.
    Admit(usize, usize, usize),
    Finish(usize, usize, usize),
    Deliver(Link),
    /// The first message between two is lost, and all that follow arrive.
    Lose(Link),
}

/// Between one home and one owner of a shard, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Link {
    ToHome(HomeEpoch, ShardNo, ShardEpoch),
    ToShard(HomeEpoch, ShardNo, ShardEpoch),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Message {
    ToHome(MemberMessage),
    ToShard(HomeMessage),
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation(pub(super) String);

type Checked = Result<(), Violation>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ClientState {
    Idle,
    Asked,
    Holds,
    Converting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    state: ClientState,
    /// The home it is attached to.
    home: usize,
    /// How often it has gone through its steps, and the step that comes next.
    round: usize,
    next: usize,
    /// The step whose resources it holds, and the token of that grant.
    held: Option<usize>,
    token: u64,
}

impl Client {
    fn begin_again(&mut self, home: usize) {
        *self =
            Client { state: ClientState::Idle, home, round: self.round + 1, next: 0, held: None, ..*self };
    }

    /// A lock id for each round.
    fn lock(&self, index: usize) -> LockId {
        LockId((self.round * 10 + index) as u64)
    }
}

#[derive(Clone, Debug, Hash)]
struct HomeSide {
    home: Home,
    map: u64,
    /// By client: the steps whose resources the table has granted.
    table: BTreeMap<usize, Vec<usize>>,
}

#[derive(Clone, Debug, Hash)]
struct Owner {
    member: Member,
    map: u64,
    joins: u8,
    /// A message from or to it was lost, so its connection is closed sooner or later.
    broken: bool,
    /// The writers whose operations are admitted.
    running: BTreeSet<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    homes: Vec<Rc<HomeSide>>,
    shards: Vec<Vec<Rc<Owner>>>,
    clients: Vec<Client>,
    /// How often each writer has committed.
    commits: Vec<usize>,
    stored: Vec<bool>,
    net: BTreeMap<Link, Rc<VecDeque<Message>>>,
    map: u64,
    losses: u8,
}

/// Previous homes are left out: they do nothing, so worlds that differ in them only go on alike. Omissions change that.
impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let acts_when_stale = is_planted(Fault::ZombieHome) || is_planted(Fault::StaleLift);
        let homes = if acts_when_stale { 0 } else { self.current_home() };
        (self.homes.len(), &self.homes[homes..], &self.shards, &self.clients).hash(state);
        (&self.commits, &self.stored, &self.net, self.map, self.losses).hash(state);
    }
}

impl World {
    pub(super) fn new(scenario: &Scenario) -> World {
        let home = Home::first(scenario.home_epoch(0), MapEpoch(1));
        let owner = |shard| {
            let member = Member::new(shard_no(shard), ShardEpoch(1), scenario.home_epoch(0));
            vec![Rc::new(Owner { member, map: 1, joins: 0, broken: false, running: BTreeSet::new() })]
        };
        let client = Client { state: ClientState::Idle, home: 0, round: 0, next: 0, held: None, token: 0 };
        World {
            homes: vec![Rc::new(HomeSide { home, map: 1, table: BTreeMap::new() })],
            shards: (0..scenario.shards).map(owner).collect(),
            clients: vec![client; scenario.clients.len()],
            commits: vec![0; scenario.writers.len()],
            stored: vec![false; scenario.shards],
            net: BTreeMap::new(),
            map: 1,
            losses: 0,
        }
    }

    pub(super) fn messages(&self) -> usize {
        self.net.values().map(|queue| queue.len()).sum()
    }

    pub(super) fn holders(&self) -> usize {
        self.clients.iter().filter(|client| client.held.is_some()).count()
    }

    pub(super) fn committed(&self) -> usize {
        self.commits.iter().sum()
    }

    fn current_home(&self) -> usize {
        self.homes.len() - 1
    }

    fn current_owner(&self, shard: usize) -> usize {
        self.shards[shard].len() - 1
    }

    // What can happen.

    pub(super) fn choices(&self, scenario: &Scenario) -> Vec<Choice> {
        let mut choices = Vec::new();
        self.choices_of_clients(scenario, &mut choices);
        self.choices_of_homes(scenario, &mut choices);
        for shard in 0..self.shards.len() {
            self.choices_of_shard(scenario, shard, &mut choices);
        }
        for link in self.net.keys() {
            choices.push(Choice::Deliver(*link));
            if self.losses < scenario.losses {
                choices.push(Choice::Lose(*link));
            }
        }
        choices
    }

    fn choices_of_clients(&self, scenario: &Scenario, choices: &mut Vec<Choice>) {
        let current = self.current_home();
        for (index, client) in self.clients.iter().enumerate() {
            if client.home == current && self.can_act(scenario, index) {
                choices.push(Choice::Act(index));
            }
            let waits = matches!(client.state, ClientState::Asked | ClientState::Converting);
            if client.home == current && waits && scenario.cancels {
                choices.push(Choice::Cancel(index));
            }
            if client.home != current {
                match client.state {
                    ClientState::Idle | ClientState::Asked => choices.push(Choice::AskFails(index)),
                    ClientState::Holds | ClientState::Converting => {
                        if self.homes[current].home.phase() == Phase::Grace {
                            choices.push(Choice::Reattach(index));
                        }
                    }
                }
            }
            for home in (0..current).filter(|home| self.homes[*home].table.contains_key(&index)) {
                choices.push(Choice::Abandon(index, home));
            }
        }
    }

    fn can_act(&self, scenario: &Scenario, index: usize) -> bool {
        let client = &self.clients[index];
        let side = &self.homes[client.home];
        if client.round >= scenario.rounds {
            return false;
        }
        let serving = side.home.phase() == Phase::Serving;
        match (&scenario.clients[index][client.next], client.state) {
            (Step::Lock(_), ClientState::Idle) | (Step::Convert(_), ClientState::Holds) => {
                serving && self.table_allows(scenario, client.home, index, client.next)
            }
            (Step::Release, ClientState::Holds) => true,
            _ => false,
        }
    }

    /// The lock table: no other client has something that conflicts.
    fn table_allows(&self, scenario: &Scenario, home: usize, client: usize, step: usize) -> bool {
        let wanted = wants(scenario, client, step);
        let conflicts = |other: usize, step: usize| conflict(wanted, wants(scenario, other, step));
        let others = self.homes[home].table.iter().filter(|(other, _)| **other != client);
        !others.into_iter().any(|(other, steps)| steps.iter().any(|step| conflicts(*other, *step)))
    }

    fn choices_of_homes(&self, scenario: &Scenario, choices: &mut Vec<Choice>) {
        let current = self.current_home();
        if current < scenario.home_takeovers {
            choices.push(Choice::HomeTakeover);
        }
        if self.homes[current].home.waits_for_sessions() {
            choices.push(Choice::SessionsOver);
        }
        if self.can_publish(scenario) {
            choices.push(Choice::PublishMap);
        }
        if self.homes[current].map < self.map {
            choices.push(Choice::LearnMapHome(current));
        }
        for shard in 0..self.shards.len() {
            let owner = ShardEpoch(self.shards[shard].len() as u64);
            if owner > ShardEpoch(1) && self.homes[current].home.owner(shard_no(shard)) < Some(owner) {
                choices.push(Choice::LearnOwner(current, shard));
            }
        }
    }

    /// A map follows when every current owner has the one before, and has stopped what that one stops.
    fn can_publish(&self, scenario: &Scenario) -> bool {
        let is_idle = |shard: usize| {
            let owner = &self.shards[shard][self.current_owner(shard)];
            let stopped = |writer: &usize| scenario.serves(self.map, scenario.writers[*writer].key, shard);
            owner.map == self.map && owner.running.iter().all(stopped)
        };
        self.map < scenario.map_last() && (0..self.shards.len()).all(is_idle)
    }

    fn choices_of_shard(&self, scenario: &Scenario, shard: usize, choices: &mut Vec<Choice>) {
        let takeovers: usize = self.shards.iter().map(|owners| owners.len() - 1).sum();
        if takeovers < scenario.shard_takeovers {
            choices.push(Choice::ShardTakeover(shard));
        }
        let current = self.current_owner(shard);
        for (index, owner) in self.shards[shard].iter().enumerate() {
            if index == current {
                self.choices_of_owner(scenario, (shard, index), owner, choices);
            }
            for writer in 0..scenario.writers.len() {
                if owner.running.contains(&writer) {
                    choices.push(Choice::Finish(writer, shard, index));
                } else if self.commits[writer] < scenario.rounds
                    && self.can_admit(scenario, writer, shard, owner)
                {
                    choices.push(Choice::Admit(writer, shard, index));
                }
            }
        }
    }

    fn choices_of_owner(
        &self,
        scenario: &Scenario,
        (shard, index): (usize, usize),
        owner: &Owner,
        choices: &mut Vec<Choice>,
    ) {
        if owner.member.home() < scenario.home_epoch(self.current_home()) {
            choices.push(Choice::LearnHome(shard, index));
        }
        if owner.map < self.map {
            choices.push(Choice::LearnMapShard(shard, index));
        }
        if owner.broken {
            choices.push(Choice::Reconnect(shard, index));
        }
        if owner.joins >= scenario.joins_max {
            return;
        }
        if !owner.member.has_joined() {
            choices.push(Choice::Join(shard, index));
        }
        let is_outside = owner.member.state() == MemberState::Outside;
        let is_worth_telling = !is_outside || self.homes[self.current_home()].home.phase() == Phase::Grace;
        if !self.stored[shard] && owner.running.is_empty() && is_worth_telling {
            choices.push(Choice::Leave(shard, index));
        }
    }

    fn can_admit(&self, scenario: &Scenario, writer: usize, shard: usize, owner: &Owner) -> bool {
        let Some(operation) = self.operation(scenario, writer, shard, owner) else { return false };
        matches!(owner.member.judge(&operation), Ok(_) | Err(Admission::VerifyTokenAtHome(_)))
    }

    fn operation(
        &self,
        scenario: &Scenario,
        writer: usize,
        shard: usize,
        owner: &Owner,
    ) -> Option<Operation> {
        let Writer { by, key, resources } = &scenario.writers[writer];
        if !scenario.serves(owner.map, *key, shard) {
            return None;
        }
        let home = owner.member.home();
        let caller = match *by {
            By::Anonymous => Caller::Anonymous,
            By::Session => {
                let index = scenario.home_index(home);
                Caller::Owner(home, owner_id(scenario, scenario.clients.len() + writer, index))
            }
            By::Holder(client) => {
                self.clients[client].held?;
                Caller::Tokens(vec![Token(self.clients[client].token)])
            }
        };
        let map = scenario.since(owner.map, *key, shard);
        Some(Operation { id: OperationId(writer as u64), caller, resources: resources.clone(), map })
    }

    // What happens.

    pub(super) fn apply(&mut self, scenario: &Scenario, choice: Choice) -> Checked {
        match choice {
            Choice::Act(client) => self.act(scenario, client)?,
            Choice::Cancel(client) => self.cancel(scenario, client)?,
            Choice::Reattach(client) => self.reattach(scenario, client)?,
            Choice::AskFails(client) => {
                let current = self.current_home();
                let client = &mut self.clients[client];
                (client.state, client.home, client.next) = (ClientState::Idle, current, 0);
            }
            Choice::Abandon(client, home) => self.end_lock(scenario, client, home)?,
            Choice::HomeTakeover => self.home_takeover(scenario),
            Choice::SessionsOver => {
                self.at_home(scenario, self.current_home(), |side| side.home.sessions_over())?;
            }
            Choice::LearnOwner(home, shard) => {
                let epoch = ShardEpoch(self.shards[shard].len() as u64);
                self.at_home(scenario, home, |side| side.home.owner_changed(shard_no(shard), epoch))?;
            }
            Choice::LearnMapHome(home) => {
                let map = self.map;
                self.at_home(scenario, home, |side| {
                    side.map = map;
                    side.home.map_changed(MapEpoch(map), &Covering(scenario, map));
                })?;
            }
            Choice::ShardTakeover(shard) => self.shard_takeover(scenario, shard),
            Choice::LearnHome(shard, owner) => {
                let home = scenario.home_epoch(self.current_home());
                self.owner(shard, owner).member.home_changed(home);
            }
            Choice::LearnMapShard(shard, owner) => {
                let map = self.map;
                self.owner(shard, owner).map = map;
            }
            Choice::Join(shard, owner) => {
                let owner = self.owner(shard, owner);
                owner.joins = owner.joins.saturating_add(1);
                let message = owner.member.join();
                self.send_home([message]);
            }
            Choice::Reconnect(shard, owner) => {
                let owner = self.owner(shard, owner);
                owner.broken = false;
                let message = owner.member.reconnected();
                self.send_home([message]);
            }
            Choice::Leave(shard, owner) => {
                let owner = self.owner(shard, owner);
                owner.joins = owner.joins.saturating_add(1);
                let message = owner.member.leave().expect("nothing is running");
                self.send_home([message]);
            }
            Choice::PublishMap => {
                self.map += 1;
                self.stored.fill(true);
            }
            Choice::Admit(writer, shard, owner) => {
                self.admit(scenario, writer, shard, owner);
            }
            Choice::Finish(writer, shard, owner) => self.finish(scenario, writer, shard, owner)?,
            Choice::Deliver(link) => self.deliver(scenario, link)?,
            Choice::Lose(link) => {
                self.losses += 1;
                self.take(link);
                let (Link::ToHome(_, shard, epoch) | Link::ToShard(_, shard, epoch)) = link;
                self.owner(shard.0 as usize - 1, epoch.0 as usize - 1).broken = true;
            }
        }
        Ok(())
    }

    fn owner(&mut self, shard: usize, owner: usize) -> &mut Owner {
        Rc::make_mut(&mut self.shards[shard][owner])
    }

    /// Does something at a home and carries out what follows.
    fn at_home(&mut self, scenario: &Scenario, home: usize, act: impl FnOnce(&mut HomeSide)) -> Checked {
        let ownership = if home == self.current_home() { Ownership::Fresh } else { Ownership::Stale };
        let side = Rc::make_mut(&mut self.homes[home]);
        act(side);
        let actions = side.home.actions(ownership);
        if ownership == Ownership::Stale {
            // It never becomes fresh again, so this is never sent, and need not be told apart.
            side.home.forget_actions();
        }
        for action in actions {
            match action {
                Action::Send(message) => {
                    let stream = message.stream;
                    let link = Link::ToShard(stream.home, stream.shard, stream.shard_epoch);
                    self.queue(link, Message::ToShard(message));
                }
                Action::Granted { lock, token } => self.granted(scenario, home, lock, token)?,
                Action::Reject(_) => {}
                Action::GraceEnded => self.grace_ended(home),
            }
        }
        Ok(())
    }

    fn queue(&mut self, link: Link, message: Message) {
        Rc::make_mut(self.net.entry(link).or_default()).push_back(message);
    }

    fn send_home(&mut self, messages: impl IntoIterator<Item = MemberMessage>) {
        for message in messages {
            let stream = message.stream;
            let link = Link::ToHome(stream.home, stream.shard, stream.shard_epoch);
            self.queue(link, Message::ToHome(message));
        }
    }

    fn take(&mut self, link: Link) -> Message {
        let queue = Rc::make_mut(self.net.get_mut(&link).expect("the link has messages"));
        let message = queue.pop_front().expect("an empty link is removed");
        if queue.is_empty() {
            self.net.remove(&link);
        }
        message
    }

    fn deliver(&mut self, scenario: &Scenario, link: Link) -> Checked {
        match self.take(link) {
            Message::ToHome(message) => {
                let home = scenario.home_index(message.stream.home);
                self.at_home(scenario, home, |side| side.home.receive(&message))
            }
            Message::ToShard(message) => {
                let shard = message.stream.shard.0 as usize - 1;
                let owner = message.stream.shard_epoch.0 as usize - 1;
                let answers = self.owner(shard, owner).member.receive(message);
                self.send_home(answers);
                Ok(())
            }
        }
    }

    // Clients.

    fn act(&mut self, scenario: &Scenario, index: usize) -> Checked {
        let client = &mut self.clients[index];
        let (step, home) = (client.next, client.home);
        let token = (client.round * 1000 + step * 100 + index * 10 + home + 1) as u64;
        client.next += 1;
        match &scenario.clients[index][step] {
            Step::Lock(_) => {
                client.state = ClientState::Asked;
                self.decide(scenario, index, (step, home), token, Home::decided)
            }
            Step::Convert(_) => {
                client.state = ClientState::Converting;
                self.decide(scenario, index, (step, home), token, Home::converted)
            }
            Step::Release => {
                self.end_lock(scenario, index, home)?;
                self.clients[index].begin_again(home);
                Ok(())
            }
        }
    }

    fn cancel(&mut self, scenario: &Scenario, index: usize) -> Checked {
        let client = &mut self.clients[index];
        let (home, lock) = (client.home, client.lock(index));
        if client.state == ClientState::Asked {
            self.end_lock(scenario, index, home)?;
            self.clients[index].begin_again(home);
            return Ok(());
        }
        client.state = ClientState::Holds;
        self.at_home(scenario, home, |side| {
            side.table.get_mut(&index).expect("it holds a lock").pop();
            side.home.conversion_cancelled(lock);
        })
    }

    fn decide<'a>(
        &mut self,
        scenario: &'a Scenario,
        client: usize,
        (step, home): (usize, usize),
        token: u64,
        event: impl FnOnce(&mut Home, Decision, &Covering<'a>),
    ) -> Checked {
        let lock = self.clients[client].lock(client);
        let owner = owner_id(scenario, client, home);
        let resources = wants(scenario, client, step).to_vec();
        let decision = Decision { lock, owner, token: Token(token), resources };
        self.at_home(scenario, home, |side| {
            side.table.entry(client).or_default().push(step);
            event(&mut side.home, decision, &Covering(scenario, side.map));
        })
    }

    fn end_lock(&mut self, scenario: &Scenario, client: usize, home: usize) -> Checked {
        let lock = self.clients[client].lock(client);
        self.at_home(scenario, home, |side| {
            side.table.remove(&client);
            side.home.released(lock);
        })
    }

    fn reattach(&mut self, scenario: &Scenario, index: usize) -> Checked {
        let current = self.current_home();
        let client = &mut self.clients[index];
        let step = client.held.expect("it holds a lock");
        if client.state == ClientState::Converting {
            client.next -= 1;
        }
        (client.home, client.state) = (current, ClientState::Holds);
        let token = client.token;
        self.decide(scenario, index, (step, current), token, Home::restored)
    }

    fn granted(&mut self, scenario: &Scenario, home: usize, lock: LockId, token: Token) -> Checked {
        let index = (lock.0 % 10) as usize;
        let client = self.clients[index];
        let waits = matches!(client.state, ClientState::Asked | ClientState::Converting);
        if client.home != home || !waits || client.lock(index) != lock {
            return Ok(());
        }
        let step = client.next - 1;
        self.clients[index] =
            Client { state: ClientState::Holds, held: Some(step), token: token.0, ..client };
        let side = Rc::make_mut(&mut self.homes[home]);
        side.table.insert(index, vec![step]);
        let wanted = wants(scenario, index, step);
        for (other, held) in self.clients.iter().enumerate().filter(|(other, _)| *other != index) {
            if held.held.is_some_and(|step| conflict(wanted, wants(scenario, other, step))) {
                return Err(Violation(format!("clients {index} and {other} hold at once")));
            }
        }
        Ok(())
    }

    /// A session that has not come back by now has lost its lock.
    fn grace_ended(&mut self, home: usize) {
        for client in self.clients.iter_mut().filter(|client| client.home < home && client.held.is_some()) {
            client.begin_again(home);
        }
    }

    // Takeovers.

    fn home_takeover(&mut self, scenario: &Scenario) {
        let epoch = scenario.home_epoch(self.homes.len());
        let owner =
            |(shard, owners): (usize, &Vec<Rc<Owner>>)| (shard_no(shard), ShardEpoch(owners.len() as u64));
        let owners = self.shards.iter().enumerate().map(owner).collect();
        let home = Home::takeover(epoch, MapEpoch(self.map), owners);
        self.homes.push(Rc::new(HomeSide { home, map: self.map, table: BTreeMap::new() }));
    }

    fn shard_takeover(&mut self, scenario: &Scenario, shard: usize) {
        let epoch = ShardEpoch(self.shards[shard].len() as u64 + 1);
        let member = Member::new(shard_no(shard), epoch, scenario.home_epoch(self.current_home()));
        let owner = Owner { member, map: self.map, joins: 0, broken: false, running: BTreeSet::new() };
        self.shards[shard].push(Rc::new(owner));
    }

    // Writers.

    fn admit(&mut self, scenario: &Scenario, writer: usize, shard: usize, owner: usize) -> bool {
        let Some(mut operation) = self.operation(scenario, writer, shard, &self.shards[shard][owner]) else {
            return false;
        };
        if let By::Holder(client) = scenario.writers[writer].by
            && let Err(Admission::VerifyTokenAtHome(_)) = self.shards[shard][owner].member.judge(&operation)
        {
            let home = self.clients[client].home;
            if home != self.current_home() || self.homes[home].home.phase() == Phase::Grace {
                return false;
            }
            operation.caller = Caller::Owner(scenario.home_epoch(home), owner_id(scenario, client, home));
        }
        let side = self.owner(shard, owner);
        let is_admitted = side.member.admit(operation) == Admission::Admitted;
        if is_admitted {
            side.running.insert(writer);
        }
        is_admitted
    }

    /// The log takes the operation if its owner is the current one.
    fn finish(&mut self, scenario: &Scenario, writer: usize, shard: usize, owner: usize) -> Checked {
        let side = self.owner(shard, owner);
        side.running.remove(&writer);
        let answers = side.member.finished(OperationId(writer as u64));
        self.send_home(answers);
        if owner != self.current_owner(shard) && !is_planted(Fault::NoFence) {
            return Ok(());
        }
        self.commits[writer] += 1;
        self.stored[shard] = true;
        let Writer { by, resources, .. } = &scenario.writers[writer];
        for (client, holds) in self.clients.iter().enumerate() {
            let is_in_the_way = |step: usize| conflict(resources, wants(scenario, client, step));
            if *by != By::Holder(client) && holds.held.is_some_and(is_in_the_way) {
                return Err(Violation(format!("writer {writer} commits while client {client} holds")));
            }
        }
        Ok(())
    }

    // Everybody is reachable.

    /// Lets everything come to rest that is under way, and demands that nothing waits for ever: clients that ask get their
    /// locks, holders may use them, and when they have released them writers are admitted.
    pub(super) fn check_progress(&self, scenario: &Scenario) -> Checked {
        let mut world = self.clone();
        world.come_to_rest(scenario)?;
        for (index, client) in world.clients.iter().enumerate() {
            if !matches!(client.state, ClientState::Idle | ClientState::Holds) {
                return Err(Violation(format!("client {index} waits for ever")));
            }
        }
        world.expect_admitted(scenario, |by| matches!(by, By::Holder(_)))?;
        for index in 0..world.clients.len() {
            if world.clients[index].state == ClientState::Holds {
                let home = world.clients[index].home;
                world.end_lock(scenario, index, home)?;
                world.clients[index].begin_again(home);
            }
        }
        world.come_to_rest(scenario)?;
        world.expect_admitted(scenario, |by| !matches!(by, By::Holder(_)))
    }

    fn expect_admitted(&mut self, scenario: &Scenario, concerned: impl Fn(By) -> bool) -> Checked {
        for writer in 0..scenario.writers.len() {
            let Writer { by, key, .. } = scenario.writers[writer];
            let is_holder = |client: usize| self.clients[client].held.is_some();
            if !concerned(by) || matches!(by, By::Holder(client) if !is_holder(client)) {
                continue;
            }
            let shard = (0..self.shards.len()).find(|shard| scenario.serves(self.map, key, *shard));
            let Some(shard) = shard else { continue };
            if !self.admit(scenario, writer, shard, self.current_owner(shard)) {
                return Err(Violation(format!("writer {writer} is never admitted")));
            }
            self.finish(scenario, writer, shard, self.current_owner(shard))?;
        }
        Ok(())
    }

    fn come_to_rest(&mut self, scenario: &Scenario) -> Checked {
        while let Some(choice) = self.duty(scenario) {
            self.apply(scenario, choice)?;
        }
        self.check_invariants();
        Ok(())
    }

    pub(super) fn check_invariants(&self) {
        self.homes.iter().for_each(|side| side.home.check_invariants());
        self.shards.iter().flatten().for_each(|owner| owner.member.check_invariants());
    }

    /// Something that is done sooner or later, whatever clients and writers want. Old owners are gone by then.
    fn duty(&self, scenario: &Scenario) -> Option<Choice> {
        if let Some(link) = self.net.keys().next() {
            return Some(Choice::Deliver(*link));
        }
        for (shard, owners) in self.shards.iter().enumerate() {
            let index = owners.len() - 1;
            let owner = &owners[index];
            if let Some(writer) = owner.running.first() {
                return Some(Choice::Finish(*writer, shard, index));
            }
            if owner.map < self.map {
                return Some(Choice::LearnMapShard(shard, index));
            }
            if owner.member.home() < scenario.home_epoch(self.current_home()) {
                return Some(Choice::LearnHome(shard, index));
            }
            if owner.broken {
                return Some(Choice::Reconnect(shard, index));
            }
            // A home that was replaced never answers.
            let is_answered = owner.member.home() == scenario.home_epoch(self.current_home());
            if !owner.member.has_joined() && (is_answered || owner.joins < u8::MAX) {
                return Some(Choice::Join(shard, index));
            }
        }
        let mut choices = Vec::new();
        self.choices_of_clients(scenario, &mut choices);
        self.choices_of_homes(scenario, &mut choices);
        let is_duty = |choice: &Choice| {
            matches!(
                choice,
                Choice::SessionsOver
                    | Choice::LearnMapHome(_)
                    | Choice::LearnOwner(..)
                    | Choice::Reattach(_)
                    | Choice::AskFails(_)
            )
        };
        choices.into_iter().find(is_duty)
    }
}
