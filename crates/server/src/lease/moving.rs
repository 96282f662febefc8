//! Leases, and requests that stand in line, that go to other shards with the documents they are on. Data in, data out;
//! knows nothing of who brings it from one node to the other.
//!
//! ```text
//!   donor:  stop deciding ──► export ─────────────────────────────► drop what is elsewhere now
//!   owner:                            import, on record ──► serve
//! ```
//!
//! Between stopping and serving nobody decides about what moves, so nothing is granted twice and nothing is lost.
//! What is not settled yet is a place in line; those are with [`super::moving_waits`].

pub(crate) use super::moving_waits::MovingWait;

use super::{
    Lease, LeasePart, Verdict,
    convert::{is_half_done, lowered},
};
use crate::{
    cluster::{Admitted, Current, SHARDS_MAX, SYSTEM, locks, received},
    namespace::{Namespace, State},
    shared::Shared,
    trouble::Trouble,
};
use lockwood_locks::{Effect, Left, Recorded};
use lockwood_model::{Json, LeaseVia, LockId, Resource, Timestamp, Token};
use lockwood_router::{Phase, ShardNo};
use lockwood_storage::Entry;
use lockwood_wire::{Code, WireResource};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// How long requests that are being carried out may be in the way of what comes.
const BUSY_PATIENCE: Duration = Duration::from_secs(5);
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// The shard that tells new ones what every shard has.
const TELLER: ShardNo = ShardNo(1);

/// What a donor has that goes elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MovingLeases {
    /// Every lock number and token given out is below this.
    pub(crate) floor: u64,
    /// Whether the leases are all that are on every shard, so that there can be no others.
    pub(crate) everywhere: bool,
    pub(crate) leases: Vec<MovingLease>,
    /// Of every shard all that wait there, in the order they stand in line.
    pub(crate) waits: Vec<MovingWait>,
}

/// A lease, or the part of it that moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MovingLease {
    namespace: String,
    to: ShardNo,
    lock: u64,
    token: u64,
    owner: String,
    resources: Vec<WireResource>,
    /// With what stays, and what goes elsewhere.
    whole: Vec<WireResource>,
    /// In milliseconds since 1970, like the next.
    granted_at: u64,
    expires_at: Option<u64>,
    /// As text.
    note: Option<String>,
    version: u64,
}

impl MovingLeases {
    /// What several donors have, together.
    pub(crate) fn add(&mut self, other: MovingLeases) {
        self.floor = self.floor.max(other.floor);
        self.everywhere |= other.everywhere;
        self.leases.extend(other.leases);
        self.waits.extend(other.waits);
    }
}

impl MovingLease {
    fn of(namespace: &str, to: ShardNo, lease: &Lease, resources: &[Resource]) -> MovingLease {
        MovingLease {
            namespace: namespace.to_owned(),
            to,
            lock: lease.lock.0,
            token: lease.token.0,
            owner: lease.owner.to_string(),
            resources: locks::written(resources),
            whole: locks::written(lease.whole()),
            granted_at: lease.granted_at.0,
            expires_at: lease.expires_at.map(|at| at.0),
            note: lease.note.as_ref().map(|note| note.as_str().to_owned()),
            version: lease.version,
        }
    }

    fn to_lease(&self) -> Result<Lease, Trouble> {
        let (resources, whole) = (locks::read(self.resources.clone())?, locks::read(self.whole.clone())?);
        Ok(Lease {
            lock: LockId(self.lock),
            token: Token(self.token),
            owner: self.owner.as_str().into(),
            via: LeaseVia::Native,
            part: part_of(&resources, whole),
            resources,
            granted_at: Timestamp(self.granted_at),
            expires_at: self.expires_at.map(Timestamp),
            ttl_ms: None,
            note: self.note.as_deref().map(Json::trusted),
            version: self.version,
        })
    }
}

/// What a settled lease with these resources is a part of.
fn part_of(resources: &[Resource], whole: Vec<Resource>) -> Option<Box<LeasePart>> {
    (whole != resources).then(|| Box::new(LeasePart { whole, settled: true }))
}

/// A number above every lock number and token that this node has given out.
pub(crate) fn floor(shared: &Shared) -> u64 {
    let tables = shared.registry.all().into_iter().map(|namespace| namespace.lock().table.next_number());
    tables.max().unwrap_or(0).max(shared.numbers.first())
}

/// Gives out only larger numbers from now on, also after a restart.
pub(crate) async fn raise(shared: &Arc<Shared>, floor: u64) -> Result<(), Trouble> {
    shared.numbers.raise(floor).await?;
    for namespace in shared.registry.all() {
        namespace.lock().table.raise(floor);
    }
    Ok(())
}

/// A host that only read is going to write: what it has of leases on record becomes its own. How far the numbers of
/// the host before it were is not on record, so they go on far above: one number for every millisecond there has been.
pub(crate) async fn take_over(shared: &Arc<Shared>) -> Result<(), Trouble> {
    raise(shared, shared.clock.now().0 * SHARDS_MAX).await?;
    for namespace in shared.registry.all().into_iter().filter(|namespace| *namespace.name != *SYSTEM) {
        namespace.lock().forget_leases(shared, shared.clock.now());
    }
    Ok(super::restore(shared, super::LeaseTime::Continues)?)
}

/// What goes from this node to others when the next map is in force, as of a map by which nobody decides about it.
pub(crate) fn export(shared: &Arc<Shared>, current: &Current) -> Result<MovingLeases, Trouble> {
    let mut moving = MovingLeases { floor: floor(shared), ..MovingLeases::default() };
    if current.map.phase != Phase::Preparing || !current.is_owner {
        return Ok(moving);
    }
    moving.everywhere = shared.cluster.this() == TELLER;
    for namespace in shared.registry.all() {
        if *namespace.name != *SYSTEM {
            let mut state = namespace.lock();
            let now = shared.clock.now();
            // Whoever brought the map may not have come to that yet.
            state.follow_map(shared, current);
            state.expire(shared, now);
            state.export(current, shared.cluster.this(), now, &mut moving)?;
        }
    }
    Ok(moving)
}

impl State {
    fn export(
        &self,
        current: &Current,
        this: ShardNo,
        now: Timestamp,
        moving: &mut MovingLeases,
    ) -> Result<(), Trouble> {
        for lease in self.leases.held.values().filter(|lease| lease.is_alive(now)) {
            if lease.is_settled() {
                for (to, resources) in leaving(current, this, &lease.resources)? {
                    moving.leases.push(MovingLease::of(&self.name, to, lease, &resources));
                }
            }
        }
        self.export_waits(this, now, &mut moving.waits);
        Ok(())
    }
}

/// What of some resources goes where. What is on every shard goes to those that may be new.
fn leaving(current: &Current, this: ShardNo, resources: &[Resource]) -> Result<locks::Parts, Trouble> {
    let mut parts = locks::Parts::new();
    for resource in resources {
        match current.home(&resource.path)? {
            locks::Home::Moving { from, to } if from == this => {
                parts.entry(to).or_default().push(resource.clone());
            }
            locks::Home::Every if this == TELLER => {
                for shard in current.map.shard_numbers().filter(|shard| *shard != this) {
                    parts.entry(shard).or_default().push(resource.clone());
                }
            }
            _ => {}
        }
    }
    Ok(parts)
}

/// What comes to one namespace.
#[derive(Default)]
struct Arrivals<'a> {
    leases: Vec<Lease>,
    waits: Vec<&'a MovingWait>,
    /// What was here and made way for leases.
    displaced: BTreeSet<LockId>,
}

/// Takes in what comes to this node, which has stopped deciding about it; durable when it answers. What is here
/// already stays as it is.
pub(crate) async fn import(
    shared: &Arc<Shared>,
    current: &Current,
    moving: &MovingLeases,
) -> Result<(), Trouble> {
    received::check_number(moving.floor)?;
    raise(shared, moving.floor).await?;
    let this = shared.cluster.this();
    let mut arrivals: BTreeMap<&str, Arrivals<'_>> = BTreeMap::new();
    for lease in moving.leases.iter().filter(|lease| lease.to == this) {
        received::check_namespace(&lease.namespace)?;
        let read = lease.to_lease()?;
        received::check_lease(&read)?;
        arrivals.entry(&lease.namespace).or_default().leases.push(read);
    }
    for wait in &moving.waits {
        arrivals.entry(&wait.namespace).or_default().waits.push(wait);
    }
    if moving.everywhere {
        // Also where nothing comes something may have to go.
        for namespace in shared.registry.all() {
            if *namespace.name != *SYSTEM {
                let known = arrivals.get(&*namespace.name).map_or(&[][..], |arrivals| &arrivals.leases);
                drop_unknown(shared, current, &namespace, known)?;
            }
        }
    }
    for (name, mut arrivals) in arrivals {
        let started = Instant::now();
        let after = loop {
            match import_into(shared, current, name, &mut arrivals)? {
                Imported::Done { after } => break after,
                Imported::Busy if started.elapsed() < BUSY_PATIENCE => tokio::time::sleep(BUSY_PAUSE).await,
                Imported::Busy => {
                    let message = "a request that is being carried out is in the way of a lock that comes";
                    return Err(Trouble::new(Code::Moving, message));
                }
            }
        };
        shared.shard.shown(after).await?;
    }
    Ok(())
}

/// Ends what is on every shard as far as this one knows, but not as far as the others do: this one was not there when
/// it ended.
fn drop_unknown(
    shared: &Arc<Shared>,
    current: &Current,
    namespace: &Namespace,
    known: &[Lease],
) -> Result<(), Trouble> {
    if shared.cluster.this() == TELLER {
        return Ok(());
    }
    let mut state = namespace.lock();
    let _passage = shared.cluster.pass(Admitted::under(current))?;
    let now = shared.clock.now();
    let is_everywhere = |resource: &Resource| matches!(current.home(&resource.path), Ok(locks::Home::Every));
    let is_unknown = |lease: &&Lease| {
        lease.is_settled()
            && lease.resources.iter().any(is_everywhere)
            && !known.iter().any(|known| known.lock == lease.lock)
    };
    let unknown: Vec<LockId> =
        state.leases.held.values().filter(is_unknown).map(|lease| lease.lock).collect();
    for lock in unknown {
        state.end(shared, lock, now);
    }
    namespace.rearm(state);
    Ok(())
}

enum Imported {
    Done {
        /// The record to wait for.
        after: u64,
    },
    /// A request has a lock of its own in the way, for as long as it takes.
    Busy,
}

fn import_into(
    shared: &Arc<Shared>,
    current: &Current,
    name: &str,
    arrivals: &mut Arrivals<'_>,
) -> Result<Imported, Trouble> {
    loop {
        let namespace = shared.registry.ensure(shared, name)?;
        let mut state = namespace.lock();
        if state.is_closed() {
            continue;
        }
        // A message that was long on its way must not bring back what has been released since.
        let _passage = shared.cluster.pass(Admitted::under(current))?;
        let now = shared.clock.now();
        state.expire(shared, now);
        state.stop_conversions(shared, now);
        let imported = state.import(shared, current, arrivals, now)?;
        state.linger(shared);
        namespace.rearm(state);
        return Ok(imported);
    }
}

impl State {
    fn import(
        &mut self,
        shared: &Shared,
        current: &Current,
        arrivals: &mut Arrivals<'_>,
        now: Timestamp,
    ) -> Result<Imported, Trouble> {
        let was_frozen = self.table.is_frozen();
        self.table.freeze();
        let mut effects = std::mem::take(&mut self.effects);
        let mut is_busy = false;
        for lease in arrivals.leases.iter().filter(|lease| lease.is_alive(now)) {
            is_busy |= !self.import_lease(shared, lease, now, (&mut effects, &mut arrivals.displaced));
        }
        let lined_up = if is_busy {
            Ok(())
        } else {
            self.import_waits(shared, current, (&arrivals.waits, &arrivals.displaced), now)
        };
        if !was_frozen {
            self.table.thaw(now, &mut effects);
        }
        self.deliver(effects, now, shared);
        lined_up?;
        shared.shard.nudge();
        Ok(if is_busy { Imported::Busy } else { Imported::Done { after: self.written } })
    }

    /// Puts a lease into the table, which is frozen. What is in its way was not decided by whoever decides about this,
    /// so it goes; but for a request that is being carried out: then this answers false.
    fn import_lease(
        &mut self,
        shared: &Shared,
        lease: &Lease,
        now: Timestamp,
        (effects, displaced): (&mut Vec<Effect>, &mut BTreeSet<LockId>),
    ) -> bool {
        let mut lease = lease.clone();
        if let Some(here) = self.leases.get(lease.lock) {
            let mut both = [&here.resources[..], &lease.resources[..]].concat();
            lockwood_locks::merge(&mut both);
            // When a conversion is just being settled, one part may know of it and another one not. The owner does not,
            // so the lock is what it was: with the smaller token, or as strong as any part of it says.
            let mut known =
                if here.is_settled() && here.token < lease.token { here } else { &lease }.whole().to_vec();
            if here.is_settled() && here.token == lease.token {
                known.extend_from_slice(here.whole());
                lockwood_locks::merge(&mut known);
            }
            let token = if here.is_settled() { here.token.min(lease.token) } else { lease.token };
            if here.is_settled() && here.resources == both && here.token == token && here.whole() == known {
                return true;
            }
            (lease.part, lease.token) = (part_of(&both, known), token);
            lease.resources = both;
        }
        let before = self.leases.get(lease.lock).cloned();
        if self.table.owner_of(lease.lock).is_some() {
            self.make_way(lease.lock, now, effects);
            displaced.insert(lease.lock);
        }
        let recorded = |owner, lease: &Lease| Recorded {
            lock: lease.lock,
            token: lease.token,
            owner,
            resources: lease.resources.clone(),
            granted_at: lease.granted_at,
            expires_at: lease.expires_at,
        };
        let owner = self.lease_owner(shared, &lease.owner);
        let is_operation =
            |state: &State, lock| state.table.view(lock).is_some_and(|view| view.rank.is_operation());
        while let Err(blockers) = self.table.restore_recorded(recorded(owner, &lease)) {
            if blockers.iter().any(|lock| is_operation(self, *lock)) {
                if let Some(before) = before {
                    displaced.remove(&before.lock);
                    let restored = self.table.restore_recorded(recorded(owner, &before));
                    debug_assert!(restored.is_ok(), "it was there a moment ago, and nothing is granted");
                    self.put_back(shared, before);
                }
                self.forget_lockless(owner);
                return false;
            }
            // What is stronger than its owner knows is so on its way to be, and not on all shards yet.
            if is_half_done(&lease) {
                lowered(&mut lease);
                continue;
            }
            for lock in blockers {
                if self.lower(shared, lock, now) {
                    continue;
                }
                if self.leases.get(lock).is_some_and(Lease::is_settled) {
                    tracing::warn!(namespace = ?self.name, lock = lock.0, "a lock makes way for one that moved here");
                }
                self.make_way(lock, now, effects);
                displaced.insert(lock);
            }
        }
        self.put_back(shared, lease);
        true
    }

    /// A lease is in the table; now it goes on record.
    fn put_back(&mut self, shared: &Shared, lease: Lease) {
        self.record(shared, &Entry::Leased { namespace: (&*self.name).into(), lease: lease.clone() });
        self.leases.insert(lease);
    }

    /// Ends a lease or a wait without handing anything over: the table is frozen.
    fn make_way(&mut self, lock: LockId, now: Timestamp, effects: &mut Vec<Effect>) {
        self.tell_waiters(lock, &Verdict::Refused(Box::new(gone())));
        let revoked = self.table.revoke(lock, now, effects);
        debug_assert!(revoked.is_ok(), "it is in the table");
        self.lease_gone(lock);
    }
}

/// A map is in force: whoever waits for what is not decided about here is sent away, and what is elsewhere now is
/// dropped. Nothing of it is handed over.
pub(crate) fn follow(shared: &Arc<Shared>, current: &Current) {
    for namespace in shared.registry.all() {
        if *namespace.name != *SYSTEM {
            follow_in(shared, current, &namespace);
            shared.registry.drop_if_unused(shared, &namespace);
        }
    }
    shared.shard.nudge();
}

fn follow_in(shared: &Arc<Shared>, current: &Current, namespace: &Arc<Namespace>) {
    let mut state = namespace.lock();
    if shared.cluster.epoch() != current.map.epoch {
        // A newer map is in force; whoever brought it does this too.
        return;
    }
    state.follow_map(shared, current);
    namespace.rearm(state);
}

/// Another host decides about everything that this one has; what it has on record of it comes from there.
pub(crate) fn let_go(shared: &Arc<Shared>, current: &Current) {
    for namespace in shared.registry.all().into_iter().filter(|namespace| *namespace.name != *SYSTEM) {
        let mut state = namespace.lock();
        state.drop_moved(shared, current, shared.cluster.this(), shared.clock.now());
        namespace.rearm(state);
    }
}

impl State {
    /// Somebody asks by the map in force, which may not have been followed yet.
    pub(super) fn catch_up(&mut self, shared: &Arc<Shared>, admitted: Admitted) {
        if admitted.epoch().is_none_or(|epoch| epoch == self.leases.followed) {
            return;
        }
        if let Some(current) = shared.cluster.current().filter(|current| Admitted::under(current) == admitted)
        {
            self.follow_map(shared, &current);
        }
    }

    fn follow_map(&mut self, shared: &Arc<Shared>, current: &Current) {
        if self.leases.followed >= current.map.epoch {
            return;
        }
        self.leases.followed = current.map.epoch;
        let (this, now) = (shared.cluster.this(), shared.clock.now());
        if current.is_replica {
            return self.forget_leases(shared, now);
        }
        self.stop_conversions(shared, now);
        if current.map.phase == Phase::Preparing {
            return self.send_away(current, this, |resource| is_here(current, this, resource));
        }
        let was_frozen = self.table.is_frozen();
        self.table.freeze();
        self.follow_waits(current, this, |resource| is_here(current, this, resource), now);
        // A shard that is not in the map any more has nothing: were it to come back it would be in the way.
        self.drop_moved(shared, current, this, now);
        if !was_frozen {
            let mut effects = std::mem::take(&mut self.effects);
            self.table.thaw(now, &mut effects);
            self.deliver(effects, now, shared);
        }
        self.claim(shared, current, this, now);
        self.adopt_strays(shared, current, this);
    }

    /// Another host decides about everything from now on. What is on record is its business: it may have renewed what
    /// would end here by itself, and released what is held here.
    fn forget_leases(&mut self, shared: &Shared, now: Timestamp) {
        debug_assert!(self.leases.ended.is_empty(), "what ended is on record before anybody else can look");
        let was_frozen = self.table.is_frozen();
        self.table.freeze();
        let mut effects = std::mem::take(&mut self.effects);
        let locks: Vec<LockId> = self.leases.held.keys().chain(self.leases.asked.keys()).copied().collect();
        for lock in locks {
            self.make_way(lock, now, &mut effects);
        }
        let leases = std::mem::take(&mut self.leases);
        self.leases.followed = leases.followed;
        if !was_frozen {
            self.table.thaw(now, &mut effects);
        }
        self.deliver(effects, now, shared);
    }

    fn drop_moved(&mut self, shared: &Shared, current: &Current, this: ShardNo, now: Timestamp) {
        let stays = |resource: &Resource| is_here(current, this, resource);
        let moved = |lease: &&Lease| !lease.resources.iter().all(stays);
        let moved: Vec<LockId> = self.leases.held.values().filter(moved).map(|lease| lease.lock).collect();
        for lock in moved {
            let mut effects = std::mem::take(&mut self.effects);
            let left = self.table.narrow(lock, stays, now, &mut effects);
            match left {
                Ok(Left::Part) => self.narrow_lease(shared, lock, stays),
                Ok(Left::Whole) => {}
                Ok(Left::Nothing) | Err(_) => drop(self.lease_gone(lock)),
            }
            self.deliver(effects, now, shared);
        }
    }

    fn narrow_lease(&mut self, shared: &Shared, lock: LockId, stays: impl Fn(&Resource) -> bool) {
        let Some(mut lease) = self.leases.remove(lock) else { return };
        let (whole, settled) = (lease.whole().to_vec(), lease.is_settled());
        lease.resources.retain(stays);
        lease.part = Some(Box::new(LeasePart { whole, settled }));
        self.record(shared, &Entry::Leased { namespace: (&*self.name).into(), lease: lease.clone() });
        self.leases.insert(lease);
    }
}

/// Whether locks on a resource are decided about by this shard, or may be before long.
fn is_here(current: &Current, this: ShardNo, resource: &Resource) -> bool {
    match current.home(&resource.path) {
        Ok(locks::Home::Shard(shard)) => shard == this && current.is_owner,
        Ok(locks::Home::Moving { .. }) => false,
        Ok(locks::Home::Every) => current.is_owner,
        // Nobody can tell, so nobody can have it elsewhere.
        Err(_) => true,
    }
}

pub(super) fn gone() -> Trouble {
    Trouble::new(Code::WrongEpoch, "this lock is with another shard now, or about to be; ask again")
}
