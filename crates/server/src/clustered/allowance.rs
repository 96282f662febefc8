//! How long a shard may take for the head of an answer: as long as the request itself may wait for locks and work. It is the
//! last resort, because the owner keeps to both by itself, and one that is silent or replaced is not waited for. Knows nothing
//! of what is asked for.

use crate::config::Config;
use hyper::http::request::Parts;
use lockwood_node::{limits::Limits, metrics::Interface};
use serde::Deserialize;
use std::time::Duration;

/// For other shards that are asked on the way, for their takeovers, and for the database.
const MARGIN: Duration = Duration::from_secs(60);

/// What a request says about its wait, in its body or in its query.
#[derive(Debug, Default, Deserialize)]
struct Waits {
    wait_ms: Option<u64>,
    poll_ms: Option<u64>,
}

/// That of a request which waits for no lock.
pub(crate) fn of_work(limits: &Limits) -> Duration {
    Duration::from_millis(limits.work_ms_max).saturating_add(MARGIN)
}

/// That of a request of a client.
pub(crate) fn of_request(config: &Config, interface: Interface, parts: &Parts, body: &[u8]) -> Duration {
    let limit = config.limits.wait_ms_max;
    let wait_ms = match interface == Interface::Native && is_bounded(parts.uri.path()) {
        true => named(parts, body).unwrap_or(config.wait_ms).min(limit),
        false => limit,
    };
    of_work(&config.limits).saturating_add(Duration::from_millis(wait_ms))
}

/// Whether a request ends by itself soon after its wait. One that copies, builds or removes much takes as long as it takes.
fn is_bounded(path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    matches!(
        segments[..],
        [
            "v1",
            _,
            "documents"
                | "history"
                | "restore"
                | "write"
                | "get"
                | "filter"
                | "count"
                | "exists"
                | "min"
                | "max"
                | "join"
                | "locks",
            ..
        ] | ["v1", _, "shard", "select" | "eselect" | "insert" | "replace" | "delete" | "update" | "call"]
    )
}

/// The wait that a request names.
fn named(parts: &Parts, body: &[u8]) -> Option<u64> {
    let mut pairs = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
    let by_query = pairs.find(|(name, _)| name == "wait_ms" || name == "poll_ms");
    if let Some((_, value)) = by_query {
        return value.parse().ok();
    }
    // Few bodies name one, and large ones are not read twice for nothing.
    let text = std::str::from_utf8(body).ok().filter(|text| text.contains("wait_ms"))?;
    let Waits { wait_ms, poll_ms } = serde_json::from_str(text).unwrap_or_default();
    wait_ms.or(poll_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    /// Beside what any request may take.
    #[track_caller]
    fn check(interface: Interface, target: &str, body: &str, expected_ms: u64) {
        let config = Config { wait_ms: 1_000, ..Config::new("data".into()) };
        let (parts, ()) = Request::builder().uri(target).body(()).unwrap().into_parts();
        let allowed = of_request(&config, interface, &parts, body.as_bytes());
        let found = allowed - of_work(&config.limits);
        assert_eq!(found, Duration::from_millis(expected_ms), "{target} {body}");
    }

    #[test]
    fn a_request_may_take_as_long_as_it_waits_itself() {
        let native =
            |target: &str, body: &str, expected_ms| check(Interface::Native, target, body, expected_ms);
        native("/v1/shop/documents/user/1?wait_ms=0", "{}", 0);
        native("/v1/shop/documents/user/1?token=7&wait_ms=600000", "{}", 600_000);
        native("/v1/shop/documents/user/1", r#"{"wait_ms":"a field of a document"}"#, 1_000);
        native("/v1/shop/write", r#"{"events":[],"wait_ms":600000}"#, 600_000);
        native("/v1/shop/shard/update", r#"{"collection":"user","key":1,"wait_ms":5}"#, 5);
        native("/v1/shop/locks", r#"{"owner":"ann","wait_ms":60000,"poll_ms":10}"#, 60_000);
        native("/v1/shop/locks/7?poll_ms=30000", "", 30_000);
        native("/v1/shop/count", "{", 1_000);
        // Nothing waits for longer than that.
        let limit = Limits::default().wait_ms_max;
        native("/v1/shop/write", &format!(r#"{{"wait_ms":{}}}"#, u64::MAX), limit);
    }

    #[test]
    fn what_takes_as_long_as_it_takes_is_given_the_longest_wait() {
        let limit = Limits::default().wait_ms_max;
        for target in ["/v1/shop/shard/copy", "/v1/shop/load", "/v1/shop/indexes/user/a", "/v1/trim"] {
            check(Interface::Native, target, "", limit);
        }
        check(Interface::Elasticsearch, "/_cluster/health?timeout=50m", "", limit);
    }
}
