//! Ends of operations that travel with the answer of the request that they belong to: a home that forwarded the request has
//! given their locks back before its client hears of it. That is for speed: each home is told by a call, too. Knows nothing
//! of what the operations did.

use super::{Membership, admittance::Leaving, message::Attempt};
use crate::clustered::ShardCall;
use axum::response::Response;
use futures_util::future::join_all;
use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};
use lockwood_router::ShardNo;
use std::{cell::RefCell, future::Future, time::Duration};

/// How long an answer waits for the home to know of its operations.
const TELL_TIMEOUT: Duration = Duration::from_secs(2);

/// The header of a call that names the shard that makes it.
const FROM: HeaderName = HeaderName::from_static("lockwood-from-shard");
/// The header of its answer with the operations that have left, of those which that shard admitted.
const LEFT: HeaderName = HeaderName::from_static("lockwood-left");

tokio::task_local! {
    /// Operations of the request that this task answers, once they are over, as far as the asking shard is their home.
    static OVER: RefCell<Over>;
}

struct Over {
    home: ShardNo,
    leaving: Vec<Leaving>,
}

/// The shard that makes a call, if it says so.
pub(in crate::clustered) fn is_from(headers: &HeaderMap) -> Option<ShardNo> {
    headers.get(FROM)?.to_str().ok()?.parse().ok().map(ShardNo)
}

/// Answers a call of a shard, and tells with the answer which operations have left.
pub(in crate::clustered) async fn collecting(
    home: Option<ShardNo>,
    answering: impl Future<Output = Response>,
) -> Response {
    let Some(home) = home else { return answering.await };
    let (mut answer, over) = keeping(home, answering).await;
    // What is not durable yet leaves by itself.
    let left: Vec<String> =
        over.into_iter().filter_map(Leaving::now).map(|attempt| attempt.to_string()).collect();
    if !left.is_empty()
        && let Ok(left) = HeaderValue::try_from(left.join(","))
    {
        answer.headers_mut().insert(LEFT, left);
    }
    answer
}

/// Answers a client at another shard than the home: its next request must not meet a lock of this one, so the home is told of
/// operations that have left before the client is answered. A home that is away is not waited for.
pub(crate) async fn telling(home: ShardNo, answering: impl Future<Output = Response>) -> Response {
    let (answer, over) = keeping(home, answering).await;
    let told = join_all(over.into_iter().filter_map(Leaving::told));
    // Those that were not told in time go on being told.
    let _ = tokio::time::timeout(TELL_TIMEOUT, told).await;
    answer
}

/// Answers a request, and gives the operations that have a lock at the home and are over.
async fn keeping(home: ShardNo, answering: impl Future<Output = Response>) -> (Response, Vec<Leaving>) {
    let over = RefCell::new(Over { home, leaving: Vec::new() });
    OVER.scope(over, async {
        let answer = answering.await;
        (answer, OVER.with(|over| std::mem::take(&mut over.borrow_mut().leaving)))
    })
    .await
}

/// Keeps the end of an operation for the answer; gives it back if this task answers no call of its home.
pub(super) fn keep(leaving: Leaving) -> Option<Leaving> {
    let mut leaving = Some(leaving);
    let _ = OVER.try_with(|over| {
        let mut over = over.borrow_mut();
        if leaving.as_ref().is_some_and(|leaving| leaving.home() == Some(over.home)) {
            over.leaving.extend(leaving.take());
        }
    });
    leaving
}

/// The operations that are over so far: another one of the same request must not wait for them.
pub(super) fn over_so_far(home: ShardNo) -> Vec<Leaving> {
    let taken = OVER.try_with(|over| {
        let mut over = over.borrow_mut();
        if over.home == home { std::mem::take(&mut over.leaving) } else { Vec::new() }
    });
    taken.unwrap_or_default()
}

/// Tells the home of the operations of this request that are over so far, and waits for that, but not for long: the request is
/// carried out anew, maybe at another shard.
pub(crate) async fn told_so_far() {
    let over = OVER.try_with(|over| std::mem::take(&mut over.borrow_mut().leaving)).unwrap_or_default();
    let told = join_all(over.into_iter().filter_map(Leaving::told));
    let _ = tokio::time::timeout(TELL_TIMEOUT, told).await;
}

impl Membership {
    /// Says which shard makes a call.
    pub(crate) fn sign(&self, mut call: ShardCall) -> ShardCall {
        call.headers.insert(FROM, self.shard.0.into());
        call
    }

    /// Gives back the locks of operations that have left, by the answer of their shard.
    pub(crate) fn heed(&self, headers: &mut HeaderMap) {
        let Some(left) = headers.remove(LEFT) else { return };
        let attempts = left.to_str().unwrap_or_default().split(',').filter_map(Attempt::parse);
        attempts.for_each(|attempt| self.turns.leave(attempt, true));
    }
}
