//! What shards tell each other between stopping by one map and serving by the next: how far their positions are, and
//! what every shard must have. Knows nothing of who brings it from one to the other.

use super::{received, work::EVERYWHERE};
use crate::{secret::hex, shared::Shared, trouble::Trouble};
use lockwood_model::{DocumentKey, Position};
use lockwood_storage::{Entry, Order, StoreError};
use lockwood_wire::{Code, documents::read_field};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What one node gives.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Handover {
    /// No position above this one was given to a write.
    position: u64,
    /// Documents that every shard has, as records.
    everywhere: Vec<String>,
    /// Indexes that every shard has: namespace, collection, field.
    indexes: Vec<(String, String, String)>,
}

/// What every node takes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Takeover {
    position: u64,
    everywhere: Vec<String>,
    indexes: Vec<(String, String, String)>,
}

impl Takeover {
    /// Of everything that was given, what counts.
    pub(super) fn of<'a>(handovers: impl Iterator<Item = &'a Handover>) -> Takeover {
        let mut takeover = Takeover::default();
        for handover in handovers {
            takeover.position = takeover.position.max(handover.position);
            takeover.everywhere.extend_from_slice(&handover.everywhere);
            takeover.indexes.extend_from_slice(&handover.indexes);
        }
        takeover.everywhere.sort();
        takeover.everywhere.dedup();
        takeover.indexes.sort();
        takeover.indexes.dedup();
        takeover
    }
}

/// What this node gives.
pub(crate) fn give(shared: &Arc<Shared>) -> Result<Handover, Trouble> {
    let reading = shared.shard.read();
    let state = reading.state();
    let mut handover = Handover { position: state.floor()?.0, ..Handover::default() };
    for (name, id) in state.namespaces()? {
        if !shared.cluster.has_spread_now(&name)? {
            continue;
        }
        handover.position = handover.position.max(state.position(id)?.0);
        for (collection, index) in state.all_indexes(id)? {
            handover.indexes.push((name.clone(), collection, index.field.to_string()));
        }
        for collection in EVERYWHERE {
            let found = state.documents(id, collection, None, Order::Forward);
            let keys: Vec<DocumentKey> =
                found.map(|found| Ok(found?.0)).collect::<Result<_, StoreError>>()?;
            if !keys.is_empty() {
                let documents = state.export(id, &keys)?;
                let namespace = name.as_str().into();
                let entry =
                    Entry::Installed { namespace, transition: 0, horizon: Position::START, documents };
                handover.everywhere.push(hex(&entry.encode()));
            }
        }
    }
    Ok(handover)
}

/// Takes over what was given; durable when it answers.
pub(crate) async fn take(shared: &Arc<Shared>, takeover: Takeover) -> Result<(), Trouble> {
    for record in &takeover.everywhere {
        let bad = || Trouble::new(Code::BadBody, "what every shard has is not a record");
        let bytes = crate::secret::unhex(record).ok_or_else(bad)?;
        let Entry::Installed { namespace, documents, .. } = received::read_entry(&bytes)? else {
            return Err(bad());
        };
        let index = shared.shard.install_newer(&namespace, documents)?;
        shared.shard.shown(index).await?;
        shared.schemas.reread(shared, &namespace);
    }
    for (namespace, collection, field) in &takeover.indexes {
        received::check_index(namespace, collection, field)?;
        let field = read_field(field)?;
        shared.shard.declare_index(namespace, (collection, &field), true, u64::MAX).await?;
    }
    if !takeover.indexes.is_empty() {
        shared.shard.fill_indexes().await?;
    }
    shared.shard.raise(Position(takeover.position)).await?;
    Ok(())
}
