//! `lockwood cluster`: the nodes of a cluster, its shards and their owners.

use crate::{
    documents::progress::Progress,
    exit::{Failure, NOT_OBTAINED, REFUSED},
    output::{Table, json_line, print},
    target::Server,
    wait::parse_span,
};
use lockwood_client::{Admin, ClusterChange, Error, text};
use lockwood_wire::{
    ClusterFollowerInfo, ClusterNodeInfo, ClusterShardInfo, ClusterStatus, ClusterTransitionInfo, Code,
    StandbyInfo,
};
use std::{
    fmt::Write,
    process::ExitCode,
    time::{Duration, Instant},
};

const EXAMPLES: &str = "\
Examples:
  lockwood serve --cluster postgres://lockwood@db.example/lockwood --advertise node1.example:7118
                               start a node; start others in the same way on other machines
  lockwood cluster status      nodes, shards, owners, followers, and what the database keeps
  lockwood cluster drain n2    have n2 give its shards away, before it is replaced; undrain ends that
  lockwood cluster move 1 n3   have n3 own shard 1 from now on; unmove lets the nodes decide again
  lockwood cluster forget n4   take a node off the list that does not come back

A node needs nothing but the database: the first one makes the tables. Any node answers any request.

Exit codes:
  2   the command line is wrong
  69  no server answers
  70  the server refused the request, or is no node of a cluster
  75  it was not done in time; the nodes go on with it";

const STATUS_HELP: &str = "\
A follower has a copy of a shard: it answers reads that say max_lag_ms, and owns the shard next. It is behind by its lag:
what was acknowledged longer ago is in the copy. Alerts say what is wrong and what to do.

Examples:
  lockwood cluster status
  lockwood cluster status --homes 100
  lockwood cluster status --json | jq '.alerts'";

const DRAIN_HELP: &str = "\
The other nodes take its shards, one handoff after the other, and it takes none before `lockwood cluster undrain`. It answers
requests as before. Waits until it owns nothing, and shows how far that is.

Examples:
  lockwood cluster drain n2
  lockwood cluster drain n2 --timeout 5m && ssh n2.example systemctl restart lockwood";

const MOVE_HELP: &str = "\
The node gets the shard, and gets it back whenever it returns, before `lockwood cluster unmove`. While it is away, another
node owns the shard. Waits until the node owns it.

Examples:
  lockwood cluster move 1 n3
  lockwood cluster move 1 n3 --detach";

const FORGET_HELP: &str = "\
A node that stops as planned leaves the list by itself; one that was killed and does not come back stays in it as stale.
Refused while the node is live. If it starts again after all, it is a node like any other.

Examples:
  lockwood cluster forget n4";

/// How often to ask how far it is.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Operate several nodes over one PostgreSQL
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show nodes, shards, owners, followers, and how many machines keep an acknowledged write
    #[command(after_help = STATUS_HELP)]
    Status(ShowArgs),
    /// Have a node give its shards away and take none
    #[command(after_help = DRAIN_HELP)]
    Drain(DrainArgs),
    /// Let a node take shards again
    Undrain(NodeArgs),
    /// Have a node own a shard, for as long as the node lives
    #[command(after_help = MOVE_HELP)]
    Move(MoveArgs),
    /// Let the nodes decide again which of them owns a shard
    Unmove(ShardArgs),
    /// Take a node off the list that does not come back
    #[command(after_help = FORGET_HELP)]
    Forget(NodeArgs),
}

#[derive(clap::Args)]
struct NodeArgs {
    /// Name of the node
    node: String,
    #[command(flatten)]
    status: StatusArgs,
}

#[derive(clap::Args)]
struct DrainArgs {
    /// Name of the node
    node: String,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    status: StatusArgs,
}

#[derive(clap::Args)]
struct ShardArgs {
    /// Number of the shard
    shard: u32,
    #[command(flatten)]
    status: StatusArgs,
}

#[derive(clap::Args)]
struct MoveArgs {
    /// Number of the shard
    shard: u32,
    /// Name of the node
    node: String,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    status: StatusArgs,
}

#[derive(clap::Args)]
struct WaitArgs {
    /// Do not wait until it is done
    #[arg(long)]
    detach: bool,
    /// How long to wait until it is done
    #[arg(long, value_name = "SPAN", default_value = "60s", value_parser = parse_span, conflicts_with = "detach")]
    timeout: Duration,
}

#[derive(clap::Args)]
struct ShowArgs {
    /// Name the namespaces that have their home on each shard, the first N by name
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "10",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    homes: Option<u32>,
    #[command(flatten)]
    status: StatusArgs,
}

#[derive(clap::Args)]
struct StatusArgs {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

/// What to wait for.
enum Goal {
    /// The node owns nothing, and other nodes own all shards.
    Empty(String),
    /// The node owns the shard.
    Owned(u32, String),
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut names = None;
    let (StatusArgs { json, server }, change, wait) = match args.command {
        Command::Status(ShowArgs { homes, status }) => {
            names = homes;
            (status, None, None)
        }
        Command::Drain(DrainArgs { node, wait, status }) => {
            let goal = Goal::Empty(node.clone());
            (status, Some(ClusterChange::Drain(node)), Some((goal, wait)))
        }
        Command::Undrain(NodeArgs { node, status }) => (status, Some(ClusterChange::Undrain(node)), None),
        Command::Move(MoveArgs { shard, node, wait, status }) => {
            let goal = Goal::Owned(shard, node.clone());
            (status, Some(ClusterChange::Move(shard, node)), Some((goal, wait)))
        }
        Command::Unmove(ShardArgs { shard, status }) => (status, Some(ClusterChange::Unmove(shard)), None),
        Command::Forget(NodeArgs { node, status }) => (status, Some(ClusterChange::Forget(node)), None),
    };
    let admin = Admin { address: server.address };
    let changed = match (&change, names) {
        (None, None) => admin.cluster().await,
        (None, Some(names)) => admin.cluster_with_homes(names).await,
        (Some(change), _) => admin.change_cluster(change).await,
    };
    let answer = match (changed, wait) {
        (Ok(_), Some((goal, WaitArgs { detach: false, timeout }))) => {
            match reach(&admin, &goal, timeout).await {
                Ok(status) => Ok(status),
                Err(failure) => return Ok(failure.report()),
            }
        }
        // What it has led to, not what was before.
        (Ok(_), _) if change.is_some() => admin.cluster().await,
        (answer, _) => answer,
    };
    match answer {
        Ok(status) if json => print(&json_line(&status)),
        Ok(status) => print(&render(&status)),
        Err(Error::Refused(refusal)) if refusal.code == Code::NotFound => {
            let message =
                "the server is not a node of a cluster; start it with `lockwood serve --cluster URL`";
            Ok(Failure::new(REFUSED, message).report())
        }
        Err(error) => Ok(Failure::from(&error).report()),
    }
}

impl Goal {
    /// How many shards are still to go.
    fn left(&self, status: &ClusterStatus) -> usize {
        match self {
            Goal::Empty(node) => {
                let is_elsewhere = |owner: &String| owner != node;
                let here =
                    status.shards.iter().filter(|shard| !shard.owner.as_ref().is_some_and(is_elsewhere));
                here.count()
            }
            Goal::Owned(number, node) => {
                let found = status.shards.iter().find(|shard| shard.shard == *number);
                usize::from(found.is_none_or(|shard| shard.owner.as_ref() != Some(node)))
            }
        }
    }

    fn missed(&self, left: usize) -> String {
        match self {
            Goal::Empty(node) => format!(
                "{left} shards are not with another node than {node} yet; is there one that is live and does not drain? It \
                 goes on; `lockwood cluster status` shows how far it is"
            ),
            Goal::Owned(shard, node) => format!(
                "{node} does not own shard {shard} yet; `lockwood cluster status` shows if it is live and does not drain"
            ),
        }
    }
}

/// Waits until the goal is reached, and shows how far that is.
async fn reach(admin: &Admin, goal: &Goal, timeout: Duration) -> Result<ClusterStatus, Failure> {
    let begun = Instant::now();
    let mut progress: Option<Progress> = None;
    loop {
        let asked = admin.cluster().await;
        let left = asked.as_ref().ok().map(|status| goal.left(status));
        match (asked, left) {
            (Ok(status), Some(0)) => {
                if let Some(progress) = &progress {
                    progress.end();
                }
                return Ok(status);
            }
            (Ok(_), left) => {
                let left = left.unwrap_or_default();
                progress
                    .get_or_insert_with(|| Progress::of_shards("handed off", left as u64))
                    .left(left as u64);
                if begun.elapsed() >= timeout {
                    return Err(Failure::new(NOT_OBTAINED, goal.missed(left)));
                }
            }
            // The node that was asked may be the one that restarts; others are asked then.
            (Err(error), _) if begun.elapsed() >= timeout => return Err(Failure::from(&error)),
            (Err(_), _) => {}
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

fn render(status: &ClusterStatus) -> String {
    let mut out = String::new();
    let database = &status.database;
    let _ =
        writeln!(out, "database  {}; heard from {}", text::plain(&database.durability), ago(database.age_ms));
    for standby in database.standbys.iter().flatten() {
        let _ = writeln!(out, "standby   {}", text::plain(&standby_in_words(standby)));
    }
    let _ = writeln!(out, "asked     {}", text::plain(&status.node));
    if let Some(transition) = &status.transition {
        let _ = writeln!(out, "moving    {}", in_words(transition));
    }
    for alert in &status.alerts {
        let _ = writeln!(out, "alert     {}", text::plain(alert));
    }
    out.push('\n');
    out += &render_nodes(&status.nodes);
    out.push('\n');
    out += &render_shards(&status.shards);
    out + &render_homes(&status.shards)
}

fn standby_in_words(standby: &StandbyInfo) -> String {
    let StandbyInfo { name, address, state, sync_state, lag_ms } = standby;
    let at = Some(address).filter(|address| !address.is_empty());
    let at = at.map_or_else(String::new, |address| format!(" at {address}"));
    let lag = lag_ms.map_or_else(String::new, |lag| format!(", {} behind", text::span(lag)));
    format!("{name}{at}: {sync_state}, {state}{lag}")
}

/// Namespaces by shard, as far as they are named.
fn render_homes(shards: &[ClusterShardInfo]) -> String {
    let mut out = String::new();
    for shard in shards {
        let Some(homes) = &shard.homes else { continue };
        let more = shard.namespaces.unwrap_or_default().saturating_sub(homes.len() as u64);
        let named = match homes.is_empty() {
            true => "no namespace".to_owned(),
            false => homes.join(", "),
        };
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = write!(out, "\nhomes on {}  {}{more}", shard.shard, text::plain(&named));
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

/// A change of the map on one line; `lockwood reshard status` shows more.
fn in_words(transition: &ClusterTransitionInfo) -> String {
    let ClusterTransitionInfo { step, driver, copied, total, paused, aborting, waits } = transition;
    let mut line = format!("documents change shards: step {}", text::plain(step));
    if let Some(total) = total {
        let _ = write!(line, ", {copied} of {total} copied");
    }
    let states = [(*paused, "paused"), (*aborting, "going back to the map of before")];
    states.iter().filter(|(holds, _)| *holds).for_each(|(_, state)| line += &format!(", {state}"));
    if !waits.is_empty() {
        let _ = write!(line, ", waits for {}", text::plain(&waits.join(", ")));
    }
    if let Some(driver) = driver {
        let _ = write!(line, "; driven by {}", text::plain(driver));
    }
    line
}

fn render_nodes(nodes: &[ClusterNodeInfo]) -> String {
    let prefers = nodes.iter().any(|node| node.this.is_some());
    let header = ["node", "address", "state", "renewed", "shards", "prefers"].map(str::to_owned);
    let header = &header[..if prefers { 6 } else { 5 }];
    let row = |node: &ClusterNodeInfo| {
        let state = if node.drains { format!("{}, draining", node.state) } else { node.state.clone() };
        let shards: Vec<String> = node.shards.iter().map(u32::to_string).collect();
        let this = node.this.map_or_else(String::new, |this| match this {
            0 => "no shard".to_owned(),
            this => format!("shard {this}"),
        });
        let row = [node.name.clone(), node.address.clone(), state, ago(node.age_ms), shards.join(", "), this];
        row[..header.len()].to_vec()
    };
    Table::default().render(header, &nodes.iter().map(row).collect::<Vec<_>>())
}

fn render_shards(shards: &[ClusterShardInfo]) -> String {
    let header = ["shard", "owner", "epoch", "renewed", "namespaces", "followers"].map(str::to_owned);
    let row = |shard: &ClusterShardInfo| {
        let owner = shard.owner.clone().unwrap_or_else(|| "none".to_owned());
        let namespaces = shard.namespaces.map_or_else(|| "unknown".to_owned(), |count| count.to_string());
        let (number, epoch) = (shard.shard.to_string(), shard.epoch.to_string());
        let followers: Vec<String> = shard.followers.iter().map(follower).collect();
        vec![number, owner, epoch, ago(shard.age_ms), namespaces, followers.join(", ")]
    };
    Table::default().render(&header, &shards.iter().map(row).collect::<Vec<_>>())
}

fn follower(follower: &ClusterFollowerInfo) -> String {
    format!("{} ({} behind)", follower.node, text::span(follower.lag_ms))
}

fn ago(ms: u64) -> String {
    format!("{} ago", text::span(ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_wire::DatabaseInfo;

    #[test]
    fn a_cluster_is_shown_with_its_owners() {
        let node = |name: &str, age_ms, shards: &[u32]| ClusterNodeInfo {
            name: name.into(),
            address: format!("{name}.example:7118"),
            age_ms,
            state: if age_ms > 3000 { "stale" } else { "live" }.into(),
            drains: false,
            shards: shards.to_vec(),
            this: (name == "b").then_some(0),
        };
        let status = ClusterStatus {
            node: "a".into(),
            nodes: vec![node("a", 200, &[1]), node("b", 9000, &[])],
            shards: vec![ClusterShardInfo {
                shard: 1,
                owner: Some("a".into()),
                epoch: 7,
                age_ms: 200,
                followers: vec![ClusterFollowerInfo { node: "b".into(), lag_ms: 250, last: 7 }],
                namespaces: Some(12),
                homes: Some(vec!["bar".into(), "foo".into()]),
            }],
            transition: Some(ClusterTransitionInfo {
                step: "copy".into(),
                driver: Some("a".into()),
                copied: 17,
                total: Some(40),
                paused: true,
                aborting: false,
                waits: vec!["shard 2".into()],
            }),
            alerts: vec!["b is gone".into()],
            database: DatabaseInfo {
                durability: "on 2 machines".into(),
                age_ms: 200,
                standbys: Some(vec![StandbyInfo {
                    name: "walreceiver".into(),
                    address: "10.0.0.2".into(),
                    state: "streaming".into(),
                    sync_state: "sync".into(),
                    lag_ms: Some(3),
                }]),
            },
        };
        let shown = render(&status);
        for part in [
            "b (250ms behind)",
            "alert     b is gone",
            "moving    documents change shards: step copy, 17 of 40 copied, paused, waits for shard 2; driven by a",
            "on 2 machines",
            "standby   walreceiver at 10.0.0.2: sync, streaming, 3ms behind",
            "no shard",
            "homes on 1  bar, foo and 10 more",
            "b.example:7118",
            "stale",
            "epoch",
            "7",
            "12",
        ] {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
    }
}
