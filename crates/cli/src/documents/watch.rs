//! `lockwood watch`: writes as they happen.

use super::{Target, exit_codes, purge::describe};
use crate::{collection::Collection, exit::Failure, output};
use lockwood_client::{
    FeedStep, Subject, text,
    wire::{CommitEvent, WireCommit},
};
use std::{fmt::Write, process::ExitCode};

const AFTER_HELP: &str = concat!(
    "\
A lost connection is made again, and nothing is missing after it. The position at the beginning of a line can be
given to --after to go on from there another time, as long as the server remembers it.

",
    exit_codes!(),
    "
Examples:
  lockwood watch
  lockwood watch user order --field status
  lockwood watch --after 0 --json | jq .events"
);

/// Show writes as they happen
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Only writes to these collections [default: all]
    #[arg(value_name = "COLLECTION")]
    collections: Vec<Collection>,
    /// Begin after this position [default: from now on]
    #[arg(long, value_name = "POSITION")]
    after: Option<u64>,
    /// Only writes that touch this field; can be given several times
    #[arg(long = "field", value_name = "FIELD")]
    fields: Vec<String>,
    /// Print every write as a line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let collections = args.collections.iter().map(ToString::to_string).collect();
    let subject = Subject { collections, fields: args.fields.clone() };
    let mut feed = match args.target.store().feed(subject, args.after).await {
        Ok(feed) => feed,
        Err(error) => return Ok(Failure::from(&error).report()),
    };
    loop {
        match feed.next().await {
            Ok(FeedStep::Commit(commit)) => {
                let shown = if args.json { output::json_line(&commit) } else { show(&commit) };
                if !output::write(&shown)? {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            Ok(FeedStep::Lost(error)) => eprintln!("lockwood: connection lost, trying again: {error}"),
            Ok(FeedStep::Back) => {
                eprintln!("lockwood: connected again, going on after position {}", feed.position());
            }
            Err(error) => return Ok(Failure::from(&error).report()),
        }
    }
}

/// A line for every event: `7  2026-01-01T00:00:00Z  ann  updated user/42  name="Ann" -age`.
fn show(commit: &WireCommit) -> String {
    let user = commit.user.as_ref().map_or_else(|| "-".to_owned(), text::value);
    let before = format!("{}  {}  {user}", commit.position, text::plain(&commit.at));
    let purged = commit.purged.iter().map(|purged| format!("purged {}", describe(purged)));
    commit.events.iter().map(show_event).chain(purged).map(|what| format!("{before}  {what}\n")).collect()
}

fn show_event(event: &CommitEvent) -> String {
    let at = format!("{}/{}", text::plain(&event.collection), text::plain(&event.key));
    let mut out = format!("{} {at}", event.kind.as_str());
    let set = event.fields.iter().flat_map(|fields| &fields.0);
    let set = set.map(|(name, value)| format!("{}={}", text::plain(name), text::plain(value.as_str())));
    let removed = event.removed.iter().flatten().map(|name| format!("-{}", text::plain(name)));
    for (index, part) in set.chain(removed).enumerate() {
        let space = if index == 0 { "  " } else { " " };
        write!(out, "{space}{part}").expect("a string takes all");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_every_event() {
        let commit: WireCommit = serde_json::from_str(
            r#"{"position":7,"at":"2026-01-01T00:00:00Z","user":"ann","note":null,"events":[
                {"type":"updated","collection":"user","key":"42","fields":{"name":"A\u001b","age":1.50},"removed":["x"]},
                {"type":"deleted","collection":"user","key":"a:7"}]}"#,
        )
        .unwrap();
        assert_eq!(
            show(&commit),
            "7  2026-01-01T00:00:00Z  ann  updated user/42  name=\"A\\u001b\" age=1.50 -x\n\
             7  2026-01-01T00:00:00Z  ann  deleted user/a:7\n"
        );
        let purge = r#"{"position":8,"at":"T","user":"ann","events":[],"purged":{"collection":"user","documents":2}}"#;
        let purge: WireCommit = serde_json::from_str(purge).unwrap();
        assert_eq!(show(&purge), "8  T  ann  purged 2 documents of user\n");
    }
}
