//! `lockwood import`: brings over what other stores keep. Knows nothing of how any of them keeps it.

mod openslides;

use clap::Subcommand;
use std::process::ExitCode;

/// Bring over data from another store
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    source: Source,
}

#[derive(Subcommand)]
enum Source {
    Openslides(openslides::Args),
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.source {
        Source::Openslides(args) => openslides::run(args).await,
    }
}
