//! A connection's place in a session: everything a client can do with locks. Knows nothing of protocols;
//! leaving it is leaving the session.

use crate::{
    guards::{News, lifted},
    kernel::Kernel,
    lease::queue_full,
    namespace::{Admission, Changing, Namespace, Reclaimed, State},
    schemas::names_fields,
    session::{Notice, Opening},
    trouble::Trouble,
    view::{self, Line},
};
use lockwood_locks::{
    CancelOutcome, Change, ConvertError, ConvertOutcome, Effect, Outcome, Rank, Refusal, Request,
};
use lockwood_model::{LockId, OwnerId, Resource, Timestamp, Token, Wait};
use lockwood_wire::{Code, HeldLock};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use tokio::sync::mpsc::UnboundedReceiver;

/// A connection's place in a session.
pub struct Seat {
    kernel: Arc<Kernel>,
    namespace: Arc<Namespace>,
    owner: OwnerId,
    number: u64,
    /// Where notices for the session arrive.
    pub inbox: UnboundedReceiver<Notice>,
    /// What the session had when the seat was taken.
    pub held: Vec<HeldLock>,
    /// How long its locks stay when the connection is lost.
    pub abandon_timeout_ms: u64,
    /// The last record that has to be durable before what was answered can be told.
    after: AtomicU64,
    /// What locks covered that have ended, where other shards have to know of it before that is told.
    lifting: Mutex<Vec<Resource>>,
    /// The session holds a lock, and less than its abandon timeout is on record for that.
    uncovered: AtomicBool,
    /// No collection of the namespace had a schema when [`Schemas::changes`](crate::schemas::Schemas::changes) was one
    /// less; 0 if that was not looked up.
    schemaless: AtomicU64,
}

/// How a lock or a conversion was answered at once.
#[derive(Debug)]
pub enum Answer<Waiting = Line> {
    /// It is held.
    Done {
        /// Its id.
        lock: LockId,
        /// Its fencing token.
        token: u64,
    },
    /// It waits. A notice follows.
    Queued {
        /// Its id.
        lock: LockId,
        /// Its position in the queue.
        line: Waiting,
    },
    /// Nothing is in its way. A notice follows, as for one that waited, once the shards that it covers are closed.
    Closing {
        /// Its id.
        lock: LockId,
    },
}

impl Seat {
    /// Opens a session in the namespace called `name`, which is made if need be, and puts back its locks.
    pub fn open(
        kernel: &Arc<Kernel>,
        name: &str,
        mut opening: Opening,
        locks: &[Reclaimed],
    ) -> Result<Seat, Trouble> {
        loop {
            let namespace = kernel.registry.ensure(kernel, name)?;
            match namespace.open(kernel, opening, locks) {
                Ok(admission) => return Ok(Seat::new(kernel, namespace, admission)),
                // It was dropped as unused just now; the next one is new.
                Err(again) => opening = again,
            }
        }
    }

    /// The seat that a namespace has admitted.
    pub fn new(kernel: &Arc<Kernel>, namespace: Arc<Namespace>, admission: Admission) -> Seat {
        let Admission { owner, seat, inbox, held, abandon_timeout_ms } = admission;
        let (kernel, after, schemaless) = (Arc::clone(kernel), AtomicU64::new(0), AtomicU64::new(0));
        tracing::debug!(namespace = %namespace.name, owner = owner.0, "a session has a connection");
        let session = namespace.lock().session_id(owner).to_owned();
        kernel.grace.came_back(&kernel, &namespace.name, &session);
        // An earlier connection may have been granted locks that it was never told of.
        let holds = held.iter().any(|lock| lock.token.is_some());
        let uncovered = holds && namespace.cover.granted(abandon_timeout_ms);
        let uncovered = AtomicBool::new(uncovered);
        Seat {
            kernel,
            namespace,
            owner,
            number: seat,
            inbox,
            held,
            abandon_timeout_ms,
            after,
            lifting: Mutex::default(),
            uncovered,
            schemaless,
        }
    }

    /// The namespace of the session.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Whether resources are within the limits.
    pub fn check(&self, resources: &[Resource]) -> Result<(), Trouble> {
        check_resources(&self.kernel, resources)
    }

    /// Whether the schemas of the namespace know the fields that are to be locked. A session in a namespace without
    /// schemas finds that out once.
    pub fn check_names(&self, resources: &[Resource]) -> Result<(), Trouble> {
        let changes = self.kernel.schemas.changes() + 1;
        if !names_fields(resources) || self.schemaless.load(Ordering::Relaxed) == changes {
            return Ok(());
        }
        let active = self.kernel.schemas.active(&self.kernel, &self.namespace.name)?;
        if active.is_empty() {
            self.schemaless.store(changes, Ordering::Relaxed);
        }
        active.check_locked_in_place(resources)
    }

    /// Nothing that was answered so far is to be told before this record is durable.
    pub(crate) fn rest_on(&self, record: u64) {
        self.after.fetch_max(record, Ordering::Relaxed);
    }

    /// The session holds a lock that it is to be told of.
    pub fn granted(&self, record: u64) {
        self.rest_on(record);
        if self.namespace.cover.granted(self.abandon_timeout_ms) {
            self.uncovered.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until what was answered so far can be told; false if that will never be.
    pub async fn settled(&self) -> bool {
        if self.uncovered.load(Ordering::Relaxed) {
            if let Err(error) = self.kernel.grace.cover(&self.namespace, self.abandon_timeout_ms).await {
                tracing::error!(%error, "record how long a lock may outlive this run");
                return false;
            }
            self.uncovered.store(false, Ordering::Relaxed);
        }
        let after = self.after.load(Ordering::Relaxed);
        let is_durable =
            after == 0 || self.kernel.shard.shows(after) || self.kernel.shard.shown(after).await.is_ok();
        if self.namespace.is_guarded {
            let ended = std::mem::take(&mut *self.lifting.lock());
            if lifted(&self.kernel, &self.namespace.name, &ended).await.is_err() {
                return false;
            }
        }
        is_durable && self.kernel.authority.is_fresh()
    }

    /// Whether no other process can have the namespace.
    pub fn is_sole(&self) -> bool {
        self.kernel.authority.is_sole()
    }

    /// Takes locks, and says who is in the way if they have to wait.
    pub fn lock(&self, resources: Vec<Resource>, wait: Wait, request: u64) -> Result<Answer, Trouble> {
        self.lock_with(resources, wait, Some(request), view::line)
    }

    /// The refusal of a path with so many segments.
    pub fn too_deep(&self, segments_len: usize) -> Trouble {
        too_deep(&self.kernel, segments_len)
    }

    /// Takes locks for a client that does not want to know who is in the way.
    pub fn lock_plainly(&self, resources: Vec<Resource>) -> Result<Answer<()>, Trouble> {
        self.lock_with(resources, Wait::Forever, None, |_, _, _| ())
    }

    fn lock_with<T>(
        &self,
        resources: Vec<Resource>,
        wait: Wait,
        request: Option<u64>,
        describe: impl FnOnce(&State, LockId, Timestamp) -> T,
    ) -> Result<Answer<T>, Trouble> {
        check_resources(&self.kernel, &resources)?;
        let mut state = self.speak()?;
        self.check_room(&state, resources.len() as u64)?;
        check_nodes(&self.kernel, &state, &resources)?;
        let now = self.kernel.clock.now();
        let full = self.is_full(&state);
        let wait = if full { Wait::Never } else { wait };
        let metrics = &self.kernel.metrics;
        // Only a request that may be refused for what it wants is copied to say so.
        let wanted = (wait == Wait::Never).then(|| resources.clone());
        let outcome = state
            .table
            .lock(Request { owner: self.owner, resources, wait, ttl_ms: None, rank: Rank::Ordinary }, now);
        tracing::debug!(namespace = %state.name, owner = self.owner.0, ?outcome, "a session asks for a lock");
        match outcome {
            Outcome::Granted { lock, token } => {
                self.remember(&mut state, lock, request);
                let news = News::Granted { waited_ms: 0 };
                if !state.may_tell(&self.kernel, (self.owner, lock, token), (news, request)) {
                    return Ok(Answer::Closing { lock });
                }
                metrics.grants.add(1);
                metrics.wait_time.observe(0);
                self.granted(state.written);
                Ok(Answer::Done { lock, token: token.0 })
            }
            Outcome::Queued { lock } => {
                metrics.waits.add(1);
                self.remember(&mut state, lock, request);
                let line = describe(&state, lock, now);
                Ok(Answer::Queued { lock, line })
            }
            Outcome::Refused(Refusal::Busy { .. }) if full => Err(queue_full(&self.kernel)),
            Outcome::Refused(refusal) => {
                Err(view::refused(&self.kernel, &state, &refusal, wanted.as_ref(), now))
            }
        }
    }

    /// Ends a lock, held or waiting.
    pub fn release(&self, lock: LockId) -> Result<(), Trouble> {
        let mut state = self.speak()?;
        let now = self.kernel.clock.now();
        let guarded = if self.namespace.is_guarded { state.table.view(lock) } else { None };
        let mut effects = std::mem::take(&mut state.effects);
        let ended = state.table.release(self.owner, lock, now, &mut effects);
        tracing::debug!(namespace = %state.name, owner = self.owner.0, lock = lock.0, ?ended, "a session releases a lock");
        self.finish(&mut state, effects, now);
        let ended = ended.map_err(|_| Trouble::unknown_lock(lock.0))?;
        ended.held_ms.into_iter().for_each(|held| self.kernel.metrics.hold_time.observe(held));
        state.forget(self.owner, lock);
        if let Some(view) = guarded {
            self.lifting.lock().extend(view.resources);
        }
        Ok(())
    }

    /// Ends a wait; says whether the lock is still held (it was its conversion that waited).
    pub fn cancel(&self, lock: LockId) -> Result<bool, Trouble> {
        let mut state = self.speak()?;
        let now = self.kernel.clock.now();
        let mut effects = std::mem::take(&mut state.effects);
        let outcome = state.table.cancel(self.owner, lock, now, &mut effects);
        tracing::debug!(namespace = %state.name, owner = self.owner.0, lock = lock.0, ?outcome, "a session cancels a wait");
        self.finish(&mut state, effects, now);
        match outcome {
            CancelOutcome::Cancelled => {
                state.forget(self.owner, lock);
                Ok(false)
            }
            CancelOutcome::ConversionCancelled => Ok(true),
            CancelOutcome::AlreadyGranted => Err(Trouble::new(
                Code::AlreadyGranted,
                format!("lock {lock} does not wait, it is held; release it if it is not wanted"),
            )),
            CancelOutcome::UnknownLock => Err(Trouble::unknown_lock(lock.0)),
        }
    }

    /// Gives a held lock other modes.
    pub fn convert(
        &self,
        lock: LockId,
        change: &Change,
        wait: Wait,
        request: u64,
    ) -> Result<Answer, Trouble> {
        let mut state = self.speak()?;
        if !self.kernel.numbers.suffice(state.table.next_number()) {
            return Err(Trouble::storage_failed());
        }
        let (draining, full) = (self.kernel.is_draining(), self.is_full(&state));
        let wait = if draining || full { Wait::Never } else { wait };
        let now = self.kernel.clock.now();
        let before = state.table.view(lock).and_then(|view| view.token);
        let mut effects = std::mem::take(&mut state.effects);
        let outcome = state.table.convert(self.owner, lock, change, wait, now, &mut effects);
        tracing::debug!(namespace = %state.name, owner = self.owner.0, lock = lock.0, ?outcome, "a session converts a lock");
        self.finish(&mut state, effects, now);
        match outcome {
            ConvertOutcome::Converted { token }
                if !state.may_tell(
                    &self.kernel,
                    (self.owner, lock, token),
                    (News::Converted, Some(request)),
                ) =>
            {
                Ok(Answer::Closing { lock })
            }
            ConvertOutcome::Converted { token } => {
                self.rest_on(state.written);
                self.supersede(&state, lock, before, token);
                Ok(Answer::Done { lock, token: token.0 })
            }
            ConvertOutcome::Queued => {
                self.kernel.metrics.waits.add(1);
                self.remember(&mut state, lock, Some(request));
                let line = view::line(&state, lock, now);
                Ok(Answer::Queued { lock, line })
            }
            ConvertOutcome::Refused(Refusal::Busy { .. }) if draining => Err(Trouble::draining()),
            ConvertOutcome::Refused(Refusal::Busy { .. }) if full => Err(queue_full(&self.kernel)),
            ConvertOutcome::Refused(refusal) => Err(view::refused(&self.kernel, &state, &refusal, None, now)),
            ConvertOutcome::Invalid(error) => Err(invalid_conversion(lock, error)),
        }
    }

    /// The session is to be told of a conversion that waited.
    pub fn converted(&self, lock: LockId, record: u64) {
        self.rest_on(record);
        if self.namespace.is_guarded {
            self.lifting.lock().extend(self.namespace.resources_of(lock));
        }
    }

    /// Before a conversion is told, all shards reject the token that the lock had before.
    fn supersede(&self, state: &State, lock: LockId, before: Option<Token>, token: Token) {
        if self.namespace.is_guarded
            && before != Some(token)
            && let Some(view) = state.table.view(lock)
        {
            self.lifting.lock().extend(view.resources);
        }
    }

    /// Where a lock stands.
    pub fn line(&self, lock: LockId) -> Result<Line, Trouble> {
        let state = self.speak()?;
        if state.table.owner_of(lock) != Some(self.owner) {
            return Err(Trouble::unknown_lock(lock.0));
        }
        Ok(view::line(&state, lock, self.kernel.clock.now()))
    }

    /// Ends the session with all its locks.
    pub fn end(&self) {
        if self.namespace.is_guarded
            && let Ok(state) = self.speak()
        {
            let held = state.table.owned(self.owner).filter(|view| view.token.is_some());
            self.lifting.lock().extend(held.flat_map(|view| view.resources));
        }
        self.namespace.end(&self.kernel, self.owner, self.number);
    }

    /// The namespace, if this is still the connection that speaks for the session.
    fn speak(&self) -> Result<Changing<'_>, Trouble> {
        let state = self.namespace.change();
        match state.is_seated(self.owner, self.number) {
            true => Ok(state),
            false => Err(Trouble::new(Code::Replaced, "another connection has taken over this session")),
        }
    }

    /// Waiting locks and waiting conversions alike will need numbers that have been set aside.
    fn is_full(&self, state: &State) -> bool {
        state.table.pending_len() as u64 >= self.kernel.config.limits.queue_len_max
    }

    fn check_room(&self, state: &State, resources_len: u64) -> Result<(), Trouble> {
        if self.kernel.is_draining() {
            return Err(Trouble::draining());
        }
        if !self.kernel.numbers.suffice(state.table.next_number()) {
            return Err(Trouble::storage_failed());
        }
        let limits = &self.kernel.config.limits;
        let limit = limits.locks_per_session_max;
        if state.table.owned_len(self.owner) as u64 >= limit {
            return Err(Trouble::over("locks_per_session_max", limit, "the session has too many locks"));
        }
        let limit = limits.resources_per_session_max;
        if state.table.owned_resources_len(self.owner) as u64 + resources_len > limit {
            let what = "the locks of the session have too many resources";
            return Err(Trouble::over("resources_per_session_max", limit, what));
        }
        let limit = limits.resources_per_namespace_max;
        if state.table.resources_len() as u64 + resources_len > limit {
            let what = "the locks of the namespace have too many resources";
            return Err(Trouble::too_many("resources_per_namespace_max", limit, what));
        }
        Ok(())
    }

    fn remember(&self, state: &mut State, lock: LockId, request: Option<u64>) {
        if let (Some(request), Some(session)) = (request, state.sessions.get_mut(&self.owner)) {
            session.requests.insert(lock, request);
        }
    }

    fn finish(&self, state: &mut State, effects: Vec<Effect>, now: Timestamp) {
        state.deliver(effects, now, &self.kernel);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.namespace.left(&self.kernel, self.owner, self.number);
    }
}

/// Whether the namespace has room for the nodes of these paths. Those that are there already are counted again:
/// what is too much in any case is told apart without a look at the tree.
pub(crate) fn check_nodes(kernel: &Kernel, state: &State, resources: &[Resource]) -> Result<(), Trouble> {
    let limit = kernel.config.limits.nodes_per_namespace_max;
    let more: usize = resources.iter().map(|resource| resource.path.len()).sum();
    if (state.table.nodes_len() + more) as u64 > limit {
        let what = "the locks of the namespace have too many nodes";
        return Err(Trouble::too_many("nodes_per_namespace_max", limit, what));
    }
    Ok(())
}

/// Whether resources are within the limits.
pub fn check_resources(kernel: &Kernel, resources: &[Resource]) -> Result<(), Trouble> {
    let limits = &kernel.config.limits;
    if resources.len() as u64 > limits.resources_per_lock_max {
        let what = format!("the lock has {} resources", resources.len());
        return Err(Trouble::over("resources_per_lock_max", limits.resources_per_lock_max, &what));
    }
    for resource in resources {
        let path = &resource.path;
        if path.len() as u64 > limits.path_segments_max {
            return Err(too_deep(kernel, path.len()));
        }
        if let Some(long) = path.segments().find(|segment| segment.len() as u64 > limits.segment_bytes_max) {
            let what = format!("a path segment has {} bytes", long.len());
            return Err(Trouble::over("segment_bytes_max", limits.segment_bytes_max, &what));
        }
    }
    Ok(())
}

fn too_deep(kernel: &Kernel, segments_len: usize) -> Trouble {
    let what = format!("a path has {segments_len} segments");
    Trouble::over("path_segments_max", kernel.config.limits.path_segments_max, &what)
}

pub(crate) fn invalid_conversion(lock: LockId, error: ConvertError) -> Trouble {
    match error {
        ConvertError::UnknownLock => Trouble::unknown_lock(lock.0),
        ConvertError::NotGranted => {
            Trouble::new(Code::NotGranted, format!("lock {lock} still waits; convert it once it is granted"))
        }
        ConvertError::AlreadyConverting => Trouble::new(
            Code::AlreadyConverting,
            format!("a conversion of lock {lock} already waits; cancel that one first"),
        ),
        ConvertError::NoResourceAt(path) => Trouble::new(
            Code::NoSuchResource,
            format!("lock {lock} has no resource at {path}; only what is held can be converted"),
        ),
        ConvertError::ChildListMode => {
            Trouble::new(Code::BadMode, "a lock can be converted to read, update or write")
        }
    }
}
