//! What the new owner of a key has to know of it before it can decide: it is pulled from the donor, once, and only
//! while nothing is known. Knows nothing of who asks.

use super::{Current, Message, received, transfer};
use crate::shared::Shared;
use bytes::Bytes;
use hyper::Method;
use lockwood_model::DocumentKey;
use lockwood_node::trouble::Trouble;
use lockwood_router::{Route, ShardNo};
use lockwood_storage::Entry;
use lockwood_wire::Code;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How long a donor may take to say what it has.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pulls what is not known here of some keys. Refused if one of them is not this node's to decide about.
pub(super) async fn ensure_known(
    shared: &Arc<Shared>,
    current: &Current,
    namespace: &str,
    keys: &[&DocumentKey],
) -> Result<(), Trouble> {
    let mut wanted: BTreeMap<ShardNo, Vec<DocumentKey>> = BTreeMap::new();
    for at in keys {
        let Some(donor) = route_here(shared, current, at)? else { continue };
        if !shared.shard.is_known(namespace, at, current.map.transition)? {
            wanted.entry(donor).or_default().push(DocumentKey::clone(at));
        }
    }
    for (donor, keys) in wanted {
        let brought = pull(shared, donor, namespace, keys).await?;
        transfer::install_in_passing(shared, current, brought)?;
    }
    Ok(())
}

/// The donor of a key that this node owns, if it has one. Refused if this node does not own it.
pub(super) fn route_here(
    shared: &Shared,
    current: &Current,
    at: &DocumentKey,
) -> Result<Option<ShardNo>, Trouble> {
    let this = shared.cluster.this();
    match current.route(at)? {
        Route::Owner(owner) if owner == this && current.is_owner => Ok(None),
        Route::Pulled { owner, donor } if owner == this && current.is_owner => Ok(Some(donor)),
        _ => Err(elsewhere(at)),
    }
}

/// That another shard has to be asked, or the same one again in a moment.
pub(super) fn elsewhere(at: &DocumentKey) -> Trouble {
    let message = format!("{at} belongs to another shard, or is about to; ask again");
    Trouble::new(Code::WrongEpoch, message)
}

async fn pull(
    shared: &Arc<Shared>,
    donor: ShardNo,
    namespace: &str,
    keys: Vec<DocumentKey>,
) -> Result<Entry, Trouble> {
    let wanted = Entry::Unmarked { namespace: namespace.into(), documents: keys };
    let message = Message {
        method: Method::POST,
        target: "/internal/pull".to_owned(),
        headers: Vec::new(),
        body: Bytes::from(wanted.encode()),
        patience: Some(PATIENCE),
    };
    let answer = shared.cluster.ask(shared, donor, &message).await;
    let answer = answer.map_err(|error| unreachable_shard(donor, &error.to_string()))?;
    if answer.status() != hyper::StatusCode::OK {
        return Err(unreachable_shard(donor, &String::from_utf8_lossy(answer.body())));
    }
    match received::read_entry(answer.body()) {
        Ok(brought @ Entry::Installed { .. }) => Ok(brought),
        Err(trouble) => Err(unreachable_shard(donor, &trouble.message)),
        Ok(_) => Err(unreachable_shard(donor, "it answered something else")),
    }
}

pub(super) fn unreachable_shard(shard: ShardNo, why: &str) -> Trouble {
    Trouble::unreachable(shard, format!("shard {} cannot be asked at the moment: {why}", shard.0))
}
