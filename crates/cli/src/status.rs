//! `lockwood status`, `lockwood namespaces` and `lockwood collections`: what a server has, at a glance.

use crate::{
    exit::Failure,
    output::{Table, json_line, print},
    target::{Namespace, Server},
};
use lockwood_client::{Admin, Store, text};
use lockwood_wire::{NamespaceInfo, ServerStatus};
use std::{fmt::Write, process::ExitCode};

const EXIT_CODES: &str = "\
Exit codes:
  2   the command line is wrong
  69  no server answers
  70  the server refused the request";

/// Show what a server serves where, its positions, locks, memory and grace
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct StatusArgs {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

/// List namespaces: those with documents, and those that are in use
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct NamespacesArgs {
    /// Print them as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

/// List the collections of a namespace that have or had documents
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct CollectionsArgs {
    /// Print them as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    namespace: Namespace,
}

pub(crate) async fn status(args: StatusArgs) -> anyhow::Result<ExitCode> {
    match (Admin { address: args.server.address }).status().await {
        Ok(status) if args.json => print(&json_line(&status)),
        Ok(status) => print(&render(&status)),
        Err(error) => Ok(Failure::from(&error).report()),
    }
}

pub(crate) async fn namespaces(args: NamespacesArgs) -> anyhow::Result<ExitCode> {
    match (Admin { address: args.server.address }).namespaces().await {
        Ok(list) if args.json => print(&json_line(&list)),
        Ok(list) => print(&render_namespaces(&list.namespaces)),
        Err(error) => Ok(Failure::from(&error).report()),
    }
}

pub(crate) async fn collections(args: CollectionsArgs) -> anyhow::Result<ExitCode> {
    let name = &args.namespace.name;
    match Store::new(&args.server.address, name).collections().await {
        Ok(found) if args.json => print(&json_line(&found)),
        Ok(found) if found.collections.is_empty() => {
            print(&format!("no collections in namespace {}\n", text::plain(name)))
        }
        Ok(found) => {
            let line = |name: &String| text::plain(name) + "\n";
            print(&found.collections.iter().map(line).collect::<String>())
        }
        Err(error) => Ok(Failure::from(&error).report()),
    }
}

fn render(status: &ServerStatus) -> String {
    let mut out = format!(
        "Lockwood {}, up for {}: {}\n",
        text::plain(&status.version),
        text::span(status.uptime_ms),
        text::plain(&status.status).replace('_', " "),
    );
    let mut line = |name: &str, value: String| {
        writeln!(out, "  {name:<18} {value}").expect("a string takes all");
    };
    line("data", text::plain(&status.data));
    for interface in &status.interfaces {
        line(&text::plain(&interface.name).replace('_', " "), text::plain(&interface.address));
    }
    if let Some(memory) = status.memory_bytes {
        line("memory", format!("{} MiB", memory >> 20));
    }
    if let Some(durability) = &status.durability {
        line("durability", text::plain(durability));
    }
    line("connections", status.connections.to_string());
    line("locks", {
        let held: usize = status.namespaces.iter().map(|namespace| namespace.locks_granted).sum();
        let waiting: usize = status.namespaces.iter().map(|namespace| namespace.locks_waiting).sum();
        format!("{held} held, {waiting} waiting")
    });
    for grace in &status.grace {
        let namespace = grace.namespace.as_deref().map_or_else(|| "any namespace".to_owned(), text::plain);
        line("grace", format!("nothing is granted in {namespace} for another {}", text::span(grace.left_ms)));
    }
    out + "\n" + &render_namespaces(&status.namespaces)
}

fn render_namespaces(namespaces: &[NamespaceInfo]) -> String {
    if namespaces.is_empty() {
        return "no namespaces\n".to_owned();
    }
    let header = ["namespace", "position", "sessions", "held", "waiting"].map(str::to_owned);
    let row = |info: &NamespaceInfo| {
        vec![
            info.namespace.clone(),
            info.position.map(|position| position.to_string()).unwrap_or_default(),
            info.sessions.to_string(),
            info.locks_granted.to_string(),
            info.locks_waiting.to_string(),
        ]
    };
    Table::default().render(&header, &namespaces.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_wire::{GraceInfo, Interface};

    #[test]
    fn a_server_is_shown_at_a_glance() {
        let status = ServerStatus {
            version: "1.2.3".into(),
            status: "grace_period".into(),
            grace: vec![GraceInfo { namespace: None, left_ms: 5000 }],
            started_at: "T".into(),
            uptime_ms: 125_000,
            data: "/data".into(),
            interfaces: vec![Interface { name: "native".into(), address: "127.0.0.1:7117".into() }],
            connections: 2,
            memory_bytes: Some(64 << 20),
            durability: Some("an acknowledged write is on 2 machines".into()),
            namespaces: vec![NamespaceInfo {
                namespace: "shop".into(),
                sessions: 1,
                locks_granted: 3,
                locks_waiting: 2,
                position: Some(42),
            }],
        };
        assert_eq!(
            render(&status),
            "Lockwood 1.2.3, up for 2m 5s: grace period\n  \
             data               /data\n  \
             native             127.0.0.1:7117\n  \
             memory             64 MiB\n  \
             durability         an acknowledged write is on 2 machines\n  \
             connections        2\n  \
             locks              3 held, 2 waiting\n  \
             grace              nothing is granted in any namespace for another 5.0s\n\n\
             namespace  position  sessions  held  waiting\n\
             shop       42        1         3     2\n"
        );
    }
}
