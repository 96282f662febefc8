//! What a stretch of load came to, and the figures of several that were run in turn. Knows nothing of what
//! the load was.

use crate::figure::Figure;
use std::time::Duration;

/// How often those who are compared take their turn.
pub(crate) const REPETITIONS: usize = 3;

/// One stretch of load. Latencies are in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) rate: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Run {
    /// From the latency of each operation and the time all of them took.
    pub(crate) fn new(mut latencies: Vec<f64>, elapsed: Duration) -> Run {
        assert!(!latencies.is_empty(), "something was done in the time");
        latencies.sort_by(f64::total_cmp);
        let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
        let rate = latencies.len() as f64 / elapsed.as_secs_f64();
        Run { rate, p50: at(0.5), p99: at(0.99), min: latencies[0], max: at(1.0) }
    }

    /// Where one operation did many things.
    pub(crate) fn of_many(self, count: u64) -> Run {
        Run { rate: self.rate * count as f64, ..self }
    }
}

/// One of those who take turns.
pub(crate) struct Contender<'a> {
    name: &'static str,
    aim: Option<&'static str>,
    run: Box<dyn FnMut() -> Run + 'a>,
}

impl<'a> Contender<'a> {
    pub(crate) fn new(name: &'static str, run: impl FnMut() -> Run + 'a) -> Contender<'a> {
        Contender { name, aim: None, run: Box::new(run) }
    }

    /// What its figure is to be.
    pub(crate) fn aim(self, aim: &'static str) -> Contender<'a> {
        Contender { aim: Some(aim), ..self }
    }
}

/// How many operations a second each of them did.
pub(crate) fn rates(title: &str, unit: &'static str, contenders: Vec<Contender>) -> Vec<Figure> {
    let note = |runs: &[Run]| {
        let [p50, min] = [median_of(runs, |run| run.p50), median_of(runs, |run| run.min)];
        format!("p50 {p50:.0} us, min {min:.0} us")
    };
    in_turn(title, contenders, Shown { of: |run| run.rate, unit, note })
}

/// How long an operation of each of them took.
pub(crate) fn latencies(title: &str, contenders: Vec<Contender>) -> Vec<Figure> {
    let note = |runs: &[Run]| {
        let [p99, min] = [median_of(runs, |run| run.p99), median_of(runs, |run| run.min)];
        format!("p99 {p99:.0} us, min {min:.0} us")
    };
    in_turn(title, contenders, Shown { of: |run| run.p50, unit: "us", note })
}

/// What of a run is the figure, and what else is said about all of them.
#[derive(Clone, Copy)]
struct Shown {
    of: fn(&Run) -> f64,
    unit: &'static str,
    note: fn(&[Run]) -> String,
}

/// A figure for each, with how it compares to those that come after it.
fn in_turn(title: &str, mut contenders: Vec<Contender>, shown: Shown) -> Vec<Figure> {
    let mut runs = vec![Vec::new(); contenders.len()];
    for _ in 0..REPETITIONS {
        for (contender, runs) in contenders.iter_mut().zip(&mut runs) {
            runs.push((contender.run)());
        }
    }
    let figure = |index: usize| {
        let own = &runs[index];
        let others = contenders.iter().zip(&runs).skip(index + 1);
        let ratios =
            others.map(|(other, runs)| format!("; x {:.2} of {}", ratio(own, runs, shown.of), other.name));
        let note = (shown.note)(own) + &ratios.collect::<String>();
        let Contender { name, aim, .. } = &contenders[index];
        let figure = Figure::new(format!("{title}: {name}"), median_of(own, shown.of), shown.unit).note(note);
        match aim {
            Some(aim) => figure.aim(aim),
            None => figure,
        }
    };
    (0..contenders.len()).map(figure).collect()
}

/// What is compared was measured at nearly the same moment, as far as that is possible.
fn ratio(own: &[Run], others: &[Run], of: fn(&Run) -> f64) -> f64 {
    median(own.iter().zip(others).map(|(own, other)| of(own) / of(other)))
}

fn median_of(runs: &[Run], of: fn(&Run) -> f64) -> f64 {
    median(runs.iter().map(of))
}

pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
