//! The protocol by which one key changes its shard, in every order in which its steps can happen: with all
//! guards on every history makes sense, and with any of them off some do not. The holes H1 to H8 are those of the
//! original algorithm.

mod explore;
mod guards;
mod history;
mod world;

use explore::{Found, explore};
use guards::Guards;
use history::{Doc, Op};
use world::{ABORT, C, FINISH, Node, P, REVERSE, START, START_ANYHOW, START_OLD_FIRST, Scenario, Thread};

/// What the key is like before anything happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// On the old shard only.
    Old,
    /// Nowhere.
    Absent,
    /// On the old shard, and another version on the new one, which knows it.
    Both,
    /// On the old shard, and deleted on the new one.
    Deleted,
    /// On the old shard; the new one has something left over from earlier.
    LeftOver,
    /// Nowhere, but for what is left over.
    OnlyLeftOver,
}

const DATA: [Op; 5] = [Op::Insert, Op::Replace, Op::Update, Op::Delete, Op::Select];
const STALE: [&[Op]; 5] = [&[Op::Insert], &[Op::Replace], &[Op::Update], &[Op::Delete], &[Op::Select]];

/// The old shard serves everything, and nothing has begun.
fn steady(start: Start, lease: Option<u8>) -> [Node; 2] {
    let mut nodes = [Node::new(0), Node::new(0)];
    place(&mut nodes, start);
    (nodes[P].lease, nodes[P].token_last, nodes[P].position_last) = (lease, 1, 9);
    nodes
}

/// The new shard serves, and knows what `start` says.
fn moving(start: Start, lease: Option<u8>) -> [Node; 2] {
    let mut nodes = [Node::new(2), Node::new(2)];
    place(&mut nodes, start);
    for node in &mut nodes {
        (node.lease, node.token_last, node.position_last) = (lease, 1, 9);
    }
    nodes
}

/// How a key can be while it moves.
const MOVING_STARTS: [Start; 6] =
    [Start::Old, Start::Absent, Start::Both, Start::Deleted, Start::LeftOver, Start::OnlyLeftOver];

fn place(nodes: &mut [Node; 2], start: Start) {
    let doc = |value, position| Some(Doc { value, position });
    let (old, new, mark) = match start {
        Start::Old => (doc(1, 5), None, 0),
        Start::Absent => (None, None, 0),
        Start::Both => (doc(1, 5), doc(99, 9), 2),
        Start::Deleted => (doc(1, 5), None, 2),
        Start::LeftOver => (doc(1, 5), doc(77, 2), 0),
        Start::OnlyLeftOver => (None, doc(77, 2), 0),
    };
    (nodes[P].doc, nodes[C].doc, nodes[C].mark) = (old, new, mark);
}

fn client(ops: &'static [Op]) -> Thread {
    Thread::Client { ops, stale: false, token: None }
}

/// A client that still goes by the old map.
fn stale(ops: &'static [Op]) -> Thread {
    Thread::Client { ops, stale: true, token: None }
}

/// The client that has the lease from the start.
fn holder(ops: &'static [Op], stale: bool) -> Thread {
    Thread::Client { ops, stale, token: Some(1) }
}

const COPY: Thread = Thread::Copy { twice: false };
const COPY_TWICE: Thread = Thread::Copy { twice: true };

fn one(op: Op) -> Thread {
    client(match op {
        Op::Insert => &[Op::Insert],
        Op::Replace => &[Op::Replace],
        Op::Update => &[Op::Update],
        Op::Delete => &[Op::Delete],
        Op::Select => &[Op::Select],
        Op::Lock => &[Op::Lock],
        Op::Unlock => &[Op::Unlock],
        Op::Put => &[Op::Put],
    })
}

/// Everybody who may use the key: each operation, fresh or by the old map.
fn users() -> Vec<Thread> {
    DATA.iter().map(|op| one(*op)).chain(STALE.iter().map(|ops| stale(ops))).collect()
}

fn pairs(users: &[Thread]) -> Vec<Vec<Thread>> {
    let pair = |(index, first): (usize, &Thread)| -> Vec<Vec<Thread>> {
        users[index..].iter().map(|second| vec![*first, *second]).collect()
    };
    users.iter().enumerate().flat_map(pair).collect()
}

fn triples(users: &[Thread]) -> Vec<Vec<Thread>> {
    let with = |(index, first): (usize, &Thread)| -> Vec<Vec<Thread>> {
        pairs(&users[index..]).into_iter().map(|pair| [vec![*first], pair].concat()).collect()
    };
    users.iter().enumerate().flat_map(with).collect()
}

type Scenarios = Vec<([Node; 2], Vec<Thread>)>;

/// While keys move: all pairs and triples of users and a copy.
fn while_moving() -> Scenarios {
    let users = [users(), vec![COPY_TWICE]].concat();
    let one_copy = |threads: &Vec<Thread>| threads.iter().filter(|thread| is_copy(thread)).count() <= 1;
    let groups: Vec<_> = pairs(&users).into_iter().chain(triples(&users)).filter(one_copy).collect();
    let starts = MOVING_STARTS;
    starts.iter().flat_map(|start| groups.iter().map(|group| (moving(*start, None), group.clone()))).collect()
}

/// Around the beginning: all pairs of users, and a copy with each of them.
fn at_the_start() -> Scenarios {
    let groups = pairs(&[users(), vec![COPY]].concat());
    let starts = [Start::Old, Start::Absent, Start::LeftOver, Start::OnlyLeftOver];
    let mut scenarios = Scenarios::new();
    for (keeper, copies) in [(START, true), (START_OLD_FIRST, true), (ABORT, false)] {
        let may = |group: &&Vec<Thread>| copies || !group.iter().any(is_copy);
        for group in groups.iter().filter(may) {
            let threads = [vec![Thread::Keeper(keeper)], group.clone()].concat();
            scenarios.extend(starts.iter().map(|start| (steady(*start, None), threads.clone())));
        }
    }
    scenarios
}

fn is_copy(thread: &Thread) -> bool {
    matches!(thread, Thread::Copy { .. })
}

/// Around the end, with a copy that may arrive twice.
fn at_the_end() -> Scenarios {
    let groups = pairs(&DATA.map(one));
    let starts = MOVING_STARTS;
    let with = |start: Start, group: &[Thread]| {
        (moving(start, None), [vec![Thread::Keeper(FINISH), COPY_TWICE], group.to_vec()].concat())
    };
    starts.iter().flat_map(|start| groups.iter().map(|group| with(*start, group))).collect()
}

/// Back to the old functions, with the copy of the way there still under way.
fn on_the_way_back() -> Scenarios {
    let groups = pairs(&users());
    let starts = MOVING_STARTS;
    let mut scenarios = Scenarios::new();
    for start in starts {
        for group in &groups {
            scenarios.push((moving(start, None), [vec![Thread::Keeper(REVERSE)], group.clone()].concat()));
        }
        for user in users() {
            scenarios.push((moving(start, None), vec![Thread::Keeper(REVERSE), COPY_TWICE, user]));
        }
    }
    scenarios
}

/// Either side crashes, in every part of the transition.
fn with_a_crash() -> Scenarios {
    let mut scenarios = Scenarios::new();
    for crash in [Thread::Crash(P), Thread::Crash(C)] {
        for start in [Start::Old, Start::Absent, Start::Both, Start::Deleted] {
            for pair in pairs(&[users(), vec![COPY_TWICE]].concat()) {
                scenarios.push((moving(start, None), [vec![crash], pair].concat()));
            }
            for user in users() {
                for keeper in [FINISH, REVERSE] {
                    let threads = vec![crash, Thread::Keeper(keeper), COPY_TWICE, user];
                    scenarios.push((moving(start, None), threads));
                }
            }
        }
        for start in [Start::Old, Start::Absent] {
            for pair in pairs(&users()) {
                scenarios.push((steady(start, None), [vec![crash, Thread::Keeper(START)], pair].concat()));
            }
        }
    }
    scenarios
}

const LOCKERS: [&[Op]; 3] = [&[Op::Lock, Op::Put], &[Op::Lock, Op::Unlock, Op::Put], &[Op::Lock, Op::Delete]];
const HOLDERS: [&[Op]; 3] = [&[Op::Put], &[Op::Unlock, Op::Put], &[Op::Put, Op::Unlock]];

/// Leases taken, held, given back and outlived, in every part of the transition, crashes included.
fn with_leases() -> Scenarios {
    let mut scenarios = Scenarios::new();
    let others: Vec<Thread> = LOCKERS
        .iter()
        .flat_map(|ops| [client(ops), stale(ops)])
        .chain([one(Op::Replace), one(Op::Update)])
        .collect();
    let held = |ops| [holder(ops, false), holder(ops, true)];
    let groups = HOLDERS
        .iter()
        .flat_map(|ops| held(ops))
        .flat_map(|holder| others.iter().map(move |other| [holder, *other]));
    for group in groups {
        for extra in [None, Some(Thread::Crash(P)), Some(Thread::Crash(C))] {
            let threads =
                |keeper| group.into_iter().chain([Thread::Keeper(keeper)]).chain(extra).collect::<Vec<_>>();
            scenarios.push((steady(Start::Old, Some(1)), threads(START)));
            scenarios.push((moving(Start::Old, Some(1)), threads(FINISH)));
            scenarios.push((moving(Start::Old, Some(1)), threads(REVERSE)));
        }
    }
    scenarios
}

fn run(guards: Guards, scenarios: Scenarios) -> Found {
    let run = |(nodes, threads)| explore(&Scenario { guards, nodes, threads }).0;
    scenarios.into_iter().map(run).sum()
}

#[track_caller]
fn nothing_bad(name: &str, scenarios: Scenarios) {
    let run = |(nodes, threads)| {
        let scenario = Scenario { guards: Guards::ON, nodes, threads };
        let (found, example) = explore(&scenario);
        assert_eq!(example, None, "{name}: {scenario:#?}");
        found
    };
    let Found { schedules, scenarios, moments, .. } = scenarios.into_iter().map(run).sum();
    println!("{name}: {scenarios} scenarios, {schedules} schedules, {moments} moments, none bad");
}

#[test]
fn all_guards_while_moving() {
    nothing_bad("while keys move", while_moving());
}

#[test]
fn all_guards_at_the_start() {
    nothing_bad("around the beginning", at_the_start());
}

#[test]
fn all_guards_at_the_end() {
    nothing_bad("around the end", at_the_end());
}

#[test]
fn all_guards_on_the_way_back() {
    nothing_bad("on the way back", on_the_way_back());
}

#[test]
fn all_guards_with_a_crash() {
    nothing_bad("with a crash", with_a_crash());
}

#[test]
fn all_guards_with_leases() {
    nothing_bad("with leases", with_leases());
}

/// Without memory of deletions, without one place that decides, without a second look and without a fence.
const ORIGINAL: Guards = Guards {
    tombstones: false,
    owner_decides: false,
    recheck: false,
    read_recheck: false,
    fence: false,
    ..Guards::ON
};

/// Demands that some schedules are bad with `guards`, and none with all of them.
#[track_caller]
fn hole(name: &str, guards: Guards, nodes: [Node; 2], threads: &[Thread]) {
    let found = run(guards, vec![(nodes, threads.to_vec())]);
    println!("{name}: {} of {} schedules are bad without the guard", found.bad, found.schedules);
    assert!(found.bad > 0, "{name}: the hole is not found");
    let guarded = run(Guards::ON, vec![(nodes, threads.to_vec())]);
    assert_eq!(guarded.bad, 0, "{name}: the guard does not close it");
}

#[test]
fn h1_a_copy_brings_a_deleted_record_back() {
    hole("H1 copy, delete, as in the original", ORIGINAL, moving(Start::Old, None), &[COPY, one(Op::Delete)]);
    let guards = Guards { tombstones: false, ..Guards::ON };
    hole("H1 copy, delete", guards, moving(Start::Old, None), &[COPY, one(Op::Delete)]);
}

#[test]
fn h2_an_update_brings_a_deleted_record_back() {
    let threads = [one(Op::Update), one(Op::Delete)];
    hole("H2 update, delete, as in the original", ORIGINAL, moving(Start::Old, None), &threads);
    let guards = Guards { recheck: false, ..Guards::ON };
    hole("H2 update, delete", guards, moving(Start::Old, None), &[one(Op::Update), one(Op::Delete)]);
    hole("H2 update, replace", guards, moving(Start::Old, None), &[one(Op::Update), one(Op::Replace)]);
}

#[test]
fn h3_an_acknowledged_insert_is_lost() {
    let threads = [one(Op::Delete), one(Op::Insert)];
    hole("H3 delete, insert, as in the original", ORIGINAL, moving(Start::Old, None), &threads);
    let guards = Guards { owner_decides: false, ..Guards::ON };
    hole("H3 delete, insert", guards, moving(Start::Old, None), &[one(Op::Delete), one(Op::Insert)]);
}

#[test]
fn h4_two_deletes_delete_two_versions() {
    let threads = [one(Op::Delete), one(Op::Delete)];
    hole("H4 delete, delete, as in the original", ORIGINAL, moving(Start::Both, None), &threads);
    let guards = Guards { owner_decides: false, ..Guards::ON };
    hole("H4 delete, delete", guards, moving(Start::Both, None), &[one(Op::Delete), one(Op::Delete)]);
}

#[test]
fn h5_a_value_older_than_every_write_returns() {
    let threads = [COPY, one(Op::Replace), one(Op::Delete)];
    hole("H5 copy, replace, delete, as in the original", ORIGINAL, moving(Start::Old, None), &threads);
    let guards = Guards { tombstones: false, ..Guards::ON };
    hole("H5 copy, replace, delete", guards, moving(Start::Old, None), &threads);
    let guards = Guards { only_unknown: false, ..Guards::ON };
    hole("H5 copy over what is known", guards, moving(Start::Old, None), &[COPY, one(Op::Replace)]);
}

#[test]
fn h6_a_write_by_the_old_map_is_lost() {
    let threads = [stale(&[Op::Replace]), COPY];
    hole("H6 stale replace, copy, as in the original", ORIGINAL, moving(Start::Old, None), &threads);
    let guards = Guards { fence: false, ..Guards::ON };
    for (name, other) in [
        ("copy", COPY),
        ("update", one(Op::Update)),
        ("replace", one(Op::Replace)),
        ("delete", one(Op::Delete)),
    ] {
        hole(
            &format!("H6 stale replace, {name}"),
            guards,
            moving(Start::Old, None),
            &[stale(&[Op::Replace]), other],
        );
    }
    let start = |keeper| [Thread::Keeper(keeper), stale(&[Op::Replace]), one(Op::Update)];
    hole_between("H6 new shards begin before old ones stop", start(START_ANYHOW), start(START));
    let guards = Guards { drain: false, ..Guards::ON };
    hole("H6 writes that had begun", guards, steady(Start::Old, None), &start(START));
}

/// As [`hole`], with a guard that is the order in which the keeper works.
#[track_caller]
fn hole_between(name: &str, without: [Thread; 3], with: [Thread; 3]) {
    let found = run(Guards::ON, vec![(steady(Start::Old, None), without.to_vec())]);
    println!("{name}: {} of {} schedules are bad without the guard", found.bad, found.schedules);
    assert!(found.bad > 0, "{name}: the hole is not found");
    let guarded = run(Guards::ON, vec![(steady(Start::Old, None), with.to_vec())]);
    assert_eq!(guarded.bad, 0, "{name}: the guard does not close it");
}

#[test]
fn h7_prev_is_dropped_too_early() {
    let guards = Guards { drop_after_copy: false, verify: false, ..Guards::ON };
    for op in [Op::Select, Op::Insert] {
        let threads = [Thread::Keeper(FINISH), COPY, one(op)];
        hole(&format!("H7 {op:?}"), guards, moving(Start::Old, None), &threads);
    }
}

#[test]
fn writes_need_what_the_donor_has() {
    let guards = Guards { pull_before_write: false, ..Guards::ON };
    for op in [Op::Insert, Op::Update, Op::Delete] {
        hole(&format!("no pull before {op:?}"), guards, moving(Start::Old, None), &[one(op)]);
    }
}

/// A read that is told the donor's frozen value is right even if the key became known meanwhile: it was right
/// when the read began. Only a donor that is cleaned up before the read is over would answer wrongly, and
/// a node says that it stopped when its reads are over; so reads are guarded twice.
#[test]
fn reads_look_again() {
    let threads = [Thread::Keeper(FINISH), COPY, one(Op::Select)];
    let guards = Guards { read_recheck: false, drain: false, ..Guards::ON };
    hole("no second look, no waiting", guards, moving(Start::Old, None), &threads);
    for guards in [Guards { read_recheck: false, ..Guards::ON }, Guards { drain: false, ..Guards::ON }] {
        assert_eq!(run(guards, vec![(moving(Start::Old, None), threads.to_vec())]).bad, 0);
    }
}

/// What begins while the owner asks and ends when it serves alone: another write came in between, and left no
/// mark.
#[test]
fn the_map_changes_while_the_donor_is_asked() {
    let threads = [Thread::Keeper(FINISH), COPY, one(Op::Insert), one(Op::Insert)];
    let guards = Guards { map_of_now: false, ..Guards::ON };
    hole("decided by the map of before", guards, moving(Start::Absent, None), &threads);
}

#[test]
fn what_was_left_over_comes_back() {
    let guards = Guards { marks_only: false, purge: false, ..Guards::ON };
    let threads = [Thread::Keeper(START), one(Op::Select)];
    hole("left over, taken for known", guards, steady(Start::LeftOver, None), &threads);
    let guards = Guards { purge: false, ..Guards::ON };
    hole("left over, and nothing to copy over it", guards, steady(Start::OnlyLeftOver, None), &threads);
}

#[test]
fn leases_and_numbers_stay_behind() {
    let (guards, nodes) = (Guards { lease_moves: false, ..Guards::ON }, steady(Start::Old, Some(1)));
    hole("lease, another's write", guards, nodes, &[Thread::Keeper(START), one(Op::Replace)]);
    hole("lease, another's lease", guards, nodes, &[Thread::Keeper(START), client(&[Op::Lock])]);
    hole("lease, the holder's write", guards, nodes, &[Thread::Keeper(START), holder(&[Op::Put], false)]);
    let reverse = [Thread::Keeper(REVERSE), client(&[Op::Lock, Op::Put])];
    hole("lease, on the way back", guards, moving(Start::Old, None), &reverse);
    let guards = Guards { floors: false, ..Guards::ON };
    let threads = [Thread::Keeper(START), client(&[Op::Lock]), holder(&[Op::Unlock, Op::Put], false)];
    hole("numbers, a token twice", guards, nodes, &threads);
    hole("numbers, positions", guards, steady(Start::Old, None), &[Thread::Keeper(START), one(Op::Replace)]);
}

#[test]
fn crashes_forget_what_is_not_kept() {
    let guards = Guards { durable_mark: false, ..Guards::ON };
    let threads = [Thread::Crash(C), COPY, one(Op::Delete)];
    hole("marks that are not kept", guards, moving(Start::Old, None), &threads);
    let guards = Guards { durable_map: false, ..Guards::ON };
    let threads = [Thread::Keeper(START), Thread::Crash(P), stale(&[Op::Replace]), one(Op::Update)];
    hole("maps that are not kept", guards, steady(Start::Old, None), &threads);
    let guards = Guards { durable_lease: false, ..Guards::ON };
    let threads = [Thread::Crash(C), one(Op::Replace)];
    hole("leases that are not kept", guards, moving(Start::Old, Some(1)), &threads);
    let guards = Guards { cursor_after: false, verify: false, ..Guards::ON };
    for crash in [P, C] {
        let threads = [Thread::Crash(crash), Thread::Keeper(FINISH), COPY, one(Op::Select)];
        hole(&format!("a cursor too far, crash of {crash}"), guards, moving(Start::Old, None), &threads);
    }
    let guards = Guards { cursor_after: false, ..Guards::ON };
    let threads = vec![Thread::Crash(C), Thread::Keeper(FINISH), COPY, one(Op::Select)];
    assert_eq!(
        run(guards, vec![(moving(Start::Old, None), threads)]).bad,
        0,
        "verifying finds what is missing"
    );
}

/// Refused twice: by the transition that it names, and by an owner that is past asking.
#[test]
fn late_copies() {
    let threads = [Thread::Keeper(FINISH), COPY_TWICE, one(Op::Delete)];
    let guards = Guards { copy_epoch: false, map_of_now: false, ..Guards::ON };
    hole("a copy after the end", guards, moving(Start::Old, None), &threads);
    for guards in [Guards { copy_epoch: false, ..Guards::ON }, Guards { map_of_now: false, ..Guards::ON }] {
        assert_eq!(run(guards, vec![(moving(Start::Old, None), threads.to_vec())]).bad, 0);
    }
}

/// H8 of the original: whoever forces `prev` away hides what is not copied, but does not destroy it.
#[test]
fn h8_cleaning_up_removes_the_only_copy() {
    let threads = [Thread::Keeper(FINISH), COPY, one(Op::Select)];
    let forced = Guards { drop_after_copy: false, verify: false, ..Guards::ON };
    let lost = |guards| run(guards, vec![(moving(Start::Old, None), threads.to_vec())]);
    let found = lost(Guards { confirm: false, ..forced });
    println!("H8 forced: {} of {} schedules lose the record without the guard", found.lost, found.schedules);
    assert!(found.lost > 0);
    assert_eq!(lost(forced).lost, 0);
}

#[test]
fn the_way_back() {
    let threads = [Thread::Keeper(REVERSE), one(Op::Select)];
    let guards = Guards { reverse_keep: false, ..Guards::ON };
    hole("back, what never left", guards, moving(Start::Old, None), &threads);
    let guards = Guards { marks_only: false, ..Guards::ON };
    hole("back, old copies taken for known", guards, moving(Start::Both, None), &threads);
    let guards = Guards { reverse_tombstones: false, ..Guards::ON };
    hole("back, deletions", guards, moving(Start::Deleted, None), &threads);
}
