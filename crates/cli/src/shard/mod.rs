//! `lockwood shard`: operations on single keys, the shard map, and the steps of resharding by hand. One module for
//! each of them; this one has what their command lines have in common.

mod config;
pub(crate) mod given;
mod home;
mod operations;
mod procedure;
mod steps;

use crate::{
    documents::{Holding, Target},
    exit::Failure,
    output,
};
use lockwood_client::{ShardOptions, Shards, shard_wire::ShardDocument};
use std::process::ExitCode;

const AFTER_HELP: &str = "\
A cluster has shards, each owned by one of its nodes, and one map that tells which shard a key is on. Any node can be
asked; it passes requests on. Keys of several parts have colons between them, line/order:42, and have to
be whole.

Functions that tell the shard of a key, for --curr and --prev:
  hash, jump, modulo                     over all shards of the list; jump moves the fewest keys when one is added
  '{\"function\": \"hash\", \"by\": \"first\"}'  by the first part of the key, so that line/7:1 and line/7:2 are together
  '{\"function\": \"range\", \"bounds\": [{\"below\": 1000, \"shard\": 1}, {\"shard\": 2}]}'
  mine.luau                              a function of your own, see docs/shards.md

Exit codes:
  2   the command line is wrong
  65  a file cannot be read, or is not what it should be
  66  there is no such document, or no such procedure
  69  no node answers, or it does not work now
  70  the request was refused
  73  there is such a document already
  75  others have locked it, and the wait is over
  76  the lock whose token was shown is over, and nothing was done

Examples:
  lockwood shard config --list '[[[\"rw\", 1, \"10.0.0.1\", 7117]], [[\"rw\", 1, \"10.0.0.2\", 7117]]]' --curr jump
  lockwood shard map
  lockwood shard insert user/42 '{\"name\": \"Ann\", \"visits\": 1}'
  lockwood shard update user/42 '+p=p' visits 1 name '\"Anna\"'
  lockwood shard eselect rw user/42
  lockwood shard procedure put transfer transfer.luau
  lockwood shard call rw transfer account/7 8 100
  lockwood shard home shop 3
To go over to another map see `lockwood reshard --help`.";

/// Work with keys on several shards, and with the shard map
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Map(config::Map),
    Valid(config::Valid),
    Config(Box<config::Config>),
    Home(home::Home),
    Select(operations::Select),
    Eselect(operations::Eselect),
    Insert(operations::Store),
    Replace(operations::Replace),
    Delete(operations::Delete),
    Update(operations::Update),
    Call(operations::Call),
    Copy(steps::Copy),
    Cleanup(steps::Cleanup),
    Procedure(procedure::Args),
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let shown = match &args.action {
        Action::Map(args) => config::map(args).await,
        Action::Valid(args) => config::valid(args).await,
        Action::Config(args) => config::config(args).await,
        Action::Home(args) => home::home(args).await,
        Action::Select(args) => operations::select(args).await,
        Action::Eselect(args) => operations::eselect(args).await,
        Action::Insert(args) => operations::insert(args).await,
        Action::Replace(args) => operations::replace(args).await,
        Action::Delete(args) => operations::delete(args).await,
        Action::Update(args) => operations::update(args).await,
        Action::Call(args) => operations::call(args).await,
        Action::Copy(args) => steps::copy(args).await,
        Action::Cleanup(args) => steps::cleanup(args).await,
        Action::Procedure(args) => procedure::run(args).await,
    };
    match shown {
        Ok(text) => output::print(&text),
        Err(failure) => Ok(failure.report()),
    }
}

/// What is printed, or why it is not.
type Shown = Result<String, Failure>;

/// Where the shards are, and how answers are shown.
#[derive(clap::Args)]
struct Common {
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Common {
    fn shards(&self) -> Shards {
        self.target.shards()
    }
}

/// Who writes, why, and with which locks.
#[derive(clap::Args)]
struct Writing {
    /// Who writes; the history keeps it
    #[arg(long)]
    user: Option<String>,
    /// Why; the history keeps it
    #[arg(long)]
    note: Option<String>,
    #[command(flatten)]
    holding: Holding,
}

impl Writing {
    fn options(&self, common: &Common) -> ShardOptions {
        let (user, note) = (self.user.clone(), self.note.clone());
        ShardOptions { user, note, terms: self.holding.terms(&common.target) }
    }
}

/// A document for a person, or the whole answer for a program.
fn document(answer: &ShardDocument, common: &Common) -> String {
    if common.json {
        return output::json_line(answer);
    }
    answer.document.as_ref().map_or_else(String::new, |document| {
        let fields = serde_json::to_string(&document.value).expect("what was read can be written");
        format!("{}\n", output::pretty(&fields))
    })
}
