//! A cluster in which everything goes wrong that can: calls and answers are late, lost, repeated and out of order,
//! processes pause, crash, restart and run twice, clocks drift, and the database goes away. Knows nothing of what should
//! happen, only of what never may.

use super::database::{Call, Database, Reply, Violation};
use crate::{
    NodeName, Preferences, ShardEpoch, ShardNo, Target,
    ownership::{Action, Event, Hold, Monotonic, Ownership, Policy},
};
use std::collections::BTreeMap;

pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// How the network behaves: percentages, and the longest delay of a slow message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    pub(super) lost: u64,
    pub(super) repeated: u64,
    pub(super) slow: u64,
    pub(super) slow_ms: u64,
}

pub(super) const CALM: Weather = Weather { lost: 0, repeated: 0, slow: 0, slow_ms: 0 };

/// A monotonic clock that runs faster or slower than that of the database.
#[derive(Clone, Copy, Debug)]
struct Clock {
    offset: u64,
    rate_permille: u64,
}

impl Clock {
    fn at(&self, true_ms: u64) -> Monotonic {
        Monotonic(self.offset + true_ms * self.rate_permille / 1_000)
    }

    /// The first moment at which the clock shows `when`.
    fn reaches(&self, when: Monotonic) -> u64 {
        (when.0.saturating_sub(self.offset) * 1_000).div_ceil(self.rate_permille)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Running,
    Paused,
    Dead,
}

/// Index of a process, never reused: a restart is another process.
pub(super) type Pid = usize;

pub(super) struct Process {
    pub(super) name: NodeName,
    pub(super) ownership: Ownership,
    pub(super) life: Life,
    clock: Clock,
    /// Arrived while it was paused.
    inbox: Vec<Reply>,
    stores: BTreeMap<ShardNo, Store>,
}

/// What the shell of a process knows of a shard.
#[derive(Default)]
struct Store {
    applied: u64,
    in_flight: Option<(ShardEpoch, u64)>,
    draining: Option<ShardEpoch>,
}

enum Happening {
    Arrives { from: Pid, call: Call },
    Answered { to: Pid, reply: Reply },
    AppendTimeout { pid: Pid, shard: ShardNo, epoch: ShardEpoch, index: u64 },
    Write { shard: ShardNo },
    Resume { pid: Pid },
    Restart { name: NodeName },
    DatabaseUp,
}

pub(super) struct World {
    pub(super) now: u64,
    pub(super) database: Database,
    pub(super) processes: Vec<Process>,
    pub(super) weather: Weather,
    pub(super) random: Random,
    /// Writes that clients know to be durable, by shard.
    acknowledged: BTreeMap<ShardNo, u64>,
    policy: Policy,
    preferences: Preferences,
    agenda: BTreeMap<(u64, u64), Happening>,
    scheduled: u64,
    database_down: bool,
    /// Bounded, so that machines which wake each other without end are noticed.
    pub(super) steps: u64,
}

impl World {
    pub(super) fn new(seed: u64, nodes: u32, shards: u32, preferences: Preferences) -> World {
        let policy = Policy::default();
        let mut world = World {
            now: 100_000,
            database: Database::new(shards),
            processes: Vec::new(),
            weather: CALM,
            random: Random::new(seed),
            acknowledged: BTreeMap::new(),
            policy,
            preferences,
            agenda: BTreeMap::new(),
            scheduled: 0,
            database_down: false,
            steps: 0,
        };
        (0..nodes).for_each(|node| world.start(name(node)));
        (1..=shards).for_each(|shard| world.schedule(10, Happening::Write { shard: ShardNo(shard) }));
        world
    }

    pub(super) fn run_for(&mut self, ms: u64) -> Result<(), Violation> {
        let end = self.now + ms;
        while let Some(at) = self.next_at().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.steps += 1;
            if self.steps > 1_000_000 {
                return Err("the cluster does not come to rest".to_owned());
            }
            self.happen()?;
            self.tick()?;
        }
        self.now = end;
        self.check()
    }

    fn next_at(&self) -> Option<u64> {
        let agenda = self.agenda.keys().next().map(|(at, _)| *at);
        let running = self.processes.iter().filter(|process| process.life == Life::Running);
        let ticks = running.filter_map(|process| Some(process.clock.reaches(process.ownership.wake_at()?)));
        ticks.chain(agenda).min()
    }

    fn happen(&mut self) -> Result<(), Violation> {
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= self.now) {
            match entry.remove() {
                Happening::Arrives { from, call } => self.arrive(from, &call)?,
                Happening::Answered { to, reply } => self.answer(to, reply)?,
                Happening::AppendTimeout { pid, shard, epoch, index } => {
                    self.append_timeout(pid, shard, epoch, index)?;
                }
                Happening::Write { shard } => self.write(shard),
                Happening::Resume { pid } => self.resume(pid)?,
                Happening::Restart { name } => self.start(name),
                Happening::DatabaseUp => self.database_down = false,
            }
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), Violation> {
        for pid in 0..self.processes.len() {
            let process = &self.processes[pid];
            let due = process.ownership.wake_at().is_some_and(|at| process.clock.reaches(at) <= self.now);
            if process.life == Life::Running && due {
                self.apply(pid, Event::Tick)?;
            }
        }
        Ok(())
    }

    fn arrive(&mut self, from: Pid, call: &Call) -> Result<(), Violation> {
        if self.database_down {
            return Ok(());
        }
        let name = self.processes[from].name.clone();
        let reply = self.database.execute(&name, call, self.now)?;
        if let Some(reply) = reply {
            self.deliver(|reply| Happening::Answered { to: from, reply }, reply);
        }
        self.check()
    }

    fn answer(&mut self, to: Pid, reply: Reply) -> Result<(), Violation> {
        match self.processes[to].life {
            Life::Dead => Ok(()),
            Life::Paused => {
                self.processes[to].inbox.push(reply);
                Ok(())
            }
            Life::Running => self.handle(to, reply),
        }
    }

    fn handle(&mut self, pid: Pid, reply: Reply) -> Result<(), Violation> {
        match reply {
            Reply::Event(event) => self.apply(pid, event),
            Reply::Log { shard, epoch, index } => {
                let process = &mut self.processes[pid];
                if process.ownership.hold(shard).tenure().is_some_and(|tenure| tenure.epoch == epoch) {
                    let applied = &mut process.stores.entry(shard).or_default().applied;
                    *applied = index.max(*applied);
                }
                self.apply(pid, Event::CaughtUp { shard, epoch })
            }
            Reply::Appended { shard, epoch, index } => {
                let store = self.processes[pid].stores.entry(shard).or_default();
                if store.in_flight == Some((epoch, index)) {
                    (store.in_flight, store.applied) = (None, index);
                    let acknowledged = self.acknowledged.entry(shard).or_default();
                    *acknowledged = index.max(*acknowledged);
                    self.drained(pid, shard);
                }
                Ok(())
            }
            Reply::Fenced { shard, epoch, index } => {
                let store = self.processes[pid].stores.entry(shard).or_default();
                if store.in_flight != Some((epoch, index)) {
                    return Ok(());
                }
                store.in_flight = None;
                self.apply(pid, Event::AppendFenced { shard, epoch })
            }
        }
    }

    fn apply(&mut self, pid: Pid, event: Event) -> Result<(), Violation> {
        let process = &mut self.processes[pid];
        let now = process.clock.at(self.now);
        let actions = process.ownership.apply(event, now);
        if process.ownership.wake_at().is_some_and(|at| at <= now) {
            return Err(format!("{} wants to wake in the past", process.name));
        }
        for action in actions {
            self.act(pid, &action);
        }
        self.check()
    }

    fn act(&mut self, pid: Pid, action: &Action) {
        if let Some(call) = Call::of(action) {
            self.deliver(|call| Happening::Arrives { from: pid, call }, call);
        }
        match *action {
            Action::CatchUp { shard, epoch } => {
                self.later(pid, 3_000, Event::CatchUpFailed { shard, epoch });
            }
            Action::StopAdmitting { shard, epoch } => {
                self.processes[pid].stores.entry(shard).or_default().draining = Some(epoch);
                self.drained(pid, shard);
            }
            Action::StepDown { shard, epoch, .. } => {
                self.processes[pid].stores.entry(shard).or_default().in_flight = None;
                let wait = if self.random.chance(10) { 1_000 } else { 20 };
                let wait = self.random.below(wait);
                self.later(pid, wait, Event::SteppedDown { shard, epoch });
            }
            Action::Deregister => self.leave(pid),
            _ => {}
        }
    }

    fn drained(&mut self, pid: Pid, shard: ShardNo) {
        let store = self.processes[pid].stores.entry(shard).or_default();
        if let (Some(epoch), None) = (store.draining, store.in_flight) {
            store.draining = None;
            let wait = self.random.below(30);
            self.later(pid, wait, Event::Drained { shard, epoch });
        }
    }

    /// A process that has deregistered ends, and is started again.
    fn leave(&mut self, pid: Pid) {
        self.processes[pid].life = Life::Dead;
        let (wait, name) = (self.random.below(3_000), self.processes[pid].name.clone());
        self.schedule(wait, Happening::Restart { name });
    }

    /// A client writes on the node that is fresh for the shard.
    fn write(&mut self, shard: ShardNo) {
        let wait = 50 + self.random.below(300);
        self.schedule(wait, Happening::Write { shard });
        let (now, first) = (self.now, self.random.below(self.processes.len() as u64) as usize);
        let pids = (0..self.processes.len()).map(|pid| (pid + first) % self.processes.len());
        let fresh = pids.into_iter().find(|pid| {
            let process = &self.processes[*pid];
            process.life == Life::Running && process.ownership.is_fresh(shard, process.clock.at(now))
        });
        let Some(pid) = fresh else { return };
        let process = &mut self.processes[pid];
        let Hold::Serving(tenure) = *process.ownership.hold(shard) else { return };
        let store = process.stores.entry(shard).or_default();
        if store.in_flight.is_none() {
            let (epoch, index) = (tenure.epoch, store.applied + 1);
            store.in_flight = Some((epoch, index));
            self.deliver(|call| Happening::Arrives { from: pid, call }, Call::Append { shard, epoch, index });
            self.schedule(1_500, Happening::AppendTimeout { pid, shard, epoch, index });
        }
    }

    fn append_timeout(
        &mut self,
        pid: Pid,
        shard: ShardNo,
        epoch: ShardEpoch,
        index: u64,
    ) -> Result<(), Violation> {
        let process = &mut self.processes[pid];
        let store = process.stores.entry(shard).or_default();
        if process.life == Life::Paused {
            self.schedule(500, Happening::AppendTimeout { pid, shard, epoch, index });
            return Ok(());
        }
        if process.life == Life::Dead || store.in_flight != Some((epoch, index)) {
            return Ok(());
        }
        store.in_flight = None;
        self.apply(pid, Event::AppendUnknown { shard, epoch })
    }

    /// What must hold at every moment, also for processes that are paused or run twice.
    pub(super) fn check(&self) -> Result<(), Violation> {
        for (shard, row) in &self.database.shards {
            let fresh = |process: &&Process| {
                process.life != Life::Dead && process.ownership.is_fresh(*shard, process.clock.at(self.now))
            };
            let mut owners = self.processes.iter().filter(fresh);
            let Some(owner) = owners.next() else { continue };
            let name = &owner.name;
            if let Some(other) = owners.next() {
                return Err(format!("shard {shard}: {name} and {} are both fresh", other.name));
            }
            let epoch = owner.ownership.hold(*shard).tenure().map(|tenure| tenure.epoch);
            if epoch != Some(row.epoch) {
                return Err(format!(
                    "shard {shard}: {name} is fresh for {epoch:?}, the row has {}",
                    row.epoch
                ));
            }
            let applied = owner.stores.get(shard).map_or(0, |store| store.applied);
            let acknowledged = self.acknowledged.get(shard).copied().unwrap_or_default();
            if applied < acknowledged {
                return Err(format!("shard {shard}: {name} reads {applied}, acknowledged is {acknowledged}"));
            }
        }
        Ok(())
    }

    fn deliver<T: Clone>(&mut self, happening: impl Fn(T) -> Happening, message: T) {
        let copies = if self.random.chance(self.weather.repeated) { 2 } else { 1 };
        for _ in 0..copies {
            let slow = self.random.chance(self.weather.slow);
            let delay = 1 + self.random.below(if slow { self.weather.slow_ms } else { 10 });
            if !self.random.chance(self.weather.lost) {
                self.schedule(delay, happening(message.clone()));
            }
        }
    }

    fn later(&mut self, pid: Pid, wait: u64, event: Event) {
        self.schedule(wait, Happening::Answered { to: pid, reply: Reply::Event(event) });
    }

    fn schedule(&mut self, wait: u64, happening: Happening) {
        self.scheduled += 1;
        self.agenda.insert((self.now + wait, self.scheduled), happening);
    }

    /// Starts a process, with a clock that is as wrong as the policy allows.
    pub(super) fn start(&mut self, name: NodeName) {
        let drift = self.policy.drift_permille;
        let rate_permille = 1_000 - drift + self.random.below(3) * drift;
        let clock = Clock { offset: self.random.below(1_000_000), rate_permille };
        let ownership = Ownership::new(name.clone(), self.policy, self.preferences.clone()).unwrap();
        let (life, inbox, stores) = (Life::Running, Vec::new(), BTreeMap::new());
        self.processes.push(Process { name, ownership, life, clock, inbox, stores });
    }

    pub(super) fn running(&self) -> Vec<Pid> {
        (0..self.processes.len()).filter(|pid| self.processes[*pid].life == Life::Running).collect()
    }

    pub(super) fn pause(&mut self, pid: Pid, ms: u64) {
        self.processes[pid].life = Life::Paused;
        self.schedule(ms, Happening::Resume { pid });
    }

    /// Handles what arrived meanwhile, in order, at the time of now.
    pub(super) fn resume(&mut self, pid: Pid) -> Result<(), Violation> {
        if self.processes[pid].life != Life::Paused {
            return Ok(());
        }
        self.processes[pid].life = Life::Running;
        for reply in std::mem::take(&mut self.processes[pid].inbox) {
            self.answer(pid, reply)?;
        }
        Ok(())
    }

    pub(super) fn crash(&mut self, pid: Pid) {
        self.processes[pid].life = Life::Dead;
    }

    pub(super) fn restart_in(&mut self, pid: Pid, ms: u64) {
        let name = self.processes[pid].name.clone();
        self.schedule(ms, Happening::Restart { name });
    }

    pub(super) fn stop(&mut self, pid: Pid) -> Result<(), Violation> {
        self.apply(pid, Event::Stop)
    }

    pub(super) fn database_down_for(&mut self, ms: u64) {
        self.database_down = true;
        self.schedule(ms, Happening::DatabaseUp);
    }

    /// A row changed by an operator; nodes are notified.
    pub(super) fn pin(&mut self, shard: ShardNo, target: Target) -> Result<(), Violation> {
        self.database.shards.get_mut(&shard).unwrap().target = target;
        self.hint()
    }

    pub(super) fn hint(&mut self) -> Result<(), Violation> {
        self.running().into_iter().try_for_each(|pid| self.apply(pid, Event::Hint))
    }

    /// One random misfortune.
    pub(super) fn misfortune(&mut self) -> Result<(), Violation> {
        let running = self.running();
        if running.is_empty() {
            return Ok(());
        }
        let pid = running[self.random.below(running.len() as u64) as usize];
        let ms = self.random.below(8_000);
        let shard = ShardNo(1 + self.random.below(self.database.shards.len() as u64) as u32);
        match self.random.below(10) {
            0 | 1 => self.pause(pid, ms),
            2 => {
                self.crash(pid);
                self.restart_in(pid, ms);
            }
            3 => {
                self.pause(pid, ms);
                let again = self.random.below(4_000);
                self.restart_in(pid, again);
            }
            4 => self.database_down_for(ms),
            5 => self.stop(pid)?,
            6 => self.pin(shard, Target::Pinned(self.processes[pid].name.clone()))?,
            7 => self.pin(shard, Target::Any)?,
            8 => self.database.ahead_ms += ms as i64 - 4_000,
            9 => {
                let tenure = self.processes[pid].ownership.hold(shard).tenure().copied();
                if let Some(tenure) = tenure {
                    self.apply(pid, Event::Reopen { shard, epoch: tenure.epoch })?;
                }
            }
            _ => {
                let row = self.database.nodes.entry(self.processes[pid].name.clone()).or_default();
                row.drains = !row.drains;
            }
        }
        Ok(())
    }

    /// Ends all misfortunes: one running process for each name, a reachable database, a fast network.
    pub(super) fn heal(&mut self, names: &[NodeName]) -> Result<(), Violation> {
        self.weather = CALM;
        self.database_down = false;
        self.agenda.retain(|_, happening| !matches!(happening, Happening::Restart { .. }));
        for name in names {
            let alive = |process: &Process| process.name == *name && process.life != Life::Dead;
            let last = self.processes.iter().rposition(alive);
            for pid in 0..self.processes.len() {
                if self.processes[pid].name == *name && Some(pid) != last {
                    self.crash(pid);
                }
            }
            match last {
                Some(pid) => self.resume(pid)?,
                None => self.start(name.clone()),
            }
        }
        self.database.nodes.values_mut().for_each(|row| row.drains = false);
        self.database.shards.values_mut().for_each(|row| row.target = Target::Any);
        Ok(())
    }

    /// The process that is fresh for a shard now.
    pub(super) fn owner(&self, shard: ShardNo) -> Option<Pid> {
        let fresh = |process: &Process| process.ownership.is_fresh(shard, process.clock.at(self.now));
        (0..self.processes.len())
            .find(|pid| self.processes[*pid].life == Life::Running && fresh(&self.processes[*pid]))
    }

    pub(super) fn is_served(&self) -> bool {
        self.database.shards.keys().all(|shard| self.owner(*shard).is_some())
    }

    pub(super) fn owners(&self) -> Vec<Option<NodeName>> {
        self.database.shards.values().map(|row| row.owner.clone()).collect()
    }

    pub(super) fn epochs(&self) -> Vec<ShardEpoch> {
        self.database.shards.values().map(|row| row.epoch).collect()
    }
}

pub(super) fn name(node: u32) -> NodeName {
    NodeName::from(format!("n{}", node + 1).as_str())
}
