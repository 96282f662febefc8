//! What Prometheus is told.

use crate::{
    harness::{Server, eventually},
    http,
    leaseholder::Leaseholder,
    peer::{Peer, assert_error},
    store::Store,
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// The text format, read strictly: samples by name and labels.
#[track_caller]
fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut declared: BTreeMap<&str, &str> = BTreeMap::new();
    let mut helped = BTreeSet::new();
    assert!(text.ends_with('\n'), "{text}");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            assert!(helped.insert(rest.split_once(' ').unwrap().0), "twice: {line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(declared.insert(name, kind).is_none(), "twice: {line}");
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let family = name.split('{').next().unwrap();
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| family.strip_suffix(end));
            let base = base.filter(|base| declared.get(base) == Some(&"histogram")).unwrap_or(family);
            assert!(declared.contains_key(base) && helped.contains(base), "undeclared: {line}");
            assert!(samples.insert(name.to_owned(), value.parse().unwrap()).is_none(), "twice: {line}");
        }
    }
    samples
}

/// One sample.
#[track_caller]
pub(crate) fn value(server: &Server, name: &str) -> f64 {
    let samples = read(server);
    *samples.get(name).unwrap_or_else(|| panic!("no {name}"))
}

#[track_caller]
fn read(server: &Server) -> BTreeMap<String, f64> {
    let reply = http::get(server, "/metrics");
    assert_eq!(reply.status, 200);
    assert!(reply.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"), "{reply:?}");
    parse(&reply.body)
}

#[test]
fn metrics_are_prometheus_text_even_with_odd_names() {
    let server = Server::start(&[]);
    let mut ann = Peer::open_with(&server, "a%22b%5C%0A", json!({}));
    ann.hold("write a");
    let samples = read(&server);
    assert_eq!(samples["lockwood_queue_length{namespace=\"a\\\"b\\\\\\n\"}"], 0.0);
}

#[test]
fn histograms_add_up() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    for _ in 0..3 {
        let held = ann.hold("write a");
        ann.release(&held);
    }
    let samples = read(&server);
    assert!(samples.contains_key("lockwood_sync_seconds_bucket{le=\"120\"}"), "buckets reach minutes");
    for name in ["lockwood_wait_seconds", "lockwood_hold_seconds"] {
        assert!(samples.contains_key(&format!("{name}_bucket{{le=\"120\"}}")), "buckets reach minutes");
        let bucket = format!("{name}_bucket{{le=\"");
        let mut buckets: Vec<(f64, f64)> = samples
            .iter()
            .filter_map(|(key, count)| {
                let end = key.strip_prefix(&bucket)?.strip_suffix("\"}")?;
                Some((end.replace("+Inf", "inf").parse().unwrap(), *count))
            })
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.len() > 5 && buckets.is_sorted_by_key(|(_, count)| *count), "{buckets:?}");
        let last = buckets.last().unwrap();
        assert_eq!((last.0, last.1), (f64::INFINITY, samples[&format!("{name}_count")]));
        assert_eq!(last.1, 3.0);
        assert!(samples[&format!("{name}_sum")] >= 0.0);
    }
}

#[test]
fn grants_waits_and_what_is_held_are_counted() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write a");
    bob.queue("write a");
    let samples = read(&server);
    let expected = [
        ("lockwood_grants_total", 1.0),
        ("lockwood_waits_total", 1.0),
        ("lockwood_locks_granted", 1.0),
        ("lockwood_locks_waiting", 1.0),
        ("lockwood_queue_length{namespace=\"default\"}", 1.0),
        ("lockwood_sessions", 2.0),
        ("lockwood_sessions_opened_total", 2.0),
        ("lockwood_namespaces", 1.0),
        ("lockwood_ready", 1.0),
        ("lockwood_hold_seconds_count", 0.0),
    ];
    for (name, count) in expected {
        assert_eq!(samples[name], count, "{name}");
    }
    ann.release(&held);
    bob.granted();
    let samples = read(&server);
    let expected = [
        ("lockwood_grants_total", 2.0),
        ("lockwood_wait_seconds_count", 2.0),
        ("lockwood_hold_seconds_count", 1.0),
        ("lockwood_locks_granted", 1.0),
        ("lockwood_locks_waiting", 0.0),
        ("lockwood_queue_length{namespace=\"default\"}", 0.0),
    ];
    for (name, count) in expected {
        assert_eq!(samples[name], count, "{name}");
    }
}

#[test]
fn refusals_timeouts_and_deadlocks_are_counted() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    ann.hold("write a");
    bob.hold("write b");
    assert_error(&bob.lock("write a", 0), "locked");
    assert_eq!(bob.lock("write a", 10)["type"], "queued");
    assert_error(&bob.next(), "timeout");
    bob.queue("write a");
    assert_error(&ann.lock("write b", "forever"), "deadlock");
    let samples = read(&server);
    for name in ["lockwood_refusals_total", "lockwood_timeouts_total", "lockwood_deadlocks_total"] {
        assert_eq!(samples[name], 1.0, "{name}");
    }
}

#[test]
fn lost_and_found_sessions_are_counted() {
    let server = Server::start(&[]);
    let mut ann = Peer::open_for(&server, "ann", 50);
    let bob = Peer::open(&server, "bob");
    ann.hold("write a");
    drop(ann);
    eventually("it is abandoned", || value(&server, "lockwood_abandoned_total") == 1.0);
    let (again, _) = bob.attach(&server, &json!([]));
    assert_eq!(value(&server, "lockwood_sessions_attached_total"), 1.0);
    assert_eq!(value(&server, "lockwood_sessions"), 1.0);
    again.bye();
    assert_eq!(value(&server, "lockwood_sessions"), 0.0);
    assert_eq!(value(&server, "lockwood_namespaces"), 0.0);
}

#[test]
fn requests_are_timed_by_interface_and_errors_counted_by_code() {
    let server = Server::start(&[]);
    http::get(&server, "/healthz");
    http::get(&server, "/v1/default/documents/user/42");
    let mut ann = Peer::open(&server, "ann");
    let mut bob = Peer::open(&server, "bob");
    ann.hold("write a");
    assert_error(&bob.lock("write a", 0), "locked");
    let samples = read(&server);
    assert!(samples["lockwood_request_seconds_count{interface=\"native\"}"] >= 4.0, "{samples:?}");
    assert!(samples.contains_key("lockwood_request_seconds_bucket{interface=\"native\",le=\"120\"}"));
    assert_eq!(samples["lockwood_request_seconds_count{interface=\"elasticsearch\"}"], 0.0);
    let errors =
        |code: &str| samples[&format!("lockwood_errors_total{{interface=\"native\",code=\"{code}\"}}")];
    assert_eq!((errors("no_document"), errors("locked")), (1.0, 1.0));
}

/// Other interfaces say it in words of their own, and are counted under the same codes.
#[test]
fn refusals_of_every_interface_are_counted_by_code() {
    let flags = [
        ["--elasticsearch", "127.0.0.1:0"],
        ["--openslides", "127.0.0.1:0,127.0.0.1:0"],
        ["--schema-registry", "127.0.0.1:0"],
        ["--wait", "10ms"],
    ]
    .concat();
    let server = Server::start(&flags);
    let mut ann = Peer::open_with(&server, "shop", json!({}));
    ann.hold("write file/1");
    let asked = |address, method: &str, target: &str, body: serde_json::Value| {
        let headers = [("content-type", "application/json")];
        http::send(address, method, target, &headers, body.to_string().as_bytes()).status
    };
    assert_eq!(asked(server.elasticsearch(), "PUT", "/shop/file/1", json!({})), 409);
    let too_large = "x".repeat(2_000_000);
    let schema = json!({ "schemaType": "JSON", "schema": json!({ "x": too_large }).to_string() });
    assert_eq!(asked(server.schema_registry(), "POST", "/subjects/s/versions", schema), 422);
    assert_eq!(asked(server.schema_registry(), "GET", "/subjects/s/versions/1", json!({})), 404);
    let get = "/internal/datastore/reader/get";
    assert_eq!(asked(server.openslides_reader(), "POST", get, json!({ "fqid": "a/1" })), 400);
    let write = "/internal/datastore/writer/write";
    let event = json!({ "type": "delete", "fqid": "a/1" });
    let body = json!({ "user_id": 1, "information": {}, "locked_fields": {}, "events": [event] });
    assert_eq!(asked(server.openslides_writer(), "POST", write, body), 400);
    let unread = json!({ "collection": "a", "amount": 1_000_000_000 });
    assert_eq!(
        asked(server.openslides_writer(), "POST", "/internal/datastore/writer/reserve_ids", unread),
        400
    );
    let samples = read(&server);
    let errors = |interface: &str, code: &str| {
        let name = format!("lockwood_errors_total{{interface=\"{interface}\",code=\"{code}\"}}");
        samples.get(&name).copied()
    };
    for (interface, code) in [
        ("elasticsearch", "timeout"),
        ("schema_registry", "over_limit"),
        ("schema_registry", "no_subject"),
        ("openslides_reader", "no_document"),
        ("openslides_writer", "no_document"),
        ("openslides_writer", "over_limit"),
    ] {
        assert_eq!(errors(interface, code), Some(1.0), "{interface} {code}: {samples:?}");
    }
}

#[test]
fn syncs_leases_disk_memory_and_the_build_are_measured() {
    let server = Server::start(&[]);
    Store::new(&server, "default").create("user", 42, json!({"name": "Ann"}));
    Leaseholder::new(&server, "ann").take("write user/42");
    let samples = read(&server);
    assert_eq!(samples["lockwood_leases"], 1.0);
    assert!(samples["lockwood_sync_seconds_count"] >= 2.0);
    for name in [
        "lockwood_disk_bytes",
        "lockwood_disk_free_bytes",
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_open_fds",
    ] {
        assert!(samples[name] > 0.0, "{name}");
    }
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(samples[&format!("lockwood_build_info{{version=\"{version}\"}}")], 1.0);
}

/// Every metric and label of every query of the dashboard is one that the server has.
#[test]
fn dashboard_queries_only_metrics_that_exist() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    ann.hold("write a");
    http::get(&server, "/v1/default/documents/user/42");
    let mut known: BTreeSet<String> = read(&server).into_keys().collect();
    // Some are there in a grace period only.
    known.extend(read(&server.kill().restart(&[])).into_keys());
    let queries = dashboard_queries();
    assert!(queries.len() > 30, "{queries:?}");
    for query in queries {
        let metrics = words(&query, |word| word.starts_with("lockwood_") || word.starts_with("process_"));
        assert!(!metrics.is_empty(), "{query}");
        for metric in &metrics {
            let found = known.iter().any(|sample| sample.split('{').next() == Some(metric));
            assert!(found, "{metric} of {query:?} is not in /metrics");
        }
        for label in words(&query, |word| ["interface", "code", "namespace", "version", "le"].contains(&word))
        {
            let has =
                |sample: &String| sample.contains(&format!("{label}=\"")) && sample.starts_with(&metrics[0]);
            assert!(known.iter().any(has), "{metrics:?} has no label {label}: {query}");
        }
    }
}

fn dashboard_queries() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/grafana/lockwood.json");
    let dashboard: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

/// The names in a query that `wanted` accepts.
fn words(query: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let split = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    split.filter(|word| wanted(word)).map(str::to_owned).collect()
}
