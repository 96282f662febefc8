//! Plans: even, stable, with few moves, and faithful to lists, weights, drains and operators.

use crate::{
    Host, HostMode, NodeName, NodeRow, Preferences, RenewalMark, ShardEpoch, ShardNo, ShardRow, Target, This,
    View,
    placement::{Limits, MoveReason, Plan, next_owners, plan},
};
use std::collections::BTreeMap;

const LIMITS: Limits = Limits { stale_after_ms: 3_000, moves_at_once: 2 };
const ALL_MOVES: Limits = Limits { moves_at_once: usize::MAX, ..LIMITS };

fn name(node: u32) -> NodeName {
    NodeName::from(format!("n{node:02}").as_str())
}

/// Nodes 1 to `nodes`, and shards with the owners that are given; 0 is none.
fn view(nodes: u32, owners: &[u32]) -> View {
    let node =
        |node| NodeRow { name: name(node), address: format!("{}:1", name(node)), age_ms: 500, drains: false };
    let shard = |(owner, number): (&u32, u32)| ShardRow {
        shard: ShardNo(number),
        epoch: ShardEpoch(1),
        owner: Some(*owner).filter(|owner| *owner > 0).map(name),
        renewed: RenewalMark(0),
        age_ms: 500,
        target: Target::Any,
    };
    View { nodes: (1..=nodes).map(node).collect(), shards: owners.iter().zip(1..).map(shard).collect() }
}

fn listed(shards: u32, hosts: &[(HostMode, u16, u32)]) -> Preferences {
    let host = |(mode, weight, node): &(HostMode, u16, u32)| Host {
        mode: *mode,
        weight: *weight,
        address: format!("{}:1", name(*node)),
    };
    let list: Vec<Host> = hosts.iter().map(host).collect();
    Preferences::listed((1..=shards).map(|shard| (ShardNo(shard), list.clone())).collect())
}

fn loads(plan: &Plan) -> BTreeMap<&str, u32> {
    let mut loads = BTreeMap::new();
    plan.owners.values().for_each(|owner| *loads.entry(owner.as_str()).or_default() += 1);
    loads
}

#[track_caller]
fn check_loads(view: &View, preferences: &Preferences, expected: &[(&str, u32)]) {
    let plan = plan(view, preferences, ALL_MOVES);
    assert_eq!(loads(&plan).into_iter().collect::<Vec<_>>(), expected);
}

/// Does what a plan says, handoffs completed.
fn follow(view: &mut View, plan: &Plan) {
    for row in &mut view.shards {
        let moved = plan.moves.iter().find(|found| found.shard == row.shard);
        let free = row.owner.is_none().then(|| plan.owners.get(&row.shard)).flatten();
        if let Some(owner) = moved.map(|found| &found.to).or(free) {
            row.owner = Some(owner.clone());
        }
    }
}

/// Follows plans until nothing moves; answers how many moves that took.
fn settle(view: &mut View, preferences: &Preferences, limits: Limits) -> usize {
    let mut moves = 0;
    for _ in 0..1_000 {
        let plan = plan(view, preferences, limits);
        let before = view.clone();
        moves += plan.moves.len();
        follow(view, &plan);
        if *view == before {
            return moves;
        }
    }
    panic!("plans never settle: {view:?}");
}

#[test]
fn free_shards_are_spread_evenly() {
    let none = Preferences::default();
    check_loads(&view(3, &[0; 7]), &none, &[("n01", 3), ("n02", 2), ("n03", 2)]);
    check_loads(&view(2, &[1, 1, 0, 0]), &none, &[("n01", 2), ("n02", 2)]);
    check_loads(&view(1, &[0; 5]), &none, &[("n01", 5)]);
    check_loads(&view(0, &[0; 5]), &none, &[]);
}

#[test]
fn moves_are_as_few_as_evenness_needs() {
    for nodes in 1..=6_u32 {
        for shards in 0..=20_u32 {
            let owners: Vec<u32> = (0..shards).map(|shard| shard % nodes + 1).collect();
            let mut joined = view(nodes + 1, &owners);
            let share = shards / (nodes + 1);
            assert_eq!(settle(&mut joined, &Preferences::default(), LIMITS), share as usize);
            let mut crowded = view(nodes, &vec![1; shards as usize]);
            let needed = shards - shards.div_ceil(nodes);
            assert_eq!(settle(&mut crowded, &Preferences::default(), LIMITS), needed as usize);
        }
    }
}

#[test]
fn a_plan_at_rest_has_no_moves() {
    let plan = plan(&view(3, &[1, 2, 3, 1, 2]), &Preferences::default(), LIMITS);
    assert_eq!(plan.moves, []);
    assert_eq!(plan.owners[&ShardNo(4)], name(1));
}

#[test]
fn moves_at_once_counts_handoffs_under_way() {
    let mut crowded = view(3, &[1; 9]);
    assert_eq!(plan(&crowded, &Preferences::default(), LIMITS).moves.len(), 2);
    (crowded.shards[8].owner, crowded.shards[8].target) = (None, Target::Handoff(name(3)));
    let next = plan(&crowded, &Preferences::default(), LIMITS);
    assert_eq!(next.moves.len(), 1);
    assert_eq!(next.owners[&ShardNo(9)], name(3), "a handoff is not planned anew");
}

#[test]
fn a_dead_nodes_shards_go_to_live_nodes_without_moves() {
    let mut view = view(3, &[1, 2, 3, 1, 2, 3]);
    view.nodes[0].age_ms = 3_001;
    let plan = plan(&view, &Preferences::default(), LIMITS);
    assert_eq!(plan.moves, []);
    assert_eq!(loads(&plan), BTreeMap::from([("n02", 3), ("n03", 3)]));
}

#[test]
fn a_draining_node_gives_everything_away_at_once() {
    let mut drained = view(3, &[1, 1, 1, 1, 2, 3]);
    drained.nodes[0].drains = true;
    let found = plan(&drained, &Preferences::default(), LIMITS);
    assert_eq!(found.moves.len(), 4);
    assert!(found.moves.iter().all(|found| found.why == MoveReason::Drain && found.from == name(1)));
    let mut alone = view(1, &[1, 1]);
    alone.nodes[0].drains = true;
    assert_eq!(plan(&alone, &Preferences::default(), LIMITS).moves, [], "there is no other node");
}

#[test]
fn weights_decide_shares() {
    let lists = listed(6, &[(HostMode::Rw, 200, 1), (HostMode::Rw, 100, 2)]);
    check_loads(&view(3, &[0; 6]), &lists, &[("n01", 4), ("n02", 2)]);
    check_loads(&view(3, &[2; 6]), &lists, &[("n01", 4), ("n02", 2)]);
    let lists = listed(6, &[(HostMode::Rw, 100, 1), (HostMode::Rw, 0, 2)]);
    check_loads(&view(3, &[2; 6]), &lists, &[("n01", 6)]);
}

#[test]
fn lists_prefer_rw_then_followers_then_any_node() {
    let lists = listed(2, &[(HostMode::Rw, 1, 1), (HostMode::Ro, 1, 2)]);
    let mut view = view(3, &[3, 3]);
    check_loads(&view, &lists, &[("n01", 2)]);
    assert!(plan(&view, &lists, LIMITS).moves.iter().all(|found| found.why == MoveReason::Preference));
    view.nodes[0].age_ms = 9_000;
    check_loads(&view, &lists, &[("n02", 2)]);
    view.nodes[1].drains = true;
    check_loads(&view, &lists, &[("n03", 2)]);
}

fn preferring(lists: Preferences, this: &[(u32, This)]) -> Preferences {
    Preferences { this: this.iter().map(|(node, this)| (name(*node), *this)).collect(), ..lists }
}

#[test]
fn a_node_that_prefers_a_shard_owns_it_before_listed_hosts_while_it_is_there() {
    let lists = preferring(listed(2, &[(HostMode::Rw, 1, 1)]), &[(3, This::Shard(ShardNo(2)))]);
    let mut view = view(3, &[1, 1]);
    check_loads(&view, &lists, &[("n01", 1), ("n03", 1)]);
    let found = plan(&view, &lists, ALL_MOVES);
    assert_eq!((found.moves[0].shard, &found.moves[0].to), (ShardNo(2), &name(3)));
    view.nodes[2].age_ms = 9_000;
    check_loads(&view, &lists, &[("n01", 2)]);
}

#[test]
fn a_node_that_prefers_nothing_owns_what_no_other_can_and_what_was_moved_to_it() {
    let lists = preferring(Preferences::default(), &[(1, This::Nothing)]);
    let mut view = view(2, &[1, 1, 2]);
    check_loads(&view, &lists, &[("n02", 3)]);
    assert!(next(&view, &lists).values().all(|node| node == "n01"), "no other can");
    view.shards[0].target = Target::Pinned(name(1));
    check_loads(&view, &lists, &[("n01", 1), ("n02", 2)]);
    view.nodes[1].age_ms = 9_000;
    check_loads(&view, &lists, &[("n01", 3)]);
    let listed = preferring(listed(3, &[(HostMode::Rw, 1, 1)]), &[(1, This::Nothing)]);
    view.nodes[1].age_ms = 0;
    check_loads(&view, &listed, &[("n01", 1), ("n02", 2)]);
}

#[test]
fn an_operators_move_stays_and_others_balance_around_it() {
    let mut pinned = view(2, &[1, 1, 2, 2]);
    pinned.shards[0].target = Target::Pinned(name(2));
    let first = plan(&pinned, &Preferences::default(), ALL_MOVES);
    assert_eq!(first.moves[0].why, MoveReason::Pinned);
    settle(&mut pinned, &Preferences::default(), LIMITS);
    assert_eq!(pinned.shards[0].owner, Some(name(2)));
    check_loads(&pinned, &Preferences::default(), &[("n01", 2), ("n02", 2)]);
    pinned.nodes[1].age_ms = 9_000;
    check_loads(&pinned, &Preferences::default(), &[("n01", 4)]);
}

/// Any rows, any lists: the order of rows does not matter, and following plans comes to an end.
#[test]
fn plans_settle_from_any_start() {
    let mut seed = 7_u64;
    let mut below = move |limit: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % limit
    };
    for round in 0..500 {
        let (nodes, shards) = (1 + below(5) as u32, 1 + below(12) as u32);
        let owners: Vec<u32> = (0..shards).map(|_| below(u64::from(nodes) + 2) as u32).collect();
        let mut start = view(nodes, &owners);
        for row in &mut start.nodes {
            (row.drains, row.age_ms) = (below(6) == 0, below(3_500));
        }
        for row in &mut start.shards {
            if below(5) == 0 {
                row.target = Target::Pinned(name(1 + below(u64::from(nodes)) as u32));
            }
        }
        let mut lists = Preferences::default();
        for shard in (1..=shards).map(ShardNo) {
            let host = |node| Host {
                mode: if below(2) == 0 { HostMode::Rw } else { HostMode::Ro },
                weight: below(4) as u16,
                address: format!("{}:1", name(node)),
            };
            let list = (1..=nodes).map(host).collect::<Vec<_>>();
            let kept = list.into_iter().filter(|host| host.weight != 3).collect::<Vec<_>>();
            if kept.len() > 1 {
                lists.lists.insert(shard, kept);
            }
        }
        let mut shuffled = start.clone();
        shuffled.nodes.reverse();
        shuffled.shards.reverse();
        assert_eq!(plan(&start, &lists, LIMITS), plan(&shuffled, &lists, LIMITS), "round {round}");
        settle(&mut start, &lists, LIMITS);
    }
}

/// The next owners by the plan for a view.
fn next(view: &View, preferences: &Preferences) -> BTreeMap<u32, String> {
    let plan = plan(view, preferences, ALL_MOVES);
    let next = next_owners(view, preferences, ALL_MOVES, &plan);
    next.into_iter().map(|(shard, node)| (shard.0, node.to_string())).collect()
}

#[test]
fn the_next_owner_is_the_one_that_a_dead_owner_leaves_its_shard_to() {
    for nodes in 2..5 {
        for shards in 1..9_u32 {
            let owners: Vec<u32> = (0..shards).map(|shard| shard % nodes + 1).collect();
            let mut all = view(nodes, &owners);
            let before = next(&all, &Preferences::default());
            for dead in 0..nodes as usize {
                all.nodes[dead].age_ms = 9_000;
                let after = plan(&all, &Preferences::default(), ALL_MOVES);
                for (owner, shard) in owners.iter().zip(1..).filter(|(owner, _)| **owner == dead as u32 + 1) {
                    assert_ne!(before[&shard], name(*owner).as_str());
                    assert_eq!(before[&shard], after.owners[&ShardNo(shard)].as_str(), "{owners:?}");
                }
                all.nodes[dead].age_ms = 500;
            }
        }
    }
}

#[test]
fn next_owners_are_listed_ones_first_and_none_without_another_node() {
    let all = view(4, &[1]);
    let expected = |node: &str| BTreeMap::from([(1, node.to_owned())]);
    let hosts = [(HostMode::Rw, 1, 1), (HostMode::Ro, 0, 4)];
    assert_eq!(next(&all, &listed(1, &hosts)), expected("n04"));
    assert_eq!(next(&all, &listed(1, &hosts[..1])), expected("n02"));
    let mut draining = all;
    draining.nodes[1].drains = true;
    assert_eq!(next(&draining, &Preferences::default()), expected("n03"));
    assert_eq!(next(&view(1, &[1]), &Preferences::default()), BTreeMap::new());
}
