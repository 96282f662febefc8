//! How far a transition is, as text. Knows nothing of where that comes from.

use crate::output::Table;
use lockwood_client::{
    shard_wire::{DonorStatus, TransitionStatus},
    text,
};

/// What is done in a step.
pub(super) fn doing(step: &str) -> &str {
    match step {
        "prepare" => "the old shards stop serving what moves",
        "import" => "locks and numbers are handed over",
        "activate" => "the new shards begin",
        "copy" => "documents are copied and compared",
        "finish" => "the old places are given up",
        "clean" => "what has moved is removed from where it was",
        "settle" => "the new map is settled",
        other => other,
    }
}

/// ```text
/// copy: documents are copied and compared; epoch 9, at most 500/s
/// shard  copied  of    rate/s  left  verified  removed
/// 1      1000    2000  498     2.0s  no        0
/// ```
pub(super) fn show(status: &TransitionStatus) -> String {
    let epoch = &status.map["epoch"];
    if status.step == "none" {
        return match epoch.is_null() {
            true => "there is no map yet; see `lockwood shard config --help`\n".to_owned(),
            false => format!("nothing is under way; epoch {epoch}\n"),
        };
    }
    let step = text::plain(&status.step);
    let mut out = format!("{step}: {}; epoch {epoch}", doing(&step));
    let notes = [
        (status.aborting, "going back to the old map".to_owned()),
        (status.paused, "resting".to_owned()),
        (status.forced, "prev was given up by force".to_owned()),
    ];
    notes.iter().filter(|(holds, _)| *holds).for_each(|(_, note)| out += &format!(", {note}"));
    if let Some(rate) = status.throttle {
        out += &format!(", at most {rate}/s");
    }
    out.push('\n');
    let header = ["shard", "copied", "of", "rate/s", "left", "verified", "removed"].map(str::to_owned);
    let rows: Vec<Vec<String>> = status.donors.iter().map(row).collect();
    out += &Table::default().render(&header, &rows);
    for wait in &status.waits {
        let why = wait.error.as_ref().map_or_else(String::new, |why| format!(": {}", text::plain(why)));
        out += &format!("waits for {}{why}\n", text::plain(&wait.whom));
    }
    status.alerts.iter().for_each(|alert| out += &format!("alert: {}\n", text::plain(alert)));
    out
}

fn row(donor: &DonorStatus) -> Vec<String> {
    let word = |holds: bool| if holds { "yes" } else { "no" }.to_owned();
    vec![
        donor.shard.to_string(),
        donor.copied.to_string(),
        donor.total.map_or_else(String::new, |total| total.to_string()),
        donor.rate.to_string(),
        left(donor),
        word(donor.verified),
        donor.removed.to_string(),
    ]
}

/// How long a donor will take, if that can be told.
pub(super) fn left(donor: &DonorStatus) -> String {
    donor.left_ms.filter(|_| !donor.done).map_or_else(String::new, text::span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_client::shard_wire::WaitStatus;
    use serde_json::json;

    #[test]
    fn a_transition_is_shown_as_a_table() {
        let donor = DonorStatus {
            shard: 1,
            copied: 1000,
            total: Some(2000),
            done: false,
            verified: false,
            removed: 0,
            cleaned: false,
            round: 0,
            rate: 498.0,
            left_ms: Some(2008),
        };
        let wait = WaitStatus { whom: "shard 1".into(), error: Some("no\x07 answer".into()) };
        let status = TransitionStatus {
            map: json!({ "epoch": 9 }),
            step: "copy".into(),
            last: Some(9),
            paused: true,
            throttle: Some(500),
            aborting: false,
            forced: false,
            donors: vec![donor],
            waits: vec![wait],
            alerts: vec!["Copy waits for shard 1 for 12 s: no answer".into()],
        };
        assert_eq!(
            show(&status),
            "copy: documents are copied and compared; epoch 9, resting, at most 500/s\n\
             shard  copied  of    rate/s  left  verified  removed\n\
             1      1000    2000  498     2.0s  no        0\n\
             waits for shard 1: no\\u{7} answer\n\
             alert: Copy waits for shard 1 for 12 s: no answer\n"
        );
        let over = TransitionStatus { step: "none".into(), ..status };
        assert_eq!(show(&over), "nothing is under way; epoch 9\n");
    }
}
