//! One moment of all shards: a position that each of them has behind it, and, for those who want it, locks on all of
//! them. Knows nothing of what is read at that moment. Why one number is enough:
//! `docs/decisions/2026-11-15-positions-over-shards.md`.

use super::{
    super::Message,
    ask::{Asker, Stop},
    hold,
};
use lockwood_model::Resource;
use lockwood_node::gate::Turn;
use lockwood_router::ShardNo;
use lockwood_wire::documents::{Isolation, PositionAnswer};

/// How a read stands to the locks of others.
#[derive(Debug, Clone)]
pub(super) struct Manner {
    pub(super) isolation: Isolation,
    pub(super) tokens: Vec<u64>,
    pub(super) wait_ms: Option<u64>,
}

impl Manner {
    /// The same for what one shard is asked. Who waits for a whole collection has done so when it is asked; who
    /// waits for single documents does it there.
    pub(super) fn part(&self) -> Manner {
        match self.isolation {
            Isolation::Locked => Manner { isolation: Isolation::Snapshot, tokens: Vec::new(), wait_ms: None },
            Isolation::Snapshot | Isolation::Document => self.clone(),
        }
    }
}

/// A moment of some shards.
pub(super) struct Cut<'a> {
    ask: &'a Asker<'a>,
    /// All of them have this position behind them.
    least: u64,
    /// The position asked about, if it is in the past.
    pub(super) at: Option<u64>,
    /// The locks on all of them.
    _turn: Option<Turn>,
}

impl<'a> Cut<'a> {
    /// A moment at which nobody else's lock is in the way, if that matters.
    pub(super) async fn begin(
        ask: &'a Asker<'a>,
        namespace: &str,
        shards: &[ShardNo],
        at: Option<u64>,
        (manner, resources): (&Manner, impl Fn(ShardNo) -> Vec<Resource>),
    ) -> Result<Cut<'a>, Stop> {
        ask.check_map()?;
        let turn = match manner.isolation {
            Isolation::Locked => hold::take(ask, namespace, shards, manner, resources).await?,
            Isolation::Snapshot | Isolation::Document => None,
        };
        let position = position(ask, namespace, shards).await?.position;
        // Whoever asks about what is yet to come is told what is.
        let at = at.filter(|at| *at < position);
        Ok(Cut { ask, least: at.unwrap_or(position), at, _turn: turn })
    }

    /// The same at a position that nothing is written to any more, so that several questions are about one moment.
    pub(super) fn fixed(mut self) -> Cut<'a> {
        self.at = Some(self.least);
        self
    }

    /// What to send to a shard so that its answer is of this moment.
    pub(super) fn message(&self, message: Message) -> Message {
        message.at_least(self.least)
    }

    /// The position of an answer that was put together from answers of these positions.
    pub(super) fn told(&self, positions: impl Iterator<Item = u64>) -> u64 {
        self.at.unwrap_or_else(|| positions.min().unwrap_or(self.least))
    }

    /// Gives the locks back; refused if another map is in force.
    pub(super) fn end(self) -> Result<(), Stop> {
        Ok(self.ask.check_map()?)
    }
}

/// The position of all shards together, and how far back all of them know what happened.
pub(super) async fn position(
    ask: &Asker<'_>,
    namespace: &str,
    shards: &[ShardNo],
) -> Result<PositionAnswer, Stop> {
    let target = super::target(namespace, "position");
    let mut together = PositionAnswer { position: 0, horizon: 0 };
    for reply in ask.some(shards, |_| Message::get(&target)).await? {
        let PositionAnswer { position, horizon } = reply.read()?;
        together.position = together.position.max(position);
        together.horizon = together.horizon.max(horizon);
    }
    Ok(together)
}
