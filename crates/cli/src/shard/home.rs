//! `lockwood shard home`: the shard that decides the locks of a namespace, and moving them to another one.

use super::Shown;
use crate::{exit::Failure, output, target::Server};
use lockwood_client::{Shards, text};
use lockwood_wire::NamespaceHome;

const HELP: &str = "\
The home of a namespace is the shard with its locks, sessions, leases and schemas. If its
documents are on the shards of the map, the home can be any shard. A move takes about as long
as a handoff of both shards: sessions come back by themselves and keep their locks, leases
stay, and writers go on. All documents of a namespace from before the map are at its home; move
that shard to another node instead, with `lockwood cluster move`.

Examples:
  lockwood shard home shop
  lockwood shard home shop 3
  lockwood shard home shop --json";

/// Show which shard decides the locks of a namespace, or move them to another shard
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Home {
    /// The namespace
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    namespace: String,
    /// Number of the shard that is to be the home
    shard: Option<u32>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn home(args: &Home) -> Shown {
    let shards = Shards::new(args.server.address.as_str(), &args.namespace);
    let answer = match args.shard {
        None => shards.home().await,
        Some(shard) => shards.move_home(shard).await,
    };
    let home = answer.map_err(|error| Failure::from(&error))?;
    if args.json {
        return Ok(output::json_line(&home));
    }
    Ok(show(&home))
}

fn show(home: &NamespaceHome) -> String {
    let NamespaceHome { namespace, home, spread, target } = home;
    let documents =
        if *spread { "its documents are on the shards of the map" } else { "with all its documents" };
    let target = target.map_or_else(String::new, |target| format!("; it is to move to shard {target}"));
    format!("the home of {} is shard {home}, {documents}{target}\n", text::plain(namespace))
}
