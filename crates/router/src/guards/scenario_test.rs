//! Who takes part in a small cluster, how its keys move, and what clients lock. Knows nothing of what happens.

use super::{Coverage, Covered, HomeEpoch, MapEpoch};
use crate::{ShardEpoch, ShardNo};
use lockwood_model::{Depth, Mode, OwnerId, Path, Resource};
use std::collections::BTreeSet;

/// What a client does, again and again.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Lock(Vec<Resource>),
    Convert(Vec<Resource>),
    Release,
}

/// The owner that a writer runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Anonymous,
    /// A session of the home that the shard knows.
    Session,
    /// A client that presents the token of its lock.
    Holder(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Writer {
    pub(super) by: By,
    pub(super) key: usize,
    pub(super) resources: Vec<Resource>,
}

/// Who there is, and how much may happen.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) shards: usize,
    /// The shard of each key, for one steady map after the other.
    pub(super) maps: Vec<Vec<usize>>,
    pub(super) clients: Vec<Vec<Step>>,
    pub(super) writers: Vec<Writer>,
    /// How often clients go through their steps, and how often each writer commits.
    pub(super) rounds: usize,
    pub(super) home_takeovers: usize,
    /// Whether each of them is at another shard, whose owner has a lower epoch.
    pub(super) homes_move: bool,
    pub(super) shard_takeovers: usize,
    /// Joins and leaves of one owner of a shard.
    pub(super) joins_max: u8,
    /// Messages under way at once.
    pub(super) net_max: usize,
    pub(super) losses: u8,
    /// Whether clients give up waiting.
    pub(super) cancels: bool,
}

/// `write k/0:1` is mode, path and depth.
pub(super) fn resources(texts: &[&str]) -> Vec<Resource> {
    let parse = |text: &&str| {
        let (mode, rest) = text.split_once(' ').unwrap();
        let (path, depth) = rest.split_once(':').unwrap_or((rest, ""));
        let depth = depth.parse().map_or(Depth::SUBTREE, |levels| Depth::levels(levels).unwrap());
        Resource::new(path.parse().unwrap(), mode.parse().unwrap(), depth)
    };
    texts.iter().map(parse).collect()
}

impl Scenario {
    /// The epoch of one home after the other. If they move, each is at a shard whose owner has a lower epoch than the one before.
    pub(super) fn home_epoch(&self, index: usize) -> HomeEpoch {
        match self.homes_move {
            true => HomeEpoch::new(index as u64, ShardEpoch((self.home_takeovers - index) as u64 + 1)),
            false => HomeEpoch(index as u64 + 1),
        }
    }

    /// The home that has an epoch.
    pub(super) fn home_index(&self, epoch: HomeEpoch) -> usize {
        (0..=self.home_takeovers)
            .find(|index| self.home_epoch(*index) == epoch)
            .expect("a home has this epoch")
    }

    pub(super) fn entities(&self) -> usize {
        self.clients.len() + self.writers.len()
    }

    /// Published maps, from 1: steady, preparing, resharding, steady, …
    pub(super) fn map_last(&self) -> u64 {
        (self.maps.len() as u64 - 1) * 3 + 1
    }

    /// The shards whose function has a key by a map: the old one, and the new one while keys move.
    fn functions(&self, map: u64) -> (&[usize], Option<&[usize]>, u64) {
        let (transition, phase) = (((map - 1) / 3) as usize, (map - 1) % 3);
        let next = (phase > 0).then(|| self.maps[transition + 1].as_slice());
        (&self.maps[transition], next, phase)
    }

    fn covers(&self, map: u64, key: usize, shard: usize) -> bool {
        let (old, new, _) = self.functions(map);
        old[key] == shard || new.is_some_and(|new| new[key] == shard)
    }

    pub(super) fn serves(&self, map: u64, key: usize, shard: usize) -> bool {
        let (old, new, phase) = self.functions(map);
        match (phase, new) {
            (1, Some(new)) => old[key] == shard && new[key] == shard,
            (2, Some(new)) => new[key] == shard,
            _ => old[key] == shard,
        }
    }

    /// The first map by which a shard has had a key ever since.
    pub(super) fn since(&self, map: u64, key: usize, shard: usize) -> MapEpoch {
        MapEpoch((1..=map).rev().take_while(|map| self.covers(*map, key, shard)).last().unwrap_or(map))
    }

    pub(super) fn covered(&self, map: u64, resources: &[Resource]) -> Covered {
        let keys = self.maps[0].len();
        let path = |key: usize| -> Path { Path::from_segments(["k", &key.to_string()]) };
        let whole = |key| Resource::new(path(key), Mode::Write, Depth::SUBTREE);
        // Every shard may create a document, so a lock on the list of them concerns every shard.
        let link = Resource::new(Path::from_segments(["k"]), Mode::Link, Depth::NODE);
        let concerns = |resource: &Resource, key| resource.overlaps(&whole(key)) || resource.overlaps(&link);
        let is_covered = |key: &usize| resources.iter().any(|resource| concerns(resource, *key));
        let mut shards = BTreeSet::new();
        for key in (0..keys).filter(is_covered) {
            shards.extend((0..self.shards).filter(|shard| self.covers(map, key, *shard)).map(shard_no));
        }
        if shards.len() == self.shards { Covered::All } else { Covered::Shards(shards) }
    }
}

/// The shards that resources cover by one map.
pub(super) struct Covering<'a>(pub(super) &'a Scenario, pub(super) u64);

impl Coverage for Covering<'_> {
    fn covered(&self, resources: &[Resource]) -> Covered {
        self.0.covered(self.1, resources)
    }
}

/// What a client has after one of its steps.
pub(super) fn wants(scenario: &Scenario, client: usize, step: usize) -> &[Resource] {
    match &scenario.clients[client][step] {
        Step::Lock(resources) | Step::Convert(resources) => resources,
        Step::Release => &[],
    }
}

pub(super) fn conflict(some: &[Resource], others: &[Resource]) -> bool {
    some.iter().any(|one| others.iter().any(|other| one.conflicts(other)))
}

/// Each home numbers owners anew, and gives numbers that others had before.
pub(super) fn owner_id(scenario: &Scenario, entity: usize, home: usize) -> OwnerId {
    OwnerId(((entity + home) % scenario.entities()) as u64)
}

pub(super) fn shard_no(shard: usize) -> ShardNo {
    ShardNo(shard as u32 + 1)
}
