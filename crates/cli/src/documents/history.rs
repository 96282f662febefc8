//! `lockwood history`: what happened to a document, or to a node of it.

use super::{Target, exit_codes, parse_node};
use crate::{
    exit::Failure,
    output::{self, Table},
};
use lockwood_client::{
    NodeAddress, text,
    wire::{FieldDiff, HistoryEntry, WireValue},
};
use std::{fmt::Write, process::ExitCode};

const AFTER_HELP: &str = concat!(
    exit_codes!(),
    "
Examples:
  lockwood history user/42
  lockwood history user/42/address/city
  lockwood history user/42 --after 7 --json"
);

/// Show what happened to a document: when, by whom, and what is different since
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The document, or the node of it whose changes are shown
    #[arg(value_name = "COLLECTION/KEY[/PATH]", value_parser = parse_node)]
    node: NodeAddress,
    /// Only what happened after this position
    #[arg(long, value_name = "POSITION")]
    after: Option<u64>,
    /// At most so many changes, oldest first [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print every change as a line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (store, NodeAddress { document, path }) = (args.target.store(), &args.node);
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut after = args.after;
    let mut table = Table::default();
    while left > 0 {
        let limit = args.limit.map(|_| left);
        let page = match path.is_empty() {
            true => store.history(document, after, limit).await,
            false => store.node_history(document, path, after, limit).await,
        };
        let mut page = match page {
            Ok(page) => page,
            Err(error) => return Ok(Failure::from(&error).report()),
        };
        page.entries.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= page.entries.len() as u64;
        let shown = match args.json {
            true => page.entries.iter().map(output::json_line).collect(),
            false => show(&mut table, &page.entries),
        };
        if !output::write(&shown)? {
            break;
        }
        match page.next {
            Some(next) if Some(next) != after => after = Some(next),
            _ => break,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A line for every change and one for every field that is different since.
fn show(table: &mut Table, entries: &[HistoryEntry]) -> String {
    let header = ["position", "when", "event", "user", "note"].map(str::to_owned);
    let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let rendered = table.render(&header, &rows);
    let mut lines: Vec<&str> = rendered.lines().collect();
    let mut out = String::new();
    // The header, if it was printed, has no change of its own.
    for line in lines.drain(..lines.len() - entries.len()) {
        writeln!(out, "{line}").expect("a string takes all");
    }
    for (line, entry) in lines.iter().zip(entries) {
        writeln!(out, "{line}").expect("a string takes all");
        for (field, diff) in &entry.changes.0 {
            writeln!(out, "    {}", change(field, diff)).expect("a string takes all");
        }
    }
    out
}

fn row(entry: &HistoryEntry) -> Vec<String> {
    let said = |value: &Option<WireValue>| value.as_ref().map(text::value).unwrap_or_default();
    vec![
        entry.position.to_string(),
        entry.at.clone(),
        entry.event.as_str().to_owned(),
        said(&entry.user),
        said(&entry.note),
    ]
}

/// `+ name: "Ann"`, `- name: "Ann"` or `~ name: "Ann" → "Anna"`.
fn change(field: &str, diff: &FieldDiff) -> String {
    let (field, shown) = (text::plain(field), |value: &WireValue| text::plain(value.as_str()));
    match (&diff.before, &diff.after) {
        (None, Some(after)) => format!("+ {field}: {}", shown(after)),
        (Some(before), None) => format!("- {field}: {}", shown(before)),
        (Some(before), Some(after)) => format!("~ {field}: {} → {}", shown(before), shown(after)),
        (None, None) => format!("  {field}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_stand_below_their_line() {
        let entries: Vec<HistoryEntry> = serde_json::from_str(
            r#"[{"position":3,"at":"2026-01-01T00:00:00Z","user":"ann","note":null,"event":"created","changes":{"name":{"after":"Ann"}}},
                {"position":12,"at":"2026-01-02T00:00:00Z","user":{"id":7},"note":"why","event":"updated",
                 "changes":{"name":{"before":"Ann","after":"Anna"},"age":{"before":1.50}}}]"#,
        )
        .unwrap();
        let mut table = Table::default();
        assert_eq!(
            show(&mut table, &entries),
            "position  when                  event    user      note\n\
             3         2026-01-01T00:00:00Z  created  ann\n    \
             + name: \"Ann\"\n\
             12        2026-01-02T00:00:00Z  updated  {\"id\":7}  why\n    \
             ~ name: \"Ann\" → \"Anna\"\n    \
             - age: 1.50\n"
        );
        assert_eq!(show(&mut table, &entries[..1]).lines().count(), 2, "the header comes once");
        assert_eq!(show(&mut table, &[]), "");
    }
}
