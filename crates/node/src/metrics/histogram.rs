//! A latency histogram as Prometheus reads it. Knows nothing of what is measured.

use super::text::Text;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Upper bounds of the buckets, in microseconds: from a tenth of a millisecond, below which only the in-memory part of a
/// request is, to ten minutes, which a queue can take.
const BOUNDS_MICROS: [u64; 20] = [
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    600_000_000,
];

/// How often something took how long. Written by every serving thread, read by `/metrics`; counts are independent of each
/// other, so relaxed atomics suffice.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_MICROS.len() + 1],
    sum_micros: AtomicU64,
}

impl Histogram {
    /// Counts something whose time was measured by the clock of the lock tables, in milliseconds.
    pub(crate) fn observe(&self, millis: u64) {
        self.add(millis.saturating_mul(1000));
    }

    pub(crate) fn observe_duration(&self, duration: Duration) {
        self.add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    /// Counts all that another one has counted.
    pub fn add_all(&self, other: &Histogram) {
        for (bucket, more) in self.buckets.iter().zip(&other.buckets) {
            bucket.fetch_add(more.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.sum_micros.fetch_add(other.sum_micros.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn add(&self, micros: u64) {
        let bucket = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Writes the samples of the family `name`; `labels` is empty or ends with a comma.
    pub(super) fn render(&self, text: &mut Text, name: &str, labels: &str) {
        let mut count = 0;
        for (bound, bucket) in BOUNDS_MICROS.iter().zip(&self.buckets) {
            count += bucket.load(Ordering::Relaxed);
            text.line(format_args!("{name}_bucket{{{labels}le=\"{}\"}} {count}", seconds(*bound)));
        }
        count += self.buckets[BOUNDS_MICROS.len()].load(Ordering::Relaxed);
        text.line(format_args!("{name}_bucket{{{labels}le=\"+Inf\"}} {count}"));
        let sum = seconds(self.sum_micros.load(Ordering::Relaxed));
        match labels.strip_suffix(',') {
            Some(labels) => {
                text.line(format_args!("{name}_sum{{{labels}}} {sum}"));
                text.line(format_args!("{name}_count{{{labels}}} {count}"));
            }
            None => {
                text.line(format_args!("{name}_sum {sum}"));
                text.line(format_args!("{name}_count {count}"));
            }
        }
    }
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(histogram: &Histogram, labels: &str) -> String {
        let mut text = Text::default();
        histogram.render(&mut text, "x_seconds", labels);
        text.into_string()
    }

    #[test]
    fn buckets_are_cumulative() {
        let histogram = Histogram::default();
        for millis in [0, 1, 3, 700_000] {
            histogram.observe(millis);
        }
        histogram.observe_duration(Duration::from_micros(101));
        let text = render(&histogram, "");
        for line in [
            "x_seconds_bucket{le=\"0.0001\"} 1",
            "x_seconds_bucket{le=\"0.00025\"} 2",
            "x_seconds_bucket{le=\"0.001\"} 3",
            "x_seconds_bucket{le=\"0.005\"} 4",
            "x_seconds_bucket{le=\"600\"} 4",
            "x_seconds_bucket{le=\"+Inf\"} 5",
            "x_seconds_sum 700.004101",
            "x_seconds_count 5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn labels_stand_before_the_bound() {
        let histogram = Histogram::default();
        histogram.observe(1);
        let text = render(&histogram, "a=\"b\",");
        assert!(text.contains("x_seconds_bucket{a=\"b\",le=\"+Inf\"} 1\n"), "{text}");
        assert!(text.contains("x_seconds_count{a=\"b\"} 1\n"), "{text}");
    }
}
