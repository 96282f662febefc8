//! A change of the map: only what it names becomes different, all of it or nothing. Knows nothing of how nodes
//! learn of it.

use crate::{
    ChangeError, Epoch, Function, Host, MapError, Phase, ShardMap, This, host::shards_from_json,
    map::validate_shards,
};
use serde_json::Value;

/// What `schema.config` names; what is absent stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// The shards and their hosts.
    pub list: Option<Vec<Vec<Host>>>,
    /// Where keys are to be.
    pub curr: Option<Function>,
    /// Where they come from; `Some(None)` is written `false` and ends the transition.
    pub prev: Option<Option<Function>>,
    /// What the node that is asked prefers to own; `Some(None)` is written `false` and ends that. No part of the map.
    pub this: Option<Option<This>>,
}

/// What a change comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Planned {
    /// Everything is as the change wants it already.
    Unchanged,
    /// No key moves: the first map, or other hosts and weights. While a transition is under way the map is of
    /// the same phase, and the transition is told by [`Transition::rehost`](crate::Transition::rehost).
    Publish(ShardMap),
    /// Keys move: this is the first map of a transition.
    Transition {
        /// With the shards of before and after.
        preparing: ShardMap,
        /// How many of them remain when it is over.
        keep: usize,
    },
    /// The transition ends, if it may: [`Transition::drop_prev`](crate::Transition::drop_prev).
    Drop,
}

impl Change {
    /// The change that is written as `value`.
    pub fn from_json(value: &Value) -> Result<Change, MapError> {
        let Value::Object(fields) = value else { return Err(MapError::json("config", "not an object")) };
        let mut change = Change::default();
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("list", list) => change.list = Some(shards_from_json("list", list)?),
                ("curr", function) => change.curr = Some(Function::from_json("curr", function)?),
                ("prev", Value::Bool(false) | Value::Null) => change.prev = Some(None),
                ("prev", function) => change.prev = Some(Some(Function::from_json("prev", function)?)),
                ("this", Value::Bool(false) | Value::Null) => change.this = Some(None),
                ("this", number) => change.this = Some(Some(this_from_json(number)?)),
                ("mode", _) => {
                    let why = "a node has none; the owner of a shard writes, and the hosts of the list say which nodes should \
                               own (rw) and follow (ro) it";
                    return Err(MapError::json(name, why));
                }
                _ => return Err(MapError::json(name, "unknown; list, this, curr and prev can be given")),
            }
        }
        Ok(change)
    }

    /// What this change makes of `map`, the one that is served now; nothing is changed if it fails.
    pub fn apply(&self, map: Option<&ShardMap>) -> Result<Planned, ChangeError> {
        if let Some(list) = &self.list {
            validate_shards("list", list)?;
        }
        let planned = match map {
            None => self.first()?,
            Some(map) if map.phase == Phase::Steady => self.of_steady(map)?,
            Some(map) => self.of_moving(map)?,
        };
        if let Planned::Publish(map) | Planned::Transition { preparing: map, .. } = &planned {
            map.validate()?;
        }
        Ok(planned)
    }

    fn first(&self) -> Result<Planned, ChangeError> {
        let list = self.list.clone().ok_or(ChangeError::Missing("list"))?;
        let curr = self.curr.as_ref().ok_or(ChangeError::Missing("curr"))?;
        if let Some(Some(_)) = self.prev {
            return Err(ChangeError::PrevFirst);
        }
        let curr = curr.filled(list.len());
        Ok(Planned::Publish(ShardMap::steady(1, list, curr)))
    }

    fn of_steady(&self, map: &ShardMap) -> Result<Planned, ChangeError> {
        let list = self.list.as_ref().unwrap_or(&map.shards);
        let curr = self.curr.as_ref().map_or_else(|| map.curr.clone(), |curr| curr.filled(list.len()));
        let prev = match &self.prev {
            Some(Some(prev)) => {
                let prev = prev.filled(map.shards.len());
                if prev != map.curr && curr != map.curr {
                    return Err(ChangeError::OtherPrev(map.curr.to_string()));
                }
                prev
            }
            Some(None) if curr != map.curr => return Err(ChangeError::NothingWouldMove),
            _ => map.curr.clone(),
        };
        if self.curr.is_some() {
            curr.validate("curr", list.len())?;
        }
        if curr == map.curr {
            refuse_dropped("curr", &curr, list, map)?;
        }
        Ok(if prev == curr { hosts_only(map, list) } else { transition(map, list, curr, prev) })
    }

    fn of_moving(&self, map: &ShardMap) -> Result<Planned, ChangeError> {
        let list = self.list.as_ref().unwrap_or(&map.shards);
        let other = |named: Option<&Function>, now: Option<&Function>| {
            named.is_some_and(|named| now.is_none_or(|now| named.filled(map.shards.len()) != *now))
        };
        let prev = self.prev.as_ref().and_then(Option::as_ref);
        if other(self.curr.as_ref(), Some(&map.curr)) || other(prev, map.prev.as_ref()) {
            return Err(ChangeError::UnderWay { phase: map.phase, target: map.curr.to_string() });
        }
        if self.prev == Some(None) && map.prev.is_some() {
            let alone = self.list.as_ref().is_none_or(|list| *list == map.shards);
            return if alone { Ok(Planned::Drop) } else { Err(ChangeError::DropAlone) };
        }
        refuse_dropped("curr", &map.curr, list, map)?;
        if let Some(prev) = &map.prev {
            refuse_dropped("prev", prev, list, map)?;
        }
        Ok(hosts_only(map, list))
    }
}

fn this_from_json(value: &Value) -> Result<This, MapError> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    let wrong = || {
        MapError::json(
            "this",
            "the number of the shard that this node prefers to own, or 0 if it prefers to own none",
        )
    };
    number.map(This::of).ok_or_else(wrong)
}

/// The first map of a transition: it has the shards of before and of after.
fn transition(map: &ShardMap, list: &[Vec<Host>], curr: Function, prev: Function) -> Planned {
    let mut shards = list.to_vec();
    shards.extend(map.shards.iter().skip(list.len()).cloned());
    let (phase, epoch, transition, reverses) = (Phase::Preparing, map.epoch + 1, map.epoch + 2, 0);
    let keeps = prev != map.curr;
    let preparing = ShardMap { epoch, phase, shards, curr, prev: Some(prev), transition, reverses, keeps };
    Planned::Transition { preparing, keep: list.len() }
}

fn hosts_only(map: &ShardMap, list: &[Vec<Host>]) -> Planned {
    if map.shards == list {
        return Planned::Unchanged;
    }
    Planned::Publish(map.rehosted(list.to_vec()))
}

fn refuse_dropped(
    which: &'static str,
    function: &Function,
    list: &[Vec<Host>],
    map: &ShardMap,
) -> Result<(), ChangeError> {
    // What a script answers is only known by running it for every key, so it keeps all the shards it has.
    let needs = function.shard_max().map_or(map.shards.len(), |shard| shard as usize);
    if needs <= list.len() {
        return Ok(());
    }
    Err(ChangeError::DropsShards { which, function: function.to_string(), needs, len: list.len() })
}

impl ShardMap {
    /// The same map with other hosts, as the next one to publish.
    pub(crate) fn rehosted(&self, shards: Vec<Vec<Host>>) -> ShardMap {
        let epoch = self.epoch + 1;
        let transition: Epoch = if self.phase == Phase::Preparing { epoch + 1 } else { self.transition };
        ShardMap { epoch, transition, shards, ..self.clone() }
    }

    /// The map without the shards behind the first `keep`, as far as no function uses them.
    pub fn trimmed(mut self, keep: usize) -> ShardMap {
        let used = [Some(&self.curr), self.prev.as_ref()];
        let used = used.into_iter().flatten().filter_map(Function::shard_max).max().unwrap_or(1);
        self.shards.truncate(keep.max(used as usize));
        self
    }
}
