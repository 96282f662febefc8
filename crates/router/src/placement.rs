//! Which node should own each shard, and the moves that lead there. Knows nothing of how a shard changes its owner; the
//! same rows give the same plan on every node.
//!
//! A shard's candidates are the best group that has a node which is live and does not drain:
//!
//! | group | nodes | weight |
//! | --- | --- | --- |
//! | 1 | the node an operator moved the shard to | 1 |
//! | 2 | nodes that prefer to own the shard | 1 |
//! | 3 | listed `rw` hosts | theirs |
//! | 4 | listed `ro` hosts: followers, which have the log already | theirs |
//! | 5 | all nodes | 1 |
//! | 6 | nodes that prefer to own nothing, which are in none of the groups 3 to 5 | 1 |
//!
//! An owner that is a candidate keeps the shard. All other shards go to the candidate with the lowest load for its weight.
//! Then single shards move from the most to the least loaded candidate as long as that makes loads more even. A move
//! that does so is never undone by the next plan, so there is no flapping.
//!
//! The *next* owner of a shard is the one that it would get if its planned owner were gone. It follows the shard, besides the
//! listed hosts, so that a takeover finds a node that has the log already, also without lists.

use crate::{Host, HostMode, NodeName, Preferences, ShardNo, ShardRow, Target, This, View};
use std::collections::{BTreeMap, BTreeSet};

/// The figures that placement depends on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A node whose renewal is older is not live.
    pub stale_after_ms: u64,
    /// Limits [`Plan::moves`]; those away from a draining node do not count.
    pub moves_at_once: usize,
}

/// Where shards should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Plan {
    /// The planned owner of each shard; no entry if there is no node for it.
    pub owners: BTreeMap<ShardNo, NodeName>,
    /// What live owners are to hand off now. Only `from` acts on a move.
    pub moves: Vec<Move>,
}

/// A handoff that a plan asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    /// The shard.
    pub shard: ShardNo,
    /// Its owner.
    pub from: NodeName,
    /// Its planned owner.
    pub to: NodeName,
    /// The reason.
    pub why: MoveReason,
}

/// Why a shard should move; the most urgent first.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MoveReason {
    /// The owner drains.
    Drain,
    /// An operator wants it elsewhere.
    Pinned,
    /// The host list prefers other nodes.
    Preference,
    /// The owner has more than its share.
    Balance,
}

/// Plans owners and moves.
pub fn plan(view: &View, preferences: &Preferences, limits: Limits) -> Plan {
    let nodes = Nodes::new(view, preferences, limits.stale_after_ms);
    let shards: BTreeMap<ShardNo, &ShardRow> = view.shards.iter().map(|row| (row.shard, row)).collect();
    let mut board = Board::default();
    for (shard, row) in &shards {
        board.add(*shard, candidates(row, preferences, &nodes), keeper(row));
    }
    board.assign();
    board.balance();
    let moves = moves(&board, &shards, &nodes, limits.moves_at_once);
    let owners =
        board.shards.into_iter().filter_map(|(shard, assignment)| Some((shard, assignment.planned?.clone())));
    Plan { owners: owners.collect(), moves }
}

/// Which node would get each shard of a plan if its planned owner were gone, all others staying where they are; no entry if
/// there would be none.
pub fn next_owners(
    view: &View,
    preferences: &Preferences,
    limits: Limits,
    plan: &Plan,
) -> BTreeMap<ShardNo, NodeName> {
    let rows: BTreeMap<ShardNo, &ShardRow> = view.shards.iter().map(|row| (row.shard, row)).collect();
    let mut by_owner: BTreeMap<&NodeName, Vec<ShardNo>> = BTreeMap::new();
    for (shard, owner) in &plan.owners {
        by_owner.entry(owner).or_default().push(*shard);
    }
    let mut next = BTreeMap::new();
    for (owner, shards) in &by_owner {
        let nodes = Nodes::new(view, preferences, limits.stale_after_ms).without(owner);
        let others = by_owner.iter().filter(|(other, _)| other != &owner);
        let mut loads: BTreeMap<&NodeName, u64> =
            others.map(|(other, shards)| (*other, shards.len() as u64)).collect();
        for shard in shards {
            let Some(row) = rows.get(shard) else { continue };
            let candidates = candidates(row, preferences, &nodes);
            if let Some(node) = candidates.lightest(&loads) {
                *loads.entry(node).or_default() += 1;
                next.insert(*shard, node.clone());
            }
        }
    }
    next
}

/// The owner; for a shard on its way between two nodes, the one that is going to claim it.
fn keeper(row: &ShardRow) -> Option<&NodeName> {
    let next = if let Target::Handoff(node) = &row.target { Some(node) } else { None };
    row.owner.as_ref().or(next)
}

/// The nodes of a view by what they can do.
struct Nodes<'a> {
    live: BTreeSet<&'a NodeName>,
    /// Live, and not draining.
    eligible: BTreeSet<&'a NodeName>,
    /// Eligible, and do not prefer to own nothing.
    willing: BTreeSet<&'a NodeName>,
    /// The willing ones.
    by_address: BTreeMap<&'a str, &'a NodeName>,
}

impl<'a> Nodes<'a> {
    fn new(view: &'a View, preferences: &Preferences, stale_after_ms: u64) -> Nodes<'a> {
        let live = || view.nodes.iter().filter(|row| row.age_ms <= stale_after_ms);
        let eligible = || live().filter(|row| !row.drains);
        let willing = || {
            eligible().filter(|row| preferences.this.get(&row.name).is_none_or(|this| *this != This::Nothing))
        };
        Nodes {
            live: live().map(|row| &row.name).collect(),
            eligible: eligible().map(|row| &row.name).collect(),
            willing: willing().map(|row| &row.name).collect(),
            by_address: willing().map(|row| (row.address.as_str(), &row.name)).collect(),
        }
    }

    fn without(mut self, gone: &NodeName) -> Nodes<'a> {
        self.live.remove(gone);
        self.eligible.remove(gone);
        self.willing.remove(gone);
        self.by_address.retain(|_, node| *node != gone);
        self
    }
}

/// A node that may own a shard, and its weight there.
#[derive(Copy, Clone)]
struct Candidate<'a> {
    node: &'a NodeName,
    weight: u64,
}

struct Candidates<'a> {
    nodes: Vec<Candidate<'a>>,
    /// Why an owner that is not among them loses the shard.
    why: MoveReason,
}

impl<'a> Candidates<'a> {
    /// The one with the lowest load for its weight; among equals the first by name.
    fn lightest(&self, loads: &BTreeMap<&'a NodeName, u64>) -> Option<&'a NodeName> {
        let load = |candidate: &&Candidate<'a>| {
            let load = loads.get(candidate.node).copied().unwrap_or_default();
            (share(2 * load + 1, candidate.weight), candidate.node)
        };
        self.nodes.iter().min_by_key(load).map(|candidate| candidate.node)
    }

    fn contain(&self, node: &NodeName) -> bool {
        self.nodes.iter().any(|candidate| candidate.node == node)
    }
}

fn candidates<'a>(row: &'a ShardRow, preferences: &Preferences, nodes: &Nodes<'a>) -> Candidates<'a> {
    if let Target::Pinned(node) = &row.target
        && nodes.eligible.contains(node)
    {
        return Candidates { nodes: vec![Candidate { node, weight: 1 }], why: MoveReason::Pinned };
    }
    let alike = |nodes: &mut dyn Iterator<Item = &&'a NodeName>| -> Vec<Candidate<'a>> {
        nodes.map(|node| Candidate { node, weight: 1 }).collect()
    };
    let prefers = |node: &&&NodeName| preferences.this.get(**node) == Some(&This::Shard(row.shard));
    let hosts = preferences.hosts(row.shard);
    let listed = |mode| weighted(hosts.iter().filter(move |host| host.mode == mode), nodes);
    let groups = [
        alike(&mut nodes.eligible.iter().filter(prefers)),
        listed(HostMode::Rw),
        listed(HostMode::Ro),
        alike(&mut nodes.willing.iter()),
    ];
    let best = groups.into_iter().find(|group| !group.is_empty());
    let nodes = best.unwrap_or_else(|| alike(&mut nodes.eligible.iter()));
    Candidates { nodes, why: MoveReason::Preference }
}

/// The eligible nodes among `hosts`. Weight 0 means only if no other host of the group has a weight.
fn weighted<'a, 'h>(hosts: impl Iterator<Item = &'h Host>, nodes: &Nodes<'a>) -> Vec<Candidate<'a>> {
    let found = |host: &Host| {
        let node = nodes.by_address.get(host.address.as_str())?;
        Some(Candidate { node, weight: u64::from(host.weight) })
    };
    let all: Vec<Candidate<'a>> = hosts.filter_map(found).collect();
    if all.iter().any(|candidate| candidate.weight > 0) {
        return all.into_iter().filter(|candidate| candidate.weight > 0).collect();
    }
    all.into_iter().map(|candidate| Candidate { weight: 1, ..candidate }).collect()
}

/// The plan while it is made.
#[derive(Default)]
struct Board<'a> {
    shards: BTreeMap<ShardNo, Assignment<'a>>,
    loads: BTreeMap<&'a NodeName, u64>,
}

struct Assignment<'a> {
    candidates: Candidates<'a>,
    planned: Option<&'a NodeName>,
    /// Whether balancing moved it: once is enough, and bounds the work.
    moved: bool,
}

impl<'a> Board<'a> {
    fn add(&mut self, shard: ShardNo, candidates: Candidates<'a>, owner: Option<&'a NodeName>) {
        let planned = owner.filter(|owner| candidates.contain(owner));
        if let Some(node) = planned {
            *self.loads.entry(node).or_default() += 1;
        }
        self.shards.insert(shard, Assignment { candidates, planned, moved: false });
    }

    /// Gives every shard without an owner to the candidate with the lowest load for its weight.
    fn assign(&mut self) {
        let loads = &mut self.loads;
        for assignment in self.shards.values_mut().filter(|assignment| assignment.planned.is_none()) {
            let Some(best) = assignment.candidates.lightest(loads) else { continue };
            assignment.planned = Some(best);
            *loads.entry(best).or_default() += 1;
        }
    }

    /// Moves single shards while that makes loads more even.
    fn balance(&mut self) {
        while let Some((shard, to)) = self.best_move() {
            let assignment = self.shards.get_mut(&shard).expect("the move names a shard of the board");
            let from = assignment.planned.replace(to).expect("only a planned shard moves");
            assignment.moved = true;
            *self.loads.entry(from).or_default() -= 1;
            *self.loads.entry(to).or_default() += 1;
        }
    }

    /// The move with the highest gain; among equals that of the lowest shard, to the first node by name.
    fn best_move(&self) -> Option<(ShardNo, &'a NodeName)> {
        let mut best: Option<(u64, ShardNo, &'a NodeName)> = None;
        for (shard, assignment) in self.shards.iter().filter(|(_, assignment)| !assignment.moved) {
            for candidate in &assignment.candidates.nodes {
                let gain = self.gain(assignment, candidate);
                if gain > best.map_or(0, |(gain, ..)| gain) {
                    best = Some((gain, *shard, candidate.node));
                }
            }
        }
        best.map(|(_, shard, to)| (shard, to))
    }

    /// By how much the giver's last share exceeds the taker's next one (Sainte-Laguë); 0 if it does not.
    fn gain(&self, assignment: &Assignment<'a>, to: &Candidate<'a>) -> u64 {
        let Some(from) = assignment.planned.filter(|from| *from != to.node) else { return 0 };
        let found = assignment.candidates.nodes.iter().find(|candidate| candidate.node == from);
        let weight = found.map_or(1, |candidate| candidate.weight);
        let load = |node| self.loads.get(node).copied().unwrap_or_default();
        let gives = share((2 * load(from)).saturating_sub(1), weight);
        gives.saturating_sub(share(2 * load(to.node) + 1, to.weight))
    }
}

fn share(load: u64, weight: u64) -> u64 {
    load * SHARE_SCALE / weight
}

/// Keeps the shares of different weights apart in whole numbers.
const SHARE_SCALE: u64 = 1_000_000;

fn moves(
    board: &Board<'_>,
    shards: &BTreeMap<ShardNo, &ShardRow>,
    nodes: &Nodes<'_>,
    moves_at_once: usize,
) -> Vec<Move> {
    let found = |(shard, assignment): (&ShardNo, &Assignment<'_>)| {
        let owner = shards.get(shard)?.owner.as_ref().filter(|owner| nodes.live.contains(owner))?;
        let to = assignment.planned.filter(|planned| *planned != owner)?;
        let why = match assignment {
            _ if !nodes.eligible.contains(owner) => MoveReason::Drain,
            _ if assignment.candidates.contain(owner) => MoveReason::Balance,
            _ => assignment.candidates.why,
        };
        Some(Move { shard: *shard, from: owner.clone(), to: to.clone(), why })
    };
    let mut moves: Vec<Move> = board.shards.iter().filter_map(found).collect();
    moves.sort_by_key(|found| (found.why, found.shard));
    let drains = moves.iter().filter(|found| found.why == MoveReason::Drain).count();
    let under_way = shards.values().filter(|row| row.owner.is_none() && is_handoff(row)).count();
    moves.truncate(drains + moves_at_once.saturating_sub(under_way));
    moves
}

fn is_handoff(row: &ShardRow) -> bool {
    matches!(row.target, Target::Handoff(_))
}
