//! Every order in which things can happen in small scenarios, over the real state machines: no operation of another owner
//! commits while a client holds, and nothing waits for ever. With any omission planted some order is wrong.

use super::{
    HomeEpoch,
    fault::{Fault, plant},
    scenario_test::{By, Scenario, Step, Writer, resources},
    world_test::{Choice, Link, Violation, World},
};
use crate::{ShardEpoch, ShardNo};
use std::{
    collections::{HashMap, VecDeque},
    hash::{Hash, Hasher},
};
use xxhash_rust::xxh3::xxh3_128;

/// What an exploration came to.
#[derive(Debug)]
struct Found {
    states: usize,
    with_holder: usize,
    after_commit: usize,
    violation: Option<(Violation, Vec<Choice>)>,
}

/// Breadth first, so that the first violation is one of the shortest.
fn explore(scenario: &Scenario, progress: bool, states_max: usize) -> Found {
    let start = World::new(scenario);
    let mut known: HashMap<u128, u32> = HashMap::from([(digest(&start), 0)]);
    let mut origins: Vec<Option<(u32, Choice)>> = vec![None];
    let mut queue = VecDeque::from([(0, start)]);
    let mut found = Found { states: 0, with_holder: 0, after_commit: 0, violation: None };
    while let Some((index, world)) = queue.pop_front() {
        found.states += 1;
        if found.states > states_max {
            return found;
        }
        found.with_holder += usize::from(world.holders() > 0);
        found.after_commit += usize::from(world.committed() > 0);
        if progress
            && world.messages() == 0
            && let Err(violation) = world.check_progress(scenario)
        {
            found.violation = Some((violation, path(&origins, index)));
            return found;
        }
        for choice in world.choices(scenario) {
            let mut next = world.clone();
            if let Err(violation) = next.apply(scenario, choice) {
                let mut path = path(&origins, index);
                path.push(choice);
                found.violation = Some((violation, path));
                return found;
            }
            if next.messages() > scenario.net_max {
                continue;
            }
            let len = origins.len() as u32;
            if *known.entry(digest(&next)).or_insert(len) == len {
                origins.push(Some((index, choice)));
                queue.push_back((len, next));
            }
        }
    }
    found
}

fn digest(world: &World) -> u128 {
    let mut written = Written(Vec::with_capacity(4096));
    world.hash(&mut written);
    xxh3_128(&written.0)
}

/// What is hashed, to be digested at once.
struct Written(Vec<u8>);

impl Hasher for Written {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("only the digest of all counts")
    }
}

fn path(origins: &[Option<(u32, Choice)>], mut index: u32) -> Vec<Choice> {
    let mut path = Vec::new();
    while let Some((before, choice)) = origins[index as usize] {
        path.push(choice);
        index = before;
    }
    path.reverse();
    path
}

fn writer(by: By, key: usize, texts: &[&str]) -> Writer {
    Writer { by, key, resources: resources(texts) }
}

/// One lock, one writer, one takeover each of home and shard.
fn one_lock() -> Scenario {
    Scenario {
        shards: 1,
        maps: vec![vec![0]],
        clients: vec![vec![Step::Lock(resources(&["write k/0"])), Step::Release]],
        writers: vec![writer(By::Anonymous, 0, &["write k/0/f"])],
        rounds: 1,
        home_takeovers: 1,
        homes_move: false,
        shard_takeovers: 1,
        joins_max: 2,
        net_max: 4,
        losses: 0,
        cancels: false,
    }
}

/// Two shards under one lock.
fn two_shards() -> Scenario {
    Scenario {
        shards: 2,
        maps: vec![vec![0, 1]],
        clients: vec![vec![Step::Lock(resources(&["write k"])), Step::Release]],
        writers: vec![writer(By::Anonymous, 1, &["write k/1", "link k"])],
        shard_takeovers: 0,
        net_max: 3,
        ..one_lock()
    }
}

/// Two homes after another, each with its grace.
fn two_takeovers() -> Scenario {
    Scenario { home_takeovers: 2, shard_takeovers: 0, joins_max: 3, ..one_lock() }
}

/// The home moves to a shard whose owner has a lower epoch, and a shard is taken over.
fn moving_home() -> Scenario {
    Scenario { homes_move: true, ..one_lock() }
}

/// The home moves twice.
fn home_moving_twice() -> Scenario {
    Scenario { homes_move: true, ..two_takeovers() }
}

/// A lock that becomes stronger and weaker, a reader that the stronger one keeps out, and a writer.
fn conversions() -> Scenario {
    let steps = vec![
        Step::Lock(resources(&["read k/0"])),
        Step::Convert(resources(&["write k/0"])),
        Step::Convert(resources(&["read k/0"])),
        Step::Release,
    ];
    Scenario {
        clients: vec![steps],
        writers: vec![writer(By::Anonymous, 0, &["read k/0/f"]), writer(By::Anonymous, 0, &["write k/0"])],
        shard_takeovers: 0,
        cancels: true,
        ..one_lock()
    }
}

/// A lock that becomes stronger while the home is taken over.
fn upgrade() -> Scenario {
    let steps =
        vec![Step::Lock(resources(&["read k/0"])), Step::Convert(resources(&["write k/0"])), Step::Release];
    let writers = vec![writer(By::Anonymous, 0, &["read k/0/f"])];
    Scenario { clients: vec![steps], writers, shard_takeovers: 0, ..one_lock() }
}

/// A lock that becomes weaker while the home is taken over.
fn downgrade() -> Scenario {
    let steps =
        vec![Step::Lock(resources(&["write k/0"])), Step::Convert(resources(&["read k/0"])), Step::Release];
    let writers = vec![writer(By::Anonymous, 0, &["write k/0/f"])];
    Scenario { clients: vec![steps], writers, shard_takeovers: 0, ..one_lock() }
}

/// Two clients that want the same, and a writer with a session.
fn two_locks() -> Scenario {
    let steps = vec![Step::Lock(resources(&["write k/0"])), Step::Release];
    Scenario {
        clients: vec![steps.clone(), steps],
        writers: vec![writer(By::Session, 0, &["write k/0"])],
        shard_takeovers: 0,
        ..one_lock()
    }
}

/// Two writers at a time, one of them with the client's own token.
fn two_writers() -> Scenario {
    let writers = vec![
        writer(By::Anonymous, 0, &["write k/0/f"]),
        writer(By::Anonymous, 0, &["read k/0/g"]),
        writer(By::Holder(0), 0, &["write k/0"]),
    ];
    Scenario { writers, shard_takeovers: 0, ..one_lock() }
}

/// Messages are lost, and members join again.
fn losses() -> Scenario {
    let steps =
        vec![Step::Lock(resources(&["write k/0"])), Step::Convert(resources(&["read k/0"])), Step::Release];
    Scenario {
        clients: vec![steps],
        writers: vec![writer(By::Anonymous, 0, &["write k/0"])],
        home_takeovers: 0,
        shard_takeovers: 0,
        joins_max: 3,
        losses: 2,
        ..one_lock()
    }
}

/// The key moves from one shard to another.
fn moving_key() -> Scenario {
    Scenario {
        shards: 2,
        maps: vec![vec![0], vec![1]],
        home_takeovers: 0,
        shard_takeovers: 0,
        joins_max: 1,
        ..one_lock()
    }
}

/// Above this a scenario is too large to be explored with the tests.
const STATES_MAX: usize = 400_000;

#[track_caller]
fn nothing_bad(name: &str, scenario: &Scenario) {
    let found = explore(scenario, true, STATES_MAX);
    let Found { states, with_holder, after_commit, violation } = found;
    if let Some((violation, path)) = violation {
        panic!("{name}: {} after {states} states\n{path:#?}", violation.0);
    }
    println!("{name}: {states} states, {with_holder} with a holder, {after_commit} after a commit, none bad");
    assert!(states <= STATES_MAX, "{name}: too many states");
}

#[track_caller]
fn noticed(fault: Fault, scenario: &Scenario) {
    plant(Some(fault));
    let found = explore(scenario, true, STATES_MAX);
    plant(None);
    let states = found.states;
    let (violation, path) =
        found.violation.unwrap_or_else(|| panic!("{fault:?} goes unnoticed in {states} states"));
    println!("{fault:?}: {} after {states} states: {path:?}", violation.0);
}

#[test]
fn one_lock_is_enforced() {
    nothing_bad("one lock", &one_lock());
}

#[test]
fn one_lock_over_two_shards_is_enforced() {
    nothing_bad("two shards", &two_shards());
}

#[test]
fn two_takeovers_of_the_home_are_survived() {
    nothing_bad("two takeovers of the home", &two_takeovers());
}

#[test]
fn moves_of_the_home_are_survived() {
    nothing_bad("moving home", &moving_home());
    nothing_bad("home moving twice", &home_moving_twice());
}

#[test]
fn bare_home_is_noticed() {
    noticed(Fault::BareHome, &moving_home());
}

#[test]
fn conversions_are_enforced() {
    nothing_bad("conversions", &conversions());
}

#[test]
fn upgrade_is_enforced_over_a_takeover() {
    nothing_bad("upgrade", &upgrade());
}

#[test]
fn downgrade_is_enforced_over_a_takeover() {
    nothing_bad("downgrade", &downgrade());
}

#[test]
fn two_locks_are_enforced() {
    nothing_bad("two locks", &two_locks());
}

#[test]
fn two_writers_are_kept_out() {
    nothing_bad("two writers", &two_writers());
}

#[test]
fn lost_messages_are_noticed() {
    nothing_bad("losses", &losses());
}

#[test]
fn arriving_keys_are_guarded() {
    nothing_bad("moving key", &moving_key());
}

#[test]
fn bare_ack_is_noticed() {
    noticed(Fault::BareAck, &one_lock());
}

#[test]
fn early_ack_is_noticed() {
    noticed(Fault::EarlyAck, &one_lock());
}

#[test]
fn no_join_is_noticed() {
    noticed(Fault::NoJoin, &one_lock());
}

#[test]
fn no_ask_is_noticed() {
    noticed(Fault::NoAsk, &one_lock());
}

#[test]
fn drop_in_grace_is_noticed() {
    noticed(Fault::DropInGrace, &one_lock());
}

#[test]
fn serve_in_grace_is_noticed() {
    noticed(Fault::ServeInGrace, &one_lock());
}

#[test]
fn zombie_home_is_noticed() {
    noticed(Fault::ZombieHome, &Scenario { shard_takeovers: 0, ..one_lock() });
}

#[test]
fn stale_lift_is_noticed() {
    noticed(Fault::StaleLift, &one_lock());
}

#[test]
fn no_fence_is_noticed() {
    noticed(Fault::NoFence, &one_lock());
}

#[test]
fn bare_owner_is_noticed() {
    noticed(Fault::BareOwner, &two_locks());
}

#[test]
fn ignored_gaps_are_noticed() {
    noticed(Fault::IgnoreGaps, &losses());
}

#[test]
fn open_while_draining_is_noticed() {
    noticed(Fault::OpenWhileDraining, &two_writers());
}

#[test]
fn upgrade_at_once_is_noticed() {
    noticed(Fault::UpgradeAtOnce, &conversions());
}

#[test]
fn lift_first_is_noticed() {
    noticed(Fault::LiftFirst, &conversions());
}

#[test]
fn ignored_map_is_noticed() {
    noticed(Fault::IgnoreMap, &moving_key());
}

/// A key arrives at a shard that has joined a home in grace: a client that has not re-attached may hold it.
fn arrival_during_grace() -> Option<Violation> {
    let scenario = Scenario { home_takeovers: 1, joins_max: 2, ..moving_key() };
    let to_home = |home| Choice::Deliver(Link::ToHome(HomeEpoch(home), ShardNo(2), ShardEpoch(1)));
    let to_shard = |home| Choice::Deliver(Link::ToShard(HomeEpoch(home), ShardNo(2), ShardEpoch(1)));
    let history = [
        Choice::Act(0),
        Choice::Join(1, 0),
        to_home(1),
        to_shard(1),
        Choice::PublishMap,
        Choice::LearnMapShard(0, 0),
        Choice::LearnMapShard(1, 0),
        Choice::PublishMap,
        Choice::LearnMapShard(1, 0),
        Choice::HomeTakeover,
        Choice::LearnHome(1, 0),
        Choice::Join(1, 0),
        to_home(2),
        to_shard(2),
        Choice::Admit(0, 1, 0),
        Choice::Finish(0, 1, 0),
    ];
    let mut world = World::new(&scenario);
    for choice in history {
        if !world.choices(&scenario).contains(&choice) {
            assert_eq!(choice, Choice::Admit(0, 1, 0), "everything but the operation is possible");
            return None;
        }
        if let Err(violation) = world.apply(&scenario, choice) {
            return Some(violation);
        }
    }
    None
}

#[test]
fn map_in_grace_is_noticed() {
    assert_eq!(arrival_during_grace(), None);
    plant(Some(Fault::MapInGrace));
    let violation = arrival_during_grace();
    plant(None);
    assert_eq!(violation, Some(Violation("writer 0 commits while client 0 holds".into())));
}
