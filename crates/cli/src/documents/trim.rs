//! `lockwood trim`: forgets old history.

use super::exit_codes;
use crate::{exit::Failure, output, target::Server, wait::parse_span};
use lockwood_client::Admin;
use std::{process::ExitCode, time::Duration};

const AFTER_HELP: &str = concat!(
    "\
Documents stay as they are; what is forgotten is how they came to be. After that nobody can read as of a position
from before, watch from there on, or hold a position lock from there. It cannot be undone.

",
    exit_codes!(),
    "
Examples:
  lockwood trim 720h"
);

/// Forget the history of documents, in all namespaces
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// What is younger than this stays: 90s, 10m, 720h
    #[arg(value_name = "SPAN", value_parser = parse_span)]
    keep: Duration,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let admin = Admin { address: args.server.address.clone() };
    let keep_ms = u64::try_from(args.keep.as_millis()).unwrap_or(u64::MAX);
    match admin.trim(keep_ms).await {
        Ok(answer) if args.json => output::print(&output::json_line(&answer)),
        Ok(answer) => output::print(&format!("{} commits forgotten\n", answer.trimmed)),
        Err(error) => Ok(Failure::from(&error).report()),
    }
}
