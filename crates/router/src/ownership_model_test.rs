//! Ownership in clusters in which everything goes wrong that can, and in clusters at rest: what never may happen, what
//! must happen in time, and that planted faults are noticed.
//!
//! `LOCKWOOD_MODEL_HISTORIES` and `LOCKWOOD_MODEL_SEED` make it longer or start it elsewhere. A history that violates an
//! invariant is named by its seed.

pub(crate) mod database;
mod world;

use crate::{
    Host, HostMode, NodeName, Preferences, ShardNo, Target,
    ownership::Policy,
    planted::{Fault, plant},
};
use database::Violation;
use std::collections::BTreeMap;
use world::{CALM, Weather, World, name};

const HISTORIES: u64 = 300;

/// So many histories are enough to notice any planted fault.
const HISTORIES_TO_NOTICE: u64 = 2_000;

const NODES: u32 = 3;
const SHARDS: u32 = 4;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Half a minute of misfortunes, then rest: everything must be served, evenly, and nothing may move any more.
fn history(seed: u64) -> Result<u64, Violation> {
    let mut world = World::new(seed, NODES, SHARDS, Preferences::default());
    world.run_for(3_000)?;
    world.weather = match seed % 4 {
        0 => CALM,
        1 => Weather { lost: 2, repeated: 5, slow: 10, slow_ms: 3_000 },
        2 => Weather { lost: 10, repeated: 20, slow: 30, slow_ms: 6_000 },
        _ => Weather { lost: 0, repeated: 20, slow: 60, slow_ms: 4_000 },
    };
    for _ in 0..20 {
        world.misfortune()?;
        let ms = world.random.below(3_000);
        world.run_for(ms)?;
    }
    let names: Vec<NodeName> = (0..NODES).map(name).collect();
    world.heal(&names)?;
    world.run_for(20_000)?;
    at_rest(&mut world)?;
    Ok(world.steps)
}

fn at_rest(world: &mut World) -> Result<(), Violation> {
    if !world.is_served() {
        return Err(format!("not every shard is served: {:?}", world.database));
    }
    let epochs = world.epochs();
    world.run_for(10_000)?;
    if world.epochs() != epochs {
        return Err(format!("shards move at rest: {epochs:?} became {:?}", world.epochs()));
    }
    let mut loads: BTreeMap<&NodeName, u64> = (0..world.processes.len())
        .filter(|pid| world.running().contains(pid))
        .map(|pid| (&world.processes[pid].name, 0))
        .collect();
    for row in world.database.shards.values() {
        *loads.entry(row.owner.as_ref().expect("is served")).or_default() += 1;
    }
    let (least, most) = (loads.values().min(), loads.values().max());
    if most > least.map(|least| least + 1).as_ref() {
        return Err(format!("not even: {loads:?}"));
    }
    Ok(())
}

#[test]
fn no_two_nodes_are_fresh_for_one_shard() {
    let first = setting("LOCKWOOD_MODEL_SEED", 0);
    let histories = setting("LOCKWOOD_MODEL_HISTORIES", HISTORIES);
    let mut steps = 0;
    for seed in first..first + histories {
        steps += history(seed).unwrap_or_else(|violation| {
            panic!("{violation}\nLOCKWOOD_MODEL_SEED={seed} LOCKWOOD_MODEL_HISTORIES=1")
        });
    }
    println!("{histories} histories, {steps} steps");
}

#[test]
fn every_planted_fault_is_noticed() {
    let mut missed = Vec::new();
    for fault in Fault::ALL {
        plant(Some(fault));
        let noticed = (0..HISTORIES_TO_NOTICE).find_map(|seed| Some((seed, history(seed).err()?)));
        plant(None);
        match noticed {
            Some((seed, violation)) => {
                println!("{fault:?}: seed {seed}: {}", violation.chars().take(160).collect::<String>());
            }
            None => missed.push(fault),
        }
    }
    assert_eq!(missed, [], "faults that no history noticed");
}

/// A calm cluster in which every shard is served.
fn calm(seed: u64, nodes: u32, shards: u32, preferences: Preferences) -> World {
    let mut world = World::new(seed, nodes, shards, preferences);
    world.run_for(8_000).unwrap();
    assert!(world.is_served(), "seed {seed}: {:?}", world.database);
    world
}

/// Runs until every shard is served; answers how long that took.
#[track_caller]
fn served_within(world: &mut World, limit_ms: u64, seed: u64) -> u64 {
    let start = world.now;
    while !world.is_served() {
        world.run_for(5).unwrap();
        assert!(world.now - start <= limit_ms, "seed {seed}: not served after {limit_ms} ms");
    }
    world.now - start
}

#[test]
fn shards_of_a_dead_owner_are_claimed_in_time() {
    let policy = Policy::default();
    // Others see the last renewal up to an interval after it was made.
    let seen = policy.stale_after_ms + policy.renew_every_ms;
    // The planned owner claims first, and others only if it does not.
    let limit = seen + policy.other_claim_delay_ms + policy.claim_jitter_ms + 200;
    let mut longest = 0;
    for seed in 0..50 {
        let mut world = calm(seed, 3, 6, Preferences::default());
        let ms = world.random.below(2_000);
        world.run_for(ms).unwrap();
        let owner = world.owner(ShardNo(1)).unwrap();
        world.crash(owner);
        longest = longest.max(served_within(&mut world, limit, seed));
    }
    println!("longest takeover: {longest} ms, allowed {limit} ms");
}

#[test]
fn owners_resume_soon_after_the_database_returns() {
    for seed in 0..30 {
        let mut world = calm(seed, 3, 6, Preferences::default());
        let owners = world.owners();
        world.database_down_for(10_000);
        world.run_for(9_990).unwrap();
        assert!((1..=6).all(|shard| world.owner(ShardNo(shard)).is_none()), "seed {seed}");
        served_within(&mut world, 1_500, seed);
        assert_eq!(world.owners(), owners, "seed {seed}: no other node claims");
    }
}

#[test]
fn planned_handoff_does_not_wait_for_staleness() {
    let mut longest = 0;
    for seed in 0..50 {
        let mut world = calm(seed, 3, 6, Preferences::default());
        let owner = world.owner(ShardNo(1)).unwrap();
        world.stop(owner).unwrap();
        world.run_for(60).unwrap();
        world.hint().unwrap();
        longest = longest.max(served_within(&mut world, 300, seed));
    }
    println!("longest handoff after a stop, with notifications: {longest} ms");
}

#[test]
fn move_hands_off_to_the_named_node_and_stays_there() {
    for seed in 0..20 {
        let mut world = calm(seed, 3, 6, Preferences::default());
        let owner = world.owner(ShardNo(1)).unwrap();
        let target = world.processes[(owner + 1) % 3].name.clone();
        world.pin(ShardNo(1), Target::Pinned(target.clone())).unwrap();
        world.run_for(2_500).unwrap();
        let row = &world.database.shards[&ShardNo(1)];
        assert_eq!(row.owner.as_ref(), Some(&target), "seed {seed}");
        world.run_for(10_000).unwrap();
        assert_eq!(world.database.shards[&ShardNo(1)].owner.as_ref(), Some(&target), "seed {seed}");
        at_rest(&mut world).unwrap();
    }
}

#[test]
fn joining_node_takes_its_share_and_no_more() {
    for seed in 0..20 {
        let mut world = calm(seed, 2, 10, Preferences::default());
        let before: u64 = world.epochs().iter().map(|epoch| epoch.0).sum();
        world.start(name(2));
        world.run_for(15_000).unwrap();
        at_rest(&mut world).unwrap();
        let after: u64 = world.epochs().iter().map(|epoch| epoch.0).sum();
        assert_eq!(after - before, 3, "seed {seed}: 10 shards over 3 nodes, 3 moves");
    }
}

#[test]
fn followers_take_over_and_the_listed_owner_gets_the_shard_back() {
    let host = |mode, node| Host { mode, weight: 1, address: format!("n{node}:1") };
    let list = vec![host(HostMode::Rw, 1), host(HostMode::Ro, 3)];
    let preferences = Preferences::listed(BTreeMap::from([(ShardNo(1), list)]));
    for seed in 0..20 {
        let mut world = calm(seed, 3, 1, preferences.clone());
        let owner = world.owner(ShardNo(1)).unwrap();
        assert_eq!(world.processes[owner].name, name(0), "seed {seed}");
        world.crash(owner);
        world.run_for(5_000).unwrap();
        assert_eq!(world.database.shards[&ShardNo(1)].owner, Some(name(2)), "seed {seed}: the follower");
        world.start(name(0));
        world.run_for(6_000).unwrap();
        assert_eq!(world.database.shards[&ShardNo(1)].owner, Some(name(0)), "seed {seed}: the listed owner");
        at_rest_listed(&mut world, seed);
    }
}

fn at_rest_listed(world: &mut World, seed: u64) {
    let epochs = world.epochs();
    world.run_for(10_000).unwrap();
    assert_eq!(world.epochs(), epochs, "seed {seed}: shards move at rest");
}
