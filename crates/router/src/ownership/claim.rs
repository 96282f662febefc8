//! How a node becomes the owner of a shard: when it claims, and what follows from the answer. Knows nothing of how a
//! tenure ends.

use super::{
    Action, ClaimRule, Hold, Monotonic, Ownership, Presence, Seen, Tenure, plan_after, policy::ClaimRank,
};
use crate::{
    RenewalMark, ShardEpoch, ShardNo, ShardRow,
    placement::Plan,
    planted::{Fault, is_planted},
};

/// A free shard, and when this node claims it.
struct Due {
    shard: ShardNo,
    expected: ShardEpoch,
    renewed: RenewalMark,
    at: Monotonic,
}

impl Ownership {
    /// Claims what is free and due, and notes when to look again.
    pub(super) fn claim_free_shards(&mut self, now: Monotonic, out: &mut Vec<Action>) {
        self.claim_at = None;
        let due = self.due_claims(now);
        self.claim_at = due.iter().map(|due| due.at).filter(|at| *at > now).min();
        for Due { shard, expected, renewed, .. } in due.into_iter().filter(|due| due.at <= now) {
            let by_name = is_planted(Fault::ClaimByName) && self.is_in_our_name(shard);
            let rule = if by_name { ClaimRule::Holder } else { ClaimRule::Free(renewed) };
            self.claim(shard, expected, rule, now, out);
        }
    }

    fn is_in_our_name(&self, shard: ShardNo) -> bool {
        let row = self.view().and_then(|view| view.shard(shard));
        row.is_some_and(|row| row.owner.as_ref() == Some(&self.node))
    }

    /// The shards that are free, or going to be if their owner does not renew.
    fn due_claims(&self, now: Monotonic) -> Vec<Due> {
        let Some(seen) = self.seen.as_ref().filter(|seen| self.may_claim_by(seen, now)) else {
            return Vec::new();
        };
        let waited = now.since(seen.received);
        let mut plan = None;
        let mut due = |row: &ShardRow| {
            let slot = self.shards.get(&row.shard);
            // A row from before the end of our own tenure is too old to go by.
            if slot.is_some_and(|slot| !slot.hold.is_unowned() || row.epoch < slot.ended) {
                return None;
            }
            let free_at = self.free_at(row, seen.received);
            let at = if free_at > now {
                free_at
            } else {
                let plan =
                    plan.get_or_insert_with(|| plan_after(seen, &self.preferences, &self.policy, waited));
                self.claim_at(row, free_at, plan, now)
            };
            let at = slot.map_or(at, |slot| at.max(slot.not_before));
            Some(Due { shard: row.shard, expected: row.epoch, renewed: row.renewed, at })
        };
        seen.view.shards.iter().filter_map(&mut due).collect()
    }

    /// Nothing is claimed by a node that drains, nor by an old view: the database may be unavailable.
    fn may_claim_by(&self, seen: &Seen, now: Monotonic) -> bool {
        let drains = seen.view.node(&self.node).is_none_or(|row| row.drains);
        let recent = now.since(seen.received) <= self.policy.view_ms();
        self.presence == Presence::Member && !drains && recent
    }

    /// When the shard counts as free, as far as the view can tell. After an outage all ownership is stale: owners get
    /// time to renew first.
    fn free_at(&self, row: &ShardRow, received: Monotonic) -> Monotonic {
        let by_name = is_planted(Fault::ClaimByName) && self.is_in_our_name(row.shard);
        if row.owner.is_none() || by_name {
            return Monotonic(received.0.saturating_sub(row.age_ms));
        }
        let stale_at = Monotonic((received.0 + self.policy.stale_after_ms + 1).saturating_sub(row.age_ms));
        let contact = self.contact.map_or(received, |contact| contact.since);
        stale_at.max(contact.after(self.policy.outage_grace_ms))
    }

    fn claim_at(&self, row: &ShardRow, free_at: Monotonic, plan: &Plan, now: Monotonic) -> Monotonic {
        let planned = plan.owners.get(&row.shard) == Some(&self.node);
        let rank = match row.target.node() {
            _ if planned => ClaimRank::Planned,
            Some(target) if *target == self.node => ClaimRank::Planned,
            _ if self.is_listed(row.shard) => ClaimRank::Listed,
            _ => ClaimRank::Other,
        };
        let delay = self.policy.claim_delay_ms(rank, &self.node, row.shard);
        // Nodes see a renewal up to an interval apart: the planned owner may be the last.
        let skew = match (&row.owner, rank) {
            (None, _) | (_, ClaimRank::Planned) => 0,
            (Some(_), ClaimRank::Listed | ClaimRank::Other) => self.policy.renew_every_ms,
        };
        free_at.after(delay + skew + self.handoff_wait_ms(row, now))
    }

    /// A shard that was released to another live node waits for that node.
    fn handoff_wait_ms(&self, row: &ShardRow, now: Monotonic) -> u64 {
        let (Some(target), Some(seen), None) = (row.target.node(), &self.seen, &row.owner) else { return 0 };
        let later = now.since(seen.received);
        let is_live = |name| {
            let node = seen.view.node(name);
            node.is_some_and(|node| !node.drains && node.age_ms + later <= self.policy.stale_after_ms)
        };
        if *target != self.node && is_live(target) { self.policy.handoff_wait_ms } else { 0 }
    }

    pub(super) fn claim(
        &mut self,
        shard: ShardNo,
        expected: ShardEpoch,
        rule: ClaimRule,
        now: Monotonic,
        out: &mut Vec<Action>,
    ) {
        self.slot(shard).hold = Hold::Claiming { sent: now, expected, rule };
        out.push(Action::Claim { shard, sent: now, expected, rule });
    }

    /// Begins a tenure, if this is the claim that is awaited, or an earlier one for the same epoch. Any other epoch is
    /// one that this process does not want any more: it is released, unless that was done before.
    pub(super) fn claimed(
        &mut self,
        shard: ShardNo,
        sent: Monotonic,
        epoch: ShardEpoch,
        now: Monotonic,
        out: &mut Vec<Action>,
    ) {
        let fresh_until = self.fresh_from(sent, now);
        let slot = self.slot(shard);
        let late = is_planted(Fault::LateClaimCounts) && slot.hold.tenure().is_none();
        let ours = slot.hold.renewed_epoch() == Some(epoch);
        let awaited = match slot.hold {
            Hold::Claiming { expected, .. } => expected.next() == epoch,
            Hold::Reclaiming { held } => held.next() == epoch,
            _ => false,
        };
        if (epoch <= slot.ended || ours) && !late {
            return;
        }
        if !awaited && !late {
            slot.ended = epoch;
            out.push(Action::Release { shard, epoch, to: None });
            return;
        }
        slot.hold = Hold::CatchingUp(Tenure { epoch, since: now, fresh_until });
        out.push(Action::CatchUp { shard, epoch });
        if is_planted(Fault::ServeBeforeCatchUp) {
            self.caught_up(shard, epoch, out);
        }
        if self.presence != Presence::Member {
            self.begin_release(shard, None, now, out);
        }
    }

    /// The claim that is awaited was refused or not answered. If it succeeds nevertheless, its tenure is not ours.
    pub(super) fn claim_refused(
        &mut self,
        shard: ShardNo,
        sent: Monotonic,
        now: Monotonic,
        out: &mut Vec<Action>,
    ) {
        let policy = self.policy;
        let Hold::Claiming { sent: awaited, expected, rule } = *self.hold(shard) else { return };
        if awaited != sent {
            return;
        }
        self.slot(shard).fail(now, &policy);
        match rule {
            ClaimRule::Free(_) => self.leave(shard, out),
            // Until a view shows that the epoch has moved on.
            ClaimRule::Holder => self.slot(shard).hold = Hold::Reclaiming { held: expected },
        }
    }

    pub(super) fn caught_up(&mut self, shard: ShardNo, epoch: ShardEpoch, out: &mut Vec<Action>) {
        let slot = self.slot(shard);
        if let Hold::CatchingUp(tenure) = slot.hold
            && tenure.epoch == epoch
        {
            (slot.hold, slot.failures) = (Hold::Serving(tenure), 0);
            out.push(Action::Serve { shard, epoch });
        }
    }

    pub(super) fn catch_up_failed(
        &mut self,
        shard: ShardNo,
        epoch: ShardEpoch,
        now: Monotonic,
        out: &mut Vec<Action>,
    ) {
        let policy = self.policy;
        if matches!(self.hold(shard), Hold::CatchingUp(tenure) if tenure.epoch == epoch) {
            self.slot(shard).fail(now, &policy);
            self.begin_release(shard, None, now, out);
        }
    }
}
