//! The two ends of a move: what a donor gives away of a key, and what an owner takes in. Knows nothing of the
//! order in which keys move.

use super::{Admitted, Current};
use crate::{shard::ShardError, shared::Shared, trouble::Trouble};
use lockwood_model::DocumentKey;
use lockwood_storage::Moved;
use std::sync::Arc;

/// Everything this node knows of some keys.
pub(crate) fn export(
    shared: &Shared,
    namespace: &str,
    keys: &[DocumentKey],
) -> Result<Vec<Moved>, ShardError> {
    let reading = shared.shard.read();
    match reading.state().namespace(namespace)? {
        Some(id) => Ok(reading.state().export(id, keys)?),
        None => {
            let nothing = |at: &DocumentKey| Moved {
                at: at.clone(),
                document: None,
                steps: Vec::new(),
                answers: Vec::new(),
            };
            Ok(keys.iter().map(nothing).collect())
        }
    }
}

/// Takes in what is not known here yet; says how many documents that were, once they are durable.
pub(crate) async fn install(
    shared: &Arc<Shared>,
    current: &Current,
    namespace: &str,
    documents: Vec<Moved>,
) -> Result<u64, Trouble> {
    let (installed, index) = install_in_passing(shared, current, namespace, documents)?;
    shared.shard.shown(index).await?;
    Ok(installed)
}

/// The same without waiting until they are durable; whatever is decided about them later waits for that.
pub(super) fn install_in_passing(
    shared: &Shared,
    current: &Current,
    namespace: &str,
    documents: Vec<Moved>,
) -> Result<(u64, u64), Trouble> {
    let _passage = shared.cluster.pass(Admitted(Some(current.map.epoch)))?;
    Ok(shared.shard.install(namespace, current.map.transition, documents)?)
}
