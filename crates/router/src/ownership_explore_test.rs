//! Every schedule of two nodes and one shard within a short time and a small budget of misfortunes: calls and answers held
//! back or repeated at any point, pauses, a second process with the same name, appends, a stop, a move. Time advances
//! in steps; within a step messages arrive in any order.

use crate::{
    NodeName, Preferences, ShardEpoch, ShardNo, Target,
    ownership::{Action, Backoff, Event, Hold, Monotonic, Ownership, Policy},
    ownership_model_test::database::{Call, Database, Reply, Violation},
    planted::{Fault, plant},
};
use std::{collections::HashSet, hash::Hash, rc::Rc};
use xxhash_rust::xxh3::Xxh3Default;

const SHARD: ShardNo = ShardNo(1);
const STEP_MS: u64 = 5;
/// More than the time after which an ownership is stale.
const CLOCK_STEP_MS: i64 = 100;

/// The usual proportions, with a drift that is visible in such a short time.
const POLICY: Policy = Policy {
    renew_every_ms: 20,
    stale_after_ms: 60,
    drift_permille: 100,
    margin_ms: 2,
    call_timeout_ms: 20,
    follower_claim_delay_ms: 0,
    other_claim_delay_ms: 5,
    claim_jitter_ms: 0,
    handoff_wait_ms: 20,
    outage_grace_ms: 10,
    drain_timeout_ms: 20,
    hint_gap_ms: 5,
    moves_at_once: 1,
    backoff: Backoff { first_ms: 5, max_ms: 20 },
};

/// Misfortunes and commands that may still come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Budget {
    /// Messages that arrive later than in the step in which they were sent, or never.
    held: u8,
    repeated: u8,
    pauses: u8,
    /// Starts of another process with the name of the first.
    doubles: u8,
    appends: u8,
    /// Appends whose outcome the node does not wait for.
    unknown: u8,
    stops: u8,
    moves: u8,
    /// Steps of the database's clock, forward or back.
    clock_steps: u8,
    /// Tenures that are to begin anew.
    reopens: u8,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Process {
    name: NodeName,
    ownership: Rc<Ownership>,
    rate_permille: u64,
    paused: bool,
    applied: u64,
    in_flight: Option<(ShardEpoch, u64)>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Message {
    Call(Rc<Call>),
    Reply(Rc<Reply>),
}

/// A message of or to a process, on its way.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Envelope {
    process: usize,
    message: Message,
    /// Does not have to arrive before time advances.
    held: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    now: u64,
    until: u64,
    processes: Vec<Process>,
    database: Rc<Database>,
    in_transit: Vec<Envelope>,
    acknowledged: u64,
    budget: Budget,
}

type Next = Result<World, Violation>;

impl World {
    /// The first node serves, and both have just renewed.
    fn new(budget: Budget, steps: u64) -> World {
        let process = |name, rate_permille| Process {
            name: NodeName::from(name),
            ownership: Rc::new(Ownership::new(NodeName::from(name), POLICY, Preferences::default()).unwrap()),
            rate_permille,
            paused: false,
            applied: 0,
            in_flight: None,
        };
        let processes = vec![process("a", 900), process("b", 1_000)];
        let database = Rc::new(Database::new(1));
        let mut world = World {
            now: 1_000,
            until: 0,
            processes,
            database,
            in_transit: Vec::new(),
            acknowledged: 0,
            budget: Budget::default(),
        };
        while !world.is_fresh(0) || !world.now.is_multiple_of(POLICY.renew_every_ms) {
            world = world.advanced().unwrap();
            while let Some(index) = (0..world.in_transit.len()).next() {
                world = world.arrived(index, false).unwrap();
            }
        }
        World { until: world.now + steps * STEP_MS, budget, ..world }
    }

    /// The worlds that can come next.
    fn next(&self) -> Vec<Next> {
        let mut worlds = Vec::new();
        for index in 0..self.in_transit.len() {
            self.delivery_moves(index, &mut worlds);
        }
        if self.in_transit.iter().all(|envelope| self.may_wait(envelope)) && self.now < self.until {
            worlds.push(self.advanced());
        }
        for process in 0..self.processes.len() {
            self.process_moves(process, &mut worlds);
        }
        if self.budget.moves > 0 {
            let mut world = self.clone();
            world.budget.moves -= 1;
            let target = Target::Pinned(self.processes[1].name.clone());
            Rc::make_mut(&mut world.database).shards.get_mut(&SHARD).unwrap().target = target;
            worlds.push(Ok(world));
        }
        if self.budget.clock_steps > 0 {
            worlds.extend([1, -1].map(|direction| {
                self.with(|world| {
                    world.budget.clock_steps -= 1;
                    Rc::make_mut(&mut world.database).ahead_ms += direction * CLOCK_STEP_MS;
                    Ok(())
                })
            }));
        }
        worlds
    }

    fn may_wait(&self, envelope: &Envelope) -> bool {
        let unread = matches!(envelope.message, Message::Reply(_)) && self.processes[envelope.process].paused;
        envelope.held || unread
    }

    fn delivery_moves(&self, index: usize, worlds: &mut Vec<Next>) {
        let envelope = &self.in_transit[index];
        if self.in_transit[..index].contains(envelope) {
            return;
        }
        let paused = matches!(envelope.message, Message::Reply(_)) && self.processes[envelope.process].paused;
        if !paused {
            worlds.push(self.arrived(index, false));
        }
        if !paused && self.budget.repeated > 0 {
            let mut world = self.clone();
            world.budget.repeated -= 1;
            worlds.push(world.arrived(index, true));
        }
        if !envelope.held && self.budget.held > 0 {
            let mut world = self.clone();
            world.budget.held -= 1;
            world.in_transit[index].held = true;
            worlds.push(Ok(world));
        }
    }

    fn process_moves(&self, index: usize, worlds: &mut Vec<Next>) {
        let process = &self.processes[index];
        let budget = &self.budget;
        if process.paused {
            worlds.push(self.with(|world| {
                world.processes[index].paused = false;
                world.tick(index)
            }));
            return;
        }
        if budget.pauses > 0 {
            worlds.push(self.with(|world| {
                (world.budget.pauses, world.processes[index].paused) = (budget.pauses - 1, true);
                Ok(())
            }));
        }
        if budget.doubles > 0 && index == 0 {
            worlds.push(self.with(|world| world.start_double()));
        }
        if budget.appends > 0 && self.is_fresh(index) && process.in_flight.is_none() {
            worlds.push(self.with(|world| world.append(index)));
        }
        if let Some((epoch, _)) = process.in_flight.filter(|_| budget.unknown > 0) {
            worlds.push(self.with(|world| {
                world.budget.unknown -= 1;
                world.processes[index].in_flight = None;
                world.apply(index, Event::AppendUnknown { shard: SHARD, epoch })
            }));
        }
        if let Hold::Serving(tenure) = *process.ownership.hold(SHARD)
            && budget.reopens > 0
        {
            worlds.push(self.with(|world| {
                world.budget.reopens -= 1;
                world.apply(index, Event::Reopen { shard: SHARD, epoch: tenure.epoch })
            }));
        }
        if budget.stops > 0 && index == 0 {
            worlds.push(self.with(|world| {
                world.budget.stops -= 1;
                world.apply(index, Event::Stop)
            }));
        }
    }

    fn with(&self, change: impl FnOnce(&mut World) -> Result<(), Violation>) -> Next {
        let mut world = self.clone();
        change(&mut world)?;
        world.check()?;
        Ok(world)
    }

    /// The old process keeps running, or pauses at a later point.
    fn start_double(&mut self) -> Result<(), Violation> {
        self.budget.doubles -= 1;
        let (name, rate_permille) = (self.processes[0].name.clone(), 1_000);
        let ownership = Rc::new(Ownership::new(name.clone(), POLICY, Preferences::default()).unwrap());
        let (paused, applied, in_flight) = (false, 0, None);
        self.processes.push(Process { name, ownership, rate_permille, paused, applied, in_flight });
        self.tick(self.processes.len() - 1)
    }

    fn append(&mut self, index: usize) -> Result<(), Violation> {
        self.budget.appends -= 1;
        let process = &mut self.processes[index];
        let Hold::Serving(tenure) = *process.ownership.hold(SHARD) else { return Ok(()) };
        let (epoch, next) = (tenure.epoch, process.applied + 1);
        process.in_flight = Some((epoch, next));
        self.send(index, Message::Call(Rc::new(Call::Append { shard: SHARD, epoch, index: next })));
        Ok(())
    }

    /// Time advances; running processes tick.
    fn advanced(&self) -> Next {
        self.with(|world| {
            world.now += STEP_MS;
            world.check()?;
            (0..world.processes.len()).try_for_each(|index| world.tick(index))
        })
    }

    fn tick(&mut self, index: usize) -> Result<(), Violation> {
        let process = &self.processes[index];
        let due = process.ownership.wake_at().is_some_and(|at| at <= self.clock(index));
        if due && !process.paused { self.apply(index, Event::Tick) } else { Ok(()) }
    }

    fn arrived(&self, index: usize, again: bool) -> Next {
        self.with(|world| {
            let envelope = world.in_transit[index].clone();
            if again {
                world.in_transit[index].held = true;
            } else {
                world.in_transit.remove(index);
            }
            match envelope.message {
                Message::Call(call) => {
                    let name = &world.processes[envelope.process].name;
                    let reply = Rc::make_mut(&mut world.database).execute(name, &call, world.now)?;
                    if let Some(reply) = reply {
                        world.send(envelope.process, Message::Reply(Rc::new(reply)));
                    }
                    Ok(())
                }
                Message::Reply(reply) => world.handle(envelope.process, &reply),
            }
        })
    }

    fn handle(&mut self, index: usize, reply: &Reply) -> Result<(), Violation> {
        let process = &mut self.processes[index];
        match *reply {
            Reply::Event(ref event) => self.apply(index, event.clone()),
            Reply::Log { shard, epoch, index: last } => {
                if process.ownership.hold(shard).tenure().is_some_and(|tenure| tenure.epoch == epoch) {
                    process.applied = last.max(process.applied);
                }
                self.apply(index, Event::CaughtUp { shard, epoch })
            }
            Reply::Appended { epoch, index: last, .. } => {
                if process.in_flight == Some((epoch, last)) {
                    (process.in_flight, process.applied) = (None, last);
                    self.acknowledged = self.acknowledged.max(last);
                }
                Ok(())
            }
            Reply::Fenced { shard, epoch, index: last } => {
                if process.in_flight != Some((epoch, last)) {
                    return Ok(());
                }
                process.in_flight = None;
                self.apply(index, Event::AppendFenced { shard, epoch })
            }
        }
    }

    fn apply(&mut self, index: usize, event: Event) -> Result<(), Violation> {
        let now = self.clock(index);
        let actions = Rc::make_mut(&mut self.processes[index].ownership).apply(event, now);
        for action in actions {
            let local = match action {
                Action::StopAdmitting { shard, epoch } => Some(Event::Drained { shard, epoch }),
                Action::StepDown { shard, epoch, .. } => {
                    self.processes[index].in_flight = None;
                    Some(Event::SteppedDown { shard, epoch })
                }
                _ => None,
            };
            let call = Call::of(&action).map(|call| Message::Call(Rc::new(call)));
            let local = local.map(|event| Message::Reply(Rc::new(Reply::Event(event))));
            call.into_iter().chain(local).for_each(|message| self.send(index, message));
        }
        self.check()
    }

    fn send(&mut self, process: usize, message: Message) {
        self.in_transit.push(Envelope { process, message, held: false });
    }

    fn clock(&self, index: usize) -> Monotonic {
        Monotonic(self.now * self.processes[index].rate_permille / 1_000)
    }

    fn is_fresh(&self, index: usize) -> bool {
        self.processes[index].ownership.is_fresh(SHARD, self.clock(index))
    }

    fn check(&self) -> Result<(), Violation> {
        let mut fresh = (0..self.processes.len()).filter(|index| self.is_fresh(*index));
        let Some(owner) = fresh.next() else { return Ok(()) };
        if let Some(other) = fresh.next() {
            return Err(format!("processes {owner} and {other} are both fresh"));
        }
        let process = &self.processes[owner];
        let row = &self.database.shards[&SHARD];
        let epoch = process.ownership.hold(SHARD).tenure().map(|tenure| tenure.epoch);
        if epoch != Some(row.epoch) {
            return Err(format!("process {owner} is fresh for {epoch:?}, the row has {}", row.epoch));
        }
        if process.applied < self.acknowledged {
            return Err(format!("process {owner} reads {}, not {}", process.applied, self.acknowledged));
        }
        Ok(())
    }
}

/// Visits every world that can be reached; answers how many there are.
fn explore(start: World) -> Result<usize, Violation> {
    let mut known = HashSet::from([key(&start)]);
    let mut open = vec![start];
    while let Some(world) = open.pop() {
        for next in world.next() {
            let next = next?;
            if known.insert(key(&next)) {
                open.push(next);
            }
        }
    }
    Ok(known.len())
}

/// Tells any two worlds apart.
fn key(world: &impl Hash) -> u128 {
    let mut hasher = Xxh3Default::new();
    world.hash(&mut hasher);
    hasher.digest128()
}

const NONE: Budget = Budget {
    held: 0,
    repeated: 0,
    pauses: 0,
    doubles: 0,
    appends: 0,
    unknown: 0,
    stops: 0,
    moves: 0,
    clock_steps: 0,
    reopens: 0,
};

/// Long enough for a takeover.
const STEPS: u64 = 22;
/// Long enough for one that begins when a renewal is seen as soon as it is made, which the clocks of the two nodes allow every
/// 100 ms.
const LONG_STEPS: u64 = 40;

/// `LOCKWOOD_MODEL_HELD` lets so many more messages be held back.
#[track_caller]
fn check_safe(budget: Budget) {
    let more = std::env::var("LOCKWOOD_MODEL_HELD").ok().map_or(0, |text| text.parse().expect("a number"));
    let budget = Budget { held: budget.held + more, ..budget };
    match explore(World::new(budget, STEPS)) {
        Ok(worlds) => println!("{budget:?}: {worlds} worlds"),
        Err(violation) => panic!("{budget:?}: {violation}"),
    }
}

#[test]
fn late_messages_are_safe() {
    check_safe(Budget { held: 2, ..NONE });
}

#[test]
fn pauses_are_safe() {
    check_safe(Budget { pauses: 1, ..NONE });
}

#[test]
fn appends_are_safe() {
    check_safe(Budget { held: 1, appends: 1, ..NONE });
    check_safe(Budget { pauses: 1, appends: 1, ..NONE });
}

#[test]
fn unknown_appends_are_safe() {
    check_safe(Budget { held: 1, appends: 1, unknown: 1, ..NONE });
}

#[test]
fn stops_are_safe() {
    check_safe(Budget { stops: 1, ..NONE });
}

#[test]
fn tenures_that_begin_anew_are_safe() {
    check_safe(Budget { held: 1, reopens: 1, ..NONE });
    check_safe(Budget { appends: 1, reopens: 1, ..NONE });
    check_safe(Budget { reopens: 1, stops: 1, ..NONE });
    check_safe(Budget { reopens: 1, moves: 1, ..NONE });
}

#[test]
fn moves_are_safe() {
    check_safe(Budget { held: 1, moves: 1, ..NONE });
    check_safe(Budget { repeated: 1, moves: 1, ..NONE });
}

#[test]
fn two_processes_with_one_name_are_safe() {
    check_safe(Budget { pauses: 1, doubles: 1, ..NONE });
}

#[test]
fn steps_of_the_databases_clock_are_safe() {
    check_safe(Budget { clock_steps: 1, held: 1, ..NONE });
    check_safe(Budget { clock_steps: 1, pauses: 1, ..NONE });
}

#[track_caller]
fn check_found(fault: Fault, budget: Budget) {
    plant(Some(fault));
    let found = explore(World::new(budget, LONG_STEPS));
    plant(None);
    println!("{fault:?}: {}", found.expect_err("the fault is not found"));
}

#[test]
fn schedules_find_freshness_from_the_answer() {
    check_found(Fault::FreshFromAnswer, Budget { pauses: 1, ..NONE });
}

#[test]
fn schedules_find_a_missing_margin() {
    check_found(Fault::NoMargin, Budget { pauses: 1, ..NONE });
}

#[test]
fn schedules_find_claims_of_fresh_shards() {
    check_found(Fault::ClaimFresh, Budget { held: 3, ..NONE });
}

#[test]
fn schedules_find_that_the_databases_clock_is_trusted() {
    check_found(Fault::DatabaseClock, Budget { clock_steps: 1, ..NONE });
}

#[test]
fn schedules_find_service_before_the_catch_up() {
    check_found(Fault::ServeBeforeCatchUp, Budget { appends: 1, moves: 1, ..NONE });
}

#[test]
fn schedules_find_a_revived_epoch() {
    check_found(Fault::ReviveLowerEpoch, Budget { pauses: 1, doubles: 1, ..NONE });
}

#[test]
fn schedules_find_a_claim_by_name() {
    check_found(Fault::ClaimByName, Budget { doubles: 1, ..NONE });
}

#[test]
fn schedules_find_a_release_undone_by_a_renewal() {
    check_found(Fault::RenewalUndoesRelease, Budget { held: 1, stops: 1, ..NONE });
}

#[test]
fn schedules_find_a_late_claim_that_counts() {
    check_found(Fault::LateClaimCounts, Budget { held: 1, repeated: 1, pauses: 1, moves: 1, ..NONE });
}

#[test]
fn schedules_find_unguarded_appends() {
    check_found(Fault::AppendUnguarded, Budget { held: 1, appends: 1, moves: 1, ..NONE });
}

#[test]
fn schedules_find_a_renewal_that_did_not_name_the_shard() {
    check_found(Fault::SameMillisecond, Budget { held: 1, appends: 1, unknown: 1, ..NONE });
}
