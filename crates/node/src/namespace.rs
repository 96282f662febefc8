//! One namespace: its lock table, its sessions and its leases under one mutex, and the time that passes for them.
//! Knows nothing of protocols; every interface works through a [`Seat`](crate::seat::Seat), [`crate::lease`],
//! [`crate::gate`] or the listings here.

use crate::{
    grace::Cover,
    guards::{HomeGuards, News},
    kernel::Kernel,
    lease::{Leases, Verdict, lost},
    session::{Notice, Opening, Session},
    shard::Follow,
    trouble::Trouble,
    view,
};
use foldhash::fast::FixedState;
use lockwood_locks::{CancelOutcome, Counts, Effect, LockTable, LockView, Tally};
use lockwood_model::{LockId, OwnerId, Path, Resource, Timestamp, Token};
use lockwood_wire::{Code, HeldLock, LockInfo, Reclaim, Tree, WaitEdge, WaitGraph, WireResource};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeSet, HashMap},
    ops::{Deref, DerefMut},
    sync::{Arc, Weak},
};
use tokio::sync::{Notify, mpsc, oneshot};

/// How many locks a listing looks at before it lets others have the namespace.
const CHUNK_LEN: usize = 16;
/// How many locks one page looks at, so that a filter that fits nothing ends too.
const SCAN_LEN_MAX: usize = 10_000;
/// A page ends once it shows more resources than this.
const PAGE_RESOURCES_MAX: usize = 10_000;
/// How long a session without locks can be taken up again.
const LOCKLESS_AWAY_MS: u64 = 60_000;
/// How long a namespace is kept that nobody uses any more.
const LINGER_MS: u64 = 1000;
/// How often an owner whose ownership is not fresh looks whether it is again.
const STALE_MS: u64 = 100;
/// How many things that are due are done before others have the namespace.
const EXPIRED_LEN: usize = 256;
/// How many claims a tree shows, and how many waits a graph.
const TREE_CLAIMS_MAX: usize = 10_000;
const GRAPH_EDGES_MAX: usize = 10_000;

/// One namespace: its state, and what is known of it without its mutex.
pub struct Namespace {
    /// Its name, as clients write it.
    pub name: Arc<str>,
    state: Mutex<State>,
    /// Whether its home is here, and its documents are on several shards.
    pub(crate) is_guarded: bool,
    /// How long its locks may outlive this run, as far as that is on record.
    pub cover: Arc<Cover>,
    /// Rung when something is due earlier than the timekeeper knows.
    alarm: Arc<Notify>,
}

/// Everything about a namespace that changes. Written and read under the mutex only; nothing in here waits.
pub struct State {
    pub(crate) table: LockTable,
    /// Owners are numbered by the server, so the hash need not resist anybody.
    pub(crate) sessions: HashMap<OwnerId, Session, FixedState>,
    by_id: HashMap<String, OwnerId>,
    /// Sessions that are away, by the moment they are given up.
    away: BTreeSet<(Timestamp, OwnerId)>,
    /// When the timekeeper looks next.
    armed: Option<Timestamp>,
    /// No longer in the registry; whoever still has it must look there again.
    closed: bool,
    pub(crate) effects: Vec<Effect>,
    /// While waits end: what they were for.
    wanted: HashMap<LockId, Vec<Resource>>,
    pub(crate) name: Arc<str>,
    pub(crate) leases: Leases,
    /// Who waits for a lock outside of a session, and who wants to know how that ends.
    waiters: HashMap<LockId, Vec<oneshot::Sender<Verdict>>>,
    /// The last record of the log that a grant rests on: a write that was let through, a lease that ended. A
    /// grant is not told before this is durable and visible to readers.
    pub(crate) written: u64,
    /// Who makes what is put on record durable: whoever does so now, or the thread.
    pub(crate) follow: Follow,
    /// When it is looked whether anybody uses the namespace at all.
    look_again_at: Option<Timestamp>,
    /// For how many milliseconds of stale ownership its ends are postponed.
    pub(crate) postponed_ms: u64,
    /// If the documents are on several shards: how the locks are enforced there.
    pub(crate) guards: Option<Box<HomeGuards>>,
}

/// The state while it is changed. The timekeeper is armed anew when this goes.
pub(crate) struct Changing<'a> {
    namespace: &'a Namespace,
    /// Absent while this goes.
    state: Option<MutexGuard<'a, State>>,
}

impl Deref for Changing<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.state.as_ref().expect("it is there until this goes")
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.state.as_mut().expect("it is there until this goes")
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            self.namespace.rearm(state);
        }
    }
}

/// A connection's hold on a session: who it is, what it has, and where notices for it arrive.
pub struct Admission {
    pub(crate) owner: OwnerId,
    pub(crate) seat: u64,
    pub(crate) inbox: mpsc::UnboundedReceiver<Notice>,
    /// As of the moment from which on notices arrive.
    pub(crate) held: Vec<HeldLock>,
    pub(crate) abandon_timeout_ms: u64,
}

/// A lock to be put back, with its resources as the model has them.
pub type Reclaimed = (Reclaim, Vec<Resource>);

impl Namespace {
    /// Nothing in it; `written` is a record that grants have to wait for.
    pub fn new(
        name: Arc<str>,
        table: LockTable,
        (written, cover): (u64, Arc<Cover>),
        guards: Option<Box<HomeGuards>>,
    ) -> Namespace {
        let is_guarded = guards.is_some();
        let state = State {
            table,
            sessions: HashMap::default(),
            by_id: HashMap::new(),
            away: BTreeSet::new(),
            armed: None,
            closed: false,
            effects: Vec::new(),
            wanted: HashMap::new(),
            name: Arc::clone(&name),
            leases: Leases::default(),
            waiters: HashMap::new(),
            written,
            follow: Follow::Thread,
            look_again_at: None,
            postponed_ms: 0,
            guards,
        };
        Namespace { name, state: Mutex::new(state), is_guarded, cover, alarm: Arc::new(Notify::new()) }
    }

    /// Its state. Nothing is awaited while this is kept.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The same to change something: the timekeeper hears of what is due earlier.
    pub(crate) fn change(&self) -> Changing<'_> {
        Changing { namespace: self, state: Some(self.state.lock()) }
    }

    /// Opens a session and puts back the locks it held before a restart of the server. If the session is
    /// there already, by an earlier attempt, it is taken up instead. Gives the opening back if this namespace
    /// has been dropped.
    pub fn open(&self, kernel: &Kernel, opening: Opening, locks: &[Reclaimed]) -> Result<Admission, Opening> {
        let mut state = self.change();
        if state.closed {
            return Err(opening);
        }
        let (owner, inbox) = match state.by_id.get(&opening.id) {
            Some(owner) => {
                let owner = *owner;
                (owner, state.readmit(owner))
            }
            None => {
                kernel.metrics.sessions_opened.add(1);
                let owner = kernel.next_owner();
                (owner, state.admit(owner, opening))
            }
        };
        let restored = state.reclaim(kernel, owner, locks);
        Ok(state.admission(owner, inbox, &restored))
    }

    /// Takes up a session again that is known, perhaps by an attempt whose answer got lost.
    pub fn attach(&self, kernel: &Kernel, session: &str, locks: &[Reclaimed]) -> Option<Admission> {
        let mut state = self.change();
        let owner = *state.by_id.get(session)?;
        kernel.metrics.sessions_attached.add(1);
        let inbox = state.readmit(owner);
        if kernel.is_draining() {
            state.sessions[&owner].tell(Notice::Draining);
        }
        let restored = state.reclaim(kernel, owner, locks);
        Some(state.admission(owner, inbox, &restored))
    }

    /// The connection of a session is gone, unless another one has replaced it.
    pub fn left(&self, kernel: &Kernel, owner: OwnerId, seat: u64) {
        let mut state = self.lock();
        let now = kernel.clock.now();
        state.leave(kernel, owner, seat, now);
        self.rearm(state);
        kernel.registry.drop_if_unused(kernel, self);
    }

    /// The session is over, unless another connection speaks for it.
    pub fn end(&self, kernel: &Kernel, owner: OwnerId, seat: u64) {
        let mut state = self.lock();
        let now = kernel.clock.now();
        if state.is_seated(owner, seat) {
            state.remove_session(kernel, owner, now);
        }
        self.rearm(state);
        kernel.registry.drop_if_unused(kernel, self);
    }

    /// Carries out what is due; says when to come again.
    fn tick(&self, kernel: &Kernel) -> Option<Timestamp> {
        let mut state = self.lock();
        let now = kernel.clock.now();
        if !kernel.authority.is_fresh() {
            // Nothing ends that a holder could not renew.
            state.armed = Some(now.after(STALE_MS));
            return state.armed;
        }
        state.expire(kernel, now);
        state.guard(kernel);
        let lingers = state.look_again_at.is_some_and(|at| at > now);
        if !lingers {
            state.look_again_at = None;
        }
        let next = state.next_deadline();
        state.armed = next;
        drop(state);
        if !lingers {
            kernel.registry.drop_if_unused(kernel, self);
        }
        next
    }

    /// Lets go of the state, and wakes the timekeeper if something is due earlier than it knows.
    pub(crate) fn rearm(&self, mut state: MutexGuard<'_, State>) {
        let next = state.next_deadline();
        if next.is_some_and(|next| state.armed.is_none_or(|armed| next < armed)) {
            state.armed = next;
            drop(state);
            self.alarm.notify_one();
        }
    }

    /// Marks an unused namespace as gone; says what number its successor may start from.
    pub(crate) fn close_if_unused(&self) -> Option<u64> {
        let mut state = self.lock();
        // Members of a home would have to be heard again.
        let is_used = !state.sessions.is_empty() || !state.table.is_empty() || state.guards.is_some();
        if state.closed || is_used {
            return None;
        }
        state.closed = true;
        self.alarm.notify_one();
        Some(state.table.next_number())
    }

    /// Closes it with everything that is in it.
    pub fn abandon(&self) {
        self.lock().closed = true;
        self.alarm.notify_one();
    }

    /// Nothing of an earlier run is put back any more, unless sessions have time to come back.
    pub fn begin(&self, kernel: &Kernel) {
        let mut state = self.lock();
        if !state.table.is_frozen() {
            state.sessions_over(kernel);
        }
        self.rearm(state);
    }

    /// The end of a grace period.
    pub(crate) fn thaw(&self, kernel: &Kernel) {
        let mut state = self.lock();
        if !state.table.is_frozen() {
            return;
        }
        state.sessions_over(kernel);
        let now = kernel.clock.now();
        let mut effects = std::mem::take(&mut state.effects);
        state.table.thaw(now, &mut effects);
        state.deliver(effects, now, kernel);
        self.rearm(state);
    }

    /// Lowers the cover to what the longest abandon timeout of a holder needs. Grants come before or after it, not in
    /// between.
    pub(crate) fn lower_cover(&self, lower: impl FnOnce(u64) -> bool) -> bool {
        let state = self.lock();
        !state.closed && lower(state.longest_timeout_ms(&self.cover))
    }

    /// The server is about to stop: who waits is sent away, who holds is told.
    pub fn drain(&self, kernel: &Kernel) {
        let mut state = self.change();
        let now = kernel.clock.now();
        state.send_waiters_away(now, kernel);
        for session in state.sessions.values() {
            session.tell(Notice::Draining);
        }
    }

    /// Tells all sessions that their connections end.
    pub fn tell_all_to_close(&self) {
        for session in self.lock().sessions.values() {
            session.tell(Notice::Closing);
        }
    }

    /// What is in the table, counted in two ways, and how many locks there have been.
    pub fn counts(&self) -> (Counts, Tally, u64) {
        let state = self.lock();
        let table = &state.table;
        (table.counts(), table.tally(), table.locks_total())
    }

    /// The sessions that hold locks; none if some of them cannot come back, or if there are too many.
    pub(crate) fn holders(&self, len_max: usize) -> Option<BTreeSet<String>> {
        let state = self.lock();
        let mut found = BTreeSet::new();
        for session in state.table.holders().filter_map(|owner| state.sessions.get(&owner)) {
            if !session.opening.via.reattaches() || found.len() == len_max {
                return None;
            }
            found.insert(session.opening.id.clone());
        }
        Some(found)
    }

    /// (sessions, locks held, locks waiting)
    pub fn sizes(&self) -> (usize, usize, usize) {
        let state = self.lock();
        let waiting = state.table.waiting_len();
        (state.sessions.len(), state.table.len() - waiting, waiting)
    }

    /// How many locks do not outlive the server.
    pub fn mortal_len(&self) -> usize {
        let state = self.lock();
        state.table.len() - state.leases.held_len()
    }

    /// How many leases are held.
    pub(crate) fn leases_len(&self) -> usize {
        self.lock().leases.held_len()
    }

    /// How many sessions have a connection.
    pub(crate) fn connected_len(&self) -> usize {
        self.lock().sessions.values().filter(|session| session.outbox.is_some()).count()
    }

    /// The number this namespace's lock ids started from.
    pub fn first_number(&self) -> u64 {
        self.lock().table.first_number()
    }

    /// One lock.
    pub fn lock_info(&self, kernel: &Kernel, lock: u64) -> Option<LockInfo> {
        let state = self.lock();
        let view = state.table.view(LockId(lock))?;
        Some(view::lock_info(&state, &view, kernel.clock.now()))
    }

    /// A page of the locks for which `wanted` holds, and where the next page starts.
    pub fn list(
        &self,
        kernel: &Kernel,
        after: Option<u64>,
        len_max: usize,
        wanted: impl Fn(&State, &LockView) -> bool,
    ) -> (Vec<LockInfo>, Option<u64>) {
        let mut found = Vec::new();
        let mut resources_len = 0;
        let mut after = after.map(LockId);
        for _ in 0..SCAN_LEN_MAX / CHUNK_LEN {
            let state = self.lock();
            let now = kernel.clock.now();
            let views: Vec<_> = state.table.views(after).take(CHUNK_LEN).collect();
            let last = views.len() < CHUNK_LEN;
            for view in views {
                if found.len() == len_max || resources_len > PAGE_RESOURCES_MAX {
                    return (found, after.map(|after| after.0));
                }
                after = Some(view.id);
                if wanted(&state, &view) {
                    resources_len += view.resources.len();
                    found.push(view::lock_info(&state, &view, now));
                }
            }
            if last {
                return (found, None);
            }
        }
        (found, after.map(|after| after.0))
    }

    /// The nodes at and below `path`.
    pub fn tree(&self, path: &Path) -> Tree {
        let state = self.lock();
        let nodes = state.table.nodes(path, TREE_CLAIMS_MAX);
        let shown: usize = nodes.iter().map(|node| node.claims.len()).sum();
        let truncated = shown < state.table.claims_len(path);
        Tree { nodes: nodes.iter().map(|node| view::node_info(&state, node)).collect(), truncated }
    }

    /// Who waits for whom.
    pub(crate) fn wait_graph(&self) -> WaitGraph {
        let state = self.lock();
        let mut pairs = state.table.waits(GRAPH_EDGES_MAX + 1);
        let truncated = pairs.len() > GRAPH_EDGES_MAX;
        pairs.truncate(GRAPH_EDGES_MAX);
        let session = |lock: LockId| {
            state.table.owner_of(lock).map_or_else(String::new, |owner| state.session_id(owner).to_owned())
        };
        let edges = pairs.into_iter().map(|(waiter, blocker)| WaitEdge {
            waiter: waiter.0,
            waiter_session: session(waiter),
            blocker: blocker.0,
            blocker_session: session(blocker),
        });
        WaitGraph { edges: edges.collect(), truncated }
    }

    /// What a lock covers.
    pub(crate) fn resources_of(&self, lock: LockId) -> Vec<Resource> {
        self.lock().table.view(lock).map(|view| view.resources).unwrap_or_default()
    }

    /// Ends a lock whoever owns it, and tells its owner. Gives the record that must be durable before anybody
    /// can rely on it.
    pub(crate) fn revoke(&self, kernel: &Kernel, lock: u64) -> Result<u64, Trouble> {
        let mut state = self.lock();
        let now = kernel.clock.now();
        if state.table.view(LockId(lock)).is_some_and(|view| view.rank.is_operation() && view.token.is_some())
        {
            let message =
                format!("lock {lock} is that of a request that is being carried out; it ends by itself");
            return Err(Trouble::new(Code::AlreadyGranted, message));
        }
        let was_told = !state.is_new(LockId(lock));
        let mut effects = std::mem::take(&mut state.effects);
        let ended = state.table.revoke(LockId(lock), now, &mut effects);
        state.lease_gone(LockId(lock));
        state.deliver(effects, now, kernel);
        let ended = ended.map_err(|_| Trouble::unknown_lock(lock))?;
        kernel.metrics.revoked.add(1);
        ended.held_ms.into_iter().for_each(|held| kernel.metrics.hold_time.observe(held));
        state.tell_revoked(ended.owner, LockId(lock), ended.held_ms.is_some() && was_told);
        let after = state.written;
        self.rearm(state);
        kernel.registry.drop_if_unused(kernel, self);
        Ok(after)
    }

    /// Whoever had this lock outside of a session, or waited for it, has no use for it any more.
    pub fn give_back(&self, kernel: &Kernel, owner: OwnerId, lock: LockId) {
        let mut state = self.lock();
        state.give_back(kernel, owner, lock);
        self.rearm(state);
        kernel.registry.drop_if_unused(kernel, self);
    }
}

fn revoked_wait() -> Trouble {
    Trouble::new(Code::ReleasedByOperator, "an operator ended the wait for this lock")
}

/// Lets time pass for a namespace until it is dropped.
pub(crate) async fn keep_time(namespace: Weak<Namespace>, kernel: Arc<Kernel>) {
    loop {
        let Some(strong) = namespace.upgrade() else { return };
        let next = strong.tick(&kernel);
        let alarm = Arc::clone(&strong.alarm);
        if strong.lock().closed {
            return;
        }
        drop(strong);
        match next {
            None => alarm.notified().await,
            // More than could be done at a time is due.
            Some(at) if at <= kernel.clock.now() => tokio::task::yield_now().await,
            Some(at) => {
                let wake = kernel.clock.instant(at);
                let _ = tokio::time::timeout_at(wake, alarm.notified()).await;
            }
        }
    }
}

impl State {
    fn admit(&mut self, owner: OwnerId, opening: Opening) -> mpsc::UnboundedReceiver<Notice> {
        let (outbox, inbox) = mpsc::unbounded_channel();
        self.by_id.insert(opening.id.clone(), owner);
        let session = Session {
            opening,
            outbox: Some(outbox),
            seat: 0,
            requests: HashMap::default(),
            away_until: None,
        };
        self.sessions.insert(owner, session);
        inbox
    }

    fn readmit(&mut self, owner: OwnerId) -> mpsc::UnboundedReceiver<Notice> {
        let (outbox, inbox) = mpsc::unbounded_channel();
        let session = self.sessions.get_mut(&owner).expect("a known id has a session");
        session.tell(Notice::Replaced);
        session.outbox = Some(outbox);
        session.seat += 1;
        if let Some(until) = session.away_until.take() {
            self.away.remove(&(until, owner));
        }
        self.table.owner_returned(owner);
        inbox
    }

    fn admission(
        &self,
        owner: OwnerId,
        inbox: mpsc::UnboundedReceiver<Notice>,
        was: &HashMap<LockId, u64>,
    ) -> Admission {
        let session = &self.sessions[&owner];
        let abandon_timeout_ms = session.opening.stay.abandon_timeout_ms;
        Admission { owner, seat: session.seat, inbox, held: self.held(owner, was), abandon_timeout_ms }
    }

    /// True if the connection with this number speaks for the session.
    pub(crate) fn is_seated(&self, owner: OwnerId, seat: u64) -> bool {
        self.sessions.get(&owner).is_some_and(|session| session.seat == seat)
    }

    /// Puts back the locks a session held before a restart of the server; says which numbers they had.
    fn reclaim(&mut self, kernel: &Kernel, owner: OwnerId, locks: &[Reclaimed]) -> HashMap<LockId, u64> {
        let now = kernel.clock.now();
        let here: HashMap<u64, LockId> =
            self.table.owned(owner).filter_map(|lock| Some((lock.token?.0, lock.id))).collect();
        let mut restored = HashMap::new();
        for (lock, resources) in locks {
            if let Some(id) = here.get(&lock.token) {
                if id.0 != lock.lock {
                    restored.insert(*id, lock.lock);
                }
                continue;
            }
            let room = self.table.resources_len() + resources.len();
            // A number this run could have given out is none that a client brings from an earlier run.
            let credible = self.table.is_frozen() && lock.token < self.table.first_number();
            if !credible || room as u64 > kernel.config.limits.resources_per_namespace_max {
                continue;
            }
            if let Ok(id) = self.table.restore(owner, resources.clone(), Token(lock.token), now) {
                restored.insert(id, lock.lock);
            }
        }
        self.guard(kernel);
        restored
    }

    /// The locks of a session, as `welcome` lists them.
    fn held(&self, owner: OwnerId, was: &HashMap<LockId, u64>) -> Vec<HeldLock> {
        let requests = &self.sessions[&owner].requests;
        let mut held: Vec<HeldLock> = self
            .table
            .owned(owner)
            .filter(|lock| !lock.rank.is_operation())
            .map(|lock| {
                let (token, resources) = match self.relied_on(lock.id) {
                    Some((token, resources)) => (Some(*token), resources),
                    None => (lock.token.filter(|_| !self.is_new(lock.id)), &lock.resources),
                };
                HeldLock {
                    lock: lock.id.0,
                    request: requests.get(&lock.id).copied(),
                    token: token.map(|token| token.0),
                    was: was.get(&lock.id).copied(),
                    resources: resources.iter().map(WireResource::from).collect(),
                }
            })
            .collect();
        held.sort_by_key(|lock| lock.lock);
        held
    }

    /// What clients rely on of a lock, as long as that is not what the table says.
    pub(crate) fn relied_on(&self, lock: LockId) -> Option<&(Token, Vec<Resource>)> {
        self.guards.as_ref()?.relied_on(lock)
    }

    fn leave(&mut self, kernel: &Kernel, owner: OwnerId, seat: u64, now: Timestamp) {
        self.postpone_ends(kernel);
        let Some(session) = self.sessions.get_mut(&owner).filter(|session| session.seat == seat) else {
            return;
        };
        session.outbox = None;
        let timeout_ms = session.opening.stay.abandon_timeout_ms;
        let until = now.after(timeout_ms);
        let via = session.opening.via;
        let mut effects = std::mem::take(&mut self.effects);
        self.table.owner_left(owner, via.waiters(), until, now, &mut effects);
        self.deliver(effects, now, kernel);
        let owns_locks = self.table.owned_len(owner) > 0;
        if until <= now || !(owns_locks || via.reattaches()) {
            return self.remove_session(kernel, owner, now);
        }
        // Without locks there is little to come back to, and sessions must not pile up.
        let until = if owns_locks { until } else { now.after(timeout_ms.min(LOCKLESS_AWAY_MS)) };
        let (table, session) = (&self.table, self.sessions.get_mut(&owner).expect("it was just there"));
        session.requests.retain(|lock, _| table.owner_of(*lock).is_some());
        session.away_until = Some(until);
        self.away.insert((until, owner));
    }

    fn remove_session(&mut self, kernel: &Kernel, owner: OwnerId, now: Timestamp) {
        let Some(session) = self.sessions.remove(&owner) else { return };
        if self.by_id.get(&session.opening.id) == Some(&owner) {
            self.by_id.remove(&session.opening.id);
        }
        if let Some(until) = session.away_until {
            self.away.remove(&(until, owner));
        }
        let mut effects = std::mem::take(&mut self.effects);
        for ended in self.table.release_all(owner, now, &mut effects) {
            ended.held_ms.into_iter().for_each(|held| kernel.metrics.hold_time.observe(held));
        }
        self.deliver(effects, now, kernel);
    }

    /// The longest abandon timeout of a session that holds a lock; one that needs all of the cover will do.
    fn longest_timeout_ms(&self, cover: &Cover) -> u64 {
        let mut longest_ms = 0;
        for session in self.table.holders().filter_map(|owner| self.sessions.get(&owner)) {
            longest_ms = longest_ms.max(session.opening.stay.abandon_timeout_ms);
            if cover.is_needed_by(longest_ms) {
                break;
            }
        }
        longest_ms
    }

    /// A namespace that nobody uses any more is kept for a moment: who took one lease may take another.
    pub(crate) fn linger(&mut self, kernel: &Kernel) {
        if self.look_again_at.is_none() && self.sessions.is_empty() && self.table.is_empty() {
            self.look_again_at = Some(kernel.clock.now().after(LINGER_MS));
        }
    }

    /// Whether it is no longer in the registry.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Ends a lock outside of a session, if it is still there.
    pub fn give_back(&mut self, kernel: &Kernel, owner: OwnerId, lock: LockId) {
        self.waiters.remove(&lock);
        let now = kernel.clock.now();
        let mut effects = std::mem::take(&mut self.effects);
        if let Ok(ended) = self.table.release(owner, lock, now, &mut effects) {
            ended.held_ms.into_iter().for_each(|held| kernel.metrics.hold_time.observe(held));
            self.lease_gone(lock);
            self.forget_lockless(owner);
        }
        self.deliver(effects, now, kernel);
    }

    /// Tells how the wait for a lock outside of a session ends, to as many as ask.
    pub(crate) fn verdict_on(&mut self, lock: LockId) -> oneshot::Receiver<Verdict> {
        let (sender, verdict) = oneshot::channel();
        let waiters = self.waiters.entry(lock).or_default();
        waiters.retain(|waiter| !waiter.is_closed());
        waiters.push(sender);
        verdict
    }

    /// Whether anybody outside of a session still wants to know how the wait for a lock ends.
    pub(crate) fn is_awaited(&self, lock: LockId) -> bool {
        self.waiters.get(&lock).is_some_and(|waiters| waiters.iter().any(|waiter| !waiter.is_closed()))
    }

    /// Tells everybody outside of a session who waits for a lock; false if nobody does.
    pub(crate) fn tell_waiters(&mut self, lock: LockId, verdict: &Verdict) -> bool {
        let Some(waiters) = self.waiters.remove(&lock) else { return false };
        // If nobody is interested any more, it is about to be given back.
        waiters.into_iter().for_each(|waiter| drop(waiter.send(verdict.clone())));
        true
    }

    /// Carries out some of what is due. The rest is due still: it must not keep everybody waiting.
    pub(crate) fn expire(&mut self, kernel: &Kernel, now: Timestamp) {
        self.postpone_ends(kernel);
        if self.next_deadline().is_none_or(|next| next > now) || !kernel.authority.is_fresh() {
            return;
        }
        let wanted = |view: LockView| (view.id, view.converting_to.unwrap_or(view.resources));
        self.wanted = self.table.due(now).take(EXPIRED_LEN).map(wanted).collect();
        let mut effects = std::mem::take(&mut self.effects);
        self.table.expire_some(now, EXPIRED_LEN, &mut effects);
        self.deliver(effects, now, kernel);
        self.wanted.clear();
        self.give_up_closing(kernel, now);
        for _ in 0..EXPIRED_LEN {
            let Some(&(_, owner)) = self.away.first().filter(|(until, _)| *until <= now) else { return };
            self.remove_session(kernel, owner, now);
        }
    }

    /// The time of holders stands still while the ownership is not fresh: they can neither renew nor come back.
    pub(crate) fn postpone_ends(&mut self, kernel: &Kernel) {
        let stale_ms = kernel.authority.stale_ms();
        let by_ms = stale_ms.saturating_sub(self.postponed_ms);
        if by_ms == 0 {
            return;
        }
        self.postponed_ms = stale_ms;
        self.table.postpone_ends(by_ms);
        self.leases.postpone_ends(by_ms);
        for (until, owner) in std::mem::take(&mut self.away) {
            let until = until.after(by_ms);
            self.away.insert((until, owner));
            self.sessions.get_mut(&owner).expect("a session that is away is known").away_until = Some(until);
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let away = self.away.first().map(|(until, _)| *until);
        let guards = self.guards.as_ref().and_then(|guards| guards.next_deadline());
        [self.table.next_deadline(), away, self.look_again_at, guards].into_iter().flatten().min()
    }

    /// Tells the sessions what happened to their locks. Takes the list and keeps it for the next time.
    pub fn deliver(&mut self, mut effects: Vec<Effect>, now: Timestamp, kernel: &Kernel) {
        for effect in effects.drain(..) {
            self.deliver_one(effect, now, kernel);
        }
        self.note_ended(kernel);
        self.effects = effects;
        self.guard(kernel);
    }

    fn deliver_one(&mut self, effect: Effect, now: Timestamp, kernel: &Kernel) {
        let metrics = &kernel.metrics;
        tracing::debug!(namespace = %self.name, ?effect, "a lock changes");
        match effect {
            Effect::Granted { owner, lock, token, waited_ms } => {
                self.tell_or_hold_back(kernel, (owner, lock, token), News::Granted { waited_ms });
            }
            Effect::Converted { owner, lock, token } => {
                self.tell_or_hold_back(kernel, (owner, lock, token), News::Converted);
            }
            Effect::TimedOut { owner, lock, blockers } => {
                metrics.timeouts.add(1);
                let trouble = view::timed_out(kernel, self, &blockers, self.wanted.get(&lock), now);
                self.refuse(owner, lock, trouble);
            }
            Effect::ConversionTimedOut { owner, lock, blockers } => {
                metrics.timeouts.add(1);
                let trouble = view::timed_out(kernel, self, &blockers, self.wanted.get(&lock), now);
                self.tell_refused(owner, lock, trouble);
            }
            Effect::Deadlocked { owner, lock, cycle } => {
                metrics.deadlocks.add(1);
                let trouble = Box::new(view::deadlock(self, &cycle));
                self.refuse(owner, lock, trouble);
            }
            Effect::ConversionDeadlocked { owner, lock, cycle } => {
                metrics.deadlocks.add(1);
                let trouble = Box::new(view::deadlock(self, &cycle));
                self.tell_refused(owner, lock, trouble);
            }
            Effect::Expired { lock, held_ms, .. } => {
                metrics.expired.add(1);
                metrics.hold_time.observe(held_ms);
                // Its request may still wait for the shards that it covers.
                self.tell_waiters(lock, &Verdict::Refused(Box::new(lost(lock))));
                self.lease_gone(lock);
            }
            Effect::Abandoned { owner, lock, held_ms } => {
                metrics.abandoned.add(1);
                held_ms.into_iter().for_each(|held| metrics.hold_time.observe(held));
                self.forget(owner, lock);
            }
        }
    }

    /// A client may rely on a grant or conversion from now on, and waits to hear of it.
    pub(crate) fn tell_news(
        &mut self,
        kernel: &Kernel,
        (owner, lock, token): (OwnerId, LockId, Token),
        (news, request): (News, Option<u64>),
    ) {
        if let News::Granted { waited_ms } = news {
            kernel.metrics.grants.add(1);
            kernel.metrics.wait_time.observe(waited_ms);
            self.lease_granted(kernel, lock);
        }
        // What ended on the way has to be on record before anybody has what it guarded.
        self.note_ended(kernel);
        let after = self.written;
        self.tell_or(owner, lock, Verdict::Granted { after }, |latest, _| {
            let request = request.unwrap_or(latest);
            match news {
                News::Granted { .. } => Notice::Granted { request, lock, token: token.0, after },
                News::Converted => Notice::Converted { request, lock, token: token.0, after },
            }
        });
    }

    /// The client's number of the request that led to a lock.
    pub(crate) fn request_of(&self, owner: OwnerId, lock: LockId) -> Option<u64> {
        self.sessions.get(&owner)?.requests.get(&lock).copied()
    }

    fn tell(&mut self, owner: OwnerId, lock: LockId, notice: impl FnOnce(u64) -> Notice) {
        if let Some(session) = self.sessions.get(&owner) {
            session.tell(notice(session.requests.get(&lock).copied().unwrap_or_default()));
        }
    }

    /// A wait ended without a lock.
    pub fn refuse(&mut self, owner: OwnerId, lock: LockId, trouble: Box<Trouble>) {
        self.lease_gone(lock);
        self.tell_refused(owner, lock, trouble);
        self.forget(owner, lock);
    }

    fn tell_refused(&mut self, owner: OwnerId, lock: LockId, trouble: Box<Trouble>) {
        self.tell_or(owner, lock, Verdict::Refused(trouble), |request, verdict| {
            let Verdict::Refused(trouble) = verdict else { unreachable!("it was just made") };
            Notice::Refused { request, lock, trouble }
        });
    }

    /// Tells whoever waits for a lock: somebody outside of a session, or the session.
    fn tell_or(
        &mut self,
        owner: OwnerId,
        lock: LockId,
        verdict: Verdict,
        notice: impl FnOnce(u64, Verdict) -> Notice,
    ) {
        if !self.tell_waiters(lock, &verdict) {
            self.tell(owner, lock, |request| notice(request, verdict));
        }
    }

    /// The request that led to a lock is answered for good.
    pub fn forget(&mut self, owner: OwnerId, lock: LockId) {
        if let Some(session) = self.sessions.get_mut(&owner) {
            session.requests.remove(&lock);
        }
    }

    fn tell_revoked(&mut self, owner: OwnerId, lock: LockId, held: bool) {
        let message = "an operator ended this lock; whatever it guarded may be changed by others now";
        if held {
            self.tell(owner, lock, |_| Notice::Lost { lock, code: Code::ReleasedByOperator, message });
        } else {
            self.refuse(owner, lock, Box::new(revoked_wait()));
        }
        self.forget(owner, lock);
    }

    fn send_waiters_away(&mut self, now: Timestamp, kernel: &Kernel) {
        let waits = |view: &LockView| view.token.is_none() || view.converting_to.is_some();
        let waiting: Vec<(LockId, OwnerId)> =
            self.table.views(None).filter(waits).map(|view| (view.id, view.owner)).collect();
        // The last first, so that nobody is granted something on the way.
        for (lock, owner) in waiting.into_iter().rev() {
            let trouble = Box::new(Trouble::draining());
            self.tell_or(owner, lock, Verdict::Refused(trouble), |request, verdict| {
                let Verdict::Refused(trouble) = verdict else { unreachable!("it was just made") };
                Notice::Refused { request, lock, trouble }
            });
            let mut effects = std::mem::take(&mut self.effects);
            if self.table.cancel(owner, lock, now, &mut effects) == CancelOutcome::Cancelled {
                self.lease_gone(lock);
                self.forget(owner, lock);
            }
            self.deliver(effects, now, kernel);
        }
    }

    pub(crate) fn session_id(&self, owner: OwnerId) -> &str {
        self.sessions.get(&owner).map_or("", |session| &session.opening.id)
    }
}
