//! `lockwood reshard`: from one shard map to another, and how far that is. Knows nothing of how documents move.

mod bars;
mod status;

use crate::{documents::Target, exit::Failure, output, shard::given};
use bars::Bars;
use lockwood_client::{
    Error, Shards,
    shard_wire::{TransitionCommand, TransitionStatus},
};
use serde_json::Value;
use std::{process::ExitCode, time::Duration};

/// How often the status is asked for.
const INTERVAL: Duration = Duration::from_millis(200);

const AFTER_HELP: &str = "\
Documents move while everybody keeps reading, writing and locking. The old shards stop serving what moves, the new
ones begin, documents are copied, compared and only then removed from where they were. It goes on after a crash of
any node, and whether or not somebody watches.

MAP is a file or JSON with `list`, `curr` or both; what is not named stays as it is. See `lockwood shard --help` for
lists and functions.

Exit codes:
  0   it is done, or what was asked for is
  2   the command line is wrong
  65  a file cannot be read, or is not what it should be
  69  no node answers, or it does not work now
  70  the request was refused, or it went back to the old map

Examples:
  lockwood reshard --to '{\"list\": [[[\"rw\", 1, \"10.0.0.1\", 7117]], [[\"rw\", 1, \"10.0.0.2\", 7117]]], \"curr\": \
{\"function\": \"jump\"}}'
  lockwood reshard --to map.json --throttle 5000     at most 5000 documents in a second from each shard
  lockwood reshard --to map.json --detach            do not wait for it
  lockwood reshard status
  lockwood reshard pause
  lockwood reshard throttle none
  lockwood reshard abort                             back to the old map";

/// Go over to another shard map while everything goes on
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// The map to go over to; JSON, or a file
    #[arg(long = "to", value_name = "MAP", required = true)]
    map: Option<String>,
    /// How many documents each shard copies in a second, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    throttle: Option<u64>,
    /// Do not wait until it is done
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    common: Common,
}

/// Where the cluster is, and how answers are shown.
#[derive(clap::Args)]
struct Common {
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Show how far it is
    Status(Common),
    /// Let copying and cleaning rest
    Pause(Common),
    /// Let them go on
    Resume(Common),
    Throttle(Throttle),
    /// Go back to the old map
    Abort(Common),
}

/// Set how many documents each shard copies in a second
#[derive(clap::Args)]
struct Throttle {
    /// So many at most, or none for as fast as it can
    #[arg(value_name = "N|none", value_parser = parse_rate)]
    rate: Rate,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, Copy)]
struct Rate(Option<u64>);

fn parse_rate(text: &str) -> Result<Rate, String> {
    match text.parse::<u64>() {
        Ok(rate) if rate > 0 => Ok(Rate(Some(rate))),
        _ if text == "none" => Ok(Rate(None)),
        _ => Err("write a number from 1, or none".to_owned()),
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let done = match &args.action {
        None => reshard(&args).await,
        Some(Action::Status(common)) => show(common).await,
        Some(Action::Pause(common)) => tell(common, TransitionCommand::Pause, "it rests").await,
        Some(Action::Resume(common)) => tell(common, TransitionCommand::Resume, "it goes on").await,
        Some(Action::Throttle(Throttle { rate: Rate(rate), common })) => {
            let said = rate.map_or_else(
                || "as fast as it can".to_owned(),
                |rate| format!("at most {rate} documents in a second from each shard"),
            );
            tell(common, TransitionCommand::Throttle { rate: *rate }, &said).await
        }
        Some(Action::Abort(common)) => {
            tell(common, TransitionCommand::Abort, "it goes back to the old map").await
        }
    };
    match done {
        Ok(text) => output::print(&text),
        Err(failure) => Ok(failure.report()),
    }
}

type Shown = Result<String, Failure>;

#[expect(clippy::needless_pass_by_value, reason = "errors are mapped by value")]
fn failed(error: Error) -> Failure {
    Failure::from(&error)
}

async fn tell(common: &Common, command: TransitionCommand, said: &str) -> Shown {
    let shards = common.target.shards();
    shards.command(&command).await.map_err(failed)?;
    match common.json {
        true => Ok(output::json_line(&shards.status().await.map_err(failed)?)),
        false => Ok(format!("{said}\n")),
    }
}

async fn show(common: &Common) -> Shown {
    let found = common.target.shards().status().await.map_err(failed)?;
    Ok(if common.json { output::json_line(&found) } else { status::show(&found) })
}

async fn reshard(args: &Args) -> Shown {
    let shards = args.common.target.shards();
    let mut change = given::json(args.map.as_deref().unwrap_or("-"))?;
    let before = shards.map().await.map_err(failed)?;
    // A function may be given as to `lockwood shard config`: by a name, or as a file.
    if let Some(named) = change["curr"].as_str().map(str::to_owned) {
        change["curr"] = given::function(&named, &before["curr"])?;
    }
    let command = TransitionCommand::Reshard { change, throttle: args.throttle };
    shards.command(&command).await.map_err(failed)?;
    if args.detach {
        return match args.common.json {
            true => Ok(output::json_line(&shards.status().await.map_err(failed)?)),
            false => Ok("it has begun; `lockwood reshard status` tells how far it is\n".to_owned()),
        };
    }
    tokio::select! {
        status = watch(&shards) => finish(&status?, &before["epoch"], args.common.json),
        _ = tokio::signal::ctrl_c() => {
            Ok("it goes on without you; `lockwood reshard status` tells how far it is\n".to_owned())
        }
    }
}

/// Shows how far it is until it is over.
async fn watch(shards: &Shards) -> Result<TransitionStatus, Failure> {
    let mut bars = Bars::new();
    loop {
        let status = shards.status().await.map_err(failed)?;
        if status.step == "none" {
            bars.end();
            return Ok(status);
        }
        bars.show(&status);
        tokio::time::sleep(INTERVAL).await;
    }
}

fn finish(status: &TransitionStatus, before: &Value, json: bool) -> Shown {
    let epoch = &status.map["epoch"];
    // Other hosts alone are a new map, but nothing moves.
    let is_new = epoch != before && status.last == epoch.as_u64();
    if is_new && status.aborting {
        let message = format!("it went back to the old map, at epoch {epoch}");
        return Err(Failure::new(crate::exit::REFUSED, message));
    }
    if json {
        return Ok(output::json_line(status));
    }
    let shards = status.map["shards"].as_array().map_or(0, Vec::len);
    let moved: u64 = status.donors.iter().map(|donor| donor.copied).filter(|_| is_new).sum();
    Ok(format!("done: {shards} shards at epoch {epoch}, {moved} documents moved\n"))
}
