//! Gives a lock on a cluster other modes: with its one shard, or part by part in the order of the shards. Takes back
//! what it did if it does not get all of it, also if nobody waits for the answer any more. Knows nothing of protocols.
//!
//! ```text
//!   stronger on shard 1 ──► stronger on shard 2 ──► … ──► settle every part: the largest token ──► weaker
//!         │ refused                 │ refused                      │ not strong enough any more
//!         ▼                         ▼                              ▼
//!     as it was                 as it was             as it was, with the token it had, and once more
//! ```
//!
//! Until it is settled everywhere the owner has what it had, under the token it had; no part is weaker than that, and none
//! gets weaker than it is to be.

use super::{
    all::{self, Damage, Torn},
    deadlock::Watch,
    letter,
    letter::{Convert, Converted, Order, WireLine, written},
    moving, parts,
    patience::Patience,
    take::{left_of, patience_of, settle_all},
};
use crate::{
    cluster::{Current, no_map},
    lease::{self, Which},
    seat::invalid_conversion,
    shared::Shared,
    trouble::Trouble,
};
use lockwood_locks::{Change, merge};
use lockwood_model::{LockId, Resource, Wait};
use lockwood_router::{Phase, ShardNo};
use lockwood_wire::{Code, WireWait};
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{Notify, watch};

/// How long it is tried to take something back, and how often. Whatever is left ends with the lock, or when the owner's
/// session is taken up again.
const BACK_PATIENCE: Duration = Duration::from_secs(20);
const BACK_PAUSE: Duration = Duration::from_millis(50);

/// What is wanted of a lock that is held.
pub(crate) struct Wish {
    pub(crate) lock: u64,
    pub(crate) owner: String,
    /// Which connection of the owner wants it; once another one speaks for the owner it is over.
    pub(crate) seat: u64,
    pub(crate) change: Change,
    pub(crate) wait: Wait,
    /// How long it is held from then on, unless it is renewed.
    pub(crate) ttl_ms: u64,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The lock has the new modes, and this token.
    Converted(u64),
    /// It is what it was, as somebody asked.
    Stopped,
}

/// How far it has come.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    /// Where it stands, once it stands in line.
    pub(crate) line: Option<WireLine>,
    /// Whether there is no way back.
    pub(crate) is_settling: bool,
}

/// A conversion as others see it.
pub(crate) struct Watched {
    pub(crate) stage: watch::Receiver<Stage>,
    /// Stops it, unless it is too late for that.
    pub(crate) stop: Arc<Notify>,
}

/// Gives a lock other modes. The wait ends with the future.
pub(crate) fn convert(
    shared: &Arc<Shared>,
    namespace: &str,
    wish: Wish,
) -> (Watched, impl Future<Output = Result<Ended, Trouble>> + Send + use<>) {
    let converting = Converting::new(shared, namespace, wish);
    let watched = Watched { stage: converting.stage.subscribe(), stop: Arc::clone(&converting.stop) };
    (watched, converting.run())
}

/// Makes the locks of a session that was taken up again what it knows them to be, and keeps them alive: one may have been
/// on its way to be taken, or converted, when its node died.
pub(crate) async fn mend(
    shared: &Arc<Shared>,
    namespace: &str,
    (owner, seat): (&str, u64),
    ttl_ms: u64,
) -> Result<(), Trouble> {
    let Damage { torn, incomplete } = all::damage(shared, namespace, (owner, seat), ttl_ms).await?;
    for lock in incomplete.iter().copied().map(LockId) {
        let which = Which::Lock { lock, token: None, owner: Some(owner.to_owned()) };
        match all::release(shared, namespace, &which).await {
            Err(trouble) if trouble.code != Code::LockLost => return Err(trouble),
            _ => {}
        }
    }
    let torn = torn.into_iter().filter(|torn| !incomplete.contains(&torn.lock));
    for Torn { lock, whole, token, latest } in torn {
        let whole = Some((written(&whole), seat));
        let order = Order::Settle { lock, token, ttl_ms: Some(ttl_ms), whole, instead_of: Some(latest) };
        settle_wherever(shared, namespace, &order, &mut Patience::new()).await?;
    }
    let turn = shared.cluster.sessions.new_turn();
    let order = Order::Unconvert { lock: None, owner: owner.to_owned(), seat, turn };
    HalfDone { shared: Arc::clone(shared), namespace: namespace.to_owned(), order }.take_back().await;
    Ok(())
}

/// Settles every part of a lock, by whatever map is in force.
async fn settle_wherever(
    shared: &Arc<Shared>,
    namespace: &str,
    order: &Order,
    patience: &mut Patience,
) -> Result<(), Trouble> {
    let Order::Settle { whole: Some((whole, _)), .. } = order else { return Ok(()) };
    let whole = letter::read(whole.clone())?;
    loop {
        let current = shared.cluster.current().ok_or_else(no_map)?;
        let settled = match parts(&current, &whole) {
            Ok(parts) => {
                let shards: Vec<ShardNo> = parts.into_keys().collect();
                settle_all(shared, &current, namespace, &shards, order).await.map(drop)
            }
            Err(trouble) => Err(trouble),
        };
        match settled {
            Ok(()) => return Ok(()),
            Err(trouble) => patience.endure(trouble).await?,
        }
    }
}

struct Converting {
    shared: Arc<Shared>,
    namespace: String,
    wish: Wish,
    started: Instant,
    stage: watch::Sender<Stage>,
    stop: Arc<Notify>,
    /// Which conversion of this node it is.
    turn: u64,
    /// Looks whether it waits for itself.
    watch: Watch,
    /// Whether something may be stronger than the owner knows.
    is_begun: bool,
    /// The largest token that was heard of.
    token: u64,
    /// Once somebody has stopped it: the token that the lock had then.
    stopped_at: Option<u64>,
}

/// What the owner of a lock knows of it.
struct Known {
    whole: Vec<Resource>,
    token: u64,
}

/// How far one attempt has come.
enum Attempt {
    Ended(Ended),
    /// The lock is strong enough on all its shards to be what it is to be.
    Strong {
        before: Known,
        whole: Vec<Resource>,
    },
}

/// How settling ended.
enum Settled {
    Over(Result<Ended, Trouble>),
    /// The lock was not strong enough any more; it is what it was.
    Again(Box<Converting>),
}

impl Converting {
    fn new(shared: &Arc<Shared>, namespace: &str, wish: Wish) -> Converting {
        Converting {
            shared: Arc::clone(shared),
            namespace: namespace.to_owned(),
            started: Instant::now(),
            stage: watch::Sender::default(),
            stop: Arc::new(Notify::new()),
            turn: shared.cluster.sessions.new_turn(),
            watch: Watch::new(shared, namespace, &wish.owner),
            is_begun: false,
            token: 0,
            stopped_at: None,
            wish,
        }
    }

    async fn run(mut self) -> Result<Ended, Trouble> {
        let mut patience = Patience::waiting(self.wish.wait);
        loop {
            let trouble = match self.attempt().await {
                Ok(Attempt::Ended(ended)) => {
                    self.is_begun = false;
                    return Ok(ended);
                }
                Ok(Attempt::Strong { before, whole }) => {
                    // To the end, whoever waits for the answer: parts of it may have their new token.
                    match tokio::spawn(self.settle(before, whole)).await.expect("settling does not panic") {
                        Settled::Over(over) => return over,
                        Settled::Again(converting) => self = *converting,
                    }
                    Trouble::new(Code::WrongEpoch, "what came with a move was in the way; ask again")
                }
                Err(trouble) => self.watch.doubt(trouble).await,
            };
            if let Err(trouble) = patience.endure(trouble).await {
                self.take_back().await;
                return Err(trouble);
            }
        }
    }

    /// The lock is strong enough everywhere, or was a moment ago.
    async fn settle(mut self, before: Known, whole: Vec<Resource>) -> Settled {
        self.stage.send_modify(|stage| stage.is_settling = true);
        let trouble = match self.settle_as((&whole, self.token), None).await {
            Ok(()) => {
                let is_weaker = |(had, has): (&Resource, &Resource)| !has.mode.includes(had.mode);
                if before.whole.iter().zip(&whole).any(is_weaker) {
                    // Now that the owner is about to hear of it, what is stronger than that may become weaker.
                    self.half_done().take_back().await;
                }
                self.is_begun = false;
                return Settled::Over(Ok(Ended::Converted(self.token)));
            }
            Err(trouble) => trouble,
        };
        if !matches!(trouble.code, Code::LockLost | Code::Replaced)
            && let Err(trouble) = self.settle_as((&before.whole, before.token), Some(self.token)).await
        {
            return Settled::Over(Err(trouble));
        }
        self.stage.send_modify(|stage| stage.is_settling = false);
        match trouble.code {
            // Something that came with a move was in the way.
            Code::Locked => Settled::Again(Box::new(self)),
            _ => {
                self.take_back().await;
                Settled::Over(Err(trouble))
            }
        }
    }

    async fn settle_as(
        &self,
        (whole, token): (&[Resource], u64),
        instead_of: Option<u64>,
    ) -> Result<(), Trouble> {
        let Wish { lock, seat, ttl_ms, .. } = self.wish;
        let whole = Some((written(whole), seat));
        let order = Order::Settle { lock, token, ttl_ms: Some(ttl_ms), whole, instead_of };
        settle_wherever(&self.shared, &self.namespace, &order, &mut Patience::endless()).await
    }

    async fn attempt(&mut self) -> Result<Attempt, Trouble> {
        if let Some(before) = self.stopped_at {
            return self.stopped(before).await.map(Attempt::Ended);
        }
        let current = self.shared.cluster.current().ok_or_else(no_map)?;
        let lock = self.wish.lock;
        let info = all::one(&self.shared, &self.namespace, lock, None).await?;
        let info = info.ok_or_else(|| lease::lost(LockId(lock)))?;
        let mut before = letter::read(info.resources)?;
        merge(&mut before);
        let whole = self.wish.change.applied_to(&before);
        let whole = whole.map_err(|error| invalid_conversion(LockId(lock), error))?;
        let shards: Vec<ShardNo> = parts(&current, &whole)?.into_keys().collect();
        if shards.len() > 1 && current.map.phase == Phase::Preparing {
            return Err(moving(&whole[0].path));
        }
        let token = info.token.unwrap_or(0);
        let is_alone = shards.len() == 1;
        let includes = |(had, has): (&Resource, &Resource)| had.mode.includes(has.mode);
        let is_stronger = !before.iter().zip(&whole).all(includes);
        // In one step if there is one shard; otherwise weaker only when nothing can be in the way any more.
        let asked = if is_alone || is_stronger { &shards[..] } else { &[] };
        if is_alone {
            // What others said by an earlier map is not settled, and never will be.
            self.token = 0;
        }
        for shard in asked {
            match self.convert_on(&current, *shard, (&whole, is_alone)).await? {
                Some(token) => self.token = self.token.max(token),
                None => {
                    self.stopped_at = Some(token);
                    return self.stopped(token).await.map(Attempt::Ended);
                }
            }
        }
        self.token = self.token.max(token);
        Ok(match is_alone {
            true => Attempt::Ended(Ended::Converted(self.token)),
            false => Attempt::Strong { before: Known { whole: before, token }, whole },
        })
    }

    /// Has a shard make it stronger, or whatever it is to be if there are no others; nothing if it was stopped.
    async fn convert_on(
        &mut self,
        current: &Current,
        shard: ShardNo,
        (whole, alone): (&[Resource], bool),
    ) -> Result<Option<u64>, Trouble> {
        self.is_begun = true;
        let (lock, owner, left) = (self.wish.lock, self.wish.owner.clone(), self.wait_left());
        let (seat, whole, wait) = (self.wish.seat, written(whole), WireWait(left));
        let wanted = Convert { lock, owner, seat, whole, alone, wait, waits: true, turn: self.turn };
        if self.stage.borrow().line.is_none() {
            // Whoever watches wants to know where it stands before it is waited for.
            let order = Order::Convert(Convert { waits: false, ..wanted.clone() });
            match self.ask(current, shard, order, Duration::ZERO).await? {
                Converted::Done { token } => return Ok(Some(token)),
                Converted::Queued(line) => self.stage.send_modify(|stage| stage.line = Some(line)),
            }
        }
        let order = (&*self.namespace, Order::Convert(wanted));
        let asking = letter::ask(&self.shared, current, shard, order, patience_of(left));
        let answer = tokio::select! {
            biased;
            answer = asking => answer?,
            trouble = self.watch.deadlock(Some(lock), &[]) => return Err(trouble),
            () = self.stop.notified() => return Ok(None),
        };
        match answer {
            Converted::Done { token } => Ok(Some(token)),
            Converted::Queued(_) => {
                Err(Trouble::new(Code::WrongEpoch, "it does not wait any more; ask again"))
            }
        }
    }

    /// Somebody stopped it. It may have been done just before that: then the lock has another token.
    async fn stopped(&mut self, before: u64) -> Result<Ended, Trouble> {
        self.take_back().await;
        let lock = self.wish.lock;
        let info = all::one(&self.shared, &self.namespace, lock, None).await?;
        let token = info.and_then(|info| info.token).ok_or_else(|| lease::lost(LockId(lock)))?;
        Ok(if token == before { Ended::Stopped } else { Ended::Converted(token) })
    }

    async fn ask(
        &self,
        current: &Current,
        shard: ShardNo,
        order: Order,
        wait: Duration,
    ) -> Result<Converted, Trouble> {
        letter::ask(&self.shared, current, shard, (&self.namespace, order), wait).await
    }

    fn wait_left(&self) -> Wait {
        left_of(self.wish.wait, self.started)
    }

    async fn take_back(&mut self) {
        if self.is_begun {
            self.half_done().take_back().await;
        }
        self.is_begun = false;
    }

    fn half_done(&self) -> HalfDone {
        let Wish { lock, owner, seat, .. } = &self.wish;
        let order =
            Order::Unconvert { lock: Some(*lock), owner: owner.clone(), seat: *seat, turn: self.turn };
        HalfDone { shared: Arc::clone(&self.shared), namespace: self.namespace.clone(), order }
    }
}

impl Drop for Converting {
    fn drop(&mut self) {
        if self.is_begun {
            tokio::spawn(self.half_done().take_back());
        }
    }
}

/// What shards may have made stronger for a conversion that comes to nothing.
struct HalfDone {
    shared: Arc<Shared>,
    namespace: String,
    order: Order,
}

impl HalfDone {
    async fn take_back(self) {
        let started = Instant::now();
        let mut done = BTreeSet::new();
        while let Some(current) = self.shared.cluster.current() {
            let Some(shard) = current.map.shard_numbers().find(|shard| !done.contains(shard)) else { return };
            let order = (&*self.namespace, self.order.clone());
            match letter::ask(&self.shared, &current, shard, order, Duration::ZERO).await {
                Ok(()) => drop(done.insert(shard)),
                // Whoever took over has seen to it.
                Err(trouble) if trouble.code == Code::Replaced => return,
                Err(trouble) if started.elapsed() < BACK_PATIENCE => {
                    tracing::debug!(shard = shard.0, why = trouble.message, "take back a conversion");
                    // What was there may be elsewhere by another map.
                    done.clear();
                    tokio::time::sleep(BACK_PAUSE).await;
                }
                Err(trouble) => {
                    tracing::warn!(shard = shard.0, why = trouble.message, "take back a conversion");
                    return;
                }
            }
        }
    }
}
