//! `lockwood index`: which fields can be found fast.

use super::{Target, exit_codes};
use crate::{
    collection::Collection,
    exit::Failure,
    output::{self, Table},
};
use lockwood_client::{
    Error, FieldPath,
    wire::{IndexInfo, IndexState},
};
use std::process::ExitCode;

const AFTER_HELP: &str = concat!(
    "\
An index makes filters on its field fast; it changes no answer. A new one is built while others go on.

",
    exit_codes!(),
    "
Examples:
  lockwood index
  lockwood index add user email
  lockwood index add user address.zip
  lockwood index drop user email"
);

/// List, add and drop indexes
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print the indexes as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Add an index
    Add(Which),
    /// Drop an index
    Drop(Which),
}

#[derive(clap::Args)]
struct Which {
    /// Of which collection
    collection: Collection,
    /// By which field, or by what inside one: address.zip
    #[arg(value_parser = parse_field)]
    field: String,
    /// Print the index as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

fn parse_field(text: &str) -> Result<String, String> {
    match text.parse::<FieldPath>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) if text.is_empty() => {
            Err("nothing is given; write the name of a field, for example email".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        None => list(&args).await,
        Some(Action::Add(which)) => {
            let added = which.target.store().add_index(&which.collection, &which.field).await;
            tell(added, which.json, "added")
        }
        Some(Action::Drop(which)) => {
            let dropped = which.target.store().drop_index(&which.collection, &which.field).await;
            tell(dropped, which.json, "dropped")
        }
    }
}

async fn list(args: &Args) -> anyhow::Result<ExitCode> {
    let indexes = match args.target.store().indexes().await {
        Ok(answer) => answer.indexes,
        Err(error) => return Ok(Failure::from(&error).report()),
    };
    if args.json {
        return output::print(&indexes.iter().map(output::json_line).collect::<String>());
    }
    if indexes.is_empty() {
        return output::print("no indexes\n");
    }
    let header = ["collection", "field", "state"].map(str::to_owned);
    let rows: Vec<Vec<String>> = indexes
        .into_iter()
        .map(|IndexInfo { collection, field, state }| vec![collection, field, state_name(state).to_owned()])
        .collect();
    output::print(&Table::default().render(&header, &rows))
}

fn state_name(state: IndexState) -> &'static str {
    match state {
        IndexState::Building => "building",
        IndexState::Ready => "ready",
    }
}

fn tell(result: Result<IndexInfo, Error>, json: bool, done: &str) -> anyhow::Result<ExitCode> {
    match result {
        Ok(index) if json => output::print(&output::json_line(&index)),
        Ok(index) => {
            let state =
                if done == "added" { format!(", {}", state_name(index.state)) } else { String::new() };
            output::print(&format!("{done} the index of {} by {}{state}\n", index.collection, index.field))
        }
        Err(error) => Ok(Failure::from(&error).report()),
    }
}
