//! Taking a lease: at once, in line, or not at all. Knows nothing of protocols.

use super::{Asked, Lease, Verdict, Which, get, lost, settled};
use crate::{
    guards::News,
    kernel::Kernel,
    namespace::{Namespace, State},
    seat::{check_nodes, check_resources},
    shard::Follow,
    trouble::Trouble,
    view::{self, Line},
};
use lockwood_locks::{Outcome, Rank, Refusal, Request};
use lockwood_model::{Json, LeaseVia, LockId, OwnerId, Resource, Timestamp, Wait};
use lockwood_wire::Code;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::oneshot::{self, error::RecvError};

/// How long a request that is not to wait for others waits for shards that its lock covers.
const CLOSING_PATIENCE: Duration = Duration::from_secs(2);

/// What somebody who wants a lease asks for.
#[derive(Debug, Clone)]
pub struct LeaseRequest {
    /// In the owner's own words.
    pub owner: String,
    /// Through which interface it is taken.
    pub via: LeaseVia,
    /// What it is to cover.
    pub resources: Vec<Resource>,
    /// None: until it is released.
    pub ttl_ms: Option<u64>,
    /// How long to wait for locks of others.
    pub wait: Wait,
    /// What the owner says about it.
    pub note: Option<Json>,
}

/// How a request for a lease was answered.
#[derive(Debug)]
pub enum Taken {
    /// It is held, and that is on record.
    Granted(Lease),
    /// The owner had all of it already, by this lease; or the document that was to stand for it is there, and
    /// stands for this lease.
    Held(Lease),
    /// It stands in line; [`poll`] tells how that goes on.
    Queued(LockId, Line),
}

/// Takes a lease, waiting for it in line as long as the request says. If nobody is interested in the answer
/// any more, the wait ends too.
pub async fn take(
    kernel: &Arc<Kernel>,
    namespace: &str,
    mut request: LeaseRequest,
) -> Result<Taken, Trouble> {
    let deadline = match request.wait {
        Wait::Millis(ms) => Some(Instant::now() + Duration::from_millis(ms)),
        Wait::Never | Wait::Forever => None,
    };
    loop {
        let (waiting, verdict) = match ask(kernel, namespace, request.clone())? {
            Asking::Done { taken, after } => {
                kernel.shard.shown(after).await?;
                return Ok(taken);
            }
            Asking::Waits { waiting, verdict, .. } => (waiting, verdict),
        };
        let is_repeated = waiting.is_repeated;
        let concluded = waiting.conclude(verdict.await).await;
        let is_over = concluded.as_ref().is_err_and(|trouble| trouble.code == Code::Timeout);
        if !(is_repeated && is_over) {
            return concluded;
        }
        // The wait of the earlier request is over, this one's may not be.
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match left.map(|left| left.as_millis() as u64) {
            Some(0) => return concluded,
            Some(left_ms) => request.wait = Wait::Millis(left_ms),
            None => {}
        }
    }
}

/// Asks for a lease and waits no longer than it takes to know whether it is granted at once. Whoever stands
/// in line then stays there until its patience ends, whether or not somebody asks.
async fn enqueue(kernel: &Arc<Kernel>, namespace: &str, request: LeaseRequest) -> Result<Taken, Trouble> {
    if let Some(queued) = queued_already(kernel, namespace, &request) {
        return Ok(queued);
    }
    match ask(kernel, namespace, request)? {
        Asking::Done { taken, after } => {
            kernel.shard.shown(after).await?;
            Ok(taken)
        }
        Asking::Waits { mut waiting, verdict, line } => {
            // Nothing is in its way, but other shards have to know of it: that takes a moment, or means that one is away.
            if waiting.is_closing()
                && let Ok(verdict) = tokio::time::timeout(CLOSING_PATIENCE, verdict).await
            {
                return waiting.conclude(verdict).await;
            }
            waiting.stay();
            Ok(Taken::Queued(waiting.lock, line))
        }
    }
}

/// Stands in line and waits a while for what comes of it.
pub async fn take_and_poll(
    kernel: &Arc<Kernel>,
    namespace: &str,
    request: LeaseRequest,
    patience: Duration,
) -> Result<Taken, Trouble> {
    let taken = enqueue(kernel, namespace, request).await?;
    if let Taken::Queued(lock, _) = &taken {
        poll(kernel, namespace, *lock, patience).await?;
        if let Some(lease) = get(kernel, namespace, *lock) {
            settled(kernel, namespace).await?;
            return Ok(Taken::Granted(lease));
        }
    }
    Ok(taken)
}

/// The same request by the same owner, if it stands in line already: an answer may have been lost on its way.
fn queued_already(kernel: &Kernel, name: &str, request: &LeaseRequest) -> Option<Taken> {
    let namespace = kernel.registry.get(name)?;
    let mut state = namespace.lock();
    let which = Which::Like { owner: request.owner.clone(), resources: request.resources.clone() };
    let (_, lock) = state.find_waiting(&which).into_iter().next()?;
    // Somebody is told so, whatever becomes of those who wait for it now.
    if let Some(asked) = state.leases.asked.get_mut(&lock) {
        asked.stays = true;
    }
    Some(Taken::Queued(lock, view::line(&state, lock, kernel.clock.now())))
}

enum Asking {
    Done { taken: Taken, after: u64 },
    Waits { waiting: Waiting, verdict: oneshot::Receiver<Verdict>, line: Line },
}

fn ask(kernel: &Arc<Kernel>, name: &str, request: LeaseRequest) -> Result<Asking, Trouble> {
    check_request(kernel, &request)?;
    loop {
        let namespace = kernel.registry.ensure(kernel, name)?;
        let mut state = namespace.lock();
        // Dropped as unused just now; the next one is new.
        if state.is_closed() {
            continue;
        }
        state.follow = Follow::Caller;
        let asked = state.ask(kernel, &namespace, request);
        state.follow = Follow::Thread;
        state.linger(kernel);
        namespace.rearm(state);
        if !matches!(asked, Ok(Asking::Done { .. })) {
            // What ended on the way may be on record, and nobody waits for that.
            kernel.shard.nudge();
        }
        return asked;
    }
}

impl State {
    fn ask(
        &mut self,
        kernel: &Arc<Kernel>,
        namespace: &Arc<Namespace>,
        request: LeaseRequest,
    ) -> Result<Asking, Trouble> {
        let now = kernel.clock.now();
        self.expire(kernel, now);
        if let Some(lease) = self.document_there(&request, now) {
            return Ok(Asking::Done { taken: Taken::Held(lease.clone()), after: self.written });
        }
        if let Some(lock) = self.waits_already(&request) {
            return Ok(self.wait_on(kernel, namespace, (lock, true), now));
        }
        let owner = self.lease_owner(kernel, &request.owner);
        if let Some(lease) = self.lease_holding(owner, &request.resources, now) {
            return Ok(Asking::Done { taken: Taken::Held(lease.clone()), after: self.written });
        }
        let asked = self.ask_anew(kernel, namespace, request, owner, now);
        self.forget_lockless(owner);
        asked
    }

    /// The same request by the same owner, if that is in the queue: an answer may have been lost on its way. Two entries of one
    /// owner with others between them would look like a deadlock.
    fn waits_already(&self, request: &LeaseRequest) -> Option<LockId> {
        if request.wait == Wait::Never {
            return None;
        }
        let which = Which::Like { owner: request.owner.clone(), resources: request.resources.clone() };
        Some(self.find_waiting(&which).first()?.1)
    }

    /// A lease of an owner that has at least all of these resources.
    fn lease_holding(&mut self, owner: OwnerId, resources: &[Resource], now: Timestamp) -> Option<&Lease> {
        let lock = self.table.holding(owner, resources)?;
        // More may be over than could be ended just now.
        self.leases.get(lock).filter(|lease| lease.is_alive(now))
    }

    fn ask_anew(
        &mut self,
        kernel: &Arc<Kernel>,
        namespace: &Arc<Namespace>,
        request: LeaseRequest,
        owner: OwnerId,
        now: Timestamp,
    ) -> Result<Asking, Trouble> {
        self.check_room(kernel, owner, &request)?;
        let LeaseRequest { owner: name, via, resources, ttl_ms, wait, note } = request;
        let full = self.table.pending_len() as u64 >= kernel.config.limits.queue_len_max;
        let wait = if full { Wait::Never } else { wait };
        let wanted = resources.clone();
        let asked = Asked { owner: name.into(), via, note, ttl_ms, stays: false };
        let rank = if self.table.stands_at(owner, &resources) { Rank::Upgrade } else { Rank::Ordinary };
        let request = Request { owner, resources, wait, ttl_ms, rank };
        let outcome = self.table.lock(request, now);
        tracing::debug!(namespace = %self.name, owner = %asked.owner, ?outcome, "a lease is asked for");
        match outcome {
            Outcome::Granted { lock, token }
                if !self.may_tell(kernel, (owner, lock, token), (News::Granted { waited_ms: 0 }, None)) =>
            {
                self.leases.asked.insert(lock, asked);
                Ok(self.wait_on(kernel, namespace, (lock, false), now))
            }
            Outcome::Granted { lock, .. } => {
                kernel.metrics.grants.add(1);
                kernel.metrics.wait_time.observe(0);
                // Whoever wants it is just being told.
                self.leases.asked.insert(lock, Asked { stays: true, ..asked });
                self.lease_granted(kernel, lock);
                let lease = self.leases.held[&lock].clone();
                Ok(Asking::Done { taken: Taken::Granted(lease), after: self.written })
            }
            Outcome::Queued { lock } => {
                kernel.metrics.waits.add(1);
                self.leases.asked.insert(lock, asked);
                Ok(self.wait_on(kernel, namespace, (lock, false), now))
            }
            Outcome::Refused(Refusal::Busy { .. }) if full => Err(queue_full(kernel)),
            Outcome::Refused(refusal) => Err(view::refused(kernel, self, &refusal, Some(&wanted), now)),
        }
    }

    /// Waits for a lock that stands in line.
    fn wait_on(
        &mut self,
        kernel: &Arc<Kernel>,
        namespace: &Arc<Namespace>,
        (lock, is_repeated): (LockId, bool),
        now: Timestamp,
    ) -> Asking {
        let verdict = self.verdict_on(lock);
        let line = view::line(self, lock, now);
        let (kernel, namespace) = (Arc::clone(kernel), Arc::clone(namespace));
        let waiting = Waiting { kernel, namespace, lock, stays: false, is_repeated };
        Asking::Waits { waiting, verdict, line }
    }

    /// Whether another client waits for the same request.
    fn is_wanted(&self, lock: LockId) -> bool {
        self.is_awaited(lock) || self.leases.asked.get(&lock).is_some_and(|asked| asked.stays)
    }

    fn check_room(&self, kernel: &Kernel, owner: OwnerId, request: &LeaseRequest) -> Result<(), Trouble> {
        if kernel.is_draining() {
            return Err(Trouble::draining());
        }
        if kernel.is_poisoned() || !kernel.numbers.suffice(self.table.next_number()) {
            return Err(Trouble::storage_failed());
        }
        let limits = &kernel.config.limits;
        let limit = limits.leases_per_owner_max;
        if self.table.owned_len(owner) as u64 >= limit {
            return Err(Trouble::over("leases_per_owner_max", limit, "the owner has too many leases"));
        }
        let limit = limits.resources_per_namespace_max;
        if (self.table.resources_len() + request.resources.len()) as u64 > limit {
            let what = "the locks of the namespace have too many resources";
            return Err(Trouble::too_many("resources_per_namespace_max", limit, what));
        }
        check_nodes(kernel, self, &request.resources)
    }
}

pub(crate) fn queue_full(kernel: &Kernel) -> Trouble {
    let limit = kernel.config.limits.queue_len_max;
    Trouble::too_many("queue_len_max", limit, "too many locks wait in this namespace")
}

fn check_request(kernel: &Kernel, request: &LeaseRequest) -> Result<(), Trouble> {
    check_resources(kernel, &request.resources)?;
    check_owner(kernel, &request.owner)?;
    check_ttl(kernel, request.ttl_ms)?;
    check_note(kernel, request.note.as_ref())
}

fn check_owner(kernel: &Kernel, owner: &str) -> Result<(), Trouble> {
    let limit = kernel.config.limits.owner_bytes_max;
    if owner.is_empty() {
        let message = "a lease needs an owner: a name by which the process that takes it is known";
        return Err(Trouble::new(Code::BadOwner, message));
    }
    if owner.len() as u64 > limit {
        let what = format!("the owner's name has {} bytes", owner.len());
        return Err(Trouble::over("owner_bytes_max", limit, &what));
    }
    Ok(())
}

pub(super) fn check_ttl(kernel: &Kernel, ttl_ms: Option<u64>) -> Result<(), Trouble> {
    let limit = kernel.config.limits.lease_ttl_ms_max;
    match ttl_ms {
        Some(0) => Err(Trouble::new(Code::BadBody, "ttl_ms is the time a lease is held, and at least 1")),
        Some(ttl_ms) if ttl_ms > limit => {
            Err(Trouble::over("lease_ttl_ms_max", limit, &format!("the lease is to be held for {ttl_ms} ms")))
        }
        _ => Ok(()),
    }
}

pub(super) fn check_note(kernel: &Kernel, note: Option<&Json>) -> Result<(), Trouble> {
    let limit = kernel.config.limits.lease_note_bytes_max;
    match note.map(|note| note.as_str().len() as u64) {
        Some(len) if len > limit => {
            Err(Trouble::over("lease_note_bytes_max", limit, &format!("the note has {len} bytes")))
        }
        _ => Ok(()),
    }
}

/// A place in line. Given up when this goes, unless it stays or somebody else waits for the same.
pub(crate) struct Waiting {
    kernel: Arc<Kernel>,
    namespace: Arc<Namespace>,
    lock: LockId,
    stays: bool,
    /// An earlier request has the place, with its own end of the wait.
    is_repeated: bool,
}

impl Waiting {
    /// Whether only the shards that it covers are waited for.
    fn is_closing(&self) -> bool {
        self.namespace.lock().is_pending(self.lock)
    }

    /// It is wanted although nobody waits for the answer any more.
    fn stay(&mut self) {
        if let Some(asked) = self.namespace.lock().leases.asked.get_mut(&self.lock) {
            asked.stays = true;
        }
        self.stays = true;
    }

    async fn conclude(mut self, verdict: Result<Verdict, RecvError>) -> Result<Taken, Trouble> {
        let granted = match verdict {
            Ok(Verdict::Granted { after }) => self.kernel.shard.shown(after).await.map_err(Trouble::from),
            Ok(Verdict::Refused(trouble)) => Err(*trouble),
            Err(_) => Err(Trouble::unknown_lock(self.lock.0)),
        };
        granted?;
        let lease = self.namespace.lock().leases.get(self.lock).cloned();
        self.stays = true;
        // It may be over again, if its time was shorter than the disk took.
        lease.map(Taken::Granted).ok_or_else(|| lost(self.lock))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let owner = {
            let state = self.namespace.lock();
            state.table.owner_of(self.lock).filter(|_| !self.stays && !state.is_wanted(self.lock))
        };
        if let Some(owner) = owner {
            self.namespace.give_back(&self.kernel, owner, self.lock);
        }
    }
}

/// Waits until a lock that stands in line is granted, but not for longer than this. Fails if it is refused
/// meanwhile. How it stands then is for listings to tell, once they are [`settled`].
pub async fn poll(kernel: &Kernel, name: &str, lock: LockId, patience: Duration) -> Result<(), Trouble> {
    let Some(namespace) = kernel.registry.get(name) else { return Ok(()) };
    let verdict = {
        let mut state = namespace.lock();
        let waits = state.leases.asked.contains_key(&lock);
        waits.then(|| state.verdict_on(lock))
    };
    if let Some(verdict) = verdict
        && let Ok(Ok(Verdict::Refused(trouble))) = tokio::time::timeout(patience, verdict).await
    {
        return Err(*trouble);
    }
    Ok(())
}
