//! Takes a lock on a cluster: with its one shard, or part by part in the order of the shards. Gives back what it took
//! if it does not get all of it, also if nobody waits for the answer any more. Knows nothing of protocols.
//!
//! ```text
//!   part on shard 1 ──► part on shard 2 ──► … ──► settle every part: the largest token, the whole time
//!         │ refused           │ refused                  │ the map has changed
//!         ▼                   ▼                          ▼
//!     give back           give back             once more, by the map in force; what is there is found
//! ```

use super::{
    all, letter,
    letter::{Order, Part, PartTaken, Wanted, WireLine},
    parts,
    patience::Patience,
};
use crate::{
    cluster::{Current, no_map},
    lease::{self, LeaseRequest, Which},
    shared::Shared,
    trouble::Trouble,
};
use lockwood_locks::merge;
use lockwood_model::{LockId, Resource, Wait};
use lockwood_router::ShardNo;
use lockwood_wire::{Code, LeaseAnswer, LeaseOutcome, LockInfo, LockState};
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How long a part is kept, held or in line, without being heard of.
const HOLD_MS: u64 = 90_000;
/// How long one request waits for a part. Between two of them the other parts are heard of.
const SLICE: Duration = Duration::from_secs(30);

/// Takes a lock. With `poll` the answer comes after that time at the latest, and may be that the lock stands in line;
/// then it stays there.
pub(crate) async fn take(
    shared: &Arc<Shared>,
    namespace: &str,
    request: LeaseRequest,
    poll: Option<Duration>,
) -> Result<LeaseAnswer, Trouble> {
    lease::check_request(shared, &request)?;
    let current = shared.cluster.current().ok_or_else(no_map)?;
    let spans = parts(&current, &request.resources).is_ok_and(|parts| parts.len() > 1);
    let taking = Taking::new(shared, namespace, request);
    match poll {
        Some(patience) if spans => taking.in_the_background(patience).await,
        poll => taking.run(poll).await,
    }
}

/// Takes a lock that is another one than any its owner has, be it for the same; how it goes on can be watched. The wait
/// ends with the future.
pub(crate) fn take_watched(
    shared: &Arc<Shared>,
    namespace: &str,
    request: LeaseRequest,
) -> (watch::Receiver<Option<Known>>, impl Future<Output = Result<LeaseAnswer, Trouble>> + Send + use<>) {
    let checked = lease::check_request(shared, &request);
    let mut taking = Taking::new(shared, namespace, request);
    (taking.announces, taking.fresh, taking.anew) = (true, true, true);
    let known = taking.known.subscribe();
    (known, async move {
        checked?;
        taking.run(None).await
    })
}

/// A lock that is being taken.
struct Taking {
    shared: Arc<Shared>,
    namespace: String,
    /// With the resources as tables have them.
    request: LeaseRequest,
    started: Instant,
    /// What is known of it, once a part has a number; for others to see.
    known: watch::Sender<Option<Known>>,
    /// The shards that may have a part of it that nobody relies on.
    unsettled: BTreeSet<ShardNo>,
    /// The shards that have had a part of it, held or in line, since this attempt began.
    seen: BTreeSet<ShardNo>,
    /// Whether somebody wants to know the number before it is held.
    announces: bool,
    /// Whether it is taken even if the owner seems to have it.
    anew: bool,
    /// Whether it is another lock than any the owner has.
    fresh: bool,
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
        Taking {
            shared: Arc::clone(shared),
            namespace: namespace.to_owned(),
            request,
            started: Instant::now(),
            known: watch::Sender::new(None),
            unsettled: BTreeSet::new(),
            seen: BTreeSet::new(),
            announces: false,
            anew: false,
            fresh: false,
        }
    }

    async fn run(mut self, poll: Option<Duration>) -> Result<LeaseAnswer, Trouble> {
        let mut patience = Patience::new();
        loop {
            let trouble = match self.attempt(poll).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            if let Err(trouble) = patience.endure(trouble).await {
                self.give_back().await;
                return Err(trouble);
            }
        }
    }

    /// Goes on after the answer is given.
    async fn in_the_background(mut self, patience: Duration) -> Result<LeaseAnswer, Trouble> {
        self.announces = true;
        let (shared, namespace) = (Arc::clone(&self.shared), self.namespace.clone());
        let mut known = self.known.subscribe();
        let mut work = tokio::spawn(self.run(None));
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
        self.seen.clear();
        let current = self.shared.cluster.current().ok_or_else(no_map)?;
        let parts = parts(&current, &self.request.resources)?;
        let parts: Vec<(ShardNo, Vec<Resource>)> = parts.into_iter().collect();
        match &parts[..] {
            [(shard, _)] if !self.fresh => self.take_alone(&current, *shard, poll).await,
            parts => self.take_parts(&current, parts).await,
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
        let order = Order::Take { wanted, poll_ms };
        let answer: LeaseAnswer = self.ask(current, shard, order, patience_of(left)).await?;
        self.unsettled.remove(&shard);
        // There may be parts by an earlier map.
        self.give_back().await;
        Ok(answer)
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
            match self.take_part(current, *shard, resources, floor).await? {
                PartTaken::Held { lock, token, settled } => {
                    self.known.send_replace(Some(Known { lock, line: None }));
                    held.push((token, settled));
                }
                PartTaken::Queued { lock, line } => {
                    self.known.send_replace(Some(Known { lock, line: Some(line) }));
                    self.keep(current, parts, &mut held).await?;
                }
                PartTaken::Covered { lock } => {
                    if let Some(lock) = all::one(&self.shared, &self.namespace, lock, None).await?
                        && lock.state == LockState::Granted
                    {
                        return Ok(LeaseAnswer { outcome: LeaseOutcome::Held, lock, in_the_way: Vec::new() });
                    }
                    self.anew = true;
                }
            }
        }
        self.settle(current, parts, &held).await
    }

    /// While a part stands in line those before it are heard of, so that they do not end.
    async fn keep(
        &mut self,
        current: &Arc<Current>,
        parts: &[(ShardNo, Vec<Resource>)],
        held: &mut [(u64, bool)],
    ) -> Result<(), Trouble> {
        for (part, (shard, resources)) in held.iter_mut().zip(parts) {
            match self.take_part(current, *shard, resources, 0).await? {
                PartTaken::Held { token, settled, .. } => *part = (token, settled),
                // It was held a moment ago.
                _ => return Err(lease::lost(LockId(self.number().unwrap_or_default()))),
            }
        }
        Ok(())
    }

    async fn take_part(
        &mut self,
        current: &Current,
        shard: ShardNo,
        resources: &[Resource],
        floor: u64,
    ) -> Result<PartTaken, Trouble> {
        let lock = self.number();
        let left = self.wait_left();
        let hold_ms = |millis: u64| millis.min(HOLD_MS);
        let wait = match left {
            Wait::Never => Wait::Never,
            Wait::Millis(millis) => Wait::Millis(hold_ms(millis)),
            Wait::Forever => Wait::Millis(HOLD_MS),
        };
        // Whoever watches wants to know where it stands before it is waited for.
        let is_told = self.known.borrow().as_ref().is_some_and(|known| known.line.is_some());
        let slice = if self.announces && !is_told { Duration::ZERO } else { SLICE };
        let request = LeaseRequest {
            resources: resources.to_vec(),
            ttl_ms: Some(HOLD_MS),
            wait,
            ..self.request.clone()
        };
        let part = Part {
            wanted: Wanted::of(&request),
            lock,
            whole: letter::written(&self.request.resources),
            floor,
            slice_ms: slice.as_millis() as u64,
            unless_covered: lock.is_none() && !self.anew,
            fresh: self.fresh,
            again: self.seen.contains(&shard),
        };
        self.unsettled.insert(shard);
        let taken = self.ask(current, shard, Order::Part(part), slice).await?;
        self.seen.insert(shard);
        Ok(taken)
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
        let (shared, current, namespace) =
            (Arc::clone(&self.shared), Arc::clone(current), self.namespace.clone());
        let (owner, ttl_ms) = (self.request.owner.clone(), self.request.ttl_ms);
        let settling = tokio::spawn(async move {
            let order = Order::Settle { lock, token, ttl_ms };
            let settled = settle_all(&shared, &current, &namespace, &shards, &order).await;
            if settled.as_ref().is_err_and(|trouble| trouble.code == Code::LockLost) {
                // Somebody released it, or a part of it ran out; the others are of no use.
                let which = Which::Lock { lock: LockId(lock), token: None, owner: Some(owner) };
                let _ = Box::pin(all::release(&shared, &namespace, &which)).await;
            }
            settled
        });
        match settling.await.expect("settling does not panic") {
            Ok(lock) => Ok(LeaseAnswer { outcome: LeaseOutcome::Granted, lock, in_the_way: Vec::new() }),
            Err(trouble) => {
                self.unsettled = unsettled;
                Err(trouble)
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

    /// What is left of the wait; whoever wanted to wait at all is not refused for being a moment late.
    fn wait_left(&self) -> Wait {
        match self.request.wait {
            Wait::Millis(millis) => {
                let passed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
                Wait::Millis(millis.saturating_sub(passed).max(1))
            }
            wait => wait,
        }
    }

    async fn give_back(&mut self) {
        let shards = std::mem::take(&mut self.unsettled);
        give_back(&self.shared, &self.namespace, self.number(), &self.request, shards).await;
    }

    fn number(&self) -> Option<u64> {
        self.known.borrow().as_ref().map(|known| known.lock)
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        let shards = std::mem::take(&mut self.unsettled);
        if shards.is_empty() {
            return;
        }
        let (shared, namespace) = (Arc::clone(&self.shared), self.namespace.clone());
        let (number, request) = (self.number(), self.request.clone());
        tokio::spawn(async move { give_back(&shared, &namespace, number, &request, shards).await });
    }
}

/// Has shards give back what they have of a lock that is not taken after all. If one cannot be asked, what it has ends
/// by itself before long.
async fn give_back(
    shared: &Arc<Shared>,
    namespace: &str,
    lock: Option<u64>,
    request: &LeaseRequest,
    shards: BTreeSet<ShardNo>,
) {
    let Some(current) = shared.cluster.current() else { return };
    let (owner, whole) = (request.owner.clone(), letter::written(&request.resources));
    // The last first: whoever waits for the earlier parts finds the later ones free.
    for shard in shards.into_iter().rev() {
        let order = Order::Drop { lock, owner: owner.clone(), whole: whole.clone() };
        let dropped = letter::ask::<()>(shared, &current, shard, (namespace, order), Duration::ZERO).await;
        if let Err(trouble) = dropped {
            tracing::debug!(shard = shard.0, why = trouble.message, "give back a part of a lock");
        }
    }
}

async fn settle_all(
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

fn patience_of(wait: Wait) -> Duration {
    match wait {
        Wait::Never => Duration::ZERO,
        Wait::Millis(millis) => Duration::from_millis(millis),
        Wait::Forever => Duration::from_secs(24 * 3600),
    }
}
