//! `lockwood set`: replaces or removes one node of a document.

use super::{Write, Writer, exit_codes, parse_node, read_value};
use lockwood_client::NodeAddress;
use std::process::ExitCode;

const AFTER_HELP: &str = concat!(
    "\
The node is a field, or something in a field: members of objects by their names, elements of lists by their places
from 0; the place behind the last one makes the list longer. What the node is in must be there already. Everything
else in the document stays as it is, and only this node is locked while it is written.

",
    exit_codes!(),
    "
Examples:
  lockwood set user/42/address/city '\"Ulm\"'
  lockwood set user/42/tags/0 --delete
  lockwood set user/42/address - --token 17 < address.json"
);

/// Change one value or subtree of a document
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Which node of which document
    #[arg(value_name = "COLLECTION/KEY/PATH", value_parser = parse_inner)]
    node: NodeAddress,
    /// Its new value as JSON; - for standard input
    #[arg(value_name = "JSON", required_unless_present = "delete", conflicts_with = "delete")]
    value: Option<String>,
    /// Remove it
    #[arg(long)]
    delete: bool,
    #[command(flatten)]
    writer: Writer,
    #[command(flatten)]
    write: Write,
}

fn parse_inner(text: &str) -> Result<NodeAddress, String> {
    let node = parse_node(text)?;
    if node.path.is_empty() {
        return Err("say which node of the document, for example user/42/address/city".to_owned());
    }
    Ok(node)
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (store, options) = (args.write.store(), args.writer.options(args.write.terms()));
    let NodeAddress { document, path } = &args.node;
    let written = match args.value.as_deref().map(read_value).transpose() {
        Ok(Some(value)) => store.set(document, path, &value, &options).await,
        Ok(None) => store.unset(document, path, &options).await,
        Err(failure) => return Ok(failure.report()),
    };
    let done = if args.delete { "removed" } else { "written" };
    args.write.report(written, &format!("{} {done}", args.node))
}
