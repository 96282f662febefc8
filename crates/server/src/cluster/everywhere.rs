//! What every shard has for itself: shard 1 decides about it, and the others are given what it decided. Knows nothing
//! of what it is.
//!
//! Every copy has the position that shard 1 gave it, so a newer one is known by that, whoever hands it over.

use super::{Current, Message, ShardNo, pull};
use crate::{shared::Shared, trouble::Trouble};
use lockwood_model::{DocumentKey, Position};
use lockwood_storage::Entry;
use std::sync::Arc;

/// Gives a document to every other shard of a map, in their order. If one of them cannot be reached, those after it
/// do not get it either, and the same is to be done again.
pub(crate) async fn give(
    shared: &Arc<Shared>,
    current: &Current,
    namespace: &str,
    at: &DocumentKey,
) -> Result<(), Trouble> {
    let record = {
        let reading = shared.shard.read();
        let Some((id, _)) = reading.namespace(namespace)? else { return Ok(()) };
        let documents = reading.state().export(id, std::slice::from_ref(at))?;
        let horizon = Position::START;
        Entry::Installed { namespace: namespace.into(), transition: 0, horizon, documents }.encode()
    };
    for shard in current.map.shard_numbers().filter(|shard| *shard != ShardNo(1)) {
        let unreachable = |why: &str| {
            let trouble = pull::unreachable_shard(shard, why);
            Trouble { message: format!("{}; do the same again when it is back", trouble.message), ..trouble }
        };
        let message = Message::post("/internal/procedure", record.clone());
        let answer = shared.cluster.ask(shared, shard, &message).await;
        let answer = answer.map_err(|error| unreachable(&error.to_string()))?;
        if !answer.status().is_success() {
            return Err(unreachable(&String::from_utf8_lossy(answer.body())));
        }
    }
    Ok(())
}
