//! How far something long is, shown on standard error if somebody looks at it. Knows nothing of what it is.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{io::IsTerminal, time::Duration};

const REDRAW_EVERY: Duration = Duration::from_millis(200);

/// Bytes that have come or gone; of so many, if that is known.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(what: &'static str, len: Option<u64>) -> Progress {
        let template = match len {
            Some(_) => "{prefix} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left{msg}",
            None => "{prefix} {spinner} {bytes}, {bytes_per_sec}{msg}",
        };
        Progress::with(what, len, template)
    }

    /// The same for records of the log.
    pub(crate) fn of_records(what: &'static str, len: u64) -> Progress {
        Progress::with(what, Some(len), "{prefix} {bar:30} {pos} of {len} records, {eta} left")
    }

    /// The same for what goes in steps.
    pub(crate) fn of_steps(what: &'static str) -> Progress {
        Progress::with(what, None, "{prefix} {spinner} {msg}")
    }

    pub(crate) fn say(&self, step: String) {
        self.0.set_message(step);
    }

    fn with(what: &'static str, len: Option<u64>, template: &str) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template(template).expect("the templates are sound");
        let bar = match len {
            Some(len) => ProgressBar::new(len),
            None => ProgressBar::new_spinner(),
        };
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
        bar.set_style(style);
        bar.set_prefix(what);
        bar.enable_steady_tick(REDRAW_EVERY);
        Progress(bar)
    }

    pub(crate) fn add_bytes(&self, len: u64) {
        self.0.inc(len);
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
        self.0.finish_and_clear();
    }
}
