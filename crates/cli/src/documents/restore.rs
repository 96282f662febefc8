//! `lockwood restore`: brings a deleted document back.

use super::{Holding, Target, Writer, exit_codes, not_written, parse_document, print_written};
use lockwood_client::DocumentKey;
use std::process::ExitCode;

const AFTER_HELP: &str = concat!(
    "\
The document comes back with the fields it had when it was deleted. `lockwood put` begins a new life instead, with other
fields; the history has both.

",
    exit_codes!(),
    "
Examples:
  lockwood restore user/42
  lockwood restore user/42 --user ann --note 'deleted by mistake'"
);

/// Restore a deleted document
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The document
    #[arg(value_name = "COLLECTION/KEY", value_parser = parse_document)]
    document: DocumentKey,
    #[command(flatten)]
    writer: Writer,
    #[command(flatten)]
    holding: Holding,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let options = args.writer.options(args.holding.terms(&args.target));
    match args.target.store().restore(&args.document, &options).await {
        Ok(written) => print_written(&written, args.json, &format!("{} restored", args.document)),
        Err(error) => Ok(not_written(&error).report()),
    }
}
