//! How an operation at a shard begins and ends: within the guards, or by a lock of its own at the home. Knows nothing of the
//! lock table there.

use super::{
    Membership,
    member::MemberOf,
    message::{self, Attempt, Enter, Entered, Leave},
    parting,
    queue::{ENTER, LEAVE},
};
use crate::{clustered::ShardCall, shared::Shared};
use lockwood_cluster::CallError;
use lockwood_model::{OwnerId, Resource, Token, Wait};
use lockwood_node::{
    gate::{self, Terms},
    territory::Admittance,
    trouble::Trouble,
};
use lockwood_router::{
    ShardNo,
    guards::{Admission, Caller, HoldReason, HomeEpoch, MapEpoch, Operation, OperationId},
};
use lockwood_wire::{Code, WireResource};
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::JoinHandle};

/// How long a home may be away until an operation is refused.
const HOME_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take, besides the wait for locks.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

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

/// Admits an operation within the guards, or else by a lock of its own at the home, which waits as long as the terms
/// say. With no resources the home is only asked if the tokens of the terms are of locks that are held.
pub(crate) async fn admit(
    shared: &Arc<Shared>,
    membership: &Arc<Membership>,
    (namespace, home): (&str, ShardNo),
    resources: &[Resource],
    terms: &Terms,
) -> Result<Admittance, Trouble> {
    let member = membership.member_of(namespace, home);
    let number = membership.attempts.fetch_add(1, Ordering::Relaxed);
    let mut changes = member.changes();
    let mut asker = Asker::new(shared, &member, (membership, namespace), resources, terms);
    loop {
        changes.borrow_and_update();
        let operation = Operation {
            id: OperationId(number),
            caller: asker.caller.clone(),
            resources: resources.to_vec(),
            map: MapEpoch(shared.cluster.epoch()),
        };
        match member.admit(operation) {
            Admission::Admitted => {
                let running =
                    Some(Running { member: Arc::clone(&member), membership: Arc::clone(membership), number });
                let leaving =
                    Leaving { shared: Arc::clone(shared), running, queued: asker.queued.take(), wrote: 0 };
                return Ok(Admittance::new(move |wrote| drop(parting::keep(leaving.after(wrote)))));
            }
            Admission::ForeignToken(token) => return Err(gate::token_foreign(token.0)),
            Admission::VerifyTokenAtHome(_) => asker.verify_tokens().await?,
            Admission::QueueAtHome { .. } | Admission::Hold(HoldReason::Grace)
                if !asker.is_queued_at(member.home_epoch()) =>
            {
                asker.queue().await?;
            }
            Admission::MustJoin => {
                member.join(membership);
                asker.wait_for(&mut changes).await?;
            }
            // What the home has decided, or will, is on its way.
            Admission::QueueAtHome { .. } | Admission::Hold(_) => asker.wait_for(&mut changes).await?,
        }
    }
}

/// An operation that the member has admitted. Finished when this goes.
struct Running {
    member: Arc<MemberOf>,
    membership: Arc<Membership>,
    number: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.member.finished(&self.membership, OperationId(self.number));
    }
}

/// An operation on its way to be admitted.
struct Asker<'a> {
    shared: &'a Arc<Shared>,
    membership: &'a Arc<Membership>,
    namespace: &'a str,
    member: &'a MemberOf,
    resources: &'a [Resource],
    terms: &'a Terms,
    begun: Instant,
    /// Until when the home may be away.
    deadline: Instant,
    /// The owner that it runs as.
    caller: Caller,
    /// Its lock at the home, and the epoch of that.
    queued: Option<Asking>,
    queued_at: Option<HomeEpoch>,
}

impl<'a> Asker<'a> {
    fn new(
        shared: &'a Arc<Shared>,
        member: &'a MemberOf,
        (membership, namespace): (&'a Arc<Membership>, &'a str),
        resources: &'a [Resource],
        terms: &'a Terms,
    ) -> Asker<'a> {
        let begun = Instant::now();
        let caller = match terms.tokens.is_empty() {
            true => Caller::Anonymous,
            false => Caller::Tokens(terms.tokens.iter().copied().map(Token).collect()),
        };
        let deadline = begun + HOME_TIMEOUT;
        let (queued, queued_at) = (None, None);
        Asker {
            shared,
            membership,
            namespace,
            member,
            resources,
            terms,
            begun,
            deadline,
            caller,
            queued,
            queued_at,
        }
    }

    fn is_queued_at(&self, home: HomeEpoch) -> bool {
        self.queued_at == Some(home)
    }

    /// What is left of the wait for locks.
    fn wait(&self) -> Wait {
        match self.terms.wait {
            Wait::Millis(ms) => {
                let waited = self.begun.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
                // A wait that has begun is one: the lock may be free by now.
                Wait::Millis(ms.saturating_sub(waited).max(1))
            }
            other => other,
        }
    }

    /// Waits until the member has heard something, as long as the home may be away.
    async fn wait_for(&mut self, changes: &mut watch::Receiver<()>) -> Result<(), Trouble> {
        match tokio::time::timeout_at(self.deadline.into(), changes.changed()).await {
            Ok(_) => Ok(()),
            Err(_) => Err(unreachable(self.member.home(), "it does not say which locks are held")),
        }
    }

    async fn verify_tokens(&mut self) -> Result<(), Trouble> {
        let (_, entered) = self.enter(&[]).await?;
        self.caller = Caller::Owner(HomeEpoch(entered.epoch), OwnerId(entered.owner));
        Ok(())
    }

    /// Gets a lock for the operation at the home.
    async fn queue(&mut self) -> Result<(), Trouble> {
        if self.queued_at.is_some() {
            // This shard has not heard of that home yet, or the home was replaced since.
            tokio::time::sleep(PAUSE).await;
        }
        let (asking, entered) = self.enter(self.resources).await?;
        self.caller = Caller::Owner(HomeEpoch(entered.epoch), OwnerId(entered.owner));
        (self.queued, self.queued_at) = (Some(asking), Some(HomeEpoch(entered.epoch)));
        // The wait for locks is over.
        self.deadline = Instant::now() + HOME_TIMEOUT;
        Ok(())
    }

    async fn enter(&mut self, resources: &[Resource]) -> Result<(Asking, Entered), Trouble> {
        let home = self.member.home();
        let left: Vec<Attempt> = parting::over_so_far(home).into_iter().filter_map(Leaving::now).collect();
        let mut told = Told { membership: Arc::clone(self.membership), home, left };
        let mut pause = PAUSE;
        loop {
            // It may have been moved meanwhile.
            let mut asking = Asking::new(self.membership, self.member.home());
            let terms = Terms { wait: self.wait(), ..self.terms.clone() };
            let refused =
                match asking.enter(self.shared, self.namespace, (resources, &mut told), &terms).await {
                    Ok(entered) => return Ok((asking, entered)),
                    Err(Refused::Final(trouble)) => return Err(*trouble),
                    Err(Refused::Away(trouble)) => *trouble,
                    Err(Refused::Unknown(trouble)) => {
                        // It took its time; a takeover needs some more.
                        self.deadline = self.deadline.max(Instant::now() + HOME_TIMEOUT);
                        *trouble
                    }
                };
            if Instant::now() >= self.deadline {
                return Err(refused);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// An operation that reads and decides nothing more. It is finished when this goes, as soon as what it wrote is durable.
pub(super) struct Leaving {
    shared: Arc<Shared>,
    running: Option<Running>,
    queued: Option<Asking>,
    wrote: u64,
}

impl Leaving {
    /// The same, once a record is durable.
    fn after(mut self, wrote: u64) -> Leaving {
        self.wrote = wrote;
        self
    }

    /// The home that has a lock for it, if there is one.
    pub(super) fn home(&self) -> Option<ShardNo> {
        self.queued.as_ref().map(|asking| asking.home)
    }

    /// Finishes at once if what was written is durable, so that the caller can tell the home; the home is told by itself as
    /// well, as what the caller says may get lost. None if it is not durable, or the home has no lock for it.
    pub(super) fn now(mut self) -> Option<Attempt> {
        if self.wrote > 0 && !self.shared.shard.shows(self.wrote) {
            return None;
        }
        drop(self.running.take());
        Some(self.queued.take()?.attempt)
    }

    /// The same, and gives the task by which the home is told.
    pub(super) fn told(mut self) -> Option<JoinHandle<()>> {
        if self.wrote > 0 && !self.shared.shard.shows(self.wrote) {
            return None;
        }
        drop(self.running.take());
        self.queued.take()?.tell()
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let (running, queued, wrote) = (self.running.take(), self.queued.take(), self.wrote);
        if wrote == 0 || self.shared.shard.shows(wrote) {
            return finish(running, queued);
        }
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            if shared.shard.shown(wrote).await.is_ok() {
                return finish(running, queued);
            }
            // It may become durable yet. The next owner of the shard ends that, and with it this operation.
            std::mem::forget(running);
            if let Some(asking) = queued {
                asking.keep();
            }
        });
    }
}

/// The member goes first: the home's lock is lifted after it.
fn finish(running: Option<Running>, queued: Option<Asking>) {
    drop(running);
    drop(queued);
}

impl Drop for Asking {
    fn drop(&mut self) {
        drop(self.tell());
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

    /// Tells the home, once, that the operation has left, if it may have a lock for it.
    fn tell(&mut self) -> Option<JoinHandle<()>> {
        let entry = std::mem::replace(&mut self.entry, Entry::None);
        let told = Leave { attempt: self.attempt, entered: entry == Entry::Entered };
        let leaving = || tokio::spawn(leave(Arc::clone(&self.membership), self.home, told));
        (entry != Entry::None).then(leaving)
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
    ) -> Result<Entered, Refused> {
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
            Ok(entered) => Ok(entered),
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
    Trouble::unreachable(home, message)
}
