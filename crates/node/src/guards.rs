//! The home's side: brings the guards of a namespace to what its lock table says, and holds back what clients are told of
//! grants until the covered shards are closed. Knows nothing of queues, nor of how messages are delivered.
//!
//! The table is the truth. Every change of a held lock ends in [`State::guard`], which compares the table with what the
//! guards were made of last; so no way of ending or converting a lock can be missed.

use crate::{
    kernel::Kernel,
    namespace::{Namespace, State},
    territory::Territory,
    trouble::Trouble,
};
use futures_util::future::join_all;
use lockwood_locks::LockView;
use lockwood_model::{LockId, OwnerId, Resource, Timestamp, Token};
use lockwood_router::{
    ShardEpoch, ShardNo,
    guards::{Action, Covered, Decision, DefinitionsNo, Home, MapEpoch, MemberMessage, Ownership, Phase},
};
use lockwood_wire::Code;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How soon a namespace looks again whether what a change waits for has come.
const RETRY_MS: u64 = 5;
/// How long a request that waits for its answer waits for shards to be closed, once nothing else is in its way.
const CLOSING_TIMEOUT_MS: u64 = 10_000;

/// How long the end of a lock waits for the ownership of its home to be fresh, and for grace to be over.
const HELD_UP_TIMEOUT: Duration = Duration::from_secs(10);
const HELD_UP_PAUSE: Duration = Duration::from_millis(10);
/// How long to wait before shards are asked again.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The guards of a namespace whose home is here. A part of its state.
pub struct HomeGuards {
    territory: Arc<dyn Territory>,
    home: Home,
    changed: Changed,
    /// What the guards of each lock were made of last.
    guarded: HashMap<LockId, (Token, Vec<Resource>)>,
    /// What clients rely on: the last token and resources of each lock that shards are closed for.
    confirmed: HashMap<LockId, (Token, Vec<Resource>)>,
    /// What clients are to be told when the shards are closed, in the order in which it was decided.
    held_back: BTreeMap<HeldBackKey, HeldBack>,
    held_back_last: u64,
    /// When those of them are given up that have an end.
    given_up: BTreeSet<(Timestamp, HeldBackKey)>,
    /// When to look again, if something waits that nothing tells of.
    retry_at: Option<Timestamp>,
    /// What is registered, as far as all shards go by it; none as long as that is not known.
    defined: watch::Sender<Option<DefinitionsNo>>,
}

/// Held locks that may be other than their guards, and since which record of the log that can be relied on. One that waits
/// for something is not looked at before that has come, however much happens meanwhile.
#[derive(Default)]
struct Changed {
    /// To be looked at.
    now: BTreeMap<LockId, u64>,
    /// To be looked at when shards have been heard, or an earlier change of the lock is confirmed.
    later: BTreeMap<LockId, u64>,
}

impl Changed {
    fn note(&mut self, lock: LockId, record: u64) {
        self.later.remove(&lock);
        self.now.insert(lock, record);
    }

    fn take(&mut self) -> BTreeMap<LockId, u64> {
        std::mem::take(&mut self.now)
    }

    fn defer(&mut self, lock: LockId, record: u64) {
        self.later.insert(lock, record);
    }

    /// What a lock has waited for has come.
    fn resume(&mut self, lock: LockId) {
        if let Some(record) = self.later.remove(&lock) {
            self.now.entry(lock).or_insert(record);
        }
    }

    fn resume_all(&mut self) {
        for (lock, record) in std::mem::take(&mut self.later) {
            self.now.entry(lock).or_insert(record);
        }
    }

    fn contains(&self, lock: LockId) -> bool {
        self.now.contains_key(&lock) || self.later.contains_key(&lock)
    }
}

/// A lock, the token that is told, and a number that orders what is told of both.
type HeldBackKey = (LockId, Token, u64);

struct HeldBack {
    owner: OwnerId,
    news: News,
    /// The client's number of the request, if it is one of a session.
    request: Option<u64>,
    /// When a request that waits for its answer is given up.
    until: Option<Timestamp>,
}

/// What a client is told of a held lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum News {
    Granted { waited_ms: u64 },
    Converted,
}

/// What a look at a changed lock came to.
enum Look {
    Done,
    /// Something else comes first that leads to another look.
    Later,
    /// A record has to be durable first, which nothing tells of.
    Retry,
}

impl HomeGuards {
    /// Those of a namespace that this tenure uses for the first time. In grace, until sessions had their time and all shards
    /// have been heard.
    /// What is registered so far is in the log up to the record `last`.
    pub fn new(territory: &Arc<dyn Territory>, namespace: &str, last: u64) -> HomeGuards {
        let mut home = territory.take_over(namespace);
        home.redefined(DefinitionsNo::new(home.epoch(), last));
        HomeGuards {
            territory: Arc::clone(territory),
            home,
            changed: Changed::default(),
            guarded: HashMap::new(),
            confirmed: HashMap::new(),
            held_back: BTreeMap::new(),
            held_back_last: 0,
            given_up: BTreeSet::new(),
            retry_at: None,
            defined: watch::Sender::new(None),
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let given_up = self.given_up.first().map(|(until, _)| *until);
        [self.retry_at, given_up].into_iter().flatten().min()
    }

    fn hold_back(
        &mut self,
        (owner, lock, token): (OwnerId, LockId, Token),
        (news, request): (News, Option<u64>),
        now: Timestamp,
    ) {
        let until = matches!(news, News::Granted { .. }).then(|| now.after(CLOSING_TIMEOUT_MS));
        self.held_back_last += 1;
        let key = (lock, token, self.held_back_last);
        self.given_up.extend(until.map(|until| (until, key)));
        self.held_back.insert(key, HeldBack { owner, news, request, until });
    }

    fn take_held_back(&mut self, key: HeldBackKey) -> Option<HeldBack> {
        let held = self.held_back.remove(&key)?;
        if let Some(until) = held.until {
            self.given_up.remove(&(until, key));
        }
        Some(held)
    }

    /// Nothing is told of a lock that is gone.
    fn drop_news(&mut self, lock: LockId) {
        let all = (lock, Token(0), 0)..=(lock, Token(u64::MAX), u64::MAX);
        let keys: Vec<HeldBackKey> = self.held_back.range(all).map(|(key, _)| *key).collect();
        for key in keys {
            self.take_held_back(key);
        }
    }

    /// The locks whose requests have waited for long enough.
    fn take_given_up(&mut self, now: Timestamp) -> Vec<(LockId, OwnerId)> {
        let mut taken = Vec::new();
        while self.given_up.first().is_some_and(|(until, _)| *until <= now) {
            let Some((_, key)) = self.given_up.pop_first() else { break };
            let Some(held) = self.held_back.get_mut(&key) else { continue };
            held.until = None;
            taken.push((key.0, held.owner));
        }
        taken
    }

    /// What clients rely on of a lock, as long as that is not what the table says.
    pub(crate) fn relied_on(&self, lock: LockId) -> Option<&(Token, Vec<Resource>)> {
        self.confirmed.get(&lock).filter(|_| self.is_pending(lock))
    }

    /// The lock that had this token before a conversion that is not confirmed yet.
    pub(crate) fn converting_from(&self, token: Token) -> Option<LockId> {
        let mut locks = self.confirmed.iter().filter(|(_, (known, _))| *known == token);
        locks.find(|(lock, _)| self.is_pending(**lock)).map(|(lock, _)| *lock)
    }

    /// Whether clients are not to rely yet on what the table says of a lock.
    pub(crate) fn is_pending(&self, lock: LockId) -> bool {
        self.changed.contains(lock) || self.home.is_pending(lock)
    }

    /// Whether clients are not to know yet that a lock is held.
    fn is_new(&self, lock: LockId) -> bool {
        let is_unseen = self.changed.contains(lock) && !self.guarded.contains_key(&lock);
        is_unseen || self.home.is_new(lock)
    }

    /// The shards that have to be closed before a lock is granted.
    pub(crate) fn awaited(&self, lock: LockId) -> BTreeSet<ShardNo> {
        self.home.awaited(lock)
    }

    fn look(&mut self, lock: LockId, held: Option<LockView>, is_durable: bool) -> Look {
        let Some(view) = held else {
            if self.guarded.contains_key(&lock) && !is_durable {
                return Look::Retry;
            }
            self.guarded.remove(&lock);
            self.confirmed.remove(&lock);
            self.home.released(lock);
            return Look::Done;
        };
        let token = view.token.expect("a held lock has a token");
        let coverage = |resources: &[Resource]| self.territory.covered(resources);
        let decision = Decision { lock, owner: view.owner, token, resources: view.resources };
        let next = (token, decision.resources.clone());
        match self.guarded.get(&lock) {
            Some(before) if *before == next => return Look::Done,
            None if self.home.restores() => {
                self.confirmed.insert(lock, next.clone());
                self.home.restored(decision, &coverage);
            }
            // Sessions and shards of the previous home come first; or an earlier change of this lock.
            _ if self.home.phase() == Phase::Grace || self.home.is_pending(lock) => return Look::Later,
            None => self.home.decided(decision, &coverage),
            Some(_) if !is_durable => return Look::Retry,
            Some(_) => self.home.converted(decision, &coverage),
        }
        self.guarded.insert(lock, next);
        Look::Done
    }

    /// What is told of a lock now that its shards are closed for this token.
    fn take_news(&mut self, lock: LockId, token: Token) -> Vec<(Token, HeldBack)> {
        if let Some(guarded) = self.guarded.get(&lock).filter(|guarded| guarded.0 == token) {
            self.confirmed.insert(lock, guarded.clone());
        }
        let up_to = (lock, Token(0), 0)..=(lock, token, u64::MAX);
        let told: Vec<HeldBackKey> = self.held_back.range(up_to).map(|(key, _)| *key).collect();
        told.into_iter().filter_map(|key| Some((key.1, self.take_held_back(key)?))).collect()
    }
}

impl State {
    /// Whether a client may be told of a grant or conversion that it has just asked for. Otherwise that is held back, and told
    /// as if the lock had waited.
    pub(crate) fn may_tell(
        &mut self,
        kernel: &Kernel,
        granted: (OwnerId, LockId, Token),
        news: (News, Option<u64>),
    ) -> bool {
        if self.guards.is_none() {
            return true;
        }
        self.guard(kernel);
        let is_pending = |guards: &&mut Box<HomeGuards>| guards.is_pending(granted.1);
        let Some(guards) = self.guards.as_mut().filter(is_pending) else { return true };
        guards.hold_back(granted, news, kernel.clock.now());
        false
    }

    /// Tells of a grant or conversion that is one of several changes, now or as soon as it may be told. The guards are looked at
    /// when all of these changes are known, ends of leases among them.
    pub(crate) fn tell_or_hold_back(
        &mut self,
        kernel: &Kernel,
        granted: (OwnerId, LockId, Token),
        news: News,
    ) {
        let request = self.request_of(granted.0, granted.1);
        match &mut self.guards {
            Some(guards) => guards.hold_back(granted, (news, request), kernel.clock.now()),
            None => self.tell_news(kernel, granted, (news, request)),
        }
    }

    /// Whether clients are not to rely yet on what the table says of a lock.
    pub(crate) fn is_pending(&self, lock: LockId) -> bool {
        self.guards.as_ref().is_some_and(|guards| guards.is_pending(lock))
    }

    /// Whether clients are not to know yet that a lock is held: to them it waits.
    pub(crate) fn is_new(&self, lock: LockId) -> bool {
        self.guards.as_ref().is_some_and(|guards| guards.is_new(lock))
    }

    /// Brings the guards to what the table says, and tells what may be told by now.
    pub fn guard(&mut self, kernel: &Kernel) {
        if self.guards.is_none() {
            return;
        }
        loop {
            self.look_at_changes(kernel);
            let Some(guards) = &mut self.guards else { return };
            let ownership = if kernel.authority.is_fresh() { Ownership::Fresh } else { Ownership::Stale };
            let actions = guards.home.actions(ownership);
            if actions.is_empty() {
                let defined = guards.home.defined();
                guards.defined.send_if_modified(|known| std::mem::replace(known, defined) != defined);
                let waits = ownership == Ownership::Stale || guards.retry_at.is_some();
                guards.retry_at = waits.then(|| kernel.clock.now().after(RETRY_MS));
                return;
            }
            for action in actions {
                self.do_guarding(kernel, action);
            }
        }
    }

    fn look_at_changes(&mut self, kernel: &Kernel) {
        let changed = self.table.take_changes();
        for lock in &changed {
            if self.table.owner_of(*lock).is_none() {
                self.lease_gone(*lock);
            }
        }
        // A guard goes after the end of its lease is on record.
        self.note_ended(kernel);
        let written = self.written;
        let Some(guards) = &mut self.guards else { return };
        for lock in changed {
            guards.changed.note(lock, written);
        }
        guards.retry_at = None;
        let changed = guards.changed.take();
        if changed.is_empty() {
            return;
        }
        for (lock, record) in changed {
            let held = self.table.view(lock).filter(|view| view.token.is_some());
            if held.is_none() {
                guards.drop_news(lock);
            }
            let is_durable = kernel.shard.shows(record);
            match guards.look(lock, held, is_durable) {
                Look::Done => {}
                Look::Later => guards.changed.defer(lock, record),
                Look::Retry => {
                    guards.changed.note(lock, record);
                    guards.retry_at = Some(Timestamp(0));
                }
            }
        }
    }

    fn do_guarding(&mut self, kernel: &Kernel, action: Action) {
        let Some(guards) = &mut self.guards else { return };
        match action {
            Action::Send(message) => guards.territory.send(&self.name, message),
            Action::Granted { lock, token } => {
                guards.changed.resume(lock);
                for (token, HeldBack { owner, news, request, .. }) in guards.take_news(lock, token) {
                    self.tell_news(kernel, (owner, lock, token), (news, request));
                }
            }
            // The shard learns of the latest home from the database, and joins that one.
            Action::Reject(stream) => tracing::debug!(?stream, "a member of another home"),
            Action::GraceEnded => {
                tracing::debug!(namespace = %self.name, "all shards have been heard");
                guards.changed.resume_all();
            }
        }
    }

    /// Sessions had the time to come back, or there were none.
    pub(crate) fn sessions_over(&mut self, kernel: &Kernel) {
        self.guard(kernel);
        if let Some(guards) = &mut self.guards {
            guards.home.sessions_over();
            self.guard(kernel);
        }
    }

    /// Requests that wait for shards that cannot be reached are given up.
    pub(crate) fn give_up_closing(&mut self, kernel: &Kernel, now: Timestamp) {
        let Some(guards) = &mut self.guards else { return };
        let mut late = guards.take_given_up(now);
        // A session waits on.
        late.retain(|(lock, _)| self.is_awaited(*lock));
        for (lock, owner) in late {
            let shards = self.guards.as_ref().map(|guards| guards.awaited(lock)).unwrap_or_default();
            self.refuse(owner, lock, Box::new(not_closed(&shards)));
            self.give_back(kernel, owner, lock);
        }
    }
}

impl Namespace {
    /// A member has sent something.
    pub fn receive(&self, kernel: &Kernel, message: &MemberMessage) {
        self.guarding(kernel, |home| home.receive(message));
    }

    /// PostgreSQL names the owner of a shard.
    pub fn owner_changed(&self, kernel: &Kernel, shard: ShardNo, epoch: ShardEpoch) {
        self.guarding(kernel, |home| home.owner_changed(shard, epoch));
    }

    /// Another map is in force.
    pub fn map_changed(&self, kernel: &Kernel, epoch: MapEpoch, covered: &dyn Fn(&[Resource]) -> Covered) {
        self.guarding(kernel, |home| home.map_changed(epoch, &covered));
    }

    /// Whether its home grants.
    pub(crate) fn is_serving(&self) -> bool {
        self.lock().guards.as_ref().is_none_or(|guards| guards.home.phase() == Phase::Serving)
    }

    /// The shards that have to be heard before anything is granted.
    pub fn unheard(&self) -> Vec<(ShardNo, ShardEpoch)> {
        let state = self.lock();
        state.guards.as_ref().map(|guards| guards.home.unheard().collect()).unwrap_or_default()
    }

    /// Whether guards that should go may stay, because the ownership of the home is not fresh or it is in grace.
    fn is_held_up(&self, kernel: &Kernel) -> bool {
        self.guarding(kernel, |_| ());
        self.lock().guards.as_ref().is_some_and(|guards| guards.home.is_held_up())
    }

    /// Something was registered or removed, and is in the log up to a record, which is durable. Gives its version, and the one
    /// that all shards go by.
    pub fn redefined(
        &self,
        kernel: &Kernel,
        record: u64,
    ) -> Option<(DefinitionsNo, watch::Receiver<Option<DefinitionsNo>>)> {
        self.guarding(kernel, |home| home.redefined(DefinitionsNo::new(home.epoch(), record)));
        let state = self.lock();
        let guards = state.guards.as_ref()?;
        Some((DefinitionsNo::new(guards.home.epoch(), record), guards.defined.subscribe()))
    }

    /// The shards that do not go by that yet, as far as they are known.
    pub fn undefined(&self, definitions: DefinitionsNo) -> BTreeSet<ShardNo> {
        let state = self.lock();
        let Some(guards) = &state.guards else { return BTreeSet::new() };
        let unheard = guards.home.unheard().map(|(shard, _)| shard);
        guards.home.undefined(definitions).into_iter().chain(unheard).collect()
    }

    fn guarding(&self, kernel: &Kernel, act: impl FnOnce(&mut Home)) {
        let mut state = self.lock();
        if let Some(guards) = &mut state.guards {
            act(&mut guards.home);
            state.guard(kernel);
        }
        self.rearm(state);
    }
}

/// Waits until the shards that ended locks had covered know of the end, and reject their tokens. One that cannot be reached is
/// not waited for: it rejects them before anything is granted that conflicts with what they allowed.
pub(crate) async fn lifted<'a>(
    kernel: &Kernel,
    name: &str,
    resources: impl IntoIterator<Item = &'a Resource>,
) -> Result<(), Trouble> {
    let Some(territory) = &kernel.territory else { return Ok(()) };
    let Some(namespace) = kernel.registry.get(name).filter(|namespace| namespace.is_guarded) else {
        return Ok(());
    };
    let ended: Vec<Resource> = resources.into_iter().cloned().collect();
    if ended.is_empty() {
        return Ok(());
    }
    // A guard goes after it is durable that its lock is over.
    let written = namespace.lock().written;
    kernel.shard.shown(written).await?;
    let deadline = Instant::now() + HELD_UP_TIMEOUT;
    // A home whose ownership is not fresh lifts nothing, and one in grace does not reach what members have of earlier homes.
    while namespace.is_held_up(kernel) {
        if Instant::now() >= deadline {
            match kernel.authority.is_fresh() {
                true => break,
                false => return Err(held_up()),
            }
        }
        tokio::time::sleep(HELD_UP_PAUSE).await;
    }
    territory.arrived(&namespace.name, &ended).await;
    Ok(())
}

/// Asks the shards what they are to a namespace whose home is here, until each has been heard and the home serves: a shard may
/// get another owner as long as sessions have time to come back.
pub(crate) async fn hear_all(kernel: Arc<Kernel>, name: Arc<str>) {
    let Some(territory) = &kernel.territory else { return };
    let mut pause = PAUSE;
    loop {
        let Some(namespace) = kernel.registry.get(&name).filter(|namespace| !namespace.is_serving()) else {
            return;
        };
        let unheard = namespace.unheard();
        let asked = unheard.iter().map(|(shard, _)| territory.hear(&name, *shard));
        for message in join_all(asked).await.into_iter().flatten() {
            namespace.receive(&kernel, &message);
        }
        drop(namespace);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn held_up() -> Trouble {
    let message = "the lock has ended, but the home of the namespace may have lost its shard, so other shards may not know of \
                   it yet; look at the lock again";
    Trouble::new(Code::ShardUnreachable, message)
}

fn not_closed(shards: &BTreeSet<ShardNo>) -> Trouble {
    let named: Vec<String> = shards.iter().map(|shard| shard.0.to_string()).collect();
    let message = format!(
        "the lock is free, but shard {} does not confirm that operations in its way have ended; try again, or see \
         `lockwood cluster status`",
        named.join(", ")
    );
    Trouble::new(Code::ShardUnreachable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_waits_for_shards_is_looked_at_once() {
        let mut changed = Changed::default();
        for lock in 1..=3 {
            changed.note(LockId(lock), lock);
            let taken = changed.take();
            // Only the new one, however many wait.
            assert_eq!(taken, BTreeMap::from([(LockId(lock), lock)]));
            taken.into_iter().for_each(|(lock, record)| changed.defer(lock, record));
        }
        assert!(changed.contains(LockId(1)) && changed.take().is_empty());
        // It changes again: what is later counts.
        changed.note(LockId(2), 9);
        changed.resume(LockId(1));
        changed.resume(LockId(2));
        assert_eq!(changed.take(), BTreeMap::from([(LockId(1), 1), (LockId(2), 9)]));
        changed.resume_all();
        assert_eq!(changed.take(), BTreeMap::from([(LockId(3), 3)]));
        assert!(!changed.contains(LockId(3)));
    }
}
