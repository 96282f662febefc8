//! How far a transition is, on standard error: a bar for each shard that gives documents away if somebody looks at
//! it, else a line for each step. Knows nothing of where that comes from.

use super::status::{doing, left};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use lockwood_client::{
    shard_wire::{DonorStatus, TransitionStatus},
    text,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::IsTerminal,
};

pub(super) struct Bars {
    /// None if nobody looks.
    screen: Option<MultiProgress>,
    donors: BTreeMap<u32, ProgressBar>,
    step: String,
    /// What was said already, without how long it has been so.
    said: BTreeSet<String>,
}

impl Bars {
    pub(super) fn new() -> Bars {
        let screen = std::io::stderr().is_terminal().then(MultiProgress::new);
        Bars { screen, donors: BTreeMap::new(), step: String::new(), said: BTreeSet::new() }
    }

    pub(super) fn show(&mut self, status: &TransitionStatus) {
        if self.step != status.step {
            self.step.clone_from(&status.step);
            let back = if status.aborting { " (going back)" } else { "" };
            self.line(&format!("{}: {}{back}", text::plain(&status.step), doing(&status.step)));
        }
        for alert in &status.alerts {
            let known = alert.split(" for ").next().unwrap_or(alert).to_owned() + &status.step;
            if self.said.insert(known) {
                self.line(&format!("alert: {}", text::plain(alert)));
            }
        }
        let Some(screen) = &self.screen else { return };
        for donor in &status.donors {
            let bar = self.donors.entry(donor.shard).or_insert_with(|| screen.add(bar(donor.shard)));
            update(bar, donor, status);
        }
    }

    fn line(&self, line: &str) {
        match &self.screen {
            // Above the bars, whatever they show.
            Some(screen) => drop(screen.println(line)),
            None => eprintln!("{line}"),
        }
    }

    /// Leaves the lines to others.
    pub(super) fn end(&self) {
        self.donors.values().for_each(ProgressBar::finish_and_clear);
    }
}

fn bar(shard: u32) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {bar:30} {pos} of {len} documents{msg}");
    let bar = ProgressBar::new(0).with_style(style.expect("the template is sound"));
    bar.set_prefix(format!("shard {shard}"));
    bar
}

fn update(bar: &ProgressBar, donor: &DonorStatus, status: &TransitionStatus) {
    bar.set_length(donor.total.unwrap_or(donor.copied));
    bar.set_position(donor.copied);
    bar.set_message(message(donor, status));
}

fn message(donor: &DonorStatus, status: &TransitionStatus) -> String {
    let rests = if status.paused { ", resting" } else { "" };
    let what = match () {
        () if donor.cleaned => format!(", {} removed, done", donor.removed),
        () if donor.removed > 0 => format!(", {} removed", donor.removed),
        () if donor.verified => ", verified".to_owned(),
        () if donor.done => ", comparing".to_owned(),
        () => {
            let left = Some(left(donor)).filter(|left| !left.is_empty());
            let left = left.map_or_else(String::new, |left| format!(", {left} left"));
            format!(", {}/s{left}", donor.rate)
        }
    };
    format!("{what}{rests}")
}
