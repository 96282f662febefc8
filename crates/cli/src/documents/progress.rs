//! How far something long is, shown on standard error if somebody looks at it. Knows nothing of what it is.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{io::IsTerminal, time::Duration};

const REDRAW_EVERY: Duration = Duration::from_millis(200);

/// Bytes that have come or gone; of so many, or about so many, if that is known. What has come is never more than the
/// length of the bar: one that was estimated too short grows, and at the end it is as long as what came.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(what: &'static str, len: Option<u64>) -> Progress {
        let template = match len {
            Some(_) => "{prefix} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left{msg}",
            None => "{prefix} {spinner} {bytes}, {bytes_per_sec}{msg}",
        };
        Progress::with(what, len, template)
    }

    /// The same where the length is an estimate.
    pub(crate) fn about(what: &'static str, len: Option<u64>) -> Progress {
        match len {
            Some(_) => {
                let template = "{prefix} {bar:30} {bytes} of about {total_bytes}, {bytes_per_sec}, about {eta} left{msg}";
                Progress::with(what, len, template)
            }
            None => Progress::new(what, None),
        }
    }

    /// The same for records of the log.
    pub(crate) fn of_records(what: &'static str, len: u64) -> Progress {
        Progress::with(what, Some(len), "{prefix} {bar:30} {pos} of {len} records, {eta} left")
    }

    /// The same for shards.
    pub(crate) fn of_shards(what: &'static str, len: u64) -> Progress {
        Progress::with(what, Some(len), "{prefix} {bar:30} {pos} of {len} shards")
    }

    /// So many are left.
    pub(crate) fn left(&self, left: u64) {
        self.0.set_position(self.0.length().unwrap_or_default().saturating_sub(left));
    }

    /// The same for what goes in steps.
    pub(crate) fn of_steps(what: &'static str) -> Progress {
        Progress::with(what, None, "{prefix} {spinner} {msg}")
    }

    pub(crate) fn say(&self, step: String) {
        self.0.set_message(step);
    }

    fn with(what: &'static str, len: Option<u64>, template: &str) -> Progress {
        let style = ProgressStyle::with_template(template).expect("the templates are sound");
        let bar = match len {
            Some(len) => ProgressBar::new(len),
            None => ProgressBar::new_spinner(),
        };
        bar.set_draw_target(ProgressDrawTarget::hidden());
        bar.set_style(style);
        bar.set_prefix(what);
        if std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
            bar.enable_steady_tick(REDRAW_EVERY);
        }
        Progress(bar)
    }

    pub(crate) fn add_bytes(&self, len: u64) {
        self.0.inc(len);
        if self.0.length().is_some_and(|known| known < self.0.position()) {
            self.0.set_length(self.0.position());
        }
    }

    pub(crate) fn say_lines(&self, lines: u64) {
        if !self.0.is_hidden() {
            self.0.set_message(format!(", {lines} lines"));
        }
    }

    /// A handle for the side that does the work.
    pub(crate) fn share(&self) -> Progress {
        Progress(self.0.clone())
    }

    /// Leaves the line to others.
    pub(crate) fn end(&self) {
        if self.0.length().is_some() {
            self.0.set_length(self.0.position());
        }
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(progress: &Progress, position: u64, len: Option<u64>) {
        assert_eq!((progress.0.position(), progress.0.length()), (position, len));
    }

    #[test]
    fn an_estimate_that_is_too_short_grows_and_one_that_is_too_long_ends_where_it_is() {
        let short = Progress::about("backup", Some(100));
        short.add_bytes(60);
        check(&short, 60, Some(100));
        short.add_bytes(60);
        check(&short, 120, Some(120));
        short.end();
        check(&short, 120, Some(120));
        let long = Progress::about("backup", Some(100));
        long.add_bytes(60);
        long.end();
        check(&long, 60, Some(60));
        assert!(long.0.is_finished());
    }

    #[test]
    fn without_an_estimate_there_is_no_length() {
        let progress = Progress::about("backup", None);
        progress.add_bytes(60);
        check(&progress, 60, None);
        progress.end();
        check(&progress, 60, None);
    }
}
