//! `lockwood get`: one document, or one node of it.

use super::{Deleted, Reader, Target, exit_codes, parse_node};
use crate::{exit::Failure, output};
use lockwood_client::{NodeAddress, ReadOptions};
use std::{io::IsTerminal, process::ExitCode};

const AFTER_HELP: &str = concat!(
    "\
A key has parts with colons between them, order:42; inside a part %3A is a colon and %25 a percent sign.
What comes after the key leads to a node inside the document: fields and members by their names, elements of lists
by their places from 0. A slash inside a name is written %2F. Where --depth cuts something off, it is named on
standard error.

",
    exit_codes!(),
    "
Examples:
  lockwood get user/42
  lockwood get user/42 --fields name,email --at 7
  lockwood get user/42/address/city
  lockwood get user/42/address --depth 1 --isolation locked --wait 5s
  lockwood get user/42 --json | jq .position"
);

/// Show a document, or a part of it
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Which document, and which node of it
    #[arg(value_name = "COLLECTION/KEY[/PATH]", value_parser = parse_node)]
    node: NodeAddress,
    /// Only these fields, or what is inside them: address.zip
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',', conflicts_with = "depth")]
    fields: Vec<String>,
    /// So many levels; 1 is the node alone [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    depth: Option<u64>,
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
    reader: Reader,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let fields = args.fields.clone();
    let options = ReadOptions {
        fields,
        at: args.at,
        deleted: args.deleted.into(),
        ..args.reader.options(&args.target)
    };
    if !args.node.path.is_empty() || args.depth.is_some() {
        return show_node(&args, &options).await;
    }
    let document = match args.target.store().get(&args.node.document, &options).await {
        Ok(answer) => answer.document,
        Err(error) => return Ok(Failure::from(&error).report()),
    };
    if args.json {
        return output::print(&output::json_line(&document));
    }
    if std::io::stderr().is_terminal() {
        let deleted = if document.deleted { ", deleted" } else { "" };
        eprintln!("{} at position {}{deleted}", args.node.document, document.position);
    }
    let fields = serde_json::to_string(&document.value)?;
    output::print(&format!("{}\n", output::pretty(&fields)))
}

async fn show_node(args: &Args, options: &ReadOptions) -> anyhow::Result<ExitCode> {
    let NodeAddress { document, path } = &args.node;
    let answer = match args.target.store().get_node(document, path, args.depth, options).await {
        Ok(answer) => answer,
        Err(error) => return Ok(Failure::from(&error).report()),
    };
    if args.json {
        return output::print(&output::json_line(&answer));
    }
    for cut in &answer.cut {
        eprintln!("there is more in {}", cut.0);
    }
    output::print(&format!("{}\n", output::pretty(answer.node.value.as_str())))
}
