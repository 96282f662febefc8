//! What happened on all shards, in one order, and word of it as soon as it happens. Knows nothing of how it is told.
//!
//! Everything up to the lowest position that all shards have behind them is known, and nothing is added to it later.

use super::{
    super::{Message, wrong_epoch_trouble},
    ask::{elsewhere, retryable},
    target,
};
use crate::{cluster::Current, shared::Shared};
use futures_util::future::{join_all, try_join_all};
use lockwood_model::Position;
use lockwood_node::trouble::Trouble;
use lockwood_router::{Phase, ShardNo};
use lockwood_wire::documents::PositionAnswer;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

/// Where a node is asked to say when it is further than a position.
pub(crate) const AWAIT: &str = "/internal/await";
/// So long it waits until it says how far it is all the same.
pub(crate) const AWAIT_PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait before somebody who cannot be asked is asked again, or another map is looked for.
const PAUSE: Duration = Duration::from_millis(100);

/// Which position is to be passed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Await {
    pub(crate) namespace: String,
    pub(crate) after: u64,
}

/// All shards of a map, to be asked from a node that may have one of them.
pub(crate) struct Shards {
    shared: Arc<Shared>,
    current: Arc<Current>,
}

impl Shards {
    /// None if the node answers for all there is.
    pub(crate) fn of(shared: &Arc<Shared>, namespace: &str) -> Result<Option<Shards>, Trouble> {
        if !shared.cluster.has_spread_now(namespace)? {
            return Ok(None);
        }
        let current = shared.cluster.current().ok_or_else(wrong_epoch_trouble)?;
        Ok(Some(Shards { shared: Arc::clone(shared), current }))
    }

    /// The shard of this node, if it has one.
    pub(crate) fn own(&self) -> Option<ShardNo> {
        Some(self.shared.cluster.this()).filter(|_| self.current.is_owner)
    }

    fn others(&self) -> impl Iterator<Item = ShardNo> {
        let own = self.own();
        self.current.map.shard_numbers().filter(move |shard| Some(*shard) != own)
    }

    /// Refused if the map is not in force any more, or nobody answers for what moves.
    pub(crate) fn check(&self) -> Result<(), Trouble> {
        let epoch = self.shared.cluster.current().map(|current| current.map.epoch);
        match epoch == Some(self.current.map.epoch) && self.current.map.phase != Phase::Preparing {
            true => Ok(()),
            false => Err(wrong_epoch_trouble()),
        }
    }

    /// Asks all other shards the same; answers with their numbers.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        namespace: &str,
        question: &str,
        least: u64,
    ) -> Result<Vec<(ShardNo, T)>, Trouble> {
        let message = Message::get(&target(namespace, question)).at_least(least);
        let asked = self.others().map(|shard| {
            let message = &message;
            async move {
                let reply = retryable(elsewhere(&self.shared, shard, message).await?)?;
                match reply.ok() {
                    Some(answer) => Ok((shard, answer)),
                    None => Err(reply.into_trouble()),
                }
            }
        });
        try_join_all(asked).await
    }

    /// Where all shards together are, this node's included; it has that behind it then.
    pub(crate) async fn position(
        &self,
        namespace: &str,
        own: PositionAnswer,
    ) -> Result<PositionAnswer, Trouble> {
        let others: Vec<(ShardNo, PositionAnswer)> = self.ask(namespace, "position", 0).await?;
        let own = self.own().map(|_| own);
        let all = || others.iter().map(|(_, answer)| answer).chain(&own);
        let position = all().map(|answer| answer.position).max().unwrap_or(0);
        let horizon = all().map(|answer| answer.horizon).max().unwrap_or(0);
        if own.is_some() {
            self.shared.shard.raise(Position(position)).await?;
        }
        Ok(PositionAnswer { position, horizon })
    }
}

/// Tells whenever another shard may have something new, for as long as somebody listens.
pub(crate) async fn watch(shared: Arc<Shared>, namespace: String, told: watch::Sender<u64>) {
    loop {
        let Ok(Some(shards)) = Shards::of(&shared, &namespace) else { return };
        let all = shards.others().map(|shard| listen(&shards, shard, &namespace, &told));
        tokio::select! {
            _ = join_all(all) => {}
            () = change(&shards) => {}
        }
        told.send_modify(|times| *times += 1);
        tokio::time::sleep(PAUSE).await;
    }
}

async fn listen(shards: &Shards, shard: ShardNo, namespace: &str, told: &watch::Sender<u64>) {
    let mut after = 0;
    loop {
        let message = Message::json(AWAIT, &Await { namespace: namespace.to_owned(), after });
        let reply = elsewhere(&shards.shared, shard, &message).await;
        match reply.ok().and_then(|reply| reply.ok::<PositionAnswer>()) {
            Some(answer) if answer.position > after => {
                after = answer.position;
                told.send_modify(|times| *times += 1);
            }
            Some(_) => {}
            None => {
                tokio::time::sleep(PAUSE).await;
                told.send_modify(|times| *times += 1);
            }
        }
    }
}

/// Waits until another map is in force.
async fn change(shards: &Shards) {
    let epoch = || shards.shared.cluster.current().map(|current| current.map.epoch);
    while epoch() == Some(shards.current.map.epoch) {
        tokio::time::sleep(PAUSE).await;
    }
}
