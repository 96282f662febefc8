//! When the next renewal is sent: one at a time, sooner after a hint, later after a failure. Knows nothing of what a
//! renewal contains.

use super::{Monotonic, Policy};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Renewals {
    state: State,
    last_sent: Option<Monotonic>,
    failures: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Due(Monotonic),
    Sent { at: Monotonic, hinted: bool },
    Ended,
}

impl Default for State {
    fn default() -> State {
        State::Due(Monotonic::default())
    }
}

impl Renewals {
    /// The time to put into a renewal, if one is due.
    pub(super) fn start(&mut self, now: Monotonic) -> Option<Monotonic> {
        if !matches!(self.state, State::Due(at) if at <= now) {
            return None;
        }
        (self.state, self.last_sent) = (State::Sent { at: now, hinted: false }, Some(now));
        Some(now)
    }

    /// Takes in an answer. A late one, to a renewal that was given up, does not change when the next is due.
    pub(super) fn answered(&mut self, sent: Monotonic, policy: &Policy) {
        self.failures = 0;
        if let State::Sent { at, hinted } = self.state
            && at == sent
        {
            let wait = if hinted { policy.hint_gap_ms } else { policy.renew_every_ms };
            self.state = State::Due(at.after(wait));
        }
    }

    /// Takes in a failure; answers whether it was the renewal under way.
    pub(super) fn failed(&mut self, sent: Monotonic, now: Monotonic, policy: &Policy) -> bool {
        if !matches!(self.state, State::Sent { at, .. } if at == sent) {
            return false;
        }
        self.failures += 1;
        let wait = policy.backoff.wait_ms(self.failures).min(policy.renew_every_ms);
        self.state = State::Due(now.after(wait));
        true
    }

    /// Gives up a renewal that has had no answer for too long; answers whether there was one. The next is due at once.
    pub(super) fn expire(&mut self, now: Monotonic, policy: &Policy) -> bool {
        match self.state {
            State::Sent { at, .. } if now >= at.after(policy.call_timeout_ms) => {
                (self.failures, self.state) = (self.failures + 1, State::Due(now));
                true
            }
            _ => false,
        }
    }

    /// Sends the next one sooner.
    pub(super) fn hint(&mut self, policy: &Policy) {
        let soonest = self.last_sent.map_or(Monotonic::default(), |sent| sent.after(policy.hint_gap_ms));
        match &mut self.state {
            State::Due(at) => *at = soonest.min(*at),
            State::Sent { hinted, .. } => *hinted = true,
            State::Ended => {}
        }
    }

    pub(super) fn end(&mut self) {
        self.state = State::Ended;
    }

    pub(super) fn wake_at(&self, policy: &Policy) -> Option<Monotonic> {
        match self.state {
            State::Due(at) => Some(at),
            State::Sent { at, .. } => Some(at.after(policy.call_timeout_ms)),
            State::Ended => None,
        }
    }
}
