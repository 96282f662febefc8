//! `lockwood locks`: who holds what, who waits, and why; and an operator's release.

use crate::{
    exit::Failure,
    grace,
    listing::{self, Listing},
    output::{json_line, print, write},
    target::{Namespace, Server},
};
use lockwood_client::{Admin, Code, Error, LockFilter, LockId, Path, text};
use lockwood_wire::{GraceInfo, LockInfo, LockState, NamespaceInfo, Tree};
use serde_json::{Value, json};
use std::{io::IsTerminal, process::ExitCode, time::Duration};

const AFTER_HELP: &str = "\
A node shows the intents of the locks below it, IS (reads) and IX (changes), and its own claims:
S, U or X if they are held, the intent IS or IX if they wait; CS and CX are about the list of its children.

`release` ends a lock whoever it belongs to; its owner is told. A path of that name is written /release.

Exit codes:
  2    the command line is wrong
  69   no server answers
  70   the server refused: there is no such lock

Examples:
  lockwood locks
  lockwood locks user/42 --watch
  lockwood locks --owner importer --state waiting --json
  lockwood locks release 12 --reason 'the importer hangs'";

/// Show who holds what, who waits, and why
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Only this node and what is below it
    path: Option<Path>,
    /// Only locks of this session, by its name or its number, or leases of this owner
    #[arg(long, value_name = "NAME-OR-SESSION")]
    owner: Option<String>,
    /// Only locks in this state
    #[arg(long, value_enum)]
    state: Option<State>,
    /// Show again every so many seconds
    #[arg(
        long,
        value_name = "SECS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    watch: Option<u64>,
    /// Print the locks as JSON; with --watch one line each time
    #[arg(long)]
    json: bool,
    /// In all namespaces, whatever --namespace says
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    namespace: Namespace,
}

#[derive(clap::Subcommand)]
enum Action {
    Release(Release),
}

/// End a lock, held or waiting, whoever it belongs to
#[derive(clap::Args)]
struct Release {
    /// The lock's number
    lock: u64,
    /// Why; its owner and the operator log get to know
    #[arg(long)]
    reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    namespace: Namespace,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum State {
    Granted,
    Waiting,
    /// Held, and waiting for a stronger mode
    Converting,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Some(Action::Release(release)) => run_release(&release).await,
        None => run_list(&args).await,
    }
}

async fn run_release(args: &Release) -> anyhow::Result<ExitCode> {
    let admin = Admin { address: args.server.address.clone() };
    match admin.release(&args.namespace.name, LockId(args.lock), args.reason.as_deref()).await {
        Err(error) => Ok(Failure::from(&error).report()),
        Ok(action) if args.json => print(&json_line(&action)),
        Ok(action) => {
            let described = action.lock.map_or_else(String::new, |lock| {
                let owner = text::owner(lock.owner.name.as_deref(), &lock.owner.session);
                format!(" of {owner}: {}", text::resources(&lock.resources))
            });
            print(&format!("released lock {}{described}\n", args.lock))
        }
    }
}

async fn run_list(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(seconds) = args.watch else {
        return match show(args).await {
            Ok(shown) => print(&shown),
            Err(error) => Ok(Failure::from(&error).report()),
        };
    };
    let clear = if std::io::stdout().is_terminal() && !args.json { "\x1b[2J\x1b[H" } else { "" };
    loop {
        // A server that is away may come back; whoever watches wants to see that too.
        let shown = match show(args).await {
            Ok(shown) => shown,
            Err(error) if !args.json => format!("{}\n", Failure::from(&error).message),
            Err(error) => json_line(&Failure::from(&error).in_json()),
        };
        if !write(&format!("{clear}{shown}"))? {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

/// What is to be printed.
async fn show(args: &Args) -> Result<String, Error> {
    let admin = Admin { address: args.server.address.clone() };
    let namespaces = match args.all {
        false => vec![args.namespace.name.clone()],
        true => {
            let list = admin.namespaces().await?;
            // Others have documents only.
            let in_use = |info: &NamespaceInfo| info.sessions + info.locks_granted + info.locks_waiting > 0;
            list.namespaces.into_iter().filter(in_use).map(|info| info.namespace).collect()
        }
    };
    if args.json {
        return show_json(args, &admin, &namespaces).await;
    }
    let mut out = show_grace(args, &admin).await?;
    if namespaces.is_empty() {
        return Ok(out + "no locks in any namespace\n");
    }
    for (n, namespace) in namespaces.iter().enumerate() {
        if n > 0 {
            out.push('\n');
        }
        out.push_str(&listing::render(&fetch(args, &admin, namespace).await?));
    }
    Ok(out)
}

/// The grace periods of what is shown, each on a line.
async fn show_grace(args: &Args, admin: &Admin) -> Result<String, Error> {
    let periods = admin.grace().await?.namespaces;
    let named = |info: &&GraceInfo| info.namespace.as_deref() == Some(&args.namespace.name);
    let shown: Vec<&GraceInfo> = match args.all {
        true => periods.iter().collect(),
        // What holds for all that are not listed holds for this one if it is not.
        false => {
            let all = || periods.iter().find(|info| info.namespace.is_none());
            periods.iter().find(named).or_else(all).into_iter().collect()
        }
    };
    Ok(shown.into_iter().map(|info| grace::line(info) + "\n").collect())
}

async fn show_json(args: &Args, admin: &Admin, namespaces: &[String]) -> Result<String, Error> {
    let mut lists = Vec::new();
    for namespace in namespaces {
        let locks = fetch_locks(args, admin, namespace).await?;
        lists.push(if args.all { json!({ "namespace": namespace, "locks": locks }) } else { json!(locks) });
    }
    let value = if args.all { Value::Array(lists) } else { lists.pop().unwrap_or_default() };
    Ok(if args.watch.is_some() { format!("{value}\n") } else { format!("{value:#}\n") })
}

async fn fetch(args: &Args, admin: &Admin, namespace: &str) -> Result<Listing, Error> {
    let tree = or_empty(admin.tree(namespace, args.path.as_ref()).await, || Tree {
        nodes: Vec::new(),
        truncated: false,
    })?;
    let locks = fetch_locks(args, admin, namespace).await?;
    let filtered = args.owner.is_some() || args.state.is_some();
    Ok(Listing { namespace: namespace.to_owned(), path: args.path.clone(), tree, locks, filtered })
}

async fn fetch_locks(args: &Args, admin: &Admin, namespace: &str) -> Result<Vec<LockInfo>, Error> {
    let filter = LockFilter {
        owner: args.owner.clone(),
        path: args.path.clone(),
        state: args.state.map(|state| match state {
            State::Granted => LockState::Granted,
            State::Waiting => LockState::Waiting,
            State::Converting => LockState::Converting,
        }),
        limit: None,
    };
    let mut locks = Vec::new();
    let mut after = None;
    loop {
        let page = or_empty(admin.locks(namespace, &filter, after).await, || lockwood_wire::LockList {
            locks: Vec::new(),
            next: None,
        })?;
        locks.extend(page.locks);
        match page.next {
            Some(next) if Some(next) != after => after = Some(next),
            _ => return Ok(locks),
        }
    }
}

/// A namespace nobody uses has no locks; that is no error.
fn or_empty<T>(result: Result<T, Error>, empty: impl FnOnce() -> T) -> Result<T, Error> {
    match result {
        Err(error) if error.code() == Some(Code::UnknownNamespace) => Ok(empty()),
        result => result,
    }
}
