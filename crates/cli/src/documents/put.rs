//! `lockwood put`: makes a document what it is told.

use super::{Holding, Target, Writer, exit_codes, not_written, parse_document, print_written, read_fields};
use lockwood_client::{DocumentKey, PutIf, PutOptions};
use std::process::ExitCode;

const AFTER_HELP: &str = concat!(
    "\
The document is created, or it is replaced: fields that are not given are removed. To change some fields only,
see `lockwood write`.

",
    exit_codes!(),
    "
Examples:
  lockwood put user/42 '{\"name\": \"Ann\"}'
  lockwood put user/42 '{\"name\": \"Ann\"}' --if absent --user importer
  lockwood get user/42 | jq '.age += 1' | lockwood put user/42 --position 7
  lockwood put user/42 '{\"name\": \"Ann\"}' --token 34 --wait 10s"
);

/// Create or replace a document
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Which document
    #[arg(value_name = "COLLECTION/KEY", value_parser = parse_document)]
    document: DocumentKey,
    /// All its fields as a JSON object; - for standard input
    #[arg(value_name = "JSON", default_value = "-")]
    fields: String,
    /// Only if there is no such document, or only if there is one
    #[arg(long = "if", value_enum, value_name = "CASE")]
    only_if: Option<Case>,
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

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Case {
    Absent,
    Present,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let fields = match read_fields(&args.fields) {
        Ok(fields) => fields,
        Err(failure) => return Ok(failure.report()),
    };
    let only_if = args.only_if.map(|case| match case {
        Case::Absent => PutIf::Absent,
        Case::Present => PutIf::Present,
    });
    let options = PutOptions { only_if, ..args.writer.options(args.holding.terms(&args.target)) };
    match args.target.store().put(&args.document, &fields, &options).await {
        Ok(written) => print_written(&written, args.json, &format!("{} written", args.document)),
        Err(error) => Ok(not_written(&error).report()),
    }
}
