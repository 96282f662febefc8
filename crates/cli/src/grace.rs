//! `lockwood grace`: which namespaces grant nothing yet after an unclean stop, and an operator's end of it.

use crate::{
    exit::Failure,
    output::{json_line, print},
    target::Server,
};
use lockwood_client::{Admin, text};
use lockwood_wire::GraceInfo;
use std::{fmt::Write, process::ExitCode};

const AFTER_HELP: &str = "\
A namespace is in a grace period if sessions held locks in it when the server stopped without them, for as long as
the longest abandon timeout of those sessions. They can take their locks up again; nothing else is granted.

`end` ends it at once. Locks of before that no session has taken up again are lost, although their holders may still
rely on them; so end it only if they are gone.

Exit codes:
  2   the command line is wrong
  69  no server answers
  70  the server refused: the namespace is in no grace period

Examples:
  lockwood grace
  lockwood grace end default --reason 'all importers are stopped'";

/// Show which namespaces grant nothing yet after an unclean stop, or end that
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print the namespaces as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

#[derive(clap::Subcommand)]
enum Action {
    End(End),
}

/// End the grace period of a namespace; it is recorded
#[derive(clap::Args)]
struct End {
    /// The namespace
    #[arg(value_parser = crate::target::parse_namespace)]
    namespace: String,
    /// Why; the operator log gets to know
    #[arg(long)]
    reason: Option<String>,
    /// Print what is recorded as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match &args.action {
        Some(Action::End(end)) => run_end(end).await,
        None => run_list(&args).await,
    }
}

async fn run_list(args: &Args) -> anyhow::Result<ExitCode> {
    let admin = Admin { address: args.server.address.clone() };
    match admin.grace().await {
        Err(error) => Ok(Failure::from(&error).report()),
        Ok(list) if args.json => print(&json_line(&list.namespaces)),
        Ok(list) if list.namespaces.is_empty() => print("no namespace is in a grace period\n"),
        Ok(list) => print(&list.namespaces.iter().fold(String::new(), |mut out, info| {
            writeln!(out, "{}", line(info)).expect("a string takes all");
            out
        })),
    }
}

async fn run_end(args: &End) -> anyhow::Result<ExitCode> {
    let admin = Admin { address: args.server.address.clone() };
    match admin.end_grace(&args.namespace, args.reason.as_deref()).await {
        Err(error) => Ok(Failure::from(&error).report()),
        Ok(action) if args.json => print(&json_line(&action)),
        Ok(action) => {
            let left = text::span(action.grace_ms.unwrap_or_default());
            let namespace = text::plain(&action.namespace);
            print(&format!("ended the grace period of namespace {namespace}, {left} before its time\n"))
        }
    }
}

/// One grace period, as lists of several show it.
pub(crate) fn line(info: &GraceInfo) -> String {
    let whom = match &info.namespace {
        Some(namespace) => format!("namespace {}", text::plain(namespace)),
        None => "every other namespace".to_owned(),
    };
    format!(
        "{whom} is in a grace period for another {}: sessions that held locks at the last stop can take them up again, \
         nothing else is granted",
        text::span(info.left_ms)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_period_says_where_how_long_and_why() {
        let info =
            |namespace: Option<&str>| GraceInfo { namespace: namespace.map(Into::into), left_ms: 61_000 };
        let why = "sessions that held locks at the last stop can take them up again, nothing else is granted";
        assert_eq!(
            line(&info(Some("a\n"))),
            format!("namespace a\\n is in a grace period for another 1m 1s: {why}")
        );
        assert!(line(&info(None)).starts_with("every other namespace is in a grace period"));
    }
}
