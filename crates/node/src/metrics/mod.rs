//! Counts and times, and how Prometheus reads them. Knows nothing of what is counted.

mod histogram;
mod process;
mod requests;
mod text;

pub use histogram::Histogram;
pub(crate) use process::disk_bytes;
pub use process::{Process, resident_bytes};
pub use requests::{Interface, Requests};

use lockwood_wire::GraceInfo;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use text::Text;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the count.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everything counted as it happens.
#[derive(Debug, Default)]
pub struct Metrics {
    pub(crate) grants: Counter,
    /// Locks that had to queue.
    pub waits: Counter,
    /// Locks refused because of blockers.
    pub refusals: Counter,
    pub(crate) deadlocks: Counter,
    pub(crate) timeouts: Counter,
    pub(crate) abandoned: Counter,
    pub(crate) expired: Counter,
    pub(crate) revoked: Counter,
    pub(crate) sessions_opened: Counter,
    /// Sessions taken up again.
    pub sessions_attached: Counter,
    /// Connections over the limit.
    pub connections_refused: Counter,
    /// Requests that read documents.
    pub reads: Counter,
    pub(crate) wait_time: Histogram,
    pub(crate) hold_time: Histogram,
    /// Requests of all interfaces.
    pub requests: Requests,
}

/// What is counted when somebody asks.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Open connections of the process.
    pub connections: u64,
    /// Sessions, those that are away included.
    pub sessions: u64,
    /// Sessions with a connection.
    pub sessions_connected: usize,
    /// Namespaces in use.
    pub namespaces: u64,
    /// Locks held.
    pub locks_granted: u64,
    /// Waiting locks by namespace, the longest queues.
    pub queues: Vec<(String, u64)>,
    /// Locks waiting.
    pub locks_waiting: u64,
    /// Whether locks are granted.
    pub ready: bool,
    /// Change feeds open.
    pub feeds: u64,
    /// What unfinished requests and unread answers hold.
    pub held_bytes: u64,
    /// Requests refused because too much memory was held.
    pub held_refusals: u64,
    /// What the shard counts itself.
    pub writes: u64,
    /// Events of write requests.
    pub events: u64,
    /// Write calls refused because a position lock did not hold.
    pub position_refusals: u64,
    /// Batches made durable.
    pub batches: u64,
    /// Leases held.
    pub leases: u64,
    /// What the operating system says of the process.
    pub process: Process,
    /// Namespaces that grant nothing yet.
    pub grace: Vec<GraceInfo>,
    /// How many milliseconds namespaces would grant nothing after a crash.
    pub covers: Vec<(Arc<str>, u64)>,
    /// Where namespaces stand.
    pub positions: Vec<(String, u64)>,
    /// Calls to other nodes of the cluster, by what they were about; none on a single server.
    pub peer_calls: Vec<(&'static str, u64)>,
}

/// The content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Metrics {
    /// The text Prometheus reads.
    pub fn render(&self, gauges: &Gauges, sync_time: &Histogram) -> String {
        let mut text = Text::default();
        text.by_label(
            ("lockwood_build_info", "The version that runs; always 1.", "gauge"),
            "version",
            [(env!("CARGO_PKG_VERSION"), 1)],
        );
        self.render_counters(&mut text, gauges);
        gauges.render(&mut text);
        self.requests.render(&mut text);
        let histograms = [
            ("lockwood_wait_seconds", "How long granted locks had waited in the queue.", &self.wait_time),
            ("lockwood_hold_seconds", "How long ended locks had been held.", &self.hold_time),
            ("lockwood_sync_seconds", "How long batches took to become durable.", sync_time),
        ];
        for (name, help, histogram) in histograms {
            text.head(name, help, "histogram");
            histogram.render(&mut text, name, "");
        }
        text.into_string()
    }

    fn render_counters(&self, text: &mut Text, gauges: &Gauges) {
        let counters = [
            ("lockwood_grants_total", "Locks granted.", self.grants.get()),
            ("lockwood_waits_total", "Locks that had to queue.", self.waits.get()),
            ("lockwood_refusals_total", "Locks refused because of blockers.", self.refusals.get()),
            ("lockwood_deadlocks_total", "Locks and conversions refused as deadlocks.", self.deadlocks.get()),
            ("lockwood_timeouts_total", "Locks and conversions whose wait ran out.", self.timeouts.get()),
            (
                "lockwood_abandoned_total",
                "Locks ended because their session stayed away.",
                self.abandoned.get(),
            ),
            ("lockwood_expired_total", "Leases that expired.", self.expired.get()),
            ("lockwood_revoked_total", "Locks ended by an operator.", self.revoked.get()),
            ("lockwood_sessions_opened_total", "Sessions opened.", self.sessions_opened.get()),
            ("lockwood_sessions_attached_total", "Sessions attached again.", self.sessions_attached.get()),
            (
                "lockwood_connections_refused_total",
                "Connections over the limit.",
                self.connections_refused.get(),
            ),
            ("lockwood_reads_total", "Requests that read documents.", self.reads.get()),
            ("lockwood_writes_total", "Write requests done.", gauges.writes),
            ("lockwood_write_events_total", "Events of write requests done.", gauges.events),
            (
                "lockwood_position_lock_refusals_total",
                "Write calls refused because a position lock did not hold.",
                gauges.position_refusals,
            ),
            ("lockwood_batches_total", "Batches made durable.", gauges.batches),
            (
                "lockwood_held_refusals_total",
                "Requests refused because unfinished requests and unread answers held too much memory.",
                gauges.held_refusals,
            ),
        ];
        for (name, help, count) in counters {
            text.single(name, help, "counter", count);
        }
    }
}

impl Gauges {
    /// Counts what another shard of the process has. What belongs to the process is counted once, by the caller.
    pub fn add(&mut self, mut other: Gauges) {
        for (sum, more) in [
            (&mut self.sessions, other.sessions),
            (&mut self.namespaces, other.namespaces),
            (&mut self.locks_granted, other.locks_granted),
            (&mut self.locks_waiting, other.locks_waiting),
            (&mut self.feeds, other.feeds),
            (&mut self.writes, other.writes),
            (&mut self.events, other.events),
            (&mut self.position_refusals, other.position_refusals),
            (&mut self.batches, other.batches),
            (&mut self.leases, other.leases),
        ] {
            *sum += more;
        }
        self.sessions_connected += other.sessions_connected;
        self.queues.append(&mut other.queues);
        self.grace.append(&mut other.grace);
        self.covers.append(&mut other.covers);
        self.positions.append(&mut other.positions);
    }

    fn render(&self, text: &mut Text) {
        let plain = [
            ("lockwood_connections", "Open connections.", self.connections),
            ("lockwood_sessions", "Sessions, those that are away included.", self.sessions),
            ("lockwood_namespaces", "Namespaces in use.", self.namespaces),
            ("lockwood_feeds", "Change feeds open now.", self.feeds),
            (
                "lockwood_held_bytes",
                "Memory held by unfinished requests and unread answers.",
                self.held_bytes,
            ),
            ("lockwood_locks_granted", "Locks held now.", self.locks_granted),
            ("lockwood_locks_waiting", "Locks waiting now.", self.locks_waiting),
            ("lockwood_leases", "Leases held now.", self.leases),
            (
                "lockwood_ready",
                "1 if locks are granted, 0 in a drain, after a disk failure or in a grace period of all namespaces.",
                u64::from(self.ready),
            ),
        ];
        for (name, help, value) in plain {
            text.single(name, help, "gauge", value);
        }
        let queues = self.queues.iter().map(|(namespace, length)| (namespace.as_str(), *length));
        let family = ("lockwood_queue_length", "Locks waiting now, by namespace.", "gauge");
        text.by_label(family, "namespace", queues);
        let positions = self.positions.iter().map(|(namespace, position)| (namespace.as_str(), *position));
        let family = ("lockwood_position", "Position of the last write, by namespace.", "gauge");
        text.by_label(family, "namespace", positions);
        if !self.peer_calls.is_empty() {
            let help = "Calls that this node made to others, by what they were about.";
            let family = ("lockwood_peer_calls_total", help, "counter");
            text.by_label(family, "kind", self.peer_calls.iter().copied());
        }
        self.render_grace(text);
        self.process.render(text);
    }

    fn render_grace(&self, text: &mut Text) {
        let seconds = |millis: u64| millis as f64 / 1000.0;
        let left = self
            .grace
            .iter()
            .map(|GraceInfo { namespace, left_ms }| (namespace.as_deref().unwrap_or("*"), seconds(*left_ms)));
        let help =
            "How long a namespace still grants nothing after an unclean stop; * is for all without a sample.";
        text.by_label(("lockwood_grace_seconds", help, "gauge"), "namespace", left);
        let covers = self.covers.iter().map(|(namespace, cover_ms)| (&**namespace, seconds(*cover_ms)));
        let help = "How long a namespace would grant nothing if the server died now.";
        text.by_label(("lockwood_grace_cover_seconds", help, "gauge"), "namespace", covers);
    }
}
