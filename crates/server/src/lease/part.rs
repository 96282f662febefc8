//! Leases that are parts of a lock on several shards, and leases on a node whose map may change: whether their owner
//! may rely on them is settled in a step of its own. Knows nothing of the other parts, nor of who takes them.
//!
//! ```text
//!   asked ──► in line ──► held, not settled ──► settled: one number and one token for all parts
//!                │                │
//!                └── asked again ─┘  by the same owner for the same whole: the same place, the same lease
//! ```

use super::{
    Asked, Lease, LeaseRequest, Leases, Taken, Verdict, Which, lost,
    moving::gone,
    take::Asking,
    which::{Meant, merged, on_leases},
};
use crate::{
    cluster::{Admitted, received},
    namespace::{Namespace, State},
    shard::{Follow, ShardError},
    shared::Shared,
    trouble::Trouble,
};
use lockwood_locks::LockView;
use lockwood_model::{LockId, Resource, Timestamp, Token, Wait};
use lockwood_storage::Entry;
use lockwood_wire::Code;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// How long a part is kept, held or in line, without being heard of.
pub(crate) const HOLD_MS: u64 = 90_000;
/// How many requests are remembered that came to an end while nobody asked.
const OVER_MAX: usize = 1_000;
/// How long something is held that was granted while its owner was sent elsewhere, unless the owner asks again.
const ORPHAN_MS: u64 = 30_000;

/// How much of a lock a lease is to be; all of it, on a server that is no node of a cluster, unless said otherwise.
#[derive(Debug, Clone, Default)]
pub(crate) struct Share {
    /// Under which map it was found that this node decides.
    pub(super) admitted: Admitted,
    /// What it is a part of; none if there is nothing else.
    pub(super) of: Option<PartOf>,
    /// Whether it is taken even if the owner seems to have it.
    pub(super) anew: bool,
    /// Who asks for it, if that is a node.
    pub(super) taker: Option<u64>,
}

/// What a lease is to be a part of.
#[derive(Debug, Clone)]
pub(crate) struct PartOf {
    /// The number of the lock, if other parts have it already.
    pub(crate) lock: Option<LockId>,
    /// What all parts are to cover, as the table has them.
    pub(crate) whole: Vec<Resource>,
    /// Whether it is another lock than any the owner has, be it for the same.
    pub(crate) fresh: bool,
    /// Whether it is not asked for unless it is there already.
    pub(crate) only: bool,
    /// Which connection of its owner wants it, if it is a session.
    pub(crate) seat: Option<u64>,
    /// If other parts are not held, so that it is not settled any more: the token it had when that was seen.
    pub(crate) unsettled: Option<u64>,
}

impl Share {
    /// What is asked for, if this node decides about it under a certain map.
    pub(crate) fn under(
        shared: &Shared,
        (namespace, admitted): (&str, Admitted),
        request: &LeaseRequest,
        of: Option<PartOf>,
    ) -> Result<Share, Trouble> {
        let found = shared.cluster.admit_locks(namespace, &request.resources)?;
        match found == admitted {
            true => Ok(Share { admitted, of, ..Share::default() }),
            false => Err(ShardError::Elsewhere.into()),
        }
    }

    /// It is taken even if the owner seems to have it.
    pub(crate) fn anew(self) -> Share {
        Share { anew: true, ..self }
    }

    /// This one asks for it, and may give it back.
    pub(crate) fn by(self, taker: u64) -> Share {
        Share { taker: Some(taker), ..self }
    }

    /// Which connection of the owner asks, if that matters.
    pub(super) fn seat(&self) -> Option<u64> {
        self.of.as_ref().and_then(|of| of.seat)
    }

    /// Whether it is not asked for unless it is there already.
    pub(super) fn is_only_found(&self) -> bool {
        self.of.as_ref().is_some_and(|of| of.only)
    }

    /// What has to be known of a request while it waits.
    pub(super) fn asked(&self, request: &LeaseRequest) -> (Option<Vec<Resource>>, Option<u64>) {
        match (&self.of, self.admitted.epoch()) {
            (Some(of), _) => (Some(of.whole.clone()), None),
            (None, Some(epoch)) => (Some(merged(&request.resources)), Some(epoch)),
            (None, None) => (None, None),
        }
    }
}

/// What became of the same request when it was made before.
pub(super) enum Again {
    /// This is how it stands now.
    Answered(Asking),
    /// It led to this lock, which has another number; it may go once there is one with the right number.
    Replaced(LockId),
    /// It came to an end, in this way.
    Over(Trouble),
    /// Nothing that is of use.
    New,
}

/// The lock of an owner that covers all of this and that it may rely on, as far as this node knows, and whether it is for
/// just this.
pub(crate) fn covering(
    shared: &Shared,
    name: &str,
    request: &LeaseRequest,
    whole: &[Resource],
) -> Option<(LockId, bool)> {
    let namespace = shared.registry.get(name)?;
    let mut state = namespace.lock();
    let owner = *state.leases.owners.get(&*request.owner)?;
    let lease = state.lease_holding(owner, &request.resources, shared.clock.now())?;
    let covers = |wanted: &Resource| lease.whole().iter().any(|held| held.includes(wanted));
    whole.iter().all(covers).then(|| (lease.lock, lease.whole() == whole))
}

/// Makes all numbers given out in a namespace from now on larger than `number`.
pub(crate) async fn raise_in(shared: &Arc<Shared>, name: &str, number: u64) -> Result<(), Trouble> {
    if number == 0 {
        return Ok(());
    }
    received::check_number(number)?;
    shared.numbers.raise(number).await?;
    if let Some(namespace) = shared.registry.get(name) {
        namespace.lock().table.raise(number);
    }
    Ok(())
}

/// A number for a lock that nobody has asked for yet.
pub(crate) fn draw_number(shared: &Arc<Shared>, name: &str) -> Result<LockId, Trouble> {
    loop {
        let namespace = shared.registry.ensure(shared, name)?;
        let mut state = namespace.lock();
        if state.is_closed() {
            continue;
        }
        if !shared.numbers.suffice(state.table.next_number()) {
            return Err(Trouble::storage_failed());
        }
        let lock = state.table.draw_lock();
        state.linger(shared);
        namespace.rearm(state);
        return Ok(lock);
    }
}

/// What makes a part one that its owner may rely on.
#[derive(Debug, Clone)]
pub(crate) struct Settle {
    pub(crate) admitted: Admitted,
    pub(crate) lock: LockId,
    /// The largest of the tokens that the parts got.
    pub(crate) token: Token,
    /// None: until it is released.
    pub(crate) ttl_ms: Option<u64>,
    /// What all parts cover from now on, if it is something else than before, and which connection wants that.
    pub(crate) whole: Option<(Vec<Resource>, u64)>,
    /// The token that nobody has heard of, if it is to be what it was before it got that one.
    pub(crate) instead_of: Option<Token>,
}

/// Settles a part: it gets the token that all parts have, and its time begins.
pub(crate) async fn settle_part(shared: &Arc<Shared>, name: &str, settle: Settle) -> Result<Lease, Trouble> {
    let Settle { admitted, lock, token, ttl_ms, whole, instead_of } = settle;
    // On record before anybody can hear of the token, so that no smaller one is given out after a restart.
    received::check_number(token.0)?;
    shared.numbers.raise(token.0).await?;
    let which = Which::Lock { lock, token: None, owner: None };
    let meant = Meant { which: &which, admitted, settled: false };
    let settling = on_leases(shared, name, meant, |state, now, _| {
        if let (Some((_, seat)), Some(lease)) = (&whole, state.leases.get(lock)) {
            state.check_seated(shared, &lease.owner, *seat)?;
        }
        let known = state.leases.get(lock).map(|lease| lease.token);
        if known.is_some_and(|known| known > token) && known != instead_of {
            // This was long on its way: it has been asked for again since, or was converted.
            return Err(sent_back());
        }
        if let Some((whole, _)) = whole {
            state.reshape(shared, lock, &whole, now)?;
        }
        state.settle(shared, lock, token, ttl_ms.map(|ttl_ms| now.after(ttl_ms)));
        Ok::<Lease, Trouble>(state.leases.held[&lock].clone())
    });
    let (settled, after) =
        settling.map_err(|trouble| if is_here(shared, name, lock) { sent_back() } else { trouble })?;
    let lease = settled?;
    shared.shard.shown(after).await?;
    Ok(lease)
}

/// Whether there is something of a lock, held or in line.
fn is_here(shared: &Shared, name: &str, lock: LockId) -> bool {
    shared.registry.get(name).is_some_and(|namespace| namespace.lock().table.owner_of(lock).is_some())
}

/// That a part that was held stands in line again.
pub(super) fn sent_back() -> Trouble {
    let message = "a part of the lock went back to the line, because a lock is converted; ask again";
    Trouble::new(Code::WrongEpoch, message)
}

/// Settles a lease that turned out to be all there is to its lock.
pub(super) async fn settle_alone(
    shared: &Arc<Shared>,
    namespace: &Arc<Namespace>,
    admitted: Admitted,
    lock: LockId,
    ttl_ms: Option<u64>,
) -> Result<Taken, Trouble> {
    let (lease, after) = {
        let mut state = namespace.lock();
        let _passage = shared.cluster.pass(admitted)?;
        let now = shared.clock.now();
        let token = state.leases.get(lock).ok_or_else(|| lost(lock))?.token;
        state.follow = Follow::Caller;
        state.settle(shared, lock, token, ttl_ms.map(|ttl_ms| now.after(ttl_ms)));
        state.follow = Follow::Thread;
        let done = (state.leases.held[&lock].clone(), state.written);
        namespace.rearm(state);
        done
    };
    shared.shard.shown(after).await?;
    Ok(Taken::Granted(lease))
}

/// Gives back what there is of a lock that is not going to be taken after all.
pub(crate) async fn drop_part(
    shared: &Arc<Shared>,
    name: &str,
    (lock, taker): (Option<LockId>, u64),
    (owner, seat, whole): (&str, Option<u64>, &[Resource]),
) -> Result<(), Trouble> {
    give_back(shared, name, |state| {
        if seat.is_some_and(|seat| state.check_seated(shared, owner, seat).is_err()) {
            // Whoever took over has seen to it, and has asked for the same perhaps.
            return Vec::new();
        }
        let is_owned =
            |lock| state.table.owner_of(lock).is_some_and(|found| state.leases.owner(owner) == Some(found));
        // It may have got another number.
        let is_other = |found: &LockId| match lock {
            Some(_) => state.leases.taker(*found) == Some(taker),
            None => !state.is_wanted(*found),
        };
        let alike = || state.leases.alike(owner, whole).filter(is_other);
        let lock = lock.filter(|lock| is_owned(*lock)).or_else(alike);
        let stays = |lock: &LockId| state.leases.asked.get(lock).is_some_and(|asked| asked.stays);
        let is_meant = |lock: &LockId| {
            !state.is_settled(*lock) && !stays(lock) && state.leases.is_taken_by(*lock, taker)
        };
        lock.filter(is_meant).into_iter().collect()
    })
    .await
}

/// Gives back what an owner has of locks that nobody takes any more: what it stands in line for, and what it may not
/// rely on yet. From now on this connection speaks for it.
pub(crate) async fn drop_unsettled(
    shared: &Arc<Shared>,
    name: &str,
    (owner, seat): (&str, u64),
) -> Result<(), Trouble> {
    shared.cluster.seats.take(name, owner, seat);
    give_back(shared, name, |state| {
        if let Some(owner) = state.leases.owner(owner) {
            state.stop_conversions_of(shared, owner, shared.clock.now());
        }
        state.unsettled(owner)
    })
    .await
}

/// Ends locks, held or waiting; whoever waits for one of them all the same has to ask again.
async fn give_back(
    shared: &Arc<Shared>,
    name: &str,
    which: impl FnOnce(&mut State) -> Vec<LockId>,
) -> Result<(), Trouble> {
    let Some(namespace) = shared.registry.get(name) else { return Ok(()) };
    let after = {
        let mut state = namespace.lock();
        let now = shared.clock.now();
        for lock in which(&mut state) {
            state.end_place(shared, lock, now);
        }
        let after = state.written;
        namespace.rearm(state);
        after
    };
    shared.registry.drop_if_unused(shared, &namespace);
    Ok(shared.shard.shown(after).await?)
}

impl State {
    /// Ends what nobody relies on; whoever waits for it all the same has to ask again.
    pub(super) fn end_place(&mut self, shared: &Shared, lock: LockId, now: Timestamp) {
        self.tell_waiters(lock, &Verdict::Refused(Box::new(gone())));
        self.end(shared, lock, now);
    }

    /// Whether somebody else waits for a request that was made twice.
    pub(super) fn is_wanted(&self, lock: LockId) -> bool {
        self.is_awaited(lock) || self.leases.asked.get(&lock).is_some_and(|asked| asked.stays)
    }

    fn unsettled(&self, owner: &str) -> Vec<LockId> {
        let Some(owner) = self.leases.owner(owner) else { return Vec::new() };
        self.table.owned(owner).map(|view| view.id).filter(|lock| !self.is_settled(*lock)).collect()
    }

    fn is_settled(&self, lock: LockId) -> bool {
        self.leases.get(lock).is_some_and(Lease::is_settled)
    }

    /// Looks for the same request by the same owner: its answer may have been lost, or it was sent elsewhere and
    /// comes back.
    pub(super) fn ask_again(
        &mut self,
        shared: &Arc<Shared>,
        namespace: &Arc<Namespace>,
        request: &LeaseRequest,
        share: &Share,
        now: Timestamp,
    ) -> Again {
        let (Some(whole), _) = share.asked(request) else { return Again::New };
        let named = share.of.as_ref().and_then(|of| of.lock);
        let here = named.filter(|lock| self.table.owner_of(*lock).is_some());
        let is_fresh = share.of.as_ref().is_some_and(|of| of.fresh);
        let alike = || self.leases.alike(&request.owner, &whole).filter(|_| !is_fresh);
        let Some(lock) = here.or_else(alike) else { return self.over_or_new(named, share) };
        let view = self.table.view(lock).expect("a lease, or a request for one, is in the table");
        let is_alive = self.leases.get(lock).is_none_or(|lease| lease.is_alive(now));
        if view.resources != merged(&request.resources) || !is_alive {
            // It was for what was here before the map changed, and nobody relies on it.
            self.end_place(shared, lock, now);
            return Again::New;
        }
        if named.is_some_and(|named| named != lock) && !share.is_only_found() {
            return Again::Replaced(lock);
        }
        let unsettled = share.of.as_ref().and_then(|of| of.unsettled);
        if self.leases.get(lock).is_some_and(|lease| lease.is_settled() && Some(lease.token.0) == unsettled) {
            self.unsettle(shared, lock, now);
        }
        // What went back to the line may be the one that goes, of those that wait for each other there.
        let Some(view) = self.table.view(lock) else { return self.over_or_new(Some(lock), share) };
        let Some(lease) = self.leases.get(lock).cloned() else {
            if request.wait == Wait::Never {
                // What does not wait has no place in line, though a move may have given it one.
                if here.is_some() || !self.is_wanted(lock) {
                    self.end_place(shared, lock, now);
                }
                return Again::New;
            }
            self.wait_anew(&view, request, share, now);
            return Again::Answered(self.wait_on(shared, namespace, lock, share, now));
        };
        let until = request.ttl_ms.map(|ttl_ms| now.after(ttl_ms));
        let taken = match &share.of {
            _ if lease.is_settled() => Taken::Held(lease),
            // It may have been asked for long ago, and its owner may have had larger tokens since.
            Some(_) => {
                let token = self.table.draw_token();
                self.hold_until(shared, lock, token, until);
                Taken::Held(self.leases.held[&lock].clone())
            }
            None => {
                let token = self.table.draw_token();
                self.settle(shared, lock, token, until);
                Taken::Granted(self.leases.held[&lock].clone())
            }
        };
        Again::Answered(Asking::Done { taken, after: self.written })
    }

    /// There is nothing here of a request, though there may have been.
    fn over_or_new(&mut self, lock: Option<LockId>, share: &Share) -> Again {
        let Some(lock) = lock else { return Again::New };
        match share.is_only_found() {
            true => self.leases.over(lock).map_or(Again::New, Again::Over),
            false => {
                self.leases.forget_over(lock);
                Again::New
            }
        }
    }

    /// A request that stands in line was made again, perhaps under another map.
    fn wait_anew(&mut self, view: &LockView, request: &LeaseRequest, share: &Share, now: Timestamp) {
        let (_, alone) = share.asked(request);
        if let Some(asked) = self.leases.asked.get_mut(&view.id) {
            asked.alone = alone;
            asked.ttl_ms = request.ttl_ms;
        }
        let set = self.table.set_ttl(view.id, request.ttl_ms);
        debug_assert!(set.is_ok(), "a request that stands in line waits");
        let until = request.wait.deadline(now);
        // Somebody else may wait for the same, and longer.
        if view.wait_until.is_some_and(|before| until.is_none_or(|until| until > before)) {
            let set = self.table.set_wait(view.id, until);
            debug_assert!(set.is_ok(), "a request that stands in line waits");
        }
    }

    /// A part that is not settled yet is kept until then.
    pub(super) fn hold_until(
        &mut self,
        shared: &Shared,
        lock: LockId,
        token: Token,
        until: Option<Timestamp>,
    ) {
        let owner = self.table.owner_of(lock).expect("a lease is in the table");
        let renewed = self.table.give_token(lock, token).and_then(|()| self.table.renew(owner, lock, until));
        debug_assert!(renewed.is_ok(), "a lease that is held can be renewed");
        let Some(lease) = self.leases.held.get_mut(&lock) else { return };
        (lease.token, lease.expires_at) = (token, until);
        let lease = lease.clone();
        self.record(shared, &Entry::Leased { namespace: (&*self.name).into(), lease });
    }

    /// From now on the owner may rely on a lease, until it ends.
    pub(super) fn settle(&mut self, shared: &Shared, lock: LockId, token: Token, until: Option<Timestamp>) {
        let Some(lease) = self.leases.held.get_mut(&lock) else { return };
        lease.token = token;
        lease.expires_at = until;
        if let Some(mut part) = lease.part.take() {
            if part.whole == lease.resources {
                let owner = lease.owner.clone();
                self.leases.forget_alike(lock, &owner, &part.whole);
            } else {
                part.settled = true;
                lease.part = Some(part);
            }
        }
        self.leases.takers.remove(&lock);
        let lease = self.leases.held[&lock].clone();
        let owner = self.table.owner_of(lock).expect("a lease is in the table");
        let changed = self.table.give_token(lock, token).and_then(|()| self.table.renew(owner, lock, until));
        debug_assert!(changed.is_ok(), "a lease that is held can be renewed");
        self.record(shared, &Entry::Leased { namespace: (&*self.name).into(), lease });
    }

    /// A lock was granted whose owner has been sent elsewhere: if the owner does not come back it ends soon.
    pub(super) fn limit_orphan(&mut self, shared: &Shared, lock: LockId, ttl_ms: Option<u64>) {
        let until = shared.clock.now().after(ttl_ms.map_or(ORPHAN_MS, |ttl_ms| ttl_ms.min(ORPHAN_MS)));
        if let Some(owner) = self.table.owner_of(lock) {
            let renewed = self.table.renew(owner, lock, Some(until));
            debug_assert!(renewed.is_ok(), "it was just granted");
        }
    }
}

impl Leases {
    /// Somebody has asked for what may not be settled yet, and gives it back if it is not wanted after all.
    pub(super) fn note_taker(&mut self, lock: LockId, taker: u64) {
        if self.get(lock).is_none_or(|lease| !lease.is_settled()) {
            self.takers.insert(lock, taker);
        }
    }

    pub(super) fn taker(&self, lock: LockId) -> Option<u64> {
        self.takers.get(&lock).copied()
    }

    /// Whether nobody else has asked for it since.
    fn is_taken_by(&self, lock: LockId, taker: u64) -> bool {
        self.taker(lock).is_none_or(|last| last == taker)
    }

    /// What is about to end was a part of a lock that nobody relies on yet, and whoever takes that is told so when it asks
    /// again.
    pub(crate) fn note_over(&mut self, lock: LockId, how: &Trouble) {
        if self.whole(lock).is_none() || self.get(lock).is_some_and(Lease::is_settled) {
            return;
        }
        self.forget_over(lock);
        self.over.push_back((lock, how.clone()));
        if self.over.len() > OVER_MAX {
            self.over.pop_front();
        }
    }

    /// How a request ended. That it waited for itself is said once: it need not be so any more.
    fn over(&mut self, lock: LockId) -> Option<Trouble> {
        let how = self.over.iter().find(|(known, _)| *known == lock).map(|(_, how)| how.clone())?;
        if how.code == Code::Deadlock {
            self.forget_over(lock);
        }
        Some(how)
    }

    fn forget_over(&mut self, lock: LockId) {
        self.over.retain(|(known, _)| *known != lock);
    }

    pub(super) fn put_asked(&mut self, lock: LockId, asked: Asked) {
        if let Some(whole) = &asked.whole {
            self.note_alike(lock, &asked.owner, whole);
        }
        self.asked.insert(lock, asked);
    }

    pub(super) fn take_asked(&mut self, lock: LockId) -> Option<Asked> {
        let asked = self.asked.remove(&lock)?;
        if let Some(whole) = &asked.whole {
            self.forget_alike(lock, &asked.owner, whole);
        }
        Some(asked)
    }

    pub(super) fn note_alike(&mut self, lock: LockId, owner: &str, whole: &[Resource]) {
        self.alike.entry(like(owner, whole)).or_default().push(lock);
    }

    pub(super) fn forget_alike(&mut self, lock: LockId, owner: &str, whole: &[Resource]) {
        let key = like(owner, whole);
        if let Some(locks) = self.alike.get_mut(&key) {
            locks.retain(|found| *found != lock);
            if locks.is_empty() {
                self.alike.remove(&key);
            }
        }
    }

    /// What an owner has here, or waits for, of a lock that covers this; the latest.
    pub(super) fn alike(&self, owner: &str, whole: &[Resource]) -> Option<LockId> {
        let locks = self.alike.get(&like(owner, whole))?;
        let is_it = |lock: &&LockId| match (self.held.get(*lock), self.asked.get(*lock)) {
            (Some(lease), _) => *lease.owner == *owner && lease.whole() == whole,
            (None, Some(asked)) => *asked.owner == *owner && asked.whole.as_deref() == Some(whole),
            (None, None) => false,
        };
        locks.iter().rev().find(is_it).copied()
    }
}

/// The same for the same owner and the same resources.
fn like(owner: &str, whole: &[Resource]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (owner, whole).hash(&mut hasher);
    hasher.finish()
}
