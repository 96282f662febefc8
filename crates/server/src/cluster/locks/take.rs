//! Takes a lock on a cluster: with its one shard, or part by part in the order of the shards. Gives back what it took
//! if it does not get all of it, also if nobody waits for the answer any more. Knows nothing of protocols.
//!
//! ```text
//!   part on shard 1 ──► part on shard 2 ──► … ──► settle every part: the largest token, the whole time
//!         │ refused           │ refused                  │ the map has changed
//!         ▼                   ▼                          ▼
//!     give back           give back             once more, by the map in force; what is there is found
//! ```
//!
//! After a move there may be places in line on later shards too. They are kept as long as there is one on every shard
//! before them: whoever has a later part and waits at the end of an earlier line could be waited for by those ahead.

use super::{
    all,
    deadlock::Watch,
    leftover::Leftover,
    letter,
    letter::{Order, Part, PartTaken, Wanted, WireLine},
    moving, parts,
    patience::Patience,
};
use crate::{
    cluster::{Current, no_map},
    lease::{self, HOLD_MS, LeaseRequest, Which},
    shared::Shared,
    trouble::Trouble,
};
use lockwood_locks::merge;
use lockwood_model::{LockId, Resource, Wait};
use lockwood_router::{Epoch, Phase, ShardNo};
use lockwood_wire::{Code, LeaseAnswer, LeaseOutcome, LockInfo, LockState};
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{oneshot, watch};

/// How long one request waits for a part. Between two of them the other parts are heard of.
const SLICE: Duration = Duration::from_secs(30);
/// How long whoever wanted a lock waits until it is given back; that goes on all the same.
const GIVE_BACK_PATIENCE: Duration = Duration::from_secs(1);

/// Takes a lock. With `poll` the answer comes after that time at the latest, and may be that the lock stands in line;
/// then it stays there.
pub(crate) async fn take(
    shared: &Arc<Shared>,
    namespace: &str,
    request: LeaseRequest,
    poll: Option<Duration>,
) -> Result<LeaseAnswer, Trouble> {
    lease::check_request(shared, &request)?;
    let taking = Taking::new(shared, namespace, request);
    match poll {
        Some(patience) => taking.run_polled(patience).await,
        None => taking.run().await,
    }
}

/// Goes on taking a lock that has its places in line already, under this number, for nobody in particular.
pub(crate) fn take_up(shared: &Arc<Shared>, namespace: &str, request: LeaseRequest, lock: u64) {
    let mut taking = Taking::new(shared, namespace, request);
    taking.known.send_replace(Some(Known { lock, line: None }));
    taking.epoch = Some(0);
    tokio::spawn(async move {
        if let Err(trouble) = taking.run().await {
            tracing::debug!(lock, why = trouble.message, "take a lock that moved");
        }
    });
}

/// Takes a lock that is another one than any its owner has, be it for the same; how it goes on can be watched. The wait
/// ends with the future.
pub(crate) fn take_watched(
    shared: &Arc<Shared>,
    namespace: &str,
    request: LeaseRequest,
    seat: u64,
) -> (watch::Receiver<Option<Known>>, impl Future<Output = Result<LeaseAnswer, Trouble>> + Send + use<>) {
    let checked = lease::check_request(shared, &request);
    let mut taking = Taking::new(shared, namespace, request);
    (taking.announces, taking.fresh, taking.anew) = (true, true, true);
    taking.seat = Some(seat);
    let known = taking.known.subscribe();
    (known, async move {
        checked?;
        taking.run().await
    })
}

/// A lock that is being taken.
struct Taking {
    shared: Arc<Shared>,
    namespace: String,
    /// With the resources as tables have them.
    request: LeaseRequest,
    started: Instant,
    /// The map by which it was tried last.
    epoch: Option<Epoch>,
    /// What is known of it, once a part has a number; for others to see.
    known: watch::Sender<Option<Known>>,
    /// The shards that may have a part of it that nobody relies on.
    unsettled: BTreeSet<ShardNo>,
    /// The shards that have had a part of it, held or in line, since this attempt began.
    found: BTreeSet<ShardNo>,
    /// Who takes it, for shards to know; another one after everything was given back.
    taker: u64,
    /// Whether somebody wants to know the number before it is held.
    announces: bool,
    /// Whether it is taken even if the owner seems to have it.
    anew: bool,
    /// Whether it is another lock than any the owner has.
    fresh: bool,
    /// Which connection of its owner wants it, if it is a session.
    seat: Option<u64>,
    /// Whether some of its parts may be settled and others not.
    is_torn: bool,
    /// Looks whether it waits for itself.
    watch: Watch,
    /// Whether it is known where there are parts of it, by the map of this attempt.
    has_looked: bool,
    /// Whether a part of it stands in line, as far as this attempt has come.
    is_waiting: bool,
}

/// Whether a shard has a part of a lock.
enum Find {
    /// It stands in line.
    InLine,
    Held {
        /// Its token, if it is settled.
        settled: Option<u64>,
    },
    Absent,
}

/// What is known of a lock that is being taken.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) lock: u64,
    /// Where it stands, if a part of it stands in line.
    pub(crate) line: Option<WireLine>,
}

impl Taking {
    fn new(shared: &Arc<Shared>, namespace: &str, mut request: LeaseRequest) -> Taking {
        merge(&mut request.resources);
        let watch = Watch::new(shared, namespace, &request.owner);
        Taking {
            shared: Arc::clone(shared),
            namespace: namespace.to_owned(),
            request,
            started: Instant::now(),
            epoch: None,
            known: watch::Sender::new(None),
            unsettled: BTreeSet::new(),
            found: BTreeSet::new(),
            taker: shared.cluster.sessions.new_seat(),
            announces: false,
            anew: false,
            fresh: false,
            seat: None,
            is_torn: false,
            watch,
            has_looked: false,
            is_waiting: false,
        }
    }

    async fn run(mut self) -> Result<LeaseAnswer, Trouble> {
        let mut patience = Patience::waiting(self.request.wait);
        loop {
            if let Some(done) = self.try_once(None, &mut patience).await {
                return done;
            }
        }
    }

    /// The same, but the answer comes after this time at the latest.
    async fn run_polled(mut self, poll: Duration) -> Result<LeaseAnswer, Trouble> {
        let mut patience = Patience::waiting(self.request.wait);
        loop {
            let current = self.shared.cluster.current().ok_or_else(no_map)?;
            if parts(&current, &self.request.resources).is_ok_and(|parts| parts.len() > 1) {
                let left = poll.saturating_sub(self.started.elapsed());
                return self.in_the_background(left).await;
            }
            if let Some(done) = self.try_once(Some(poll), &mut patience).await {
                return done;
            }
        }
    }

    /// Tries it; nothing if it is worth trying again.
    async fn try_once(
        &mut self,
        poll: Option<Duration>,
        patience: &mut Patience,
    ) -> Option<Result<LeaseAnswer, Trouble>> {
        let trouble = match self.attempt(poll).await {
            Ok(answer) => {
                self.epoch = None;
                return Some(Ok(answer));
            }
            Err(trouble) => self.watch.doubt(trouble).await,
        };
        if let Err(trouble) = patience.endure(trouble).await {
            self.give_back().await;
            self.epoch = None;
            return Some(Err(trouble));
        }
        None
    }

    /// Goes on after the answer is given.
    async fn in_the_background(mut self, patience: Duration) -> Result<LeaseAnswer, Trouble> {
        self.announces = true;
        let (shared, namespace) = (Arc::clone(&self.shared), self.namespace.clone());
        let mut known = self.known.subscribe();
        let mut work = tokio::spawn(self.run());
        let failed = |error| {
            tracing::error!(%error, "take a lock");
            Trouble::storage_failed()
        };
        if let Ok(done) = tokio::time::timeout(patience, &mut work).await {
            return done.map_err(failed)?;
        }
        tokio::select! {
            done = &mut work => return done.map_err(failed)?,
            // Nobody answers a request with a lock that has no number.
            _ = known.wait_for(Option::is_some) => {}
        }
        let Some(Known { lock, line }) = known.borrow().clone() else {
            return work.await.map_err(failed)?;
        };
        let info = all::one(&shared, &namespace, lock, None).await?;
        let lock = info.ok_or_else(|| lease::lost(LockId(lock)))?;
        match lock.state {
            LockState::Waiting => {
                let in_the_way = line.unwrap_or_default().blockers;
                Ok(LeaseAnswer { outcome: LeaseOutcome::Queued, lock, in_the_way })
            }
            _ => Ok(LeaseAnswer { outcome: LeaseOutcome::Granted, lock, in_the_way: Vec::new() }),
        }
    }

    async fn attempt(&mut self, poll: Option<Duration>) -> Result<LeaseAnswer, Trouble> {
        // By another map, or after a restart, what was there may be gone without anybody's having ended it.
        self.found.clear();
        self.is_waiting = false;
        let current = self.shared.cluster.current().ok_or_else(no_map)?;
        let parts = parts(&current, &self.request.resources)?;
        let parts: Vec<(ShardNo, Vec<Resource>)> = parts.into_iter().collect();
        if parts.len() > 1 && current.map.phase == Phase::Preparing {
            // The lines are put together at the moment, so nobody goes from one to the next.
            return Err(moving(&self.request.resources[0].path));
        }
        let is_again = self.epoch.replace(current.map.epoch).is_some();
        match &parts[..] {
            [(shard, _)] if !self.fresh => self.take_alone(&current, *shard, poll).await,
            parts => {
                if self.fresh && self.number().is_none() {
                    self.draw_number(&current).await?;
                }
                // What is like no other has been asked for by nobody else, and not before.
                self.has_looked = is_again || self.fresh;
                if is_again {
                    // A move may have given it places.
                    self.unsettled.extend(parts.iter().map(|(shard, _)| *shard));
                    self.find_places(&current, parts).await?;
                }
                self.take_parts(&current, parts).await
            }
        }
    }

    /// One that is like no other can only be found again by its number, so it has one before it is asked for.
    async fn draw_number(&mut self, current: &Current) -> Result<(), Trouble> {
        let this = self.shared.cluster.this();
        let mut shards = current.map.shard_numbers();
        let shard = if current.is_owner { Some(this) } else { shards.next() }.ok_or_else(no_map)?;
        let lock: u64 = self.ask(current, shard, Order::Number, Duration::ZERO).await?;
        self.known.send_replace(Some(Known { lock, line: None }));
        Ok(())
    }

    /// Finds out where there are places in line for it, or parts, and gives back those that are of no use.
    async fn find_places(
        &mut self,
        current: &Current,
        parts: &[(ShardNo, Vec<Resource>)],
    ) -> Result<(), Trouble> {
        let (mut settled, mut unheld) = (Vec::new(), None);
        let (mut is_missing, mut is_broken) = (false, false);
        for part in parts {
            match self.find_place(current, part, None).await? {
                Find::Absent => {
                    is_missing = true;
                    unheld = Some(part);
                }
                Find::InLine => {
                    is_broken |= is_missing;
                    unheld = Some(part);
                }
                Find::Held { settled: token } => {
                    is_broken |= is_missing;
                    settled.extend(token.map(|token| (part, token)));
                }
            }
        }
        self.is_waiting = unheld.is_some();
        if let Some(unheld) = unheld.filter(|_| !settled.is_empty()) {
            self.unsettle(current, unheld, settled).await?;
        }
        if is_broken {
            self.begin_anew().await;
        }
        Ok(())
    }

    /// Parts that were settled are so no more if this one is not held: somebody may wait for them whom this one waits for.
    async fn unsettle(
        &mut self,
        current: &Current,
        unheld: &(ShardNo, Vec<Resource>),
        settled: Vec<(&(ShardNo, Vec<Resource>), u64)>,
    ) -> Result<(), Trouble> {
        if matches!(self.find_place(current, unheld, None).await?, Find::Held { .. }) {
            // Somebody else who takes the same was faster.
            return Ok(());
        }
        for (part, token) in settled {
            self.find_place(current, part, Some(token)).await?;
        }
        Ok(())
    }

    /// Gives back what there is of it, to ask for it as if nothing had been.
    async fn begin_anew(&mut self) {
        self.found.clear();
        let unsettled = std::mem::take(&mut self.unsettled);
        let leftover = self.leftover(unsettled);
        // It is asked for again under the same number, and that is not meant.
        self.taker = self.shared.cluster.sessions.new_seat();
        if let Some(leftover) = leftover {
            to_the_end(leftover).await;
        }
    }

    /// A place that was there is not there any more. If somebody ended it there is a shard that knows; otherwise it was
    /// lost with its node, and it begins anew.
    async fn lose_place(&mut self, current: &Current, parts: &[(ShardNo, Vec<Resource>)]) -> Trouble {
        self.found.clear();
        if let Err(trouble) = self.find_places(current, parts).await {
            return trouble;
        }
        self.begin_anew().await;
        Trouble::new(Code::WrongEpoch, "a place in line is lost; ask again")
    }

    /// Whether a shard has a part of it, held or in line; then it keeps it.
    async fn find_place(
        &mut self,
        current: &Current,
        (shard, resources): &(ShardNo, Vec<Resource>),
        unsettled: Option<u64>,
    ) -> Result<Find, Trouble> {
        let shard = *shard;
        let part = self.part(shard, resources, 0, Duration::ZERO);
        let part = Part { only: true, unsettled, ..part };
        let taken = match self.ask(current, shard, Order::Part(part), Duration::ZERO).await {
            Err(trouble) if self.is_early(&trouble) => PartTaken::Absent,
            taken => taken?,
        };
        let found = match &taken {
            PartTaken::Held { settled, token, .. } => Find::Held { settled: settled.then_some(*token) },
            _ => Find::InLine,
        };
        match taken {
            PartTaken::Held { lock, .. } | PartTaken::Queued { lock, .. } => {
                self.unsettled.insert(shard);
                if self.number() != Some(lock) {
                    if !self.found.is_empty() {
                        // It has one number for all parts, and this one has to be asked for by that.
                        return Ok(Find::Absent);
                    }
                    self.known.send_replace(Some(Known { lock, line: None }));
                }
                self.found.insert(shard);
                Ok(found)
            }
            PartTaken::Absent | PartTaken::Covered { .. } => Ok(Find::Absent),
        }
    }

    /// Everything is with one shard.
    async fn take_alone(
        &mut self,
        current: &Current,
        shard: ShardNo,
        poll: Option<Duration>,
    ) -> Result<LeaseAnswer, Trouble> {
        let left = self.wait_left();
        let wanted = Wanted::of(&LeaseRequest { wait: left, ..self.request.clone() });
        let poll_ms = poll.map(|poll| poll.saturating_sub(self.started.elapsed()).as_millis() as u64);
        let order = (&*self.namespace, Order::Take { wanted, poll_ms, anew: self.anew, taker: self.taker });
        let asking = letter::ask(&self.shared, current, shard, order, patience_of(left));
        let answer: LeaseAnswer = tokio::select! {
            biased;
            answer = asking => answer?,
            trouble = self.watch.deadlock(None, &self.request.resources) => {
                self.forget().await;
                return Err(trouble);
            }
        };
        if answer.outcome == LeaseOutcome::Held && !self.has_all_of(current, &answer.lock).await? {
            self.anew = true;
            return Err(Trouble::new(Code::WrongEpoch, "a lock that covers this is not complete; ask again"));
        }
        self.unsettled.remove(&shard);
        // There may be parts by an earlier map.
        self.give_back_as(Some(answer.lock.lock), Duration::ZERO).await;
        Ok(answer)
    }

    /// Whether a lock of the owner that covers this is all there, on whichever shards.
    async fn has_all_of(&self, current: &Current, lock: &LockInfo) -> Result<bool, Trouble> {
        if parts(current, &letter::read(lock.resources.clone())?)?.len() == 1 {
            return Ok(true);
        }
        let lock = all::one(&self.shared, &self.namespace, lock.lock, None).await?;
        Ok(lock.is_some_and(|lock| lock.state == LockState::Granted))
    }

    /// It is not wanted any more, also if it was granted just now.
    async fn forget(&self) {
        let LeaseRequest { owner, resources, .. } = &self.request;
        let which = Which::Like { owner: owner.clone(), resources: resources.clone() };
        let _ = Box::pin(all::release(&self.shared, &self.namespace, &which)).await;
    }

    async fn take_parts(
        &mut self,
        current: &Arc<Current>,
        parts: &[(ShardNo, Vec<Resource>)],
    ) -> Result<LeaseAnswer, Trouble> {
        let mut held: Vec<(u64, bool)> = Vec::new();
        while held.len() < parts.len() {
            let (shard, resources) = &parts[held.len()];
            let floor = held.iter().map(|(token, _)| *token).max().unwrap_or(0);
            // Before it is waited for, whoever watches wants to know where it stands, and the other parts have to know.
            let is_told = self.known.borrow().as_ref().is_some_and(|known| known.line.is_some());
            let is_known = self.is_waiting && (is_told || !self.announces);
            let slice = if is_known { SLICE } else { Duration::ZERO };
            match self.take_part(current, *shard, resources, (floor, slice)).await? {
                PartTaken::Held { lock, token, settled, .. } => {
                    self.known.send_replace(Some(Known { lock, line: None }));
                    held.push((token, settled));
                }
                PartTaken::Queued { .. } if !self.has_looked => {
                    return Err(Trouble::new(Code::WrongEpoch, "there may be something of it; ask again"));
                }
                PartTaken::Queued { lock, line, .. } => {
                    self.known.send_replace(Some(Known { lock, line: Some(line) }));
                    self.keep(current, parts, &mut held).await?;
                }
                PartTaken::Absent => return Err(self.lose_place(current, parts).await),
                PartTaken::Covered { lock: number, same } => {
                    if let Some(lock) = all::one(&self.shared, &self.namespace, number, None).await?
                        && lock.state == LockState::Granted
                    {
                        return Ok(LeaseAnswer { outcome: LeaseOutcome::Held, lock, in_the_way: Vec::new() });
                    }
                    // The node that took it died when it was not complete, so it is completed now.
                    if same {
                        self.known.send_replace(Some(Known { lock: number, line: None }));
                    }
                    self.anew = true;
                }
            }
        }
        self.settle(current, parts, &held).await
    }

    /// While a part stands in line the others are heard of, so that they do not end.
    async fn keep(
        &mut self,
        current: &Arc<Current>,
        parts: &[(ShardNo, Vec<Resource>)],
        held: &mut [(u64, bool)],
    ) -> Result<(), Trouble> {
        self.is_waiting = true;
        for (part, (shard, resources)) in held.iter_mut().zip(parts) {
            match self.take_part(current, *shard, resources, (0, Duration::ZERO)).await? {
                // It is not, if it waits.
                PartTaken::Held { settled: true, .. } => return Err(waits_again()),
                PartTaken::Held { token, settled, .. } => *part = (token, settled),
                PartTaken::Absent => return Err(self.lose_place(current, parts).await),
                PartTaken::Queued { .. } | PartTaken::Covered { .. } => return Err(waits_again()),
            }
        }
        let later = parts.iter().skip(held.len() + 1);
        for part in later.filter(|(shard, _)| self.found.contains(shard)).collect::<Vec<_>>() {
            match self.find_place(current, part, None).await? {
                Find::Absent => return Err(self.lose_place(current, parts).await),
                Find::Held { settled: Some(_) } => return Err(waits_again()),
                _ => {}
            }
        }
        Ok(())
    }

    async fn take_part(
        &mut self,
        current: &Current,
        shard: ShardNo,
        resources: &[Resource],
        (floor, slice): (u64, Duration),
    ) -> Result<PartTaken, Trouble> {
        let part = self.part(shard, resources, floor, slice);
        self.unsettled.insert(shard);
        let lock = self.number();
        let asking = letter::ask(&self.shared, current, shard, (&self.namespace, Order::Part(part)), slice);
        let taken = tokio::select! {
            biased;
            taken = asking => taken,
            trouble = self.watch.deadlock(lock, &[]) => return Err(trouble),
        };
        let taken = match taken {
            Err(trouble) if self.is_early(&trouble) => PartTaken::Absent,
            taken => taken?,
        };
        if let PartTaken::Held { .. } | PartTaken::Queued { .. } = taken {
            self.found.insert(shard);
        }
        Ok(taken)
    }

    fn part(&self, shard: ShardNo, resources: &[Resource], floor: u64, slice: Duration) -> Part {
        let lock = self.number();
        let wait = match self.wait_left() {
            Wait::Never => Wait::Never,
            Wait::Millis(millis) => Wait::Millis(millis.min(HOLD_MS)),
            Wait::Forever => Wait::Millis(HOLD_MS),
        };
        let request = LeaseRequest {
            resources: resources.to_vec(),
            ttl_ms: Some(HOLD_MS),
            wait,
            ..self.request.clone()
        };
        Part {
            wanted: Wanted::of(&request),
            lock,
            whole: letter::written(&self.request.resources),
            floor,
            slice_ms: slice.as_millis() as u64,
            unless_covered: lock.is_none() && !self.anew,
            fresh: self.fresh,
            only: self.found.contains(&shard),
            taker: self.taker,
            seat: self.seat,
            unsettled: None,
        }
    }

    /// All parts are held; now their owner may rely on them. This is brought to an end also if nobody waits for it.
    async fn settle(
        &mut self,
        current: &Arc<Current>,
        parts: &[(ShardNo, Vec<Resource>)],
        held: &[(u64, bool)],
    ) -> Result<LeaseAnswer, Trouble> {
        let lock = self.number().expect("a part that is held has a number");
        let token = held.iter().map(|(token, _)| *token).max().unwrap_or(0);
        let unsettled = std::mem::take(&mut self.unsettled);
        if held.iter().all(|part| *part == (token, true)) {
            let lock = all::one(&self.shared, &self.namespace, lock, None).await?;
            let lock =
                lock.ok_or_else(|| Trouble::new(Code::WrongEpoch, "a lock ended just now; ask again"))?;
            return Ok(LeaseAnswer { outcome: LeaseOutcome::Held, lock, in_the_way: Vec::new() });
        }
        let shards: Vec<ShardNo> = parts.iter().map(|(shard, _)| *shard).collect();
        let by = Arc::clone(current);
        let (shared, current, namespace) =
            (Arc::clone(&self.shared), Arc::clone(current), self.namespace.clone());
        let (owner, ttl_ms) = (self.request.owner.clone(), self.request.ttl_ms);
        let (sender, settled) = oneshot::channel();
        tokio::spawn(async move {
            let order = Order::Settle { lock, token, ttl_ms, whole: None, instead_of: None };
            let settled = settle_all(&shared, &current, &namespace, &shards, &order).await;
            let which = Which::Lock { lock: LockId(lock), token: None, owner: Some(owner) };
            if sender.send(settled).is_err_and(|settled| settled.is_err()) {
                // Nobody goes on with it.
                let _ = Box::pin(all::release(&shared, &namespace, &which)).await;
            }
        });
        self.is_torn = true;
        let settled = settled.await.unwrap_or_else(|_| Err(Trouble::storage_failed()));
        self.is_torn = settled.is_err();
        match settled {
            Ok(lock) => Ok(LeaseAnswer { outcome: LeaseOutcome::Granted, lock, in_the_way: Vec::new() }),
            Err(trouble) => {
                self.unsettled = unsettled;
                Err(match trouble.code {
                    // A part that went back to the line is lost with its node, and nobody ended it.
                    Code::LockLost => self.lose_place(&by, parts).await,
                    _ => trouble,
                })
            }
        }
    }

    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        current: &Current,
        shard: ShardNo,
        order: Order,
        wait: Duration,
    ) -> Result<T, Trouble> {
        letter::ask(&self.shared, current, shard, (&self.namespace, order), wait).await
    }

    /// Whether a place ended because nobody asked for it in time, although the wait is not over.
    fn is_early(&self, trouble: &Trouble) -> bool {
        let is_over = match self.request.wait {
            Wait::Never => true,
            Wait::Millis(millis) => self.started.elapsed() >= Duration::from_millis(millis),
            Wait::Forever => false,
        };
        trouble.code == Code::Timeout && !is_over
    }

    fn wait_left(&self) -> Wait {
        left_of(self.request.wait, self.started)
    }

    async fn give_back(&mut self) {
        if let (true, Some(lock)) = (std::mem::take(&mut self.is_torn), self.number()) {
            let which =
                Which::Lock { lock: LockId(lock), token: None, owner: Some(self.request.owner.clone()) };
            let _ = Box::pin(all::release(&self.shared, &self.namespace, &which)).await;
        }
        self.give_back_as(self.number(), GIVE_BACK_PATIENCE).await;
    }

    /// The same, for what has this number, if it is known. While documents are about to move that takes as long as they
    /// are, and is waited for no longer than this.
    async fn give_back_as(&mut self, number: Option<u64>, patience: Duration) {
        let unsettled = std::mem::take(&mut self.unsettled);
        let Some(mut leftover) = self.leftover(unsettled) else { return };
        match self.shared.cluster.current() {
            // What the owner asks for meanwhile is not meant, but would have this in its way.
            Some(current) if current.map.phase == Phase::Preparing => {
                if let Order::Drop { lock, .. } = &mut leftover.order {
                    *lock = number;
                }
                let giving_back = tokio::spawn(leftover.give_back());
                let _ = tokio::time::timeout(patience, giving_back).await;
            }
            _ => to_the_end(leftover).await,
        }
    }

    /// What may be left of it, if anything.
    fn leftover(&self, mut shards: BTreeSet<ShardNo>) -> Option<Leftover> {
        let current = self.shared.cluster.current()?;
        if self.epoch.is_some_and(|epoch| epoch != current.map.epoch) {
            // It may have got places in line wherever.
            shards.extend(current.map.shard_numbers());
        }
        let (shared, namespace) = (Arc::clone(&self.shared), self.namespace.clone());
        let (owner, whole) = (self.request.owner.clone(), letter::written(&self.request.resources));
        let order = Order::Drop { lock: self.number(), owner, seat: self.seat, whole, taker: self.taker };
        (!shards.is_empty()).then_some(Leftover { shared, namespace, order, shards })
    }

    fn number(&self) -> Option<u64> {
        self.known.borrow().as_ref().map(|known| known.lock)
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        let unsettled = std::mem::take(&mut self.unsettled);
        if let Some(leftover) = self.leftover(unsettled) {
            tokio::spawn(leftover.give_back());
        }
    }
}

/// Also if nobody waits for it any more.
async fn to_the_end(leftover: Leftover) {
    let _ = tokio::spawn(leftover.give_back()).await;
}

/// That it has to be found out anew what there is of it.
fn waits_again() -> Trouble {
    Trouble::new(Code::WrongEpoch, "a part stands in line again; ask again")
}

pub(super) async fn settle_all(
    shared: &Arc<Shared>,
    current: &Current,
    namespace: &str,
    shards: &[ShardNo],
    order: &Order,
) -> Result<LockInfo, Trouble> {
    let settling = shards
        .iter()
        .map(|shard| letter::ask(shared, current, *shard, (namespace, order.clone()), Duration::ZERO));
    // All are waited for, whatever the first of them says.
    let settled: Vec<Result<LockInfo, Trouble>> = futures_util::future::join_all(settling).await;
    let settled = settled.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(all::merged(settled).expect("there is at least one part"))
}

/// What is left of a wait; whoever wanted to wait at all is not refused for being a moment late.
pub(super) fn left_of(wait: Wait, started: Instant) -> Wait {
    match wait {
        Wait::Millis(millis) => {
            let passed = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            Wait::Millis(millis.saturating_sub(passed).max(1))
        }
        wait => wait,
    }
}

pub(super) fn patience_of(wait: Wait) -> Duration {
    match wait {
        Wait::Never => Duration::ZERO,
        Wait::Millis(millis) => Duration::from_millis(millis),
        Wait::Forever => Duration::from_secs(24 * 3600),
    }
}
