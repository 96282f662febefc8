//! How many documents match, whether any does, and the least and greatest value of a field, of all shards together.

use super::{
    super::{Message, Whole},
    Answer,
    ask::{Asker, Stop},
    cut::{Cut, Manner},
    first, is_everywhere, target,
};
use crate::native::{check_access, collection_resource, isolation_in_force, json_of};
use lockwood_model::Scalar;
use lockwood_router::ShardNo;
use lockwood_wire::documents::{
    CountAnswer, CountRequest, ExistsAnswer, ExtremeRequest, Isolation, MaxAnswer, MinAnswer, WireValue,
};
use serde::{Serialize, de::DeserializeOwned};
use std::cmp::Ordering;

/// How many documents match.
pub(super) async fn count(ask: &Asker<'_>, namespace: &str, request: CountRequest, whole: &Whole) -> Answer {
    if is_everywhere(&request.collection) {
        return first(ask, whole).await;
    }
    let asked = (request.isolation, request.at);
    let isolation = isolation_in_force(ask.shared, namespace, [request.collection.as_str()], asked)?;
    let question = Question::about_count((namespace, isolation), "count", &request);
    let (parts, position) = question.ask(ask, |part: &CountAnswer| part.position).await?;
    let count = parts.iter().map(|part| part.count).sum();
    Ok(json_of(&CountAnswer { position, count }))
}

/// Whether any document matches.
pub(super) async fn exists(ask: &Asker<'_>, namespace: &str, request: CountRequest, whole: &Whole) -> Answer {
    if is_everywhere(&request.collection) {
        return first(ask, whole).await;
    }
    let asked = (request.isolation, request.at);
    let isolation = isolation_in_force(ask.shared, namespace, [request.collection.as_str()], asked)?;
    let question = Question::about_count((namespace, isolation), "exists", &request);
    let (parts, position) = question.ask(ask, |part: &ExistsAnswer| part.position).await?;
    let exists = parts.iter().any(|part| part.exists);
    Ok(json_of(&ExistsAnswer { position, exists }))
}

/// The smallest value of a field.
pub(super) async fn min(ask: &Asker<'_>, namespace: &str, request: ExtremeRequest, whole: &Whole) -> Answer {
    if is_everywhere(&request.collection) {
        return first(ask, whole).await;
    }
    let asked = (request.isolation, request.at);
    let isolation = isolation_in_force(ask.shared, namespace, [request.collection.as_str()], asked)?;
    let question = Question::about_extreme((namespace, isolation), "min", &request);
    let (parts, position) = question.ask(ask, |part: &MinAnswer| part.position).await?;
    let min = best(parts.into_iter().map(|part| part.min), Ordering::Less);
    Ok(json_of(&MinAnswer { position, min }))
}

/// The largest value of a field.
pub(super) async fn max(ask: &Asker<'_>, namespace: &str, request: ExtremeRequest, whole: &Whole) -> Answer {
    if is_everywhere(&request.collection) {
        return first(ask, whole).await;
    }
    let asked = (request.isolation, request.at);
    let isolation = isolation_in_force(ask.shared, namespace, [request.collection.as_str()], asked)?;
    let question = Question::about_extreme((namespace, isolation), "max", &request);
    let (parts, position) = question.ask(ask, |part: &MaxAnswer| part.position).await?;
    let max = best(parts.into_iter().map(|part| part.max), Ordering::Greater);
    Ok(json_of(&MaxAnswer { position, max }))
}

/// The value that comes before or after all others; of equal ones that of the first shard.
fn best(values: impl Iterator<Item = Option<WireValue>>, wanted: Ordering) -> Option<WireValue> {
    values.flatten().reduce(|best, value| {
        let order = Scalar::read(value.as_str()).total_order(&Scalar::read(best.as_str()));
        if order == wanted { value } else { best }
    })
}

/// What all shards are asked about a collection.
struct Question<'a, R> {
    namespace: &'a str,
    word: &'static str,
    collection: &'a str,
    at: Option<u64>,
    manner: Manner,
    /// What a shard is asked.
    part: R,
}

impl<'a> Question<'a, ()> {
    fn about_count(
        (namespace, isolation): (&'a str, Isolation),
        word: &'static str,
        request: &'a CountRequest,
    ) -> Question<'a, impl Fn(Option<u64>, Manner) -> CountRequest> {
        let CountRequest { collection, at, tokens, wait_ms, .. } = request;
        let manner = Manner { isolation, tokens: tokens.clone(), wait_ms: *wait_ms };
        let part = |at, Manner { isolation, tokens, wait_ms }| CountRequest {
            at,
            isolation: Some(isolation),
            tokens,
            wait_ms,
            ..request.clone()
        };
        Question { namespace, word, collection, at: *at, manner, part }
    }

    fn about_extreme(
        (namespace, isolation): (&'a str, Isolation),
        word: &'static str,
        request: &'a ExtremeRequest,
    ) -> Question<'a, impl Fn(Option<u64>, Manner) -> ExtremeRequest> {
        let ExtremeRequest { collection, at, tokens, wait_ms, .. } = request;
        let manner = Manner { isolation, tokens: tokens.clone(), wait_ms: *wait_ms };
        let part = |at, Manner { isolation, tokens, wait_ms }| ExtremeRequest {
            at,
            isolation: Some(isolation),
            tokens,
            wait_ms,
            ..request.clone()
        };
        Question { namespace, word, collection, at: *at, manner, part }
    }
}

impl<R: Serialize, F: Fn(Option<u64>, Manner) -> R> Question<'_, F> {
    /// Asks all shards; gives their answers and the position of all of them together.
    async fn ask<T: DeserializeOwned>(
        &self,
        ask: &Asker<'_>,
        position: impl Fn(&T) -> u64,
    ) -> Result<(Vec<T>, u64), Stop> {
        let Question { namespace, word, collection, at, manner, part } = self;
        check_access(ask.shared, manner.isolation, (&manner.tokens, manner.wait_ms), *at)?;
        let shards: Vec<ShardNo> = ask.current.map.shard_numbers().collect();
        let whole = |_| vec![collection_resource(collection)];
        let cut = Cut::begin(ask, namespace, &shards, *at, (manner, whole)).await?;
        let target = target(namespace, word);
        let message = |_| cut.message(Message::json(&target, &part(cut.at, manner.part())));
        let replies = ask.all(message).await?.into_iter();
        let parts: Vec<T> = replies.map(|reply| reply.read()).collect::<Result<_, _>>()?;
        let position = cut.told(parts.iter().map(position));
        cut.end()?;
        Ok((parts, position))
    }
}
