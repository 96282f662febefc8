//! `lockwood put`: makes a document, or a node of it, what it is told.

use super::{Write, Writer, exit_codes, parse_node, read_fields, read_value};
use crate::exit::Failure;
use lockwood_client::{
    Error, NodeAddress, PutIf, PutOptions, Store,
    wire::{Fields, WireValue, Written},
};
use std::process::ExitCode;

const AFTER_HELP: &str = concat!(
    "\
The document is created, or it is replaced: fields that are not given are removed. What comes after the key leads to
a node of the document, which alone is replaced, as `lockwood set` does it: the document must be there, and so must be
what the node is in. To change several fields at once, see `lockwood write`.

",
    exit_codes!(),
    "
Examples:
  lockwood put user/42 '{\"name\": \"Ann\"}'
  lockwood put user/42 '{\"name\": \"Ann\"}' --if absent --user importer
  lockwood put user/42/address '{\"city\": \"Ulm\"}'
  lockwood get user/42 | jq '.age += 1' | lockwood put user/42 --position 7
  lockwood put user/42 '{\"name\": \"Ann\"}' --token 34 --wait 10s"
);

/// Create or replace a document, or replace one node of it
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The document, or the node of it
    #[arg(value_name = "COLLECTION/KEY[/PATH]", value_parser = parse_node)]
    node: NodeAddress,
    /// All fields of the document as a JSON object, or the value of the node; - for standard input
    #[arg(value_name = "JSON", default_value = "-")]
    value: String,
    /// Only if there is no such document, or only if there is one
    #[arg(long = "if", value_enum, value_name = "CASE")]
    only_if: Option<Case>,
    #[command(flatten)]
    writer: Writer,
    #[command(flatten)]
    write: Write,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Case {
    Absent,
    Present,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let value = match Value::read(&args) {
        Ok(value) => value,
        Err(failure) => return Ok(failure.report()),
    };
    let only_if = args.only_if.map(|case| match case {
        Case::Absent => PutIf::Absent,
        Case::Present => PutIf::Present,
    });
    let options = PutOptions { only_if, ..args.writer.options(args.write.terms()) };
    let written = value.put(&args.write.store(), &args.node, &options).await;
    args.write.report(written, &format!("{} written", args.node))
}

/// What is put: a document consists of fields, a node is any JSON.
enum Value {
    Document(Fields),
    Node(WireValue),
}

impl Value {
    fn read(args: &Args) -> Result<Value, Failure> {
        match args.node.path.is_empty() {
            true => read_fields(&args.value).map(Value::Document),
            false => read_value(&args.value).map(Value::Node),
        }
    }

    async fn put(&self, store: &Store, at: &NodeAddress, options: &PutOptions) -> Result<Written, Error> {
        match self {
            Value::Document(fields) => store.put(&at.document, fields, options).await,
            Value::Node(value) => store.set(&at.document, &at.path, value, options).await,
        }
    }
}
