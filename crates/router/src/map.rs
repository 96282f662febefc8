//! The shard map: which shards there are, who serves them, and which one has a key. Knows nothing of how a map
//! comes to be replaced.

use crate::{Function, Host, HostMode, MapError, MapProblem, RouteError, Scripts, host::shards_from_json};
use lockwood_model::Key;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, fmt};

/// Counts published maps: a map with a higher epoch replaces one with a lower.
pub type Epoch = u64;

/// The highest epoch: the largest whole number that every reader of JSON keeps exact.
pub const EPOCH_MAX: Epoch = (1 << 53) - 1;

/// The number of a shard, counted from 1.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShardNo(pub u32);

/// How far a transition from one function to another is.
///
/// | phase | who serves a key that moves |
/// | --- | --- |
/// | `Steady` | there is no such key |
/// | `Preparing` | nobody: the old shard has stopped, the new one has not begun |
/// | `Resharding` | the new shard, which asks the old one for what it does not know yet |
/// | `Finishing` | the new shard, alone; the old one removes what it has left |
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// One function, nothing moves.
    Steady,
    /// Old shards stop for what moves.
    Preparing,
    /// New shards serve what moves.
    Resharding,
    /// Old shards clean up.
    Finishing,
}

/// Which shards there are, who serves them, and which one has a key: one object, replaced whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardMap {
    /// Higher than that of every map before.
    pub epoch: Epoch,
    /// How far the transition is.
    pub phase: Phase,
    /// The hosts of shard 1, of shard 2 and so on.
    pub shards: Vec<Vec<Host>>,
    /// Where keys are, or are going.
    pub curr: Function,
    /// Where keys come from, while they move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<Function>,
    /// Epoch of the `Resharding` map of this transition, 0 if none. A `Preparing` map names the epoch that
    /// its `Resharding` map is going to have.
    #[serde(default)]
    pub transition: Epoch,
    /// The transition that this one takes back, 0 if none: a key that its owner did not know then is still
    /// as it was on the shard it now returns to.
    #[serde(default)]
    pub reverses: Epoch,
    /// Whether what an owner has already is what counts, and donors are asked for the rest: `prev` is not where
    /// keys were served before, so their owners have been writing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps: bool,
}

/// Where a key is served.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// By this shard.
    Owner(ShardNo),
    /// By nobody for a moment, while it changes hands.
    Moving {
        /// Who has stopped.
        from: ShardNo,
        /// Who is going to begin.
        to: ShardNo,
    },
    /// By its owner, which asks the donor for what it does not know yet.
    Pulled {
        /// Who serves it.
        owner: ShardNo,
        /// Whose copy is frozen.
        donor: ShardNo,
    },
}

impl ShardMap {
    /// A map in which nothing moves.
    pub fn steady(epoch: Epoch, shards: Vec<Vec<Host>>, curr: Function) -> ShardMap {
        let (phase, prev, transition, reverses, keeps) = (Phase::Steady, None, 0, 0, false);
        ShardMap { epoch, phase, shards, curr, prev, transition, reverses, keeps }
    }

    /// Whether the map can be served from; the error names the entry that is wrong.
    pub fn validate(&self) -> Result<(), MapError> {
        if self.epoch == 0 || self.epoch > EPOCH_MAX {
            return Err(MapError::new("epoch", MapProblem::Epoch(self.epoch)));
        }
        validate_shards("shards", &self.shards)?;
        self.curr.validate("curr", self.shards.len())?;
        if let Some(prev) = &self.prev {
            prev.validate("prev", self.shards.len())?;
        }
        self.validate_phase()
    }

    fn validate_phase(&self) -> Result<(), MapError> {
        let moves = matches!(self.phase, Phase::Preparing | Phase::Resharding);
        let wrong = |entry, problem| Err(MapError::new(entry, MapProblem::Phase(problem)));
        match (self.phase, &self.prev) {
            (_, None) if moves => return wrong("prev", "missing while keys move"),
            (_, Some(_)) if !moves => return wrong("prev", "given though no key moves"),
            _ => {}
        }
        match self.phase {
            Phase::Steady if self.transition != 0 => wrong("transition", "not 0 though steady"),
            Phase::Preparing if self.transition.checked_sub(1) != Some(self.epoch) => {
                wrong("transition", "not the epoch after this one")
            }
            Phase::Resharding | Phase::Finishing if self.transition == 0 => {
                wrong("transition", "0 though not steady")
            }
            Phase::Resharding | Phase::Finishing if self.transition > self.epoch => {
                wrong("transition", "after the map's own epoch")
            }
            _ if self.reverses != 0 && self.reverses >= self.transition => {
                wrong("reverses", "not an earlier transition")
            }
            _ => Ok(()),
        }
    }

    /// Where a key is served.
    pub fn route(&self, collection: &str, key: &Key, scripts: &dyn Scripts) -> Result<Route, RouteError> {
        let curr = self.shard("curr", &self.curr, collection, key, scripts)?;
        let Some(prev) = &self.prev else { return Ok(Route::Owner(curr)) };
        // Nobody ever had a key that prev has no answer for, so nothing of it is elsewhere.
        let Ok(prev) = self.shard("prev", prev, collection, key, scripts) else {
            return Ok(Route::Owner(curr));
        };
        Ok(match self.phase {
            _ if prev == curr => Route::Owner(curr),
            Phase::Preparing => Route::Moving { from: prev, to: curr },
            Phase::Resharding => Route::Pulled { owner: curr, donor: prev },
            Phase::Steady | Phase::Finishing => Route::Owner(curr),
        })
    }

    fn shard(
        &self,
        which: &'static str,
        function: &Function,
        collection: &str,
        key: &Key,
        scripts: &dyn Scripts,
    ) -> Result<ShardNo, RouteError> {
        let len = self.shards.len();
        let named = || (function.to_string(), format!("{collection}/{key}"));
        let answer = function.shard(collection, key, scripts).map_err(|problem| {
            let (function, key) = named();
            RouteError::NoAnswer { which, function, key, problem }
        })?;
        let shard = u32::try_from(answer).ok().filter(|shard| *shard >= 1 && *shard as usize <= len);
        shard.map(ShardNo).ok_or_else(|| {
            let (function, key) = named();
            RouteError::Outside { which, function, key, answer, len }
        })
    }

    /// The hosts of a shard; none if there is no such shard.
    pub fn hosts(&self, shard: ShardNo) -> &[Host] {
        let index = (shard.0 as usize).checked_sub(1);
        index.and_then(|index| self.shards.get(index)).map_or(&[], Vec::as_slice)
    }

    /// The one host of a shard that writes.
    pub fn rw_host(&self, shard: ShardNo) -> Option<&Host> {
        self.hosts(shard).iter().find(|host| host.mode == HostMode::Rw)
    }

    /// The addresses of all hosts, each once.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.shards.iter().flatten().map(|host| host.address.as_str())
    }

    /// The numbers of all shards.
    pub fn shard_numbers(&self) -> impl Iterator<Item = ShardNo> {
        (1..).take(self.shards.len()).map(ShardNo)
    }

    /// A host to read from, by weight: `dice` is any number, and the caller's randomness.
    ///
    /// Hosts that only read come first; the one that writes is asked when no other has a weight.
    pub fn pick_ro(&self, shard: ShardNo, dice: u64) -> Option<&Host> {
        let reader = pick_ro(self.hosts(shard), dice);
        reader.or_else(|| self.rw_host(shard)).or_else(|| self.hosts(shard).first())
    }

    /// The map as JSON.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("a map has only strings as names")
    }

    /// The map that is written as `value`, validated.
    pub fn from_json(value: &Value) -> Result<ShardMap, MapError> {
        let field = |name: &str| value.get(name).filter(|value| !value.is_null());
        if let Some(shards) = field("shards") {
            shards_from_json("shards", shards)?;
        }
        for name in ["curr", "prev"] {
            field(name).map(|function| Function::from_json(name, function)).transpose()?;
        }
        let map = ShardMap::deserialize(value).map_err(|error| MapError::json("map", error))?;
        map.validate()?;
        Ok(map)
    }
}

/// One of the hosts that only read, by weight; none if none of them has one.
pub(crate) fn pick_ro(hosts: &[Host], dice: u64) -> Option<&Host> {
    let ro = || hosts.iter().filter(|host| host.mode == HostMode::Ro);
    let total: u64 = ro().map(|host| u64::from(host.weight)).sum();
    let mut left = dice.checked_rem(total)?;
    ro().find(|host| match left.checked_sub(u64::from(host.weight)) {
        Some(rest) => {
            left = rest;
            false
        }
        None => true,
    })
}

/// Whether every shard has hosts, exactly one of which writes, and no address is there twice.
pub(crate) fn validate_shards(entry: &str, shards: &[Vec<Host>]) -> Result<(), MapError> {
    if shards.is_empty() {
        return Err(MapError::new(entry, MapProblem::Empty("at least one shard")));
    }
    let mut seen: BTreeMap<&str, String> = BTreeMap::new();
    for (index, hosts) in shards.iter().enumerate() {
        let entry = format!("{entry}[{index}]");
        validate_hosts(&entry, hosts)?;
        for (index, host) in hosts.iter().enumerate() {
            let entry = format!("{entry}[{index}]");
            if let Some(other) = seen.insert(&host.address, entry.clone()) {
                let problem = MapProblem::SameAddress { address: host.address.clone(), other };
                return Err(MapError::new(format!("{entry}.address"), problem));
            }
        }
    }
    Ok(())
}

/// Whether every shard has hosts, exactly one of which writes. One host may be named for several shards.
pub fn check_hosts(entry: &str, shards: &[Vec<Host>]) -> Result<(), MapError> {
    if shards.is_empty() {
        return Err(MapError::new(entry, MapProblem::Empty("at least one shard")));
    }
    let mut shards = shards.iter().enumerate();
    shards.try_for_each(|(index, hosts)| validate_hosts(&format!("{entry}[{index}]"), hosts))
}

fn validate_hosts(entry: &str, hosts: &[Host]) -> Result<(), MapError> {
    if hosts.is_empty() {
        return Err(MapError::new(entry, MapProblem::Empty("exactly one rw host")));
    }
    for (index, host) in hosts.iter().enumerate() {
        host.validate(&format!("{entry}[{index}]"))?;
    }
    match hosts.iter().filter(|host| host.mode == HostMode::Rw).count() {
        1 => Ok(()),
        0 => Err(MapError::new(entry, MapProblem::NoRwHost)),
        several => Err(MapError::new(entry, MapProblem::ManyRwHosts(several))),
    }
}

impl fmt::Display for ShardNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Steady => "steady",
            Phase::Preparing => "preparing",
            Phase::Resharding => "resharding",
            Phase::Finishing => "finishing",
        })
    }
}
