//! `lockwood delete`: hides a document, or removes a node of it.

use super::{Write, Writer, exit_codes, parse_node};
use lockwood_client::NodeAddress;
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
  lockwood delete user/42/address
  lockwood delete user/42 --position 7 --user ann --note 'moved away'"
);

/// Delete a document, which can be restored, or one node of it
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The document, or the node to remove from it
    #[arg(value_name = "COLLECTION/KEY[/PATH]", value_parser = parse_node)]
    node: NodeAddress,
    #[command(flatten)]
    writer: Writer,
    #[command(flatten)]
    write: Write,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let options = args.writer.options(args.write.terms());
    let (store, NodeAddress { document, path }) = (args.write.store(), &args.node);
    let written = match path.is_empty() {
        true => store.delete(document, &options).await,
        false => store.unset(document, path, &options).await,
    };
    args.write.report(written, &format!("{} deleted", args.node))
}
