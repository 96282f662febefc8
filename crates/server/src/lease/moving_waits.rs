//! Requests that stand in line when documents move. Everybody gets a place on every shard that decides about a part of
//! what it waits for by the next map, in one line made of the lines of all shards; whoever takes the lock finds its
//! places there. Data in, data out; knows nothing of who brings it from one node to the other, nor of who takes what.
//!
//! ```text
//!   shard 1:  A │ B, C        Preparing:  export all, one line A, B, D, C, a place for each where it will have a part
//!   shard 2:  B │ D           Resharding: what is elsewhere now is given up, and whoever waits is told to ask again
//! ```
//!
//! What somebody has of a lock that it waits for is a place too, before those who wait for it. A place that nobody asks
//! for ends by itself.

use super::{
    Asked, Lease, LeaseRequest, Verdict,
    lines::{self, Spot},
    moving::gone,
    part::HOLD_MS,
};
use crate::{
    cluster::{Current, locks},
    namespace::State,
    shared::Shared,
    trouble::Trouble,
};
use lockwood_locks::{CancelOutcome, Effect, Left, LockView, RecordedWait, merge};
use lockwood_model::{Json, LeaseVia, LockId, Resource, Timestamp, Wait};
use lockwood_router::ShardNo;
use lockwood_wire::WireResource;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, Hasher, RandomState},
    sync::{Arc, LazyLock},
};

/// Another number each time a node starts: lines are in memory, and whoever is in none may have lost it or left it.
static RUN: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());

/// Which run of this node it is.
pub(crate) fn run() -> u64 {
    *RUN
}

/// A request, or what one shard has of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MovingWait {
    pub(super) namespace: String,
    /// Which shard this is from, and which run of its host.
    from: ShardNo,
    run: u64,
    lock: u64,
    owner: String,
    resources: Vec<WireResource>,
    /// With what is on other shards, or is not asked for yet.
    whole: Vec<WireResource>,
    /// Whether it has this already, although not the rest.
    held: bool,
    /// Whether there are no other parts.
    alone: bool,
    /// In milliseconds since 1970.
    asked_at: u64,
    /// How long it still waits.
    wait_ms: Option<u64>,
    ttl_ms: Option<u64>,
    /// As text.
    note: Option<String>,
    /// Whether it waits although nobody waits for the answer.
    stays: bool,
    /// Who asked for it last.
    taker: Option<u64>,
}

impl MovingWait {
    fn spot(&self) -> Result<Spot, Trouble> {
        let resources = locks::read(self.resources.clone())?;
        Ok(Spot { lock: self.lock, held: self.held, resources, asked_at: self.asked_at })
    }
}

/// A request whose parts were taken one by one, by somebody who is gone, or by nobody so far.
pub(super) struct Stray {
    request: LeaseRequest,
    until: Option<Timestamp>,
}

impl State {
    /// Everything here that its owner may not rely on yet.
    pub(super) fn export_waits(&self, this: ShardNo, now: Timestamp, waits: &mut Vec<MovingWait>) {
        let unsettled = self.leases.held.values().filter(|lease| lease.is_alive(now) && !lease.is_settled());
        waits.extend(unsettled.map(|lease| self.export_held(this, lease, now)));
        for lock in self.table.line() {
            if let (Some(asked), Some(view)) = (self.leases.asked.get(&lock), self.table.view(lock)) {
                waits.push(self.export_wait(this, asked, &view, now));
            }
        }
    }

    fn export_held(&self, this: ShardNo, lease: &Lease, now: Timestamp) -> MovingWait {
        let unclaimed = self.leases.unclaimed.get(&lease.lock);
        MovingWait {
            namespace: self.name.to_string(),
            from: this,
            run: *RUN,
            lock: lease.lock.0,
            owner: lease.owner.to_string(),
            resources: locks::written(&lease.resources),
            whole: locks::written(lease.whole()),
            held: true,
            alone: unclaimed.is_some(),
            asked_at: lease.granted_at.0,
            wait_ms: Some(lease.expires_at.map_or(HOLD_MS, |at| at.since(now))),
            ttl_ms: unclaimed.copied().unwrap_or(Some(HOLD_MS)),
            note: lease.note.as_ref().map(|note| note.as_str().to_owned()),
            stays: unclaimed.is_some(),
            taker: self.leases.taker(lease.lock),
        }
    }

    fn export_wait(&self, this: ShardNo, asked: &Asked, view: &LockView, now: Timestamp) -> MovingWait {
        MovingWait {
            namespace: self.name.to_string(),
            from: this,
            run: *RUN,
            lock: view.id.0,
            owner: asked.owner.to_string(),
            resources: locks::written(&view.resources),
            whole: locks::written(asked.whole.as_ref().unwrap_or(&view.resources)),
            held: false,
            alone: asked.alone.is_some(),
            asked_at: view.requested_at.0,
            wait_ms: view.wait_until.map(|until| until.since(now)),
            ttl_ms: asked.ttl_ms,
            note: asked.note.as_ref().map(|note| note.as_str().to_owned()),
            stays: asked.stays,
            taker: self.leases.taker(view.id),
        }
    }
}

/// What all shards have of a request.
struct Want<'a> {
    /// Of a part that waits, if one does.
    wait: &'a MovingWait,
    whole: Vec<Resource>,
    asked_at: Timestamp,
    until: Option<Timestamp>,
    /// Whether this node has said that it has a part of it, and has run since.
    was_here: bool,
    /// Who asked for a part of it last.
    taker: Option<u64>,
}

impl Want<'_> {
    fn all<'a>(
        waits: &[&'a MovingWait],
        this: ShardNo,
        now: Timestamp,
    ) -> Result<BTreeMap<u64, Want<'a>>, Trouble> {
        let mut wants: BTreeMap<u64, Want<'a>> = BTreeMap::new();
        for wait in waits {
            let was_here = wait.from == this && wait.run == *RUN;
            let until = wait.wait_ms.map(|wait_ms| now.after(wait_ms));
            let asked_at = Timestamp(wait.asked_at);
            if let Some(want) = wants.get_mut(&wait.lock) {
                want.was_here |= was_here;
                // Numbers of the same node grow.
                want.taker = want.taker.max(wait.taker);
                want.asked_at = want.asked_at.min(asked_at);
                want.until = want.until.and_then(|before| until.map(|until| until.max(before)));
                want.wait = if want.wait.held { wait } else { want.wait };
            } else {
                let whole = locks::read(wait.whole.clone())?;
                wants.insert(wait.lock, Want { wait, whole, asked_at, until, was_here, taker: wait.taker });
            }
        }
        Ok(wants)
    }

    /// A place that is not the whole is kept as long as parts are, that is, until it is time to be heard of.
    fn until(&self, is_alone: bool, now: Timestamp) -> Option<Timestamp> {
        let longest = now.after(HOLD_MS);
        if is_alone { self.until } else { Some(self.until.map_or(longest, |until| until.min(longest))) }
    }

    fn request(&self) -> LeaseRequest {
        LeaseRequest {
            owner: self.wait.owner.clone(),
            via: LeaseVia::Native,
            resources: self.whole.clone(),
            ttl_ms: self.wait.ttl_ms,
            wait: Wait::Forever,
            note: self.wait.note.as_deref().map(Json::trusted),
        }
    }
}

fn lines_of(waits: &[&MovingWait]) -> Result<Vec<Vec<Spot>>, Trouble> {
    let mut lines: BTreeMap<ShardNo, Vec<Spot>> = BTreeMap::new();
    for wait in waits {
        lines.entry(wait.from).or_default().push(wait.spot()?);
    }
    Ok(lines.into_values().collect())
}

impl State {
    /// Gives everybody the places that it needs here by the next map. The table is frozen.
    pub(super) fn import_waits(
        &mut self,
        shared: &Shared,
        current: &Current,
        (waits, displaced): (&[&MovingWait], &BTreeSet<LockId>),
        now: Timestamp,
    ) -> Result<(), Trouble> {
        let this = shared.cluster.this();
        let wants = Want::all(waits, this, now)?;
        let line: Vec<u64> = self.table.line().iter().map(|lock| lock.0).collect();
        let mut places = Vec::new();
        for lock in lines::one_line(&lines_of(waits)?) {
            let want = &wants[&lock];
            // What has no shard by the next map is refused to whoever asks again.
            let Ok(parts) = locks::coming_parts(current, &want.whole) else { continue };
            let Some(part) = parts.get(&this) else { continue };
            let alone = (want.wait.alone && *part == want.whole).then_some(current.map.epoch);
            let known = self.number_here(want, &wants);
            let has_left = want.was_here && !displaced.contains(&LockId(lock));
            if known.is_none() && (has_left || self.has_all(shared, want, part, now)) {
                continue;
            }
            let place = Place { want, part, alone };
            let lock = known.unwrap_or(LockId(lock));
            self.ensure_place(shared, lock, &place, now);
            places.push(lock.0);
            if want.wait.stays && parts.len() > 1 && parts.keys().next() == Some(&this) {
                let (request, until) = (want.request(), want.until);
                self.leases.strays.insert(lock, Stray { request, until });
            }
        }
        let line: Vec<LockId> = lines::joined(&line, &places).into_iter().map(LockId).collect();
        self.table.line_up(&line, now);
        Ok(())
    }

    /// The number of what is here already of a request: its own, or another one if it was asked for again.
    fn number_here(&self, want: &Want<'_>, wants: &BTreeMap<u64, Want<'_>>) -> Option<LockId> {
        let lock = LockId(want.wait.lock);
        if self.table.owner_of(lock).is_some() {
            return Some(lock);
        }
        self.leases.alike(&want.wait.owner, &want.whole).filter(|lock| !wants.contains_key(&lock.0))
    }

    /// Whether the owner has a lease by which it needs no place.
    fn has_all(&mut self, shared: &Shared, want: &Want<'_>, part: &[Resource], now: Timestamp) -> bool {
        let owner = self.lease_owner(shared, &want.wait.owner);
        let has_all = self.lease_holding(owner, part, now).is_some();
        self.forget_lockless(owner);
        has_all
    }

    /// Sees to it that a request stands in line here for its part, besides what it stands in line for anyhow.
    fn ensure_place(&mut self, shared: &Shared, lock: LockId, place: &Place<'_>, now: Timestamp) {
        let mut resources = place.part.to_vec();
        let taker = self.leases.taker(lock).max(place.want.taker);
        let mut wait = RecordedWait {
            lock,
            owner: self.lease_owner(shared, &place.want.wait.owner),
            resources: Vec::new(),
            asked_at: place.want.asked_at,
            until: place.want.until(place.alone.is_some(), now),
            ttl_ms: place.ttl_ms(),
        };
        if let Some(view) = self.table.view(lock) {
            resources.extend_from_slice(&view.resources);
            merge(&mut resources);
            if resources == view.resources || view.owner != wait.owner {
                return;
            }
            if let Some(asked) = self.leases.asked.get(&lock) {
                (wait.asked_at, wait.until, wait.ttl_ms) = (view.requested_at, view.wait_until, asked.ttl_ms);
            }
            self.take_out(lock, now);
            // Nobody may rely on what was held, so it can be waited for again, with the rest.
            wait.owner = self.lease_owner(shared, &place.want.wait.owner);
        }
        if !self.leases.asked.contains_key(&lock) {
            self.leases.put_asked(lock, place.asked());
        }
        taker.into_iter().for_each(|taker| self.leases.note_taker(lock, taker));
        self.table.restore_wait(RecordedWait { resources, ..wait });
    }

    /// Takes a lock out of the table, which is frozen. Whoever waits for it goes on waiting.
    pub(super) fn take_out(&mut self, lock: LockId, now: Timestamp) {
        let mut effects: Vec<Effect> = Vec::new();
        let revoked = self.table.revoke(lock, now, &mut effects);
        debug_assert!(revoked.is_ok() && effects.is_empty(), "it is in the table, which grants nothing");
        if self.leases.get(lock).is_some() {
            self.lease_gone(lock);
        }
    }
}

/// A place to be given to a request.
struct Place<'a> {
    want: &'a Want<'a>,
    part: &'a [Resource],
    /// As in [`Asked`].
    alone: Option<u64>,
}

impl Place<'_> {
    fn ttl_ms(&self) -> Option<u64> {
        if self.alone.is_some() { self.want.wait.ttl_ms } else { Some(HOLD_MS) }
    }

    fn asked(&self) -> Asked {
        Asked {
            owner: self.want.wait.owner.as_str().into(),
            via: LeaseVia::Native,
            note: self.want.wait.note.as_deref().map(Json::trusted),
            ttl_ms: self.ttl_ms(),
            whole: Some(self.want.whole.clone()),
            alone: self.alone,
            stays: self.want.wait.stays && self.alone.is_some(),
        }
    }
}

impl State {
    /// Nobody decides about what moves, so whoever waits for it is sent away; it keeps its place meanwhile.
    pub(super) fn send_away(
        &mut self,
        current: &Current,
        this: ShardNo,
        is_here: impl Fn(&Resource) -> bool,
    ) {
        for lock in self.table.line() {
            let Some(view) = self.table.view(lock) else { continue };
            if view.resources.iter().all(&is_here) {
                self.readmit_wait(current, this, lock);
            } else {
                self.tell_waiters(lock, &Verdict::Refused(Box::new(gone())));
            }
        }
    }

    /// A request that stands in line is all there is to its lock by this map too, if it is.
    fn readmit_wait(&mut self, current: &Current, this: ShardNo, lock: LockId) {
        let Some(asked) = self.leases.asked.get_mut(&lock) else { return };
        let (Some(whole), Some(_)) = (&asked.whole, asked.alone) else { return };
        let is_alone = |parts: locks::Parts| parts.len() == 1 && parts.contains_key(&this);
        if locks::parts(current, whole).is_ok_and(is_alone) {
            asked.alone = Some(current.map.epoch);
        }
    }

    /// Everybody waits for what this shard decides about by the map in force, and for nothing else. The table is
    /// frozen.
    pub(super) fn follow_waits(
        &mut self,
        current: &Current,
        this: ShardNo,
        is_here: impl Fn(&Resource) -> bool,
        now: Timestamp,
    ) {
        for lock in self.table.line() {
            let Some(view) = self.table.view(lock) else { continue };
            let whole = self.leases.asked.get(&lock).and_then(|asked| asked.whole.clone());
            let told = match whole.map(|whole| locks::parts(current, &whole)) {
                Some(Ok(parts)) => {
                    let part = parts.get(&this).filter(|_| current.is_owner);
                    self.follow_wait(current, &view, (part, parts.len()), now)
                }
                // Nobody can tell, so nobody can have it elsewhere.
                Some(Err(_)) => false,
                None => !view.resources.iter().all(&is_here),
            };
            if told {
                self.tell_waiters(lock, &Verdict::Refused(Box::new(gone())));
            }
        }
    }

    /// One of them; whether it has to be asked for anew.
    fn follow_wait(
        &mut self,
        current: &Current,
        view: &LockView,
        (part, parts_len): (Option<&Vec<Resource>>, usize),
        now: Timestamp,
    ) -> bool {
        let mut effects: Vec<Effect> = Vec::new();
        let Some(part) = part else {
            if self.table.cancel(view.owner, view.id, now, &mut effects) == CancelOutcome::Cancelled {
                self.lease_gone(view.id);
            }
            return true;
        };
        let mut told = view.resources != *part;
        if self.table.narrow(view.id, |held| part.contains(held), now, &mut effects) == Ok(Left::Nothing) {
            self.lease_gone(view.id);
            return true;
        }
        debug_assert!(effects.is_empty(), "a frozen table grants nothing");
        let Some(asked) = self.leases.asked.get_mut(&view.id) else { return told };
        match (asked.alone, parts_len) {
            (None, _) => {}
            (Some(_), 1) => asked.alone = Some(current.map.epoch),
            (Some(_), _) => {
                told = true;
                (asked.alone, asked.stays, asked.ttl_ms) = (None, false, Some(HOLD_MS));
                let longest = now.after(HOLD_MS);
                let until = view.wait_until.map_or(longest, |until| until.min(longest));
                let set = self.table.set_wait(view.id, Some(until));
                let set = set.and_then(|()| self.table.set_ttl(view.id, Some(HOLD_MS)));
                debug_assert!(set.is_ok(), "what stands in line waits");
            }
        }
        told
    }

    /// Leases that were granted while nobody decided are settled where they are all there is to their locks.
    pub(super) fn claim(&mut self, shared: &Shared, current: &Current, this: ShardNo, now: Timestamp) {
        for (lock, ttl_ms) in std::mem::take(&mut self.leases.unclaimed) {
            let Some(lease) = self.leases.get(lock).filter(|lease| !lease.is_settled()) else { continue };
            let parts = locks::parts(current, lease.whole()).unwrap_or_default();
            if current.is_owner && parts.len() == 1 && parts.get(&this) == Some(&lease.resources) {
                let token = lease.token;
                self.settle(shared, lock, token, ttl_ms.map(|ttl_ms| now.after(ttl_ms)));
            }
        }
    }

    /// Requests that nobody takes, and that are on several shards now, with this one as the first. From now on
    /// somebody takes them.
    pub(super) fn adopt_strays(&mut self, shared: &Arc<Shared>, current: &Current, this: ShardNo) {
        let now = shared.clock.now();
        for (lock, Stray { mut request, until }) in std::mem::take(&mut self.leases.strays) {
            let Ok(parts) = locks::parts(current, &request.resources) else { continue };
            let shards: BTreeSet<&ShardNo> = parts.keys().collect();
            let is_first = current.is_owner && shards.first() == Some(&&this);
            if is_first && shards.len() > 1 && until.is_none_or(|until| until > now) {
                request.wait = until.map_or(Wait::Forever, |until| Wait::Millis(until.since(now)));
                locks::take_up(shared, &self.name, request, lock.0);
            }
        }
    }
}
