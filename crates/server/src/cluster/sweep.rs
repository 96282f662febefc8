//! Old copies of keys that come to this node in a transition, left from a time when it had them before: they are
//! nobody's, and would be taken for the real ones if nothing comes. They go before donors are done. Knows nothing of
//! how keys come.

use super::{Current, pace, work};
use crate::shared::Shared;
use lockwood_model::{DocumentKey, Key};
use lockwood_node::{shard::in_place, territory::Admitted, trouble::Trouble};
use lockwood_router::{Phase, Route};
use lockwood_storage::Order;
use lockwood_wire::Code;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

/// So many documents are looked at a time.
const LEN: usize = 1000;

/// Some old copies of a collection.
#[derive(Default)]
struct Found {
    keys: Vec<DocumentKey>,
    /// The last document that was looked at; none if the collection is at its end.
    last: Option<Key>,
}

/// Whether a map makes this node look for old copies. On the way back what is here may be what counts, and so it is
/// if owners keep what they have.
fn is_due(current: &Current) -> bool {
    let map = &current.map;
    map.phase == Phase::Resharding && current.is_owner && map.reverses == 0 && !map.keeps
}

/// Refused until there are no old copies here any more.
pub(super) fn check(shared: &Shared, current: &Current) -> Result<(), Trouble> {
    let swept = shared.cluster.swept.load(Ordering::Acquire);
    match is_due(current) && swept != current.map.transition {
        true => {
            let message =
                format!("shard {} still looks for old copies of what comes to it", shared.cluster.this());
            Err(Trouble::new(Code::Resharding, message))
        }
        false => Ok(()),
    }
}

/// Takes old copies away, if a map asks for that.
pub(super) async fn sweep(shared: Arc<Shared>, current: Arc<Current>) {
    if !is_due(&current) {
        return;
    }
    match sweep_all(&shared, &current).await {
        Ok(()) => shared.cluster.swept.store(current.map.transition, Ordering::Release),
        // It begins anew when the node does; until then donors are not done, and say why.
        Err(trouble) => tracing::warn!(why = trouble.message, "old copies could not be taken away"),
    }
}

async fn sweep_all(shared: &Arc<Shared>, current: &Current) -> Result<(), Trouble> {
    for (namespace, collection) in work::places(shared, None)? {
        let mut after = None;
        loop {
            let started = Instant::now();
            let Found { keys, last } =
                in_place(|| find(shared, current, (&namespace, &collection), after.as_ref()))?;
            if !keys.is_empty() {
                tracing::warn!(namespace, collection, len = keys.len(), "old copies are taken away");
                let _passage = shared.pass(Admitted::under(current.map.epoch))?;
                shared.shard.forget_unknown(&namespace, keys, current.map.transition)?;
            }
            after = last;
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

fn find(
    shared: &Shared,
    current: &Current,
    (namespace, collection): (&str, &str),
    after: Option<&Key>,
) -> Result<Found, Trouble> {
    let reading = shared.shard.read();
    let state = reading.state();
    let this = shared.cluster.this();
    let mut found = Found::default();
    let Some(id) = state.namespace(namespace)? else { return Ok(found) };
    for (place, document) in state.documents(id, collection, after, Order::Forward).enumerate() {
        let (at, _) = document?;
        let comes = matches!(current.route(&at)?, Route::Pulled { owner, .. } if owner == this);
        if comes && state.mark(id, &at)? != Some(current.map.transition) {
            found.keys.push(at.clone());
        }
        if place + 1 == LEN {
            found.last = Some(at.key);
            break;
        }
    }
    Ok(found)
}
