//! `lockwood get`: one document.

use super::{Deleted, Target, exit_codes, parse_document};
use crate::{exit::Failure, output};
use lockwood_client::{DocumentKey, ReadOptions};
use std::{io::IsTerminal, process::ExitCode};

const AFTER_HELP: &str = concat!(
    "\
A key has parts with colons between them, order:42; inside a part %3A is a colon and %25 a percent sign.

",
    exit_codes!(),
    "
Examples:
  lockwood get user/42
  lockwood get user/42 --fields name,email --at 7
  lockwood get user/42 --json | jq .position"
);

/// Show a document
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Which document
    #[arg(value_name = "COLLECTION/KEY", value_parser = parse_document)]
    document: DocumentKey,
    /// Only these fields
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    fields: Vec<String>,
    /// As it was at this position
    #[arg(long, value_name = "POSITION")]
    at: Option<u64>,
    /// Whether a deleted document is shown
    #[arg(long, value_enum, default_value_t)]
    deleted: Deleted,
    /// Print it in one line, with its position and the like around its fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let options = ReadOptions { fields: args.fields.clone(), at: args.at, deleted: args.deleted.into() };
    let document = match args.target.store().get(&args.document, &options).await {
        Ok(answer) => answer.document,
        Err(error) => return Ok(Failure::from(&error).report()),
    };
    if args.json {
        return output::print(&output::json_line(&document));
    }
    if std::io::stderr().is_terminal() {
        let deleted = if document.deleted { ", deleted" } else { "" };
        eprintln!("{} at position {}{deleted}", args.document, document.position);
    }
    let fields = serde_json::to_string(&document.value)?;
    output::print(&format!("{}\n", output::pretty(&fields)))
}
