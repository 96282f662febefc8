//! `lockwood count`: how many documents match.

use super::{Deleted, Reader, Target, exit_codes, filter::expressions, parse_filter};
use crate::{collection::Collection, exit::Failure, output};
use lockwood_client::wire::{CountRequest, WireFilter};
use std::process::ExitCode;

const AFTER_HELP: &str = concat!(
    expressions!(),
    exit_codes!(),
    "
Examples:
  lockwood count user
  lockwood count user 'age >= 18' --at 7"
);

/// Count the documents of a collection that match
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Which collection
    collection: Collection,
    /// Which documents [default: all]
    #[arg(value_name = "FILTER", value_parser = parse_filter)]
    filter: Option<WireFilter>,
    /// As they were at this position
    #[arg(long, value_name = "POSITION")]
    at: Option<u64>,
    /// Whether deleted documents are counted
    #[arg(long, value_enum, default_value_t)]
    deleted: Deleted,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reader: Reader,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let options = args.reader.options(&args.target);
    let request = CountRequest {
        collection: args.collection.to_string(),
        filter: args.filter.clone(),
        deleted: args.deleted.into(),
        at: args.at,
        isolation: options.isolation,
        wait_ms: options.terms.wait_ms(),
        tokens: options.terms.tokens,
    };
    match args.target.store().count(&request).await {
        Ok(answer) if args.json => output::print(&output::json_line(&answer)),
        Ok(answer) => output::print(&format!("{}\n", answer.count)),
        Err(error) => Ok(Failure::from(&error).report()),
    }
}
