//! How the server is, and waiting until it is as a client wants it. Knows nothing of what is in an index.

use super::{
    Asked, Elasticsearch,
    answer::{self, Answer, Object, Refusal},
    request::{Params, time_ms},
    route::Scope,
    search::SHARDS,
    several::Address,
};
use hyper::StatusCode;
use std::time::Duration;
use tokio::time::Instant;

/// From bad to good.
const STATUSES: [&str; 3] = ["red", "yellow", "green"];
/// The one that answers.
const NODES: u64 = 1;
/// How long is waited without a `timeout`.
const TIMEOUT_MS: u64 = 30_000;
/// How often it is looked whether the server is as it is wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

impl Elasticsearch {
    pub(super) async fn health(&self, scope: &Scope, asked: &Asked) -> Result<Answer, Refusal> {
        if let Some(level) = asked.params.get("level").filter(|level| *level != "cluster") {
            return Err(Refusal::argument(format!("the level [{level}] is not supported; cluster is")));
        }
        let wanted = Wanted::read(&asked.params)?;
        let until = Instant::now() + self.timeout(&asked.params)?;
        loop {
            let address = Address::read(self.limits(), scope, &asked.params)?;
            let indexes = self.look(move |looker| address.find(looker)).await?.indexes.len() as u64;
            let health = Health { status: self.status(), shards: indexes * SHARDS };
            let is_reached = wanted.is_reached(health);
            // What a server that is about to stop has not reached, it will not reach.
            if is_reached || self.0.shared.is_draining() || Instant::now() >= until {
                let code = if is_reached { StatusCode::OK } else { StatusCode::REQUEST_TIMEOUT };
                return Ok(answer::json(code, health.object(!is_reached)));
            }
            tokio::time::sleep_until((Instant::now() + LOOK_INTERVAL).min(until)).await;
        }
    }

    fn timeout(&self, params: &Params) -> Result<Duration, Refusal> {
        let limit = self.limits().wait_ms_max;
        let Some(text) = params.get("timeout") else {
            return Ok(Duration::from_millis(TIMEOUT_MS.min(limit)));
        };
        let ms = time_ms(text).ok_or_else(|| {
            Refusal::argument(format!(
                "failed to parse setting [timeout] with value [{text}] as a time value; write 30s"
            ))
        })?;
        if ms > limit {
            return Err(Refusal::over("wait_ms_max", limit, &format!("the request would wait for {ms} ms")));
        }
        Ok(Duration::from_millis(ms))
    }

    /// As far as it concerns those who want to write.
    pub(super) fn status(&self) -> &'static str {
        let shared = &self.0.shared;
        match () {
            () if shared.is_poisoned() => "red",
            () if shared.is_draining() || !shared.grace.list().is_empty() => "yellow",
            () => "green",
        }
    }
}

/// What a client waits for; the rest is always so, because nothing moves between nodes here.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    status: Option<usize>,
    nodes: Option<(Comparison, u64)>,
    shards: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Exactly,
    AtLeast,
    AtMost,
    Above,
    Below,
}

impl Wanted {
    fn read(params: &Params) -> Result<Wanted, Refusal> {
        let status = params.get("wait_for_status").map(|status| {
            rank(status).ok_or_else(|| Refusal::argument(format!("unknown cluster health status [{status}]")))
        });
        let nodes = params.get("wait_for_nodes").map(|text| {
            nodes(text).ok_or_else(|| {
                Refusal::argument(format!("[wait_for_nodes] is a number, >=N, <=N, >N or <N; found [{text}]"))
            })
        });
        let shards = params.get("wait_for_active_shards").filter(|text| *text != "all").map(|text| {
            text.parse().map_err(|_| {
                Refusal::argument(format!(
                    "cannot parse ActiveShardCount[{text}]; a number or [all] is needed"
                ))
            })
        });
        Ok(Wanted { status: status.transpose()?, nodes: nodes.transpose()?, shards: shards.transpose()? })
    }

    fn is_reached(&self, health: Health) -> bool {
        self.status.is_none_or(|status| rank(health.status) >= Some(status))
            && self.nodes.is_none_or(|(comparison, count)| comparison.holds(NODES, count))
            && self.shards.is_none_or(|shards| health.shards >= shards)
    }
}

fn rank(status: &str) -> Option<usize> {
    STATUSES.iter().position(|known| *known == status)
}

/// A number of nodes as `3`, `>=3` or `ge(3)`.
fn nodes(text: &str) -> Option<(Comparison, u64)> {
    const FORMS: [(&str, &str, Comparison); 4] = [
        (">=", "ge", Comparison::AtLeast),
        ("<=", "le", Comparison::AtMost),
        (">", "gt", Comparison::Above),
        ("<", "lt", Comparison::Below),
    ];
    for (sign, name, comparison) in FORMS {
        let in_brackets = || text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
        if let Some(count) = text.strip_prefix(sign).or_else(in_brackets) {
            return Some((comparison, count.trim().parse().ok()?));
        }
    }
    Some((Comparison::Exactly, text.parse().ok()?))
}

impl Comparison {
    fn holds(self, found: u64, count: u64) -> bool {
        match self {
            Comparison::Exactly => found == count,
            Comparison::AtLeast => found >= count,
            Comparison::AtMost => found <= count,
            Comparison::Above => found > count,
            Comparison::Below => found < count,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Health {
    status: &'static str,
    shards: u64,
}

impl Health {
    fn object(self, timed_out: bool) -> String {
        Object::new()
            .text("cluster_name", "lockwood")
            .text("status", self.status)
            .flag("timed_out", timed_out)
            .number("number_of_nodes", NODES)
            .number("number_of_data_nodes", NODES)
            .number("active_primary_shards", self.shards)
            .number("active_shards", self.shards)
            .number("relocating_shards", 0)
            .number("initializing_shards", 0)
            .number("unassigned_shards", 0)
            .number("delayed_unassigned_shards", 0)
            .number("number_of_pending_tasks", 0)
            .number("number_of_in_flight_fetch", 0)
            .number("task_max_waiting_in_queue_millis", 0)
            .raw("active_shards_percent_as_number", "100.0")
            .done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_an_order() {
        assert!(rank("green") > rank("yellow") && rank("yellow") > rank("red"));
        assert_eq!(rank("blue"), None);
    }

    #[test]
    fn what_is_waited_for() {
        let health = Health { status: "yellow", shards: 5 };
        for (query, expected) in [
            ("", true),
            ("wait_for_status=yellow", true),
            ("wait_for_status=green", false),
            ("wait_for_nodes=1", true),
            ("wait_for_nodes=2", false),
            ("wait_for_nodes=>=1", true),
            ("wait_for_nodes=>=3", false),
            ("wait_for_nodes=ge(3)", false),
            ("wait_for_nodes=<=3", true),
            ("wait_for_nodes=le(1)", true),
            ("wait_for_nodes=>1", false),
            ("wait_for_nodes=gt(0)", true),
            ("wait_for_nodes=<1", false),
            ("wait_for_nodes=lt(2)", true),
            ("wait_for_active_shards=5", true),
            ("wait_for_active_shards=100", false),
            ("wait_for_active_shards=all", true),
            ("wait_for_active_shards=5&wait_for_nodes=9", false),
        ] {
            let wanted = Wanted::read(&Params::read(Some(query)).unwrap()).unwrap();
            assert_eq!(wanted.is_reached(health), expected, "{query}");
        }
        for query in [
            "wait_for_status=blue",
            "wait_for_nodes=x",
            "wait_for_nodes=>=",
            "wait_for_nodes=ge(1",
            "wait_for_nodes=",
            "wait_for_active_shards=some",
            "wait_for_active_shards=-1",
        ] {
            let refused = Wanted::read(&Params::read(Some(query)).unwrap());
            assert_eq!(refused.unwrap_err().status, StatusCode::BAD_REQUEST, "{query}");
        }
    }
}
