//! `lockwood delete`: hides a document.

use super::{Holding, Target, Writer, exit_codes, not_written, parse_document, print_written};
use lockwood_client::DocumentKey;
use std::process::ExitCode;

const AFTER_HELP: &str = concat!(
    "\
A deleted document is hidden, not gone: `lockwood get --deleted only` shows it, its history goes on, `lockwood
restore` brings it back, and `lockwood put` begins a new life. A node, user/42/address, is removed from its document,
which stays; only the history knows it then.

",
    exit_codes!(),
    "
Examples:
  lockwood delete user/42
  lockwood delete user/42 --position 7 --user ann --note 'moved away'"
);

/// Delete a document; it can be restored
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Which document
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
    match args.target.store().delete(&args.document, &options).await {
        Ok(written) => print_written(&written, args.json, &format!("{} deleted", args.document)),
        Err(error) => Ok(not_written(&error).report()),
    }
}
