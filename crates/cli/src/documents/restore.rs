//! `lockwood restore`: brings a deleted document back.

use super::{Write, Writer, exit_codes, parse_document};
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
    write: Write,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let options = args.writer.options(args.write.terms());
    let written = args.write.store().restore(&args.document, &options).await;
    args.write.report(written, &format!("{} restored", args.document))
}
