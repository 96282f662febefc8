//! What shards may have of a lock that is not taken after all: gives it back, also from shards that cannot be asked at the
//! moment, and wherever it goes meanwhile. Knows nothing of why it is not taken.

use super::letter::{self, Order};
use crate::{cluster::Current, lease::HOLD_MS, shared::Shared, trouble::Trouble};
use lockwood_router::{Epoch, Phase, ShardNo};
use lockwood_wire::Code;
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long to wait for the end of a move before something is given back, and how often to look.
const MOVE_PATIENCE: Duration = Duration::from_secs(20);
const MOVE_PAUSE: Duration = Duration::from_millis(50);
/// How often a shard that could not be asked is asked again.
const AWAY_PAUSE: Duration = Duration::from_millis(250);

pub(super) struct Leftover {
    pub(super) shared: Arc<Shared>,
    pub(super) namespace: String,
    /// What they are told.
    pub(super) order: Order,
    pub(super) shards: BTreeSet<ShardNo>,
}

impl Leftover {
    /// Has the shards give it back. Those that cannot be asked are asked later on, and nobody has to wait for that.
    pub(super) async fn give_back(mut self) {
        let started = Instant::now();
        let mut shards = std::mem::take(&mut self.shards);
        let mut epoch = 0;
        // The last first: whoever waits for the earlier parts finds the later ones free.
        while let (Some(current), Some(shard)) = (self.shared.cluster.current(), shards.pop_last()) {
            epoch = current.map.epoch;
            let Err(trouble) = self.give_back_by(&current, shard).await else { continue };
            tracing::debug!(shard = shard.0, why = trouble.message, "give back a part of a lock");
            if trouble.code == Code::WrongEpoch && started.elapsed() < MOVE_PATIENCE {
                // What is in line now may get places elsewhere.
                tokio::time::sleep(MOVE_PAUSE).await;
                shards.insert(shard);
                shards.extend(current.map.shard_numbers());
            } else if is_worth_it(&trouble) {
                self.shards.insert(shard);
            }
        }
        if !self.shards.is_empty() {
            tokio::spawn(self.give_back_later(epoch));
        }
    }

    /// What they have ends by itself after a while, so it is not tried any longer than that.
    async fn give_back_later(mut self, mut epoch: Epoch) {
        let since = Instant::now();
        while !self.shards.is_empty() && since.elapsed() < Duration::from_millis(HOLD_MS) {
            tokio::time::sleep(AWAY_PAUSE).await;
            let Some(current) = self.shared.cluster.current() else { return };
            if current.map.epoch != epoch && current.map.phase != Phase::Preparing {
                // By then they could be asked, and what they had may be elsewhere now.
                epoch = current.map.epoch;
                self.shards = current.map.shard_numbers().collect();
            }
            for shard in std::mem::take(&mut self.shards) {
                if self.give_back_by(&current, shard).await.is_err_and(|trouble| is_worth_it(&trouble)) {
                    self.shards.insert(shard);
                }
            }
        }
    }

    async fn give_back_by(&self, current: &Current, shard: ShardNo) -> Result<(), Trouble> {
        if current.map.phase == Phase::Preparing {
            return Err(Trouble::new(Code::WrongEpoch, "documents are about to move; ask again"));
        }
        let order = (&*self.namespace, self.order.clone());
        letter::ask(&self.shared, current, shard, order, Duration::ZERO).await
    }
}

/// Whether a shard that said this may do it later on.
fn is_worth_it(trouble: &Trouble) -> bool {
    matches!(trouble.code, Code::WrongEpoch | Code::Moving | Code::ShardUnreachable)
}
