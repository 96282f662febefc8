//! The rows of a cluster and the guarded updates that change them, as PostgreSQL makes them. Knows nothing of networks
//! or processes; its clock is an argument.

use crate::{
    NodeName, NodeRow, RenewalMark, ShardEpoch, ShardNo, ShardRow, Target, View,
    ownership::{Action, ClaimRule, Event, Monotonic},
    planted::{Fault, is_planted},
};
use std::collections::BTreeMap;

/// An invariant that does not hold.
pub(crate) type Violation = String;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Database {
    pub(crate) nodes: BTreeMap<NodeName, Node>,
    pub(crate) shards: BTreeMap<ShardNo, Shard>,
    /// How far its clock has stepped.
    pub(crate) ahead_ms: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) renewed_at: u64,
    /// Written by renewals.
    pub(crate) stops: bool,
    /// Written by operators.
    pub(crate) drains: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Shard {
    pub(crate) epoch: ShardEpoch,
    pub(crate) owner: Option<NodeName>,
    pub(crate) renewed_at: u64,
    pub(crate) target: Target,
    /// The last index of the log.
    pub(crate) index: u64,
}

impl Shard {
    /// The mark is never one that was there before, also if the clock has stepped back.
    fn touch(&mut self, now: u64) {
        self.renewed_at = now.max(self.renewed_at + 1);
    }

    fn mark(&self) -> RenewalMark {
        RenewalMark(i64::try_from(self.renewed_at).expect("times of the model are small"))
    }
}

/// A call to the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Renew { sent: Monotonic, stops: bool, shards: Vec<(ShardNo, ShardEpoch)> },
    Claim { shard: ShardNo, sent: Monotonic, expected: ShardEpoch, rule: ClaimRule },
    Release { shard: ShardNo, epoch: ShardEpoch, to: Option<NodeName> },
    Deregister,
    ReadLog { shard: ShardNo, epoch: ShardEpoch },
    Append { shard: ShardNo, epoch: ShardEpoch, index: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    Event(Event),
    Log { shard: ShardNo, epoch: ShardEpoch, index: u64 },
    Appended { shard: ShardNo, epoch: ShardEpoch, index: u64 },
    Fenced { shard: ShardNo, epoch: ShardEpoch, index: u64 },
}

impl Call {
    /// The call that an action is, if it is one.
    pub(crate) fn of(action: &Action) -> Option<Call> {
        Some(match action.clone() {
            Action::Renew { sent, stops, shards } => Call::Renew { sent, stops, shards },
            Action::Claim { shard, sent, expected, rule } => Call::Claim { shard, sent, expected, rule },
            Action::Release { shard, epoch, to } => Call::Release { shard, epoch, to },
            Action::Deregister => Call::Deregister,
            Action::CatchUp { shard, epoch } => Call::ReadLog { shard, epoch },
            _ => return None,
        })
    }
}

impl Database {
    pub(crate) fn new(shards: u32) -> Database {
        let shards = (1..=shards).map(|shard| (ShardNo(shard), Shard::default())).collect();
        Database { nodes: BTreeMap::new(), shards, ahead_ms: 0 }
    }

    /// Executes a call at `now`, by a clock that never steps.
    pub(crate) fn execute(
        &mut self,
        node: &NodeName,
        call: &Call,
        now: u64,
    ) -> Result<Option<Reply>, Violation> {
        let now = now.saturating_add_signed(self.ahead_ms);
        Ok(match call {
            Call::Renew { sent, stops, shards } => Some(self.renew(node, *sent, *stops, shards, now)),
            Call::Claim { shard, sent, expected, rule } => {
                let claimed = self.claim(node, *shard, *expected, *rule, now);
                Some(Reply::Event(match claimed {
                    Some(epoch) => Event::Claimed { shard: *shard, sent: *sent, epoch },
                    None => Event::ClaimFailed { shard: *shard, sent: *sent },
                }))
            }
            Call::Release { shard, epoch, to } => {
                self.release(node, *shard, *epoch, to.as_ref(), now);
                Some(Reply::Event(Event::Released { shard: *shard, epoch: *epoch }))
            }
            Call::Deregister => {
                self.nodes.remove(node);
                None
            }
            Call::ReadLog { shard, epoch } => {
                Some(Reply::Log { shard: *shard, epoch: *epoch, index: self.shards[shard].index })
            }
            Call::Append { shard, epoch, index } => Some(self.append(*shard, *epoch, *index)?),
        })
    }

    fn renew(
        &mut self,
        node: &NodeName,
        sent: Monotonic,
        stops: bool,
        shards: &[(ShardNo, ShardEpoch)],
        now: u64,
    ) -> Reply {
        let row = self.nodes.entry(node.clone()).or_default();
        (row.renewed_at, row.stops) = (now, stops);
        for (shard, epoch) in shards {
            if let Some(row) = self.held(node, *shard, *epoch) {
                row.touch(now);
            }
        }
        Reply::Event(Event::Renewed { sent, view: self.view(now) })
    }

    fn claim(
        &mut self,
        node: &NodeName,
        shard: ShardNo,
        expected: ShardEpoch,
        rule: ClaimRule,
        now: u64,
    ) -> Option<ShardEpoch> {
        let row = self.shards.get_mut(&shard)?;
        let allowed = match rule {
            ClaimRule::Free(renewed) => {
                row.owner.is_none() || row.mark() == renewed || is_planted(Fault::ClaimFresh)
            }
            ClaimRule::Holder => row.owner.as_ref() == Some(node),
        };
        if row.epoch != expected || !allowed {
            return None;
        }
        (row.epoch, row.owner) = (row.epoch.next(), Some(node.clone()));
        row.touch(now);
        if matches!(row.target, Target::Handoff(_)) {
            row.target = Target::Any;
        }
        Some(row.epoch)
    }

    fn release(
        &mut self,
        node: &NodeName,
        shard: ShardNo,
        epoch: ShardEpoch,
        to: Option<&NodeName>,
        now: u64,
    ) {
        if let Some(row) = self.held(node, shard, epoch) {
            row.owner = None;
            row.touch(now);
            if let Some(to) = to.filter(|_| !matches!(row.target, Target::Pinned(_))) {
                row.target = Target::Handoff(to.clone());
            }
        }
    }

    /// Rejects another epoch, and an index that is taken or leaves a gap.
    fn append(&mut self, shard: ShardNo, epoch: ShardEpoch, index: u64) -> Result<Reply, Violation> {
        let row = self.shards.get_mut(&shard).expect("appends name shards that exist");
        let guarded = row.epoch == epoch || is_planted(Fault::AppendUnguarded);
        if !guarded || index != row.index + 1 {
            return Ok(Reply::Fenced { shard, epoch, index });
        }
        if row.epoch != epoch {
            return Err(format!("shard {shard} accepts an append of epoch {epoch} in epoch {}", row.epoch));
        }
        row.index = index;
        Ok(Reply::Appended { shard, epoch, index })
    }

    fn held(&mut self, node: &NodeName, shard: ShardNo, epoch: ShardEpoch) -> Option<&mut Shard> {
        let row = self.shards.get_mut(&shard)?;
        (row.epoch == epoch && row.owner.as_ref() == Some(node)).then_some(row)
    }

    fn view(&self, now: u64) -> View {
        let node = |(name, row): (&NodeName, &Node)| NodeRow {
            name: name.clone(),
            address: format!("{name}:1"),
            age_ms: now.saturating_sub(row.renewed_at),
            drains: row.drains || row.stops,
        };
        let shard = |(shard, row): (&ShardNo, &Shard)| ShardRow {
            shard: *shard,
            epoch: row.epoch,
            owner: row.owner.clone(),
            renewed: row.mark(),
            age_ms: now.saturating_sub(row.renewed_at),
            target: row.target.clone(),
        };
        View { nodes: self.nodes.iter().map(node).collect(), shards: self.shards.iter().map(shard).collect() }
    }
}
