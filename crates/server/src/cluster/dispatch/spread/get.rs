//! Several documents by their keys: each shard is asked for those it owns, and all are put into the order asked for.

use super::{
    super::Message,
    Answer,
    ask::Asker,
    cut::{Cut, Manner},
    target,
};
use crate::{
    cluster::Current,
    native::{Decoder, check_access, get_limits, get_resources, isolation_in_force},
};
use axum::{body::Body, response::IntoResponse};
use hyper::header;
use lockwood_node::{limits::Limits, trouble::Trouble};
use lockwood_router::ShardNo;
use lockwood_wire::documents::{GetRequest, Isolation, Wanted};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// What a shard gives.
#[derive(Deserialize)]
struct Part {
    position: u64,
    documents: Vec<Box<RawValue>>,
}

/// Several documents, in the order asked for.
pub(super) async fn get(ask: &Asker<'_>, namespace: &str, request: GetRequest) -> Answer {
    get_limits(ask.shared, &request)?;
    let collections = request.documents.iter().map(|wanted| wanted.collection.as_str());
    let asked = (request.isolation, request.at);
    let isolation = isolation_in_force(ask.shared, namespace, collections, asked)?;
    check_access(ask.shared, isolation, (&request.tokens, request.wait_ms), request.at)?;
    let places = places(ask, &request.documents)?;
    if isolation == Isolation::Locked && places.len() > 1 {
        check_home(ask, namespace).await?;
    }
    let shards: Vec<ShardNo> = places.keys().copied().collect();
    let manner = Manner { isolation, tokens: request.tokens.clone(), wait_ms: request.wait_ms };
    let part = |shard: ShardNo| {
        let mine = places[&shard].iter().map(|place| request.documents[*place].clone());
        GetRequest { documents: mine.collect(), ..request.clone() }
    };
    let locked = |shard| get_resources(&part(shard));
    let cut = Cut::begin(ask, namespace, &shards, request.at, (&manner, locked)).await?;
    let target = target(namespace, "get");
    let replies = ask.some(&shards, |shard| {
        let Manner { isolation, tokens, wait_ms } = manner.part();
        let part = GetRequest { at: cut.at, isolation: Some(isolation), tokens, wait_ms, ..part(shard) };
        cut.message(Message::json(&target, &part))
    });
    let parts: Vec<Part> = replies.await?.into_iter().map(|reply| reply.read()).collect::<Result<_, _>>()?;
    let position = cut.told(parts.iter().map(|part| part.position));
    cut.end()?;
    Ok(put_together(position, request.documents.len(), places.values().zip(&parts), ask)?)
}

/// Locks over several shards are taken at the home. A request comes to another shard if its node went by an older map, in
/// which that shard had all documents; it comes again, by the present one.
async fn check_home(ask: &Asker<'_>, namespace: &str) -> Result<(), Trouble> {
    match ask.shared.remote_home(namespace).await? {
        None => Ok(()),
        Some(home) => Err(Trouble::unreachable(home, "documents of the request have just moved; try again")),
    }
}

/// The shard that has all documents that are asked for; none if there is none, or several.
pub(in super::super) fn shard_of(current: &Current, limits: &Limits, body: &[u8]) -> Option<ShardNo> {
    let GetRequest { documents, .. } = serde_json::from_slice(body).ok()?;
    let owner = |Wanted { collection, key, .. }: &Wanted| {
        current.owner(&Decoder(limits).document(collection, key).ok()?).ok()
    };
    let first = owner(documents.first()?)?;
    documents.iter().all(|wanted| owner(wanted) == Some(first)).then_some(first)
}

/// Which of the documents each shard has. A shard that has none is asked for nothing, the first one excepted, so that
/// there is somebody to ask.
fn places(ask: &Asker<'_>, documents: &[Wanted]) -> Result<BTreeMap<ShardNo, Vec<usize>>, Trouble> {
    let decoder = Decoder(&ask.shared.config.limits);
    let mut places: BTreeMap<ShardNo, Vec<usize>> = BTreeMap::new();
    for (place, Wanted { collection, key, .. }) in documents.iter().enumerate() {
        let at = decoder.document(collection, key)?;
        places.entry(ask.current.owner(&at)?).or_default().push(place);
    }
    if places.is_empty() {
        places.insert(Asker::first(), Vec::new());
    }
    Ok(places)
}

fn put_together<'a>(
    position: u64,
    len: usize,
    parts: impl Iterator<Item = (&'a Vec<usize>, &'a Part)>,
    ask: &Asker<'_>,
) -> Result<axum::response::Response, Trouble> {
    let mut documents = vec!["null"; len];
    for (places, part) in parts {
        for (place, document) in places.iter().zip(&part.documents) {
            documents[*place] = document.get();
        }
    }
    let body = format!("{{\"position\":{position},\"documents\":[{}]}}", documents.join(","));
    let limit = ask.shared.config.limits.answer_bytes_max;
    if body.len() as u64 > limit {
        let what = "the answer is too large; ask for fewer documents or fields at once";
        return Err(Trouble::over("answer_bytes_max", limit, what));
    }
    Ok(([(header::CONTENT_TYPE, "application/json")], Body::from(body)).into_response())
}
