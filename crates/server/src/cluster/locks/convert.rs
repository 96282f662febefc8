//! Gives a lock on a cluster other modes, with the one shard it is on, wherever that is. Gives it up if nobody waits for
//! the answer any more. Knows nothing of protocols.

use super::{
    all, letter,
    letter::{Convert, Converted, Order, WireLine, written},
    parts,
    patience::Patience,
    take::{left_of, patience_of},
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
use lockwood_router::ShardNo;
use lockwood_wire::{Code, WireWait};
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{Notify, watch};

/// How long it is tried to give it up, and how often. Whatever is left ends with the lock, or when the owner's session is
/// taken up again.
const STOP_PATIENCE: Duration = Duration::from_secs(20);
const STOP_PAUSE: Duration = Duration::from_millis(50);

/// What is wanted of a lock that is held.
pub(crate) struct Wish {
    pub(crate) lock: u64,
    pub(crate) owner: String,
    /// Which connection of the owner wants it; once another one speaks for the owner it is over.
    pub(crate) seat: u64,
    pub(crate) change: Change,
    pub(crate) wait: Wait,
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
        line: watch::Sender::default(),
        stop: Arc::new(Notify::new()),
        is_begun: false,
        stopped_at: None,
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
    /// Whether it may stand in line somewhere.
    is_begun: bool,
    /// Once somebody has stopped it: the token that the lock had then.
    stopped_at: Option<u64>,
}

impl Converting {
    async fn run(mut self) -> Result<Ended, Trouble> {
        let mut patience = Patience::waiting(self.wish.wait);
        loop {
            let trouble = match self.attempt().await {
                Ok(ended) => {
                    self.is_begun = false;
                    return Ok(ended);
                }
                Err(trouble) => trouble,
            };
            if let Err(trouble) = patience.endure(trouble).await {
                self.give_up().await;
                return Err(trouble);
            }
        }
    }

    async fn attempt(&mut self) -> Result<Ended, Trouble> {
        if let Some(before) = self.stopped_at {
            return self.stopped(before).await;
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
        let [shard] = shards[..] else { return Err(spans_shards(lock)) };
        match self.convert_on(&current, shard, &whole).await? {
            Some(token) => Ok(Ended::Converted(token)),
            None => {
                let before = *self.stopped_at.insert(info.token.unwrap_or(0));
                self.stopped(before).await
            }
        }
    }

    /// Has a shard convert it; nothing if it was stopped.
    async fn convert_on(
        &mut self,
        current: &Current,
        shard: ShardNo,
        whole: &[Resource],
    ) -> Result<Option<u64>, Trouble> {
        self.is_begun = true;
        let Wish { lock, seat, .. } = self.wish;
        let (owner, left) = (self.wish.owner.clone(), left_of(self.wish.wait, self.started));
        let wanted = Convert { lock, owner, seat, whole: written(whole), wait: WireWait(left), waits: true };
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
        self.give_up().await;
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

    async fn give_up(&mut self) {
        if self.is_begun {
            self.leftover().give_up().await;
        }
        self.is_begun = false;
    }

    fn leftover(&self) -> Leftover {
        let Wish { lock, owner, seat, .. } = &self.wish;
        let order = Order::Unconvert { lock: *lock, owner: owner.clone(), seat: *seat };
        Leftover { shared: Arc::clone(&self.shared), namespace: self.namespace.clone(), order }
    }
}

impl Drop for Converting {
    fn drop(&mut self) {
        if self.is_begun {
            tokio::spawn(self.leftover().give_up());
        }
    }
}

fn spans_shards(lock: u64) -> Trouble {
    let message = format!(
        "lock {lock} is on several shards, and such a lock cannot be converted; take another one for what is wanted, \
         which the session's own locks are not in the way of, and release this one"
    );
    Trouble::new(Code::SpansShards, message)
}

/// A conversion that comes to nothing and may stand in line still.
struct Leftover {
    shared: Arc<Shared>,
    namespace: String,
    order: Order,
}

impl Leftover {
    async fn give_up(self) {
        let started = Instant::now();
        let mut done = BTreeSet::new();
        while let Some(current) = self.shared.cluster.current() {
            let Some(shard) = current.map.shard_numbers().find(|shard| !done.contains(shard)) else { return };
            let order = (&*self.namespace, self.order.clone());
            match letter::ask(&self.shared, &current, shard, order, Duration::ZERO).await {
                Ok(()) => drop(done.insert(shard)),
                // Whoever took over has seen to it.
                Err(trouble) if trouble.code == Code::Replaced => return,
                Err(trouble) if started.elapsed() < STOP_PATIENCE => {
                    tracing::debug!(shard = shard.0, why = trouble.message, "give up a conversion");
                    // What was there may be elsewhere by another map.
                    done.clear();
                    tokio::time::sleep(STOP_PAUSE).await;
                }
                Err(trouble) => {
                    tracing::warn!(shard = shard.0, why = trouble.message, "give up a conversion");
                    return;
                }
            }
        }
    }
}
