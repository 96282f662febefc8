//! Indexes: namespaces with documents or locks in them. Knows nothing of what those are.

use super::{answer::Refusal, lock_document, name::UNTYPED};
use crate::shared::Shared;
use lockwood_model::{Path, Wait};
use lockwood_node::{
    gate::{self, Terms},
    lease,
    trouble::Trouble,
};
use lockwood_storage::Entry;
use std::sync::Arc;

pub(super) fn exists(shared: &Shared, index: &str) -> Result<bool, Refusal> {
    let is_written = shared.shard.read().namespace(index)?.is_some();
    Ok(is_written || !lease::below_path(shared, index, &Path::root()).is_empty())
}

pub(super) fn check_exists(shared: &Shared, index: &str) -> Result<(), Refusal> {
    if exists(shared, index)? { Ok(()) } else { Err(Refusal::no_index(index)) }
}

/// Makes an index, if it is not there.
pub(super) async fn ensure(shared: &Shared, index: &str) -> Result<(), Refusal> {
    let reading = shared.shard.read();
    if reading.namespace(index)?.is_some() {
        return Ok(());
    }
    let limit = shared.config.limits.namespaces_max;
    if reading.state().namespaces()?.len() as u64 >= limit {
        return Err(Trouble::too_many("namespaces_max", limit, "there are too many namespaces").into());
    }
    // Handing out no ids changes nothing, but puts the namespace on record.
    shared.shard.reserve(index, UNTYPED, 0).await?;
    Ok(())
}

/// Releases the locks of an index and throws its documents away.
pub(super) async fn remove(shared: &Arc<Shared>, index: &str) -> Result<(), Refusal> {
    check_exists(shared, index)?;
    // Nobody loses a lock by a request that is refused.
    if let Some(trouble) = lease::others_in(shared, index) {
        return Err(trouble.into());
    }
    lock_document::remove_all(shared, index).await?;
    let entry = Entry::Emptied { namespace: index.into() };
    let terms = Terms::anonymous(Wait::Millis(shared.config.wait_ms));
    Ok(gate::record(shared, index, entry, &terms).await?)
}
