//! What shards tell each other between stopping by one map and serving by the next: how far their positions are. Knows
//! nothing of who brings it from one to the other.

use crate::shared::Shared;
use lockwood_model::Position;
use lockwood_node::trouble::Trouble;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What one shard gives.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Handover {
    /// No position above this one was given to a write.
    position: u64,
}

/// What every shard takes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Takeover {
    position: u64,
}

impl Takeover {
    /// Of everything that was given, what counts.
    pub(super) fn of<'a>(handovers: impl Iterator<Item = &'a Handover>) -> Takeover {
        Takeover { position: handovers.map(|handover| handover.position).max().unwrap_or_default() }
    }
}

/// What this shard gives.
pub(crate) fn give(shared: &Arc<Shared>) -> Result<Handover, Trouble> {
    let reading = shared.shard.read();
    let state = reading.state();
    let mut position = state.floor()?.0;
    for (name, id) in state.namespaces()? {
        if shared.cluster.has_spread_now(&name)? {
            position = position.max(state.position(id)?.0);
        }
    }
    Ok(Handover { position })
}

/// Takes over what was given; durable when it answers.
pub(crate) async fn take(shared: &Arc<Shared>, takeover: Takeover) -> Result<(), Trouble> {
    shared.shard.raise(Position(takeover.position)).await?;
    Ok(())
}
