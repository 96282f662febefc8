//! How a tenure ends: by a planned handoff, by stepping down, or because the process stops. Knows nothing of how a
//! tenure begins.

use super::{Action, ClaimRule, Hold, Monotonic, Ownership, Presence, StepDownReason};
use crate::{NodeName, ShardEpoch, ShardNo};

impl Ownership {
    /// Ends a tenure as planned: no more operations, then a release.
    pub(super) fn begin_release(
        &mut self,
        shard: ShardNo,
        to: Option<NodeName>,
        now: Monotonic,
        out: &mut Vec<Action>,
    ) {
        let until = now.after(self.policy.drain_timeout_ms);
        let slot = self.slot(shard);
        if let Hold::CatchingUp(tenure) | Hold::Serving(tenure) | Hold::Suspended(tenure) = slot.hold {
            slot.end(tenure.epoch);
            slot.hold = Hold::Draining { tenure, to, until };
            out.push(Action::StopAdmitting { shard, epoch: tenure.epoch });
        }
    }

    pub(super) fn drained(
        &mut self,
        shard: ShardNo,
        epoch: ShardEpoch,
        now: Monotonic,
        out: &mut Vec<Action>,
    ) {
        let Hold::Draining { tenure, to, .. } = self.hold(shard) else { return };
        if tenure.epoch != epoch {
            return;
        }
        let to = to.clone();
        if to.as_ref() == Some(&self.node) && !self.gives_up(shard) {
            // The tenure has ended for good, so the process that held it may claim without waiting.
            if self.seen.is_some() {
                return self.claim(shard, epoch, ClaimRule::Holder, now, out);
            }
            let slot = self.slot(shard);
            slot.hold = Hold::Reclaiming { held: epoch };
            slot.not_before = now;
            return;
        }
        let to = if to.as_ref() == Some(&self.node) { self.successor(shard) } else { to };
        self.release(shard, epoch, to, now, out);
    }

    /// Ends a tenure as planned, to begin the next one.
    pub(super) fn reopen(
        &mut self,
        shard: ShardNo,
        epoch: ShardEpoch,
        now: Monotonic,
        out: &mut Vec<Action>,
    ) {
        let own = self.node.clone();
        if matches!(self.hold(shard), Hold::Serving(tenure) if tenure.epoch == epoch) {
            self.begin_release(shard, Some(own), now, out);
        }
    }

    pub(super) fn release(
        &mut self,
        shard: ShardNo,
        epoch: ShardEpoch,
        to: Option<NodeName>,
        now: Monotonic,
        out: &mut Vec<Action>,
    ) {
        let retry_at = now.after(self.policy.call_timeout_ms);
        self.slot(shard).hold = Hold::Releasing { epoch, to: to.clone(), since: now, retry_at };
        out.push(Action::Release { shard, epoch, to });
    }

    pub(super) fn released(&mut self, shard: ShardNo, epoch: ShardEpoch, out: &mut Vec<Action>) {
        if matches!(self.hold(shard), Hold::Releasing { epoch: held, .. } if *held == epoch) {
            self.leave(shard, out);
        }
    }

    pub(super) fn release_failed(&mut self, shard: ShardNo, epoch: ShardEpoch, now: Monotonic) {
        let retry = now.after(self.policy.backoff.wait_ms(1));
        if let Hold::Releasing { epoch: held, retry_at, .. } = &mut self.slot(shard).hold
            && *held == epoch
        {
            *retry_at = retry;
        }
    }

    /// An append of the current tenure failed; those of earlier ones do not matter any more.
    pub(super) fn append_failed(
        &mut self,
        shard: ShardNo,
        epoch: ShardEpoch,
        why: StepDownReason,
        out: &mut Vec<Action>,
    ) {
        if self.hold(shard).tenure().is_some_and(|tenure| tenure.epoch == epoch) {
            self.step_down(shard, why, out);
        }
    }

    pub(super) fn step_down(&mut self, shard: ShardNo, why: StepDownReason, out: &mut Vec<Action>) {
        let slot = self.slot(shard);
        let Some(epoch) = slot.hold.tenure().map(|tenure| tenure.epoch) else { return };
        slot.end(epoch);
        slot.hold = Hold::SteppingDown { epoch, why };
        out.push(Action::StepDown { shard, epoch, why });
    }

    /// After an unknown append the process still holds the epoch: it claims again, or releases the shard if it is not
    /// to have it.
    pub(super) fn stepped_down(
        &mut self,
        shard: ShardNo,
        epoch: ShardEpoch,
        now: Monotonic,
        out: &mut Vec<Action>,
    ) {
        let policy = self.policy;
        match *self.hold(shard) {
            Hold::SteppingDown { epoch: held, why } if held == epoch => match why {
                StepDownReason::UnknownAppend if self.gives_up(shard) => {
                    let to = self.successor(shard);
                    self.release(shard, epoch, to, now, out);
                }
                StepDownReason::UnknownAppend => {
                    let slot = self.slot(shard);
                    slot.fail(now, &policy);
                    slot.hold = Hold::Reclaiming { held };
                }
                StepDownReason::Fenced | StepDownReason::Superseded => self.leave(shard, out),
            },
            _ => {}
        }
    }

    /// The process stops: it releases everything, then deregisters.
    pub(super) fn stop(&mut self, now: Monotonic, out: &mut Vec<Action>) {
        if self.presence != Presence::Member {
            return;
        }
        self.presence = Presence::Stopping;
        self.renewals.hint(&self.policy);
        self.follow_plan(now, out);
        for shard in self.shards.keys().copied().collect::<Vec<_>>() {
            let to = self.successor(shard);
            match *self.hold(shard) {
                Hold::Reclaiming { held } => self.release(shard, held, to, now, out),
                _ => self.begin_release(shard, to, now, out),
            }
        }
    }

    pub(super) fn deregister_when_released(&mut self, out: &mut Vec<Action>) {
        let done = || self.shards.values().all(|slot| slot.hold.is_unowned());
        if self.presence == Presence::Stopping && done() {
            self.presence = Presence::Gone;
            self.renewals.end();
            out.push(Action::Deregister);
        }
    }

    /// Whether the shard should be elsewhere.
    fn gives_up(&self, shard: ShardNo) -> bool {
        self.presence != Presence::Member || self.successor(shard).is_some()
    }

    /// The planned owner, if that is another node.
    fn successor(&self, shard: ShardNo) -> Option<NodeName> {
        self.plan.owners.get(&shard).filter(|owner| **owner != self.node).cloned()
    }
}

impl super::Slot {
    fn end(&mut self, epoch: ShardEpoch) {
        self.ended = self.ended.max(epoch);
    }
}
