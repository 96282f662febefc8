//! How locks, nodes, blockers and cycles are shown to people and programs. Changes nothing.

use crate::{
    clock::rfc3339,
    kernel::Kernel,
    namespace::State,
    trouble::{Trouble, Why},
};
use lockwood_locks::{Cycle, LockView, NodeView, Refusal, Standing};
use lockwood_model::{LockId, Mode, OwnerId, Resource, Timestamp};
use lockwood_wire::{
    Blocker, Code, CycleStep, Intents, LockInfo, LockState, NodeClaim, NodeInfo, Owner, WirePath,
    WireResource, documents::WireValue,
};
use std::borrow::Cow;

/// How a document operation that holds or wants a lock for its own time is called.
const OPERATION: &str = "a request";

/// How many resources of a blocker are shown, of those that are in the way.
const BLOCKER_RESOURCES_MAX: usize = 4;

/// How many resources of each side are looked at to find those: very many must not cost everyone's time.
const COMPARED_MAX: usize = 64;

/// Where a lock stands in line, with names.
#[derive(Debug)]
pub struct Line {
    /// How many requests are before it.
    pub place: usize,
    /// How many locks are in its way.
    pub blockers_len: usize,
    /// The first few of those.
    pub blockers: Vec<Blocker>,
}

pub(crate) fn line(state: &State, lock: LockId, now: Timestamp) -> Line {
    let Standing { place, blockers, blockers_len } = state.table.standing(lock).unwrap_or_default();
    let wanted =
        state.table.brief(lock, COMPARED_MAX).map(|view| view.converting_to.unwrap_or(view.resources));
    Line { place, blockers_len, blockers: name_blockers(state, &blockers, wanted.as_ref(), now) }
}

/// Shows locks that are in the way of `wanted`, and of each the resources that are.
fn name_blockers(
    state: &State,
    locks: &[LockId],
    wanted: Option<&Vec<Resource>>,
    now: Timestamp,
) -> Vec<Blocker> {
    let views = locks.iter().filter_map(|lock| state.table.brief(*lock, COMPARED_MAX));
    views.map(|view| blocker(state, &view, wanted, now)).collect()
}

fn blocker(state: &State, view: &LockView, wanted: Option<&Vec<Resource>>, now: Timestamp) -> Blocker {
    let all = || view.resources.iter().chain(view.converting_to.iter().flatten());
    let clashes = |held: &&Resource| {
        wanted.is_none_or(|wanted| wanted.iter().take(COMPARED_MAX).any(|wanted| wanted.conflicts(held)))
    };
    let found: Vec<&Resource> = all().filter(clashes).take(BLOCKER_RESOURCES_MAX).collect();
    let shown = if found.is_empty() { all().take(BLOCKER_RESOURCES_MAX).collect() } else { found };
    let since = view.granted_at.unwrap_or(view.requested_at);
    let owner = owner(state, view.owner);
    Blocker {
        lock: view.id.0,
        state: lock_state(view),
        session: owner.session,
        name: owner.name,
        since: rfc3339(since),
        age_ms: now.since(since),
        resources: shown.into_iter().map(WireResource::from).collect(),
    }
}

pub(crate) fn lock_info(state: &State, view: &LockView, now: Timestamp) -> LockInfo {
    let standing = state.table.standing(view.id);
    let lease = state.leases.get(view.id);
    let told: Cow<'_, LockView> = match state.relied_on(view.id) {
        Some((token, resources)) => {
            let (token, resources) = (Some(*token), resources.clone());
            Cow::Owned(LockView { token, resources, ..view.clone() })
        }
        None if state.is_new(view.id) => {
            Cow::Owned(LockView { token: None, granted_at: None, ..view.clone() })
        }
        None => Cow::Borrowed(view),
    };
    let view = &*told;
    let since = view.granted_at.unwrap_or(view.requested_at);
    let mut owner = owner(state, view.owner);
    if owner.via == "lease" {
        owner.via = state.leases.via_of(view.id).to_owned();
    }
    LockInfo {
        lock: view.id.0,
        state: lock_state(view),
        token: view.token.map(|token| token.0),
        owner,
        resources: view.resources.iter().map(WireResource::from).collect(),
        converting_to: view.converting_to.as_ref().map(|to| to.iter().map(WireResource::from).collect()),
        requested_at: rfc3339(view.requested_at),
        granted_at: view.granted_at.map(rfc3339),
        age_ms: now.since(since),
        wait_left_ms: view.wait_until.map(|until| until.since(now)),
        abandoned_in_ms: view.away_until.map(|until| until.since(now)),
        expires_at: view.expires_at.map(rfc3339),
        expires_in_ms: view.expires_at.map(|at| at.since(now)),
        note: lease.and_then(|lease| lease.note.as_ref()).map(WireValue::from),
        place: standing.as_ref().map(|standing| standing.place),
        blockers_len: standing.as_ref().map(|standing| standing.blockers_len),
        blockers: standing
            .map_or_else(Vec::new, |standing| standing.blockers.iter().map(|id| id.0).collect()),
    }
}

pub(crate) fn node_info(state: &State, node: &NodeView) -> NodeInfo {
    let claims = node.claims.iter().map(|claim| {
        let owner = owner(state, claim.owner);
        NodeClaim {
            lock: claim.lock.0,
            session: owner.session,
            name: owner.name,
            mode: claim.mode.as_str().to_owned(),
            depth: claim.depth.limit().map(u64::from).filter(|_| !claim.mode.on_child_list()),
            sign: sign(claim.mode, claim.granted).to_owned(),
            granted: claim.granted,
        }
    });
    NodeInfo {
        path: WirePath(node.path.clone()),
        claims: claims.collect(),
        intents: Intents { read: node.intent_read, change: node.intent_change },
    }
}

/// The classic letters; a waiter shows the intent it has announced on its target.
fn sign(mode: Mode, granted: bool) -> &'static str {
    match (granted, mode) {
        (false, mode) if mode.intends_change() => "IX",
        (false, _) => "IS",
        (true, Mode::Read) => "S",
        (true, Mode::Update) => "U",
        (true, Mode::Write) => "X",
        (true, Mode::List) => "CS",
        (true, Mode::Link) => "CX",
    }
}

/// Why a lock is not to be had.
pub(crate) fn refused(
    kernel: &Kernel,
    state: &State,
    refusal: &Refusal,
    wanted: Option<&Vec<Resource>>,
    now: Timestamp,
) -> Trouble {
    match refusal {
        Refusal::Busy { blockers } => {
            kernel.metrics.refusals.add(1);
            busy(state, blockers, wanted, now)
        }
        Refusal::Deadlock(cycle) => {
            kernel.metrics.deadlocks.add(1);
            deadlock(state, cycle)
        }
        Refusal::Frozen => grace_period(kernel, state, Vec::new()),
    }
}

pub(crate) fn busy(
    state: &State,
    blockers: &[LockId],
    wanted: Option<&Vec<Resource>>,
    now: Timestamp,
) -> Trouble {
    let blockers = name_blockers(state, blockers, wanted, now);
    let message = format!("{}; wait longer, or ask {} to release it", in_the_way(&blockers), who(&blockers));
    Trouble { blockers, ..Trouble::new(Code::Locked, message) }
}

/// Nothing is granted yet, whether or not others are in the way as well.
fn grace_period(kernel: &Kernel, state: &State, blockers: Vec<Blocker>) -> Trouble {
    let (name, left_ms) = (&state.name, kernel.grace.left_ms(&state.name).max(1));
    let also = match blockers.is_empty() {
        true => String::new(),
        false => format!("; besides, {}", in_the_way(&blockers)),
    };
    let message = format!(
        "grace_period: the namespace {name:?} grants nothing for another {left_ms} ms, because sessions held locks in \
         it when the server stopped without them, and can still take them up again{also}; wait longer, try again \
         then, or end it with: lockwood grace end {name:?}"
    );
    let why = Some(Box::new(Why::Grace { left_ms }));
    Trouble { blockers, why, ..Trouble::new(Code::GracePeriod, message) }
}

pub(crate) fn timed_out(
    kernel: &Kernel,
    state: &State,
    blockers: &[LockId],
    wanted: Option<&Vec<Resource>>,
    now: Timestamp,
) -> Box<Trouble> {
    let blockers = name_blockers(state, blockers, wanted, now);
    if state.table.is_frozen() {
        return Box::new(grace_period(kernel, state, blockers));
    }
    let message = format!("the wait is over and {}; ask again, or wait longer", in_the_way(&blockers));
    Box::new(Trouble { blockers, ..Trouble::new(Code::Timeout, message) })
}

pub(crate) fn deadlock(state: &State, cycle: &Cycle) -> Trouble {
    let name = |owner: OwnerId| self::owner(state, owner);
    let steps: Vec<CycleStep> = cycle
        .0
        .iter()
        .map(|step| {
            let (waiter, holder) = (name(step.waiter), name(step.holder));
            CycleStep {
                session: waiter.session,
                name: waiter.name,
                wants: (&step.wants).into(),
                lock: step.lock.0,
                has: (&step.has).into(),
                holder: holder.session,
                holder_name: holder.name,
            }
        })
        .collect();
    let ring: Vec<String> = steps
        .iter()
        .map(|step| {
            let waiter = label(step.name.as_deref(), &step.session);
            let holder = label(step.holder_name.as_deref(), &step.holder);
            format!("{waiter} waits for {holder} on {}", step.wants.path.0)
        })
        .collect();
    let message = format!(
        "waiting would never end: {}; release a lock first, take all locks in one request, or convert the \
         lock held instead of asking for a second one",
        ring.join(", ")
    );
    Trouble { cycle: steps, ..Trouble::new(Code::Deadlock, message) }
}

fn in_the_way(blockers: &[Blocker]) -> String {
    let Some(first) = blockers.first() else { return "others are in the way".to_owned() };
    let verb = if first.state == LockState::Waiting { "has waited" } else { "has held" };
    let what = first.resources.first().map(|resource| resource.path.0.to_string()).unwrap_or_default();
    let others = match blockers.len() {
        1 => String::new(),
        more => format!(" (and {} more)", more - 1),
    };
    format!("{} {verb} {what} (lock {}) since {}{others}", who(blockers), first.lock, first.since)
}

fn who(blockers: &[Blocker]) -> String {
    let first = blockers.first();
    first.map_or_else(|| "the holder".to_owned(), |first| label(first.name.as_deref(), &first.session))
}

fn label(name: Option<&str>, session: &str) -> String {
    name.map_or_else(
        || format!("session {}", session.get(..8).unwrap_or(session)),
        |name| format!("{name:?}"),
    )
}

fn owner(state: &State, owner: OwnerId) -> Owner {
    if let Some(session) = state.sessions.get(&owner) {
        return session.owner();
    }
    let (name, via) = match state.leases.describe(owner) {
        Some(name) => (name.to_owned(), "lease"),
        None => (OPERATION.to_owned(), "operation"),
    };
    Owner { session: String::new(), name: Some(name), via: via.to_owned(), peer: None, connected: true }
}

/// Whether a lock is held.
pub(crate) fn lock_state(view: &LockView) -> LockState {
    match (view.token, &view.converting_to) {
        (None, _) => LockState::Waiting,
        (Some(_), Some(_)) => LockState::Converting,
        (Some(_), None) => LockState::Granted,
    }
}
