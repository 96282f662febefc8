//! Whether a shard map has a place for everything that is here, asked before anything begins. Knows nothing of what
//! happens then.

use super::{pace, scripts::Compiled, work};
use crate::shared::Shared;
use lockwood_model::Key;
use lockwood_node::{shard::in_place, trouble::Trouble};
use lockwood_router::{Function, ShardMap};
use lockwood_storage::Order;
use lockwood_wire::Code;
use std::{sync::Arc, time::Instant};

/// So many documents are looked at a time.
const LEN: usize = 1000;

/// Whether a function may have no answer for a key.
pub(super) fn is_due(function: &Function) -> bool {
    matches!(function, Function::Modulo { .. } | Function::Script { .. })
}

/// Refused if a map has no shard for a document of this node.
pub(crate) async fn survey(shared: &Arc<Shared>, map: &ShardMap) -> Result<(), Trouble> {
    let scripts = Compiled::of(map);
    for (namespace, collection) in work::places(shared, None)? {
        let mut after = None;
        loop {
            let started = Instant::now();
            after = in_place(|| look(shared, (map, &scripts), (&namespace, &collection), after.as_ref()))?;
            if after.is_none() {
                break;
            }
            if shared.cluster.load.is_busy() {
                pace::give_way(started.elapsed()).await;
            }
        }
    }
    Ok(())
}

/// Looks at some documents; gives the last of them if there may be more.
fn look(
    shared: &Shared,
    (map, scripts): (&ShardMap, &Compiled),
    (namespace, collection): (&str, &str),
    after: Option<&Key>,
) -> Result<Option<Key>, Trouble> {
    let reading = shared.shard.read();
    let state = reading.state();
    let Some(id) = state.namespace(namespace)? else { return Ok(None) };
    for (place, document) in state.documents(id, collection, after, Order::Forward).enumerate() {
        let (at, _) = document?;
        if let Err(error) = map.route(&at.collection, &at.key, scripts) {
            let message = format!(
                "nothing was changed: {namespace} has a document that the new map has no shard for: {error}. Give a \
                 function that has an answer for it, or remove the document for good first"
            );
            return Err(Trouble::new(Code::NoShard, message));
        }
        if place + 1 == LEN {
            return Ok(Some(at.key));
        }
    }
    Ok(None)
}
