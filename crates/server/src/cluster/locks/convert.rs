//! Gives a lock on a cluster other modes: with its one shard, or part by part in the order of the shards. Takes back
//! what it did if it does not get all of it, also if nobody waits for the answer any more. Knows nothing of protocols.
//!
//! ```text
//!   stronger on shard 1 ──► stronger on shard 2 ──► … ──► settle every part: the new modes, the largest token
//!         │ refused                 │ refused                      │ the map has changed
//!         ▼                         ▼                              ▼
//!     as it was                 as it was                 once more, by the map in force, to the end
//! ```
//!
//! Until it is settled the owner has what it had, under the token it had.

use super::{
    all, letter,
    letter::{Convert, Converted, Order, WireLine, written},
    moving, parts,
    patience::Patience,
    take::{left_of, patience_of, settle_all},
};
use crate::{
    cluster::{Current, no_map},
    lease,
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

/// A conversion as others see it.
pub(crate) struct Watched {
    /// Where it stands, once it stands in line.
    pub(crate) line: watch::Receiver<Option<WireLine>>,
    /// Stops it, unless it is too late for that.
    pub(crate) stop: Arc<Notify>,
}

/// Gives a lock other modes. The wait ends with the future.
pub(crate) fn convert(
    shared: &Arc<Shared>,
    namespace: &str,
    wish: Wish,
) -> (Watched, impl Future<Output = Result<Ended, Trouble>> + Send + use<>) {
    let converting = Converting {
        shared: Arc::clone(shared),
        namespace: namespace.to_owned(),
        wish,
        started: Instant::now(),
        line: watch::Sender::new(None),
        stop: Arc::new(Notify::new()),
        is_begun: false,
        is_stronger: false,
        token: 0,
    };
    let watched = Watched { line: converting.line.subscribe(), stop: Arc::clone(&converting.stop) };
    (watched, converting.run())
}

struct Converting {
    shared: Arc<Shared>,
    namespace: String,
    wish: Wish,
    started: Instant,
    line: watch::Sender<Option<WireLine>>,
    stop: Arc<Notify>,
    /// Whether something may be stronger than the owner knows.
    is_begun: bool,
    /// Whether the lock gets stronger anywhere.
    is_stronger: bool,
    /// The largest token that was heard of.
    token: u64,
}

/// A lock that is strong enough on these shards, by this map.
struct Strong {
    current: Arc<Current>,
    shards: Vec<ShardNo>,
    whole: Vec<Resource>,
}

/// How far one attempt has come.
enum Attempt {
    Ended(Ended),
    Strong(Strong),
}

impl Converting {
    async fn run(mut self) -> Result<Ended, Trouble> {
        let mut patience = Patience::waiting(self.wish.wait);
        loop {
            let trouble = match self.attempt().await {
                Ok(Attempt::Ended(ended)) => {
                    self.is_begun = false;
                    return Ok(ended);
                }
                Ok(Attempt::Strong(strong)) => {
                    let settling = tokio::spawn(self.settle(strong));
                    return settling.await.expect("settling does not panic");
                }
                Err(trouble) => trouble,
            };
            if let Err(trouble) = patience.endure(trouble).await {
                self.take_back().await;
                return Err(trouble);
            }
        }
    }

    /// The lock is strong enough everywhere. From now on there is no way back, whoever waits for the answer: parts of
    /// it may have their new token.
    async fn settle(mut self, mut strong: Strong) -> Result<Ended, Trouble> {
        let mut patience = Patience::endless();
        (self.wish.wait, self.stop) = (Wait::Forever, Arc::new(Notify::new()));
        loop {
            let trouble = match self.settle_once(&strong).await {
                Ok(ended) => {
                    self.is_begun = false;
                    return Ok(ended);
                }
                Err(trouble) => trouble,
            };
            patience.endure(trouble).await?;
            strong = loop {
                match self.attempt().await {
                    Ok(Attempt::Strong(strong)) => break strong,
                    Ok(Attempt::Ended(ended)) => {
                        self.is_begun = false;
                        return Ok(ended);
                    }
                    Err(trouble) => patience.endure(trouble).await?,
                }
            };
        }
    }

    async fn settle_once(&self, strong: &Strong) -> Result<Ended, Trouble> {
        let order = Order::Settle {
            lock: self.wish.lock,
            token: self.token,
            ttl_ms: Some(self.wish.ttl_ms),
            whole: Some(written(&strong.whole)),
        };
        settle_all(&self.shared, &strong.current, &self.namespace, &strong.shards, &order).await?;
        Ok(Ended::Converted(self.token))
    }

    async fn attempt(&mut self) -> Result<Attempt, Trouble> {
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
        let includes = |(before, after): (&Resource, &Resource)| before.mode.includes(after.mode);
        self.is_stronger |= !before.iter().zip(&whole).all(includes);
        let token = info.token.unwrap_or(0);
        let is_alone = shards.len() == 1;
        // In one step if there is one shard; otherwise weaker only when nothing can be in the way any more.
        let asked = if is_alone || self.is_stronger { &shards[..] } else { &[] };
        for shard in asked {
            match self.convert_on(&current, *shard, &whole, is_alone).await? {
                Some(token) => self.token = self.token.max(token),
                None => return self.stopped(token).await.map(Attempt::Ended),
            }
        }
        self.token = self.token.max(token);
        Ok(match is_alone {
            true => Attempt::Ended(Ended::Converted(self.token)),
            false => Attempt::Strong(Strong { current, shards, whole }),
        })
    }

    /// Has a shard make it stronger, or whatever it is to be if there are no others; nothing if it was stopped.
    async fn convert_on(
        &mut self,
        current: &Current,
        shard: ShardNo,
        whole: &[Resource],
        alone: bool,
    ) -> Result<Option<u64>, Trouble> {
        self.is_begun = true;
        let (lock, owner, left) = (self.wish.lock, self.wish.owner.clone(), self.wait_left());
        let wanted = Convert { lock, owner, whole: written(whole), alone, wait: WireWait(left), waits: true };
        if self.line.borrow().is_none() {
            // Whoever watches wants to know where it stands before it is waited for.
            let order = Order::Convert(Convert { waits: false, ..wanted.clone() });
            match self.ask(current, shard, order, Duration::ZERO).await? {
                Converted::Done { token } => return Ok(Some(token)),
                Converted::Queued(line) => drop(self.line.send_replace(Some(line))),
            }
        }
        let asking = self.ask(current, shard, Order::Convert(wanted), patience_of(left));
        let answer = tokio::select! {
            biased;
            answer = asking => answer?,
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
        if std::mem::take(&mut self.is_begun) {
            self.half_done().take_back().await;
        }
    }

    fn half_done(&self) -> HalfDone {
        let order = Order::Unconvert { lock: self.wish.lock, owner: self.wish.owner.clone() };
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
            let asked: Result<Option<u64>, Trouble> =
                letter::ask(&self.shared, &current, shard, order, Duration::ZERO).await;
            match asked {
                Ok(_) => drop(done.insert(shard)),
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
