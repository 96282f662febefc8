//! One node and the shards it owns, wants or follows: events in, actions out. Knows nothing of connections or SQL, and
//! reads no clock: the database is the one truth, and time is an argument.
//!
//! **Why two nodes are never both fresh for a shard.** A node is fresh until `fresh_for_ms` after it *sent* its last
//! successful renewal or claim, by its own clock. The database marks the row after that. Another node claims
//! only when it has seen the same mark for `stale_after_ms` by its own clock, and the claim is refused if the mark is
//! another one by then, unless the owner released the shard. In that time the owner's clock advances
//! by more than `fresh_for_ms` ([`Policy::fresh_for_ms`]), however long requests and answers take and however long the
//! process pauses. The clock of the database decides nothing, so it may step. A release, and a claim as [`ClaimRule::Holder`], are sent only by the process that held the epoch,
//! after it ended the tenure for good: an ended epoch never becomes fresh again (`Slot::ended`).
//!
//! **How a shell drives it.** One task owns the machine. It calls [`Ownership::apply`] with every event and with the time
//! at which it *handles* the event, executes the actions in order without waiting for one before the next, and calls
//! again with [`Event::Tick`] at [`Ownership::wake_at`]. Threads that grant locks or answer reads ask
//! [`Ownership::is_fresh`], or compare their clock with a published copy of [`Ownership::fresh_until`], which is updated
//! before the actions of a call are executed.

mod claim;
mod event;
mod handoff;
mod hold;
mod policy;
mod renewals;
mod sightings;

pub use event::{Action, ClaimRule, Event, StepDownReason};
pub use hold::{Hold, Tenure};
pub use policy::{Backoff, Monotonic, Policy};

use crate::{
    NodeName, PolicyError, Preferences, ShardEpoch, ShardNo, ShardRow, View,
    placement::{self, Limits, Plan},
    planted::{Fault, is_planted},
};
use renewals::Renewals;
use sightings::Sightings;
use std::collections::BTreeMap;

/// A node and its shards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ownership {
    node: NodeName,
    policy: Policy,
    preferences: Preferences,
    presence: Presence,
    renewals: Renewals,
    /// Absent while the database does not answer: then nothing is claimed or moved.
    seen: Option<Seen>,
    sightings: Sightings,
    contact: Option<Contact>,
    plan: Plan,
    /// Which node would get each shard if its planned owner were gone; it follows the shard.
    next: BTreeMap<ShardNo, NodeName>,
    shards: BTreeMap<ShardNo, Slot>,
    /// When a shard may become due for a claim.
    claim_at: Option<Monotonic>,
}

/// Whether the process takes part.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Presence {
    Member,
    /// Releases everything.
    Stopping,
    /// Deregistered.
    Gone,
}

/// A view, and when it was asked for and received.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Seen {
    view: View,
    sent: Monotonic,
    received: Monotonic,
}

/// Since when the database has answered without a long gap.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
struct Contact {
    since: Monotonic,
    last: Monotonic,
}

/// What is known of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Slot {
    hold: Hold,
    /// The highest epoch whose tenure has ended here. Never fresh again.
    ended: ShardEpoch,
    /// Failures in a row, and when to try again.
    failures: u32,
    not_before: Monotonic,
}

impl Ownership {
    /// A node that has not registered yet and owns nothing, whatever rows say: epochs of an earlier process with the
    /// same name are not its own.
    pub fn new(node: NodeName, policy: Policy, preferences: Preferences) -> Result<Ownership, PolicyError> {
        policy.validate()?;
        Ok(Ownership {
            node,
            policy,
            preferences,
            presence: Presence::Member,
            renewals: Renewals::default(),
            seen: None,
            sightings: Sightings::default(),
            contact: None,
            plan: Plan::default(),
            next: BTreeMap::new(),
            shards: BTreeMap::new(),
            claim_at: None,
        })
    }

    /// Takes in what has happened, and answers what is to be done now.
    pub fn apply(&mut self, event: Event, now: Monotonic) -> Vec<Action> {
        let mut actions = Vec::new();
        self.take(event, now, &mut actions);
        self.advance(now, &mut actions);
        actions
    }

    /// Whether the shard may grant locks and answer linearizable reads at this moment.
    pub fn is_fresh(&self, shard: ShardNo, now: Monotonic) -> bool {
        self.fresh_until(shard).is_some_and(|until| now < until)
    }

    /// Until when [`Ownership::is_fresh`] holds if nothing happens; none if the shard is not served here.
    pub fn fresh_until(&self, shard: ShardNo) -> Option<Monotonic> {
        match self.hold(shard) {
            Hold::Serving(_) | Hold::Suspended(_) if is_planted(Fault::NoSelfStop) => {
                Some(Monotonic(u64::MAX))
            }
            Hold::Serving(tenure) => Some(tenure.fresh_until),
            _ => None,
        }
    }

    /// Whether leases of the shard run out at this moment: only while it is fresh. A takeover restarts them.
    pub fn lease_clock_runs(&self, shard: ShardNo, now: Monotonic) -> bool {
        self.is_fresh(shard, now)
    }

    /// How this process stands to a shard.
    pub fn hold(&self, shard: ShardNo) -> &Hold {
        self.shards.get(&shard).map_or(&Hold::Idle, |slot| &slot.hold)
    }

    /// All shards this process has something to do with.
    pub fn holds(&self) -> impl Iterator<Item = (ShardNo, &Hold)> {
        self.shards.iter().map(|(shard, slot)| (*shard, &slot.hold))
    }

    /// The plan by the last view.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The last view; none while the database does not answer.
    pub fn view(&self) -> Option<&View> {
        self.seen.as_ref().map(|seen| &seen.view)
    }

    /// When to call [`Ownership::apply`] with [`Event::Tick`], if nothing happens earlier; none when it is over.
    pub fn wake_at(&self) -> Option<Monotonic> {
        let waits = |slot: &&Slot| self.seen.is_none() && matches!(slot.hold, Hold::Reclaiming { .. });
        let slots = self.shards.values().filter(|slot| !waits(slot));
        let slots = slots.filter_map(|slot| slot.wake_at(&self.policy));
        slots.chain(self.renewals.wake_at(&self.policy)).chain(self.claim_at).min()
    }

    fn take(&mut self, event: Event, now: Monotonic, out: &mut Vec<Action>) {
        match event {
            Event::Tick => {}
            Event::Hint => self.renewals.hint(&self.policy),
            Event::Listed(preferences) => {
                self.preferences = preferences;
                self.follow_plan(now, out);
            }
            Event::Stop => self.stop(now, out),
            Event::Reopen { shard, epoch } => self.reopen(shard, epoch, now, out),
            Event::Renewed { sent, view } => self.renewed(sent, view, now, out),
            Event::RenewFailed { sent } => {
                if self.renewals.failed(sent, now, &self.policy) {
                    self.seen = None;
                }
            }
            Event::Claimed { shard, sent, epoch } => self.claimed(shard, sent, epoch, now, out),
            Event::ClaimFailed { shard, sent } => self.claim_refused(shard, sent, now, out),
            Event::CaughtUp { shard, epoch } => self.caught_up(shard, epoch, out),
            Event::CatchUpFailed { shard, epoch } => self.catch_up_failed(shard, epoch, now, out),
            Event::AppendFenced { shard, epoch } => {
                self.append_failed(shard, epoch, StepDownReason::Fenced, out);
            }
            Event::AppendUnknown { shard, epoch } => {
                self.append_failed(shard, epoch, StepDownReason::UnknownAppend, out);
            }
            Event::Drained { shard, epoch } => self.drained(shard, epoch, now, out),
            Event::Released { shard, epoch } => self.released(shard, epoch, out),
            Event::ReleaseFailed { shard, epoch } => self.release_failed(shard, epoch, now),
            Event::SteppedDown { shard, epoch } => self.stepped_down(shard, epoch, now, out),
        }
    }

    /// What time alone brings about.
    fn advance(&mut self, now: Monotonic, out: &mut Vec<Action>) {
        if self.presence == Presence::Gone {
            return;
        }
        if self.renewals.expire(now, &self.policy) {
            self.seen = None;
        }
        for shard in self.shards.keys().copied().collect::<Vec<_>>() {
            self.advance_shard(shard, now, out);
        }
        self.claim_free_shards(now, out);
        self.deregister_when_released(out);
        if let Some(sent) = self.renewals.start(now) {
            let stops = self.presence == Presence::Stopping;
            let held = |(shard, slot): (&ShardNo, &Slot)| Some((*shard, slot.hold.renewed_epoch()?));
            out.push(Action::Renew { sent, stops, shards: self.shards.iter().filter_map(held).collect() });
        }
    }

    fn advance_shard(&mut self, shard: ShardNo, now: Monotonic, out: &mut Vec<Action>) {
        let policy = self.policy;
        let slot = self.slot(shard);
        if slot.wake_at(&policy).is_none_or(|at| now < at) {
            return;
        }
        match slot.hold.clone() {
            Hold::Serving(tenure) => {
                slot.hold = Hold::Suspended(tenure);
                out.push(Action::Suspend { shard, epoch: tenure.epoch });
            }
            Hold::Claiming { sent, .. } => self.claim_refused(shard, sent, now, out),
            Hold::Draining { tenure, .. } => self.drained(shard, tenure.epoch, now, out),
            Hold::Releasing { epoch, to, since, .. } => {
                let retry_at = now.after(policy.call_timeout_ms);
                slot.hold = Hold::Releasing { epoch, to: to.clone(), since, retry_at };
                out.push(Action::Release { shard, epoch, to });
            }
            Hold::Reclaiming { held } if self.seen.is_some() => {
                self.claim(shard, held, ClaimRule::Holder, now, out);
            }
            Hold::Idle
            | Hold::Following
            | Hold::CatchingUp(_)
            | Hold::Suspended(_)
            | Hold::SteppingDown { .. }
            | Hold::Reclaiming { .. } => {}
        }
    }

    fn renewed(&mut self, sent: Monotonic, mut view: View, now: Monotonic, out: &mut Vec<Action>) {
        self.renewals.answered(sent, &self.policy);
        self.note_contact(now);
        for shard in self.shards.keys().copied().collect::<Vec<_>>() {
            self.compare(shard, view.shard(shard), sent, now, out);
        }
        if self.seen.as_ref().is_none_or(|seen| seen.sent < sent) && self.presence != Presence::Gone {
            self.sightings.observe(&mut view, now);
            self.seen = Some(Seen { view, sent, received: now });
            self.follow_plan(now, out);
        }
    }

    /// After an outage waits that failures have caused are over.
    fn note_contact(&mut self, now: Monotonic) {
        let gap_ms = self.policy.view_ms();
        let unbroken = self.contact.filter(|contact| now.since(contact.last) <= gap_ms);
        if unbroken.is_none() {
            self.shards.values_mut().for_each(|slot| slot.not_before = now.min(slot.not_before));
        }
        self.contact = Some(Contact { since: unbroken.map_or(now, |contact| contact.since), last: now });
    }

    /// Compares what this process holds with the row, as a renewal that was sent at `sent` found it.
    fn compare(
        &mut self,
        shard: ShardNo,
        row: Option<&ShardRow>,
        sent: Monotonic,
        now: Monotonic,
        out: &mut Vec<Action>,
    ) {
        let is_held = |epoch| row.is_some_and(|row| self.confirms(row, epoch));
        match *self.hold(shard) {
            Hold::Releasing { epoch, since, .. } if sent >= since && !is_held(epoch) => {
                self.leave(shard, out);
            }
            Hold::Releasing { epoch, .. } if is_planted(Fault::RenewalUndoesRelease) && is_held(epoch) => {
                let fresh_until = self.fresh_from(sent, now);
                self.slot(shard).hold = Hold::Serving(Tenure { epoch, since: sent, fresh_until });
            }
            Hold::Reclaiming { held } if row.is_none_or(|row| row.epoch > held) => self.leave(shard, out),
            ref hold => match hold.tenure().copied().filter(|tenure| is_named(tenure, sent)) {
                Some(tenure) if is_held(tenure.epoch) => self.extend(shard, sent, now, out),
                Some(_) => self.step_down(shard, StepDownReason::Superseded, out),
                None => {}
            },
        }
    }

    /// Whether the row says that this process holds the epoch. Another epoch under our name is that of another process.
    fn confirms(&self, row: &ShardRow, epoch: ShardEpoch) -> bool {
        let by_name = is_planted(Fault::ReviveLowerEpoch) && row.owner.as_ref() == Some(&self.node);
        row.is_held(&self.node, epoch) || by_name
    }

    fn extend(&mut self, shard: ShardNo, sent: Monotonic, now: Monotonic, out: &mut Vec<Action>) {
        let fresh_until = self.fresh_from(sent, now);
        let hold = &mut self.slot(shard).hold;
        if let Some(tenure) = hold.tenure_mut() {
            tenure.fresh_until = tenure.fresh_until.max(fresh_until);
        }
        match hold {
            Hold::Suspended(tenure) if now < tenure.fresh_until => {
                out.push(Action::Resume { shard, epoch: tenure.epoch });
                *hold = Hold::Serving(*tenure);
            }
            _ => {}
        }
    }

    /// How long a call that was sent at `sent`, and succeeded, proves ownership.
    fn fresh_from(&self, sent: Monotonic, now: Monotonic) -> Monotonic {
        let from = if is_planted(Fault::FreshFromAnswer) { now } else { sent };
        from.after(self.policy.fresh_for_ms())
    }

    /// Plans by the last view, starts the moves away from this node, and follows what it is listed or planned for.
    fn follow_plan(&mut self, now: Monotonic, out: &mut Vec<Action>) {
        let stops = self.presence != Presence::Member;
        let Some(seen) = &mut self.seen else { return };
        if let Some(row) = seen.view.nodes.iter_mut().find(|row| row.name == self.node) {
            row.drains |= stops;
        }
        self.plan = plan_after(seen, &self.preferences, &self.policy, 0);
        let limits = limits(&self.policy, 0);
        self.next = placement::next_owners(&seen.view, &self.preferences, limits, &self.plan);
        let shards: Vec<ShardNo> = seen.view.shards.iter().map(|row| row.shard).collect();
        for moved in self.plan.moves.clone() {
            if moved.from == self.node && matches!(self.hold(moved.shard), Hold::Serving(_)) {
                self.begin_release(moved.shard, Some(moved.to), now, out);
            }
        }
        for shard in shards.into_iter().filter(|_| !stops) {
            match self.hold(shard) {
                Hold::Idle if self.wants(shard) => self.leave(shard, out),
                Hold::Following if !self.wants(shard) => {
                    self.leave(shard, out);
                    out.push(Action::Unfollow { shard });
                }
                _ => {}
            }
        }
    }

    /// Goes back to following the shard, or to nothing.
    fn leave(&mut self, shard: ShardNo, out: &mut Vec<Action>) {
        let follows = self.wants(shard);
        self.slot(shard).hold = if follows { Hold::Following } else { Hold::Idle };
        if follows {
            out.push(Action::Follow { shard });
        }
    }

    /// Whether to have the log at hand: this node is listed for the shard, planned as its owner, or next.
    fn wants(&self, shard: ShardNo) -> bool {
        let planned = [self.plan.owners.get(&shard), self.next.get(&shard)];
        planned.contains(&Some(&self.node)) || self.is_listed(shard)
    }

    fn is_listed(&self, shard: ShardNo) -> bool {
        let row = self.view().and_then(|view| view.node(&self.node));
        row.is_some_and(|row| self.preferences.lists(shard, &row.address))
    }

    fn slot(&mut self, shard: ShardNo) -> &mut Slot {
        self.shards.entry(shard).or_default()
    }
}

/// Whether a renewal named this tenure: one of the same millisecond may have been sent before the claim was answered.
fn is_named(tenure: &Tenure, sent: Monotonic) -> bool {
    sent > tenure.since || is_planted(Fault::SameMillisecond) && sent == tenure.since
}

/// The plan as it is so much time after the view was received, if no node renews in between.
fn plan_after(seen: &Seen, preferences: &Preferences, policy: &Policy, later_ms: u64) -> Plan {
    placement::plan(&seen.view, preferences, limits(policy, later_ms))
}

fn limits(policy: &Policy, later_ms: u64) -> Limits {
    let stale_after_ms = policy.stale_after_ms.saturating_sub(later_ms);
    Limits { stale_after_ms, moves_at_once: policy.moves_at_once }
}

impl Slot {
    fn fail(&mut self, now: Monotonic, policy: &Policy) {
        self.failures += 1;
        self.not_before = now.after(policy.backoff.wait_ms(self.failures));
    }

    /// When the state changes if nothing happens.
    fn wake_at(&self, policy: &Policy) -> Option<Monotonic> {
        match &self.hold {
            Hold::Serving(tenure) => Some(tenure.fresh_until),
            Hold::Claiming { sent, .. } => Some(sent.after(policy.call_timeout_ms)),
            Hold::Draining { until, .. } => Some(*until),
            Hold::Releasing { retry_at, .. } => Some(*retry_at),
            Hold::Reclaiming { .. } => Some(self.not_before),
            Hold::Idle
            | Hold::Following
            | Hold::CatchingUp(_)
            | Hold::Suspended(_)
            | Hold::SteppingDown { .. } => None,
        }
    }
}
