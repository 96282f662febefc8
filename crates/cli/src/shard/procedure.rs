//! `lockwood shard procedure`: the functions that can be called at the shard of a key.

use super::{Common, Shown};
use crate::{
    exit::{Failure, read_file},
    output::{self, Table},
};
use clap::builder::NonEmptyStringValueParser;
use lockwood_client::text;
use std::io::IsTerminal;

const AFTER_HELP: &str = "\
A procedure is Luau: return function(db, key, ...) ... end. It reads and writes documents with db.get, db.put,
db.insert, db.update and db.delete; all of it is done, or nothing. See docs/shards.md.

Examples:
  lockwood shard procedure put transfer transfer.luau
  lockwood shard procedure list
  lockwood shard procedure show transfer
  lockwood shard procedure delete transfer";

/// Register, list, show and delete procedures
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Put(Put),
    List(List),
    Show(Show),
    Delete(Delete),
}

/// Register a procedure on all shards, or give it another text
#[derive(clap::Args)]
struct Put {
    /// Its name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// The file with its text; - for standard input
    #[arg(default_value = "-")]
    file: String,
    #[command(flatten)]
    common: Common,
}

/// List the procedures
#[derive(clap::Args)]
struct List {
    #[command(flatten)]
    common: Common,
}

/// Show the text of a procedure
#[derive(clap::Args)]
struct Show {
    /// Its name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    #[command(flatten)]
    common: Common,
}

/// Take a procedure away from all shards
#[derive(clap::Args)]
struct Delete {
    /// Its name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn run(args: &Args) -> Shown {
    match &args.action {
        Action::Put(args) => put(args).await,
        Action::List(args) => list(args).await,
        Action::Show(args) => show(args).await,
        Action::Delete(args) => delete(args).await,
    }
}

async fn put(args: &Put) -> Shown {
    let source = read_file(&args.file)?;
    let info = args.common.shards().put_procedure(&args.name, &source).await;
    let info = info.map_err(|error| Failure::from(&error))?;
    Ok(match args.common.json {
        true => output::json_line(&info),
        false => format!("{} version {} is on all shards\n", text::plain(&info.name), info.version),
    })
}

async fn list(args: &List) -> Shown {
    let list = args.common.shards().procedures().await.map_err(|error| Failure::from(&error))?.procedures;
    if args.common.json {
        return Ok(list.iter().map(output::json_line).collect());
    }
    if list.is_empty() {
        return Ok("no procedures\n".to_owned());
    }
    let header = ["name", "version", "hash"].map(str::to_owned);
    let rows: Vec<Vec<String>> =
        list.into_iter().map(|info| vec![info.name, info.version.to_string(), info.hash]).collect();
    Ok(Table::default().render(&header, &rows))
}

async fn show(args: &Show) -> Shown {
    let info = args.common.shards().procedure(&args.name).await.map_err(|error| Failure::from(&error))?;
    Ok(match args.common.json {
        true => output::json_line(&info),
        // A file gets the text as it is, a terminal nothing that could steer it.
        false if !std::io::stdout().is_terminal() => info.source.unwrap_or_default(),
        false => {
            let source = info.source.unwrap_or_default().replace('\t', "    ");
            source.lines().map(|line| text::plain(line) + "\n").collect()
        }
    })
}

async fn delete(args: &Delete) -> Shown {
    let info = args.common.shards().delete_procedure(&args.name).await;
    let info = info.map_err(|error| Failure::from(&error))?;
    Ok(match args.common.json {
        true => output::json_line(&info),
        false => format!("{} is deleted\n", text::plain(&info.name)),
    })
}
