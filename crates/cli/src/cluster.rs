//! `lockwood cluster`: the nodes of a cluster, its shards and their owners.

use crate::{
    exit::{Failure, REFUSED},
    output::{Table, json_line, print},
    target::Server,
};
use lockwood_client::{Admin, ClusterChange, Error, text};
use lockwood_wire::{ClusterNodeInfo, ClusterShardInfo, ClusterStatus, Code};
use std::{fmt::Write, process::ExitCode};

const EXAMPLES: &str = "\
Examples:
  lockwood serve --cluster postgres://lockwood@db.example/lockwood --advertise node1.example:7118
                               start a node; start others in the same way on other machines
  lockwood cluster status      nodes, shards, owners, and what the database keeps
  lockwood cluster drain n2    have n2 give its shards away, before it is replaced; undrain ends that
  lockwood cluster move 1 n3   have n3 own shard 1 from now on; unmove lets the nodes decide again

A node needs nothing but the database: the first one makes the tables. Any node answers any request.

Exit codes:
  2   the command line is wrong
  69  no server answers
  70  the server refused the request, or is no node of a cluster";

/// Operate several nodes over one PostgreSQL
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show nodes, shards, owners, and how many machines keep an acknowledged write
    Status(StatusArgs),
    /// Have a node give its shards away and take none
    Drain(NodeArgs),
    /// Let a node take shards again
    Undrain(NodeArgs),
    /// Have a node own a shard, for as long as the node lives
    Move(MoveArgs),
    /// Let the nodes decide again which of them owns a shard
    Unmove(ShardArgs),
}

#[derive(clap::Args)]
struct NodeArgs {
    /// Name of the node
    node: String,
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

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (StatusArgs { json, server }, change) = match args.command {
        Command::Status(status) => (status, None),
        Command::Drain(NodeArgs { node, status }) => (status, Some(ClusterChange::Drain(node))),
        Command::Undrain(NodeArgs { node, status }) => (status, Some(ClusterChange::Undrain(node))),
        Command::Move(MoveArgs { shard, node, status }) => (status, Some(ClusterChange::Move(shard, node))),
        Command::Unmove(ShardArgs { shard, status }) => (status, Some(ClusterChange::Unmove(shard))),
    };
    let admin = Admin { address: server.address };
    let answer = match &change {
        None => admin.cluster().await,
        Some(change) => admin.change_cluster(change).await,
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

fn render(status: &ClusterStatus) -> String {
    let mut out = String::new();
    let database = &status.database;
    let _ =
        writeln!(out, "database  {}; heard from {}", text::plain(&database.durability), ago(database.age_ms));
    let _ = writeln!(out, "asked     {}\n", text::plain(&status.node));
    out += &render_nodes(&status.nodes);
    out.push('\n');
    out + &render_shards(&status.shards)
}

fn render_nodes(nodes: &[ClusterNodeInfo]) -> String {
    let header = ["node", "address", "state", "renewed", "shards"].map(str::to_owned);
    let row = |node: &ClusterNodeInfo| {
        let state = if node.drains { format!("{}, draining", node.state) } else { node.state.clone() };
        let shards: Vec<String> = node.shards.iter().map(u32::to_string).collect();
        vec![node.name.clone(), node.address.clone(), state, ago(node.age_ms), shards.join(", ")]
    };
    Table::default().render(&header, &nodes.iter().map(row).collect::<Vec<_>>())
}

fn render_shards(shards: &[ClusterShardInfo]) -> String {
    let header = ["shard", "owner", "epoch", "renewed", "namespaces"].map(str::to_owned);
    let row = |shard: &ClusterShardInfo| {
        let owner = shard.owner.clone().unwrap_or_else(|| "none".to_owned());
        let namespaces = shard.namespaces.map_or_else(|| "unknown".to_owned(), |count| count.to_string());
        vec![shard.shard.to_string(), owner, shard.epoch.to_string(), ago(shard.age_ms), namespaces]
    };
    Table::default().render(&header, &shards.iter().map(row).collect::<Vec<_>>())
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
        };
        let status = ClusterStatus {
            node: "a".into(),
            nodes: vec![node("a", 200, &[1]), node("b", 9000, &[])],
            shards: vec![ClusterShardInfo {
                shard: 1,
                owner: Some("a".into()),
                epoch: 7,
                age_ms: 200,
                namespaces: Some(12),
            }],
            database: DatabaseInfo { durability: "on 2 machines".into(), age_ms: 200 },
        };
        let shown = render(&status);
        for part in ["on 2 machines", "b.example:7118", "stale", "epoch", "7", "12"] {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
    }
}
