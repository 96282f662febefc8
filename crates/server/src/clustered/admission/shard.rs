//! The shard's side: asks the home of a namespace to admit an operation, and tells it when the operation is durable or
//! rejected. Knows nothing of the lock table there.

use super::{
    Membership,
    home::{ENTER, LEAVE},
    message::{self, Attempt, Enter, Entered, Leave},
    parting,
};
use crate::{clustered::ShardCall, gate::Terms, shared::Shared, trouble::Trouble};
use lockwood_cluster::CallError;
use lockwood_model::{Resource, Wait};
use lockwood_router::{ShardEpoch, ShardNo};
use lockwood_wire::{Code, WireResource};
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// How long a home may be away until an operation is refused.
const HOME_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take, besides the wait for locks.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// That a home has admitted an operation here. When it goes, the home is told, as soon as what the operation wrote is
/// durable.
pub(crate) struct Admittance {
    shared: Arc<Shared>,
    /// Absent while this goes.
    asking: Option<Asking>,
    epoch: ShardEpoch,
    wrote: u64,
}

/// An operation that asks a home. If the home may have a lock for it, it is told when this goes.
struct Asking {
    membership: Arc<Membership>,
    home: ShardNo,
    attempt: Attempt,
    entry: Entry,
}

/// Whether the home has a lock for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// It has none, or keeps what it has until the shard has another owner.
    None,
    /// It may have, or get one: there is no answer.
    Unknown,
    /// It has.
    Entered,
}

impl Admittance {
    /// Asks the home; waits as long as the terms say for locks that are in the way. With no resources it only asks if the
    /// tokens of the terms are of locks that are held.
    pub(crate) async fn ask(
        shared: &Arc<Shared>,
        membership: &Arc<Membership>,
        (namespace, home): (&str, ShardNo),
        resources: &[Resource],
        terms: &Terms,
    ) -> Result<Admittance, Trouble> {
        let (mut deadline, mut pause) = (Instant::now() + HOME_TIMEOUT, PAUSE);
        let left: Vec<Attempt> = parting::over_so_far(home).into_iter().filter_map(Leaving::now).collect();
        let mut told = Told { membership: Arc::clone(membership), home, left };
        loop {
            let mut asking = Asking::new(membership, home);
            let refused = match asking.enter(shared, namespace, (resources, &mut told), terms).await {
                Ok(epoch) => match membership.barrier.enter(home, epoch) {
                    Ok(()) => {
                        let shared = Arc::clone(shared);
                        return Ok(Admittance { shared, asking: Some(asking), epoch, wrote: 0 });
                    }
                    // The next home has to be asked.
                    Err(replaced) => unreachable(home, &replaced.to_string()),
                },
                Err(Refused::Final(trouble)) => return Err(*trouble),
                Err(Refused::Away(trouble)) => *trouble,
                Err(Refused::Unknown(trouble)) => {
                    // It took its time; a takeover needs some more.
                    deadline = deadline.max(Instant::now() + HOME_TIMEOUT);
                    *trouble
                }
            };
            if Instant::now() >= deadline {
                return Err(refused);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Everything up to a record is the operation's.
    pub(crate) fn wrote(&mut self, index: u64) {
        self.wrote = self.wrote.max(index);
    }
}

impl Drop for Admittance {
    fn drop(&mut self) {
        let Some(asking) = self.asking.take() else { return };
        let leaving = Leaving {
            shared: Arc::clone(&self.shared),
            asking: Some(asking),
            epoch: self.epoch,
            wrote: self.wrote,
        };
        drop(parting::keep(leaving));
    }
}

/// An operation that reads and decides nothing more. The home is told when this goes, as soon as what it wrote is durable.
pub(super) struct Leaving {
    shared: Arc<Shared>,
    /// Absent while this goes.
    asking: Option<Asking>,
    epoch: ShardEpoch,
    wrote: u64,
}

impl Leaving {
    pub(super) fn home(&self) -> ShardNo {
        self.asking.as_ref().map_or(ShardNo(0), |asking| asking.home)
    }

    /// Leaves at once if what was written is durable, so that the caller can tell the home; the home is told by itself as
    /// well, as what the caller says may get lost. None if it is not durable.
    pub(super) fn now(mut self) -> Option<Attempt> {
        if self.wrote > 0 && !self.shared.shard.shows(self.wrote) {
            return None;
        }
        let asking = self.asking.take()?;
        asking.membership.barrier.leave(asking.home, self.epoch);
        Some(asking.attempt)
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let Some(asking) = self.asking.take() else { return };
        let (shared, epoch, wrote) = (Arc::clone(&self.shared), self.epoch, self.wrote);
        tokio::spawn(async move {
            if wrote > 0 && shared.shard.shown(wrote).await.is_err() {
                // It may become durable yet. The next owner of the shard ends that, and with it this operation's lock.
                return asking.keep();
            }
            asking.membership.barrier.leave(asking.home, epoch);
            drop(asking);
        });
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.entry != Entry::None {
            let entered = self.entry == Entry::Entered;
            let told = Leave { attempt: self.attempt, entered };
            tokio::spawn(leave(Arc::clone(&self.membership), self.home, told));
        }
    }
}

/// Tells a home that an operation has left, until it has heard it. A home need not be told of operations whose shard has
/// another owner.
async fn leave(membership: Arc<Membership>, home: ShardNo, told: Leave) {
    let call = ShardCall::post(LEAVE, message::write(&told), LEAVE_TIMEOUT);
    let (shard, epoch) = told.attempt.owner();
    let mut pause = PAUSE;
    // The view may be older than this tenure.
    while membership.node.topology.view().shard(shard).is_none_or(|row| row.epoch <= epoch) {
        if membership.node.ask_shard(home, &call).await.is_ok_and(|answer| answer.status().is_success()) {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Operations whose end travels with the next call to their home. It is told by itself if there is none.
struct Told {
    membership: Arc<Membership>,
    home: ShardNo,
    left: Vec<Attempt>,
}

impl Drop for Told {
    fn drop(&mut self) {
        for attempt in self.left.drain(..) {
            let told = Leave { attempt, entered: true };
            tokio::spawn(leave(Arc::clone(&self.membership), self.home, told));
        }
    }
}

/// Why a home did not admit an operation.
enum Refused {
    /// Because of locks, or of the request.
    Final(Box<Trouble>),
    /// It did not get the call, or is not the home any more.
    Away(Box<Trouble>),
    /// It may have got the call.
    Unknown(Box<Trouble>),
}

impl Asking {
    fn new(membership: &Arc<Membership>, home: ShardNo) -> Asking {
        let number = membership.attempts.fetch_add(1, Ordering::Relaxed);
        let attempt = Attempt { shard: membership.shard.0, epoch: membership.epoch.0, number };
        Asking { membership: Arc::clone(membership), home, attempt, entry: Entry::None }
    }

    /// The home keeps the lock.
    fn keep(mut self) {
        self.entry = Entry::None;
    }

    async fn enter(
        &mut self,
        shared: &Arc<Shared>,
        namespace: &str,
        (resources, told): (&[Resource], &mut Told),
        terms: &Terms,
    ) -> Result<ShardEpoch, Refused> {
        let asked = Enter {
            namespace: namespace.to_owned(),
            attempt: self.attempt,
            resources: resources.iter().map(WireResource::from).collect(),
            tokens: terms.tokens.clone(),
            wait_ms: message::wait_ms(terms.wait),
            left: told.left.clone(),
        };
        let wait = match terms.wait {
            Wait::Never => Duration::ZERO,
            Wait::Millis(ms) => Duration::from_millis(ms),
            Wait::Forever => Duration::from_millis(shared.config.limits.wait_ms_max),
        };
        let call = ShardCall::post(ENTER, message::write(&asked), ANSWER_TIMEOUT.saturating_add(wait));
        // From here on: also if the caller does not wait for the answer.
        self.entry = if resources.is_empty() { Entry::None } else { Entry::Unknown };
        let answer = self.membership.node.ask_shard(self.home, &call).await.map_err(|error| {
            let trouble = Box::new(unreachable(self.home, &error.to_string()));
            match error {
                CallError::Unknown { .. } => Refused::Unknown(trouble),
                CallError::NotSent { .. } | CallError::Rejected { .. } => {
                    self.entry = Entry::None;
                    Refused::Away(trouble)
                }
            }
        })?;
        told.left.clear();
        let entered = message::read_answer::<Entered>(answer.status(), answer.body());
        match &entered {
            Ok(_) if self.entry == Entry::Unknown => self.entry = Entry::Entered,
            // It may have taken the lock before it lost its shard.
            Err(trouble) if trouble.code == Code::ShardUnreachable => {}
            // One that refuses has no lock for it.
            _ => self.entry = Entry::None,
        }
        match entered {
            Ok(entered) => Ok(ShardEpoch(entered.epoch)),
            // The next owner of the home can be asked.
            Err(trouble) if matches!(trouble.code, Code::ShardUnreachable | Code::Draining) => {
                Err(Refused::Away(Box::new(trouble)))
            }
            Err(trouble) => Err(Refused::Final(Box::new(trouble))),
        }
    }
}

fn unreachable(home: ShardNo, cause: &str) -> Trouble {
    let message = format!(
        "shard {} decides the locks of this namespace and cannot be asked: {cause}; nothing was done, try again",
        home.0
    );
    Trouble::new(Code::ShardUnreachable, message)
}
