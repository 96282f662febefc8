//! Ids that nobody else gets, on any shard: the first shard hands them out, above all that any shard has seen.

use super::{super::Message, Answer, Asker};
use axum::response::IntoResponse;
use lockwood_wire::documents::ReserveRequest;
use serde::{Deserialize, Serialize};

/// Where a shard says which ids it has not seen.
pub(crate) const NEXT_ID: &str = "/internal/next-id";
/// Where ids are handed out.
pub(crate) const RESERVE: &str = "/internal/reserve";

/// Which ids are asked about, or wanted.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IdsRequest {
    pub(crate) namespace: String,
    pub(crate) collection: String,
    pub(crate) amount: u64,
    /// None below this one.
    pub(crate) least: u64,
}

/// The first id of a collection that a shard has neither handed out nor seen.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NextId {
    pub(crate) next: u64,
}

/// Hands out ids.
pub(super) async fn reserve(ask: &Asker<'_>, namespace: &str, request: ReserveRequest) -> Answer {
    ask.check_map()?;
    let ReserveRequest { collection, amount } = request;
    let mut wanted = IdsRequest { namespace: namespace.to_owned(), collection, amount, least: 1 };
    for reply in ask.all(|_| Message::json(NEXT_ID, &wanted)).await? {
        let NextId { next } = reply.read()?;
        wanted.least = wanted.least.max(next);
    }
    Ok(ask.tell(Asker::first(), &Message::json(RESERVE, &wanted)).await?.into_response())
}
