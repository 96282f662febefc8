//! Counts and times, and how Prometheus reads them. Knows nothing of what is counted.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
};

/// Upper ends of the buckets, in milliseconds.
const BUCKETS_MS: [u64; 14] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000, 120_000, 600_000];

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How often something took how long.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS_MS.len() + 1],
    sum_ms: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, millis: u64) {
        let bucket = BUCKETS_MS.partition_point(|end| *end < millis);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ms.fetch_add(millis, Ordering::Relaxed);
    }
}

/// Everything counted as it happens.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) grants: Counter,
    pub(crate) waits: Counter,
    pub(crate) refusals: Counter,
    pub(crate) deadlocks: Counter,
    pub(crate) timeouts: Counter,
    pub(crate) abandoned: Counter,
    pub(crate) expired: Counter,
    pub(crate) revoked: Counter,
    pub(crate) sessions_opened: Counter,
    pub(crate) sessions_attached: Counter,
    pub(crate) connections_refused: Counter,
    pub(crate) reads: Counter,
    pub(crate) wait_time: Histogram,
    pub(crate) hold_time: Histogram,
}

/// What is counted when somebody asks.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) connections: u64,
    pub(crate) sessions: u64,
    pub(crate) sessions_connected: usize,
    pub(crate) namespaces: u64,
    pub(crate) locks_granted: u64,
    /// Waiting locks by namespace, the longest queues.
    pub(crate) queues: Vec<(String, u64)>,
    pub(crate) locks_waiting: u64,
    pub(crate) ready: bool,
    pub(crate) feeds: u64,
    /// What the shard counts itself.
    pub(crate) writes: u64,
    pub(crate) events: u64,
    pub(crate) position_refusals: u64,
    pub(crate) batches: u64,
    /// Where namespaces stand.
    pub(crate) positions: Vec<(String, u64)>,
}

/// The content type of [`Metrics::render`].
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Metrics {
    /// The text Prometheus reads.
    pub(crate) fn render(&self, gauges: &Gauges) -> String {
        let mut text = String::with_capacity(8 * 1024);
        let counters = [
            ("lockwood_grants_total", "Locks granted.", &self.grants),
            ("lockwood_waits_total", "Locks that had to queue.", &self.waits),
            ("lockwood_refusals_total", "Locks refused because others were in the way.", &self.refusals),
            ("lockwood_deadlocks_total", "Locks and conversions refused as deadlocks.", &self.deadlocks),
            ("lockwood_timeouts_total", "Locks and conversions whose wait ran out.", &self.timeouts),
            ("lockwood_abandoned_total", "Locks ended because their session stayed away.", &self.abandoned),
            ("lockwood_expired_total", "Leases that ran out.", &self.expired),
            ("lockwood_revoked_total", "Locks ended by an operator.", &self.revoked),
            ("lockwood_sessions_opened_total", "Sessions opened.", &self.sessions_opened),
            ("lockwood_sessions_attached_total", "Sessions taken up again.", &self.sessions_attached),
            ("lockwood_connections_refused_total", "Connections over the limit.", &self.connections_refused),
            ("lockwood_reads_total", "Requests that read documents.", &self.reads),
        ];
        let counted = [
            ("lockwood_writes_total", "Write requests done.", gauges.writes),
            ("lockwood_write_events_total", "Events of write requests done.", gauges.events),
            (
                "lockwood_position_lock_refusals_total",
                "Write calls refused because a position lock did not hold.",
                gauges.position_refusals,
            ),
            ("lockwood_batches_total", "Batches made durable.", gauges.batches),
        ];
        let counters = counters.into_iter().map(|(name, help, counter)| (name, help, counter.get()));
        for (name, help, count) in counters.chain(counted) {
            head(&mut text, name, help, "counter");
            line(&mut text, format_args!("{name} {count}"));
        }
        let plain = [
            ("lockwood_connections", "Open connections.", gauges.connections),
            ("lockwood_sessions", "Sessions, those that are away included.", gauges.sessions),
            ("lockwood_namespaces", "Namespaces in use.", gauges.namespaces),
            ("lockwood_feeds", "Change feeds open now.", gauges.feeds),
            ("lockwood_locks_granted", "Locks held now.", gauges.locks_granted),
            ("lockwood_locks_waiting", "Locks waiting now.", gauges.locks_waiting),
            (
                "lockwood_ready",
                "1 if locks are granted, 0 in a grace period, a drain or after a disk failure.",
                u64::from(gauges.ready),
            ),
        ];
        for (name, help, value) in plain {
            head(&mut text, name, help, "gauge");
            line(&mut text, format_args!("{name} {value}"));
        }
        head(&mut text, "lockwood_queue_length", "Locks waiting now, by namespace.", "gauge");
        for (namespace, length) in &gauges.queues {
            line(
                &mut text,
                format_args!("lockwood_queue_length{{namespace=\"{}\"}} {length}", escape(namespace)),
            );
        }
        head(&mut text, "lockwood_position", "Position of the last write, by namespace.", "gauge");
        for (namespace, position) in &gauges.positions {
            line(
                &mut text,
                format_args!("lockwood_position{{namespace=\"{}\"}} {position}", escape(namespace)),
            );
        }
        histogram(&mut text, "lockwood_wait_seconds", "How long granted locks had waited.", &self.wait_time);
        histogram(&mut text, "lockwood_hold_seconds", "How long ended locks had been held.", &self.hold_time);
        text
    }
}

fn histogram(text: &mut String, name: &str, help: &str, histogram: &Histogram) {
    head(text, name, help, "histogram");
    let mut count = 0;
    for (end, bucket) in BUCKETS_MS.iter().zip(&histogram.buckets) {
        count += bucket.load(Ordering::Relaxed);
        line(text, format_args!("{name}_bucket{{le=\"{}\"}} {count}", *end as f64 / 1000.0));
    }
    count += histogram.buckets[BUCKETS_MS.len()].load(Ordering::Relaxed);
    line(text, format_args!("{name}_bucket{{le=\"+Inf\"}} {count}"));
    line(text, format_args!("{name}_sum {}", histogram.sum_ms.load(Ordering::Relaxed) as f64 / 1000.0));
    line(text, format_args!("{name}_count {count}"));
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    line(text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    writeln!(text, "{content}").expect("a string takes everything");
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_upwards() {
        let metrics = Metrics::default();
        for millis in [0, 1, 3, 700_000] {
            metrics.wait_time.observe(millis);
        }
        let text = metrics.render(&Gauges { queues: vec![("a\"b".into(), 3)], ..Gauges::default() });
        assert!(text.contains("lockwood_wait_seconds_bucket{le=\"0.001\"} 2\n"), "{text}");
        assert!(text.contains("lockwood_wait_seconds_bucket{le=\"0.005\"} 3\n"), "{text}");
        assert!(text.contains("lockwood_wait_seconds_bucket{le=\"600\"} 3\n"), "{text}");
        assert!(text.contains("lockwood_wait_seconds_bucket{le=\"+Inf\"} 4\n"), "{text}");
        assert!(text.contains("lockwood_wait_seconds_sum 700.004\n"), "{text}");
        assert!(text.contains("lockwood_queue_length{namespace=\"a\\\"b\"} 3\n"), "{text}");
    }
}
