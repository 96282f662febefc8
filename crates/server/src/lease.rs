//! Leases: locks with a named owner, on record, so that they outlive connections and restarts. They are in
//! the same table as everybody else's locks. Knows nothing of protocols.

use crate::{
    namespace::{Namespace, State},
    seat::check_resources,
    shard::Follow,
    shared::Shared,
    trouble::Trouble,
    view::{self, Line},
};
use lockwood_locks::{LockView, Outcome, Rank, Recorded, Refusal, Request, merge};
use lockwood_model::{Json, Lease, LeaseVia, LockId, OwnerId, Path, Resource, Timestamp, Wait};
use lockwood_storage::{Entry, StoreError};
use lockwood_wire::Code;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::sync::oneshot;

/// What somebody who wants a lease asks for.
#[derive(Debug, Clone)]
pub(crate) struct LeaseRequest {
    /// In the owner's own words.
    pub(crate) owner: String,
    pub(crate) via: LeaseVia,
    pub(crate) resources: Vec<Resource>,
    /// None: until it is released.
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) wait: Wait,
    pub(crate) note: Option<Json>,
}

/// How a request for a lease was answered.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It is held, and that is on record.
    Granted(Lease),
    /// The owner had all of it already, by this lease; or the document that was to stand for it is there, and
    /// stands for this lease.
    Held(Lease),
    /// It stands in line; [`poll`] tells how that goes on.
    Queued(LockId, Line),
}

/// Which of an owner's leases are meant.
#[derive(Debug, Clone)]
pub(crate) enum Which {
    /// This one, which must have this token, and belong to this owner, as far as they are given.
    Lock { lock: LockId, token: Option<u64>, owner: Option<String> },
    /// Those of this owner that have exactly these resources.
    Like { owner: String, resources: Vec<Resource> },
    /// All of this owner.
    All { owner: String },
}

impl Which {
    /// Whether requests that stand in line can be meant: they have no token yet.
    fn may_wait(&self) -> bool {
        !matches!(self, Which::Lock { token: Some(_), .. } | Which::Lock { owner: None, .. })
    }
}

/// How a wait for a lock outside of a session ended.
#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    /// It is held. Not to be told before the record `after` is durable.
    Granted { after: u64 },
    /// It is gone.
    Refused(Box<Trouble>),
}

/// The leases of one namespace. A part of its state.
#[derive(Default)]
pub(crate) struct Leases {
    owners: HashMap<Box<str>, OwnerId>,
    names: HashMap<OwnerId, Box<str>>,
    held: BTreeMap<LockId, Lease>,
    /// What is wanted by those that are not granted yet.
    asked: HashMap<LockId, Asked>,
    /// Lock documents by the path they stand for.
    by_path: HashMap<Path, LockId>,
    /// Over, but not on record yet.
    ended: Vec<LockId>,
}

struct Asked {
    owner: Box<str>,
    via: LeaseVia,
    note: Option<Json>,
}

impl Leases {
    pub(crate) fn held_len(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn get(&self, lock: LockId) -> Option<&Lease> {
        self.held.get(&lock)
    }

    /// The owner's name and how its lock came to be, if the lock is a lease or is to become one.
    pub(crate) fn describe(&self, owner: OwnerId) -> Option<&str> {
        self.names.get(&owner).map(|name| &**name)
    }

    fn via(&self, lock: LockId) -> Option<LeaseVia> {
        let held = self.held.get(&lock).map(|lease| lease.via);
        held.or_else(|| self.asked.get(&lock).map(|asked| asked.via))
    }

    pub(crate) fn via_of(&self, lock: LockId) -> &'static str {
        self.via(lock).map_or("lease", LeaseVia::as_str)
    }

    fn insert(&mut self, lease: Lease) {
        if let (LeaseVia::Elasticsearch, [only]) = (lease.via, &lease.resources[..]) {
            self.by_path.insert(only.path.clone(), lease.lock);
        }
        self.held.insert(lease.lock, lease);
    }
}

// What happens to leases, whoever brings it about.
impl State {
    fn lease_owner(&mut self, shared: &Shared, name: &str) -> OwnerId {
        if let Some(owner) = self.leases.owners.get(name) {
            return *owner;
        }
        let owner = shared.next_owner();
        self.leases.owners.insert(name.into(), owner);
        self.leases.names.insert(owner, name.into());
        owner
    }

    /// An owner without locks is nobody.
    pub(crate) fn forget_lockless(&mut self, owner: OwnerId) {
        if self.table.owned_len(owner) == 0
            && let Some(name) = self.leases.names.remove(&owner)
        {
            self.leases.owners.remove(&name);
        }
    }

    /// A lock was granted; if it is a lease, that goes on record.
    pub(crate) fn lease_granted(&mut self, shared: &Shared, lock: LockId) {
        let Some(Asked { owner, via, note }) = self.leases.asked.remove(&lock) else { return };
        let view = self.table.view(lock).expect("it was just granted");
        let lease = Lease {
            lock,
            token: view.token.expect("it was just granted"),
            owner,
            via,
            resources: view.resources,
            granted_at: view.granted_at.expect("it was just granted"),
            expires_at: view.expires_at,
            note,
            version: 1,
            part: None,
        };
        self.note_ended(shared);
        self.record(shared, &Entry::Leased { namespace: (&*self.name).into(), lease: lease.clone() });
        self.leases.insert(lease);
    }

    /// A lock is gone, however that came; if it was a lease, that has to go on record before anything that
    /// comes of it. True if it was one.
    pub(crate) fn lease_gone(&mut self, lock: LockId) -> bool {
        if let Some(asked) = self.leases.asked.remove(&lock) {
            self.forget_named(&asked.owner);
        }
        let Some(lease) = self.leases.held.remove(&lock) else { return false };
        if let [only] = &lease.resources[..]
            && self.leases.by_path.get(&only.path) == Some(&lock)
        {
            self.leases.by_path.remove(&only.path);
        }
        self.leases.ended.push(lock);
        self.forget_named(&lease.owner);
        true
    }

    fn forget_named(&mut self, name: &str) {
        if let Some(owner) = self.leases.owners.get(name).copied() {
            self.forget_lockless(owner);
        }
    }

    /// Puts on record which leases are over.
    pub(crate) fn note_ended(&mut self, shared: &Shared) {
        if !self.leases.ended.is_empty() {
            let locks = std::mem::take(&mut self.leases.ended);
            self.record(shared, &Entry::LeasesEnded { namespace: (&*self.name).into(), locks });
        }
    }

    fn record(&mut self, shared: &Shared, entry: &Entry) {
        match shared.shard.append(entry, self.follow) {
            Ok(index) => self.written = self.written.max(index),
            Err(error) => {
                tracing::error!(?error, "record a lease");
                // Whoever waits for this record learns that it will never be there.
                self.written = u64::MAX;
            }
        }
    }

    /// Puts back what was held when the server stopped.
    fn restore_leases(&mut self, shared: &Shared, leases: Vec<Lease>) {
        let was_frozen = self.table.is_frozen();
        self.table.freeze();
        for lease in leases {
            let recorded = Recorded {
                lock: lease.lock,
                token: lease.token,
                owner: self.lease_owner(shared, &lease.owner),
                resources: lease.resources.clone(),
                granted_at: lease.granted_at,
                expires_at: lease.expires_at,
            };
            match self.table.restore_recorded(recorded) {
                Ok(()) => self.leases.insert(lease),
                Err(_) => tracing::error!(namespace = ?self.name, lock = lease.lock.0, owner = ?lease.owner,
                    "a lease on record is in the way of another; it is not put back"),
            }
        }
        if !was_frozen {
            let now = shared.clock.now();
            let mut effects = std::mem::take(&mut self.effects);
            self.table.thaw(now, &mut effects);
            self.deliver(effects, now, shared);
        }
    }
}

/// Puts back all leases on record. To be called before anybody can ask for anything.
pub(crate) fn restore(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let reading = shared.shard.read();
    let mut by_namespace: BTreeMap<Box<str>, Vec<Lease>> = BTreeMap::new();
    for (namespace, lease) in reading.state().leases()? {
        by_namespace.entry(namespace).or_default().push(lease);
    }
    for (name, leases) in by_namespace {
        let namespace = shared.registry.insert(shared, &name);
        let mut state = namespace.lock();
        state.restore_leases(shared, leases);
        namespace.rearm(state);
    }
    Ok(())
}

/// Takes a lease, waiting for it in line as long as the request says. If nobody is interested in the answer
/// any more, the wait ends too.
pub(crate) async fn take(
    shared: &Arc<Shared>,
    namespace: &str,
    request: LeaseRequest,
) -> Result<Taken, Trouble> {
    let asked = ask(shared, namespace, request)?;
    match asked {
        Asking::Done { taken, after } => {
            shared.shard.shown(after).await?;
            Ok(taken)
        }
        Asking::Waits { waiting, verdict, .. } => waiting.outcome(verdict).await,
    }
}

/// Asks for a lease and waits no longer than it takes to know whether it is granted at once. Whoever stands
/// in line then stays there until its patience ends, whether or not somebody asks.
pub(crate) async fn enqueue(
    shared: &Arc<Shared>,
    namespace: &str,
    request: LeaseRequest,
) -> Result<Taken, Trouble> {
    if let Some(queued) = queued_already(shared, namespace, &request) {
        return Ok(queued);
    }
    match ask(shared, namespace, request)? {
        Asking::Done { taken, after } => {
            shared.shard.shown(after).await?;
            Ok(taken)
        }
        Asking::Waits { mut waiting, line, .. } => {
            waiting.stays = true;
            Ok(Taken::Queued(waiting.lock, line))
        }
    }
}

/// The same request by the same owner, if it stands in line already: an answer may have been lost on its way.
fn queued_already(shared: &Shared, name: &str, request: &LeaseRequest) -> Option<Taken> {
    let namespace = shared.registry.get(name)?;
    let state = namespace.lock();
    let which = Which::Like { owner: request.owner.clone(), resources: request.resources.clone() };
    let (_, lock) = state.find_waiting(&which).into_iter().next()?;
    Some(Taken::Queued(lock, view::line(&state, lock, shared.clock.now())))
}

enum Asking {
    Done { taken: Taken, after: u64 },
    Waits { waiting: Waiting, verdict: oneshot::Receiver<Verdict>, line: Line },
}

fn ask(shared: &Arc<Shared>, name: &str, request: LeaseRequest) -> Result<Asking, Trouble> {
    check_request(shared, &request)?;
    loop {
        let namespace = shared.registry.ensure(shared, name)?;
        let mut state = namespace.lock();
        // Dropped as unused just now; the next one is new.
        if state.is_closed() {
            continue;
        }
        state.follow = Follow::Caller;
        let asked = state.ask(shared, &namespace, request);
        state.follow = Follow::Thread;
        state.linger(shared);
        namespace.rearm(state);
        if !matches!(asked, Ok(Asking::Done { .. })) {
            // What ended on the way may be on record, and nobody waits for that.
            shared.shard.nudge();
        }
        return asked;
    }
}

impl State {
    fn ask(
        &mut self,
        shared: &Arc<Shared>,
        namespace: &Arc<Namespace>,
        request: LeaseRequest,
    ) -> Result<Asking, Trouble> {
        let now = shared.clock.now();
        self.expire(shared, now);
        if let Some(lease) = self.document_there(&request, now) {
            return Ok(Asking::Done { taken: Taken::Held(lease.clone()), after: self.written });
        }
        let owner = self.lease_owner(shared, &request.owner);
        let held = self.table.holding(owner, &request.resources).and_then(|lock| self.leases.get(lock));
        // More may be over than could be ended just now.
        if let Some(lease) = held.filter(|lease| lease.is_alive(now)) {
            return Ok(Asking::Done { taken: Taken::Held(lease.clone()), after: self.written });
        }
        let asked = self.ask_anew(shared, namespace, request, owner, now);
        self.forget_lockless(owner);
        asked
    }

    fn ask_anew(
        &mut self,
        shared: &Arc<Shared>,
        namespace: &Arc<Namespace>,
        request: LeaseRequest,
        owner: OwnerId,
        now: Timestamp,
    ) -> Result<Asking, Trouble> {
        self.check_room(shared, owner, &request)?;
        let LeaseRequest { owner: name, via, resources, ttl_ms, wait, note } = request;
        let full = self.table.pending_len() as u64 >= shared.config.limits.queue_len_max;
        let wait = if full { Wait::Never } else { wait };
        let wanted = resources.clone();
        let asked = Asked { owner: name.into(), via, note };
        let rank = if self.table.stands_at(owner, &resources) { Rank::Upgrade } else { Rank::Ordinary };
        match self.table.lock(Request { owner, resources, wait, ttl_ms, rank }, now) {
            Outcome::Granted { lock, .. } => {
                shared.metrics.grants.add(1);
                shared.metrics.wait_time.observe(0);
                self.leases.asked.insert(lock, asked);
                self.lease_granted(shared, lock);
                let lease = self.leases.held[&lock].clone();
                Ok(Asking::Done { taken: Taken::Granted(lease), after: self.written })
            }
            Outcome::Queued { lock } => {
                shared.metrics.waits.add(1);
                self.leases.asked.insert(lock, asked);
                let verdict = self.verdict_on(lock);
                let line = view::line(self, lock, now);
                let (shared, namespace) = (Arc::clone(shared), Arc::clone(namespace));
                let waiting = Waiting { shared, namespace, owner, lock, stays: false };
                Ok(Asking::Waits { waiting, verdict, line })
            }
            Outcome::Refused(Refusal::Busy { .. }) if full => Err(queue_full(shared)),
            Outcome::Refused(refusal) => Err(view::refused(shared, self, &refusal, Some(&wanted), now)),
        }
    }

    fn check_room(&self, shared: &Shared, owner: OwnerId, request: &LeaseRequest) -> Result<(), Trouble> {
        if shared.is_draining() {
            return Err(Trouble::draining());
        }
        if shared.is_poisoned() || !shared.numbers.suffice(self.table.next_number()) {
            return Err(Trouble::storage_failed());
        }
        let limits = &shared.config.limits;
        let limit = limits.leases_per_owner_max;
        if self.table.owned_len(owner) as u64 >= limit {
            return Err(Trouble::over("leases_per_owner_max", limit, "the owner has too many leases"));
        }
        let limit = limits.resources_per_namespace_max;
        if (self.table.resources_len() + request.resources.len()) as u64 > limit {
            let what = "the locks of the namespace have too many resources";
            return Err(Trouble::too_many("resources_per_namespace_max", limit, what));
        }
        Ok(())
    }
}

pub(crate) fn queue_full(shared: &Shared) -> Trouble {
    let limit = shared.config.limits.queue_len_max;
    Trouble::too_many("queue_len_max", limit, "too many locks wait in this namespace")
}

fn check_request(shared: &Shared, request: &LeaseRequest) -> Result<(), Trouble> {
    check_resources(shared, &request.resources)?;
    check_owner(shared, &request.owner)?;
    check_ttl(shared, request.ttl_ms)?;
    check_note(shared, request.note.as_ref())
}

pub(crate) fn check_owner(shared: &Shared, owner: &str) -> Result<(), Trouble> {
    let limit = shared.config.limits.owner_bytes_max;
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

fn check_ttl(shared: &Shared, ttl_ms: Option<u64>) -> Result<(), Trouble> {
    let limit = shared.config.limits.lease_ttl_ms_max;
    match ttl_ms {
        Some(0) => Err(Trouble::new(Code::BadBody, "ttl_ms is the time a lease is held, and at least 1")),
        Some(ttl_ms) if ttl_ms > limit => {
            Err(Trouble::over("lease_ttl_ms_max", limit, &format!("the lease is to be held for {ttl_ms} ms")))
        }
        _ => Ok(()),
    }
}

fn check_note(shared: &Shared, note: Option<&Json>) -> Result<(), Trouble> {
    let limit = shared.config.limits.lease_note_bytes_max;
    match note.map(|note| note.as_str().len() as u64) {
        Some(len) if len > limit => {
            Err(Trouble::over("lease_note_bytes_max", limit, &format!("the note has {len} bytes")))
        }
        _ => Ok(()),
    }
}

/// A place in line. Given up when this goes, unless it stays.
pub(crate) struct Waiting {
    shared: Arc<Shared>,
    namespace: Arc<Namespace>,
    owner: OwnerId,
    lock: LockId,
    stays: bool,
}

impl Waiting {
    async fn outcome(mut self, verdict: oneshot::Receiver<Verdict>) -> Result<Taken, Trouble> {
        let granted = match verdict.await {
            Ok(Verdict::Granted { after }) => self.shared.shard.shown(after).await.map_err(Trouble::from),
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
        if !self.stays {
            self.namespace.give_back(&self.shared, self.owner, self.lock);
        }
    }
}

pub(crate) fn lost(lock: LockId) -> Trouble {
    let message = format!(
        "lock {lock} is over: it ran out, was released, or was ended by an operator; what it guarded may have \
         changed, so take it anew and read again"
    );
    Trouble::new(Code::LockLost, message)
}

/// Changes when leases end; gives them as they are then.
pub(crate) async fn renew(
    shared: &Arc<Shared>,
    name: &str,
    which: &Which,
    ttl_ms: u64,
) -> Result<Vec<Lease>, Trouble> {
    check_ttl(shared, Some(ttl_ms))?;
    let (leases, after) = on_leases(shared, name, which, |state, _, found| {
        let until = shared.clock.now().after(ttl_ms);
        for lock in &found {
            let owner = state.table.owner_of(*lock).expect("a lease is in the table");
            let renewed = state.table.renew(owner, *lock, Some(until));
            debug_assert!(renewed.is_ok(), "a lease that is held can be renewed");
            if let Some(lease) = state.leases.held.get_mut(lock) {
                lease.expires_at = Some(until);
            }
            let namespace = (&*state.name).into();
            state.record(shared, &Entry::LeaseRenewed { namespace, lock: *lock, expires_at: Some(until) });
        }
        found.iter().filter_map(|lock| state.leases.get(*lock).cloned()).collect::<Vec<_>>()
    })?;
    shared.shard.shown(after).await?;
    Ok(leases)
}

/// Ends leases; says which. Those of them that stand in line leave it.
pub(crate) async fn release(shared: &Arc<Shared>, name: &str, which: &Which) -> Result<Vec<Lease>, Trouble> {
    if which.may_wait() && leave_line(shared, name, which) && is_nothing_held(shared, name, which) {
        return Ok(Vec::new());
    }
    let (ended, after) = on_leases(shared, name, which, |state, now, found| {
        let ended = found.iter().filter_map(|lock| state.leases.get(*lock).cloned()).collect::<Vec<_>>();
        for lock in found {
            state.end(shared, lock, now);
        }
        ended
    })?;
    shared.shard.shown(after).await?;
    Ok(ended)
}

/// Ends the waits of an owner that says who it is; true if there were any.
fn leave_line(shared: &Arc<Shared>, name: &str, which: &Which) -> bool {
    let Some(namespace) = shared.registry.get(name) else { return false };
    let mut state = namespace.lock();
    let waiting = state.find_waiting(which);
    for (owner, lock) in &waiting {
        let trouble = Trouble::new(Code::LockLost, "its owner ended the wait for this lock");
        state.tell_waiters(*lock, &Verdict::Refused(Box::new(trouble)));
        state.give_back(shared, *owner, *lock);
    }
    namespace.rearm(state);
    shared.registry.drop_if_unused(shared, &namespace);
    !waiting.is_empty()
}

fn is_nothing_held(shared: &Arc<Shared>, name: &str, which: &Which) -> bool {
    let now = shared.clock.now();
    shared.registry.get(name).is_none_or(|namespace| namespace.lock().find_leases(which, now).is_err())
}

/// Writes something else on a lease that is still as it was at `version`, and sets its end anew; gives it as it
/// is then.
pub(crate) async fn rewrite(
    shared: &Arc<Shared>,
    name: &str,
    (lock, version): (LockId, u64),
    note: Json,
    ttl_ms: Option<u64>,
) -> Result<Option<Lease>, Trouble> {
    check_note(shared, Some(&note))?;
    check_ttl(shared, ttl_ms)?;
    let which = Which::Lock { lock, token: None, owner: None };
    let (lease, after) = on_leases(shared, name, &which, |state, now, _| {
        let expires_at = ttl_ms.map(|ttl_ms| now.after(ttl_ms));
        let lease = state.leases.held.get_mut(&lock).filter(|lease| lease.version == version)?;
        lease.note = Some(note);
        lease.version += 1;
        lease.expires_at = expires_at;
        let lease = lease.clone();
        let owner = state.table.owner_of(lock).expect("a lease is in the table");
        let renewed = state.table.renew(owner, lock, expires_at);
        debug_assert!(renewed.is_ok(), "a lease that is held can be renewed");
        state.record(shared, &Entry::Leased { namespace: (&*state.name).into(), lease: lease.clone() });
        Some(lease)
    })?;
    shared.shard.shown(after).await?;
    Ok(lease)
}

/// Somebody who has a lock in the namespace that no document of the Elasticsearch facade stands for.
pub(crate) fn others_in(shared: &Shared, name: &str) -> Option<Trouble> {
    let namespace = shared.registry.get(name)?;
    let state = namespace.lock();
    let is_other = |lock: LockId| state.leases.via(lock) != Some(LeaseVia::Elasticsearch);
    let other = state.table.views(None).find(|view| view.token.is_some() && is_other(view.id))?;
    Some(view::busy(&state, &[other.id], None, shared.clock.now()))
}

/// Does something with leases that are held; gives what came of it, and the record that has to be durable
/// before it is told.
fn on_leases<T>(
    shared: &Arc<Shared>,
    name: &str,
    which: &Which,
    act: impl FnOnce(&mut State, Timestamp, Vec<LockId>) -> T,
) -> Result<(T, u64), Trouble> {
    let namespace = shared.registry.get(name).ok_or_else(|| nothing_held(which))?;
    let mut state = namespace.lock();
    let now = shared.clock.now();
    state.expire(shared, now);
    let found = state.find_leases(which, now)?;
    state.follow = Follow::Caller;
    let done = act(&mut state, now, found);
    state.follow = Follow::Thread;
    let after = state.written;
    state.linger(shared);
    namespace.rearm(state);
    Ok((done, after))
}

fn nothing_held(which: &Which) -> Trouble {
    match which {
        Which::Lock { lock, .. } => lost(*lock),
        Which::Like { owner, .. } => {
            let message =
                format!("{owner:?} has no lease with exactly these resources; list its locks to see");
            Trouble::new(Code::LockLost, message)
        }
        Which::All { owner } => Trouble::new(
            Code::LockLost,
            format!("{owner:?} has no lease; what it had has run out or was released"),
        ),
    }
}

impl State {
    /// The leases meant, if there is at least one and its time is not over.
    fn find_leases(&self, which: &Which, now: Timestamp) -> Result<Vec<LockId>, Trouble> {
        let of = |owner: &str| {
            let owner = self.leases.owners.get(owner).copied();
            let locks = owner.into_iter().flat_map(|owner| self.table.owned(owner)).map(|view| view.id);
            locks.filter_map(|lock| self.leases.get(lock)).filter(|lease| lease.is_alive(now))
        };
        let found: Vec<LockId> = match which {
            Which::Lock { lock, token, owner } => {
                let lease =
                    self.leases.get(*lock).filter(|lease| lease.is_alive(now)).ok_or_else(|| lost(*lock))?;
                if token.is_some_and(|token| token != lease.token.0)
                    || owner.as_ref().is_some_and(|owner| **owner != *lease.owner)
                {
                    return Err(foreign(lease));
                }
                vec![*lock]
            }
            Which::All { owner } => of(owner).map(|lease| lease.lock).collect(),
            Which::Like { owner, resources } => {
                let wanted = merged(resources);
                of(owner).filter(|lease| lease.resources == wanted).map(|lease| lease.lock).collect()
            }
        };
        if found.is_empty() { Err(nothing_held(which)) } else { Ok(found) }
    }

    /// The requests meant that stand in line still, with their owners. A wait has no token, so its owner is
    /// known by name.
    fn find_waiting(&self, which: &Which) -> Vec<(OwnerId, LockId)> {
        let (name, lock, wanted) = match which {
            Which::Lock { lock, owner: Some(owner), .. } => (owner, Some(*lock), None),
            Which::Lock { owner: None, .. } => return Vec::new(),
            Which::Like { owner, resources } => (owner, None, Some(merged(resources))),
            Which::All { owner } => (owner, None, None),
        };
        let Some(owner) = self.leases.owners.get(&**name).copied() else { return Vec::new() };
        let is_meant = |view: &LockView| {
            self.leases.asked.contains_key(&view.id)
                && lock.is_none_or(|lock| view.id == lock)
                && wanted.as_ref().is_none_or(|wanted| view.resources == *wanted)
        };
        self.table.owned(owner).filter(is_meant).map(|view| (owner, view.id)).collect()
    }

    /// Ends a lock of whoever it is, and hands it over.
    fn end(&mut self, shared: &Shared, lock: LockId, now: Timestamp) {
        let mut effects = std::mem::take(&mut self.effects);
        if let Ok(ended) = self.table.revoke(lock, now, &mut effects) {
            ended.held_ms.into_iter().for_each(|held| shared.metrics.hold_time.observe(held));
        }
        self.lease_gone(lock);
        self.deliver(effects, now, shared);
    }
}

/// As the table has them, so that they can be compared.
fn merged(resources: &[Resource]) -> Vec<Resource> {
    let mut merged = resources.to_vec();
    merge(&mut merged);
    merged
}

fn foreign(lease: &Lease) -> Trouble {
    let message = format!(
        "lock {} belongs to {:?} under another token; only its owner can do this, or an operator by ending it",
        lease.lock, lease.owner
    );
    Trouble::new(Code::LockLost, message)
}

/// Waits until everything is durable that a look at the namespace can have shown by now.
pub(crate) async fn settled(shared: &Shared, namespace: &str) -> Result<(), Trouble> {
    let Some(namespace) = shared.registry.get(namespace) else { return Ok(()) };
    let after = namespace.lock().written;
    Ok(shared.shard.shown(after).await?)
}

/// A lease that is held.
pub(crate) fn get(shared: &Shared, namespace: &str, lock: LockId) -> Option<Lease> {
    shared.registry.get(namespace)?.lock().leases.get(lock).cloned()
}

/// The lease that stands for the document at this path, if its time is not over.
pub(crate) fn at_path(shared: &Shared, namespace: &str, path: &Path) -> Option<Lease> {
    let namespace = shared.registry.get(namespace)?;
    let state = namespace.lock();
    let now = shared.clock.now();
    let lease = state.leases.get(*state.leases.by_path.get(path)?)?;
    lease.is_alive(now).then(|| lease.clone())
}

/// The leases that stand for documents below this path, in the order they were granted.
pub(crate) fn below_path(shared: &Shared, namespace: &str, path: &Path) -> Vec<Lease> {
    let Some(namespace) = shared.registry.get(namespace) else { return Vec::new() };
    let state = namespace.lock();
    let now = shared.clock.now();
    let is_meant = |lease: &&Lease| {
        lease.via == LeaseVia::Elasticsearch
            && lease.is_alive(now)
            && lease.resources.iter().any(|resource| path.is_prefix_of(&resource.path))
    };
    state.leases.held.values().filter(is_meant).cloned().collect()
}

/// Waits until a lock that stands in line is granted, but not for longer than this. Fails if it is refused
/// meanwhile. How it stands then is for listings to tell, once they are [`settled`].
pub(crate) async fn poll(
    shared: &Shared,
    name: &str,
    lock: LockId,
    patience: Duration,
) -> Result<(), Trouble> {
    let Some(namespace) = shared.registry.get(name) else { return Ok(()) };
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

// For interfaces whose documents stand for leases.

/// Waits until everything that could be seen of the leases of a namespace is durable.
pub(crate) async fn settle(shared: &Shared, name: &str) -> Result<(), Trouble> {
    let Some(namespace) = shared.registry.get(name) else { return Ok(()) };
    let after = namespace.lock().written;
    Ok(shared.shard.shown(after).await?)
}

/// Ends a lease that is still as it was at `version`; gives it as it was.
pub(crate) async fn release_unchanged(
    shared: &Arc<Shared>,
    name: &str,
    lock: LockId,
    version: u64,
) -> Result<Option<Lease>, Trouble> {
    let which = Which::Lock { lock, token: None, owner: None };
    let (ended, after) = on_leases(shared, name, &which, |state, now, _| {
        let lease = state.leases.get(lock).filter(|lease| lease.version == version).cloned()?;
        state.end(shared, lock, now);
        Some(lease)
    })?;
    shared.shard.shown(after).await?;
    Ok(ended)
}

impl State {
    /// The lease that stands for the document which a request would make, whoever has it.
    fn document_there(&self, request: &LeaseRequest, now: Timestamp) -> Option<&Lease> {
        let [only] = &request.resources[..] else { return None };
        let lock = self.leases.by_path.get(&only.path).filter(|_| request.via == LeaseVia::Elasticsearch)?;
        self.leases.get(*lock).filter(|lease| lease.expires_at.is_none_or(|at| at > now))
    }
}
